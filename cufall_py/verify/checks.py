"""What was counted of known work, held against arithmetic: pure functions, a check for each thing to be true."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cufall_py.metrics import TIME, MetricSet
from cufall_py.samples import Samples

HELD, MISSED, NOT_MEASURABLE = "held", "missed", "not measurable"
LEAST_COVERED = 0.999
"""With less of the time covered, a total is not all that was done."""
NOTHING = 1e-5
"""What a share may be that must be 0: a stray launch of a display."""
WHOLE = 4
"""Cycles of an instruction are whole, of the SM or of one of its four quarters: chips differ in what they count."""
OVER = 0.005
"""What may be above a limit: the counters of a sample are latched some cycles apart."""


@dataclass(frozen=True)
class Check:
    """One thing that must be true. `metric`: the short name that it speaks for, "" for none. `expected`, `got` and
    `within` (how far apart they may be) in `unit`; NaN where there is none; `why` it is not measurable."""

    name: str
    metric: str
    expected: float
    got: float
    within: float
    unit: str
    outcome: str
    why: str = ""


@dataclass(frozen=True)
class Counted:
    """What was counted between two moments: by counter, and TIME in nanoseconds, what adds up over time
    (MetricSet.extend); and how much of the time was covered (0..1)."""

    metrics: MetricSet
    totals: dict[str, float]
    covered: float

    def ratio(self, name: str) -> float:
        """A metric's mean, 0..1, by the set's own formula; NaN if it is not there."""
        ratios = self.metrics.ratios(np.array([[*self.totals.values()]]))[0]
        of = zip(self.metrics.metrics, ratios, strict=True)
        return next((float(ratio) for metric, ratio in of if metric.label == name), math.nan)

    def parts(self, name: str, sms: int) -> list[float]:
        """Of each counter of a metric, the total of all the units that it is an average of."""
        for metric in self.metrics.metrics:
            if metric.label == name:
                return [self.totals[counter] * instances(counter, sms) for counter in metric.counters]
        return []

    def all_of(self, name: str, sms: int) -> float:
        """What a metric counts, of the whole GPU; NaN if it is not there."""
        return sum(self.parts(name, sms)) if self.parts(name, sms) else math.nan


def instances(counter: str, sms: int) -> int:
    """How many units an average is of: SMs, or the quarters of them; 1 for a sum."""
    base, _, rollup = counter.rpartition(".")
    if rollup != "avg":
        return 1
    unit = base.split("__")[0].split(".")[-1]
    return {"sm": sms, "smsp": 4 * sms}.get(unit, 1)


def counted(samples: Samples, metrics: MetricSet, start_ns: int, end_ns: int) -> Counted:
    """The samples between two moments, each by the share of it that lies there."""
    length = samples.end_ns - samples.start_ns
    inside = np.minimum(samples.end_ns, end_ns) - np.maximum(samples.start_ns, start_ns)
    amounts = np.clip(inside / length, 0, 1) @ metrics.extend(samples.values, length)
    totals = dict(zip((*metrics.counters, TIME), amounts.tolist(), strict=True))
    return Counted(metrics, totals, totals[TIME] / (end_ns - start_ns))


def near(name: str, metric: str, expected: float, got: float, within: float, unit: str = "") -> Check:
    """`got` must be no further than `within` from `expected`."""
    if math.isnan(got) or math.isnan(expected):
        return unknown(name, metric, "it was not counted here")
    outcome = HELD if abs(got - expected) <= within else MISSED
    return Check(name, metric, expected, got, within, unit, outcome)


def at_most(name: str, metric: str, limit: float, got: float, unit: str = "") -> Check:
    """`got` must not be above the limit."""
    found = near(name, metric, limit, got, OVER, unit)
    return replace(found, outcome=HELD) if got <= limit else found


def whole(name: str, metric: str, got: float, unit: str = "") -> Check:
    """`got` must be near a whole number of quarters, and not 0."""
    expected = max(1, round(got * WHOLE)) / WHOLE if math.isfinite(got) else math.nan
    return near(name, metric, expected, got, min(0.002 * max(got, 1.0), 0.2 / WHOLE), unit)


def unknown(name: str, metric: str, why: str) -> Check:
    return Check(name, metric, math.nan, math.nan, math.nan, "", NOT_MEASURABLE, why)


def complete(checks: Iterable[Check], *of: Counted) -> list[Check]:
    """The checks, or that each is not measurable, because samples were lost of what they rest on."""
    worst = min(one.covered for one in of)
    if worst >= LEAST_COVERED:
        return list(checks)
    return [unknown(check.name, check.metric, f"{100 * worst:.1f} % of its samples came") for check in checks]


def verified(checks: Sequence[Check]) -> tuple[str, ...]:
    """The short names that something held for and nothing was missed of."""
    held = dict.fromkeys(check.metric for check in checks if check.metric and check.outcome == HELD)
    missed = {check.metric for check in checks if check.outcome == MISSED}
    return tuple(name for name in held if name not in missed)


def exit_code(checks: Sequence[Check]) -> int:
    """3 if one was missed, else 4 if nothing could be held, else 0."""
    outcomes = {check.outcome for check in checks}
    return 3 if MISSED in outcomes else 0 if HELD in outcomes else 4
