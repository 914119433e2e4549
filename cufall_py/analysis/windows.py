"""How much of each sample lies in chosen stretches of time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cufall_py.spans import Span, union

Ints = NDArray[np.int64]


class Windows:
    """Stretches of time; those that touch are one."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = union(spans)
        self._starts, self._ends = ([span[k] for span in self.spans] for k in (0, 1))

    def touch(self, start_ns: int, end_ns: int) -> bool:
        """Whether any of this time lies within."""
        return bisect_right(self._ends, start_ns) < bisect_left(self._starts, end_ns)

    def overlap_ns(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """(n,) nanoseconds of each that lie within; `start_ns` and `end_ns` (n,) are in order."""
        first, last = bisect_right(self._ends, start_ns[0]), bisect_left(self._starts, end_ns[-1])
        if last - first == 1 and self._starts[first] <= start_ns[0] and end_ns[-1] <= self._ends[first]:
            return end_ns - start_ns  # all of them, as nearly always
        out = np.zeros(len(start_ns), np.int64)
        for begin, end in self.spans[first:last]:
            touched = slice(np.searchsorted(end_ns, begin, side="right"), np.searchsorted(start_ns, end, side="left"))
            out[touched] += np.minimum(end_ns[touched], end) - np.maximum(start_ns[touched], begin)
        return out
