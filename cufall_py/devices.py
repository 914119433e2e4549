"""GPUs: what identifies one, which there are, and which of them were asked for.

CUDA and NVML number GPUs differently, so everything is joined by UUID. Nothing here makes a CUDA context.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from .errors import NoGpu, UsageError

_SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
MOST_GPU = 65_534
_RANGE = re.compile(r"[0-9]+-[0-9]+")


@dataclass(frozen=True)
class Device:
    """One GPU. `ordinal` is CUDA's, as the workers' environment shows it: gN, --devices and gpu= mean it."""

    ordinal: int
    uuid: str
    name: str
    pci: str = ""
    sm_count: int = 0
    chip: str = ""
    nvml_index: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def of_chip(self, chip: str) -> Device:
        return replace(self, chip=chip)


def cuda_devices() -> list[Device]:
    """Every GPU that CUDA shows here, in CUDA's order. Raises NoGpu.

    Initialises the driver in this process: call it in one that will not fork afterwards.
    """
    cuda = _driver()
    count = ctypes.c_int(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return [_describe(cuda, ordinal) for ordinal in range(count.value)]


def select(devices: Sequence[Device], asked: str) -> list[Device]:
    """The GPUs that `--devices` names, in its order: all, ordinals, ranges (4-7) or UUIDs (or their beginnings).

    Raises UsageError for what names none, more than one, or one twice.
    """
    if asked == "all":
        return list(devices)
    chosen = [device for word in asked.split(",") for device in _all_named(devices, word.strip())]
    for n, device in enumerate(chosen):
        if device in chosen[:n]:
            raise UsageError(f"--devices {asked}: GPU {device.ordinal} is named twice")
    return chosen


def show_only(device: Device) -> int:
    """Have CUDA show this process no other GPU; returns its ordinal then.

    To be called before the driver is initialised, which takes 3.3 MiB of every GPU that it shows.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = shown[device.ordinal] if shown != [""] else str(device.ordinal)
    return 0


def _all_named(devices: Sequence[Device], word: str) -> list[Device]:
    if not _RANGE.fullmatch(word):
        return [_named(devices, word)]
    try:
        return [_named(devices, str(ordinal)) for ordinal in numbers_in(word)]
    except ValueError as error:
        raise UsageError(f"--devices {error}") from None


def _named(devices: Sequence[Device], word: str) -> Device:
    if word.isascii() and word.isdigit():
        fits = [d for d in devices if d.ordinal == int(word)]
    else:
        fits = [d for d in devices if word and d.uuid.lower().startswith(word.lower())]
    if len(fits) == 1:
        return fits[0]
    there = ", ".join(f"{d.ordinal} ({d.uuid})" for d in devices)
    problem = "fits more than one GPU" if fits else "no such GPU"
    raise UsageError(f"--devices {word or '(empty)'}: {problem}; there are {there}")


def _driver() -> ctypes.CDLL:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoGpu(
            "no NVIDIA driver here (libcuda.so.1 cannot be loaded); in a container, start it with GPU access; "
            "without a GPU: cufall demo"
        ) from None
    status = cuda.cuInit(0)
    if status == _NO_DEVICE:
        raise NoGpu("CUDA shows no GPU here; look at CUDA_VISIBLE_DEVICES and at nvidia-smi")
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(status, ctypes.byref(text))
        why = (text.value or b"unknown error").decode()
        raise NoGpu(f"the NVIDIA driver cannot be initialised: {why} ({status}); does nvidia-smi work?")
    return cuda


def _describe(cuda: ctypes.CDLL, ordinal: int) -> Device:
    name, pci = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    raw, sms = (ctypes.c_ubyte * 16)(), ctypes.c_int(0)
    cuda.cuDeviceGetName(name, 256, ordinal)
    cuda.cuDeviceGetPCIBusId(pci, 32, ordinal)
    cuda.cuDeviceGetUuid_v2(raw, ordinal)
    cuda.cuDeviceGetAttribute(ctypes.byref(sms), _SM_COUNT, ordinal)
    return Device(ordinal, f"GPU-{UUID(bytes=bytes(raw))}", name.value.decode(), pci.value.decode(), sms.value)


def numbers_in(words: str) -> list[int]:
    """The CUDA numbers of `0-3+5`. Raises ValueError, in words, for a range that does not go up or is out of reach."""
    numbers: list[int] = []
    for word in words.split("+"):
        first, _, last = word.partition("-")
        if max(len(first), len(last)) > 9 or not int(first) <= int(last or first) <= MOST_GPU:
            raise ValueError(f"{word[:40]}: must go up, from 0 to {MOST_GPU} at most")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
