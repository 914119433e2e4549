"""What the CUPTI source needs of CUPTI: a few calls, so that a test can play the hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class CuptiError(Exception):
    """A CUPTI call that failed: `call` is its name, `status` CUPTI's own name of the reason."""

    def __init__(self, call: str, status: str) -> None:
        super().__init__(f"{call}: {status}")
        self.call = call
        self.status = status


@dataclass(frozen=True)
class Config:
    """How one GPU is to be sampled.

    `interval` counts nanoseconds with the time trigger, SYSCLK cycles without it.
    `image_samples` is the most samples that one decode can hand over.
    """

    counters: tuple[str, ...]
    interval: int
    time_trigger: bool
    keep_latest: bool
    buffer_bytes: int
    image_samples: int


class Decoded(NamedTuple):
    """What a decode found: complete samples, and why it stopped."""

    samples: int
    image_full: bool
    overflow: bool


class Pm(Protocol):
    """PM sampling of one GPU. Every method raises CuptiError.

    After `decode()` the first `samples` rows of `start_ns`, `end_ns` (uint64) and `values`
    (float64, one column a counter) hold what was decoded, until the next `decode()`.
    """

    start_ns: NDArray[np.uint64]
    end_ns: NDArray[np.uint64]
    values: NDArray[np.float64]

    def enable(self) -> str:
        """Take the GPU; return CUPTI's name of its chip."""

    def passes(self, counters: Sequence[str]) -> int:
        """How many passes this set needs: 1 can be sampled."""

    def present(self, counters: Sequence[str]) -> bool:
        """Whether this GPU has the units of all these counters that its chip knows."""

    def clock(self, counter: str) -> str:
        """CUPTI's dimension of a counter: gpc_cycle, sys_cycle, byte, ..."""

    def configure(self, config: Config) -> None:
        """Set up sampling; once for each `enable`."""

    def start(self) -> None: ...

    def decode(self) -> Decoded: ...

    def constants(self, names: Sequence[str]) -> list[float]:
        """Values that are the chip's and not the sample's (`.peak_sustained`); once configured."""

    def stop(self) -> None: ...

    def disable(self) -> None:
        """Give the GPU back. May be called at any time, and more than once."""
