"""What a recording holds, told by its times and events alone: how much of each GPU, when, and its regions."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .samples import TOO_LONG_NS, Ints
from .spans import Span, union

REGION_BEGIN, REGION_END = "region_begin", "region_end"
"""Events of a region: at its begin with `name` and `text`, at its end with `name`."""
OTHER_TURNS = "other_turns"
"""Event of a GPU: then others of a rotation's sets had their turn, or none while they changed (rotation.py)."""
PERIODS_APART = 1.5
"""Samples are of another period if they are so many times as long, or as short."""
FEW = 16
"""So few samples do not tell a period."""
CLOSE = 4
"""Lengths are counted where the longest has no more nanoseconds beyond the shortest than so many times their number."""
LONGEST_HOLE_NS = TOO_LONG_NS
"""Where nothing at all was recorded for longer, the machine slept or its clock was set: no time that was played."""


@dataclass(frozen=True)
class Event:
    """Something that happened from `start_ns` to `end_ns` (Unix epoch); `gpu` None: not to one GPU."""

    kind: str
    gpu: int | None
    start_ns: int
    end_ns: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class Times:
    """When the samples of a stretch of rows of the GPU at position `gpu` began and ended, (n,) each."""

    gpu: int
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True)
class Region:
    """One time that a region was open; `text` says for a person what is seen in it."""

    start_ns: int
    end_ns: int
    text: str = ""


@dataclass
class Told:
    """What the events of a recording say: the marks of its regions, NVML's reasons, when other sets had their turn
    (`away`), from when to when there were any events, when the last was that is not the `start` (in a copy that is
    later than all that it has), and of which kinds they are."""

    marks: list[Event] = field(default_factory=list)
    reasons: list[Event] = field(default_factory=list)
    away: list[Span] = field(default_factory=list)
    span: Span | None = None
    last_ns: int = 0
    kinds: set[str] = field(default_factory=set)

    def note(self, event: Event) -> None:
        """Take the next event."""
        begin_ns, end_ns = self.span or (event.start_ns, event.end_ns)
        self.span = min(begin_ns, event.start_ns), max(end_ns, event.end_ns)
        self.last_ns = max(self.last_ns, event.end_ns) if event.kind != "start" else self.last_ns
        self.marks += [event] if event.kind in (REGION_BEGIN, REGION_END) else []
        self.reasons += [event] if event.kind == "reasons" else []
        self.away += [(event.start_ns, event.end_ns)] if event.kind == OTHER_TURNS else []
        self.kinds.add(event.kind)


@dataclass
class Outline:
    """`counts` and `periods_ns` are of each GPU: its samples, and their median length (NaN without any). `periods`
    (gpus): from when on samples had which length; more than one in a recording that was thinned.

    `spans` are the stretches in which anything was recorded, or others of a rotation's sets had their turn; `regions`
    each name's times, oldest first.
    """

    counts: list[int]
    periods_ns: list[float]
    spans: list[Span] = field(default_factory=list)
    regions: dict[str, list[Region]] = field(default_factory=dict)
    gaps: list[Event] = field(default_factory=list)
    periods: list[list[tuple[int, float]]] = field(default_factory=list)
    told: Told = field(default_factory=Told)

    @property
    def start_ns(self) -> int:
        return self.spans[0][0] if self.spans else 0

    @property
    def end_ns(self) -> int:
        return self.spans[-1][1] if self.spans else 0


def outline(items: Iterable[Times | Event], gpus: int) -> Outline:
    """The outline of a recording of so many GPUs, read once from begin to end."""
    out = Outline([0] * gpus, [float("nan")] * gpus)
    periods: list[list[float]] = [[] for _ in range(gpus)]
    found = [_Periods() for _ in range(gpus)]
    newest = [0] * gpus
    for item in items:
        if isinstance(item, Event):
            out.told.note(item)
            out.gaps += [item] if item.kind == "gap" else []
            if item.kind == OTHER_TURNS:
                out.spans = union([*out.spans, (item.start_ns, item.end_ns)], LONGEST_HOLE_NS)
            continue
        ahead = forward(item.start_ns, item.end_ns, newest[item.gpu])
        start, end = item.start_ns[ahead], item.end_ns[ahead]
        if len(start):
            newest[item.gpu] = int(end[-1])
            out.counts[item.gpu] += len(start)
            periods[item.gpu].append(float(middles(end - start)[1]))
            found[item.gpu].add(start, end - start)
            out.spans = union([*out.spans, *pieces(start, end)], LONGEST_HOLE_NS)
    out.periods_ns = [median(of_gpu) if of_gpu else float("nan") for of_gpu in periods]
    out.periods = [
        of_gpu.steps if len(of_gpu.steps) > 1 else [(out.start_ns, period_ns)]
        for of_gpu, period_ns in zip(found, out.periods_ns, strict=True)
    ]
    out.regions = regions(out.told.marks, out.start_ns, max(out.end_ns, out.told.last_ns))
    return out


def forward(start_ns: Ints, end_ns: Ints, newest_ns: int) -> NDArray[np.bool_]:
    """Which samples of a GPU begin no earlier than all before them ended; of the others, a clock was set back."""
    longer = end_ns > start_ns
    if len(longer) and start_ns[0] >= newest_ns and longer.all() and (start_ns[1:] >= end_ns[:-1]).all():
        return longer  # as nearly always; accumulating takes several times as long
    reached = np.maximum.accumulate(np.concatenate(([newest_ns], end_ns)))[:-1]
    out: NDArray[np.bool_] = (start_ns >= reached) & longer
    return out


def period_at(periods: Sequence[tuple[int, float]], at_ns: int) -> float:
    """Of the periods of a GPU (Outline), the one that held at a time."""
    return periods[max(0, bisect_right(periods, (at_ns, math.inf)) - 1)][1]


class _Periods:
    """The lengths of samples that come, told where they change; `steps`: from when on which."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, float]] = []
        self._start_ns = self._length_ns = np.zeros(0, np.int64)

    def add(self, start_ns: Ints, length_ns: Ints) -> None:
        if len(self._start_ns):
            start_ns = np.concatenate([self._start_ns, start_ns])
            length_ns = np.concatenate([self._length_ns, length_ns])
        whole = len(start_ns) // FEW * FEW  # gaps and edges leave a shorter one now and then
        self._start_ns, self._length_ns = start_ns[whole:], length_ns[whole:]
        if whole and not (self._as_before(length_ns.min()) and self._as_before(length_ns.max())):
            middles = np.partition(length_ns[:whole].reshape(-1, FEW), FEW // 2, axis=1)[:, FEW // 2]
            for from_ns, period_ns in zip(start_ns[:whole:FEW].tolist(), middles.tolist(), strict=True):
                if not self._as_before(period_ns):
                    self.steps.append((from_ns, float(period_ns)))

    def _as_before(self, length_ns: float) -> bool:
        last_ns = self.steps[-1][1] if self.steps else 0.0
        return last_ns / PERIODS_APART < length_ns < last_ns * PERIODS_APART


def regions(marks: Iterable[Event], start_ns: int, end_ns: int) -> dict[str, list[Region]]:
    """Begins paired with the ends of the same name; what has but one of the two is open to that side.

    Names come in the order in which they first began, the longer one first where they began at once.
    """
    found: dict[str, list[Region]] = {}
    still_open: dict[str, list[Region]] = {}
    for mark in marks:
        name = str(mark.fields.get("name", ""))
        if mark.kind == REGION_BEGIN:
            still_open.setdefault(name, []).append(Region(mark.start_ns, end_ns, str(mark.fields.get("text", ""))))
        else:
            begun = still_open[name].pop() if still_open.get(name) else Region(start_ns, end_ns)
            found.setdefault(name, []).append(Region(begun.start_ns, mark.start_ns, begun.text))
    for name, left in still_open.items():
        found.setdefault(name, []).extend(left)
    in_order = {name: sorted(times, key=_begin) for name, times in found.items()}
    return dict(sorted(in_order.items(), key=lambda named: _begin(named[1][0])))


def _begin(region: Region) -> tuple[int, int]:
    """By which regions are in order: one before those within it."""
    return region.start_ns, -region.end_ns


def middles(lengths_ns: Ints) -> tuple[int, int]:
    """The lower and the upper median of lengths (at least one). Those of one period lie close together, and counting
    them takes a fraction of the time that sorting does."""
    at = np.array([(len(lengths_ns) - 1) // 2, len(lengths_ns) // 2])
    least_ns = int(lengths_ns.min())
    apart_ns = int(lengths_ns.max()) - least_ns
    if apart_ns > CLOSE * len(lengths_ns):
        lower, upper = np.partition(lengths_ns, at)[at].tolist()
    else:
        reached = np.cumsum(np.bincount(lengths_ns - least_ns))
        lower, upper = (least_ns + np.searchsorted(reached, at, side="right")).tolist()
    return lower, upper


def pieces(start_ns: Ints, end_ns: Ints) -> list[Span]:
    """The stretches that samples (at least one, in order) lie in, apart where they are."""
    if end_ns[-1] - start_ns[0] <= LONGEST_HOLE_NS:  # too short to have one, as nearly all are
        return [(int(start_ns[0]), int(end_ns[-1]))]
    cuts = (np.flatnonzero(start_ns[1:] - end_ns[:-1] > LONGEST_HOLE_NS) + 1).tolist()
    edges = zip([0, *cuts], [*cuts, len(start_ns)], strict=True)
    return [(int(start_ns[a]), int(end_ns[b - 1])) for a, b in edges]
