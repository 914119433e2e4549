"""One profiled launch of each product, a small kernel of PyTorch's between them; run by measure.py under ncu."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import loads


def main() -> None:
    for word in sys.argv[1:]:
        kind, _, size = word.partition(":")
        work = loads.product(kind, int(size))
        work()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        work()
        torch.cuda._sleep(1000)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
