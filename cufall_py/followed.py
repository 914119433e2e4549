"""An inference server as it is attached to: what it said last, and what lay between its pages."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from .engines.rates import Interval, Rates
from .engines.reading import Reading
from .engines.scraper import Scraper
from .engines.servers import Server
from .frames import Frame

RECENT = 600
"""Intervals between scrapes of a server that are kept in memory, ten minutes of them."""


@dataclass(frozen=True)
class Now:
    """The newest of a server: `reading` None while it does not answer, `interval` since the scrape before, if known."""

    server: Server
    reading: Reading | None = None
    interval: Interval | None = None


@dataclass(frozen=True)
class Latest:
    """The newest frame, None before the first, and the newest of each server."""

    frame: Frame | None
    servers: tuple[Now, ...]


class Followed:
    """One server, whose readings are taken from `scraper` and added in one thread; what it said is for any."""

    def __init__(self, server: Server, key: str) -> None:
        self.server, self.scraper = server, Scraper(server.address, key)
        self._rates, self._taken = Rates(), Now(server)
        self._lock, self._recent = threading.Lock(), deque[Interval](maxlen=RECENT)

    @property
    def now(self) -> Now:
        """Of what was added last, as long as the scraper has it renewed."""
        return self._taken if self.scraper.newest else Now(self.server)

    def intervals(self, after_ns: int) -> list[Interval]:
        """Those of RECENT whose later scrape came after this time of the monotonic clock."""
        with self._lock:
            return [interval for interval in self._recent if interval.after.monotonic_ns > after_ns]

    def add(self, reading: Reading) -> tuple[str, ...]:
        """Take the next reading; what a person should read of it."""
        interval = self._rates.add(reading)
        self._taken = Now(self.server, reading, interval)
        if not interval:
            return ()
        with self._lock:
            self._recent.append(interval)
        return interval.notes
