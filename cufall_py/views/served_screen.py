"""Servers and their GPUs on a full screen: of each server a line of what it said last, of each GPU a row of bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .served import percent
from .styled import RAMP, Line, fitted

FOOTER = "q quit"
CELLS = 12
BLOCK, EMPTY = "█", "·"


@dataclass(frozen=True)
class Block:
    """A server: `line` as `served.line` has it; `gpus`: labels, `values`: of each its metrics, NaN for none."""

    title: str
    line: str
    gpus: Sequence[str]
    values: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Scene:
    title: str
    metrics: Sequence[str]
    blocks: Sequence[Block]
    message: str = ""


def screen(scene: Scene, columns: int, lines: int, ascii_only: bool = False) -> list[Line]:
    """Exactly `lines` lines, each of exactly `columns` cells."""
    below: list[Line] = [[(scene.message, "warn")]] * (bool(scene.message) and lines >= 6)
    below += [[(FOOTER, "dim")]] * (lines >= 4)
    room = max(lines - 1 - len(below), 0)
    body = [line for block in scene.blocks for line in _block(block, scene.metrics)]
    if len(body) > room:
        body = [*body[: max(room - 1, 0)], [(f"{len(body) - room + 1} more lines", "dim")]]
    body += [[]] * (room - len(body))
    return [fitted(line, columns, ascii_only) for line in [[(scene.title, "bold")], *body, *below]][:lines]


def _block(block: Block, metrics: Sequence[str]) -> list[Line]:
    rows: list[Line] = [[], [(block.title, "bold")], [(block.line, "")]]
    for gpu, values in zip(block.gpus, block.values, strict=True):
        row: Line = [(f"{gpu} ", "bold")]
        for name, value in zip(metrics, values, strict=True):
            row += [(f" {name} {percent(value):>5} ", ""), bar(value)]
        rows.append(row)
    return rows


def bar(value: float) -> tuple[str, str]:
    """CELLS cells, as many full as the value (0..1) is of one."""
    if math.isnan(value):
        return EMPTY * CELLS, "dim"
    full = round(min(max(value, 0.0), 1.0) * CELLS)
    return BLOCK * full + " " * (CELLS - full), f"ramp{min(int(value * len(RAMP)), len(RAMP) - 1)}"
