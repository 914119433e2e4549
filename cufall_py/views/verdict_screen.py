"""Verdicts on a full screen: of each GPU its class, its last seconds as a stripe, the evidence, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.analysis.advice import advice
from cufall_py.analysis.decision_table import CLASSES
from cufall_py.analysis.verdict_windows import WindowVerdict

from .styled import Line, fitted
from .verdict import NAME_WIDTH, besides, evidence_text, share_text

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
    """Exactly `lines` lines, each of exactly `columns` cells; of a GPU three, two or one, as there is room."""
    head: Line = [(f"{scene.title}, the last {scene.seconds:.3g} s", "bold")]
    below: list[Line] = [[(line, "")] for line in scene.groups] if lines >= 6 + len(scene.groups) else []
    below += [[(scene.message, "warn")]] * (bool(scene.message) and lines >= 6)
    below += [_legend()] * (lines >= 8) + [[(FOOTER, "dim")]] * (lines >= 4)
    room = max(lines - 1 - len(below), 0)
    each = min(max(room // max(len(scene.gpus), 1), 1), 3)
    body = [line for k in range(len(scene.gpus)) for line in _gpu(scene, k, columns)[:each]]
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


def _gpu(scene: Scene, k: int, columns: int) -> list[Line]:
    window, gpu_width = scene.windows[k], max(map(len, scene.gpus))
    indent = " " * (gpu_width + 1)
    first: Line = [
        (f"{scene.gpus[k]:{gpu_width}} ", "bold"),
        (f"{window.verdict:{NAME_WIDTH}}", STYLES[window.verdict]),
    ]
    first.append((f" {share_text(window.share):>5}  ", ""))
    room = columns - sum(len(text) for text, _ in first)
    if room >= LEAST_STRIPE:
        first += stripe(scene.codes[:, k], room)
    rest = besides(window)
    figures = evidence_text(window.verdict, window.means)
    return [
        first,
        [(indent + "; ".join(filter(None, [figures, rest and f"besides {rest}"])), "")],
        [(indent + advice(window.verdict, window.missing), "dim")],
    ]


def _legend() -> Line:
    return [(f"{LETTERS[name]} {name}  ", STYLES[name]) for name in CLASSES]
