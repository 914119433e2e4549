"""A thread that looks at something outside again and again, which nothing waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue


class Watching:
    """Begins with `start`. What looks is `_run`, until `_end` is set; it puts lines for a person into `_lines`.

    `unsaid` gives them: the thread itself says nothing, so that whoever listens is always called from the reader's.
    """

    def __init__(self, name: str) -> None:
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def unsaid(self) -> Iterator[str]:
        """Lines for a person that have come since the last time."""
        while not self._lines.empty():
            yield self._lines.get()

    def close(self) -> None:
        """Ask the thread to end; a call that hangs is not waited for."""
        self._end.set()
        if self._thread.ident:
            self._thread.join(0.5)

    def _run(self) -> None:
        raise NotImplementedError
