"""Folding keeps totals, and what cannot be true never gets into one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.metrics import TIME, Metric, MetricSet
from cufall_py.samples import Even, Fold, Samples, Tally, fold, merge
from cufall_py.screening import NEVER_NS, SKEW_NS, Timeline, is_flawless, screen
from tests.helpers import DATA, EPOCH, MS, joined, metric, samples, steady, tensor_set, unbounded_set

PERIOD = 100
"""Nanoseconds of a sample in the hand-made batches."""


def batch_of(pieces: list[tuple[int, int, int, int]], offset: int) -> Samples:
    """From (gap before, length, numerator in percent of the most, elapsed in percent of the length)."""
    at, rows = EPOCH + offset, []
    for gap, length, busy, ticks in pieces:
        elapsed = length * ticks / 100
        rows.append((at + gap, at + gap + length, (4.0 * elapsed * busy / 100, elapsed)))
        at += gap + length
    return samples(*zip(*rows, strict=True))


gaps = st.one_of(st.just(0), st.integers(0, 5_000_000))
lengths = st.one_of(st.integers(1, 300), st.integers(1, 3_000_000))
batches = st.builds(
    batch_of,
    st.lists(st.tuples(gaps, lengths, st.integers(0, 100), st.integers(1, 120)), min_size=1, max_size=40),
    st.integers(0, 10_000_000),
)
# not shorter than a microsecond, for a gap of 5 ms in frames of 1 ns is a test of memory
frame_lengths = st.one_of(st.integers(10_000, 50_000), st.integers(50_000, 20_000_000))


@given(batches, frame_lengths)
def test_totals_are_conserved_whatever_the_frames(batch: Samples, frame_ns: int) -> None:
    folded = fold(batch, frame_ns, tensor_set())
    totals = folded.totals.sum(axis=0)
    assert totals[:-1] == pytest.approx(batch.values.sum(axis=0), rel=1e-6)
    assert totals[-1] == pytest.approx((batch.end_ns - batch.start_ns).sum(), rel=1e-6)
    assert folded.got.sum() == len(batch)


@given(batches, frame_lengths)
def test_every_frame_holds_each_sample_by_its_share(batch: Samples, frame_ns: int) -> None:
    folded = fold(batch, frame_ns, tensor_set())
    assert folded.start_ns % frame_ns == 0
    for k in {0, len(folded) // 2, len(folded) - 1}:
        begin = folded.start_ns + k * frame_ns
        inside = np.minimum(batch.end_ns, begin + frame_ns) - np.maximum(batch.start_ns, begin)
        share = np.maximum(inside, 0) / (batch.end_ns - batch.start_ns)
        expected = (batch.values * share[:, None]).sum(axis=0)
        assert folded.totals[k, :-1] == pytest.approx(expected, rel=1e-6, abs=1e-6 * batch.values.sum())


@given(batches, frame_lengths)
def test_covered_time_leaves_out_the_gaps(batch: Samples, frame_ns: int) -> None:
    folded = fold(batch, frame_ns, tensor_set())
    for k in range(min(len(folded), 50)):
        begin = folded.start_ns + k * frame_ns
        inside = np.minimum(batch.end_ns, begin + frame_ns) - np.maximum(batch.start_ns, begin)
        assert folded.totals[k, -1] == pytest.approx(np.maximum(inside, 0).sum(), abs=1)
    assert (folded.totals[:, -1] <= frame_ns + 1).all()


@given(batches, frame_lengths)
def test_the_mean_lies_between_the_extremes(batch: Samples, frame_ns: int) -> None:
    folded = fold(batch, frame_ns, tensor_set())
    mean = tensor_set().ratios(folded.totals)
    touched = folded.totals[:, -1] > 0.5
    assert (folded.minimum[touched] <= mean[touched] + 1e-6).all()
    assert (mean[touched] <= folded.maximum[touched] + 1e-6).all()
    assert np.isnan(folded.minimum[~touched & (folded.totals[:, -1] == 0)]).all()


def busy_cycles(at_ns: float) -> float:
    """Tensor cycles counted by a time: 0.5 ms at 80 %, then 0.5 ms idle, and so on, at 1 cycle a ns."""
    whole, within = divmod(at_ns - EPOCH, MS)
    return 4.0 * 0.8 * (whole * MS / 2 + min(within, MS / 2))


def sampled(period_ns: int, count: int) -> Samples:
    edges = [EPOCH + k * period_ns for k in range(count + 1)]
    values = [(busy_cycles(b) - busy_cycles(a), float(period_ns)) for a, b in pairwise(edges)]
    return joined(EPOCH, period_ns, values)


@pytest.mark.parametrize("period_ns", [MS // 10, MS, 10 * MS])
def test_the_mean_is_the_same_at_every_sample_period(period_ns: int) -> None:
    folded = fold(sampled(period_ns, 200 * MS // period_ns), 20 * MS, tensor_set())
    assert len(folded) == 10
    assert tensor_set().ratios(folded.totals)[:, 0] == pytest.approx([0.4] * 10, rel=1e-9)


def test_shorter_samples_only_widen_the_extremes() -> None:
    fine, coarse = (fold(sampled(ns, 20 * MS // ns), 20 * MS, tensor_set()) for ns in (MS // 10, MS))
    assert (fine.minimum[0, 0], fine.maximum[0, 0]) == pytest.approx((0.0, 0.8))
    assert (coarse.minimum[0, 0], coarse.maximum[0, 0]) == pytest.approx((0.4, 0.4))


def test_a_sample_longer_than_frames_is_spread_over_all_of_them() -> None:
    # 2.5 frames of 100 ns: from 50 to 300
    folded = fold(samples([EPOCH + 50], [EPOCH + 300], [[500.0, 250.0]]), 100, tensor_set())
    assert folded.totals[:, 0] == pytest.approx([100, 200, 200])
    assert folded.totals[:, 1] == pytest.approx([50, 100, 100])
    assert folded.totals[:, 2] == pytest.approx([50, 100, 100])
    assert folded.minimum[:, 0] == pytest.approx([0.5, 0.5, 0.5])
    assert folded.got.tolist() == [0, 0, 1]


def test_a_sample_belongs_to_the_frame_it_ends_in() -> None:
    # an end on the edge is the earlier frame's
    folded = fold(joined(EPOCH + 10, 90, [[0.0, 90.0]] * 3), 100, tensor_set())
    assert folded.got.tolist() == [1, 1, 1]
    folded = fold(joined(EPOCH, 100, [[0.0, 100.0]] * 3), 100, tensor_set())
    assert folded.got.tolist() == [1, 1, 1]


def test_a_frame_in_a_gap_is_empty() -> None:
    folded = fold(samples([EPOCH, EPOCH + 300], [EPOCH + 100, EPOCH + 400], [[4, 100], [8, 100]]), 100, tensor_set())
    assert folded.totals[:, 2].tolist() == [100, 0, 0, 100]
    assert folded.got.tolist() == [1, 0, 0, 1]
    assert np.isnan(folded.minimum[1:3]).all()
    assert np.isnan(folded.maximum[1:3]).all()
    assert np.isnan(tensor_set().ratios(folded.totals)[1:3]).all()


def test_a_sample_whose_quotient_is_no_number_hides_no_extreme() -> None:
    # a plain quotient of a GPU that did nothing for one sample: 0 / 0
    folded = fold(joined(EPOCH, 100, [[2.0, 4.0], [0.0, 0.0], [9.0, 4.0]]), 1000, unbounded_set())
    assert (folded.minimum[0, 0], folded.maximum[0, 0]) == (0.5, 2.25)
    assert unbounded_set().ratios(folded.totals)[0, 0] == pytest.approx(11 / 8)


def test_a_rate_is_weighted_by_time() -> None:
    percents = MetricSet(("d.pct",), (Metric("d", "d", ("d.pct",), TIME, peak=100.0, rate=True),))
    folded = fold(samples([EPOCH, EPOCH + 100], [EPOCH + 100, EPOCH + 400], [[80], [20]]), 1000, percents)
    # 100 ns at 80 % and 300 ns at 20 %
    assert percents.ratios(folded.totals)[0, 0] == pytest.approx(0.35)


def test_recorded_readings_fold_without_loss() -> None:
    with np.load(DATA / "h200-gemm-begins-1khz.npz") as data:
        batch = Samples(data["start_ns"], data["end_ns"], data["values"][:, :2])
    folded = fold(batch, 7 * MS, MetricSet(("a", "b"), (Metric("a", "a", ("a",), "b", peak=4.0, bounded=False),)))
    covered_ns = int((batch.end_ns - batch.start_ns).sum())
    assert folded.totals.sum(axis=0) == pytest.approx([342_073_284.4242424, 199_102_017.0, covered_ns], rel=1e-9)


def test_merging_frames_adds_totals_and_widens_extremes() -> None:
    whole = joined(EPOCH, 30, [[4.0 * k, 30.0] for k in range(20)])
    parts = [fold(whole[at : at + 7], 100, tensor_set()) for at in (0, 7, 14)]
    expected, merged = fold(whole, 100, tensor_set()), merge(parts)
    assert merged.start_ns == expected.start_ns
    assert merged.totals == pytest.approx(expected.totals)
    assert merged.minimum == pytest.approx(expected.minimum)
    assert merged.maximum == pytest.approx(expected.maximum)
    assert merged.got.tolist() == expected.got.tolist()


@given(batches, frame_lengths, st.lists(st.integers(0, 40), max_size=4))
def test_frames_are_the_same_however_samples_were_batched(batch: Samples, frame_ns: int, cuts: list[int]) -> None:
    bounds = sorted({0, len(batch), *(cut for cut in cuts if cut < len(batch))})
    merged = merge([fold(batch[a:b], frame_ns, tensor_set()) for a, b in pairwise(bounds)])
    expected = fold(batch, frame_ns, tensor_set())
    assert merged.totals == pytest.approx(expected.totals, rel=1e-6, abs=1e-3)
    np.testing.assert_array_equal(merged.got, expected.got)
    np.testing.assert_array_equal(np.isnan(merged.minimum), np.isnan(expected.minimum))


def test_merging_leaves_frames_between_empty() -> None:
    first = fold(steady(EPOCH, 50, 2, 0.25), 100, tensor_set())
    last = fold(steady(EPOCH + 300, 50, 2, 0.75), 100, tensor_set())
    for order in ([first, last], [last, first]):
        merged: Fold = merge(order)
        assert merged.start_ns == EPOCH
        assert merged.got.tolist() == [2, 0, 0, 2]
        assert merged.maximum[:, 0] == pytest.approx([0.25, np.nan, np.nan, 0.75], nan_ok=True)


def good(k: int, ratio: float = 0.5) -> tuple[int, int, list[float]]:
    """Sample number k of a steady GPU."""
    return EPOCH + k * PERIOD, EPOCH + (k + 1) * PERIOD, [4.0 * ratio * PERIOD, float(PERIOD)]


def batch(rows: list[tuple[int, int, list[float]]]) -> Samples:
    return samples(*zip(*rows, strict=True))


def screened(rows: list[tuple[int, int, list[float]]], last_end_ns: int = EPOCH) -> tuple[Samples, Tally]:
    tally = Tally()
    return screen(batch(rows), last_end_ns, tensor_set(), tally), tally


def test_good_samples_pass() -> None:
    kept, tally = screened([good(k) for k in range(5)])
    assert len(kept) == 5
    assert tally == Tally(samples=5)


def test_nothing_screened_is_nothing() -> None:
    tally = Tally()
    assert len(screen(Samples.empty(2), EPOCH, tensor_set(), tally)) == 0
    assert tally == Tally()


def test_repeats_are_left_out_and_counted() -> None:
    kept, tally = screened([good(0), good(1), good(1), good(0), good(2)])
    assert kept.start_ns.tolist() == [good(k)[0] for k in (0, 1, 2)]
    assert (tally.duplicate, tally.samples, tally.lost) == (2, 3, 0)


def test_what_ended_before_the_last_batch_did_is_a_repeat() -> None:
    kept, tally = screened([good(0), good(1), good(2)], last_end_ns=good(1)[1])
    assert kept.start_ns.tolist() == [good(2)[0]]
    assert (tally.duplicate, tally.samples, tally.lost) == (2, 1, 0)


ABSURD_VALUES = {
    "saturated": [float(2**32 - 1), 100.0],
    "saturated below": [100.0, float(2**32 - 1)],
    "nan": [float("nan"), 100.0],
    "nan below": [100.0, float("nan")],
    "infinite": [float("inf"), 100.0],
    "negative": [-1.0, 100.0],
    "three percent above the peak": [4.12 * PERIOD, float(PERIOD)],
    "cycles in no time": [4.0, 0.0],
}


@pytest.mark.parametrize("values", ABSURD_VALUES.values(), ids=ABSURD_VALUES)
def test_nothing_absurd_reaches_totals(values: list[float]) -> None:
    start, end, _ = good(1)
    kept, tally = screened([good(0), (start, end, values), good(2)])
    assert kept.start_ns.tolist() == [good(0)[0], good(2)[0]]
    assert (tally.absurd, tally.samples, tally.lost) == (1, 2, 0)
    totals = fold(kept, 1000, tensor_set()).totals.sum(axis=0)
    assert totals.tolist() == [2 * 2.0 * PERIOD, 2 * PERIOD, 2 * PERIOD]


def test_a_sample_that_ends_before_it_starts_is_absurd() -> None:
    _, end, values = good(2)
    kept, tally = screened([good(0), good(1), (end + 50, end, values), good(3)])
    assert kept.start_ns.tolist() == [good(k)[0] for k in (0, 1, 3)]
    assert (tally.absurd, tally.samples, tally.duplicate) == (1, 3, 0)


def test_a_reading_just_above_the_peak_is_believed() -> None:
    # the counters of one sample are latched some cycles apart
    start, end, _ = good(1)
    kept, tally = screened([good(0), (start, end, [4.0 * 1.01 * PERIOD, float(PERIOD)])])
    assert (len(kept), tally.absurd) == (2, 0)


def test_a_quotient_that_has_no_most_is_believed() -> None:
    tally = Tally()
    assert len(screen(joined(EPOCH, 100, [[1e9, 1.0]]), EPOCH, unbounded_set(), tally)) == 1
    assert tally.absurd == 0


def test_gaps_are_counted_in_samples_and_seconds() -> None:
    # missing: 2 and 3, then 6: three samples of 100 ns
    kept, tally = screened([good(k) for k in (0, 1, 4, 5, 7)])
    assert len(kept) == 5
    assert (tally.lost, tally.lost_ns) == (3, 300)


def test_a_gap_between_batches_is_counted() -> None:
    _, tally = screened([good(4), good(5)], last_end_ns=good(1)[1])
    assert (tally.lost, tally.lost_ns) == (2, 200)


def test_before_the_first_batch_nothing_was_lost() -> None:
    _, tally = screened([good(4), good(5)], last_end_ns=0)
    assert (tally.lost, tally.lost_ns) == (0, 0)


def test_a_gap_of_less_than_half_a_sample_is_none() -> None:
    start, end, values = good(2)
    _, tally = screened([good(0), good(1), (start + 49, end + 49, values)])
    assert (tally.lost, tally.lost_ns) == (0, 0)


def test_an_absurd_sample_is_not_also_lost() -> None:
    start, end, _ = good(1)
    _, tally = screened([good(0), (start, end, [float("nan"), 1.0]), good(3)])
    assert (tally.absurd, tally.lost, tally.lost_ns) == (1, 1, 100)


def test_samples_that_run_backwards_are_not_counted_as_a_gap() -> None:
    _, end, values = good(2)
    _, tally = screened([good(0), good(1), (end + 300, end, values), good(3)])
    assert (tally.absurd, tally.lost, tally.lost_ns) == (1, 0, 0)


def test_tallies_of_two_workers_add_up() -> None:
    before = Tally(decodes=3, late_ns=70, resident_bytes=900, samples=10, lost=1)
    after = Tally(decodes=2, late_ns=50, resident_bytes=800, samples=5, lost=2)
    assert before + after == Tally(decodes=5, late_ns=70, resident_bytes=900, samples=15, lost=3)


def test_a_second_metric_above_its_peak_takes_the_sample_along() -> None:
    two = MetricSet(("a", "b", "t"), (metric("a", "a", "t", 1.0), metric("b", "b", "t", 1.0)))
    tally = Tally()
    kept = screen(joined(EPOCH, 100, [[50, 50, 100], [50, 150, 100]]), EPOCH, two, tally)
    assert (len(kept), tally.absurd) == (1, 1)


def test_an_end_far_in_the_future_does_not_make_all_that_follows_a_duplicate() -> None:
    whole = steady(EPOCH, MS, 10, 0.5)
    ends = whole.end_ns.copy()
    ends[4] += 7_200_000 * MS
    tally = Tally()
    kept = screen(Samples(whole.start_ns, ends, whole.values), EPOCH, tensor_set(), tally)
    assert len(kept) == 9
    assert (tally.absurd, tally.duplicate) == (1, 0)


def test_the_clock_of_the_samples_may_be_set_and_is_then_followed() -> None:
    timeline = Timeline()
    assert timeline.latest_ns(5) == NEVER_NS
    first = steady(EPOCH, MS, 10, 0.5)
    timeline.note(first, monotonic_ns=1000 * MS)
    soon = steady(EPOCH + 10 * MS, MS, 10, 0.5)
    assert not timeline.has_jumped(soon, 1010 * MS)
    assert not timeline.has_jumped(steady(EPOCH + 5 * MS, MS, 3, 0.5), 1010 * MS)  # a repeat is no jump
    assert timeline.has_jumped(steady(EPOCH + 3_600_000 * MS, MS, 10, 0.5), 1010 * MS)
    assert timeline.has_jumped(steady(EPOCH - 3_600_000 * MS, MS, 10, 0.5), 1010 * MS)
    # an hour in which nothing was decoded is no jump either: the monotonic clock has moved as far
    assert not timeline.has_jumped(steady(EPOCH + 3_600_000 * MS, MS, 10, 0.5), 3_601_000 * MS)


def test_a_broken_end_a_minute_ahead_is_absurd_and_what_follows_is_kept() -> None:
    whole = steady(EPOCH, MS, 10, 0.5)
    ends = whole.end_ns.copy()
    ends[4] += 60_000 * MS
    tally, timeline = Tally(), Timeline()
    first = steady(EPOCH - MS, MS, 1, 0.5)
    timeline.note(first, monotonic_ns=0)
    broken = Samples(whole.start_ns, ends, whole.values)
    kept = screen(broken, timeline.last_end_ns, tensor_set(), tally, timeline.latest_ns(10 * MS))
    assert (len(kept), tally.absurd, tally.duplicate, tally.lost) == (9, 1, 0, 0)
    timeline.note(broken, 10 * MS)
    assert timeline.last_end_ns == EPOCH + 10 * MS
    assert timeline.latest_ns(10 * MS) == EPOCH + 10 * MS + SKEW_NS


def test_samples_that_overlap_by_a_little_are_set_apart() -> None:
    batch = steady(EPOCH, MS, 3, 0.5)
    kept = screen(batch, EPOCH + 13_000, tensor_set(), Tally())
    assert int(kept.start_ns[0]) == EPOCH + 13_000
    assert kept.values.sum() == batch.values.sum()


# --- even ones, of which nothing is to be left out ---

ROWS = st.lists(st.tuples(st.integers(0, 6 * MS), st.integers(0, MS)), min_size=1, max_size=20)
SEVERAL = MetricSet(
    ("top", "other", "elapsed", "d.pct"),
    (
        metric("a", "top", "elapsed", 4.0),
        metric("free", "top", "elapsed", 1.0, bounded=False),
        Metric("sum", "sum", ("top", "other"), "elapsed", peak=6.0),
        Metric("rate", "d.pct", ("d.pct",), TIME, peak=100.0, rate=True),
        Metric("by time", "top", ("top",), TIME, peak=5.0),
    ),
)


@given(st.integers(1, 3000), st.integers(10, 10**7), st.integers(-40, 40))
def test_samples_are_even_if_as_many_fit_as_came(count: int, period_ns: int, off_pct: int) -> None:
    off_ns = period_ns * off_pct // 100
    end_ns = EPOCH + count * period_ns + off_ns
    even = Even.between(EPOCH, end_ns, period_ns, np.zeros((count, 1)))
    assert even is not None
    spread = even.spread()
    np.testing.assert_array_equal(spread.start_ns[1:], spread.end_ns[:-1])
    assert (spread.start_ns[0], spread.end_ns[-1], len(spread)) == (EPOCH, end_ns, count)
    lengths = spread.end_ns - spread.start_ns
    assert lengths.max() - lengths.min() <= 1


@pytest.mark.parametrize(("start_ns", "end_ns", "count"), [(0, EPOCH, 5), (EPOCH, 0, 5), (0, 0, 5), (EPOCH, EPOCH, 0)])
def test_samples_without_their_times_are_not_even(start_ns: int, end_ns: int, count: int) -> None:
    assert Even.between(start_ns, end_ns, MS, np.zeros((count, 1))) is None


@pytest.mark.parametrize("count", [4, 6, 1])
def test_samples_among_which_some_are_missing_or_too_many_are_not_even(count: int) -> None:
    assert Even.between(EPOCH, EPOCH + 5 * MS, MS, np.zeros((count, 1))) is None


@given(ROWS, st.floats(0, 120), st.sampled_from([None, float("nan"), float("inf"), -1.0, float(2**32 - 1)]))
def test_flawless_is_what_screening_leaves_alone(
    rows: list[tuple[float, float]], percent: float, odd: float | None
) -> None:
    values = np.array([[top, top / 3, elapsed, percent] for top, elapsed in rows])
    if odd is not None:
        values[-1, 1] = odd
    batch, tally = Even(EPOCH, EPOCH + MS * len(rows), values), Tally()
    timeline = Timeline(EPOCH, EPOCH)
    flawless = is_flawless(batch, timeline, SEVERAL, 0)
    kept = screen(batch.spread(), EPOCH, SEVERAL, tally, timeline.latest_ns(0))
    assert flawless == (len(kept) == len(rows))


@pytest.mark.parametrize("start_ns", [EPOCH - 1, EPOCH + 1, EPOCH + MS])
def test_what_does_not_begin_where_the_last_ended_is_not_flawless(start_ns: int) -> None:
    values = np.array([[2.0 * MS, float(MS)]])
    assert is_flawless(Even(EPOCH, EPOCH + MS, values), Timeline(EPOCH, EPOCH), tensor_set(), 0)
    assert not is_flawless(Even(start_ns, start_ns + MS, values), Timeline(EPOCH, EPOCH), tensor_set(), 0)


def test_what_ends_later_than_it_can_is_not_flawless() -> None:
    values = np.array([[2.0 * MS, float(MS)]] * 3)
    timeline = Timeline(EPOCH, EPOCH)
    assert not is_flawless(Even(EPOCH, EPOCH + 2 * SKEW_NS, values), timeline, tensor_set(), 0)
