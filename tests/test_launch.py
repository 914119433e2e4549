"""A launched process, as it is asked and waited for beside signals whose handlers raise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from cufall_py.launch import Process


class Struck(BaseException):
    """As a signal's handler ends a reader."""


def strike(number: int, frame: FrameType | None) -> None:
    if frame and frame.f_code.co_name.endswith("poll"):  # elsewhere it would end the test itself
        raise Struck


@contextmanager
def striking() -> Iterator[None]:
    """Signals come all the time; what the last ones hit is what ends this."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.0001):
            os.kill(os.getpid(), signal.SIGUSR1)

    before, thread = signal.signal(signal.SIGUSR1, strike), threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def python(code: str) -> Process:
    return Process([sys.executable, "-c", code], stdin=subprocess.PIPE)


def test_an_exception_at_any_moment_leaves_it_waitable() -> None:
    """Some thousand moments, each anywhere within `poll`; after them it is waited for, and its code is its own."""
    with python("import sys; sys.stdin.read(); sys.exit(7)") as process:
        assert process.stdin
        struck = 0
        with striking():
            for _ in range(3000):
                try:
                    while True:
                        process.poll()
                except Struck:
                    struck += 1
        process.stdin.close()
        assert (struck, process.wait(10)) == (3000, 7)


def test_it_is_waited_for_as_long_as_is_asked() -> None:
    with python("input()") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        assert process.poll() is None
        process.kill()
        assert process.wait() == process.poll() == -signal.SIGKILL
