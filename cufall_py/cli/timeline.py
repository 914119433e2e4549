"""The timeline on a terminal: frames in, drawings out, keys answered."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cufall_py.frames import Frame
from cufall_py.views.history import History
from cufall_py.views.keys import begin, pressed
from cufall_py.views.styled import to_ansi
from cufall_py.views.timeline import Scene, screen

from . import STDOUT, writing
from .playing import FrameSource
from .screen import Aside, Quit, Screen, full_screen

LEAST_GAP_S = 0.1
REST = 50
"""A drawing is followed by a rest of so many times what it took: it never takes more than 2 % of a core."""
MOST_GAP_S = 1.0


@contextmanager
def timeline(
    source: FrameSource, aside: Aside, length_s: float | None, colour: bool, ascii_only: bool
) -> Iterator[Timeline]:
    """A timeline of these frames on stdout, for as long as this lasts; `length_s` long they are in all, if known."""
    with aside.held():
        with full_screen(sys.stdin.fileno(), sys.stdout.fileno()) as on:
            shown = Timeline(source, aside, on, length_s, colour, ascii_only)
            yield shown
        shown.leave_behind()  # where frames have ended by themselves


class Timeline:
    """Takes each frame with `add`; `tick` is to be called between them, many times a second."""

    def __init__(
        self,
        source: FrameSource,
        aside: Aside,
        on: Screen,
        length_s: float | None,
        colour: bool,
        ascii_only: bool,
    ) -> None:
        self._source, self._aside, self._screen = source, aside, on
        self._colour, self._ascii_only = colour, ascii_only
        metrics = source.opened[0].metrics.metrics
        self._history = History(source.plan.frame_ns, len(source.opened), len(metrics))
        self._state = begin(len(metrics), self._history.slot_ns, self._history.span_ns, length_s)
        self._scene = Scene(_title(source), tuple(o.label for o in source.opened), metrics, ())
        self._fresh, self._asked, self._size = False, True, (0, 0)
        self._ticked_s = self._drawn_s = self._due_s = 0.0

    def add(self, frame: Frame) -> None:
        self._history.add(frame)
        with_samples = frame.expected[frame.expected > 0]
        if len(with_samples):
            self._scene = replace(self._scene, sample_ns=frame.period_ns / float(with_samples[0]))
        self._fresh = True
        if time.monotonic() > self._ticked_s + LEAST_GAP_S:  # of frames that never let it wait
            self.tick()

    def tick(self) -> None:
        """Answer keys and draw, if there is something to draw and it is time. Raises Quit."""
        self._ticked_s = now_s = time.monotonic()
        for key in self._screen.pressed():
            self._press(key)
        if now_s < self._drawn_s + LEAST_GAP_S:
            return
        asked = self._asked or self._screen.stale or self._screen.size() != self._size
        if asked or (self._fresh and now_s >= self._due_s) or now_s >= self._drawn_s + MOST_GAP_S:
            self._draw(now_s)

    def _press(self, key: str) -> None:
        before, self._state = self._state, pressed(self._state, key)
        if self._state.ended:
            raise Quit
        if self._state.paused != before.paused:
            self._scene = replace(self._scene, end=self._history.newest if self._state.paused else -1)
        self._asked = True

    def _draw(self, now_s: float) -> None:
        began_s = time.thread_time()
        self._size = self._screen.size()
        lines = self._picture()
        encoding = "ascii" if self._ascii_only else sys.stdout.encoding
        with writing(STDOUT):
            self._screen.draw(lines, encoding)
        self._fresh, self._asked, self._drawn_s = False, False, now_s
        self._due_s = now_s + max(LEAST_GAP_S, REST * (time.thread_time() - began_s))

    def leave_behind(self) -> None:
        """Write the last picture where a person finds it after the screen has gone."""
        with writing(STDOUT):
            print(*self._picture(), sep="\n", flush=True)

    def _picture(self) -> list[str]:
        lines = screen(self._history, self._seen(), self._state, *self._size, self._ascii_only)
        return [to_ansi(line, self._colour) for line in lines]

    def _seen(self) -> Scene:
        readings = tuple(map(self._source.reading, range(len(self._source.opened))))
        gpus = tuple(opened.label for opened in self._source.opened)
        return replace(
            self._scene, gpus=gpus, readings=readings, cost=self._source.cost_share(), message=self._aside.newest
        )


def _title(source: FrameSource) -> str:
    names = Counter(opened.device.name for opened in source.opened)
    gpus = ", ".join(f"{count} × {name}" for name, count in names.items())
    return f"{gpus} by {' and '.join(dict.fromkeys(o.source for o in source.opened))}"
