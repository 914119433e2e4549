"""The min/mean/max pyramid of a recording: the same stretch of time in bins of several lengths, arrays in and out.

Whatever the length of a recording, a level has a bounded number of bins, and memory is bounded by that. Means are
quotients of sums; a sample that straddles the edge of a bin counts to both by its share; minimum and maximum are those
of the samples' own quotients, so the shortest spike is the maximum of its bin at every level. A bin of which nothing
was measured is NaN.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .metrics import TIME, Metric, MetricSet
from .outline import forward
from .recording_reader import Rows
from .samples import Floats, Fold, Ints, Laid, Samples, fold
from .span_frames import ending, summed_counters, within
from .spans import Span, rounded_out
from .thinning import READINGS

FACTOR = 4
"""Bins of a level that make one of the next."""
FEWEST_BINS = 400
"""A level with so few has no further one."""
ROUND = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
"""Times powers of ten: what the length of a bin can be."""


@dataclass(frozen=True)
class Level:
    """Consecutive bins of `bin_ns` from `start_ns` (Unix epoch, a multiple of `bin_ns`) on.

    `mean`, `minimum`, `maximum` (gpus, bins, metrics): NaN where nothing was measured. `covered_ns` (gpus, bins).
    """

    start_ns: int
    bin_ns: int
    mean: Floats
    minimum: Floats
    maximum: Floats
    covered_ns: Floats

    def __len__(self) -> int:
        return int(self.covered_ns.shape[1])


@dataclass(frozen=True)
class Pyramid:
    """`levels`, the finest first. `whole` has all of it as one bin; `got` (gpus,) counts the samples that ended."""

    levels: list[Level]
    whole: Level
    got: Ints


def bin_length_ns(length_ns: int, period_ns: float, most: int) -> int:
    """The least round number of which at most so many make the length; but no bin is shorter than samples are."""
    finest = _round(period_ns * 1.01, down=True) if period_ns > 0 else 1
    return max(finest, _round(-(-length_ns // most)))


class Builder:
    """Makes two pyramids of the rows it is given: of the metrics (`sets`, a GPU each, made of its rows' counters), and
    of NVML's readings, which are weighted by time (SM clock in MHz, power in W).

    `spans` (apart, in order, at least one) are the times that are meant, `bin_ns` the length of the finest bins. Rows
    that begin before others of their GPU ended are left out, for a clock was set back.
    """

    def __init__(self, sets: Sequence[MetricSet], spans: Sequence[Span], bin_ns: int) -> None:
        ((start_ns, end_ns),) = rounded_out([(spans[0][0], spans[-1][1])], bin_ns)
        axis = _Axis(start_ns, bin_ns, (end_ns - start_ns) // bin_ns)
        self.bin_ns = bin_ns
        self._gpus = [_Gpu(metrics, spans, axis) for metrics in sets]

    def add(self, rows: Rows) -> None:
        self._gpus[rows.gpu].add(rows)

    def pyramids(self) -> tuple[Pyramid, Pyramid]:
        """Of all that was added."""
        return _pyramid([[gpu.metrics] for gpu in self._gpus]), _pyramid([gpu.readings for gpu in self._gpus])


@dataclass(frozen=True)
class _Axis:
    start_ns: int
    bin_ns: int
    bins: int


class _Gpu:
    """Folds the rows of one GPU as they come."""

    def __init__(self, metrics: MetricSet, spans: Sequence[Span], axis: _Axis) -> None:
        self.metrics = _Bins(metrics, axis)
        self.readings = [_Bins(_as_metric(name), axis) for name in READINGS]  # each is known when it is
        self._spans, self._reached_ns = spans, 0

    def add(self, rows: Rows) -> None:
        ahead = forward(rows.samples.start_ns, rows.samples.end_ns, self._reached_ns)
        if not ahead.all():
            rows = rows[ahead]
        samples = rows.samples
        if not len(samples):
            return
        self._reached_ns = int(samples.end_ns[-1])
        self.metrics.add(samples, self._spans)
        for name, reading in zip(READINGS, self.readings, strict=True):
            reading.add(_steps(samples.start_ns, samples.end_ns, getattr(rows, name)), self._spans)


class _Bins:
    """What has been counted in each bin of one GPU; the arrays are those of a Fold."""

    def __init__(self, metrics: MetricSet, axis: _Axis) -> None:
        self.of, self.axis = metrics, axis
        self.totals = np.zeros((axis.bins, len(metrics.counters) + 1))
        self.minimum = np.full((axis.bins, len(metrics.metrics)), np.nan)
        self.maximum, self.got = self.minimum.copy(), 0
        self._summed = summed_counters(metrics)

    def add(self, samples: Samples, spans: Sequence[Span]) -> None:
        """Take samples in order. What has no value in a counter counts as not measured."""
        known = np.isfinite(samples.values.sum(axis=1))
        if not known.all():
            samples = samples[known]
        for span in spans:
            self.got += len(samples.end_ns[ending(samples, span)])
            if len(part := within(samples, span, self._summed)):
                self._take(part)

    def _take(self, samples: Samples) -> None:
        bin_ns = self.axis.bin_ns
        far = (samples.end_ns - 1) // bin_ns - samples.start_ns // bin_ns > 1
        if far.any():
            self._take_fold(fold(samples[far], bin_ns, self.of))
            samples = samples[~far]
        if len(samples):
            self._take_near(samples, Laid.of(samples, bin_ns))

    def _take_near(self, samples: Samples, laid: Laid) -> None:
        """Those that touch no more than two bins."""
        at = laid.numbers - self.axis.start_ns // self.axis.bin_ns
        before = at[laid.reaching]
        columns = self.of.columns(samples.values, samples.end_ns - samples.start_ns)
        sums, later = laid.sums(columns)
        self.totals[at] += sums
        self.totals[before] -= later
        self.totals[before + 1] += later
        quotients = self.of.column_ratios(columns)
        for extreme, kept, ufunc in (
            (self.minimum, samples.minimum, np.fmin),
            (self.maximum, samples.maximum, np.fmax),
        ):
            own = quotients if kept is None else [ufunc(q, kept[:, k]) for k, q in enumerate(quotients)]
            extreme[at] = ufunc(extreme[at], np.stack([ufunc.reduceat(q, laid.begins) for q in own], axis=1))
            extreme[before + 1] = ufunc(extreme[before + 1], np.stack([q[laid.across] for q in own], axis=1))

    def _take_fold(self, part: Fold) -> None:
        first = (part.start_ns - self.axis.start_ns) // part.frame_ns
        at = slice(first, first + len(part))
        self.totals[at] += part.totals
        self.minimum[at] = np.fmin(self.minimum[at], part.minimum)
        self.maximum[at] = np.fmax(self.maximum[at], part.maximum)

    def coarser(self, factor: int) -> _Bins:
        """The same in bins `factor` times as long."""
        bin_ns = self.axis.bin_ns * factor
        start_ns = self.axis.start_ns // bin_ns * bin_ns
        skipped = (self.axis.start_ns - start_ns) // self.axis.bin_ns
        out = _Bins(self.of, _Axis(start_ns, bin_ns, -(-(skipped + self.axis.bins) // factor)))
        into = (skipped + np.arange(self.axis.bins)) // factor
        np.add.at(out.totals, into, self.totals)
        np.fmin.at(out.minimum, into, self.minimum)
        np.fmax.at(out.maximum, into, self.maximum)
        return out

    def in_all(self) -> _Bins:
        """The same as one bin."""
        out = _Bins(self.of, _Axis(self.axis.start_ns, self.axis.bin_ns * self.axis.bins, 1))
        out.totals[0] = self.totals.sum(axis=0)
        out.minimum[0], out.maximum[0] = np.fmin.reduce(self.minimum), np.fmax.reduce(self.maximum)
        return out


def _pyramid(gpus: list[list[_Bins]]) -> Pyramid:
    """Of what each GPU has, in one or several sets whose metrics are put side by side."""
    got = np.array([sets[0].got for sets in gpus])
    whole = _level([[bins.in_all() for bins in sets] for sets in gpus])
    levels = [_level(gpus)]
    while len(levels[-1]) > FEWEST_BINS:
        gpus = [[bins.coarser(FACTOR) for bins in sets] for sets in gpus]
        levels.append(_level(gpus))
    return Pyramid(levels, whole, got)


def _level(gpus: list[list[_Bins]]) -> Level:
    def stacked(of: Callable[[_Bins], Floats]) -> Floats:
        return np.stack([np.concatenate([of(bins) for bins in sets], axis=1) for sets in gpus])

    return Level(
        gpus[0][0].axis.start_ns,
        gpus[0][0].axis.bin_ns,
        stacked(lambda bins: bins.of.ratios(bins.totals)),
        stacked(lambda bins: bins.minimum),
        stacked(lambda bins: bins.maximum),
        np.stack([sets[0].totals[:, -1] for sets in gpus]),
    )


def _steps(start_ns: Ints, end_ns: Ints, told: Floats) -> Samples:
    """Readings (n,) as samples, neighbours that join and are the same made one: they change five times a second."""
    same = (told[1:] == told[:-1]) | np.isnan(told[1:]) & np.isnan(told[:-1])
    ends = np.append(np.flatnonzero(~(same & (start_ns[1:] == end_ns[:-1]))), len(told) - 1)
    begins = np.append(0, ends[:-1] + 1)
    return Samples(start_ns[begins], end_ns[ends], told[begins, None])


def _as_metric(reading: str) -> MetricSet:
    metric = Metric(reading, reading, (reading,), TIME, peak=1.0, bounded=False, plain=True, rate=True)
    return MetricSet((reading,), (metric,))


def _round(number: float, down: bool = False) -> int:
    """The nearest of 1, 2, ... 10, 12, 15, 20, ... 80, 100, 120, ... that is no less, or no more."""
    steps: list[int] = [*range(1, 10), *(times * int(10.0**digits) for digits in range(18) for times in ROUND)]
    at = bisect_right(steps, number) - 1 if down else bisect_left(steps, number)
    return steps[max(at, 0)]
