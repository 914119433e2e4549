"""The timeline as text: screens kept in tests/data/screens (see tests/screens.py), sizes, scales, keys."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rich.cells import cell_len

from cufall_py.readings import Reading
from cufall_py.views.history import History
from cufall_py.views.keys import DOES, State, begin, pressed
from cufall_py.views.styled import fitted, plain, to_ansi
from cufall_py.views.timeline import ago, graph, screen
from tests.helpers import MS, SECOND
from tests.screens import CASES, LONG, Case, drawn, history, path_of, scene, state


@pytest.fixture(autouse=True)
def in_utc(timezone: Callable[[str], None]) -> None:
    timezone("UTC")


@pytest.mark.parametrize("name", CASES)
def test_screens_are_as_kept(name: str) -> None:
    assert plain(drawn(CASES[name])) + "\n" == path_of(name).read_text(encoding="utf-8")


KEPT = {(gpus, metrics): history(gpus, metrics, 20) for gpus in (1, 3, 8, 16) for metrics in (1, 4)}


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(KEPT)),
    st.integers(1, 400),
    st.integers(1, 100),
    st.lists(st.sampled_from([*DOES, "2", "escape"]), max_size=6),
    st.booleans(),
    st.sampled_from(["", "GPU 1: 世界 \x1b[2J\n"]),
)
def test_every_screen_fits(
    size: tuple[int, int], columns: int, lines: int, keys: list[str], ascii_only: bool, message: str
) -> None:
    kept, case = KEPT[size], Case(*size, columns, lines, message=message)
    looked_at = begin(size[1], kept.slot_ns, kept.span_ns)
    for key in keys:
        looked_at = pressed(looked_at, key)
    texts = plain(screen(kept, scene(case), looked_at, columns, lines, ascii_only)).split("\n")
    assert len(texts) == lines
    assert {cell_len(text) for text in texts} == {columns}
    assert all(text.isprintable() and (text.isascii() or not ascii_only) for text in texts)


@given(st.sampled_from([(8, 1), (16, 4)]), st.integers(40, 400), st.integers(5, 100))
def test_every_row_is_there_or_counted(size: tuple[int, int], columns: int, lines: int) -> None:
    case = Case(*size, columns, lines, readings=False)
    text = plain(screen(KEPT[size], scene(case), state(KEPT[size], case), columns, lines))
    rows = len(re.findall(r"^g\d", text, re.MULTILINE))
    more = re.search(r"^\+(\d+) more", text, re.MULTILINE)
    assert rows + (int(more[1]) if more else 0) == size[0] * size[1]
    assert rows > 0


@given(st.integers(40, 200), st.integers(24, 60))
def test_what_is_said_can_be_read_whole(columns: int, lines: int) -> None:
    case = Case(1, 1, columns, lines, message=LONG)
    text = plain(screen(KEPT[1, 1], scene(case), state(KEPT[1, 1], case), columns, lines))
    assert LONG in " ".join(text.split())


def test_what_is_said_leaves_room_for_rows() -> None:
    case = Case(1, 1, 40, 12, message=LONG * 5)
    lines = plain(screen(KEPT[1, 1], scene(case), state(KEPT[1, 1], case), 40, 12)).split("\n")
    assert sum(line.startswith("g0") for line in lines) == 1
    assert lines[-4].rstrip().endswith(" …")


@pytest.mark.parametrize("name", ["narrow", "few-lines", "message", "message-narrow", "without-nvml"])
def test_cuts_lose_no_meaning(name: str) -> None:
    """Of what is written by cufall itself nothing ends in the middle; names and what NVML tells may."""
    first, *rest = [line.rstrip() for line in plain(drawn(CASES[name])).split("\n")]
    assert " cost 1.2 %" in first
    assert not [line for line in rest[-3:] if line.endswith("…")]


def test_all_rows_can_be_reached() -> None:
    case = Case(16, 1, 80, 8, readings=False)
    kept, seen = KEPT[16, 1], set()
    for steps in range(20):
        moved = replace(state(kept, case), top=steps)
        seen |= set(re.findall(r"^g(\d+) ", plain(screen(kept, scene(case), moved, 80, 8)), re.MULTILINE))
    assert seen == {str(gpu) for gpu in range(16)}


@pytest.mark.parametrize("linear", [False, True])
def test_not_measured_has_a_mark_of_its_own(linear: bool) -> None:
    assert "".join(text for text, _ in graph(np.array([0.0, math.nan, 0.00009]), linear)) == " · "
    everything = np.concatenate([np.geomspace(1e-9, 1, 500), [0.0, 1.5, math.inf]])
    assert "·" not in "".join(text for text, _ in graph(everything, linear))


def test_the_logarithmic_scale_tells_a_tenth_of_a_percent_from_one() -> None:
    ratios = np.array([0.0001, 0.0004, 0.001, 0.004, 0.01, 0.04, 0.1, 0.4])
    assert "".join(text for text, _ in graph(ratios, linear=False)) == "▁▂▃▄▅▆▇█"
    assert "".join(text for text, _ in graph(ratios, linear=True)) == "▁▁▁▁▁▁▁▄"
    assert len({style for _, style in graph(ratios, linear=False)}) == 8


def test_the_linear_scale_has_a_height_for_each_eighth() -> None:
    assert "".join(text for text, _ in graph(np.arange(8) / 8 + 0.01, linear=True)) == "▁▂▃▄▅▆▇█"


def test_colour_changes_no_character() -> None:
    for line in drawn(CASES["wide"]):
        assert re.sub("\x1b\\[[0-9;]*m", "", to_ansi(line, True)) == to_ansi(line, False)
    assert to_ansi([("▁", "ramp0"), ("·", "dim")], True) == "\x1b[0;38;5;25m▁\x1b[0;38;5;244m·\x1b[0m"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc…"),
        ("世界世", 5, "世界…"),
        ("世界", 3, "世…"),
        ("a\x1b[2Jb\n", 8, "a?[2Jb? "),
        ("\udcff", 2, "? "),
    ],
)
def test_lines_are_cut_by_cells_and_hold_no_control_codes(text: str, width: int, shown: str) -> None:
    assert plain([fitted([(text, "")], width)]) == shown


def test_a_name_outside_ascii_is_marked_where_only_ascii_can_be_shown() -> None:
    assert plain([fitted([("世界 ▁·…", "")], 10, ascii_only=True)]) == "?? .?~    "


@pytest.mark.parametrize(("seconds", "text"), [(2, "2 s"), (63.3, "63 s"), (600, "10 min"), (9000, "2.5 h")])
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def details(reading: Reading) -> str:
    case = Case(1, 1, 100, 12)
    kept = KEPT[1, 1]
    text = plain(screen(kept, replace(scene(case), readings=(reading,)), state(kept, case), 100, 12))
    return text.split("\n")[3].strip()


def test_what_nvml_does_not_say_is_left_out() -> None:
    assert details(Reading()) == ""
    assert details(Reading(sm_mhz=0.0, power_w=0.0)) == "0 MHz  0 W"
    assert details(Reading(reasons=0)) == "not throttled"
    assert details(Reading(processes=())) == "no process"
    assert details(Reading(reasons=0x8 | 0x4000)) == "hardware slowdown + reason 0x4000"


# Keys


def after(keys: str, metrics: int = 3) -> State:
    now = begin(metrics, 100 * MS, 3600 * 1000 * MS)
    for key in keys:
        now = pressed(now, key)
    return now


def test_keys() -> None:
    assert after("").span_s == 60
    assert after("+").span_s == after("=").span_s == 120
    assert after("--").span_s == 10
    assert after("-" * 50).span_s == 2
    assert after("+" * 50).span_s == 3600
    assert (after(" ").paused, after("  ").paused) == (True, False)
    assert [after("s" * n).sort for n in range(5)] == ["gpu", "now", "mean", "max", "gpu"]
    assert [after("i" * n).details for n in range(4)] == ["auto", "on", "off", "auto"]
    assert (after("l").linear, after("h").help, after("h?").help, after("q").ended) == (True, True, False, True)


@pytest.mark.parametrize(
    ("length_s", "first_s", "longer_s", "shorter_s"),
    [(3.4, 3.4, 5, 2), (60, 60, 120, 30), (135.3, 135.3, 300, 120), (0.2, 1.0, 2, 1.0), (1e6, 3600, 3600, 1800)],
)
def test_what_has_an_end_is_shown_whole(length_s: float, first_s: float, longer_s: float, shorter_s: float) -> None:
    """An hour is remembered at most, and ten frames are shown at least."""
    first = begin(1, 100 * MS, 3600 * SECOND, length_s)
    assert [state.span_s for state in (first, pressed(first, "+"), pressed(first, "-"))] == [
        first_s,
        longer_s,
        shorter_s,
    ]


def test_metrics_are_shown_and_hidden_but_never_all() -> None:
    assert [after("m" * n).shown for n in range(5)] == [[0, 1, 2], [0], [1], [2], [0, 1, 2]]
    assert after("2").shown == [0, 2]
    assert after("123").shown == [2]
    assert after("22").shown == [0, 1, 2]
    assert after("9").shown == [0, 1, 2]
    assert after("m1", metrics=1).shown == [0]


@given(st.lists(st.sampled_from([*DOES, *"0123456789", "x", "²", "", "世"]), max_size=30), st.integers(1, 12))
def test_no_keys_lead_astray(keys: list[str], metrics: int) -> None:
    now = begin(metrics, 100 * MS, 3600 * 1000 * MS)
    for key in keys:
        now = pressed(now, key)
    assert now.shown
    assert now.span_s in now.spans_s


@pytest.mark.parametrize("frame_ms", [1, 10, 100, 1000, 60_000])
def test_the_spans_that_are_offered_can_be_shown(frame_ms: int) -> None:
    kept = History(frame_ms * MS, 1, 1)
    looked_at = begin(1, kept.slot_ns, kept.span_ns)
    assert all(10 * kept.slot_ns <= span_s * 1e9 <= kept.span_ns for span_s in looked_at.spans_s)
    assert looked_at.span_s >= 60
