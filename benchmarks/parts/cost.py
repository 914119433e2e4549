"""Processor time and memory: of a worker beside the floor, and of all of cufall."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from itertools import pairwise

from bench import ELAPSED, FLOOR_BUFFER_MB, GEMM, PLAIN, REALTIME, Bench, Figures
from harness import cpu_s, memory_mb, tree, workers

from cufall_py.samples import Tally
from cufall_py.session import LiveSession

EQUAL_WORK = ((1000, 10_000), (1000, 50_000), (100, 50_000))
"""(sample, decode) in us at which the worker is held against the floor."""
FOUR = ("--metric", "tensor", "--metric", "sm", "--metric", "gr", "--metric", "dram")


def worker_cpu(bench: Bench) -> Figures:
    """Floor, worker, floor: processor share of a core at equal counters, samples and decodes a second."""
    out: Figures = {}
    with bench.load(*GEMM):
        for counter in bench.counters:
            for sample_us, decode_us in EQUAL_WORK:
                out[f"{counter} {sample_us} {decode_us}"] = beside_floor(bench, counter, sample_us, decode_us)
    return out


def beside_floor(
    bench: Bench, counter: str, sample_us: int, decode_us: int, seconds: float = 1.5, rounds: int = 3
) -> Figures:
    """Each worker against the floors before and after it; the ratio is the median of the rounds'."""
    floors = [bench.floor.run((counter, ELAPSED), sample_us, decode_us, seconds)]
    workers_ = []
    for _ in range(rounds):
        workers_.append(run_worker(bench, counter, sample_us, decode_us, seconds))
        floors.append(bench.floor.run((counter, ELAPSED), sample_us, decode_us, seconds))
    out: Figures = {"floor": floors, "worker": workers_}
    if floors[0]:
        around = [(a["cpu_pct"] + b["cpu_pct"]) / 2 for a, b in pairwise(floors)]
        out["ratios"] = [worker["cpu_pct"] / floor for worker, floor in zip(workers_, around, strict=True)]
        out["ratio"] = statistics.median(out["ratios"])
    return out


def run_worker(
    bench: Bench, counter: str, sample_us: int, decode_us: int, seconds: float, buffer_mb: int = FLOOR_BUFFER_MB
) -> Figures:
    """A session's worker in its steady state."""
    with LiveSession(bench.plan_of_floor(counter, sample_us, decode_us, hw_buffer_mb=buffer_mb)) as session:
        marks: list[tuple[float, Tally]] = []
        began = time.monotonic()
        for _ in session.frames():
            marks.append((time.monotonic(), session.gpus[0].tally))
            if time.monotonic() - began > seconds + 0.7:
                break
        first = next(k for k, (at, _) in enumerate(marks) if at - began > 0.7)
        worker = workers(os.getpid())
        return between(marks[first], marks[-1]) | {"memory_mb": memory_mb(worker[0])}


def between(first: tuple[float, Tally], last: tuple[float, Tally]) -> Figures:
    """What a worker did between two moments."""
    wall_s, (a, b) = last[0] - first[0], (first[1], last[1])
    decodes = max(b.decodes - a.decodes, 1)
    return {
        "cpu_pct": 100 * (b.cpu_ns - a.cpu_ns) / 1e9 / wall_s,
        "decodes_per_s": decodes / wall_s,
        "decode_us": (b.decode_ns - a.decode_ns) / decodes / 1000,
        "samples_per_s": (b.samples - a.samples) / wall_s,
        "late": b.late - a.late,
        "latest_ms": b.late_ns / 1e6,
        "lost": b.lost - a.lost,
        "absurd": b.absurd - a.absurd,
        "duplicate": b.duplicate - a.duplicate,
        "rebuilt": b.rebuilt - a.rebuilt,
    }


def memory(bench: Bench) -> Figures:
    """Resident memory of floor and worker at the same hardware buffer, and of a worker at its defaults."""
    with bench.load(*GEMM):
        floor = bench.floor.run((PLAIN, ELAPSED), 1000, 50_000, 1.0)
        same = run_worker(bench, PLAIN, 1000, 50_000, 1.0)["memory_mb"]
        default = run_worker(bench, REALTIME, 25_000, 200_000, 1.0, 0)["memory_mb"]
    return {"floor_mb": floor.get("rss_mb"), "buffer_mb": FLOOR_BUFFER_MB, "worker_mb": same, "default_mb": default}


def whole_cost(bench: Bench, from_s: float = 3.0, to_s: float = 10.0) -> Figures:
    """All processes of `cufall --duration-sec 10 > file`, from 3 to 10 s after exec."""
    with bench.load(*GEMM):
        return {
            "defaults": tree_cost(bench, (), from_s, to_s),
            "four": tree_cost(bench, FOUR, from_s, to_s),
        }


def tree_cost(bench: Bench, args: tuple[str, ...], from_s: float, to_s: float) -> Figures:
    with open(bench.folder / "waterfall.txt", "wb") as file:
        process = bench.start(*args, "--duration-sec", f"{to_s:g}", stdout=file, stderr=subprocess.PIPE)
        began = time.monotonic()
        time.sleep(from_s)
        pids, first_at = tree(process.pid), time.monotonic()
        first = {pid: cpu_s([pid]) for pid in pids}
        time.sleep(to_s - (time.monotonic() - began))
        used = {pid: cpu_s([pid]) - before for pid, before in first.items()}
        wall_s = time.monotonic() - first_at
        said = process.communicate()[1].decode()
    return {
        "cpu_pct": 100 * sum(used.values()) / wall_s,
        "by_process_pct": [100 * used[pid] / wall_s for pid in pids],
        "said": said.splitlines()[-1:],
    }
