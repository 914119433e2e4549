"""Recording without a view: from the start until the duration, the command's end or a signal, whatever the source."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from .child import PASSED_ON, Child
from .errors import CufallError, error_of
from .marks import Mark, MarksSocket, clear_stale
from .outline import REGION_BEGIN, REGION_END
from .saying import Say

COMMAND, DURATION = "command", "duration"
"""The regions in which a wrapped command ran, and of a duration that was asked for."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK_S = 0.05


class Frame(Protocol):
    """A frame, of which only its time matters here (Unix epoch)."""

    @property
    def start_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...


class Recordable(Protocol):
    """What can be recorded: GPUs that are sampled (LiveSession), or a part of a recording (Playback)."""

    @property
    def length_s(self) -> float | None:
        """From the first frame to the last; None where GPUs are sampled until somebody ends it."""

    def frames(self, duration_s: float = 0.0, tick: Callable[[], None] | None = None) -> Iterator[Frame]:
        """As many as `duration_s` has, or to the end; `tick` is called many times a second while there is none."""

    def moment(self, at_ns: int) -> int:
        """What the clock of the recording shows when this machine's shows `at_ns`."""

    def mark(self, kind: str, at_ns: int, **fields: str) -> None:
        """Have an event written, of the recording's time; from any thread."""

    def check(self) -> None:
        """After the close: raise InvalidMeasurement if it was no valid measurement."""

    def close(self) -> None:
        """May be called more than once."""


@dataclass(frozen=True)
class Wishes:
    """What is to be recorded, in seconds: `duration_s` 0 for no end. `command`: its words, or none."""

    command: tuple[str, ...] = ()
    duration_s: float = 0.0
    warmup_s: float = 0.0
    cooldown_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """How it ended, as an exit code and in words; `own`: that is the command's, whatever its number means here."""

    exit_code: int
    why: str
    own: bool = False


class Signals:
    """From now on, in the main thread, notes the signals that end a recording, and passes on to `child` what it gets.

    The first that ends waits for the command; the second ends the recording all the same; one more ends the process,
    which `leave` does.
    """

    def __init__(self, with_command: bool, leave: Callable[[int], object]) -> None:
        self._leave = leave
        self.child: Child | None = None
        self.ending: list[int] = []
        self._unsent: list[int] = []
        for number in PASSED_ON if with_command else ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
                signal.signal(number, self._on)

    def start(self, words: Sequence[str]) -> Child:
        """The command, started; a signal that comes meanwhile is for it, too. Raises CufallError if it cannot be."""
        self._unsent.clear()
        self.child = child = Child(words)
        for number in self._unsent:
            child.send(number)
        return child

    def _on(self, number: int, _: FrameType | None) -> None:
        running = self.child is not None and self.child.running
        if self.child:
            self.child.send(number)
        else:
            self._unsent.append(number)
        if number in ENDING:
            self.ending.append(number)
            if len(self.ending) > (2 if running else 1):
                self._leave(number)


class Duration:
    """Marks the time of the frames that were asked for, which is shorter than what is recorded: GPUs start one after
    the other, and the first frame waits for all."""

    def __init__(self, mark: Callable[..., None]) -> None:
        self._mark, self._reached_ns = mark, 0
        self._first: Frame | None = None

    def take(self, frame: Frame) -> None:
        if not self._first:
            self._first = frame
            self._mark(REGION_BEGIN, frame.start_ns, name=DURATION, text="")
        self._reached_ns = frame.end_ns

    def complete(self, duration_s: float) -> None:
        """It lasted so long, in whole frames: between sets in turn there are none, which may be the end of it."""
        if self._first:
            frame_ns = self._first.end_ns - self._first.start_ns
            asked_ns = round(1e9 * duration_s) // frame_ns * frame_ns
            self._reached_ns = max(self._reached_ns, self._first.start_ns + asked_ns)

    def end(self) -> None:
        """With all that was asked for or the frame that was taken last, if any was."""
        if self._reached_ns:
            self._mark(REGION_END, self._reached_ns, name=DURATION)


class Recorder:
    """Takes the frames of a source that is being recorded, beside a command if one is wished for.

    `say` gets lines for a person; `progress` is called many times a second.
    """

    def __init__(
        self,
        source: Recordable,
        wishes: Wishes,
        signals: Signals,
        say: Say,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._source, self._wishes, self._signals = source, wishes, signals
        self._say, self._progress = say, progress
        self._child: Child | None = None
        self._begin_ns = self._end_ns = 0
        self._in_region = False
        timed = bool(wishes.duration_s) and not wishes.command and source.length_s is None
        self._duration = Duration(source.mark) if timed else None
        self._marked = Counter[str]()

    def run(self) -> Outcome:
        """Record, close the source, wait for the command."""
        with self._marks():
            failure = error_of(self._record)
        closing = error_of(self._source.close)
        failure = failure or closing or error_of(self._source.check)
        if self._child and self._child.running:
            self._say(f"{failure or 'the recording is done'}; the command goes on")
        self._wait()
        return self._outcome(failure)

    def _marks(self) -> ExitStack:
        """Within it, marks are taken."""
        stack = ExitStack()
        try:
            clear_stale()
            stack.enter_context(MarksSocket(self._take))
        except OSError as error:
            self._say(f"cufall mark cannot reach this recording: {error.strerror}")
        return stack

    def _take(self, mark: Mark) -> None:
        """A mark; an end of what is not open, as of what began before this recording, is none."""
        if mark.end and not self._marked[mark.name]:
            return
        self._marked[mark.name] += -1 if mark.end else 1
        at_ns = self._source.moment(mark.at_ns)
        if mark.end:
            self._source.mark(REGION_END, at_ns, name=mark.name)
        else:
            self._source.mark(REGION_BEGIN, at_ns, name=mark.name, text=mark.text)

    def _record(self) -> None:
        try:
            for frame in self._source.frames(self._wishes.duration_s, self._tick):
                if self._duration:
                    self._duration.take(frame)
                self._tick()
            if self._duration:
                self._duration.complete(self._wishes.duration_s)
        except _Enough:
            pass
        finally:
            if self._duration:
                self._duration.end()

    def _tick(self) -> None:
        """Raises _Enough when it is."""
        signalled = self._signals.ending
        if self._wishes.command and not self._child and not signalled:
            self._start()
        if self._child:
            self._follow(self._child)
        if len(signalled) > 1 or (signalled and not (self._child and self._child.running)):
            raise _Enough
        self._progress()

    def _start(self) -> None:
        self._child = child = self._signals.start(self._wishes.command)
        self._begin_ns = self._source.moment(child.began_ns) + round(1e9 * self._wishes.warmup_s)

    def _follow(self, child: Child) -> None:
        """Raises _Enough when the command has ended and the cool-down is over."""
        now_ns = self._source.moment(time.time_ns())
        if not self._end_ns:
            self._note_region(now_ns, child.ended_ns and self._source.moment(child.ended_ns))
        if self._end_ns and now_ns >= self._end_ns + 1e9 * self._wishes.cooldown_s:
            raise _Enough

    def _note_region(self, now_ns: int, end_ns: int) -> None:
        """Begin and end the command's region when it is time to; `end_ns` 0: the command runs."""
        if not self._in_region and self._begin_ns < (end_ns or now_ns):
            self._in_region = True
            self._source.mark(REGION_BEGIN, self._begin_ns, name=COMMAND, text="")
        self._end_ns = end_ns
        if end_ns and self._in_region:
            self._source.mark(REGION_END, end_ns, name=COMMAND)
        elif end_ns:
            self._say(f"the command ended within its warm-up: the recording has no region {COMMAND}")

    def _wait(self) -> None:
        """Until the command has ended, or nobody wants that to be waited for."""
        while self._child and self._child.running and len(self._signals.ending) < 2:
            time.sleep(TICK_S)
        if self._child and self._child.running:
            self._say(f"the command (process {self._child.pid}) still runs")

    def _outcome(self, failure: CufallError | None) -> Outcome:
        """The first that applies, top down, of the table of exit codes."""
        if ending := self._signals.ending:
            return Outcome(128 + ending[0], f"ended by {signal.Signals(ending[0]).name}")
        if self._child and (code := self._child.exit_code()):
            return Outcome(code, self._child.ending(), own=True)
        if failure:
            return Outcome(failure.exit_code, str(failure))
        return Outcome(0, self._child.ending() if self._child else "done")


class _Enough(Exception):
    """The recording has all it is to have."""
