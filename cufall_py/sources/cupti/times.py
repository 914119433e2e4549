"""Times for samples that CUPTI hands over without: the first of a session, and those of a backlog."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cufall_py.samples import Ints, Samples, Tally

SLACK = 0.02
"""How far a run of samples may differ from its nominal length and still be taken as whole."""


def lay_out(samples: Samples, last_end_ns: int, period_ns: int, longest_ns: int, tally: Tally) -> Samples:
    """Samples with every time known; `last_end_ns` is the end of the one before them (0: there is none).

    A decode that filled its image leaves the times of what follows at zero until the backlog is gone,
    their values whole and in order. Such a run fills the span between the known ends around it evenly if
    it fits there; else samples were lost among it, and it follows the earlier end at its period. A sample
    without a start begins where the one before ended, and so does CUPTI make one begin before which others
    were overwritten; but none is longer than `longest_ns`. The first after the hardware was started has
    none before it: how long it counted is not known, and it is dropped.
    """
    if samples.start_ns.all() and (samples.end_ns - samples.start_ns <= longest_ns).all():
        return samples
    end = samples.end_ns.copy()
    for first, last in _runs(end == 0):
        end[first:last] = _ends(end, first, last, last_end_ns, period_ns)
        tally.rebuilt += int((end[first:last] > 0).sum())
    previous = np.concatenate(([last_end_ns], end[:-1]))
    start = np.where(samples.start_ns > 0, samples.start_ns, previous)
    keep = (end > 0) & (start > 0)
    start = np.where(end - start > longest_ns, end - period_ns, start)
    return Samples(start[keep], end[keep], samples.values[keep])


def _runs(unknown: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """First and past-the-last index of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], unknown.astype(np.int8), [0]))))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _ends(end: Ints, first: int, last: int, last_end_ns: int, period_ns: int) -> Ints:
    count = last - first
    before = int(end[first - 1]) if first else last_end_ns
    if not before:
        return np.zeros(count, np.int64)
    after = int(end[last]) if last < len(end) else 0
    nominal = period_ns * (count + 1)
    span = after - before if after and abs(after - before - nominal) <= SLACK * nominal else nominal
    return before + span * np.arange(1, count + 1, dtype=np.int64) // (count + 1)
