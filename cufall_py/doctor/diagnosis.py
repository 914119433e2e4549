"""From facts to the answer: can this machine measure, by what, and what to do next."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from . import gpus as about_gpus, machine, surroundings
from .facts import Facts
from .findings import PROBLEM, Finding, Gpu, joined, listed, named

SCHEMA = 1
SOURCES = ("cupti", "gpm")


@dataclass(frozen=True)
class Diagnosis:
    """`sources`: the ordinals of the GPUs that each source can sample. `next_step`: the one thing to do."""

    sources: dict[str, list[int]]
    answer: str
    next_step: str
    findings: tuple[Finding, ...]

    @property
    def can_measure(self) -> bool:
        return any(self.sources.values())

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "can_measure": self.can_measure, **asdict(self)}


def examine(facts: Facts) -> Diagnosis:
    """Causes come before what they cause, so the first problem's fix is what to do next."""
    gpus = joined(facts)
    findings = (
        machine.kind(facts, gpus),
        machine.driver(facts, gpus),
        machine.libraries(facts),
        about_gpus.mig(gpus),
        about_gpus.virtual(facts, gpus),
        about_gpus.confidential(facts, gpus),
        machine.permission(facts, gpus),
        machine.owner(facts, gpus),
        *about_gpus.each(facts, gpus),
        about_gpus.gpm(facts, gpus),
        about_gpus.binding(facts),
        surroundings.memory(facts, len(gpus)),
        surroundings.rings(facts, len(gpus)),
        surroundings.terminal(facts),
    )
    roomless = any(finding.topic == "rings" and finding.state == PROBLEM for finding in findings)
    sources = {name: [gpu.ordinal for gpu in gpus if gpu.source == name and not roomless] for name in SOURCES}
    return Diagnosis(sources, _answer(gpus, sources, findings), _next(gpus, sources, findings), findings)


def _answer(gpus: list[Gpu], sources: dict[str, list[int]], findings: tuple[Finding, ...]) -> str:
    served = [f"{named(ordinals)} by {source}" for source, ordinals in sources.items() if ordinals]
    missing = [gpu.ordinal for gpu in gpus if not gpu.source]
    if served:
        return f"This machine can measure {listed(served)}" + (f", but not {named(missing)}." if missing else ".")
    cause = next((f"{f.topic}: {f.text}" for f in findings if f.state == PROBLEM), "CUDA shows no GPU here")
    return f"This machine cannot measure ({cause})."


def _next(gpus: list[Gpu], sources: dict[str, list[int]], findings: tuple[Finding, ...]) -> str:
    if gpus and len(sources["cupti"]) == len(gpus):
        return "start cufall"
    fixes = [finding.fix for finding in findings if finding.state == PROBLEM and finding.fix]
    fixes += [finding.fix for finding in findings if finding.state != PROBLEM and finding.fix]
    step = fixes[0].partition("; or ")[0] if fixes else "look at nvidia-smi and at CUDA_VISIBLE_DEVICES"
    return f"start cufall; to measure more: {step}" if any(sources.values()) else step
