"""NVML's readings, through a played NVML."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cufall_py.readings import BoundNvml, Reading, Readings


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


# The binding, over a played nvidia-ml-py


class PlayedPynvml(ModuleType):
    """Answers as a working GPU does; `raises` names calls and the error that each raises instead."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    class NVMLError_FunctionNotFound(NVMLError):
        pass

    class NVMLError_GpuIsLost(NVMLError):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.raises: dict[str, type[Exception]] = {}
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *words: self._answer(name, *words)

    def _answer(self, name: str, *words: Any) -> Any:
        self.asked.append(name)
        if name in self.raises:
            raise self.raises[name](name)
        if name == "nvmlDeviceGetClockInfo":
            return {1: 1980, 2: 2619}[words[1]]
        return {
            "nvmlInit": None,
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlDeviceGetPowerUsage": 699_600,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x44,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=4294967295)],
        }[name]


CORE = ("nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetCurrentClocksEventReasons")
PROCESSES = "nvmlDeviceGetComputeRunningProcesses"


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedPynvml:
    module = PlayedPynvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


@pytest.fixture
def nvml(played: PlayedPynvml) -> BoundNvml:
    bound = BoundNvml()
    bound.open()
    return bound


def test_a_reading_has_every_field(nvml: BoundNvml) -> None:
    reading = nvml.read("GPU-a")
    assert reading == Reading(1980.0, 2619.0, 699.6, 0x44, ("not visible here",))
    assert reading.reason_words == ("power cap", "thermal (hardware)")


@pytest.mark.parametrize("error", [PlayedPynvml.NVMLError_NotSupported, PlayedPynvml.NVMLError])
def test_a_field_that_fails_is_absent_and_the_others_are_there(
    nvml: BoundNvml, played: PlayedPynvml, error: type[Exception]
) -> None:
    absent = {"nvmlDeviceGetPowerUsage": "power_w", CORE[2]: "reasons", PROCESSES: "processes"}
    for call, field in absent.items():
        played.raises = {call: error}
        nvml.open()
        reading, blank = nvml.read("GPU-a"), Reading()
        assert str(getattr(reading, field)) == str(getattr(blank, field))
        assert reading.sm_mhz == 1980
        assert sum(str(getattr(reading, f)) == str(getattr(blank, f)) for f in vars(blank)) == 1


def test_a_gpu_that_has_none_of_it_is_blank_and_one_that_is_lost_is_an_error(
    nvml: BoundNvml, played: PlayedPynvml
) -> None:
    everything = (*CORE, PROCESSES)
    played.raises = dict.fromkeys(everything, PlayedPynvml.NVMLError_NotSupported)
    assert str(nvml.read("GPU-a")) == str(Reading())
    played.raises = dict.fromkeys(everything, PlayedPynvml.NVMLError_GpuIsLost)
    with pytest.raises(PlayedPynvml.NVMLError_GpuIsLost):
        nvml.read("GPU-a")


def test_no_throttling_is_something_else_than_not_known() -> None:
    assert (Reading(reasons=0).reason_words, Reading().reason_words) == ((), None)


def test_processes_are_asked_for_seldom(nvml: BoundNvml, played: PlayedPynvml) -> None:
    for _ in range(5):
        nvml.read("GPU-a")
    assert played.asked.count(PROCESSES) == 1
    assert played.asked.count("nvmlDeviceGetPowerUsage") == 5


def test_the_reasons_have_the_bits_that_nvml_gives_them() -> None:
    pynvml = pytest.importorskip("pynvml")
    for name, words in {
        "GpuIdle": "idle",
        "ApplicationsClocksSetting": "clocks set by user",
        "SwPowerCap": "power cap",
        "HwSlowdown": "hardware slowdown",
        "SyncBoost": "sync boost",
        "SwThermalSlowdown": "thermal (software)",
        "HwThermalSlowdown": "thermal (hardware)",
        "HwPowerBrakeSlowdown": "power brake",
        "DisplayClockSetting": "display clocks",
    }.items():
        assert Reading(reasons=getattr(pynvml, f"nvmlClocksEventReason{name}")).reason_words == (words,)
