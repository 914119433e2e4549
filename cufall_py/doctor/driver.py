"""What CUDA and NVML tell of this machine, each asked in a process of its own: a broken driver may crash or hang.

Each entry prints JSON. A field that NVML does not give is None, and `why` tells NVML's reason; a GPU that is
lost is still listed, by its index.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

from cufall_py.devices import cuda_devices
from cufall_py.errors import NoGpu

LONGEST_S = 60
PASSTHROUGH, VGPU = 1, 2
"""nvmlGpuVirtualizationMode_t; 0 is bare metal, the others are those of a host."""
KINDS = {0: "none", PASSTHROUGH: "passthrough", VGPU: "vgpu"}


def cuda() -> None:
    """The GPUs that CUDA shows, or why it shows none."""
    signal.alarm(LONGEST_S)
    try:
        answer: dict[str, Any] = {"gpus": [device.to_json() for device in cuda_devices()]}
    except NoGpu as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))


def nvml() -> None:
    """The driver's version and the GPUs that NVML shows, or why it cannot be asked."""
    signal.alarm(LONGEST_S)
    try:
        import pynvml
    except Exception as error:  # a broken installation may raise anything
        print(json.dumps({"error": "import", "text": f"{type(error).__name__}: {error}"}))
    else:
        print(json.dumps(told(pynvml)))


def told(nvml: Any) -> dict[str, Any]:
    """All that is asked of NVML through its binding `nvml`, the module pynvml or what plays it."""
    try:
        nvml.nvmlInit()
        count = int(nvml.nvmlDeviceGetCount())
    except Exception as error:
        return {"error": type(error).__name__.removeprefix("NVMLError_"), "text": str(error)}
    system = _Fields()
    return {
        "driver": system.get("driver", lambda: _text(nvml.nvmlSystemGetDriverVersion())),
        "confidential": system.get("confidential", lambda: _confidential(nvml.nvmlSystemGetConfComputeState())),
        "gpus": [_gpu(nvml, index) for index in range(count)],
        "why": system.why,
    }


class _Fields:
    """Asks for one field at a time, and keeps why one cannot be had."""

    def __init__(self) -> None:
        self.why: dict[str, str] = {}

    def get(self, name: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:  # NVML's own, or AttributeError where the binding is too old
            self.why[name] = str(error) or type(error).__name__
            return None


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    fields = _Fields()
    handle = fields.get("handle", lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if not handle:  # and a null handle must never reach the library
        return {"index": index, "why": {"handle": "no handle", **fields.why}}
    return {
        "index": index,
        "uuid": fields.get("uuid", lambda: _text(nvml.nvmlDeviceGetUUID(handle))),
        "name": fields.get("name", lambda: _text(nvml.nvmlDeviceGetName(handle))),
        "pci": fields.get("pci", lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        "capability": fields.get("capability", lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle))),
        "mig": fields.get("mig", lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0])),
        "virtual": fields.get("virtual", lambda: KINDS.get(nvml.nvmlDeviceGetVirtualizationMode(handle), "host")),
        "gpm": fields.get("gpm", lambda: _gpm(nvml, handle)),
        "why": fields.why,
    }


def _gpm(nvml: Any, handle: Any) -> bool:
    """Whether the GPU has GPM and gives this process a sample of it. Raises what NVML raises if it does not."""
    if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
        return False
    sample = nvml.nvmlGpmSampleAlloc()
    try:
        nvml.nvmlGpmSampleGet(handle, sample)
    finally:
        nvml.nvmlGpmSampleFree(sample)
    return True


def _confidential(state: Any) -> str:
    if not state.ccFeature:
        return "off"
    return "devtools" if state.devToolsMode else "on"


def _text(value: Any) -> str:
    """Bindings before 11.5 give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
