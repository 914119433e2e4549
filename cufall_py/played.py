"""What goes along with the frames of a recording that is played: its time, what was lost, what NVML had read, and what
is told as regions begin."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from .frames import Frame
from .outline import Event, Region
from .readings import Reading
from .recording_reader import Rows
from .spans import Span, common


class Clock:
    """The time of a recording that is being played: between two moments of it, as fast as `speed`."""

    def __init__(self, speed: float) -> None:
        self._speed, self._entered_ns, self._begin_ns, self._end_ns = speed, 0, 0, 0

    def enter(self, begin_ns: int, end_ns: int) -> None:
        """From now on what lies between these is played."""
        self._entered_ns, self._begin_ns, self._end_ns = time.time_ns(), begin_ns, end_ns

    def moment(self, at_ns: int) -> int:
        return min(self._begin_ns + round((at_ns - self._entered_ns) * self._speed), self._end_ns)


class Gaps:
    """What was lost in the frames that were played, as it was recorded."""

    def __init__(self, events: Sequence[Event], positions: Collection[int]) -> None:
        found = sorted(
            (e.end_ns, int(e.fields.get("samples", 0)), e.end_ns - e.start_ns) for e in events if e.gpu in positions
        )
        self._ends_ns = [end_ns for end_ns, _, _ in found]
        self._found, self.samples, self.length_ns = found, 0, 0

    def count(self, frame: Frame) -> None:
        """Add the gaps that end in a frame."""
        first, last = (bisect_left(self._ends_ns, edge) for edge in (frame.start_ns, frame.end_ns))
        self.samples += sum(samples for _, samples, _ in self._found[first:last])
        self.length_ns += sum(length_ns for _, _, length_ns in self._found[first:last])


class Readings:
    """NVML's readings of one GPU: `current` is what was known by the time that was moved to."""

    def __init__(self) -> None:
        self.current = self._newest = Reading()
        self._to_come: deque[tuple[int, Reading]] = deque()

    def add(self, item: Rows | Event) -> None:
        if isinstance(item, Rows):
            for row in item.steps():
                read = {"sm_mhz": float(item.sm_mhz[row]), "power_w": float(item.power_w[row])}
                self._come(int(item.samples.start_ns[row]), **read)
        elif item.kind == "reasons":
            self._come(item.start_ns, reasons=int(item.fields.get("bits", 0)))

    def move_to(self, end_ns: int) -> None:
        while self._to_come and self._to_come[0][0] < end_ns:
            self.current = self._to_come.popleft()[1]

    def _come(self, from_ns: int, **read: Any) -> None:
        self._newest = replace(self._newest, **read)
        self._to_come.append((from_ns, self._newest))


def cues_of(regions: dict[str, list[Region]], spans: list[Span]) -> list[tuple[int, str]]:
    """When each region that tells what is seen in it begins to be played, and the line that tells it."""
    seen = [(name, region) for name, times in regions.items() for region in times if region.text]
    parts = [(common([(region.start_ns, region.end_ns)], spans), name, region) for name, region in seen]
    cues = sorted((part[0][0], -region.end_ns, f"[{name}] {region.text}") for part, name, region in parts if part)
    return [(start_ns, line) for start_ns, _, line in cues]
