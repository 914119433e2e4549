"""A stretch of time as it is measured: samples as they come, and an end that is known only when it is there."""

from __future__ import annotations

import threading

import pytest

from cufall_py.errors import CufallError, UsageError
from cufall_py.judgements import HELD, MISSED, NOT_MEASURABLE
from cufall_py.measured import NOT_SAMPLED, Measured
from cufall_py.sources import Opened
from tests.helpers import EPOCH, MS, SECOND, gpu, steady, tensor_set, unbounded_set

METRICS = tensor_set()


def measured(gpus: int = 1, wait_s: float = 0.0, begin_ns: int = EPOCH) -> Measured:
    opened = [Opened(gpu(k), METRICS, MS, "time", "script") for k in range(gpus)]
    return Measured("decode", opened, begin_ns, lambda k: True, wait_s)


def test_of_a_sample_that_straddles_an_edge_counts_what_lies_inside() -> None:
    """Half a sample at 0, 60 whole ones at 30 %, half a one at 90 %."""
    of = measured(begin_ns=EPOCH + MS // 2)
    of.add(0, steady(EPOCH, MS, 1, 0.0), METRICS)
    of.add(0, steady(EPOCH + MS, MS, 60, 0.3), METRICS)
    of.end(EPOCH + 61 * MS + MS // 2)
    of.add(0, steady(EPOCH + 61 * MS, MS, 100, 0.9), METRICS)
    found = of.summary("tensor")
    assert found.mean == pytest.approx((60 * 0.3 + 0.5 * 0.9) / 61)
    assert (found.samples, found.coverage) == (60, 1.0)
    assert (found.min, found.p1, found.p50, found.p99, found.max) == (0.3,) * 5


def test_more_samples_than_are_kept_are_cut_at_the_end_all_the_same() -> None:
    of = measured()
    for at in range(30):
        of.add(0, steady(EPOCH + at * SECOND, MS, 1000, 0.5), METRICS)
    of.end(EPOCH + 29 * SECOND + 500 * MS)
    found = of.summary("tensor")
    assert (found.samples, found.coverage, found.mean) == (29_500, 1.0, pytest.approx(0.5))


def test_what_was_not_measured_of_it_is_not_covered() -> None:
    of = measured()
    of.add(0, steady(EPOCH + 100 * MS, MS, 100, 0.5), METRICS)
    of.end(EPOCH + 400 * MS)
    found = of.summary("tensor")
    assert (found.samples, found.coverage) == (100, 0.25)


def test_figures_are_of_one_gpu_or_of_all_together() -> None:
    of = measured(gpus=2)
    of.add(0, steady(EPOCH, MS, 50, 0.2), METRICS)
    of.add(1, steady(EPOCH, MS, 50, 0.6), METRICS)
    of.end(EPOCH + 50 * MS)
    assert of.summary("tensor").mean == pytest.approx(0.4)
    assert of.summary("tensor", gpu=1).mean == pytest.approx(0.6)
    with pytest.raises(UsageError, match="no GPU 7 is sampled here; there are 0, 1"):
        of.summary("tensor", gpu=7)
    with pytest.raises(UsageError, match="dram is not sampled here; there are tensor"):
        of.summary("dram")
    with pytest.raises(AttributeError, match="no statistic maen; there are mean"):
        of.summary("tensor").maen  # noqa: B018


def test_while_it_goes_on_there_are_no_figures() -> None:
    with pytest.raises(CufallError, match="decode is still being measured"):
        measured().summary("tensor")


def test_samples_of_other_metrics_than_it_began_with_are_none() -> None:
    of = measured()
    of.add(0, steady(EPOCH, MS, 100, 0.5), unbounded_set())
    of.end(EPOCH + 100 * MS)
    assert (of.summary("tensor").samples, of.complete) == (0, True)


def test_figures_wait_for_the_last_samples() -> None:
    of = measured(wait_s=60.0)
    of.add(0, steady(EPOCH, MS, 50, 0.5), METRICS)
    of.end(EPOCH + 100 * MS)
    assert not of.complete
    later = threading.Timer(0.05, of.add, (0, steady(EPOCH + 50 * MS, MS, 60, 0.7), METRICS))
    later.start()
    assert of.summary("tensor").samples == 100
    assert of.complete
    later.join()


def test_nothing_is_waited_for_once_no_samples_come() -> None:
    of = measured(wait_s=60.0)
    of.end(EPOCH + 100 * MS)
    threading.Timer(0.05, of.give_up).start()
    assert of.summary("tensor").samples == 0


def test_requirements_are_judged_on_each_gpu() -> None:
    of = measured(gpus=2)
    of.add(0, steady(EPOCH, MS, 50, 0.2), METRICS)
    of.add(1, steady(EPOCH, MS, 50, 0.6), METRICS)
    of.end(EPOCH + 50 * MS)
    assert [j.outcome for j in of.require("tensor.mean > 30%")] == [MISSED, HELD]
    assert [j.outcome for j in of.require("tensor.mean[decode,gpu=1] > 30%", "coverage > 99%")] == [HELD] * 3
    (elsewhere,) = of.require("tensor.mean[prefill,gpu=0] > 30%")
    assert (elsewhere.outcome, elsewhere.why) == (NOT_MEASURABLE, "region prefill never came")
    assert {j.why for j in of.require("dram.mean > 30%")} == {NOT_SAMPLED}
    with pytest.raises(UsageError, match="no GPU 5"):
        of.require("tensor.mean[gpu=5] > 30%")
