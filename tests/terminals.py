"""A terminal of our own: a real pty with a program in it, and what somebody before it would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.scripted import environment

PIECE = re.compile(rb"\x1b\[([?]?)([\d;]*)([A-Za-z])|([\r\n\x08\x07])|([^\x1b\r\n\x08\x07]+)")
PATIENCE_S = 60.0


class Picture:
    """The characters of a screen, by the few control sequences that cufall and a shell write."""

    def __init__(self, columns: int, lines: int) -> None:
        self.modes: dict[int, bool] = {}
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._clear()

    @property
    def text(self) -> str:
        return "\n".join("".join(row) for row in self._rows)

    def feed(self, data: bytes) -> None:
        for private, numbers, letter, control, text in PIECE.findall(data):
            if private:
                self.modes |= {int(n): letter == b"h" for n in numbers.split(b";")}
                if numbers == b"1049":
                    self._clear()
            elif letter == b"J":
                self._clear()
            elif letter == b"H":
                self._line, self._column = (int(n) - 1 for n in numbers.split(b";"))
            elif control == b"\r":
                self._column = 0
            elif control == b"\n":
                self._line += 1
            for character in text.decode("utf-8", "replace"):
                self._put(character)

    def _put(self, character: str) -> None:
        if 0 <= self._line < self.lines and self._column < self.columns:
            self._rows[self._line][self._column] = character
        self._column += 1

    def _clear(self) -> None:
        self._rows = [[" "] * self.columns for _ in range(self.lines)]
        self._line = self._column = 0


def run_in(inner: int, words: Sequence[str], **variables: str) -> subprocess.Popen[bytes]:
    """Run a program in a terminal, of which `inner` is the program's end."""
    process = subprocess.Popen(
        words,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment(**variables),
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    os.close(inner)
    return process


class Terminal:
    """A program in a terminal. Use as a context manager."""

    def __init__(self, words: Sequence[str], columns: int = 100, lines: int = 24, **variables: str) -> None:
        self._fd, inner = pty.openpty()
        self.picture, self.written = Picture(columns, lines), b""
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._fd)
        self.process = run_in(inner, words, **{"TERM": "xterm-256color", **variables})

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.picture.resize(columns, lines)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def until(self, holds: Callable[[str], Any]) -> str:
        """What is seen as soon as that holds of it."""
        end = time.monotonic() + PATIENCE_S
        while not holds(self.picture.text):
            assert time.monotonic() < end and self._read(1.0) is not None, self.picture.text
        return self.picture.text

    def sees(self, words: str) -> str:
        return self.until(lambda text: words in text)

    def ends(self) -> int:
        """Its exit code, when all is read."""
        while self._read(PATIENCE_S):
            pass
        return self.process.wait(PATIENCE_S)

    @property
    def is_as_before(self) -> bool:
        """Whether the alternate screen is left, the cursor shown, lines wrap, and modes are what they were."""
        shown = {1049: False, 25: True, 7: True}
        modes = self.picture.modes
        return termios.tcgetattr(self._fd) == self.before and all(modes.get(k, v) == v for k, v in shown.items())

    @property
    def said(self) -> str:
        """What was written after the screen was left."""
        return self.written.rpartition(b"\x1b[?1049l")[2].decode()

    def _read(self, patience_s: float) -> bytes | None:
        """What comes; empty if nothing does, None at the end."""
        if not select.select([self._fd], [], [], patience_s)[0]:
            return b""
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # as Linux tells the end of a terminal
            return None
        self.written += data
        self.picture.feed(data)
        return data
