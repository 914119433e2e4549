"""How busy products of matrices keep the tensor pipe, by size:

    python examples/gemm_bench.py --require 'tensor.mean >= 60%' [--sizes 1024,4096]

A line of JSON a size; then 3 if a requirement was missed on any GPU, 4 if one could not be measured. With PyTorch and a
GPU the products are there, in bf16; without, numpy computes them on this machine's cores, and GPUs are left alone.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable

import numpy as np

from cufall_py import BackgroundSession, CufallError, Plan


def product(size: int) -> Callable[[], object]:
    """Computes one, and returns when that is done."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        a = np.ones((size, size), np.float32)
        return lambda: a @ a
    b = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    return lambda: (b @ b, torch.cuda.synchronize())


def tflops(size: int, seconds: float) -> float:
    """10^12 operations a second over so long."""
    step, done = product(size), 0
    step()
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        step()
        done += 1
    return 2 * size**3 * done / (time.monotonic() - began) / 1e12


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1024,2048,4096,8192", help="[1024,2048,4096,8192]")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each is measured [2]")
    parser.add_argument("--require", action="append", default=[], metavar="EXPR", help="of each size")
    parser.add_argument("--source", default="auto", help="what samples; script:FILE has made-up GPUs [auto]")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    outcomes = set()
    with BackgroundSession(Plan(source=asked.source, sample_us=1000)) as session:
        for size in map(int, asked.sizes.split(",")):
            with session.region(f"gemm-{size}") as measured:
                rate = tflops(size, asked.seconds)
            of, judged = measured.summary("tensor"), measured.require(*asked.require)
            outcomes |= {judgement.outcome for judgement in judged}
            found = {"size": size, "tflops": rate, "tensor": None if math.isnan(of.mean) else of.mean}
            told = [f"{judgement.subject}: {judgement.requirement.text}: {judgement.outcome}" for judgement in judged]
            print(json.dumps({**found, "coverage": of.coverage, "requirements": told}))
    return 4 if "not measurable" in outcomes else 3 if "missed" in outcomes else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CufallError as error:  # no GPU, counters that are denied: a line that says what to do
        sys.exit(str(error))
