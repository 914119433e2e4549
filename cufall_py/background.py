"""A session beside a program: a thread takes what is sampled, while the program names and measures its own time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from .errors import UsageError
from .frames import Frame
from .measured import Measured
from .outline import REGION_BEGIN, REGION_END
from .plan import Plan
from .readings import Reading
from .samples import Samples
from .self_cost import Cost
from .session import TICK_S, LiveSession
from .sources import Opened

STEP_S = 0.005
"""How often the end of a thread is looked for."""
WAIT_S = 1.0
"""How much longer than two decodes the samples of a stretch of time are waited for after its end."""


class BackgroundSession:
    """Samples the GPUs of a plan until closed. Use as a context manager, and from any thread.

    All that it does is done in one thread of its own, which sleeps in between. `say`, which that thread calls, gets
    each line a person should read. With `record`, every sample goes to that file, too, which is written over.
    The thread gives each frame to `on_frame`, and calls `on_tick` many times a second.

    Raises as LiveSession does, and CufallError for a file that cannot be written.
    """

    def __init__(
        self,
        plan: Plan = Plan(),
        say: Callable[[str], None] = lambda line: None,
        record: str = "",
        *,
        on_frame: Callable[[Frame], None] = lambda frame: None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan, self._say, self._record = plan, say, record
        self._on_frame, self._on_tick = on_frame, on_tick
        self._lock, self._measured = threading.Lock(), list[Measured]()
        self._to_flush: SimpleQueue[threading.Event] = SimpleQueue()
        self._came, self._reached_ns = threading.Condition(), 0
        self._begun, self._ending = threading.Event(), threading.Event()
        self._session: LiveSession | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="cufall", daemon=True)
        self._thread.start()
        try:
            self._begun.wait()
        except BaseException:  # an interrupt, as a notebook's: nobody has what could be closed
            self._ending.set()
            raise
        self._check()

    @contextmanager
    def region(self, name: str, text: str = "") -> Iterator[Measured]:
        """Measure the time within, also as a region of the recording, if there is one.

        Regions may nest and repeat. Raises UsageError for an empty name, and what ended the session if it has ended.
        """
        session = self._check()
        if not name.strip():
            raise UsageError("a region needs a name")
        measured = self.measure(name)
        session.mark(REGION_BEGIN, measured.begin_ns, name=name, text=text)
        try:
            yield measured
        finally:
            end_ns = time.time_ns()
            measured.end(end_ns)
            session.mark(REGION_END, end_ns, name=name)

    def measure(self, name: str) -> Measured:
        """Begin to measure a stretch of time that is no region of a recording, until its `end`; raises as `region`."""
        session = self._check()
        wait_s = WAIT_S + 2 * self._plan.decode_ns / 1e9
        with self._lock:
            measured = Measured(name, session.opened, time.time_ns(), lambda gpu: session.gpus[gpu].live, wait_s)
            self._measured.append(measured)
        return measured

    @property
    def opened(self) -> list[Opened]:
        """What is sampled of each GPU."""
        return self._check().opened

    @property
    def plan(self) -> Plan:
        """As it is carried out."""
        return self._check().plan

    def mark(self, kind: str, at_ns: int, **fields: Any) -> None:
        """Have an event written that happened then, if there is a recording."""
        if self._session:
            self._session.mark(kind, at_ns, **fields)

    def flush(self) -> None:
        """Wait until all that was measured until now is in the recording; not long for what does not come."""
        asked_ns, written = time.time_ns(), threading.Event()
        most_s = WAIT_S + (2 * self._plan.decode_ns + 2 * self._plan.frame_ns) / 1e9
        with self._came:
            self._came.wait_for(lambda: self._reached_ns >= asked_ns or self.ended, most_s)
        self._to_flush.put(written)
        while not self.ended and not written.wait(TICK_S):
            pass
        self._check()

    @property
    def ended(self) -> bool:
        """Whether nothing more comes: it was closed, or something ended it."""
        return not self._thread.is_alive()

    def summary(self) -> list[str]:
        """What was measured and what it took, a line each for a person."""
        return self._check().summary()

    def reading(self, gpu: int) -> Reading:
        """What NVML read last of the GPU at this position."""
        return self._check().reading(gpu)

    def close(self) -> Cost:
        """End sampling and the recording, and give the counters back; what it took. May be called more than once.

        Raises what ended the session before, CufallError if the recording could not be ended, InvalidMeasurement
        if a GPU gave nothing, or nothing at the end.
        """
        self._end()
        session = self._check()
        session.check()
        return session.cost()

    def __enter__(self) -> BackgroundSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if self._error and not error:
            raise self._error

    def _end(self) -> None:
        self._ending.set()
        wait_for(self._thread)

    def _check(self) -> LiveSession:
        if self._error:
            raise self._error
        assert self._session
        return self._session

    def _run(self) -> None:
        """Of the thread, whose processor time is what the session takes of this process."""
        try:
            with LiveSession(self._plan, self._say, self._take, cpu_s=time.thread_time) as session:
                self._session = session
                if self._record:
                    session.record(self._record, force=True)
                self._begun.set()
                for frame in session.frames(tick=self._tick):
                    self._take_frame(frame)
        except _Enough:
            pass
        except BaseException as error:  # told to whoever asks next
            self._error = error
        finally:
            self._begun.set()
            for measured in self._measured:
                measured.give_up()

    def _take_frame(self, frame: Frame) -> None:
        self._on_frame(frame)
        with self._came:
            self._reached_ns = frame.end_ns
            self._came.notify_all()
        self._tick()

    def _tick(self) -> None:
        self._on_tick()
        while not self._to_flush.empty():
            written = self._to_flush.get()
            assert self._session
            self._session.flush()
            written.set()
        if self._ending.is_set():
            raise _Enough

    def _take(self, gpu: int, samples: Samples) -> None:
        assert self._session
        with self._lock:
            self._measured = [measured for measured in self._measured if not measured.complete]
            for measured in self._measured:
                measured.add(gpu, samples, self._session.opened[gpu].metrics)


def wait_for(thread: threading.Thread, most_s: float = math.inf) -> bool:
    """Wait for the end of a thread; whether it came. An interrupted `join` takes a thread that runs for ended (Python
    3.10 to 3.12), so that nobody could wait for it again."""
    until_s = time.monotonic() + most_s
    while (alive := thread.is_alive()) and time.monotonic() < until_s:
        time.sleep(STEP_S)
    return not alive


class _Enough(Exception):
    """It was closed."""
