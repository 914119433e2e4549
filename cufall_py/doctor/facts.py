"""What is known of a machine, as plain values. None is what could not be told, and `why` has the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cufall_py.devices import Device

RIGHTS = {"CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}
"""Capabilities that the driver takes for a right to read counters (the second since R565), with their bits in the mask
that /proc/self/status shows."""


@dataclass(frozen=True)
class NvmlGpu:
    """A GPU as NVML shows it. `virtual`: none, passthrough, vgpu or host. `gpm`: it gave a GPM sample."""

    index: int
    uuid: str | None = None
    name: str | None = None
    pci: str | None = None
    capability: tuple[int, int] | None = None
    mig: bool | None = None
    virtual: str | None = None
    gpm: bool | None = None
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """What came of sampling a GPU for a moment: the chip, or the kind (errors.py) and text of the failure.

    `support`: flags of cuptiProfilerDeviceSupported (vgpu, wsl, ...) to supported, unsupported, disabled, ...
    `owner`: the process of another cufall that samples it.
    """

    chip: str = ""
    notes: tuple[str, ...] = ()
    kind: str = ""
    text: str = ""
    support: Mapping[str, str] | None = None
    owner: int | None = None

    @property
    def sampled(self) -> bool:
        return not self.kind


@dataclass(frozen=True)
class Libraries:
    """What sampling runs with. `cupti` is cuptiGetVersion's number, 0 where it does not tell (without a driver)."""

    python: str
    cupti: int
    packages: Mapping[str, str]
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Holder:
    """A running process of a kind that takes the PM unit."""

    pid: int
    name: str


@dataclass(frozen=True)
class Processes:
    """Those of `holders` among the processes seen here; `hidden`: how many would not tell what they are."""

    holders: tuple[Holder, ...] = ()
    hidden: int = 0


@dataclass(frozen=True)
class Place:
    """A directory that rings may lie in."""

    path: str
    writable: bool
    free_bytes: int


@dataclass(frozen=True)
class Terminal:
    """`columns` and `lines` are 0 where stdout is no terminal."""

    term: str
    encoding: str
    no_color: bool
    columns: int = 0
    lines: int = 0


@dataclass(frozen=True)
class Facts:
    """A machine. `container`: its kind, empty outside one. `admin_only`: RmProfilingAdminOnly.

    `memory_bytes`: what may still be taken; `memlock_bytes`: RLIMIT_MEMLOCK; -1 in either: no limit.
    `command`: how to start this cufall under another user. `nvml_error`: the class of NVML's error.
    """

    kernel: str | None = None
    machine: str | None = None
    jetson: bool | None = None
    container: str | None = None
    uid: int | None = None
    capabilities: int | None = None
    admin_only: bool | None = None
    command: str = "cufall"
    visible: str | None = None
    driver: str | None = None
    cuda: tuple[Device, ...] | None = None
    nvml: tuple[NvmlGpu, ...] | None = None
    nvml_error: str = ""
    confidential: str | None = None
    bindings: Mapping[str, str] = field(default_factory=dict)
    libraries: Libraries | None = None
    attempts: Mapping[int, Attempt] = field(default_factory=dict)
    processes: Processes | None = None
    memory_bytes: int | None = None
    memlock_bytes: int | None = None
    places: tuple[Place, ...] | None = None
    terminal: Terminal | None = None
    why: Mapping[str, str] = field(default_factory=dict)

    @property
    def wsl(self) -> bool:
        return "microsoft" in (self.kernel or "").lower()

    @property
    def rights(self) -> list[str]:
        """Capabilities it has of those that the driver asks for; none where they are not known."""
        return [name for name, bit in RIGHTS.items() if (self.capabilities or 0) >> bit & 1]

    @property
    def privileged(self) -> bool | None:
        return None if self.capabilities is None else bool(self.rights)
