"""What `cufall attach` shows as it goes: a full screen, lines where there is none, rows of CSV."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from . import STDOUT, writing
from .charset import takes
from .csv_file import csv_writer, place_of
from .full_view import FullView, shown
from .options import in_colour
from .screen import Aside, Quit, Screen, why_no_screen

if TYPE_CHECKING:
    from cufall_py.engines.servers import Server
    from cufall_py.followed import Latest, Now
    from cufall_py.frames import Frame
    from cufall_py.sources import Opened
    from cufall_py.views.served_screen import Block
    from cufall_py.views.styled import Line

GAP_S = 0.25


class Attached(Protocol):
    """What is shown: servers that are attached to, or a recording of some."""

    opened: list[Opened]
    servers: list[Server]

    def gpus_of(self, server: int) -> tuple[Opened, ...]:
        """The GPUs of the server at this position."""

    def latest(self) -> Latest:
        """The newest frame, and of each server what it said last."""


class Shown(Protocol):
    def tick(self) -> None:
        """Show what is new; called many times a second."""


def view_of(attachment: Attached, options: dict[str, Any], aside: Aside) -> AbstractContextManager[Shown | None]:
    if options["as_json"] or options["csv_path"] == "-" or not sys.stdout:
        return nullcontext()
    ascii_only = not takes(sys.stdout, "█·▇")
    return screen_of(attachment, aside, options["color"], ascii_only) or nullcontext(Lines(attachment))


class Lines:
    """A line a server and second."""

    def __init__(self, attachment: Attached) -> None:
        self._attachment = attachment
        self._last_ns = [0] * len(attachment.servers)

    def tick(self) -> None:
        from cufall_py.views.served import line
        from cufall_py.views.served_screen import across
        from cufall_py.views.waterfall import clock

        latest = self._attachment.latest()
        for k, now in enumerate(latest.servers):
            if not now.reading or now.reading.when.at_ns == self._last_ns[k]:
                continue
            self._last_ns[k] = now.reading.when.at_ns
            words = [clock(now.reading.when.at_ns), *([_title(now)] if len(latest.servers) > 1 else [])]
            words.append(line(now.reading, now.interval))
            words += across(*_gpus(self._attachment, k, latest.frame), _metrics(self._attachment))
            with writing(STDOUT):
                print("  ".join(words), flush=True)


def screen_of(
    attachment: Attached, aside: Aside, colour: bool | None, ascii_only: bool
) -> AbstractContextManager[Shown] | None:
    """A full screen, if the terminal can be one."""
    if why_no_screen(sys.stdin, sys.stdout, os.environ):
        return None
    coloured = in_colour(colour, os.environ, True)
    return shown(aside, lambda on: AttachScreen(attachment, aside, on, coloured, ascii_only))


class AttachScreen(FullView):
    """Draws the newest, four times a second."""

    def __init__(self, attachment: Attached, aside: Aside, on: Screen, colour: bool, ascii_only: bool) -> None:
        super().__init__(on, colour, ascii_only)
        self._attachment, self._aside = attachment, aside
        self._began_s, self._drawn_s = time.monotonic(), 0.0

    def tick(self) -> None:
        """Answer keys and draw, if it is time. Raises Quit."""
        if "q" in self._screen.pressed():
            raise Quit
        now_s = time.monotonic()
        if self.outdated or now_s >= self._drawn_s + GAP_S:
            self._drawn_s = now_s
            self.draw()

    def picture(self, columns: int, lines: int, ascii_only: bool) -> list[Line]:
        from cufall_py.views.served_screen import Scene, screen

        latest = self._attachment.latest()
        blocks = [self._block(k, now, latest.frame) for k, now in enumerate(latest.servers)]
        seconds = time.monotonic() - self._began_s
        scene = Scene(f"attached for {seconds:.0f} s", _metrics(self._attachment), blocks, self._aside.newest)
        return screen(scene, columns, lines, ascii_only)

    def _block(self, k: int, now: Now, frame: Frame | None) -> Block:
        from cufall_py.views.served import line
        from cufall_py.views.served_screen import Block

        return Block(_title(now), line(now.reading, now.interval), *_gpus(self._attachment, k, frame))


def _title(now: Now) -> str:
    """Which server, and what it does alone, if somebody or its labels say so."""
    from cufall_py.served import role_of

    role = role_of(now.server.role, [now.reading] if now.reading else [])
    return now.server.url + (f" ({role})" if role else "")


def _metrics(attachment: Attached) -> list[tuple[str, str]]:
    """Their labels and units."""
    return [(metric.label, metric.shown_in) for metric in attachment.opened[0].metrics.metrics]


def _gpus(attachment: Attached, server: int, frame: Frame | None) -> tuple[list[int], list[list[float]]]:
    """The CUDA ordinals of a server's GPUs, and of each the metrics in this frame; NaN before the first."""
    gpus, metrics = attachment.gpus_of(server), len(attachment.opened[0].metrics.metrics)
    nothing = [float("nan")] * metrics
    values = [frame.mean[attachment.opened.index(gpu)].tolist() if frame else nothing for gpu in gpus]
    return [gpu.device.ordinal for gpu in gpus], values


def csv_sink(attachment: Attached, file: TextIO, path: str) -> Callable[[Frame], None]:
    """Rows of each frame, and of each server where it has said something new."""
    place = place_of(path)
    writer = csv_writer(file, place, attachment.opened)
    last_ns = [0] * len(attachment.servers)

    def write(frame: Frame) -> None:
        with writing(place):
            writer.write(frame)
            for k, now in enumerate(attachment.latest().servers):
                if now.interval and now.interval.after.at_ns != last_ns[k]:
                    last_ns[k] = now.interval.after.at_ns
                    for name, value, metric in figures(now):
                        writer.write_figure(now.interval.before.at_ns, name, value, now.server.url, metric)
            file.flush()

    return write


def figures(now: Now) -> Iterator[tuple[str, float, str]]:
    """Name, value and the metric that it is by, of what a server did between its last two scrapes: a gauge as it stood
    at the first of them, from when on the row counts."""
    from cufall_py.served import COUNTERS, GAUGES, LATENCIES

    interval = now.interval
    if not interval:
        return
    for name in GAUGES:
        if name in interval.gauges:
            yield name, interval.gauges[name][0], interval.names[name]
    for quantity in COUNTERS:
        if rate := interval.per_s(quantity):
            yield f"{quantity}_per_s", rate.per_s, rate.name
    for quantity in LATENCIES:
        if found := interval.latencies.get(quantity):
            yield quantity, found.mean_s, found.name
    if (kept := interval.acceptance) is not None:
        yield "acceptance", kept, "accepted over drafted tokens"
