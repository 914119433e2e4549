"""Intervals between scrapes of an inference server, as arrays: what phases and concurrency are told by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Scrapes:
    """k intervals between two scrapes each, in order; they may lie apart, where a scrape failed. NaN: not known.

    - `start_ns`, `end_ns` (k,): Unix epoch; `error_ns` (k, 2): how far those two may be off
    - `prompt`, `generation` (k,): tokens counted in between; `decode` (k,): those that decoding made, without the first
      of each request; `of_steps` (k,): whether these counters move with each step
    - `prefill_s` (k,): prompts that were counted may have been begun so long before the interval; 0 where they are
      counted step by step
    - `running` (k, 2): requests before and after; `running_of_steps` (k,): whether that gauge moves with each step
    - `itl_s`, `itl_count` (k,): what the histogram of inter-token latencies took in
    """

    start_ns: Ints
    end_ns: Ints
    error_ns: Ints
    prompt: Floats
    generation: Floats
    decode: Floats
    prefill_s: Floats
    of_steps: Bools
    running: Floats
    running_of_steps: Bools
    itl_s: Floats
    itl_count: Floats

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def joined(self) -> Bools:
        """(k,) whether the next interval begins where this one ends; the last has none."""
        return np.append(self.end_ns[:-1] == self.start_ns[1:], False)[: len(self)]
