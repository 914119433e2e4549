"""Rotations: what does not fit one pass, sampled in turns. Which sets there are, and how a set of them is told.

A turn is an ordinary session of one set; turns.py has one follow another. No frame holds counters of two sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import UsageError

BASE = ("tensor", "sm", "gr")
"""What each set begins with, of what is asked for: it tells whether the load was the same in all of them."""
LEAST_S, MOST_S = 1.0, 600.0
"""Of a turn. A change of turns takes some tenths of a second in which nothing is sampled."""
Set = tuple[str, ...]
"""Names of metrics that fit one pass."""


@dataclass(frozen=True)
class Turn:
    """Set `number` (from 1) of `of` that are sampled in turn, for `seconds` each; `others` are the others' metrics."""

    number: int
    of: int
    seconds: float
    metrics: Set
    others: tuple[Set, ...] = ()

    @property
    def name(self) -> str:
        return f"turn {self.number} of {self.of}"

    @property
    def line(self) -> str:
        """What a person must know who reads figures of this set."""
        return f"sampled in turns: set {self.number} of {self.of}, {self.seconds:g} s each; coverage is of all the time"

    def elsewhere(self, metric: str) -> list[int]:
        """The numbers of the other sets that have this metric."""
        numbers = (k for k in range(1, self.of + 1) if k != self.number)
        return [k for k, metrics in zip(numbers, self.others, strict=False) if metric in metrics]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Turn:
        return Turn(**{**data, "metrics": tuple(data["metrics"]), "others": tuple(map(tuple, data["others"]))})


def turns(sets: Sequence[Set], seconds: float) -> list[Turn]:
    """A turn of each set."""
    return [
        Turn(k + 1, len(sets), seconds, metrics, tuple(other for j, other in enumerate(sets) if j != k))
        for k, metrics in enumerate(sets)
    ]


def sets_of(names: Sequence[str], fits: Callable[[Set], bool]) -> list[Set]:
    """Sets that fit one pass and have each of these names between them; each name alone must fit.

    Each set begins with BASE, as far as that is asked for and fits together, and takes as many of the rest as fit, in
    the order asked. A metric that does not fit beside all of BASE stands in a set with what of it does.
    """
    base = _filled((), [name for name in BASE if name in names], fits)
    rest, found = [name for name in dict.fromkeys(names) if name not in base], list[Set]()
    while rest:
        chosen = _filled(base, rest, fits)
        if chosen == base:
            chosen = _filled((rest[0],), [*base, *rest[1:]], fits)
        found.append((*(n for n in base if n in chosen), *(n for n in rest if n in chosen)))
        rest = [name for name in rest if name not in chosen]
    without = {*base}.difference(*found)
    return [base, *found] if without or not found else found


def shares(turns: Sequence[Turn], counts: Sequence[int], sampled_s: Sequence[float], all_s: float) -> Iterator[str]:
    """How much of all the time each set had, in how many turns, and what lay between them: a line each."""
    for turn, count, own_s in zip(turns, counts, sampled_s, strict=True):
        of_turns = f"{count} turn{'s' * (count != 1)}"
        yield f"{turn.name} ({', '.join(turn.metrics)}): {_share(own_s, all_s)}, in {of_turns}"
    yield f"between turns: {_share(max(all_s - sum(sampled_s), 0.0), all_s)}, not measured"


def places(path: Path, of: int) -> list[Path]:
    """Where recordings of so many sets go that are told this path: `a.turn-1-of-2.cufall`, ... of `a.cufall`."""
    return [path.with_name(f"{path.stem}.turn-{k + 1}-of-{of}{path.suffix}") for k in range(of)]


def checked_seconds(seconds: float) -> float:
    """The length of a turn, 0 for no turns. Raises UsageError for one that cannot be."""
    if seconds and not LEAST_S <= seconds <= MOST_S:
        raise UsageError(bad_seconds(seconds))
    return seconds


def bad_seconds(value: object) -> str:
    return f"--rotate {value}: must be 0 or a number of seconds from {LEAST_S:g} to {MOST_S:g}"


def _share(seconds: float, of_s: float) -> str:
    return f"{seconds:.1f} s of {of_s:.1f} s ({100 * seconds / of_s:.0f} %)"


def _filled(chosen: Set, others: Sequence[str], fits: Callable[[Set], bool]) -> Set:
    """`chosen`, and of the others, in order, each that still fits."""
    for name in others:
        if fits((*chosen, name)):
            chosen = (*chosen, name)
    return chosen
