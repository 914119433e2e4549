"""Reports as data: a JSON document (its schema is in docs/report.md) and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cufall_py import __version__
from cufall_py.analysis.advice import advice
from cufall_py.analysis.bins import RELATIVE_RESOLUTION, RESOLUTION
from cufall_py.analysis.decision_table import spelt
from cufall_py.analysis.groups import Group
from cufall_py.analysis.statistics import Row, Statistics
from cufall_py.analysis.summary import Scope
from cufall_py.analysis.verdict_windows import WindowVerdict
from cufall_py.judgements import Judgement
from cufall_py.keep import told
from cufall_py.report import Report

from .nulls import or_null

SCHEMA = 1
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
ALL = "all"


def document(reports: Sequence[tuple[Report, Sequence[Judgement]]]) -> dict[str, Any]:
    """All of the reports, as strict JSON has it: what is not known is null."""
    return {
        "schema": SCHEMA,
        "cufall": __version__,
        "samples_read": sum(report.summary.samples_read for report, _ in reports),
        "recordings": [_recording(report, judgements) for report, judgements in reports],
    }


def _recording(report: Report, judgements: Sequence[Judgement]) -> dict[str, Any]:
    summary = report.summary
    return {
        "file": report.path,
        "whole": report.whole,
        "versions": report.versions,
        "samples_read": summary.samples_read,
        "samples_behind": summary.behind,
        "keep": told(report.keep) if report.keep else None,
        "rotation": report.turn.to_json() if report.turn else None,
        "sample_lengths": [asdict(length) for length in summary.lengths],
        "spans_ns": [list(span) for span in summary.spans],
        "gpus": [_gpu(report, k) for k in range(len(report.opened))],
        "metrics": [_metric(report, k) for k in range(len(summary.metrics))],
        "verdicts": {"frame_ms": report.judging.frame_ns / 1e6, "table": report.judging.table.to_json()},
        "scopes": [_scope(report, scope) for scope in summary.scopes],
        "groups": [_group(report, group) for group in report.groups],
        "requirements": [judged(judgement) for judgement in judgements],
    }


def _group(report: Report, group: Group) -> dict[str, Any]:
    found, ordinals = group.across, [report.opened[k].device.ordinal for k in group.positions]
    shares = {"work": found.work, "idle": found.idle, "waiting": found.waiting}
    shares |= {"bubble": found.bubble, "alone": found.alone}
    lags = {"lag_s": [lag.frames for lag in group.lags], "lag_error_s": [lag.error for lag in group.lags]}
    return {
        "name": group.name,
        "frames": found.frames,
        "measured": or_null(found.measured),
        "all_idle": or_null(found.all_idle),
        "skew": or_null(found.skew),
        "straggler": ordinals[found.straggler] if found.straggler >= 0 else None,
        "gpus": [
            {
                "gpu": gpu,
                **{name: or_null(float(share[k])) for name, share in shares.items()},
                **{name: or_null(frames[k] * group.frame_ns / 1e9) for name, frames in lags.items()},
            }
            for k, gpu in enumerate(ordinals)
        ],
    }


def _gpu(report: Report, k: int) -> dict[str, Any]:
    opened = report.opened[k]
    period_ns = or_null(_period_ns(report, k))
    return {**opened.device.to_json(), "source": opened.source, "sample_period_ns": period_ns}


def _metric(report: Report, k: int) -> dict[str, Any]:
    found = [opened.metrics.metrics[k] for opened in report.opened]
    resolution = RESOLUTION if found[0].bounded else RELATIVE_RESOLUTION
    return {
        "name": found[0].label,
        "asked": found[0].asked,
        "plain": found[0].plain,
        "unit": found[0].unit or None,
        "counters": [metric.formula or None for metric in found],
        "percentile_resolution": resolution,
        "resolution_is": "absolute" if found[0].bounded else "relative",
    }


def _scope(report: Report, scope: Scope) -> dict[str, Any]:
    ordinals = [opened.device.ordinal for opened in report.opened]
    return {
        "region": scope.name or None,
        "wanted_s": scope.wanted_s,
        "gpus": [
            {"gpu": gpu, **_row(row), "verdict": verdict(window)}
            for gpu, row, window in zip(ordinals, scope.rows, report.summary.verdicts[scope.name], strict=True)
        ],
        "all": scope.group and {**_row(scope.group), **_of_group(scope.group, ordinals, report)},
    }


def _of_group(group: Row, ordinals: Sequence[int], report: Report) -> dict[str, Any]:
    unlike = {
        label: [ordinals[k] for k in positions]
        for label, positions in zip(report.summary.metrics, group.unlike, strict=True)
    }
    return {"unlike_kinds": list(group.unlike_kinds), "unlike_gpus": unlike}


def _row(row: Row) -> dict[str, Any]:
    fields = ("coverage", "sm_mhz", "throttle_share", "power_w", "energy_j")
    return {
        "samples": row.samples,
        **{name: or_null(getattr(row, name)) for name in fields},
        "metrics": {statistics.label: figures(statistics) for statistics in row.metrics},
    }


def figures(of: Statistics) -> dict[str, Any]:
    """The figures of a metric, by the names that a requirement calls them."""
    values = {
        "mean": of.mean,
        "time_mean": of.time_mean,
        "min": of.minimum,
        **{f"p{percent}": of.percentile(percent) for percent in PERCENTILES},
        "max": of.maximum,
        "below_1": of.below_1,
        "below_10": of.below_10,
        "above_90": of.above_90,
        "idle_share": of.idle_share,
        "longest_idle_s": of.longest_idle_s,
        "coverage": of.coverage,
        "counted_per_s": of.counted_per_s,
    }
    return {**{name: or_null(value) for name, value in values.items()}, "samples": of.samples}


def verdict(window: WindowVerdict) -> dict[str, Any]:
    """What a window of a GPU comes to. Names of classes are spelt as requirements have them, with `_`."""
    return {
        "class": spelt(window.verdict),
        "runner_up": spelt(window.runner_up) or None,
        "shares": {spelt(name): share for name, share in window.shares.items()},
        "at_most": {spelt(name): share for name, share in window.at_most.items()},
        "evidence": {name: or_null(mean) for name, mean in window.means.items()},
        "missing": list(window.missing),
        "nearest": spelt(window.nearest) or None,
        "distance": or_null(window.distance),
        "advice": advice(window.verdict, window.missing, window.means),
    }


def judged(judgement: Judgement) -> dict[str, Any]:
    """A requirement on one GPU."""
    requirement = judgement.requirement
    return {
        "require": requirement.text,
        "quantity": requirement.quantity,
        "operator": requirement.operator,
        "limit": requirement.limit,
        "region": judgement.region or None,
        "gpu": judgement.gpu,
        "server": judgement.server or None,
        "outcome": judgement.outcome,
        "value": or_null(judgement.value),
        "samples": judgement.samples,
        "coverage": or_null(judgement.coverage),
        "why": judgement.why or None,
    }


def csv_text(reports: Sequence[Report]) -> str:
    """A row a file, region, GPU and metric; `gpu` is `all` for all of them, `region` empty for everything."""
    out = io.StringIO()
    writer: Any = None
    for report in reports:
        for row in _csv_rows(report):
            if writer is None:
                writer = csv.DictWriter(out, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
    return out.getvalue()


def _csv_rows(report: Report) -> list[dict[str, Any]]:
    found = []
    for scope in report.summary.scopes:
        for gpu, uuid, period_ns, row in _places(report, scope):
            place = {"file": report.path, "region": scope.name, "gpu": gpu, "uuid": uuid}
            hardware = {"sm_mhz": row.sm_mhz, "throttle_share": row.throttle_share}
            hardware |= {"power_w": row.power_w, "energy_j": row.energy_j, "sample_us": period_ns / 1000}
            known = {name: or_null(value) for name, value in hardware.items()}
            found += [{**place, "metric": s.label, **figures(s), **known} for s in row.metrics]
    return found


def _places(report: Report, scope: Scope) -> list[tuple[int | str, str, float, Row]]:
    gpus: list[tuple[int | str, str, float, Row]] = [
        (opened.device.ordinal, opened.device.uuid, _period_ns(report, k), row)
        for k, (opened, row) in enumerate(zip(report.opened, scope.rows, strict=True))
    ]
    return [*gpus, *([(ALL, "", math.nan, scope.group)] if scope.group else [])]


def _period_ns(report: Report, k: int) -> float:
    """The length of a GPU's samples; NaN where a recording was thinned and they are not all of one."""
    mixed = report.keep and len(report.summary.lengths) > 1
    return math.nan if mixed else report.summary.periods_ns[k]
