"""What benchmarks and GPU tests share: loads, processes and their cost, a report that survives a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SUPERVISOR = b"spec_from_file_location('cufall_py'"
"""In the command line of every sampling process."""


def environment(**more: str) -> dict[str, str]:
    """This process's environment, with this checkout importable."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(os.path.abspath, paths))), **more}


def cufall(*args: str, **settings: Any) -> subprocess.Popen[bytes]:
    """Start `cufall` with these arguments."""
    return subprocess.Popen(
        [sys.executable, "-m", "cufall_py", *args], **{"env": environment(), "cwd": ROOT, **settings}
    )


class Loads(Protocol):
    """Known work on the GPU; see loads.py for the names and the answers."""

    def begin(self, name: str, size: int, seconds: float) -> None: ...
    def answer(self) -> dict[str, Any]: ...
    def end(self) -> dict[str, Any]: ...
    def run(self, name: str, size: int, seconds: float) -> dict[str, Any]: ...
    def close(self) -> None: ...


class GpuLoads:
    """A process of loads.py. Starting it takes seconds, so one serves for all. `card`: by NVML's number."""

    def __init__(self, card: str = "") -> None:
        command = [sys.executable, str(HERE / "loads.py")]
        where = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": card} if card else {}
        self._process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment(**where))
        self.pid = self._process.pid
        self.answer()

    def begin(self, name: str, size: int, seconds: float) -> None:
        self._send(f"{name} {size} {seconds}")

    def answer(self) -> dict[str, Any]:
        """What the load that is running did; waits for its end."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"loads.py ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> dict[str, Any]:
        """End the load that is running."""
        self._send("end")
        return self.answer()

    def run(self, name: str, size: int, seconds: float) -> dict[str, Any]:
        self.begin(name, size, seconds)
        return self.answer()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


class NoLoads:
    """In the place of loads where a script plays the GPU: a launch a millisecond, by the clock."""

    def begin(self, name: str, size: int, seconds: float) -> None:
        self._start_ns, self._end_ns = time.time_ns(), time.time_ns() + int(1e9 * seconds)

    def answer(self) -> dict[str, Any]:
        time.sleep(max(0.0, (self._end_ns - time.time_ns()) / 1e9))
        return self.end()

    def end(self) -> dict[str, Any]:
        now = time.time_ns()
        done = range((now - self._start_ns) // 1_000_000 + 1)
        marks = [[self._start_ns + 1_000_000 * k, k] for k in done]
        return {"start_ns": self._start_ns, "end_ns": now, "launches": len(done) - 1, "marks": marks}

    def run(self, name: str, size: int, seconds: float) -> dict[str, Any]:
        self.begin(name, size, seconds)
        return self.answer()

    def close(self) -> None:
        pass


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(place.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it ended meanwhile
        if parent == pid:
            found.append(int(place.parent.name))
    return found


def tree(pid: int) -> list[int]:
    """`pid` and all that descend from it."""
    return [pid, *(p for child in children(pid) for p in tree(child))]


def supervisors(pid: int) -> list[int]:
    """The sampling processes that `pid` started; their children are the workers."""
    return [child for child in children(pid) if SUPERVISOR in _command(child)]


def workers(pid: int) -> list[int]:
    """The workers that sample for `pid`."""
    return [worker for supervisor in supervisors(pid) for worker in children(supervisor)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def cpu_s(pids: Iterable[int]) -> float:
    """Processor seconds that these processes have used, by the kernel's clock of each."""
    return sum(_cpu_s(pid) for pid in pids)


def _cpu_s(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) gives
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> dict[str, float]:
    """Resident memory now, the most it was, and what is not shared with others, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    kb = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))}
    return {"now": int(kb["VmRSS"]) / 1024, "most": int(kb.get("VmHWM", kb["VmRSS"])) / 1024, "own": _own_mb(pid)}


def _own_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return float("nan")
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


class Report:
    """JSON that is on disk after each entry."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self.entries: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def save(self, name: str, value: Any) -> None:
        self.entries[name] = value
        whole = self._path.with_suffix(".part")
        whole.write_text(json.dumps(self.entries, indent=1, default=float))
        whole.replace(self._path)
