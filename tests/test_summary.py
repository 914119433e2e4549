"""What samples come to: expected values from arithmetic and from numpy on small arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.analysis.bins import RELATIVE_RESOLUTION, RESOLUTION
from cufall_py.analysis.statistics import Row, Statistics
from cufall_py.analysis.summary import CHUNK, Subject, Summarizer, Summary
from cufall_py.metrics import MetricSet
from cufall_py.samples import Samples
from cufall_py.spans import Span
from tests.helpers import EPOCH, MS, SECOND, joined, samples, steady, tensor_set, unbounded_set

CYCLES = 2.0
"""A nanosecond."""


def of_ratios(ratios: Sequence[float], lengths_ns: Sequence[int] | None = None, start_ns: int = EPOCH) -> Samples:
    """Samples of `tensor_set()` that join, each at a ratio of the peak."""
    lengths = np.array(lengths_ns or [MS] * len(ratios), np.int64)
    edges = start_ns + np.concatenate(([0], np.cumsum(lengths)))
    elapsed = lengths * CYCLES
    return Samples(edges[:-1], edges[1:], np.stack([4 * np.array(ratios) * elapsed, elapsed], axis=1))


def summed(
    batches: Sequence[Samples],
    regions: dict[str, list[Span]] | None = None,
    part: list[Span] | None = None,
    metrics: MetricSet | None = None,
    throttled: Sequence[Span] = (),
    readings: tuple[float, float] = (float("nan"), float("nan")),
) -> Summary:
    summarizer = Summarizer([Subject(0, "H200", metrics or tensor_set(), throttled)], regions or {}, part)
    for batch in batches:
        sm_mhz, power_w = (np.full(len(batch), reading) for reading in readings)
        summarizer.add(0, batch, sm_mhz, power_w)
    return summarizer.summary()


def row(summary: Summary, region: str = "") -> Row:
    scope = summary.scope(region)
    assert scope
    return scope.rows[0]


def statistics(summary: Summary, region: str = "") -> Statistics:
    return row(summary, region).metrics[0]


def same(one: Statistics, other: Statistics) -> None:
    for name, value in vars(one).items():
        if name not in ("label", "plain"):
            assert value == pytest.approx(getattr(other, name), rel=1e-9, abs=1e-12, nan_ok=True), name


ratio = st.floats(0, 1)
some = st.lists(st.tuples(ratio, st.integers(1, 5 * MS)), min_size=1, max_size=60)


@given(some)
def test_each_figure_is_what_numpy_says(drawn: list[tuple[float, int]]) -> None:
    values, lengths = np.array([v for v, _ in drawn]), np.array([n for _, n in drawn])
    s = statistics(summed([of_ratios(values.tolist(), lengths.tolist())]))
    assert s.mean == pytest.approx((values * lengths).sum() / lengths.sum())
    assert s.time_mean == pytest.approx(s.mean)  # one clock, so the two agree
    assert (s.minimum, s.maximum) == (pytest.approx(values.min()), pytest.approx(values.max()))
    measured = np.array([4 * v * n * CYCLES for v, n in drawn]) / (4 * lengths * CYCLES)
    for name, below in (("idle_share", 0.001), ("below_1", 0.01), ("below_10", 0.1)):
        assert getattr(s, name) == pytest.approx(lengths[measured < below].sum() / lengths.sum()), name
    assert s.above_90 == pytest.approx(lengths[measured > 0.9].sum() / lengths.sum())
    assert (s.samples, s.coverage) == (len(drawn), 1.0)


@given(some)
def test_percentiles_are_within_the_resolution_of_numpys(drawn: list[tuple[float, int]]) -> None:
    values, lengths = [v for v, _ in drawn], [n for _, n in drawn]
    s = statistics(summed([of_ratios(values, lengths)]))
    for percent in (1, 5, 50, 95, 99):
        # a hair to either side, for rounding decides where the weights end exactly at the share
        low, high = (
            np.quantile(values, share, weights=lengths, method="inverted_cdf")
            for share in (percent / 100 - 1e-9, percent / 100 + 1e-9)
        )
        assert low - RESOLUTION / 2 - 1e-12 <= s.percentile(percent) <= high + RESOLUTION / 2 + 1e-12


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_percentiles_of_what_is_no_percent_are_within_a_share_of_it(values: list[float]) -> None:
    batch = joined(EPOCH, MS, [[value, 1.0] for value in values])
    s = statistics(summed([batch], metrics=unbounded_set()))
    for percent in (1, 50, 99):
        expected = np.quantile(values, percent / 100, method="inverted_cdf")
        assert s.percentile(percent) == pytest.approx(expected, rel=RELATIVE_RESOLUTION, abs=1e-37)
    assert s.plain and np.isnan([s.below_1, s.idle_share, s.longest_idle_s]).all()


def test_the_mean_is_the_quotient_of_sums_and_the_time_mean_is_not() -> None:
    """Two samples as long, one at a tenth of the clock: 4 and 1 cycles of 10 and 1, over a peak of 1."""
    batch = joined(EPOCH, MS, [[4.0, 10.0], [1.0, 1.0]])
    s = statistics(summed([batch], metrics=tensor_set(peak=1.0)))
    assert (s.mean, s.time_mean) == (pytest.approx(5 / 11), pytest.approx(0.7))


@given(some, st.lists(st.integers(0, 60), max_size=4), st.integers(0, 60))
def test_no_cut_into_batches_changes_anything(drawn: list[tuple[float, int]], cuts: list[int], gap_at: int) -> None:
    """Also where a gap lies between two samples, and in a region that begins and ends within samples."""
    batch = of_ratios([v for v, _ in drawn], [n for _, n in drawn])
    moved = np.where(np.arange(len(batch)) >= gap_at, 50 * MS, 0)
    batch = Samples(batch.start_ns + moved, batch.end_ns + moved, batch.values)
    regions = {"r": [(EPOCH + 3 * MS // 2, EPOCH + 40 * MS), (EPOCH + 60 * MS, EPOCH + 90 * MS)]}
    edges = sorted({0, len(batch), *(cut for cut in cuts if cut < len(batch))})
    parts = [batch[slice(a, b)] for a, b in pairwise(edges)]
    at_once, in_parts = summed([batch], regions), summed(parts, regions)
    for region in ("", "r"):
        same(statistics(at_once, region), statistics(in_parts, region))


def test_parts_are_summed_up_in_chunks_with_the_same_result() -> None:
    """More samples than one chunk holds: idle from within the first to within the third."""
    values = [0.5] * 1000 + [0.0] * (2 * CHUNK) + [0.25] * 1000
    batch = of_ratios(values)
    whole = statistics(summed([batch]))
    pieces = statistics(summed([batch[slice(k, k + 777)] for k in range(0, len(batch), 777)]))
    same(whole, pieces)
    assert pieces.longest_idle_s == pytest.approx(2 * CHUNK / 1000)
    assert pieces.mean == pytest.approx((500 + 250) / len(values))


def test_the_longest_idle_ends_at_a_gap_and_at_the_edge_of_a_region() -> None:
    first, second = of_ratios([0.5, 0.0, 0.0, 0.0]), of_ratios([0.0, 0.0, 0.0, 0.0, 0.0, 0.9], start_ns=EPOCH + 6 * MS)
    summary = summed([first, second], {"r": [(EPOCH, EPOCH + 9 * MS)]})
    assert statistics(summary).longest_idle_s == pytest.approx(0.005)
    assert statistics(summary, "r").longest_idle_s == pytest.approx(0.003)
    assert statistics(summary).coverage == pytest.approx(10 / 12)


def test_a_region_takes_shares_for_its_mean_and_whole_samples_for_the_rest() -> None:
    """Of four samples (0.2, 0.4, 0.6, 0.8) the region has half of the first, all of the second, half of the third."""
    summary = summed([of_ratios([0.2, 0.4, 0.6, 0.8])], {"r": [(EPOCH + MS // 2, EPOCH + 5 * MS // 2)]})
    s = statistics(summary, "r")
    assert s.mean == pytest.approx((0.1 + 0.4 + 0.3) / 2)
    assert (s.samples, s.minimum, s.maximum, s.time_mean) == (1, *[pytest.approx(0.4)] * 3)
    assert (row(summary, "r").samples, s.coverage) == (1, 1.0)


def test_what_lies_in_two_regions_or_comes_twice_counts_once() -> None:
    overlapping = [(EPOCH, EPOCH + 3 * MS), (EPOCH + 2 * MS, EPOCH + 4 * MS)]
    s = statistics(summed([of_ratios([0.1, 0.2, 0.3, 0.4])], {"r": overlapping}), "r")
    assert (s.samples, s.mean) == (4, pytest.approx(0.25))


def test_the_time_of_a_region_in_which_nothing_was_measured_is_wanted_all_the_same() -> None:
    summarizer = Summarizer([Subject(0, "H200", tensor_set())], {"r": [(EPOCH, 2**62)]}, None, (EPOCH, EPOCH + SECOND))
    summarizer.add(0, steady(EPOCH, MS, 100, 0.5), np.full(100, np.nan), np.full(100, np.nan))
    scope = summarizer.summary().scope("r")
    assert scope and scope.wanted_s == 1.0 and scope.rows[0].coverage == pytest.approx(0.1)


def test_a_part_is_all_that_counts() -> None:
    summary = summed(
        [of_ratios([0.1, 0.2, 0.3, 0.4])], {"r": [(EPOCH, EPOCH + 3 * MS)]}, [(EPOCH + MS, EPOCH + 4 * MS)]
    )
    assert (statistics(summary).mean, statistics(summary, "r").mean) == (pytest.approx(0.3), pytest.approx(0.25))


def test_what_was_not_measured_is_absent_and_never_nothing() -> None:
    s = statistics(summed([]))
    assert np.isnan([s.mean, s.minimum, s.below_1, s.longest_idle_s, s.percentile(50)]).all() and s.samples == 0
    lacking = samples([EPOCH, EPOCH + MS], [EPOCH + MS, EPOCH + 2 * MS], [[float("nan"), 1.0], [2.0, 1.0]])
    summary = summed([lacking])
    assert statistics(summary).mean == pytest.approx(0.5)
    assert (statistics(summary).samples, statistics(summary).coverage) == (1, pytest.approx(0.5))
    assert (row(summary).samples, row(summary).coverage) == (2, 1.0)


def test_clocks_power_energy_and_throttling() -> None:
    """1.5 s at 700 W; throttled for half a second of it, of which a fifth lies in the region."""
    batch = steady(EPOCH, MS, 1500, 0.5)
    throttled = [(EPOCH + SECOND // 2, EPOCH + SECOND)]
    summary = summed([batch], {"r": [(EPOCH, EPOCH + 6 * SECOND // 10)]}, throttled=throttled, readings=(1980.0, 700.0))
    whole, region = row(summary), row(summary, "r")
    assert (whole.sm_mhz, whole.power_w, whole.energy_j) == pytest.approx((1980, 700, 1050))
    assert (whole.throttle_share, region.throttle_share) == pytest.approx((1 / 3, 1 / 6))
    unknown = row(summed([batch]))
    assert np.isnan([unknown.sm_mhz, unknown.power_w, unknown.energy_j, unknown.throttle_share]).all()


def test_samples_from_before_others_are_counted_and_left_out() -> None:
    summary = summed([steady(EPOCH + SECOND, MS, 50, 0.5), steady(EPOCH, MS, 50, 0.9)])
    assert (summary.samples_read, summary.behind, statistics(summary).mean) == (100, 50, pytest.approx(0.5))


def of_gpus(ratios: Sequence[float], kinds: Sequence[str] = (), sets: Sequence[MetricSet] = ()) -> Row:
    kinds, sets = kinds or ["H200"] * len(ratios), sets or [tensor_set()] * len(ratios)
    summarizer = Summarizer([Subject(k, *of) for k, of in enumerate(zip(kinds, sets, strict=True))])
    for gpu, value in enumerate(ratios):
        unknown = np.full(100, np.nan)
        summarizer.add(gpu, steady(EPOCH, MS, 100, value), unknown, unknown)
    group = summarizer.summary().scopes[0].group
    assert group
    return group


def test_all_gpus_together() -> None:
    group = of_gpus([0.2, 0.4])
    s = group.metrics[0]
    assert (s.mean, s.minimum, s.maximum, s.samples) == pytest.approx((0.3, 0.2, 0.4, 200))
    assert (s.percentile(50), s.percentile(51)) == pytest.approx((0.2, 0.4))
    assert group.unlike_kinds == ()


def test_an_average_over_unlike_gpus_says_so_and_is_that_of_their_means() -> None:
    group = of_gpus([0.2, 0.4], ["H200", "A100"], [tensor_set(4.0), tensor_set(8.0)])
    assert group.metrics[0].mean == pytest.approx((0.2 + 0.4 / 2) / 2)
    assert group.unlike_kinds == ("A100", "H200")


@pytest.mark.parametrize(
    ("ratios", "unlike"),
    [
        ([0.5, 0.5, 0.5, 0.5], ()),
        ([0.5, 0.5, 0.5, 0.54], ()),
        ([0.5, 0.5, 0.5, 0.56], (3,)),
        ([0.0, 0.5, 0.52, 0.48], (0,)),
        ([0.1, 0.1, 0.8, 0.8], ()),
        ([0.1, 0.9], ()),
    ],
    ids=["alike", "less than 5 points", "one above", "one idle", "two groups", "two"],
)
def test_a_gpu_that_is_unlike_its_peers(ratios: list[float], unlike: tuple[int, ...]) -> None:
    assert of_gpus(ratios).unlike == (unlike,)


def test_only_gpus_of_a_kind_are_peers() -> None:
    assert of_gpus([0.5, 0.5, 0.5, 0.1], ["H200", "H200", "H200", "A2"]).unlike == ((),)
