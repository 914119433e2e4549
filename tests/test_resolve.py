"""From the words of a command line to the counters that are read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.errors import UsageError
from cufall_py.metrics import MetricSet
from cufall_py.resolve import Wanted, check, chip_note, resolve
from tests.helpers import GR_ELAPSED, SM_ELAPSED, TENSOR

CHIP = "GH100"
PERCENT = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
EVERY_SHORT_NAME = (
    *("tensor", "sm", "gr", "dram", "issue", "fma", "alu", "fp64", "l2", "pcie.rx", "pcie.tx", "occupancy"),
    *("nvlink.rx", "nvlink.tx", "c2c.rx", "c2c.tx", "tensor.hmma", "tensor.imma", "tensor.dmma"),
)


def of(*metrics: str, chip: str = CHIP, **more: object) -> MetricSet:
    return resolve(Wanted(metrics, **more), chip)  # type: ignore[arg-type]


def reading(metrics: MetricSet, **amounts: float) -> float:
    """The first metric of a window in which these counters, told by the start of their name, counted so much."""
    totals = [next(v for start, v in amounts.items() if name.startswith(start)) for name in metrics.counters]
    return float(metrics.ratios(np.array([[*totals, 1e6]]))[0, 0])


def refused(*metrics: str, chip: str = CHIP, **more: object) -> str:
    with pytest.raises(UsageError) as error:
        of(*metrics, chip=chip, **more)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", EVERY_SHORT_NAME)
def test_every_short_name_means_something_on_h200(name: str) -> None:
    (found,) = of(name).metrics
    assert (found.label, found.asked) == (name, name)
    assert found.bounded and not found.plain and not found.rate
    assert set(of(name).counters) == {*found.counters, found.elapsed}


@pytest.mark.parametrize("name", EVERY_SHORT_NAME)
def test_numerator_and_elapsed_are_of_one_clock(name: str) -> None:
    (found,) = of(name).metrics
    units = {counter.split("__")[0].split(".")[-1] for counter in (*found.counters, found.elapsed)}
    assert len(units) == 1


def test_tensor_is_of_its_own_peak_in_its_own_clock() -> None:
    found = of("tensor").with_peaks(dict.fromkeys(of("tensor").unknown_peaks(), 4.0))
    assert reading(found, sm__pipe_tensor=300, sm__cycles_elapsed=100) == 0.75


def test_a_counter_alone_is_of_its_peak_by_its_own_unit() -> None:
    (found,) = of(TENSOR).metrics
    assert (found.counters, found.elapsed, found.peak_of) == ((TENSOR,), SM_ELAPSED, (TENSOR,))
    assert (found.label, found.asked, found.bounded, found.plain) == (TENSOR, TENSOR, True, False)
    (link,) = of("nvlrx__bytes.sum").metrics
    assert link.elapsed == "nvlrx__cycles_elapsed.avg"
    (front_end,) = of("gr__cycles_active.avg").metrics
    assert front_end.elapsed == GR_ELAPSED


def test_with_an_elapsed_denominator_it_is_still_of_its_own_peak() -> None:
    metrics = of(TENSOR, denominator=GR_ELAPSED)
    (found,) = metrics.metrics
    assert (found.elapsed, found.peak_of, found.plain) == (SM_ELAPSED, (TENSOR,), False)
    assert found.asked == f"{TENSOR}/{GR_ELAPSED}"
    # what was asked for is read as well
    assert metrics.counters == (TENSOR, SM_ELAPSED, GR_ELAPSED)
    told = metrics.with_peaks({TENSOR: 4.0})
    assert reading(told, sm__pipe=300, sm__cycles=100, gr__cycles=90) == 0.75


def test_with_another_denominator_it_is_a_plain_quotient() -> None:
    metrics = of("sm__inst_executed.sum", denominator="sm__warps_launched.sum")
    (found,) = metrics.metrics
    assert (found.plain, found.bounded, found.peak) == (True, False, 1.0)
    assert metrics.unknown_peaks() == []
    assert reading(metrics, sm__inst=700, sm__warps=2) == 350.0


def test_raw_is_the_plain_quotient_of_what_was_named() -> None:
    metrics = of(TENSOR, denominator=GR_ELAPSED, raw=True)
    (found,) = metrics.metrics
    assert metrics.counters == (TENSOR, GR_ELAPSED)
    assert (found.plain, found.bounded) == (True, False)
    assert metrics.ceilings().tolist() == [float("inf")]
    # Nsight Compute on one bf16 GEMM: 8,261,508 / 2,328,763
    assert reading(metrics, sm__pipe=8_261_508, gr__cycles=2_328_763) == pytest.approx(3.5476, abs=5e-5)


def test_raw_without_a_denominator_is_by_the_counters_own_clock() -> None:
    for name in (TENSOR, "tensor"):
        assert reading(of(name, raw=True), sm__pipe=367, sm__cycles=100) == pytest.approx(3.67)


def test_full_scale_is_what_a_hundred_percent_is() -> None:
    metrics = of(TENSOR, denominator=GR_ELAPSED, full_scale=4.0)
    (found,) = metrics.metrics
    assert metrics.counters == (TENSOR, GR_ELAPSED)
    assert (found.plain, found.bounded, metrics.unknown_peaks()) == (False, False, [])
    assert reading(metrics, sm__pipe=367, gr__cycles=100) == pytest.approx(0.9175)
    assert reading(of("tensor", full_scale=2.0), sm__pipe=100, sm__cycles=100) == pytest.approx(0.5)


def test_a_percent_is_taken_as_it_is_and_weighted_by_time() -> None:
    metrics = of(PERCENT)
    (found,) = metrics.metrics
    assert metrics.counters == (PERCENT,)
    assert (found.rate, found.plain, found.bounded, found.elapsed) == (True, False, True, "time")
    read = metrics.quotients(np.array([[93.2]]), np.array([1_000_000]))
    assert read[0, 0] == pytest.approx(0.932)


def test_a_ratio_is_a_plain_number() -> None:
    metrics = of("smsp__thread_inst_executed_per_inst_executed.ratio")
    (found,) = metrics.metrics
    assert (found.rate, found.plain, found.bounded) == (True, True, False)
    assert metrics.quotients(np.array([[31.5]]), np.array([1_000_000]))[0, 0] == pytest.approx(31.5)


def test_a_pct_rollup_is_a_percent() -> None:
    (found,) = of("l1tex__t_sector_hit_rate.pct").metrics
    assert (found.rate, found.plain, found.peak) == (True, False, 100.0)


def test_several_metrics_read_a_shared_counter_once() -> None:
    metrics = of("tensor", "sm", "gr")
    assert [m.label for m in metrics.metrics] == ["tensor", "sm", "gr"]
    assert len(set(metrics.counters)) == len(metrics.counters) == 5


def test_the_same_metric_twice_is_one() -> None:
    assert of("sm", "tensor", "sm") == of("sm", "tensor")


def test_a_denominator_is_for_every_metric_given_by_its_cupti_name() -> None:
    metrics = of("sm", TENSOR, "sm__inst_executed.sum", denominator=GR_ELAPSED, raw=True)
    assert [m.elapsed for m in metrics.metrics] == [SM_ELAPSED, GR_ELAPSED, GR_ELAPSED]


@pytest.mark.parametrize(("typed", "meant"), [("tensr", "tensor"), ("dran", "dram"), ("occupency", "occupancy")])
def test_a_misspelt_short_name_gets_a_hint(typed: str, meant: str) -> None:
    assert f"did you mean {meant}?" in refused(typed)


def test_an_unknown_name_without_likeness_gets_the_list() -> None:
    said = refused("zzz")
    assert "zzz" in said
    assert all(name in said for name in EVERY_SHORT_NAME)


@pytest.mark.parametrize("name", ["sm__pipe_tensor_cycles_active", "sm__x.mean", "sm__x.", "sm__x.peak_sustained"])
def test_a_counter_needs_a_rollup(name: str) -> None:
    said = refused(name)
    assert f"--metric {name}: needs a rollup" in said


def test_the_denominator_needs_one_too() -> None:
    assert "--denominator gr__cycles_elapsed: needs a rollup" in refused(TENSOR, denominator="gr__cycles_elapsed")
    assert "--denominator tensor" in refused(TENSOR, denominator="tensor")


def test_a_constant_of_the_chip_is_refused() -> None:
    assert "constant of the chip" in refused(f"{TENSOR}.peak_sustained")


def test_a_denominator_for_short_names_alone_is_refused() -> None:
    assert "--denominator" in refused("tensor", denominator=GR_ELAPSED)


def test_an_unknown_chip_has_no_short_names_but_counters() -> None:
    assert "XY999" in refused("tensor", chip="XY999")
    assert of(TENSOR, chip="XY999").counters == (TENSOR, SM_ELAPSED)


def test_what_a_chip_does_not_have_is_refused_with_the_reason() -> None:
    assert "no NVLink" in refused("nvlink.rx", chip="AD102")
    assert "GB10B" in refused("dram", chip="GB10B")


def test_the_longest_beginning_of_a_chips_name_decides() -> None:
    # GB202 has dram__bytes_op_read; GB20B shares the system's memory and has no dram counter
    assert "dram__bytes_op_read.sum" in of("dram", chip="GB202").counters
    assert "dram" in refused("dram", chip="GB20B")


def test_a_chip_nobody_has_checked_is_named() -> None:
    assert chip_note(Wanted(("tensor", "sm")), "GA100") == "tensor, sm on GA100: not verified on hardware"
    assert chip_note(Wanted((TENSOR,)), "GA100") == ""


@given(st.text(max_size=30))
def test_whatever_is_typed_is_taken_or_refused_as_usage(text: str) -> None:
    for wanted in (Wanted((text,)), Wanted((TENSOR,), text), Wanted((f"sm__{text}",))):
        try:
            check(wanted)
            resolve(wanted, CHIP)
        except UsageError:
            pass
