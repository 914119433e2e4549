"""What NVML tells of each GPU, five times a second: clocks, power, why the clocks are held back.

A call can take tens of milliseconds, so a thread of the reader's makes them, never a worker. A field that a
GPU does not have is NaN (or 0 reasons) and stays so quietly; one that fails for a while comes back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

PERIOD_S = 0.2
RETRY_S = 5.0
"""How long NVML is left alone after it could not be initialised."""
NAN = float("nan")


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment; NaN where NVML does not say. `reasons`: NVML's clock event bits."""

    sm_mhz: float = NAN
    mem_mhz: float = NAN
    power_w: float = NAN
    reasons: int = 0


class Nvml(Protocol):
    """What is needed of NVML. `open` and `read` may raise anything NVML raises."""

    def open(self) -> None: ...

    def read(self, uuid: str) -> Reading: ...


class BoundNvml:
    """NVML over nvidia-ml-py, imported when first opened."""

    def open(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml = pynvml
        self._handles: dict[str, Any] = {}

    def read(self, uuid: str) -> Reading:
        if uuid not in self._handles:
            self._handles[uuid] = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        handle, nvml = self._handles[uuid], self._nvml
        return Reading(
            sm_mhz=self._field(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            mem_mhz=self._field(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            power_w=self._field(nvml.nvmlDeviceGetPowerUsage, handle) / 1000,
            reasons=self._reasons(handle),
        )

    def _field(self, call: Callable[..., Any], *arguments: Any) -> float:
        try:
            return float(call(*arguments))
        except self._nvml.NVMLError_NotSupported:
            return NAN

    def _reasons(self, handle: Any) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound):
            return 0


class Readings:
    """The newest reading of each GPU, by UUID. Start with `start`; `newest` never waits.

    `unsaid` gives one line when NVML fails and one when it is back: the thread itself says nothing, so
    that whoever listens is always called from the reader's.
    """

    def __init__(self, uuids: Sequence[str], nvml: Nvml | None = None) -> None:
        self._newest = dict.fromkeys(uuids, Reading())
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._nvml = nvml or BoundNvml()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cufall-nvml", daemon=True)
        self._trouble = ""

    def start(self) -> None:
        self._thread.start()

    def newest(self, uuid: str) -> Reading:
        return self._newest[uuid]

    def unsaid(self) -> Iterator[str]:
        """Lines for a person that have come since the last time."""
        while not self._lines.empty():
            yield self._lines.get()

    def close(self) -> None:
        """Ask the thread to end; a call that hangs is not waited for."""
        self._end.set()
        if self._thread.ident:
            self._thread.join(0.5)

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self._nvml.open()
                self._follow()
            except Exception as error:  # NVML's own errors, and whatever a broken installation raises
                self._fail(error)
            self._end.wait(RETRY_S)

    def _follow(self) -> None:
        due = time.monotonic()
        while not self._end.is_set():
            failures = [error for uuid in self._newest if (error := self._read(uuid))]
            if len(failures) == len(self._newest):
                raise failures[0]
            if self._trouble and not failures:
                self._trouble = ""
                self._lines.put("NVML answers again")
            due = max(due + PERIOD_S, time.monotonic())
            self._end.wait(due - time.monotonic())

    def _read(self, uuid: str) -> Exception | None:
        try:
            self._newest[uuid] = self._nvml.read(uuid)
        except Exception as error:
            self._newest[uuid] = Reading()
            return error
        return None

    def _fail(self, error: Exception) -> None:
        self._newest = dict.fromkeys(self._newest, Reading())
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._lines.put(f"clocks and power are not known: NVML says {error}")
