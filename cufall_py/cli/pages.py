"""What `report` writes for other programs to open: a page for a browser, a trace for Perfetto."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import click

from cufall_py.errors import InvalidMeasurement
from cufall_py.part import Part

from . import STDOUT, writing

if TYPE_CHECKING:
    from cufall_py.metrics import MetricSet
    from cufall_py.outline import Event, Outline, Region
    from cufall_py.pyramid import Pyramid
    from cufall_py.recording_reader import Recording, Rows
    from cufall_py.resolve import Wanted
    from cufall_py.spans import Span
    from cufall_py.views.html_report import Page

MOST_VALUES = 2_000_000
"""Samples times metrics that a trace has one by one; of more it has the means and maxima of bins."""


@dataclass(frozen=True)
class Shown:
    """The part of a recording that is written, and the metrics that are made of it."""

    recording: Recording
    outline: Outline
    spans: list[Span]
    sets: list[MetricSet]
    title: str

    @property
    def gaps(self) -> list[Event]:
        """Those of a GPU that lie in the part."""
        start_ns, end_ns = self.spans[0][0], self.spans[-1][1]
        return [g for g in self.outline.gaps if g.gpu is not None and g.start_ns < end_ns and start_ns < g.end_ns]

    @property
    def regions(self) -> dict[str, list[Region]]:
        """Those that reach into the part."""
        start_ns, end_ns = self.spans[0][0], self.spans[-1][1]
        there = {
            name: [region for region in times if region.start_ns < end_ns and start_ns < region.end_ns]
            for name, times in self.outline.regions.items()
        }
        return {name: times for name, times in there.items() if times}

    @property
    def values(self) -> int:
        """How many values of a metric the part has, about."""
        length_ns = sum(end - start for start, end in self.spans)
        at_most = int(length_ns / max(self.periods_ns[0], 1))
        return sum(min(at_most, count) for count in self.outline.counts) * len(self.sets[0].metrics)

    @property
    def periods_ns(self) -> tuple[float, float]:
        """The shortest and the longest period that samples come in; 0 without any."""
        ranges = [_range(periods) for periods in self.outline.periods]
        return min((least for least, _ in ranges if least), default=0.0), max(most for _, most in ranges)

    @property
    def thinned(self) -> str:
        """What a person must know of samples that are not all of one length; empty if there is nothing."""
        from cufall_py.keep import told

        if not self.recording.keep:
            return ""
        return f"thinned ({told(self.recording.keep)}): older samples are longer, max is of those they are made of"

    def rows(self) -> Iterator[Rows]:
        """All samples, with the counters of `sets` alone."""
        from cufall_py.recorded_metrics import Picker
        from cufall_py.recording_reader import Rows

        pickers = [Picker(o.metrics, of) for o, of in zip(self.recording.opened, self.sets, strict=True)]
        for item in self.recording.items():
            if isinstance(item, Rows):
                yield replace(item, samples=pickers[item.gpu].of(item.samples))

    def pyramids(self, most_bins: int) -> tuple[Pyramid, Pyramid]:
        from cufall_py.pyramid import bin_length_ns, pyramids

        length_ns = self.spans[-1][1] - self.spans[0][0]
        bin_ns = bin_length_ns(length_ns, self.periods_ns[0], most_bins)
        return pyramids(self.rows(), self.sets, self.spans, bin_ns)


def shown(
    recording: Recording,
    title: str,
    part: Part = Part(),
    wanted: Wanted | None = None,
    outline: Outline | None = None,
) -> Shown:
    """What is to be written of a recording; `wanted`: other metrics than it was taken for, `outline`: if it is known.

    Raises UsageError for a part or metric that it does not have, InvalidMeasurement if there is no sample in the part.
    """
    from cufall_py.recorded_metrics import Recorded, metrics_of

    outline = outline or recording.outline()
    spans = part.spans(outline)
    if not spans:
        raise InvalidMeasurement(f"{title}: no samples in what was asked for")
    sets, _ = metrics_of(wanted or recording.plan.wanted, [Recorded(opened) for opened in recording.opened])
    return Shown(recording, outline, spans, sets, title)


def write_html(what: Shown, path: str) -> None:
    """Write the page to a file, or to stdout for `-`. Raises Unwritable if it takes no more."""
    from cufall_py.views.html_report import html_report, most_bins

    metrics, readings = what.pyramids(most_bins(len(what.sets), len(what.sets[0].metrics)))
    _write(path, [html_report(_page(what, metrics, readings))])


def write_trace(what: Shown, path: str) -> None:
    """Write a Chrome trace to a file (compressed if its name ends in .gz), or to stdout for `-`; errors as above."""
    from cufall_py.export.trace import base_ns, binned, document, sampled, slices

    base, gpus = base_ns(what.spans[0][0]), what.recording.opened
    about: dict[str, object] = {"not measured": -1}
    if what.thinned:
        about["thinned"] = what.thinned
    if what.values <= MOST_VALUES:
        events = sampled(gpus, what.sets, what.rows(), what.spans, base, bool(what.recording.keep))
    else:
        tracks = len(gpus) * len(what.sets[0].metrics)
        metrics, readings = (pyramid.levels[0] for pyramid in what.pyramids(MOST_VALUES // tracks))
        events, about["bins, ns"] = binned(gpus, what.sets, metrics, readings, base), metrics.bin_ns
    _write(path, document(chain(slices(what.regions, base), events), base, about))


def _page(what: Shown, metrics: Pyramid, readings: Pyramid) -> Page:
    from cufall_py.views.html_report import Gap, Gpu, Page

    gpus = [
        Gpu(f"g{opened.device.ordinal}", opened.device.name, *_range(periods))
        for opened, periods in zip(what.recording.opened, what.outline.periods, strict=True)
    ]
    # one set for all: a metric that a GPU lacks reads NaN there
    named = [next((m for m in of if not m.absent), of[0]) for of in zip(*(s.metrics for s in what.sets), strict=True)]
    return Page(
        title=what.title,
        gpus=gpus,
        metrics=named,
        pyramid=metrics,
        readings=readings,
        begin_ns=what.outline.start_ns,
        spans=what.spans,
        regions=what.regions,
        notes=[what.thinned] if what.thinned else [],
        gaps=[Gap(g.gpu or 0, g.start_ns, g.end_ns, int(g.fields.get("samples", 0))) for g in what.gaps],
    )


def _range(periods: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Of a GPU's periods (Outline) the shortest and the longest."""
    known = [period_ns for _, period_ns in periods if period_ns > 0]
    return min(known, default=0.0), max(known, default=0.0)


def _write(path: str, pieces: Iterable[str]) -> None:
    with writing(STDOUT if path == "-" else path), click.open_file(path, "wb") as file:
        out = gzip.GzipFile("", "wb", fileobj=file) if path.endswith(".gz") else file
        for piece in pieces:
            out.write(piece.encode(errors="replace"))  # a name may hold half a character
        if out is not file:
            out.close()
        file.flush()
