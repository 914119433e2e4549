"""The waterfall: a frame as one line, a band of Braille dots a GPU and metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from cufall_py.frames import Frame
from cufall_py.metrics import Metric

DOTS_A_CELL = 8
BRAILLE = 0x2800
# Dots of a cell in the order they are counted: bottom row first, left to right. Unicode numbers its
# dots 1-2-3-7 down the left column and 4-5-6-8 down the right one.
ROWS_UP = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
RAMP = (236, 17, 18, 19, 26, 37, 40, 220, 196)
"""256-colour codes for 0 to 8 lit dots in a cell."""
LEAST_PERCENT = 0.01
ASCII_RAMP, ASCII_BLANK = " .:-=+*#@", "?"
"""For an output that cannot take Braille: a character for 0 to 8 lit dots in a cell, one for not measured."""


def row(
    frame: Frame,
    gpus: Sequence[str],
    metrics: Sequence[Metric],
    width: int,
    labels: bool,
    colour: bool,
    ascii_only: bool = False,
) -> str:
    """`23:26:27.507739 g0(5.00%) <band> g1(  31%) <band>`; `gpus` names the GPUs of the frame's rows."""
    parts = [clock(frame.start_ns)]
    for gpu, means in zip(gpus, frame.mean, strict=True):
        for metric, mean in zip(metrics, means, strict=True):
            name = gpu + (f".{metric.label}" if len(metrics) > 1 else "")
            text = f"{name}{label(mean, metric.plain)} " if labels else ""
            parts.append(text + band(mean, width, colour, ascii_only))
    return " ".join(parts)


def clock(start_ns: int) -> str:
    """Local wall time to the microsecond."""
    seconds, rest = divmod(start_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds):%H:%M:%S}.{rest // 1000:06d}"


def label(mean: float, plain: bool) -> str:
    """A value in brackets, six characters wide within them or fewer: percent, or a plain number."""
    if math.isnan(mean):
        return "(   --)"
    if plain:
        return f"({_number(mean)})"
    percent = 100 * mean
    if percent < LEAST_PERCENT:
        return "(<.01%)"
    # what rounds to ten is written as ten
    return f"({percent:.2f}%)" if round(percent, 2) < 10 else f"({percent:4.0f}%)"


def _number(value: float) -> str:
    for text in (f"{value:.3f}", f"{value:.2f}", f"{value:.1f}", f"{value:.0f}"):
        if len(text) <= 5:
            return f"{text:>5}"
    return f"{value:.0e}"


def band(mean: float, width: int, colour: bool, ascii_only: bool = False) -> str:
    """`width` cells whose lit dots are the value: round(mean x dots) of them, evenly spread."""
    lit = 0 if math.isnan(mean) else round(min(max(mean, 0.0), 1.0) * width * DOTS_A_CELL)
    cells = _cells(lit, width)
    if math.isnan(mean):
        glyphs = (ASCII_BLANK if ascii_only else "·") * width
    elif ascii_only:
        glyphs = "".join(ASCII_RAMP[cell.bit_count()] for cell in cells)
    else:
        glyphs = "".join(chr(BRAILLE + cell) for cell in cells)
    if not colour:
        return glyphs
    return "".join(_coloured(glyph, cell) for glyph, cell in zip(glyphs, cells, strict=True)) + "\x1b[0m"


@lru_cache(maxsize=4096)
def _cells(lit: int, width: int) -> tuple[int, ...]:
    """The dots of each cell of a band, as Unicode numbers them."""
    cells = [0] * width
    for dot in _spread(lit, width * DOTS_A_CELL):
        line, place = divmod(dot, 2 * width)
        cells[place // 2] |= ROWS_UP[line][place % 2]
    return tuple(cells)


def _spread(lit: int, dots: int) -> list[int]:
    """The dots that are lit: i where floor((i+1) lit / dots) exceeds floor(i lit / dots)."""
    return [i for i in range(dots) if (i + 1) * lit // dots > i * lit // dots]


def _coloured(glyph: str, cell: int) -> str:
    return f"\x1b[38;5;{RAMP[cell.bit_count()]}m{glyph}"
