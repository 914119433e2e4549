"""An inference server beside its GPUs: tables by running requests and by phase, a plot, and lines as it goes."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence

from cufall_py.analysis.concurrency import Mean, Row
from cufall_py.analysis.phases import PHASES
from cufall_py.engines.rates import Interval, kept_share
from cufall_py.engines.reading import Reading
from cufall_py.served import Log, Served, gauge, latency, total

from .tables import MISSING, Table, text
from .verdict import share_text

BAR, ASCII_BAR, BAR_WIDTH = "▇", "#", 40
UNSURE = "unsure"


def as_text(found: Sequence[Served], ascii_only: bool = False) -> Iterator[str]:
    """All of several servers."""
    for k, one in enumerate(found):
        yield from [""] * bool(k)
        yield title(one.log)
        yield from figures(one.log)
        yield ""
        yield "by running requests (of the times between two scrapes that both read so many)"
        yield from text(by_concurrency(one), ascii_only) if one.rows else ["no number of running requests was held"]
        if one.rows:
            yield ""
            yield from plot(one.rows, ascii_only)
        yield ""
        yield "by phase"
        yield from text(by_phase(one), ascii_only)


def title(log: Log) -> str:
    """Which server: its address, engine, role and GPUs."""
    gpus = ", ".join(f"g{gpu}" for gpu in log.gpus) or "no GPU"
    return f"{log.url}: {log.engine or 'no page of metrics'}{f', {log.role}' if log.role else ''}, on {gpus}"


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
    head = ("running", "scrapes", "seconds", "frames", "gen tok/s", "prompt tok/s", "ITL ms", *one.labels)
    return Table(head, [_row(one, row) for row in one.rows], words=0)


def _row(one: Served, row: Row) -> list[str]:
    frames = max((mean.count for mean in row.metrics.values()), default=0)
    tokens = [_mean(mean, number) for mean in (row.generation_tokens_per_s, row.prompt_tokens_per_s)]
    return [
        running(row),
        str(row.intervals),
        f"{row.seconds:.1f}",
        str(frames),
        *tokens,
        _mean(row.tpot_s, lambda seconds: f"{1000 * seconds:.3g}"),
        *(_mean(row.metrics[label], percent) for label in one.labels),
    ]


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
            *(percent(value) for value in one.phase_means[phase].tolist()),
        ]
        for phase in PHASES
    ]
    return Table(("phase", "seconds", "share", *one.labels), rows)


def plot(rows: Sequence[Row], ascii_only: bool = False) -> Iterator[str]:
    """Generation tokens a second against running requests, a bar a row."""
    values = [row.generation_tokens_per_s.value for row in rows]
    most = max((value for value in values if math.isfinite(value)), default=0.0)
    width = max(len(running(row)) for row in rows)
    yield "generation tokens/s against running requests"
    for row, value in zip(rows, values, strict=True):
        length = round(BAR_WIDTH * value / most) if most and math.isfinite(value) else 0
        yield f"{running(row):>{width}} {(ASCII_BAR if ascii_only else BAR) * length} {number(value)}"


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


def as_html(found: Sequence[Served]) -> str:
    """The tables of several servers, for a notebook."""
    parts = (
        f"<h4>{html.escape(title(one.log))}</h4>{_html(by_concurrency(one))}{_html(by_phase(one))}" for one in found
    )
    return "".join(parts)


def _html(table: Table) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.head)
    rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table.rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _mean(mean: Mean, shown: Callable[[float], str]) -> str:
    """`512 ±3%`: relative, for the units differ; alone where the data sets no interval."""
    if math.isnan(mean.value):
        return MISSING
    half = (mean.high - mean.low) / 2
    told = f" ±{100 * half / mean.value:.0f}%" if math.isfinite(half) and mean.value else ""
    return f"{shown(mean.value)}{told}"


def number(value: float) -> str:
    return MISSING if not math.isfinite(value) else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def percent(value: float) -> str:
    return MISSING if math.isnan(value) else share_text(value)


def milliseconds(seconds: float) -> str:
    return MISSING if math.isnan(seconds) else f"{1000 * seconds:.3g} ms"
