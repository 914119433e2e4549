"""How busy the tensor pipe was, how busy it could have been, and why not: of each region and GPU of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .analysis.ceiling import Gap, Serving, Work, ceiling, ceiling_of_counters, gap, work
from .analysis.models import Model
from .analysis.statistics import Row
from .peaks import Peaks, peaks_of
from .report import Report

METRICS = ("tensor", "gr", "dram")
"""What is compared, and what tells what fills the gap."""
BY_COUNTERS, BY_MODEL = "counters", "model"
NAN = float("nan")


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
    BY_MODEL. `mhz`: the SM clock it is of, that of the data sheet unless `clock_measured`; NaN by counters, which need
    none. `why`: why there is no ceiling."""

    region: str
    gpu: int
    by: str
    gap: Gap
    mhz: float = NAN
    clock_measured: bool = False
    why: str = ""


def headrooms(report: Report, question: Question) -> list[Headroom]:
    """By counters, then by the model if there is one, of each region (everything first) and GPU."""
    found: list[Headroom] = []
    for scope in report.summary.scopes:
        for k, row in enumerate(scope.rows):
            found += _of_row(report, question, scope.name, k, row)
    return found


def _of_row(report: Report, question: Question, region: str, k: int, row: Row) -> Iterator[Headroom]:
    means = dict(zip(report.summary.metrics, (of.mean for of in row.metrics), strict=True))
    tensor, active, memory = (means.get(name, NAN) for name in METRICS)
    device = report.opened[k].device
    of_counters = ceiling_of_counters(tensor, memory)
    lacking = [name for name in ("tensor", "dram") if math.isnan(means.get(name, NAN))]
    why = f"{' and '.join(lacking)} not measured" if lacking else ""
    yield Headroom(region, device.ordinal, BY_COUNTERS, gap(tensor, active, memory, of_counters), why=why)
    if not question.work:
        return
    peaks = peaks_of(device.name)
    if peaks is None:
        nothing = gap(tensor, active, memory, ceiling_of_counters(NAN, NAN))
        yield Headroom(region, device.ordinal, BY_MODEL, nothing, why=f"no data sheet of {device.name} is known")
        return
    mhz, measured = _clock(row, peaks)
    of_model = ceiling(question.work, peaks, device.sm_count or peaks.sms, mhz)
    yield Headroom(region, device.ordinal, BY_MODEL, gap(tensor, active, memory, of_model), mhz, measured)


def _clock(row: Row, peaks: Peaks) -> tuple[float, bool]:
    """The SM clock that was measured there, else that of the data sheet."""
    return (row.sm_mhz, True) if row.sm_mhz > 0 else (peaks.mhz, False)
