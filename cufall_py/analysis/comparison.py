"""Two sides of runs to findings: what changed, how sure that is, and whether limits hold.

Three or more runs a side: the interval comes from how runs differ. Fewer: from the noise within runs, which is less
than that between them, so a change below a least effect does not count as shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cufall_py.errors import UsageError

from .intervals import UNKNOWN, Estimate, Interval, averaged, between_runs, difference, relative, within_run
from .limits import POINTS, RELATIVE, Limit
from .series import GpuRun, Key, Sides
from .streamed import Statistic, value

RUNS_FOR_BETWEEN = 3
LEAST_SAMPLES = 20
"""Whole samples that a run must have of what is compared, and effective ones, where noise is told from within it."""
LEAST_BEYOND = 5
"""Effective samples that must lie on the rarer side of a percentile."""
SEED = 20_090_405
"""Of the resamples: the same files give the same intervals."""

LOWER, HIGHER, NO_CHANGE, INCONCLUSIVE = "lower", "higher", "no change shown", "inconclusive"
BEYOND, WITHIN = "beyond", "within"


@dataclass(frozen=True)
class Finding:
    """One statistic of one GPU in one window, compared.

    `base` and `new` are means over runs, NaN where that was not measured; `interval` is of their change in `unit`
    (0.05: 5 %, or 5 points). `samples`: of the run with the fewest, whole ones where runs tell the noise, else
    effective ones. `why` says of what is inconclusive what it lacks. `limit` is what it was held against, if anything,
    and `outcome` BEYOND, WITHIN or INCONCLUSIVE.
    """

    gpu: int
    key: Key
    unit: str
    base: float
    new: float
    interval: Interval
    samples: float
    verdict: str
    why: str
    limit: Limit | None
    outcome: str


@dataclass(frozen=True)
class Comparison:
    """`between`: whether intervals come from the runs. `notes` are lines for a person."""

    findings: list[Finding]
    between: bool
    notes: list[str]

    @property
    def lacking(self) -> list[Finding]:
        """What has too few samples, of what was asked for; without limits everything, if none of it has enough."""
        limits = [f for f in self.findings if f.limit]
        lacking = [f for f in limits or self.findings if f.why]
        return lacking if limits or len(lacking) == len(self.findings) else []

    def that_are(self, outcome: str) -> list[Finding]:
        return [f for f in self.findings if f.outcome == outcome]


def compare(sides: Sides, limits: Sequence[Limit], effects: dict[str, float], least_samples: int) -> Comparison:
    """Every limit, and every window, metric and statistic that all runs have.

    `effects`: the least change that counts where noise is told within runs, by unit. `least_samples`: LEAST_SAMPLES,
    or 0 to judge by however few there are.
    """
    between = min(len(sides.base), len(sides.new)) >= RUNS_FOR_BETWEEN
    judge = _Judge(between, {} if between else effects, least_samples)
    findings = [
        judge.finding(gpu, key, limit, [[run.gpus[gpu] for run in side] for side in (sides.base, sides.new)])
        for gpu in sides.gpus
        for key, limit in _rows([run.gpus[gpu] for run in sides.runs], limits)
    ]
    return Comparison(findings, between, _notes(sides))


class _Judge:
    """Makes findings, one after the other: each draws its own resamples."""

    def __init__(self, between: bool, effects: dict[str, float], least_samples: int) -> None:
        self._between, self._effects, self._least_samples = between, effects, least_samples
        self._rng = np.random.default_rng(SEED)

    def finding(self, gpu: int, key: Key, limit: Limit | None, sides: list[list[GpuRun]]) -> Finding:
        base, new = (self._estimate([run.statistics.get(key) for run in side]) for side in sides)
        unit = limit.most.unit if limit else _unit(key, base.value)
        interval = relative(base, new) if unit == RELATIVE else difference(base, new)
        samples = min(base.effective, new.effective)
        why = self._lacks(key, samples)
        shown = abs(interval.change) >= self._effects.get(unit, 0.0)
        verdict = _verdict(interval, shown) if not why else INCONCLUSIVE
        outcome = "" if not limit else _outcome(interval, shown, limit) if not why else INCONCLUSIVE
        return Finding(gpu, key, unit, base.value, new.value, interval, samples, verdict, why, limit, outcome)

    def _estimate(self, runs: list[Statistic | None]) -> Estimate:
        """Of one side."""
        measured = [run for run in runs if run]
        if len(measured) < len(runs):
            return UNKNOWN
        if self._between:
            return between_runs([value(run) for run in measured], min(run.count for run in measured))
        return averaged([within_run(run.sums, run.of, run.influence(), self._rng) for run in measured])

    def _lacks(self, key: Key, samples: float) -> str:
        if samples == 0:
            return "not measured in all runs"
        needed = self._least_samples and least_samples(key.statistic, self._between)
        kind = "samples" if self._between else "effective samples"
        return f"{samples:.0f} {kind}, {needed} needed" if samples < needed else ""


def least_samples(statistic: str, between: bool) -> int:
    """Samples that a run must have: of a percentile, so many that there are some on its rarer side."""
    if between or not statistic.startswith("p"):
        return LEAST_SAMPLES
    percent = int(statistic[1:])
    return max(LEAST_SAMPLES, math.ceil(100 * LEAST_BEYOND / min(percent, 100 - percent)))


def _unit(key: Key, base: float) -> str:
    """What a change is told in that was not asked for: a share of a share is hard to read, one of nothing is none."""
    return POINTS if key.statistic == "idle_share" or base == 0 else RELATIVE


def _verdict(interval: Interval, shown: bool) -> str:
    if not math.isfinite(interval.high - interval.low):
        return INCONCLUSIVE
    if not shown or interval.low <= 0 <= interval.high:
        return NO_CHANGE
    return HIGHER if interval.low > 0 else LOWER


def _outcome(interval: Interval, shown: bool, limit: Limit) -> str:
    """Turned so that what is too much is above; a change that does not count as shown is beyond no limit."""
    ends = sorted(limit.most.sign * end for end in (interval.low, interval.high))
    if ends[0] > limit.most.size:
        return BEYOND if shown else INCONCLUSIVE
    return WITHIN if ends[1] <= limit.most.size else INCONCLUSIVE


def _rows(runs: list[GpuRun], limits: Sequence[Limit]) -> Iterator[tuple[Key, Limit | None]]:
    """What is compared of a GPU: all that every run has, the whole run first; limits at their place.

    Raises UsageError for a limit in points on what is no share.
    """
    keys = [key for key in runs[0].statistics if all(key in run.statistics for run in runs)]
    wanted = {limit: Key(limit.region, _label(limit.metric, runs), limit.statistic) for limit in limits}
    for limit, key in wanted.items():
        plain = key.metric in runs[0].metrics and runs[0].metrics[key.metric].plain
        if plain and limit.most.unit == POINTS and key.statistic != "idle_share":
            raise UsageError(f"--fail-if {limit}: {key.metric} is a plain quotient, no share: give its change in %")
    for key in dict.fromkeys([*keys, *wanted.values()]):
        of_key = [limit for limit, its in wanted.items() if its == key]
        if of_key:
            yield from ((key, limit) for limit in of_key)
        else:
            yield key, None


def _label(metric: str, runs: list[GpuRun]) -> str:
    return next((m.label for run in runs for m in run.metrics.values() if m.asked == metric), metric)


def _notes(sides: Sides) -> list[str]:
    regions = [set[str](run.regions) for run in sides.runs]
    alone = sorted(set[str]().union(*regions).difference(regions[0].intersection(*regions)))
    notes = [f"region {name} is not in all recordings" for name in alone]
    unknown: dict[str, list[str]] = {}
    for gpu in sides.gpus:
        for what in _unknown([run.gpus[gpu] for run in sides.runs]):
            unknown.setdefault(what, []).append(f"g{gpu}")
    return [*notes, *(f"{', '.join(gpus)}: not known in all recordings: {what}" for what, gpus in unknown.items())]


def _unknown(runs: list[GpuRun]) -> Iterator[str]:
    if not all(run.of_active_time for run in runs):
        yield "when it was active (gr or sm), so idle time counts too"
    if any(math.isnan(run.conditions.sm_mhz) for run in runs):
        yield "its clocks, which may differ"
    if any(math.isnan(run.conditions.throttled) for run in runs):
        yield "what held its clocks back"
