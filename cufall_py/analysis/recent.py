"""Verdicts of the last seconds, of frames as they come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import Metric

from .decision_table import TABLE, UNKNOWN, DecisionTable
from .evidence import GAP_WITHIN, INPUTS
from .verdict import Verdicts, classify
from .verdict_frames import IDLE_SAMPLE
from .verdict_windows import ClassTimes, WindowVerdict, with_nearness

Floats = NDArray[np.float64]


class Recent:
    """The newest `frames` frames of `gpus` GPUs of which all have these metrics.

    Of those only what is a share of its peak, or so much a second, can be evidence.
    """

    def __init__(self, metrics: Sequence[Metric], gpus: int, frames: int, table: DecisionTable = TABLE) -> None:
        usable = [k for k, m in enumerate(metrics) if m.label in INPUTS and (m.bounded or m.unit)]
        self._columns, self._labels, self._table = usable, [metrics[k].label for k in usable], table
        self._means = np.full((frames, gpus, len(usable)), np.nan)
        self._gr = next((k for k in usable if metrics[k].label == "gr"), -1)
        self._gaps = np.full((frames, gpus), np.nan)
        self._covered_ns = np.zeros((frames, gpus))
        self._verdicts = Verdicts.unknown(frames * gpus)
        self._count, self._classified, self._period_ns = 0, 0, 0

    def add(self, mean: Floats, minimum: Floats, covered_ns: Floats, period_ns: int) -> None:
        """Take a frame: means and samples' minima (gpus, metrics), and how much of it was measured, (gpus,)."""
        if self._count - self._classified >= len(self._means):
            self._classify()
        at = self._count % len(self._means)
        self._means[at], self._covered_ns[at] = mean[:, self._columns], covered_ns
        if self._gr >= 0:  # where every sample had some work, all gaps are within; else how many are is not known
            self._gaps[at] = np.where(minimum[:, self._gr] >= IDLE_SAMPLE, 1 - mean[:, self._gr], np.nan)
        self._count, self._period_ns = self._count + 1, period_ns

    def codes(self) -> NDArray[np.int8]:
        """(frames, gpus) the class of each frame, oldest first, unknown where nothing was measured."""
        self._classify()
        rows = self._rows()
        codes = self._verdicts.classes.reshape(self._covered_ns.shape)[rows]
        return np.where(self._covered_ns[rows] > 0, codes, np.int8(UNKNOWN))

    def newest(self) -> tuple[NDArray[np.int8], list[dict[str, float]]]:
        """(gpus,) the classes of the last frame, and what was measured in it."""
        return self.codes()[-1], [self._named(row) for row in self._means[(self._count - 1) % len(self._means)]]

    def windows(self) -> list[WindowVerdict]:
        """Of each GPU, what the frames that are kept come to."""
        self._classify()
        rows = self._rows()
        covered_ns, gaps = self._covered_ns[rows], self._gaps[rows]
        means = _over(covered_ns[:, :, None], self._means[rows])
        told = (~np.isnan(gaps) | (covered_ns == 0)).all(axis=0)
        gaps = np.where(told, _over(covered_ns, gaps), np.nan)
        windows = [self._window(rows, gpu, means[gpu]) for gpu in range(len(means))]
        return with_nearness(windows, self._evidence(means, gaps), self._table)

    def _window(self, rows: NDArray[np.intp], gpu: int, means: Floats) -> WindowVerdict:
        times = ClassTimes()
        times.add(self._covered_ns[rows, gpu], self._verdicts[rows * self._covered_ns.shape[1] + gpu])
        return times.verdict(len(rows) * self._period_ns, self._named(means))

    def _evidence(self, means: Floats, gaps: Floats) -> dict[str, Floats]:
        """As `classify` takes it."""
        return {**dict(zip(self._labels, means.T, strict=True)), GAP_WITHIN: gaps}

    def _named(self, values: Floats) -> dict[str, float]:
        return dict(zip(self._labels, values.tolist(), strict=True))

    def _rows(self) -> NDArray[np.intp]:
        """Where the frames that are kept lie, oldest first."""
        return np.arange(max(0, self._count - len(self._means)), self._count) % len(self._means)

    def _classify(self) -> None:
        """Give verdicts of the frames that have none yet; several at once, for one takes as long."""
        rows = np.arange(self._classified, self._count) % len(self._means)
        if not len(rows):
            return
        gpus = self._covered_ns.shape[1]
        values = self._means[rows].reshape(len(rows) * gpus, -1)
        found = classify(self._evidence(values, self._gaps[rows].ravel()), len(values), self._table)
        self._verdicts.put((rows[:, None] * gpus + np.arange(gpus)).ravel(), found)
        self._classified = self._count


def _over(covered_ns: Floats, values: Floats) -> Floats:
    """Means along the first axis, of what was measured, by how long it was."""
    weights = np.where(np.isnan(values), 0.0, covered_ns)
    with np.errstate(invalid="ignore"):
        out: Floats = (np.nan_to_num(values) * weights).sum(axis=0) / weights.sum(axis=0)
    return out
