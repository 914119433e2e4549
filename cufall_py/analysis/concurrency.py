"""What GPUs and server did against how many requests ran, from whatever load came by.

Of each frame that lies between two scrapes which both read the same number of running requests, or one of the same
range. Formulas: docs/engines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .intervals import Estimate, t_quantile, within_run
from .scrapes import Bools, Floats, Ints, Scrapes

STEPS_TO_RENEW = 40
"""SGLang's --decode-log-interval, if nothing else is asked for: its gauges move each so many decode steps."""
SEED = 20_261_130
"""Of the resampling, so that the same data gives the same intervals."""


@dataclass(frozen=True)
class Mean:
    """A mean, the ends of its 95 % interval (infinite where the data sets none), and how many it is of."""

    value: float
    low: float
    high: float
    count: int


NOTHING = Mean(np.nan, np.nan, np.nan, 0)


@dataclass(frozen=True)
class Row:
    """While `least` to `most` requests ran: `intervals` between scrapes, together `seconds`.

    `metrics`: of frames, weighted by what was covered. Tokens: of intervals whose counters do not wait for requests to
    end; prompt tokens that were computed, where the engine tells them apart. `tpot_s`: the mean of the inter-token
    latencies that came.
    """

    least: int
    most: int
    intervals: int
    seconds: float
    metrics: Mapping[str, Mean]
    generation_tokens_per_s: Mean
    prompt_tokens_per_s: Mean
    tpot_s: Mean


def by_concurrency(
    start_ns: Ints,
    end_ns: Ints,
    metrics: Mapping[str, Floats],
    covered_ns: Floats,
    scrapes: Scrapes,
    ranges: Sequence[tuple[int, int]] = (),
) -> list[Row]:
    """A row of each range of running requests, or of each number that was held; those that never were are left out.

    Frames: `start_ns`, `end_ns`, `covered_ns` (n,), and `metrics`, (n,) each by label, NaN where not measured.
    """
    rows = (_row(start_ns, end_ns, metrics, covered_ns, scrapes, *ends) for ends in ranges or _held_numbers(scrapes))
    return [row for row in rows if row.intervals]


def held(scrapes: Scrapes, least: int, most: int) -> Bools:
    """(k,) intervals with so many running requests at both ends.

    A gauge that moves only now and then may be of some time ago. It counts up to where it was surely renewed while it
    still read so: where as many tokens have been made since as `most` requests make in STEPS_TO_RENEW.
    """
    fits = (scrapes.running >= least) & (scrapes.running <= most)
    both: Bools = fits[:, 0] & fits[:, 1]
    if most == 0:
        both &= scrapes.running_of_steps | (scrapes.generation == 0)
        return both
    for first, last in _runs(scrapes, both & ~scrapes.running_of_steps):
        made = scrapes.generation[first : last + 1]
        since = made[::-1].cumsum()[::-1] - made
        both[first : last + 1] = since >= STEPS_TO_RENEW * most
    return both


def inside(start_ns: Ints, end_ns: Ints, scrapes: Scrapes, chosen: Bools) -> Bools:
    """(n,) frames that surely lie within one of the chosen intervals, or several that are joined."""
    found = np.zeros(len(start_ns), np.bool_)
    for first, last in _runs(scrapes, chosen):
        begin = scrapes.start_ns[first] + scrapes.error_ns[first, 0]
        found |= (start_ns >= begin) & (end_ns <= scrapes.end_ns[last] - scrapes.error_ns[last, 1])
    return found


def _held_numbers(scrapes: Scrapes) -> list[tuple[int, int]]:
    same = scrapes.running[:, 0] == scrapes.running[:, 1]
    return [(int(n), int(n)) for n in np.unique(scrapes.running[same, 0])]


def _runs(scrapes: Scrapes, chosen: Bools) -> list[tuple[int, int]]:
    """First and last of each stretch of chosen intervals that are joined."""
    goes_on = chosen & scrapes.joined & np.append(chosen[1:], False)[: len(chosen)]
    begins = np.flatnonzero(chosen & ~np.append(False, goes_on[:-1])[: len(chosen)])
    ends = np.flatnonzero(chosen & ~goes_on)
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def _row(
    start_ns: Ints,
    end_ns: Ints,
    metrics: Mapping[str, Floats],
    covered_ns: Floats,
    scrapes: Scrapes,
    least: int,
    most: int,
) -> Row:
    chosen = held(scrapes, least, most)
    frames = inside(start_ns, end_ns, scrapes, chosen)
    seconds = (scrapes.end_ns - scrapes.start_ns)[chosen] / 1e9
    return Row(
        least,
        most,
        int(chosen.sum()),
        float(seconds.sum()),
        {label: _mean(values[frames] * covered_ns[frames], covered_ns[frames]) for label, values in metrics.items()},
        _mean(scrapes.generation[chosen], seconds),
        _mean(scrapes.prompt[chosen], seconds),
        _mean(scrapes.itl_s[chosen], scrapes.itl_count[chosen]),
    )


def _mean(numerators: Floats, weights: Floats) -> Mean:
    """The quotient of the sums, its interval by circular block bootstrap; of what is known."""
    known = np.isfinite(numerators) & (weights > 0)
    sums = np.stack((numerators[known], weights[known]), axis=1)
    if not len(sums):
        return NOTHING
    quotient = float(sums[:, 0].sum() / sums[:, 1].sum())
    influence = (sums[:, 0] - quotient * sums[:, 1]) / sums[:, 1].mean()
    return _with_ends(within_run(sums, _QUOTIENT, influence, np.random.default_rng(SEED)), len(sums))


_QUOTIENT: Callable[[Floats], Floats] = lambda totals: totals[:, 0] / totals[:, 1]  # noqa: E731


def _with_ends(estimate: Estimate, count: int) -> Mean:
    if not np.isfinite(estimate.variance):
        return Mean(estimate.value, -np.inf, np.inf, count)
    half = t_quantile(estimate.freedom) * float(np.sqrt(estimate.variance))
    return Mean(estimate.value, estimate.value - half, estimate.value + half, count)
