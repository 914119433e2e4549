"""NVML GPM: utilisations that the driver itself measures, where the counters cannot be had.

From Hopper on, it needs no permission and has no owner, but it renews its totals only ten times a second. So they are
looked at more than five times as often; two looks with a renewal between them give one period's mean.
(`docs/gpm.md` has what was measured.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from cufall_py.devices import Device, cuda_devices
from cufall_py.errors import SourceError, Unsupported
from cufall_py.metrics import TIME, Metric, MetricSet
from cufall_py.plan import Plan
from cufall_py.resolve import Wanted, absent
from cufall_py.samples import Samples, Tally

from . import Opened

PERIOD_NS = 100_000_000
"""How often the driver renews its totals."""
LOOK_NS = 19_000_000
"""How often they are looked at. No divisor of the period: looks fall into it elsewhere each time, and close in on when
it ends (`renewal`)."""
BEHIND_NS = 50_000_000
"""How long before it shows the period that it closes has ended: 20, 36 and 70 ms were read (docs/gpm.md)."""
FIRST_S = 1.0
"""How long the first renewal may take."""
PREFIX = "NVML_GPM_METRIC_"
RENEWED = "DRAM_BW_UTIL"
"""Is no number while nothing has been renewed: no time has passed by its clock. The others read 0, as if idle."""
GIVES: dict[str, str] = {
    "tensor": "ANY_TENSOR_UTIL",
    "sm": "SM_UTIL",
    "gr": "GRAPHICS_UTIL",
    "dram": "DRAM_BW_UTIL",
    "occupancy": "SM_OCCUPANCY",
    "tensor.hmma": "HMMA_TENSOR_UTIL",
    "tensor.imma": "IMMA_TENSOR_UTIL",
    "tensor.dmma": "DFMA_TENSOR_UTIL",
}
"""Short names to NVML's: those that agree with the counters (docs/accuracy.md)."""
SAME_AS = {
    "sm__pipe_tensor_cycles_active.avg": "tensor",
    "sm__pipe_tensor_cycles_active_realtime.avg": "tensor",
    "sm__cycles_active.avg": "sm",
    "gr__cycles_active.avg": "gr",
}
"""Counters whose share of their own peak a short name is."""


class Gpm(Protocol):
    """NVML's GPM of one GPU: two looks at its totals, an earlier and a later one. Every method raises SourceError."""

    def open(self) -> None:
        """Look for the first time. Raises Unsupported where the GPU or the driver has no GPM."""

    def look(self) -> None:
        """Take the later look anew."""

    def since(self, names: Sequence[str]) -> list[float]:
        """Percent of each between the two looks; NaN for one that NVML does not give."""

    def keep(self) -> None:
        """The later look is the earlier one from now on."""

    def close(self) -> None: ...


class GpmProvider:
    """GPUs as CUDA shows them, each sampled over NVML's GPM."""

    def prepare(self) -> None:
        pass

    def devices(self) -> list[Device]:
        return cuda_devices()

    def source(self, device: Device, plan: Plan) -> GpmSource:
        return GpmSource(device, plan, BoundGpm(device))

    def passes(self, device: Device) -> None:
        return None


class GpmSource:
    """GPM's means of one GPU, a sample a renewal."""

    decode_ns = LOOK_NS

    def __init__(self, device: Device, plan: Plan, gpm: Gpm, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.device, self.plan, self.tally = device, plan, Tally()
        self._gpm, self._now_ns = gpm, now_ns
        self._looked_ns = self._renewed_ns = 0

    def open(self) -> Opened:
        metrics = gpm_set(self.plan.wanted)
        self._gpm.open()
        self._looked_ns = self._now_ns()
        first = self._first(metrics)
        lacking = [name for name, value in zip(metrics.counters, first, strict=True) if value != value]
        self._metrics = metrics.without(lacking)
        if not self._metrics.counters:
            raise Unsupported(
                f"GPU {self.device.ordinal}: NVML GPM gives no {', '.join(self.plan.wanted.metrics)} here"
            )
        notes = [f"left out {', '.join(lacking)}: NVML does not give it here"] if lacking else []
        return Opened(self.device, self._metrics, PERIOD_NS, "time", "gpm", notes=tuple(notes))

    def read(self) -> Samples:
        """One sample if the totals have been renewed, else none."""
        nothing = Samples.empty(len(self._metrics.counters))
        found = self._look(self._metrics.counters)
        if found is None:
            return nothing
        start_ns, end_ns, values = found
        return Samples(np.array([start_ns]), np.array([end_ns]), np.array([values]))

    def close(self) -> None:
        self._gpm.close()

    def _first(self, metrics: MetricSet) -> list[float]:
        """Wait for two renewals: from the first on it is known where periods begin, the second shows what is given."""
        until = time.monotonic() + FIRST_S
        while time.monotonic() < until:
            time.sleep(LOOK_NS / 1e9)
            found = self._look(metrics.counters)
            if found and found[0]:
                return found[2]
        raise Unsupported(f"GPU {self.device.ordinal} ({self.device.name}): NVML GPM has not renewed its totals")

    def _look(self, counters: Sequence[str]) -> tuple[int, int, list[float]] | None:
        """Start, end and means of what was renewed since the last renewal; None if nothing was."""
        before_ns, self._looked_ns = self._looked_ns, self._now_ns()
        self._gpm.look()
        renewed, *values = self._gpm.since([PREFIX + RENEWED, *counters])
        if renewed != renewed:
            return None
        self._gpm.keep()
        last_ns, self._renewed_ns = self._renewed_ns, renewal(self._renewed_ns, before_ns, self._looked_ns)
        return max(0, last_ns - BEHIND_NS), self._renewed_ns - BEHIND_NS, values


def renewal(last_ns: int, before_ns: int, after_ns: int) -> int:
    """When totals were renewed that had not been at `before_ns` and had at `after_ns`, the last time at `last_ns`
    (0: not known): whole periods after that, as far as the two looks allow."""
    middle_ns = (before_ns + after_ns) // 2
    if not last_ns:
        return middle_ns
    periods = max(1, round((middle_ns - last_ns) / PERIOD_NS))
    return min(max(last_ns + periods * PERIOD_NS, before_ns), after_ns)


def gpm_set(wanted: Wanted) -> MetricSet:
    """The metrics that were asked for as GPM gives them. Raises Unsupported for one that it cannot."""
    metrics = tuple(_metric(name, wanted) for name in dict.fromkeys(wanted.metrics))
    return MetricSet(tuple(dict.fromkeys(name for m in metrics for name in m.counters)), metrics)


def _metric(name: str, wanted: Wanted) -> Metric:
    given = GIVES.get(SAME_AS.get(name, name))
    if given is None and name in wanted.optional:
        return absent(name)
    if given is None:
        raise Unsupported(f"NVML GPM cannot give {name}; it gives {', '.join(GIVES)}")
    if wanted.raw or wanted.full_scale:
        raise Unsupported("NVML GPM gives percents alone: neither --raw nor --full-scale can be made of them")
    asked = f"{name}/{wanted.denominator}" if name in SAME_AS and wanted.denominator else name
    return Metric(name, asked, (PREFIX + given,), TIME, peak=100.0, rate=True)


class BoundGpm:
    """GPM over nvidia-ml-py, imported when first opened."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._looks: list[Any] = []

    def open(self) -> None:
        import pynvml

        self._nvml = pynvml
        self._call(pynvml.nvmlInit)
        self._handle = self._call(pynvml.nvmlDeviceGetHandleByUUID, self._device.uuid)
        if not self._call(pynvml.nvmlGpmQueryDeviceSupport, self._handle).isSupportedDevice:
            raise Unsupported(f"{self._gpu()} has no NVML GPM: it begins with Hopper")
        self._looks = [self._call(pynvml.nvmlGpmSampleAlloc) for _ in range(2)]
        self._question = pynvml.c_nvmlGpmMetricsGet_t()
        self._question.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._call(pynvml.nvmlGpmSampleGet, self._handle, self._looks[0])

    def look(self) -> None:
        self._call(self._nvml.nvmlGpmSampleGet, self._handle, self._looks[1])

    def since(self, names: Sequence[str]) -> list[float]:
        question, entries = self._question, self._question.metrics
        question.sample1, question.sample2 = self._looks
        question.numMetrics = len(names)
        for k, name in enumerate(names):
            entries[k].metricId = getattr(self._nvml, name)
        self._call(self._nvml.nvmlGpmMetricsGet, question)
        return [entries[k].value if entries[k].nvmlReturn == 0 else float("nan") for k in range(len(names))]

    def keep(self) -> None:
        self._looks.reverse()

    def close(self) -> None:
        looks, self._looks = self._looks, []
        for look in looks:
            self._call(self._nvml.nvmlGpmSampleFree, look)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound) as error:
            raise Unsupported(f"{self._gpu()} has no NVML GPM: {error}") from None
        except self._nvml.NVMLError as error:
            raise SourceError(f"{self._gpu()}: NVML GPM: {error}") from None

    def _gpu(self) -> str:
        return f"GPU {self._device.ordinal} ({self._device.name})"
