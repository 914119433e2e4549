"""What `record --keep` takes over a long time, without waiting for it: `python benchmarks/keep.py [cost eight week]`.

A writer is fed batches made up here, and the clock is set to their times. Of each run: processor time, the memory of
the process, the most the file had, and whether sums, extremes and covered time are those of what was fed.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cufall_py.devices import Device
from cufall_py.keep import parse
from cufall_py.metrics import Metric, MetricSet
from cufall_py.plan import Plan
from cufall_py.recording import RecordingWriter
from cufall_py.recording_reader import Recording
from cufall_py.samples import Samples
from cufall_py.sources import Opened

EPOCH, SECOND = 1_796_000_000 * 10**9, 10**9
KEEP = "30m@full,24h@100ms,forever@1s"
COUNTERS = ("a", "b", "c", "d", "e", "elapsed")
METRICS = MetricSet(COUNTERS, tuple(Metric(name, name, (name,), "elapsed", peak=1.0) for name in COUNTERS[:4]))


@dataclass
class Fed:
    """What the writer was given."""

    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(COUNTERS)))
    least: float = np.inf
    most: float = -np.inf
    samples: int = 0

    def add(self, samples: Samples) -> None:
        values = samples.values.astype(np.float32).astype(np.float64)
        self.sums += values.sum(axis=0)
        quotients = values[:, 0] / values[:, -1]
        self.least, self.most = min(self.least, quotients.min()), max(self.most, quotients.max())
        self.samples += len(samples)


@dataclass
class Clock:
    ns: int = 0

    def now_ns(self) -> int:
        return EPOCH + self.ns

    def monotonic_ns(self) -> int:
        return self.ns


def batch(rng: np.random.Generator, start_ns: int, period_ns: int, count: int) -> Samples:
    """Samples whose counters are as random as those of a busy GPU, to a clock of 2 GHz."""
    edges = start_ns + period_ns * np.arange(count + 1, dtype=np.int64)
    values = np.empty((count, len(COUNTERS)))
    values[:, -1] = 2 * period_ns
    values[:, :-1] = np.rint(rng.random((count, len(COUNTERS) - 1)) * 2 * period_ns)
    return Samples(edges[:-1], edges[1:], values)


def opened(gpus: int, period_ns: int) -> list[Opened]:
    devices = [Device(k, f"GPU-{k:08x}", "Made-up GPU") for k in range(gpus)]
    return [Opened(device, METRICS, period_ns, "time", "script") for device in devices]


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(gpus: int, period_ns: int, length_s: int, batch_s: float, keep: str = KEEP, check: bool = True) -> None:
    """Record so long, and say what it took."""
    rng, clock, fed, most = np.random.default_rng(0), Clock(), Fed(), 0
    count = round(batch_s * SECOND / period_ns)
    path = Path(tempfile.mkdtemp(prefix="cufall-keep-")) / "run.cufall"
    tiers = parse(keep) if keep else ()
    out = RecordingWriter(
        path, opened(gpus, period_ns), Plan(), now_ns=clock.now_ns, monotonic_ns=clock.monotonic_ns, keep=tiers
    )
    memories, writing_s, steps = [memory_mb()], 0.0, round(length_s / batch_s)
    for step in range(steps):
        for gpu in range(gpus):
            samples = batch(rng, EPOCH + clock.ns, period_ns, count)
            fed.add(samples)
            began = time.process_time()
            out.set_readings(gpu, 1980.0, 300.0 + step % 50)
            out.add(gpu, samples)
            writing_s += time.process_time() - began
        clock.ns += count * period_ns
        if step % 20 == 0:
            most = max(most, path.stat().st_size)
        if step % max(1, steps // 8) == 0:
            memories.append(memory_mb())
    out.close()
    print(
        f"{gpus} GPUs, {period_ns / 1e6:g} ms, {length_s / 3600:g} h, --keep {keep or '(none)'}: {fed.samples} samples"
    )
    size_mb, most_mb = path.stat().st_size / 1e6, most / 1e6
    print(f"  writing {100 * writing_s / length_s:.3f} % of a core; file {size_mb:.1f} MB, most {most_mb:.1f}")
    print(f"  memory, MB: {', '.join(f'{mb:.0f}' for mb in memories)}")
    if check:
        compare(path, fed, gpus * steps * count * period_ns)
    path.unlink()


def compare(path: Path, fed: Fed, covered_ns: int) -> None:
    """Of what is read back."""
    sums, least, most, covered, lengths = np.zeros(len(COUNTERS)), np.inf, -np.inf, 0, dict[int, int]()
    for rows in Recording(path).rows():
        samples = rows.samples
        length_ns = samples.end_ns - samples.start_ns
        low, high = samples.extremes(METRICS.quotients(samples.values, length_ns))
        sums += samples.values.sum(axis=0)
        least, most = min(least, low[:, 0].min()), max(most, high[:, 0].max())
        covered += int(length_ns.sum())
        for length, times in zip(*np.unique(length_ns, return_counts=True), strict=True):
            lengths[int(length)] = lengths.get(int(length), 0) + int(times)
    rows = sum(lengths.values())
    told = ", ".join(
        f"{times} of {length / 1e6:g} ms" for length, times in sorted(lengths.items()) if times > rows / 1000
    )
    print(f"  {rows} rows ({told}), {path.stat().st_size / rows:.1f} bytes each")
    print(f"  sums differ by {np.abs(sums / fed.sums - 1).max():.1e}, covered time by {covered - covered_ns} ns")
    print(f"  least {least:.9f} of {fed.least:.9f}, most {most:.9f} of {fed.most:.9f}")


RUNS = {
    "week": lambda: run(1, SECOND // 20, 7 * 24 * 3600, 5.0),
    "eight": lambda: run(8, SECOND // 1000, 2 * 3600, 0.2),
    "cost": lambda: [run(8, SECOND // 1000, 300, 0.2, keep, check=False) for keep in ("", "1m@full,forever@1s", "")],
}

if __name__ == "__main__":
    for name in sys.argv[1:] or RUNS:
        RUNS[name]()
