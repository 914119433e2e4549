"""For every test: rings of its own, nothing of the caller's environment, and no process left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from cufall_py.cli import END_SIGNALS

LEAVE_S = 3.0
"""How long a process that a test ended may take to be gone."""

PYTHONS_OWN = {signal.SIGPIPE, signal.SIGXFSZ}
"""Signals that every Python ignores by itself."""

for _number in signal.valid_signals() - PYTHONS_OWN:
    # a shell that starts the tests in the background has some ignored, and every cufall under test would inherit that
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

settings.register_profile("cufall", deadline=None, max_examples=60)
settings.load_profile("cufall")


@pytest.fixture(autouse=True)
def ring_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's rings lie; no other CUFALL_ variable reaches it, nor the size of the caller's terminal (which
    counts for more than a terminal's own, and pytest-xdist sets it), nor what was verified on this machine."""
    for name in [name for name in os.environ if name.startswith("CUFALL_") and not name.startswith("CUFALL_TEST_")]:
        monkeypatch.delenv(name)
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "rings"
    monkeypatch.setenv("CUFALL_RING_DIR", str(directory))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return directory


@pytest.fixture(autouse=True)
def no_process_is_left(ring_dir: Path) -> Iterator[None]:
    """Fails a test after which a child, or any process with this test's ring directory, still runs."""
    before = set(psutil.Process().children(recursive=True))
    yield
    until = time.monotonic() + LEAVE_S
    while left := _started_since(before, ring_dir):
        if time.monotonic() > until:
            told = [f"{process.pid} {' '.join(_command(process))[:200]}" for process in left]
            for process in left:
                process.kill()
            pytest.fail(f"left running: {told}")
        time.sleep(0.02)


@pytest.fixture
def signals_as_before() -> Iterator[None]:
    """For tests that run the command line in this process, where it takes the signals that end it."""
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def timezone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Call it with a name to be there for the rest of the test."""

    def move_to(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield move_to
    monkeypatch.undo()
    time.tzset()


def _started_since(before: set[psutil.Process], ring_dir: Path) -> list[psutil.Process]:
    children = {child for child in psutil.Process().children(recursive=True) if not before & {child, *_parents(child)}}
    ours = [process for process in psutil.process_iter() if _ring_dir_of(process) == str(ring_dir)]
    return [process for process in {*children, *ours} if _runs(process)]


def _parents(process: psutil.Process) -> list[psutil.Process]:
    """What a browser that serves several tests starts meanwhile is its own."""
    try:
        return list(process.parents())
    except psutil.Error:
        return []


def _ring_dir_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("CUFALL_RING_DIR")
    except psutil.Error:
        return None


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return ["(gone)"]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
