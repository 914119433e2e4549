"""One scrape of one page of metrics, in cufall's own names: what is not there is absent, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .table import QUANTITIES, Engine, Moves

MOST = 1e30
"""What is more is no number that an engine counts."""
Labels = tuple[tuple[str, str], ...]
"""Of one series, in order; those that only tell copies apart are left out."""


@dataclass(frozen=True)
class Moment:
    """When a page was made: half way between asking and having it; true to `error_ns`, half of that time.

    `at_ns` is Unix time, as samples have it; lengths of time are told by `monotonic_ns`.
    """

    at_ns: int
    monotonic_ns: int
    error_ns: int


@dataclass(frozen=True)
class Value:
    """One quantity as it stood: a number of each series.

    `name`: the metric as the page spells it. `series`: of a counter or gauge `(value,)`; of a histogram the sum, the
    count, and how many were at most each of `bounds`.
    """

    quantity: str
    name: str
    moves: Moves
    series: Mapping[Labels, tuple[float, ...]]
    bounds: tuple[float, ...] = ()

    @property
    def number(self) -> float:
        """All series together, as the quantity has it (`Quantity.across`); of a histogram its count."""
        column = 1 if QUANTITIES[self.quantity].kind == "histogram" else 0
        total = sum(numbers[column] for numbers in self.series.values())
        return total / len(self.series) if QUANTITIES[self.quantity].across == "mean" else total


@dataclass(frozen=True)
class Reading:
    """What an engine said at one moment. `values`: by quantity (`QUANTITIES`); what it did not say is not in it.

    `notes`: lines for a person: of several spellings which was taken, what is missing. `started_s`: when the process
    that answers was started, in Unix time, None where the page does not say.
    """

    engine: Engine
    when: Moment
    values: Mapping[str, Value]
    notes: tuple[str, ...] = field(default=())
    started_s: float | None = None

    def number(self, quantity: str) -> float | None:
        """What it stood at, all engines behind the page together; None where the page does not say."""
        return self.values[quantity].number if quantity in self.values else None

    @property
    def roles(self) -> frozenset[str]:
        """What the engine's labels say it does: unified, prefill, decode; empty where they say nothing."""
        return self.labelled(self.engine.role) if self.engine.role else frozenset()

    def labelled(self, label: str) -> frozenset[str]:
        """The values of a label over all series: model names, engines, data-parallel ranks."""
        keys = (key for value in self.values.values() for key in value.series)
        return frozenset(text for key in keys for name, text in key if name == label)
