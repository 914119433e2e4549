"""Each short name's spelling against Nsight Compute's plain counter: what presets.py calls verified."""

from __future__ import annotations

import pytest

from . import measure
from .measure import TENSOR_SUM, Loads, Sampling, Wanted, note

pytestmark = pytest.mark.gpu
CONSERVED = {
    "issue": (("bf16", 2048), "sm__inst_executed.sum"),
    "fma": (("fp32", 2048), "sm__inst_executed_pipe_fma.sum"),
    "alu": (("fp8", 2048), "sm__inst_executed_pipe_alu.sum"),
    "l2": (("bf16", 2048), "lts__t_bytes.sum"),
    "tensor.hmma": (("bf16", 2048), TENSOR_SUM),
    "tensor.imma": (("int8", 2048), TENSOR_SUM),
    "tensor.dmma": (("fp64", 2048), TENSOR_SUM),
    "ctas": (("bf16", 2048), "sm__ctas_launched.sum"),
}
"""Short name: a product that uses it, and the plain counter whose sum of one launch it must give."""
MOST_OFF = {"l2": 0.03}
"""What a loop finds in L2 is not what one launch does."""
SHARES = {"sm": ("sm__cycles_active.avg", 1), "occupancy": ("sm__warps_active.avg", 64)}
"""Short name: the plain counter, and its peak a cycle."""
SM_ELAPSED = "sm__cycles_elapsed.avg"
INSTANCES = {"sm": 1, "smsp": 4}
"""Of a unit in an SM, by which an `.avg` is of fewer cycles than the `.sum`."""
Ncu = dict[tuple[str, int], dict[str, float]]


@pytest.fixture(scope="module")
def plain() -> Ncu:
    products = dict.fromkeys([product for product, _ in CONSERVED.values()] + [("bf16", 8192)])
    metrics = {counter for _, counter in CONSERVED.values()} | {counter for counter, _ in SHARES.values()}
    return measure.ncu_products(list(products), [*sorted(metrics), SM_ELAPSED, "gpu__time_duration.sum"])


@pytest.mark.parametrize("name", CONSERVED)
def test_a_window_over_its_launches_is_one_launch(plain: Ncu, loads: Loads, name: str) -> None:
    product, counter = CONSERVED[name]
    with Sampling(wanted=Wanted((name,)), sample_us=1000) as sampling:
        answer = loads.run(*product, 0.5)
        found = sampling.over(answer)
        counters = sampling.metrics.metrics[0].counters
        total = sum(summed(sampling, name) * found.totals[name] for name in counters)
    each, by_ncu = total / answer["launches"], plain[product][counter]
    note(f"short name {name}", counters=counters, each=each, ncu=by_ncu, ratio=each / by_ncu, plain=counter)
    assert each == pytest.approx(by_ncu, rel=MOST_OFF.get(name, 0.01))


def summed(sampling: Sampling, counter: str) -> int:
    """By how much an `.avg` is multiplied to be the chip's sum."""
    if counter.endswith(".sum"):
        return 1
    return sampling.session.gpus[0].device.sm_count * INSTANCES[counter.split("__")[0]]


@pytest.mark.parametrize("name", SHARES)
def test_a_share_of_time_is_that_of_a_long_launch(plain: Ncu, loads: Loads, name: str) -> None:
    counter, peak = SHARES[name]
    with Sampling(wanted=Wanted((name,)), sample_us=1000) as sampling:
        percent = sampling.within(loads.run("bf16", 8192, 0.8)).percent(name)
    launch = plain["bf16", 8192]
    by_ncu = 100 * launch[counter] / (peak * launch[SM_ELAPSED])
    note(f"short name {name}", cufall=percent, ncu=by_ncu, plain=counter)
    assert abs(percent - by_ncu) < 2


@pytest.mark.parametrize(
    "load", [("bf16", 8192), ("bf16", 512), ("fp32", 2048)], ids=lambda load: f"{load[0]} {load[1]}"
)
def test_launches_are_those_that_were_made(loads: Loads, load: tuple[str, int]) -> None:
    """Each of these products is one kernel of a graph of 16 or more, and a graph may count as one more."""
    with Sampling(wanted=Wanted(("launches",)), sample_us=1000) as sampling:
        answer = loads.run(*load, 1.0)
        counted = sum(sampling.over(answer).totals.values())
    made = answer["launches"]
    note(f"launches of {load}", counted=counted, made=made)
    assert made <= round(counted) <= made * (1 + 1 / 16)
