"""Names of processes: of those that surely are the ones on the GPU, and of no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cufall_py.processes import INITIAL_NAMESPACE, NOT_VISIBLE, names_of

HERE = Path("/proc/self/ns/pid")


class Proc:
    """A made-up /proc, seen from a container: its PID namespace is no machine's first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, pid: int, *words: str, opens: str = "/dev/nvidiactl", parent: int = 1, comm: str = "main") -> None:
        folder = self.path / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "fd" / "3").symlink_to(opens)
        (folder / "cmdline").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
        (folder / "comm").write_text(comm + "\n")
        (folder / "stat").write_text(f"{pid} (a) b) c) S {parent} 1 1")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("/usr/bin/vllm", "serve", "--api-key", "secret"), "vllm"),
        (("/usr/bin/python3.11", "-u", "/home/me/train.py", "--lr", "1"), "python3.11 train.py"),
        (("python", "-m", "sglang.launch_server"), "python sglang.launch_server"),
        (("python",), "python"),
        (("VLLM::Worker_TP0",), "VLLM::Worker_TP0"),
        ((), "main"),
    ],
)
def test_a_process_is_called_by_what_it_runs(proc: Proc, words: tuple[str, ...], name: str) -> None:
    proc.add(70, *words)
    assert names_of([70], proc.path) == (name,)


@pytest.mark.parametrize("pid", [0, 99, 4294967295])
def test_one_that_is_not_here_is_not_visible(proc: Proc, pid: int) -> None:
    assert names_of([pid], proc.path) == (NOT_VISIBLE,)


def test_in_a_container_a_number_may_be_somebody_elses(proc: Proc) -> None:
    proc.add(70, "postgres", opens="/var/lib/data")
    proc.add(71, "vllm", opens="/dev/nvidia0")
    assert names_of([71, 70], proc.path) == ("vllm", NOT_VISIBLE)


def test_one_that_may_not_be_looked_into_is_not_visible(proc: Proc) -> None:
    (proc.path / "70").mkdir()  # as hidepid has it
    assert names_of([70], proc.path) == (NOT_VISIBLE,)


def test_cufalls_own_are_left_out(proc: Proc) -> None:
    proc.add(70, "python", "supervisor", parent=os.getpid())
    proc.add(71, "python", "worker", parent=70)
    proc.add(72, "vllm", parent=1)
    assert names_of([os.getpid(), 70, 71, 72], proc.path) == ("vllm",)


@pytest.mark.skipif(HERE.stat().st_ino != INITIAL_NAMESPACE, reason="the numbers of this place are a container's")
def test_on_the_machine_itself_every_number_is_right() -> None:
    first = os.fsdecode(Path("/proc/1/cmdline").read_bytes().split(b"\0")[0])
    assert names_of([1])[0].split()[0] == os.path.basename(first)


def test_a_child_is_our_own() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert names_of([child.pid]) == ()
    finally:
        child.communicate()
