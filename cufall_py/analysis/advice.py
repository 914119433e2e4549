"""What to do about a verdict: one sentence a class, with the figures it rests on, no more than counters can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

EVIDENCE: dict[str, tuple[str, ...]] = {
    "idle": ("gr",),
    "launch-bound": ("gr", "launches", "sm"),
    "memory-bound": ("dram", "tensor", "sm"),
    "tensor-bound": ("tensor", "dram"),
    "cuda-core-bound": ("fma", "alu", "fp64", "tensor", "dram"),
    "waiting": ("sm", "issue", "tensor", "dram"),
    "latency-bound": ("sm", "occupancy", "issue", "tensor", "dram"),
    "transfer-bound": ("pcie.rx", "pcie.tx", "nvlink.rx", "nvlink.tx", "c2c.rx", "c2c.tx"),
    "mixed": ("gr", "tensor", "dram", "fma", "launches"),
    "unknown": ("gr", "sm", "tensor", "dram"),
}
"""What is shown of each class: first what decided."""
TEXT = {
    "idle": "nothing runs on it: look at what should give it work (requests, a queue, the data loader); "
    "Nsight Systems shows the host's side",
    "launch-bound": "it waits for the host between short kernels: try CUDA graphs or torch.compile; "
    "the PyTorch profiler or Nsight Systems shows the host's side",
    "memory-bound": "device memory is the limit: move fewer bytes (larger batch, smaller types, fused kernels); "
    "Nsight Compute shows how well a kernel uses it",
    "tensor-bound": "the tensor pipe is the limit: more speed takes a smaller type, less work or more GPUs; Nsight "
    "Compute tells what single kernels leave of it",
    "cuda-core-bound": "the work runs on the CUDA cores, not on the tensor pipe: check data types (fp32 without TF32) "
    "and which kernels are chosen; the PyTorch profiler names them",
    "waiting": "kernels are resident and wait (a collective, a flag, another GPU): look for the rank that does not; "
    "Nsight Systems shows for whom",
    "latency-bound": "kernels run and nothing measured is near its limit: they may be too small, or wait for one load "
    "after another; Nsight Compute tells their stalls",
    "transfer-bound": "a link is the limit: keep data on the GPU, overlap copies with work, or move fewer bytes; "
    "Nsight Systems shows the copies",
    "mixed": "no one limit takes half of the time: look at shorter regions (cufall mark), or at kernels with Nsight "
    "Systems",
    "unknown": "most of this time was not measured (a GPU lost, samples lost, turns of other sets), or is no part of "
    "what is reported",
}
LACKING = "what would tell was not measured"
MOSTLY_EMPTY = (
    "no kernel runs for most of the time, and short kernels alone do not explain it: look at what the host does "
    "between (the PyTorch profiler, Nsight Systems), or at shorter regions (cufall mark)"
)
HALF = 0.5
"""Of `gr`: a GPU that is active for less has nothing for most of the time."""


def advice(verdict: str, missing: Sequence[str], means: Mapping[str, float]) -> str:
    """The sentence of a class; of unknown, with what is `missing`; of mixed by its `means`, as gaps are no limit."""
    if verdict == "mixed" and means.get("gr", math.nan) < HALF:
        return MOSTLY_EMPTY
    if verdict == "unknown" and missing:
        return f"{LACKING}: {', '.join(map(_called, missing))} (--set verdict, or --metric)"
    return TEXT[verdict]


def evidence(verdict: str, means: Mapping[str, float]) -> list[tuple[str, float]]:
    """The values that a class rests on, of those that were measured; of links only what carried the most."""
    found = [(name, means[name]) for name in EVIDENCE[verdict] if not math.isnan(means.get(name, math.nan))]
    if verdict == "transfer-bound":
        return sorted(found, key=lambda pair: -pair[1])[:1]
    return found


def _called(name: str) -> str:
    return {"link": "a link (pcie, nvlink or c2c)", "gap_within": "gr in shorter samples (--sample-us)"}.get(name, name)
