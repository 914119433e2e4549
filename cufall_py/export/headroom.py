"""Measured, ceiling and gap of the tensor pipe as data (docs/ceiling.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cufall_py.headroom import Headroom, Question


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
        "measured": _number(gap.measured),
        "ceiling": _number(ceiling.ratio),
        "limit": ceiling.limit,
        "memory_at_ceiling": _number(ceiling.memory),
        "gap": _number(ceiling.ratio - gap.measured),
        "parts": [{"name": name, "share": _number(share)} for name, share in gap.parts],
        "sm_mhz": _number(of.mhz),
        "clock_by": of.clock or None,
        "dram_bytes_per_s": _number(of.bytes_per_s),
        "why": of.why or None,
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
