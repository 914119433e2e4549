"""What the page of a recording shows, and the numbers of it that its script draws."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cufall_py.analysis.decision_table import CLASSES
from cufall_py.analysis.verdict_bins import Strip
from cufall_py.metrics import Metric
from cufall_py.outline import Region
from cufall_py.pyramid import Level, Pyramid
from cufall_py.samples import Floats
from cufall_py.spans import Span

from .tables import Table

NOTHING = 65_535
"""A number in the page that stands for not measured; those below it are parts of the top of their plot."""
PYRAMID_BYTES = 1_230_000
"""What the numbers of all levels may take in the page, so that the page stays under 2 MB."""
BYTES_A_BIN = 3 * 2 * 4 / 3 * 4 / 3
"""Minimum, mean, maximum; in base64; with the levels above the finest."""
STRIP_BYTES = 200_000
"""What the verdicts may take."""
BYTES_A_STRIP_BIN = len(CLASSES) * 4 / 3
MOST_MARKS = 600
"""Regions, and gaps, that a page can hold: the longest ones."""
LONGEST_NAME, LONGEST_TEXT = 60, 120
"""Characters of a region that are kept."""
READING_UNITS = (("SM clock", "MHz"), ("power", "W"))
"""Of the readings, in their order."""
Seconds = Callable[[int], float]
"""Of a time (Unix epoch, ns), since the recording began."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as a person reads of it. `period_ns`: the period its samples come in; where there are several, the
    shortest, and `longest_ns` the longest."""

    label: str
    name: str
    period_ns: float
    longest_ns: float = 0.0


@dataclass(frozen=True)
class Gap:
    """Where nothing was measured of the GPU at position `gpu`."""

    gpu: int
    start_ns: int
    end_ns: int
    samples: int


@dataclass(frozen=True)
class Roofline:
    """`reachable`: what can be reached of the peak of `tensor` and of `memory`. `bytes_per_s`: the memory's peak, NaN
    where it is not known, or not the same of all GPUs."""

    reachable: Mapping[str, float]
    bytes_per_s: float


@dataclass(frozen=True)
class Section:
    """A table below the summary, and what a person must know to read it right."""

    title: str
    table: Table
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """What is shown. `metrics` are the columns of `pyramid`, SM clock and power those of `readings`.

    `spans` is the part of the recording that is meant, into which all `regions` and `gaps` reach, `begin_ns` when the
    recording began: seconds count from there.
    `strip` are the verdicts of its frames, `roofline` the lines around its cloud; None if there are none.
    """

    title: str
    gpus: Sequence[Gpu]
    metrics: Sequence[Metric]
    pyramid: Pyramid
    readings: Pyramid
    begin_ns: int
    spans: Sequence[Span]
    regions: dict[str, list[Region]] = field(default_factory=dict)
    gaps: Sequence[Gap] = ()
    notes: Sequence[str] = ()
    strip: Strip | None = None
    roofline: Roofline | None = None
    sections: Sequence[Section] = ()


def most_bins(gpus: int, metrics: int) -> int:
    """How many bins the finest level may have, that a page of so many of both stays small enough."""
    return max(1, int(PYRAMID_BYTES / BYTES_A_BIN / (gpus * (metrics + len(READING_UNITS)))))


def most_verdict_bins(gpus: int) -> int:
    """How many bins the verdicts of so many GPUs may have."""
    return max(1, int(STRIP_BYTES / BYTES_A_STRIP_BIN / gpus))


def document(page: Page) -> dict[str, Any]:
    """What the script draws. Times are seconds from the begin of the recording."""

    def seconds(ns: int) -> float:
        return (ns - page.begin_ns) / 1e9

    regions = _longest([(region, name) for name, times in page.regions.items() for region in times])
    gaps = _longest([(gap, gap.gpu) for gap in page.gaps])
    return {
        "begin_ms": page.begin_ns / 1e6,
        "view": [seconds(page.spans[0][0]), seconds(page.spans[-1][1])],
        "nothing": NOTHING,
        "gpus": [{"label": gpu.label, "name": gpu.name} for gpu in page.gpus],
        "plots": [*_metric_plots(page, seconds), *_reading_plots(page, seconds)],
        "regions": [
            [name[:LONGEST_NAME], seconds(r.start_ns), seconds(r.end_ns), r.text[:LONGEST_TEXT]] for r, name in regions
        ],
        "gaps": [[gpu, seconds(gap.start_ns), seconds(gap.end_ns)] for gap, gpu in gaps],
        "verdicts": _verdicts(page.strip, seconds) if page.strip else None,
        "roofline": _roofline(page.roofline, [metric.label for metric in page.metrics]) if page.roofline else None,
    }


def _roofline(of: Roofline, labels: Sequence[str]) -> dict[str, Any] | None:
    """Which plots the points are made of, and the lines around them; None without both."""
    if not {"tensor", "dram"} <= set(labels):
        return None
    return {
        "tensor": labels.index("tensor"),
        "memory": labels.index("dram"),
        "reachable": {name: of.reachable[name] for name in ("tensor", "memory")},
        "bytes_per_s": None if math.isnan(of.bytes_per_s) else of.bytes_per_s,
    }


def _verdicts(strip: Strip, seconds: Seconds) -> dict[str, Any]:
    """A byte a GPU, bin and class: how much of the bin was of it, in 255 parts; at least one of what there was."""
    parts = np.where(strip.shares > 0, np.maximum(np.rint(strip.shares * 255), 1), 0).astype(np.uint8)
    return {
        "classes": CLASSES,
        "frame": strip.frame_ns / 1e9,
        "start": seconds(strip.start_ns),
        "bin": strip.bin_ns / 1e9,
        "bins": strip.shares.shape[1],
        "data": base64.b64encode(parts.tobytes()).decode("ascii"),
    }


def _longest(marks: list[Any]) -> list[Any]:
    """In order of time."""
    kept = sorted(marks, key=lambda mark: mark[0].start_ns - mark[0].end_ns)[:MOST_MARKS]
    return sorted(kept, key=lambda mark: (mark[0].start_ns, -mark[0].end_ns))


def _metric_plots(page: Page, seconds: Seconds) -> list[dict[str, Any]]:
    out = []
    for k, metric in enumerate(page.metrics):
        scale, unit = (1.0, metric.unit) if metric.plain else (100.0, "%")
        plot = {"label": metric.label, "unit": unit, "formula": metric.formula, "full": 0 if metric.plain else 100}
        out.append({**plot, **_series(page.pyramid, k, scale, seconds)})
    return out


def _reading_plots(page: Page, seconds: Seconds) -> list[dict[str, Any]]:
    out = []
    for k in known_readings(page):
        label, unit = READING_UNITS[k]
        plot = {"label": label, "unit": unit, "formula": "read by NVML", "full": 0}
        out.append({**plot, **_series(page.readings, k, 1.0, seconds)})
    return out


def known_readings(page: Page) -> list[int]:
    """Those that some GPU has."""
    whole = page.readings.whole.mean
    return [k for k in range(len(READING_UNITS)) if not np.isnan(whole[:, 0, k]).all()]


def _series(pyramid: Pyramid, metric: int, scale: float, seconds: Seconds) -> dict[str, Any]:
    """A metric of every GPU at every level: `top` is what the number before NOTHING stands for."""
    top = _top(pyramid.whole.maximum[:, 0, metric], scale)
    levels = [
        {
            "start": seconds(level.start_ns),
            "bin": level.bin_ns / 1e9,
            "bins": len(level),
            "data": base64.b64encode(_quantised(level, metric, scale / top).tobytes()).decode("ascii"),
        }
        for level in pyramid.levels
    ]
    return {"top": top, "levels": levels}


def _top(maxima: Floats, scale: float) -> float:
    known = maxima[np.isfinite(maxima)] * scale
    return max(100.0 if scale == 100.0 else 1e-9, float(known.max(initial=0.0)))


def _quantised(level: Level, metric: int, scale: float) -> NDArray[np.uint16]:
    """(gpus, 3, bins) of minimum, mean and maximum."""
    values = np.stack([of[:, :, metric] for of in (level.minimum, level.mean, level.maximum)], axis=1)
    parts = np.rint(np.clip(np.nan_to_num(values) * scale, 0, 1) * (NOTHING - 1))
    return np.where(np.isnan(values), NOTHING, parts).astype("<u2")
