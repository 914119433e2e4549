"""Metrics: from the counters that were read to the ratio that was asked for.

Every metric is a quotient of two sums, `numerator / (peak x elapsed)`, both of one clock domain. So the
mean of any window is exact: sum both, then divide. Source of the formula: it equals CUPTI's
`.avg.pct_of_peak_sustained_elapsed` sample by sample (docs/accuracy.md), while a quotient of counters
from two clock domains does not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .presets import TIME as TIME  # also found here

Floats = NDArray[np.float64]
INFINITE = float("inf")
SATURATED = float(2**32 - 1)
"""A 32-bit hardware counter that ran into its end."""
TOLERANCE = 1.02
"""A sample that reads more is not believed; the counters of one sample are latched some cycles apart."""


@dataclass(frozen=True)
class Metric:
    """`sum(counters) / (peak x elapsed)`.

    `label` is what a person reads, `asked` the words it was asked in. `peak` is NaN until the chip has
    told the peaks of `peak_of`, which are summed. `bounded`: 1 is the most it can be. `plain`: a quotient
    to be shown as a number, not as a percent. `rate`: the counter is no sum but already a quotient (a
    `.pct` or a `.ratio`), so it is weighted by time. `unit`: what a plain number is of, such as `/s`.
    """

    label: str
    asked: str
    counters: tuple[str, ...]
    elapsed: str
    peak_of: tuple[str, ...] = ()
    peak: float = float("nan")
    bounded: bool = True
    plain: bool = False
    rate: bool = False
    unit: str = ""

    @property
    def formula(self) -> str:
        """What was really read, as text; empty for nothing."""
        if self.absent:
            return ""
        top = "+".join(self.counters)
        if self.unit:
            return f"{top} a second"
        if self.rate:
            return top if self.peak == 1 else f"{top}/{self.peak:g}"
        peak = "" if self.peak == 1 else f"{self.peak:g}*"
        return f"{'(' + top + ')' if len(self.counters) > 1 else top}/({peak}{self.elapsed})"

    @property
    def shown_in(self) -> str:
        """What a person reads its values in: `%`, `/s`, or empty for a plain quotient."""
        return self.unit if self.plain else "%"

    @property
    def absent(self) -> bool:
        """Whether this GPU has no counters for it: it reads NaN, and keeps its place among the others."""
        return not self.counters

    @property
    def ceiling(self) -> float:
        """The most a sample can read and be believed."""
        return TOLERANCE if self.bounded and not self.absent else INFINITE

    @property
    def peak_unknown(self) -> bool:
        return bool(np.isnan(self.peak)) and not self.absent

    def made_absent(self) -> Metric:
        return replace(self, counters=(), elapsed=TIME, peak_of=(), peak=1.0, rate=False)


@dataclass(frozen=True)
class MetricSet:
    """Counters read together (the columns of `values`), and the metrics made of them."""

    counters: tuple[str, ...]
    metrics: tuple[Metric, ...]
    _numerators: Floats = field(init=False, repr=False, compare=False)
    _denominators: Floats = field(init=False, repr=False, compare=False)
    _rates: NDArray[np.intp] = field(init=False, repr=False, compare=False)
    _recipes: tuple[tuple[tuple[int, ...], float, int], ...] = field(init=False, repr=False, compare=False)
    """Of each metric: the columns that are summed, the peak, the column they are of."""
    _limits: tuple[tuple[int, list[int], int, float], ...] = field(init=False, repr=False, compare=False)
    """Of each bounded metric: columns that are summed, the one they are of (after the counters come the sample's
    length and 1), and the most that can be believed."""

    def __post_init__(self) -> None:
        column = {name: k for k, name in enumerate((*self.counters, TIME))}
        shape = (len(column), len(self.metrics))
        top, bottom = np.zeros(shape), np.zeros(shape)
        for k, metric in enumerate(self.metrics):
            for name in metric.counters:
                top[column[name], k] = 1
            bottom[column[metric.elapsed], k] = np.nan if metric.absent else metric.peak
        rates = [column[m.counters[0]] for m in self.metrics if m.rate]
        object.__setattr__(self, "_numerators", top)
        object.__setattr__(self, "_denominators", bottom)
        object.__setattr__(self, "_rates", np.array(rates, np.intp))
        recipes = ((tuple(column[name] for name in m.counters), m.peak, column[m.elapsed]) for m in self.metrics)
        object.__setattr__(self, "_recipes", tuple(recipes))
        object.__setattr__(self, "_limits", tuple(self._limit(m, column) for m in self.metrics if m.ceiling < INFINITE))

    @staticmethod
    def _limit(metric: Metric, column: dict[str, int]) -> tuple[int, list[int], int, float]:
        first, *others = (column[name] for name in metric.counters)
        elapsed = len(column) if metric.rate else column[metric.elapsed]
        return first, others, elapsed, metric.ceiling * metric.peak

    def extend(self, values: Floats, duration_ns: NDArray[np.int64]) -> Floats:
        """Amounts that add up over time: (n, counters) and (n,) to (n, counters + 1), time last."""
        out = np.empty((values.shape[1] + 1, len(values))).T  # a counter's amounts side by side: so they are summed
        out[:, :-1], out[:, -1] = values, duration_ns
        if self._rates.size:
            out[:, self._rates] *= duration_ns[:, None]
        return out

    def ratios(self, totals: Floats) -> Floats:
        """(n, counters + 1) totals of windows to (n, metrics); NaN where nothing was measured."""
        numerators, denominators = self.parts(totals)
        with np.errstate(divide="ignore", invalid="ignore"):
            out: Floats = numerators / denominators
        out[totals[:, -1] <= 0] = np.nan
        return out

    def parts(self, totals: Floats) -> tuple[Floats, Floats]:
        """What `ratios` divides: numerators and denominators, (n, metrics) each, that add up over time."""
        return totals @ self._numerators, totals @ self._denominators

    def quotients(self, values: Floats, duration_ns: NDArray[np.int64]) -> Floats:
        """Each sample's own value of each metric, (n, metrics)."""
        return self.ratios(self.extend(values, duration_ns))

    def columns(self, values: Floats, duration_ns: NDArray[np.int64]) -> list[Floats]:
        """What `extend` gives, as a column (n,) each, nothing of it copied that need not be."""
        time_ns = duration_ns.astype(np.float64)
        rates = set(self._rates.tolist())
        return [*(column * time_ns if k in rates else column for k, column in enumerate(values.T)), time_ns]

    def column_ratios(self, columns: Sequence[Floats]) -> list[Floats]:
        """(n,) of each metric, of what `columns` gives: for a great many samples ten times as fast as `quotients`.

        NaN for a metric that is absent or has no value, and where all is 0.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return [
                functools.reduce(np.add, (columns[k] for k in top)) / (peak * columns[elapsed])
                if top
                else np.full(len(columns[-1]), np.nan)
                for top, peak, elapsed in self._recipes
            ]

    def columns_of(self, metric: int) -> tuple[int, ...]:
        """Which of `columns` the metric at this position is made of."""
        top, _, elapsed = self._recipes[metric]
        return (*top, elapsed)

    def ceilings(self) -> Floats:
        """(metrics,): the most a sample of each can read and be believed."""
        return np.array([metric.ceiling for metric in self.metrics])

    def believable(self, rows: list[list[float]], period_ns: float) -> bool:
        """Whether all samples of this one length can be true, by their counters and by what they make of each metric.

        Asked many times a second of a few samples, by a processor that has just slept: numpy takes thrice as long.
        """
        limits = self._limits
        for row in rows:
            for value in row:
                if not 0.0 <= value < INFINITE or value == SATURATED:
                    return False
            row += (period_ns, 1.0)
            for first, others, elapsed, most in limits:
                top = row[first]
                for k in others:
                    top += row[k]
                if top > most * row[elapsed]:
                    return False
        return True

    def with_peaks(self, peaks: dict[str, float]) -> MetricSet:
        """The same set, each unknown peak filled in from `peaks` (by counter name)."""
        told = (replace(m, peak=sum(peaks[name] for name in m.peak_of)) if m.peak_unknown else m for m in self.metrics)
        return MetricSet(self.counters, tuple(told))

    def unknown_peaks(self) -> list[str]:
        """Counters whose peak the chip has yet to tell."""
        return sorted({name for m in self.metrics if m.peak_unknown for name in m.peak_of})

    def without(self, counters: Sequence[str]) -> MetricSet:
        """The same metrics, those that cannot do without `counters` made absent; what only they read is not read."""
        gone = set(counters)
        left = tuple(m.made_absent() if gone & {*m.counters, m.elapsed} else m for m in self.metrics)
        read = {name for m in left for name in (*m.counters, m.elapsed)}
        unread = {name for m in self.metrics for name in (*m.counters, m.elapsed)} - read
        return MetricSet(tuple(c for c in self.counters if c not in gone | unread), left)

    def to_json(self) -> dict[str, object]:
        return {"counters": list(self.counters), "metrics": [asdict(m) for m in self.metrics]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> MetricSet:
        tuples = ("counters", "peak_of")
        metrics = [Metric(**{**m, **{k: tuple(m[k]) for k in tuples}}) for m in data["metrics"]]
        return MetricSet(tuple(data["counters"]), tuple(metrics))
