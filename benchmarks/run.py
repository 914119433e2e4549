"""Measures what cufall costs, beside the floor, on this machine: `python benchmarks/run.py OUT.json`.

OUT.json is written after each part; a part that fails leaves its error there and the rest goes on.
A part that is run again replaces what it wrote before. benchmarks/report.py makes tables of it.
With --source script:FILE it runs anywhere: no floor, no loads, figures of the scripted source.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable

from harness import ROOT, Report

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: this process forks workers
sys.path.insert(0, str(ROOT))
from bench import PLAIN, REALTIME, Bench, Figures
from parts.cost import memory, whole_cost, worker_cpu
from parts.eight import eight
from parts.latency import first_frame, frame_age
from parts.losses import losses, losses_fast
from parts.target import idle, target, target_floor
from parts.timeline import timeline
from parts.two import two
from parts.verdicts import verdicts

Part = Callable[[Bench], Figures]
ORDER: tuple[Part, ...] = (
    idle,  # first, while nothing has woken the GPU yet
    target,
    target_floor,
    worker_cpu,
    memory,
    whole_cost,
    frame_age,
    first_frame,
    eight,
    timeline,
    verdicts,
    losses_fast,
    losses,
)
PARTS: dict[str, Part] = {part.__name__: part for part in (*ORDER, two)}
"""`two` needs two GPUs and is run when it is named."""


def machine() -> Figures:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"]
    try:
        gpus = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    except OSError:
        gpus = []
    return {"cores": os.cpu_count(), "gpus": gpus, "python": sys.version.split()[0], "date": time.strftime("%F %T")}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="JSON to write")
    parser.add_argument(
        "--only", default=",".join(part.__name__ for part in ORDER), help=f"parts, of {','.join(PARTS)}"
    )
    parser.add_argument("--source", default="cupti")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long the run at 1 kHz takes [300]")
    parser.add_argument("--blocks", type=int, default=12, help="on-blocks of each load in target [12]")
    parser.add_argument("--counter", choices=(PLAIN, REALTIME), action="append", help="of worker_cpu [both]")
    return parser.parse_args()


def measure(name: str, bench: Bench) -> Figures:
    """A part's figures, or its error, and the seconds it took."""
    began = time.monotonic()
    try:
        found = PARTS[name](bench)
    except Exception:
        found = {"error": traceback.format_exc()}
        print(found["error"], file=sys.stderr)
    took_s = time.monotonic() - began
    print(f"{name}: {took_s:.1f} s", file=sys.stderr, flush=True)
    return found | {"took_s": took_s}


def main() -> None:
    given = arguments()
    report = Report(given.out)
    counters = tuple(given.counter or (PLAIN, REALTIME))
    bench = Bench(given.source, given.seconds, given.blocks, counters, keep=report.save)
    report.save("machine", machine())
    try:
        for name in given.only.split(","):
            report.save(name, measure(name, bench))
    finally:
        bench.close()


if __name__ == "__main__":
    main()
