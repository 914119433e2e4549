"""Servers that never ran: the steps of an engine written down, and what its page says at any moment by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.analysis.phases import PHASES
from cufall_py.analysis.scrapes import Scrapes
from cufall_py.engines.columns import columns
from cufall_py.engines.page import read
from cufall_py.engines.rates import Rates
from cufall_py.engines.reading import Reading
from tests.pages import moment

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Step:
    """One step of an engine: when, and what it did; all of it is counted when it ends."""

    start_s: float
    end_s: float
    prompt: int = 0
    firsts: int = 0
    decode: int = 0
    running: int = 0
    """Requests that go on after it."""

    @property
    def phase(self) -> int:
        if self.prompt and self.decode:
            return PHASES.index("mixed")
        return PHASES.index("prefill" if self.prompt else "decode")


def stretch(start_s: float, end_s: float, step_s: float, **each: int) -> list[Step]:
    """Steps all alike, one after the other."""
    count = round((end_s - start_s) / step_s)
    return [Step(start_s + k * step_s, start_s + (k + 1) * step_s, **each) for k in range(count)]


TTFT_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def vllm_page(log: Sequence[Step], at_s: float) -> Reading:
    """It counts a prompt, its first token and the time to that when all of the prompt is done."""
    done = [step for step in log if step.end_s <= at_s]
    counted, ttfts, begun = 0, list[float](), list[Step]()
    for step in (step for step in done if step.prompt):
        begun.append(step)
        if step.firsts:
            counted += sum(one.prompt for one in begun)
            ttfts += [step.end_s - begun[0].start_s] * step.firsts
            begun = []
    lines = {
        "vllm:prompt_tokens_total": counted,
        "vllm:generation_tokens_total": sum(step.firsts + step.decode for step in done),
        "vllm:time_to_first_token_seconds_sum": sum(ttfts),
        "vllm:time_to_first_token_seconds_count": len(ttfts),
        **{
            f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}}': sum(ttft <= bound for ttft in ttfts)
            for bound in TTFT_BOUNDS
        },
        "vllm:inter_token_latency_seconds_sum": sum(s.decode * (s.end_s - s.start_s) for s in done),
        "vllm:inter_token_latency_seconds_count": sum(step.decode for step in done),
        "vllm:num_requests_running": done[-1].running if done else 0,
    }
    return as_page(lines, at_s)


def sglang_page(log: Sequence[Step], at_s: float, realtime: bool, every: int = 40) -> Reading:
    """Its gauge moves each `every` decode steps, its plain counters when all requests have ended."""
    done = [step for step in log if step.end_s <= at_s]
    decoded = [step for step in done if step.decode]
    ended = [k for k, step in enumerate(done) if step.running == 0]
    finished = done[: ended[-1] + 1] if ended else []
    seen = len(decoded) // every * every
    lines = {
        "sglang:prompt_tokens_total": sum(step.prompt for step in finished),
        "sglang:generation_tokens_total": sum(step.firsts + step.decode for step in finished),
        "sglang:num_running_reqs": decoded[seen - 1].running if seen else 0,
    }
    if realtime:
        lines['sglang:realtime_tokens_total{mode="prefill_compute"}'] = sum(step.prompt for step in done)
        lines['sglang:realtime_tokens_total{mode="decode"}'] = sum(step.decode for step in done)
    return as_page(lines, at_s)


def as_page(lines: dict[str, float], at_s: float) -> Reading:
    return read("".join(f"{name} {value}\n" for name, value in lines.items()), moment(at_s))


def scraped(readings: Sequence[Reading]) -> Scrapes:
    """The columns of what lies between these readings."""
    rates = Rates()
    return columns([interval for reading in readings if (interval := rates.add(reading))])


def frames(start_s: float, end_s: float, period_s: float = 0.05) -> tuple[Ints, Ints]:
    origin, count = moment(start_s).at_ns, round((end_s - start_s) / period_s)
    edges = origin + np.arange(count + 1, dtype=np.int64) * round(period_s * 1e9)
    return edges[:-1], edges[1:]


def true_shares(log: Sequence[Step], start_ns: Ints, end_ns: Ints) -> Floats:
    """(n, 5) what the log says of each frame; idle between steps, never unsure."""
    shares = np.zeros((len(start_ns), len(PHASES)))
    for step in log:
        begin, end = moment(step.start_s).at_ns, moment(step.end_s).at_ns
        overlap = np.minimum(end_ns, end) - np.maximum(start_ns, begin)
        shares[:, step.phase] += np.maximum(overlap, 0) / (end_ns - start_ns)
    shares[:, PHASES.index("idle")] = 1 - shares.sum(axis=1)
    return shares
