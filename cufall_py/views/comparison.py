"""A comparison as lines of text for a person, and as one JSON document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from cufall_py.analysis.comparison import RUNS_FOR_BETWEEN, Comparison, Finding
from cufall_py.analysis.intervals import CONFIDENCE
from cufall_py.analysis.limits import POINTS, RELATIVE
from cufall_py.analysis.series import WHOLE_RUN, Run, Sides
from cufall_py.export.nulls import or_null
from cufall_py.shown import MISSING, plain as number

from .listing import table

SCHEMA = 1
HEAD = ("gpu", "where", "what", "base", "new", "change", "95% interval", "verdict")
UNITS = {RELATIVE: "relative", POINTS: "points"}


def lines(found: Comparison, sides: Sides, effects: dict[str, float], columns: int) -> Iterator[str]:
    """The table and how its intervals were made; `columns`: those of the terminal, 0: no wrapping."""
    rows = [_cells(finding, sides.base[0]) for finding in found.findings]
    yield from table(HEAD, rows, columns)
    yield ""
    yield _made(found, len(sides.base), len(sides.new), effects)


def document(found: Comparison, sides: Sides, effects: dict[str, float], forced: Sequence[str]) -> dict[str, Any]:
    """Shares are 0..1, as changes are; null is not known, or no end. Fields: docs/statistics.md."""
    return {
        "schema": SCHEMA,
        "base": [run.path for run in sides.base],
        "new": [run.path for run in sides.new],
        "noise": "between runs" if found.between else "within runs only",
        "confidence": CONFIDENCE,
        "min_effect": None if found.between else {UNITS[unit]: size for unit, size in effects.items()},
        "forced": list(forced),
        "notes": found.notes,
        "findings": [_fields(finding, sides.base[0]) for finding in found.findings],
    }


def told(finding: Finding) -> str:
    """A finding in a line, as what a command ends with."""
    low, high = finding.interval.low, finding.interval.high
    limit = f"{finding.limit} " if finding.limit else f"{finding.key.metric}.{finding.key.statistic} "
    why = finding.why or f"{_change(finding.interval.change, finding.unit)} ({_span(low, high, finding.unit)})"
    return f"{limit}on g{finding.gpu}: {why}"


def _cells(finding: Finding, run: Run) -> tuple[str, ...]:
    key, interval = finding.key, finding.interval
    metric = run.gpus[finding.gpu].metrics.get(key.metric)
    plain = bool(metric and metric.plain) and key.statistic != "idle_share"
    return (
        f"g{finding.gpu}",
        _whole_run(run, finding.gpu) if key.window == WHOLE_RUN else f"[{key.window}]",
        f"{key.metric}.{key.statistic}",
        _value(finding.base, plain),
        _value(finding.new, plain),
        _change(interval.change, finding.unit),
        _span(interval.low, interval.high, finding.unit),
        _words(finding),
    )


def _words(finding: Finding) -> str:
    verdict = f"{finding.verdict} ({finding.why})" if finding.why else finding.verdict
    return f"{verdict}; {finding.outcome} {finding.limit.most}" if finding.limit else verdict


def _whole_run(run: Run, gpu: int) -> str:
    of = "of command" if run.of_command else ""
    return " ".join(filter(None, ("active time" if run.gpus[gpu].of_active_time else "all time", of)))


def _made(found: Comparison, base: int, new: int, effects: dict[str, float]) -> str:
    if found.between:
        return f"{base} runs against {new}: intervals by how runs differ (Welch's t)"
    least = " or ".join(f"{100 * size:g}{unit}" for unit, size in effects.items())
    return (
        f"{base} against {new} {'run' if new == 1 else 'runs'}: within-run noise only, and runs differ by more; "
        f"a change below {least} does not count as shown. {RUNS_FOR_BETWEEN} or more runs a side tell what runs do."
    )


def _value(value: float, plain: bool) -> str:
    if math.isnan(value):
        return MISSING
    return number(value) if plain else f"{100 * value:.{_digits(100 * value)}f}%"


def _digits(percent: float) -> int:
    """Three digits that count, of what is above 0.01 %."""
    return 1 if abs(percent) >= 10 or percent == 0 else 2 if abs(percent) >= 1 else 3


def _change(change: float, unit: str) -> str:
    return MISSING if not math.isfinite(change) else f"{100 * change:+.2f}{unit}"


def _span(low: float, high: float, unit: str) -> str:
    if not math.isfinite(low) or not math.isfinite(high):
        return MISSING
    return f"{100 * low:+.2f} to {100 * high:+.2f}{unit}"


def _fields(finding: Finding, run: Run) -> dict[str, Any]:
    return {
        "gpu": finding.gpu,
        "region": finding.key.window or None,
        "of": _whole_run(run, finding.gpu) if finding.key.window == WHOLE_RUN else "region",
        "metric": finding.key.metric,
        "statistic": finding.key.statistic,
        "base": or_null(finding.base),
        "new": or_null(finding.new),
        "unit": UNITS[finding.unit],
        "change": or_null(finding.interval.change),
        "low": or_null(finding.interval.low),
        "high": or_null(finding.interval.high),
        "samples": round(finding.samples, 1),
        "verdict": finding.verdict,
        "why": finding.why or None,
        "limit": str(finding.limit) if finding.limit else None,
        "outcome": finding.outcome or None,
    }
