"""Frames: all GPUs over one period, put together from batches as they come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .metrics import MetricSet
from .samples import Floats, Fold, Ints, Samples, fold, merge

MOST_AT_ONCE = 1000
STEP_NS = 60_000_000_000
"""Times further than this from where they were due are of a clock that was set."""


@dataclass(frozen=True)
class Frame:
    """Every GPU from `start_ns` (Unix epoch, a multiple of `period_ns`) on.

    `mean`, `minimum`, `maximum` (gpus, metrics) are NaN where nothing was measured: means are quotients
    of sums, extremes those of the samples that touch the frame. `covered_ns`, `got` (gpus,) say how much
    was measured; `expected` (gpus,) how many samples a whole frame has, at the period they come in.
    """

    start_ns: int
    period_ns: int
    mean: Floats
    minimum: Floats
    maximum: Floats
    covered_ns: Floats
    got: Ints
    expected: Floats

    @property
    def coverage(self) -> Floats:
        """(gpus,) share of the frame that was measured, 0..1."""
        return self.covered_ns / self.period_ns

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.period_ns


class Framer:
    """Turns batches of samples into frames, oldest first, each once.

    A frame is ready when every live GPU has reached its end, or `wait_ns` after it. Samples that come
    later still are counted in `late` and change no frame. What time it is, is told by the newest sample and
    the monotonic clock since it came: the wall clock may be set at any moment. When the samples' own
    clock was set, frames go on from where it stands now.
    """

    def __init__(
        self,
        sets: list[MetricSet],
        frame_ns: int,
        wait_ns: int,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._sets, self._frame_ns, self._wait_ns, self._monotonic_ns = list(sets), frame_ns, wait_ns, monotonic_ns
        self._folds: list[list[Fold]] = [[] for _ in sets]
        self._reached = [0] * len(sets)
        self._period_ns = [0.0] * len(sets)
        self._next_ns = self._first_ns = 0
        self._newest_ns, self._newest_came_ns = 0, 0
        self.late = [0] * len(sets)

    def describe(self, gpu: int, metrics: MetricSet) -> None:
        """What this GPU's samples are from now on: known only now for one that began late."""
        self._sets[gpu] = metrics

    def add(self, gpu: int, samples: Samples) -> None:
        """Take a batch of GPU number `gpu` of the sets; time goes forward in it."""
        if self._next_ns and self._was_set(gpu, samples):
            self._start_over(gpu, samples)
        late = samples.end_ns <= self._next_ns if self._next_ns else np.zeros(len(samples), bool)
        self.late[gpu] += int((late & (samples.end_ns > self._first_ns)).sum())
        if late.all():
            return
        batch = samples[~late]
        self._period_ns[gpu] = float(np.median(batch.end_ns - batch.start_ns))
        self._folds[gpu].append(fold(batch, self._frame_ns, self._sets[gpu]))
        self._reached[gpu] = int(batch.end_ns[-1])
        if self._reached[gpu] > self._newest_ns:
            self._newest_ns, self._newest_came_ns = self._reached[gpu], self._monotonic_ns()

    def begun(self) -> list[bool]:
        """Which GPUs have given a sample."""
        return [bool(reached) for reached in self._reached]

    def begin(self, now_ns: int) -> int:
        """Let the first frame be the first that every GPU which has begun can fill; the next if none has.

        Returns its start. What ends before it is not late, it is before the beginning.
        """
        starts = [folds[0].start_ns for folds in self._folds if folds]
        if not starts:
            self._newest_ns, self._newest_came_ns = now_ns, self._monotonic_ns()
        return self.begin_at(max(starts, default=now_ns // self._frame_ns * self._frame_ns) + self._frame_ns)

    def begin_at(self, start_ns: int) -> int:
        """Let the next frame be the one that begins then, a multiple of the frame's length. Returns it."""
        self._next_ns = self._first_ns = start_ns
        return start_ns

    def ready(self, live: list[bool]) -> list[Frame]:
        """The frames that can go out now, but no more than MOST_AT_ONCE: ask again until there are none."""
        if not self._next_ns:
            return []
        reached = [r for r, alive in zip(self._reached, live, strict=True) if alive]
        waited_for = max(self._now_ns() - self._wait_ns, min(reached, default=0))
        return self.until(waited_for)

    def until(self, end_ns: int) -> list[Frame]:
        """The frames that end by then, whoever has reached it, but no more than MOST_AT_ONCE."""
        return self._out((end_ns - self._next_ns) // self._frame_ns)

    def _now_ns(self) -> int:
        return self._newest_ns + self._monotonic_ns() - self._newest_came_ns

    def _was_set(self, gpu: int, samples: Samples) -> bool:
        """Whether the samples' clock was set: they are of a future, or of this GPU's own past."""
        future = int(samples.end_ns[-1]) > self._now_ns() + STEP_NS
        return future or int(samples.end_ns[-1]) < self._reached[gpu] - STEP_NS

    def _start_over(self, gpu: int, samples: Samples) -> None:
        """Forget all that has no place on the new clock: frames go on with the first that these can fill."""
        self._folds = [[] for _ in self._sets]
        self._reached = [0] * len(self._sets)
        self._next_ns = -(-int(samples.start_ns[0]) // self._frame_ns) * self._frame_ns
        self._reached[gpu] = self._newest_ns = int(samples.end_ns[-1])
        self._newest_came_ns = self._monotonic_ns()

    def _out(self, count: int) -> list[Frame]:
        if count <= 0:
            return []
        merged = [merge([self._blank(gpu), *folds]) for gpu, folds in enumerate(self._folds)]
        frames = [self._frame(merged, k) for k in range(min(count, MOST_AT_ONCE))]
        self._next_ns += len(frames) * self._frame_ns
        self._folds = [_later(folds, self._next_ns) for folds in self._folds]
        return frames

    def _blank(self, gpu: int) -> Fold:
        metrics = self._sets[gpu]
        return Fold.blank(self._next_ns, self._frame_ns, len(metrics.counters), len(metrics.metrics))

    def _frame(self, merged: list[Fold], k: int) -> Frame:
        start_ns = self._next_ns + k * self._frame_ns
        rows = [_row(fold, start_ns) for fold in merged]
        totals = [row.totals for row in rows]
        return Frame(
            start_ns,
            self._frame_ns,
            np.concatenate([s.ratios(t) for s, t in zip(self._sets, totals, strict=True)]),
            np.concatenate([row.minimum for row in rows]),
            np.concatenate([row.maximum for row in rows]),
            np.array([total[0, -1] for total in totals]),
            np.array([row.got[0] for row in rows]),
            np.array([self._frame_ns / p if p else np.nan for p in self._period_ns]),
        )


def _row(fold: Fold, start_ns: int) -> Fold:
    """One frame of a fold; an empty one where the fold does not reach."""
    k = (start_ns - fold.start_ns) // fold.frame_ns
    if 0 <= k < len(fold):
        return fold.between(k, k + 1)
    return Fold.blank(start_ns, fold.frame_ns, fold.totals.shape[1] - 1, fold.minimum.shape[1])


def _later(folds: list[Fold], from_ns: int) -> list[Fold]:
    """The folds that reach beyond `from_ns`, cut to begin there."""
    skips = [max(0, (from_ns - f.start_ns) // f.frame_ns) for f in folds]
    return [f.between(skip, len(f)) for f, skip in zip(folds, skips, strict=True) if skip < len(f)]
