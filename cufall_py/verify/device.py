"""The process that computes for `cufall verify`: a line of JSON in, work on the GPU, a line of JSON out.

The only importer of cuda-bindings, which the `gpu` extra brings with cupti-python. Kernels are PTX text that the driver
assembles; memory is plain; the context is the GPU's primary one.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from cufall_py.errors import CufallError, LibraryProblem, NoGpu, SourceError, as_json

from .ptx import text

MARGIN_S = 0.02
"""Idle before and after a load, so that a window wider than it holds all its work and no other."""
WARPS, BLOCKS_AN_SM = 8, 2
COPY_BLOCKS_AN_SM = 16
PIECE = 16
"""Bytes that a thread copies at once."""
MOST_QUEUED = 512
"""Launches between waits: the driver's queue holds about twice as many."""


def serve(ordinal: str) -> None:
    """Entry: describe the GPU, then do what each line of stdin says until it ends."""
    try:
        card = Card(int(ordinal), bindings())
    except CufallError as error:
        _say({"failed": as_json(error)})
        return
    _say(card.description)
    for line in sys.stdin:
        try:
            _say(card.load(**json.loads(line)))
        except CufallError as error:
            _say({"failed": as_json(error)})


def once(ordinal: str, kernel: str, count: str) -> None:
    """Entry: one launch and nothing else, for another profiler to look at."""
    Card(int(ordinal), bindings()).load(kernel, int(count), 1)


def bindings() -> Any:
    """cuda-bindings' driver module. Raises LibraryProblem."""
    try:
        from cuda.bindings import driver
    except ImportError:
        raise LibraryProblem(
            f"cuda-bindings is not installed for {sys.executable}; install cufall with its gpu extra"
        ) from None
    return driver


class Card:
    """One GPU by its CUDA ordinal, over cuda-bindings' driver module. Raises NoGpu or SourceError."""

    def __init__(self, ordinal: int, cuda: Any) -> None:
        self._cuda, self._kernels = cuda, dict[str, Any]()
        self._block: Any = None
        self._copied = 0
        try:
            self._call("cuInit", 0)
        except SourceError as error:
            raise NoGpu(f"the NVIDIA driver cannot be initialised: {error}; does nvidia-smi work?") from None
        except RuntimeError:  # of cuda-pathfinder
            raise NoGpu(
                "no NVIDIA driver here (libcuda.so.1 cannot be loaded); verify computes on a GPU, so it needs one"
            ) from None
        self._device = self._call("cuDeviceGet", ordinal)
        self._call("cuCtxSetCurrent", self._call("cuDevicePrimaryCtxRetain", self._device))
        self._out = self._call("cuMemAlloc", 4)
        self.description = self._description(ordinal)

    def load(self, kernel: str, count: int, launches: int) -> dict[str, Any]:
        """Do it, and say from when to when."""
        launch = self._prepared(kernel, count)
        time.sleep(MARGIN_S)
        start_ns = time.time_ns()
        for k in range(launches):
            launch()
            if k % MOST_QUEUED == MOST_QUEUED - 1:
                self._call("cuCtxSynchronize")
        self._call("cuCtxSynchronize")
        end_ns = time.time_ns()
        time.sleep(MARGIN_S)
        return {"kernel": kernel, "count": count, "launches": launches, "start_ns": start_ns, "end_ns": end_ns}

    def _prepared(self, kernel: str, count: int) -> Callable[[], None]:
        """All that a launch needs, so that nothing but launches is timed."""
        sms = self.description["sms"]
        if kernel == "rest":
            return lambda: time.sleep(count / 1000)
        function = self._function(kernel)
        if kernel == "copy":
            source = int(self._memory(count))
            values = ((source, source + count, count // PIECE), (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64))
            return lambda: self._launch(function, COPY_BLOCKS_AN_SM * sms, 256, values)
        words = ((int(self._out), count), (ctypes.c_void_p, ctypes.c_uint32))
        blocks, threads = (sms, 32) if kernel == "spin" else (BLOCKS_AN_SM * sms, 32 * WARPS)
        return lambda: self._launch(function, blocks, threads, words)

    def _launch(self, function: Any, blocks: int, threads: int, parameters: Any) -> None:
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, 0, parameters, 0)

    def _function(self, kernel: str) -> Any:
        if kernel not in self._kernels:
            major, minor = self.description["capability"]
            module = self._call("cuModuleLoadData", text(kernel, (major, minor)).encode() + b"\0")
            self._kernels[kernel] = self._call("cuModuleGetFunction", module, b"work")
        return self._kernels[kernel]

    def _memory(self, size: int) -> Any:
        """A block of twice this size, written once, so that its pages are there; kept until another is wanted."""
        if self._copied == size:
            return self._block
        block, self._block, self._copied = self._block, None, 0
        if block is not None:
            self._call("cuMemFree", block)
        self._block = self._call("cuMemAlloc", 2 * size)
        self._call("cuMemsetD8", self._block, 1, 2 * size)
        self._call("cuCtxSynchronize")
        self._copied = size
        return self._block

    def _description(self, ordinal: int) -> dict[str, Any]:
        sms = self._attribute("MULTIPROCESSOR_COUNT")
        return {
            "ordinal": ordinal,
            "uuid": f"GPU-{UUID(bytes=bytes(self._call('cuDeviceGetUuid', self._device).bytes))}",
            "name": self._call("cuDeviceGetName", 256, self._device).split(b"\0")[0].decode(),
            "capability": [self._attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")],
            "sms": sms,
            "l2_bytes": self._attribute("L2_CACHE_SIZE"),
            "cuda": self._call("cuDriverGetVersion"),
            "blocks": BLOCKS_AN_SM * sms,
            "warps": WARPS,
        }

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", attribute, self._device))

    def _call(self, name: str, *words: Any) -> Any:
        """A call of the driver. Raises SourceError with its name and what the driver says."""
        status, *given = getattr(self._cuda, name)(*words)
        if status:
            raise SourceError(f"{name}: {getattr(status, 'name', status)}")
        return given[0] if given else None


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)
