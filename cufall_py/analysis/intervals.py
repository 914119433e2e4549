"""How sure a number is: block bootstrap within a run, Student's t between runs, and intervals of their change.

A statistic is made of sums: `sums` (n, c) holds what each of n consecutive stretches of a run adds to c columns, and
the statistic is a function of their totals, as a mean is numerator over denominator. Formulas, sources and what they
were seen to cover: docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95
DRAWS = 1000
"""Resamples: the standard error is known to 1 / sqrt(2 DRAWS), 2 %."""
WIDER = 4.0
"""Blocks are so many times the length that is best for the variance's mean square error: intervals that cover want
longer ones (Sun, Phillips and Jin 2008). Chosen of 1 to 4 by trial: docs/statistics.md."""
FEWEST_BLOCKS = 5
MOST_AT_ONCE = 1_000_000
"""Numbers that resampling holds at a time beside its result."""
RESOLUTION = 2.0**-23
"""Counters are recorded as float32: no number is surer than that share of itself."""


@dataclass(frozen=True)
class Estimate:
    """A number, the variance of its error, and the degrees of freedom that this variance is known with.

    `effective`: as many independent samples would tell as much of a run; of several runs the fewest.
    """

    value: float
    variance: float
    freedom: float
    effective: float


UNKNOWN = Estimate(math.nan, math.inf, 1.0, 0.0)


@dataclass(frozen=True)
class Interval:
    """A change and the ends of its 95 % interval; infinite where the data set no end."""

    change: float
    low: float
    high: float


def within_run(
    sums: Floats, statistic: Callable[[Floats], Floats], influence: Floats, rng: np.random.Generator
) -> Estimate:
    """A statistic of one run, its error by circular block bootstrap (Politis and Romano 1992).

    `statistic` makes (k,) values of (k, c) totals. `influence` (n,): what each stretch adds to its error, to first
    order; block length and effective sample size are told by it. Of a single stretch the error is not known.
    """
    n, block = len(sums), block_length(influence)
    if n < 2:
        return replace(UNKNOWN, value=float(statistic(sums)[0]), effective=1.0)
    replicates = statistic(resampled_totals(sums, block, DRAWS, rng))
    value = float(statistic(sums.sum(axis=0)[None])[0])
    blocks = n / block
    # blocks vary about the mean of the very run they are of, as n - 1 for n
    widened = blocks / (blocks - 1)
    variance = max(float(np.var(replicates)) * widened, (RESOLUTION * value) ** 2)
    return Estimate(value, variance, min(n - 1.0, 1.5 * (blocks - 1)), effective_size(influence, block))


def between_runs(values: Sequence[float], effective: float) -> Estimate:
    """The mean of runs (two or more), its error by how they differ: variance / n, n - 1 degrees of freedom."""
    n, mean = len(values), float(np.mean(values))
    return Estimate(mean, max(float(np.var(values, ddof=1)) / n, (RESOLUTION * mean) ** 2), n - 1.0, effective)


def averaged(runs: Sequence[Estimate]) -> Estimate:
    """The mean of runs (one or more), its error by what is known within each; Welch and Satterthwaite's freedom."""
    n = len(runs)
    parts = [run.variance / n**2 for run in runs]
    freedom = _freedom(parts, [run.freedom for run in runs])
    mean, fewest = float(np.mean([run.value for run in runs])), min(run.effective for run in runs)
    return Estimate(mean, sum(parts), freedom, fewest)


def difference(base: Estimate, new: Estimate) -> Interval:
    """new - base by Welch's t interval (Welch 1947)."""
    change, variances = new.value - base.value, (base.variance, new.variance)
    half = t_quantile(_freedom(variances, (base.freedom, new.freedom))) * math.sqrt(sum(variances))
    return Interval(change, change - half, change + half)


def relative(base: Estimate, new: Estimate) -> Interval:
    """new / base - 1 by Fieller's interval (Fieller 1954): all r that `new - r base = 0` does not rule out.

    NaN if the base is 0; without ends if it may be.
    """
    if base.value == 0 or not math.isfinite(base.variance + new.variance):
        return Interval(new.value / base.value - 1 if base.value else math.nan, -math.inf, math.inf)
    ratio = new.value / base.value
    freedom = _freedom((ratio**2 * base.variance, new.variance), (base.freedom, new.freedom))
    t2 = t_quantile(freedom) ** 2
    curve = base.value**2 - t2 * base.variance
    if curve <= 0:
        return Interval(ratio - 1, -math.inf, math.inf)
    spread = base.variance * new.value**2 + new.variance * base.value**2 - t2 * base.variance * new.variance
    middle, half = new.value * base.value / curve, math.sqrt(t2 * max(spread, 0.0)) / curve
    return Interval(ratio - 1, middle - half - 1, middle + half - 1)


def block_length(series: Floats) -> int:
    """The length of a block for a series (n,) whose values depend on those before.

    WIDER times what Politis and White (2004), as corrected by Patton, Politis and White (2009), have for the
    circular bootstrap of a mean; at most n / FEWEST_BLOCKS. 1 for a constant.
    """
    n = len(series)
    covariances = _autocovariances(series)
    if covariances[0] <= 0 or n < 2 * FEWEST_BLOCKS:
        return 1
    span = min(2 * _last_correlated(covariances / covariances[0]), n - 1)
    lags = np.arange(1, span + 1)
    window = np.minimum(1.0, 2.0 * (1 - lags / span)) if span > 1 else np.ones(1)
    weighted = window * covariances[1 : span + 1]
    spectrum = covariances[0] + 2 * weighted.sum()  # at frequency 0; the window lets it be negative
    if spectrum <= 0:
        return max(1, n // FEWEST_BLOCKS)
    slope = 2 * (lags * weighted).sum()
    best = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return int(np.clip(math.ceil(WIDER * best), 1, max(1, n // FEWEST_BLOCKS)))


def effective_size(series: Floats, block: int) -> float:
    """n x variance / (long-run variance), by the variance of block sums; at most n, which it is for a constant."""
    n, centred = len(series), series - series.mean()
    around = np.concatenate(([0.0], np.cumsum(np.concatenate((centred, centred[:block])))))
    blocks = around[block : block + n] - around[:n]
    long_run, own = float(np.mean(blocks**2)) / block * n / (n - block), float(np.mean(centred**2))
    return min(float(n), n * own / long_run) if long_run > 0 else float(n)


def resampled_totals(sums: Floats, block: int, draws: int, rng: np.random.Generator) -> Floats:
    """(draws, c) totals of n stretches drawn in blocks around the circle of the run; the last block is cut."""
    n, whole = len(sums), (len(sums) - 1) // block
    running = np.concatenate((np.zeros((1, sums.shape[1])), np.cumsum(np.concatenate((sums, sums[:block])), axis=0)))
    blocks, last = (running[length : length + n] - running[:n] for length in (block, n - whole * block))
    totals: Floats = last[rng.integers(0, n, draws)]
    at_once = max(1, MOST_AT_ONCE // totals.size)
    for done in range(0, whole, at_once):
        starts = rng.integers(0, n, (min(at_once, whole - done), draws))
        totals += blocks[starts].sum(axis=0)
    return totals


def t_quantile(freedom: float, share: float = CONFIDENCE) -> float:
    """The t that |T| of so many degrees of freedom (1 or more) stays below with probability `share`.

    With t = sqrt(freedom) tan(angle), P(|T| < t) is the integral of cos(angle) ** (freedom - 1) from 0, over that to
    a quarter turn (Abramowitz and Stegun, 26.7.3 and 26.7.4, for freedom that is not whole as well).
    """
    freedom = min(max(freedom, 1.0), 1e6)
    angles = np.linspace(0, min(math.pi / 2, 20 / math.sqrt(freedom)), 20_001)
    density = np.cos(angles) ** (freedom - 1)
    shares = np.concatenate(([0.0], np.cumsum(density[1:] + density[:-1])))
    return math.sqrt(freedom) * math.tan(float(np.interp(share, shares / shares[-1], angles)))


def _freedom(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """Of a sum of variances: Welch (1947), Satterthwaite (1946)."""
    total = sum(variances)
    if not 0 < total < math.inf:
        return min(freedoms)
    return 1.0 / sum((v / total) ** 2 / f for v, f in zip(variances, freedoms, strict=True))


def _autocovariances(series: Floats) -> Floats:
    """(n,) by lag, each divided by n."""
    n, centred = len(series), series - series.mean()
    power = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    found: Floats = np.fft.irfft(power)[:n] / n
    return found


def _last_correlated(correlations: Floats) -> int:
    """The lag after which none of the next few differ from 0, at least 1 (Politis and White 2004, their m)."""
    n = len(correlations)
    few, bound = max(5, math.ceil(math.sqrt(math.log10(n)))), 2 * math.sqrt(math.log10(n) / n)
    most = max(1, n // 4)
    small = np.abs(correlations[1 : most + few + 1]) < bound
    runs = np.flatnonzero(np.convolve(small, np.ones(few), "valid") == few)
    return max(1, int(runs[0]) if len(runs) else most)
