"""Phases of frames against logs of steps that are known, and what holds of any counters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.analysis.phases import PHASES, UNSURE, frame_shares, phase_codes, phase_means, phase_seconds
from cufall_py.analysis.scrapes import Scrapes
from tests.engine_logs import Floats, Step, frames, scraped, sglang_page, stretch, true_shares, vllm_page
from tests.pages import moment

SECOND = 1_000_000_000


def made(
    prompt: Sequence[float],
    decode: Sequence[float],
    running: Sequence[float] = (),
    of_steps: bool = True,
    error_ns: int = 0,
) -> Scrapes:
    """Intervals of a second each; `running` at each of their edges."""
    k = len(prompt)
    edges = np.arange(k + 1, dtype=np.int64) * SECOND
    gauge = np.array(running or [np.nan] * (k + 1))
    blank = np.full(k, np.nan)
    return Scrapes(
        edges[:-1],
        edges[1:],
        np.full((k, 2), error_ns, np.int64),
        np.array(prompt, float),
        np.array(decode, float),
        np.array(decode, float),
        np.zeros(k),
        np.full(k, of_steps),
        np.stack((gauge[:-1], gauge[1:]), axis=1),
        np.full(k, True),
        blank,
        blank,
    )


def phases(scrapes: Scrapes) -> list[str]:
    return [PHASES[code] for code in phase_codes(scrapes)]


def wrong(found: Floats, truth: Floats) -> float:
    """The share of the time that is said to be of a phase that it is not; unsure says nothing."""
    return float(np.maximum(found - truth, 0)[:, :UNSURE].sum() / len(found))


# Rules


def test_what_the_counters_did_is_the_phase() -> None:
    assert phases(made([5, 5, 0, 5, 5], [0, 0, 5, 5, 5])) == ["unsure", "prefill", "decode", "mixed", "unsure"]
    assert phases(made([0, 0], [0, 0])) == ["idle", "idle"]


def test_counters_that_do_not_move_with_each_step_tell_no_phase() -> None:
    assert phases(made([5, 0], [0, 5], of_steps=False)) == ["unsure", "unsure"]


def test_what_is_not_known_is_unsure_and_not_idle() -> None:
    assert phases(made([np.nan, 0, 5, 5], [5, np.nan, 0, 0])) == ["unsure", "unsure", "prefill", "unsure"]
    assert phases(made([0, np.nan, 0], [0, 0, 0])) == ["idle", "unsure", "idle"]


def test_nothing_counted_while_requests_run_is_a_long_step() -> None:
    assert phases(made([0, 0], [0, 0], running=[0, 1, 0])) == ["unsure", "unsure"]
    assert phases(made([0, 0], [0, 0], running=[0, 0, 0])) == ["idle", "idle"]


def test_both_sides_of_where_tokens_begin_are_unsure() -> None:
    # before: their step may have begun; after: part of it was idle
    assert phases(made([0, 0, 7, 7, 7], [0] * 5)) == ["idle", "unsure", "unsure", "prefill", "unsure"]


def test_the_interval_in_which_tokens_cease_is_unsure() -> None:
    assert phases(made([0] * 4, [9, 9, 9, 0])) == ["unsure", "decode", "unsure", "idle"]
    assert phases(made([0] * 3, [9] * 3, running=[4, 4, 4, 0])) == ["unsure", "decode", "unsure"]


def test_of_the_first_and_last_interval_with_tokens_nobody_knows_whether_they_began_or_ceased_in_it() -> None:
    assert phases(made([0] * 3, [9] * 3)) == ["unsure", "decode", "unsure"]
    assert phases(made([0] * 3, [0] * 3)) == ["idle"] * 3


def test_frames_across_an_edge_are_of_both_and_the_alignment_error_of_neither() -> None:
    start_ns, end_ns = np.array([1_500_000_000]), np.array([2_500_000_000])
    exact = frame_shares(start_ns, end_ns, made([5, 5, 0, 0], [0, 0, 5, 5]))
    assert exact.tolist() == [[0.5, 0.5, 0, 0, 0]]
    doubted = frame_shares(start_ns, end_ns, made([5, 5, 0, 0], [0, 0, 5, 5], error_ns=100_000_000))
    assert doubted[0] == pytest.approx([0.4, 0.4, 0, 0, 0.2])
    same = frame_shares(start_ns, end_ns, made([5] * 4, [0] * 4, error_ns=100_000_000))
    assert same[0] == pytest.approx([1, 0, 0, 0, 0])


def test_frames_that_no_scrape_covers_are_unsure() -> None:
    found = frame_shares(np.array([-SECOND, 5 * SECOND]), np.array([0, 6 * SECOND]), made([5], [5]))
    assert found.tolist() == [[0, 0, 0, 0, 1]] * 2


def test_without_any_scrape_all_is_unsure() -> None:
    found = frame_shares(np.array([0]), np.array([SECOND]), made([], [], running=[0]))
    assert found.tolist() == [[0, 0, 0, 0, 1]]


AMOUNTS = st.sampled_from([0.0, 3.0, np.nan])


@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS, st.sampled_from([0.0, 4.0, np.nan])), min_size=1, max_size=12),
    st.integers(0, 400_000_000),
    st.integers(10, 3000),
    st.booleans(),
)
def test_shares_add_up_to_one_and_so_does_the_time(
    told: list[tuple[float, float, float]], error_ns: int, period_ms: int, of_steps: bool
) -> None:
    prompt, decode, running = zip(*told, strict=True)
    scrapes = made(prompt, decode, [0.0, *running], of_steps, error_ns)
    edges = np.arange(-2_000_000_000, (len(told) + 2) * SECOND, period_ms * 1_000_000)
    shares = frame_shares(edges[:-1], edges[1:], scrapes)
    assert ((shares >= 0) & (shares <= 1)).all()
    assert shares.sum(axis=1) == pytest.approx(1, abs=1e-9)
    seconds = phase_seconds(edges[:-1], edges[1:], shares)
    assert sum(seconds.values()) == pytest.approx((edges[-1] - edges[0]) / 1e9)
    for phase, name in enumerate(PHASES[:UNSURE]):
        assert seconds[name] <= (phase_codes(scrapes) == phase).sum() + 1e-6


def test_means_are_weighted_by_share_and_by_what_was_covered() -> None:
    shares = np.array([[1, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 1, 0, 0, 0]])
    values = np.array([[0.9, 0.1], [0.5, np.nan], [0.1, 0.3]])
    means = phase_means(shares, values, np.array([50.0, 50.0, 25.0]))
    assert means["prefill"] == pytest.approx([(0.9 + 0.5 * 0.5) / 1.5, 0.1])
    assert means["decode"] == pytest.approx([(0.25 * 50 + 0.1 * 25) / 50, 0.3])
    assert np.isnan(means["idle"]).all()


# Logs with known truth


def day(running: int = 16) -> list[Step]:
    """5 s of nothing, prompts, decoding, nothing, chunked prefill among decoding, decoding, nothing to 60 s."""
    own = {"running": running}
    busy = [
        *stretch(5, 11, 0.2, prompt=4096, firsts=2, **own),
        *stretch(11, 28, 0.02, decode=16, **own),
        *stretch(33, 43, 0.05, prompt=512, decode=15, firsts=1, **own),
        *stretch(43, 55, 0.02, decode=16, **own),
    ]
    last_of = {round(end, 6) for end in (28.0, 55.0)}
    return [
        Step(s.start_s, s.end_s, s.prompt, s.firsts, s.decode, 0 if round(s.end_s, 6) in last_of else running)
        for s in busy
    ]


EDGES_S = 2 * 2 + 2 * 1
"""What is unsure of this day: two intervals each time that tokens begin, one each time that they cease."""
offsets = pytest.mark.parametrize("offset_s", [0.0, 0.13, 0.37, 0.71, 0.99])


@offsets
def test_a_chunked_prefill_log_is_told_within_five_percent_of_the_time(offset_s: float) -> None:
    log = day()
    start_ns, end_ns = frames(1, 59.5)
    found = frame_shares(start_ns, end_ns, scraped([vllm_page(log, offset_s + k) for k in range(61)]))
    truth = true_shares(log, start_ns, end_ns)
    assert wrong(found, truth) < 0.05
    told, true = phase_seconds(start_ns, end_ns, found), phase_seconds(start_ns, end_ns, truth)
    assert told["unsure"] == pytest.approx(EDGES_S)
    assert all(abs(told[phase] - true[phase]) <= 4 for phase in PHASES[:UNSURE])


def test_first_tokens_are_of_the_prefill_that_made_them() -> None:
    log = stretch(0, 10, 0.2, prompt=4096, firsts=2, running=16)
    start_ns, end_ns = frames(2, 8)
    found = frame_shares(start_ns, end_ns, scraped([vllm_page(log, 0.37 + k) for k in range(10)]))
    assert found[:, PHASES.index("prefill")] == pytest.approx(1)


@offsets
def test_sglangs_stair_is_unsure_and_its_realtime_counters_are_not(offset_s: float) -> None:
    log = day()
    start_ns, end_ns = frames(1, 59.5)
    stair, steps = (
        frame_shares(start_ns, end_ns, scraped([sglang_page(log, offset_s + k, realtime) for k in range(61)]))
        for realtime in (False, True)
    )
    assert stair[:, UNSURE] == pytest.approx(1)
    assert wrong(steps, true_shares(log, start_ns, end_ns)) < 0.05
    assert phase_seconds(start_ns, end_ns, steps)["unsure"] == pytest.approx(EDGES_S)


def test_a_long_prefill_step_is_never_called_idle() -> None:
    # one prompt of 6 s in a single step: nothing moves until it ends
    log = [Step(4.9, 5.0, prompt=10, firsts=1, running=1), Step(5.0, 11.0, prompt=10**6, firsts=1, running=2)]
    start_ns, end_ns = frames(5.5, 10.5)
    found = frame_shares(start_ns, end_ns, scraped([vllm_page(log, 0.37 + k) for k in range(14)]))
    assert found[:, PHASES.index("idle")].max() == 0


@offsets
def test_a_prompt_that_is_counted_when_it_is_done_makes_what_it_was_done_beside_unsure(offset_s: float) -> None:
    chunks = stretch(20, 23, 0.05, prompt=512, decode=15, running=16)
    chunks[-1] = Step(22.95, 23, prompt=512, decode=15, firsts=1, running=16)
    log = [*stretch(2, 20, 0.02, decode=16, running=16), *chunks, *stretch(23, 40, 0.02, decode=16, running=16)]
    start_ns, end_ns = frames(5, 38)
    found = frame_shares(start_ns, end_ns, scraped([vllm_page(log, offset_s + k) for k in range(40)]))
    decode, truth = PHASES.index("decode"), true_shares(log, start_ns, end_ns)
    beside = (start_ns >= moment(20).at_ns) & (end_ns <= moment(22).at_ns)
    assert found[beside][:, decode].max() == 0
    assert wrong(found, truth) < 1.01 / 33  # of the interval in which the prompt was done
    seconds = phase_seconds(start_ns, end_ns, found)
    assert seconds["decode"] > 33 - 3 - 1 - 3  # less the chunks, the interval, and how long the last bucket says
