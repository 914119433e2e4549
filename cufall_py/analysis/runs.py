"""The longest time without a break in which something held, of samples that come in pieces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass
class Runs:
    """Runs in the samples from `first_ns` to `last_ns`: the longest, the one at the begin, the one at the end.

    `head_end_ns` is where the run ends that begins with the first sample (`first_ns`: there is none), `tail_start_ns`
    where the one begins that ends with the last (`last_ns`: none), so that pieces can be joined.
    """

    first_ns: int = 0
    last_ns: int = 0
    head_end_ns: int = 0
    tail_start_ns: int = 0
    longest_ns: int = 0

    @staticmethod
    def of(start_ns: Ints, end_ns: Ints, held: NDArray[np.bool_], slack_ns: int) -> Runs:
        """Of samples in order; a run ends where more than `slack_ns` lies between two."""
        if not len(start_ns):
            return Runs()
        first, last = int(start_ns[0]), int(end_ns[-1])
        if not held.any():
            return Runs(first, last, first, last)
        cuts = np.flatnonzero((held[1:] != held[:-1]) | (start_ns[1:] - end_ns[:-1] > slack_ns)) + 1
        begins, ends = np.append(0, cuts), np.append(cuts, len(held)) - 1
        runs = held[begins]
        starts, stops = start_ns[begins[runs]], end_ns[ends[runs]]
        head_end_ns = int(stops[0]) if held[0] else first
        tail_start_ns = int(starts[-1]) if held[-1] else last
        return Runs(first, last, head_end_ns, tail_start_ns, int((stops - starts).max()))

    def add(self, later: Runs, slack_ns: int) -> None:
        """Take in what came after."""
        if later.last_ns == later.first_ns:
            return
        if self.last_ns == self.first_ns:
            self.__dict__.update(vars(later))
            return
        joined = later.first_ns - self.last_ns <= slack_ns
        goes_on = joined and self.tail_start_ns < self.last_ns and later.head_end_ns > later.first_ns
        bridge_ns = later.head_end_ns - self.tail_start_ns if goes_on else 0
        self.longest_ns = max(self.longest_ns, later.longest_ns, bridge_ns)
        if goes_on and self.head_end_ns == self.last_ns:
            self.head_end_ns = later.head_end_ns
        if not (goes_on and later.head_end_ns == later.last_ns):
            self.tail_start_ns = later.tail_start_ns
        self.last_ns = later.last_ns
