"""How fast recorded time goes by."""

from __future__ import annotations

import time
from collections.abc import Callable

from .errors import UsageError

AS_FAST_AS_IT_GOES = 0.0
TICK_S = 0.05
BEHIND_S = 1.0
"""Who falls behind by more goes on from there: what was stopped for a while is not made up for in a burst."""


class Pace:
    """Waits so that `speed` seconds of recorded time go by in one; at AS_FAST_AS_IT_GOES it never waits.

    Raises UsageError for a speed that is none.
    """

    def __init__(
        self,
        speed: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0 <= speed < float("inf"):
            raise UsageError(bad_speed(speed))
        self.speed, self._monotonic, self._sleep = speed, monotonic, sleep
        self._due_s: float | None = None

    def wait(self, length_s: float, tick: Callable[[], None] | None = None) -> None:
        """Return when this much more recorded time has gone by since the first call before; `tick` every TICK_S."""
        if not self.speed:
            return
        now_s = self._monotonic()
        due_s = now_s if self._due_s is None else self._due_s
        self._due_s = max(due_s, now_s - BEHIND_S) + length_s / self.speed
        while (left_s := self._due_s - self._monotonic()) > 0:
            if tick:
                tick()
            self._sleep(min(left_s, TICK_S) if tick else left_s)


def bad_speed(value: object) -> str:
    return f"--speed {value}: must be a number above 0, or max (or 0) for as fast as it goes"
