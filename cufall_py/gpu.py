"""One GPU as a session follows it: its ring, its worker's counts, what was missed of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .devices import Device
from .errors import CufallError
from .frames import STEP_NS
from .gaps import gaps
from .ring import RingReader
from .samples import Samples, Tally
from .sources import Opened


@dataclass
class Gpu:
    """One selected GPU.

    `opened` tells what is sampled, None until its worker has begun. `error`: why it will give nothing
    (any more). `away`: it gave samples, and does not now. `tally` and `overwritten` are of all its workers
    so far; what was missed between two of them, or written over unread, counts as lost.
    """

    device: Device
    opened: Opened | None = None
    error: CufallError | None = None
    restarts: int = 0
    away: bool = False
    _reader: RingReader | None = None
    _unread: list[Samples] = field(default_factory=list)
    _before: Tally = field(default_factory=Tally)
    _now: Tally = field(default_factory=Tally)
    _overwritten: int = 0
    _last_end_ns: int = 0
    _missed: bool = False

    @property
    def tally(self) -> Tally:
        return self._before + self._now

    @property
    def overwritten(self) -> int:
        """Batches that were written over before they were read."""
        return self._overwritten + (self._reader.overwritten if self._reader else 0)

    @property
    def live(self) -> bool:
        """Whether samples are to be expected."""
        return self._reader is not None and not self.away

    def attach(self, reader: RingReader, opened: Opened) -> None:
        self.detach()
        self._reader, self.opened = reader, opened
        self._missed = bool(self._last_end_ns)

    def detach(self) -> None:
        """Take leave of the ring; what is still in it is kept for the next read."""
        self._take()
        self.let_go()

    def let_go(self) -> None:
        """Take leave of the ring, whatever is in it."""
        if self._reader is not None:
            self._overwritten = self.overwritten
            self._before, self._now = self.tally, Tally()
            self.away = True
            reader, self._reader = self._reader, None  # first, for a signal may come while it is closed
            reader.close()

    def read(self) -> list[Samples]:
        """What has come since the last time, in runs through which time goes forward; empty ones are a heartbeat."""
        self._take()
        unread, self._unread = self._unread, []
        return unread

    def silence_s(self) -> float:
        return self._reader.heartbeat_age_s() if self._reader else 0.0

    def _take(self) -> None:
        overwritten, batches = self.overwritten, self._reader.read() if self._reader else []
        self._missed |= self.overwritten > overwritten
        if not batches:
            return
        counted, self._now = self._now, batches[-1].tally
        samples = Samples.join([batch.samples for batch in batches])
        self._unread += _runs(samples)
        if len(samples):
            if self._missed:
                self._count_missed(samples, counted)
            self._last_end_ns, self._missed, self.away = int(samples.end_ns[-1]), False, False

    def _count_missed(self, samples: Samples, counted: Tally) -> None:
        """Count the gaps that no worker could: it knows of those among its own samples only, up to `counted` before."""
        found = gaps(samples, self._last_end_ns)
        seen, seen_ns = sum(gap.samples for gap in found), sum(gap.end_ns - gap.start_ns for gap in found)
        told = self._now.lost + self._now.absurd - counted.lost - counted.absurd
        missed = max(0, seen - told)
        self._before.lost += missed
        self._before.lost_ns += round(seen_ns * missed / max(1, seen))


def _runs(samples: Samples) -> list[Samples]:
    """Cut where the clock was set: what comes after is to be put in order by itself."""
    steps = np.diff(samples.start_ns)
    cuts = (np.flatnonzero((steps < 0) | (steps > STEP_NS)) + 1).tolist()
    return [samples[a:b] for a, b in zip([0, *cuts], [*cuts, len(samples)], strict=True)]
