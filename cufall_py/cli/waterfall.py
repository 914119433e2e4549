"""The waterfall on stdout: a row a frame, as wide as the terminal has room for."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cufall_py.errors import UsageError

from . import STDOUT, say, writing
from .charset import encoding_of, takes

if TYPE_CHECKING:
    from cufall_py.frames import Frame

    from .playing import FrameSource

LEAST_WIDTH, DEFAULT_WIDTH, MOST_WIDTH = 1, 32, 1000
"""Characters of a band."""


def bad_width(value: object) -> str:
    return f"--width {value}: must be a whole number from {LEAST_WIDTH} to {MOST_WIDTH}"


def check_width(width: int | None) -> None:
    """Raises UsageError for one that cannot be; None is as wide as there is room for."""
    if width is not None and not LEAST_WIDTH <= width <= MOST_WIDTH:
        raise UsageError(bad_width(width))


def rows(source: FrameSource, options: dict[str, Any]) -> Callable[[Frame], None]:
    """Prints each frame that it is given."""
    from cufall_py.views.waterfall import ASCII_BLANK, ASCII_RAMP, row

    labels, colour = not options["no_labels"], bool(options["color"])
    if ascii_only := not takes(sys.stdout, "\u28ff\u00b7"):
        ramp = f"bands are of {ASCII_RAMP.strip()} (least to most), {ASCII_BLANK} where not measured"
        say(f"stdout takes no Braille dots ({encoding_of(sys.stdout)}): {ramp}")
    width, turn = options["width"] or 0, None

    def write(frame: Frame) -> None:
        nonlocal width, turn
        metrics = source.opened[0].metrics.metrics
        gpus = [opened.label for opened in source.opened]  # by what each is measured may turn out late
        begins, turn = source.turn != turn, source.turn
        if begins or not width:
            bands = len(gpus) * len(metrics)
            width = options["width"] or _width(len(row(frame, gpus, metrics, 0, labels, False)), bands)
        head = f"{turn.name}: {', '.join(metric.label for metric in metrics)}\n" if begins and turn else ""
        line = row(frame, gpus, metrics, width, labels, colour, ascii_only)
        with writing(STDOUT):
            # with its end in one piece: a signal may end this between two
            print(head + line + "\n", end="", flush=not options["no_flush"])

    return write


def _width(bare: int, bands: int) -> int:
    """Characters of a band: 32, but on a terminal no more than fit beside the `bare` rest of a row."""
    if not sys.stdout.isatty():
        return DEFAULT_WIDTH
    columns = shutil.get_terminal_size().columns
    if columns < bare + bands:
        say(f"a row needs {bare + bands} columns, this terminal has {columns}; try --no-labels or fewer --devices")
    return min(max((columns - bare) // bands, LEAST_WIDTH), DEFAULT_WIDTH)
