"""What a test is told whose requirements did not hold, as pytest tells of an assertion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .judgements import MISSED, NOT_MEASURABLE, Judgement
from .measured import NOT_SAMPLED, Measured
from .requirements import Requirement
from .shown import percent
from .views.summary import judged_value

LEAST_COVERAGE = 0.9
"""Of the time that a statistic is judged on, what must have been measured."""


def problems(required: Sequence[Requirement], call: Measured, regions: Sequence[Measured]) -> list[str]:
    """Lines, none if all held: in the call, or in the regions of the test that a requirement names.

    Raises UsageError for what cannot be asked of these GPUs.
    """
    told: list[str] = []
    for requirement in required:
        of = [call] if requirement.region is None else [m for m in regions if m.name == requirement.region]
        told += [line for measured in of for line in _of(requirement, measured)]
        if not of:
            told += [f"{NOT_MEASURABLE}: {requirement.text}", " +  this test measured no such region"]
    return told


def _of(requirement: Requirement, measured: Measured) -> Iterator[str]:
    found = [_if_covered(judgement) for judgement in measured.judge(requirement)]
    missed, unknown = ([j for j in found if j.outcome == outcome] for outcome in (MISSED, NOT_MEASURABLE))
    periods_ns = dict(zip((s.ordinal for s in measured.all().subjects), measured.all().periods_ns, strict=True))
    if missed:
        yield f"assert {requirement.text}"
        yield from (f" +  where {_value(j)} ({_data(j, periods_ns[j.gpu])})" for j in missed)
    if unknown:
        yield f"{NOT_MEASURABLE}: {requirement.text}"
    if unknown and unknown[0].why == NOT_SAMPLED:
        yield f" +  {requirement.metric} is not sampled; it must be among --cufall-metric"
    else:
        yield from (f" +  on GPU {j.gpu}: {j.why} ({_data(j, periods_ns[j.gpu])})" for j in unknown)


def _if_covered(judgement: Judgement) -> Judgement:
    """Not measurable where too little of the time was measured for a statistic to say anything."""
    if judgement.why or not judgement.requirement.metric or judgement.coverage >= LEAST_COVERAGE:
        return judgement
    why = f"too little was measured, at least {percent(LEAST_COVERAGE)} is needed"
    return replace(judgement, outcome=NOT_MEASURABLE, why=why)


def _value(judgement: Judgement) -> str:
    return f"{judgement.requirement.quantity} = {judged_value(judgement)} on GPU {judgement.gpu}"


def _data(judgement: Judgement, period_ns: float) -> str:
    period = f" of {period_ns / 1e6:.4g} ms" if judgement.samples else ""
    return f"{judgement.samples} samples{period}, coverage {percent(judgement.coverage)}"
