"""`--view verdict`: the last seconds of each GPU on a full screen, or a line a frame where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from cufall_py.analysis.decision_table import CLASSES, DecisionTable
from cufall_py.analysis.groups import across, found_or_named, positions
from cufall_py.analysis.recent import Recent
from cufall_py.analysis.verdict_windows import WindowVerdict
from cufall_py.frames import Frame
from cufall_py.views.groups import told
from cufall_py.views.styled import Line
from cufall_py.views.verdict import row
from cufall_py.views.verdict_screen import Scene, screen

from . import STDOUT, writing
from .full_view import FullView, shown
from .playing import FrameSource
from .screen import Aside, Quit, Screen

Groups = Mapping[str, Sequence[int]]
SHOWN_S = 10.0
GAP_S, MOST_GAP_S = 0.25, 1.0
LEAST_FRAMES, MOST_FRAMES = 2, 10_000


def verdicts(
    source: FrameSource,
    aside: Aside,
    colour: bool,
    ascii_only: bool,
    table: DecisionTable,
    groups: Groups | None = None,
) -> AbstractContextManager[VerdictScreen]:
    """Verdicts of these frames on stdout, for as long as this lasts, and what `groups`, by CUDA's numbers, come to:
    those that behave alike if it is empty. Raises UsageError for a GPU of them that is not there."""
    at = None if groups is None else positions(groups, [opened.device.ordinal for opened in source.opened])
    return shown(aside, lambda on: VerdictScreen(source, aside, on, colour, ascii_only, table, at))


class VerdictScreen(FullView):
    """Takes each frame with `add`; `tick` is to be called between them, many times a second."""

    def __init__(
        self,
        source: FrameSource,
        aside: Aside,
        on: Screen,
        colour: bool,
        ascii_only: bool,
        table: DecisionTable,
        groups: Groups | None,
    ) -> None:
        super().__init__(on, colour, ascii_only)
        self._source, self._aside = source, aside
        self._recent, self._groups = recent(source, SHOWN_S, table), groups
        self._drawn_s, self._fresh = 0.0, True

    def add(self, frame: Frame) -> None:
        self._recent.add(frame.mean, frame.minimum, frame.covered_ns, frame.period_ns)
        self._fresh = True
        self.tick()

    def tick(self) -> None:
        """Answer keys and draw, if it is time. Raises Quit."""
        if "q" in self._screen.pressed():
            raise Quit
        now_s = time.monotonic()
        if self.outdated or now_s >= self._drawn_s + (GAP_S if self._fresh else MOST_GAP_S):
            self._drawn_s, self._fresh = now_s, False
            self.draw()

    def picture(self, columns: int, lines: int, ascii_only: bool) -> list[Line]:
        codes = self._recent.codes()
        seconds = len(codes) * self._source.plan.frame_ns / 1e9
        gpus, windows = [opened.label for opened in self._source.opened], self._recent.windows()
        groups = [*self._told(codes, windows, gpus)]
        scene = Scene("verdicts", gpus, windows, codes, seconds, self._aside.newest, groups)
        return screen(scene, columns, lines, ascii_only)

    def _told(self, codes: NDArray[np.int8], windows: Sequence[WindowVerdict], gpus: Sequence[str]) -> Iterator[str]:
        """A line a group."""
        if self._groups is None:
            return
        shares, means = [window.shares for window in windows], [window.means for window in windows]
        for name, of in found_or_named(self._groups, shares, means).items():
            labels = [gpus[k] for k in of]
            yield f"{name} ({', '.join(labels)}): {told(across(codes[:, [*of]]), labels)}"


def line_sink(source: FrameSource, flush: bool, table: DecisionTable) -> Callable[[Frame], None]:
    """A line a frame on stdout."""
    last = recent(source, 0.0, table)

    def write(frame: Frame) -> None:
        last.add(frame.mean, frame.minimum, frame.covered_ns, frame.period_ns)
        codes, means = last.newest()
        gpus = [opened.label for opened in source.opened]
        with writing(STDOUT):
            print(row(frame.start_ns, gpus, [CLASSES[code] for code in codes], means), flush=flush)

    return write


def recent(source: FrameSource, seconds: float, table: DecisionTable) -> Recent:
    """What keeps the verdicts of so many seconds of frames."""
    frames = round(seconds * 1e9 / source.plan.frame_ns)
    kept = min(max(frames, LEAST_FRAMES), MOST_FRAMES)
    return Recent(source.opened[0].metrics.metrics, len(source.opened), kept, table)
