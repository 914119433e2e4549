"""Frames of chosen stretches of recorded time, from the rows of a file in whatever order its GPUs' batches lie."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .frames import Frame, Framer
from .metrics import MetricSet
from .outline import forward, period_at
from .samples import Floats, Ints, Samples
from .spans import Span, rounded_out

FOREVER_NS = 2**62


class SpanFramer:
    """Every frame that holds a part of `spans` (apart and in order), once each.

    A sample counts in `got` where it ends, if that is in a span: once, though several spans have a part of it.

    `counts`: the samples that each GPU has in the file, so that none is waited for that has no more to come;
    `periods`: the period they come in from when on, as Outline has it. `behind` counts those left out because they
    begin before others of their GPU ended: a clock was set back.
    """

    def __init__(
        self,
        sets: Sequence[MetricSet],
        frame_ns: int,
        spans: Sequence[Span],
        counts: Sequence[int],
        periods: Sequence[Sequence[tuple[int, float]]],
    ) -> None:
        self._framer = Framer(list(sets), frame_ns, 0, lambda: self._at_ns)
        self._at_ns = 0  # the file's own time is its clock, and is never set
        self._spans = list(spans)
        self._starts, self._ends = (np.array([span[k] for span in spans], np.int64) for k in (0, 1))
        self._whole = deque(rounded_out(spans, frame_ns))
        self._summed = [summed_counters(metrics) for metrics in sets]
        self._left, self._reached_ns = list(counts), [0] * len(sets)
        self._frame_ns, self._periods, self._got = frame_ns, periods, [Counter[int]() for _ in sets]
        self.behind = 0
        if self._whole:
            self._framer.begin_at(self._whole[0][0])

    @property
    def done(self) -> bool:
        """Whether all frames are out."""
        return not self._whole

    def add(self, gpu: int, samples: Samples) -> None:
        """Take the next rows of a GPU."""
        ahead = forward(samples.start_ns, samples.end_ns, self._reached_ns[gpu])
        self.behind += len(samples) - int(ahead.sum())
        samples = samples[ahead]
        if not len(samples):
            return
        self._left[gpu] -= len(samples)
        self._reached_ns[gpu] = int(samples.end_ns[-1])
        first = np.searchsorted(self._ends, samples.start_ns[0], side="right")
        last = np.searchsorted(self._starts, samples.end_ns[-1], side="left")
        for span in self._spans[first:last]:
            self._count(gpu, samples.end_ns[ending(samples, span)])
            for run in _runs(within(samples, span, self._summed[gpu])):
                self._at_ns = int(run.end_ns[-1])
                self._framer.add(gpu, run)

    def _count(self, gpu: int, ends_ns: Ints) -> None:
        """These are ends of samples, by the start of the frame that each is in."""
        frames, counts = np.unique((ends_ns - 1) // self._frame_ns * self._frame_ns, return_counts=True)
        self._got[gpu].update(dict(zip(frames.tolist(), counts.tolist(), strict=True)))

    def ready(self) -> Iterator[Frame]:
        """The frames whose end every GPU has reached that has more to come."""
        left = [reached for reached, left in zip(self._reached_ns, self._left, strict=True) if left > 0]
        return self._until(min(left, default=FOREVER_NS))

    def rest(self) -> Iterator[Frame]:
        """The frames that are left when no rows are."""
        return self._until(FOREVER_NS)

    def _until(self, end_ns: int) -> Iterator[Frame]:
        while self._whole:
            span_end_ns = self._whole[0][1]
            frames = self._framer.until(min(end_ns, span_end_ns))
            yield from map(self._told, frames)
            if frames:
                continue
            if end_ns < span_end_ns:
                return
            self._whole.popleft()
            if self._whole:
                self._framer.begin_at(self._whole[0][0])

    def _told(self, frame: Frame) -> Frame:
        """With what the file says of its samples, whatever was cut off them."""
        got = np.array([ended.pop(frame.start_ns, 0) for ended in self._got])
        return replace(frame, expected=self._expected(frame.start_ns), got=got)

    def _expected(self, at_ns: int) -> Floats:
        return self._frame_ns / np.array([period_at(periods, at_ns) for periods in self._periods])


def within(samples: Samples, span: Span, summed: NDArray[np.bool_]) -> Samples:
    """What of samples (in order) lies in a span; of one that straddles its edge a share of its `summed` counters."""
    part = samples[touching(samples, span)]
    if not len(part) or (span[0] <= part.start_ns[0] and part.end_ns[-1] <= span[1]):
        return part
    start, end = np.maximum(part.start_ns, span[0]), np.minimum(part.end_ns, span[1])
    share: Floats = (end - start) / (part.end_ns - part.start_ns)
    values = np.where(summed, part.values * share[:, None], part.values)
    return Samples(start, end, values, part.minimum, part.maximum)


def touching(samples: Samples, span: Span) -> slice:
    """Which of samples (in order) lie in a span, at least in part."""
    first = int(np.searchsorted(samples.end_ns, span[0], side="right"))
    return slice(first, int(np.searchsorted(samples.start_ns, span[1], side="left")))


def ending(samples: Samples, span: Span) -> slice:
    """Which of samples (in order) end in a span; of a sample that lies in several, that is one at most."""
    first, last = np.searchsorted(samples.end_ns, span, side="right").tolist()
    return slice(first, last)


def _runs(samples: Samples) -> list[Samples]:
    """Cut so that what has no value (NaN) is apart, and takes away that of no frame but those it lies in."""
    lacking = np.isnan(samples.values).any(axis=1)
    edges = [0, *(np.flatnonzero(np.diff(lacking)) + 1).tolist(), len(samples)]
    return [samples[a:b] for a, b in pairwise(edges) if a < b]


def summed_counters(metrics: MetricSet) -> NDArray[np.bool_]:
    """Which counters add up over time: not those that are rates."""
    rates = {metric.counters[0] for metric in metrics.metrics if metric.rate}
    return np.array([name not in rates for name in metrics.counters], bool)
