"""Where samples come from: one protocol for the hardware, a script and whatever comes later."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cufall_py.devices import Device
from cufall_py.errors import UsageError
from cufall_py.metrics import MetricSet
from cufall_py.plan import SCRIPT, Plan
from cufall_py.samples import Even, Samples, Tally


@dataclass(frozen=True)
class Opened:
    """What a source of one GPU turned out to be. `sample_ns` is the period that was asked for (0: unknown)."""

    device: Device
    metrics: MetricSet
    sample_ns: int
    trigger: str
    source: str
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """Where it runs and with what: library paths and versions, clock domains."""

    @property
    def label(self) -> str:
        """What a person reads of it: gN as CUDA numbers them, and that these are no counters where they are not."""
        return f"g{self.device.ordinal}" + (".gpm" if self.source == "gpm" else "")

    @property
    def ring_name(self) -> str:
        """What its ring is called: of counters that one process owns by the GPU alone, so that a second one is told."""
        return self.device.uuid if self.source != "gpm" else f"{self.device.uuid}-gpm-{os.getpid()}"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "device": self.device.to_json(), "metrics": self.metrics.to_json()}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Opened:
        read = {
            "device": Device(**data["device"]),
            "metrics": MetricSet.from_json(data["metrics"]),
            "notes": tuple(data["notes"]),
        }
        return Opened(**{**data, **read})


@dataclass(frozen=True)
class Passes:
    """How many passes counters need together on a chip, told without sampling; one pass can be sampled at a time.

    `of` raises UsageError for counters that the chip does not know.
    """

    chip: str
    of: Callable[[Sequence[str]], int]


class Source(Protocol):
    """One GPU's samples. `tally` is the worker's; the source adds what only it can know."""

    @property
    def tally(self) -> Tally: ...

    @property
    def decode_ns(self) -> int:
        """How often it is to be read, once it is open."""

    def open(self) -> Opened:
        """Start sampling. Raises SourceError or UsageError."""

    def read(self) -> Samples | Even:
        """What was measured since the last read, in order; valid until the next. Raises SourceError when it no longer
        can."""

    def close(self) -> None:
        """Stop sampling and give the hardware back; may be called after a failed open."""


class Provider(Protocol):
    """A kind of source: which GPUs it sees, and a source for each. Runs in the supervisor."""

    def prepare(self) -> None:
        """Load what workers will need, once, before they are forked. Raises SourceError."""

    def devices(self) -> list[Device]:
        """The GPUs there are; called in a process of its own. Raises NoGpu."""

    def source(self, device: Device, plan: Plan) -> Source:
        """A source for one of them; called in its worker."""

    def passes(self, device: Device) -> Passes | None:
        """What tells of one of them which counters fit one pass; None where all that it gives comes at once. Called in
        a process that samples nothing."""


def provider(name: str) -> Provider:
    """The provider that a plan's `source` names. Raises UsageError."""
    if name == "cupti":
        from .cupti.source import CuptiProvider

        return CuptiProvider()
    if name == "gpm":
        from .gpm import GpmProvider

        return GpmProvider()
    if name == "auto":
        from .auto import AutoProvider

        return AutoProvider(provider("cupti"), provider("gpm"))
    if name.startswith(SCRIPT):
        from .script import ScriptProvider

        return ScriptProvider.from_file(name.removeprefix(SCRIPT))
    raise UsageError(
        f"--source {name}: not auto, cupti, gpm or script:FILE "
        "(played, not sampled, are demo and paths with .cufall or a /)"
    )
