"""What NVML tells of each GPU, five times a second: clocks, power, why the clocks are held back; who uses it.

A call can take tens of milliseconds, so a thread of the reader's makes them, never a worker. A field that a
GPU does not have is NaN or None and stays so quietly; one that fails for a while comes back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .processes import names_of
from .watching import Watching

PERIOD_S = 0.2
PROCESSES_S = 2.0
"""How long the names of processes are kept before they are asked for again."""
RETRY_S = 5.0
"""How long NVML is left alone after it could not be initialised."""


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment; NaN or None where NVML does not say.

    `reasons`: NVML's clock event bits, 0 for none. `processes`: names of those that compute on it.
    """

    sm_mhz: float = math.nan
    mem_mhz: float = math.nan
    power_w: float = math.nan
    reasons: int | None = None
    processes: tuple[str, ...] | None = None

    @property
    def reason_words(self) -> tuple[str, ...] | None:
        """Why the clocks are held back, in words; empty if they are not, None if NVML does not say."""
        if self.reasons is None:
            return None
        bits = [1 << k for k in range(self.reasons.bit_length()) if self.reasons >> k & 1]
        return tuple(REASONS.get(bit, f"reason {bit:#x}") for bit in bits)


REASONS = {
    0x001: "idle",
    0x002: "clocks set by user",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal (software)",
    0x040: "thermal (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
"""nvml.h, nvmlClocksEventReason*; the last two are of older drivers."""
THROTTLED = 0x004 | 0x008 | 0x020 | 0x040 | 0x080 | 0x200 | 0x400
"""The bits of those that hold clocks back against the load's wish: neither for idleness nor because a user set them."""


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
        self._processes: dict[str, tuple[float, tuple[str, ...] | None]] = {}

    def read(self, uuid: str) -> Reading:
        if uuid not in self._handles:
            self._handles[uuid] = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        handle, nvml, failed = self._handles[uuid], self._nvml, list[Exception]()
        calls: tuple[tuple[Any, ...], ...] = (
            (nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            (nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            (nvml.nvmlDeviceGetPowerUsage, handle),
            (nvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        )
        sm_mhz, mem_mhz, power_mw, reasons = (self._field(failed, *call) for call in calls)
        if len(failed) == len(calls) and (told := [error for error in failed if not self._is_lack(error)]):
            raise told[0]
        return Reading(
            sm_mhz=math.nan if sm_mhz is None else float(sm_mhz),
            mem_mhz=math.nan if mem_mhz is None else float(mem_mhz),
            power_w=math.nan if power_mw is None else power_mw / 1000,
            reasons=reasons,
            processes=self._recent_processes(uuid, handle),
        )

    def _field(self, failed: list[Exception], call: Callable[..., int], *arguments: Any) -> int | None:
        """One call's answer; None if it fails, which is then one of the `failed`."""
        try:
            return int(call(*arguments))
        except self._nvml.NVMLError as error:
            failed.append(error)
            return None

    def _is_lack(self, error: Exception) -> bool:
        """Whether the GPU or the driver just does not have it."""
        return isinstance(error, (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound))

    def _recent_processes(self, uuid: str, handle: Any) -> tuple[str, ...] | None:
        read_s, names = self._processes.get(uuid, (-PROCESSES_S, None))
        if time.monotonic() - read_s >= PROCESSES_S:
            names = self._running(handle)
            self._processes[uuid] = time.monotonic(), names
        return names

    def _running(self, handle: Any) -> tuple[str, ...] | None:
        try:
            return names_of([process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)])
        except self._nvml.NVMLError:
            return None  # whatever is the matter with the GPU itself, the other fields tell


class Readings(Watching):
    """The newest reading of each GPU, by UUID. Start with `start`; `newest` never waits.

    `unsaid` gives one line when NVML fails and one when it is back.
    """

    def __init__(self, uuids: Sequence[str], nvml: Nvml | None = None) -> None:
        super().__init__("cufall-nvml")
        self._newest = dict.fromkeys(uuids, Reading())
        self._nvml = nvml or BoundNvml()
        self._trouble = ""

    def newest(self, uuid: str) -> Reading:
        return self._newest[uuid]

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
