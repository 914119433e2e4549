"""What is summed up of one GPU's samples in one stretch of time; tallies of parts add up to that of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import Metric, MetricSet
from cufall_py.samples import Samples

from .bins import Bins, Indices, rounded
from .runs import Runs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
IDLE, LITTLE, LOW, HIGH = 0.001, 0.01, 0.1, 0.9
"""A value below the first is idle; the shares of time below the next two and above the last are told."""
EDGES = ((IDLE, np.less), (LITTLE, np.less), (LOW, np.less), (HIGH, np.less_equal))
"""Each with what is on its lower side."""


@dataclass
class MetricTally:
    """Of one metric, over the samples that have a value of it.

    `totals` (counters + 1,): each counter's sum, time last, a sample that lies within in part by its share. All else
    is over the `samples` that lie within wholly, which take `whole_ns`: `weighted`, the sum of value x nanoseconds;
    `bins` of their values; and as bins are coarse, `in_bin_ns`: of each of EDGES, the time on its lower side of what is
    in its own bin.
    """

    totals: Floats
    samples: int = 0
    whole_ns: float = 0.0
    weighted: float = 0.0
    minimum: float = np.inf
    maximum: float = -np.inf
    in_bin_ns: Floats = field(default_factory=lambda: np.zeros(len(EDGES)))
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

    def lower_ns(self, relative: bool) -> list[float]:
        """The time on the lower side of each of EDGES; `relative`: as the bins are (bins.py)."""
        before = [self.bins.before(at) for at in _edge_bins(relative)]
        return [whole + part for whole, part in zip(before, self.in_bin_ns.tolist(), strict=True)]


SUMMED = ("samples", "whole_ns", "weighted", "in_bin_ns")


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
    all_whole, all_sums = whole.all(), np.isfinite(sums).all()
    of_metrics = []
    for k, values in enumerate(metrics.column_ratios(columns)):
        known = np.isfinite(values)
        every = known.all()
        totals = sums if every and all_sums else _totals(amounts, known, metrics.columns_of(k))
        rows = slice(None) if every and all_whole else whole & known
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
    relative = not metric.bounded
    indices = rounded(values, relative)
    bins = Bins.of(indices, weights)
    return MetricTally(
        totals,
        len(values),
        float(weights.sum()),
        float((values * weights).sum()),
        float(values.min()),
        float(values.max()),
        _in_bins(values, weights, indices, bins, relative),
        bins,
        Runs.of(samples.start_ns[rows], samples.end_ns[rows], values < IDLE, slack_ns),
    )


def _in_bins(values: Floats, weights: Floats, indices: Indices, bins: Bins, relative: bool) -> Floats:
    """`in_bin_ns` of a MetricTally. Few values are in the bin of an edge, so that few are compared."""
    out = np.zeros(len(EDGES))
    for k, ((edge, is_lower), at) in enumerate(zip(EDGES, _edge_bins(relative), strict=True)):
        if bins.within(at):
            near = np.flatnonzero(indices == at)
            out[k] = weights[near][is_lower(values[near], edge)].sum()
    return out


@cache
def _edge_bins(relative: bool) -> list[int]:
    """The bin that each of EDGES is in."""
    found: list[int] = rounded(np.array([edge for edge, _ in EDGES]), relative).tolist()
    return found


def _weighed(readings: Floats, weights: Floats) -> Floats:
    amount = (readings * weights).sum()
    if np.isnan(amount):  # one of them is not known
        known = ~np.isnan(readings)
        amount, weights = (readings[known] * weights[known]).sum(), weights[known]
    return np.array([amount, weights.sum()])
