"""Samples got and lost."""

from __future__ import annotations

import os
import time

from bench import GEMM, Bench, Figures
from harness import memory_mb, workers

from cufall_py.samples import Samples
from cufall_py.session import LiveSession


def losses(bench: Bench) -> Figures:
    """Samples got, lost and expected over a long run at 1 kHz."""
    return {"1000 us": count_samples(bench, 1000, bench.seconds)}


def losses_fast(bench: Bench) -> Figures:
    """The same for 30 s at 10 kHz, and for 3 s beyond what can be kept up with."""
    return {f"{us} us": count_samples(bench, us, min(bench.seconds, s)) for us, s in ((100, 30.0), (20, 3.0))}


def count_samples(bench: Bench, sample_us: int, seconds: float) -> Figures:
    """Under a change of load every five seconds, with the memory of the worker every ten."""
    edges: list[tuple[int, int]] = []

    def on_samples(gpu: int, samples: Samples) -> None:
        edges.append((int(samples.start_ns[0]), int(samples.end_ns[-1])))

    plan = bench.plan(sample_us=sample_us)
    work = [GEMM, ("copy", 1024), ("decode", 16), ("idle", 0)]
    with LiveSession(plan, on_samples=on_samples) as session:
        worker = workers(os.getpid())[0]
        memories: list[dict[str, float]] = []
        began, until = time.monotonic(), time.monotonic() + seconds
        frames = session.frames()
        while time.monotonic() < until:
            if len(memories) * 10 <= time.monotonic() - began:
                memories.append(memory_mb(worker) | {"reader": memory_mb(os.getpid())["now"]})
            name, size = work[len(memories) % len(work)] if seconds > 5 else GEMM
            bench.loads.run(name, size, min(5.0, until - time.monotonic()))
            now = time.time_ns()
            next(frame for frame in frames if frame.end_ns > now)
            found = counted(session, (edges[0][0], edges[-1][1]), 1000 * sample_us) | {"memory_mb": memories}
            bench.keep(f"losses so far, {sample_us} us", found)
    return found


def counted(session: LiveSession, span: tuple[int, int], period_ns: int) -> Figures:
    """What a session got and lost of the samples that the time from its first to its last has."""
    tally, span_ns = session.gpus[0].tally, span[1] - span[0]
    expected = span_ns / period_ns
    return {
        "span_s": span_ns / 1e9,
        "got": tally.samples,
        "lost": tally.lost,
        "lost_s": tally.lost_ns / 1e9,
        "expected": expected,
        "accounted": (tally.samples + tally.lost + tally.absurd) / expected,
        "absurd": tally.absurd,
        "duplicate": tally.duplicate,
        "rebuilt": tally.rebuilt,
        "late_decodes": tally.late,
        "latest_ms": tally.late_ns / 1e6,
        "decodes": tally.decodes,
        "overwritten": session.cost().overwritten,
        "cpu_pct": 100 * tally.cpu_ns / span_ns,
    }
