"""The timeline on a terminal: frames in, drawings out, keys answered."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from cufall_py.frames import Frame
from cufall_py.views.history import History
from cufall_py.views.keys import begin, pressed
from cufall_py.views.styled import Line
from cufall_py.views.timeline import Scene, screen

from .full_view import FullView
from .playing import FrameSource
from .screen import Aside, Quit, Screen

LEAST_GAP_S = 0.1
REST = 50
"""A drawing is followed by a rest of so many times what it took: it never takes more than 2 % of a core."""
MOST_GAP_S = 1.0


class Timeline(FullView):
    """Takes each frame with `add`; `tick` is to be called between them, many times a second.

    The frames are `length_s` long in all, if that is known.
    """

    def __init__(
        self,
        source: FrameSource,
        aside: Aside,
        on: Screen,
        length_s: float | None,
        colour: bool,
        ascii_only: bool,
    ) -> None:
        super().__init__(on, colour, ascii_only)
        self._source, self._aside = source, aside
        metrics = source.opened[0].metrics.metrics
        self._history = History(source.plan.frame_ns, len(source.opened), len(metrics))
        self._state = begin(len(metrics), self._history.slot_ns, self._history.span_ns, length_s)
        self._scene = Scene(_title(source), tuple(o.label for o in source.opened), metrics, ())
        self._fresh, self._asked = False, True
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
        asked = self._asked or self.outdated
        if asked or (self._fresh and now_s >= self._due_s) or now_s >= self._drawn_s + MOST_GAP_S:
            self._draw_at(now_s)

    def _press(self, key: str) -> None:
        before, self._state = self._state, pressed(self._state, key)
        if self._state.ended:
            raise Quit
        if self._state.paused != before.paused:
            self._scene = replace(self._scene, end=self._history.newest if self._state.paused else -1)
        self._asked = True

    def _draw_at(self, now_s: float) -> None:
        began_s = time.thread_time()
        self.draw()
        self._fresh, self._asked, self._drawn_s = False, False, now_s
        self._due_s = now_s + max(LEAST_GAP_S, REST * (time.thread_time() - began_s))

    def picture(self, columns: int, lines: int, ascii_only: bool) -> list[Line]:
        return screen(self._history, self._seen(), self._state, columns, lines, ascii_only)

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
