"""What is known of a chip's metrics without sampling: from CUPTI, or from the tables shipped with cufall.

data/tables.json.gz holds what CUPTI 13.5 said of 24 chips on a machine with driver 580 (2026-11-30): all base names of
GH100, GA100, AD102, GB100 and GB202; the passes of the sets that short names are made of; for 39 counters also their
unit and their passes beside tensor, SM and graphics engine activity.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .errors import UsageError
from .presets import Recipe, table

DATA = Path(__file__).parent / "data" / "tables.json.gz"
USUAL = "GH100"
"""The chip that is told of where there is none: the one whose short names were checked on hardware."""
KINDS = {"COUNTER": "counter", "RATIO": "ratio", "THROUGHPUT": "throughput"}
"""CUPTI's types of base metrics, and what cufall calls them."""
BASE = ("tensor", "sm", "gr")
"""The short names that others are told to fit beside, or not."""


@dataclass(frozen=True)
class Tables:
    """What is known of one chip. Whatever is missing from a table is not known.

    `names`: base metrics by kind. The rest by base metric or short name: `units` (CUPTI's dim_unit),
    `descriptions`, `passes` (alone, its elapsed counter with it) and `beside` (passes together with BASE).
    """

    chip: str
    source: str
    names: dict[str, list[str]]
    units: dict[str, str]
    descriptions: dict[str, str]
    passes: dict[str, int]
    beside: dict[str, int]


def shipped(chip: str) -> Tables:
    """The tables of a chip that come with cufall. Raises UsageError naming the chips there are."""
    chips: dict[str, Any] = json.loads(gzip.decompress(DATA.read_bytes()))
    found = chips.get(chip.upper())
    if found is None:
        close = get_close_matches(chip.upper(), chips, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(chips)}"
        raise UsageError(f"--chip {chip}: cufall has no tables of it; {hint}")
    passes, beside = found["passes"], found["beside"]
    made = {name: recipe for name, recipe in table(chip).items() if isinstance(recipe, Recipe)}
    own_passes = {name: passes.get(set_key(*recipe.counters, recipe.elapsed)) for name, recipe in made.items()}
    own_beside = {name: _most(beside, recipe.counters) for name, recipe in made.items()}
    return Tables(
        chip=chip.upper(),
        source="the tables shipped with cufall",
        names={KINDS[kind]: names for kind, names in found["names"].items()} or {"counter": sorted(found["units"])},
        units=found["units"],
        descriptions={},
        passes={**_by_base(passes), **_known(own_passes)},
        beside={**_by_base(beside), **_known(own_beside)},
    )


def _by_base(table: dict[str, int]) -> dict[str, int]:
    """What is told of single counters, by their names without rollup."""
    return {counter.rsplit(".", 1)[0]: passes for counter, passes in table.items() if "+" not in counter}


def _known(table: dict[str, int | None]) -> dict[str, int]:
    return {name: passes for name, passes in table.items() if passes is not None}


def set_key(*counters: str) -> str:
    """The name of a set of counters in the shipped tables."""
    return "+".join(sorted(set(counters)))


def matches(pattern: str, *texts: str) -> bool:
    """Whether a pattern, a part of a text or a glob of all of it, fits any of these; case does not count."""
    wanted, lowered = pattern.lower(), [text.lower() for text in texts]
    if any(sign in wanted for sign in "*?["):
        return any(fnmatchcase(text, wanted) for text in lowered)
    return any(wanted in text for text in lowered)


def _most(beside: dict[str, int], counters: Iterable[str]) -> int | None:
    """Passes that the dearest of these counters needs, None if one was not asked about."""
    passes = [beside.get(counter) for counter in counters]
    return None if None in passes else max(filter(None, passes))
