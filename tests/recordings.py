"""Recordings made by hand for tests: GPUs whose every counter is known, with regions and gaps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cufall_py.metrics import Metric, MetricSet
from cufall_py.plan import Plan
from cufall_py.recording import RecordingWriter
from cufall_py.resolve import Wanted, resolve
from cufall_py.samples import Samples
from cufall_py.sources import Opened
from cufall_py.sources.script import peak, rate
from tests.helpers import EPOCH, GR_ELAPSED, MS, SECOND, SM_ELAPSED, TENSOR, gpu, metric

REALTIME = "sm__pipe_tensor_cycles_active_realtime.avg"
SM_HZ, SYS_HZ = 2.0, 1.0
"""Cycles a nanosecond."""


def counters(tensor: str = TENSOR) -> MetricSet:
    """Columns: tensor cycles, SM cycles, SYS cycles, as the demo has them; the metric is `tensor`, of a peak of 4."""
    gr = Metric("gr", "gr", (), "time", peak=1.0)
    return MetricSet((tensor, SM_ELAPSED, GR_ELAPSED), (metric(counter=tensor), gr))


def opened(
    ordinal: int = 0, metrics: MetricSet | None = None, chip: str = "GH100", peaks: dict[str, float] | None = None
) -> Opened:
    facts = {"clocks": {SM_ELAPSED: "gpc_cycle", GR_ELAPSED: "sys_cycle"}, "peaks": peaks or {}}
    return Opened(gpu(ordinal).of_chip(chip), metrics or counters(), MS, "time", "script", (), facts)


def busy(start_ns: int, ratios: Sequence[float], period_ns: int = MS) -> Samples:
    """Samples of `counters()` that join, each at a ratio of the tensor pipe's peak."""
    edges = start_ns + period_ns * np.arange(len(ratios) + 1, dtype=np.int64)
    sm = SM_HZ * period_ns
    values = [[4 * ratio * sm, sm, SYS_HZ * period_ns] for ratio in ratios]
    return Samples(edges[:-1], edges[1:], np.array(values))


def writer(path: Path, gpus: Sequence[Opened]) -> RecordingWriter:
    """One that takes no time of its own: all that is in the file is what the test puts there."""
    return RecordingWriter(path, gpus, Plan(), live=False, now_ns=lambda: EPOCH, monotonic_ns=lambda: 0)


def region(out: RecordingWriter, name: str, start_ns: int, end_ns: int | None, text: str = "") -> None:
    """A region; without an end it stays open."""
    out.event("region_begin", start_ns=start_ns, name=name, text=text)
    if end_ns is not None:
        out.event("region_end", start_ns=end_ns, name=name)


def phases(path: Path, gpus: int = 1, seconds: int = 1) -> Path:
    """Each GPU in three phases of so many seconds: `idle` 0, `busy` 0.5, `idle` again; `all` holds the last two."""
    length = seconds * SECOND
    with writer(path, [opened(k) for k in range(gpus)]) as out:
        region(out, "idle", EPOCH, EPOCH + length, "nothing runs")
        region(out, "busy", EPOCH + length, EPOCH + 2 * length, "half of the peak")
        region(out, "all", EPOCH + length, EPOCH + 3 * length)
        region(out, "idle", EPOCH + 2 * length, EPOCH + 3 * length, "nothing runs again")
        for k, ratio in enumerate((0.0, 0.5, 0.0)):
            for each in range(gpus):
                out.add(each, busy(EPOCH + k * length, [ratio] * (1000 * seconds)))
    return path


def known_metrics(names: Sequence[str], chip: str) -> MetricSet:
    """Short names as a scripted GPU of this chip counts them."""
    metrics = resolve(Wanted(tuple(names)), chip)
    return metrics.with_peaks({name: peak(name) for name in metrics.unknown_peaks()})


def doing(metrics: MetricSet, shares: dict[str, float], start_ns: int, milliseconds: int, chip: str) -> Samples:
    """Samples of 1 ms of a GPU that does one thing: shares by short name, `launches` a second."""
    edges = start_ns + MS * np.arange(milliseconds + 1, dtype=np.int64)
    row = [rate(counter, shares, chip) / 1000 for counter in metrics.counters]
    return Samples(edges[:-1], edges[1:], np.array([row] * milliseconds))


def working(
    path: Path, phases: Sequence[tuple[str, dict[str, float]]], names: Sequence[str], chip: str = "GH100"
) -> Path:
    """A GPU that does one thing after another, a second each, each a region; `names` are recorded of it."""
    metrics = known_metrics(names, chip)
    with writer(path, [opened(metrics=metrics, chip=chip)]) as out:
        for k, (name, shares) in enumerate(phases):
            region(out, name, EPOCH + k * SECOND, EPOCH + (k + 1) * SECOND)
            out.add(0, doing(metrics, shares, EPOCH + k * SECOND, 1000, chip))
    return path


def side_by_side(
    path: Path,
    patterns: Sequence[Sequence[tuple[int, dict[str, float]]]],
    times: int,
    names: Sequence[str],
    chip: str = "GH100",
) -> Path:
    """A GPU for each pattern, of milliseconds and what is done in them, again and again so many times."""
    metrics = known_metrics(names, chip)
    with writer(path, [opened(k, metrics, chip) for k in range(len(patterns))]) as out:
        for gpu, pattern in enumerate(patterns):
            at_ns = EPOCH
            for milliseconds, shares in [*pattern] * times:
                out.add(gpu, doing(metrics, shares, at_ns, milliseconds, chip))
                at_ns += milliseconds * MS
    return path
