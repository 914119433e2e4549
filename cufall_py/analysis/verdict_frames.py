"""The frames that verdicts are given of: counters summed over stretches of 50 ms of one GPU, as samples come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import MetricSet
from cufall_py.samples import Ints, Samples

from .evidence import INPUTS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FrameTotals:
    """Frames in which something was measured: `number` x `frame_ns` is the start of each, (f,).

    `totals` (f, counters + 1): each counter's sum, and last the covered nanoseconds. A sample that straddles an edge
    counts on both sides of it by its share.
    """

    frame_ns: int
    numbers: Ints
    totals: Floats

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def covered_ns(self) -> Floats:
        return self.totals[:, -1]

    def __getitem__(self, rows: slice) -> FrameTotals:
        return FrameTotals(self.frame_ns, self.numbers[rows], self.totals[rows])

    @staticmethod
    def join(parts: list[FrameTotals]) -> FrameTotals:
        """Of several (at least one) in order; the last frame of one may be the first of the next."""
        numbers = np.concatenate([part.numbers for part in parts])
        totals = np.concatenate([part.totals for part in parts])
        first = np.flatnonzero(np.diff(numbers, prepend=-1))
        if len(first) < len(numbers):
            numbers, totals = numbers[first], np.add.reduceat(totals, first, axis=0)
        return FrameTotals(parts[0].frame_ns, numbers, totals)


def frame_totals(samples: Samples, metrics: MetricSet, frame_ns: int) -> FrameTotals:
    """Sum samples (in order, not overlapping) into frames on multiples of `frame_ns` since the epoch."""
    samples = _cut(_measured(samples), frame_ns)
    first, last, length_ns = *_frames(samples, frame_ns), samples.end_ns - samples.start_ns
    begins, across = np.flatnonzero(np.diff(first, prepend=-1)), np.flatnonzero(last > first)
    numbers = _apart(np.sort(np.concatenate([first[begins], last[across]])))
    into, after = np.searchsorted(numbers, first[begins]), np.searchsorted(numbers, last[across])
    share = (samples.end_ns[across] - last[across] * frame_ns) / length_ns[across]
    columns = metrics.columns(samples.values, length_ns)
    totals = np.zeros((len(numbers), len(columns)))
    for k, column in enumerate(columns if len(samples) else ()):
        own, later = column.copy(), column[across] * share
        own[across] -= later
        totals[into, k] = np.add.reduceat(own, begins)
        totals[after, k] += later
    return FrameTotals(frame_ns, numbers, totals)


def _frames(samples: Samples, frame_ns: int) -> tuple[Ints, Ints]:
    """The number of the frame that each begins in, and of the one that it ends in."""
    return samples.start_ns // frame_ns, (samples.end_ns - 1) // frame_ns


def _apart(numbers: Ints) -> Ints:
    """Each of numbers in order once."""
    return numbers[np.flatnonzero(np.diff(numbers, prepend=-1))]


def _measured(samples: Samples) -> Samples:
    """Those that have a value of anything."""
    if not np.isnan(samples.values[:, :1]).any():
        return samples
    return samples[np.flatnonzero(~np.isnan(samples.values).all(axis=1))]


def _cut(samples: Samples, frame_ns: int) -> Samples:
    """The same, those that reach into more than two frames in pieces of a frame."""
    if not len(samples) or (samples.end_ns - samples.start_ns).max() <= frame_ns:  # these touch two frames at most
        return samples
    first, last = _frames(samples, frame_ns)
    pieces = np.maximum(1, last - first)
    of = np.repeat(np.arange(len(samples)), pieces)
    step = np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    length_ns = (samples.end_ns - samples.start_ns)[of]
    start_ns = samples.start_ns[of] + length_ns * step // pieces[of]
    end_ns = samples.start_ns[of] + length_ns * (step + 1) // pieces[of]
    return Samples(start_ns, end_ns, samples.values[of] * ((end_ns - start_ns) / length_ns)[:, None])


def means_of(frames: FrameTotals, metrics: MetricSet) -> dict[str, Floats]:
    """What classify takes: (f,) of each metric that a verdict can rest on; those of another scale are left out."""
    ratios = metrics.ratios(frames.totals)
    return {
        metric.label: ratios[:, k]
        for k, metric in enumerate(metrics.metrics)
        if metric.label in INPUTS and not metric.absent
    }
