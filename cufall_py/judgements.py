"""Requirements judged on a summary: what each selected GPU came to, and whether that is enough."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .analysis.decision_table import SPELT
from .analysis.summary import WHOLE, Scope, Summary
from .analysis.verdict_windows import WindowVerdict
from .metrics import Metric
from .requirements import OF_TIME, OPERATORS, QUANTITIES, STATISTICS, VERDICT, Requirement, pointed

LEAST_SAMPLES = 20
"""With fewer samples wholly inside, nothing is judged."""
DEFAULT_REGIONS = ("command", "duration")
"""Judged where no region is named: the first of these that the recording has, else everything."""
HELD, MISSED, NOT_MEASURABLE = "held", "missed", "not measurable"


@dataclass(frozen=True)
class Judgement:
    """A requirement on one GPU (its CUDA ordinal). `value` as `limit` is, NaN if there is none; `region` is what was
    judged (WHOLE: everything), `samples` and `coverage` what it rests on; `why` says what keeps it from being measured.
    """

    requirement: Requirement
    gpu: int
    outcome: str
    value: float
    region: str
    samples: int
    coverage: float
    plain: bool = False
    why: str = ""
    server: str = ""

    @property
    def subject(self) -> str:
        """What it is of, as a person reads it."""
        return self.server or f"GPU {self.gpu}"


def check(requirement: Requirement, ordinals: Collection[int], metrics: Sequence[Metric]) -> None:
    """Whether it can be asked of these GPUs and metrics; one of a metric that is not there is only not measurable.

    Raises UsageError.
    """
    if requirement.of_server:
        at = requirement.text.find("running") if requirement.running else 0
        raise pointed(requirement.text, at, "this needs an inference server's own figures; cufall attach records them")
    if requirement.role:
        told = f"no group {requirement.role}; --group names one, and cufall attach knows its servers"
        raise pointed(requirement.text, requirement.text.find("group"), told)
    check_gpus(requirement, ordinals, metrics)


def check_gpus(requirement: Requirement, ordinals: Collection[int], metrics: Sequence[Metric]) -> None:
    """The same of one that takes what a server said, where that is known."""
    for gpu in requirement.gpus or ():
        if gpu not in ordinals:
            there = ", ".join(map(str, sorted(ordinals)))
            raise pointed(requirement.text, requirement.text.find("gpu"), f"no GPU {gpu}; there are {there}")
    found = [metric for metric in metrics if metric.label == requirement.metric]
    if not found:
        return
    if found[0].plain and (requirement.percent or requirement.statistic in OF_TIME):
        raise pointed(requirement.text, 0, f"{requirement.metric} is a plain quotient here, no percent")
    if not found[0].plain and not requirement.of_unit and not 0 <= requirement.limit <= 1:
        raise pointed(requirement.text, 0, f"{requirement.metric} is a ratio, 0 to 1, or 0% to 100%")


def judge(requirement: Requirement, summary: Summary, lacking: Mapping[str, str] = {}) -> list[Judgement]:
    """On each selected GPU. `lacking`: why a metric is not in the summary, by its name."""
    scope = _scope(requirement, summary)
    chosen = [k for k, s in enumerate(summary.subjects) if requirement.gpus is None or s.ordinal in requirement.gpus]
    return [_judged(requirement, summary, scope, k, lacking) for k in chosen]


def undecided(requirement: Requirement, window: WindowVerdict) -> str:
    """Why the share of a class cannot be judged; empty if what is unknown could not change the outcome."""
    holds, limit = OPERATORS[requirement.operator], requirement.limit
    at_most = window.at_most[SPELT[requirement.statistic]]
    if holds(_share(requirement, window), limit) == holds(at_most, limit):
        return ""
    lacking = f"; not measured: {', '.join(window.missing)}" if window.missing else ""
    return f"{100 * at_most:.3g}% of the time may be{lacking}"


def _share(requirement: Requirement, window: WindowVerdict) -> float:
    return window.shares[SPELT[requirement.statistic]]


def exit_code(judgements: Sequence[Judgement]) -> int:
    """4 if one could not be measured, else 3 if one was missed, else 0."""
    outcomes = {judgement.outcome for judgement in judgements}
    return 4 if NOT_MEASURABLE in outcomes else 3 if MISSED in outcomes else 0


def _scope(requirement: Requirement, summary: Summary) -> Scope | None:
    if requirement.region is not None:
        return summary.scope(requirement.region) if requirement.region != WHOLE else None
    return next(filter(None, map(summary.scope, (*DEFAULT_REGIONS, WHOLE))), None)


def _judged(
    requirement: Requirement, summary: Summary, scope: Scope | None, k: int, lacking: Mapping[str, str]
) -> Judgement:
    gpu = summary.subjects[k].ordinal

    def lacks(why: str, samples: int = 0, coverage: float = 0.0) -> Judgement:
        region = (requirement.region or WHOLE) if scope is None else scope.name
        return Judgement(requirement, gpu, NOT_MEASURABLE, math.nan, region, samples, coverage, why=why)

    if scope is None:
        return lacks(f"region {requirement.region} never came")
    row = scope.rows[k]
    if requirement.metric == VERDICT:
        if scope.name not in summary.verdicts:
            return lacks("no verdicts were given")
        window = summary.verdicts[scope.name][k]
        if why := undecided(requirement, window):
            return lacks(why, row.samples, row.coverage)
        value, samples, coverage, plain = _share(requirement, window), row.samples, row.coverage, False
    elif not requirement.metric:
        value, samples, coverage, plain = QUANTITIES[requirement.statistic](row), row.samples, row.coverage, False
    elif requirement.metric not in summary.metrics:
        return lacks(lacking.get(requirement.metric, "not in the recording"))
    else:
        of = row.metrics[summary.metrics.index(requirement.metric)]
        value, samples, coverage, plain = STATISTICS[requirement.statistic](of), of.samples, of.coverage, of.plain
    if samples < LEAST_SAMPLES:
        return lacks(f"{samples} whole samples, at least {LEAST_SAMPLES} are needed", samples, coverage)
    if math.isnan(value):
        return lacks("no value", samples, coverage)
    held = OPERATORS[requirement.operator](value, requirement.limit)
    return Judgement(requirement, gpu, HELD if held else MISSED, value, scope.name, samples, coverage, plain)
