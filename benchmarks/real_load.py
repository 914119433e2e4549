"""Recordings of any length made of real samples: those of the demo, which an H200 gave, over and over with noise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cufall_py import Plan, Recording, Wanted
from cufall_py.cli.playing import DEMO_FILE
from cufall_py.recorded_metrics import Recorded, metrics_of
from cufall_py.recording import RecordingWriter
from cufall_py.resolve import is_elapsed
from cufall_py.samples import Samples
from cufall_py.sources import Opened

SECOND = 1_000_000_000
DECODE_ROWS = 200
"""Samples of a GPU that come at once: `record` decodes every 200 ms."""
NOISE = 0.02
"""Each count but the clocks' is made smaller by up to this share, by chance, so that no two turns are the same."""
APART_ROWS = 3_000
"""How much later in the demo each GPU is than the one before."""
REGION_S = 30


@dataclass(frozen=True)
class Load:
    """Real samples of one GPU, joined, and what they are of."""

    opened: Opened
    samples: Samples

    def turn(self, gpu: int, turn: int) -> Samples:
        """The samples once over, as those of this GPU in this turn."""
        rng = np.random.default_rng((gpu, turn))
        rows = np.roll(np.arange(len(self.samples)), -APART_ROWS * gpu)
        values = self.samples.values[rows]
        for k, name in enumerate(self.opened.metrics.counters):
            if not is_elapsed(name):
                values[:, k] *= rng.uniform(1 - NOISE, 1, len(values))
        lengths = (self.samples.end_ns - self.samples.start_ns)[rows]
        first_ns = int(self.samples.start_ns[0]) + turn * int(lengths.sum()) + 100_000 * gpu
        edges = first_ns + np.concatenate([[0], np.cumsum(lengths)])
        return Samples(edges[:-1], edges[1:], values.astype(np.float32))


def load(*metrics: str) -> Load:
    """The demo's samples with the counters of these metrics."""
    demo = Recording(DEMO_FILE)
    gpu = demo.opened[0]
    (chosen,), _ = metrics_of(Wanted(metrics), [Recorded(gpu)])
    samples = Samples.join(of_gpu for _, of_gpu in demo.batches())
    columns = [gpu.metrics.counters.index(name) for name in chosen.counters]
    return Load(replace(gpu, metrics=chosen), replace(samples, values=samples.values[:, columns]))


class Clock:
    """The time of the recording that is being made."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = self.now = start_ns

    def now_ns(self) -> int:
        return self.now

    def monotonic_ns(self) -> int:
        return self.now - self.start_ns


def decodes(of: Load, gpus: int, seconds: int) -> Iterator[list[Samples]]:
    """What all GPUs give, a decode at a time: the samples of each."""
    held = [Samples.empty(of.samples.values.shape[1])] * gpus
    turn = 0
    for _ in range(seconds * 1000 // DECODE_ROWS):
        if len(held[0]) < DECODE_ROWS:
            held = [Samples.join([rest, of.turn(gpu, turn)]) for gpu, rest in enumerate(held)]
            turn += 1
        yield [samples[:DECODE_ROWS] for samples in held]
        held = [samples[DECODE_ROWS:] for samples in held]


def write(path: Path, of: Load, gpus: int, seconds: int) -> None:
    """Record so many GPUs at 1 kHz, with readings five times a second and a region every half minute."""
    opened = [of_gpu(of.opened, gpu) for gpu in range(gpus)]
    clock = Clock(int(of.samples.start_ns[0]))
    plan = Plan(wanted=Wanted(tuple(metric.label for metric in of.opened.metrics.metrics)))
    with RecordingWriter(path, opened, plan, now_ns=clock.now_ns, monotonic_ns=clock.monotonic_ns) as out:
        for k, samples in enumerate(decodes(of, gpus, seconds)):
            clock.now = int(samples[0].end_ns[-1])
            if k % (5 * REGION_S) == 0:
                name = ("prefill", "decode")[k // (5 * REGION_S) % 2]
                out.event("region_begin", name=name, text="")
                out.event("region_end", start_ns=clock.now + (REGION_S - 5) * SECOND, name=name)
            for gpu, given in enumerate(samples):
                out.set_readings(gpu, 1755.0 + k % 45, 500.0 + 10 * gpu + k % 90)
                out.add(gpu, given)


def of_gpu(opened: Opened, gpu: int) -> Opened:
    return replace(opened, device=replace(opened.device, ordinal=gpu, uuid=f"GPU-{gpu}", nvml_index=gpu))
