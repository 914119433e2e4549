"""Marks: from any program of this user to the recorders that run, stamped when they were made."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cufall_py
from cufall_py.errors import CufallError, UsageError
from cufall_py.marks import LONGEST, Mark, MarksSocket, clear_stale
from tests.scripted import cufall, environment

HELD = """
import sys
from cufall_py.marks import MarksSocket
socket = MarksSocket(lambda mark: print(mark, flush=True))
print(flush=True)
sys.stdin.read()
"""
"""A recorder that is nothing but its socket, and says every mark."""


@contextmanager
def another() -> Iterator[subprocess.Popen[str]]:
    """Such a recorder in a process of its own."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HELD], env=environment(), text=True, **pipes) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_mark_has_its_senders_time_and_words() -> None:
    got: list[Mark] = []
    with MarksSocket(got.append):
        before_ns = time.time_ns()
        with cufall_py.mark("pr\u00e9fill, \u4e16", "what is seen"):
            between_ns = time.time_ns()
        after_ns = time.time_ns()
    begin, end = got
    assert (begin.name, begin.text, begin.end) == ("pr\u00e9fill, \u4e16", "what is seen", False)
    assert (end.name, end.text, end.end) == ("pr\u00e9fill, \u4e16", "", True)
    assert before_ns <= begin.at_ns <= between_ns <= end.at_ns <= after_ns


def test_many_marks_all_come_in_order() -> None:
    got: list[Mark] = []
    with MarksSocket(got.append):
        assert [cufall_py.mark_begin(f"{k}") for k in range(500)] == [1] * 500
    assert [mark.name for mark in got] == [f"{k}" for k in range(500)]


def test_the_command_marks(capfd: pytest.CaptureFixture[str]) -> None:
    got: list[Mark] = []
    with MarksSocket(got.append):
        for words in (("one", "--text", "seen"), ("one", "--end"), ("two", "--pid", str(os.getpid()))):
            ended = cufall("mark", *words)
            assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert [(mark.name, mark.text, mark.end) for mark in got] == [
        ("one", "seen", False),
        ("one", "", True),
        ("two", "", False),
    ]


def test_where_no_recorder_runs_the_command_says_so_and_a_program_goes_on() -> None:
    ended = cufall("mark", "x")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "cufall: no recorder runs here to be told of x; start one with cufall record\n"
    with cufall_py.mark("x"):
        pass
    assert (cufall_py.mark_begin("x"), cufall_py.mark_end("x")) == (0, 0)
    with pytest.raises(CufallError, match="no recorder with process number 1 runs"):
        cufall_py.mark_begin("x", pid=1, required=True)


def test_what_fails_within_a_mark_is_what_the_program_sees() -> None:
    got: list[Mark] = []
    with MarksSocket(got.append), pytest.raises(ZeroDivisionError), cufall_py.mark("x"):
        raise ZeroDivisionError
    assert [mark.end for mark in got] == [False, True]


@pytest.mark.parametrize(
    "words", [[""], ["  "], ["x" * (LONGEST + 1)], ["x", "--end", "--text", "y"], ["x", "--pid", "0"], []]
)
def test_what_is_no_mark_is_usage(words: list[str]) -> None:
    ended = cufall("mark", *words)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr


def test_a_region_needs_a_name() -> None:
    with pytest.raises(UsageError):
        cufall_py.mark_begin(" ")


def test_every_recorder_is_told_or_the_one_that_is_named() -> None:
    got: list[Mark] = []
    with another() as other, MarksSocket(got.append):
        assert cufall_py.mark_begin("both") == 2
        assert cufall_py.mark_begin("other", pid=other.pid) == 1
        assert cufall_py.mark_begin("here", pid=os.getpid()) == 1
        assert other.stdout
        assert "name='both'" in other.stdout.readline()
        assert "name='other'" in other.stdout.readline()
    assert [mark.name for mark in got] == ["both", "here"]


def test_the_socket_is_this_users_alone_and_leaves_nothing(ring_dir: Path) -> None:
    with MarksSocket(lambda mark: None) as marks:
        (path,) = ring_dir.iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.name.startswith(f"{os.getpid()}.")
        assert stat.S_IMODE(ring_dir.stat().st_mode) == 0o700
    assert list(ring_dir.iterdir()) == []
    marks.close()


def test_the_socket_of_a_killed_recorder_is_cleared_away(ring_dir: Path) -> None:
    with another() as killed:
        killed.send_signal(signal.SIGKILL)
    with another() as alive:
        assert len(list(ring_dir.iterdir())) == 2
        clear_stale()
        assert [path.name.partition(".")[0] for path in ring_dir.iterdir()] == [str(alive.pid)]
    assert cufall_py.mark_begin("x") == 0
    assert list(ring_dir.iterdir()) == []


def test_a_recorder_that_is_stopped_holds_nobody_up() -> None:
    with another() as stopped:
        stopped.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        assert any(not cufall_py.mark_begin("x" * 1000, "y" * 1000) for _ in range(5000))
        assert time.monotonic() - began_s < 30
        stopped.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"null",
        b'{"name": "x"}',
        b'{"name": 1, "text": "", "end": false, "at_ns": 0}',
        b"[" * 60_000,
    ],
)
def test_what_is_no_mark_is_passed_over(data: bytes, ring_dir: Path) -> None:
    got: list[Mark] = []
    with MarksSocket(got.append), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        (path,) = ring_dir.iterdir()
        folder = os.open(ring_dir, os.O_RDONLY)
        sender.sendto(data, f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        cufall_py.mark_begin("after")
    assert [mark.name for mark in got] == ["after"]


def test_marking_loads_nothing_heavy() -> None:
    code = (
        "import sys, cufall_py; cufall_py.mark_begin('x');"
        "print([m for m in ('numpy', 'pyarrow', 'click') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
