"""Attached to inference servers: their GPUs are sampled, their pages of metrics scraped, both recorded on one clock.

The recording is all the memory that there is: every figure is made of it as it stands on disk by then, as `cufall
report` makes it of the file afterwards.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .background import BackgroundSession
from .engines.events import ENGINE, SERVER, fields
from .engines.rates import Interval
from .engines.reading import Reading
from .engines.servers import Server
from .errors import CufallError, UsageError
from .followed import Followed, Latest, Now
from .frames import Frame
from .measured import Measured, statistics
from .plan import Plan
from .recording_reader import Recording
from .saying import Say
from .scratch import folder
from .sources import Opened
from .streams import Frames, Mark, Region

if TYPE_CHECKING:
    import pandas as pd

    from .analysis.statistics import Statistics
    from .analysis.summary import Scope, Summary
    from .analysis.verdict_windows import WindowVerdict
    from .judgements import Judgement
    from .report import Report
    from .served import Log, Served

METRICS = ("tensor", "sm", "dram")
MOST_SAID = 1000

Aio = Callable[..., Any]


class Attachment:
    """Samples the GPUs of servers and scrapes their metrics until closed; without servers it samples what GPUs the plan
    has. Use as a context manager, from any thread.

    `gpus`: each server's GPUs, by UUID or CUDA ordinal, empty for those that no other has. `say`, called from a thread
    of this, gets each line a person should read; `said` has the newest. `record`: the recording, which is written over;
    without one it is in the temporary folder until this is forgotten.

    Raises as BackgroundSession does.
    """

    def __init__(
        self,
        to: Sequence[Server],
        plan: Plan,
        *,
        gpus: Sequence[Sequence[str]] = (),
        key: str = "",
        record: str | Path = "",
        say: Say = lambda line: None,
    ) -> None:
        self.servers, self._gpus = list(to), gpus or [()] * len(to)
        self.said: deque[str] = deque(maxlen=MOST_SAID)
        self._say, self._owner = say, os.getpid()
        self._followed = [Followed(server, key) for server in to]
        self._newest: Frame | None = None
        self._marks: SimpleQueue[Mark] = SimpleQueue()
        self._came, self._waiting = threading.Condition(), weakref.WeakSet[Frames]()
        given = Path(record) if record else folder(self) / "attached.cufall"
        self.path = given.absolute()  # the program may go to another folder
        self._begun = False
        self._session = BackgroundSession(
            plan, self._tell, str(given), on_frame=self._take_frame, on_tick=self._take_readings
        )
        self.plan, self.opened = self._session.plan, list(self._session.opened)
        self._write_servers()
        for followed in self._followed:
            followed.scraper.start()
        self._begun = True

    def gpus_of(self, server: int) -> tuple[Opened, ...]:
        """The GPUs of the server at this position: those named for it, or those that are no other's."""
        named, own = {gpu for own in self._gpus for gpu in own}, {*self._gpus[server]}
        words = [{o.device.uuid, str(o.device.ordinal)} for o in self.opened]
        chosen = [o for o, of in zip(self.opened, words, strict=True) if (of & own if own else not of & named)]
        return tuple(chosen or self.opened)

    def logs(self) -> list[Log]:
        """The servers as they were given, before they said anything."""
        from .served import Log

        gpus = [tuple(o.device.ordinal for o in self.gpus_of(k)) for k in range(len(self.servers))]
        return [Log(server.url, server.role, own) for server, own in zip(self.servers, gpus, strict=True)]

    def region(self, name: str, text: str = "") -> Region:
        """Name the time within, also with `async with`. May nest and repeat, and be used from many threads.

        Raises UsageError for an empty name.
        """
        if not name.strip():
            raise UsageError("a region needs a name")
        return Region(self._put, name, text)

    def mark(self, kind: str, at_ns: int, **fields: str) -> None:
        """Have an event written to the recording that happened then (Unix epoch)."""
        self._marks.put((kind, at_ns, fields))

    def latest(self) -> Latest:
        """What came last of all, nothing once nothing more comes; never waits."""
        if self.ended:
            return Latest(None, tuple(map(Now, self.servers)))
        return Latest(self._newest, tuple(followed.now for followed in self._followed))

    def frames(self) -> Frames:
        """Frames from now on as they come, until the close: for `for` and for `async for`."""
        frames = Frames(self._came, lambda: not self._open())
        with self._came:
            self._waiting.add(frames)
        return frames

    def measure(self, name: str) -> Measured:
        """Begin to measure a stretch of time that is no region, until its `end`. Raises what ended this, if it has."""
        return self._session.measure(name)

    def intervals(self, server: int, after_ns: int = 0) -> list[Interval]:
        """Of the server at this position, what lies between two scrapes, the later one after this time of the
        monotonic clock; of the last ten minutes."""
        return self._followed[server].intervals(after_ns)

    def summary(self, region: str = "", metric: str = METRICS[0], gpu: int | None = None) -> Statistics:
        """The statistics of a metric over a region, or all: of the GPU with this CUDA ordinal, or of all together.

        Raises UsageError for what there is not.
        """
        summary = self.report().summary
        return statistics(summary, _scope(summary, region), metric, gpu)

    def verdict(self, region: str = "", gpu: int | None = None) -> WindowVerdict:
        """What a GPU (by CUDA ordinal; None: the first) was bound by in a region, or all. Raises UsageError."""
        summary = self.report().summary
        return summary.verdicts[_scope(summary, region).name][self._position(gpu)]

    def served(self) -> list[Served]:
        """Each server by running requests and by phase, so far."""
        from .served import served

        self.flush()
        return served(self.path)

    def require(self, *texts: str) -> list[Judgement]:
        """Each requirement (docs/report.md), judged on what was measured so far. Raises UsageError for what is none."""
        from .requirements import parse
        from .served_judgements import judge_recording

        wanted = [parse(text) for text in texts]
        self.flush()
        return judge_recording(self.path, wanted)

    def report(self) -> Report:
        """All that was measured so far, summed up as `cufall report` does."""
        from .report import Reading as Whole

        self.flush()
        return Whole(self.path).report()

    def to_pandas(self) -> pd.DataFrame:
        """A row a frame, GPU and server on it: its metrics, and what the server did between the scrapes around it, NaN
        if unknown."""
        from .served_frames import table

        self.flush()
        return table(self.path)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Copy the recording, as it is now and whole. Raises CufallError if that cannot be, or is there without
        `force`."""
        if self.path.exists() and Path(path).exists() and self.path.samefile(path):
            raise CufallError(f"{path} is the recording itself")
        if Path(path).exists() and not force:
            raise CufallError(f"{path} is there already; force=True overwrites it")
        self.flush()
        if self._open():
            return self._copy(path)
        try:
            shutil.copyfile(self.path, path)
        except OSError as error:
            raise CufallError(f"{path} cannot be written: {error.strerror or error}") from None

    def _copy(self, path: str | Path) -> None:
        """Of what has no end yet: with one, so that it is not taken for a recording that was cut."""
        from .playback import Playback

        plan = Recording(self.path).plan
        with Playback(self.path, Plan(wanted=plan.wanted, frame_us=plan.frame_us)) as playing:
            playing.record(path, force=True)
            for _ in playing.frames():
                pass

    @property
    def aio(self) -> Aio:
        """The methods that take a while, to be awaited: `await s.aio(s.summary, "decode")`."""
        return asyncio.to_thread

    def flush(self) -> None:
        """Wait until what was measured until now is in the recording."""
        if self._open():
            self._session.flush()

    @property
    def ended(self) -> bool:
        """Whether nothing more comes: it was closed, or something ended it."""
        return not self._open()

    def end(self) -> None:
        """Close it whatever the matter is; what went wrong is only said."""
        try:
            self.close()
        except CufallError as error:
            self._tell(str(error))

    def close(self) -> None:
        """End all of it; may be called more than once. Raises as BackgroundSession.close does."""
        for followed in self._followed:
            followed.scraper.close()
        try:
            self._session.close()
        finally:
            with self._came:
                self._came.notify_all()

    def lines(self) -> list[str]:
        """After the close: what was measured and what it took, a line each for a person."""
        try:
            return self._session.summary()
        except CufallError:
            return []  # what ended it is raised by the close

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_owner():
            self.end() if error else self.close()

    async def __aenter__(self) -> Attachment:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _repr_html_(self) -> str:
        from .views.notebook import overview
        from .views.served import as_html

        return "".join((overview(self.report().summary), *as_html(self.served())))

    def _is_owner(self) -> bool:
        """Whether this is the process that attached, and no copy that it forked."""
        return os.getpid() == self._owner

    def _open(self) -> bool:
        return self._is_owner() and not self._session.ended

    def _put(self, mark: Mark) -> None:
        """For the thread that writes, while there is one: nobody else takes it out again."""
        if self._open():
            self._marks.put(mark)

    def _position(self, gpu: int | None) -> int:
        there = [opened.device.ordinal for opened in self.opened]
        if gpu is not None and gpu not in there:
            raise UsageError(f"no GPU {gpu} is sampled here; there are {_listed(map(str, there))}")
        return 0 if gpu is None else there.index(gpu)

    def _write_servers(self) -> None:
        for k, log in enumerate(self.logs()):
            self._session.mark(SERVER, time.time_ns(), server=k, url=log.url, role=log.role, gpus=list(log.gpus))

    def _tell(self, line: str) -> None:
        self.said.append(line)
        self._say(line)

    def _take_frame(self, frame: Frame) -> None:
        with self._came:
            self._newest = frame
            for frames in self._waiting:
                frames.held.append(frame)
            self._came.notify_all()

    def _take_readings(self) -> None:
        """Of the thread: regions, and what the scrapers have brought, go to the recording."""
        if not self._begun:
            return
        while not self._marks.empty():
            kind, at_ns, told = self._marks.get()
            self._session.mark(kind, at_ns, **told)
        for k, followed in enumerate(self._followed):
            for line in followed.scraper.unsaid():
                self._tell(line)
                self._session.mark("said", time.time_ns(), text=line)
            for reading in followed.scraper.take():
                self._take_reading(k, reading)

    def _take_reading(self, k: int, reading: Reading) -> None:
        self._session.mark(ENGINE, reading.when.at_ns, server=k, **fields(reading))
        for note in self._followed[k].add(reading):
            if (line := f"{self.servers[k].url}: {note}") not in self.said:
                self._tell(line)


def _scope(summary: Summary, region: str) -> Scope:
    """Raises UsageError for a region that there is not."""
    if scope := summary.scope(region):
        return scope
    raise UsageError(f"no region {region}; there are {_listed(s.name for s in summary.scopes if s.name)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
