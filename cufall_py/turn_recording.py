"""The recording of one set of a rotation: sessions write into it turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .keep import Keep
from .live_recording import LiveRecording
from .plan import Plan
from .rotation import Turn
from .samples import Tally
from .saying import Say
from .self_cost import Cost, together
from .sources import Opened


class TurnRecording(LiveRecording):
    """Whatever session writes into it closes it, which ends no more than that turn; `end` ends the file."""

    def __init__(
        self, path: Path, opened: list[Opened], plan: Plan, force: bool, keep: Keep, say: Say, turn: Turn
    ) -> None:
        super().__init__(path, opened, plan, force, keep, say, turn)
        self._cost, self._tallies = Cost(), [(of.device.uuid, Tally()) for of in opened]

    def close(self, cost: Cost, tallies: Sequence[tuple[str, Tally]]) -> None:
        """To be called once a turn."""
        self._cost = together([self._cost, cost])
        pairs = zip(self._tallies, tallies, strict=True)
        self._tallies = [(uuid, before + now) for (uuid, before), (_, now) in pairs]
        self._writer.pause()
        self.flush()

    def begun(self, at_ns: int) -> None:
        """The first sample of any set was then: where the time of all these files begins."""
        self._writer.begun(at_ns)

    def end(self, at_ns: int) -> None:
        """Sampling ended then; with what all turns took. May be called more than once."""
        if self._writer.closed:
            return
        try:
            self._writer.resume(at_ns)
        finally:
            super().close(self._cost, self._tallies)
