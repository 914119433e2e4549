"""CUPTI's statuses as errors a person can act on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cufall_py.devices import Device
from cufall_py.errors import CountersDenied, CountersOwned, LibraryProblem, SourceError, Unsupported
from cufall_py.host_files import admin_only, container

from .protocol import CuptiError

T = TypeVar("T")
OWNED = (
    "another profiler holds its counters (DCGM: dcgmi profile --pause; else nsys, ncu, a torch profiler "
    "or another cufall); try again when it is gone"
)
PLATFORMS = {
    "VIRTUALIZED_DEVICE_NOT_SUPPORTED": "a virtual GPU without profiling",
    "VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES": "a virtual GPU whose host has not allowed profiling",
    "CONFIDENTIAL_COMPUTING_NOT_SUPPORTED": "confidential computing, which hides the counters",
    "CMP_DEVICE_NOT_SUPPORTED": "a mining card, which has no profiling",
    "MIG_DEVICE_NOT_SUPPORTED": "a MIG instance that shares its compute, which hides the counters",
    "SLI_DEVICE_NOT_SUPPORTED": "SLI, which hides the counters",
    "WSL_DEVICE_NOT_SUPPORTED": "WSL, where the counters cannot be reached",
}


def explain(error: CuptiError, device: Device, kernel: str = os.uname().release, root: Path = Path("/")) -> SourceError:
    """The error that a failed CUPTI call on this GPU means."""
    gpu = f"GPU {device.ordinal} ({device.name})"
    if error.status == "INSUFFICIENT_PRIVILEGES" and "microsoft" in kernel.lower():  # no privilege helps there
        return explain(CuptiError(error.call, "WSL_DEVICE_NOT_SUPPORTED"), device)
    if error.status == "INSUFFICIENT_PRIVILEGES":
        return CountersDenied(f"{gpu}: {denied(root)}")
    if error.status in ("HARDWARE_BUSY", "INVALID_OPERATION"):
        return CountersOwned(f"{gpu}: {OWNED}")
    if error.status in PLATFORMS:
        return Unsupported(f"{gpu} is {PLATFORMS[error.status]}; CUPTI says {error.status}")
    if error.status == "NOT_INITIALIZED":
        return LibraryProblem(f"{gpu}: CUPTI cannot load its nvperf libraries; reinstall nvidia-cuda-cupti")
    if error.status == "OUT_OF_MEMORY":
        return SourceError(f"{gpu}: no memory for its sample buffers; give a smaller --hw-buffer-mb")
    return SourceError(f"{gpu}: CUPTI's {error.call} failed with {error.status}")


def denied(root: Path) -> str:
    """Why the counters are kept from this process, and the way out that applies here."""
    in_container = _told(lambda: container(root, os.environ))
    here = "start the container with --cap-add SYS_ADMIN and as root" if in_container else "run as root"
    for_good = "set the driver option NVreg_RestrictProfilingToAdminUsers=0 on the host"
    known: dict[bool | None, str] = {True: " (RmProfilingAdminOnly is 1)", False: " (though RmProfilingAdminOnly is 0)"}
    return (
        f"the driver keeps the counters from this user{known.get(_told(lambda: admin_only(root)), '')}; "
        f"{here}, or for good: {for_good}"
    )


def _told(fact: Callable[[], T]) -> T | None:
    """None where the files of this machine do not tell."""
    try:
        return fact()
    except (OSError, ValueError, KeyError):
        return None
