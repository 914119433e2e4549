"""Verdicts on a full screen: of each GPU its class, its last seconds as a stripe, the evidence, what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.analysis.advice import advice
from cufall_py.analysis.decision_table import CLASSES
from cufall_py.analysis.verdict_windows import WindowVerdict

from .styled import Line, fitted, wrapped
from .verdict import NAME_WIDTH, besides, edge_text, evidence_text, own_share

LETTERS = dict(zip(CLASSES, "_lMTCwyX+?", strict=True))
"""Of each class: in a stripe its letter says which it is, its colour only helps."""
STYLES = {
    "idle": "dim",
    "launch-bound": "warn",
    "memory-bound": "ramp2",
    "tensor-bound": "ramp9",
    "cuda-core-bound": "ramp15",
    "waiting": "ramp12",
    "latency-bound": "ramp5",
    "transfer-bound": "ramp7",
    "mixed": "",
    "unknown": "dim",
}
FOOTER = "q quit"
LEAST_STRIPE = 8
LINES_A_LINE_BELOW = 8
"""Of a screen of so many lines, what was said, a group and the legend may take one each, of twice as many two."""


@dataclass(frozen=True)
class Scene:
    """What is to be seen: `codes` (frames, gpus) are the classes of the frames that are kept, oldest first."""

    title: str
    gpus: Sequence[str]
    windows: Sequence[WindowVerdict]
    codes: NDArray[np.int8]
    seconds: float
    message: str = ""
    groups: Sequence[str] = ()
    """A line a group."""


def screen(scene: Scene, columns: int, lines: int, ascii_only: bool = False) -> list[Line]:
    """Exactly `lines` lines, each of exactly `columns` cells; of a GPU at least one, and more as there is room."""
    head: Line = [(f"{scene.title}, the last {scene.seconds:.3g} s", "bold")]
    below = _below(scene, columns, lines)
    room = max(lines - 1 - len(below), 0)
    each = max(room // max(len(scene.gpus), 1), 1)
    body = [line for k in range(len(scene.gpus)) for line in _gpu(scene, k, columns, each)]
    if len(body) > room:
        body = [*body[: max(room - 1, 0)], [(f"{len(body) - room + 1} more GPUs", "dim")]]
    body += [[]] * (room - len(body))
    return [fitted(line, columns, ascii_only) for line in [head, *body, *below]][:lines]


def stripe(codes: NDArray[np.int8], width: int) -> Line:
    """The classes (frames,) of one GPU in at most `width` characters, each that of the most frames it stands for."""
    if not len(codes) or width < 1:
        return []
    cells = np.array_split(codes, min(width, len(codes)))
    names = [CLASSES[int(np.bincount(cell).argmax())] for cell in cells]
    return [(LETTERS[name], STYLES[name]) for name in names]


def _below(scene: Scene, columns: int, lines: int) -> list[Line]:
    """Groups, what was said, the legend and the keys, as far as they leave most of the lines to GPUs."""
    most = max(lines // LINES_A_LINE_BELOW, 1)
    groups = [text for line in scene.groups for text in wrapped(line, columns, most)]
    if lines < 6 + len(groups):
        groups = list(scene.groups) if lines >= 6 + len(scene.groups) else []
    below: list[Line] = [[(text, "")] for text in groups]
    below += [[(text, "warn")] for text in wrapped(scene.message, columns, most if lines >= 6 else 0)]
    return below + _legend(columns, most) * (lines >= 8) + [[(FOOTER, "dim")]] * (lines >= 4)


def _gpu(scene: Scene, k: int, columns: int, most: int) -> list[Line]:
    """At most so many lines: evidence may wrap where a line is left to the advice."""
    window, gpu_width = scene.windows[k], max(map(len, scene.gpus))
    first: Line = [
        (f"{scene.gpus[k]:{gpu_width}} ", "bold"),
        (f"{window.verdict:{NAME_WIDTH}}", STYLES[window.verdict]),
    ]
    first.append((f" {own_share(window):>5}  ", ""))
    room = columns - sum(len(text) for text, _ in first)
    if room >= LEAST_STRIPE:
        first += stripe(scene.codes[:, k], room)
    indent, rest = " " * (gpu_width + 1), besides(window)
    edge = "" if math.isnan(window.distance) else f"to its edge {edge_text(window)}"
    evidence = evidence_text(window.verdict, window.means)
    figures = "; ".join(filter(None, [evidence, edge, rest and f"besides {rest}"]))
    told = wrapped(figures, columns, max(most - 2, min(most - 1, 1)), indent)
    todo = wrapped(advice(window.verdict, window.missing, window.means), columns, most - 1 - len(told), indent)
    return [first, *([(text, "")] for text in told), *([(text, "dim")] for text in todo)]


def _legend(columns: int, most: int) -> list[Line]:
    """Each class with its letter, none torn apart, on at most so many lines."""
    found: list[Line] = [[]]
    for name in CLASSES:
        text = f"{LETTERS[name]} {name}  "
        if sum(len(other) for other, _ in found[-1]) + len(text.rstrip()) > columns and len(found) < most:
            found.append([])
        found[-1].append((text, STYLES[name]))
    return found
