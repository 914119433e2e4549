"""Samples that CUPTI hands over without their times are given them again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.samples import Samples, Tally
from cufall_py.sources.cupti.times import lay_out
from tests.helpers import EPOCH, joined, samples

ASKED = 1_000_000
"""The period asked for; the hardware's own is a little less."""
REAL = 999_936


def true(count: int, period_ns: int = REAL) -> Samples:
    """As the hardware took them: value k of sample k."""
    return joined(EPOCH, period_ns, [[float(k)] for k in range(count)])


def without_times(batch: Samples, starts: slice, ends: slice) -> Samples:
    start, end = batch.start_ns.copy(), batch.end_ns.copy()
    start[starts], end[ends] = 0, 0
    return Samples(start, end, batch.values)


def laid_out(batch: Samples, last_end_ns: int = 0) -> tuple[Samples, Tally]:
    tally = Tally()
    return lay_out(batch, last_end_ns, ASKED, 3 * ASKED // 2, tally), tally


def assert_contiguous(batch: Samples) -> None:
    np.testing.assert_array_equal(batch.start_ns[1:], batch.end_ns[:-1])
    assert (batch.end_ns > batch.start_ns).all()


def test_known_times_are_left_alone() -> None:
    batch = true(50)
    out, tally = laid_out(batch)
    np.testing.assert_array_equal(out.start_ns, batch.start_ns)
    np.testing.assert_array_equal(out.end_ns, batch.end_ns)
    assert tally.rebuilt == 0


def test_nothing_is_laid_out_as_nothing() -> None:
    out, _ = laid_out(Samples.empty(1))
    assert len(out) == 0


def test_the_first_sample_of_a_session_is_dropped() -> None:
    # its start is 0, so how long it counted is not known
    out, tally = laid_out(without_times(true(5), slice(0, 1), slice(0, 0)))
    np.testing.assert_array_equal(out.values[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(out.start_ns, true(5).start_ns[1:])
    assert tally.rebuilt == 0


def test_a_first_sample_without_any_time_is_dropped() -> None:
    out, tally = laid_out(without_times(true(5), slice(0, 2), slice(0, 1)))
    # of the second only the end is known
    np.testing.assert_array_equal(out.values[:, 0], [2, 3, 4])
    assert tally.rebuilt == 0


def backlog() -> Samples:
    """As an H200 gave it, in decodes of 40: one whole, eight without times, one of whose last only the end is
    known, then whole ones again."""
    return without_times(true(500), slice(40, 400), slice(40, 399))


def test_a_backlog_between_known_times_is_rebuilt() -> None:
    out, tally = laid_out(backlog())
    assert len(out) == 500
    assert np.abs(out.start_ns - true(500).start_ns).max() <= 1000
    assert np.abs(out.end_ns - true(500).end_ns).max() <= 1000
    np.testing.assert_array_equal(out.values[:, 0], np.arange(500))
    assert_contiguous(out)
    assert tally.rebuilt == 359


def test_known_times_around_a_backlog_stay_as_they_are() -> None:
    out, _ = laid_out(backlog())
    np.testing.assert_array_equal(out.end_ns[:40], true(500).end_ns[:40])
    np.testing.assert_array_equal(out.end_ns[399:], true(500).end_ns[399:])


def test_a_backlog_that_begins_a_batch_follows_the_batch_before() -> None:
    whole = backlog()
    out, tally = laid_out(whole[40:], last_end_ns=int(whole.end_ns[39]))
    assert np.abs(out.end_ns - true(500).end_ns[40:]).max() <= 1000
    assert out.start_ns[0] == true(500).end_ns[39]
    assert_contiguous(out)
    assert tally.rebuilt == 359


def test_a_backlog_without_a_known_end_goes_on_at_the_period() -> None:
    out, tally = laid_out(backlog()[:240])
    assert len(out) == 240
    assert_contiguous(out)
    # 64 ns a sample is all that is not known
    assert np.abs(out.end_ns - true(240).end_ns).max() <= 200 * (ASKED - REAL)
    assert tally.rebuilt == 200


@pytest.mark.parametrize("lost", [40, 100])
def test_losses_inside_a_backlog_leave_a_gap(lost: int) -> None:
    whole = backlog()
    kept = np.ones(500, bool)
    kept[200 : 200 + lost] = False
    out, _ = laid_out(whole[kept])
    assert len(out) == 500 - lost
    assert (out.start_ns[1:] >= out.end_ns[:-1]).all()
    gaps = out.start_ns[1:] - out.end_ns[:-1]
    assert gaps.max() == pytest.approx(lost * REAL, rel=0.03)
    assert np.count_nonzero(gaps) == 1
    # none is longer than a sample can be, so none claims time in which nothing was counted
    assert (out.end_ns - out.start_ns).max() <= 1.02 * ASKED


def test_a_backlog_with_nothing_known_before_it_is_dropped() -> None:
    out, tally = laid_out(without_times(true(20), slice(0, 11), slice(0, 10)))
    # ends are known from the eleventh on, starts from the twelfth on
    np.testing.assert_array_equal(out.values[:, 0], np.arange(11, 20))
    assert tally.rebuilt == 0


def test_a_backlog_and_nothing_else_is_dropped() -> None:
    out, tally = laid_out(samples([0, 0], [0, 0], [[1.0], [2.0]]))
    assert len(out) == 0
    assert tally.rebuilt == 0


def test_two_backlogs_in_one_batch_are_both_rebuilt() -> None:
    whole = without_times(backlog(), slice(420, 460), slice(420, 459))
    out, tally = laid_out(whole)
    assert np.abs(out.end_ns - true(500).end_ns).max() <= 1000
    assert_contiguous(out)
    assert tally.rebuilt == 359 + 39


@given(st.integers(1, 60), st.integers(2, 80), st.integers(1, 40), st.integers(990_000, 1_010_000))
def test_any_backlog_keeps_order_length_and_contiguity(before: int, zeros: int, after: int, period_ns: int) -> None:
    whole = true(before + zeros + after, period_ns)
    lost_times = without_times(whole, slice(before, before + zeros), slice(before, before + zeros - 1))
    out, tally = laid_out(lost_times)
    np.testing.assert_array_equal(out.values, whole.values)
    assert_contiguous(out)
    assert np.abs(out.end_ns - whole.end_ns).max() <= 1000
    assert tally.rebuilt == zeros - 1
