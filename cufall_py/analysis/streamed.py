"""Statistics of a stream of samples that keep what an interval needs: sums over consecutive stretches of it.

However long the stream, memory stays the same: once there are MOST_BINS stretches, neighbours are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
MOST_BINS = 1024
"""Stretches of a run: a load that goes on and off 25 times still has ten of them in each half of a turn."""
IDLE_BELOW = 0.001
LEVELS, LEVEL_STEP, LOWEST = 2048, 0.01, 1e-4
"""Values are told apart by level, each 1 % above the one before, from 0.01 % on; what is below is one level."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive samples of one metric, (n,) each: what it divides, how long each is within the window, and whether
    it is `whole`: not cut by the window's edge."""

    top: Floats
    bottom: Floats
    length_ns: Floats
    whole: NDArray[np.bool_]

    def measured(self) -> Chunk:
        """Without the samples that say nothing."""
        return self.only(np.isfinite(self.top) & np.isfinite(self.bottom) & (self.bottom > 0) & (self.length_ns > 0))

    def only(self, rows: NDArray[np.bool_]) -> Chunk:
        return Chunk(self.top[rows], self.bottom[rows], self.length_ns[rows], self.whole[rows])

    @property
    def value(self) -> Floats:
        out: Floats = self.top / self.bottom
        return out


class Statistic(Protocol):
    """A number made of sums that samples add to."""

    @property
    def count(self) -> int:
        """Samples it is of."""

    def add(self, chunk: Chunk) -> None: ...

    @property
    def sums(self) -> Floats:
        """(n, c): what each of n consecutive stretches adds to c columns."""

    def of(self, totals: Floats) -> Floats:
        """(k, c) totals to the k numbers they make."""

    def influence(self) -> Floats:
        """(n,): what each stretch adds to the error of the number, to first order and to scale."""


def statistic(name: str) -> Statistic:
    """An empty one of limits.STATISTICS."""
    if name == "mean":
        return Ratio(_mean)
    if name == "idle_share":
        return Ratio(_idle)
    return Percentile(int(name.removeprefix("p")) / 100)


def value(of: Statistic) -> float:
    """The number itself; NaN of nothing."""
    return float(of.of(of.sums.sum(axis=0)[None])[0]) if of.count else float("nan")


class Bins:
    """Sums of consecutive samples by column, in at most MOST_BINS stretches of equally many samples."""

    def __init__(self, columns: int, kind: type[np.floating] = np.float64) -> None:
        self._sums = np.zeros((MOST_BINS, columns), kind)
        self._each = 1
        self.count = 0

    @property
    def sums(self) -> Floats:
        return self._sums[: -(-self.count // self._each)].astype(np.float64)

    def add(self, columns: Indices, amounts: Floats) -> None:
        """(n, k) amounts that n samples add to the columns at (n, k)."""
        while len(amounts):
            room = MOST_BINS * self._each - self.count
            if not room:
                self._join_neighbours()
                continue
            now = amounts[:room]
            rows = (self.count + np.arange(len(now))) // self._each
            np.add.at(self._sums, (rows[:, None], columns[:room]), now)
            self.count += len(now)
            columns, amounts = columns[room:], amounts[room:]

    def _join_neighbours(self) -> None:
        self._sums[: MOST_BINS // 2] = self._sums[::2] + self._sums[1::2]
        self._sums[MOST_BINS // 2 :] = 0
        self._each *= 2


class Ratio:
    """A quotient of two sums, of what `parts` makes of a chunk."""

    def __init__(self, parts: Callable[[Chunk], tuple[Floats, Floats]]) -> None:
        self._parts, self._bins = parts, Bins(2)

    @property
    def count(self) -> int:
        return self._bins.count

    @property
    def sums(self) -> Floats:
        return self._bins.sums

    def add(self, chunk: Chunk) -> None:
        amounts = np.stack(self._parts(chunk), axis=1)
        self._bins.add(np.broadcast_to(np.arange(2), amounts.shape), amounts)

    def of(self, totals: Floats) -> Floats:
        quotients: Floats = totals[:, 0] / totals[:, 1]
        return quotients

    def influence(self) -> Floats:
        sums = self.sums
        top, bottom = sums.sum(axis=0)
        out: Floats = sums[:, 0] - top / bottom * sums[:, 1]
        return out


def _mean(chunk: Chunk) -> tuple[Floats, Floats]:
    return chunk.top, chunk.bottom


def _idle(chunk: Chunk) -> tuple[Floats, Floats]:
    whole = chunk.only(chunk.whole)
    return np.where(whole.value < IDLE_BELOW, whole.length_ns, 0.0), whole.length_ns


class Percentile:
    """The value that samples stay below for a share of the time; within a level, evenly from its least to its most."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._bins = Bins(LEVELS, np.float32)
        self._least, self._most = np.full(LEVELS, np.inf), np.full(LEVELS, -np.inf)

    @property
    def count(self) -> int:
        return self._bins.count

    @property
    def sums(self) -> Floats:
        """Of the levels that occur."""
        return self._bins.sums[:, self._occurring]

    def add(self, chunk: Chunk) -> None:
        whole = chunk.only(chunk.whole)
        values = whole.value
        above = np.log(np.maximum(values, LOWEST) / LOWEST) / LEVEL_STEP
        levels = np.where(values < LOWEST, 0, np.minimum(1 + above, LEVELS - 1)).astype(np.intp)
        np.minimum.at(self._least, levels, values)
        np.maximum.at(self._most, levels, values)
        self._bins.add(levels[:, None], whole.length_ns[:, None])

    def of(self, totals: Floats) -> Floats:
        least, most = self._least[self._occurring], self._most[self._occurring]
        reached = np.cumsum(totals, axis=1)
        wanted = self._share * reached[:, -1]
        level = np.minimum((reached < wanted[:, None]).sum(axis=1), len(least) - 1)
        rows = np.arange(len(totals))
        inside = totals[rows, level]
        part = 1 - (reached[rows, level] - wanted) / np.where(inside > 0, inside, 1)
        found: Floats = least[level] + np.clip(part, 0, 1) * (most[level] - least[level])
        return found

    def influence(self) -> Floats:
        """By whether it is below (Bahadur 1966): of a level that the percentile lies in, half."""
        sums = self.sums
        level = int((np.cumsum(sums.sum(axis=0)) < self._share * sums.sum()).sum())
        below = sums[:, :level].sum(axis=1) + sums[:, level] / 2
        out: Floats = below - below.sum() / sums.sum() * sums.sum(axis=1)
        return out

    @property
    def _occurring(self) -> NDArray[np.bool_]:
        out: NDArray[np.bool_] = np.isfinite(self._least)
        return out
