"""The timeline: a row for each GPU and metric, time running left, as lines of styled text.

A character is a column of time. Its height and colour say how busy it was, on a scale that tells 0.1 % from 1 %
unless a linear one is asked for. Blank is measured and next to nothing; `·` is not measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cufall_py.metrics import Floats, Metric
from cufall_py.readings import Reading

from .history import History, Window
from .keys import KEYS, State
from .styled import Line, fitted, wrapped
from .waterfall import clock, label

STEPS = 16
LOG_EDGES = 10.0 ** (np.arange(STEPS) / 4 - 4)
"""Four steps a decade from 0.01 %."""
LINEAR_EDGES = np.maximum(np.arange(STEPS) / STEPS, LOG_EDGES[0])
GLYPHS = " " + "".join(2 * glyph for glyph in "▁▂▃▄▅▆▇█") + "·"
"""Of each step: 0 is below the scale, the last is not measured."""
STYLES = ("", *(f"ramp{k}" for k in range(STEPS)), "dim")
UNMEASURED = STEPS + 1
STATS = ("now", "mean", "p95", "max", "cov")
BY_WORTH = ("now", "mean", "max", "p95", "cov")
STAT_WIDTH = 6
LEAST_GRAPH = 16
FOOTERS = (
    "q quit  h help  space pause  +- time  m metric  s sort  l scale  i details",
    "q quit  h help  space pause  +- time",
    "q quit  h help",
)
LOG_WORDS = (".01", ".03", ".1", ".3", "1", "3", "10", "30")
LINEAR_WORDS = ("0", "12", "25", "37", "50", "62", "75", "87")
"""From how many percent on each glyph stands."""
WIDE = 92
"""Columns for a legend of every height."""
LEAST_TITLE = 10
MOST_MESSAGE_LINES, LINES_A_MESSAGE_LINE = 6, 4
"""What was said takes no more lines than these, nor more than one of so many."""


@dataclass(frozen=True)
class Scene:
    """What there is to be seen beside frames, of each GPU where it is a tuple.

    `title`: what is sampled, by what. `cost`: cufall's own, as a share of a core, NaN where not known yet.
    `end`: the slot that is the last to be shown, -1 for the newest. `message`: the last line that was said.
    """

    title: str
    gpus: tuple[str, ...]
    metrics: tuple[Metric, ...]
    readings: tuple[Reading, ...]
    sample_ns: float = math.nan
    cost: float = math.nan
    message: str = ""
    end: int = -1


def screen(
    history: History, scene: Scene, state: State, columns: int, lines: int, ascii_only: bool = False
) -> list[Line]:
    """Exactly `lines` lines, each of exactly `columns` cells."""
    table = Table(history, scene, state, columns)
    above = [_head(history, scene, state, table.window, columns)] + [table.heading()] * (lines >= 8)
    most = min(lines // LINES_A_MESSAGE_LINE, MOST_MESSAGE_LINES)
    below: list[Line] = [[(text, "warn")] for text in wrapped(scene.message, columns, most)]
    below += [_legend(state, columns), _note(history, scene, columns)] * (lines >= 10)
    below += [[(_longest(FOOTERS, columns), "dim")]] * (lines >= 4)
    room = max(lines - len(above) - len(below), 0)
    body = _cropped(_help(), room, state.top) if state.help else table.body(room)
    body += [[]] * (room - len(body))
    return [fitted(line, columns, ascii_only) for line in [*above, *body, *below]][:lines]


def steps(values: Floats, linear: bool) -> Floats:
    """Of each ratio the step of the scale: 0 below it, STEPS at its top, UNMEASURED for NaN."""
    found = np.searchsorted(LINEAR_EDGES if linear else LOG_EDGES, values, side="right")
    return np.where(np.isnan(values), UNMEASURED, found)


def graph(values: Floats, linear: bool) -> Line:
    """A row's columns, (columns,) ratios: runs of one character and style."""
    found = steps(values, linear)
    edges = np.flatnonzero(np.diff(found)) + 1
    starts, ends = [0, *edges.tolist()], [*edges.tolist(), len(found)]
    return [(GLYPHS[s] * (b - a), STYLES[s]) for s, a, b in zip(found[starts].tolist(), starts, ends, strict=True)]


class Table:
    """The rows of one drawing: which, in what order, and how wide their parts are."""

    def __init__(self, history: History, scene: Scene, state: State, columns: int) -> None:
        self._scene, self._state = scene, state
        names = [_name(gpu, scene.metrics[k], state) for gpu in scene.gpus for k in state.shown]
        self._name_width = min(max(map(len, names)), max(columns // 4, 3))
        room = columns - self._name_width - 1
        fit = max((room - max(LEAST_GRAPH, columns // 3)) // STAT_WIDTH, 0)
        self._stats = [stat for stat in STATS if stat in BY_WORTH[:fit]]
        self._width = max(room - STAT_WIDTH * len(self._stats), 1)
        self.window = history.window(state.span_s * 1e9, self._width, scene.end)

    def heading(self) -> Line:
        """What the parts of rows are, and how long ago."""
        shown_s = self.window.shown_ns / 1e9
        left, middle = f"-{ago(shown_s)}", f"-{ago(shown_s / 2)}"
        axis = left.ljust(self._width // 2) + middle if self._width >= 2 * len(left + middle) else left
        axis = axis.ljust(self._width - 1) + "0"
        stats = "".join(stat.rjust(STAT_WIDTH) for stat in self._stats)
        return [("".ljust(self._name_width + 1) + axis[-self._width :] + stats, "dim")]

    def body(self, room: int) -> list[Line]:
        """As many rows as there is room for, and how many more there are."""
        gpus = self._order()
        details = [gpu for gpu in gpus if self._wants_details(gpu)]
        rows = len(gpus) * len(self._state.shown)
        if self._state.details == "auto" and rows + len(details) > room:
            details = []
        blocks = [(gpu, k) for gpu in gpus for k in (*self._state.shown, *[-1] * (gpu in details))]
        return _cropped([partial(self._line, *block) for block in blocks], room, self._state.top)

    def _order(self) -> list[int]:
        by = {"now": self.window.now, "mean": self.window.mean, "max": self.window.maximum}.get(self._state.sort)
        gpus = list(range(len(self._scene.gpus)))
        if by is None:
            return gpus
        return sorted(gpus, key=lambda gpu: -np.nan_to_num(by[gpu, self._state.shown[0]], nan=-1.0))

    def _line(self, gpu: int, metric: int) -> Line:
        if metric < 0:
            return [(" " * (self._name_width + 1), ""), (_details(self._scene.readings[gpu]), "dim")]
        name = _name(self._scene.gpus[gpu], self._scene.metrics[metric], self._state)
        cells = graph(self.window.cells[gpu, metric], self._state.linear)
        return [*fitted([(name, "bold")], self._name_width), (" ", ""), *cells, *self._numbers(gpu, metric)]

    def _numbers(self, gpu: int, metric: int) -> Line:
        w, plain = self.window, self._scene.metrics[metric].plain
        of = {"now": w.now, "mean": w.mean, "p95": w.high, "max": w.maximum}
        texts = [
            _coverage(w.coverage[gpu]) if stat == "cov" else label(of[stat][gpu, metric], plain)[1:-1]
            for stat in self._stats
        ]
        styles = ["bold" if stat == "now" else "" for stat in self._stats]
        return [(text.rjust(STAT_WIDTH), style) for text, style in zip(texts, styles, strict=True)]

    def _wants_details(self, gpu: int) -> bool:
        return self._state.details != "off" and bool(_details(self._scene.readings[gpu]))


def _name(gpu: str, metric: Metric, state: State) -> str:
    return f"{gpu} {metric.label}" if state.metrics > 1 else gpu


def _coverage(share: float) -> str:
    # never rounded up: 100 % is all of it
    return "--" if math.isnan(share) else f"{math.floor(100 * share + 1e-4)}%"


def _details(reading: Reading) -> str:
    """Clocks, power, reasons, processes; what is not known is left out."""
    parts = [
        "" if math.isnan(reading.sm_mhz) else f"{reading.sm_mhz:.0f} MHz",
        "" if math.isnan(reading.power_w) else f"{reading.power_w:.0f} W",
        "" if reading.reason_words is None else " + ".join(reading.reason_words) or "not throttled",
        "" if reading.processes is None else _processes(reading.processes),
    ]
    return "  ".join(part for part in parts if part)


def _processes(names: Sequence[str]) -> str:
    counts = Counter(names)
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts.items()) or "no process"


def _head(history: History, scene: Scene, state: State, window: Window, columns: int) -> Line:
    end = history.newest if scene.end < 0 else scene.end
    at = clock((end + 1) * history.slot_ns)[:10] if end >= 0 else "no frame yet"
    cost = "" if math.isnan(scene.cost) else f"  cost {100 * scene.cost:.1f} %"
    sort = "" if state.sort == "gpu" else f"  sorted by {state.sort}"
    metric = f"{scene.metrics[0].label[:LEAST_GRAPH]} " if state.metrics == 1 else ""
    name: Line = [("cufall ", "bold"), (metric, ""), *[("PAUSED ", "warn")] * state.paused]
    last = f"{at}  last {ago(window.shown_ns / 1e9)}"
    room = columns - sum(len(text) for text, _ in name)
    of_a_core = " of a core" if cost else ""
    # the axis tells how long as well
    text = _longest(
        (f"{last}{cost}{of_a_core}{sort}", f"{last}{cost}{sort}", f"{at}{cost}{sort}", f"{at}{cost}", at), room
    )
    title = f"  {scene.title}" if room - len(text) >= LEAST_TITLE else ""
    return [*name, (text + title, "")]


def _longest(texts: Sequence[str], columns: int) -> str:
    """The first that fits, or the last."""
    return next((text for text in texts if len(text) <= columns), texts[-1])


def ago(seconds: float) -> str:
    """A length of time in few characters: 63 s, 10 min, 2.5 h."""
    for unit_s, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if seconds < 120 * unit_s or unit == "h":
            break
    size = seconds / unit_s
    return f"{size:.0f} {unit}" if size >= 10 else f"{size:.2g} {unit}"


def _legend(state: State, columns: int) -> Line:
    """What heights and colours mean: from how many percent on each stands."""
    words, wide = LINEAR_WORDS if state.linear else LOG_WORDS, columns >= WIDE
    scale = "linear" if state.linear else "log"
    line: Line = [(f"{scale} scale, % from ", "")] if wide else [("%", "")]
    for k in range(0, STEPS, 2 if wide else 4):
        shown = (k + 1, k + 2) if wide else (k + 2, k + 4)
        line += [*[(GLYPHS[step], STYLES[step]) for step in shown], (f"{words[k // 2]} ", "")]
    return [*line, (" blank less" if wide else scale[:3], ""), ("  ·", "dim"), (" not measured", "")]


def _note(history: History, scene: Scene, columns: int) -> Line:
    mean, sample = f"{history.slot_ns / 1e6:.3g} ms", f"{scene.sample_ns / 1e6:.3g} ms"
    known = not math.isnan(scene.sample_ns)
    of_samples = f", max of samples of {sample}" * known
    texts = (
        f"now and p95 of means of {mean}{of_samples}, cov: share of the time that was measured",
        f"now, p95: means of {mean}{f'; max: samples of {sample}' * known}; cov: share measured",
        f"means of {mean}{f', max of {sample}' * known}",
    )
    return [(_longest(texts, columns), "dim")]


def _help() -> list[Callable[[], Line]]:
    return [partial(list, [(key.rjust(9), "bold"), (f"  {what}", "")]) for key, what in KEYS]


def _cropped(lines: Sequence[Callable[[], Line]], room: int, top: int) -> list[Line]:
    """The lines from `top` on for which there is room, only those made; the last says how many more there are."""
    if len(lines) <= room:
        return [line() for line in lines]
    top = min(top, len(lines) - room + 1)
    seen = [line() for line in lines[top : top + max(room - 1, 0)]]
    return [*seen, [(f"+{len(lines) - len(seen)} more (up, down)", "bold")]][:room]
