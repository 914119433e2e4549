"""Known work for one GPU, driven line by line: `python loads.py`, then `NAME SIZE SECONDS` on stdin.

Each line answers with one JSON line: start_ns and end_ns (Unix epoch) and launches of the unit of work.
Products run as a CUDA graph of back-to-back launches, so that the host is never the limit.

    bf16 fp16 tf32 fp32 fp64 fp8 int8   square products of SIZE
    copy     device copies of SIZE MiB
    idle     nothing
    eager    one-token decode steps of a small transformer, kernels launched one by one
    decode   the same as a CUDA graph
    tiny     kernels of about 10 us, launched one by one
    switch   a product, a copy and nothing, SIZE us each in turn (bf16 8192 scaled to fit)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

Work = Callable[[], None]
GRAPH_LAUNCHES = 16


def product(kind: str, n: int) -> Work:
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    if kind == "fp8":
        a = torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn).t()
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    if kind == "int8":
        a = torch.randint(-8, 8, (n, n), device="cuda", dtype=torch.int8)
        b = torch.randint(-8, 8, (n, n), device="cuda", dtype=torch.int8).t()
        return lambda: torch._int_mm(a, b)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}.get(kind, torch.float32)
    a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def copy(megabytes: int) -> Work:
    source = torch.empty(megabytes << 20, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


class Decoder(torch.nn.Module):
    """A Llama-shaped decode step of about 1B parameters at a fixed context, batch `batch`."""

    def __init__(self, batch: int, width: int = 2048, layers: int = 16, heads: int = 32) -> None:
        super().__init__()
        make = dict(device="cuda", dtype=torch.bfloat16)
        self.heads, self.layers = heads, layers
        self.qkv = [torch.randn(width, 3 * width, **make) * 0.02 for _ in range(layers)]
        self.out = [torch.randn(width, width, **make) * 0.02 for _ in range(layers)]
        self.up = [torch.randn(width, 4 * width, **make) * 0.02 for _ in range(layers)]
        self.down = [torch.randn(4 * width, width, **make) * 0.02 for _ in range(layers)]
        self.cache = torch.randn(2, batch, heads, 512, width // heads, **make)
        self.x = torch.randn(batch, width, **make)

    def step(self) -> None:
        x = self.x
        for i in range(self.layers):
            h = torch.nn.functional.rms_norm(x, (x.shape[1],))
            q, _, _ = (h @ self.qkv[i]).chunk(3, dim=1)
            q = q.view(x.shape[0], self.heads, 1, -1)
            a = torch.nn.functional.scaled_dot_product_attention(q, self.cache[0], self.cache[1])
            x = x + a.reshape(x.shape) @ self.out[i]
            h = torch.nn.functional.rms_norm(x, (x.shape[1],))
            x = x + torch.nn.functional.silu(h @ self.up[i]) @ self.down[i]


def graphed(work: Work, launches: int) -> Work:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(launches):
            work()
    return graph.replay


def repeat(work: Work, launches: int, seconds: float) -> dict[str, int]:
    work()
    torch.cuda.synchronize()
    start, done = time.time_ns(), 0
    while time.time_ns() - start < seconds * 1e9:
        work()
        torch.cuda.synchronize()
        done += launches
    return {"start_ns": start, "end_ns": time.time_ns(), "launches": done}


def switching(micros: int, seconds: float) -> dict[str, int]:
    """Tensor, copy and idle, `micros` each; says when each phase ran, for a truth to compare with."""
    mm, cp = product("bf16", 2048), copy(64)
    phases = []
    start = time.time_ns()
    turn = 0
    while time.time_ns() - start < seconds * 1e9:
        began, launches = time.time_ns(), 0
        kind = ("tensor", "copy", "idle")[turn % 3]
        while time.time_ns() - began < micros * 1000:
            if kind != "idle":
                (mm if kind == "tensor" else cp)()
                torch.cuda.synchronize()
                launches += 1
        phases.append([began, time.time_ns(), kind, launches])
        turn += 1
    return {"start_ns": start, "end_ns": time.time_ns(), "launches": turn, "phases": phases}  # type: ignore[dict-item]


def run(name: str, size: int, seconds: float) -> dict[str, int]:
    if name == "idle":
        start = time.time_ns()
        time.sleep(seconds)
        return {"start_ns": start, "end_ns": time.time_ns(), "launches": 0}
    if name == "switch":
        return switching(size, seconds)
    if name == "tiny":
        a = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
        return repeat(lambda: [torch.mm(a, a) for _ in range(1000)] and None, 1000, seconds)
    if name in ("eager", "decode"):
        step = Decoder(size).step
        return repeat(step, 1, seconds) if name == "eager" else repeat(graphed(step, 1), 1, seconds)
    work = copy(size) if name == "copy" else product(name, size)
    launches = GRAPH_LAUNCHES if size > 1024 else 64 * GRAPH_LAUNCHES
    return repeat(graphed(work, launches), launches, seconds)


def main() -> None:
    torch.zeros(1, device="cuda")
    print(json.dumps({"ready": torch.cuda.get_device_name()}), flush=True)
    for line in sys.stdin:
        name, size, seconds = line.split()
        with torch.no_grad():
            answer = run(name, int(size), float(seconds))
        print(json.dumps({"load": name, "size": int(size), **answer}), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
