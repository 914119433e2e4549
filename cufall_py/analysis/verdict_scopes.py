"""Verdicts of each GPU in each region of a recording, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import MetricSet
from cufall_py.outline import forward
from cufall_py.samples import Samples
from cufall_py.spans import Span

from .decision_table import TABLE, DecisionTable
from .verdict_frames import FrameTotals, frame_totals
from .verdict_windows import Classifier, WindowVerdict
from .windows import Windows

FRAME_NS = 50_000_000


@dataclass(frozen=True)
class Judging:
    """How verdicts are given: of frames this long, by this table."""

    frame_ns: int = FRAME_NS
    table: DecisionTable = TABLE


class ScopeVerdicts:
    """Takes samples as they come; `scopes` are the times of each window, of which samples wholly inside count.

    `sets`: of each GPU, the metrics that verdicts can rest on, made of the columns of its samples.
    """

    def __init__(
        self, sets: Sequence[MetricSet], scopes: Mapping[str, Sequence[Span]], judging: Judging = Judging()
    ) -> None:
        self._windows = {name: Windows(spans) for name, spans in scopes.items()}
        frame_ns, table = judging.frame_ns, judging.table
        self._sets, self._frame_ns = sets, frame_ns
        self._classifiers = [{name: Classifier(metrics, frame_ns, table) for name in scopes} for metrics in sets]
        self._newest_ns = [0] * len(sets)

    def add(self, gpu: int, samples: Samples) -> None:
        """Take the next samples of the GPU at this position; those that begin before others ended are left out."""
        ahead = forward(samples.start_ns, samples.end_ns, self._newest_ns[gpu])
        if not ahead.all():
            samples = samples[ahead]
        if not len(samples):
            return
        self._newest_ns[gpu] = int(samples.end_ns[-1])
        length_ns = samples.end_ns - samples.start_ns
        of_all: FrameTotals | None = None
        for name, windows in self._windows.items():
            whole = windows.overlap_ns(samples.start_ns, samples.end_ns) == length_ns
            if whole.all():
                of_all = of_all or frame_totals(samples, self._sets[gpu], self._frame_ns)
                self._classifiers[gpu][name].add_frames(of_all)
            elif whole.any():
                self._classifiers[gpu][name].add(samples[_rows(whole)])

    def verdicts(self, wanted_s: Mapping[str, float]) -> dict[str, tuple[WindowVerdict, ...]]:
        """By scope, of each GPU, of as much time as each scope has."""
        return {
            name: tuple(of[name].verdict(1e9 * seconds) for of in self._classifiers)
            for name, seconds in wanted_s.items()
        }


def _rows(chosen: NDArray[np.bool_]) -> slice | NDArray[np.bool_]:
    """The same rows (at least one), as a slice if they lie together, which copies nothing."""
    first, last = int(chosen.argmax()), len(chosen) - int(chosen[::-1].argmax())
    return slice(first, last) if chosen[first:last].all() else chosen
