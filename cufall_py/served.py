"""What inference servers did beside what their GPUs did, from a recording of both: by concurrency and by phase."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .analysis.concurrency import Row, by_concurrency
from .analysis.phases import frame_shares, phase_means, phase_seconds
from .analysis.scrapes import Scrapes
from .engines.columns import columns
from .engines.events import ENGINE, SERVER, reading
from .engines.rates import Interval, Latencies, Rate, Rates
from .engines.reading import Reading
from .part import Part
from .plan import Plan
from .playback import Playback
from .recording_reader import Recording
from .requirements import ROLES
from .spans import Span

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FRAME_US = 100_000
COUNTERS, GAUGES, LATENCIES = (
    ("generation_tokens", "prompt_tokens"),
    ("running", "waiting", "cache_usage"),
    ("ttft_s", "itl_s", "tpot_s"),
)
"""The quantities of a server that documents, CSV and sinks have."""


@dataclass(frozen=True)
class Log:
    """What one server said: its pages, and what lies between two. `gpus`: CUDA ordinals of those it computes on."""

    url: str
    role: str
    gpus: tuple[int, ...]
    intervals: tuple[Interval, ...] = ()
    readings: tuple[Reading, ...] = ()

    @property
    def engine(self) -> str:
        """As its pages were read, each engine that answered there; empty if none did."""
        return ", then ".join(dict.fromkeys(f"{r.engine.name} ({r.engine.versions})" for r in self.readings))

    def within(self, spans: Sequence[Span]) -> Log:
        """The same with the intervals that lie wholly in one of these stretches."""
        kept = [i for i in self.intervals if any(a <= i.before.at_ns and i.after.at_ns <= b for a, b in spans)]
        return replace(self, intervals=tuple(kept))


@dataclass(frozen=True)
class FrameTable:
    """Frames of a recording: `start_ns`, `end_ns` (n,), `mean` (n, gpus, metrics), `covered_ns` (n, gpus).

    `labels` and `units` (`Metric.shown_in`) are of metrics, `gpus` their CUDA ordinals.
    """

    labels: tuple[str, ...]
    units: tuple[str, ...]
    gpus: tuple[int, ...]
    start_ns: Ints
    end_ns: Ints
    mean: Floats
    covered_ns: Floats

    def of(self, gpus: Sequence[int]) -> tuple[Floats, Floats]:
        """(n, metrics) the mean over these GPUs, by covered time, and (n,) how much of all was covered."""
        chosen = [k for k, gpu in enumerate(self.gpus) if gpu in gpus]
        covered = self.covered_ns[:, chosen]
        weights = np.where(np.isfinite(self.mean[:, chosen]), covered[:, :, None], 0.0)
        totals = (np.nan_to_num(self.mean[:, chosen]) * weights).sum(axis=1)
        whole = weights.sum(axis=1)
        means: Floats = np.divide(totals, whole, out=np.full_like(totals, np.nan), where=whole > 0)
        return means, covered.sum(axis=1)


@dataclass(frozen=True)
class Served:
    """One server beside its GPUs. `labels`, `units`: of metrics, as FrameTable has them. `phase_s`: how long each phase
    lasted; `phase_means`: (metrics,) of its GPUs then."""

    log: Log
    labels: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[Row, ...]
    phase_s: Mapping[str, float]
    phase_means: Mapping[str, Floats]


def served(path: str | Path, part: Part = Part(), gpus: Collection[int] | None = None) -> list[Served]:
    """Of each server of a recording that computes on one of these GPUs (CUDA ordinals; None: all), and of these alone.

    None of a recording that was made without any. Raises as Playback does.
    """
    found = logs(path) if gpus is None else on_gpus(logs(path), gpus)
    if not found:
        return []
    frames, spans = frame_table(path, part=part)
    if part != Part():
        found = [log.within(spans) for log in found]
    return [beside(log, frames) for log in found]


def beside(log: Log, frames: FrameTable) -> Served:
    """The tables of one server."""
    scrapes = columns(log.intervals)
    values, covered_ns = frames.of(log.gpus)
    rows = concurrency(log, frames, scrapes)
    shares = phase_shares(log, frames)
    lasted = phase_seconds(frames.start_ns, frames.end_ns, shares)
    means = phase_means(shares, values, covered_ns)
    return Served(log, frames.labels, frames.units, tuple(rows), lasted, means)


def phase_shares(log: Log, frames: FrameTable) -> Floats:
    """(n, 5) the share of each frame that is of each phase.

    A server that does prefill alone has nothing running after a step, so that 0 there does not mean idle.
    """
    scrapes = columns(log.intervals)
    if log.role == "prefill":
        scrapes = replace(scrapes, running=np.full_like(scrapes.running, np.nan))
    return frame_shares(frames.start_ns, frames.end_ns, scrapes)


def concurrency(
    log: Log, frames: FrameTable, scrapes: Scrapes, ranges: Sequence[tuple[int, int]] = (), gpu: int | None = None
) -> list[Row]:
    """By running requests, of the server's GPUs or of one of them."""
    values, covered_ns = frames.of(log.gpus if gpu is None else (gpu,))
    metrics = {label: values[:, k] for k, label in enumerate(frames.labels)}
    return by_concurrency(frames.start_ns, frames.end_ns, metrics, covered_ns, scrapes, ranges)


def logs(path: str | Path) -> list[Log]:
    """The servers of a recording, in the order they were given; raises CufallError as Recording does."""
    found: dict[int, Log] = {}
    readings: dict[int, list[Reading]] = {}
    for event in Recording(path).events():
        place = event.fields.get("server")
        if event.kind == SERVER and isinstance(place, int):
            gpus = tuple(map(int, event.fields.get("gpus", ())))
            found[place] = Log(str(event.fields.get("url", "")), str(event.fields.get("role", "")), gpus)
        elif event.kind == ENGINE and isinstance(place, int) and (said := reading(event.start_ns, event.fields)):
            readings.setdefault(place, []).append(said)
    return [_with_readings(log, readings.get(k, [])) for k, log in sorted(found.items())]


def on_gpus(found: Sequence[Log], gpus: Collection[int]) -> list[Log]:
    """Those that compute on one of these GPUs, with these alone; one whose GPUs are not known stays as it is."""
    return [replace(log, gpus=tuple(g for g in log.gpus if g in gpus)) for log in found if _is_on(log, gpus)]


def _is_on(log: Log, gpus: Collection[int]) -> bool:
    return not log.gpus or any(gpu in gpus for gpu in log.gpus)


def _with_readings(log: Log, readings: Sequence[Reading]) -> Log:
    """With what lies between them, and the role."""
    rates = Rates()
    intervals = tuple(interval for said in readings if (interval := rates.add(said)))
    return replace(log, intervals=intervals, readings=tuple(readings), role=role_of(log.role, readings))


def role_of(told: str, readings: Sequence[Reading]) -> str:
    """Which of ROLES a server does alone: as somebody told, else as its labels do; empty if that is not known."""
    labelled = {role for said in readings for role in said.roles} & {*ROLES}
    return told or (labelled.pop() if len(labelled) == 1 else "")


def frame_table(path: str | Path, plan: Plan | None = None, part: Part = Part()) -> tuple[FrameTable, list[Span]]:
    """Every frame of a recording, or of a part of it, and the stretches that they are of."""
    recorded = Recording(path).plan
    plan = plan or Plan(wanted=recorded.wanted, frame_us=max(recorded.frame_us, FRAME_US))
    with Playback(path, plan, part=part) as playing:
        frames = list(playing.frames())
        metrics = playing.opened[0].metrics.metrics
        labels, units = tuple(m.label for m in metrics), tuple(m.shown_in for m in metrics)
        gpus = tuple(opened.device.ordinal for opened in playing.opened)
        spans = part.spans(playing.outline)
    start_ns = np.array([frame.start_ns for frame in frames], np.int64)
    mean = np.array([frame.mean for frame in frames]).reshape(-1, len(gpus), len(labels))
    covered_ns = np.array([frame.covered_ns for frame in frames], np.float64).reshape(-1, len(gpus))
    return FrameTable(labels, units, gpus, start_ns, start_ns + playing.plan.frame_ns, mean, covered_ns), spans


def total(intervals: Sequence[Interval], quantity: str) -> Rate | None:
    """The rate of a counter over all intervals in which it is known: the quotient of the sums.

    Of the metric that it was read from last; another one, as of an engine that answered there before, is none of it.
    """
    rates = [(rate, i.seconds) for i in intervals if (rate := i.rates.get(quantity)) and np.isfinite(rate.amount)]
    known = [(rate, seconds) for rate, seconds in rates if rate.name == rates[-1][0].name]
    if not known:
        return None
    amount, seconds = sum(rate.amount for rate, _ in known), sum(length for _, length in known)
    return Rate(amount, amount / seconds, known[-1][0].name, known[-1][0].moves)


def latency(intervals: Sequence[Interval], quantity: str) -> Latencies | None:
    """What the histogram that was read last took in over all, with percentiles where its buckets stayed the same."""
    every = [i.latencies[quantity] for i in intervals if quantity in i.latencies]
    found = [one for one in every if one.name == every[-1].name]
    if not found:
        return None
    same = len({one.bounds for one in found}) == 1
    at_most = np.sum([one.at_most for one in found], axis=0) if same else ()
    count, total_s = sum(one.count for one in found), sum(one.total_s for one in found)
    return Latencies(count, total_s, found[-1].name, found[-1].bounds if same else (), tuple(map(float, at_most)))


def gauge(intervals: Sequence[Interval], quantity: str) -> float:
    """The mean of the gauge that was read last over the intervals in which it is known, weighted by their length; NaN
    without any."""
    every = [i for i in intervals if quantity in i.gauges]
    same = [i for i in every if i.names.get(quantity) == every[-1].names.get(quantity)]
    known = [(sum(i.gauges[quantity]) / 2, i.seconds) for i in same]
    seconds = sum(length for _, length in known)
    return sum(value * length for value, length in known) / seconds if seconds else float("nan")
