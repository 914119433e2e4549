"""From tallies to the figures of a summary: of one GPU, of all GPUs, and which GPU is unlike the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import TIME, Metric, MetricSet
from cufall_py.shown import html_table, percent, plain

from .tally import SUMMED, MetricTally, Tally

Floats = NDArray[np.float64]
PERCENTS = np.arange(1, 100)
PERCENTILES = {f"p{percent}": percent for percent in range(1, 100)}
SHOWN = ("mean", "min", "p5", "p50", "p95", "max")
"""What a notebook shows of a metric."""
UNLIKE_POINTS, UNLIKE_MADS = 0.05, 3.0
"""A GPU is unlike its peers if its mean is further than both from the median of all: points, and MADs."""


@dataclass(frozen=True)
class Statistics:
    """Of one metric. Ratios 0..1, or plain quotients where `plain` (then shares below and above are NaN).

    `mean` is the quotient of sums. All else is over the own quotients of `samples`, those wholly inside, weighted by
    their time: `time_mean`, `minimum`, `maximum`, `percentiles` of 1 to 99 %, the shares of their time.
    `coverage`: of the wanted time, what was measured of this metric. `counted_per_s` and `elapsed_per_s`: what its
    counters and its elapsed counter counted in a second of that; of several GPUs not told. NaN where there is nothing.
    """

    label: str
    plain: bool
    samples: int
    coverage: float
    mean: float = math.nan
    time_mean: float = math.nan
    minimum: float = math.nan
    maximum: float = math.nan
    percentiles: tuple[float, ...] = field(default=(math.nan,) * 99, repr=False)
    idle_share: float = math.nan
    below_1: float = math.nan
    below_10: float = math.nan
    above_90: float = math.nan
    longest_idle_s: float = math.nan
    counted_per_s: float = math.nan
    elapsed_per_s: float = math.nan

    def percentile(self, percent: int) -> float:
        """From 1 to 99."""
        return self.percentiles[percent - 1]

    def __getattr__(self, name: str) -> float:
        """`min`, `max` and `p1` to `p99`, as reports and requirements call them."""
        if name in ("min", "max"):
            return self.minimum if name == "min" else self.maximum
        if name in PERCENTILES:
            return self.percentile(PERCENTILES[name])
        raise AttributeError(f"no statistic {name}; there are mean, min, max, p1 to p99, below_1, ... (docs/report.md)")

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        show = plain if self.plain else percent
        values = [show(getattr(self, name)) for name in SHOWN]
        return html_table(
            ("metric", *SHOWN, "coverage", "samples"),
            [(self.label, *values, percent(self.coverage), str(self.samples))],
        )


@dataclass(frozen=True)
class Row:
    """Of one GPU, or of several: then clock and power are means of them, `energy_j` is the sum.

    `samples` lie wholly inside, `coverage` is of the wanted time. `unlike_kinds`: the kinds of GPU that were averaged
    over, if there is more than one; `unlike`: by metric, the positions of GPUs that are unlike their peers.
    """

    metrics: tuple[Statistics, ...]
    samples: int
    coverage: float
    sm_mhz: float
    throttle_share: float
    power_w: float
    energy_j: float
    unlike_kinds: tuple[str, ...] = ()
    unlike: tuple[tuple[int, ...], ...] = ()


def gpu_row(metrics: MetricSet, of: Tally, wanted_ns: float) -> Row:
    """The figures of one GPU."""
    means = metrics.ratios(np.array([t.totals for t in of.metrics])).diagonal().tolist()
    found = [_statistics(m, t, mean, wanted_ns) for m, t, mean in zip(metrics.metrics, of.metrics, means, strict=True)]
    found = [_with_rates(metrics, m, t, s) for m, t, s in zip(metrics.metrics, of.metrics, found, strict=True)]
    nvml_answered = of.clock[1] or of.power[1] or of.throttled_ns
    return Row(
        tuple(found),
        of.samples,
        _share(of.covered_ns, wanted_ns),
        _share(*of.clock),
        _share(of.throttled_ns, of.covered_ns) if nvml_answered else math.nan,
        _share(*of.power),
        of.power[0] / 1e9 if of.power[1] else math.nan,
    )


def group_row(
    kinds: Sequence[str], sets: Sequence[MetricSet], tallies: Sequence[Tally], rows: Sequence[Row], wanted_ns: float
) -> Row:
    """The figures of all GPUs together; where their kinds differ, a mean is that of theirs, weighted by time."""
    together = range(len(sets[0].metrics))
    found = tuple(_of_group(sets, tallies, rows, k, wanted_ns * len(rows)) for k in together)
    covered_ns = sum(t.covered_ns for t in tallies)
    known = [(t, row.throttle_share) for t, row in zip(tallies, rows, strict=True) if row.throttle_share >= 0]
    differ = {*kinds} if len({*kinds}) > 1 or any(s.metrics != sets[0].metrics for s in sets) else ()
    energies = [row.energy_j for row in rows if row.energy_j >= 0]
    return Row(
        found,
        sum(t.samples for t in tallies),
        _share(covered_ns, wanted_ns * len(rows)),
        _share(*np.sum([t.clock for t in tallies], axis=0)),
        _share(sum(t.throttled_ns for t, _ in known), sum(t.covered_ns for t, _ in known)),
        _share(*np.sum([t.power for t in tallies], axis=0)),
        sum(energies) if energies else math.nan,
        tuple(sorted(differ)),
        tuple(_unlike([row.metrics[k] for row in rows], kinds) for k in together),
    )


def _of_group(
    sets: Sequence[MetricSet], tallies: Sequence[Tally], rows: Sequence[Row], k: int, wanted_ns: float
) -> Statistics:
    parts = [t.metrics[k] for t in tallies]
    total = MetricTally(np.zeros(1))
    for part in parts:
        for name in SUMMED:
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.bins.add(part.bins)
        total.runs.longest_ns = max(total.runs.longest_ns, part.runs.longest_ns)
    total.minimum, total.maximum = min(p.minimum for p in parts), max(p.maximum for p in parts)
    total.totals = np.array([sum(p.totals[-1] for p in parts)])
    return _statistics(sets[0].metrics[k], total, _group_mean(sets, parts, rows, k), wanted_ns)


def _group_mean(sets: Sequence[MetricSet], parts: Sequence[MetricTally], rows: Sequence[Row], k: int) -> float:
    """The quotient of all sums if it is one metric on all, else the mean of the GPUs' means by their time."""
    if all(s.counters == sets[0].counters and s.metrics[k] == sets[0].metrics[k] for s in sets):
        return float(sets[0].ratios(np.sum([p.totals for p in parts], axis=0)[None])[0, k])
    known = [(row.metrics[k].mean, p.totals[-1]) for row, p in zip(rows, parts, strict=True) if p.totals[-1]]
    return _share(sum(mean * ns for mean, ns in known), sum(ns for _, ns in known))


def _statistics(metric: Metric, of: MetricTally, mean: float, wanted_ns: float) -> Statistics:
    coverage = _share(of.totals[-1], wanted_ns)
    if not of.samples:
        return Statistics(metric.label, metric.plain, 0, coverage, float(mean))
    percentiles = np.clip(of.bins.quantiles(PERCENTS / 100, not metric.bounded), of.minimum, of.maximum)
    idle_ns, below_1_ns, below_10_ns, up_to_90_ns = of.lower_ns(not metric.bounded)
    whole_ns = 0.0 if metric.plain else of.whole_ns  # a plain quotient is no share of anything
    return Statistics(
        metric.label,
        metric.plain,
        of.samples,
        coverage,
        float(mean),
        time_mean=of.weighted / of.whole_ns,
        minimum=of.minimum,
        maximum=of.maximum,
        percentiles=tuple(percentiles.tolist()),
        idle_share=_share(idle_ns, whole_ns),
        below_1=_share(below_1_ns, whole_ns),
        below_10=_share(below_10_ns, whole_ns),
        above_90=_share(of.whole_ns - up_to_90_ns, whole_ns),
        longest_idle_s=math.nan if metric.plain else of.runs.longest_ns / 1e9,
    )


def _unlike(of: Sequence[Statistics], kinds: Sequence[str]) -> tuple[int, ...]:
    """Positions of GPUs whose mean lies apart from that of the GPUs of their kind."""
    means = np.array([math.nan if s.plain else s.mean for s in of])
    found = []
    for k, mean in enumerate(means):
        if np.isnan(mean):
            continue
        peers = means[[kind == kinds[k] for kind in kinds] & ~np.isnan(means)]
        middle = np.median(peers)
        if abs(mean - middle) > max(UNLIKE_POINTS, UNLIKE_MADS * np.median(np.abs(peers - middle))):
            found.append(k)
    return tuple(found)


def _with_rates(metrics: MetricSet, metric: Metric, of: MetricTally, found: Statistics) -> Statistics:
    """With what was counted a second, where the counters are sums over time."""
    if metric.absent or metric.rate or metric.elapsed == TIME:
        return found
    totals = dict(zip((*metrics.counters, TIME), of.totals.tolist(), strict=True))
    counted, seconds = sum(totals[name] for name in metric.counters), totals[TIME] / 1e9
    return replace(found, counted_per_s=_share(counted, seconds), elapsed_per_s=_share(totals[metric.elapsed], seconds))


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else math.nan
