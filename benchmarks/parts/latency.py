"""Time: how old a frame is when it is read, and how long the first one takes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
from bench import ELAPSED, GEMM, REALTIME, Bench, Figures
from harness import cufall, environment

PER_FRAME = ("--frame-us", "10000", "--decode-us", "10000")
YOUNG_NS = 1_000_000_000
"""Frames that begin within this of the first one are no part of the ages: start-up is still going on."""


def frame_age(bench: Bench, seconds: float = 7.0) -> Figures:
    """How old a frame is when its row can be read from stdout: row read minus frame end, after the first second."""
    with bench.load(*GEMM):
        return {
            "defaults": ages(bench, (), 100_000_000, seconds),
            "per frame": ages(bench, PER_FRAME, 10_000_000, seconds),
        }


def ages(bench: Bench, args: tuple[str, ...], frame_ns: int, seconds: float) -> Figures:
    process = bench.start(*args, "--csv", "-", "--duration-sec", f"{seconds:g}", stdout=-1, stderr=-1)
    found = [(int(row.split(b",")[1]), at) for at, row in rows(process)]
    process.communicate()
    first_ns = found[0][0]
    every = [(at - start - frame_ns) / 1e6 for start, at in found]
    later = [age for age, (start, _) in zip(every, found, strict=True) if start - first_ns >= YOUNG_NS]
    p50, p95 = np.percentile(later, [50, 95])
    return {
        "rows": len(later),
        "p50_ms": p50,
        "p95_ms": p95,
        "max_ms": max(later),
        "first_ms": every[0],
        "left_out": len(every) - len(later),
        "left_out_s": YOUNG_NS / 1e9,
        "left_out_max_ms": max(every[: len(every) - len(later)]),
    }


def rows(process: subprocess.Popen[bytes]) -> Iterator[tuple[int, bytes]]:
    """CSV rows of a process as they come, each with the time it was read, ns; the header is left out."""
    assert process.stdout
    text, header = b"", True
    while data := os.read(process.stdout.fileno(), 65536):
        now = time.time_ns()
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            if not header:
                yield now, line
            header = False


def first_frame(bench: Bench, times: int = 3) -> Figures:
    """From exec to the first row, beside the floor's first value and a bare `import cupti.cupti`."""
    out: Figures = {"defaults_s": [], "per_frame_s": [], "import_s": [], "floor_s": [], "floor_per_frame_s": []}
    for _ in range(times if bench.real else 1):
        out["defaults_s"].append(to_first_row(bench, ()))
        out["per_frame_s"].append(to_first_row(bench, PER_FRAME))
        out["import_s"].append(bare_import())
        for key, sample_us, decode_us in (("floor_s", 25_000, 200_000), ("floor_per_frame_s", 2500, 10_000)):
            floor = bench.floor.run((REALTIME, ELAPSED), sample_us, decode_us, 0.3)
            out[key] += [floor["first_value_s"]] if floor else []
    return out | {"help": help_time()}


def to_first_row(bench: Bench, args: tuple[str, ...]) -> float:
    began = time.monotonic()
    process = bench.start(*args, "--csv", "-", stdout=-1, stderr=-1)
    found = next(rows(process), None)
    took = time.monotonic() - began
    process.terminate()
    said = process.communicate()[1]
    if found is None:
        raise RuntimeError(f"no row came: {said.decode()}")
    return took


def bare_import() -> float:
    """Seconds that `import cupti.cupti` takes in a fresh Python."""
    code = "import time; t = time.perf_counter()\nimport cupti.cupti\nprint(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    return float(done.stdout or "nan")


def help_time(times: int = 5) -> Figures:
    took = []
    for _ in range(times):
        began = time.monotonic()
        cufall("--help", stdout=subprocess.DEVNULL).wait()
        took.append(time.monotonic() - began)
    code = (
        "import sys; sys.argv = ['cufall', '--help']\nfrom cufall_py.cli import main\n"
        "try: main()\nexcept SystemExit: print(sorted({'numpy', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    return {"s": took, "median_s": statistics.median(took), "heavy_modules": done.stderr.strip()}
