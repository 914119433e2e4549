"""What is summed up of one GPU's samples in one stretch of time; tallies of parts add up to that of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import Metric, MetricSet
from cufall_py.samples import Samples

from .bins import Bins, rounded
from .runs import Runs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
IDLE, LITTLE, LOW, HIGH = 0.001, 0.01, 0.1, 0.9
"""A value below the first is idle; the shares of time below the next two and above the last are told."""


@dataclass
class MetricTally:
    """Of one metric, over the samples that have a value of it.

    `totals` (counters + 1,): each counter's sum, time last, a sample that lies within in part by its share. All else
    is over the `samples` that lie within wholly, which take `whole_ns`: `weighted`, the sum of value x nanoseconds, and
    `idle_ns`, `below_1_ns`, `below_10_ns`, `above_90_ns`.
    """

    totals: Floats
    samples: int = 0
    whole_ns: float = 0.0
    weighted: float = 0.0
    minimum: float = np.inf
    maximum: float = -np.inf
    idle_ns: float = 0.0
    below_1_ns: float = 0.0
    below_10_ns: float = 0.0
    above_90_ns: float = 0.0
    bins: Bins = field(default_factory=Bins)
    runs: Runs = field(default_factory=Runs)

    def add(self, later: MetricTally, slack_ns: int) -> None:
        """Take in what came after, on the same GPU."""
        self.totals = self.totals + later.totals
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.minimum, self.maximum = min(self.minimum, later.minimum), max(self.maximum, later.maximum)
        self.bins.add(later.bins)
        self.runs.add(later.runs, slack_ns)

    def widen(self, least: Floats, most: Floats) -> None:
        """Take in extremes (n,) of what these samples were made of, NaN where none were kept."""
        self.minimum = float(np.fmin.reduce(least, initial=self.minimum))
        self.maximum = float(np.fmax.reduce(most, initial=self.maximum))


SUMMED = ("samples", "whole_ns", "weighted", "idle_ns", "below_1_ns", "below_10_ns", "above_90_ns")


@dataclass
class Tally:
    """Of one GPU: its metrics, and how much was measured. `samples` lie within wholly, `covered_ns` counts shares too.

    `clock` and `power` (2,): the sum of reading x nanoseconds, and the nanoseconds that had a reading.
    """

    metrics: list[MetricTally]
    samples: int = 0
    covered_ns: float = 0.0
    throttled_ns: float = 0.0
    clock: Floats = field(default_factory=lambda: np.zeros(2))
    power: Floats = field(default_factory=lambda: np.zeros(2))

    @staticmethod
    def empty(metrics: MetricSet) -> Tally:
        return Tally([MetricTally(np.zeros(len(metrics.counters) + 1)) for _ in metrics.metrics])

    def add(self, later: Tally, slack_ns: int) -> None:
        """Take in what came after; runs go on over holes of up to `slack_ns`."""
        for mine, other in zip(self.metrics, later.metrics, strict=True):
            mine.add(other, slack_ns)
        self.samples += later.samples
        self.covered_ns += later.covered_ns
        self.throttled_ns += later.throttled_ns
        self.clock = self.clock + later.clock
        self.power = self.power + later.power


@dataclass(frozen=True)
class Stretch:
    """Samples of a GPU in order, with (n,) each: NVML's readings, and the nanoseconds in which it was throttled."""

    samples: Samples
    sm_mhz: Floats
    power_w: Floats
    throttled_ns: Ints

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> Stretch:
        return Stretch(self.samples[rows], self.sm_mhz[rows], self.power_w[rows], self.throttled_ns[rows])


def tally(metrics: MetricSet, stretch: Stretch, inside_ns: Ints, slack_ns: int) -> Tally:
    """The tally of samples, of each of which `inside_ns` (n,), more than 0, is meant."""
    samples = stretch.samples
    length_ns = samples.end_ns - samples.start_ns
    whole = inside_ns == length_ns
    columns = metrics.columns(samples.values, length_ns)
    amounts, throttled_ns = columns, stretch.throttled_ns.astype(np.float64)
    if not whole.all():
        share = inside_ns / length_ns
        amounts, throttled_ns = [column * share for column in columns], throttled_ns * share
    sums = np.array([column.sum() for column in amounts])
    weights = inside_ns.astype(np.float64)
    of_metrics = []
    for k, values in enumerate(metrics.column_ratios(columns)):
        known = np.isfinite(values)
        every = known.all()
        totals = sums if every and np.isfinite(sums).all() else _totals(amounts, known, metrics.columns_of(k))
        rows = slice(None) if every and whole.all() else whole & known
        found = _metric_tally(metrics.metrics[k], totals, samples, values, weights, rows, slack_ns)
        if samples.minimum is not None and samples.maximum is not None:
            found.widen(samples.minimum[rows, k], samples.maximum[rows, k])
        of_metrics.append(found)
    return Tally(
        of_metrics,
        int(np.count_nonzero(whole)),
        float(weights.sum()),
        float(throttled_ns.sum()),
        _weighed(stretch.sm_mhz, weights),
        _weighed(stretch.power_w, weights),
    )


def _totals(amounts: Sequence[Floats], known: NDArray[np.bool_], columns: Sequence[int]) -> Floats:
    """Sums of the rows that are known, of these columns and of the time; of the others nothing: they may lack there."""
    out = np.zeros(len(amounts))
    for k in {*columns, len(amounts) - 1}:
        out[k] = amounts[k].sum(where=known)
    return out


def _metric_tally(
    metric: Metric,
    totals: Floats,
    samples: Samples,
    values: Floats,
    weights: Floats,
    rows: slice | NDArray[np.bool_],
    slack_ns: int,
) -> MetricTally:
    values, weights = values[rows], weights[rows]
    if not len(values):
        return MetricTally(totals)
    idle = values < IDLE
    return MetricTally(
        totals,
        len(values),
        float(weights.sum()),
        float((values * weights).sum()),
        float(values.min()),
        float(values.max()),
        # a product is faster than a sum with where=, and than the product of vectors, for which BLAS wakes its threads
        float((weights * idle).sum()),
        float((weights * (values < LITTLE)).sum()),
        float((weights * (values < LOW)).sum()),
        float((weights * (values > HIGH)).sum()),
        Bins.of(rounded(values, not metric.bounded), weights),
        Runs.of(samples.start_ns[rows], samples.end_ns[rows], idle, slack_ns),
    )


def _weighed(readings: Floats, weights: Floats) -> Floats:
    known = ~np.isnan(readings)
    if not known.all():
        readings, weights = readings[known], weights[known]
    return np.array([float((readings * weights).sum()), float(weights.sum())])
