"""What every part of run.py needs: where samples come from, how long it may take, loads and the floor."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from clocks import Nvml
from floor import CuptiFloor, Floor, NoFloor
from harness import GpuLoads, Loads, NoLoads, cufall

from cufall_py.devices import Device
from cufall_py.plan import Plan
from cufall_py.resolve import Wanted
from cufall_py.session import LiveSession

Figures = dict[str, Any]
PLAIN, REALTIME = "sm__pipe_tensor_cycles_active.avg", "sm__pipe_tensor_cycles_active_realtime.avg"
ELAPSED = "sm__cycles_elapsed.avg"
FLOOR_BUFFER_MB = 256
GEMM = ("bf16", 8192)


@dataclass
class Bench:
    """Loads, floor and NVML start when they are first asked for."""

    source: str = "cupti"
    seconds: float = 300.0
    """How long the run at 1 kHz takes."""
    blocks: int = 12
    """On-blocks of each load of `target`."""
    counters: tuple[str, ...] = (PLAIN, REALTIME)
    """Of `worker_cpu`."""
    keep: Callable[[str, Figures], None] = lambda name, figures: None
    """Takes what a part has so far, in case it is cut short."""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="cufall-bench-")))

    @property
    def real(self) -> bool:
        """Whether a GPU is measured; otherwise a script plays it."""
        return self.source == "cupti"

    @cached_property
    def loads(self) -> Loads:
        return GpuLoads() if self.real else NoLoads()

    @cached_property
    def floor(self) -> Floor:
        return CuptiFloor(self.folder) if self.real else NoFloor()

    @cached_property
    def nvml(self) -> Nvml | None:
        return Nvml(self.device.uuid) if self.real else None

    @cached_property
    def device(self) -> Device:
        """The GPU that is measured."""
        with LiveSession(self.plan()) as session:
            return session.gpus[0].device

    def plan(self, **options: Any) -> Plan:
        return Plan(**{"source": self.source, "devices": "0", **options})

    def plan_of_floor(self, counter: str, sample_us: int, decode_us: int, **options: Any) -> Plan:
        """What the floor does with this counter beside ELAPSED; a frame a decode."""
        periods = {"sample_us": sample_us, "decode_us": decode_us, "frame_us": decode_us}
        return self.plan(wanted=Wanted((counter,)), **{**periods, "hw_buffer_mb": FLOOR_BUFFER_MB, **options})

    def start(self, *args: str, **settings: Any) -> subprocess.Popen[bytes]:
        return cufall("--source", self.source, "--devices", "0", *args, **settings)

    @contextmanager
    def load(self, name: str, size: int, settle_s: float = 1.0) -> Iterator[None]:
        """Keep the GPU at this work meanwhile, from `settle_s` before."""
        self.loads.begin(name, size, 1e6)
        time.sleep(settle_s if self.real else 0.0)
        try:
            yield
        finally:
            self.loads.end()

    def close(self) -> None:
        """End the loads, if any part asked for them."""
        if "loads" in vars(self):
            self.loads.close()
