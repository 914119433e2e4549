"""What a view remembers of the frames that were, put together into as many columns as are shown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.frames import Frame
from cufall_py.metrics import Floats

Floats32 = NDArray[np.float32]

SLOTS = 36_000
"""An hour of frames of 100 ms."""
LEAST_SLOT_NS = 10_000_000
"""Shorter frames are put together as they come."""
HIGH_SHARE = 0.95
SUM, WEIGHT, MOST = range(3)


@dataclass(frozen=True)
class Window:
    """A stretch of a history. `cells` (gpus, metrics, columns): each column's mean by covered time.

    `now`, `mean`, `high`, `maximum` (gpus, metrics) are of the last slot and of all the time shown: `high` is the
    95th percentile of the slots' means, `maximum` that of samples. NaN everywhere for not measured.
    `coverage` (gpus,): covered / wanted time of what is shown, NaN where none was wanted.
    """

    cells: Floats
    now: Floats
    mean: Floats
    high: Floats
    maximum: Floats
    coverage: Floats
    column_ns: float

    @property
    def shown_ns(self) -> float:
        return float(self.column_ns * self.cells.shape[2])


class History:
    """The newest `slots` x `slot_ns` of frames of `gpus` x `metrics`. Frames come in order.

    Slots are numbered since the epoch. They lie in one stretch twice as long as what is kept, so that any window
    is a plain slice; when it is full, its newer half is moved to the front.
    """

    def __init__(self, frame_ns: int, gpus: int, metrics: int, slots: int = SLOTS) -> None:
        self.slot_ns = frame_ns * max(1, -(-LEAST_SLOT_NS // frame_ns))
        self.newest = -1
        """The newest slot; -1: none yet."""
        self._slots, self._first = slots, 0
        # The last of the metrics is coverage. 32 bits: an hour of 16 GPUs and 4 metrics in 70 MB, taken as it is
        # written to.
        self._data = np.zeros((3, gpus, metrics + 1, 2 * slots), np.float32)

    @property
    def span_ns(self) -> int:
        """The most that can be shown."""
        return self._slots * self.slot_ns

    def add(self, frame: Frame) -> None:
        """Take the next frame. One from before the newest slot is of a clock that was set: all is begun anew."""
        slot = frame.start_ns // self.slot_ns
        if slot < self.newest or slot - self.newest >= self._slots:
            self._data[:, :, :, : self.newest - self._first + 1] = 0
            self._first = slot
        elif slot - self._first >= 2 * self._slots:
            self._move(slot - self._slots + 1)
        self.newest = slot
        at = self._data[:, :, :, slot - self._first]
        measured = ~np.isnan(frame.mean)
        at[SUM, :, :-1] += np.where(measured, frame.mean * frame.covered_ns[:, None], 0)
        at[WEIGHT, :, :-1] += measured * frame.covered_ns[:, None]
        at[MOST, :, :-1] = np.fmax(at[MOST, :, :-1], frame.maximum)
        at[SUM, :, -1] += frame.covered_ns
        at[WEIGHT, :, -1] += frame.period_ns

    def _move(self, first: int) -> None:
        """Let this slot be the first."""
        kept = self.newest - first + 1
        self._data[:, :, :, :kept] = self._data[:, :, :, first - self._first : self.newest - self._first + 1]
        self._data[:, :, :, kept:] = 0
        self._first = first

    def window(self, span_ns: float, columns: int, end: int = -1) -> Window:
        """The time until slot `end` (-1: the newest) in this many columns, no shorter than `span_ns`.

        A column is a whole number of slots, or a slot a whole number of columns; the edges of columns stay where
        they are from one window to the next, so that nothing flickers.
        """
        end = self.newest if end < 0 else end
        together, apart = _ratio(span_ns / self.slot_ns, columns)
        bins = -(-columns // apart)
        beyond = (end // together + 1) * together
        data = self._copied(beyond - bins * together, end + 1, beyond)
        slots, whole = _quotient(data), _quotient(data.sum(axis=-1, dtype=np.float64))
        cells = _quotient(data.reshape(*data.shape[:3], bins, together).sum(axis=-1))
        return Window(
            np.repeat(cells[:, :-1], apart, axis=-1)[:, :, -columns:],
            slots[:, :-1, end - beyond],
            whole[:, :-1],
            _percentile(slots[:, :-1], HIGH_SHARE),
            np.where(np.isnan(whole), np.nan, data[MOST].max(axis=-1))[:, :-1],
            whole[:, -1],
            self.slot_ns * together / apart,
        )

    def _copied(self, first: int, end: int, beyond: int) -> Floats32:
        """Slots `first` to `beyond`; empty but for those that there are before `end`."""
        out = np.zeros((*self._data.shape[:3], beyond - first), np.float32)
        begin = max(first, self._first, self.newest - self._slots + 1)
        end = min(end, self.newest + 1)
        if begin < end:
            out[..., begin - first : end - first] = self._data[..., begin - self._first : end - self._first]
        return out


def _ratio(slots: float, columns: int) -> tuple[int, int]:
    """How many slots are one column, and how many columns are one slot; one of the two is 1."""
    if slots >= columns:
        return math.ceil(slots / columns), 1
    return 1, int(columns // slots)


def _quotient(data: Floats | Floats32) -> Floats:
    """Sums by their weights; NaN without weight."""
    with np.errstate(invalid="ignore", divide="ignore"):
        out: Floats = data[SUM] / data[WEIGHT]
    return out


def _percentile(values: Floats, share: float) -> Floats:
    """(..., n) to (...): the least value that with all below it makes up `share` of those that are no NaN."""
    ordered = np.sort(values, axis=-1)
    count = (~np.isnan(values)).sum(axis=-1, keepdims=True)
    place = np.maximum(np.ceil(share * count).astype(np.intp) - 1, 0)
    found: Floats = np.take_along_axis(ordered, place, axis=-1)[..., 0]
    return found
