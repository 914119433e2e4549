"""A recording as one HTML page that needs nothing else: its pyramid, regions and gaps, drawn by a script within it."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cufall_py.shown import MISSING, percent, value

from .html_data import LONGEST_TEXT, MOST_MARKS, READING_UNITS, Gpu, Page, Section, document, known_readings
from .tables import as_html

FOLDER = Path(__file__).parent / "html"
MOST_ROWS = 300
"""Of the table of a section."""


def html_report(page: Page) -> str:
    """The page, as text in UTF-8."""
    parts = {
        "title": html.escape(page.title),
        "facts": "".join(f"<li>{html.escape(fact)}</li>" for fact in [*_facts(page), *page.notes]),
        "summary": _summary(page),
        "sections": "".join(map(_section, page.sections)),
        "style": _file("uplot/uPlot.min.css") + _file("page.css"),
        "licence": _file("uplot/LICENSE").strip(),
        "uplot": _file("uplot/uPlot.iife.min.js"),
        "script": _file("verdicts.js") + _file("roofline.js") + _file("page.js"),
        "data": _script_json(document(page)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _file("page.html"))


def _script_json(document: dict[str, Any]) -> str:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")  # within a script element nothing else can end it


def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _facts(page: Page) -> list[str]:
    length_s = sum(end - start for start, end in page.spans) / 1e9
    finest = page.pyramid.levels[0].bin_ns
    periods = sorted({period for gpu in page.gpus for period in (gpu.period_ns, gpu.longest_ns) if period > 0})
    out = [f"{length_s:,.3f} s", _names(page.gpus), f"{int(page.pyramid.got.sum()):,} samples"]
    if periods:
        out.append(f"one every {_time(periods[0])}" + (f" to {_time(periods[-1])}" if len(periods) > 1 else ""))
    out.append(f"finest bins {_time(finest)}: what is shorter is their minimum or maximum")
    if gaps := len(page.gaps):
        lost, lost_ns = sum(gap.samples for gap in page.gaps), sum(gap.end_ns - gap.start_ns for gap in page.gaps)
        out.append(f"{gaps:,} gap{'s' * (gaps > 1)} of a GPU, {lost_ns / 1e9:,.3f} s, {lost:,} samples")
    for marks, count in (("regions", sum(map(len, page.regions.values()))), ("gaps", gaps)):
        if count > MOST_MARKS:
            out.append(f"the {MOST_MARKS:,} longest {marks}; {count - MOST_MARKS:,} are not drawn")
    return out


def _names(gpus: Sequence[Gpu]) -> str:
    names = sorted({gpu.name for gpu in gpus})
    return f"{len(gpus)} × {names[0]}" if len(names) == 1 else f"{len(gpus)} GPUs ({', '.join(names)})"


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= 0.9995 * size:
            return f"{ns / size:.4g} {unit}"
    return f"{ns:.4g} ns"


def _summary(page: Page) -> str:
    """A row a GPU: how much was measured, and of each metric mean and greatest sample."""
    readings = known_readings(page)
    heads = [f"{m.label}, {m.unit}" if m.unit else m.label for m in page.metrics]
    units = [READING_UNITS[k] for k in readings]
    first = "".join(f'<th colspan="2" scope="colgroup">{html.escape(head)}</th>' for head in heads)
    first += "".join(f'<th scope="col">{name}</th>' for name, _ in units)
    second = "<th>mean</th><th>max</th>" * len(heads) + "".join(f"<th>mean {unit}</th>" for _, unit in units)
    wanted_ns = sum(end - start for start, end in page.spans)
    rows = [_row(page, k, wanted_ns, readings) for k in range(len(page.gpus))]
    head = f'<tr><th rowspan="2">GPU</th><th rowspan="2">measured</th>{first}</tr><tr>{second}</tr>'
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _section(section: Section) -> str:
    title, rows = html.escape(section.title), section.table.rows
    shown = replace(section.table, rows=[[cell[:LONGEST_TEXT] for cell in row] for row in rows[:MOST_ROWS]])
    left_out = [f"{len(rows) - MOST_ROWS:,} further rows are not shown"] if len(rows) > MOST_ROWS else []
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in [*left_out, *section.notes])
    table = f'<div class="summary" tabindex="0" role="region" aria-label="{title}">{as_html(shown)}</div>'
    return f'<section class="told"><h2>{title}</h2>{table}<ul class="notes">{notes}</ul></section>'


def _row(page: Page, gpu: int, wanted_ns: int, readings: Sequence[int]) -> str:
    whole = page.pyramid.whole
    cells = [percent(float(whole.covered_ns[gpu, 0]) / wanted_ns)]
    for k, metric in enumerate(page.metrics):
        cells += [value(float(of[gpu, 0, k]), metric.plain) for of in (whole.mean, whole.maximum)]
    cells += [_whole_number(float(page.readings.whole.mean[gpu, 0, k])) for k in readings]
    of = page.gpus[gpu]
    head = f'<th scope="row" title="{html.escape(of.name)}">{html.escape(of.label)}</th>'
    return f"<tr>{head}{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"


def _whole_number(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:,.0f}"
