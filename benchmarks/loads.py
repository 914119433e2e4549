"""Known work for one GPU, driven line by line: `python loads.py`, then `NAME SIZE SECONDS` on stdin.

Each line answers with one JSON line: start_ns and end_ns (Unix epoch), launches of the unit of work between
them, and marks: [ns, launches done by then], a few milliseconds apart. Nothing else runs on the GPU from
MARGIN_S before start_ns to MARGIN_S after end_ns. A further line ends a load early.
Products and device copies run as a CUDA graph of back-to-back launches, so that the host is never the limit.

    bf16 fp16 tf32 fp32 fp64 fp8 int8   square products of SIZE
    linear   a batch of SIZE rows times one of 16 bf16 matrices of LINEAR x LINEAR in turn, more than any cache holds
    copy     device copies of SIZE MiB
    h2d d2h  copies of SIZE MiB from and to pinned host memory
    idle     nothing
    eager    one-token decode steps of a 1B transformer at batch SIZE, kernels launched one by one
    decode   the same as a CUDA graph
    tiny     kernels of about 10 us, launched one by one
    switch   products (bf16 2048), copies (256 MiB) and nothing, SIZE us each in turn; `phases` has a row
             for each: when it began, when its work had ended, its kind, its launches
"""

from __future__ import annotations

import itertools
import json
import select
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch

Work = Callable[[], object]
GRAPH_LAUNCHES = 16
LINEAR = 8192
DECODE_STEPS = 8
TINY_LAUNCHES = 1000
MARGIN_S = 0.02
MARK_NS = 4_000_000
FILLED = 0.85
"""Share of a `switch` phase that its work takes; the rest keeps phases apart."""


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


def linear(batch: int) -> Work:
    """One launch is one matrix."""
    matrices = [torch.randn(LINEAR, LINEAR, device="cuda", dtype=torch.bfloat16) for _ in range(GRAPH_LAUNCHES)]
    x = torch.randn(batch, LINEAR, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    turn = itertools.cycle(matrices)
    return lambda: torch.mm(x, next(turn), out=out)


def copy(megabytes: int, source: str = "cuda", target: str = "cuda") -> Work:
    a, b = (_bytes(megabytes << 20, place) for place in (source, target))
    return lambda: b.copy_(a, non_blocking=True)


def _bytes(count: int, place: str) -> torch.Tensor:
    return torch.ones(count, dtype=torch.uint8, device=place, pin_memory=place == "cpu")


class Decoder(torch.nn.Module):
    """A Llama-shaped decode step of 1B parameters at a fixed context of 512 tokens, batch `batch`."""

    def __init__(self, batch: int, width: int = 2048, layers: int = 20, heads: int = 32) -> None:
        super().__init__()
        self.heads, self.layers = heads, layers

        def weight(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.02

        self.qkv = [weight(width, 3 * width) for _ in range(layers)]
        self.out = [weight(width, width) for _ in range(layers)]
        self.up = [weight(width, 4 * width) for _ in range(layers)]
        self.down = [weight(4 * width, width) for _ in range(layers)]
        self.cache = torch.randn(2, batch, heads, 512, width // heads, device="cuda", dtype=torch.bfloat16)
        self.x = weight(batch, width)

    def step(self) -> None:
        x = self.x
        for i in range(self.layers):
            h = torch.nn.functional.rms_norm(x, (x.shape[1],))
            q, _, _ = (h @ self.qkv[i]).chunk(3, dim=1)
            q = q.reshape(x.shape[0], self.heads, 1, -1)
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

    def replay() -> object:
        # a graph does not keep what it works on; `work` does, and must live as long
        return graph.replay() if work else None

    return replay


def many(work: Work, launches: int) -> Work:
    def run() -> None:
        for _ in range(launches):
            work()

    return run


@lru_cache(maxsize=1)
def prepared(name: str, size: int) -> tuple[Work, int]:
    """A load ready to run, and the launches of one call of it; only the latest is kept."""
    torch.cuda.empty_cache()
    if name == "tiny":
        return many(product("bf16", 1024), TINY_LAUNCHES), TINY_LAUNCHES
    if name == "eager":
        return Decoder(size).step, 1
    if name == "decode":
        return graphed(Decoder(size).step, DECODE_STEPS), DECODE_STEPS
    if name in ("h2d", "d2h"):
        ends = ("cpu", "cuda") if name == "h2d" else ("cuda", "cpu")
        return many(copy(size, *ends), GRAPH_LAUNCHES), GRAPH_LAUNCHES
    if name == "linear":
        return graphed(linear(size), GRAPH_LAUNCHES), GRAPH_LAUNCHES
    launches = GRAPH_LAUNCHES if size > 1024 or name == "copy" else 64 * GRAPH_LAUNCHES
    return graphed(copy(size) if name == "copy" else product(name, size), launches), launches


def repeat(work: Work, launches: int, seconds: float) -> dict[str, Any]:
    work()
    torch.cuda.synchronize()
    time.sleep(MARGIN_S)
    start = now = time.time_ns()
    done, marks = 0, [[start, 0]]
    while now - start < seconds * 1e9 and not told_to_end():
        work()
        torch.cuda.synchronize()
        done, now = done + launches, time.time_ns()
        if now - marks[-1][0] > MARK_NS:
            marks.append([now, done])
    time.sleep(MARGIN_S)
    return {"start_ns": start, "end_ns": now, "launches": done, "marks": marks}


def told_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


@lru_cache(maxsize=1)
def stages(micros: int) -> list[tuple[str, Work, int]]:
    """What `switch` does in its phases: kind, work that fits one, its launches."""
    works = {"tensor": product("bf16", 2048), "copy": copy(256)}
    filled = [(kind, *filling(work, FILLED * micros)) for kind, work in works.items()]
    return [*filled, ("idle", lambda: None, 0)]


def filling(work: Work, micros: float) -> tuple[Work, int]:
    """As many launches, in a graph, as take about `micros`."""
    replay = graphed(work, GRAPH_LAUNCHES)
    for _ in range(20):
        replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        replay()
    torch.cuda.synchronize()
    each_us = 1e6 * (time.perf_counter() - start) / (20 * GRAPH_LAUNCHES)
    launches = max(1, int(micros / each_us))
    return graphed(work, launches), launches


def switching(micros: int, seconds: float) -> dict[str, Any]:
    """Phases on a fixed beat, as long as each one's work ends within it."""
    turns = stages(micros)
    for _, work, _ in turns:
        work()
    torch.cuda.synchronize()
    time.sleep(MARGIN_S)
    start = time.time_ns()
    phases: list[list[Any]] = []
    for began in beats(start, 1000 * micros, start + int(1e9 * seconds)):
        kind, work, launches = turns[len(phases) % len(turns)]
        work()
        torch.cuda.synchronize()
        phases.append([began, time.time_ns(), kind, launches])
    end = time.time_ns()
    time.sleep(MARGIN_S)
    launches = sum(row[3] for row in phases if row[2] == "tensor")
    return {"start_ns": start, "end_ns": end, "launches": launches, "phases": phases}


def beats(start_ns: int, beat_ns: int, end_ns: int) -> Iterator[int]:
    """Times, a beat apart, each when it has come; later ones move if the user was slower than the beat."""
    due = start_ns
    while due < end_ns:
        while (now := time.time_ns()) < due:
            pass
        yield now
        due = max(due + beat_ns, time.time_ns())
    while time.time_ns() < due:
        pass


def run(name: str, size: int, seconds: float) -> dict[str, Any]:
    if name == "idle":
        torch.cuda.synchronize()
        start = time.time_ns()
        select.select([sys.stdin], [], [], seconds)
        return {"start_ns": start, "end_ns": time.time_ns(), "launches": 0, "marks": []}
    if name == "switch":
        return switching(size, seconds)
    return repeat(*prepared(name, size), seconds)


def main() -> None:
    torch.zeros(1, device="cuda")
    print(json.dumps({"ready": torch.cuda.get_device_name()}), flush=True)
    while line := sys.stdin.readline():
        if line.strip() == "end":
            continue  # came just after its load had ended by itself
        name, size, seconds = line.split()
        with torch.no_grad():
            answer = run(name, int(size), float(seconds))
        print(json.dumps({"load": name, "size": int(size), **answer}), flush=True)


if __name__ == "__main__":
    main()
