"""Intervals: known answers, what holds of any data, and how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from benchmarks.coverage import Case, autoregressive, bursts, coverage
from cufall_py.analysis.intervals import (
    Estimate,
    averaged,
    between_runs,
    block_length,
    difference,
    effective_size,
    relative,
    resampled_totals,
    t_quantile,
    within_run,
)

PUBLISHED_T = {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}
"""Two-sided 95 %: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2."""


@pytest.mark.parametrize("freedom", PUBLISHED_T)
def test_t_is_that_of_the_tables(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(PUBLISHED_T[freedom], abs=6e-4)


def test_t_at_its_ends() -> None:
    assert t_quantile(1e9) == pytest.approx(1.95996, abs=1e-4)
    assert t_quantile(4, 0.99) == pytest.approx(4.604, abs=6e-4)
    assert t_quantile(0.2) == t_quantile(1)


def test_welch_by_hand() -> None:
    # both variances 1, so 4 degrees of freedom: t 2.776, standard error sqrt(1/3 + 1/3)
    found = difference(between_runs([1, 2, 3], 100), between_runs([5, 6, 7], 100))
    assert (found.low, found.change, found.high) == pytest.approx((4 - 2.2668, 4, 4 + 2.2668), abs=1e-3)


def test_freedom_of_unequal_variances_by_hand() -> None:
    # variances 1/3 and 4/3: (5/3)^2 / ((1/9 + 16/9) / 2) = 2.941
    base, new = between_runs([1, 2, 3], 100), between_runs([4, 6, 8], 100)
    half = difference(base, new).high - 4
    assert half == pytest.approx(t_quantile(50 / 17) * math.sqrt(5 / 3))


NUMBERS = st.floats(0.05, 10)


@given(NUMBERS, NUMBERS, st.floats(1e-6, 0.01), st.floats(1e-6, 0.01), st.floats(0.1, 3))
def test_a_ratio_is_in_fiellers_interval_if_it_explains_the_difference(
    base: float, new: float, of_base: float, of_new: float, ratio: float
) -> None:
    one, other = Estimate(base, of_base, 1e6, 99.0), Estimate(new, of_new, 1e6, 99.0)
    found = relative(one, other)
    assume(math.isfinite(found.low) and min(abs(ratio - 1 - end) for end in (found.low, found.high)) > 1e-6)
    scaled = Estimate(ratio * base, ratio**2 * of_base, 1e6, 99.0)
    explains = difference(scaled, other)
    assert (found.low <= ratio - 1 <= found.high) == (explains.low <= 0 <= explains.high)


def test_a_change_of_what_may_be_nothing_has_no_ends() -> None:
    new = Estimate(1.0, 0.01, 10, 99.0)
    assert math.isinf(relative(Estimate(0.1, 0.01, 10, 99.0), new).high)
    nothing = relative(Estimate(0.0, 0.0, 10, 99.0), new)
    assert math.isnan(nothing.change) and math.isinf(nothing.low)


def test_runs_without_any_difference_are_no_surer_than_their_numbers() -> None:
    found = difference(between_runs([0.5, 0.5, 0.5], 100), between_runs([0.5, 0.5, 0.5], 100))
    assert 0 < found.high < 1e-6


def test_the_mean_of_runs_halves_the_variance_and_keeps_the_fewest_samples() -> None:
    found = averaged([Estimate(1, 4, 8, 30.0), Estimate(3, 4, 8, 50.0)])
    assert (found.value, found.variance, found.freedom, found.effective) == (2, 2, pytest.approx(16), 30.0)


# Within a run


def series(rho: float, n: int, seed: int) -> np.ndarray:
    return autoregressive(rho)(n, np.random.default_rng(seed))


@pytest.mark.parametrize(("rho", "least"), [(0.5, 27.7), (0.8, 61.9)])
def test_blocks_are_four_times_what_theory_has_for_an_autoregression(rho: float, least: float) -> None:
    # (2 g^2 / (4/3 g0^2))^(1/3) n^(1/3) with g / g0 = 2 rho / (1 - rho^2), n = 8000
    lengths = [block_length(series(rho, 8000, seed)) for seed in range(15)]
    assert np.median(lengths) == pytest.approx(4 * least, rel=0.3)


def test_blocks_of_what_remembers_nothing_are_short_and_of_a_constant_one() -> None:
    assert np.median([block_length(series(0, 1000, seed)) for seed in range(9)]) < 15
    assert block_length(np.full(100, 0.3)) == 1
    assert block_length(np.arange(3.0)) == 1


@given(st.lists(st.floats(0, 1), min_size=2, max_size=60))
def test_blocks_leave_at_least_five(values: list[float]) -> None:
    assert 1 <= block_length(np.array(values)) <= max(1, len(values) // 5)


@pytest.mark.parametrize("rho", [0, 0.5, 0.9])
def test_effective_samples_of_an_autoregression(rho: float) -> None:
    found = [effective_size(s, block_length(s)) for s in (series(rho, 4000, seed) for seed in range(15))]
    assert np.median(found) == pytest.approx(4000 * (1 - rho) / (1 + rho), rel=0.25)


@given(st.integers(1, 50), st.data())
def test_every_resample_has_as_many_stretches_as_the_run(n: int, data: st.DataObject) -> None:
    block = data.draw(st.integers(1, n))
    totals = resampled_totals(np.ones((n, 1)), block, 20, np.random.default_rng(1))
    assert totals[:, 0] == pytest.approx(n)


def test_resamples_are_of_whole_blocks_around_the_circle() -> None:
    totals = resampled_totals(np.eye(6), 4, 500, np.random.default_rng(1))
    assert totals.mean(axis=0) == pytest.approx(np.ones(6), abs=0.15)
    assert {tuple(row) for row in resampled_totals(np.eye(4), 4, 50, np.random.default_rng(1))} == {(1, 1, 1, 1)}


def test_the_error_of_independent_samples_is_the_textbooks() -> None:
    values = np.random.default_rng(3).normal(0.5, 0.1, 1000)
    sums = np.stack([values, np.ones(1000)], axis=1)
    found = within_run(sums, lambda t: t[:, 0] / t[:, 1], values - values.mean(), np.random.default_rng(1))
    assert found.value == pytest.approx(values.mean())
    assert found.variance == pytest.approx(0.1**2 / 1000, rel=0.2)


def test_of_one_stretch_no_error_is_known() -> None:
    found = within_run(np.ones((1, 1)), lambda t: t[:, 0], np.zeros(1), np.random.default_rng(1))
    assert found.value == 1 and math.isinf(found.variance)


@pytest.mark.parametrize("load", [autoregressive(0), autoregressive(0.9), bursts(50)], ids=["white", "AR", "bursts"])
def test_intervals_hold_the_truth_about_as_often_as_they_say(load: object) -> None:
    # the seeds are fixed; docs/statistics.md has 2,000 runs of each
    held, judged = coverage(Case("", load), 60)  # type: ignore[arg-type]
    assert 0.88 <= held <= 1 and judged > 0.9


def test_intervals_that_take_samples_for_independent_would_not() -> None:
    def holds(seed: int) -> bool:
        one, other = series(0.9, 4000, seed), series(0.9, 4000, seed + 1000)
        return abs(one.mean() - other.mean()) < 1.96 * math.sqrt((one.var() + other.var()) / 4000)

    assert np.mean([holds(seed) for seed in range(100)]) < 0.6
