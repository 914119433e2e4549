"""How long verdicts take: an hour of eight GPUs at 1 kHz, from samples to shares. The bar is 5 s.

    python benchmarks/verdict.py [HOURS]

Samples are made once and used again and again, so that making them is not part of the time.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from cufall_py.analysis.verdict_windows import Classifier
from cufall_py.metrics import MetricSet
from cufall_py.resolve import Wanted, resolve
from cufall_py.samples import Samples
from cufall_py.sources.script import peak, rate

GPUS, CHIP, PERIOD_NS, FRAME_NS, BATCH = 8, "GH100", 999_965, 50_000_000, 12_000
NAMES = ("tensor", "sm", "gr", "dram", "issue", "fma", "pcie.rx", "pcie.tx")
START_NS = 1_796_027_863_991_390_976


def main() -> None:
    hours = float(sys.argv[1]) if sys.argv[1:] else 1.0
    metrics = resolve(Wanted(NAMES), CHIP)
    metrics = metrics.with_peaks({name: peak(name) for name in metrics.unknown_peaks()})
    values, batches = made(metrics), round(hours * 3.6e12 / PERIOD_NS / BATCH)
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(GPUS):
        classifier = Classifier(metrics, FRAME_NS)
        for batch in range(batches):
            edges = START_NS + (np.arange(BATCH + 1, dtype=np.int64) + batch * BATCH) * PERIOD_NS
            classifier.add(Samples(edges[:-1], edges[1:], values))
        window = classifier.verdict(batches * BATCH * PERIOD_NS)
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    print(
        f"{GPUS} GPUs, {hours:g} h at 1 kHz, {len(metrics.counters)} counters: {took:.2f} s ({used:.2f} s of processor)"
    )
    print({name: round(share, 3) for name, share in window.shares.items() if share})


def made(metrics: MetricSet) -> np.ndarray:
    """(BATCH, counters) of phases that are bound by different things, 300 ms each."""
    phases = [
        {"tensor": 0.8, "sm": 0.95, "gr": 1.0, "dram": 0.2, "issue": 0.1},
        {"sm": 0.95, "gr": 1.0, "dram": 0.8, "issue": 0.1},
        {"sm": 0.95, "gr": 1.0, "fma": 0.8, "issue": 0.9},
        {"sm": 0.05, "gr": 1.0, "issue": 0.001},
        {},
    ]
    rows = np.array([[rate(name, phase, CHIP) for name in metrics.counters] for phase in phases]) * PERIOD_NS / 1e9
    return rows[np.arange(BATCH) // 300 % len(phases)]


if __name__ == "__main__":
    main()
