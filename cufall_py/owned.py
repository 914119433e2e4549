"""What another process holds is asked for again a while: one that was just killed lets go of it soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from .errors import CountersOwned

T = TypeVar("T")
RETRY_S = 2.0


def while_owned(take: Callable[[], T]) -> T:
    """What `take` gives. Raises CountersOwned if it still does after RETRY_S, and whatever else `take` raises."""
    until = time.monotonic() + RETRY_S
    while True:
        try:
            return take()
        except CountersOwned:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
