"""Statistics of a stream: exact however it is cut, in memory that does not grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cufall_py.analysis.streamed import MOST_BINS, Bins, Chunk, Statistic, statistic, value

RNG = np.random.default_rng(5)


def chunk(values: np.ndarray, length_ns: float = 1e6, whole: bool = True) -> Chunk:
    n = len(values)
    return Chunk(values * 8.0, np.full(n, 8.0), np.full(n, length_ns), np.full(n, whole))


def of(name: str, *chunks: Chunk) -> Statistic:
    found = statistic(name)
    for one in chunks:
        found.add(one)
    return found


@settings(max_examples=30)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=5))
def test_a_mean_is_the_same_however_the_stream_is_cut(sizes: list[int]) -> None:
    values = np.random.default_rng(1).random(sum(sizes))
    cuts = np.split(values, np.cumsum(sizes)[:-1])
    found = of("mean", *map(chunk, cuts))
    assert value(found) == pytest.approx(values.mean())
    assert len(found.sums) <= MOST_BINS and found.count == len(values)
    assert found.influence().sum() == pytest.approx(0, abs=1e-6)


def test_stretches_are_consecutive_and_join_in_pairs() -> None:
    bins = Bins(1)
    for k in range(3 * MOST_BINS):
        bins.add(np.zeros((1, 1), np.intp), np.full((1, 1), float(k)))
    firsts = np.arange(0, 3 * MOST_BINS, 4)
    assert bins.sums[:, 0].tolist() == (4 * firsts + 6).tolist()


def test_a_mean_is_a_quotient_of_sums_not_a_mean_of_quotients() -> None:
    slow, fast = chunk(np.array([0.9])), Chunk(np.array([0.8]), np.array([80.0]), np.array([1e7]), np.array([True]))
    assert value(of("mean", slow, fast)) == pytest.approx((0.9 * 8 + 0.8) / 88)


@pytest.mark.parametrize("name", ["p5", "p50", "p95"])
def test_percentiles_of_many_values(name: str) -> None:
    values = RNG.beta(2, 5, 200_000)
    assert value(of(name, chunk(values))) == pytest.approx(np.percentile(values, int(name[1:])), rel=0.003)


def test_percentiles_of_one_value_and_of_two_modes() -> None:
    assert value(of("p50", chunk(np.full(100, 0.437)))) == 0.437
    two = np.concatenate([np.zeros(400), np.full(600, 0.9)])
    assert [value(of(name, chunk(two))) for name in ("p5", "p50", "p95")] == [0.0, 0.9, 0.9]


def test_percentiles_and_idle_share_are_weighted_by_time() -> None:
    parts = chunk(np.zeros(10), 9e6), chunk(np.full(10, 0.5), 1e6)
    assert value(of("p50", *parts)) == 0.0
    assert value(of("idle_share", *parts)) == pytest.approx(0.9)


def test_values_below_a_tenth_of_a_percent_are_idle() -> None:
    assert value(of("idle_share", chunk(np.array([0.0, 0.0009, 0.0011, 0.5])))) == 0.5


def test_samples_cut_by_an_edge_count_for_means_alone() -> None:
    parts = chunk(np.full(2, 0.5)), chunk(np.zeros(2), whole=False)
    assert value(of("mean", *parts)) == 0.25
    assert value(of("p5", *parts)) == 0.5
    assert value(of("idle_share", *parts)) == 0.0


@pytest.mark.parametrize("name", ["mean", "p50", "idle_share"])
def test_nothing_is_nan(name: str) -> None:
    assert np.isnan(value(statistic(name)))


def test_what_was_not_measured_is_left_out() -> None:
    broken = Chunk(np.array([1.0, np.nan, 1.0]), np.array([2.0, 2.0, 0.0]), np.ones(3), np.ones(3, bool))
    assert broken.measured().value.tolist() == [0.5]
