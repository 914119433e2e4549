"""A made-up GPU behind both protocols of verify: what it does is counted, sample by sample, unless a fault is set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from cufall_py.errors import SourceError, Unsupported
from cufall_py.metrics import Metric, MetricSet
from cufall_py.resolve import Wanted, resolve
from cufall_py.samples import Samples
from cufall_py.verify.checks import Counted, counted
from cufall_py.verify.loads import Card, Ran
from tests.helpers import MS, SECOND

HZ, BYTES_S = 1.98e9, 3.0e12
CYCLES = {"bf16": 8, "fp16": 8, "int8": 8, "fp8": 4}
"""Tensor cycles of an mma."""
H200 = Card(0, "GPU-1", "NVIDIA H200", (9, 0), 132, 60 << 20, 13000, blocks=264, warps=8)
PEAKS = {
    "sm__pipe_tensor_cycles_active_realtime.avg": 4.0,
    "sm__pipe_tensor_op_hmma_cycles_active_realtime.avg": 4.0,
    "sm__pipe_tensor_op_imma_cycles_active_realtime.avg": 4.0,
    "sm__cycles_active.avg": 1.0,
    "gr__cycles_active.avg": 1.0,
    "dram__bytes_read.sum": 1800.0,
    "sm__inst_executed_pipe_fmaheavy_realtime.sum": 264.0,
    "sm__inst_executed_pipe_fmalite_realtime.sum": 264.0,
}
GPM = {"tensor": "NVML_GPM_METRIC_ANY_TENSOR_UTIL", "dram": "NVML_GPM_METRIC_DRAM_BW_UTIL"}


@dataclass
class SimulatedGpu:
    """`wrong`: by counter, a factor on what it counts. `refuses`: metrics that cannot be sampled, with why. `strays`:
    tensor cycles a second of somebody else. `lost`: the share of samples that do not come. `slows`: by how much
    sampling slows work."""

    card: Card = H200
    wrong: dict[str, float] = field(default_factory=dict)
    refuses: dict[str, str] = field(default_factory=dict)
    strays: float = 0.0
    lost: float = 0.0
    slows: float = 1.0
    gpm: bool = True
    chip: str = "GH100"
    now_ns: int = 1_796_000_000 * SECOND
    done: list[tuple[int, int, dict[str, float]]] = field(default_factory=list)
    """Start, end, and events of each name in a nanosecond."""
    sampled: int = 0
    closed: bool = False

    # Loads

    def run(self, kernel: str, count: int, launches: int) -> Ran:
        events, seconds = self._work(kernel, count)
        return self._did(kernel, count, launches, {k: v * launches for k, v in events.items()}, seconds * launches)

    def rest(self, seconds: float) -> Ran:
        return self._did("rest", int(seconds * 1000), 1, {}, seconds)

    def close(self) -> None:
        self.closed = True

    def _work(self, kernel: str, count: int) -> tuple[dict[str, float], float]:
        """Events of a launch, of the whole GPU, and how long it takes."""
        warps = self.card.blocks * self.card.warps
        if kernel == "spin":
            return {"sm": 1024.0 * count * self.card.sms}, 1024 * count / HZ
        if kernel == "copy":
            return {"read": float(count), "written": float(count)}, 2 * count / BYTES_S
        if kernel == "fma":
            seconds = 32 * count * warps / (4 * self.card.sms * HZ)
            return {"fma": 32.0 * count * warps, "sm": seconds * HZ * self.card.sms}, seconds
        cycles = 8.0 * count * warps * CYCLES[kernel]
        seconds = cycles / (4 * self.card.sms * HZ) / 0.95
        kind = "imma" if kernel == "int8" else "hmma"
        return {"tensor": cycles, kind: cycles, "sm": seconds * HZ * self.card.sms}, seconds

    def _did(self, kernel: str, count: int, launches: int, events: dict[str, float], seconds: float) -> Ran:
        start_ns = self.now_ns + 20 * MS
        end_ns = start_ns + round(seconds * SECOND * (self.slows if self.sampled and kernel != "spin" else 1.0))
        active = {} if kernel == "rest" else {"gr": HZ / 1e9}
        self.done.append((start_ns, end_ns, {k: v / (end_ns - start_ns) for k, v in events.items()} | active))
        self.now_ns = end_ns + 20 * MS
        return Ran(kernel, count, launches, start_ns, end_ns)

    # Counting

    @contextmanager
    def sampling(self, metrics: Sequence[str], source: str = "cupti") -> Iterator[SimulatedCounter]:
        if source == "gpm" and not self.gpm:
            raise Unsupported("GPU 0 (NVIDIA A100) has no NVML GPM: it begins with Hopper")
        for name in metrics:
            if name in self.refuses:
                raise SourceError(self.refuses[name])
        self.sampled += 1
        try:
            yield SimulatedCounter(self, self._set(metrics, source), source == "gpm")
        finally:
            self.sampled -= 1

    def _set(self, metrics: Sequence[str], source: str) -> MetricSet:
        if source == "gpm":
            made = tuple(Metric(n, n, (GPM[n],), "time", peak=100.0, rate=True) for n in metrics)
            return MetricSet(tuple(GPM[n] for n in metrics), made)
        return resolve(Wanted(tuple(metrics)), self.chip).with_peaks(PEAKS)

    def rate(self, counter: str, at: dict[str, float]) -> float:
        """What a counter counts in a nanosecond in which this is done."""
        sms, tensor = self.card.sms, at.get("tensor", 0.0) + self.strays / 1e9
        rates = {
            "sm__pipe_tensor_cycles_active_realtime.avg": tensor / sms,
            "sm__pipe_tensor_op_hmma_cycles_active_realtime.avg": at.get("hmma", 0.0) / sms,
            "sm__pipe_tensor_op_imma_cycles_active_realtime.avg": at.get("imma", 0.0) / sms,
            "sm__cycles_active.avg": at.get("sm", 0.0) / sms,
            "gr__cycles_active.avg": at.get("gr", 0.0),
            "dram__bytes_read.sum": at.get("read", 0.0),
            "dram__bytes_write.sum": at.get("written", 0.0),
            "dram__cycles_elapsed.avg": 3.2,
            "sm__inst_executed_pipe_fmaheavy_realtime.sum": at.get("fma", 0.0) / 2,
            "sm__inst_executed_pipe_fmalite_realtime.sum": at.get("fma", 0.0) / 2,
            GPM["tensor"]: 100 * tensor / (4 * sms * HZ / 1e9),
            GPM["dram"]: 100 * (at.get("read", 0.0) + at.get("written", 0.0)) / (1800 * 3.2),
        }
        return rates.get(counter, HZ / 1e9) * self.wrong.get(counter, 1.0)


class SimulatedCounter:
    """Samples of 1 ms (GPM: 100 ms) on multiples of their length."""

    def __init__(self, gpu: SimulatedGpu, metrics: MetricSet, gpm: bool) -> None:
        self._gpu, self._metrics, self._gpm = gpu, metrics, gpm
        self._period_ns = 100 * MS if gpm else MS

    def over(self, start_ns: int, end_ns: int) -> Counted:
        period_ns = self._period_ns
        edges = np.arange(start_ns // period_ns, -(-end_ns // period_ns) + 1, dtype=np.int64) * period_ns
        samples = Samples(edges[:-1], edges[1:], self._values(edges))
        kept = np.arange(len(edges) - 1) % 1000 >= 1000 * self._gpu.lost
        return counted(samples[kept] if self._gpu.lost else samples, self._metrics, start_ns, end_ns)

    def _values(self, edges: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        """Each counter's events between the edges; of GPM, its mean."""
        length = edges[1:] - edges[:-1]
        nothing = [self._gpu.rate(counter, {}) for counter in self._metrics.counters]
        values = np.outer(length, nothing)
        for start_ns, end_ns, at in self._gpu.done:
            inside = np.clip(np.minimum(edges[1:], end_ns) - np.maximum(edges[:-1], start_ns), 0, None)
            more = [self._gpu.rate(counter, at) for counter in self._metrics.counters]
            values += np.outer(inside, np.array(more) - nothing)
        return values / length[:, None] if self._gpm else values
