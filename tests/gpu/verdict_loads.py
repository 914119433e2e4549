"""The labelled loads, in a process of their own: `NAME SECONDS` on stdin, one line of JSON for each on stdout.

`start_ns` and `end_ns` (Unix epoch): the GPU did that and nothing else between them, and nothing for SETTLE_S before.
`failed`: why there was no such load; `ends`: an error of CUDA was in it, and this process does no more. What each must
be called is in verdict_expected.json. Needs PyTorch and transformers, and torch._scaled_mm for fp8.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "examples")]
import demo_loads  # noqa: E402
import loads  # noqa: E402

Work = Callable[[], object]
Load = Callable[[float], object]
"""Does it for so many seconds, and has it done when it returns."""
SETTLE_S = 0.2
GRAPH_S = 0.008
LEAST_IN_A_GRAPH, MOST_IN_A_GRAPH = 16, 1024
AHEAD = 1
"""What is queued beyond the one that runs, so that there is no gap between them."""
MIB, GIB = 1 << 20, 1 << 30
TOKENS = 512
BATCHES = (1, 4, 16, 64)
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

# how a load runs ----------------------------------------------------------------------------------------


def queued(work: Work, seconds: float) -> None:
    """Give the GPU the next before the one that runs has ended."""
    under_way: deque[torch.cuda.Event] = deque()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        work()
        under_way.append(torch.cuda.Event())
        under_way[-1].record()
        if len(under_way) > AHEAD:
            under_way.popleft().synchronize()


def replayed(work: Work) -> Load:
    """Back to back in a CUDA graph of some milliseconds: the host is never the limit."""
    for _ in range(3):
        work()
    each_s = timed(work, LEAST_IN_A_GRAPH)
    wanted = min(max(GRAPH_S / each_s, LEAST_IN_A_GRAPH), MOST_IN_A_GRAPH)
    graph = loads.graphed(work, LEAST_IN_A_GRAPH * int(wanted / LEAST_IN_A_GRAPH))
    return lambda seconds: queued(graph, seconds)


def timed(work: Work, times: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def stepped(step: Work) -> Load:
    """One by one, each waited for, as sampling the next token does."""
    step()

    def run(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            step()
            torch.cuda.current_stream().synchronize()

    return run


def paced(work: Work, period_s: float) -> Load:
    """One by one, a period apart, without waiting for any."""
    work()

    def run(seconds: float) -> None:
        due = time.perf_counter()
        until = due + seconds
        while due < until:
            work()
            due = max(due + period_s, time.perf_counter())
            while time.perf_counter() < due:
                pass

    return run


# one kind of kernel -------------------------------------------------------------------------------------


def gather() -> Work:
    """4 bytes of every 128."""
    source = torch.zeros(GIB, device="cuda")[::32]
    out = torch.empty(source.shape, device="cuda")
    return lambda: out.copy_(source)


def softmax() -> Work:
    x = torch.randn(65536, 4096, device="cuda")
    return lambda: torch.softmax(x, 1)


def grouped() -> Work:
    a = torch.randn(32, 16, 512, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(32, 512, 512, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)
    return lambda: torch.bmm(a, b, out=out)


def small() -> Work:
    """Some 5 us: 8 MB from L2 and back."""
    x = torch.ones(2 * MIB, device="cuda")
    return lambda: x.mul_(1.0)


def heads(batch: int, count: int, length: int) -> torch.Tensor:
    return torch.randn(batch, count, length, 128, device="cuda", dtype=torch.bfloat16)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **more: Any) -> Work:
    def work() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return attention(q, k, v, **more)

    return work


def prompt_attention() -> Work:
    return flash(*(heads(4, 32, 4096) for _ in range(3)), is_causal=True)


def token_attention() -> Work:
    """A token of 16 sequences of 8,192, four queries to a head of the cache."""
    return flash(heads(16, 32, 1), heads(16, 8, 8192), heads(16, 8, 8192), enable_gqa=True)


# kernels that wait --------------------------------------------------------------------------------------

WAIT = """\
.version 7.0
.target sm_80
.address_size 64

.visible .entry work(.param .u64 flag, .param .u64 most_ns)
{{
    .reg .pred %over;
    .reg .b32 %word;
    .reg .b64 %flag, %most, %begun, %now;
    ld.param.u64 %flag, [flag];
    ld.param.u64 %most, [most_ns];
    mov.u64 %begun, %globaltimer;
TURN:
    {turn}
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begun;
    setp.ge.u64 %over, %now, %most;
    @%over bra END;
    bra TURN;
END:
    ret;
}}
"""
POLL = WAIT.format(
    turn="ld.relaxed.sys.global.u32 %word, [%flag];\n    setp.ne.u32 %over, %word, 0;\n    @%over bra END;"
)
NAP = WAIT.format(turn="nanosleep.u32 1000;")


class Kernel:
    """PTX text as a kernel of PyTorch's context, through the driver itself. Raises RuntimeError."""

    def __init__(self, text: str) -> None:
        torch.cuda.synchronize()
        self._cuda = ctypes.CDLL("libcuda.so.1")
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check("cuModuleLoadData", self._cuda.cuModuleLoadData(ctypes.byref(module), text.encode()))
        self._check(
            "cuModuleGetFunction", self._cuda.cuModuleGetFunction(ctypes.byref(self._function), module, b"work")
        )

    def launch(self, blocks: int, threads: int, *values: int) -> None:
        held = [ctypes.c_uint64(value) for value in values]
        places = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = (blocks, 1, 1, threads, 1, 1, 0)
        self._check("cuLaunchKernel", self._cuda.cuLaunchKernel(self._function, *shape, stream, places, None))

    @staticmethod
    def _check(call: str, code: int) -> None:
        if code:
            raise RuntimeError(f"{call} gave error {code}")


def polling() -> Load:
    """16 warps read a word of host memory until the host has written it."""
    kernel, flag = Kernel(POLL), torch.zeros(1, dtype=torch.int32).pin_memory()

    def run(seconds: float) -> None:
        flag[0] = 0
        kernel.launch(16, 32, flag.data_ptr(), int(3e9 * seconds))
        time.sleep(seconds)
        flag[0] = 1
        torch.cuda.synchronize()

    run(0.01)
    return run


def napping() -> Load:
    """Four warps on each SM sleep a microsecond at a time."""
    kernel = Kernel(NAP)
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def run(seconds: float) -> None:
        kernel.launch(sms, 128, 0, int(1e9 * seconds))
        torch.cuda.synchronize()

    run(0.01)
    return run


# a transformer ------------------------------------------------------------------------------------------


@lru_cache
def llama(kind: str) -> Any:
    return demo_loads.model(TYPES[kind])


@lru_cache(maxsize=1)
def step_of(phase: str, batch: int, kind: str) -> Work:
    """Only the latest is kept."""
    model = llama(kind)
    if phase == "decode":
        return demo_loads.decode(model, batch)
    prompts = demo_loads.tokens(batch, TOKENS)
    return lambda: model(prompts, use_cache=False, logits_to_keep=1)


def transformer(phase: str, batch: int, kind: str, mode: str) -> Load:
    torch.backends.cuda.matmul.allow_tf32 = False
    step = step_of(phase, batch, kind)
    if mode == "eager":
        return stepped(step)
    graph = captured(step)
    return lambda seconds: queued(graph, seconds)


def captured(step: Work) -> Work:
    """A step as a CUDA graph; loads.graphed warms up three times, which takes seconds of the longest."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return lambda: graph.replay() if step else None  # a graph does not keep what it works on; this does


# the list -----------------------------------------------------------------------------------------------

SIZES = (512, 2048, 8192)
LOADS: dict[str, Callable[[], Load]] = {
    "idle": lambda: time.sleep,
    **{
        f"gemm-{kind}-{size}": lambda kind=kind, size=size: replayed(loads.product(kind, size))
        for kind in ("bf16", "fp8", "int8")
        for size in SIZES
    },
    "gemm-fp32-simt": lambda: replayed(loads.product("fp32", 8192)),
    "gemv-bf16": lambda: replayed(loads.linear(1)),
    "device-copy": lambda: replayed(loads.copy(256)),
    "strided-gather": lambda: replayed(gather()),
    "softmax": lambda: replayed(softmax()),
    "grouped-gemm-small": lambda: replayed(grouped()),
    "attention-prefill": lambda: replayed(prompt_attention()),
    "attention-decode": lambda: replayed(token_attention()),
    "small-kernels": lambda: paced(small(), 20e-6),
    "host-bound-loop": lambda: paced(loads.product("bf16", 4096), 2e-3),
    "pcie-h2d": lambda: _copies("cpu", "cuda"),
    "pcie-d2h": lambda: _copies("cuda", "cpu"),
    "poll-host-flag": polling,
    "nanosleep": napping,
    **{
        f"{phase}-{batch}-{kind}-{mode}": lambda of=(phase, batch, kind, mode): transformer(*of)
        for kind in TYPES
        for phase in ("decode", "prefill")
        for batch in BATCHES
        for mode in ("eager", "graph")
    },
}


def _copies(source: str, target: str) -> Load:
    work = loads.many(loads.copy(64, source, target), 4)
    work()
    return lambda seconds: queued(work, seconds)


def ran(name: str, seconds: float) -> dict[str, Any]:
    load = LOADS[name]()
    torch.cuda.synchronize()
    time.sleep(SETTLE_S)
    start_ns = time.time_ns()
    load(seconds)
    torch.cuda.synchronize()
    return {"start_ns": start_ns, "end_ns": time.time_ns()}


def answer(name: str, seconds: float) -> dict[str, Any]:
    """What was done; a load that this GPU or these libraries cannot run is told, and the others go on."""
    began = time.monotonic()
    try:
        found = ran(name, seconds)
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    found["took_s"] = time.monotonic() - began
    gc.collect()
    return found


def usable() -> bool:
    """Whether CUDA can go on: no process outlives an error in a kernel."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


@torch.inference_mode()
def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed is no answer
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    gc.freeze()  # what is imported by now is not looked at after each load
    answers.write(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}) + "\n")
    for line in sys.stdin:
        name, seconds = line.split()
        found = {"load": name, **answer(name, float(seconds)), "ends": not usable()}
        answers.write(json.dumps(found) + "\n")
        if found["ends"]:
            return
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
