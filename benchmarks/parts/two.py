"""Two GPUs against one, and against the floor run once and twice at a time."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench import ELAPSED, GEMM, REALTIME, Bench, Figures
from harness import GpuLoads, cpu_s, tree

from cufall_py.session import LiveSession

from .cost import between

SAMPLE_US, DECODE_US = 1000, 50_000
COUNTERS = (REALTIME, ELAPSED)


def two(bench: Bench, seconds: float = 4.0) -> Figures:
    """Workers' and floors' processor share, decodes late and samples lost; a product runs on both GPUs throughout."""
    loads = [GpuLoads(str(card)) for card in range(2)] if bench.real else []
    try:
        for load in loads:
            load.begin(*GEMM, 1e6)
        time.sleep(1.0)
        return {
            "floor, one": floors(bench, [0], seconds),
            "cufall, one": sessions(bench, "0", seconds),
            "cufall, two": sessions(bench, "0,1", seconds),
            "floor, two": floors(bench, [0, 1], seconds),
        }
    finally:
        for load in loads:
            load.close()


def floors(bench: Bench, gpus: list[int], seconds: float) -> Figures:
    """A floor a GPU, at once."""
    with ThreadPoolExecutor(len(gpus)) as pool:
        found = list(pool.map(lambda gpu: bench.floor.run(COUNTERS, SAMPLE_US, DECODE_US, seconds, gpu), gpus))
    return {"gpus": found}


def sessions(bench: Bench, devices: str, seconds: float) -> Figures:
    with LiveSession(bench.plan_of_floor(REALTIME, SAMPLE_US, DECODE_US, devices=devices)) as session:
        frames = session.frames()
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            next(frames)
        first, used = marks(session), cpu_s(tree(os.getpid())[:1])
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            next(frames)
        last, reader = marks(session), cpu_s(tree(os.getpid())[:1]) - used
        pairs = zip(first, last, strict=True)
        return {"gpus": [between(a, b) for a, b in pairs], "reader_cpu_pct": 100 * reader / seconds}


def marks(session: LiveSession) -> list[tuple[float, Any]]:
    return [(time.monotonic(), gpu.tally) for gpu in session.gpus]
