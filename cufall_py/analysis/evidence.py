"""What a verdict rests on: the quantities of a decision table, made of what was measured in each frame.

What was not measured is not 0, and not anything either: a pipe works no more than the engine it is in, and an
instruction of a pipe was issued. So each quantity is a pair, the least and the most that it can be; the two are
one where it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LINKS = ("pcie.rx", "pcie.tx", "nvlink.rx", "nvlink.tx", "c2c.rx", "c2c.tx")
GAP_WITHIN = "gap_within"
A_SECOND = ("launches", "ctas")
INPUTS = ("tensor", "dram", "fma", "alu", "fp64", "issue", "sm", "gr", "occupancy", *A_SECOND, *LINKS)
"""Short names of what is read: shares of the peak 0..1, but for those that are so many a second."""
REACHABLE = ("tensor", "memory", "cuda", "transfer")
"""The roofs. Of each peak a part can be reached, which the table says."""
TIMES = tuple(f"{name}_time" for name in REACHABLE)
LARGEST = "largest_time"
DERIVED = ("gap", GAP_WITHIN, *TIMES, "other_time", "issue_resident")
QUANTITIES = (*DERIVED, *INPUTS)
LINK = "link"
"""What any of LINKS is called where none was measured."""
PER_ISSUE = 2
"""Share of a pipe of the CUDA cores that one share of the issue slots can take: the narrower of FMA and ALU has half as
many lanes as a warp has threads, and takes an instruction every second cycle."""


@dataclass(frozen=True)
class Span:
    """The least and the most that a quantity can be, (n,) each; the two are one where it was measured."""

    least: Floats
    most: Floats


class Evidence:
    """What was measured in n frames: `means` holds (n,) for each of INPUTS that was, NaN where it was not.

    It can also hold GAP_WITHIN: the share of the frame in which the engine had nothing, in samples in which it also had
    something. Many short gaps are told from one long one by it, which the mean of `gr` cannot.
    """

    def __init__(self, means: Mapping[str, Floats], frames: int, reachable: Mapping[str, float]) -> None:
        self._means, self._frames, self._reachable = means, frames, reachable
        self._spans: dict[str, Span] = {}

    def __len__(self) -> int:
        return self._frames

    def mean(self, name: str) -> Floats:
        """(n,) an input, NaN where it was not measured."""
        found = self._means.get(name)
        return np.full(self._frames, np.nan) if found is None else found

    def span(self, name: str) -> Span:
        """The least and the most of one of QUANTITIES."""
        if name not in self._spans:
            self._spans[name] = MADE[name](self) if name in MADE else self._input(name)
        return self._spans[name]

    @cached_property
    def largest_two(self) -> tuple[Floats, Floats]:
        """(n,) the largest and the second of TIMES, what was not measured counting as little as it can."""
        ordered = np.sort(np.stack([self.span(name).least for name in TIMES]), axis=0)
        return ordered[-1], ordered[-2]

    def lacking(self, quantity: str) -> dict[str, NDArray[np.bool_]]:
        """Where (n,) which inputs of a quantity were not measured; the second of a pair where the first was."""
        found = {name: self._absent(name) for name in NEEDS.get(quantity, (quantity,))}
        for name, first in (("alu", "fma"), (GAP_WITHIN, "gr")):
            if name in found:
                found[name] &= ~found[first]
        return found

    def share_of_roof(self, name: str, amount: Floats) -> Floats:
        """(n,) the part of the time that so much takes at what can be reached of the peak."""
        return amount / self._reachable[name]

    def _absent(self, name: str) -> NDArray[np.bool_]:
        return np.isnan(_most_of(self, LINKS) if name == LINK else self.mean(name))

    def _input(self, name: str) -> Span:
        return _between(self.mean(name), 0.0, np.inf if name in A_SECOND else 1.0)


def _between(measured: Floats, least: Floats | float, most: Floats | float) -> Span:
    """What was measured; between two bounds where it was not."""
    absent = np.isnan(measured)
    return Span(np.where(absent, least, measured), np.where(absent, most, measured))


def _most_of(evidence: Evidence, names: tuple[str, ...]) -> Floats:
    """(n,) the most that was measured of several; NaN where none was."""
    out: Floats = np.fmax.reduce([evidence.mean(name) for name in names])
    return out


def _gr(evidence: Evidence) -> Span:
    """The engine is active while an SM or one of its pipes is."""
    within = _most_of(evidence, WITHIN_GR)
    return _between(evidence.mean("gr"), np.where(np.isnan(within), 0.0, np.minimum(within, 1.0)), 1.0)


def _gap(evidence: Evidence) -> Span:
    gr = evidence.span("gr")
    return Span(1 - gr.most, 1 - gr.least)


def _gap_within(evidence: Evidence) -> Span:
    return _between(evidence.mean(GAP_WITHIN), 0.0, evidence.span("gap").most)


def _roof(name: str, pair: Span, evidence: Evidence) -> Span:
    return Span(evidence.share_of_roof(name, pair.least), evidence.share_of_roof(name, pair.most))


def _tensor(evidence: Evidence) -> Span:
    return _between(evidence.mean("tensor"), 0.0, evidence.span("gr").most)


def _cuda(evidence: Evidence) -> Span:
    """The busiest pipe of the CUDA cores; one that was not measured is bounded by what was issued to no other."""
    found = np.fmax(_most_of(evidence, ("fma", "alu", "fp64")), 0.0)
    found = np.where(np.isnan(found), 0.0, found)
    fma, alu = evidence.mean("fma"), evidence.mean("alu")
    elsewhere = evidence.span("issue").most - np.where(np.isnan(fma), 0.0, fma)
    hidden = np.minimum(evidence.span("gr").most, PER_ISSUE * np.maximum(elsewhere, 0.0))
    measured = ~np.isnan(fma) & ~np.isnan(alu)
    return Span(found, np.where(measured, found, np.maximum(found, hidden)))


def _other(evidence: Evidence) -> Span:
    """The time in which the engine is active and nothing that was measured would have to take it at its roof."""
    gr, roofs = evidence.span("gr"), [evidence.span(name) for name in TIMES]
    least = gr.least - np.sum([roof.most for roof in roofs], axis=0)
    most = gr.most - np.sum([roof.least for roof in roofs], axis=0)
    return Span(np.maximum(least, 0.0), np.maximum(most, 0.0))


def _issue_resident(evidence: Evidence) -> Span:
    """Instructions issued for each slot of an SM that has a warp; 0 where none has."""
    issue, sm = evidence.mean("issue"), evidence.mean("sm")
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(sm > 0, np.minimum(issue / sm, 1.0), np.where(np.isnan(sm), np.nan, issue))
    return _between(found, 0.0, 1.0)


def _launches(evidence: Evidence) -> Span:
    """A launch has at least one CTA, so CTAs alone say how many there can be at most."""
    ctas = evidence.mean("ctas")
    return _between(evidence.mean("launches"), 0.0, np.where(np.isnan(ctas), np.inf, ctas))


WITHIN_GR = ("sm", "tensor", "issue", "fma", "alu", "fp64")
"""What takes an active engine. DRAM does not: copy engines move bytes while it is idle."""
MADE: dict[str, Callable[[Evidence], Span]] = {
    "gr": _gr,
    "gap": _gap,
    GAP_WITHIN: _gap_within,
    "tensor": _tensor,
    "tensor_time": lambda evidence: _roof("tensor", evidence.span("tensor"), evidence),
    "memory_time": lambda evidence: _roof("memory", evidence.span("dram"), evidence),
    "cuda_time": lambda evidence: _roof("cuda", _cuda(evidence), evidence),
    "transfer_time": lambda e: _roof("transfer", _between(_most_of(e, LINKS), 0.0, 1.0), e),
    "other_time": _other,
    "issue_resident": _issue_resident,
    "launches": _launches,
}
"""How each quantity is made that is not just an input."""
NEEDS = {
    "gap": ("gr",),
    GAP_WITHIN: ("gr", GAP_WITHIN),
    "tensor_time": ("tensor",),
    "memory_time": ("dram",),
    "cuda_time": ("fma", "alu"),
    "transfer_time": (LINK,),
    "other_time": ("gr", "tensor", "dram", "fma", "alu", LINK),
    "issue_resident": ("issue", "sm"),
}
"""The inputs whose absence leaves a quantity open, in the order in which they are named."""
