"""CUPTI's own tables of a chip's metrics. They take no GPU: a driver is enough, and any chip can be asked about."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any, Protocol

from cufall_py.catalogue import typed
from cufall_py.errors import CufallError, NoGpu, SourceError, UsageError, as_json
from cufall_py.presets import Recipe, table
from cufall_py.resolve import Wanted, resolve
from cufall_py.sources import Passes
from cufall_py.tables import BASE, KINDS, Tables, matches

from . import loader
from .protocol import CuptiError

MOST_ASKED = 100
"""Each count of passes takes a config image of its own, so it is not asked of more counters than a person reads."""


class HostTables(Protocol):
    """What is asked of CUPTI's host side. Every method raises CuptiError."""

    version: int
    """As cuptiGetVersion has it."""

    def chips(self) -> list[str]:
        """The chips it has tables of."""

    def chip_here(self, gpu: int = 0) -> str:
        """That of a GPU, by CUDA ordinal."""

    def base_metrics(self, chip: str, kind: str) -> list[str]:
        """Names without rollup; `kind` as in tables.KINDS."""

    def properties(self, chip: str, metric: str) -> tuple[str, str]:
        """Description and dim_unit."""

    def passes(self, chip: str, counters: Iterable[str]) -> int:
        """Passes that these need together."""


def tell(chip: str, pattern: str) -> None:
    """Entry for launch.ask: print `answer` as JSON."""
    try:
        told = answer(_bound(), chip, pattern)
    except (CufallError, CuptiError) as error:
        told = _failed(error)
    print(json.dumps(told))


def answer(host: HostTables, chip: str, pattern: str) -> dict[str, Any]:
    """`tables`: those of a chip (empty: of the first GPU here), as a dict; or `failed`: why there are none."""
    try:
        return {"tables": asdict(read(host, _spelled(chip, host.chips()) if chip else host.chip_here(), pattern))}
    except (CufallError, CuptiError) as error:
        return _failed(error)


def read(host: HostTables, chip: str, pattern: str) -> Tables:
    """All names with units and descriptions, and passes of what a person is going to read: the short names, and the
    base metrics that the pattern fits, if these are few."""
    names = {ours: host.base_metrics(chip, theirs) for theirs, ours in KINDS.items()}
    properties = {name: _properties(host, chip, name) for each in names.values() for name in each}
    short = [name for name, made in table(chip).items() if isinstance(made, Recipe)]
    sets = {name: resolve(Wanted((name,)), chip).counters for name in short} | _fitting(names, properties, pattern)
    base = resolve(Wanted(tuple(name for name in BASE if name in short)), chip).counters if short else ()
    return Tables(
        chip=chip,
        source=f"CUPTI {host.version // 10_000}.{host.version % 10_000 // 100}",
        names=names,
        units={name: unit for name, (_, unit) in properties.items()},
        descriptions={name: description for name, (description, _) in properties.items()},
        passes=_passes(host, chip, sets),
        beside=_passes(host, chip, {name: (*base, *counters) for name, counters in sets.items()}) if base else {},
    )


def passes_on(gpu: int) -> Passes:
    """Of the chip of a GPU, by CUDA ordinal. Raises CufallError or CuptiError."""
    return passes_by(_bound(), gpu)


def passes_by(host: HostTables, gpu: int) -> Passes:
    """The same, as told by these tables. Raises CuptiError."""
    chip = host.chip_here(gpu)

    def passes(counters: Sequence[str]) -> int:
        try:
            return host.passes(chip, counters)
        except CuptiError as error:
            names = ", ".join(counters)
            raise UsageError(f"{names}: not to be had on {chip} (CUPTI says {error.status})") from None

    return Passes(chip, passes)


def _fitting(
    names: dict[str, list[str]], properties: dict[str, tuple[str, str]], pattern: str
) -> dict[str, tuple[str, ...]]:
    full = {name: typed(kind, name) for kind, each in names.items() for name in each}
    fit: dict[str, tuple[str, ...]] = {
        name: (full[name],) for name in full if matches(pattern, full[name], name, properties[name][0])
    }
    return fit if len(fit) <= MOST_ASKED else {}


def _properties(host: HostTables, chip: str, metric: str) -> tuple[str, str]:
    try:
        return host.properties(chip, metric)
    except CuptiError:
        return "", ""  # some names are in CUPTI's list and refused when asked about: nothing is known of them


def _passes(host: HostTables, chip: str, sets: dict[str, tuple[str, ...]]) -> dict[str, int]:
    found = {}
    for name, counters in sets.items():
        try:
            found[name] = host.passes(chip, dict.fromkeys(counters))
        except CuptiError:
            continue  # as above
    return found


def _spelled(chip: str, chips: list[str]) -> str:
    if chip.upper() in chips:
        return chip.upper()
    close = get_close_matches(chip.upper(), chips, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(chips)}"
    raise UsageError(f"--chip {chip}: CUPTI has no tables of it; {hint}")


def _failed(error: CufallError | CuptiError) -> dict[str, Any]:
    known = error if isinstance(error, CufallError) else SourceError(f"CUPTI's {error.call} failed with {error.status}")
    return {"failed": as_json(known)}


@functools.cache
def _bound() -> HostTables:
    """CUPTI, loaded once. Raises CufallError or CuptiError."""
    try:
        ctypes.CDLL("libcuda.so.1")  # looked for first: it takes no time, and loading CUPTI half a second
    except OSError:
        raise NoGpu("no NVIDIA driver here (libcuda.so.1)") from None
    version = loader.load().version
    from .host import BoundTables

    return BoundTables(version)
