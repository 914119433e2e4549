"""Rates between two scrapes: resets, engines that come and go, histograms, clocks that are set."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.analysis.phases import PHASES, phase_codes
from cufall_py.engines.columns import columns
from cufall_py.engines.events import fields, reading as event_reading
from cufall_py.engines.page import read
from cufall_py.engines.rates import CAME_OR_WENT, FELL, IN_TURN, PASSED, RENAMED, STEPPED, Interval, Rates
from cufall_py.engines.reading import Moment, Reading
from cufall_py.served import Log, gauge, total
from tests import pages
from tests.pages import moment

TOKENS = "vllm:generation_tokens_total"


def counted(at_s: float, **by_engine: float) -> Reading:
    """A scrape of one counter, by engine."""
    lines = [f'{TOKENS}{{engine="{engine[1:]}"}} {value}' for engine, value in by_engine.items()]
    return read("\n".join([*lines, ""]), moment(at_s))


def intervals(readings: Sequence[Reading]) -> list[Interval]:
    rates = Rates()
    return [interval for reading in readings if (interval := rates.add(reading))]


def per_s(values: Sequence[float]) -> list[float | str]:
    """Tokens a second between scrapes of one engine two seconds apart; the reason where it is not known."""
    found = intervals([counted(2 * k, e0=value) for k, value in enumerate(values)])
    return [
        i.rates["generation_tokens"].per_s if "generation_tokens" in i.rates else i.unknown["generation_tokens"]
        for i in found
    ]


def test_a_rate_is_the_amount_over_the_time() -> None:
    (found,) = intervals([counted(0, e0=1000), counted(2, e0=1500)])
    rate = found.rates["generation_tokens"]
    assert (rate.amount, rate.per_s, rate.name, rate.moves) == (500, 250, TOKENS, "step")
    assert found.seconds == 2


def test_after_a_restart_one_interval_is_not_known() -> None:
    assert per_s([1000, 2000, 50, 900]) == [500, FELL, 425]


def test_the_interval_in_which_a_counter_passes_where_it_fell_from_is_not_known() -> None:
    assert per_s([1000, 2000, 50, 1950, 2050, 2150]) == [500, FELL, 950, PASSED, 50]


def test_processes_that_answer_in_turn_give_no_rate_and_are_told_of() -> None:
    values = [1000, 300, 1100, 350, 1200, 400, 1300]
    assert all(isinstance(rate, str) for rate in per_s(values))
    found = intervals([counted(k, e0=value) for k, value in enumerate(values)])
    assert [IN_TURN in interval.notes for interval in found] == [False, False, True, True, True, True]


def test_an_old_page_repeated_is_no_spike() -> None:
    assert per_s([1000, 1100, 1000, 1200, 1300]) == [50, FELL, PASSED, 50]


def test_a_page_that_is_no_later_than_the_last_is_no_interval() -> None:
    assert intervals([counted(1, e0=5), counted(1, e0=9)]) == []


def test_an_engine_that_comes_or_goes_is_no_spike() -> None:
    found = intervals([counted(0, e0=10), counted(1, e0=20, e1=5000), counted(2, e0=30, e1=5010), counted(3, e0=40)])
    assert [interval.unknown.get("generation_tokens") for interval in found] == [CAME_OR_WENT, None, CAME_OR_WENT]
    assert found[1].rates["generation_tokens"].amount == 20


def test_the_first_tokens_that_a_label_counts_are_not_lost() -> None:
    mode = 'sglang:realtime_tokens_total{mode="%s"} %d\n'
    first = read(mode % ("prefill_compute", 300), moment(0))
    second = read(mode % ("prefill_compute", 300) + mode % ("decode", 16), moment(1))
    (found,) = intervals([first, second])
    assert (found.rates["generation_tokens"].amount, found.rates["prefill_tokens"].amount) == (16, 0)


def test_one_engine_of_two_that_falls_makes_the_sum_unknown() -> None:
    (found,) = intervals([counted(0, e0=10, e1=100), counted(1, e0=20, e1=3)])
    assert found.unknown == {"generation_tokens": FELL}


def test_a_metric_that_vanishes_or_is_renamed_is_not_known() -> None:
    new = read("vllm:num_requests_running 3\nray_vllm:generation_tokens_total 9\n", moment(1))
    vanished, renamed = intervals([counted(0, e0=5), new, read("ray_vllm:generation_tokens_total 10\n", moment(2))])
    assert vanished.unknown["generation_tokens"] == CAME_OR_WENT
    assert renamed.unknown["generation_tokens"] == CAME_OR_WENT
    (other,) = intervals([counted(0, e0=5), read(f"ray_{TOKENS} 9\n", moment(1))])
    assert other.unknown["generation_tokens"] == RENAMED


def test_a_clock_that_was_set_makes_all_unknown_and_lengths_stay_right() -> None:
    later = counted(1, e0=10)
    stepped = Reading(later.engine, Moment(later.when.at_ns - 3_600_000_000_000, 1_000_000_000, 0), later.values)
    (found,) = intervals([counted(0, e0=5), stepped])
    assert (found.unknown, found.seconds) == ({"generation_tokens": STEPPED}, 1)


@given(st.lists(st.integers(0, 3000), min_size=2, max_size=30))
def test_no_rate_is_ever_negative_and_each_is_the_rise_or_unknown(values: list[int]) -> None:
    for before, after, rate in zip(values, values[1:], per_s(values), strict=False):
        assert isinstance(rate, str) or rate == (after - before) / 2 >= 0


@given(st.lists(st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=1, max_size=10))
def test_engines_that_only_rise_add_up_to_what_all_made(rises: list[list[int]]) -> None:
    totals = [[sum(row[e] for row in rises[:k]) for e in range(3)] for k in range(len(rises) + 1)]
    readings = [counted(k, **{f"e{e}": value for e, value in enumerate(row)}) for k, row in enumerate(totals)]
    found = sum(interval.rates["generation_tokens"].amount for interval in intervals(readings))
    assert found == sum(map(sum, rises))


# Counters before gauges


def test_the_engines_own_rate_is_used_where_no_counter_is() -> None:
    page = "vllm:avg_generation_throughput_toks_per_s 90\nvllm:gpu_cache_usage_perc 0.5\n"
    (without,) = intervals([read(page, moment(0)), read(page, moment(1))])
    own = without.per_s("generation_tokens")
    assert own and (own.per_s, own.moves, math.isnan(own.amount)) == (90, "interval", True)
    (with_both,) = intervals([read(f"{page}{TOKENS} {value}\n", moment(at)) for at, value in ((0, 100), (1, 140))])
    counter = with_both.per_s("generation_tokens")
    assert counter and (counter.per_s, counter.name) == (40, TOKENS)


def test_gauges_are_told_before_and_after_unless_engines_came_or_went() -> None:
    def running(at_s: float, *numbers: int) -> Reading:
        lines = [f'vllm:num_requests_running{{engine="{e}"}} {n}' for e, n in enumerate(numbers)]
        return read("\n".join([*lines, ""]), moment(at_s))

    steady, joined = intervals([running(0, 4, 5), running(1, 6, 7), running(2, 6, 7, 8)])
    assert (steady.gauges["running"], "running" in joined.gauges) == ((9, 13), False)


# Histograms and speculation


def test_latencies_are_of_what_came_in_between() -> None:
    before, after = pages.vllm(), pages.vllm()
    for seconds in (0.04, 0.06, 0.08, 0.5):
        after.observe("vllm:inter_token_latency_seconds", seconds, model_name="m", engine="0")
    (found,) = intervals([read(before.text, moment(0)), read(after.text, moment(1))])
    itl = found.latencies["itl_s"]
    assert (itl.count, itl.mean_s) == (4, pytest.approx(0.17))
    # three of four lie between 10 and 100 ms: the second of them is two thirds of the way
    assert itl.percentile_s(50) == pytest.approx(0.01 + 2 / 3 * 0.09)
    assert "ttft_s" not in found.latencies


def test_a_percentile_above_the_last_bound_is_not_made_up() -> None:
    before, after = pages.vllm(), pages.vllm()
    after.observe("vllm:inter_token_latency_seconds", 5, model_name="m", engine="0")
    (found,) = intervals([read(before.text, moment(0)), read(after.text, moment(1))])
    assert found.latencies["itl_s"].percentile_s(99) == math.inf


def test_speculative_acceptance_is_by_counters_else_by_the_engines_gauge() -> None:
    before, after = pages.vllm(), pages.vllm()
    after.count("vllm:spec_decode_num_draft_tokens_total", 40, model_name="m", engine="0")
    after.count("vllm:spec_decode_num_accepted_tokens_total", 10, model_name="m", engine="0")
    (counted_,) = intervals([read(before.text, moment(0)), read(after.text, moment(1))])
    (gauge,) = intervals([read(pages.sglang().text, moment(at)) for at in (0, 1)])
    (none_drafted,) = intervals([read(before.text, moment(at)) for at in (0, 1)])
    assert (counted_.acceptance, gauge.acceptance, none_drafted.acceptance) == (0.25, 0.8, None)


# Outages: what is not known of the time between two scrapes


def busy(at_s: float, tokens: float, started_s: float = 0) -> Reading:
    """Four requests run; `started_s`: as prometheus-client tells of its process, 0: it does not."""
    own = f"process_start_time_seconds {started_s}\n" if started_s else ""
    return read(f"vllm:num_requests_running 4\n{TOKENS} {tokens}\nvllm:prompt_tokens_total 9\n{own}", moment(at_s))


OUTAGES = {
    "started again": [busy(0, 100), busy(1, 200), busy(2, 50), busy(3, 150)],
    "started again and away": [busy(0, 100), busy(1, 200), busy(31, 50), busy(32, 150)],
    "away": [busy(0, 100), busy(1, 200), busy(4, 500), busy(5, 600)],
    "started again, and further than before": [busy(0, 100, 7), busy(1, 200, 7), busy(2, 500, 8), busy(3, 600, 8)],
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_number_of_requests_before_and_after_an_outage_was_not_held_through_it(outage: str) -> None:
    found = columns(intervals(OUTAGES[outage]))
    assert found.running.tolist()[::2] == [[4, 4], [4, 4]]
    assert np.isnan(found.running[1]).all()
    assert PHASES[phase_codes(found)[1]] == "unsure"


def test_tokens_of_a_process_that_was_started_anew_are_not_counted_from_the_one_before() -> None:
    _, over, after = intervals(OUTAGES["started again, and further than before"])
    assert over.unknown["generation_tokens"] == FELL
    assert after.rates["generation_tokens"].amount == 100


def test_processes_that_answer_in_turn_are_known_by_when_they_were_started() -> None:
    found = intervals([busy(k, 100 * k, 7 + k % 2) for k in range(6)])
    assert all("generation_tokens" not in interval.rates for interval in found)
    assert IN_TURN in found[-1].notes and not found[-1].gauges


def test_what_a_page_says_of_its_process_is_kept_with_the_scrape() -> None:
    reading_ = busy(1, 100, 1_796_000_000.25)
    (kept,) = [event_reading(reading_.when.at_ns, json.loads(json.dumps(fields(reading_))))]
    assert kept and kept.started_s == 1_796_000_000.25


def test_when_the_clock_was_set_no_number_of_requests_was_held() -> None:
    later = busy(1, 200)
    stepped = Reading(later.engine, Moment(later.when.at_ns + 3_600_000_000_000, 1_000_000_000, 0), later.values)
    (found,) = intervals([busy(0, 100), stepped])
    assert not found.gauges


def test_a_histogram_whose_sum_falls_was_begun_anew() -> None:
    name = "vllm:inter_token_latency_seconds"
    (found,) = intervals([read(f"{name}_sum {s}\n{name}_count {n}\n", moment(n)) for s, n in ((9, 1), (2, 3))])
    assert (found.unknown, dict(found.latencies)) == ({"itl_s": FELL}, {})


def test_more_tokens_kept_than_tried_is_no_share() -> None:
    def speculated(at_s: float, drafted: float, accepted: float) -> Reading:
        name = "vllm:spec_decode_num"
        return read(f"{name}_draft_tokens_total {drafted}\n{name}_accepted_tokens_total {accepted}\n", moment(at_s))

    (found,) = intervals([speculated(0, 0, 0), speculated(1, 10, 11)])
    assert found.acceptance is None


def test_a_server_that_was_started_again_is_told() -> None:
    found = intervals([counted(k, e0=value) for k, value in enumerate((100, 200, 50, 90))])
    assert [interval.notes for interval in found] == [(), (FELL,), ()]


def test_what_another_engine_said_before_is_not_added_to_what_this_one_says() -> None:
    def other(at_s: float, made: int) -> Reading:
        page = f'sglang:num_running_reqs 9\nsglang:realtime_tokens_total{{mode="decode"}} {made}\n'
        return read(page, moment(at_s))

    pages = (other(0, 0), other(1, 1000), busy(2, 100), busy(3, 150), busy(4, 250))
    found = intervals(pages)
    rate = total(found, "generation_tokens")
    assert rate and (rate.name, rate.amount, rate.per_s) == (TOKENS, 150, 75)
    assert gauge(found, "running") == 4
    assert Log("http://h", "", (), readings=pages).engine == "SGLang (0.5 and newer), then vLLM (0.13 and newer)"


@given(st.data())
def test_a_scrape_that_was_damaged_in_a_file_is_none_or_gives_no_more_than_one_that_was_read(
    data: st.DataObject,
) -> None:
    kept = json.loads(json.dumps(fields(read(pages.vllm().text, moment(0)))))
    place = data.draw(st.sampled_from([*places(kept)]))
    wrong = data.draw(st.sampled_from([None, "x", [], {}, -1, 1e300, math.nan, 10**400, [1], {"a": 1}, [[["a"], [1]]]]))
    into = kept
    for step in place[:-1]:
        into = into[step]
    into[place[-1]] = wrong
    if damaged := event_reading(5, kept):
        found = intervals([damaged, read(pages.vllm().text, moment(1)), damaged])
        assert all(rate.amount >= 0 for interval in found for rate in interval.rates.values())


def places(found: Any, so_far: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """How one gets to each part of a document."""
    inner = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for step, part in inner:
        yield (*so_far, step)
        yield from places(part, (*so_far, step))
