"""Work on two GPUs whose bytes are known; run by test_two.py. One JSON line when it is ready, one when it is done.

    peer MIB SECONDS        copies of MIB MiB from GPU 0 to GPU 1
    reduce MIB SECONDS      all-reduces of MIB MiB of float32 over both (NCCL)
    decode 0 SECONDS        a step of a 1B transformer split over both, two all-reduces a layer, as tensor parallel does

Bytes are those that the first GPU sends: all of a copy; of an all-reduce of two as much as it has itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

LAYERS, WIDTH, BATCH = 20, 2048, 16


def timed(work: Callable[[], None], seconds: float) -> tuple[int, int, int]:
    """Start and end, ns, and how often it was done."""
    done = 0
    torch.cuda.synchronize()
    time.sleep(0.05)
    start = time.time_ns()
    while time.time_ns() < start + seconds * 1e9:
        work()
        torch.cuda.synchronize()
        done += 1
    end = time.time_ns()
    time.sleep(0.05)
    return start, end, done


def tell(start: int, end: int, done: int, each: int) -> None:
    print(json.dumps({"start_ns": start, "end_ns": end, "launches": done, "bytes": done * each}), flush=True)


def peer(mebibytes: int, seconds: float) -> None:
    a = torch.ones(mebibytes << 20, dtype=torch.uint8, device="cuda:0")
    b = torch.empty_like(a, device="cuda:1")

    def work() -> None:
        for _ in range(16):
            b.copy_(a, non_blocking=True)
        torch.cuda.synchronize(1)

    work()
    tell(*timed(work, seconds), 16 * a.numel())


def rank(number: int, kind: str, mebibytes: int, seconds: float) -> None:
    torch.cuda.set_device(number)
    dist.init_process_group("nccl", rank=number, world_size=2)
    work, each = (reduction(mebibytes), 16 * mebibytes << 20) if kind == "reduce" else (step(), 0)
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    dist.barrier()
    time.sleep(0.1)  # so that nothing of what came before is near the start
    rounds = torch.zeros(1, device="cuda")
    # both must do the same number of rounds: the first counts on, the second follows
    start, done = time.time_ns(), 0
    while True:
        rounds.fill_(float(time.time_ns() - start < seconds * 1e9))
        dist.broadcast(rounds, 0)
        if not rounds.item():
            break
        for _ in range(8):
            work()
        torch.cuda.synchronize()
        done += 8
    if number == 0:
        tell(start, time.time_ns(), done, each)
    dist.destroy_process_group()


def reduction(mebibytes: int) -> Callable[[], None]:
    data = torch.ones(mebibytes << 18, device="cuda")

    def work() -> None:
        for _ in range(16):
            dist.all_reduce(data)
        data.fill_(1.0)

    return work


def step() -> Callable[[], None]:
    half = WIDTH // 2

    def weight(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.02

    layers = [(weight(WIDTH, 3 * half), weight(half, WIDTH), weight(WIDTH, 4 * half), weight(4 * half, WIDTH))] * 1
    layers = [tuple(w.clone() for w in layers[0]) for _ in range(LAYERS)]
    x = weight(BATCH, WIDTH)

    def work() -> None:
        h = x
        for qkv, out, up, down in layers:
            a = (h @ qkv)[:, :half] @ out
            dist.all_reduce(a)
            h = torch.nn.functional.rms_norm(h + a, (WIDTH,))
            m = torch.nn.functional.silu(h @ up) @ down
            dist.all_reduce(m)
            h = torch.nn.functional.rms_norm(h + m, (WIDTH,))

    return work


def main(kind: str, mebibytes: int, seconds: float) -> None:
    if kind == "peer":
        return peer(mebibytes, seconds)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"}
    mp.spawn(rank, (kind, mebibytes, seconds), nprocs=2)
    return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
