"""Gaps: where samples of a GPU should have been and none came."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .samples import Samples


@dataclass(frozen=True)
class Gap:
    """From the end of one sample to the start of the next, and how many would have fitted between."""

    start_ns: int
    end_ns: int
    samples: int


def gaps(samples: Samples, last_end_ns: int) -> list[Gap]:
    """Where more than half a period lies between two samples; `last_end_ns` is of the one before them (0: none)."""
    period_ns = samples.period_ns
    missing_ns = samples.gaps_ns(last_end_ns, period_ns)
    found = [(int(samples.start_ns[k]), int(missing_ns[k])) for k in np.flatnonzero(missing_ns)]
    return [Gap(start_ns - length_ns, start_ns, round(length_ns / period_ns)) for start_ns, length_ns in found]
