"""Screens of the timeline kept as text; `python -m tests.screens` writes them anew (then look at what changed)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cufall_py.frames import Frame
from cufall_py.readings import Reading
from cufall_py.views.history import History
from cufall_py.views.keys import State, begin, pressed
from cufall_py.views.styled import Line, plain
from cufall_py.views.timeline import Scene, screen
from tests.helpers import DATA, EPOCH, MS, metric

FOLDER = DATA / "screens"
STAIRS = (0.0, 0.0002, 0.002, 0.02, 0.2, 0.9)
"""What is measured, ten seconds each."""
LABELS = ("tensor", "sm", "dram", "gr")
READINGS = (
    Reading(1980.0, 2619.0, 412.4, 0x4 | 0x40, ("python train.py", "python train.py", "vllm", "not visible here")),
    Reading(sm_mhz=345.0, reasons=0x1, processes=()),
    Reading(power_w=699.6, reasons=0),
    Reading(),
)
LONG = (
    "12:00:03 GPU 1 (NVIDIA H200): another profiler holds its counters (DCGM: dcgmi profile --pause; else nsys, ncu, a "
    "torch profiler or another cufall); try again when it is gone; it gives no more samples"
)


@dataclass(frozen=True)
class Case:
    """A screen: GPUs, metrics, size, and the keys that were pressed."""

    gpus: int
    metrics: int
    columns: int
    lines: int
    keys: str = ""
    ascii_only: bool = False
    message: str = ""
    readings: bool = True


CASES = {
    "wide": Case(2, 3, 160, 16),
    "narrow": Case(8, 1, 40, 24),
    "eight-gpus": Case(8, 1, 120, 24),
    "sixteen-gpus": Case(16, 4, 100, 24, message="12:00:03 GPU 3: no samples for 2.0 s"),
    "sixteen-gpus-one-metric": Case(16, 4, 100, 40, "m"),
    "message": Case(2, 1, 80, 16, message=LONG),
    "message-narrow": Case(2, 1, 40, 24, message=LONG),
    "linear-paused-sorted": Case(4, 2, 80, 16, "l s"),
    "ascii": Case(2, 2, 100, 14, ascii_only=True),
    "few-lines": Case(8, 1, 80, 5),
    "without-nvml": Case(2, 1, 80, 12, readings=False),
    "help": Case(2, 1, 80, 20, "h"),
}


def history(gpus: int, metrics: int, seconds: int = 60) -> History:
    """Stairs, for each GPU a step further on, for each metric two; GPU 1 was not measured from 20 s to 25 s."""
    kept = History(100 * MS, gpus, metrics)
    for k in range(10 * seconds):
        step = [[(k // 100 + gpu + 2 * m) % len(STAIRS) for m in range(metrics)] for gpu in range(gpus)]
        mean = np.array(STAIRS)[step]
        covered = np.full(gpus, 100.0 * MS)
        if gpus > 1 and 200 <= k < 250:
            mean[1], covered[1] = math.nan, 0
        got, expected = np.full(gpus, 4), np.full(gpus, 4.0)
        kept.add(Frame(EPOCH + k * 100 * MS, 100 * MS, mean, mean / 2, mean * 1.1, covered, got, expected))
    return kept


def scene(case: Case) -> Scene:
    return Scene(
        f"{case.gpus} × NVIDIA H200 by cupti",
        tuple(f"g{k}" for k in range(case.gpus)),
        tuple(metric(label) for label in LABELS[: case.metrics]),
        tuple(READINGS[gpu % 4] if case.readings else Reading() for gpu in range(case.gpus)),
        sample_ns=25 * MS,
        cost=0.0123,
        message=case.message,
    )


def state(kept: History, case: Case) -> State:
    now = begin(case.metrics, kept.slot_ns, kept.span_ns)
    for key in case.keys:
        now = pressed(now, key)
    return now


def drawn(case: Case) -> list[Line]:
    kept = history(case.gpus, case.metrics)
    return screen(kept, scene(case), state(kept, case), case.columns, case.lines, case.ascii_only)


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.txt"


if __name__ == "__main__":
    for name, case in CASES.items():
        path_of(name).write_text(plain(drawn(case)) + "\n", encoding="utf-8")
