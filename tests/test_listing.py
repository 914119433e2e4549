"""The list as a person sees it: whole names, aligned columns, words that wrap on a terminal alone."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from cufall_py.catalogue import Row, matching, rows, sets
from cufall_py.tables import shipped
from cufall_py.views.listing import LEGEND, listing

H100 = shipped("GH100")


def lines(pattern: str, columns: int = 0, chip: str = "GH100") -> list[str]:
    tables = shipped(chip)
    return [*listing(matching(rows(tables), pattern), sets(tables, pattern), columns)]


PIPED = """\
SHORT NAME  PASSES  BESIDE  VERIFIED  CORE  PEAK  UNIT  CLOCK  WHAT IT IS
l2          1       1       yes       5.2%  -     byte  -      bytes through the L2 cache: lts__t_bytes.sum over lts__cycles_elapsed.avg

CORE  DECODE  BYTES         SET
5.2%  2.5 ms  13232  cheap  tensor + l2"""  # noqa: E501


def test_piped_each_metric_is_one_line() -> None:
    assert "\n".join(lines("l2")[:5]) == PIPED


NARROW = """\
SHORT NAME  PASSES  BESIDE  VERIFIED  CORE  PEAK  UNIT       CLOCK
sm          1       1       yes       -     1     gpc_cycle  gpc_cycle
    cycles in which an SM had a warp resident: sm__cycles_active.avg over
    sm__cycles_elapsed.avg"""


def test_on_a_narrow_terminal_words_stand_below() -> None:
    (resident,) = [row for row in rows(H100) if row.name == "sm"]
    assert "\n".join(listing([resident], [], 80)) == NARROW


def test_on_a_wide_terminal_words_wrap_in_their_column() -> None:
    found = lines("tensor.hmma", 140)
    start = found[0].index("WHAT IT IS")
    assert found[1].startswith("tensor.hmma") and found[2][:start].isspace()
    assert max(map(len, found)) <= 140


@pytest.mark.parametrize("columns", [0, 40, 80, 120, 200])
@pytest.mark.parametrize("chip", ["GH100", "GB202", "GA100", "TU102"])
def test_every_name_is_there_whole_and_no_line_is_wider_than_a_name(chip: str, columns: int) -> None:
    tables = shipped(chip)
    found = rows(tables)
    text = [*listing(found, [], columns)]
    assert {row.name for row in found} <= {word for line in text for word in line.split()}
    assert not any("\t" in line or line != line.rstrip() for line in text)
    if columns:
        longest = max(len(counter) for row in found for counter in (row.name, *row.counters, row.elapsed))
        assert max(map(len, text)) <= max(columns, longest + 4, 80)


def test_piped_there_is_a_line_for_each_metric_and_a_heading_for_each_kind() -> None:
    found = rows(H100)
    text = [*listing(found, sets(H100, ""))]
    headings = 1 + 1 + 3
    assert len(text) == len(found) + len(sets(H100, "")) + headings + (headings - 1)


@given(st.text(), st.integers(0, 200))
def test_words_of_any_kind_stay_in_their_line(said: str, columns: int) -> None:
    text = [*listing([Row("a__b.avg", "counter", said)], [], columns)]
    assert all(line.isprintable() or not said.isprintable() for line in text)
    assert not any("\n" in line or "\r" in line for line in text)
    if not columns:
        assert len(text) == 2


def test_what_is_absent_says_why() -> None:
    (found,) = [line for line in lines("nvlink.rx", chip="GB202") if line.startswith("nvlink.rx")]
    assert found.split()[1:7] == ["-"] * 6
    assert "absent: this chip has no NVLink" in found


def test_nothing_is_nothing() -> None:
    assert [*listing([], [])] == []


def test_a_cost_is_told_with_how_it_was_read() -> None:
    """As benchmarks/counter_cost.py reads it: 1 kHz, decodes of 50 ms."""
    for told in ("on an NVIDIA H200, 2026-11-30", "samples of 1 ms", "decodes of 50 ms"):
        assert told in LEGEND
