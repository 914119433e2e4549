"""What of a question fits one pass, asked of its source under the Python that samples, before anything is sampled.

It is the count of passes that a worker asks for, too, before it starts: CUPTI's, or what a script says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from .devices import select
from .errors import CufallError, UsageError, as_json, from_json
from .launch import Question, interpreter
from .plan import Plan
from .presets import SHORT_NAMES, in_verdict_set
from .resolve import Wanted, resolve
from .rotation import Set, sets_of
from .sources import Passes, Provider, provider


@dataclass(frozen=True)
class Fitting:
    """`sets` that fit one pass each, and what of the question is in none of them: a line for a person on each."""

    sets: tuple[Set, ...]
    left_out: tuple[str, ...] = ()
    beyond: bool = False
    """Whether they hold what a session would leave out for the chip's verdict set is without it."""


def ask(plan: Plan) -> Fitting:
    """The sets that a plan's metrics take. Raises CufallError."""
    question = Question(interpreter(plan.source), "fitting:tell", plan.source, json.dumps(plan.to_json()))
    try:
        told = question.answer()
    finally:
        question.close()
    if "failed" in told:
        raise from_json(told["failed"])
    return Fitting(tuple(map(tuple, told["sets"])), tuple(told["left_out"]), told["beyond"])


def tell(source: str, plan: str) -> None:
    """Entry for `ask`: print its answer as JSON."""
    try:
        found = fitting(provider(source), Plan.from_json(json.loads(plan)))
        print(json.dumps(asdict(found)))
    except CufallError as error:
        print(json.dumps({"failed": as_json(error)}))


def fitting(provider: Provider, plan: Plan) -> Fitting:
    """As `ask` has it, of the GPUs of this provider. Raises CufallError."""
    provider.prepare()
    found = [provider.passes(device) for device in select(provider.devices(), plan.devices)]
    chips = {passes.chip: passes for passes in found if passes}
    if not chips:
        return Fitting((plan.wanted.metrics,))
    return _fitting(plan.wanted, [*chips.values()])


def with_metrics(wanted: Wanted, names: Set) -> Wanted:
    """The same question of these metrics alone, each of them meant."""
    pairs = any(name not in SHORT_NAMES for name in names)
    return replace(wanted, metrics=names, optional=(), denominator=wanted.denominator if pairs else "")


def _fitting(wanted: Wanted, chips: Sequence[Passes]) -> Fitting:
    lacking = {name: why for name in dict.fromkeys(wanted.metrics) if (why := _lacking(wanted, name, chips))}
    for name, why in lacking.items():
        if name not in wanted.optional:
            raise UsageError(why)
    names = [name for name in dict.fromkeys(wanted.metrics) if name not in lacking]
    if not names:
        raise UsageError(next(iter(lacking.values())))
    sets = sets_of(names, lambda chosen: {*_passes(wanted, chosen, chips)[0]} == {1})
    beyond = any(n in wanted.optional and not any(in_verdict_set(n, chip.chip) for chip in chips) for n in names)
    return Fitting(tuple(sets), tuple(f"left out: {why}" for why in lacking.values()), beyond)


def _lacking(wanted: Wanted, name: str, chips: Sequence[Passes]) -> str:
    """Why none of the chips can measure this metric, even alone; empty if one can."""
    passes, failed = _passes(wanted, (name,), chips)
    if 1 in passes:
        return ""
    return f"{name} needs {min(passes)} passes on {chips[0].chip}, one can be sampled" if passes else failed[0]


def _passes(wanted: Wanted, names: Set, chips: Sequence[Passes]) -> tuple[list[int], list[str]]:
    """On each chip that has these metrics, and why the others do not."""
    passes, failed = list[int](), list[str]()
    for chip in chips:
        try:
            passes.append(chip.of(resolve(with_metrics(wanted, names), chip.chip).counters))
        except UsageError as error:
            failed.append(str(error))
    return passes, failed
