"""Samples, and frames folded from them: arrays in, arrays out.

A sample is one hardware interval of one GPU. Its counters are sums over that interval, so any window's
total is a sum of samples, one that straddles an edge counting by its share, and the mean of a window is
the quotient of two such totals: exact, and the same at every sample period.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .metrics import MetricSet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """A batch of one GPU: row i of `values` (n, counters) holds what was counted from start to end.

    `start_ns` and `end_ns` (n,) are nanoseconds since the Unix epoch. Where several were made one longer sample (a
    recording that was thinned), `minimum` and `maximum` (n, metrics) are what each metric was at least and at most in
    one of them; NaN where that was not kept, None where no sample is such.
    """

    start_ns: Ints
    end_ns: Ints
    values: Floats
    minimum: Floats | None = None
    maximum: Floats | None = None

    def __len__(self) -> int:
        return len(self.start_ns)

    def __getitem__(self, rows: slice | NDArray[np.bool_ | np.intp]) -> Samples:
        if self.minimum is None or self.maximum is None:
            return Samples(self.start_ns[rows], self.end_ns[rows], self.values[rows])
        extremes = self.minimum[rows], self.maximum[rows]
        return Samples(self.start_ns[rows], self.end_ns[rows], self.values[rows], *extremes)

    @property
    def period_ns(self) -> int:
        """The period that samples (at least one) come in: their median length."""
        return max(1, int(np.median(self.end_ns - self.start_ns)))

    def gaps_ns(self, last_end_ns: int, period_ns: int) -> Ints:
        """(n,) what is missing before each; 0 if at most half a period. `last_end_ns`: of the one before (0: none)."""
        missing_ns = self.start_ns - np.concatenate(([last_end_ns or self.start_ns[0]], self.end_ns[:-1]))
        return np.where(missing_ns > period_ns // 2, missing_ns, 0)

    def spread(self) -> Samples:
        """Themselves; as Even has it."""
        return self

    def extremes(self, quotients: Floats) -> tuple[Floats, Floats]:
        """(n, metrics) of each the least and most value of each metric; `quotients` are those of the samples."""
        if self.minimum is None or self.maximum is None:
            return quotients, quotients
        return np.fmin(self.minimum, quotients), np.fmax(self.maximum, quotients)

    @staticmethod
    def empty(counters: int) -> Samples:
        return Samples(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, counters)))

    @staticmethod
    def join(batches: Iterable[Samples]) -> Samples:
        parts = list(batches)
        if len(parts) == 1:
            return parts[0]
        return Samples(
            np.concatenate([p.start_ns for p in parts]),
            np.concatenate([p.end_ns for p in parts]),
            np.concatenate([p.values for p in parts]),
            *joined_extremes(parts),
        )


def joined_extremes(parts: Sequence[Samples]) -> tuple[Floats | None, Floats | None]:
    """`minimum` and `maximum` of all: NaN where a part has none, None if no part has."""
    width = next((part.minimum.shape[1] for part in parts if part.minimum is not None), 0)
    if not width:
        return None, None
    found = [part.extremes(np.full((len(part), width), np.nan)) for part in parts]
    return np.concatenate([least for least, _ in found]), np.concatenate([most for _, most in found])


@dataclass
class Even:
    """Samples that join and are all of one length, told by the start of the first and the end of the last.

    What a GPU gives nearly always, many times a second, so a worker makes no array of their times.
    """

    start_ns: int
    end_ns: int
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def between(start_ns: int, end_ns: int, period_ns: int, values: Floats) -> Even | None:
        """Those that fill this span; None if there are none, or some are missing."""
        missing_ns = end_ns - start_ns - period_ns * len(values)
        return Even(start_ns, end_ns, values) if len(values) and abs(missing_ns) <= period_ns // 2 else None

    def spread(self) -> Samples:
        """Each with its own times."""
        edges = np.arange(len(self) + 1, dtype=np.int64) * (self.end_ns - self.start_ns) // len(self) + self.start_ns
        return Samples(edges[:-1], edges[1:], self.values)


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
TOO_LONG_NS = 3_600_000_000_000
"""No sample is an hour long: its timestamp is broken."""


@dataclass(frozen=True)
class Laid:
    """Samples (at least one, in order, not overlapping) laid into frames, of which none touches more than two.

    `numbers` (f,): the frames in which any begins, as multiples of their length; `begins` (f,): the first that does.
    `reaching` (f,): whether the last of them reaches into the next frame; `across` (s,) are those that do, by `share`.
    """

    numbers: Ints
    begins: NDArray[np.intp]
    reaching: NDArray[np.bool_]
    across: NDArray[np.intp]
    share: Floats

    @staticmethod
    def of(samples: Samples, frame_ns: int) -> Laid:
        frames = samples.start_ns // frame_ns
        begins = np.append(0, np.flatnonzero(frames[1:] != frames[:-1]) + 1)
        last = np.append(begins[1:], len(frames)) - 1
        over_ns = samples.end_ns[last] - (frames[last] + 1) * frame_ns
        reaching = over_ns > 0
        across = last[reaching]
        share = over_ns[reaching] / (samples.end_ns[across] - samples.start_ns[across])
        return Laid(frames[begins], begins, reaching, across, share)

    def sums(self, columns: Sequence[Floats]) -> tuple[Floats, Floats]:
        """(f, c): what amounts (n,) of the samples that begin in each frame add up to; (s, c): what of them lies in the
        frame after."""
        whole = np.stack([np.add.reduceat(column, self.begins) for column in columns], axis=1)
        return whole, np.stack([column[self.across] for column in columns], axis=1) * self.share[:, None]


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

    @staticmethod
    def blank(start_ns: int, frame_ns: int, counters: int, metrics: int) -> Fold:
        """One frame of which nothing was measured."""
        nothing = np.full((1, metrics), np.nan)
        return Fold(start_ns, frame_ns, np.zeros((1, counters + 1)), nothing, nothing, np.zeros(1, np.int64))

    def between(self, first: int, last: int) -> Fold:
        """Frames `first` to before `last` alone."""
        at = slice(first, last)
        start_ns = self.start_ns + first * self.frame_ns
        return Fold(start_ns, self.frame_ns, self.totals[at], self.minimum[at], self.maximum[at], self.got[at])


def fold(samples: Samples, frame_ns: int, metrics: MetricSet) -> Fold:
    """Fold samples (at least one, in order, not overlapping) into frames on multiples of `frame_ns`."""
    origin = int(samples.start_ns[0]) // frame_ns * frame_ns
    # A float64 holds nanoseconds since the epoch only to 256 ns; since the first frame it is exact.
    start, end = samples.start_ns - origin, samples.end_ns - origin
    frames = int(-(-end[-1] // frame_ns))
    edges = np.arange(frames + 1, dtype=np.int64) * frame_ns
    least, most = samples.extremes(metrics.quotients(samples.values, end - start))
    first = np.searchsorted(end, edges[:-1], side="right")
    last = np.searchsorted(start, edges[1:], side="left")
    return Fold(
        origin,
        frame_ns,
        _window_totals(start, end, metrics.extend(samples.values, end - start), edges),
        _extremes(least, first, last, np.fmin, np.inf),
        _extremes(most, first, last, np.fmax, -np.inf),
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
