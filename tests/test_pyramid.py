"""The pyramid against arithmetic over single samples, at every level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose

from cufall_py import pyramid
from cufall_py.metrics import Metric, MetricSet
from cufall_py.pyramid import Builder, Level, Pyramid, bin_length_ns
from cufall_py.recording_reader import Rows
from cufall_py.samples import Samples
from cufall_py.spans import Span
from tests.helpers import EPOCH, MS, SECOND, joined, tensor_set, unbounded_set

NAN = float("nan")


def rows(samples: Samples, gpu: int = 0, sm_mhz: Sequence[float] = (), power_w: Sequence[float] = ()) -> Rows:
    unknown = [NAN] * len(samples)
    return Rows(gpu, samples, np.array(sm_mhz or unknown), np.array(power_w or unknown))


def pyramids(
    parts: Iterable[Rows], sets: Sequence[MetricSet], spans: Sequence[Span], bin_ns: int
) -> tuple[Pyramid, Pyramid]:
    builder = Builder(sets, spans, bin_ns)
    for part in parts:
        builder.add(part)
    return builder.pyramids()


def built(samples: Samples, bin_ns: int, metrics: MetricSet | None = None, spans: Sequence[Span] = ()) -> Pyramid:
    """The pyramid of the metrics of one GPU."""
    spans = spans or [(int(samples.start_ns[0]), int(samples.end_ns[-1]))]
    return pyramids([rows(samples)], [metrics or unbounded_set()], spans, bin_ns)[0]


def expected(samples: Samples, level: Level, k: int) -> tuple[float, float, float, float]:
    """Mean, minimum, maximum and covered time of bin k of a / b, sample by sample and in whole numbers."""
    edges = level.start_ns + k * level.bin_ns, level.start_ns + (k + 1) * level.bin_ns
    top = bottom = covered = Fraction(0)
    quotients = []
    for start, end, (a, b) in zip(samples.start_ns, samples.end_ns, samples.values, strict=True):
        inside = min(int(end), edges[1]) - max(int(start), edges[0])
        if inside > 0:
            share = Fraction(inside, int(end - start))
            top, bottom, covered = top + share * int(a), bottom + share * int(b), covered + inside
            quotients.append(a / b)
    mean = float(top / bottom) if bottom else NAN
    return mean, min(quotients, default=NAN), max(quotients, default=NAN), float(covered)


@st.composite
def recordings(draw: st.DrawFn) -> Samples:
    """Samples of any length, some with a gap before them."""
    count = draw(st.integers(1, 40))
    lengths = draw(st.lists(st.integers(1, 3000), min_size=count, max_size=count))
    pauses = draw(st.lists(st.sampled_from([0, 0, 0, 1, 700, 9000]), min_size=count, max_size=count))
    numbers = st.tuples(st.integers(0, 1000), st.integers(1, 1000))
    values = draw(st.lists(numbers, min_size=count, max_size=count))
    ends = EPOCH + np.cumsum(np.add(lengths, pauses))
    return Samples(ends - lengths, ends, np.array(values, np.float64))


@given(recordings(), st.sampled_from([1, 7, 100, 1000, 2500, 10_000]), st.integers(1, 12))
def test_every_bin_of_every_level_is_what_its_samples_come_to(samples: Samples, bin_ns: int, batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyramid, "FEWEST_BINS", 3)  # few bins do here what many do in a recording
        parts = [rows(samples[at : at + batch]) for at in range(0, len(samples), batch)]
        span = (int(samples.start_ns[0]), int(samples.end_ns[-1]))
        found, _ = pyramids(parts, [unbounded_set()], [span], bin_ns)
    assert len(found.levels[-1]) <= 3
    for level in [*found.levels[-3:], found.levels[0], found.whole]:
        assert level.start_ns <= span[0] and span[1] <= level.start_ns + len(level) * level.bin_ns
        chosen = range(len(level)) if len(level) < 200 else range(0, len(level), len(level) // 100)
        for k in chosen:
            got = [of[0, k, 0] for of in (level.mean, level.minimum, level.maximum)]
            assert_allclose([*got, level.covered_ns[0, k]], expected(samples, level, k), rtol=1e-8)
    assert found.got.tolist() == [len(samples)]


def test_a_spike_of_one_sample_is_the_maximum_of_its_bin_at_every_level() -> None:
    values = [[0.0, 1.0]] * 100_000
    values[54_321] = [0.97, 1.0]
    found = built(joined(EPOCH, MS, values), 20 * MS)
    assert [len(level) for level in found.levels] == [5000, 1250, 313]
    for level in found.levels:
        at = (54_321 * MS + EPOCH - level.start_ns) // level.bin_ns
        assert level.maximum[0, at, 0] == 0.97
        assert np.count_nonzero(level.maximum[0, :, 0]) == 1


def test_what_was_not_measured_is_nan_and_not_nothing() -> None:
    samples = Samples.join([joined(EPOCH, MS, [[0, 1]] * 10), joined(EPOCH + 30 * MS, MS, [[0, 1]] * 10)])
    (level,) = built(samples, 5 * MS).levels
    assert level.mean[0, :, 0].tolist() == pytest.approx([0, 0, NAN, NAN, NAN, NAN, 0, 0], nan_ok=True)
    assert np.isnan(level.maximum[0, 2:6, 0]).all() and np.isnan(level.minimum[0, 2:6, 0]).all()
    assert level.covered_ns[0].tolist() == [5 * MS] * 2 + [0] * 4 + [5 * MS] * 2


def test_a_sample_without_a_value_is_not_measured() -> None:
    (level,) = built(joined(EPOCH, MS, [[3, 4], [NAN, 4], [1, 4], [1, 4]]), 2 * MS).levels
    assert level.mean[0, :, 0].tolist() == [0.75, 0.25]
    assert level.covered_ns[0].tolist() == [MS, 2 * MS]


def test_only_the_times_that_are_meant_count() -> None:
    samples = joined(EPOCH, 10 * MS, [[k, 10] for k in range(10)])
    spans = [(EPOCH + 15 * MS, EPOCH + 25 * MS), (EPOCH + 80 * MS, EPOCH + 90 * MS)]
    (level,) = built(samples, 5 * MS, spans=spans).levels
    assert level.start_ns == EPOCH + 15 * MS and len(level) == 15
    means = level.mean[0, :, 0].tolist()
    assert means == pytest.approx([0.1, 0.2, *[NAN] * 11, 0.8, 0.8], nan_ok=True)
    whole = built(samples, 5 * MS, spans=spans).whole
    assert whole.mean[0, 0, 0] == pytest.approx((0.5 * 1 + 0.5 * 2 + 8) / 20)
    assert whole.covered_ns[0, 0] == 20 * MS


def test_a_sample_that_two_spans_share_counts_once_where_it_ends() -> None:
    samples = joined(EPOCH, 10 * MS, [[1, 2]] * 4)
    spans = [(EPOCH, EPOCH + 12 * MS), (EPOCH + 14 * MS, EPOCH + 35 * MS)]
    found = built(samples, 5 * MS, spans=spans)
    assert (found.got.tolist(), found.whole.covered_ns.tolist()) == ([3], [[33 * MS]])


def test_samples_from_before_a_clock_was_set_back_are_left_out() -> None:
    there = joined(EPOCH + 10 * MS, MS, [[1, 2]] * 10)
    back = joined(EPOCH, MS, [[2, 2]] * 10)
    found, _ = pyramids([rows(there), rows(back)], [unbounded_set()], [(EPOCH, EPOCH + 20 * MS)], 10 * MS)
    assert found.levels[0].mean[0, :, 0].tolist() == pytest.approx([NAN, 0.5], nan_ok=True)
    assert found.got.tolist() == [10]


def test_a_gpu_that_lacks_a_metric_keeps_its_place() -> None:
    there = tensor_set()
    without = MetricSet(there.counters, (there.metrics[0].made_absent(),))
    batch = joined(EPOCH, MS, [[2.0, 1.0]] * 4)
    found, _ = pyramids([rows(batch), rows(batch, gpu=1)], [there, without], [(EPOCH, EPOCH + 4 * MS)], 2 * MS)
    assert found.levels[0].mean[:, :, 0].tolist() == pytest.approx(np.array([[0.5, 0.5], [NAN, NAN]]), nan_ok=True)
    assert found.levels[0].covered_ns.tolist() == [[2 * MS] * 2] * 2


def test_a_rate_is_weighted_by_time() -> None:
    rate = MetricSet(("x.pct",), (Metric("x", "x", ("x.pct",), "time", peak=100.0, rate=True),))
    samples = Samples(np.array([EPOCH, EPOCH + MS]), np.array([EPOCH + MS, EPOCH + 4 * MS]), np.array([[80.0], [40.0]]))
    (level,) = built(samples, 4 * MS, rate).levels
    assert level.mean[0, 0, 0] == pytest.approx((80 * 1 + 40 * 3) / 400)
    assert (level.minimum[0, 0, 0], level.maximum[0, 0, 0]) == pytest.approx((0.4, 0.8))


def test_readings_are_weighted_by_time_and_absent_where_none_was_made() -> None:
    batch = joined(EPOCH, MS, [[0, 1]] * 8)
    mhz = [NAN, NAN, 1000.0, 1000.0, 1000.0, 2000.0, 2000.0, 2000.0]
    _, found = pyramids([rows(batch, sm_mhz=mhz)], [unbounded_set()], [(EPOCH, EPOCH + 8 * MS)], 4 * MS)
    (level,) = found.levels
    assert level.mean[0, :, 0].tolist() == [1000.0, 1750.0]
    assert level.minimum[0, :, 0].tolist() == [1000.0, 1000.0]
    assert np.isnan(level.mean[0, :, 1]).all()


@given(st.integers(1, 10**18), st.just(0.0) | st.floats(10, 1e9), st.integers(1, 100_000))
def test_a_bin_is_long_enough_and_no_shorter_than_a_sample(length_ns: int, period_ns: float, most: int) -> None:
    bin_ns = bin_length_ns(length_ns, period_ns, most)
    assert length_ns <= bin_ns * most
    assert bin_ns >= 0.66 * period_ns
    least = max(length_ns / most, period_ns)
    assert bin_ns <= max(2.0, 1.51 * least)


def test_bins_have_round_lengths() -> None:
    assert bin_length_ns(3600 * SECOND, 999_950, 5000) == 800 * MS
    assert bin_length_ns(SECOND, 999_950, 5000) == MS
    assert bin_length_ns(10 * SECOND, NAN, 1000) == 10 * MS
