"""Inference servers beside their GPUs as data: what is not known is null."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cufall_py import __version__
from cufall_py.analysis.concurrency import Mean, Row
from cufall_py.engines.driven import Driven
from cufall_py.engines.rates import Interval, Latencies
from cufall_py.judgements import Judgement
from cufall_py.served import COUNTERS, GAUGES, LATENCIES, Served, gauge, latency, total

from .nulls import or_null
from .summary import judged

SCHEMA = 1


def document(
    found: Sequence[Served], judgements: Sequence[Judgement] = (), driven: Sequence[Driven] = ()
) -> dict[str, Any]:
    """All of it, as strict JSON has it."""
    return {
        "schema": SCHEMA,
        "cufall": __version__,
        "servers": [server(one) for one in found],
        "load": [load(one) for one in driven],
        "requirements": [judged(judgement) for judgement in judgements],
    }


def with_servers(report: dict[str, Any], servers: Sequence[Sequence[Served]]) -> dict[str, Any]:
    """A report's document, each recording that has servers with those."""
    for recording, found in zip(report["recordings"], servers, strict=True):
        if found:
            recording["servers"] = [server(one) for one in found]
    return report


def load(one: Driven) -> dict[str, Any]:
    """What a load that cufall sent came to, by the client's own clock."""
    return {
        "at_once": one.concurrency,
        "requests": len(one.asked),
        "tokens": one.tokens,
        "tokens_from": "pieces" if one.by_pieces else "usage",
        "seconds": one.ended_s - one.begun_s,
        "tokens_per_s": one.tokens_per_s,
        "full_seconds": max(one.full[1] - one.full[0], 0.0),
        "full_tokens_per_s": or_null(one.full_tokens_per_s),
        **{
            name: {f"p{percent}": or_null(one.percentile_s(name, percent)) for percent in (50, 95, 99)}
            for name in ("ttft_s", "tpot_s")
        },
        "problems": list(one.problems),
    }


def server(one: Served) -> dict[str, Any]:
    log = one.log
    engine = log.intervals[-1].engine if log.intervals else None
    return {
        "url": log.url,
        "role": log.role or None,
        "engine": engine and engine.name,
        "versions": engine and engine.versions,
        "gpus": list(log.gpus),
        "scrapes": len(log.intervals),
        **{f"{name}_per_s": _rate(log.intervals, name) for name in COUNTERS},
        **{name: _gauge(log.intervals, name) for name in GAUGES},
        **{name: _latency(latency(log.intervals, name)) for name in LATENCIES},
        "by_running": [_row(row) for row in one.rows],
        "by_phase": {
            phase: {
                "seconds": seconds,
                "metrics": {
                    label: or_null(value)
                    for label, value in zip(one.labels, one.phase_means[phase].tolist(), strict=True)
                },
            }
            for phase, seconds in one.phase_s.items()
        },
    }


def _rate(intervals: Sequence[Interval], quantity: str) -> dict[str, Any] | None:
    """The rate over all, with the metric that it came from."""
    rate = total(intervals, quantity)
    if not rate:
        return None
    return {"value": rate.per_s, "tokens": rate.amount, "metric": rate.name, "engine": _engine(intervals)}


def _gauge(intervals: Sequence[Interval], quantity: str) -> dict[str, Any] | None:
    value = gauge(intervals, quantity)
    if math.isnan(value):
        return None
    name = next(i.names[quantity] for i in reversed(intervals) if quantity in i.names)
    return {"value": value, "metric": name, "engine": _engine(intervals)}


def _engine(intervals: Sequence[Interval]) -> str:
    return intervals[-1].engine.name


def _latency(found: Latencies | None) -> dict[str, Any] | None:
    if not found:
        return None
    return {
        "mean": found.mean_s,
        **{f"p{percent}": or_null(found.percentile_s(percent)) for percent in (50, 95, 99)},
        "count": found.count,
        "metric": found.name,
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "least": row.least,
        "most": row.most,
        "scrapes": row.intervals,
        "seconds": row.seconds,
        "generation_tokens_per_s": _mean(row.generation_tokens_per_s),
        "prompt_tokens_per_s": _mean(row.prompt_tokens_per_s),
        "itl_s": _mean(row.tpot_s),
        "metrics": {label: _mean(mean) for label, mean in row.metrics.items()},
    }


def _mean(mean: Mean) -> dict[str, Any] | None:
    """With the ends of its 95 % interval."""
    if math.isnan(mean.value):
        return None
    return {"mean": mean.value, "low": or_null(mean.low), "high": or_null(mean.high), "count": mean.count}
