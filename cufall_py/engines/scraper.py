"""Scrapes one endpoint once a second in a thread of its own, which nothing waits for.

An endpoint that fails is asked less and less often, and each way in which it fails is told once.
"""

from __future__ import annotations

import time
from collections import deque

from cufall_py.watching import Watching

from .fetch import Answer, Endpoint, EndpointProblem, endpoint, fetch
from .page import NoMetrics, read
from .reading import Moment, Reading

PERIOD_S = 1.0
LIMIT_S = 0.8
"""How long one scrape may take."""
SLOWEST_S = 10.0
"""An endpoint that fails is asked at least so often."""
STEADY = 10
"""Good answers in a row after which a failure is told anew."""
MOST_KEPT = 3600
"""Readings that wait to be taken; the oldest go."""


class Scraper(Watching):
    """Readings of one endpoint. Start with `start`; neither `newest` nor `take` ever waits.

    `url`, `key`: as for `fetch.endpoint`, which raises UsageError here.
    """

    def __init__(self, url: str, key: str = "", period_s: float = PERIOD_S, limit_s: float = LIMIT_S) -> None:
        super().__init__("cufall-scrape")
        self.endpoint = endpoint(url, key)
        self._period_s, self._limit_s = period_s, limit_s
        self._paths = deque(self.endpoint.paths)
        self._newest: Reading | None = None
        self._waiting: deque[Reading] = deque(maxlen=MOST_KEPT)
        self._said = set[str]()
        self._good = self._failed = 0

    @property
    def newest(self) -> Reading | None:
        """The last scrape's, or None if that failed, or is not renewed: what is old does not look like now.

        A name server that hangs, or a process that was stopped, keep the next one from coming and from failing.
        """
        newest, most_s = self._newest, 2 * (self._period_s + self._limit_s)
        return newest if newest and time.monotonic_ns() - newest.when.monotonic_ns <= most_s * 1e9 else None

    def take(self) -> list[Reading]:
        """Those that have come since the last time, in order."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _run(self) -> None:
        due = time.monotonic()
        while not self._end.is_set():
            self._scrape()
            due = max(due + self._pause_s(), time.monotonic())
            self._end.wait(due - time.monotonic())

    def _pause_s(self) -> float:
        return min(self._period_s * 2.0 ** min(self._failed, 10), max(SLOWEST_S, self._period_s))

    def _scrape(self) -> None:
        try:
            reading = _read_first(self.endpoint, self._paths, self._limit_s)
        except (EndpointProblem, NoMetrics) as problem:
            self._fail(str(problem))
        else:
            self._succeed(reading)

    def _fail(self, why: str) -> None:
        self._newest, self._good, self._failed = None, 0, self._failed + 1
        self._tell(why)

    def _succeed(self, reading: Reading) -> None:
        if self._failed and self._good == 0:
            self._tell(f"{self.endpoint.shown}: the engine's metrics come again")
        self._good, self._failed = self._good + 1, 0
        for note in reading.notes:
            self._tell(f"{self.endpoint.shown}: {note}")
        if self._good == STEADY:
            self._said = {f"{self.endpoint.shown}: {note}" for note in reading.notes}
        self._newest = reading
        self._waiting.append(reading)

    def _tell(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._lines.put(line)


def scrape(url: str, key: str = "", limit_s: float = LIMIT_S) -> Reading:
    """One reading, now. Raises UsageError for what is no address, EndpointProblem, NoMetrics."""
    where = endpoint(url, key)
    return _read_first(where, deque(where.paths), limit_s)


def _read_first(where: Endpoint, paths: deque[str], limit_s: float) -> Reading:
    """From the first of the paths that has a page, which is put first; if none has, the first one's problem."""
    problems = list[EndpointProblem | NoMetrics]()
    for _ in range(len(paths)):
        try:
            return _read(where, paths[0], limit_s)
        except (EndpointProblem, NoMetrics) as problem:
            problems.append(problem)
        paths.rotate(-1)
    raise problems[0]


def _read(where: Endpoint, path: str, limit_s: float) -> Reading:
    answer = fetch(where, path, limit_s)
    try:
        return read(answer.text, _moment(answer))
    except NoMetrics as problem:
        raise NoMetrics(f"{where.at(path)}: {problem}") from None
    except ValueError:
        raise EndpointProblem(f"{where.at(path)}: the page cannot be understood as metrics") from None


def _moment(answer: Answer) -> Moment:
    half_ns = (answer.had_ns - answer.asked_ns) // 2
    return Moment(answer.at_ns, answer.asked_ns + half_ns, half_ns)
