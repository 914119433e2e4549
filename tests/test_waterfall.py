"""The waterfall, dot by dot."""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.frames import Frame
from cufall_py.metrics import Metric
from cufall_py.views.waterfall import band, clock, label, row
from tests.helpers import metric

NAN = float("nan")
START_NS = calendar.timegm((2026, 11, 30, 23, 26, 27)) * 1_000_000_000 + 507_739_000
PLACES = ((7, 8), (3, 6), (2, 5), (1, 4))
"""Unicode's numbers of a Braille cell's dots, bottom row first, left to right."""


def frame_of(mean: Sequence[Sequence[float]]) -> Frame:
    values = np.array(mean)
    gpus = len(values)
    some = np.ones(gpus)
    return Frame(START_NS, 50_000_000, values, values, values, 5e7 * some, np.ones(gpus, np.int64), some)


def dots_of(text: str) -> list[bool]:
    """Whether each dot of a band is lit, counted bottom row first and left to right over the whole band."""
    patterns = [ord(cell) - 0x2800 for cell in text]
    return [bool(pattern >> (dot - 1) & 1) for line in PLACES for pattern in patterns for dot in line]


@pytest.fixture(autouse=True)
def in_utc(timezone: Callable[[str], None]) -> None:
    timezone("UTC")


@pytest.mark.parametrize(
    ("mean", "text"),
    [
        (NAN, "(   --)"),
        (0.0, "(<.01%)"),
        (0.000_099_9, "(<.01%)"),
        (0.000_1, "(0.01%)"),
        (0.0095, "(0.95%)"),
        (0.05, "(5.00%)"),
        (0.0999, "(9.99%)"),
        (0.099_94, "(9.99%)"),
        (0.099_96, "(  10%)"),
        (0.1, "(  10%)"),
        (0.34, "(  34%)"),
        (0.996, "( 100%)"),
        (1.0, "( 100%)"),
        (1.2, "( 120%)"),
        (-0.001, "(<.01%)"),
    ],
)
def test_percent_labels(mean: float, text: str) -> None:
    assert label(mean, plain=False) == text


@pytest.mark.parametrize(
    ("mean", "text"),
    [
        (NAN, "(   --)"),
        (0.0, "(0.000)"),
        (3.67, "(3.670)"),
        (36.7, "(36.70)"),
        (367.1234, "(367.1)"),
        (3671.234, "( 3671)"),
        (36_712.0, "(36712)"),
        (367_000.0, "(4e+05)"),
        (math.inf, "(  inf)"),
    ],
)
def test_plain_labels(mean: float, text: str) -> None:
    assert label(mean, plain=True) == text


@given(st.one_of(st.just(NAN), st.floats(0, 50)), st.booleans())
def test_labels_are_all_of_one_width(mean: float, plain: bool) -> None:
    assert len(label(mean, plain)) == 7


def test_what_lies_on_the_edge_of_ten_percent_is_never_written_as_10_00() -> None:
    for step in range(-50, 51):
        assert label(0.099_95 + step * 1e-7, plain=False) in ("(9.99%)", "(  10%)")


@pytest.mark.parametrize(
    ("lit", "text"),
    [
        # two cells: 16 dots in four rows of four; dot i is lit where floor((i+1) n/16) > floor(i n/16)
        (0, "⠀⠀"),
        (1, "⠀⠈"),  # 15: the last of the top row
        (2, "⠀⠨"),  # 7, 15: the last of the second and of the top row
        (4, "⠀⢸"),  # 3, 7, 11, 15: the last of each row
        (5, "⠑⢌"),  # 3, 6, 9, 12, 15: a diagonal from bottom right to top left, and 15
        (8, "⢸⢸"),  # every odd one
        (16, "⣿⣿"),
    ],
)
def test_bands_worked_out_by_hand(lit: int, text: str) -> None:
    assert band(lit / 16, 2, colour=False) == text


def test_one_cell_fills_evenly() -> None:
    # of eight dots: none; 7; 3 and 7; 2, 5 and 7; every odd one
    assert [band(n / 8, 1, colour=False) for n in range(5)] == ["⠀", "⠈", "⠨", "⠜", "⢸"]


@given(st.floats(0, 1), st.integers(1, 64))
def test_as_many_dots_are_lit_as_the_value_says(mean: float, width: int) -> None:
    dots = dots_of(band(mean, width, colour=False))
    assert len(dots) == 8 * width
    assert sum(dots) == round(mean * width * 8)


@given(st.integers(1, 40), st.data())
def test_lit_dots_are_evenly_spread(width: int, data: st.DataObject) -> None:
    total = 8 * width
    lit = data.draw(st.integers(0, total))
    expected = [(i + 1) * lit // total > i * lit // total for i in range(total)]
    assert dots_of(band(lit / total, width, colour=False)) == expected


@pytest.mark.parametrize(("mean", "same_as"), [(1.7, 1.0), (math.inf, 1.0), (-0.2, 0.0)])
def test_a_value_off_the_scale_fills_or_empties_the_band(mean: float, same_as: float) -> None:
    assert band(mean, 4, colour=False) == band(same_as, 4, colour=False)


def test_what_was_not_measured_is_no_empty_band() -> None:
    assert band(NAN, 4, colour=False) == "····"
    assert band(0.0, 4, colour=False) == "⠀⠀⠀⠀"


def test_each_cell_is_coloured_by_the_dots_lit_in_it() -> None:
    # 0, 4 and 8 dots take the ends and the middle of the ramp; of five dots two cells hold two and three
    assert band(0.0, 2, True) == "\x1b[38;5;236m⠀\x1b[38;5;236m⠀\x1b[0m"
    assert band(0.5, 2, True) == "\x1b[38;5;26m⢸\x1b[38;5;26m⢸\x1b[0m"
    assert band(1.0, 2, True) == "\x1b[38;5;196m⣿\x1b[38;5;196m⣿\x1b[0m"
    assert band(5 / 16, 2, True) == "\x1b[38;5;18m⠑\x1b[38;5;19m⢌\x1b[0m"
    assert band(NAN, 1, True) == "\x1b[38;5;236m·\x1b[0m"


def test_without_braille_a_cell_is_a_character_for_the_dots_lit_in_it() -> None:
    # of 5 dots two cells hold two and three; of 12 four and eight, for all but the first of each row are lit
    assert [band(n / 16, 2, False, ascii_only=True) for n in (0, 5, 8, 12, 16)] == ["  ", ":-", "==", "=@", "@@"]
    assert band(NAN, 2, False, ascii_only=True) == "??"
    text = row(frame_of([[0.5]]), ["g0"], [metric()], 2, labels=True, colour=False, ascii_only=True)
    assert text == "23:26:27.507739 g0(  50%) =="


@given(st.floats(0, 1), st.integers(1, 32))
def test_colour_changes_no_character(mean: float, width: int) -> None:
    assert re.sub("\x1b\\[[0-9;]*m", "", band(mean, width, True)) == band(mean, width, False)


def test_the_clock_is_local_and_to_the_microsecond(timezone: Callable[[str], None]) -> None:
    assert clock(START_NS) == "23:26:27.507739"
    assert clock(START_NS + 999) == "23:26:27.507739"
    timezone("Europe/Berlin")
    assert clock(START_NS) == "00:26:27.507739"


def test_a_row_as_the_original_writes_it() -> None:
    # 32 dots in four rows of eight: 0.05 lights round(1.6) = 2, which are 15 and 31;
    # 0.31 lights round(9.92) = 10: 3, 6 | 9, 12, 15 | 19, 22 | 25, 28, 31
    text = row(frame_of([[0.05], [0.31]]), ["g0", "g1"], [metric()], 4, labels=True, colour=False)
    assert text == "23:26:27.507739 g0(5.00%) ⠀⠀⠀⠨ g1(  31%) ⠨⢐⠅⡪"


def test_a_row_names_gpus_by_their_ordinals() -> None:
    text = row(
        frame_of([[0.5], [1.0], [NAN], [0.0]]), ["g0", "g1", "g5", "g11"], [metric()], 2, labels=True, colour=False
    )
    assert text == "23:26:27.507739 g0(  50%) ⢸⢸ g1( 100%) ⣿⣿ g5(   --) ·· g11(<.01%) ⠀⠀"


def test_a_row_without_labels() -> None:
    assert row(frame_of([[0.5], [1.0]]), ["g0", "g1"], [metric()], 2, False, False) == "23:26:27.507739 ⢸⢸ ⣿⣿"


def test_several_metrics_are_named_in_the_labels() -> None:
    both = [metric("sm"), metric("dram")]
    text = row(frame_of([[0.92, 0.25], [1.0, NAN]]), ["g0", "g3"], both, 1, labels=True, colour=False)
    # 0.92 of 8 dots is 7: all but the first; 0.25 is 2: dots 3 and 7
    assert text == "23:26:27.507739 g0.sm(  92%) ⢿ g0.dram(  25%) ⠨ g3.sm( 100%) ⣿ g3.dram(   --) ·"


def test_a_plain_metric_has_no_percent_sign() -> None:
    plain: Metric = metric(plain=True, bounded=False)
    assert row(frame_of([[3.67]]), ["g0"], [plain], 1, labels=True, colour=False) == "23:26:27.507739 g0(3.670) ⣿"


@given(st.lists(st.floats(0, 1.5) | st.just(NAN), min_size=2, max_size=2))
def test_rows_are_all_of_one_width(means: list[float]) -> None:
    text = row(frame_of([[mean] for mean in means]), ["g0", "g1"], [metric()], 8, labels=True, colour=False)
    assert len(text) == len("23:26:27.507739 g0(5.00%) ________ g1(  31%) ________")


@pytest.mark.parametrize(
    ("mean", "text"), [(NAN, "????"), (0.0, "    "), (0.125, "   ="), (0.5, "===="), (0.875, "=@@@"), (1.0, "@@@@")]
)
def test_without_braille_a_cell_shows_how_many_dots_are_lit(mean: float, text: str) -> None:
    assert band(mean, 4, colour=False, ascii_only=True) == text
