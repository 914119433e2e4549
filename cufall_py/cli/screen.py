"""The terminal as a full screen: taken over, written to where it changed, given back whatever happens."""

from __future__ import annotations

import errno
import os
import signal
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

from . import STDOUT, before_leaving, say, writing

ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""Alternate screen; no cursor, no wrapping at the last column; cleared."""
LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
FALLBACK_SIZE = (80, 24)
KEYS = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
}
REDRAW = b"\x0c"
"""Ctrl-L."""
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
"""A handler in Python could not help: it would run after the instruction at fault, which comes again for ever."""
HARMLESS = {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH}
STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}
NOT_TO_BE_CAUGHT = {signal.SIGKILL, signal.SIGSTOP}
FATAL = sorted(signal.valid_signals() - FAULTS - HARMLESS - STOPS - NOT_TO_BE_CAUGHT)
"""Signals that end a process which does nothing about them."""
MOST_HELD = 100
"""Lines that wait for the end of a screen; of more, the newest."""


def why_no_screen(stdin: TextIO | None, stdout: TextIO | None, variables: Mapping[str, str]) -> str:
    """Why there can be no full screen; empty if there can."""
    for name, stream in (("stdout", stdout), ("stdin", stdin)):
        if not stream or not stream.isatty():
            return f"{name} is not a terminal"
    term = variables.get("TERM", "")
    return f"TERM={term} cannot move the cursor" if term in ("", "dumb", "unknown") else ""


class Quit(Exception):
    """A person has seen enough."""


class Aside:
    """Says lines; while a screen is shown on the terminal that they would go to, they wait."""

    def __init__(self) -> None:
        self.newest = ""
        self._held: deque[str] | None = None

    def __call__(self, line: str) -> None:
        self.newest = f"{time.strftime('%H:%M:%S')} {line}"
        if self._held is None:
            say(line)
        else:
            self._held.append(line)

    @contextmanager
    def held(self) -> Iterator[None]:
        if sys.stderr and sys.stderr.isatty():
            self._held = deque(maxlen=MOST_HELD)
        self.newest = ""
        try:
            yield
        finally:
            held, self._held = self._held or (), None
            for line in held:
                say(line)


@contextmanager
def full_screen(stdin: int, stdout: int) -> Iterator[Screen]:
    """The terminal is a screen for as long as this lasts, and then as it was before."""
    screen = Screen(stdin, stdout)
    before_leaving.append(lambda _: screen.leave())
    try:
        with writing(STDOUT):
            screen.enter()
        yield screen
    finally:
        try:
            screen.leave()
        except BaseException:  # a signal came at that very moment
            screen.leave()
            raise


class Screen:
    """A terminal of two file numbers. After `enter`, `leave` must be called; see `full_screen`."""

    def __init__(self, stdin: int, stdout: int) -> None:
        self._in, self._out = stdin, stdout
        self._modes: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._drawn: list[bytes] = []
        self._taken = self._to_stop = self._continued = False

    def enter(self) -> None:
        self._modes = termios.tcgetattr(self._in)
        handle: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGTSTP: self._on_stop,
            signal.SIGCONT: self._on_continue,
            **{number: self._on_end for number in FATAL if signal.getsignal(number) == signal.SIG_DFL},
        }
        for number, handler in handle.items():
            self._handlers[number] = signal.signal(number, handler)
        self._take()

    def leave(self) -> None:
        """Give the terminal back; it may be gone."""
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def size(self) -> tuple[int, int]:
        """Columns and lines there are now."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:
            return FALLBACK_SIZE
        return (columns, lines) if columns and lines else FALLBACK_SIZE

    def pressed(self) -> list[str]:
        """What was pressed since the last time; does not wait."""
        self._stop_and_go()
        try:
            pressed = os.read(self._in, 1000)
        except OSError:  # the terminal is gone, which a signal tells, too
            pressed = b""
        if REDRAW in pressed:
            self._drawn = []
        return split_keys(pressed)

    @property
    def stale(self) -> bool:
        """Whether nothing of what was drawn counts any more."""
        return not self._drawn

    def draw(self, lines: list[str], encoding: str) -> None:
        """Show these lines, from the top; those that are there already are not written again."""
        new = [line.encode(encoding, "replace") for line in lines]
        before = self._drawn if len(self._drawn) == len(new) else []
        changed = [k for k, line in enumerate(new) if not before or before[k] != line]
        clear = b"" if before else b"\x1b[2J"
        self._write(clear + b"".join(b"\x1b[%d;1H%b" % (k + 1, new[k]) for k in changed))
        self._drawn = new

    def _take(self) -> None:
        modes = [*self._modes[:6], list(self._modes[6])]
        modes[0] &= ~termios.IXON  # a Ctrl-S would stop more than the picture
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        modes[6][termios.VMIN], modes[6][termios.VTIME], modes[6][termios.VQUIT] = 0, 0, b"\0"
        self._set(modes)
        self._taken, self._drawn = True, []
        self._write(ENTER)

    def _give_back(self) -> None:
        if not self._taken:
            return
        others = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or, ended in the background, it would stop for good
        try:
            self._set(self._modes)
            self._write(LEAVE)
        except OSError:
            pass  # a terminal that is gone is as it was
        finally:
            signal.signal(signal.SIGTTOU, others)
        self._taken = False

    def _set(self, modes: list[Any]) -> None:
        while True:
            try:
                return termios.tcsetattr(self._in, termios.TCSANOW, modes)
            except termios.error as error:
                if error.args[0] != errno.EINTR:  # from the background it waits until it is in front
                    raise OSError(*error.args) from None

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._out, data) :]

    def _on_stop(self, *_: object) -> None:
        self._to_stop = True  # at the next look at the keys, not in the middle of a drawing

    def _on_continue(self, *_: object) -> None:
        self._continued = True

    def _on_end(self, number: int, _: FrameType | None) -> None:
        """End as it would have without this, but for the terminal."""
        self.leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _stop_and_go(self) -> None:
        if self._to_stop:
            self._to_stop = False
            self._give_back()
            signal.signal(signal.SIGTSTP, self._handlers[signal.SIGTSTP])
            os.kill(os.getpid(), signal.SIGTSTP)  # returns when it is continued
            signal.signal(signal.SIGTSTP, self._on_stop)
            self._continued = True
        if self._continued:
            self._continued = False
            self._take()


def split_keys(pressed: bytes) -> list[str]:
    """Keys by their names; of what is no key, nothing."""
    keys = []
    while pressed:
        length = 3 if pressed[:3] in KEYS else 1
        one, pressed = pressed[:length], pressed[length:]
        if name := KEYS.get(one) or ("escape" if one == b"\x1b" and not pressed else ""):
            keys.append(name)
        elif one.isascii() and one.decode().isprintable():
            keys.append(one.decode())
    return keys
