"""Ceilings against what an H200 reached: one weight matrix after another, from GEMV to GEMM.

A figure that is possible must bound what was done, and where a unit was nearly full, what was done must be that unit's
share of the ceiling: then FLOP, bytes and peaks are those of the hardware.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cufall_py.analysis.ceiling import MEMORY, Serving, ceiling, work
from cufall_py.analysis.models import plain_model
from cufall_py.peaks import peaks_of

from .measure import Loads, Sampling, Wanted, note

pytestmark = pytest.mark.gpu
LINEAR = 8192
NEARLY_FULL = 0.8


@pytest.fixture(scope="module")
def wide(loads: Loads) -> Iterator[Sampling]:
    with Sampling(wanted=Wanted(("tensor", "sm", "gr", "dram")), sample_us=1000) as sampling:
        yield sampling


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
def test_what_is_possible_bounds_what_was_done(wide: Sampling, loads: Loads, batch: int) -> None:
    device = wide.session.gpus[0].device
    peaks = peaks_of(device.name)
    if not peaks:
        pytest.skip(f"no data sheet of {device.name} is known")
    answer = loads.run("linear", batch, 1.0)
    found = wide.within(answer)
    mhz = 1e3 * found.totals[wide.metrics.metrics[0].elapsed] / found.covered_ns
    of = ceiling(work(plain_model(LINEAR**2, 2), Serving(batch)), peaks, device.sm_count, mhz)
    a_second = answer["launches"] / (answer["end_ns"] - answer["start_ns"]) * 1e9
    peak = peaks.flop_per_cycle("bf16") * device.sm_count * mhz * 1e6
    useful, busy = 2 * LINEAR**2 * batch * a_second / peak, found.ratio("dram" if of.limit == MEMORY else "tensor")
    figures = {name: found.percent(name) for name in ("tensor", "gr", "dram")}
    note(f"ceiling {batch}", ceiling=of.ratio, limit=of.limit, useful=useful, mhz=mhz, **figures)
    assert useful <= 1.02 * of.ratio
    if busy > NEARLY_FULL:
        assert useful == pytest.approx(of.ratio * busy, rel=0.1)
