"""Across GPUs: scripted pipelines, tensor and expert parallel work with spin-waits; what they do is arithmetic."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.analysis.decision_table import CLASSES, UNKNOWN
from cufall_py.analysis.groups import Across, across, alike, grouped, named, positions
from cufall_py.analysis.phase_lag import Lag, lag
from cufall_py.analysis.verdict_frames import frame_totals, means_of
from cufall_py.analysis.verdict_windows import verdicts_of
from cufall_py.errors import UsageError
from cufall_py.plan import Plan
from cufall_py.resolve import Wanted
from cufall_py.samples import Samples
from cufall_py.sources.script import ScriptProvider, parse
from cufall_py.views.groups import told
from tests.helpers import EPOCH, MS

NAMES = ("tensor", "sm", "gr", "dram", "issue", "fma", "alu", "launches", "pcie.rx")
WORK: dict[str, float] = {"gr": 1.0, "sm": 0.95, "tensor": 0.7, "dram": 0.3, "issue": 0.15}
SPIN: dict[str, float] = {"gr": 1.0, "sm": 0.12, "issue": 0.002}
"""A collective's kernel that polls: a few CTAs that hardly issue."""
NOTHING: dict[str, float] = {}
WITHIN = 0.01
SECONDS = 20.0


def phase(ms: float, doing: dict[str, float]) -> dict[str, float]:
    return {"ms": ms, **doing}


def observed(seconds: float = SECONDS, **script: Any) -> tuple[np.ndarray, np.ndarray]:
    """(frames, gpus) verdicts of frames of 1 ms, and `gr`, of scripted GPUs."""
    made = ScriptProvider(parse(json.dumps({"gpus": 8, **script})), lambda: EPOCH)
    codes, activity = [], []
    edges = EPOCH + MS * np.arange(round(seconds * 1000) + 1, dtype=np.int64)
    for device in made.devices():
        source = made.source(device, Plan(Wanted(NAMES), sample_us=1000))
        metrics = source.open().metrics
        samples = Samples(edges[:-1], edges[1:], np.diff(source.totals(edges), axis=0))
        frames = frame_totals(samples, metrics, MS)
        codes.append(verdicts_of(frames, metrics).classes)
        activity.append(means_of(frames, metrics)["gr"])
    return np.stack(codes, axis=1), np.stack(activity, axis=1)


def near(values: object) -> object:
    return pytest.approx(values, abs=WITHIN)


def test_a_pipeline_has_the_bubbles_of_its_stages() -> None:
    """Eight stages, eight micro-batches of 23.7 ms, one stage after another: each works 8 of 15 slots."""
    slot_ms = 23.7
    pattern = [phase(8 * slot_ms, WORK), phase(7 * slot_ms, SPIN)]
    codes, activity = observed(pattern=pattern, stagger_ms=slot_ms)
    found = across(codes)
    assert found.work == near([8 / 15] * 8) and found.waiting == near([7 / 15] * 8)
    assert found.bubble == near([7 / 15] * 8)  # at any moment some stage works
    assert found.all_idle == 0 and found.skew == near(0.0)
    # at one slot in 15 only the first stage works, at one only the last
    assert found.alone[[0, 7]] == near([1 / 15] * 2) and found.alone[1:7] == near([0.0] * 6)
    assert found.straggler in (0, 7)
    # `gr` says nothing where a wait spins; the tensor pipe's use would
    assert np.ptp(activity) < 1e-9


def test_tensor_parallel_ranks_wait_for_the_slow_one() -> None:
    """A step of 183.9 ms: GPU 3 works through all of it, the others spin for its last 36.3 ms; then 27.6 ms of none."""
    even = [phase(147.6, WORK), phase(36.3, SPIN), phase(27.6, NOTHING)]
    slow = [phase(183.9, WORK), phase(27.6, NOTHING)]
    found = across(observed(patterns=[slow if k == 3 else even for k in range(8)])[0])
    step = 183.9 + 27.6
    others = [k for k in range(8) if k != 3]
    assert found.work[3] == near(183.9 / step) and found.work[others] == near([147.6 / step] * 7)
    assert found.waiting[others] == near([36.3 / step] * 7) and found.waiting[3] == near(0.0)
    assert found.all_idle == near(27.6 / step)
    assert found.bubble[others] == near([36.3 / 183.9] * 7) and found.bubble[3] == near(0.0)
    assert found.straggler == 3 and found.alone[3] == near(36.3 / 183.9)
    assert found.skew == near(36.3 / step)


def test_expert_parallel_ranks_wait_by_how_much_less_they_have() -> None:
    """Experts with unequal work between two all-to-alls 180.6 ms apart: rank k works so long and spins for the rest."""
    worked_ms = [180.6, 150.3, 141.9, 133.4, 120.7, 97.5, 88.8, 61.2]
    patterns = [[phase(ms, WORK), *([phase(180.6 - ms, SPIN)] if ms < 180.6 else [])] for ms in worked_ms]
    found = across(observed(patterns=patterns)[0])
    shares = np.array(worked_ms) / 180.6
    assert found.work == near(shares) and found.bubble == near(1 - shares)
    assert found.straggler == 0 and found.alone[0] == near(1 - shares[1])
    assert found.skew == near(1 - shares[7])


def test_what_was_not_measured_of_one_is_left_out_for_all() -> None:
    codes = np.array([[0, 0], [5, 0], [9, 0], [1, 9]], np.int8)
    found = across(codes)
    assert (found.frames, found.all_idle, found.waiting.tolist()) == (2, 0.5, [0.5, 0.0])
    assert found.measured == 0.5 and "of the 50.0% of frames in which each has a verdict" in told(found, ["g0", "g1"])
    assert "each has a verdict" not in told(across(codes[:2]), ["g0", "g1"])
    nothing = across(np.full((4, 2), UNKNOWN, np.int8))
    assert nothing.frames == 0 and np.isnan(nothing.work).all() and nothing.straggler == -1


@given(st.lists(st.lists(st.integers(0, len(CLASSES) - 1), min_size=3, max_size=3), max_size=50))
def test_shares_of_a_gpu_add_up(rows: list[list[int]]) -> None:
    found: Across = across(np.array(rows, np.int8).reshape(-1, 3))
    if found.frames:
        assert found.work + found.idle + found.waiting == pytest.approx(np.ones(3))
        assert (found.alone.sum() <= 1 + 1e-9) or np.isnan(found.alone).all()


def test_one_gpu_alone_is_no_straggler() -> None:
    assert across(np.array([[2], [0]], np.int8)).straggler == -1


# --- who is in which group


def test_groups_are_named_by_cudas_numbers() -> None:
    groups = named(["prefill=0-3", "decode=4+6-7"])
    assert groups == {"prefill": (0, 1, 2, 3), "decode": (4, 6, 7)}
    assert positions(groups, [7, 6, 5, 4, 3, 2, 1, 0]) == {"prefill": [7, 6, 5, 4], "decode": [3, 1, 0]}


@pytest.mark.parametrize(
    "texts, told",
    [
        (["decode"], "must be NAME=GPUS"),
        (["decode=x"], "must be NAME=GPUS"),
        (["=0"], "must be NAME=GPUS"),
        (["a=0", "a=1"], "a second a"),
        (["all=0"], "all is taken"),
        (["a=0-1", "b=1"], "GPU 1 is in a already"),
        (["a=0+0"], "GPU 0 is in a already"),
        (["a=9"], "no GPU 9; there are 0, 1"),
        (["a=1-0"], "must go up"),
        (["a=0-99999999999"], "must go up"),
    ],
)
def test_a_group_that_cannot_be_is_refused_in_a_line(texts: list[str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        positions(named(texts), [0, 1])
    assert told in str(error.value) and "\n" not in str(error.value)


def test_gpus_that_behave_alike_are_found() -> None:
    prefill, decode = {"tensor-bound": 0.9, "idle": 0.1}, {"tensor-bound": 0.0, "idle": 0.1}
    tensor = [0.50, 0.02, 0.55, 0.03]
    shares = [{**prefill}, {**decode}, {**prefill}, {**decode}]
    assert alike(shares, [{"tensor": value, "launches": 1e5 * k} for k, value in enumerate(tensor)]) == [[0, 2], [1, 3]]
    assert alike(shares[:1] * 3, [{"tensor": 0.5}, {"tensor": 0.55}, {"tensor": 0.61}]) == [[0, 1], [2]]
    assert alike([], []) == []


# --- lags


def telegraph(frames: int, seed: int, mean: float = 40.0) -> np.ndarray:
    """A signal that is 0 or 1 for random times."""
    lengths = np.random.default_rng(seed).exponential(mean, 4 * frames).astype(int) + 1
    return (np.repeat(np.arange(len(lengths)) % 2, lengths)[:frames]).astype(float)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("by", [0.0, 7.0, -12.4, 23.7])
def test_a_known_lag_is_recovered_within_its_error(seed: int, by: float) -> None:
    signal = telegraph(10_000, seed)
    times = np.arange(len(signal), dtype=float)
    noise = np.random.default_rng(100 + seed).normal(0, 0.2, len(signal))
    found = lag(signal, np.interp(times - by, times, signal) + noise, 100)
    assert found.frames == pytest.approx(by, abs=max(4 * found.error, 0.15))
    assert 0 < found.error < 1


def test_stages_of_a_pipeline_lag_by_a_slot() -> None:
    slot_ms = 23.7
    pattern = [phase(8 * slot_ms, WORK), phase(7 * slot_ms, NOTHING)]
    _, activity = observed(pattern=pattern, stagger_ms=slot_ms)
    for k in range(7):
        found = lag(activity[:, k], activity[:, k + 1], 150)
        assert found.frames == pytest.approx(slot_ms, abs=max(3 * found.error, 0.3))
    assert lag(activity[:, 1], activity[:, 0], 150).frames == pytest.approx(-slot_ms, abs=0.5)


@pytest.mark.parametrize("kind", ["flat", "unrelated", "short", "not measured"])
def test_where_there_is_no_lag_none_is_told(kind: str) -> None:
    signal = telegraph(4000, 1)
    others = {
        "flat": (signal, np.ones(4000)),
        "unrelated": (signal, telegraph(4000, 2)),
        "short": (signal[:60], signal[:60]),
        "not measured": (signal, np.full(4000, np.nan)),
    }
    found: Lag = lag(*others[kind], 50)
    assert math.isnan(found.frames) and math.isnan(found.error)


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, math.nan])] * 2), max_size=80), st.integers(1, 3))
def test_no_two_signals_end_in_anything_but_a_lag(rows: list[tuple[float, float]], most: int) -> None:
    signals = np.array(rows).reshape(-1, 2)
    found = lag(signals[:, 0], signals[:, 1], most)
    assert math.isnan(found.frames) or abs(found.frames) <= most + 0.5


def test_gpus_that_take_turns_at_all_lags_there_are_have_none() -> None:
    """Each works where the other does not, for longer than the lags that are looked at."""
    first = np.repeat([1.0, 0.0], 40)
    assert math.isnan(lag(first, 1 - first, 1).frames)


def test_groups_have_their_own_bubbles_and_lags() -> None:
    """Four stages of a pipeline, and four ranks that all do the same at once."""
    slot_ms = 31.0
    before = [[phase(k * slot_ms, SPIN)] * (k > 0) for k in range(4)]
    stages = [[*before[k], phase(4 * slot_ms, WORK), phase((3 - k) * slot_ms + 9, SPIN)] for k in range(4)]
    ranks = [phase(4 * slot_ms, WORK), phase(3 * slot_ms + 9, NOTHING)]
    codes, _ = observed(patterns=[*stages, *[ranks] * 4])
    pipeline, parallel = grouped(codes, {"pipeline": [0, 1, 2, 3], "ranks": [4, 5, 6, 7]}, MS)
    assert pipeline.across.bubble == near([3 / 7] * 4) and parallel.across.bubble == near([0.0] * 4)
    assert [found.frames for found in pipeline.lags] == pytest.approx([k * slot_ms for k in range(4)], abs=0.6)
    assert [found.frames for found in parallel.lags] == pytest.approx([0.0] * 4, abs=0.3)
    assert (pipeline.name, parallel.positions) == ("pipeline", (4, 5, 6, 7))
