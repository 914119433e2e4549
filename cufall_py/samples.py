"""Samples, and frames folded from them: arrays in, arrays out.

A sample is one hardware interval of one GPU. Its counters are sums over that interval, so any window's
total is a sum of samples, one that straddles an edge counting by its share, and the mean of a window is
the quotient of two such totals: exact, and the same at every sample period.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .metrics import MetricSet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """A batch of one GPU: row i of `values` (n, counters) holds what was counted from start to end.

    `start_ns` and `end_ns` (n,) are nanoseconds since the Unix epoch.
    """

    start_ns: Ints
    end_ns: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.start_ns)

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> Samples:
        return Samples(self.start_ns[rows], self.end_ns[rows], self.values[rows])

    @staticmethod
    def empty(counters: int) -> Samples:
        return Samples(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, counters)))

    @staticmethod
    def join(batches: Iterable[Samples]) -> Samples:
        parts = list(batches)
        return Samples(
            np.concatenate([p.start_ns for p in parts]),
            np.concatenate([p.end_ns for p in parts]),
            np.concatenate([p.values for p in parts]),
        )


@dataclass
class Tally:
    """What a worker has counted since it started; sums, but for `late_ns` and `resident_bytes`: the most."""

    decodes: int = 0
    decode_ns: int = 0
    late: int = 0
    """Decodes that ended after the next one was due."""
    late_ns: int = 0
    """The most that one was late."""
    cpu_ns: int = 0
    resident_bytes: int = 0
    samples: int = 0
    lost: int = 0
    """Samples missing between two that came, by their timestamps."""
    lost_ns: int = 0
    absurd: int = 0
    duplicate: int = 0
    rebuilt: int = 0
    """Samples whose times CUPTI gave as zero and cufall laid out again."""
    overflows: int = 0

    def astuple(self) -> tuple[int, ...]:
        return tuple(vars(self).values())

    def __add__(self, other: Tally) -> Tally:
        total = Tally(*(a + b for a, b in zip(self.astuple(), other.astuple(), strict=True)))
        total.late_ns = max(self.late_ns, other.late_ns)
        total.resident_bytes = max(self.resident_bytes, other.resident_bytes)
        return total


TALLY_FIELDS = len(fields(Tally))
SATURATED = float(2**32 - 1)
"""A 32-bit hardware counter that ran into its end."""
TOO_LONG_NS = 3_600_000_000_000
"""No sample is an hour long: its timestamp is broken."""


def screen(samples: Samples, last_end_ns: int, metrics: MetricSet, tally: Tally) -> Samples:
    """The samples that can be true: later than `last_end_ns`, forward in time, at most at their peak.

    What is left out is counted in `tally`, as are the gaps between what came (with the median length of
    these samples as the period). Samples that come out do not overlap.
    """
    if not len(samples) or _is_flawless(samples, last_end_ns, metrics):
        tally.samples += len(samples)
        return samples
    timely = samples[~untimely(samples)]
    previous = _latest_before(timely.end_ns, last_end_ns)
    repeats = timely.end_ns <= previous
    fresh = _apart(timely, previous)[~repeats]
    _count_gaps(fresh, last_end_ns, len(samples) - len(timely), tally)
    kept = fresh[~absurd(fresh, metrics)]
    tally.duplicate += int(repeats.sum())
    tally.absurd += len(samples) - len(timely) + len(fresh) - len(kept)
    tally.samples += len(kept)
    return kept


def _is_flawless(samples: Samples, last_end_ns: int, metrics: MetricSet) -> bool:
    """Whether `screen` has nothing to do, as nearly always: told in a tenth of the time."""
    start, end, values = samples.start_ns, samples.end_ns, samples.values
    length = end - start
    most = values.max()
    return bool(
        (not last_end_ns or start[0] == last_end_ns)
        and (start[1:] == end[:-1]).all()
        and length.min() > 0
        and end[-1] - start[0] <= TOO_LONG_NS
        and values.min() >= 0
        and (most < SATURATED or (most < np.inf and (values != SATURATED).all()))
        and metrics.within_ceilings(values, length)
    )


def untimely(samples: Samples) -> NDArray[np.bool_]:
    """Which rows cannot be by their times: ending before they start, or longer than any sample can be."""
    length = samples.end_ns - samples.start_ns
    out: NDArray[np.bool_] = (length <= 0) | (length > TOO_LONG_NS)
    return out


def absurd(samples: Samples, metrics: MetricSet) -> NDArray[np.bool_]:
    """Which rows cannot be by their values: saturated, negative, not finite, or above a peak."""
    broken = (~np.isfinite(samples.values) | (samples.values == SATURATED) | (samples.values < 0)).any(axis=1)
    with np.errstate(invalid="ignore"):
        above = metrics.quotients(samples.values, samples.end_ns - samples.start_ns) > metrics.ceilings()
    out: NDArray[np.bool_] = broken | above.any(axis=1)
    return out


def _latest_before(end_ns: Ints, last_end_ns: int) -> Ints:
    running = np.maximum.accumulate(np.concatenate(([last_end_ns], end_ns)))
    latest: Ints = running[:-1]
    return latest


def _apart(samples: Samples, previous_ns: Ints) -> Samples:
    """None begins before the one before it ended: times laid out by cufall can be some microseconds off."""
    return Samples(np.maximum(samples.start_ns, previous_ns), samples.end_ns, samples.values)


def _count_gaps(samples: Samples, last_end_ns: int, left_out: int, tally: Tally) -> None:
    """Count what is missing between samples, but for the `left_out` that came and were not believed."""
    if not len(samples):
        return
    period_ns = max(1, int(np.median(samples.end_ns - samples.start_ns)))
    previous = np.concatenate(([last_end_ns or samples.start_ns[0]], samples.end_ns[:-1]))
    gaps = samples.start_ns - previous
    gaps = gaps[gaps > period_ns // 2]
    tally.lost += max(0, int(np.round(gaps / period_ns).sum()) - left_out)
    tally.lost_ns += max(0, int(gaps.sum()) - left_out * period_ns)


@dataclass(frozen=True)
class Fold:
    """Consecutive frames of one GPU, from `start_ns` on, `frame_ns` each.

    `totals` (f, counters + 1): each counter's sum over the frame, and last the covered nanoseconds.
    `minimum`, `maximum` (f, metrics): of the quotients of the samples that touch the frame, NaN where none.
    `got` (f,): samples that end in the frame.
    """

    start_ns: int
    frame_ns: int
    totals: Floats
    minimum: Floats
    maximum: Floats
    got: Ints

    def __len__(self) -> int:
        return len(self.got)


def fold(samples: Samples, frame_ns: int, metrics: MetricSet) -> Fold:
    """Fold samples (at least one, in order, not overlapping) into frames on multiples of `frame_ns`."""
    origin = int(samples.start_ns[0]) // frame_ns * frame_ns
    # A float64 holds nanoseconds since the epoch only to 256 ns; since the first frame it is exact.
    start, end = samples.start_ns - origin, samples.end_ns - origin
    frames = int(-(-end[-1] // frame_ns))
    edges = np.arange(frames + 1, dtype=np.int64) * frame_ns
    quotients = metrics.quotients(samples.values, end - start)
    first = np.searchsorted(end, edges[:-1], side="right")
    last = np.searchsorted(start, edges[1:], side="left")
    return Fold(
        origin,
        frame_ns,
        _window_totals(start, end, metrics.extend(samples.values, end - start), edges),
        _extremes(quotients, first, last, np.fmin, np.inf),
        _extremes(quotients, first, last, np.fmax, -np.inf),
        np.diff(np.searchsorted(end, edges, side="right")),
    )


def _window_totals(start: Ints, end: Ints, amounts: Floats, edges: Ints) -> Floats:
    """Sums of `amounts` between edges: the running total is a line within a sample, flat in a gap."""
    times = np.stack([start, end], axis=1).ravel()
    running = np.concatenate([np.zeros((1, amounts.shape[1])), np.cumsum(amounts, axis=0)])
    totals = np.stack([running[:-1], running[1:]], axis=1).reshape(len(times), -1)
    columns = [np.interp(edges, times, totals[:, k]) for k in range(totals.shape[1])]
    return np.diff(np.stack(columns, axis=1), axis=0)


def _extremes(quotients: Floats, first: Ints, last: Ints, ufunc: np.ufunc, neutral: float) -> Floats:
    padded = np.concatenate([quotients, np.full((1, quotients.shape[1]), neutral)])
    empty = first >= last
    # reduceat takes pairs and keeps the even results; an empty pair gives the element itself
    pairs = np.stack([np.where(empty, len(quotients), first), np.where(empty, len(quotients), last)], axis=1)
    reduced: Floats = ufunc.reduceat(padded, pairs.ravel(), axis=0)[::2].copy()
    reduced[empty] = np.nan
    return reduced


def merge(folds: Iterable[Fold]) -> Fold:
    """One fold out of several of the same frames that may overlap or leave frames out."""
    parts = [f for f in folds if len(f)]
    frame_ns, origin = parts[0].frame_ns, min(f.start_ns for f in parts)
    frames = max((f.start_ns - origin) // frame_ns + len(f) for f in parts)
    totals = np.zeros((frames, parts[0].totals.shape[1]))
    minimum = np.full((frames, parts[0].minimum.shape[1]), np.nan)
    maximum, got = minimum.copy(), np.zeros(frames, np.int64)
    for f in parts:
        at = slice((f.start_ns - origin) // frame_ns, (f.start_ns - origin) // frame_ns + len(f))
        totals[at] += f.totals
        minimum[at] = np.fmin(minimum[at], f.minimum)
        maximum[at] = np.fmax(maximum[at], f.maximum)
        got[at] += f.got
    return Fold(origin, frame_ns, totals, minimum, maximum, got)
