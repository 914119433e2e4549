"""What a session writes while it samples: samples with NVML's readings, what was said, and marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .keep import Keep
from .plan import Plan
from .readings import Reading
from .recording import RecordingWriter
from .rotation import Turn
from .samples import Samples, Tally
from .saying import Say
from .self_cost import Cost
from .sources import Opened


class LiveRecording:
    """A recording of a session, thinned as `keep` says; `say` is told where that fails.

    All but `mark` is called by whoever takes the frames.
    """

    def __init__(
        self,
        path: str | Path,
        opened: list[Opened],
        plan: Plan,
        force: bool,
        keep: Keep,
        say: Say,
        turn: Turn | None = None,
    ) -> None:
        self._writer = RecordingWriter(path, opened, plan, force=force, keep=keep, turn=turn, say=say)
        self._marks = SimpleQueue[tuple[str, int, dict[str, Any]]]()

    def mark(self, kind: str, at_ns: int, **fields: Any) -> None:
        """Have an event written that happened then; from any thread."""
        self._marks.put((kind, at_ns, fields))

    def takes(self, gpu: int, opened: Opened) -> bool:
        """Whether the GPU at this position still reads what the recording has of it."""
        return self._writer.takes(gpu, opened)

    def add(self, gpu: int, samples: Samples, reading: Reading) -> None:
        self._writer.set_readings(gpu, reading.sm_mhz, reading.power_w, reading.reasons)
        self._writer.add(gpu, samples)

    def said(self, line: str) -> None:
        self._writer.event("said", text=line)

    def tick(self) -> None:
        """To be called every second or so: what has come gets to the disk."""
        self._write_marks()
        self._writer.tick()

    def flush(self) -> None:
        """Write all that has come."""
        self._write_marks()
        self._writer.flush()

    def close(self, cost: Cost, tallies: Sequence[tuple[str, Tally]]) -> None:
        """End it with what cufall took, in all and by each GPU's UUID. May be called more than once."""
        if self._writer.closed:
            return
        try:
            self._write_marks()
            self._writer.event("cost", **asdict(cost))
        finally:
            self._writer.close(tallies={uuid: asdict(tally) for uuid, tally in tallies})

    def _write_marks(self) -> None:
        while not self._marks.empty():
            kind, at_ns, fields = self._marks.get()
            self._writer.event(kind, start_ns=at_ns, **fields)
