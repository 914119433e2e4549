"""NVML GPM as a source, beside PM sampling of the same seconds."""

from __future__ import annotations

import numpy as np
import pytest

from cufall_py.sources.gpm import PERIOD_NS

from .measure import Loads, Sampling, Wanted, Watched, Window, note, run, window

pytestmark = pytest.mark.gpu
KNOWN_TO_MS = 50
"""How well the time of a GPM sample is known (docs/gpm.md)."""
GIVEN = ("tensor", "sm", "gr", "dram", "occupancy")
ONE_TYPE = {"tensor.hmma": ("bf16", 8192), "tensor.imma": ("int8", 8192), "tensor.dmma": ("fp64", 8192)}


def both(loads: Loads, load: tuple[str, int], seconds: float, *names: str) -> tuple[dict[str, float], dict[str, float]]:
    """Percents by the counters and by GPM, of the steady part of a load, sampled at once."""
    wanted = Wanted(names)
    with (
        Sampling(wanted=wanted, sample_us=1000, source="cupti") as counters,
        Sampling(wanted=wanted, source="gpm") as gpm,
    ):
        answer = loads.run(*load, seconds)
        ours, theirs = counters.within(answer), gpm.within(answer)
        return {n: ours.percent(n) for n in names}, {n: percent(theirs, n) for n in names}


def percent(found: Window, name: str) -> float:
    """GPM's samples are percents and all of one length: their sum by share over their number."""
    metric = next(m for m in found.metrics.metrics if m.label == name)
    return found.totals[metric.counters[0]] / (found.covered_ns / PERIOD_NS)


@pytest.mark.parametrize(
    "load", [("bf16", 8192), ("copy", 1024), ("fp32", 4096), ("idle", 0)], ids=lambda load: load[0]
)
def test_gpm_agrees_with_the_counters(loads: Loads, load: tuple[str, int]) -> None:
    counters, gpm = both(loads, load, 2.5, *GIVEN)
    note(f"gpm source {load[0]}", counters=counters, gpm=gpm)
    assert gpm == pytest.approx(counters, abs=2)


@pytest.mark.parametrize("name", ONE_TYPE)
def test_gpm_agrees_by_type(loads: Loads, name: str) -> None:
    counters, gpm = both(loads, ONE_TYPE[name], 2.0, name)
    note(f"gpm source {name}", counters=counters, gpm=gpm)
    assert gpm == pytest.approx(counters, abs=2)


def test_each_reading_is_the_counters_mean_of_a_tenth_of_a_second(loads: Loads) -> None:
    """Under phases of 130 ms there is one shift of all samples, within what docs/gpm.md states, at which they agree."""
    wanted = Wanted(("tensor", "gr"))
    with (
        Sampling(wanted=wanted, sample_us=1000, source="cupti") as counters,
        Sampling(wanted=wanted, source="gpm") as gpm,
    ):
        gpm.for_s(2)  # its looks close in on when a period ends
        answer = loads.run("switch", 130_000, 6.0)
        counters.over(answer), gpm.over(answer)
        theirs, ours = gpm.samples(), counters.samples()
    theirs = theirs[(theirs.start_ns > answer["start_ns"]) & (theirs.end_ns < answer["end_ns"])]
    column = gpm.metrics.counters.index(gpm.metrics.metrics[1].counters[0])
    errors = {}
    for lag_ms in range(-60, 61, 2):
        shifted = theirs.start_ns + lag_ms * 1_000_000, theirs.end_ns + lag_ms * 1_000_000
        same = [window(ours, counters.metrics, int(a), int(b)).percent("gr") for a, b in zip(*shifted, strict=True)]
        errors[lag_ms] = float(np.abs(np.array(same) - theirs.values[:, column]).mean())
    best_ms = min(errors, key=errors.__getitem__)
    lengths_ms = (theirs.end_ns - theirs.start_ns) / 1e6
    note("gpm timing", best_ms=best_ms, errors=errors, samples=len(theirs), lengths_ms=lengths_ms.tolist())
    assert len(theirs) > 50
    assert errors[best_ms] < 1.5 and abs(best_ms) <= KNOWN_TO_MS


def test_a_gpu_whose_counters_are_owned_is_shown_by_gpm(loads: Loads) -> None:
    first = Watched("--source", "cupti", "--devices", "0")
    try:
        assert first.row_after(0, 10)
        second = run("--devices", "0", "--csv", "-", "--duration-sec", "1")
        view = run("--devices", "0", "--duration-sec", "0.5")
    finally:
        said = first.finish()
    note("gpm beside an owner", said=second.said, row=second.out.splitlines()[-1], view=view.out.splitlines()[-1])
    assert second.code == 0 and {row["source"] for row in second.rows()} == {"gpm"}
    assert f"another cufall (process {first.pid})" in second.said and "GPM" in second.said
    assert all(row["mean"] for row in second.rows()[2:])
    assert "g0.gpm(" in view.out
    assert "0 lost" in said


def test_what_gpm_cannot_give_ends_with_the_reason_of_the_counters(loads: Loads) -> None:
    first = Watched("--source", "cupti", "--devices", "0")
    try:
        assert first.row_after(0, 10)
        refused = run("--devices", "0", "--metric", "fma", "--duration-sec", "1")
    finally:
        first.finish()
    note("gpm cannot", said=refused.said)
    assert refused.code == 1 and len(refused.said.splitlines()) == 1
    assert "another cufall" in refused.said and "cannot give fma" in refused.said
