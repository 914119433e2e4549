"""Requirements judged on a recording that may have inference servers: what those said, besides what the GPUs did."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .analysis.concurrency import Mean, Row
from .analysis.verdict_scopes import OnFrames
from .engines.columns import columns
from .errors import UsageError
from .judgements import HELD, LEAST_SAMPLES, MISSED, NOT_MEASURABLE, Judgement, check, check_gpus, judge
from .outline import Region
from .plan import Plan
from .recording_reader import Recording, Rows
from .report import Reading, Report
from .requirements import OPERATORS, Requirement, metrics_in
from .resolve import Wanted
from .served import FrameTable, Log, concurrency, frame_table, logs, on_gpus

LEAST_INTERVALS = 3
"""With fewer intervals between scrapes nothing is judged of a server."""
LEAST_KNOWN = 0.5
"""Of all the time, what has to be known of a server that is judged over all of it: it may be gone since long."""


def judge_recording(path: Path, requirements: Sequence[Requirement], devices: str = "all") -> list[Judgement]:
    """Each on each GPU or server of those devices that it selects. Raises UsageError for what cannot be asked of the
    recording."""
    reading = Reading(path, devices=devices, also=metrics_in(requirements))
    check_all(reading, requirements)
    return judged(reading, requirements)[1]


def check_all(reading: Reading, requirements: Sequence[Requirement]) -> None:
    """Raises UsageError for the first that cannot be asked of the recording."""
    there = _servers(reading, requirements)
    for requirement in requirements:
        if requirement.of_server and reading.part is not None:
            raise UsageError(
                f"--require {requirement.text}: what a server said is judged on the whole recording or, in brackets, "
                "on a region, not on a part"
            )
        can_be = check_gpus if there else check
        can_be(requirement, _ordinals(reading), reading.opened[0].metrics.metrics)
        if there and (requirement.of_server or requirement.role):
            check_servers(requirement, there, on_gpus(there, _ordinals(reading)))


def check_servers(requirement: Requirement, there: Sequence[Log], reported: Sequence[Log]) -> None:
    """Whether one that is meant is reported. A role that none is known to have is only not measurable.

    Raises UsageError.
    """
    has_role = any(log.role == requirement.role for log in there)
    if not _chosen(requirement, reported) and (has_role or not requirement.role):
        server = f"{requirement.role} server" if requirement.role else "server"
        raise UsageError(f"--require {requirement.text}: no {server} is on one of these GPUs")


def _servers(reading: Reading, requirements: Sequence[Requirement]) -> list[Log]:
    """Those of the recording, if anything is required of one."""
    asked = any(requirement.of_server or requirement.role for requirement in requirements)
    return logs(reading.path) if asked else []


def _ordinals(reading: Reading) -> list[int]:
    return [opened.device.ordinal for opened in reading.opened]


def judged(
    reading: Reading,
    requirements: Sequence[Requirement],
    on_rows: Callable[[Rows], None] = lambda rows: None,
    on_frames: OnFrames | None = None,
) -> tuple[Report, list[Judgement]]:
    """Read it all, what is read also given to `on_rows` and `on_frames` (Reading.report), and judge it by requirements
    that were checked."""
    report = reading.report(on_rows, on_frames)
    servers = on_gpus(_servers(reading, requirements), _ordinals(reading))
    said = [requirement for requirement in requirements if requirement.of_server]
    of_servers = _judge_served(reading.path, servers, said)
    found = (of_servers.get(r) or _judge_gpus(r, servers, report, reading) for r in requirements)
    return report, [judgement for those in found for judgement in those]


def _judge_gpus(requirement: Requirement, servers: Sequence[Log], report: Report, reading: Reading) -> list[Judgement]:
    """One of what GPUs did alone: on those of the servers of its role, if it names one."""
    if requirement.role:
        chosen = _chosen(requirement, servers)
        if not chosen:
            return _without_role(requirement, servers)
        gpus = {gpu for log in chosen for gpu in log.gpus} & {*(requirement.gpus or _ordinals(reading))}
        requirement = replace(requirement, gpus=tuple(sorted(gpus)))
    return judge(requirement, report.summary, reading.lacking)


def _chosen(requirement: Requirement, servers: Sequence[Log]) -> list[Log]:
    """The servers of its role on one of its GPUs."""
    of_role = [log for log in servers if requirement.role in ("", log.role)]
    return [log for log in of_role if requirement.gpus is None or {*log.gpus} & {*requirement.gpus}]


def _without_role(requirement: Requirement, servers: Sequence[Log]) -> list[Judgement]:
    """Where no server is known to do this alone: which is known at the end only, for labels may have told it."""
    role = requirement.role
    why = f"it is not known to do {role} alone; --as {role}=URL says so"
    return [_outcome(requirement, log.gpus[0] if log.gpus else 0, "", math.nan, 0, why, log.url) for log in servers]


def _judge_served(
    path: str, servers: Sequence[Log], requirements: Sequence[Requirement]
) -> dict[Requirement, list[Judgement]]:
    """Those that take what a server said."""
    if not requirements:
        return {}
    metrics = metrics_in(requirements)
    wanted = Wanted(metrics) if metrics else Recording(path).plan.wanted
    frames, _ = frame_table(path, Plan(wanted=wanted))
    regions = Recording(path).regions()
    return {r: _judged(r, servers, frames, regions.get(r.region or "", ())) for r in requirements}


def _judged(
    requirement: Requirement, servers: Sequence[Log], frames: FrameTable, times: Sequence[Region]
) -> list[Judgement]:
    chosen = _chosen(requirement, servers)
    if not chosen:
        return _without_role(requirement, servers)
    if requirement.metric:
        return [
            _of_gpu(requirement, log, frames, gpu)
            for log in chosen
            for gpu in log.gpus
            if requirement.gpus is None or gpu in requirement.gpus
        ]
    return [_of_server(requirement, log, frames, times) for log in chosen]


def _of_gpu(requirement: Requirement, log: Log, frames: FrameTable, gpu: int) -> Judgement:
    """The mean of a metric while so many requests ran."""
    rows = _rows(requirement, log, frames, gpu)
    mean = rows[0].metrics[requirement.metric] if rows else Mean(math.nan, math.nan, math.nan, 0)
    why = f"{mean.count} whole frames, at least {LEAST_SAMPLES} are needed" if mean.count < LEAST_SAMPLES else ""
    return _outcome(requirement, gpu, _name(requirement), mean.value, mean.count, why)


def _of_server(requirement: Requirement, log: Log, frames: FrameTable, times: Sequence[Region]) -> Judgement:
    """Tokens a second, over all or the region or while so many requests ran."""
    gpu = log.gpus[0] if log.gpus else 0
    if requirement.region is not None:
        if not times:
            why = f"region {requirement.region} never came"
            return _outcome(requirement, gpu, requirement.region, math.nan, 0, why, log.url)
        log = log.within([(region.start_ns, region.end_ns) for region in times])
    value, count, known_s = _tokens_per_s(requirement, log, frames)
    coverage = known_s / whole_s if (whole_s := _whole_s(requirement, frames, times)) else math.nan
    if count < LEAST_INTERVALS:
        why = f"{count} intervals between scrapes, at least {LEAST_INTERVALS} are needed"
        if log.role == "prefill" and requirement.statistic.startswith("generation"):
            why += "; it does prefill alone, group=decode means the others"
    elif requirement.region is None and coverage < LEAST_KNOWN:
        why = f"what it did is known of {100 * coverage:.0f}% of the time, at least {100 * LEAST_KNOWN:.0f}% are needed"
    else:
        why = ""
    return _outcome(requirement, gpu, _name(requirement), value, count, why, log.url, coverage)


def _whole_s(requirement: Requirement, frames: FrameTable, times: Sequence[Region]) -> float:
    """The time that is judged; 0 where that is what is known of it."""
    if requirement.running or not len(frames.start_ns):
        return 0.0
    if requirement.region is not None:
        return sum(region.end_ns - region.start_ns for region in times) / 1e9
    return float(frames.end_ns[-1] - frames.start_ns[0]) / 1e9


def _tokens_per_s(requirement: Requirement, log: Log, frames: FrameTable) -> tuple[float, int, float]:
    """And of how many intervals that is, and seconds."""
    if requirement.running:
        rows = _rows(requirement, log, frames)
        mean: Mean | None = getattr(rows[0], requirement.statistic) if rows else None
        return (mean.value, mean.count, rows[0].seconds) if mean else (math.nan, 0, 0.0)
    scrapes = columns(log.intervals)
    tokens = scrapes.generation if requirement.statistic.startswith("generation") else scrapes.prompt
    seconds, known = (scrapes.end_ns - scrapes.start_ns) / 1e9, np.isfinite(tokens)
    length_s = float(seconds[known].sum())
    return float(tokens[known].sum()) / length_s if length_s else math.nan, int(known.sum()), length_s


def _rows(requirement: Requirement, log: Log, frames: FrameTable, gpu: int | None = None) -> list[Row]:
    assert requirement.running
    return concurrency(log, frames, columns(log.intervals), [requirement.running], gpu)


def _name(requirement: Requirement) -> str:
    """What was judged, as a person reads it."""
    if not requirement.running:
        return requirement.region or ""
    least, most = requirement.running
    return f"running={least}" if least == most else f"running={least}-{most}"


def _outcome(
    requirement: Requirement,
    gpu: int,
    of: str,
    value: float,
    count: int,
    why: str,
    server: str = "",
    coverage: float = math.nan,
) -> Judgement:
    if not why and math.isnan(value):
        why = "no value"
    if why:
        return Judgement(requirement, gpu, NOT_MEASURABLE, math.nan, of, count, coverage, why=why, server=server)
    outcome = HELD if OPERATORS[requirement.operator](value, requirement.limit) else MISSED
    return Judgement(requirement, gpu, outcome, value, of, count, coverage, server=server)
