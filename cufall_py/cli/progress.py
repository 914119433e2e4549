"""How far a recording is, in one line of a terminal that is written over once a second."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import say

PERIOD_S = 1.0
UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Of the recordings at `paths`; nothing is shown unless `shown`. `counts` gives samples got and lost."""

    def __init__(self, paths: Sequence[Path], shown: bool) -> None:
        self.paths, self._shown = paths, shown
        self._began_s = self._due_s = time.monotonic()
        self._width = 0

    def show(self, counts: Callable[[], tuple[int, int]]) -> None:
        """To be called many times a second."""
        now_s = time.monotonic()
        if not self._shown or now_s < self._due_s:
            return
        self._due_s = now_s + PERIOD_S
        samples, lost = counts()
        line = f"{now_s - self._began_s:.0f} s, {samples} samples, {lost} lost, {size_of(self.paths)}"
        self._write(line[: shutil.get_terminal_size().columns - 1])

    def say(self, line: str) -> None:
        """Tell a person something, in a line that stays."""
        self.clear()
        say(line)

    def clear(self) -> None:
        if self._width:
            self._write("")

    def _write(self, line: str) -> None:
        """In place of what stands there, without an escape sequence, which not every terminal knows."""
        try:
            sys.stderr.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
            sys.stderr.flush()
        except OSError:
            self._shown = False  # the terminal is gone
        self._width = len(line)


def size_of(paths: Sequence[Path]) -> str:
    """How large files are in all, for a person."""
    try:
        size = float(sum(os.stat(path).st_size for path in paths))
    except OSError:
        return "gone"
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}"
