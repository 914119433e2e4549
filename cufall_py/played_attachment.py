"""An attachment's recording, played: its frames, and what its servers had said by each of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from .engines.rates import Interval, Rates
from .engines.reading import Reading
from .engines.servers import Server
from .errors import UsageError
from .followed import Latest, Now
from .frames import Frame
from .pace import Pace
from .plan import Plan
from .playback import Playback
from .saying import Say
from .served import Log, logs, on_gpus
from .sources import Opened

STALE_NS = 2_500_000_000
"""A page that is older is no longer what the server says: another was asked for each second, and did not come."""


class PlayedAttachment:
    """What is drawn of an Attachment, of the recording that one made. Use as a context manager.

    Raises as Playback does, and UsageError for a recording without servers on the GPUs of the plan.
    """

    def __init__(self, path: str, plan: Plan, say: Say, speed: float) -> None:
        self._playing = Playback(path, plan, say, pace=Pace(speed))
        self.path, self.plan, self.opened = Path(path), self._playing.plan, self._playing.opened
        self._logs = on_gpus(logs(path), [opened.device.ordinal for opened in self.opened])
        if not self._logs:
            raise UsageError(f"--source {path}: has no inference server (on these GPUs); cufall replay plays it")
        self.servers = [Server(log.url, log.role) for log in self._logs]
        self._said = [_said(log) for log in self._logs]
        self._newest: Frame | None = None

    def gpus_of(self, server: int) -> tuple[Opened, ...]:
        """The GPUs of the server at this position."""
        return tuple(opened for opened in self.opened if opened.device.ordinal in self._logs[server].gpus)

    def latest(self) -> Latest:
        """The frame that was played last, and what each server had said by its end."""
        frame = self._newest
        at_ns = frame.start_ns + frame.period_ns if frame else 0
        return Latest(frame, tuple(self._now(k, at_ns) for k in range(len(self.servers))))

    def frames(self, tick: Callable[[], None]) -> Iterator[Frame]:
        """Each in order; `tick` is called many times a second while the next is waited for."""
        for frame in self._playing.frames(tick=tick):
            self._newest = frame
            yield frame

    def lines(self) -> list[str]:
        """What was played, a line each for a person."""
        return self._playing.summary()

    def __enter__(self) -> PlayedAttachment:
        return self

    def __exit__(self, *_: object) -> None:
        self._playing.close()

    def _now(self, server: int, at_ns: int) -> Now:
        said = self._said[server]
        k = bisect_right(said, at_ns, key=lambda of: of[0].when.at_ns)
        if k == 0 or at_ns - said[k - 1][0].when.at_ns > STALE_NS:
            return Now(self.servers[server])
        return Now(self.servers[server], *said[k - 1])


def _said(log: Log) -> list[tuple[Reading, Interval | None]]:
    """Each page, with what lies between it and the one before."""
    rates = Rates()
    return [(reading, rates.add(reading)) for reading in log.readings]
