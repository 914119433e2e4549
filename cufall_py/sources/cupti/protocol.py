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

    interval: int
    time_trigger: bool
    keep_latest: bool
    buffer_bytes: int
    image_samples: int


class Decoded(NamedTuple):
    """What a decode found: complete samples, when the first began and the last ended, and why it stopped."""

    samples: int
    start_ns: int
    end_ns: int
    image_full: bool
    overflow: bool


class Pm(Protocol):
    """PM sampling of one GPU. Every method raises CuptiError.

    After `decode()` the first `samples` rows of `values` (float64, one column a counter) hold what was decoded, and
    after `read_times()` those of `start_ns` and `end_ns` (uint64) its times, until the next `decode()`.
    """

    start_ns: NDArray[np.uint64]
    end_ns: NDArray[np.uint64]
    values: NDArray[np.float64]

    def enable(self) -> str:
        """Take the GPU, anew if it was taken before; return CUPTI's name of its chip."""

    def known(self, counter: str) -> bool:
        """Whether the chip has a counter of this name, be its unit there on this GPU or not."""

    def schedule(self, counters: Sequence[str]) -> int:
        """Choose what to sample; return the passes it needs: 1 can be sampled. Fails if any is not there."""

    def configure(self, config: Config) -> None:
        """Set up sampling of what was scheduled; once for each `enable`, for CUPTI cannot do it twice."""

    def start(self) -> None: ...

    def decode(self) -> Decoded: ...

    def read_times(self, samples: int) -> None:
        """Ask for the times of that many samples. A call each, so not for samples whose times are known without."""

    def constants(self, names: Sequence[str]) -> list[float]:
        """Values that are the chip's and not the sample's (`.peak_sustained`); once configured."""

    def clock(self, counter: str) -> str:
        """CUPTI's dimension of a scheduled counter: gpc_cycle, sys_cycle, byte, ..."""

    def disable(self) -> None:
        """Stop and give the GPU back. May be called at any time, and more than once."""

    def close(self) -> None:
        """Disable, and give up the process's profiler state if this was its last user."""
