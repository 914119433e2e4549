"""Copying what is played of a recording into another one: samples, readings, regions and what happened meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from queue import SimpleQueue

from .metrics import MetricSet
from .outline import OTHER_TURNS, REGION_BEGIN, REGION_END, Event, Region, forward
from .recorded_metrics import Picker
from .recording import RecordingWriter
from .recording_reader import Rows
from .span_frames import summed_counters, touching, within
from .spans import Span, common

NOT_COPIED = ("start", "end", "cost", REGION_BEGIN, REGION_END)
"""What is of the recording as a whole, and regions, which are cut to what is played."""
LASTING = ("server",)
"""Servers (engines/events.py): told once, from then on; told at the begin of what is played, if it was before."""


class Copy:
    """Writes the `spans` of a recording to a new file: of GPU k the metrics `sets[k]`, by `pickers[k]` of its rows.

    Raises as RecordingWriter does.
    """

    def __init__(
        self,
        writer: RecordingWriter,
        sets: Sequence[MetricSet],
        pickers: Sequence[Picker],
        spans: Sequence[Span],
        regions: dict[str, list[Region]],
    ) -> None:
        self._writer, self._pickers, self._spans = writer, pickers, list(spans)
        self._summed = [summed_counters(metrics) for metrics in sets]
        self._regions = deque(_region_events(regions, self._spans))
        self._marks = SimpleQueue[Event]()
        self._waiting: deque[tuple[int | None, Rows | Event]] = deque()
        self._newest_ns = [0] * len(sets)
        self._reasons: dict[int | None, Event] = {}

    def add(self, gpu: int | None, item: Rows | Event) -> None:
        """Take what comes next in the recording, of this GPU or of none."""
        if self._spans and _start_ns(item) < self._spans[-1][1]:
            self._waiting.append((gpu, item))

    def mark(self, event: Event) -> None:
        """Take an event of a region that was not in the recording; from any thread."""
        self._marks.put(event)

    def until(self, end_ns: int) -> None:
        """Write what has been played by then; of rows that reach beyond, none yet."""
        self._write_regions(end_ns)
        while self._waiting and _end_ns(self._waiting[0][1]) <= end_ns:
            self._write(*self._waiting.popleft(), end_ns)

    def close(self, end_ns: int) -> None:
        """Write what lies before `end_ns`, and end the file. May be called more than once."""
        if self._writer.closed:
            return
        try:
            self._write_regions(end_ns)
            while self._waiting:
                self._write(*self._waiting.popleft(), end_ns)
        finally:
            self._writer.close(start_ns=end_ns)  # where regions that are open end, too

    def _write_regions(self, end_ns: int) -> None:
        while self._regions and self._regions[0].start_ns <= end_ns:
            self._write_event(None, self._regions.popleft())
        while not self._marks.empty():
            self._write_event(None, self._marks.get())

    def _write(self, gpu: int | None, item: Rows | Event, end_ns: int) -> None:
        if isinstance(item, Rows):
            assert gpu is not None
            self._write_rows(gpu, item, end_ns)
        elif item.kind == "reasons" and item.start_ns < self._spans[0][0]:
            self._reasons[gpu] = replace(item, start_ns=self._spans[0][0], end_ns=self._spans[0][0])
        elif item.kind == OTHER_TURNS:
            for start_ns, end_ns in common([(item.start_ns, item.end_ns)], self._spans):
                self._write_event(gpu, replace(item, start_ns=start_ns, end_ns=end_ns))
        elif item.kind in LASTING:
            at_ns = max(item.start_ns, self._spans[0][0])
            self._write_event(gpu, replace(item, start_ns=at_ns, end_ns=at_ns))
        elif item.kind not in NOT_COPIED and _lies_in(item, self._spans, end_ns):
            self._write_event(gpu, item)

    def _write_event(self, gpu: int | None, event: Event) -> None:
        self._writer.event(event.kind, gpu=gpu, start_ns=event.start_ns, end_ns=event.end_ns, **event.fields)

    def _write_rows(self, gpu: int, rows: Rows, end_ns: int) -> None:
        rows = rows[forward(rows.samples.start_ns, rows.samples.end_ns, self._newest_ns[gpu])]
        if not len(rows.samples):
            return
        self._newest_ns[gpu] = int(rows.samples.end_ns[-1])
        for span in common(self._spans, [(int(rows.samples.start_ns[0]), min(self._newest_ns[gpu], end_ns))]):
            self._write_span(gpu, rows[touching(rows.samples, span)], span)

    def _write_span(self, gpu: int, rows: Rows, span: Span) -> None:
        """Rows that all lie in a span, at least in part."""
        samples = within(self._pickers[gpu].of(rows.samples), span, self._summed[gpu])
        if (reasons := self._reasons.pop(gpu, None)) is not None:
            self._write_event(gpu, reasons)
        for first, last in pairwise([*rows.steps(), len(samples)]):
            self._writer.set_readings(gpu, float(rows.sm_mhz[first]), float(rows.power_w[first]))
            self._writer.add(gpu, samples[first:last])


def _start_ns(item: Rows | Event) -> int:
    return item.start_ns if isinstance(item, Event) else int(item.samples.start_ns[0])


def _end_ns(item: Rows | Event) -> int:
    return item.end_ns if isinstance(item, Event) else int(item.samples.end_ns[-1])


def _lies_in(event: Event, spans: Sequence[Span], end_ns: int) -> bool:
    return any(start <= event.end_ns and event.start_ns < min(end, end_ns) for start, end in spans)


def _region_events(regions: dict[str, list[Region]], spans: Sequence[Span]) -> Iterator[Event]:
    """Begins and ends of what is played of each region, in order; of one name, the last that began ends first."""
    pieces = [
        (piece, name, region.text)
        for name, times in regions.items()
        for region in times
        for piece in common([(region.start_ns, region.end_ns)], spans)
    ]
    begins = [(start, 1, -end, name, {"name": name, "text": text}) for (start, end), name, text in pieces]
    ends = [(end, 0, 0, name, {"name": name}) for (_, end), name, _ in pieces]
    for at_ns, is_begin, _, _, fields in sorted([*begins, *ends], key=lambda found: found[:4]):
        yield Event(REGION_BEGIN if is_begin else REGION_END, None, at_ns, at_ns, dict(fields))
