"""From the text of a page of metrics to a Reading.

Names are taken as they stand on the wire: parsers of both formats (text 0.0.4, OpenMetrics) rename counters by their
TYPE lines, and prometheus-client's own OpenMetrics pages have TYPE lines that do not fit their samples. So only the
lines of metrics that a table names are parsed, each by itself.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from cufall_py.errors import CufallError

from .known import ENGINES
from .reading import MOST, Labels, Moment, Reading, Value
from .table import QUANTITIES, Engine, Metric, spelled, styles

_NAME = re.compile(r'\{?\s*"?([A-Za-z_:][A-Za-z0-9_:]*)')
_SAMPLE = re.compile(r'([^\s{]*)(\{(?:[^"}]|"(?:\\.|[^"\\])*")*\})?\s*(\S+)')
"""Name, labels and value. What follows (a time, an exemplar) is left out: parsers of some versions stumble over it."""
_MOST_RATIO = 1.01
"""More is no share of anything, but for what it is rounded by."""
STARTED = "process_start_time_seconds"
_SHOWN = 4
"""How many names a message shows of those that were seen."""


class NoMetrics(CufallError):
    """The page has nothing that any engine's table names."""


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


class Page:
    """Lines of samples by name, as on the wire."""

    def __init__(self, lines: Mapping[str, Sequence[str]]) -> None:
        self.lines = lines
        self._parsed: dict[str, list[Sample]] = {}

    def samples(self, name: str) -> list[Sample]:
        """Of the series so named, each once; NaN where it is not known. ValueError for a line that is none."""
        if name not in self._parsed:
            self._parsed[name] = _each_once(_parsed(self.lines.get(name, ())))
        return self._parsed[name]

    def named(self, name: str) -> str:
        """The name under which the page has it: a counter may lack its `_total`; empty if it is not there."""
        return next((n for n in (name, name.removesuffix("_total")) if n in self.lines), "")


def _parsed(lines: Sequence[str]) -> list[Sample]:
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families("\n".join(map(_bare, lines)))
    return [Sample(sample.labels, float(sample.value)) for family in families for sample in family.samples]


def _each_once(samples: Iterable[Sample]) -> list[Sample]:
    """Not known: what is negative, beyond all that an engine counts, or told twice with different numbers."""
    found: dict[Labels, Sample] = {}
    for sample in samples:
        key = tuple(sorted(sample.labels.items()))
        value = sample.value if 0 <= sample.value <= MOST else math.nan
        found[key] = Sample(sample.labels, value if key not in found or found[key].value == value else math.nan)
    return [*found.values()]


def _bare(line: str) -> str:
    """A sample without time and exemplar. ValueError for what is none."""
    parts = _SAMPLE.match(line)
    if not parts:
        raise ValueError(f"no sample: {line}")
    return f"{parts[1]}{parts[2] or ''} {parts[3]}"


def parse(text: str) -> Page:
    """The lines of samples in a page of either format."""
    lines = defaultdict(list)
    for line in map(str.strip, text.split("\n")):
        if line and not line.startswith("#") and (name := _NAME.match(line)):
            lines[name[1]].append(line)
    return Page(dict(lines))


def read(text: str, when: Moment, engines: Iterable[Engine] = ENGINES) -> Reading:
    """What the page says, by the table and the spelling of names that find the most in it.

    Raises NoMetrics if none finds anything, ValueError for a line that cannot be understood.
    """
    page = parse(text)
    found = [(engine, style, _values(page, engine, style)) for engine in engines for style in styles(engine)]
    engine, style, values = max(found, key=lambda one: len(one[2]), default=(None, "", {}))
    if not engine or not values:
        raise NoMetrics(f"the server answers, but with no engine's metrics; seen: {_seen(page)}")
    rivals = [other for rival, own, other in found if (rival.name, own) != (engine.name, style)]
    return Reading(engine, when, values, tuple(_notes(page, values, rivals)), _started_s(page))


def _started_s(page: Page) -> float | None:
    """Where one process answers, as prometheus-client tells of it; several behind one page are none."""
    found = page.samples(STARTED)
    return found[0].value if len(found) == 1 and math.isfinite(found[0].value) else None


def _values(page: Page, engine: Engine, style: str) -> dict[str, Value]:
    tried = ((quantity, _first(page, engine, style, quantity)) for quantity in engine.fields)
    return {quantity: value for quantity, value in tried if value}


def _first(page: Page, engine: Engine, style: str, quantity: str) -> Value | None:
    """By the best of the quantity's metrics that the page has."""
    make = _histogram if QUANTITIES[quantity].kind == "histogram" else _plain
    values = (make(page, engine, quantity, metric, style) for metric in engine.fields[quantity])
    return next((value for value in values if value), None)


def _plain(page: Page, engine: Engine, quantity: str, metric: Metric, style: str) -> Value | None:
    name = page.named(spelled(engine, metric.name, style))
    every = page.samples(name) if name else []
    found = _series(engine, every, metric.where)
    if QUANTITIES[quantity].kind == "counter":
        found = {**_uncounted(engine, every, metric), **found}
    series = {key: (value,) for key, value in found.items()}
    if metric.over:
        whole = {rest: value for rest, value in _series(engine, every, metric.over, metric.over).items() if value}
        shares = ((key, part, _less(key, metric)) for key, (part,) in series.items())
        series = {key: (part / whole[rest],) for key, part, rest in shares if rest in whole}
    return _whole(Value(quantity, name, metric.moves, series))


def _whole(value: Value) -> Value | None:
    """Nothing for one without a series, or with one that is not known: the others are not the sum."""
    most = _MOST_RATIO if QUANTITIES[value.quantity].unit == "ratio" else math.inf
    known = all(number <= most for numbers in value.series.values() for number in numbers)
    return value if value.series and known else None


def _uncounted(engine: Engine, samples: Sequence[Sample], metric: Metric) -> dict[Labels, float]:
    """0 for each value of a label that a counter is told apart by: it has no series for one that it never counted."""
    if not metric.where:
        return {}
    others = _series(engine, samples, (), metric.where)
    each = list(product(*([(label, text) for text in texts] for label, texts in metric.where)))
    return {tuple(sorted((*key, *pairs))): 0.0 for key in others for pairs in each}


def _less(key: Labels, metric: Metric) -> Labels:
    hidden = {label for label, _ in metric.where}
    return tuple(pair for pair in key if pair[0] not in hidden)


def _histogram(page: Page, engine: Engine, quantity: str, metric: Metric, style: str) -> Value | None:
    name = spelled(engine, metric.name, style)
    sums, counts = (_series(engine, page.samples(f"{name}_{part}"), metric.where) for part in ("sum", "count"))
    buckets = _buckets(engine, page.samples(f"{name}_bucket"), metric)
    bounds = _common_bounds(buckets)
    series = {
        key: (sums[key], count, *(buckets[key][bound] for bound in bounds))
        for key, count in counts.items()
        if key in sums and (not bounds or key in buckets)
    }
    return _whole(Value(quantity, name, metric.moves, series, bounds))


def _buckets(engine: Engine, samples: Sequence[Sample], metric: Metric) -> dict[Labels, dict[float, float]]:
    found: dict[Labels, dict[float, float]] = defaultdict(dict)
    by_bound = defaultdict(list)
    for sample in samples:
        by_bound[float(sample.labels.get("le", "nan"))].append(sample)
    for bound, those in by_bound.items():
        for key, value in _series(engine, those, metric.where, hidden=(("le", ()),)).items():
            found[key][bound] = value
    return found


def _common_bounds(buckets: Mapping[Labels, Mapping[float, float]]) -> tuple[float, ...]:
    """Those that all series have, without infinity, where the count is."""
    sets = [set(one) for one in buckets.values()]
    return tuple(sorted(bound for bound in set.intersection(*sets) if math.isfinite(bound))) if sets else ()


def _series(
    engine: Engine,
    samples: Sequence[Sample],
    where: tuple[tuple[str, tuple[str, ...]], ...],
    hidden: tuple[tuple[str, tuple[str, ...]], ...] = (),
) -> dict[Labels, float]:
    """A number of each series that fits: of copies the lowest rank's, of parts and their total the total."""
    fits = [s for s in samples if all(s.labels.get(label) in texts for label, texts in where)]
    for label in engine.totals:
        totals = [sample for sample in fits if not sample.labels.get(label)]
        fits = totals or fits
    left_out = {*engine.copies, *(label for label, _ in hidden)}
    found: dict[Labels, float] = {}
    for sample in sorted(fits, key=lambda s: _speaks(engine, s)):
        key = tuple(sorted(pair for pair in sample.labels.items() if pair[1] and pair[0] not in left_out))
        found.setdefault(key, sample.value)
    return found


def _speaks(engine: Engine, sample: Sample) -> tuple[bool, list[tuple[int, str]]]:
    """In which order copies are asked: those that know, then by rank."""
    return math.isnan(sample.value), [_rank(sample.labels.get(label, "")) for label in engine.copies]


def _rank(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isascii() and text.isdigit() else (-1 if not text else 1 << 30, text)


def _notes(page: Page, values: Mapping[str, Value], rivals: Iterable[Mapping[str, Value]]) -> Iterator[str]:
    taken, there = sorted(v.name for v in values.values()), {v.name for rival in rivals for v in rival.values()}
    if there:
        yield f"read as {taken[0]} and the like; there as well, and not added: {_listed(sorted(there))}"
    if not any(name in values for name in ("generation_tokens", "generation_tokens_per_s")):
        yield f"the server answers, but with no known token counter; seen: {_seen(page)}"


def _seen(page: Page) -> str:
    return _listed(sorted(page.lines)) or "an empty page"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
