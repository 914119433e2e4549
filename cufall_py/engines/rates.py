"""From one scrape to the next: rates by counters, latencies by histograms, and why one is not known.

A rate is known only where both scrapes have the same series and none of them fell. After a fall (the server was
started again) the interval in which the counter gets back over where it fell from is left out as well: where two
processes answer in turn that is a jump between them, and no tokens. A page that tells when its process was started
tells a fall even where the counter has overtaken itself since.

Two readings of a gauge tell of the time between them only where no scrape failed there and the same process gave both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .reading import Labels, Moment, Reading, Value
from .table import QUANTITIES, Engine, Moves

Floats = NDArray[np.float64]
STEP_NS = 500_000_000
"""A wall clock that moves by so much against the one that is never set was set."""
LONGEST_S = 2.5
"""Between two scrapes that are further apart one has failed: they are a second apart, and less than two if slow."""
REMEMBERED = 10
"""Intervals in which two falls mean that more than one process answers."""
FELL = "a counter fell: the server was started again, or another one answers"
PASSED = "a counter passed the mark from which it had fallen"
CAME_OR_WENT = "an engine, rank or model came or went"
RENAMED = "the metric was renamed"
STEPPED = "the clock of this machine was set"
IN_TURN = "counters fall again and again: more than one process answers here in turn, so their rates are not known"


@dataclass(frozen=True)
class Rate:
    """`amount` of a counter between two scrapes, and its rate. `name`, `moves` as in the table that read it.

    A gauge that is the engine's own rate has no amount (NaN).
    """

    amount: float
    per_s: float
    name: str
    moves: Moves


@dataclass(frozen=True)
class Latencies:
    """What a histogram took in between two scrapes, in seconds; percentiles by straight lines within its buckets.

    Infinity for a percentile above the last bound.
    """

    count: float
    total_s: float
    name: str
    bounds: tuple[float, ...]
    at_most: tuple[float, ...]

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count

    @property
    def longest_s(self) -> float:
        """None of them took longer: the first bound that all are below, or the sum of all if that is less."""
        below = [bound for bound, count in zip(self.bounds, self.at_most, strict=True) if count >= self.count]
        return min([*below[:1], self.total_s])

    def percentile_s(self, percent: float) -> float:
        """NaN where the histogram came without buckets."""
        if not self.bounds:
            return float("nan")
        wanted = percent / 100 * self.count
        if wanted > self.at_most[-1]:
            return float("inf")
        return float(np.interp(wanted, (0.0, *self.at_most), (0.0, *self.bounds)))


@dataclass(frozen=True)
class Interval:
    """Between two scrapes. What is not known is in none of the mappings; `unknown` has the reason, by quantity.

    `seconds` is by the clock that is never set. `gauges`: where each stood before and after. `names`: the metric that
    each quantity was read from.
    """

    engine: Engine
    before: Moment
    after: Moment
    rates: Mapping[str, Rate]
    latencies: Mapping[str, Latencies]
    gauges: Mapping[str, tuple[float, float]]
    moves: Mapping[str, Moves]
    unknown: Mapping[str, str]
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return (self.after.monotonic_ns - self.before.monotonic_ns) / 1e9

    @property
    def scrape_failed(self) -> bool:
        """Whether one failed in between, so that nobody knows what went on there."""
        return self.seconds > LONGEST_S

    @property
    def acceptance(self) -> float | None:
        """Share of the speculated tokens that was kept, 0..1: by counters if there are any."""
        drafted, accepted = (self.rates.get(name) for name in ("drafted_tokens", "accepted_tokens"))
        if drafted and accepted:
            return kept_share(drafted.amount, accepted.amount)
        return self.gauges["acceptance"][1] if "acceptance" in self.gauges else None

    def per_s(self, quantity: str) -> Rate | None:
        """The rate of `prompt_tokens` or `generation_tokens`: by a counter, else as the engine's gauge has it."""
        return self.rates.get(quantity) or self.rates.get(f"{quantity}_per_s")


def kept_share(drafted: float, accepted: float) -> float | None:
    """Of speculated tokens; None without any, and where more were kept than tried, which is no share."""
    return accepted / drafted if 0 < drafted >= accepted else None


class Rates:
    """Intervals of one endpoint, as its readings come."""

    def __init__(self) -> None:
        self._last: Reading | None = None
        self._marks: dict[tuple[str, Labels], float] = {}
        self._falls: deque[bool] = deque(maxlen=REMEMBERED)

    def add(self, reading: Reading) -> Interval | None:
        """The interval that this reading ends; None for the first, and for one that is no later than the last."""
        last, self._last = self._last, reading
        if last is None or reading.when.monotonic_ns <= last.when.monotonic_ns:
            return None
        stepped = abs(_apart_ns(reading.when) - _apart_ns(last.when)) > STEP_NS
        if other := _is_other(last, reading):
            self._marks.clear()
        amounts, unknown = (
            ({}, dict.fromkeys(_counters(last, reading), FELL)) if other else self._amounts(last, reading)
        )
        self._falls.append(other or FELL in unknown.values())
        in_turn = sum(self._falls) > 1
        if stepped or in_turn:
            amounts, unknown = {}, {**dict.fromkeys(amounts, STEPPED if stepped else IN_TURN), **unknown}
        notes = (IN_TURN,) if in_turn else (FELL,) if self._falls[-1] else ()
        return _interval(last, reading, amounts, unknown, notes)

    def _amounts(self, last: Reading, reading: Reading) -> tuple[dict[str, Floats], dict[str, str]]:
        amounts, unknown = dict[str, Floats](), dict[str, str]()
        for quantity in _counters(last, reading):
            if why := self._why_not(last.values.get(quantity), reading.values.get(quantity)):
                unknown[quantity] = why
            else:
                amounts[quantity] = _amount(last.values[quantity], reading.values[quantity])
        return amounts, unknown

    def _why_not(self, before: Value | None, after: Value | None) -> str:
        if before is None or after is None:
            return CAME_OR_WENT
        if (before.name, before.bounds) != (after.name, after.bounds):
            return RENAMED
        told = {self._doubt(before, after, key) for key in before.series.keys() & after.series.keys()}
        if before.series.keys() != after.series.keys():
            told.add(CAME_OR_WENT)
        return next((why for why in (FELL, PASSED, CAME_OR_WENT) if why in told), "")

    def _doubt(self, before: Value, after: Value, key: Labels) -> str:
        """Why what this series grew by is no amount; nothing if it is one."""
        column = 1 if QUANTITIES[before.quantity].kind == "histogram" else 0
        one, other = before.series[key][column], after.series[key][column]
        if any(b < a for a, b in zip(before.series[key], after.series[key], strict=True)):
            self._marks[before.quantity, key] = one
            return FELL
        if other >= self._marks.get((before.quantity, key), float("inf")):
            del self._marks[before.quantity, key]
            return PASSED
        return ""


def _is_other(last: Reading, reading: Reading) -> bool:
    """Whether another process answers than before."""
    return None not in (last.started_s, reading.started_s) and last.started_s != reading.started_s


def _counters(last: Reading, reading: Reading) -> list[str]:
    """The quantities of either that only rise."""
    return [quantity for quantity in {**last.values, **reading.values} if QUANTITIES[quantity].kind != "gauge"]


def _apart_ns(when: Moment) -> int:
    return when.at_ns - when.monotonic_ns


def _amount(before: Value, after: Value) -> Floats:
    """What all series together grew by, column by column."""
    grown = np.array([np.subtract(after.series[key], before.series[key]) for key in before.series])
    across: Floats = grown.mean(axis=0) if QUANTITIES[before.quantity].across == "mean" else grown.sum(axis=0)
    return across


def _interval(
    last: Reading, reading: Reading, amounts: Mapping[str, Floats], unknown: Mapping[str, str], notes: tuple[str, ...]
) -> Interval:
    seconds = (reading.when.monotonic_ns - last.when.monotonic_ns) / 1e9
    rates, latencies = dict[str, Rate](), dict[str, Latencies]()
    for quantity, amount in amounts.items():
        value = reading.values[quantity]
        if QUANTITIES[quantity].kind == "counter":
            rates[quantity] = Rate(float(amount[0]), float(amount[0]) / seconds, value.name, value.moves)
        elif amount[1] > 0:
            at_most = tuple(np.maximum.accumulate(amount[2:]).tolist())
            latencies[quantity] = Latencies(float(amount[1]), float(amount[0]), value.name, value.bounds, at_most)
    lasting = seconds <= LONGEST_S and not {FELL, PASSED, STEPPED, IN_TURN} & {*unknown.values()}
    gauges = _gauges(last, reading) if lasting else {}
    for quantity in gauges.keys() & {"prompt_tokens_per_s", "generation_tokens_per_s"}:
        value = reading.values[quantity]
        rates[quantity] = Rate(float("nan"), gauges[quantity][1], value.name, value.moves)
    moves = {quantity: value.moves for quantity, value in reading.values.items()}
    names = {quantity: value.name for quantity, value in reading.values.items()}
    return Interval(reading.engine, last.when, reading.when, rates, latencies, gauges, moves, unknown, notes, names)


def _gauges(last: Reading, reading: Reading) -> dict[str, tuple[float, float]]:
    """Where both say it of the same engines by the same metric: a sum over more of them than before is no change."""
    both = [q for q in last.values.keys() & reading.values.keys() if QUANTITIES[q].kind == "gauge"]
    return {
        quantity: (last.values[quantity].number, reading.values[quantity].number)
        for quantity in sorted(both)
        if last.values[quantity].name == reading.values[quantity].name
        and last.values[quantity].series.keys() == reading.values[quantity].series.keys()
    }
