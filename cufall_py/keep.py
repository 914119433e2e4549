"""`--keep 30m@full,24h@100ms,forever@1s`: how fine what was recorded is kept, by its age."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .errors import UsageError

FULL, FOREVER = "full", "forever"
UNITS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000}
UNITS["d"] = 24 * UNITS["h"]
LENGTH = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")
LONGEST_NS = 36_500 * UNITS["d"]
FORMS = "such as 30m@full,24h@100ms,forever@1s: SPAN@PERIOD, of us, ms, s, m, h or d"


@dataclass(frozen=True)
class Tier:
    """What is younger than `span_ns` (None: of any age) is kept in samples of `period_ns` (0: as it was sampled)."""

    span_ns: int | None
    period_ns: int


Keep = tuple[Tier, ...]
"""The finest first: spans and periods grow."""


def parse(text: str) -> Keep:
    """What `--keep` means; empty: all is kept. Raises UsageError naming the part that is wrong."""
    tiers: list[Tier] = []
    for part in text.split(",") if text else ():
        tier = _tier(text, part)
        if tiers:
            _check_order(text, part, tiers[-1], tier)
        tiers.append(tier)
    return tuple(tiers)


def check_periods(keep: Sequence[Tier], sample_ns: int) -> None:
    """Raises UsageError if samples of this length (0: not known) cannot be joined to those that are to be kept."""
    shortest = min((tier.period_ns for tier in keep if tier.period_ns), default=0)
    if shortest and shortest <= sample_ns:
        raise UsageError(f"--keep {told(keep)}: {_length(shortest)} is no longer than a sample, {_length(sample_ns)}")


def told(keep: Sequence[Tier]) -> str:
    """As `parse` reads it."""
    return ",".join(
        f"{FOREVER if tier.span_ns is None else _length(tier.span_ns)}@{_length(tier.period_ns) or FULL}"
        for tier in keep
    )


def to_json(keep: Sequence[Tier]) -> list[list[int | None]]:
    return [[tier.span_ns, tier.period_ns] for tier in keep]


def from_json(data: Sequence[Sequence[Any]]) -> Keep:
    return tuple(Tier(None if span_ns is None else int(span_ns), int(period_ns)) for span_ns, period_ns in data)


def _tier(text: str, part: str) -> Tier:
    span, at, period = part.partition("@")
    if not at or not span or not period:
        raise _bad(text, part, f"must be SPAN@PERIOD, {FORMS}")
    span_ns = None if span == FOREVER else _length_ns(text, part, span, FOREVER)
    return Tier(span_ns, 0 if period == FULL else _length_ns(text, part, period, FULL))


def _length_ns(text: str, part: str, length: str, word: str) -> int:
    found = LENGTH.fullmatch(length)
    ns = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 1_000 <= ns <= LONGEST_NS:
        raise _bad(text, part, f"{length or 'nothing'} must be {word}, or a number above 0 with us, ms, s, m, h or d")
    return round(ns)


def _check_order(text: str, part: str, before: Tier, tier: Tier) -> None:
    if before.span_ns is None:
        raise _bad(text, part, f"nothing is older than {FOREVER}, which must come last")
    if tier.span_ns is not None and tier.span_ns <= before.span_ns:
        raise _bad(text, part, f"its span must be longer than the one before, {_length(before.span_ns)}")
    if tier.period_ns <= before.period_ns:
        raise _bad(text, part, f"its period must be longer than the one before, {_length(before.period_ns) or FULL}")


def _bad(text: str, part: str, why: str) -> UsageError:
    return UsageError(f"--keep {text}: {part or 'an empty part'}: {why}")


def _length(ns: int) -> str:
    """The largest unit that makes it a whole number, empty for 0."""
    units = [unit for unit, size in UNITS.items() if ns and ns % size == 0]
    return f"{ns // UNITS[units[-1]]}{units[-1]}" if units else f"{ns / 1000:g}us" if ns else ""
