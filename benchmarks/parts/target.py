"""What cufall does to the work it looks at, and to an idle GPU."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from bench import ELAPSED, GEMM, REALTIME, Bench, Figures
from clocks import mean, watched

from cufall_py.launch import launch
from cufall_py.plan import Plan
from cufall_py.session import LiveSession

LONG = {True: (0.8, 1.6), False: (0.1, 0.3)}
"""(settle, judged) in s of a long stretch, by whether a GPU is measured."""
DEFAULT_US = (25_000, 200_000)
"""cufall's default periods of samples and decodes."""
FLOOR_MORE_S = 0.5
"""How long the floor goes on after its stretch."""
Block = tuple[int, int, dict[str, float]]
"""Start and end, ns, of a stretch that is judged, and the means of NVML's readings in it."""


def target(bench: Bench) -> Figures:
    """The rate of work off/on/off, in many short blocks; clocks and power in each state."""
    out: Figures = {}
    few = max(2, 2 * bench.blocks // 3)
    for name, load, plan, blocks in (
        ("GEMM", GEMM, bench.plan(), bench.blocks),
        ("GEMM, 10 kHz", GEMM, bench.plan(sample_us=100), bench.blocks),
        ("decode in a graph", ("decode", 16), bench.plan(), bench.blocks),
        ("decode, eager", ("eager", 16), bench.plan(), few),
        ("10 us kernels", ("tiny", 0), bench.plan(), few),
    ):
        out[name] = off_on(bench, load, plan, blocks)
        print(f"target {name}: {out[name]['ratio']:.4f}", file=sys.stderr, flush=True)
    return out


def off_on(bench: Bench, load: tuple[str, int], plan: Plan, blocks: int) -> Figures:
    """`blocks` times off and on, and off once more; each on is held against the two offs around it."""
    samples = 0
    with launched(bench.source, blocks) as ready:
        bench.loads.begin(*load, 1e6)
        try:
            time.sleep(3.0 if bench.real else 0.5)
            off, on = [block(bench)], []
            for process in ready:
                with LiveSession(plan, process=process) as session:
                    on.append(block(bench, session))
                    samples += session.gpus[0].tally.samples
                off.append(block(bench))
        finally:
            answer = bench.loads.end()
    rates_off, rates_on = (np.array([rate(answer["marks"], a, b) for a, b, _ in found]) for found in (off, on))
    ratios = rates_on / ((rates_off[:-1] + rates_off[1:]) / 2)
    return interval(ratios) | {
        "per_s": {"off": float(rates_off.mean()), "on": float(rates_on.mean())},
        "ratios": ratios.tolist(),
        "clocks": {"off": mean_readings(off), "on": mean_readings(on)},
        "samples": samples,
    }


def target_floor(bench: Bench) -> Figures:
    """The same of the GEMM loop with longer stretches, and with the floor in cufall's place every other time."""
    blocks: dict[str, list[Block]] = {"off": [], "cufall": [], "floor": []}
    with launched(bench.source, bench.blocks) as ready:
        bench.loads.begin(*GEMM, 1e6)
        try:
            time.sleep(3.0 if bench.real else 0.5)
            lead_s = floor_lead_s(bench)
            for process in ready:
                off_cufall_off_floor(bench, process, lead_s, blocks)
            blocks["off"].append(block(bench, None, *LONG[bench.real]))
        finally:
            answer = bench.loads.end()
    rates = {state: np.array([rate(answer["marks"], a, b) for a, b, _ in found]) for state, found in blocks.items()}
    around = (rates["off"][:-1] + rates["off"][1:]) / 2
    return {
        "cufall": interval(rates["cufall"] / around[0::2]),
        "floor": interval(rates["floor"] / around[1::2]) if bench.real else {},
        "floor_lead_s": lead_s,
        "clocks": {state: mean_readings(found) for state, found in blocks.items()},
        "rates": {state: found.tolist() for state, found in rates.items()},
    }


def off_cufall_off_floor(
    bench: Bench, process: subprocess.Popen[bytes], lead_s: float, blocks: dict[str, list[Block]]
) -> None:
    """One round of four stretches, each added to its kind."""
    settle_s, seconds = LONG[bench.real]
    blocks["off"].append(block(bench, None, settle_s, seconds))
    with LiveSession(bench.plan(), process=process) as session:
        blocks["cufall"].append(block(bench, session, settle_s, seconds))
    blocks["off"].append(block(bench, None, settle_s, seconds))
    with bench.floor.beside((REALTIME, ELAPSED), *DEFAULT_US, lead_s, seconds + FLOOR_MORE_S):
        blocks["floor"].append(block(bench, None, lead_s, seconds))


def floor_lead_s(bench: Bench) -> float:
    """How long before its stretch the floor is started, s: half as long again as it takes to its first value now."""
    settle_s, _ = LONG[bench.real]
    found = bench.floor.run((REALTIME, ELAPSED), *DEFAULT_US, 0.5)
    return max(settle_s, 1.5 * found["first_value_s"]) if found else settle_s


@contextmanager
def launched(source: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Sampling processes that have loaded, and wait for their plan: a session on one starts fast."""
    ready = [launch(source) for _ in range(count)]
    try:
        yield ready
    finally:
        for process in ready:
            assert process.stdin and process.stdout
            process.stdin.close()
            process.stdout.close()
            process.wait()


def block(bench: Bench, session: LiveSession | None = None, settle_s: float = 0.1, seconds: float = 0.7) -> Block:
    """A stretch without cufall, or with it: then its frames are taken as they come."""
    time.sleep(settle_s)
    start, readings = time.time_ns(), []
    for _ in session.frames() if session else pauses(0.1):
        readings += [bench.nvml.read()] if bench.nvml else []
        if time.time_ns() - start > seconds * 1e9:
            break
    return start, time.time_ns(), mean(readings)


def pauses(seconds: float) -> Iterator[None]:
    while True:
        time.sleep(seconds)
        yield


def rate(marks: list[list[int]], start_ns: int, end_ns: int) -> float:
    """Launches a second between the first and the last mark of a stretch."""
    inside = [(at, done) for at, done in marks if start_ns <= at <= end_ns]
    (first, done_first), (last, done_last) = inside[0], inside[-1]
    return 1e9 * (done_last - done_first) / (last - first)


def interval(ratios: np.ndarray[Any, Any], draws: int = 10_000) -> Figures:
    """Mean with its 95 % interval by the bootstrap."""
    rng = np.random.default_rng(0)
    means = rng.choice(ratios, (draws, len(ratios))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {"ratio": float(ratios.mean()), "low": low, "high": high, "half_width_pct": 50 * (high - low)}


def mean_readings(blocks: list[Block]) -> dict[str, float]:
    return mean([readings for *_, readings in blocks])


def idle(bench: Bench) -> Figures:
    """An idle GPU's clocks and power before, during and after; run before any load has started a context."""
    settle_s, seconds = (4.0, 2.0) if bench.real else (0.1, 0.2)
    device = bench.device
    time.sleep(settle_s)
    before = watched(bench.nvml, seconds)
    with LiveSession(bench.plan(sample_us=1000)):
        time.sleep(settle_s)
        during = watched(bench.nvml, seconds)
    time.sleep(settle_s)
    return {"gpu": device.name, "before": before, "during": during, "after": watched(bench.nvml, seconds)}
