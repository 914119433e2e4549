"""A session: what the command line and Python programs share. Start, frames, samples, cost."""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .account import Account
from .errors import CufallError, InvalidMeasurement, UsageError
from .feed import LiveFeed
from .frames import Frame, Framer
from .gpu import Gpu
from .launch import launch
from .notes import ClockSteps, pair_note
from .outline import REGION_BEGIN, REGION_END
from .plan import Plan, checked, whole_frames, with_longer_frames, with_longer_samples
from .readings import Reading, Readings
from .samples import Samples
from .saying import Say
from .self_cost import LEAST_SHARE_S, Cost
from .sources import Opened

if TYPE_CHECKING:
    from .live_recording import LiveRecording

LONG_NS = 2_000_000_000
"""From this length of a frame on a person is told when the first will end."""
FIRST_WAIT_S = 2.0
"""How long the first frame waits for the slowest GPU's first sample."""
POLL_S = 0.01
"""How often the rings are looked at while a batch is due."""
TICK_S = 0.05
"""How often whoever waits for frames may do something else."""
AFTER_MARK_S = 0.004
"""When a batch can be there: a decode begins 2 ms after its mark."""
RECORD_S = 1.0
"""How long a recording may go without being looked at: its rows are to be on disk within a second or two."""
YOUNG_S = 1.5
"""How long after the start workers may decode at each frame's end; a little longer than they do."""


class LiveSession:
    """Samples the GPUs of a plan until closed. Use as a context manager.

    `say` gets each line a person should read (nothing is printed otherwise); `on_samples` gets every
    batch as it comes, before it is folded: the position of its GPU in `gpus`, and the samples. `process`:
    a supervisor that was launched ahead, to load while this process does; `asked`: when, on the monotonic
    clock. `cpu_s`: what tells the processor time that is this session's, by default all that this process takes.

    Raises UsageError for a plan that cannot be, SourceError when no selected GPU can be sampled.
    """

    def __init__(
        self,
        plan: Plan = Plan(),
        say: Say = lambda line: None,
        on_samples: Callable[[int, Samples], None] = lambda gpu, samples: None,
        process: subprocess.Popen[bytes] | None = None,
        asked: float = 0.0,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._say, self._on_samples = say, on_samples
        self._recording: LiveRecording | None = None
        self._tick: Callable[[], None] | None = None
        self._readings: Readings | None = None
        self._clock_steps = ClockSteps()
        self._noted: set[str] = set()
        asked = asked or time.monotonic()
        self.plan = with_longer_samples(checked(plan), self._tell)
        self._feed = LiveFeed(self.plan, self._tell, process or launch(plan.source))
        try:
            self._feed.wait_open()
        except BaseException:
            self._feed.close()
            raise
        before_s = cpu_s()
        self.gpus: list[Gpu] = self._feed.gpus
        self.opened = _described(self.gpus)
        """What is sampled of each GPU; one that has not started is described by what the others give."""
        self._say_notes()
        self.plan = with_longer_frames(self.plan, max(o.sample_ns for o in self.opened), self._tell)
        self._framer = Framer([o.metrics for o in self.opened], self.plan.frame_ns, self.plan.frame_wait_ns)
        self._framing, self._due = False, deque[Frame]()
        self._heard_ns = [0] * len(self.gpus)
        decode_s = self.plan.decode_ns / 1e9
        self._account = Account(self.gpus, asked, self._feed.began, decode_s, lambda: cpu_s() - before_s)
        self._pairs_to_explain = bool(self.plan.wanted.denominator)

    turn: None = None
    """It has one set of metrics for all its time, unlike Turns (turns.py)."""

    @property
    def length_s(self) -> None:
        """GPUs are sampled until somebody ends it."""
        return None

    def frames(self, duration_s: float = 0.0, tick: Callable[[], None] | None = None) -> Iterator[Frame]:
        """Frames as they become complete, as many as `duration_s` has, or without end.

        May be called again: what follows is the frame after the last that was taken. `tick` is called while
        there is none, every TICK_S. Raises UsageError for a duration that has none.
        """
        self._tick = tick
        return islice(self._endless(), whole_frames(duration_s, self.plan) or None)

    def record(self, path: str | Path, force: bool = False, keep: str = "") -> None:
        """Write every sample that comes from now on to a recording, with NVML's readings, until the close.

        With `keep` it is thinned meanwhile, as `--keep` says: "30m@full,24h@100ms,forever@1s".

        Raises CufallError if it cannot be written, or is there already and `force` is not given; UsageError for a
        `keep` that is none, or has a period no longer than the samples.
        """
        from .keep import parse
        from .live_recording import LiveRecording

        self._check_open()
        if self._recording:
            raise CufallError("this session is being recorded already")
        self.record_into(LiveRecording(path, self.opened, self.plan, force, parse(keep), self._say))

    def record_into(self, recording: LiveRecording) -> None:
        """Write every sample that comes from now on to this recording of the same GPUs and counters."""
        self._recording = recording
        for gpu, opened in enumerate(self.opened):
            self._check_recorded(gpu, opened)

    def paths(self, path: Path) -> list[Path]:
        """Where `record` writes, told this path."""
        return [path]

    @property
    def recordable(self) -> list[Opened]:
        """What `record` writes of each GPU."""
        return self.opened

    def reading(self, gpu: int) -> Reading:
        """What NVML read last of the GPU at this position; it reads from the first question on until the close.

        Of a scripted GPU it is not asked.
        """
        if self.opened[gpu].source == "script":
            return Reading()
        if not self._readings:
            self._readings = Readings([gpu.device.uuid for gpu in self.gpus])
            self._readings.start()
        return self._readings.newest(self.gpus[gpu].device.uuid)

    def cost_share(self) -> float:
        """Of a core, what cufall takes; NaN while that says nothing yet."""
        cost = self.cost()
        return cost.share if cost.wall_s >= LEAST_SHARE_S else float("nan")

    @contextmanager
    def region(self, name: str, text: str = "") -> Iterator[None]:
        """Name the time within, if this session is being recorded; `text` says what is seen in it.

        Regions may nest and repeat, and may be used from another thread. Raises UsageError for an empty name.
        """
        if not name.strip():
            raise UsageError("a region needs a name")
        self.mark(REGION_BEGIN, time.time_ns(), name=name, text=text)
        try:
            yield
        finally:
            self.mark(REGION_END, time.time_ns(), name=name)

    def mark(self, kind: str, at_ns: int, **fields: Any) -> None:
        """Have an event written that happened then (Unix epoch), if this session is being recorded; from any thread."""
        if self._recording:
            self._recording.mark(kind, at_ns, **fields)

    def flush(self) -> None:
        """Have all that has come written to the recording's file, if there is one."""
        if self._recording:
            self._recording.flush()

    def moment(self, at_ns: int) -> int:
        """What is sampled happens now: the clock of its recording is this machine's."""
        return at_ns

    def cost(self) -> Cost:
        """What cufall has taken since the session began."""
        return self._account.cost(sum(self._framer.late))

    def counts(self) -> tuple[int, int]:
        """Samples got and lost so far."""
        tally = self.cost().tally
        return tally.samples, tally.lost

    def summary(self) -> list[str]:
        """What was measured and what it took, a line each for a person."""
        return self._account.lines(sum(self._framer.late))

    def check(self) -> None:
        """After the close: raise InvalidMeasurement if a selected GPU gave nothing, or nothing at the end."""
        if problems := self._account.problems():
            raise InvalidMeasurement("; ".join(problems))

    def close(self) -> None:
        """End sampling, take what has come until then, give the counters back and end the recording.

        May be called more than once.
        """
        self._account.end()
        try:
            self._feed.close()
            self._take_all(self._feed.unread())
            self._account.settle()
        finally:
            if self._readings:
                self._readings.close()
            if self._recording:
                self._recording.close(self.cost(), [(gpu.device.uuid, gpu.tally) for gpu in self.gpus])

    def __enter__(self) -> LiveSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._account.ended:
            raise CufallError("this session is closed")

    def _endless(self) -> Iterator[Frame]:
        if not self._framing:
            self._begin()
        while True:
            self._check_open()
            if self._due:
                yield self._due.popleft()
                continue
            self._poll()
            self._due.extend(self._framer.ready(self._feed.live()))
            if not self._due:
                self._sleep()

    def _begin(self) -> None:
        """Wait a while until all live GPUs have given samples, so that the first frame holds them all."""
        until = time.monotonic() + FIRST_WAIT_S + self.plan.decode_ns / 1e9
        while time.monotonic() < until:
            self._poll()
            begun, live = self._framer.begun(), self._feed.live()
            if any(begun) and all(b or not alive for b, alive in zip(begun, live, strict=True)):
                break
            self._wait(POLL_S)
        first_ns = self._framer.begin(time.time_ns())
        self._framing = True
        if self.plan.frame_ns >= LONG_NS:
            at = datetime.fromtimestamp((first_ns + self.plan.frame_ns) / 1e9)
            self._tell(f"the first frame ends at {at:%H:%M:%S}: frames lie on multiples of their length")

    def _poll(self) -> None:
        self._take_all(self._feed.poll())
        if line := self._clock_steps.note():
            self._tell(line)
        if self._readings:
            for line in self._readings.unsaid():
                self._tell(line)
        if self._recording:
            self._recording.tick()

    def _sleep(self) -> None:
        """Until the next decode's mark, or a moment only if a GPU has not come for the last one."""
        young = time.monotonic() - self._feed.began < YOUNG_S
        period_ns = min(self.plan.decode_ns, self.plan.frame_ns) if young else self.plan.decode_ns
        now_ns = time.time_ns()
        into_ns = now_ns % period_ns
        live = self._feed.live()
        come = all(heard >= now_ns - into_ns for heard, alive in zip(self._heard_ns, live, strict=True) if alive)
        wait_s = (period_ns - into_ns) / 1e9 + AFTER_MARK_S if come else min(POLL_S, period_ns / 1e10)
        self._wait(min(wait_s, RECORD_S) if self._recording else wait_s)

    def _wait(self, seconds: float) -> None:
        """As the feed waits, but for what is to be done meanwhile."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            if self._tick:
                self._tick()
            if self._feed.wait(min(left_s, TICK_S) if self._tick else left_s):
                return

    def _take_all(self, found: Iterable[tuple[int, Samples]]) -> None:
        for gpu, samples in found:
            self._heard_ns[gpu] = time.time_ns()
            if len(samples):
                self._take(gpu, samples)

    def _take(self, gpu: int, samples: Samples) -> None:
        self._account.gave(gpu)
        self._follow(gpu)
        self._on_samples(gpu, samples)
        self._record(gpu, samples)
        self._framer.add(gpu, samples)
        if self._pairs_to_explain:
            self._pairs_to_explain = False
            if note := pair_note(self.opened[gpu], samples):
                self._tell(note)

    def _follow(self, gpu: int) -> None:
        """A GPU that has started since is described by what it gives itself."""
        opened = self.gpus[gpu].opened
        if opened is None or opened is self.opened[gpu]:
            return
        self.opened[gpu] = opened
        self._framer.describe(gpu, opened.metrics)
        self._say_notes()
        self._check_recorded(gpu, opened)

    def _check_recorded(self, gpu: int, opened: Opened) -> None:
        if self._recording and not self._recording.takes(gpu, opened):
            self._tell(f"GPU {opened.device.ordinal} reads other counters than the recording has: it is not recorded")

    def _record(self, gpu: int, samples: Samples) -> None:
        if self._recording and self._recording.takes(gpu, self.opened[gpu]):
            self._recording.add(gpu, samples, self.reading(gpu))

    def _tell(self, line: str) -> None:
        """Say a line, and keep it with what is being recorded."""
        self._say(line)
        if self._recording:
            self._recording.said(line)

    def _say_notes(self) -> None:
        """Each once: what is the same for several GPUs, and what was said before one of them came, too."""
        notes = {note for gpu in self.gpus if gpu.opened for note in gpu.opened.notes}
        for note in sorted(notes - self._noted):
            self._tell(note)
        self._noted |= notes


def _described(gpus: Sequence[Gpu]) -> list[Opened]:
    known = next(gpu.opened for gpu in gpus if gpu.opened)
    return [gpu.opened or replace(known, device=gpu.device, notes=()) for gpu in gpus]
