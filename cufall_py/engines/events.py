"""Scrapes as events of a recording, and back: what a server said is kept whole, so that all can be made of it later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from .known import ENGINES
from .reading import MOST, Moment, Reading, Value
from .table import QUANTITIES, Engine, Moves

SERVER, ENGINE = "server", "engine"
"""Events: a server that is followed (`server`: its place, `url`, `role`, `gpus`: CUDA ordinals), and one scrape of it
(`server`, and what `fields` has)."""


def fields(reading: Reading) -> dict[str, Any]:
    """Of a reading, but for its Unix time, which is the event's own."""
    return {
        "engine": reading.engine.name,
        "versions": reading.engine.versions,
        "monotonic_ns": reading.when.monotonic_ns,
        "error_ns": reading.when.error_ns,
        "started_s": reading.started_s,
        "values": {quantity: _value(value) for quantity, value in reading.values.items()},
    }


def reading(at_ns: int, found: Mapping[str, Any]) -> Reading | None:
    """From an event's fields; None where they cannot be understood, as those of a newer cufall."""
    try:
        values = {q: _value_of(q, value) for q, value in found["values"].items() if q in QUANTITIES}
        when = Moment(at_ns, _ns(found["monotonic_ns"]), _ns(found["error_ns"]))
        started_s = None if found.get("started_s") is None else float(found["started_s"])
        return Reading(_engine(str(found["engine"]), str(found["versions"])), when, values, started_s=started_s)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _ns(found: Any) -> int:
    """Raises ValueError for what is no time."""
    if not 0 <= found < 1 << 63:
        raise ValueError(found)
    return int(found)


def _engine(name: str, versions: str) -> Engine:
    """Raises KeyError for one that no table has."""
    for engine in ENGINES:
        if (engine.name, engine.versions) == (name, versions):
            return engine
    raise KeyError(name)


def _value(value: Value) -> dict[str, Any]:
    series = [[list(map(list, key)), list(numbers)] for key, numbers in value.series.items()]
    return {"name": value.name, "moves": value.moves, "series": series, "bounds": list(value.bounds)}


def _value_of(quantity: str, found: Mapping[str, Any]) -> Value:
    series = {
        tuple((str(label), str(text)) for label, text in key): tuple(map(float, numbers))
        for key, numbers in found["series"]
    }
    bounds = tuple(map(float, found["bounds"]))
    width = 2 + len(bounds) if QUANTITIES[quantity].kind == "histogram" else 1
    whole = all(len(numbers) == width and all(0 <= n <= MOST for n in numbers) for numbers in series.values())
    if not series or not whole or found["moves"] not in get_args(Moves):
        raise ValueError(quantity)
    return Value(quantity, str(found["name"]), found["moves"], series, bounds)
