"""Intervals between scrapes as the arrays that analysis is of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cufall_py.analysis.scrapes import Scrapes

from .rates import Interval

PROMPT = ("prefill_tokens", "prompt_tokens")
"""Prompt tokens that were computed, where the engine tells them apart."""


def columns(intervals: Sequence[Interval]) -> Scrapes:
    """Of intervals of one endpoint. Those that begin before an earlier one ended are left out: the clock was set."""
    ordered = _in_order(intervals)
    prompt = [_counted(interval, *PROMPT) for interval in ordered]
    generation = [_counted(interval, "generation_tokens") for interval in ordered]
    firsts = [_first_tokens(interval) for interval in ordered]
    latencies = [interval.latencies.get("itl_s") for interval in ordered]
    return Scrapes(
        start_ns=np.array([i.before.at_ns for i in ordered], np.int64),
        end_ns=np.array([i.after.at_ns for i in ordered], np.int64),
        error_ns=np.array([(i.before.error_ns, i.after.error_ns) for i in ordered], np.int64).reshape(-1, 2),
        prompt=np.array([amount for amount, _ in prompt], np.float64),
        generation=np.array([amount for amount, _ in generation], np.float64),
        decode=np.array([made - count for (made, _), (count, _) in zip(generation, firsts, strict=True)], np.float64),
        prefill_s=np.array([longest_s for _, longest_s in firsts], np.float64),
        of_steps=np.array([a and b for (_, a), (_, b) in zip(prompt, generation, strict=True)], np.bool_),
        running=np.array([i.gauges.get("running", (math.nan, math.nan)) for i in ordered], np.float64).reshape(-1, 2),
        running_of_steps=np.array([i.moves.get("running") == "step" for i in ordered], np.bool_),
        itl_s=np.array([one.total_s if one else math.nan for one in latencies], np.float64),
        itl_count=np.array([one.count if one else math.nan for one in latencies], np.float64),
    )


def _in_order(intervals: Sequence[Interval]) -> list[Interval]:
    out: list[Interval] = []
    for interval in intervals:
        if interval.before.at_ns < interval.after.at_ns and (not out or interval.before.at_ns >= out[-1].after.at_ns):
            out.append(interval)
    return out


def _counted(interval: Interval, *quantities: str) -> tuple[float, bool]:
    """What the first of these counters that is there grew by, and whether it moves with each step and was followed.

    NaN for one that moves when requests end: what it counts was made some time before.
    """
    for quantity in quantities:
        if quantity in interval.moves:
            rate, moves = interval.rates.get(quantity), interval.moves[quantity]
            of_steps = moves == "step" and not interval.scrape_failed
            return (rate.amount if rate and moves != "finish" else math.nan), of_steps
    return math.nan, False


def _first_tokens(interval: Interval) -> tuple[float, float]:
    """How many of the tokens made were first ones, of a prefill, and how long at most that prefill had taken.

    NaN for what is not known; none where the engine counts prompts step by step.
    """
    if not interval.engine.counts_prompts_whole:
        return 0.0, 0.0
    if "ttft_s" in interval.unknown or "ttft_s" not in interval.moves:
        return math.nan, math.nan
    latencies = interval.latencies.get("ttft_s")
    return (latencies.count, latencies.longest_s) if latencies else (0.0, 0.0)
