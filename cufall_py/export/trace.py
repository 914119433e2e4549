"""Samples, readings and regions as a Chrome trace (JSON), as Perfetto and chrome://tracing open it.

Its clock is that of a PyTorch profiler trace: `ts` are microseconds since `baseTimeNanoseconds`, and that is where
PyTorch's profiler (kineto, ChromeTraceBaseTime) puts it for a process that starts then: at a multiple of three months,
so that a double holds every nanosecond. So the two can be laid on one another as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cufall_py.devices import Device
from cufall_py.metrics import MetricSet
from cufall_py.outline import Region
from cufall_py.pyramid import Level
from cufall_py.recording_reader import Rows
from cufall_py.samples import Floats, Ints
from cufall_py.sources import Opened
from cufall_py.span_frames import summed_counters, within
from cufall_py.spans import Span

TRIMESTER_NS = 7_889_238 * 1_000_000_000
NOT_MEASURED = -1.0
"""What a counter shows where nothing was measured: the format has no gaps, and no share or clock is below 0."""
FIRST_PID = 100_000_000
"""Greater than any process or GPU of another trace of the same run."""
GAP_NS = 1_000
"""Samples join to the nanosecond; what is further apart is told as not measured."""


def base_ns(start_ns: int) -> int:
    """Where PyTorch's profiler would begin to count at this time."""
    return start_ns // TRIMESTER_NS * TRIMESTER_NS


READING_TRACKS = (("SM clock", "MHz"), ("power", "W"))


class Counter:
    """One counter track: `g0 tensor`, in `unit`, of the process `pid`. Values that stay the same are told once."""

    def __init__(self, pid: int, name: str, unit: str, base_ns: int) -> None:
        self._head = f'{{"ph":"C","pid":{pid},"tid":0,"name":{json.dumps(name)},"ts":'
        self._args = f',"args":{{{json.dumps(unit)}:'
        self._base_ns, self._end_ns, self._last = base_ns, 0, NOT_MEASURED

    def add(self, start_ns: Ints, end_ns: Ints, values: Floats) -> Iterator[str]:
        """The events of values (n,) that were so from start to end; NaN is not measured."""
        values = np.where(np.isfinite(values), np.round(values, 4), NOT_MEASURED)
        apart = start_ns - np.concatenate(([self._end_ns], end_ns[:-1])) > GAP_NS
        changed = values != np.concatenate(([self._last], values[:-1]))
        for k in np.flatnonzero(apart | changed).tolist():
            if apart[k]:
                yield from self._nothing(self._end_ns if k == 0 else int(end_ns[k - 1]))
            if values[k] != self._last:
                yield self._event(int(start_ns[k]), float(values[k]))
        self._end_ns = int(end_ns[-1])

    def end(self) -> Iterator[str]:
        """What follows the last value."""
        return self._nothing(self._end_ns)

    def _nothing(self, at_ns: int) -> Iterator[str]:
        if self._last != NOT_MEASURED:
            yield self._event(at_ns, NOT_MEASURED)

    def _event(self, at_ns: int, value: float) -> str:
        self._last = value
        return f"{self._head}{_us(at_ns - self._base_ns)}{self._args}{value:.10g}}}}}"


class Sampled:
    """Every sample that lies in `spans`, of the metrics of `gpus`, and the readings beside it, as events.

    Of a recording that was `thinned` also the greatest of the samples that a longer one is made of, in tracks of their
    own.
    """

    def __init__(self, gpus: Sequence[Opened], spans: Sequence[Span], base_ns: int, thinned: bool = False) -> None:
        self._sets, self._spans, self._thinned = [gpu.metrics for gpu in gpus], spans, thinned
        self._tracks = [_Tracks(k, gpu.device, gpu.metrics, base_ns, greatest=thinned) for k, gpu in enumerate(gpus)]
        self._summed = [summed_counters(metrics) for metrics in self._sets]

    def begin(self) -> Iterator[str]:
        return _processes(self._tracks)

    def add(self, rows: Rows) -> Iterator[str]:
        samples = rows.samples
        for span in self._spans:
            part = within(samples, span, self._summed[rows.gpu])
            if len(part):
                first = int(np.searchsorted(samples.end_ns, part.start_ns[0], side="right"))
                told = np.stack([rows.sm_mhz, rows.power_w], axis=1)[first : first + len(part)]
                quotients = self._sets[rows.gpu].quotients(part.values, part.end_ns - part.start_ns)
                if self._thinned:
                    quotients = np.concatenate([quotients, part.extremes(quotients)[1]], axis=1)
                yield from self._tracks[rows.gpu].add(part.start_ns, part.end_ns, quotients, told)

    def end(self) -> Iterator[str]:
        for track in self._tracks:
            yield from track.end()


def binned(gpus: Sequence[Opened], metrics: Level, readings: Level, base_ns: int) -> Iterator[str]:
    """The same in bins: the mean of each, and in tracks of their own the greatest sample."""
    tracks = [_Tracks(k, gpu.device, gpu.metrics, base_ns, greatest=True) for k, gpu in enumerate(gpus)]
    yield from _processes(tracks)
    start_ns = metrics.start_ns + metrics.bin_ns * np.arange(len(metrics), dtype=np.int64)
    for k, track in enumerate(tracks):
        values = np.concatenate([metrics.mean[k], metrics.maximum[k]], axis=1)
        yield from track.add(start_ns, start_ns + metrics.bin_ns, values, readings.mean[k])
        yield from track.end()


class _Tracks:
    """The counters of one GPU, a process of the trace."""

    def __init__(self, gpu: int, device: Device, metrics: MetricSet, base_ns: int, greatest: bool = False) -> None:
        self.pid, self.name = FIRST_PID + gpu, f"GPU {device.ordinal} {device.name} (cufall)"
        self._scale = np.array([1.0 if m.plain else 100.0 for m in metrics.metrics] * (1 + greatest))
        units = [(m.unit if m.plain else "%") for m in metrics.metrics]
        names = [f"g{device.ordinal} {m.label}" for m in metrics.metrics]
        of_metrics = [*zip(names, units, strict=True)]
        if greatest:
            of_metrics += [(f"{name} max", unit) for name, unit in of_metrics]
        of_readings = [(f"g{device.ordinal} {name}", unit) for name, unit in READING_TRACKS]
        self._metrics, self._readings = (
            [Counter(self.pid, name, unit or "value", base_ns) for name, unit in of] for of in (of_metrics, of_readings)
        )

    def add(self, start_ns: Ints, end_ns: Ints, values: Floats, readings: Floats) -> Iterator[str]:
        """`values` (n, metrics), `readings` (n, 2): SM clock and power."""
        for counters, columns in ((self._metrics, (values * self._scale).T), (self._readings, readings.T)):
            for counter, column in zip(counters, columns, strict=True):
                yield from counter.add(start_ns, end_ns, column)

    def end(self) -> Iterator[str]:
        for counter in (*self._metrics, *self._readings):
            yield from counter.end()


def _processes(tracks: Sequence[_Tracks]) -> Iterator[str]:
    for order, track in enumerate(tracks):
        yield _line("process_name", track.pid, {"name": track.name})
        yield _line("process_sort_index", track.pid, {"sort_index": order})


def slices(regions: Mapping[str, Sequence[Region]], base_ns: int) -> Iterator[str]:
    """Regions, a thread for each name, and further ones where those of a name overlap."""
    pid, tid = FIRST_PID - 1, 0
    if regions:
        yield _line("process_name", pid, {"name": "regions (cufall)"})
    for name, times in regions.items():
        for lane in _lanes(times):
            tid += 1
            yield _line("thread_name", pid, {"name": name}, tid)
            yield from (_slice(pid, tid, name, region, base_ns) for region in lane)


class Document:
    """The file, given to `write` in pieces; `about` is told in its `otherData`."""

    def __init__(self, write: Callable[[str], object], base_ns: int, about: dict[str, Any]) -> None:
        head = {"displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns, "otherData": about}
        self._write, self._before = write, "\n"
        write(json.dumps(head, allow_nan=False)[:-1] + ', "traceEvents": [')

    def add(self, events: Iterable[str]) -> None:
        for event in events:
            self._write(self._before + event)
            self._before = ",\n"

    def end(self) -> None:
        self._write("\n]}\n")


def _lanes(regions: Iterable[Region]) -> list[list[Region]]:
    lanes: list[list[Region]] = []
    for region in sorted(regions, key=lambda r: (r.start_ns, -r.end_ns)):
        free = next((lane for lane in lanes if lane[-1].end_ns <= region.start_ns), None)
        if free is None:
            lanes.append(free := [])
        free.append(region)
    return lanes


def _slice(pid: int, tid: int, name: str, region: Region, base_ns: int) -> str:
    times = f'"ts":{_us(region.start_ns - base_ns)},"dur":{_us(region.end_ns - region.start_ns)}'
    args = json.dumps({"text": region.text} if region.text else {})
    return f'{{"ph":"X","cat":"region","pid":{pid},"tid":{tid},"name":{json.dumps(name)},{times},"args":{args}}}'


def _line(kind: str, pid: int, args: dict[str, Any], tid: int = 0) -> str:
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args})


def _us(ns: int) -> str:
    """Exact: a float would round."""
    whole, rest = divmod(max(ns, 0), 1000)
    return f"{whole}.{rest:03d}"
