"""The hardware, played: a `Pm` whose GPU misbehaves as real ones were seen to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cufall_py.sources.cupti.protocol import Config, CuptiError, Decoded

MS = 1_000_000
T0 = 1_796_000_000_000_000_000
UNASKED = 77
"""In the place of a time that was not asked for."""


@dataclass
class PlayedPm:
    """Counts 1000 of every counter each period from `T0` on; a test moves `now_ns` and sets what is wrong.
    `decode_ms`: how long a decode takes. `loses_its_place`: once it wrote over records that were not decoded, decodes
    that follow find nothing until as many more are written.

    `known_names` None: every name. `absent_units`: prefixes refused at scheduling; `silent_units`: accepted, then
    silencing all. `refused`: configurations the chip has not. `errors`: call name to status.
    """

    chip: str = "GH100"
    known_names: frozenset[str] | None = None
    absent_units: tuple[str, ...] = ()
    silent_units: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)
    pass_count: int = 1
    peaks: dict[str, float] = field(default_factory=dict)
    buffer_samples: int = 1_000_000
    sysclk_mhz: int = 1000
    decode_ms: float = 0.0
    loses_its_place: bool = False
    now_ns: int = T0
    calls: list[str] = field(default_factory=list)
    start_ns: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    end_ns: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    values: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    enabled: bool = False
    started: bool = False
    overflowed: bool = False
    _times: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((2, 0), np.uint64))
    _next: int = 0
    _backlog: bool = False

    def enable(self) -> str:
        self._enter("enable")
        self.enabled, self.started, self.overflowed, self._backlog = True, False, False, False
        return self.chip

    def known(self, counter: str) -> bool:
        return self.known_names is None or counter in self.known_names

    def schedule(self, counters: Sequence[str]) -> int:
        self._enter("schedule")
        if not all(self.known(name) for name in counters):
            raise CuptiError("ConfigAddMetrics", "INVALID_PARAMETER")
        if any(name.startswith(self.absent_units) for name in counters if self.absent_units):
            raise CuptiError("ConfigAddMetrics", "UNKNOWN")
        self._counters = tuple(counters)
        return self.pass_count

    def configure(self, config: Config) -> None:
        self._enter("configure")
        assert self.enabled and not self.started, "CUPTI cannot configure twice"
        unsupported = {"time trigger": config.time_trigger, "keep latest": config.keep_latest}
        if any(unsupported[what] for what in self.refuses):
            raise CuptiError("PmSamplingSetConfig", "NOT_SUPPORTED")
        self.config = config
        self.period_ns = config.interval if config.time_trigger else config.interval * 1000 // self.sysclk_mhz
        self.start_ns = np.zeros(config.image_samples, np.uint64)
        self.end_ns = np.zeros(config.image_samples, np.uint64)
        self.values = np.zeros((config.image_samples, len(self._counters)))

    def start(self) -> None:
        self._enter("start")
        self.started, self._origin_ns, self._next, self._found_again = True, self.now_ns, 0, 0

    def decode(self) -> Decoded:
        """What CUPTI does: the first sample has no start; a full image leaves the next decodes without times."""
        self._enter("decode")
        self.now_ns += self.period_ns + int(self.decode_ms * MS)
        time.sleep(self.decode_ms / 1000)
        if self.overflowed or self._silenced():
            return Decoded(0, 0, 0, False, self.overflowed)
        done = (self.now_ns - self._origin_ns) // self.period_ns
        if done - self._next > self.buffer_samples:
            if not self.config.keep_latest:
                self.overflowed = True
                return Decoded(0, 0, 0, False, True)
            self._next = done - self.buffer_samples
            self._found_again = self._next + self.buffer_samples * (2 if self.loses_its_place else 0)
        elif done < self._found_again:
            return Decoded(0, 0, 0, False, False)
        else:
            self._next = max(self._next, self._found_again - self.buffer_samples)
        count = min(done - self._next, len(self.values))
        full = count == len(self.values)
        self._write(count, full)
        self._next += count
        first, last = (self._times[0, 0], self._times[1, -1]) if count else (0, 0)
        return Decoded(count, int(first), int(last), full, False)

    def read_times(self, samples: int) -> None:
        self._enter("read_times")
        self.start_ns[:samples], self.end_ns[:samples] = self._times[:, :samples]

    def constants(self, names: Sequence[str]) -> list[float]:
        return [self.peaks.get(name.removesuffix(".peak_sustained"), 1.0) for name in names]

    def clock(self, counter: str) -> str:
        return "sys_cycle" if counter.startswith("gr__") else "gpc_cycle"

    def disable(self) -> None:
        self.calls.append("disable")
        self.enabled = self.started = False

    def close(self) -> None:
        self.calls.append("close")
        self.enabled = self.started = False

    def _write(self, count: int, full: bool) -> None:
        number = np.arange(self._next, self._next + count)
        start = self._origin_ns + number * self.period_ns
        timed = not self._backlog
        self.start_ns[:count] = start * timed
        self.end_ns[:count] = (start + self.period_ns) * timed
        if self._next == 0 and count:
            self.start_ns[0] = 0
        if self._backlog and not full and count:
            self.end_ns[count - 1] = start[-1] + self.period_ns
        self.values[:count] = 1000.0
        self._times = np.stack([self.start_ns[:count], self.end_ns[:count]])
        self.start_ns[:count] = self.end_ns[:count] = UNASKED
        self._backlog = full

    def _silenced(self) -> bool:
        return any(name.startswith(self.silent_units) for name in self._counters if self.silent_units)

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        if call in self.errors:
            raise CuptiError(call, self.errors[call])
