"""A summary of samples: statistics of each metric, by region and GPU. Formulas: docs/report.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import MetricSet
from cufall_py.outline import LONGEST_HOLE_NS, PERIODS_APART, forward, middles, pieces
from cufall_py.samples import Samples
from cufall_py.spans import FOREVER_NS, Span, common, union

from .statistics import Row, gpu_row, group_row
from .tally import Stretch, Tally, tally
from .verdict_windows import WindowVerdict
from .windows import Windows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WHOLE = ""
"""The name of the scope that is all that was asked for."""
CHUNK = 10_000
"""Samples of a GPU that are summed up at once. Above 128 KiB, which is not far, memory is taken from the kernel anew
for each array, and that takes longer than the sums."""
MOST_CUTS = 3
"""Pieces of a chunk that are summed up apart, less one."""
LONGEST_OCTAVE = 64
LEAST_SHARE = 0.001
"""Of the time, from which on a length of samples is told: gaps and edges leave a few that are shorter."""
ALWAYS = (-FOREVER_NS, FOREVER_NS)


@dataclass(frozen=True)
class Subject:
    """A GPU that is summed up: its number and name, what its samples are, and when its clocks were held back."""

    ordinal: int
    kind: str
    metrics: MetricSet
    throttled: Sequence[Span] = ()


@dataclass(frozen=True)
class Scope:
    """A region (`name`), or all that was asked for (WHOLE): a row a GPU, and one of them all if there are several."""

    name: str
    wanted_s: float
    rows: tuple[Row, ...]
    group: Row | None


@dataclass(frozen=True)
class Length:
    """Samples that are about `period_ns` long: how many, and for which share of the time that was measured."""

    period_ns: float
    samples: int
    time_share: float


@dataclass(frozen=True)
class Summary:
    """`metrics` are the labels; `scopes` begin with WHOLE. `spans` is when anything was measured, or could not be for
    other sets of a rotation had their turn.

    `samples_read` counts the samples that came, `behind` those of them left out because they begin before others
    ended. `periods_ns` (gpus) is the median length of a sample, NaN without any; `lengths` are those that samples have,
    the shortest first: more than one in a recording that was thinned.
    """

    subjects: tuple[Subject, ...]
    metrics: tuple[str, ...]
    scopes: tuple[Scope, ...]
    periods_ns: tuple[float, ...]
    samples_read: int
    behind: int
    spans: tuple[Span, ...]
    lengths: tuple[Length, ...] = ()
    verdicts: Mapping[str, Sequence[WindowVerdict]] = field(default_factory=dict)
    """By scope, of each GPU; empty where none were given."""

    def scope(self, name: str) -> Scope | None:
        return next((scope for scope in self.scopes if scope.name == name), None)


@dataclass
class _Held:
    """What waits of a GPU to be summed up, and what is known of it so far."""

    parts: list[tuple[Samples, Floats, Floats]] = field(default_factory=list)
    count: int = 0
    newest_ns: int = 0
    periods_ns: list[float] = field(default_factory=list)


class Summarizer:
    """Sums up batches as they come, in memory that does not grow with them.

    `regions` are the times of each; `part` is what is meant of it all (None: everything); `recorded` is from when to
    when it was recorded at least, for a region may begin before the first sample and end after the last. `away` is when
    other sets of a rotation had their turn: it is wanted of everything, and was not measured.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        regions: Mapping[str, Sequence[Span]] = MappingProxyType({}),
        part: Sequence[Span] | None = None,
        recorded: Span | None = None,
        away: Sequence[Span] = (),
    ) -> None:
        self._subjects, self._part, self._recorded = tuple(subjects), part, recorded
        within = [ALWAYS] if part is None else list(part)
        self._windows = {WHOLE: Windows(within)}
        self._windows |= {name: Windows(common(spans, within)) for name, spans in regions.items()}
        self._throttled = [Windows(subject.throttled) for subject in subjects]
        self._tallies = [{name: Tally.empty(s.metrics) for name in self._windows} for s in subjects]
        self._held = [_Held() for _ in subjects]
        self._spans: list[Span] = union(away)
        self._lengths = np.zeros((2, LONGEST_OCTAVE))
        self._read = self._behind = 0

    def add(self, gpu: int, samples: Samples, sm_mhz: Floats, power_w: Floats) -> None:
        """Take the next samples of the GPU at this position, with NVML's readings, (n,) each, NaN for none."""
        held = self._held[gpu]
        if held.count >= CHUNK:
            self._sum_up(gpu)  # before these are taken: the newest wait, for `end` may still lie among them
        held.parts.append((samples, sm_mhz, power_w))
        held.count += len(samples)

    def end(self, at_ns: int) -> None:
        """All that is meant ends then, known only now; to be called before samples of later are summed up."""
        until = [(ALWAYS[0], at_ns)]
        self._windows = {name: Windows(common(windows.spans, until)) for name, windows in self._windows.items()}
        self._part = self._windows[WHOLE].spans
        if self._recorded:
            self._recorded = (self._recorded[0], max(self._recorded[1], at_ns))

    @property
    def spans(self) -> dict[str, list[Span]]:
        """The times of each scope."""
        return {name: windows.spans for name, windows in self._windows.items()}

    def summary(self) -> Summary:
        """Of all that has come."""
        for gpu in range(len(self._subjects)):
            self._sum_up(gpu)
        labels = [metric.label for metric in self._subjects[0].metrics.metrics] if self._subjects else []
        return Summary(
            self._subjects,
            tuple(labels),
            tuple(self._scope(name) for name in self._windows),
            tuple(_typical(held.periods_ns) for held in self._held),
            self._read,
            self._behind,
            tuple(self._spans),
            _lengths(*self._lengths),
        )

    def _sum_up(self, gpu: int) -> None:
        stretch = self._taken(gpu)
        if not stretch or not len(stretch):
            return
        samples, held = stretch.samples, self._held[gpu]
        length_ns = samples.end_ns - samples.start_ns
        period_ns = sum(middles(length_ns)) / 2
        held.periods_ns.append(period_ns)
        self._spans = union([*self._spans, *pieces(samples.start_ns, samples.end_ns)], LONGEST_HOLE_NS)
        slack_ns, metrics = int(period_ns) // 2, self._subjects[gpu].metrics
        self._lengths += _octaves(length_ns)
        first_ns, last_ns = int(samples.start_ns[0]), int(samples.end_ns[-1])
        touched = {name: windows for name, windows in self._windows.items() if windows.touch(first_ns, last_ns)}
        inside_ns = [windows.overlap_ns(samples.start_ns, samples.end_ns) for windows in touched.values()]
        for rows in _alike([inside == length_ns for inside in inside_ns], len(samples)):
            of_all: Tally | None = None
            for name, inside in zip(touched, (inside[rows] for inside in inside_ns), strict=True):
                if (inside == length_ns[rows]).all():
                    of_all = found = of_all or tally(metrics, stretch[rows], inside, slack_ns)
                elif (within := inside > 0).any():
                    found = tally(metrics, stretch[rows][within], inside[within], slack_ns)
                else:
                    continue
                self._tallies[gpu][name].add(found, slack_ns)

    def _taken(self, gpu: int) -> Stretch | None:
        """What waits of a GPU, without what begins before others ended."""
        held = self._held[gpu]
        if not held.count:
            return None
        samples = Samples.join(part[0] for part in held.parts)
        sm_mhz, power_w = _joined([part[1] for part in held.parts]), _joined([part[2] for part in held.parts])
        held.parts, held.count = [], 0
        throttled_ns = self._throttled[gpu].overlap_ns(samples.start_ns, samples.end_ns)
        ahead = forward(samples.start_ns, samples.end_ns, held.newest_ns)
        held.newest_ns = max(held.newest_ns, int(samples.end_ns.max()))
        self._read += len(samples)
        stretch = Stretch(samples, sm_mhz, power_w, throttled_ns)
        if ahead.all():
            return stretch
        self._behind += len(samples) - int(ahead.sum())
        return stretch[ahead]

    def _scope(self, name: str) -> Scope:
        wanted_ns = self._wanted_ns(name)
        tallies = [of_gpu[name] for of_gpu in self._tallies]
        kinds, sets = [s.kind for s in self._subjects], [s.metrics for s in self._subjects]
        rows = tuple(gpu_row(metrics, t, wanted_ns) for metrics, t in zip(sets, tallies, strict=True))
        group = group_row(kinds, sets, tallies, rows, wanted_ns) if len(rows) > 1 else None
        return Scope(name, wanted_ns / 1e9, rows, group)

    def _wanted_ns(self, name: str) -> int:
        """How long a scope is. Of everything: while anything was measured; of a region its own time, whether measured
        or not, but for holes in which the machine slept."""
        spans = self._windows[name].spans
        if name == WHOLE and self._part is None:
            spans = self._spans
        return sum(b - a for a, b in common(spans, self._awake()))

    def _awake(self) -> list[Span]:
        """When it was recorded: from begin to end, without the holes between spans."""
        known = [*self._spans, *([self._recorded] if self._recorded else [])]
        if not known:
            return []
        begins = [min(a for a, _ in known), *(a for a, _ in self._spans[1:])]
        ends = [*(b for _, b in self._spans[:-1]), max(b for _, b in known)]
        return list(zip(begins, ends, strict=True))


def _joined(parts: Sequence[Floats]) -> Floats:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _alike(whole: Sequence[NDArray[np.bool_]], rows: int) -> list[slice]:
    """Rows cut where the windows change that they lie in wholly, (rows,) for each window; if seldom, else not at all:
    what lies in several windows is summed up once, but pieces have a cost of their own."""
    cuts = sorted({int(at) + 1 for of_window in whole for at in np.flatnonzero(of_window[1:] != of_window[:-1])})
    if len(cuts) > MOST_CUTS:
        return [slice(None)]
    return [slice(a, b) for a, b in pairwise([0, *cuts, rows])]


def _octaves(length_ns: Ints) -> Floats:
    """(2, LONGEST_OCTAVE): how many samples are so long, to a power of two, and their nanoseconds."""
    if length_ns.max() < PERIODS_APART * length_ns.min():  # as nearly always; logarithms take their time
        out = np.zeros((2, LONGEST_OCTAVE))
        out[:, round(np.log2(length_ns[0]))] = len(length_ns), length_ns.sum()
        return out
    octave = np.rint(np.log2(length_ns)).astype(np.intp)
    return np.stack([np.bincount(octave, weights, LONGEST_OCTAVE) for weights in (None, length_ns)]).astype(np.float64)


def _lengths(counts: Floats, times_ns: Floats) -> tuple[Length, ...]:
    """Neighbours that are all but equally long are one; what is next to nothing of the time is left out."""
    groups: list[list[float]] = []
    for count, time_ns in zip(counts.tolist(), times_ns.tolist(), strict=True):
        if count and groups and time_ns / count < PERIODS_APART * groups[-1][1] / groups[-1][0]:
            groups[-1] = [groups[-1][0] + count, groups[-1][1] + time_ns]
        elif count:
            groups.append([count, time_ns])
    shares = [(Length(time / count, int(count), time / times_ns.sum())) for count, time in groups]
    return tuple(length for length in shares if length.time_share >= LEAST_SHARE)


def _typical(periods_ns: Sequence[float]) -> float:
    return float(np.median(periods_ns)) if periods_ns else float("nan")
