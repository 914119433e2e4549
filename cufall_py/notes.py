"""Lines said once about what was asked for and what it means on this chip."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from .metrics import INFINITE, TIME
from .resolve import is_elapsed
from .samples import Samples
from .sources import Opened

MOST_RATIO_OFF = 0.01
LEAST_STEP_NS = 500_000_000
"""A clock that is only slewed moves by less between two looks at it."""


class ClockSteps:
    """Notices when the wall clock is set, by the clock that never is."""

    def __init__(
        self, realtime_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._realtime_ns, self._monotonic_ns = realtime_ns, monotonic_ns
        self._apart_ns = realtime_ns() - monotonic_ns()

    def note(self) -> str:
        """A line if it was set since the last call, else nothing."""
        before_ns, self._apart_ns = self._apart_ns, self._realtime_ns() - self._monotonic_ns()
        step_ns = self._apart_ns - before_ns
        if abs(step_ns) < LEAST_STEP_NS:
            return ""
        return f"the clock of this machine was set {step_ns / 1e9:+.1f} s; frames go by the times of the samples"


def rest_lost(silent_s: Mapping[int, float]) -> str:
    """What was lost of GPUs (by ordinal) that gave nothing more, after what was lost between samples; INFINITE: all."""
    parts = [
        f"all of GPU {gpu}" if s == INFINITE else f"the last {s:.1f} s of GPU {gpu}" for gpu, s in silent_s.items()
    ]
    return f", and {', '.join(parts)}" if parts else ""


def pair_note(opened: Opened, samples: Samples) -> str:
    """What a pair's plain quotient would have said: peaks and clocks of the two, as seen in these samples.

    Empty when the pair is a share of the peak as it stands, or there is no pair.
    """
    counters = opened.metrics.counters
    totals = dict(zip(counters, samples.values.sum(axis=0).tolist(), strict=True))
    for metric in opened.metrics.metrics:
        denominator = metric.asked.partition("/")[2]
        if metric.plain or metric.elapsed == TIME or not is_elapsed(denominator) or not totals.get(denominator):
            continue
        clocks = totals[metric.elapsed] / totals[denominator]
        if metric.peak == 1 and abs(clocks - 1) < MOST_RATIO_OFF:
            continue
        own, other = (str(opened.facts.get("clocks", {}).get(n, "its own")) for n in (metric.elapsed, denominator))
        return (
            f"shown is {metric.label} as percent of its own peak ({metric.peak:g} a cycle) in its own clock; the plain "
            f"quotient, which --raw shows, is {metric.peak * clocks:.2f} times that ({clocks:.2f} {own} to a {other})"
        )
    return ""
