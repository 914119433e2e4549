"""Verdicts of windows: how much of a GPU's time was bound by what, and what the whole comes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cufall_py.metrics import MetricSet
from cufall_py.presets import RATES
from cufall_py.samples import Samples
from cufall_py.shown import html_table, percent, plain

from .decision_table import CLASSES, MIXED, TABLE, UNKNOWN, DecisionTable
from .evidence import GAP_WITHIN
from .verdict import NAMES, NONE, Verdicts, classify, rivals
from .verdict_frames import FrameTotals, frame_totals, means_of

Floats = NDArray[np.float64]
HALF = 0.5
"""A class that has less of a window than this is not its verdict."""
AT_ONCE = 4096
"""Frames that are classified together: for fewer numpy's calls take longer than the work."""


@dataclass(frozen=True)
class WindowVerdict:
    """What a window of one GPU comes to.

    `shares` of each of CLASSES add up to 1: of the window's time, of which what was not measured is unknown. `verdict`
    is the class with the most time, mixed if none has half; `runner_up` the one with the most besides (empty: none).
    `at_most` is each share with the unknown time that may be of that class. `means` is what was measured over the
    window, each the quotient of its sums, by short name. `missing` names what unknown frames lacked, the most frequent
    first. `nearest` and `distance` are as `with_nearness` has them.
    """

    verdict: str
    runner_up: str
    shares: Mapping[str, float]
    at_most: Mapping[str, float]
    means: Mapping[str, float]
    missing: tuple[str, ...] = ()
    nearest: str = ""
    distance: float = math.nan

    @property
    def share(self) -> float:
        """Of the verdict itself."""
        return self.shares[self.verdict]

    def _repr_html_(self) -> str:
        """As a notebook shows it: the classes that took time, most first, and what was measured."""
        shares = sorted(((share, name) for name, share in self.shares.items() if share), reverse=True)
        means = [plain(value) if name in RATES else percent(value) for name, value in self.means.items()]
        return (
            f"<b>{self.verdict}</b>{'; missing: ' if self.missing else ''}{', '.join(self.missing)}"
            + html_table(("of the time", "share"), [(name, percent(share)) for share, name in shares])
            + html_table((*self.means,), [means], words=0)
        )


@dataclass
class ClassTimes:
    """Time by class, `possible_ns` of what is unknown, (CLASSES,) each, and what unknown frames lacked, (NAMES,)."""

    by_class_ns: Floats = field(default_factory=lambda: np.zeros(len(CLASSES)))
    possible_ns: Floats = field(default_factory=lambda: np.zeros(len(CLASSES)))
    lacking_ns: Floats = field(default_factory=lambda: np.zeros(len(NAMES)))

    def add(self, covered_ns: Floats, verdicts: Verdicts) -> None:
        """Take in frames, of each of which so much (n,) was measured."""
        self.by_class_ns += np.bincount(verdicts.classes, covered_ns, len(CLASSES))
        self.possible_ns += _by_bit(verdicts.possible, covered_ns, len(CLASSES))
        self.lacking_ns += _by_bit(verdicts.missing, covered_ns, len(NAMES))

    def verdict(self, wanted_ns: float, means: Mapping[str, float]) -> WindowVerdict:
        """Of a window that is so long, measured or not, with these means."""
        covered_ns = float(self.by_class_ns.sum())
        whole_ns = max(wanted_ns, covered_ns)
        unmeasured = 1 - covered_ns / whole_ns if whole_ns else 1.0
        shares = self.by_class_ns / (whole_ns or 1)
        shares[UNKNOWN] += unmeasured
        at_most = np.minimum(shares + self.possible_ns / (whole_ns or 1) + unmeasured, 1.0)
        at_most[UNKNOWN] = shares[UNKNOWN]
        verdict, runner_up = first_two(shares)
        return WindowVerdict(
            CLASSES[verdict],
            CLASSES[runner_up] if runner_up >= 0 else "",
            dict(zip(CLASSES, shares.tolist(), strict=True)),
            dict(zip(CLASSES, at_most.tolist(), strict=True)),
            means,
            self._missing(),
        )

    def _missing(self) -> tuple[str, ...]:
        order = np.argsort(-self.lacking_ns, kind="stable")
        return tuple(NAMES[k] for k in order if self.lacking_ns[k] > 0)


def _by_bit(masks: NDArray[np.unsignedinteger[Any]], weights: Floats, bits: int) -> Floats:
    """(bits,) the weight of those that have each bit."""
    if not masks.any():
        return np.zeros(bits)
    return np.array([weights[(masks & masks.dtype.type(1 << k)) != 0].sum() for k in range(bits)])


def first_two(shares: Floats) -> tuple[int, int]:
    """The verdict of (CLASSES,) shares, and the class with the most time besides, -1 if there is none."""
    order = np.argsort(-shares, kind="stable")
    verdict = int(order[0]) if shares[order[0]] >= HALF else MIXED
    runner_up = int(next(k for k in order if k != verdict))
    return verdict, runner_up if shares[runner_up] > 0 else -1


class Classifier:
    """Verdicts of one GPU's samples in one window, as they come, in memory that does not grow with them.

    `on_frames` is given each frame with its verdict.
    """

    def __init__(
        self,
        metrics: MetricSet,
        frame_ns: int,
        table: DecisionTable = TABLE,
        on_frames: Callable[[FrameTotals, Verdicts], None] = lambda frames, verdicts: None,
    ) -> None:
        self._metrics, self._frame_ns, self._table, self._on_frames = metrics, frame_ns, table, on_frames
        self._waiting: list[FrameTotals] = []
        self._frames = 0
        self._times, self._totals, self._gap_ns = ClassTimes(), np.zeros(len(metrics.counters) + 1), 0.0

    def add(self, samples: Samples) -> None:
        """Take the next samples (in order, not overlapping)."""
        if len(samples):
            self.add_frames(frame_totals(samples, self._metrics, self._frame_ns))

    def add_frames(self, frames: FrameTotals) -> None:
        """The same, of frames made of them; the first may be the last of those before."""
        self._waiting.append(frames)
        self._frames += len(frames)
        if self._frames > AT_ONCE:
            found = FrameTotals.join(self._waiting)
            self._classify(found[:-1])
            self._waiting = [found[-1:]]  # its end may be yet to come
            self._frames = 1

    def verdict(self, wanted_ns: float) -> WindowVerdict:
        """Of all that has come, in a window that is so long."""
        if self._frames:
            self._classify(FrameTotals.join(self._waiting))
        self._waiting, self._frames = [], 0
        evidence = self._evidence()
        means = {name: float(mean[0]) for name, mean in evidence.items() if name != GAP_WITHIN}
        window = self._times.verdict(wanted_ns, means)
        return with_nearness([window], evidence, self._table)[0]

    def _classify(self, frames: FrameTotals) -> None:
        if len(frames):
            found = verdicts_of(frames, self._metrics, self._table)
            self._times.add(frames.covered_ns, found)
            self._on_frames(frames, found)
            self._totals += frames.totals.sum(axis=0)
            self._gap_ns += float(frames.gap_ns.sum())

    def _evidence(self) -> dict[str, Floats]:
        """(1,) each, of all the window as if it were one frame; of nothing, nothing."""
        if not self._totals[-1]:
            return {}
        whole = FrameTotals(self._frame_ns, np.zeros(1, np.int64), self._totals[None], np.full(1, self._gap_ns))
        return evidence_of(whole, self._metrics)


def with_nearness(
    windows: Sequence[WindowVerdict], evidence: Mapping[str, Floats], table: DecisionTable = TABLE
) -> list[WindowVerdict]:
    """These (n) windows, each with the class that its means come nearest to besides (empty: near to none) and their
    distance from the nearest edge, as `rivals` has both.

    `evidence`, (n,) each, is as `classify` takes it. There is no distance (NaN) of what is unknown, and of what took
    turns: where less than half of the time had the verdict, or the means alone would give another.
    """
    classes = classify(evidence, len(windows), table).classes
    found = zip(windows, classes, *rivals(evidence, classes, table), strict=True)
    return [
        replace(window, nearest="" if near == NONE else CLASSES[near], distance=float(distance))
        if code != UNKNOWN and window.verdict == CLASSES[code] and window.share >= HALF
        else window
        for window, code, near, distance in found
    ]


def verdicts_of(frames: FrameTotals, metrics: MetricSet, table: DecisionTable = TABLE) -> Verdicts:
    """The verdict of each frame."""
    return classify(evidence_of(frames, metrics), len(frames), table)


def evidence_of(frames: FrameTotals, metrics: MetricSet) -> dict[str, Floats]:
    """What `classify` and `rivals` take, (f,) each."""
    return {**means_of(frames, metrics), GAP_WITHIN: frames.gap_ns / frames.covered_ns}
