"""Numbers as strict JSON takes them."""

from __future__ import annotations

import math


def or_null(value: float) -> float | None:
    """What is not known is null, never 0."""
    return float(value) if math.isfinite(value) else None
