"""Verdicts: what each frame of one GPU was bound by, by a decision table. What it rests on: docs/verdict.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .decision_table import ABOVE, CLASSES, MIXED, TABLE, UNKNOWN, Condition, DecisionTable, Rule
from .evidence import GAP_WITHIN, INPUTS, LARGEST, LINK, Evidence

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int8]
NONE = -1
"""The runner-up of a frame that comes near to no other class."""
NEAR = 0.1
"""A class whose furthest condition is not a tenth of the way to its edge is no runner-up."""
NAMED = ("tensor", "dram", "fma", "alu", "issue", "sm", "gr", "occupancy", "launches", LINK, GAP_WITHIN)
"""What can be named as missing; bit k of `missing` is the k-th."""
OTHERS = tuple(name for name in INPUTS if name not in NAMED)
NAMES = (*NAMED, *OTHERS)


@dataclass(frozen=True)
class Verdicts:
    """Of n frames: `classes` (n,) are positions in CLASSES.

    `missing` (n,) has a bit for each of NAMES that would have been needed. `possible` (n,) has a bit for each of
    CLASSES that an unknown frame may be, 0 for others.
    """

    classes: Codes
    missing: NDArray[np.uint32]
    possible: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, rows: NDArray[np.intp]) -> Verdicts:
        return Verdicts(*(column[rows] for column in vars(self).values()))

    def put(self, rows: NDArray[np.intp], found: Verdicts) -> None:
        """Write these over those rows."""
        for column, new in zip(vars(self).values(), vars(found).values(), strict=True):
            column[rows] = new

    @staticmethod
    def unknown(frames: int) -> Verdicts:
        """Of frames of which nothing was measured."""
        return classify({}, frames)

    def names(self) -> list[str]:
        """The class of each frame in words."""
        return [CLASSES[k] for k in self.classes]


def missing_names(bits: int) -> tuple[str, ...]:
    """What a bit mask of `missing` names."""
    return tuple(name for k, name in enumerate(NAMES) if bits >> k & 1)


def classify(means: Mapping[str, Floats], frames: int, table: DecisionTable = TABLE) -> Verdicts:
    """The verdict of each of `frames` frames.

    `means` holds (frames,) of each of evidence.INPUTS that was measured, and of GAP_WITHIN, NaN in a frame where it was
    not. The first row of the table that holds is the verdict, whatever was not measured; where none holds, it is
    `unknown` if one might, had all been measured, and else `mixed`.
    """
    rows = _rows(Evidence(means, frames, table.reachable), table)
    classes, missing = np.full(frames, MIXED, np.int8), np.zeros(frames, np.uint32)
    possible = np.full(frames, 1 << MIXED, np.uint16)
    for rule, row in rows:
        classes[row.possible & (classes == MIXED)] = UNKNOWN
        missing |= row.missing
        possible[row.possible] |= np.uint16(1 << CLASSES.index(rule.verdict))
    for rule, row in rows:
        classes[row.holds] = CLASSES.index(rule.verdict)
    known = classes != UNKNOWN
    missing[known], possible[known] = 0, 0
    return Verdicts(classes, missing, possible)


def rivals(means: Mapping[str, Floats], classes: Codes, table: DecisionTable = TABLE) -> tuple[Codes, Floats]:
    """Of frames that `classify` gave these classes, (n,) each: the runner-up, a position in CLASSES (NONE: no other is
    near), and the distance.

    The distance is the share of the nearest edge by which what is nearest to it would have to change for another class:
    0 at the edge, NaN for unknown. The runner-up of an unknown frame is the first class in the table that it may be.
    """
    evidence = Evidence(means, len(classes), table.reachable)
    runners_up, distance = _nearest(classes, table, evidence)
    unknown = classes == UNKNOWN
    runners_up[unknown], distance[unknown] = NONE, np.nan
    for rule, row in _rows(evidence, table):
        runners_up[unknown & row.possible] = CLASSES.index(rule.verdict)
    return runners_up, distance


@dataclass(frozen=True)
class _Row:
    """How a row of the table stands in each frame: whether it `holds`, whether it is `possible`; `missing` are the
    inputs that leave it open."""

    holds: Bools
    possible: Bools
    missing: NDArray[np.uint32]


def _rows(evidence: Evidence, table: DecisionTable) -> list[tuple[Rule, _Row]]:
    """The rules, from the last to be tried to the first."""
    return [(rule, _read(rule, evidence)) for rule in reversed(table.rules)]


def _read(rule: Rule, evidence: Evidence) -> _Row:
    read = [_condition(condition, evidence) for condition in rule.conditions]
    possible = np.logical_and.reduce([row.possible for row in read])
    missing = np.bitwise_or.reduce([row.missing for row in read])
    return _Row(np.logical_and.reduce([row.holds for row in read]), possible, np.where(possible, missing, np.uint32(0)))


def _condition(condition: Condition, evidence: Evidence) -> _Row:
    span, edge = evidence.span(condition.quantity), _edge(condition, evidence)
    if condition.operator == ABOVE:
        holds, possible = span.least >= edge, span.most >= edge
    else:
        holds, possible = span.most < edge, span.least < edge
    return _Row(holds, possible, _missing(condition, evidence, possible & ~holds))


def _edge(condition: Condition, evidence: Evidence) -> Floats | float:
    """A number, or (n,) of the largest time."""
    return float(condition.edge) if condition.edge != LARGEST else evidence.largest_two[0]


def _missing(condition: Condition, evidence: Evidence, open_: Bools) -> NDArray[np.uint32]:
    bits = np.zeros(len(evidence), np.uint32)
    if not open_.any():
        return bits
    for name, lacks in evidence.lacking(condition.quantity).items():
        bits[open_ & lacks] |= np.uint32(1 << NAMES.index(name))
    return bits


def _nearest(classes: Codes, table: DecisionTable, evidence: Evidence) -> tuple[Codes, Floats]:
    """(n,) of frames with a class: the class that is nearest besides, and the distance to whatever is."""
    own, above, rival = np.full(len(classes), np.inf), np.zeros(len(classes)), np.zeros(len(classes))
    runners_up, found = np.full(len(classes), NONE, np.int8), np.zeros(len(classes), bool)
    for rule in table.rules:
        code, holds = CLASSES.index(rule.verdict), _read(rule, evidence).holds
        pairs = [_closeness(condition, evidence) for condition in rule.conditions]
        near, margin = (np.minimum.reduce(of) for of in zip(*pairs, strict=True))
        decides = holds & ~found & (classes == code)
        found |= decides
        own[decides] = margin[decides]
        higher = ~found
        above[higher] = np.maximum(above, near)[higher]
        nearer = (classes != code) & (near > rival) & (near >= NEAR)
        rival[nearer], runners_up[nearer] = near[nearer], code
    return runners_up, np.clip(np.minimum(own, 1 - above), 0.0, 1.0)


def _closeness(condition: Condition, evidence: Evidence) -> tuple[Floats, Floats]:
    """(n,) how near a condition is to holding, 1 where it does; how far it is from its edge, as a share of that."""
    span = evidence.span(condition.quantity)
    edge, margin_edge = _edges(condition, evidence, span.least)
    with np.errstate(divide="ignore", invalid="ignore"):
        if condition.operator == ABOVE:
            holds = span.least >= edge
            near, margin = span.least / edge, (span.least - margin_edge) / margin_edge
        else:
            holds = span.most < edge
            near, margin = edge / span.most, (edge - span.most) / margin_edge
    near = np.where(holds, 1.0, np.fmin(np.fmax(near, 0.0), 1.0))  # not a number: 0
    return near, np.where(np.isnan(margin), 1.0, margin)


def _edges(condition: Condition, evidence: Evidence, value: Floats) -> tuple[Floats, Floats]:
    """(n,) the edge of a condition, and the one it would have to fall to: of the largest time, that is the second."""
    if condition.edge != LARGEST:
        edge = np.full(len(evidence), float(condition.edge))
        return edge, edge
    largest, second = evidence.largest_two
    return largest, np.where(value >= largest, second, largest)
