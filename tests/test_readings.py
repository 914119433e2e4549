"""NVML's readings, through a played NVML."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from cufall_py.readings import Reading, Readings


class PlayedNvml:
    """Reads 1000 MHz more at each read; `broken` UUIDs raise."""

    def __init__(self, opens: bool = True) -> None:
        self.opens, self.broken, self.reads = opens, set[str](), 0

    def open(self) -> None:
        if not self.opens:
            raise RuntimeError("Driver Not Loaded")

    def read(self, uuid: str) -> Reading:
        if uuid in self.broken:
            raise RuntimeError("GPU is lost")
        self.reads += 1
        return Reading(sm_mhz=1000.0 * self.reads, power_w=700.0)


def eventually(holds: Callable[[], bool], seconds: float = 3.0) -> bool:
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def test_readings_go_on_coming_and_end_with_close() -> None:
    nvml = PlayedNvml()
    readings = Readings(["GPU-a"], nvml=nvml)
    readings.start()
    assert eventually(lambda: readings.newest("GPU-a").sm_mhz > 1000)
    readings.close()
    reads = nvml.reads
    time.sleep(0.3)
    assert nvml.reads == reads


def test_before_the_first_reading_nothing_is_known() -> None:
    assert math.isnan(Readings(["GPU-a"], nvml=PlayedNvml()).newest("GPU-a").power_w)


def test_a_lost_gpu_is_unknown_and_the_others_go_on() -> None:
    nvml = PlayedNvml()
    readings = Readings(["GPU-a", "GPU-b"], nvml=nvml)
    readings.start()
    assert eventually(lambda: readings.newest("GPU-b").power_w == 700)
    nvml.broken = {"GPU-b"}
    assert eventually(lambda: math.isnan(readings.newest("GPU-b").power_w))
    before = nvml.reads
    assert eventually(lambda: nvml.reads > before)
    assert readings.newest("GPU-a").power_w == 700
    nvml.broken = set()
    assert eventually(lambda: readings.newest("GPU-b").power_w == 700)
    readings.close()


def test_without_a_driver_it_is_told_once_to_whoever_asks() -> None:
    readings = Readings(["GPU-a"], PlayedNvml(opens=False))
    readings.start()
    told: list[str] = []
    assert eventually(lambda: bool(told.extend(readings.unsaid()) or told))
    readings.close()
    assert [*told, *readings.unsaid()] == ["clocks and power are not known: NVML says Driver Not Loaded"]
