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
    previous = np.concatenate(([last_end_ns or samples.start_ns[0]], samples.end_ns[:-1]))
    missing_ns = samples.start_ns - previous
    period_ns = max(1, int(np.median(samples.end_ns - samples.start_ns)))
    at = np.flatnonzero(missing_ns > period_ns // 2)
    return [Gap(int(previous[k]), int(samples.start_ns[k]), round(int(missing_ns[k]) / period_ns)) for k in at]
