"""Metrics: from the counters that were read to the ratio that was asked for.

Every metric is a quotient of two sums, `numerator / (peak x elapsed)`, both of one clock domain. So the
mean of any window is exact: sum both, then divide. Source of the formula: it equals CUPTI's
`.avg.pct_of_peak_sustained_elapsed` sample by sample (docs/accuracy.md), while a quotient of counters
from two clock domains does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TIME = "time"
"""As an elapsed counter: the sample's own nanoseconds."""
TOLERANCE = 1.02
"""A sample that reads more is not believed; the counters of one sample are latched some cycles apart."""


@dataclass(frozen=True)
class Metric:
    """`sum(counters) / (peak x elapsed)`.

    `label` is what a person reads, `asked` the words it was asked in. `peak` is NaN until the chip has
    told the peaks of `peak_of`, which are summed. `bounded`: 1 is the most it can be. `plain`: a quotient
    to be shown as a number, not as a percent. `rate`: the counter is no sum but already a quotient (a
    `.pct` or a `.ratio`), so it is weighted by time.
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

    @property
    def formula(self) -> str:
        """What was really read, as text; empty for nothing."""
        if self.absent:
            return ""
        top = "+".join(self.counters)
        if self.rate:
            return top if self.peak == 1 else f"{top}/{self.peak:g}"
        peak = "" if self.peak == 1 else f"{self.peak:g}*"
        return f"{'(' + top + ')' if len(self.counters) > 1 else top}/({peak}{self.elapsed})"

    @property
    def absent(self) -> bool:
        """Whether this GPU has no counters for it: it reads NaN, and keeps its place among the others."""
        return not self.counters

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
    _excess: Floats = field(init=False, repr=False, compare=False)
    """(counters + 1, bounded metrics): times totals, by how much each is above what can be believed."""
    _rates: NDArray[np.intp] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        column = {name: k for k, name in enumerate((*self.counters, TIME))}
        shape = (len(column), len(self.metrics))
        top, bottom = np.zeros(shape), np.zeros(shape)
        for k, metric in enumerate(self.metrics):
            for name in metric.counters:
                top[column[name], k] = 1
            bottom[column[metric.elapsed], k] = np.nan if metric.absent else metric.peak
        capped = [k for k, m in enumerate(self.metrics) if m.bounded and not (m.absent or m.peak_unknown)]
        rates = [column[m.counters[0]] for m in self.metrics if m.rate]
        object.__setattr__(self, "_numerators", top)
        object.__setattr__(self, "_denominators", bottom)
        object.__setattr__(self, "_excess", (top - TOLERANCE * bottom)[:, capped])
        object.__setattr__(self, "_rates", np.array(rates, np.intp))

    def extend(self, values: Floats, duration_ns: NDArray[np.int64]) -> Floats:
        """Amounts that add up over time: (n, counters) and (n,) to (n, counters + 1), time last."""
        out = np.empty((len(values), values.shape[1] + 1))
        out[:, :-1], out[:, -1] = values, duration_ns
        if self._rates.size:
            out[:, self._rates] *= duration_ns[:, None]
        return out

    def ratios(self, totals: Floats) -> Floats:
        """(n, counters + 1) totals of windows to (n, metrics); NaN where nothing was measured."""
        with np.errstate(divide="ignore", invalid="ignore"):
            out: Floats = (totals @ self._numerators) / (totals @ self._denominators)
        out[totals[:, -1] <= 0] = np.nan
        return out

    def quotients(self, values: Floats, duration_ns: NDArray[np.int64]) -> Floats:
        """Each sample's own value of each metric, (n, metrics)."""
        return self.ratios(self.extend(values, duration_ns))

    def ceilings(self) -> Floats:
        """(metrics,): the most a sample of each can read and be believed."""
        return np.array([TOLERANCE if metric.bounded else np.inf for metric in self.metrics])

    def within_ceilings(self, values: Floats, duration_ns: NDArray[np.int64]) -> bool:
        """Whether no sample reads more than can be believed."""
        if self._excess[-1].any():  # what is measured against time needs it; counters alone do not
            return bool((self.extend(values, duration_ns) @ self._excess <= 0).all())
        return bool((values @ self._excess[:-1] <= 0).all())

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
