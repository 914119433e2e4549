"""What a view remembers: re-binned by covered time, and what was not measured stays so."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.frames import Frame
from cufall_py.views.history import History, Window
from tests.helpers import EPOCH, MS, SECOND

NAN = math.nan
FRAME = 100 * MS


def frame(k: int, mean: float, covered: float = 1.0, maximum: float = NAN, frame_ns: int = FRAME) -> Frame:
    """Frame number k of one GPU and metric; `covered` is the share of it."""
    values, top = np.array([[mean]]), np.array([[mean if math.isnan(maximum) else maximum]])
    covered_ns = np.array([covered * frame_ns])
    return Frame(EPOCH + k * frame_ns, frame_ns, values, values, top, covered_ns, np.array([4]), np.array([4.0]))


def kept(frames: Sequence[Frame], slots: int = 1000) -> History:
    history = History(frames[0].period_ns, 1, 1, slots)
    for one in frames:
        history.add(one)
    return history


def cells(window: Window) -> list[float]:
    return [round(float(v), 6) for v in window.cells[0, 0]]


def test_a_column_for_each_frame_newest_at_the_right() -> None:
    window = kept([frame(0, 0.1), frame(1, 0.2), frame(2, 0.3)]).window(0.5 * SECOND, 5)
    assert str(cells(window)) == "[nan, nan, 0.1, 0.2, 0.3]"
    assert (window.column_ns, window.shown_ns) == (FRAME, 5 * FRAME)


def test_a_column_of_several_is_their_mean_by_covered_time() -> None:
    window = kept([frame(0, 0.1), frame(1, 0.4, 0.5), frame(2, 0.2), frame(3, NAN, 0)]).window(0.4 * SECOND, 2)
    assert cells(window) == [pytest.approx((0.1 * 1 + 0.4 * 0.5) / 1.5), 0.2]


def test_a_column_with_nothing_measured_is_no_zero() -> None:
    window = kept([frame(0, 0.0), frame(1, 0.0), frame(2, NAN, 0), frame(3, NAN, 0)]).window(0.4 * SECOND, 2)
    assert str(cells(window)) == "[0.0, nan]"
    assert math.isnan(window.now[0, 0])


def test_a_frame_may_be_several_columns() -> None:
    window = kept([frame(0, 0.1), frame(1, 0.2)]).window(0.2 * SECOND, 7)
    assert str(cells(window)) == "[nan, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2]"
    assert window.column_ns == FRAME / 3


def test_columns_keep_their_edges_as_time_goes_on() -> None:
    history = kept([frame(k, k / 100) for k in range(40)])
    before = cells(history.window(2 * SECOND, 5))
    for k in (40, 41, 42, 43):
        history.add(frame(k, k / 100))
        after = cells(history.window(2 * SECOND, 5))
        assert after[:-1] == before[1:] or after[:-1] == before[:-1]


def test_statistics_are_of_the_time_shown() -> None:
    # 100 frames of 1 % to 100 %: the mean is 50.5 %, 95 of them are at most 95 %; a sample reached 130 %
    history = kept([frame(k - 1, k / 100, maximum=1.3 if k == 50 else NAN) for k in range(-99, 101)])
    window = history.window(10 * SECOND, 10)
    figures = [float(v[0, 0]) for v in (window.now, window.mean, window.high, window.maximum)]
    assert figures == pytest.approx([1.0, 0.505, 0.95, 1.3], rel=1e-6)
    assert window.coverage[0] == 1


def test_coverage_counts_what_was_wanted() -> None:
    # three quarters of two frames and none of two; what was before the first frame was not wanted
    history = kept([frame(0, 0.5, 0.75), frame(1, 0.5, 0.75), frame(2, NAN, 0), frame(3, NAN, 0)])
    assert history.window(10 * SECOND, 50).coverage[0] == pytest.approx(0.375)


def test_before_the_first_frame_nothing_is_known() -> None:
    window = History(FRAME, 2, 3).window(10 * SECOND, 20)
    assert window.cells.shape == (2, 3, 20)
    for values in (window.cells, window.now, window.mean, window.high, window.maximum, window.coverage):
        assert np.isnan(values).all()


def test_short_frames_are_put_together() -> None:
    history = kept([frame(k, k / 10, frame_ns=MS) for k in range(10)])
    assert history.slot_ns == 10 * MS
    assert cells(history.window(0.02 * SECOND, 2))[1] == pytest.approx(0.45)


def test_a_window_of_the_past() -> None:
    history = kept([frame(k, k / 100) for k in range(20)])
    assert cells(history.window(0.3 * SECOND, 3, end=history.newest - 10)) == [0.07, 0.08, 0.09]


def test_a_clock_set_back_begins_anew_and_one_set_forward_leaves_a_gap() -> None:
    history = kept([frame(100, 0.1), frame(101, 0.2), frame(104, 0.5)])
    assert str(cells(history.window(0.5 * SECOND, 5))) == "[0.1, 0.2, nan, nan, 0.5]"
    history.add(frame(3, 0.7))
    assert str(cells(history.window(0.5 * SECOND, 5))) == "[nan, nan, nan, nan, 0.7]"
    history.add(frame(5000, 0.8))
    history.add(frame(5001, 0.9))
    assert str(cells(history.window(0.5 * SECOND, 5))) == "[nan, nan, nan, 0.8, 0.9]"


@given(st.lists(st.integers(1, 7), min_size=1, max_size=120), st.integers(1, 30))
def test_what_is_kept_is_the_newest_however_long_it_runs(steps: list[int], columns: int) -> None:
    """Frames with gaps between them, in a history of ten: each column is the frame of its time, or nothing."""
    numbers = np.cumsum(steps).tolist()
    history = kept([frame(k, k / 1000) for k in numbers], slots=10)
    shown = cells(history.window(columns * FRAME, columns))
    wanted = range(numbers[-1] - columns + 1, numbers[-1] + 1)
    expected = [k / 1000 if k in numbers and k > numbers[-1] - 10 else NAN for k in wanted]
    np.testing.assert_allclose(shown, expected, atol=1e-6)


@given(st.floats(1, 100_000), st.integers(1, 400))
def test_no_window_is_shorter_than_asked_for(span_s: float, columns: int) -> None:
    window = kept([frame(0, 0.5)]).window(span_s * SECOND, columns)
    assert window.cells.shape[2] == columns
    assert window.shown_ns >= span_s * SECOND * (1 - 1e-9)
