"""How busy the tensor pipe was, how busy it could have been, and why not: of each region and GPU of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .analysis.ceiling import Gap, Serving, Work, ceiling, gap, of_times, work
from .analysis.models import Model
from .analysis.statistics import Row
from .peaks import Peaks, peaks_of
from .report import Report

METRICS = ("tensor", "gr", "dram")
"""What is compared, and what tells what fills the gap."""
BY_COUNTERS, BY_MODEL = "counters", "model"
CLOCK_COUNTED, CLOCK_READ, CLOCK_STATED = "counters", "NVML", "data sheet"
SM_CLOCK = "sm__cycles_elapsed"


@dataclass(frozen=True)
class Question:
    """What is asked of a report: what its counters alone allow, and of a model what it allows as it is served."""

    model: Model | None = None
    serving: Serving = Serving()

    @property
    def work(self) -> Work | None:
        """Of one step, on one GPU."""
        return work(self.model, self.serving) if self.model else None


@dataclass(frozen=True)
class Headroom:
    """Of one region and GPU (its CUDA ordinal). `by`: BY_COUNTERS, what its own instructions and bytes allow, or
    BY_MODEL. `mhz`: the SM clock it is of, and `clock`: by what that is known; NaN by counters, which need none.
    `bytes_per_s` of device memory, as counted. `why`: why there is no ceiling."""

    region: str
    gpu: int
    by: str
    gap: Gap
    mhz: float = math.nan
    clock: str = ""
    bytes_per_s: float = math.nan
    why: str = ""


def headrooms(report: Report, question: Question) -> list[Headroom]:
    """By counters, then by the model if there is one, of each region (everything first) and GPU.

    A region of which nothing lies in the part that is reported has none.
    """
    found: list[Headroom] = []
    for scope in report.summary.scopes:
        if scope.name and not any(row.samples for row in scope.rows):
            continue
        for k, row in enumerate(scope.rows):
            found += _of_row(report, question, scope.name, k, row)
    return found


def told(report: Report, question: Question) -> list[Headroom]:
    """The same for a person."""
    return report.once(headrooms(report, question), lambda of: of.region)


def _of_row(report: Report, question: Question, region: str, k: int, row: Row) -> Iterator[Headroom]:
    found = dict(zip(report.summary.metrics, row.metrics, strict=True))
    tensor, active, memory = (found[name].mean if name in found else math.nan for name in METRICS)
    device, bytes_per_s = report.opened[k].device, found["dram"].counted_per_s if "dram" in found else math.nan
    lacking = [name for name, share in (("tensor", tensor), ("dram", memory)) if math.isnan(share)]
    why = f"{' and '.join(lacking)} not measured" if lacking else ""
    by_counters = gap(tensor, active, memory, of_times(tensor, memory))
    yield Headroom(region, device.ordinal, BY_COUNTERS, by_counters, bytes_per_s=bytes_per_s, why=why)
    if not question.work:
        return
    peaks = peaks_of(device.name)
    if peaks is None:
        nothing = gap(tensor, active, memory, of_times(math.nan, math.nan))
        yield Headroom(region, device.ordinal, BY_MODEL, nothing, why=f"no data sheet of {device.name} is known")
        return
    mhz, clock = _clock(report, k, row, peaks)
    of_model = ceiling(question.work, peaks, device.sm_count or peaks.sms, mhz)
    by_model = gap(tensor, active, memory, of_model)
    yield Headroom(region, device.ordinal, BY_MODEL, by_model, mhz, clock, bytes_per_s)


def _clock(report: Report, k: int, row: Row, peaks: Peaks) -> tuple[float, str]:
    """The SM clock there: that of the cycles that were counted, else NVML's, else the data sheet's."""
    for metric, of in zip(report.opened[k].metrics.metrics, row.metrics, strict=True):
        if SM_CLOCK in metric.elapsed and of.elapsed_per_s > 0:
            return of.elapsed_per_s / 1e6, CLOCK_COUNTED
    return (row.sm_mhz, CLOCK_READ) if row.sm_mhz > 0 else (peaks.mhz, CLOCK_STATED)
