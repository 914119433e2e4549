"""An inference server beside its GPUs: tables by running requests and by phase, a plot, and lines as it goes."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from cufall_py.analysis.concurrency import Mean, Row
from cufall_py.analysis.phases import PHASES
from cufall_py.engines.rates import Interval, kept_share
from cufall_py.engines.reading import Reading
from cufall_py.served import Log, Served, gauge, latency, total
from cufall_py.shown import MISSING, share_text

from .tables import Table, as_html as table_html, escaped, markdown, text

BAR, ASCII_BAR, BAR_WIDTH = "▇", "#", 40
HELD = "of the times between two scrapes that both read so many"
NOT_HELD = "no number of running requests was held"
LEAST_HALF = 0.005
"""Half an interval that is less is told as 0."""


def as_text(found: Sequence[Served], ascii_only: bool = False) -> Iterator[str]:
    """All of several servers, who does what on which GPUs first."""
    if len(found) > 1:
        yield from (*text(side_by_side(found), ascii_only), "")
    for k, one in enumerate(found):
        yield from [""] * bool(k)
        yield title(one.log)
        if len(one.log.readings) == 1:
            yield "one page of metrics alone came, so that no rates are known: they are read once a second"
        yield from figures(one.log)
        yield ""
        yield f"by running requests ({HELD})"
        yield from text(by_concurrency(one), ascii_only) if one.rows else [NOT_HELD]
        yield from plot(one.rows, ascii_only)
        yield ""
        yield "by phase"
        yield from text(by_phase(one), ascii_only)


def side_by_side(found: Sequence[Served]) -> Table:
    """A row a server: its GPUs, what it made over all, and the share of the time that was of each phase."""
    head = ("server", "role", "on", "running", "gen tok/s", "prompt tok/s", *PHASES)
    return Table(head, [_server_row(one) for one in found], words=3)


def _server_row(one: Served) -> list[str]:
    made = [total(one.log.intervals, quantity) for quantity in ("generation_tokens", "prompt_tokens")]
    whole = sum(one.phase_s.values())
    return [
        one.log.url,
        one.log.role or MISSING,
        ranges(one.log.gpus) or MISSING,
        number(gauge(one.log.intervals, "running")),
        *(number(rate.per_s) if rate else MISSING for rate in made),
        *(share_text(one.phase_s[phase] / whole) if whole else MISSING for phase in PHASES),
    ]


def title(log: Log) -> str:
    """Which server: its address, engine, role and GPUs."""
    role = f", {log.role}" if log.role else ""
    return f"{log.url}: {log.engine or 'no page of metrics'}{role}, on {ranges(log.gpus) or 'no GPU'}"


def ranges(gpus: Sequence[int]) -> str:
    """`g0-g3, g6`."""
    found: list[list[int]] = []
    for gpu in gpus:
        if found and gpu == found[-1][-1] + 1:
            found[-1].append(gpu)
        else:
            found.append([gpu])
    return ", ".join(f"g{of[0]}-g{of[-1]}" if len(of) > 1 else f"g{of[0]}" for of in found)


def figures(log: Log) -> Iterator[str]:
    """What it came to over all, a line a quantity, with the metric that it is by."""
    for quantity, name in (("generation_tokens", "generation tokens/s"), ("prompt_tokens", "prompt tokens/s")):
        if rate := total(log.intervals, quantity):
            yield f"{name}: {number(rate.per_s)} ({rate.name})"
    for quantity, name in (("ttft_s", "time to first token"), ("itl_s", "inter-token latency"), ("tpot_s", "TPOT")):
        if found := latency(log.intervals, quantity):
            p50, p95 = (milliseconds(found.percentile_s(percent)) for percent in (50, 95))
            yield f"{name}: mean {milliseconds(found.mean_s)}, p50 {p50}, p95 {p95} ({found.name})"
    if not math.isnan(usage := gauge(log.intervals, "cache_usage")):
        yield f"KV cache used: {share_text(usage)}"
    if (accepted := acceptance(log.intervals)) is not None:
        yield f"speculated tokens kept: {share_text(accepted)}"


def acceptance(intervals: Sequence[Interval]) -> float | None:
    """Over all of them, by counters; else the newest gauge."""
    drafted, kept = total(intervals, "drafted_tokens"), total(intervals, "accepted_tokens")
    if drafted and kept:
        return kept_share(drafted.amount, kept.amount)
    return next((i.acceptance for i in reversed(intervals) if i.acceptance is not None), None)


def by_concurrency(one: Served) -> Table:
    """A row a number of running requests; values with half of their 95 % interval, where there is one."""
    head = ("running", "scrapes", "seconds", "frames", "gen tok/s", "prompt tok/s", "ITL ms", *headings(one))
    return Table(head, [_row(one, row) for row in one.rows], words=0)


def _row(one: Served, row: Row) -> list[str]:
    frames = max((mean.count for mean in row.metrics.values()), default=0)
    return [
        running(row),
        str(row.intervals),
        f"{row.seconds:.1f}",
        str(frames),
        _mean(row.generation_tokens_per_s),
        _mean(row.prompt_tokens_per_s),
        _mean(times(row.tpot_s, 1000)),
        *(_mean(*in_unit(row.metrics[label], unit)) for label, unit in zip(one.labels, one.units, strict=True)),
    ]


def headings(one: Served) -> list[str]:
    """Of the columns of metrics: a number a second says so."""
    return [label + unit.replace("%", "") for label, unit in zip(one.labels, one.units, strict=True)]


def in_unit(mean: Mean, unit: str) -> tuple[Mean, str]:
    """As a person reads it: a ratio in percent."""
    return (times(mean, 100), unit) if unit == "%" else (mean, "")


def times(mean: Mean, factor: float) -> Mean:
    return Mean(factor * mean.value, factor * mean.low, factor * mean.high, mean.count)


def running(row: Row) -> str:
    return str(row.least) if row.least == row.most else f"{row.least}-{row.most}"


def by_phase(one: Served) -> Table:
    """A row a phase: how long it lasted, its share, and what its GPUs did in it."""
    whole = sum(one.phase_s.values())
    rows = [
        [
            phase,
            f"{one.phase_s[phase]:.1f}",
            share_text(one.phase_s[phase] / whole) if whole else MISSING,
            *(shown(value, unit) for value, unit in zip(one.phase_means[phase].tolist(), one.units, strict=True)),
        ]
        for phase in PHASES
    ]
    return Table(("phase", "seconds", "share", *headings(one)), rows)


def plot(rows: Sequence[Row], ascii_only: bool = False) -> Iterator[str]:
    """Generation tokens a second against running requests, a bar a row; prompt tokens of one that generates none."""
    for name, values in tokens(rows).items():
        most = max((value.value for value in values if math.isfinite(value.value)), default=0.0)
        if most:
            yield from ("", f"{name} against running requests")
            yield from _bars([running(row) for row in rows], [mean.value for mean in values], most, ascii_only)
            return


def tokens(rows: Sequence[Row]) -> dict[str, list[Mean]]:
    """What is made a second against running requests, by what it is called."""
    return {
        "generation tokens/s": [row.generation_tokens_per_s for row in rows],
        "prompt tokens/s": [row.prompt_tokens_per_s for row in rows],
    }


def _bars(names: Sequence[str], values: Sequence[float], most: float, ascii_only: bool) -> Iterator[str]:
    width = max(map(len, names))
    for name, value in zip(names, values, strict=True):
        length = round(BAR_WIDTH * value / most) if math.isfinite(value) else 0
        yield f"{name:>{width}} {(ASCII_BAR if ascii_only else BAR) * length} {number(value)}"


def line(reading: Reading | None, interval: Interval | None) -> str:
    """A server's newest in a line: what it does not say is left out."""
    if reading is None:
        return "no metrics"
    words = [f"{name} {value:g}" for name in ("running", "waiting") if (value := reading.number(name)) is not None]
    if interval:
        words += list(_rates(interval))
    if (usage := reading.number("cache_usage")) is not None:
        words.append(f"cache {share_text(usage)}")
    return "  ".join([reading.engine.name, *words])


def _rates(interval: Interval) -> Iterator[str]:
    for quantity, name in (("generation_tokens", "gen"), ("prompt_tokens", "prompt")):
        if rate := interval.per_s(quantity):
            yield f"{name} {number(rate.per_s)} tok/s"
    for quantity, name in (("ttft_s", "ttft"), ("itl_s", "itl")):
        if found := interval.latencies.get(quantity):
            yield f"{name} {milliseconds(found.mean_s)}"
    if (kept := interval.acceptance) is not None:
        yield f"accepted {share_text(kept)}"


def as_markdown(found: Sequence[Served]) -> Iterator[str]:
    """The tables of several servers, as GitHub shows them."""
    if len(found) > 1:
        yield from ("", "### Inference servers", "", *markdown(side_by_side(found)))
    for one in found:
        yield from ("", f"### {escaped(title(one.log))}", "", *(f"- {escaped(line)}" for line in figures(one.log)))
        yield from ("", f"By running requests, {HELD}:", "", *markdown(by_concurrency(one)))
        yield from ("", "By phase:", "", *markdown(by_phase(one)))


def as_html(found: Sequence[Served]) -> Iterator[str]:
    """The tables of several servers, for a notebook."""
    for one in found:
        yield f"<h4>{html.escape(title(one.log))}</h4>"
        yield table_html(by_concurrency(one))
        yield table_html(by_phase(one))


def _mean(mean: Mean, unit: str = "") -> str:
    """`640 ±20`, `14 ±6%`: with half of its 95 % interval, in the same unit; alone where the data sets none."""
    told, half = _digits(mean.value, unit), (mean.high - mean.low) / 2
    if told in (MISSING, "0") or told.startswith("<") or not math.isfinite(half):
        return told + unit * (told != MISSING)
    return f"{told} ±{_half(half, told)}{unit}"


def _digits(value: float, unit: str) -> str:
    return number(value) if unit != "%" or math.isnan(value) else share_text(value / 100).rstrip("%")


def _half(half: float, told: str) -> str:
    """With as many decimals as what it is of, or one digit where that would make nothing of it."""
    same = f"{half:.{len(told.partition('.')[2])}f}"
    return same if float(same) or half < LEAST_HALF else f"{half:.1g}"


def shown(value: float, unit: str) -> str:
    """A value of a metric: a ratio in percent, else a number."""
    return share_text(value) if unit == "%" else number(value)


def number(value: float) -> str:
    return MISSING if not math.isfinite(value) else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def milliseconds(seconds: float) -> str:
    return MISSING if math.isnan(seconds) else f"{1000 * seconds:.3g} ms"
