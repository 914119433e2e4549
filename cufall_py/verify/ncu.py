"""What Nsight Compute counts of one launch, where it is installed."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections.abc import Callable

from cufall_py.errors import SourceError
from cufall_py.launch import command

METRIC = "sm__pipe_tensor_cycles_active.sum"
WAIT_S = 90.0


def asker(python: str, ordinal: int) -> Callable[[str, int], float]:
    """Asks it of a launch on the GPU with this CUDA ordinal, at free-running clocks. What it gives raises SourceError.

    Nothing else may sample that GPU meanwhile.
    """

    def cycles(kernel: str, count: int) -> float:
        ncu = shutil.which("ncu")
        if not ncu:
            raise SourceError("ncu is not on PATH")
        words = ["--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw", "--metrics", METRIC]
        work = command(python, "verify.device:once", str(ordinal), kernel, str(count))
        try:
            done = subprocess.run([ncu, *words, *work], capture_output=True, text=True, timeout=WAIT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SourceError(f"ncu gave no answer: {type(error).__name__}") from None
        return cycles_in(done.stdout + done.stderr)

    return cycles


def cycles_in(printed: str) -> float:
    """The metric in what `ncu --csv --page raw` printed of one launch. Raises SourceError with its last line."""
    lines = [line for line in printed.splitlines() if line.startswith('"')]
    for row in list(csv.DictReader(lines))[1:]:  # the first names the units
        try:
            return float(row[METRIC].replace(",", ""))
        except (KeyError, ValueError, AttributeError):
            continue
    last = printed.strip().splitlines()[-1:] or ["nothing"]
    raise SourceError(f"ncu gave no {METRIC}: {re.sub(r'^==[A-Z]+== ', '', last[0])}")
