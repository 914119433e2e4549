"""The metrics of a chip as rows: what each is, its unit and clock, passes, peak, cost, and whether it was verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from .costs import CARD, DATE, HOW, Cost, beside_tensor, costs
from .presets import MEANING, PEAKS, SHORT_NAMES, Recipe, family, table, verified
from .resolve import elapsed_of, unit_of
from .tables import BASE, Tables, matches
from .verified import Verification

SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One metric. `name` is what --metric takes; None and "" are what is not known.

    `unit` and `clock` are CUPTI's dim_unit of the counter and of its elapsed counter. `passes` alone, `beside` together
    with tensor, sm and gr. `peak` of the counter in each tick of its clock. `core` is the measured share of a processor
    core for one GPU, with tensor in the set. `verified_here`: where `cufall verify` found it right on this machine.
    `absent` says why a chip has no such metric.
    """

    name: str
    kind: str
    description: str = ""
    unit: str = ""
    clock: str = ""
    passes: int | None = None
    beside: int | None = None
    peak: float | None = None
    verified: bool = False
    verified_here: str = ""
    core: float | None = None
    counters: tuple[str, ...] = ()
    elapsed: str = ""
    absent: str = ""


def rows(tables: Tables, here: Sequence[Verification] = ()) -> list[Row]:
    """Short names first, then CUPTI's own in its order."""
    known = table(tables.chip)
    short = [_short(name, known[name], tables, here) for name in SHORT_NAMES] if known else []
    return [*short, *(row for kind, names in tables.names.items() for row in _own(kind, names, tables))]


def matching(found: list[Row], pattern: str) -> list[Row]:
    """The rows whose name, counters or words fit a pattern, as tables.matches has it."""
    return [row for row in found if matches(pattern, row.name, base_of(row.name), row.description, *row.counters)]


def sets(tables: Tables, pattern: str) -> list[Cost]:
    """The sets measured on this family of chips that a pattern fits."""
    return [cost for cost in costs(family(tables.chip)) if matches(pattern, cost.label, *cost.metrics)]


def close(found: list[Row], pattern: str) -> list[str]:
    """Names that look like a pattern that fits none."""
    names = {text: row.name for row in found for text in (row.name, base_of(row.name))}
    plain = pattern.strip("*?").lower()
    return list(dict.fromkeys(names[text] for text in get_close_matches(plain, names, 3, cutoff=0.5)))


def document(tables: Tables, found: list[Row], measured: list[Cost]) -> dict[str, Any]:
    """Everything as JSON takes it."""
    return {
        "schema": SCHEMA,
        "chip": tables.chip,
        "family": family(tables.chip),
        "source": tables.source,
        "beside": list(BASE),
        "metrics": [asdict(row) for row in found],
        "sets": {
            "card": CARD,
            "date": DATE,
            "how": HOW,
            "measured": [{**asdict(cost), "dear": cost.dear} for cost in measured],
        },
    }


def base_of(name: str) -> str:
    """A metric's name without its rollup; dots before the `__` are part of it."""
    unit, sep, rest = name.partition("__")
    return f"{unit}{sep}{rest.split('.')[0]}" if sep else name


def _short(name: str, made: Recipe | str, tables: Tables, here: Sequence[Verification]) -> Row:
    if isinstance(made, str):
        return Row(name, "short name", MEANING[name], absent=made)
    cost = beside_tensor(name, family(tables.chip))
    return Row(
        name=name,
        kind="short name",
        description=MEANING[name],
        unit=tables.units.get(base_of(made.counters[0]), ""),
        clock=tables.units.get(base_of(made.elapsed), ""),
        passes=tables.passes.get(name),
        beside=tables.beside.get(name),
        peak=_peak(made.peak_of, tables.chip),
        verified=verified(name, tables.chip),
        verified_here=next((found.words() for found in here if name in found.metrics), ""),
        core=cost.core if cost else None,
        counters=made.counters,
        elapsed=made.elapsed,
    )


def _own(kind: str, names: list[str], tables: Tables) -> Iterator[Row]:
    there = set(names)
    for base in names:
        elapsed = elapsed_of(base) if kind == "counter" and f"{unit_of(base)}__cycles_elapsed" in there else ""
        name = typed(kind, base)
        yield Row(
            name=name,
            kind=kind,
            description=tables.descriptions.get(base, ""),
            unit=tables.units.get(base, ""),
            clock=tables.units.get(base_of(elapsed), ""),
            passes=tables.passes.get(base),
            beside=tables.beside.get(base),
            peak=_peak((name,), tables.chip),
            elapsed=elapsed,
        )


def _peak(counters: tuple[str, ...], chip: str) -> float | None:
    """The peaks of these counters together, where hardware has told them all."""
    known = PEAKS.get(family(chip) or "", {})
    return sum(known[counter] for counter in counters) if counters and set(counters) <= set(known) else None


def typed(kind: str, base: str) -> str:
    """A base metric's name with its usual rollup: cycles and what is active as .avg, events as .sum."""
    if kind == "counter":
        return f"{base}.avg" if "cycles" in base or "_active" in base else f"{base}.sum"
    return base + {"ratio": ".ratio", "throughput": ".avg.pct_of_peak_sustained_elapsed"}[kind]
