"""Sets in turn on hardware: what a change of turns takes, and that what all sets have reads the same in each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from cufall_py.outline import OTHER_TURNS
from cufall_py.recording_reader import Recording
from cufall_py.report import Reading, Report
from cufall_py.rotation import places
from cufall_py.spans import Span

from .measure import Loads, note, run

pytestmark = pytest.mark.gpu
TURN_S, LENGTH_S = 2, 12
TWO_PASSES = ("sm__inst_executed_pipe_fma.sum", "sm__pipe_fma_cycles_active.avg")
"""Each fits one pass on GH100, both together do not (test_traps.py)."""
SAME_POINTS, LEAST_SHARE, MOST_BLIND_S = 1.0, 0.5, 4.0
"""Of percent; of what a set of so many would have if changes took no time; seconds."""


def asking(*metrics: str) -> list[str]:
    return [word for metric in metrics for word in ("--metric", metric)]


def turns_of(path: Path) -> list[Span]:
    """When this set was sampled: between the stretches in which others were."""
    away = sorted((e.start_ns, e.end_ns) for e in Recording(path).events() if e.kind == OTHER_TURNS)
    outline = Recording(path).outline()
    edges = [outline.start_ns, *(edge for a, b in away for edge in (a, b)), outline.end_ns]
    return [(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if begin < end]


def blind_s(paths: Sequence[Path]) -> list[float]:
    """From the last sample of each turn to the first of the next."""
    turns = sorted(turn for path in paths for turn in turns_of(path))
    return [(after[0] - before[1]) / 1e9 for before, after in pairwise(turns)]


def means(report: Report) -> dict[str, float]:
    return {of.label: of.mean for of in report.summary.scopes[0].rows[0].metrics}


def test_two_sets_in_turn_beside_a_steady_load(loads: Loads, tmp_path: Path) -> None:
    out = tmp_path / "run.cufall"
    loads.run("bf16", 4096, 3)  # clocks and power settle
    loads.begin("bf16", 4096, 120)
    try:
        words = ("--source", "cupti", "--devices", "0", "--rotate", str(TURN_S), "--duration-sec", str(LENGTH_S))
        ended = run("record", *words, *asking("tensor", "sm", "gr", *TWO_PASSES), "-o", str(out), timeout=120)
    finally:
        loads.end()
    paths = [path for of in (2, 3) for path in places(out, of) if path.exists()]
    reports = [Reading(path).report() for path in paths]
    sets = [report.turn.metrics if report.turn else () for report in reports]
    found = [means(report) for report in reports]
    coverage = [report.summary.scopes[0].rows[0].coverage for report in reports]
    blind = blind_s(paths)
    note(
        "rotation",
        code=ended.code,
        said=ended.said,
        took_s=ended.took_s,
        sets=sets,
        means=found,
        coverage=coverage,
        wanted_s=[report.summary.scopes[0].wanted_s for report in reports],
        turns_s=[[(end - begin) / 1e9 for begin, end in turns_of(path)] for path in paths],
        blind_s=blind,
        lost=[[gap.fields for gap in Recording(path).outline().gaps] for path in paths],
    )
    assert ended.code == 0, ended.said
    assert len(paths) >= 2
    assert {name for one in sets for name in one} == {"tensor", "sm", "gr", *TWO_PASSES}
    shared = set.intersection(*map(set, sets))
    assert "tensor" in shared
    for name in shared:
        percents = [100 * values[name] for values in found]
        assert max(percents) - min(percents) < SAME_POINTS, name
    assert all(values["tensor"] > 0.05 for values in found)
    assert all(0 <= value <= 1.01 for values in found for value in values.values())
    assert min(coverage) > LEAST_SHARE / len(paths) and sum(coverage) <= 1
    assert len(blind) >= 2 and all(0 < seconds < MOST_BLIND_S for seconds in blind)
