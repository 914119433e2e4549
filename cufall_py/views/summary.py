"""A report as a person reads it: tables of values and of times, notes, requirements; text or Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone

from cufall_py.analysis.statistics import Row, Statistics
from cufall_py.analysis.summary import WHOLE, Scope
from cufall_py.judgements import HELD, MISSED, NOT_MEASURABLE, Judgement
from cufall_py.keep import told
from cufall_py.metrics import Metric
from cufall_py.outline import PERIODS_APART
from cufall_py.report import Report
from cufall_py.shown import ALL, EVERYTHING, MISSING, percent, plain, value

from . import groups, means, verdict
from .tables import Table, escaped, markdown, text

VALUES: dict[str, Callable[[Statistics], float]] = {
    "mean": lambda s: s.mean,
    "min": lambda s: s.minimum,
    "p5": lambda s: s.percentile(5),
    "p50": lambda s: s.percentile(50),
    "p95": lambda s: s.percentile(95),
    "max": lambda s: s.maximum,
}
TIME_MEAN = "time mean"
SHARES: dict[str, Callable[[Statistics], float]] = {
    "<1%": lambda s: s.below_1,
    "<10%": lambda s: s.below_10,
    ">90%": lambda s: s.above_90,
    "idle": lambda s: s.idle_share,
}
DIFFERS_POINTS, DIFFERS_SHARE = 0.0005, 0.01
"""The time-weighted mean is shown where it is further than both from the mean: points, and of the mean."""


def as_text(report: Report, columns: int = 0, ascii_only: bool = False) -> Iterator[str]:
    """Lines for a terminal of so many columns (0: any), where a table that is too wide is told in two."""
    yield headline(report)
    yield from [report.turn.line] if report.turn else []
    for title, tables in _sections(report, columns):
        yield from ("", title)
        for table in tables:
            yield from text(table, ascii_only)
    notes = [*_notes(report)]
    yield from ["", *notes] if notes else []


def as_markdown(report: Report, judgements: Sequence[Judgement] = ()) -> Iterator[str]:
    """The same as Markdown, with the requirements before it."""
    yield f"## {escaped(headline(report))}"
    yield from ["", report.turn.line] if report.turn else []
    if judgements:
        yield from ("", "### Requirements", "", *markdown(requirements(judgements)))
    for title, tables in _sections(report, 0):
        yield from ("", f"### {escaped(title)}", "", *markdown(tables[0]))
    for note in _notes(report):
        yield from ("", escaped(note))


def headline(report: Report) -> str:
    """What was recorded, in a line."""
    summary = report.summary
    names = dict.fromkeys(opened.device.name for opened in report.opened)
    periods = [_period(ns) for ns in _periods_ns(report)]
    gpus = f"{len(report.opened)} GPU{'s' if len(report.opened) != 1 else ''} ({', '.join(names)})"
    read = f"{summary.samples_read} samples read of {', '.join(periods)}" if periods else "no samples"
    if not summary.spans:
        return f"{report.path}: {gpus}, {read}"
    seconds = sum(b - a for a, b in summary.spans) / 1e9
    return f"{report.path}: {gpus}, {seconds:.3f} s from {_local(summary.spans[0][0])}, {read}"


def requirements(judgements: Sequence[Judgement]) -> Table:
    """Each requirement on each GPU: its value, what that rests on, and whether it held."""
    rows = [
        (
            f"{j.outcome}: {j.why}" if j.why else j.outcome,
            j.requirement.text,
            j.server or f"g{j.gpu}",
            j.region or EVERYTHING,
            judged_value(j),
            str(j.samples),
            percent(j.coverage),
        )
        for j in judgements
    ]
    where = "gpu or server" if any(j.server for j in judgements) else "gpu"
    return Table(("outcome", "requirement", where, "of", "value", "samples", "coverage"), rows, words=4)


def judged_value(judgement: Judgement) -> str:
    """The value as it is compared: a percent, seconds, or a plain number."""
    if judgement.requirement.of_rate:
        return MISSING if math.isnan(judgement.value) else f"{plain(judgement.value)} tok/s"
    if judgement.requirement.of_unit:
        return seconds(judgement.value)
    return value(judgement.value, judgement.plain)


def counted(judgements: Sequence[Judgement]) -> str:
    """How many held, in words."""
    outcomes = [judgement.outcome for judgement in judgements]
    counts = {outcome: outcomes.count(outcome) for outcome in (NOT_MEASURABLE, MISSED, HELD)}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def _sections(report: Report, columns: int) -> Iterator[tuple[str, list[Table]]]:
    """Titles, and the tables below each for so many columns (0: any)."""
    if means.worth_it(_scopes(report)):
        yield means.TITLE, _means(report, columns)
    for k, label in enumerate(report.summary.metrics):
        yield _metric_title(report, k, label), _metric_tables(report, k, columns)
    if _has_readings(report):
        yield "clocks and power", [_hardware_table(report)]
    if has_verdicts(report):
        yield verdict_title(report), [verdict_table(report)]
    labels = [opened.label for opened in report.opened]
    for group in report.groups:
        yield f"group {groups.line(group, labels)}", [groups.table(group, labels)]


def _means(report: Report, columns: int) -> list[Table]:
    names = [*([ALL] if report.summary.scopes[0].group else []), *(opened.label for opened in report.opened)]
    return means.tables(_scopes(report), names, columns)


def _metric_title(report: Report, k: int, label: str) -> str:
    metrics = dict.fromkeys(opened.metrics.metrics[k] for opened in report.opened)
    formulas = dict.fromkeys(metric.formula for metric in metrics if metric.formula)
    unit = _unit_words(*metrics)
    return f"{label}, {unit}: {' or '.join(formulas) or 'absent'}"


def _unit_words(*metrics: Metric) -> str:
    if any(metric.unit for metric in metrics):
        return "a second"
    return "a plain quotient" if any(metric.plain for metric in metrics) else "of the peak"


def _metric_tables(report: Report, k: int, columns: int) -> list[Table]:
    found = [(place, row.metrics[k]) for place, row in _rows(report)]
    values = dict(VALUES)
    if any(_differs(s) for _, s in found):
        values = {"mean": VALUES["mean"], TIME_MEAN: lambda s: s.time_mean, **VALUES}
    show = plain if any(s.plain for _, s in found) else percent
    shown = {name: [show(of(s)) for _, s in found] for name, of in values.items()}
    shares = {name: [percent(of(s)) for _, s in found] for name, of in SHARES.items()}
    shares["longest idle"] = [seconds(s.longest_idle_s) for _, s in found]
    counts = {"coverage": [percent(s.coverage) for _, s in found], "samples": [str(s.samples) for _, s in found]}
    places = [place for place, _ in found]
    whole = _table(places, {**shown, **shares, **counts})
    if columns and max(map(len, text(whole))) > columns:
        return [_table(places, {**shown, **counts}), _table(places, shares)]
    return [whole]


def _hardware_table(report: Report) -> Table:
    rows = list(_rows(report))
    columns = {
        "SM clock": [_unit(row.sm_mhz, "MHz") for _, row in rows],
        "throttled": [percent(row.throttle_share) for _, row in rows],
        "power": [_unit(row.power_w, "W") for _, row in rows],
        "energy": [energy(row.energy_j) for _, row in rows],
        "coverage": [percent(row.coverage) for _, row in rows],
    }
    return _table([place for place, _ in rows], columns)


def _has_readings(report: Report) -> bool:
    """Whether NVML told anything of any GPU, at any time."""
    rows = report.summary.scopes[0].rows
    return not all(math.isnan(of) for row in rows for of in (row.sm_mhz, row.power_w, row.throttle_share))


def has_verdicts(report: Report) -> bool:
    """Whether any GPU has one, at any time."""
    return any(window.shares["unknown"] < 1 for window in report.summary.verdicts.get(WHOLE, ()))


def verdict_title(report: Report) -> str:
    return f"verdict, of frames of {report.judging.frame_ns / 1e6:g} ms; evidence: means of all their time"


def verdict_table(report: Report) -> Table:
    """A row a region and GPU: its verdict, what took time besides, and the evidence."""
    rows = []
    for scope in _scopes(report):
        names = [scope.name or EVERYTHING] + [""] * len(report.opened)
        windows = report.summary.verdicts[scope.name]
        rows += [(name, o.label, *verdict.cells(w)) for name, o, w in zip(names, report.opened, windows, strict=False)]
    return Table(("region", "gpu", *verdict.HEAD), rows, words=7)


def advices(report: Report) -> Iterator[str]:
    """What to do about each verdict, told once, with the regions in which it holds, or the GPUs if there are none."""
    scopes = _scopes(report)
    labels = [opened.label for opened in report.opened]
    return verdict.advices(
        (label if len(scopes) == 1 else scope.name or EVERYTHING, window)
        for scope in scopes
        for label, window in zip(labels, report.summary.verdicts[scope.name], strict=True)
    )


def _table(places: Sequence[tuple[str, str]], columns: dict[str, list[str]]) -> Table:
    rows = [(*place, *cells) for place, cells in zip(places, zip(*columns.values(), strict=True), strict=True)]
    return Table(("region", "gpu", *columns), rows, words=2)


def _scopes(report: Report) -> list[Scope]:
    """Everything, and the regions of which something lies in what is reported."""
    found = [scope for scope in report.summary.scopes if not scope.name or scope.wanted_s]
    return report.once(found, lambda scope: scope.name)


def _rows(report: Report) -> Iterator[tuple[tuple[str, str], Row]]:
    """Each row with its region and GPU, the region told once."""
    for scope in _scopes(report):
        names = [opened.label for opened in report.opened]
        rows = [*zip(names, scope.rows, strict=True), *([(ALL, scope.group)] if scope.group else [])]
        for first, (name, row) in zip([True] + [False] * len(rows), rows, strict=False):
            yield ((scope.name or EVERYTHING) if first else "", name), row


def _periods_ns(report: Report) -> list[float]:
    """The lengths of samples: by GPU, or where a recording was thinned all that there are."""
    if report.keep:
        return [length.period_ns for length in report.summary.lengths]
    return list(dict.fromkeys(ns for ns in report.summary.periods_ns if not math.isnan(ns)))


def thinned(report: Report) -> Iterator[str]:
    """What it means for the figures that samples are not all of one length; nothing where they are."""
    lengths = report.summary.lengths
    if not report.keep or all(length.period_ns <= PERIODS_APART * report.opened[0].sample_ns for length in lengths):
        return
    shares = ", ".join(f"{_period(length.period_ns)} for {percent(length.time_share)}" for length in lengths)
    yield (
        f"thinned ({told(report.keep)}): samples of {shares} of the time. Means, min and max are those of all that was "
        "sampled; percentiles, shares and times below a value are of samples of these lengths, each by its time, and a "
        "longer one evens out what was in it"
    )
    if report.own_extremes:
        yield f"{', '.join(report.own_extremes)}: min and max are of the longer samples, where it was thinned"


def _notes(report: Report) -> Iterator[str]:
    """What a person must know to read the figures right."""
    yield from thinned(report)
    group = report.summary.scopes[0].group
    if group and group.unlike_kinds:
        yield f"all: an average over unlike GPUs ({', '.join(group.unlike_kinds)})"
    for scope in _scopes(report):
        yield from _unlike_notes(report, scope)
    if has_verdicts(report):
        yield from advices(report)
    if report.summary.behind:
        yield f"{report.summary.behind} samples lie before earlier ones, for a clock was set back: they are left out"


def _unlike_notes(report: Report, scope: Scope) -> Iterator[str]:
    if not scope.group:
        return
    where = "" if scope.name == WHOLE else f" in {scope.name}"
    for j, (of_all, positions) in enumerate(zip(scope.group.metrics, scope.group.unlike, strict=True)):
        for k in positions:
            own, together = percent(scope.rows[k].metrics[j].mean), percent(of_all.mean)
            yield f"{report.opened[k].label} is unlike its peers{where}: {of_all.label} {own}, all together {together}"


def _differs(of: Statistics) -> bool:
    apart = abs(of.time_mean - of.mean)
    return apart > DIFFERS_SHARE * abs(of.mean) and (of.plain or apart > DIFFERS_POINTS)


def seconds(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def energy(joules: float) -> str:
    if math.isnan(joules):
        return MISSING
    scale, unit = (1e6, "MJ") if joules >= 1e6 else (1e3, "kJ") if joules >= 1e3 else (1, "J")
    return f"{joules / scale:.1f} {unit}"


def _unit(value: float, unit: str) -> str:
    return MISSING if math.isnan(value) else f"{value:.0f} {unit}"


def _period(ns: float) -> str:
    """Four digits; what rounds to a whole millisecond is one."""
    return f"{ns / 1e6:.4g} ms" if ns >= 0.99995e6 else f"{ns / 1e3:.4g} us"


def _local(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 1_000_000_000, timezone.utc).astimezone():%Y-%m-%d %H:%M:%S%z}"
