"""Measured, ceiling and gap of the tensor pipe as data (docs/ceiling.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cufall_py.headroom import Headroom, Question

from .nulls import or_null


def as_data(question: Question, found: Sequence[Headroom]) -> dict[str, Any]:
    """As strict JSON has it: what is not known is null."""
    return {"step": _step(question), "rows": [_row(of) for of in found]}


def _step(question: Question) -> dict[str, Any] | None:
    model, serving, work = question.model, question.serving, question.work
    if not model or not work:
        return None
    return {
        "model": model.name,
        "weights": model.weights,
        "active_weights": model.active,
        "phase": "prefill" if serving.prefill else "decode",
        "batch": serving.batch,
        "context": serving.context,
        "tp": serving.gpus,
        "flop": dict(work.flop),
        "weight_bytes": work.weight_bytes,
        "cache_bytes": work.cache_bytes,
    }


def _row(of: Headroom) -> dict[str, Any]:
    gap, ceiling = of.gap, of.gap.ceiling
    return {
        "region": of.region or None,
        "gpu": of.gpu,
        "by": of.by,
        "measured": or_null(gap.measured),
        "ceiling": or_null(ceiling.ratio),
        "limit": ceiling.limit,
        "memory_at_ceiling": or_null(ceiling.memory),
        "gap": or_null(ceiling.ratio - gap.measured),
        "parts": [{"name": name, "share": or_null(share)} for name, share in gap.parts],
        "sm_mhz": or_null(of.mhz),
        "clock_by": of.clock or None,
        "dram_bytes_per_s": or_null(of.bytes_per_s),
        "why": of.why or None,
    }
