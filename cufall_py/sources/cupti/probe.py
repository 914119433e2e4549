"""What `doctor` asks of CUPTI, each in a process of its own under the Python that can sample.

Every entry prints one JSON object. A library that crashes or a driver that hangs ends that process and no
other; the kernel's alarm ends one whose asker is gone.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cufall_py.devices import Device
from cufall_py.errors import CufallError, as_json

from . import loader

LONGEST_S = 60
PM_SAMPLING, RANGE_PROFILING = 3, 0
"""CUpti_Profiler_API. Some builds of CUPTI refuse to be asked about PM sampling."""
LEVELS = ("unknown", "unsupported", "disabled", "supported", "limited")
"""CUpti_Profiler_Support_Level."""
FLAGS = ("supported", "architecture", "sli", "vgpu", "confidential_computing", "cmp", "wsl")
"""Members of CUpti_Profiler_DeviceSupported_Params between the device and the API, in order."""


def libraries() -> None:
    """Which libraries a worker would sample with: Python, their versions and the paths that are mapped."""
    _print(_libraries)


def attempt(device_json: str) -> None:
    """Sample one GPU as a worker would, until its first samples have come, and give it back."""
    _print(lambda: _attempt(Device(**json.loads(device_json))))


def support(ordinal: str) -> None:
    """What cuptiProfilerDeviceSupported says of a GPU: the names of its flags to their levels."""
    _print(lambda: _support(int(ordinal)))


def _print(ask: Callable[[], dict[str, Any]]) -> None:
    signal.alarm(LONGEST_S)
    try:
        answer = ask()
    except CufallError as error:
        answer = {"error": as_json(error)}
    print(json.dumps(answer))


def _libraries() -> dict[str, Any]:
    found = loader.load()
    from . import bindings  # noqa: F401  (cupti itself may load others)

    packages = {name: _installed(name) for name in ("cupti-python", "nvidia-cuda-cupti")}
    return {"python": sys.executable, "cupti": found.version, "packages": packages, "paths": loader.mapped()}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _attempt(device: Device) -> dict[str, Any]:
    from cufall_py.plan import Plan

    from .source import CuptiProvider

    provider = CuptiProvider()
    provider.prepare()
    source = provider.source(device, Plan())
    try:
        opened = source.open()
        return {"chip": opened.device.chip, "notes": list(opened.notes)}
    finally:
        try:
            source.close()
        except CufallError:
            pass  # the first failure is the one to tell; the GPU is given back when this process ends, which is next


def _support(ordinal: int) -> dict[str, str]:
    folder = loader.load().folder
    cupti, cuda = ctypes.CDLL(str(folder / loader.LIBRARIES[-1])), ctypes.CDLL("libcuda.so.1")
    device = ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    cupti.cuptiProfilerInitialize(ctypes.byref(_Initialize(ctypes.sizeof(_Initialize))))
    return _flags(cupti, device.value)


class _Initialize(ctypes.Structure):
    """CUpti_Profiler_Initialize_Params."""

    _fields_ = (("struct_size", ctypes.c_size_t), ("private", ctypes.c_void_p))


class _DeviceSupported(ctypes.Structure):
    """CUpti_Profiler_DeviceSupported_Params, as cupti_profiler_target.h of CUPTI 13 has it."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("private", ctypes.c_void_p),
        ("device", ctypes.c_int),
        *((name, ctypes.c_int) for name in FLAGS),
        ("api", ctypes.c_int),
        ("sku", ctypes.c_int),
    )


def _flags(cupti: ctypes.CDLL, device: int) -> dict[str, str]:
    """Flags to levels; empty if CUPTI would not tell."""
    for api in (PM_SAMPLING, RANGE_PROFILING):
        asked = _DeviceSupported(struct_size=ctypes.sizeof(_DeviceSupported), device=device, api=api)
        if cupti.cuptiProfilerDeviceSupported(ctypes.byref(asked)) == 0:
            levels = {name: getattr(asked, name) for name in (*FLAGS, "sku")}
            return {name: LEVELS[level] for name, level in levels.items() if 0 <= level < len(LEVELS)}
    return {}
