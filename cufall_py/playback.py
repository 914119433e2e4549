"""Playback: the frames of a recording, as a session gives those of GPUs. Read in process, batch by batch.

Every sample of the part that is played is in a frame, whatever order the GPUs' batches came in: a frame goes out when
each GPU that is still to come in the file has reached its end. Where the part begins or ends within a sample,
that counts by its share; where it does within a frame, the frame is covered in part.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .copying import Copy
from .devices import select
from .errors import InvalidMeasurement
from .frames import Frame
from .keep import parse, told
from .metrics import INFINITE
from .notes import pair_note, rest_lost
from .outline import Event
from .pace import AS_FAST_AS_IT_GOES, Pace
from .part import Part
from .plan import Plan, checked, whole_frames, with_longer_frames
from .played import Clock, Gaps, Readings, cues_of
from .readings import Reading
from .recorded_metrics import Picker, Recorded, metrics_of
from .recording import RecordingWriter
from .recording_reader import Recording, Rows
from .resolve import chip_note
from .rotation import Turn
from .samples import Samples
from .saying import Say
from .sources import Opened
from .span_frames import SpanFramer
from .spans import common, rounded_out

MOST_SILENT_S = 1.0
"""How much may have been played at the end without a GPU, before that is said."""


class Playback:
    """Plays a recording: the metrics, GPUs and frame length of `plan`, of its source nothing. A context manager.

    `say` gets each line a person should read, also the text of each region as it begins. `part` is what is played,
    again and again with `loop`. Times of frames are those of the recording; `pace` only waits.

    Raises CufallError for a file that cannot be read, UsageError for what it cannot be asked for.
    """

    def __init__(
        self,
        path: str | Path,
        plan: Plan = Plan(),
        say: Say = lambda line: None,
        *,
        part: Part = Part(),
        pace: Pace | None = None,
        loop: bool = False,
    ) -> None:
        self.plan, self._say, self._path = checked(plan), say, path
        self._pace, self._loop = pace or Pace(AS_FAST_AS_IT_GOES), loop
        self._recording = Recording(path, say)
        devices = select([opened.device for opened in self._recording.opened], plan.devices)
        recorded = {opened.device.ordinal: k for k, opened in enumerate(self._recording.opened)}
        self._positions = [recorded[device.ordinal] for device in devices]
        self.opened = self._described()
        """What is played of each GPU."""
        self.plan = with_longer_frames(self.plan, max(opened.sample_ns for opened in self.opened), say)
        self.outline = self._recording.outline()
        if self.turn:
            say(self.turn.line)
        self._say_longest()
        self._spans = part.spans(self.outline)
        self._gpus = {position: k for k, position in enumerate(self._positions)}
        self._pickers = [
            Picker(self._recording.opened[position].metrics, opened.metrics)
            for position, opened in zip(self._positions, self.opened, strict=True)
        ]
        self._pairs_to_explain = bool(plan.wanted.denominator)
        self._gaps = Gaps(self.outline.gaps, self._positions)
        self._got, self._played_ns = np.zeros(len(self.opened), np.int64), 0
        self._covered_ns, self._silent_ns = np.zeros(len(self.opened)), np.zeros(len(self.opened))
        self._readings: list[Readings] = []
        self._tick: Callable[[], None] | None = None
        self._copy: Copy | None = None
        self._clock = Clock(self._pace.speed)
        self._frames = self._all_frames()

    @property
    def turn(self) -> Turn | None:
        """Which set of a rotation was recorded, None for one of none."""
        return self._recording.turn

    @property
    def length_s(self) -> float:
        """From the first frame of what is played to the last, once."""
        whole = rounded_out(self._spans, self.plan.frame_ns)
        return (whole[-1][1] - whole[0][0]) / 1e9 if whole else 0.0

    def frames(self, duration_s: float = 0.0, tick: Callable[[], None] | None = None) -> Iterator[Frame]:
        """Frames in order, as many as `duration_s` of recorded time has, or to the end.

        May be called again: what follows is the frame after the last that was taken. `tick` is called while the
        next is waited for. Raises UsageError for a duration that has none.
        """
        self._tick = tick
        return islice(self._frames, whole_frames(duration_s, self.plan) or None)

    def record(self, path: str | Path, force: bool = False, keep: str = "") -> None:
        """Copy what is played from now on, to be asked for before the first frame: all that was recorded, unless the
        plan wants other metrics than the recording did. `keep`: thinned, as `--keep` says (keep.py).

        Raises CufallError if it cannot be written, or is there already and `force` is not given; UsageError for a
        `keep` that is none.
        """
        plan, opened = replace(self._recording.plan, wanted=self.plan.wanted), self.recordable
        pickers = self._pickers if opened is self.opened else [Picker(o.metrics, o.metrics) for o in opened]
        writer = RecordingWriter(
            path,
            opened,
            plan,
            force=force,
            live=False,
            keep=parse(keep),
            of_thinned=self._recording.keep,
            turn=self.turn,
            say=self._say,
        )
        self._copy = Copy(writer, [o.metrics for o in opened], pickers, self._spans, self.outline.regions)

    def paths(self, path: Path) -> list[Path]:
        """Where `record` writes, told this path."""
        return [path]

    @property
    def recordable(self) -> list[Opened]:
        """What `record` copies of each GPU."""
        as_recorded = self.plan.wanted == self._recording.plan.wanted
        return [self._recording.opened[k] for k in self._positions] if as_recorded else self.opened

    def mark(self, kind: str, at_ns: int, **fields: str) -> None:
        """Have an event written into the copy, of the recording's time; from any thread."""
        if self._copy:
            self._copy.mark(Event(kind, None, at_ns, at_ns, fields))

    def moment(self, at_ns: int) -> int:
        """The time of the recording that is, or was a moment ago, played when this machine's clock shows `at_ns`."""
        return self._clock.moment(at_ns)

    def counts(self) -> tuple[int, int]:
        """Samples played and lost so far."""
        return int(self._got.sum()), self._gaps.samples

    def reading(self, gpu: int) -> Reading:
        """What NVML had read of a GPU by the end of the frame that was given last."""
        return self._readings[gpu].current if self._readings else Reading()

    def cost_share(self) -> float:
        """Not known: nothing samples."""
        return float("nan")

    def summary(self) -> list[str]:
        """What was played, in a line for a person."""
        silent_s = {o.device.ordinal: s for k, o in enumerate(self.opened) if (s := self._silent_s(k))}
        silent_s = {} if self.turn else silent_s  # then others had their turn
        lost = f"{self._gaps.samples} lost ({self._gaps.length_ns / 1e9:.3f} s){rest_lost(silent_s)}"
        return [f"{self._got.sum()} samples in {self._played_ns / 1e9:.1f} s of {self._path}, {lost}"]

    def check(self) -> None:
        """Raise InvalidMeasurement if a selected GPU has no sample, nor a part of one, in what was played."""
        without = [str(o.device.ordinal) for o, some in zip(self.opened, self._some(), strict=True) if not some]
        if without:
            raise InvalidMeasurement(f"GPU {', '.join(without)}: no samples in what was played of {self._path}")

    def _some(self) -> NDArray[np.bool_]:
        """(gpus,) whether anything of it was in what was played."""
        some: NDArray[np.bool_] = (self._got > 0) | (self._covered_ns > 0)
        return some

    def _silent_s(self, gpu: int) -> float:
        """How much was played since there was anything of this GPU, if that is too much, else 0; infinite: all."""
        if not self._some()[gpu]:
            return INFINITE
        silent_s = float(self._silent_ns[gpu]) / 1e9
        return silent_s if silent_s > MOST_SILENT_S else 0.0

    def close(self) -> None:
        """Let go of the file, and end the copy with what was played. May be called more than once."""
        self._frames.close()
        if self._copy:
            self._copy.close(self.moment(time.time_ns()))

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _described(self) -> list[Opened]:
        opened = [self._recording.opened[k] for k in self._positions]
        sets, lines = metrics_of(self.plan.wanted, [Recorded(o) for o in opened], self.turn)
        notes = dict.fromkeys(chip_note(self.plan.wanted, o.device.chip) for o in opened)
        for line in filter(None, [*lines, *notes]):
            self._say(line)
        return [replace(o, metrics=metrics) for o, metrics in zip(opened, sets, strict=True)]

    def _say_longest(self) -> None:
        """Where a recording was thinned, samples may be longer than frames: only a line can tell."""
        periods = [period_ns for k in self._positions for _, period_ns in self.outline.periods[k]]
        longest_ns = max((period_ns for period_ns in periods if period_ns > 0), default=0.0)
        if self._recording.keep and longest_ns > self.plan.frame_ns:
            self._say(
                f"thinned ({told(self._recording.keep)}): samples of up to {longest_ns / 1e6:.4g} ms are longer than "
                "frames; each is spread over its frames"
            )

    def _all_frames(self) -> Generator[Frame, None, None]:
        again = bool(self._spans)
        while again:
            yield from self._once()
            again = self._loop

    def _once(self) -> Iterator[Frame]:
        framer = self._framer()
        cues = deque(cues_of(self.outline.regions, self._spans))
        self._readings = [Readings() for _ in self.opened]
        for frame in self._framed(framer):
            while cues and cues[0][0] < frame.end_ns:
                self._say(cues.popleft()[1])
            self._clock.enter(max(frame.start_ns, self._spans[0][0]), frame.end_ns)
            self._pace.wait(frame.period_ns / 1e9, self._tick)
            self._clock.enter(frame.end_ns, frame.end_ns)
            self._note(frame)
            yield frame
        if framer.behind:
            self._say(f"{framer.behind} samples lie before earlier ones, for a clock was set back: they are left out")

    def _framer(self) -> SpanFramer:
        sets, of = [opened.metrics for opened in self.opened], self.outline
        counts, periods = [of.counts[k] for k in self._positions], [of.periods[k] for k in self._positions]
        return SpanFramer(sets, self.plan.frame_ns, self._spans, counts, periods)

    def _framed(self, framer: SpanFramer) -> Iterator[Frame]:
        for item in self._recording.items():
            if item.gpu in self._gpus:
                self._take(self._gpus[item.gpu], item, framer)
                yield from framer.ready()
            elif item.gpu is None:
                self._pass_on(None, item)
            if framer.done and not self._copy:  # which wants the events that are still to come
                return
        yield from framer.rest()

    def _take(self, gpu: int, item: Rows | Event, framer: SpanFramer) -> None:
        self._readings[gpu].add(item)
        self._pass_on(gpu, item)
        if isinstance(item, Rows):
            samples = self._pickers[gpu].of(item.samples)
            framer.add(gpu, samples)
            self._explain(gpu, samples)

    def _pass_on(self, gpu: int | None, item: Rows | Event) -> None:
        if self._copy:
            self._copy.add(gpu, item)

    def _explain(self, gpu: int, samples: Samples) -> None:
        if self._pairs_to_explain:
            self._pairs_to_explain = False
            if note := pair_note(self.opened[gpu], samples):
                self._say(note)

    def _note(self, frame: Frame) -> None:
        """What has been played, and been lost in it."""
        played_ns = sum(b - a for a, b in common([(frame.start_ns, frame.end_ns)], self._spans))
        self._played_ns += played_ns
        self._silent_ns = np.where(frame.covered_ns > 0, 0, self._silent_ns + played_ns)
        self._got += frame.got
        self._covered_ns += frame.covered_ns
        self._gaps.count(frame)
        for readings in self._readings:
            readings.move_to(frame.end_ns)
        if self._copy:
            self._copy.until(frame.end_ns)
