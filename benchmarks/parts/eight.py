"""Eight scripted GPUs."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench import Bench, Figures

from cufall_py.frames import Frame
from cufall_py.plan import Plan
from cufall_py.resolve import Wanted
from cufall_py.session import LiveSession

POLL_NS = 20_000_000
"""How seldom a session may look whether a frame's time has come; a frame is late beyond that."""


def eight(bench: Bench, seconds: float = 8.0) -> Figures:
    """Eight scripted GPUs whose decodes burn processor time, at 1 kHz with four counters; needs no GPU."""
    burns = (1.5, 4.0, 10.0) if (os.cpu_count() or 1) >= 8 else (1.5, 4.0)
    out: Figures = {"cores": os.cpu_count()}
    for burn_ms in burns:
        out[f"{burn_ms:g} ms"] = eight_gpus(bench, burn_ms, [], seconds)
    hang = [{"gpu": 3, "kind": "hang", "at_s": 4.0}]
    out["one hung"] = eight_gpus(bench, 1.5, hang, seconds + 8)
    return out


def eight_gpus(bench: Bench, burn_ms: float, faults: list[dict[str, Any]], seconds: float) -> Figures:
    script = {"gpus": 8, "burn_ms": burn_ms, "faults": faults, "pattern": [{"ms": 100, "tensor": 0.5, "gr": 0.9}]}
    path = bench.folder / "eight.json"
    path.write_text(json.dumps(script))
    plan = Plan(Wanted(("tensor", "gr")), source=f"script:{path}", sample_us=1000, decode_us=50_000)
    hung = {fault["gpu"] for fault in faults}
    said: list[str] = []
    with LiveSession(plan, said.append) as session:
        seen = [look(frame, [gpu for gpu in range(8) if gpu not in hung]) for frame in session.frames(seconds)]
        cost = session.cost()
    return judged(seen, plan.frame_wait_ns + POLL_NS) | {
        "counters": list(session.opened[0].metrics.counters),
        "workers_cpu_pct": 100 * cost.workers_cpu_s / cost.wall_s,
        "lost": cost.tally.lost,
        "late_decodes": cost.tally.late,
        "said": said,
    }


@dataclass(frozen=True)
class Seen:
    """A frame as it came: how old, how much of it was covered, and this process's clocks then."""

    age_ns: int
    coverage: list[float]
    thin: bool
    at_s: float
    cpu_s: float


def look(frame: Frame, well: list[int]) -> Seen:
    """A frame is thin where a GPU that is well does not cover it."""
    age_ns = time.time_ns() - frame.end_ns
    thin = float(frame.coverage[well].min()) < 0.999
    return Seen(age_ns, frame.coverage.tolist(), thin, time.monotonic(), time.process_time())


def judged(seen: list[Seen], late_ns: int) -> Figures:
    """Frames older than `late_ns` are late; *_after_1s leave out the first second."""
    settled = [frame for frame in seen if frame.at_s - seen[0].at_s > 1]
    first, last = settled[0], settled[-1]
    return {
        "frames": len(seen),
        "late": sum(frame.age_ns > late_ns for frame in seen),
        "late_after_1s": sum(frame.age_ns > late_ns for frame in settled),
        "thin": sum(frame.thin for frame in seen),
        "thin_after_1s": sum(frame.thin for frame in settled),
        "thin_frames": [[k, f.age_ns / 1e6, f.coverage] for k, f in enumerate(seen, 1) if f.thin][:20],
        "age_p95_ms": float(np.percentile([frame.age_ns for frame in seen], 95)) / 1e6,
        "age_max_ms": max(frame.age_ns for frame in seen) / 1e6,
        "age_max_after_1s_ms": max(frame.age_ns for frame in settled) / 1e6,
        "reader_cpu_pct": 100 * (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s),
    }
