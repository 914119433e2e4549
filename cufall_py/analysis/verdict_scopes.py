"""Verdicts of each GPU in each region of a recording, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import MetricSet
from cufall_py.outline import forward
from cufall_py.samples import Samples
from cufall_py.spans import Span

from .decision_table import TABLE, UNKNOWN, DecisionTable
from .verdict import Verdicts
from .verdict_frames import FrameTotals, frame_totals
from .verdict_windows import Classifier, WindowVerdict
from .windows import Windows

FRAME_NS = 50_000_000
OnFrames = Callable[[int, FrameTotals, Verdicts], None]
"""Takes the position of a GPU, its next frames and their verdicts; the frames of one call follow those of the last."""


@dataclass(frozen=True)
class Judging:
    """How verdicts are given: of frames this long, by this table."""

    frame_ns: int = FRAME_NS
    table: DecisionTable = TABLE


class ScopeVerdicts:
    """Takes samples as they come; `scopes` are the times of each window, of which samples wholly inside count.

    `sets`: of each GPU, the metrics that verdicts can rest on, made of the columns of its samples. The `watchers` of a
    scope are given every frame of it with its verdict, the last ones by `verdicts`.
    """

    def __init__(
        self,
        sets: Sequence[MetricSet],
        scopes: Mapping[str, Sequence[Span]],
        judging: Judging = Judging(),
        watchers: Mapping[str, Sequence[OnFrames]] = {},
    ) -> None:
        self._windows = {name: Windows(spans) for name, spans in scopes.items()}
        self._sets, self._judging = sets, judging
        self._classifiers = [
            {name: self._classifier(metrics, gpu, watchers.get(name, ())) for name in scopes}
            for gpu, metrics in enumerate(sets)
        ]
        self._newest_ns = [0] * len(sets)

    def _classifier(self, metrics: MetricSet, gpu: int, watchers: Sequence[OnFrames]) -> Classifier:
        def tell(frames: FrameTotals, verdicts: Verdicts) -> None:
            for watcher in watchers:
                watcher(gpu, frames, verdicts)

        return Classifier(metrics, self._judging.frame_ns, self._judging.table, tell)

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
            if not windows.touch(int(samples.start_ns[0]), int(samples.end_ns[-1])):
                continue
            whole = windows.overlap_ns(samples.start_ns, samples.end_ns) == length_ns
            if whole.all():
                of_all = of_all or frame_totals(samples, self._sets[gpu], self._judging.frame_ns)
                self._classifiers[gpu][name].add_frames(of_all)
            elif whole.any():
                self._classifiers[gpu][name].add(samples[_rows(whole)])

    def verdicts(self, wanted_s: Mapping[str, float]) -> dict[str, tuple[WindowVerdict, ...]]:
        """By scope, of each GPU, of as much time as each scope has."""
        return {
            name: tuple(of[name].verdict(1e9 * seconds) for of in self._classifiers)
            for name, seconds in wanted_s.items()
        }


class FrameCodes:
    """The verdict of every frame of several GPUs: a byte a frame and GPU, and eight for its number."""

    def __init__(self, gpus: int) -> None:
        self._numbers: list[list[NDArray[np.int64]]] = [[] for _ in range(gpus)]
        self._codes: list[list[NDArray[np.int8]]] = [[] for _ in range(gpus)]

    def add(self, gpu: int, frames: FrameTotals, verdicts: Verdicts) -> None:
        self._numbers[gpu].append(frames.numbers)
        self._codes[gpu].append(verdicts.classes)

    def codes(self) -> NDArray[np.int8]:
        """(frames, gpus) of all frames in which any GPU was measured, in order; unknown where one was not."""
        numbers = [np.concatenate([np.zeros(0, np.int64), *parts]) for parts in self._numbers]
        every = np.unique(np.concatenate([np.zeros(0, np.int64), *numbers]))
        out = np.full((len(every), len(numbers)), UNKNOWN, np.int8)
        for gpu, found in enumerate(numbers):
            if len(found):
                out[np.searchsorted(every, found), gpu] = np.concatenate(self._codes[gpu])
        return out


def _rows(chosen: NDArray[np.bool_]) -> slice | NDArray[np.bool_]:
    """The same rows (at least one), as a slice if they lie together, which copies nothing."""
    first, last = int(chosen.argmax()), len(chosen) - int(chosen[::-1].argmax())
    return slice(first, last) if chosen[first:last].all() else chosen
