"""A wrapped command: started as it would be without cufall, its end noticed to the millisecond, signals passed on."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

from .errors import CufallError

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)
"""Those that a terminal sends to everything in its foreground when a key is pressed."""


class Child:
    """A command, running: it has our standard streams, folder, variables and process group, and every open file that
    we were given to hand on.

    `began_ns`, `ended_ns` (Unix epoch; 0: it runs). Raises CufallError where it cannot be started.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.began_ns, self.ended_ns = time.time_ns(), 0
        try:
            self._process = subprocess.Popen(words, close_fds=False)
        except OSError as error:
            raise CufallError(f"{words[0]} cannot be started: {error.strerror}") from None
        self.pid = self._process.pid
        self._thread = threading.Thread(target=self._watch, name="cufall-command", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return not self.ended_ns

    def send(self, number: int) -> None:
        """Pass a signal on, unless it is a key's and so has come to the command by itself."""
        if self.running and not (number in FROM_KEYS and in_foreground()):
            os.kill(self.pid, number)  # it is not waited for by anyone else: its number cannot be another's yet

    def exit_code(self) -> int:
        """Of the ended command, 128 + signal where one ended it."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def ending(self) -> str:
        """How it ended, for a person."""
        code = self._process.wait()
        return f"the command was ended by {_name(-code)}" if code < 0 else f"the command ended with {code}"

    def _watch(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self.ended_ns = time.time_ns()


def in_foreground() -> bool:
    """Whether this process is in front on a terminal, so that its keys reach all of the group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
