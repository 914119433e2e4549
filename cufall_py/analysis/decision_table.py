"""The table that verdicts are read from: rows of conditions, top down. What each edge rests on: docs/verdict.md."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cufall_py.errors import UsageError

from .evidence import LARGEST, QUANTITIES, REACHABLE

CLASSES = (
    "idle",
    "launch-bound",
    "memory-bound",
    "tensor-bound",
    "cuda-core-bound",
    "waiting",
    "latency-bound",
    "transfer-bound",
    "mixed",
    "unknown",
)
MIXED, UNKNOWN = CLASSES.index("mixed"), CLASSES.index("unknown")
"""What no row gives: nothing takes half of the time; what would decide was not measured."""
SPELT = {name.replace("-", "_"): name for name in CLASSES}
"""As expressions and JSON spell them, and as a person reads them."""
SCHEMA = 1
ABOVE, BELOW = ">=", "<"


@dataclass(frozen=True)
class Condition:
    """`quantity` at least (`>=`) or less than (`<`) an edge: a number, or LARGEST, no less than any other time."""

    quantity: str
    operator: str
    edge: float | str

    def __str__(self) -> str:
        return f"{self.quantity} {self.operator} {self.edge if isinstance(self.edge, str) else f'{self.edge:g}'}"


@dataclass(frozen=True)
class Rule:
    """A class, and the conditions that must all hold for it."""

    verdict: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class DecisionTable:
    """`rules` from the first to be tried to the last; `reachable` is what of each peak can be reached (0..1)."""

    rules: tuple[Rule, ...]
    reachable: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        rows = [{"class": rule.verdict, "when": [str(c) for c in rule.conditions]} for rule in self.rules]
        return {"schema": SCHEMA, "reachable": dict(self.reachable), "rows": rows}


def spelt(name: str) -> str:
    """A class as expressions and JSON spell it."""
    return name.replace("-", "_")


def condition(text: str) -> Condition:
    """Read `QUANTITY >= NUMBER`, `QUANTITY < NUMBER` or `QUANTITY >= largest_time`. Raises UsageError."""
    words = text.split()
    if len(words) != 3 or words[1] not in (ABOVE, BELOW):
        raise UsageError(f"{text}: must be QUANTITY >= NUMBER or QUANTITY < NUMBER")
    quantity, operator, edge = words
    if quantity not in QUANTITIES:
        raise UsageError(f"{text}: no quantity {quantity}; there are {', '.join(QUANTITIES)}")
    if edge == LARGEST and operator == ABOVE and quantity.endswith("_time"):
        return Condition(quantity, operator, edge)
    try:
        number = float(edge)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise UsageError(f"{text}: the edge must be a number above 0, or {LARGEST} after a time and >=")
    return Condition(quantity, operator, number)


def rule(verdict: str, *conditions: str) -> Rule:
    """A row of a table, its conditions as `condition` reads them. Raises UsageError."""
    if verdict not in CLASSES[:MIXED]:
        raise UsageError(f"no class {verdict} that a row can give; there are {', '.join(CLASSES[:MIXED])}")
    if not conditions:
        raise UsageError(f"{verdict}: needs a condition")
    return Rule(verdict, tuple(condition(text) for text in conditions))


TABLE = DecisionTable(
    (
        rule("tensor-bound", "tensor_time >= 0.5", "tensor_time >= largest_time"),
        rule("memory-bound", "memory_time >= 0.5", "memory_time >= largest_time"),
        rule("cuda-core-bound", "cuda_time >= 0.5", "cuda_time >= largest_time", "tensor < 0.1"),
        rule("transfer-bound", "transfer_time >= 0.5", "transfer_time >= largest_time"),
        rule("idle", "gr < 0.01"),
        rule("launch-bound", "gap_within >= 0.5", "launches >= 5000"),
        rule("waiting", "other_time >= 0.5", "issue_resident < 0.05", "tensor < 0.01", "dram < 0.1", "sm >= 0.001"),
        rule("latency-bound", "other_time >= 0.5", "issue < 0.45", "sm >= 0.001"),
    ),
    dict.fromkeys(REACHABLE, 0.9),
)


def parse(text: str) -> DecisionTable:
    """A table as `to_json` gives it; what it does not say of `reachable` is as in TABLE. Raises UsageError."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UsageError(f'must be an object with "schema": {SCHEMA}')
    if unknown := sorted(set(data) - {"schema", "reachable", "rows"}):
        raise UsageError(f"no field {unknown[0]}; there are schema, reachable, rows")
    rows = data.get("rows", TABLE.to_json()["rows"])
    return DecisionTable(_rules(rows), _reachable(data.get("reachable", {})))


def _rules(rows: Any) -> tuple[Rule, ...]:
    if not isinstance(rows, list) or not rows or not all(_is_row(row) for row in rows):
        raise UsageError('rows must be a list of {"class": NAME, "when": [CONDITION, ...]}')
    return tuple(rule(row["class"], *row["when"]) for row in rows)


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict) and set(row) == {"class", "when"} and _is_words(row["when"]) and _is_words([row["class"]])
    )


def _is_words(words: Any) -> bool:
    return isinstance(words, list) and all(isinstance(word, str) for word in words)


LEAST_REACHABLE = 0.01
"""Of a peak: less is no peak of the same thing."""


def _reachable(shares: Any) -> dict[str, float]:
    if not isinstance(shares, dict) or (unknown := sorted(set(shares) - set(REACHABLE))):
        named = f"no {unknown[0]} in reachable" if isinstance(shares, dict) else "reachable must be an object"
        raise UsageError(f"{named}; there are {', '.join(REACHABLE)}")
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not LEAST_REACHABLE <= share <= 1:
            raise UsageError(f"reachable {name} {share}: must be from {LEAST_REACHABLE} to 1")
    return {**TABLE.reachable, **{name: float(share) for name, share in shares.items()}}
