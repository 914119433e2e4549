"""What `report` writes for other programs to open: a page for a browser, a trace for Perfetto.

Both take rows as they are read, so that one reading of a recording serves for them and for all else that is made of it.
"""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from cufall_py.errors import InvalidMeasurement

from . import STDOUT, writing

if TYPE_CHECKING:
    from cufall_py.analysis.verdict_bins import VerdictBins
    from cufall_py.headroom import Question
    from cufall_py.outline import Event, Region
    from cufall_py.pyramid import Builder
    from cufall_py.recording_reader import Rows
    from cufall_py.report import Reading, Report
    from cufall_py.served import Served
    from cufall_py.views.html_data import Page, Roofline, Section

ALIKE = 0.01
"""Peaks that differ by less are one."""
MOST_VALUES = 2_000_000
"""Samples times metrics that a trace has one by one; of more it has the means and maxima of bins."""


def write_html(reading: Reading, path: str, title: str = "", question: Question | None = None) -> None:
    """Write the page of a recording to a file, or to stdout for `-`; `question`: with the ceilings that it asks for.

    Raises InvalidMeasurement if there is no sample in what is asked for, Unwritable if the file takes no more.
    """
    page = HtmlPage(reading)
    page.write(path, reading.report(page.rows, page.frames), title, question)


def write_trace(reading: Reading, path: str) -> None:
    """Write a Chrome trace to a file (compressed if its name ends in .gz), or to stdout for `-`; errors as above."""
    with trace_writer(reading, path) as take:
        for rows in reading.rows():
            take(rows)


class HtmlPage:
    """A page in the making: it takes what is read of a recording, and is written when all of it has been.

    Raises InvalidMeasurement as write_html does.
    """

    def __init__(self, reading: Reading) -> None:
        from cufall_py.views.html_data import most_bins

        _check(reading)
        self._reading = reading
        self._builder = _builder(reading, most_bins(len(reading.opened), _metrics(reading)))
        self._verdicts = _verdict_bins(reading)
        self.rows, self.frames = self._builder.add, self._verdicts.add

    def write(
        self,
        path: str,
        report: Report,
        title: str = "",
        question: Question | None = None,
        servers: Sequence[Served] = (),
    ) -> None:
        """Write it, with what the recording came to, and its inference servers."""
        from cufall_py.views import summary
        from cufall_py.views.html_report import html_report

        sections = [*_server_sections(servers), *_sections(report, question)]
        strip = self._verdicts.strip() if summary.has_verdicts(report) else None
        page = _page(self._reading, self._builder, title or os.path.basename(self._reading.path))
        with _writing(path) as write:
            write(html_report(replace(page, strip=strip, roofline=_roofline(report), sections=sections)))


@contextmanager
def trace_writer(reading: Reading, path: str) -> Iterator[Callable[[Rows], None]]:
    """As write_trace, of the rows of this reading that are given to what it yields."""
    from cufall_py.export.trace import base_ns

    _check(reading)
    write_to = _sampled_trace if _values(reading) <= MOST_VALUES else _binned_trace
    with write_to(reading, path, base_ns(reading.spans[0][0])) as take:
        yield take


@contextmanager
def _sampled_trace(reading: Reading, path: str, base_ns: int) -> Iterator[Callable[[Rows], None]]:
    from cufall_py.export.trace import Document, Sampled, slices

    samples = Sampled(reading.opened, reading.spans, base_ns, bool(reading.keep))
    with _writing(path) as write:
        document = Document(write, base_ns, _about(reading))
        document.add(slices(_regions(reading), base_ns))
        document.add(samples.begin())
        yield lambda rows: document.add(samples.add(rows))
        document.add(samples.end())
        document.end()


@contextmanager
def _binned_trace(reading: Reading, path: str, base_ns: int) -> Iterator[Callable[[Rows], None]]:
    from cufall_py.export.trace import Document, binned, slices

    builder = _builder(reading, MOST_VALUES // (len(reading.opened) * _metrics(reading)))
    yield builder.add
    metrics, readings = (pyramid.levels[0] for pyramid in builder.pyramids())
    with _writing(path) as write:
        document = Document(write, base_ns, {**_about(reading), "bins, ns": builder.bin_ns})
        document.add(slices(_regions(reading), base_ns))
        document.add(binned(reading.opened, metrics, readings, base_ns))
        document.end()


def _check(reading: Reading) -> None:
    if not reading.spans:
        raise InvalidMeasurement(f"{reading.path}: no samples in what was asked for")


def _builder(reading: Reading, most_bins: int) -> Builder:
    from cufall_py.pyramid import Builder, bin_length_ns

    spans = reading.spans
    bin_ns = bin_length_ns(spans[-1][1] - spans[0][0], _shortest_ns(reading), most_bins)
    return Builder([opened.metrics for opened in reading.opened], spans, bin_ns)


def _verdict_bins(reading: Reading) -> VerdictBins:
    from cufall_py.analysis.verdict_bins import VerdictBins
    from cufall_py.pyramid import bin_length_ns
    from cufall_py.views.html_data import most_verdict_bins

    frame_ns, spans = reading.judging.frame_ns, reading.spans
    frames = -(-(spans[-1][1] - spans[0][0]) // frame_ns)
    in_one = bin_length_ns(frames, 0, most_verdict_bins(len(reading.opened)))
    return VerdictBins(len(reading.opened), spans, frame_ns, frame_ns * in_one)


def _roofline(report: Report) -> Roofline | None:
    """None where one of both is no share of its peak."""
    from cufall_py.views.html_data import Roofline

    rows = report.summary.scopes[0].rows
    of = [{metric.label: metric for metric in row.metrics} for row in rows]
    shares = [{metric.label for metric in opened.metrics.metrics if metric.bounded} for opened in report.opened]
    if any(name not in found for found in shares for name in ("tensor", "dram")):
        return None
    peaks = [found["dram"].counted_per_s / found["dram"].mean for found in of if found["dram"].mean > 0]
    alike = peaks and max(peaks) - min(peaks) < ALIKE * max(peaks)
    return Roofline(report.judging.table.reachable, sum(peaks) / len(peaks) if alike else math.nan)


def _server_sections(servers: Sequence[Served]) -> Iterator[Section]:
    """Of each inference server what it came to, by running requests and by phase."""
    from cufall_py.views import served
    from cufall_py.views.html_data import Section

    if len(servers) > 1:
        yield Section("inference servers", served.side_by_side(servers))
    for one in servers:
        held = [] if one.rows else [served.NOT_HELD]
        notes = [*held, *served.figures(one.log)]
        yield Section(f"{served.title(one.log)}: by running requests", served.by_concurrency(one), notes)
        yield Section(f"{one.log.url}: by phase", served.by_phase(one))


def _sections(report: Report, question: Question | None) -> Iterator[Section]:
    """What is told of each region: its verdicts, and where that is asked for its ceilings."""
    from cufall_py.headroom import told
    from cufall_py.views import headroom, summary
    from cufall_py.views.html_data import Section

    if summary.has_verdicts(report):
        yield Section(summary.verdict_title(report), summary.verdict_table(report), [*summary.advices(report)])
    if question:
        found, kinds = told(report, question), [opened.device.name for opened in report.opened]
        yield Section(headroom.TITLE, headroom.table(found), [*headroom.notes(question, found, kinds)])


def _metrics(reading: Reading) -> int:
    return len(reading.opened[0].metrics.metrics)


def _values(reading: Reading) -> int:
    """How many values of a metric what is meant has, about."""
    length_ns = sum(end - start for start, end in reading.spans)
    at_most = int(length_ns / max(_shortest_ns(reading), 1))
    return sum(min(at_most, count) for count in reading.outline.counts) * _metrics(reading)


def _shortest_ns(reading: Reading) -> float:
    """The shortest period that samples come in, 0 without any."""
    return min((least for periods in reading.outline.periods if (least := _range(periods)[0])), default=0.0)


def _range(periods: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Of a GPU's periods (Outline) the shortest and the longest."""
    known = [period_ns for _, period_ns in periods if period_ns > 0]
    return min(known, default=0.0), max(known, default=0.0)


def _about(reading: Reading) -> dict[str, object]:
    """What must be known to read the trace right."""
    turns = {"turns": reading.turn.line} if reading.turn else {}
    return {"not measured": -1, **turns, **({"thinned": line} if (line := _thinned(reading)) else {})}


def _thinned(reading: Reading) -> str:
    """What a person must know of samples that are not all of one length; empty if there is nothing."""
    from cufall_py.keep import told

    if not reading.keep:
        return ""
    return f"thinned ({told(reading.keep)}): older samples are longer, max is of those they are made of"


def _regions(reading: Reading) -> dict[str, list[Region]]:
    """Those that reach into what is meant."""
    start_ns, end_ns = reading.spans[0][0], reading.spans[-1][1]
    there = {
        name: [region for region in times if region.start_ns < end_ns and start_ns < region.end_ns]
        for name, times in reading.outline.regions.items()
    }
    return {name: times for name, times in there.items() if times}


def _gaps(reading: Reading) -> list[Event]:
    """Those that lie in what is meant."""
    start_ns, end_ns = reading.spans[0][0], reading.spans[-1][1]
    return [gap for gap in reading.outline.gaps if gap.start_ns < end_ns and start_ns < gap.end_ns]


def _page(reading: Reading, builder: Builder, title: str) -> Page:
    from cufall_py.views.html_data import Gap, Gpu, Page

    metrics, readings = builder.pyramids()
    gpus = [
        Gpu(f"g{opened.device.ordinal}", opened.device.name, *_range(periods))
        for opened, periods in zip(reading.opened, reading.outline.periods, strict=True)
    ]
    # one set for all: a metric that a GPU lacks reads NaN there
    sets = [opened.metrics.metrics for opened in reading.opened]
    named = [next((m for m in of if not m.absent), of[0]) for of in zip(*sets, strict=True)]
    return Page(
        title=title,
        gpus=gpus,
        metrics=named,
        pyramid=metrics,
        readings=readings,
        begin_ns=reading.outline.start_ns,
        spans=reading.spans,
        regions=_regions(reading),
        notes=[line for line in (reading.turn.line if reading.turn else "", _thinned(reading)) if line],
        gaps=[Gap(g.gpu or 0, g.start_ns, g.end_ns, int(g.fields.get("samples", 0))) for g in _gaps(reading)],
    )


@contextmanager
def _writing(path: str) -> Iterator[Callable[[str], object]]:
    """What writes text there, piece by piece."""
    with writing(STDOUT if path == "-" else path), click.open_file(path, "wb") as file:
        out = gzip.GzipFile("", "wb", fileobj=file) if path.endswith(".gz") else file
        yield lambda piece: out.write(piece.encode(errors="replace"))  # a name may hold half a character
        if out is not file:
            out.close()
        file.flush()
