"""What several tests build: metric sets, samples and GPUs, all made up here and none of it computed by cufall."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from cufall_py.devices import Device
from cufall_py.metrics import Metric, MetricSet
from cufall_py.samples import Samples

DATA = Path(__file__).parent / "data"
TENSOR, SM_ELAPSED, GR_ELAPSED = "sm__pipe_tensor_cycles_active.avg", "sm__cycles_elapsed.avg", "gr__cycles_elapsed.max"
MS, SECOND = 1_000_000, 1_000_000_000
EPOCH = 1_796_000_000 * SECOND
"""A time of the sizes that occur (November 2026), on a multiple of every frame length used in tests."""


def metric(
    label: str = "tensor", counter: str = TENSOR, elapsed: str = SM_ELAPSED, peak: float = 4.0, **more: object
) -> Metric:
    return Metric(label, label, (counter,), elapsed, (counter,), peak, **more)  # type: ignore[arg-type]


def tensor_set(peak: float = 4.0) -> MetricSet:
    """Columns: tensor cycles, elapsed cycles. The metric is their quotient by `peak`."""
    return MetricSet((TENSOR, SM_ELAPSED), (metric(peak=peak),))


def unbounded_set() -> MetricSet:
    """Columns: a, b. The metric is a / b, whatever it comes to."""
    return MetricSet(("a", "b"), (Metric("a", "a/b", ("a",), "b", peak=1.0, bounded=False, plain=True),))


def samples(start_ns: Sequence[int], end_ns: Sequence[int], values: Sequence[Sequence[float]]) -> Samples:
    return Samples(np.array(start_ns, np.int64), np.array(end_ns, np.int64), np.array(values, np.float64))


def joined(start_ns: int, period_ns: int, values: Sequence[Sequence[float]]) -> Samples:
    """Samples of one length, each beginning where the one before ended."""
    edges = start_ns + period_ns * np.arange(len(values) + 1, dtype=np.int64)
    return Samples(edges[:-1], edges[1:], np.array(values, np.float64))


def steady(start_ns: int, period_ns: int, count: int, ratio: float) -> Samples:
    """`count` samples of `tensor_set()`, each at `ratio` of the peak of a clock of 1 GHz."""
    return joined(start_ns, period_ns, [[4.0 * ratio * period_ns, float(period_ns)]] * count)


def gpu(ordinal: int = 0, uuid: str = "") -> Device:
    return Device(ordinal, uuid or f"GPU-{ordinal:08x}-0000-0000-0000-000000000000", "Made-up GPU")


def lacking(what: str) -> NoReturn:
    """Skip for want of something outside this project; where all must run (CUFALL_TEST_ALL=1), fail."""
    if os.environ.get("CUFALL_TEST_ALL") == "1":
        pytest.fail(what)
    pytest.skip(what)
