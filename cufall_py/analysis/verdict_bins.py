"""Verdicts over time in bins of one length, whatever the length of a recording: how much of a bin was of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.spans import Span, rounded_out

from .decision_table import CLASSES
from .verdict import Verdicts
from .verdict_frames import FrameTotals
from .windows import Windows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Strip:
    """Consecutive bins of `bin_ns` from `start_ns` (Unix epoch) on, of verdicts of frames of `frame_ns`.

    `shares` (gpus, bins, CLASSES): of each bin, the part that was of each class. What a bin's shares lack to 1 was not
    measured. Of a bin that reaches out of the time that was asked for, what lies within counts.
    """

    start_ns: int
    bin_ns: int
    frame_ns: int
    shares: Floats


class VerdictBins:
    """Takes frames with their verdicts as they come (verdict_scopes.OnFrames), in memory that does not grow with them.

    `spans` (apart, in order, at least one) are the times that are asked for; `bin_ns` is a multiple of `frame_ns`, so
    each frame lies in one bin.
    """

    def __init__(self, gpus: int, spans: Sequence[Span], frame_ns: int, bin_ns: int) -> None:
        ((self._start_ns, end_ns),) = rounded_out([(spans[0][0], spans[-1][1])], bin_ns)
        self._asked, self._frame_ns, self._bin_ns = Windows(spans), frame_ns, bin_ns
        self._times_ns = np.zeros((gpus, (end_ns - self._start_ns) // bin_ns, len(CLASSES)))

    def add(self, gpu: int, frames: FrameTotals, verdicts: Verdicts) -> None:
        """The next frames of the GPU at this position, all within the times that are asked for."""
        bins = (frames.numbers * self._frame_ns - self._start_ns) // self._bin_ns
        np.add.at(self._times_ns[gpu], (bins, verdicts.classes), frames.covered_ns)

    def strip(self) -> Strip:
        """Of all that was added."""
        begins_ns = self._start_ns + self._bin_ns * np.arange(self._times_ns.shape[1], dtype=np.int64)
        asked_ns = self._asked.overlap_ns(begins_ns, begins_ns + self._bin_ns)
        shares = self._times_ns / np.maximum(asked_ns, 1)[None, :, None]
        return Strip(self._start_ns, self._bin_ns, self._frame_ns, np.minimum(shares, 1.0))
