"""The process that computes for verify, over a driver that only writes down what it is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cufall_py.errors import NoGpu, SourceError
from cufall_py.verify.device import Card
from cufall_py.verify.ptx import text

ATTRIBUTES = {"MULTIPROCESSOR_COUNT": 132, "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0,
              "L2_CACHE_SIZE": 60 << 20}  # fmt: skip


class Status(int):
    """As CUresult: 0 is success."""

    name = "CUDA_ERROR_OUT_OF_MEMORY"


class Driver:
    """Calls give a tuple that begins with a status; `memory` bytes can be had."""

    CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in ATTRIBUTES})

    def __init__(self, memory: int = 1 << 40, missing: bool = False) -> None:
        self.memory, self.missing, self.asked = memory, missing, list[tuple[Any, ...]]()
        self.held = dict[int, int]()

    def __getattr__(self, name: str) -> Any:
        answers = {
            "cuDeviceGetUuid": SimpleNamespace(bytes=b"\x11" * 16),
            "cuDeviceGetName": b"NVIDIA H200\0\0",
            "cuDriverGetVersion": 13000,
        }

        def call(*words: Any) -> tuple[Any, ...]:
            if self.missing:
                raise RuntimeError("no libcuda")
            self.asked.append((name, *words))
            return Status(0), answers.get(name, name)

        return call

    def cuDeviceGetAttribute(self, name: str, device: Any) -> tuple[Any, ...]:
        return Status(0), ATTRIBUTES[name]

    def cuMemAlloc(self, size: int) -> tuple[Any, ...]:
        if sum(self.held.values()) + size > self.memory:
            return Status(2), None
        address = 0x1000 * (1 + len(self.asked))
        self.asked.append(("cuMemAlloc", size))
        self.held[address] = size
        return Status(0), address

    def cuMemFree(self, address: int) -> tuple[Any, ...]:
        del self.held[address]
        return (Status(0),)

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [asked[1:] for asked in self.asked if asked[0] == name]


def test_it_describes_the_gpu() -> None:
    found = Card(1, Driver()).description
    assert (found["ordinal"], found["name"], found["capability"], found["sms"]) == (1, "NVIDIA H200", [9, 0], 132)
    assert found["uuid"] == "GPU-11111111-1111-1111-1111-111111111111"


def test_products_are_launched_as_often_as_asked() -> None:
    driver = Driver()
    card = Card(0, driver)
    ran = card.load("bf16", 20_000, 1000)
    launches = driver.of("cuLaunchKernel")
    assert len(launches) == 1000 and ran["end_ns"] > ran["start_ns"]
    assert launches[0][1:7] == (264, 1, 1, 256, 1, 1)
    assert launches[0][9][0][1] == 20_000
    assert len(driver.of("cuCtxSynchronize")) == 2  # the queue holds no more than some thousand
    card.load("bf16", 60_000, 1)
    assert driver.of("cuModuleLoadData") == [(text("bf16", (9, 0)).encode() + b"\0",)]


def test_one_block_waits_on_each_sm() -> None:
    driver = Driver()
    Card(0, driver).load("spin", 7, 1)
    assert driver.of("cuLaunchKernel")[0][1:7] == (132, 1, 1, 32, 1, 1)


def test_a_copy_has_memory_that_is_written_and_kept() -> None:
    driver = Driver()
    card = Card(0, driver)
    for size in (1 << 28, 1 << 28, 1 << 29):
        card.load("copy", size, 1)
    (first, *_), (second, *_), (third, *_) = (launch[9] for launch in driver.of("cuLaunchKernel"))
    assert first == second != third
    assert first[2] == (1 << 28) / 16
    assert first[1] - first[0] == 1 << 28
    assert sorted(driver.held.values()) == [4, 1 << 30]
    assert len(driver.of("cuMemsetD8")) == 2


def test_memory_that_is_not_there_is_told_and_can_be_asked_for_again() -> None:
    driver = Driver(memory=1 << 30)
    card = Card(0, driver)
    card.load("copy", 1 << 28, 1)
    with pytest.raises(SourceError, match="cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"):
        card.load("copy", 1 << 40, 1)
    card.load("copy", 1 << 28, 1)


def test_without_a_driver() -> None:
    with pytest.raises(NoGpu, match="no NVIDIA driver here"):
        Card(0, Driver(missing=True))
