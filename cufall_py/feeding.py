"""Summaries of windows of a session's time, written to a sink as the program runs.

A window is summed up from its samples as a region is (measured.py), so that its means are quotients of sums. The next
begins where it ended, before it is written: however slow a sink is, nothing is left out, windows only become longer.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from .analysis.summary import Summary
from .attachment import Attachment
from .background import BackgroundSession, wait_for
from .engines.rates import Interval
from .errors import CufallError, UsageError
from .measured import Measured
from .requirements import STATISTICS
from .saying import Say
from .served import COUNTERS, GAUGES, LATENCIES, gauge, latency, total
from .sinks import Sink

LEAST_S, MOST_S = 1.0, 600.0
"""How long windows may be: trackers are not made for more, and only so much of what servers said is kept."""
LAST_S = 10.0
"""How long the last window may take to be written."""


def log_to(
    session: BackgroundSession | Attachment,
    sink: Sink,
    every_s: float = LEAST_S,
    statistics: Sequence[str] = ("mean",),
    say: Say = lambda line: None,
) -> Feeder:
    """Write a summary of each `every_s` seconds to a sink, in the background, for as long as the `with` of it lasts.

    Of each GPU its `coverage` and these `statistics` (of docs/report.md) of its metrics; of each server that is
    attached to, what it said. `say` gets each line a person should read.

    Raises UsageError for what cannot be, and what ended the session, if it has ended.
    """
    if not isinstance(session, (BackgroundSession, Attachment)):
        raise UsageError(
            "log_to takes what attach or Session give, or a BackgroundSession, which have threads of their own"
        )
    if not LEAST_S <= every_s <= MOST_S:
        raise UsageError(f"every_s={every_s:g}: from {LEAST_S:g} to {MOST_S:g} seconds")
    if unknown := [name for name in statistics if name not in STATISTICS]:
        raise UsageError(f"no statistic {unknown[0]}; there are mean, min, max, p1 to p99 and more (docs/report.md)")
    return Feeder(session, sink, every_s, statistics, say)


class Feeder:
    """A thread that writes windows of a session to a sink, asleep in between. Use as a context manager.

    `written`, `lost`: windows that the sink took, and that it did not.
    """

    def __init__(
        self,
        session: BackgroundSession | Attachment,
        sink: Sink,
        every_s: float,
        statistics: Sequence[str],
        say: Say,
    ) -> None:
        self.written, self.lost = 0, 0
        self._session, self._sink, self._every_s, self._statistics = session, sink, every_s, tuple(statistics)
        self._say, self._why, self._owner = say, "", os.getpid()
        self._servers = _Servers(session) if isinstance(session, Attachment) else None
        self._end, self._closed, self._second = threading.Event(), False, 0
        self._first = session.measure("window")
        self._thread = threading.Thread(target=self._run, name="cufall-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what there is yet, and close the sink; may be called more than once.

        Raises CufallError if the sink has taken no window at all.
        """
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        self._end.set()
        try:
            over = wait_for(self._thread, LAST_S)
        except BaseException:  # an interrupt, as a notebook's: it is there to be closed again
            self._closed = False
            raise
        if not over:
            self._tell(f"has not taken the last window in {LAST_S:g} s")
            return
        try:
            self._sink.close()
        except Exception as error:
            self._tell(f"could not be closed ({_line(error)})")
        if self.lost and not self.written:
            raise CufallError(f"{self._name} took none of {self.lost} windows: {self._why}")

    def __enter__(self) -> Feeder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except CufallError as failed:
            if not error:
                raise
            self._say(str(failed))

    async def __aenter__(self) -> Feeder:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _run(self) -> None:
        window: Measured | None = self._first
        begun_s = time.monotonic()
        while window:
            self._end.wait(max(0.0, begun_s + self._every_s - time.monotonic()))
            begun_s = time.monotonic()
            after = self._next()
            end_ns = after.begin_ns if after else time.time_ns()
            window.end(end_ns)
            self._write(window.all(), end_ns)
            window = after

    def _next(self) -> Measured | None:
        """The window after this; None if this is the last, or the session has ended, which it tells by itself."""
        if self._end.is_set() or self._session.ended:
            return None
        try:
            return self._session.measure("window")
        except CufallError:
            return None

    def _write(self, summary: Summary, end_ns: int) -> None:
        values = of_gpus(summary, self._statistics) | (self._servers.newest() if self._servers else {})
        if not values:
            return
        self._second = max(self._second + 1, round((end_ns - self._first.begin_ns) / 1e9))
        try:
            self._sink.write(self._second, end_ns, values)
        except BaseException as error:  # whatever becomes of a tracker, the program and its measurement go on
            self.lost += 1
            if not self._why:
                self._tell(f"does not take a window: {_line(error)}")
            self._why = _line(error)
            return
        self.written += 1
        self._why = ""

    def _tell(self, line: str) -> None:
        self._say(f"{self._name} {line}")

    @property
    def _name(self) -> str:
        return type(self._sink).__name__


class _Servers:
    """What the servers of an attachment have said since the last time."""

    def __init__(self, attached: Attachment) -> None:
        now_ns = time.monotonic_ns()
        self._attached, self._until_ns = attached, [now_ns] * len(attached.servers)

    def newest(self) -> dict[str, float]:
        values: dict[str, float] = {}
        for k, after_ns in enumerate(self._until_ns):
            if found := self._attached.intervals(k, after_ns):
                self._until_ns[k] = found[-1].after.monotonic_ns
                values |= of_server(k, found)
        return values


def of_gpus(summary: Summary, statistics: Sequence[str]) -> dict[str, float]:
    """`cufall/gpu0/tensor.mean`, each GPU by its CUDA ordinal, and its coverage; without what was not measured."""
    values: dict[str, float] = {}
    for subject, row in zip(summary.subjects, summary.scopes[0].rows, strict=True):
        values[f"cufall/gpu{subject.ordinal}/coverage"] = row.coverage
        for of in row.metrics:
            for name in statistics:
                values[f"cufall/gpu{subject.ordinal}/{of.label}.{name}"] = STATISTICS[name](of)
    return _known(values)


def of_server(k: int, intervals: Sequence[Interval]) -> dict[str, float]:
    """`cufall/server0/running`, of the times between these scrapes; without what the server does not say."""
    values = {name: gauge(intervals, name) for name in GAUGES}
    for name in COUNTERS:
        if rate := total(intervals, name):
            values[f"{name}_per_s"] = rate.per_s
    for name in LATENCIES:
        if found := latency(intervals, name):
            values[name] = found.mean_s
    return _known({f"cufall/server{k}/{name}": value for name, value in values.items()})


def _known(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _line(error: BaseException) -> str:
    """An error of a library in a line."""
    try:
        text = str(error)
    except Exception:  # it is somebody else's, and what it is called is enough
        text = ""
    return ": ".join(filter(None, [type(error).__name__, text.strip().partition("\n")[0]]))
