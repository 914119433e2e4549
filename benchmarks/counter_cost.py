"""What spellings of counters cost, and whether they count the same: `python benchmarks/counter_cost.py OUT.json`.

Needs a GPU. Each set is sampled at 1 kHz and decoded every 50 ms in a process of its own, so that a fault there is
a result here. `cost` runs under a bf16 product; `agree` puts spellings of one thing into one set, under many loads.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from harness import ROOT, GpuLoads

sys.path.insert(0, str(ROOT))
from cufall_py.sources.cupti import loader

loader.load()
from cufall_py.sources.cupti.bindings import BoundPm  # noqa: E402  (the libraries come first)
from cufall_py.sources.cupti.protocol import Config  # noqa: E402

E = "sm__cycles_elapsed.avg"
T, RT = "sm__pipe_tensor_cycles_active.avg", "sm__pipe_tensor_cycles_active_realtime.avg"
SM, GR, GE = "sm__cycles_active.avg", "gr__cycles_active.avg", "gr__cycles_elapsed.max"
TPC = "TPC.TriageCompute.sm__"
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum", "dram__cycles_elapsed.avg")
INST = "sm__inst_executed"
COST: dict[str, tuple[str, ...]] = {
    "tensor, plain": (T, E),
    "tensor, realtime": (RT, E),
    "the engineer's pair": (T, E, GE),
    "tensor, sm, gr, plain": (T, E, SM, GR, GE),
    "tensor, sm, gr, realtime": (RT, E, SM, GR, GE),
    "tensor, sm, gr, dram, realtime": (RT, E, SM, GR, GE, *DRAM),
    "sm__issue_active": (RT, E, "sm__issue_active.avg"),
    "issue": (RT, E, f"{INST}_realtime.sum"),
    "fma": (RT, E, f"{INST}_pipe_fmaheavy_realtime.sum", f"{INST}_pipe_fmalite_realtime.sum"),
    "alu": (RT, E, f"{INST}_pipe_alu_realtime.sum"),
    "fp64": (RT, E, "sm__pipe_fp64_cycles_active_realtime.avg"),
    "tensor.hmma": (RT, E, "sm__pipe_tensor_op_hmma_cycles_active_realtime.avg"),
    "tensor.dmma": (RT, E, "smsp__pipe_tensor_op_dmma_cycles_active_realtime.avg", "smsp__cycles_elapsed.avg"),
    "l2": (RT, E, "lts__t_bytes.sum", "lts__cycles_elapsed.avg"),
    "pcie": (RT, E, "pcie__read_bytes.sum", "pcie__write_bytes.sum", "pcie__cycles_elapsed.avg"),
    "occupancy": (RT, E, "sm__warps_active_realtime.avg"),
}
AGREE: dict[str, tuple[str, ...]] = {
    "tensor": (T, RT, TPC + "pipe_tensor_cycles_active_realtime.avg", E),
    "sm": (SM, TPC + "cycles_active.avg", E),
    "issue": (f"{INST}.sum", f"{INST}_realtime.sum", TPC + "inst_executed_realtime.sum", E),
    "alu": (f"{INST}_pipe_alu.sum", f"{INST}_pipe_alu_realtime.sum", E),
    "fma": (
        f"{INST}_pipe_fmaheavy_realtime.sum",
        f"{INST}_pipe_fmalite_realtime.sum",
        TPC + "inst_executed_pipe_fma_realtime.sum",
        E,
    ),
}
LOADS = (("bf16", 8192), ("fp8", 8192), ("int8", 8192), ("fp64", 4096), ("fp32", 4096), ("copy", 1024), ("bf16", 512))
SAMPLE_NS, DECODE_S, IMAGE = 1_000_000, 0.05, 264


def sample(counters: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """Passes, milliseconds a decode, share of a core, and each counter's sum."""
    pm = BoundPm(0)
    pm.enable()
    passes = pm.schedule(counters)
    if passes != 1:
        return {"passes": passes}
    pm.configure(Config(SAMPLE_NS, True, True, 64 << 20, IMAGE))
    pm.start()
    time.sleep(0.1)
    pm.decode()
    totals, decoding, count, began, used = np.zeros(len(counters)), 0.0, 0, time.monotonic(), cpu_s()
    while (now := time.monotonic()) - began < seconds:
        time.sleep(max(0.0, began + DECODE_S * (count + 1) - now))
        mark = time.perf_counter()
        samples = pm.decode().samples
        decoding += time.perf_counter() - mark
        totals += pm.values[:samples].sum(axis=0)
        count += 1
    share = (cpu_s() - used) / (time.monotonic() - began)
    image = pm._image.size // IMAGE
    pm.close()
    sums = dict(zip(counters, totals.tolist(), strict=True))
    return {"passes": 1, "decode_ms": 1e3 * decoding / count, "cpu": share, "image_bytes": image, "sums": sums}


def cpu_s() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def apart(counters: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """`sample` in a child; how it died if it did."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found: dict[str, Any] = sample(counters, seconds)
        except Exception as error:
            found = {"error": repr(error)}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if text else {"error": f"signal {status & 127}"}


def under(name: str, size: int, sets: Iterable[tuple[str, tuple[str, ...]]], seconds: float) -> dict[str, Any]:
    loads = GpuLoads()
    loads.begin(name, size, 1e6)
    time.sleep(1.0)
    found = {label: apart(counters, seconds) for label, counters in sets}
    loads.close()
    return found


def main(path: str) -> None:
    result: dict[str, Any] = {"cost": under("bf16", 8192, COST.items(), 1.0), "agree": {}}
    for name, size in LOADS:
        result["agree"][f"{name} {size}"] = under(name, size, AGREE.items(), 0.3)
        Path(path).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
