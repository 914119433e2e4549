"""What the kernel tells in /proc and /sys of processes and memory, all under a `root` so that a test can write its own.

Everything raises OSError for what cannot be read, ValueError or KeyError for what cannot be understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cufall_py.host_files import table, text

from .facts import Holder, Processes

HOLDERS = {
    "nv-hostengine": "DCGM",
    "dcgm-exporter": "DCGM",
    "dcgmi": "DCGM",
    "nsys": "Nsight Systems",
    "ncu": "Nsight Compute",
    "utlz": "Utilyze",
}
"""Programs that take the PM unit, and what they are of."""
SAMPLING = "launch:sample"
"""A word of the command line of every cufall that samples (launch.command)."""
UNLIMITED = -1
V1_UNLIMITED = 1 << 60
V1_FILES, V2_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")


def processes(root: Path) -> Processes:
    holders, hidden = [], 0
    for pid in sorted(int(path.name) for path in (root / "proc").iterdir() if path.name.isdigit()):
        try:
            name = _holder(text(root, f"proc/{pid}/cmdline").split("\0"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        except OSError:
            hidden += 1
            continue
        if name:
            holders.append(Holder(pid, name))
    return Processes(tuple(holders), hidden)


def _holder(words: list[str]) -> str:
    program = words[0].rpartition("/")[2]
    if SAMPLING in words:
        return "" if any(word.startswith("script:") for word in words) else "cufall"
    return f"{program} ({HOLDERS[program]})" if program in HOLDERS else ""


def memory(root: Path) -> int:
    """What may still be taken: of the machine's memory, and of every control group this is in."""
    left = [1024 * int(table(text(root, "proc/meminfo"))["MemAvailable"].split()[0])]
    for folder, limit, used in _groups(root):
        try:
            most = text(root, f"{folder}/{limit}").strip()
            if most != "max" and int(most) < V1_UNLIMITED:
                left.append(max(0, int(most) - int(text(root, f"{folder}/{used}")) + _reclaimable(root, folder)))
        except OSError:
            pass  # a group that is not shown here, or has no such limit
    return min(left)


def _groups(root: Path) -> Iterator[tuple[str, str, str]]:
    """Folders of this process's control groups of memory, each with its files for the limit and the use."""
    for line in text(root, "proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top, files = ("sys/fs/cgroup/memory", V1_FILES) if kinds else ("sys/fs/cgroup", V2_FILES)
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for count in range(len(parts), -1, -1):
            yield "/".join([top, *parts[:count]]), *files


def _reclaimable(root: Path, folder: str) -> int:
    """Page cache that the kernel gives up first."""
    found = re.search(r"^(?:total_)?inactive_file (\d+)$", text(root, f"{folder}/memory.stat"), re.MULTILINE)
    return int(found[1]) if found else 0


def memlock(root: Path) -> int:
    found = re.search(r"^Max locked memory +(\w+)", text(root, "proc/self/limits"), re.MULTILINE)
    if not found:
        raise ValueError("/proc/self/limits does not tell")
    return UNLIMITED if found[1] == "unlimited" else int(found[1])
