"""A writer process for the ring's tests: `python -m tests.ring_writer UUID SIZE BATCHES|forever`.

Batch n says so everywhere: its tally, times and values are all n. It prints a line when its ring is there,
and how many batches it wrote; then it keeps the ring until its stdin ends.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np

from cufall_py.ring import RingWriter, slot_capacity
from cufall_py.samples import Samples, Tally

COUNTERS = 2


def batch(n: int) -> tuple[Samples, Tally]:
    """As much as one slot holds, all of it telling n."""
    count = slot_capacity(COUNTERS)
    samples = Samples(np.full(count, n), np.full(count, n), np.full((count, COUNTERS), float(n)))
    return samples, Tally(decodes=n, overflows=n)


def main(uuid: str, size: str, batches: str) -> None:
    ring = RingWriter(uuid, {}, int(size))
    print("ready", flush=True)
    for n in itertools.count(1) if batches == "forever" else range(1, int(batches) + 1):
        ring.write(*batch(n))
    print(batches, flush=True)
    sys.stdin.read()
    ring.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
