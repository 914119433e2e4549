"""Turns: a session a set, one after the other, used as one session is. Between two of them nothing is measured."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import CufallError, InvalidMeasurement, error_of
from .fitting import with_metrics
from .frames import Frame
from .keep import parse
from .launch import launch
from .plan import Plan, whole_frames
from .readings import Reading
from .rotation import Set, Turn, places, shares, turns
from .samples import Samples
from .saying import Say
from .self_cost import Cost, together
from .session import LiveSession
from .sources import Opened
from .spans import FOREVER_NS, Span

if TYPE_CHECKING:
    from .turn_recording import TurnRecording


@dataclass
class _Had:
    """What a set had so far."""

    turns: int = 0
    cost: Cost = Cost()
    sampled_ns: int = 0
    """Of each turn from the first sample of any GPU to the last: what one GPU lacks in it is no time between turns."""
    _this: Span | None = None

    def begin_turn(self) -> None:
        self.turns, self._this = self.turns + 1, None

    def take(self, samples: Samples) -> None:
        start_ns, end_ns = int(samples.start_ns[0]), int(samples.end_ns[-1])
        first_ns, last_ns = self._this or (start_ns, start_ns)
        self._this = min(first_ns, start_ns), max(last_ns, end_ns)
        self.sampled_ns += (self._this[1] - self._this[0]) - (last_ns - first_ns)


class Turns:
    """Samples sets of metrics in turn, for `seconds` each, until closed. A context manager.

    Each set is opened once before anything begins, so that one which cannot be sampled is told at once, and so that
    each has a recording from the start. `say`, `process` and `asked` are as LiveSession has them; what is said whenever
    a set is opened is said once. Raises as LiveSession does.
    """

    def __init__(
        self,
        plan: Plan,
        sets: Sequence[Set],
        seconds: float,
        say: Say = lambda line: None,
        process: subprocess.Popen[bytes] | None = None,
        asked: float = 0.0,
    ) -> None:
        self._turns, self._say, self._said = turns(sets, seconds), say, set[str]()
        self._plans = [replace(plan, wanted=with_metrics(plan.wanted, metrics)) for metrics in sets]
        self._had = [_Had() for _ in sets]
        self._problems: dict[str, None] = {}
        self._files: list[TurnRecording] = []
        self._tick: Callable[[], None] | None = None
        self._ahead, self._at, self._running = process, 0, False
        self._first_ns = self._ended_ns = 0
        self._processes_s = 0.0
        """Processor time of the processes that sampled, from their start to their end."""
        try:
            self._all_opened = self._try_all(asked)
        except BaseException:
            self._let_go()
            raise
        self.plan = self._session.plan

    @property
    def turn(self) -> Turn:
        """The set that is on."""
        return self._turns[self._at]

    @property
    def opened(self) -> list[Opened]:
        """What is sampled of each GPU now."""
        return self._session.opened

    @property
    def length_s(self) -> None:
        """GPUs are sampled until somebody ends it."""
        return None

    def frames(self, duration_s: float = 0.0, tick: Callable[[], None] | None = None) -> Iterator[Frame]:
        """Frames as they become complete, for `duration_s` from the first on or without end; none lies between turns.

        `tick` is called as LiveSession.frames does. Raises UsageError for a duration that has no frame.
        """
        self._tick, end_ns = tick, 0 if whole_frames(duration_s, self.plan) else FOREVER_NS
        for frame in self._endless():
            end_ns = end_ns or frame.start_ns + round(1e9 * duration_s)
            if frame.end_ns > end_ns:
                return
            yield frame
            if frame.end_ns + self.plan.frame_ns > end_ns:
                return

    def record(self, path: str | Path, force: bool = False, keep: str = "") -> None:
        """Write every sample that comes from now on to a recording of its set, as LiveSession.record does."""
        from .turn_recording import TurnRecording

        tiers = parse(keep)
        of_sets = zip(self.paths(Path(path)), self._all_opened, self._plans, self._turns, strict=True)
        for place, opened, plan, turn in of_sets:
            self._files.append(TurnRecording(place, opened, plan, force, tiers, self._say, turn))
        self._session.record_into(self._files[self._at])

    def paths(self, path: Path) -> list[Path]:
        """Where `record` writes, told this path: a file a set."""
        return places(path, len(self._turns))

    @property
    def recordable(self) -> list[Opened]:
        """What is recorded of each GPU now."""
        return self.opened

    def mark(self, kind: str, at_ns: int, **fields: Any) -> None:
        """Have an event written that happened then (Unix epoch), into every recording; from any thread."""
        for file in self._files:
            file.mark(kind, at_ns, **fields)

    def moment(self, at_ns: int) -> int:
        """What is sampled happens now."""
        return at_ns

    def reading(self, gpu: int) -> Reading:
        """What NVML read last of the GPU at this position."""
        return self._session.reading(gpu)

    def cost_share(self) -> float:
        """Of a core, what cufall takes in this turn; NaN while that says nothing yet."""
        return self._session.cost_share()

    def counts(self) -> tuple[int, int]:
        """Samples got and lost so far."""
        tally = together([*(had.cost for had in self._had), *([self._session.cost()] if self._running else [])]).tally
        return tally.samples, tally.lost

    def summary(self) -> list[str]:
        """What was measured and what it took, and how much of the time each set had, a line each for a person."""
        cost = together([had.cost for had in self._had])
        all_s = max((self._ended_ns or time.time_ns()) - (self._first_ns or time.time_ns()), 1) / 1e9
        sampled_s = [had.sampled_ns / 1e9 for had in self._had]
        starts_s = max(self._processes_s - cost.workers_cpu_s, 0.0)
        lines = shares(self._turns, [had.turns for had in self._had], sampled_s, all_s)
        return [cost.line(), *lines, f"turns took {starts_s:.1f} s of a processor to start", cost.cost_line()]

    def check(self) -> None:
        """After the close: raise InvalidMeasurement if a set had no turn, or a turn was no valid measurement."""
        without = [f"{turn.name} never came" for turn, had in zip(self._turns, self._had, strict=True) if not had.turns]
        if problems := [*without, *self._problems]:
            raise InvalidMeasurement("; ".join(problems))

    def close(self) -> None:
        """End sampling and the recordings. May be called more than once."""
        self._ended_ns = self._ended_ns or time.time_ns()
        with ExitStack() as stack:
            for file in self._files:
                stack.callback(self._end_file, file)
            stack.callback(self._let_go)
            self._end_turn()

    def _end_file(self, file: TurnRecording) -> None:
        file.end(self._ended_ns)

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try_all(self, asked: float) -> list[list[Opened]]:
        """What each set turned out to be, opened once; the first comes last and is left on."""
        found: list[list[Opened]] = []
        for at in reversed(range(len(self._turns))):
            self._open(at, asked)
            if not found:
                self._plans = [_of_these(plan, self._session) for plan in self._plans]
            found.insert(0, list(self._session.opened))
            if at:
                self._close_session()
        self._running = True
        return found

    def _open(self, at: int, asked: float = 0.0) -> None:
        process, self._ahead = self._ahead or launch(self._plans[at].source), None
        self._ahead = launch(self._plans[at].source)  # the next, loading meanwhile
        self._session, self._at = LiveSession(self._plans[at], self._say_once, self._count, process, asked), at

    def _count(self, gpu: int, samples: Samples) -> None:
        """What has come in a turn; nothing of what came while sets were tried."""
        if not self._running:
            return
        self._begin(int(samples.start_ns[0]))
        if self._ended_ns:  # what is still to be read as it closes belongs to it
            self._ended_ns = max(self._ended_ns, int(samples.end_ns[-1]))
        self._had[self._at].take(samples)

    def _begin(self, at_ns: int) -> None:
        """A GPU had a sample then; of several the first that comes need not be the earliest."""
        if not self._first_ns or at_ns < self._first_ns:
            self._first_ns = at_ns
            for file in self._files:
                file.begun(at_ns)

    def _tell(self, line: str) -> None:
        """Say a line, and keep it with what is being recorded."""
        self._say(line)
        for file in self._files:
            file.said(line)

    def _say_once(self, line: str) -> None:
        """What sessions say as they begin, each says again."""
        if line not in self._said:
            self._say(line)
        if not self._running:
            self._said.add(line)

    def _endless(self) -> Iterator[Frame]:
        while True:
            self._had[self._at].begin_turn()
            yield from self._session.frames(self.turn.seconds, self._ticked)
            self._end_turn()
            self._next()

    def _ticked(self) -> None:
        for file in self._files:
            file.tick()  # those of the others have marks to write
        if self._tick:
            self._tick()

    def _next(self) -> None:
        """Open the next set that can be opened. Raises what kept the last from it if none can."""
        first = self._at + 1
        for at in (k % len(self._turns) for k in range(first, first + len(self._turns))):
            try:
                self._open(at)
            except CufallError as error:
                failed = error
                self._tell(f"{self._turns[at].name} is left out: {error}")
            else:
                self._running = True
                if self._files:
                    self._session.record_into(self._files[at])
                return
        raise failed

    def _end_turn(self) -> None:
        """Close the session that is on, if any is, and keep what it came to. Raises why it could not be recorded."""
        if not self._running:
            return
        failure = error_of(self._close_session)  # where a signal comes between, it is on still, and is closed again
        self._running, had = False, self._had[self._at]
        had.cost = together([had.cost, self._session.cost()])
        if failure:
            raise failure
        try:
            self._session.check()
        except InvalidMeasurement as error:
            self._problems[f"{self.turn.name}: {error}"] = None

    def _close_session(self) -> None:
        before_s = _children_s()
        self._session.close()
        self._processes_s += _children_s() - before_s

    def _let_go(self) -> None:
        """Of what was launched ahead and is not needed."""
        if self._ahead:
            with self._ahead as process:
                process.kill()
            self._ahead = None


def _of_these(plan: Plan, session: LiveSession) -> Plan:
    """The plan for the GPUs of this session, whatever their numbers."""
    if plan.scripted:
        return plan
    return replace(plan, devices=",".join(gpu.device.uuid for gpu in session.gpus))


def _children_s() -> float:
    """Processor time of the child processes that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
