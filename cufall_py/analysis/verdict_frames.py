"""The frames that verdicts are given of: counters summed over stretches of 50 ms of one GPU, as samples come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import MetricSet
from cufall_py.samples import Ints, Laid, Samples

from .evidence import INPUTS

Floats = NDArray[np.float64]
IDLE_SAMPLE = 0.01
"""A sample in which the engine was active for less than this had nothing: the edge of `idle`."""
SLOT_NS = 1_000_000
"""Samples shorter than this are looked at together for that: between kernels that a host launches lies less."""


@dataclass(frozen=True)
class FrameTotals:
    """Frames in which something was measured: `number` x `frame_ns` is the start of each, (f,).

    `totals` (f, counters + 1): each counter's sum, and last the covered nanoseconds. A sample that straddles an edge
    counts on both sides of it by its share. `gap_ns` (f,): the time without any work in samples (of a slot together, if
    they are shorter) that also had some, NaN where `gr` is not among the metrics, or a sample was made of several of
    which some had none.
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
    if not len(samples):
        return FrameTotals(frame_ns, np.zeros(0, np.int64), np.zeros((0, len(metrics.counters) + 1)), np.zeros(0))
    laid = Laid.of(samples, frame_ns)
    columns = metrics.columns(samples.values, samples.end_ns - samples.start_ns)
    sums, later = laid.sums([*columns, _gaps(samples, columns, metrics)])
    after = laid.numbers[laid.reaching] + 1
    none_begins = after != np.append(laid.numbers[1:], -1)[laid.reaching]
    numbers = np.sort(np.append(laid.numbers, after[none_begins]))
    into = np.searchsorted(numbers, laid.numbers)
    before = into[laid.reaching]
    totals = np.zeros((len(numbers), sums.shape[1]))
    totals[into] = sums
    totals[before] -= later
    totals[before + 1] += later
    return FrameTotals(frame_ns, numbers, totals[:, :-1], totals[:, -1])


def _gaps(samples: Samples, columns: Sequence[Floats], metrics: MetricSet) -> Floats:
    """(n,) of samples in columns: the nanoseconds without any work, 0 where there was none for longer, NaN where that
    is not known."""
    length_ns = columns[-1]
    at = next((k for k, metric in enumerate(metrics.metrics) if metric.label == "gr" and not metric.absent), -1)
    if at < 0:
        return np.full(len(length_ns), np.nan)
    *read, elapsed = metrics.columns_of(at)
    with np.errstate(divide="ignore", invalid="ignore"):
        active = sum(columns[k] for k in read) / (metrics.metrics[at].peak * columns[elapsed])
    active = np.minimum(active, 1.0)
    begins = np.flatnonzero(np.diff(samples.start_ns // SLOT_NS, prepend=-1))
    in_slot = np.add.reduceat(active * length_ns, begins) / np.add.reduceat(length_ns, begins)
    idle = np.repeat(in_slot < IDLE_SAMPLE, np.diff(begins, append=len(samples)))
    gaps = np.where(idle, 0.0, (1 - active) * length_ns)
    if samples.minimum is not None:
        gaps[~idle & (samples.minimum[:, at] < IDLE_SAMPLE)] = np.nan
    return gaps


def _measured(samples: Samples) -> Samples:
    """Those that have a value of anything."""
    if not np.isnan(samples.values[:, :1]).any():
        return samples
    return samples[np.flatnonzero(~np.isnan(samples.values).all(axis=1))]


def _cut(samples: Samples, frame_ns: int) -> Samples:
    """The same, those that reach into more than two frames in pieces of a frame."""
    if not len(samples) or (samples.end_ns - samples.start_ns).max() <= frame_ns:  # these touch two frames at most
        return samples
    pieces = np.maximum(1, (samples.end_ns - 1) // frame_ns - samples.start_ns // frame_ns)
    of = np.repeat(np.arange(len(samples)), pieces)
    step = np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    length_ns = (samples.end_ns - samples.start_ns)[of]
    start_ns = samples.start_ns[of] + length_ns * step // pieces[of]
    end_ns = samples.start_ns[of] + length_ns * (step + 1) // pieces[of]
    values = samples.values[of] * ((end_ns - start_ns) / length_ns)[:, None]
    return replace(samples[of], start_ns=start_ns, end_ns=end_ns, values=values)


def means_of(frames: FrameTotals, metrics: MetricSet) -> dict[str, Floats]:
    """What classify takes: (f,) of each metric that a verdict can rest on; those of another scale are left out."""
    ratios = metrics.ratios(frames.totals)
    return {
        metric.label: ratios[:, k]
        for k, metric in enumerate(metrics.metrics)
        if metric.label in INPUTS and not metric.absent
    }
