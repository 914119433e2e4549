"""The counters over CUPTI, or NVML's GPM where they cannot be had; which of them, and why, is said."""

from __future__ import annotations

from dataclasses import replace

from cufall_py.devices import Device, cuda_devices
from cufall_py.errors import AbsentUnit, CountersDenied, CountersOwned, LibraryProblem, SourceError, Unsupported
from cufall_py.owned import while_owned
from cufall_py.plan import Plan
from cufall_py.ring_file import owner_of
from cufall_py.samples import Even, Samples, Tally

from . import Opened, Passes, Provider, Source

HINDRANCES = (CountersDenied, CountersOwned, LibraryProblem, Unsupported)
"""What keeps CUPTI from counting and does not hinder GPM."""


class AutoProvider:
    """`first`'s source of each GPU, or `second`'s."""

    def __init__(self, first: Provider, second: Provider) -> None:
        self._first, self._second = first, second
        self._unprepared: LibraryProblem | None = None

    def prepare(self) -> None:
        try:
            self._first.prepare()
        except LibraryProblem as error:
            self._unprepared = error
        self._second.prepare()

    def devices(self) -> list[Device]:
        return cuda_devices() if self._unprepared else self._first.devices()

    def source(self, device: Device, plan: Plan) -> AutoSource:
        first = self._unprepared or self._first.source(device, plan)
        return AutoSource(device, first, self._second.source(device, plan))

    def passes(self, device: Device) -> Passes | None:
        if self._unprepared:
            return self._second.passes(device)
        try:
            return self._first.passes(device)
        except SourceError:  # which will hinder sampling, too
            return self._second.passes(device)


class AutoSource:
    """One GPU through `first`, or through `second` if that is hindered; `first` may be what hinders it."""

    def __init__(self, device: Device, first: Source | LibraryProblem, second: Source) -> None:
        self._device, self._first, self._second = device, first, second
        self._source = second if isinstance(first, LibraryProblem) else first

    @property
    def tally(self) -> Tally:
        return self._source.tally

    @property
    def decode_ns(self) -> int:
        return self._source.decode_ns

    def open(self) -> Opened:
        if isinstance(self._first, LibraryProblem):
            return self._open_second(self._first)
        try:
            return while_owned(self._first.open)
        except AbsentUnit:
            raise
        except HINDRANCES as error:
            _close(self._first)
            return self._open_second(error)

    def read(self) -> Samples | Even:
        return self._source.read()

    def close(self) -> None:
        self._source.close()

    def _open_second(self, hindrance: SourceError) -> Opened:
        self._source, why = self._second, self._told(hindrance)
        try:
            opened = self._second.open()
        except SourceError as error:
            raise SourceError(f"GPU {self._device.ordinal} ({self._device.name}): {why}; and {error}") from None
        note = f"{why}; showing NVML GPM instead, {1_000_000_000 // opened.sample_ns} readings a second"
        return replace(opened, notes=(note, *opened.notes))

    def _told(self, hindrance: SourceError) -> str:
        """The reason without the GPU, so that what is the same for all of them is said once."""
        owner = owner_of(self._device.uuid) if isinstance(hindrance, CountersOwned) else None
        if owner:
            return f"another cufall (process {owner}) samples GPU {self._device.ordinal}"
        return str(hindrance).removeprefix(f"GPU {self._device.ordinal} ({self._device.name}): ")


def _close(source: Source) -> None:
    try:
        source.close()
    except SourceError:
        pass  # whatever CUPTI still holds goes with this process
