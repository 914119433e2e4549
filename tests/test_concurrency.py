"""What GPUs and server did against running requests, of logs whose truth is known by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cufall_py.analysis.concurrency import by_concurrency, held, inside
from cufall_py.analysis.scrapes import Scrapes
from tests.engine_logs import Floats, Ints, Step, frames, scraped, sglang_page, stretch, vllm_page
from tests.pages import moment

STEP_S = {1: 0.01, 4: 0.0125, 16: 0.02}
"""How long a decode step takes with so many requests: tokens/s are C over it, and TPOT it is."""
STRETCHES = [(1, 0.0, 10.0), (4, 10.0, 20.0), (16, 20.0, 30.0), (4, 30.0, 40.0)]


def load() -> list[Step]:
    return [step for c, a, b in STRETCHES for step in stretch(a, b, STEP_S[c], decode=c, running=c)]


def measured() -> tuple[Ints, Ints, dict[str, Floats], Floats]:
    """Frames of 40 s: tensor is 1 % a request, dram half the steps' rate over 100; every frame wholly covered."""
    start_ns, end_ns = frames(0, 40)
    tensor, dram = np.zeros(len(start_ns)), np.zeros(len(start_ns))
    for c, a, b in STRETCHES:
        own = (start_ns >= moment(a).at_ns) & (end_ns <= moment(b).at_ns)
        tensor[own], dram[own] = 0.01 * c, 0.5 / STEP_S[c] / 100
    return start_ns, end_ns, {"tensor": tensor, "dram": dram}, (end_ns - start_ns).astype(float)


def test_each_number_of_running_requests_has_its_row() -> None:
    rows = by_concurrency(*measured(), scraped([vllm_page(load(), 0.37 + k) for k in range(40)]))
    assert [(row.least, row.most) for row in rows] == [(1, 1), (4, 4), (16, 16)]
    for row in rows:
        c = row.least
        assert row.metrics["tensor"].value == pytest.approx(0.01 * c)
        assert row.metrics["dram"].value == pytest.approx(0.5 / STEP_S[c] / 100)
        # one step more or less falls into a second
        assert row.generation_tokens_per_s.value == pytest.approx(c / STEP_S[c], rel=0.02)
        assert row.tpot_s.value == pytest.approx(STEP_S[c])
        assert row.metrics["tensor"].low <= 0.01 * c <= row.metrics["tensor"].high
    assert [row.intervals for row in rows] == [9, 18, 9]
    assert [row.seconds for row in rows] == [pytest.approx(n) for n in (9, 18, 9)]
    assert [row.metrics["tensor"].count for row in rows] == [pytest.approx(20 * n, abs=4) for n in (9, 18, 9)]


def test_intervals_in_which_the_number_changed_count_to_no_number_but_to_a_range() -> None:
    scrapes = scraped([vllm_page(load(), 0.37 + k) for k in range(40)])
    (row,) = by_concurrency(*measured(), scrapes, ranges=[(1, 16)])
    assert row.intervals == 39
    assert by_concurrency(*measured(), scrapes, ranges=[(2, 3), (17, 99)]) == []


def test_a_stale_gauge_counts_up_to_where_it_was_surely_renewed() -> None:
    # with 40 steps of 20 ms between two updates, 16 still reads so when 4 run already
    scrapes = scraped([sglang_page(load(), 0.37 + k, realtime=True) for k in range(40)])
    rows = {row.least: row for row in by_concurrency(*measured(), scrapes)}
    assert {1, 4, 16} <= rows.keys()
    for c in (1, 4, 16):
        assert rows[c].metrics["tensor"].value == pytest.approx(0.01 * c)


def test_a_gauge_is_renewed_when_enough_steps_were_made() -> None:
    # a hundred tokens a second of 4 requests are 25 steps: 40 of them take two seconds
    steady = made([(4, 4)] * 5, of_steps=False)
    assert held(steady, 4, 4).tolist() == [True, True, True, False, False]
    assert held(steady, 4, 6).tolist() == [True, True, False, False, False]
    assert held(made([(0, 0)] * 2, of_steps=False), 0, 0).tolist() == [False, False]


def test_a_gauge_that_stays_while_nothing_is_made_is_stale() -> None:
    # the last update of SGLang's gauge read 16; then all requests ended
    log = [*load()[:-1], Step(39.9, 40.0, decode=4, running=0)]
    scrapes = scraped([sglang_page(log, 0.37 + k, realtime=True) for k in range(60)])
    assert scrapes.running[-1].tolist() == [4, 4]
    assert not held(scrapes, 4, 4)[42:].any()


def made(running: Sequence[Sequence[float]], error_ns: int = 0, gap_after: int = -1, of_steps: bool = True) -> Scrapes:
    k = len(running)
    starts = np.arange(k, dtype=np.int64) * 1_000_000_000
    starts[np.arange(k) > gap_after] += 500_000_000 if gap_after >= 0 else 0
    ends = starts + 1_000_000_000
    ones = np.ones(k)
    return Scrapes(
        starts,
        ends,
        np.full((k, 2), error_ns, np.int64),
        ones,
        100 * ones,
        100 * ones,
        0 * ones,
        ones > 0,
        np.array(running, float),
        np.full(k, of_steps),
        ones,
        100 * ones,
    )


def test_frames_lie_surely_within_and_do_not_stop_at_scrapes_that_read_the_same() -> None:
    scrapes = made([(4, 4), (4, 4), (4, 8)], error_ns=10_000_000)
    edges = np.arange(0, 3_000_000_001, 250_000_000)
    within = inside(edges[:-1], edges[1:], scrapes, held(scrapes, 4, 4))
    assert within.tolist() == [False, *[True] * 6, False, *[False] * 4]


def test_frames_in_a_gap_between_scrapes_are_of_no_number() -> None:
    scrapes = made([(4, 4), (4, 4)], gap_after=0)
    edges = np.arange(0, 2_500_000_001, 250_000_000)
    within = inside(edges[:-1], edges[1:], scrapes, held(scrapes, 4, 4))
    assert within.tolist() == [*[True] * 4, False, False, *[True] * 4]


def test_what_is_not_known_is_in_no_row() -> None:
    start_ns, end_ns, metrics, covered_ns = measured()
    unknown = made([(math.nan, math.nan), (4, math.nan)])
    assert by_concurrency(start_ns, end_ns, metrics, covered_ns, unknown) == []


def test_a_metric_that_was_not_measured_is_no_zero() -> None:
    edges = np.arange(0, 2_000_000_001, 250_000_000)
    blank = {"tensor": np.full(8, np.nan)}
    (row,) = by_concurrency(edges[:-1], edges[1:], blank, np.zeros(8), made([(4, 4), (4, 4)]))
    assert (math.isnan(row.metrics["tensor"].value), row.metrics["tensor"].count) == (True, 0)
    assert row.generation_tokens_per_s.value == 100


def test_of_a_single_interval_the_error_is_not_known() -> None:
    edges = np.arange(0, 1_000_000_001, 250_000_000)
    (row,) = by_concurrency(edges[:-1], edges[1:], {}, np.ones(4), made([(4, 4)]))
    assert (row.generation_tokens_per_s.low, row.generation_tokens_per_s.high) == (-math.inf, math.inf)


def test_means_are_weighted_by_what_was_covered() -> None:
    edges = np.arange(0, 1_000_000_001, 250_000_000)
    values = {"tensor": np.array([0.2, 0.4, np.nan, 0.9])}
    covered = np.array([3.0, 1.0, 1.0, 0.0])
    (row,) = by_concurrency(edges[:-1], edges[1:], values, covered, made([(4, 4)]))
    assert (row.metrics["tensor"].value, row.metrics["tensor"].count) == (pytest.approx(0.25), 2)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20), st.booleans())
def test_rows_of_numbers_hold_each_interval_at_most_once(running: list[tuple[int, int]], of_steps: bool) -> None:
    scrapes = made(running, of_steps=of_steps)
    rows = by_concurrency(*measured(), scrapes)
    same = sum(a == b for a, b in running)
    assert sum(row.intervals for row in rows) <= same
    assert not of_steps or sum(row.intervals for row in rows) == same
