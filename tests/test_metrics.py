"""A metric is a quotient of sums: against hand arithmetic and against readings of an H200."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from cufall_py.metrics import TIME, Metric, MetricSet
from tests.helpers import DATA, GR_ELAPSED, SM_ELAPSED, TENSOR, metric, tensor_set


def ratio(metrics: MetricSet, totals: list[float], covered_ns: float = 1e6) -> float:
    return float(metrics.ratios(np.array([[*totals, covered_ns]]))[0, 0])


def test_a_metric_is_its_counter_by_peak_and_elapsed() -> None:
    # 300 tensor cycles in 100 SM cycles of which each can hold 4
    assert ratio(tensor_set(), [300, 100]) == 0.75


def test_several_counters_are_summed() -> None:
    dram = Metric("dram", "dram", ("read", "write"), "dram_cycles", peak=8.0)
    assert ratio(MetricSet(("read", "write", "dram_cycles"), (dram,)), [300, 100, 100]) == 0.5


def test_metrics_of_one_set_keep_to_their_own_counters() -> None:
    metrics = MetricSet(("a", "t", "b"), (metric("a", "a", "t", 2.0), metric("b", "b", "t", 1.0)))
    assert metrics.ratios(np.array([[50.0, 100.0, 90.0, 1.0]])).tolist() == [[0.25, 0.9]]


def test_the_plain_pair_reads_367_percent_where_the_pipe_is_93_percent_busy() -> None:
    # Nsight Compute on one bf16 GEMM of an H200: tensor 8,261,508, gr elapsed 2,328,763, gpc elapsed
    # 2,245,190, and 93.2 % as .avg.pct_of_peak_sustained_elapsed. 8,261,508 / 2,328,763 = 3.5476.
    pair = MetricSet((TENSOR, GR_ELAPSED), (metric(elapsed=GR_ELAPSED, peak=1.0, bounded=False, plain=True),))
    assert ratio(pair, [8_261_508, 2_328_763]) == pytest.approx(3.5476, abs=5e-5)
    scaled = MetricSet((TENSOR, GR_ELAPSED), (metric(elapsed=GR_ELAPSED, peak=4.0),))
    assert ratio(scaled, [8_261_508, 2_328_763]) == pytest.approx(0.887, abs=5e-4)


def test_in_its_own_clock_the_metric_is_the_profilers_percent() -> None:
    # the same launch by its own clock: 8,261,508 / (4 x 2,245,190) = 0.91991; Nsight Compute's 93.2 % came
    # of another replay pass of the kernel, so only the arithmetic is exact
    assert ratio(tensor_set(), [8_261_508, 2_245_190]) == pytest.approx(0.91991, abs=5e-6)


def test_a_peak_of_four_makes_percent_of_a_pair_of_367() -> None:
    assert ratio(tensor_set(peak=1.0), [3.67e6, 1e6]) == pytest.approx(3.67)
    assert ratio(tensor_set(peak=4.0), [3.67e6, 1e6]) == pytest.approx(0.9175)


def test_recorded_gemm_reads_as_it_was_recorded() -> None:
    with np.load(DATA / "h200-gemm-begins-1khz.npz") as data:
        values, duration = data["values"][-40:], (data["end_ns"] - data["start_ns"])[-40:]
    pair = MetricSet((TENSOR, GR_ELAPSED), (metric(elapsed=GR_ELAPSED, peak=1.0, bounded=False, plain=True),))
    each = pair.quotients(values[:, :2], duration)[:, 0]
    assert each == pytest.approx(values[:, 0] / values[:, 1], rel=1e-12)
    assert 3.3 < each.mean() < 3.8


def test_the_mean_is_the_quotient_of_sums_not_the_mean_of_quotients() -> None:
    values, duration = np.array([[400.0, 100.0], [0.0, 300.0]]), np.array([100, 100])
    each = tensor_set().quotients(values, duration)[:, 0]
    whole = tensor_set().ratios(tensor_set().extend(values, duration).sum(axis=0, keepdims=True))[0, 0]
    assert each.tolist() == [1.0, 0.0]
    assert whole == 0.25


def test_a_percent_counter_is_weighted_by_time() -> None:
    percent = metric("d", "d.pct", TIME, 100.0, rate=True)
    metrics = MetricSet(("d.pct",), (percent,))
    values, duration = np.array([[90.0], [10.0]]), np.array([1_000, 3_000])
    assert metrics.extend(values, duration).tolist() == [[90_000, 1_000], [30_000, 3_000]]
    totals = metrics.extend(values, duration).sum(axis=0, keepdims=True)
    assert metrics.ratios(totals)[0, 0] == pytest.approx(0.30)
    assert metrics.quotients(values, duration)[:, 0].tolist() == pytest.approx([0.9, 0.1])


def test_a_rate_beside_a_sum_does_not_touch_it() -> None:
    metrics = MetricSet((TENSOR, SM_ELAPSED, "d.pct"), (metric(), metric("d", "d.pct", TIME, 100.0, rate=True)))
    read = metrics.quotients(np.array([[200.0, 100.0, 25.0]]), np.array([100]))
    assert read.tolist() == [[0.5, 0.25]]


def test_not_measured_is_not_zero() -> None:
    assert np.isnan(ratio(tensor_set(), [0, 0], covered_ns=0))
    assert ratio(tensor_set(), [0, 100], covered_ns=100) == 0.0


def test_an_unknown_peak_makes_no_number() -> None:
    assert np.isnan(ratio(tensor_set(peak=float("nan")), [300, 100]))


def test_peaks_are_told_by_counter_and_summed() -> None:
    heavy_and_lite = Metric("fma", "fma", ("heavy", "lite"), "t", ("heavy", "lite"))
    unknown = MetricSet(("heavy", "lite", "t", TENSOR), (heavy_and_lite, metric(elapsed="t", peak=float("nan"))))
    assert unknown.unknown_peaks() == sorted(["heavy", "lite", TENSOR])
    known = unknown.with_peaks({"heavy": 64.0, "lite": 64.0, TENSOR: 4.0})
    assert [m.peak for m in known.metrics] == [128.0, 4.0]
    assert known.unknown_peaks() == []
    # 64 heavy and 32 lite instructions in one cycle that can hold 128
    assert known.ratios(np.array([[64.0, 32.0, 1.0, 0.0, 1.0]]))[0, 0] == 0.75


def test_a_known_peak_is_kept() -> None:
    assert tensor_set(peak=2.0).with_peaks({TENSOR: 4.0}).metrics[0].peak == 2.0


def test_only_what_has_a_most_has_a_ceiling() -> None:
    metrics = MetricSet(("a", "t"), (metric("a", "a", "t", 1.0), metric("b", "a", "t", 1.0, bounded=False)))
    assert metrics.ceilings().tolist() == [1.02, float("inf")]


def test_without_a_counter_the_metrics_that_read_it_are_absent_and_keep_their_place() -> None:
    links = metric("nvlink.rx", "nvlrx__bytes.sum", "nvlrx__cycles_elapsed.avg", 32.0)
    metrics = MetricSet((TENSOR, SM_ELAPSED, "nvlrx__bytes.sum", "nvlrx__cycles_elapsed.avg"), (links, metric()))
    left = metrics.without(["nvlrx__bytes.sum"])
    assert left.counters == (TENSOR, SM_ELAPSED)  # what only the absent one read is not read
    assert [m.label for m in left.metrics] == ["nvlink.rx", "tensor"]
    nvlink, tensor = left.ratios(np.array([[300.0, 100.0, 10.0]]))[0].tolist()
    assert math.isnan(nvlink) and tensor == 0.75
    assert left.metrics[0].formula == ""
    assert left.believable([[300.0, 100.0]], 10)
    assert not left.believable([[500.0, 100.0]], 10)
    assert left.unknown_peaks() == []
    assert metrics.without([]) == metrics


def test_a_set_with_an_absent_metric_survives_json() -> None:
    left = MetricSet(("a", "b", TENSOR, SM_ELAPSED), (metric("x", "a", "b"), metric())).without(["a"])
    assert MetricSet.from_json(json.loads(json.dumps(left.to_json(), allow_nan=False))) == left


def test_a_set_survives_json() -> None:
    percent = metric("d", "d.pct", TIME, 100.0, rate=True, bounded=False, plain=True)
    metrics = MetricSet((TENSOR, SM_ELAPSED, "d.pct"), (metric(), percent))
    again = MetricSet.from_json(json.loads(json.dumps(metrics.to_json())))
    assert again == metrics
    assert again.quotients(np.array([[200.0, 100.0, 25.0]]), np.array([100])).tolist() == [[0.5, 0.25]]


def test_the_formula_says_what_was_read() -> None:
    assert metric().formula == f"{TENSOR}/(4*{SM_ELAPSED})"
    assert metric(peak=1.0).formula == f"{TENSOR}/({SM_ELAPSED})"
    assert Metric("dram", "dram", ("r", "w"), "t", peak=1504.0).formula == "(r+w)/(1504*t)"
    assert metric("d", "d.pct", TIME, 100.0, rate=True).formula == "d.pct/100"
    assert metric("d", "d.ratio", TIME, 1.0, rate=True).formula == "d.ratio"
