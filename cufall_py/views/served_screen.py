"""Servers and their GPUs on a full screen: of each server what it said last, of each GPU a row of bars.

Where there is no room for a row a GPU, a row a metric has the numbers of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .served import ranges, shown
from .styled import RAMP, Line, fitted

FOOTER = "q quit"
CELLS, DIGITS = 12, 5
"""Of a bar, where there is room; of a number."""
BLOCK, EMPTY = "█", "·"
GAP = "  "
Metrics = Sequence[tuple[str, str]]
"""Labels and units (`Metric.shown_in`)."""


@dataclass(frozen=True)
class Block:
    """A server: `line` as `served.line` has it; `gpus`: CUDA ordinals, `values`: of each its metrics, NaN for none."""

    title: str
    line: str
    gpus: Sequence[int]
    values: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Scene:
    title: str
    metrics: Metrics
    blocks: Sequence[Block]
    message: str = ""


def screen(scene: Scene, columns: int, lines: int, ascii_only: bool = False) -> list[Line]:
    """Exactly `lines` lines, each of exactly `columns` cells."""
    below: list[Line] = [[(scene.message, "warn")]] * (bool(scene.message) and lines >= 6)
    below += [[(FOOTER, "dim")]] * (lines >= 4)
    room = max(lines - 1 - len(below), 0)
    body = _body(scene, columns, room)
    if len(body) > room:
        body = [*body[: max(room - 1, 0)], [(f"{len(body) - room + 1} more lines", "dim")]]
    body += [[]] * (room - len(body))
    return [fitted(line, columns, ascii_only) for line in [[(scene.title, "bold")], *body, *below]][:lines]


def _body(scene: Scene, columns: int, room: int) -> list[Line]:
    """With a row a GPU if there is room for all of them."""
    rows = [line for block in scene.blocks for line in _block(block, _bars(block, scene.metrics, columns), columns)]
    if len(rows) <= room:
        return rows
    return [line for block in scene.blocks for line in _block(block, _numbers(block, scene.metrics), columns)]


def _block(block: Block, rows: Sequence[Line], columns: int) -> list[Line]:
    said: list[Line] = [[(part, "")] for part in wrapped(block.line, columns)]
    return [[], [(block.title, "bold")], *said, *rows]


def _bars(block: Block, metrics: Metrics, columns: int) -> list[Line]:
    """A row a GPU: each metric as a number and a bar, as long as there is room for."""
    labels = [f"g{gpu}" for gpu in block.gpus]
    width = max(map(len, labels), default=0)
    fixed = width + 1 + sum(len(f" {name} ") + DIGITS + 1 for name, _ in metrics)
    cells = min(max((columns - fixed) // max(len(metrics), 1), 0), CELLS)
    rows: list[Line] = []
    for label, values in zip(labels, block.values, strict=True):
        row: Line = [(f"{label:<{width}} ", "bold")]
        for (name, unit), value in zip(metrics, values, strict=True):
            row += [(f" {name} {shown(value, unit):>{DIGITS}} ", ""), _bar(value, unit, cells)]
        rows.append(row)
    return rows


def _numbers(block: Block, metrics: Metrics) -> list[Line]:
    """A row a metric, with the numbers of all GPUs below one another."""
    names = [f"{name} {unit}".rstrip() for name, unit in metrics]
    cells = [_digits(of, unit) for (_, unit), of in zip(metrics, zip(*block.values, strict=True), strict=True)]
    rows = [("", [f"g{gpu}" for gpu in block.gpus]), *zip(names, cells, strict=True)]
    width = max(len(cell) for _, row in rows for cell in row) + 2
    head = max(map(len, names), default=0)
    return [[(f"{name:<{head}}", "bold"), ("".join(f"{c:>{width}}" for c in row), "")] for name, row in rows]


def across(gpus: Sequence[int], values: Sequence[Sequence[float]], metrics: Metrics) -> list[str]:
    """`g0-g3`, then of each metric what they have, in that order: `tensor 62/0.7/62/0.7%`."""
    of_each = zip(metrics, zip(*values, strict=True), strict=True)
    return [ranges(gpus), *(f"{name} {'/'.join(_digits(of, unit))}{unit}" for (name, unit), of in of_each)]


def _digits(values: Sequence[float], unit: str) -> list[str]:
    return [shown(value, unit).removesuffix("%") for value in values]


def wrapped(line: str, columns: int) -> list[str]:
    """In as few lines as there must be, broken where two spaces are."""
    lines: list[str] = []
    for words in line.split(GAP):
        if lines and len(lines[-1]) + len(GAP) + len(words) <= columns:
            lines[-1] += GAP + words
        else:
            lines.append(words)
    return lines


def _bar(value: float, unit: str, cells: int) -> tuple[str, str]:
    """So many cells, as many full as the value (0..1) is of one; none of what is no ratio."""
    if unit != "%":
        return " " * cells, ""
    if math.isnan(value):
        return EMPTY * cells, "dim"
    full = round(min(max(value, 0.0), 1.0) * cells)
    return BLOCK * full + " " * (cells - full), f"ramp{min(int(value * len(RAMP)), len(RAMP) - 1)}"
