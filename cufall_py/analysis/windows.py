"""How much of each sample lies in chosen stretches of time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cufall_py.spans import Span, union

Ints = NDArray[np.int64]


class Windows:
    """Stretches of time; those that touch are one."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = union(spans)
        self._starts, self._ends = (np.array([span[k] for span in self.spans], np.int64) for k in (0, 1))
        self._before_ns = np.concatenate(([0], np.cumsum(self._ends - self._starts)))[:-1]

    def overlap_ns(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """(n,) nanoseconds of each that lie within; `start_ns` and `end_ns` (n,) are in order."""
        first = int(np.searchsorted(self._ends, start_ns[0], side="right"))
        last = int(np.searchsorted(self._starts, end_ns[-1], side="left"))
        if first >= last:
            return np.zeros(len(start_ns), np.int64)
        if self._starts[first] <= start_ns[0] and end_ns[-1] <= self._ends[first]:
            return end_ns - start_ns
        return self._until(end_ns) - self._until(start_ns)

    def _until(self, times_ns: Ints) -> Ints:
        """How much of the stretches has gone by."""
        at = np.maximum(np.searchsorted(self._starts, times_ns, side="right") - 1, 0)
        into_ns = np.clip(times_ns - self._starts[at], 0, self._ends[at] - self._starts[at])
        out: Ints = self._before_ns[at] + into_ns
        return out
