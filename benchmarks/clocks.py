"""Clocks, P-state and power as NVML reads them."""

from __future__ import annotations

import statistics
import time


class Nvml:
    """Clocks, P-state and power of one GPU."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> dict[str, float]:
        n, handle = self._nvml, self._handle
        return {
            "sm_mhz": n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM),
            "memory_mhz": n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM),
            "p_state": n.nvmlDeviceGetPerformanceState(handle),
            "power_w": n.nvmlDeviceGetPowerUsage(handle) / 1000,
        }


def watched(nvml: Nvml | None, seconds: float) -> dict[str, float]:
    """Sleep, and give the means of what NVML read meanwhile."""
    until, readings = time.monotonic() + seconds, []
    while time.monotonic() < until:
        readings += [nvml.read()] if nvml else []
        time.sleep(min(0.1, seconds))
    return mean(readings)


def mean(readings: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.fmean(r[key] for r in readings) for key in (readings[0] if readings else ())}
