"""Whether runs are alike enough to be compared: the same GPU, metric and sample, and clocks that ran alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from cufall_py.readings import Reading

from .limits import OF_SAMPLES, Limit
from .series import GpuRun, Sides

CLOCKS_APART, THROTTLED_APART, PERIODS_APART = 0.02, 0.05, 0.02
"""Two shares of the base, and between them one of the time: what is further apart is another measurement."""


def differences(sides: Sides, limits: Sequence[Limit]) -> list[str]:
    """Why these runs cannot be compared, each in words; empty if they can. What is not known does not differ."""
    gpus = {gpu for run in sides.runs for gpu in run.gpus}
    found = [f"g{gpu} is not in all recordings" for gpu in sorted(gpus - set(sides.gpus))]
    if len({run.of_command for run in sides.runs}) > 1:
        found.append("only some recordings have the region command, which is the whole run")
    of_samples = any(limit.statistic in OF_SAMPLES for limit in limits)
    for gpu in sides.gpus:
        found += [f"g{gpu} has no samples in {run.path}" for run in sides.runs if not run.gpus[gpu].statistics]
        one, other = ([run.gpus[gpu] for run in side] for side in (sides.base, sides.new))
        told = [*_kinds(one + other), *(_periods(one + other) if of_samples else ()), *_conditions(one, other)]
        found += [f"g{gpu}: {what}" for what in told]
    return found


def _kinds(runs: Sequence[GpuRun]) -> Iterator[str]:
    if len(names := _unlike(run.name for run in runs)) > 1:
        yield f"the GPU is {' and '.join(names)}"
    for label in runs[0].metrics:
        formulas = _unlike(run.metrics[label].formula for run in runs if label in run.metrics)
        if len(formulas) > 1:
            yield f"{label} is {' and '.join(text or 'not measured' for text in formulas)}"
    if len({run.of_active_time for run in runs}) > 1:
        yield "only some recordings tell when it was active (gr or sm)"


def _periods(runs: Sequence[GpuRun]) -> Iterator[str]:
    periods = [period_ns for run in runs for period_ns in run.periods_ns if not math.isnan(period_ns)]
    if periods and max(periods) > (1 + PERIODS_APART) * min(periods):
        yield f"samples are {min(periods) / 1e6:g} and {max(periods) / 1e6:g} ms long"


def _conditions(base: Sequence[GpuRun], new: Sequence[GpuRun]) -> Iterator[str]:
    before, after = (float(np.mean([run.conditions.sm_mhz for run in side])) for side in (base, new))
    if abs(after - before) > CLOCKS_APART * before:
        yield f"the SM clock is {before:.0f} and {after:.0f} MHz"
    before, after = (float(np.mean([run.conditions.throttled for run in side])) for side in (base, new))
    if abs(after - before) > THROTTLED_APART:
        bits = int(np.bitwise_or.reduce([run.conditions.reasons for run in (*base, *new)]))
        words = ", ".join(Reading(reasons=bits).reason_words or ())
        yield f"clocks were held back {100 * before:.0f} % and {100 * after:.0f} % of the time ({words})"


def _unlike(words: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(words))
