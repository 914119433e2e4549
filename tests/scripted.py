"""What the tests of sampling and of the command line share: scripts, commands, and who samples for whom."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
STEADY: list[dict[str, float]] = [{"ms": 1000, "tensor": 0.5}]


def script(folder: Path, **fields: Any) -> str:
    """A `--source` of made-up GPUs; half busy tensor pipes unless told otherwise."""
    path = folder / f"script-{time.monotonic_ns()}.json"
    path.write_text(json.dumps({"pattern": STEADY, **fields} if "patterns" not in fields else fields))
    return f"script:{path}"


def fault(gpu: int, kind: str, at_s: float = 0.0, for_s: float = 1e9) -> dict[str, Any]:
    return {"gpu": gpu, "kind": kind, "at_s": at_s, "for_s": for_s}


def late(gpus: int, last_s: float) -> list[dict[str, Any]]:
    """Each GPU gives its first sample a tenth of a second after the one before, the last one then."""
    begin_s = [0.8 + 0.1 * gpu for gpu in range(gpus - 1)] + [last_s]
    return [fault(gpu, "gap", for_s=for_s) for gpu, for_s in enumerate(begin_s)]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "cufall_py", *words]


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}


def cufall(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return together([(words, variables)])[0]


def together(runs: Sequence[tuple[Sequence[str], dict[str, str]]]) -> list[subprocess.CompletedProcess[str]]:
    """Run several commands, each with variables of its own, to their ends."""
    text = {"encoding": "utf-8", "errors": "surrogateescape"}
    running = [start(*words, env=environment(**variables), **text) for words, variables in runs]
    ended = []
    for process in running:
        out, error = process.communicate(timeout=60)
        ended.append(subprocess.CompletedProcess(process.args, process.returncode, out, error))
    return ended


def start(*words: str, **settings: Any) -> subprocess.Popen[str]:
    """Start the command; its output comes through pipes unless `settings` say otherwise."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(), **settings}
    return subprocess.Popen(command(*words), text=True, **settings)


def supervisor(reader: int) -> psutil.Process:
    """The sampling process of a reader."""
    return soon(lambda: psutil.Process(reader).children())[0]


def workers(reader: int) -> list[psutil.Process]:
    """The processes that sample for a reader, once there are any."""
    return soon(lambda: [p for p in supervisor(reader).children() if _runs(p)])


def _runs(process: psutil.Process) -> bool:
    """A supervisor also has children that end by themselves, those that look for GPUs."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def soon(found: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What `found` gives as soon as that is something."""
    until = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)
    return answer


def kill(process: psutil.Process, number: int = signal.SIGKILL) -> None:
    os.kill(process.pid, number)


def rings(ring_dir: Path) -> list[Path]:
    return list(ring_dir.iterdir()) if ring_dir.exists() else []
