"""The frames that verdicts are given of: counters summed over stretches of 50 ms of one GPU, as samples come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import TIME, MetricSet
from cufall_py.samples import Ints, Samples

from .evidence import INPUTS

Floats = NDArray[np.float64]
IDLE_SAMPLE = 0.01
"""A sample in which the engine was active for less than this had nothing: the edge of `idle`."""


@dataclass(frozen=True)
class FrameTotals:
    """Frames in which something was measured: `number` x `frame_ns` is the start of each, (f,).

    `totals` (f, counters + 1): each counter's sum, and last the covered nanoseconds. A sample that straddles an edge
    counts on both sides of it by its share. `gap_ns` (f,): the time without any work in samples that also had some, NaN
    where `gr` is not among the metrics.
    """

    frame_ns: int
    numbers: Ints
    totals: Floats
    gap_ns: Floats

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def covered_ns(self) -> Floats:
        return self.totals[:, -1]

    def __getitem__(self, rows: slice) -> FrameTotals:
        return FrameTotals(self.frame_ns, self.numbers[rows], self.totals[rows], self.gap_ns[rows])

    @staticmethod
    def join(parts: list[FrameTotals]) -> FrameTotals:
        """Of several (at least one) in order; the last frame of one may be the first of the next."""
        numbers = np.concatenate([part.numbers for part in parts])
        totals, gap_ns = np.concatenate([p.totals for p in parts]), np.concatenate([p.gap_ns for p in parts])
        first = np.flatnonzero(np.diff(numbers, prepend=-1))
        if len(first) < len(numbers):
            numbers, totals = numbers[first], np.add.reduceat(totals, first, axis=0)
            gap_ns = np.add.reduceat(gap_ns, first)
        return FrameTotals(parts[0].frame_ns, numbers, totals, gap_ns)


def frame_totals(samples: Samples, metrics: MetricSet, frame_ns: int) -> FrameTotals:
    """Sum samples (in order, not overlapping) into frames on multiples of `frame_ns` since the epoch."""
    samples = _cut(_measured(samples), frame_ns)
    first, last = samples.start_ns // frame_ns, (samples.end_ns - 1) // frame_ns
    numbers = _apart(np.stack([first, last], axis=1).ravel())
    begin = np.searchsorted(first, numbers, side="left")
    across = np.flatnonzero(last > first)  # the last of their frames
    whole = np.searchsorted(first, numbers, side="right") - begin
    position = np.searchsorted(numbers, first[across])
    whole[position] -= 1
    amounts, length_ns = _amounts(samples, metrics), samples.end_ns - samples.start_ns
    times = np.stack([_gaps(samples, metrics), length_ns], axis=1)
    totals = np.zeros((len(numbers), amounts.shape[1] + 2))
    for count in _distinct(whole):  # frames of as many samples are summed together: several times as fast as reduceat
        rows = np.flatnonzero(whole == count)
        taken = begin[rows][:, None] + np.arange(count)
        totals[rows, :-2] = np.einsum("fsc->fc", np.take(amounts, taken, axis=0))
        totals[rows, -2:] = np.einsum("fsc->fc", np.take(times, taken, axis=0))
    share = ((samples.end_ns[across] - last[across] * frame_ns) / length_ns[across])[:, None]
    straddling = np.concatenate([amounts[across], times[across]], axis=1)
    totals[position] += straddling * (1 - share)
    totals[position + 1] += straddling * share
    return FrameTotals(frame_ns, numbers, np.delete(totals, -2, axis=1), totals[:, -2])


def _gaps(samples: Samples, metrics: MetricSet) -> Floats:
    """(n,) the nanoseconds of each sample in which the engine had nothing, 0 where it had nothing all along."""
    length_ns = samples.end_ns - samples.start_ns
    gr = next((metric for metric in metrics.metrics if metric.label == "gr" and not metric.absent), None)
    if gr is None:
        return np.full(len(samples), np.nan)
    read = tuple(dict.fromkeys(name for name in (*gr.counters, gr.elapsed) if name != TIME))
    values = samples.values[:, [metrics.counters.index(name) for name in read]]
    active = np.minimum(MetricSet(read, (gr,)).quotients(values, length_ns)[:, 0], 1.0)
    return np.where(active < IDLE_SAMPLE, 0.0, (1 - active) * length_ns)


def _measured(samples: Samples) -> Samples:
    """Those that have a value of anything."""
    if not np.isnan(samples.values[:, :1]).any():
        return samples
    return samples[np.flatnonzero(~np.isnan(samples.values).all(axis=1))]


def _apart(numbers: Ints) -> Ints:
    """Each of numbers in order once."""
    return numbers[np.flatnonzero(np.diff(numbers, prepend=-1))]


def _distinct(counts: NDArray[np.intp]) -> list[int]:
    return [int(count) for count in np.unique(counts) if count]


def _amounts(samples: Samples, metrics: MetricSet) -> Floats:
    """(n, counters) what adds up over time."""
    if not any(metric.rate for metric in metrics.metrics):
        return samples.values
    return metrics.extend(samples.values, samples.end_ns - samples.start_ns)[:, :-1]


def _cut(samples: Samples, frame_ns: int) -> Samples:
    """The same, those that reach into more than two frames in pieces of a frame."""
    pieces = np.maximum(1, (samples.end_ns - 1) // frame_ns - samples.start_ns // frame_ns)
    if (pieces == 1).all():
        return samples
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
