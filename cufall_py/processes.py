"""Names of the processes on a GPU: only of those that surely are the ones meant, and none of cufall's own.

NVML gives numbers of processes. Those are the numbers of our own PID namespace with driver 580, and the host's with
older ones (docs/timeline.md), so in a container a number may be that of somebody else here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

NOT_VISIBLE = "not visible here"
INITIAL_NAMESPACE = 0xEFFFFFFC
"""The inode of the PID namespace that a Linux machine begins with."""


def names_of(pids: Iterable[int], proc: Path = Path("/proc")) -> tuple[str, ...]:
    """What these processes are called; NOT_VISIBLE for each that is not surely known. cufall's are left out."""
    everyone = _is_initial(proc)
    found = [_name(proc / str(pid), everyone) for pid in pids if not _is_ours(proc, pid)]
    return tuple(sorted(found, key=lambda name: (name == NOT_VISIBLE, name)))


def _is_initial(proc: Path) -> bool:
    try:
        return (proc / "self" / "ns" / "pid").stat().st_ino == INITIAL_NAMESPACE
    except OSError:
        return False


def _name(process: Path, everyone: bool) -> str:
    try:
        if not everyone and not _has_gpu_open(process):
            return NOT_VISIBLE
        words = [os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0") if word]
        return _program(words) or os.fsdecode((process / "comm").read_bytes().rstrip(b"\n")) or NOT_VISIBLE
    except OSError:  # it is gone, or somebody else's
        return NOT_VISIBLE


def _has_gpu_open(process: Path) -> bool:
    return any(os.readlink(fd).startswith("/dev/nvidia") for fd in (process / "fd").iterdir())


def _program(words: list[str]) -> str:
    """The command without its folders and options; of an interpreter, with what it runs."""
    if not words:
        return ""
    program = os.path.basename(words[0])
    if not program.startswith("python"):
        return program
    what = [word for word in words[1:] if not word.startswith("-")]
    return f"{program} {os.path.basename(what[0])}" if what else program


def _is_ours(proc: Path, pid: int) -> bool:
    """Whether it is this process or descends from it."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parent_of(pid, proc)
    return False


def parent_of(pid: int, proc: Path = Path("/proc")) -> int:
    """0 if it has none, or is gone."""
    try:
        # the name before it is in brackets, and may hold anything
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0
