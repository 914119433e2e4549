"""Percentiles of any number of weighted values in bounded memory: a histogram of fixed bins."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
RESOLUTION = 1e-4
"""Values of a percent are rounded to this (0.01 points), so a percentile is right to half of it."""
RELATIVE_RESOLUTION = 2.0**-10
"""Values of anything else are rounded to this share of themselves."""
MOST = 20_000
"""The last bin of a percent, for all from 200 % on: none is believed that reads so much."""
_SHIFT = 13
"""Bits that RELATIVE_RESOLUTION leaves out of a float32's 23."""


def rounded(values: Floats, relative: bool) -> Indices:
    """(n,) the bin of each, which is a number of steps; `values` are finite and not negative."""
    if relative:
        bits = values.astype(np.float32).view(np.int32).astype(np.int64)
        return (np.maximum(bits, 0) + (1 << (_SHIFT - 1))) >> _SHIFT
    steps = values * (1 / RESOLUTION)
    np.rint(steps, out=steps)
    return np.minimum(steps, MOST, out=steps).astype(np.int64)


def centres(indices: Indices, relative: bool) -> Floats:
    """What bins stand for: (k,) values that `rounded` gives the same bins for."""
    if not relative:
        return np.multiply(indices, RESOLUTION, dtype=np.float64)
    values: Floats = (indices << _SHIFT).astype(np.int32).view(np.float32).astype(np.float64)
    return values


@dataclass
class Bins:
    """Weights of values by bin, from bin `first` on; only the bins between the least and the most that came."""

    first: int = 0
    weights: Floats = field(default_factory=lambda: np.zeros(0))

    @staticmethod
    def of(indices: Indices, weights: Floats) -> Bins:
        """Of values in these bins (from `rounded`), with these weights."""
        if not len(indices):
            return Bins()
        first = int(indices.min())
        sums: Floats = np.bincount(indices - first, weights=weights).astype(np.float64, copy=False)
        return Bins(first, sums)

    def add(self, other: Bins) -> None:
        """Take the weights of others in."""
        if not len(other.weights):
            return
        if not len(self.weights):
            self.first, self.weights = other.first, other.weights.copy()
            return
        self._reach(other.first, other.first + len(other.weights))
        at = other.first - self.first
        self.weights[at : at + len(other.weights)] += other.weights

    def before(self, index: int) -> float:
        """The weight in all bins before this one."""
        return float(self.weights[: max(index - self.first, 0)].sum())

    def within(self, index: int) -> float:
        """The weight in this bin."""
        at = index - self.first
        return float(self.weights[at]) if 0 <= at < len(self.weights) else 0.0

    def _reach(self, first: int, end: int) -> None:
        before, after = max(self.first - first, 0), max(end - self.first - len(self.weights), 0)
        if before or after:
            self.weights = np.pad(self.weights, (before, after))
            self.first -= before

    def quantiles(self, shares: Floats, relative: bool) -> Floats:
        """The least value that so much of the weight does not exceed (0..1), for each share; NaN without weight."""
        sums = np.cumsum(self.weights)
        if not len(sums) or not sums[-1] > 0:
            return np.full(len(shares), np.nan)
        at = np.searchsorted(sums, shares * sums[-1], side="left")
        return centres(self.first + np.minimum(at, len(sums) - 1), relative)
