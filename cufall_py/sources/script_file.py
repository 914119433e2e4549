"""What a script of made-up GPUs says (docs/scripted.md): JSON in, a `Script` of checked values out.

Every error is one line that names the key, and the GPU where it is of one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cufall_py.errors import UsageError
from cufall_py.presets import RATES, SHORT_NAMES

MOST_GPUS = 16
FIELDS = ("gpus", "name", "chip", "uuids", "pattern", "patterns", "stagger_ms", "burn_ms", "pass_counters", "faults")
FAULT_FIELDS = ("gpu", "kind", "at_s", "for_s")
FAULT_KINDS = ("hang", "crash", "lost", "denied", "owned", "gap", "absurd", "duplicate")
LEAST_PHASE_MS, DAY_MS = 0.001, 86_400_000
MINUTE_MS = 60_000
LONGEST_S = 1e9
MOST_COUNTERS = 1000
MOST_A_SECOND = 1e9
"""Of what is counted and not measured against a peak."""
MOST_LETTERS = 50
"""Of a name; a UUID is the name of a file, too."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong on one GPU, from `at_s` after the start for `for_s` seconds."""

    gpu: int
    kind: str
    at_s: float = 0.0
    for_s: float = math.inf

    def active(self, elapsed_s: float) -> bool:
        return self.at_s <= elapsed_s < self.at_s + self.for_s


@dataclass(frozen=True)
class Phase:
    """A stretch of time in which each ratio (by short name) stands still; those not named are 0."""

    ms: float
    ratios: dict[str, float]


@dataclass(frozen=True)
class Script:
    """What every GPU does. `patterns[i % len]` is GPU i's, begun `stagger_ms` x i late."""

    count: int
    name: str
    chip: str
    patterns: tuple[tuple[Phase, ...], ...]
    stagger_ms: float = 0.0
    burn_ms: float = 0.0
    faults: tuple[Fault, ...] = ()
    uuids: tuple[str, ...] = ()
    pass_counters: int = MOST_COUNTERS
    """How many counters, elapsed ones included, fit one pass."""


def parse(text: str) -> Script:
    """Raises UsageError that says where the script is wrong."""
    try:
        data = json.loads(text, object_pairs_hook=_each_key_once)
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from None
    _fields("the script", data, FIELDS)
    if ("pattern" in data) == ("patterns" in data):
        raise UsageError("needs pattern or patterns, one of them")
    count = _whole("gpus", data.get("gpus", 1), 1, MOST_GPUS)
    return Script(
        count=count,
        name=_word("name", data.get("name", "Scripted GPU")),
        chip=_word("chip", data.get("chip", "GH100")),
        patterns=_patterns(data),
        stagger_ms=_number("stagger_ms", data.get("stagger_ms", 0), 0, DAY_MS),
        burn_ms=_number("burn_ms", data.get("burn_ms", 0), 0, MINUTE_MS),
        faults=tuple(_fault(f"faults[{k}]", one, count) for k, one in enumerate(_list("faults", data, []))),
        uuids=_uuids(_list("uuids", data, []), count),
        pass_counters=_whole("pass_counters", data.get("pass_counters", MOST_COUNTERS), 1, MOST_COUNTERS),
    )


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise UsageError(f"{_short(key)} is given twice")
        found[key] = value
    return found


def _patterns(data: dict[str, Any]) -> tuple[tuple[Phase, ...], ...]:
    """One for all GPUs, or several that they take in turn."""
    if "pattern" in data:
        return (_pattern("pattern", _list("pattern", data)),)
    patterns = _list("patterns", data)
    if not patterns:
        raise UsageError("patterns: an empty list")
    return tuple(_pattern(f"patterns[{k}]", phases) for k, phases in enumerate(patterns))


def _pattern(where: str, phases: Any) -> tuple[Phase, ...]:
    if not isinstance(phases, list) or not phases:
        raise UsageError(f"{where}: must be a list of phases, not {_short(phases)}")
    return tuple(_phase(f"{where}[{k}]", phase) for k, phase in enumerate(phases))


def _phase(where: str, data: Any) -> Phase:
    _fields(where, data, ("ms", *SHORT_NAMES), needed=("ms",))
    ratios = {key: _number(f"{where}.{key}", value, 0, _most(key)) for key, value in data.items() if key != "ms"}
    return Phase(_number(f"{where}.ms", data["ms"], LEAST_PHASE_MS, DAY_MS), ratios)


def _most(name: str) -> float:
    return MOST_A_SECOND if name in RATES else 1


def _fault(where: str, data: Any, count: int) -> Fault:
    _fields(where, data, FAULT_FIELDS, needed=("gpu", "kind"))
    gpu = _whole(f"{where}.gpu", data["gpu"], 0, count - 1)
    of = f"{where} of GPU {gpu}: "
    if data["kind"] not in FAULT_KINDS:
        raise UsageError(f"{of}kind: must be one of {', '.join(FAULT_KINDS)}, not {_short(data['kind'])}")
    at_s = _number(f"{of}at_s", data.get("at_s", 0), 0, LONGEST_S)
    for_s = _number(f"{of}for_s", data["for_s"], 0, LONGEST_S) if "for_s" in data else math.inf
    return Fault(gpu, data["kind"], at_s, for_s)


def _uuids(found: list[Any], count: int) -> tuple[str, ...]:
    if len(found) > count:
        raise UsageError(f"uuids: {len(found)} of them for {count} GPU{'s' * (count > 1)}")
    for gpu, uuid in enumerate(found):
        where = f"uuids[{gpu}] of GPU {gpu}"
        if "/" in _word(where, uuid) or uuid.startswith("."):
            raise UsageError(f"{where}: {_short(uuid)} cannot be the name of a file")
        if uuid in found[:gpu]:
            raise UsageError(f"{where}: {_short(uuid)} is that of GPU {found.index(uuid)}, too")
    return tuple(found)


def _fields(where: str, data: Any, known: Collection[str], needed: Collection[str] = ()) -> None:
    if not isinstance(data, dict):
        raise UsageError(f"{where}: must be an object, not {_short(data)}")
    if unknown := sorted(set(data) - set(known)):
        raise UsageError(f"{where} has no field {_short(unknown[0])}; there are {', '.join(known)}")
    if missing := [key for key in needed if key not in data]:
        raise UsageError(f"{where}: needs {missing[0]}")


def _list(key: str, data: dict[str, Any], default: list[Any] | None = None) -> list[Any]:
    found = data.get(key, default)
    if not isinstance(found, list):
        raise UsageError(f"{key}: must be a list, not {_short(found)}")
    return found


def _number(where: str, value: Any, least: float, most: float) -> float:
    # true is an int to Python; NaN lies between nothing; an int may be too large for a float
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise UsageError(f"{where}: must be a number from {least:.12g} to {most:.12g}, not {_short(value)}")
    return float(value)


def _whole(where: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{where}: must be a whole number from {least} to {most}, not {_short(value)}")
    return value


def _word(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value) <= MOST_LETTERS:
        raise UsageError(f"{where}: must be text of 1 to {MOST_LETTERS} characters, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    """A value as it stands in the file, or its beginning."""
    text = value if isinstance(value, str) and value.isprintable() else json.dumps(value)
    return f"{text[:MOST_LETTERS]}..." if len(text) > MOST_LETTERS else text
