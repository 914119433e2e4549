"""From a recording to the statistics of each GPU, metric and window of time; read once, batch by batch.

Windows are the regions, and the whole run: of that (of its region `command`, if it has one) the time in which the GPU
was active, where a metric that tells so was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.errors import UsageError
from cufall_py.metrics import Metric, MetricSet
from cufall_py.outline import Event, Outline, forward
from cufall_py.recorded_metrics import Recorded, metrics_of
from cufall_py.recording_reader import Recording, Rows
from cufall_py.resolve import Wanted
from cufall_py.samples import Floats, Samples
from cufall_py.saying import Say
from cufall_py.sources import Opened
from cufall_py.span_frames import within
from cufall_py.spans import Span, union

from .streamed import Chunk, Statistic, statistic

WHOLE_RUN = ""
"""As the name of a window."""
COMMAND = "command"
ACTIVITY, ACTIVE_ABOVE = ("gr", "sm"), 0.01
"""A GPU is active in a sample in which one of these is above that."""
IDLE_BIT = 1
"""Of NVML's clock event reasons, the one that holds nothing back."""
MEAN = "mean"


@dataclass(frozen=True)
class Key:
    """What a statistic is of: a window's name, a metric's label, the statistic's name."""

    window: str
    metric: str
    statistic: str


@dataclass(frozen=True)
class Conditions:
    """What a GPU ran at, over the whole run: its mean SM clock, the share of time in which something held the clocks
    back, and NVML's bits of what did. NaN: not known."""

    sm_mhz: float
    throttled: float
    reasons: int


@dataclass(frozen=True)
class GpuRun:
    """One GPU in one run. `periods_ns`: the lengths of its samples; more than one if it was thinned."""

    name: str
    periods_ns: tuple[float, ...]
    metrics: dict[str, Metric]
    conditions: Conditions
    of_active_time: bool
    statistics: dict[Key, Statistic]


@dataclass(frozen=True)
class Run:
    """A recording: its GPUs by ordinal, its regions, whether its whole run is its region `command`."""

    path: str
    gpus: dict[int, GpuRun]
    regions: tuple[str, ...]

    @property
    def of_command(self) -> bool:
        return COMMAND in self.regions


@dataclass(frozen=True)
class Sides:
    """What is compared: one or more runs each."""

    base: list[Run]
    new: list[Run]

    @property
    def runs(self) -> list[Run]:
        return [*self.base, *self.new]

    @property
    def gpus(self) -> list[int]:
        """Those that every run has."""
        return sorted(set.intersection(*(set(run.gpus) for run in self.runs)))


def read(path: str, asked: Sequence[Key], say: Say) -> Run:
    """The means of all that was recorded, and what is `asked` beside: metrics by label or as they are asked for.

    Raises CufallError for a file that cannot be read, UsageError for a metric that cannot be made of it.
    """
    recording = Recording(path, say)
    outline = recording.outline()
    sets = _sets(path, recording.opened, [key.metric for key in asked], say)
    readers = [_Reader(o, s, asked, outline) for o, s in zip(recording.opened, sets, strict=True)]
    for item in recording.items():
        if item.gpu is not None:
            readers[item.gpu].add(item)
    gpus = {
        reader.ordinal: reader.result(tuple(period_ns for _, period_ns in periods))
        for reader, periods in zip(readers, outline.periods, strict=True)
    }
    return Run(path, gpus, tuple(outline.regions))


def _sets(path: str, opened: Sequence[Opened], asked: Sequence[str], say: Say) -> list[MetricSet]:
    """What was recorded of each GPU, and the asked metrics that were not but can be made of it."""
    there = {word for o in opened for m in o.metrics.metrics for word in (m.label, m.asked)}
    more = tuple(name for name in dict.fromkeys(asked) if name not in there)
    if not more:
        return [o.metrics for o in opened]
    try:
        made, lines = metrics_of(Wanted(more), [Recorded(o) for o in opened])
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    for line in lines:
        say(f"{path}: {line}")
    return [
        MetricSet(o.metrics.counters, (*o.metrics.metrics, *extra.metrics))
        for o, extra in zip(opened, made, strict=True)
    ]


class _Reader:
    """Takes the rows and events of one GPU in file order."""

    def __init__(self, opened: Opened, metrics: MetricSet, asked: Sequence[Key], outline: Outline) -> None:
        self.ordinal, self._name = opened.device.ordinal, opened.device.name
        self._metrics = metrics
        self._activity = MetricSet(metrics.counters, tuple(_activity(opened)))
        rates = {m.counters[0] for m in (*metrics.metrics, *self._activity.metrics) if m.rate}
        self._summed = np.array([name not in rates for name in metrics.counters], bool)
        regions = {name: union((r.start_ns, r.end_ns) for r in times) for name, times in outline.regions.items()}
        self._windows = {WHOLE_RUN: regions.get(COMMAND, outline.spans), **regions}
        self._statistics = {
            key: (k, statistic(key.statistic))
            for window in self._windows
            for k, metric in enumerate(metrics.metrics)
            for key in _keys(window, metric, asked)
            if not metric.absent
        }
        self._conditions = _Conditions()
        self._reached_ns = 0

    def add(self, item: Rows | Event) -> None:
        if isinstance(item, Event):
            self._conditions.note(item)
            return
        ahead = forward(item.samples.start_ns, item.samples.end_ns, self._reached_ns)
        samples, sm_mhz = item.samples[ahead], item.sm_mhz[ahead]
        if len(samples):
            self._reached_ns = int(samples.end_ns[-1])
            for window, spans in self._windows.items():
                for span in _touched(spans, samples):
                    self._take(window, span, samples, sm_mhz)

    def result(self, periods_ns: tuple[float, ...]) -> GpuRun:
        statistics = {key: found for key, (_, found) in self._statistics.items() if found.count}
        metrics = {metric.label: metric for metric in self._metrics.metrics}
        active = bool(self._activity.metrics)
        return GpuRun(self._name, periods_ns, metrics, self._conditions.result(), active, statistics)

    def _take(self, window: str, span: Span, samples: Samples, sm_mhz: Floats) -> None:
        rows = _rows(span, samples)
        before, part = samples[rows], within(samples, span, self._summed)
        length_ns = part.end_ns - part.start_ns
        whole: NDArray[np.bool_] = (before.start_ns == part.start_ns) & (before.end_ns == part.end_ns)
        amounts = self._metrics.extend(part.values, length_ns)
        counted: NDArray[np.bool_] = np.ones(len(part), np.bool_)
        if window == WHOLE_RUN:
            counted = self._is_active(part)
            self._conditions.add(part[counted], sm_mhz[rows][counted])
        tops, bottoms = self._metrics.parts(amounts)
        for key, (k, of) in self._statistics.items():
            if key.window == window:
                chunk = Chunk(tops[:, k], bottoms[:, k], length_ns.astype(np.float64), whole)
                of.add(chunk.only(counted).measured())

    def _is_active(self, part: Samples) -> NDArray[np.bool_]:
        if not self._activity.metrics:
            return np.ones(len(part), np.bool_)
        most: Floats = np.fmax.reduce(self._activity.quotients(part.values, part.end_ns - part.start_ns), axis=1)
        return most > ACTIVE_ABOVE


class _Conditions:
    """Adds up clocks and what held them back, by the time of samples."""

    def __init__(self) -> None:
        self._known_ns = self._cycles = self._time_ns = self._throttled_ns = 0.0
        self._changes: list[tuple[int, int]] = [(0, 0)]
        self._reasons = 0
        self._told = False

    def note(self, event: Event) -> None:
        if event.kind == "reasons":
            bits = int(event.fields.get("bits", 0)) & ~IDLE_BIT
            self._changes.append((max(event.start_ns, self._changes[-1][0]), bits))
            self._told = True

    def add(self, samples: Samples, sm_mhz: Floats) -> None:
        length_ns = (samples.end_ns - samples.start_ns).astype(np.float64)
        known = np.isfinite(sm_mhz)
        self._known_ns += float(length_ns[known].sum())
        self._cycles += float(length_ns[known] @ sm_mhz[known])
        starts, bits = np.array([at for at, _ in self._changes]), np.array([b for _, b in self._changes])
        held = bits[np.searchsorted(starts, samples.start_ns, side="right") - 1]
        self._time_ns += float(length_ns.sum())
        self._throttled_ns += float(length_ns[held != 0].sum())
        self._reasons |= int(np.bitwise_or.reduce(held, initial=0))

    def result(self) -> Conditions:
        known = self._told or self._known_ns > 0
        throttled = self._throttled_ns / self._time_ns if known and self._time_ns else math.nan
        return Conditions(self._cycles / self._known_ns if self._known_ns else math.nan, throttled, self._reasons)


def _keys(window: str, metric: Metric, asked: Sequence[Key]) -> list[Key]:
    names = (metric.label, metric.asked)
    beside = [key.statistic for key in asked if key.window == window and key.metric in names]
    return [Key(window, metric.label, name) for name in dict.fromkeys([MEAN, *beside])]


def _activity(opened: Opened) -> list[Metric]:
    """The metrics that tell whether this GPU was active, of those that can be made of what was recorded."""
    found = [m for m in opened.metrics.metrics if m.label in ACTIVITY and not m.absent and not m.plain]
    for name in {*ACTIVITY} - {m.label for m in found}:
        try:
            found.append(Recorded(opened).metric(name, Wanted((name,))))
        except UsageError:
            pass  # it was not recorded
    return found


def _touched(spans: Sequence[Span], samples: Samples) -> Sequence[Span]:
    """Of spans (apart and in order) those that these samples lie in."""
    first = np.searchsorted([end for _, end in spans], samples.start_ns[0], side="right")
    last = np.searchsorted([start for start, _ in spans], samples.end_ns[-1], side="left")
    return spans[first:last]


def _rows(span: Span, samples: Samples) -> slice:
    """Those that `within` cuts to the span."""
    first = int(np.searchsorted(samples.end_ns, span[0], side="right"))
    return slice(first, int(np.searchsorted(samples.start_ns, span[1], side="left")))
