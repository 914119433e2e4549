"""What a program has of an attachment as it goes: regions that cost it next to nothing, and frames as they come."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from .frames import Frame
from .outline import REGION_BEGIN, REGION_END

WAIT_S = 0.2
MOST_FRAMES = 1000
"""Frames that wait for a reader; of more, the newest."""
Mark = tuple[str, int, dict[str, str]]
"""Kind, time and fields of an event."""


class Region:
    """A stretch of a program's time, for `with` and `async with`; each entering is a time of its own.

    Entering and leaving only put a mark where the session's thread finds it.
    """

    __slots__ = ("_begin", "_end", "_put")

    def __init__(self, put: Callable[[Mark], None], name: str, text: str) -> None:
        self._put, self._begin, self._end = put, {"name": name, "text": text}, {"name": name}

    def __enter__(self) -> None:
        self._put((REGION_BEGIN, time.time_ns(), self._begin))

    def __exit__(self, *_: object) -> None:
        self._put((REGION_END, time.time_ns(), self._end))

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


class Frames:
    """Frames as they come, each once; the oldest are left out for a reader that lags MOST_FRAMES behind."""

    def __init__(self, came: threading.Condition, over: Callable[[], bool]) -> None:
        self._came, self._over = came, over
        self.held: deque[Frame] = deque(maxlen=MOST_FRAMES)

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> Frame:
        with self._came:
            while not self.held and not self._over():
                self._came.wait(1.0)
            if self.held:
                return self.held.popleft()
        raise StopIteration

    def __aiter__(self) -> Frames:
        return self

    async def __anext__(self) -> Frame:
        while True:
            over = self._over()
            if self.held:
                return self.held.popleft()
            if over:
                raise StopAsyncIteration
            await asyncio.to_thread(self._wait)

    def _wait(self) -> None:
        """A while, for a frame, which is left where it is: whoever waits may be cancelled meanwhile."""
        with self._came:
            if not self.held:
                self._came.wait(WAIT_S)
