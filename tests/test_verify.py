"""`cufall verify` on a made-up GPU that does as it is told, and on ones that do not; its child, and what is kept."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py import cli, verified
from cufall_py.cli.verify import Sessions, run
from cufall_py.errors import CufallError, SourceError
from cufall_py.metrics import MetricSet
from cufall_py.resolve import Wanted, chip_note
from cufall_py.samples import Samples
from cufall_py.verify import ptx
from cufall_py.verify.checks import (
    HELD,
    MISSED,
    NOT_MEASURABLE,
    Check,
    at_most,
    complete,
    counted,
    exit_code,
    instances,
    near,
    unknown,
    whole,
)
from cufall_py.verify.experiment import verify
from cufall_py.verify.loads import ChildLoads
from cufall_py.verify.ncu import asker, cycles_in
from tests.helpers import EPOCH, joined, metric, tensor_set
from tests.scripted import cufall, script
from tests.simulated import H200, SimulatedGpu

pytestmark = pytest.mark.usefixtures("signals_as_before")

TENSOR = "sm__pipe_tensor_cycles_active_realtime.avg"
NCU_CYCLES = 8 * 20_000 * 264 * 8 * 8.0
"""mma of a launch x warps x cycles of each."""


def by_ncu(kernel: str, count: int) -> float:
    assert (kernel, count) == ("bf16", 20_000)
    return NCU_CYCLES


def without_ncu(kernel: str, count: int) -> float:
    raise SourceError("ncu is not on PATH")


def found(gpu: SimulatedGpu, ncu: Any = by_ncu) -> list[Check]:
    return verify(gpu, gpu, ncu, lambda words: None)


def missed(gpu: SimulatedGpu) -> dict[str, str]:
    """The checks that a fault makes miss, with the metric each speaks for."""
    return {check.name: check.metric for check in found(gpu) if check.outcome == MISSED}


def test_a_gpu_that_counts_right() -> None:
    checks = found(SimulatedGpu())
    assert [check for check in checks if check.outcome != HELD] == []
    each = next(check for check in checks if check.name == "int8: tensor cycles of an mma")
    assert each.got == pytest.approx(8, rel=1e-6)
    assert {check.metric for check in checks} == {
        *("tensor", "sm", "gr", "fma", "dram", "tensor.hmma", "tensor.imma"),
        "",
    }
    assert exit_code(checks) == 0


def test_it_computes_for_less_than_a_minute() -> None:
    gpu = SimulatedGpu()
    begun_ns = gpu.now_ns
    found(gpu)
    assert (gpu.now_ns - begun_ns) / 1e9 < 60


def test_tensor_cycles_that_are_not_whole() -> None:
    """Every eighth of the cycles is not counted: 7 of 8, which is whole; of 8 a twentieth: 7.6."""
    assert missed(SimulatedGpu(wrong={TENSOR: 7 / 8})).keys() == {
        "bf16: tensor, counters against NVML GPM",
        "bf16: tensor cycles of a launch, against Nsight Compute",
        *(f"{kind}: tensor.{own} of all tensor cycles" for kind, own in (("bf16", "hmma"), ("int8", "imma"))),
    }
    names = missed(SimulatedGpu(wrong={TENSOR: 0.95}))
    assert {f"{kind}: tensor cycles of an mma" for kind in ("bf16", "fp16", "int8")} <= names.keys()


def test_a_peak_that_is_too_low() -> None:
    names = missed(SimulatedGpu(wrong={TENSOR: 2.0}))
    assert "bf16: share of the peak, at most" in names


def test_somebody_else_on_the_tensor_pipe() -> None:
    names = missed(SimulatedGpu(strays=1e9))
    assert {"fma: no tensor cycles", "idle: no tensor cycles", "copy: no tensor cycles"} <= names.keys()


def test_a_clock_of_another_domain() -> None:
    assert missed(SimulatedGpu(wrong={"sm__cycles_elapsed.avg": 1.19})) == {
        "spin: elapsed cycles, by the SM's clock": "tensor",
        "bf16: tensor, counters against NVML GPM": "tensor",
    }


@pytest.mark.parametrize(
    ("counter", "metric"),
    [
        ("dram__bytes_write.sum", "dram"),
        ("sm__cycles_active.avg", "sm"),
        ("gr__cycles_active.avg", "gr"),
        ("sm__inst_executed_pipe_fmalite_realtime.sum", "fma"),
        ("sm__pipe_tensor_op_hmma_cycles_active_realtime.avg", "tensor.hmma"),
        ("sm__pipe_tensor_op_imma_cycles_active_realtime.avg", "tensor.imma"),
    ],
)
def test_a_counter_that_reads_a_tenth_too_little(counter: str, metric: str) -> None:
    names = missed(SimulatedGpu(wrong={counter: 0.9}))
    assert set(names.values()) == {metric}


def test_a_set_that_cannot_be_sampled_is_not_measurable() -> None:
    checks = found(SimulatedGpu(refuses={"tensor.hmma": "needs 2 passes"}, gpm=False), without_ncu)
    unknown = {(check.metric, check.why) for check in checks if check.outcome == NOT_MEASURABLE}
    assert unknown == {
        ("tensor.hmma", "needs 2 passes"),
        ("tensor.imma", "needs 2 passes"),
        ("tensor", "GPU 0 (NVIDIA A100) has no NVML GPM: it begins with Hopper"),
        ("tensor", "ncu is not on PATH"),
    }
    assert exit_code(checks) == 0


def test_without_tensor_nothing_is_verified() -> None:
    with pytest.raises(SourceError, match="the counters are denied"):
        found(SimulatedGpu(refuses={"tensor": "the counters are denied"}))


def test_lost_samples_are_no_miss() -> None:
    """A tenth of them gone would read as a tenth of everything gone."""
    checks = found(SimulatedGpu(lost=0.1))
    assert {check.outcome for check in checks if check.metric in ("tensor", "sm", "gr", "fma")} <= {NOT_MEASURABLE}
    assert all("of its samples came" in check.why for check in checks if check.metric == "fma")


def test_sampling_that_slows_the_load() -> None:
    assert missed(SimulatedGpu(slows=1.03)) == {"a load takes, sampled at 1 kHz": ""}


def test_types_are_those_that_the_chip_multiplies() -> None:
    assert ptx.products((9, 0)) == ptx.products((8, 0)) == ptx.products((10, 0)) == ("bf16", "fp16", "int8")
    assert ptx.products((8, 9)) == ("bf16", "fp16", "int8", "fp8")
    assert ptx.products((12, 0)) == ("bf16", "fp16", "int8", "fp8", "fp4")
    checks = found(SimulatedGpu(replace(H200, capability=(8, 9))))
    assert "fp8: tensor cycles of an mma" in {check.name for check in checks}


# -- pure functions


def test_near_whole_and_at_most() -> None:
    assert near("", "", 1.0, 1.01, 0.02).outcome == HELD
    assert near("", "", 1.0, 1.03, 0.02).outcome == MISSED
    assert near("", "", 1.0, math.nan, 0.02).outcome == NOT_MEASURABLE
    assert (whole("", "", 8.001).outcome, whole("", "", 8.1).outcome, whole("", "", 0.0).outcome) == (
        HELD,
        MISSED,
        MISSED,
    )
    assert whole("", "", 5.25).expected == 5.25
    assert (at_most("", "", 1.0, 0.3).outcome, at_most("", "", 1.0, 1.01).outcome) == (HELD, MISSED)


def test_what_an_average_is_of() -> None:
    assert instances("sm__pipe_tensor_cycles_active.avg", 132) == 132
    assert instances("smsp__pipe_tensor_op_dmma_cycles_active_realtime.avg", 132) == 528
    assert instances("TPC.TriageCompute.sm__inst_executed_realtime.sum", 132) == 1


@given(st.integers(0, 3_000_000), st.integers(1, 3_000_000))
def test_counted_is_by_share(offset_ns: int, length_ns: int) -> None:
    """A steady rate counts by the time, wherever the window lies in the samples."""
    samples = joined(EPOCH, 1_000_000, [[2e6, 1e6]] * 6)
    of = counted(samples, tensor_set(), EPOCH + offset_ns, EPOCH + offset_ns + length_ns)
    assert of.covered == pytest.approx(1)
    assert list(of.totals.values()) == pytest.approx([2 * length_ns, length_ns, length_ns])
    assert of.ratio("tensor") == pytest.approx(0.5)


def test_a_quotient_is_weighted_by_its_time() -> None:
    """Half of the time at 20 %, half at 60 %, in samples of unlike lengths."""
    of_gpm = MetricSet(("NVML",), (metric(counter="NVML", elapsed="time", peak=100.0, rate=True),))
    samples = Samples(np.array([0, 1000]), np.array([1000, 4000]), np.array([[20.0], [60.0]]))
    assert counted(samples, of_gpm, 0, 2000).ratio("tensor") == pytest.approx(0.4)


def test_incomplete() -> None:
    samples = joined(EPOCH, 1_000_000, [[2e6, 1e6]] * 4)
    of = counted(samples, tensor_set(), EPOCH, EPOCH + 8_000_000)
    (check,) = complete([near("x", "tensor", 1, 1, 1)], of)
    assert (check.outcome, check.why) == (NOT_MEASURABLE, "50.0 % of its samples came")


def test_how_it_ends() -> None:
    held, wrong, nothing = near("", "a", 1, 1, 0), near("", "a", 1, 2, 0), unknown("", "a", "why")
    assert [exit_code(c) for c in ([held, nothing], [held, wrong, nothing], [nothing], [])] == [0, 3, 4, 4]


NCU = """==PROF== Connected to process 7
"ID","Kernel Name","sm__pipe_tensor_cycles_active.sum"
"","","cycle"
"0","work","2,703,360,000"
"""


def test_what_ncu_prints() -> None:
    assert cycles_in(NCU) == 2_703_360_000
    with pytest.raises(SourceError, match=r"ncu gave no .*: ERR_NVGPUCTRPERM - no permission"):
        cycles_in("==ERROR== ERR_NVGPUCTRPERM - no permission\n")
    with pytest.raises(SourceError, match="nothing"):
        cycles_in("")


def test_without_ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="not on PATH"):
        asker("python", 0)("bf16", 1)


def test_a_real_ncu_would_be_asked_for_one_launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "ncu"
    script.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\ncat <<'END'\n{NCU}END\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert asker("/python", 3)("bf16", 20_000) == 2_703_360_000
    asked = (tmp_path / "asked").read_text()
    assert "--metrics sm__pipe_tensor_cycles_active.sum /python -c" in asked
    assert asked.split()[-4:] == ["verify.device:once", "3", "bf16", "20000"]


# -- the command


def ends(
    gpu: SimulatedGpu, capfd: pytest.CaptureFixture[str], as_json: bool = False, forced: bool = False
) -> tuple[int, str]:
    code = run(gpu, gpu, by_ncu, as_json, forced, "580.159.04")
    return code, capfd.readouterr().out


def test_the_table_and_what_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    code, out = ends(SimulatedGpu(), capfd)
    lines = out.splitlines()
    assert code == 0 and lines[0].split() == ["OUTCOME", "METRIC", "CHECK", "EXPECTED", "GOT", "UNIT"]
    assert all(line.startswith("held") for line in lines[1:])
    (path,) = verified.directory().iterdir()
    document = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert document["verified"] == ["tensor", "gr", "sm", "tensor.hmma", "tensor.imma", "fma", "dram"]
    (kept,) = verified.here("GH100")
    assert (kept.gpu, kept.driver, kept.metrics) == ("NVIDIA H200", "580.159.04", tuple(document["verified"]))
    assert verified.here("GB202") == ()


def test_json_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    code, out = ends(SimulatedGpu(wrong={"dram__bytes_read.sum": 0.5}), capfd, as_json=True)
    document = json.loads(out)
    assert (code, document["gpu"]["chip"], "dram" in document["verified"]) == (3, "GH100", False)
    assert {check["outcome"] for check in document["checks"]} == {"held", "missed"}


def test_beside_others_nothing_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    ends(SimulatedGpu(), capfd, forced=True)
    assert verified.here("GH100") == ()


def test_what_was_verified_here_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    note = chip_note(Wanted(("tensor", "alu")), "GB202")
    assert note == "tensor, alu on GB20x: not verified on hardware"
    ends(SimulatedGpu(chip="GH100"), capfd)
    (path,) = verified.directory().iterdir()
    path.write_text(path.read_text().replace('"GH100"', '"GB202"').replace("NVIDIA H200", "NVIDIA GeForce RTX 5090"))
    here = verified.here("GB202")
    assert chip_note(Wanted(("tensor", "alu")), "GB202", here) == (
        "tensor on GB20x: verified on NVIDIA GeForce RTX 5090, driver 580.159.04; "
        "alu on GB20x: not verified on hardware"
    )
    assert cli._run(["metrics", "tensor", "--chip", "GB202"]) == 0
    out, error = capfd.readouterr()
    row = next(line.split() for line in out.splitlines() if line.startswith("tensor "))
    assert "here" in row and "verified on NVIDIA GeForce RTX 5090, driver 580.159.04" in error


def test_sessions_count_what_a_source_gives(tmp_path: Path) -> None:
    """Over real workers and rings: half of the peak, all of the time, from a scripted GPU."""
    source = script(tmp_path)
    counting = Sessions(replace(H200, uuid="0"))
    with counting.sampling(("tensor", "sm"), source) as counter:
        time.sleep(0.6)
        now_ns = time.time_ns()
        of = counter.over(now_ns - 300_000_000, now_ns)
    assert of.covered == pytest.approx(1)
    assert of.ratio("tensor") == pytest.approx(0.5, abs=0.001)
    assert counting.chip == "GH100"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"gpu": 1}', "\x00"])
def test_a_file_that_is_not_ours_counts_for_nothing(text: str) -> None:
    verified.directory().mkdir(parents=True)
    (verified.directory() / "x.json").write_text(text)
    assert verified.here("GH100") == ()


def test_without_a_driver_it_is_one_line() -> None:
    done = cufall("verify", CUFALL_PYTHON="/nonexistent/python")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == ["cufall: /nonexistent/python cannot be started: No such file or directory"]


# -- the process that computes


def child(tmp_path: Path, body: str) -> str:
    """A Python that says this instead of computing."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


CARD = json.dumps({"ordinal": 0, "uuid": "GPU-1", "name": "x", "capability": [9, 0], "sms": 132, "l2_bytes": 1,
                   "cuda": 13000, "blocks": 264, "warps": 8})  # fmt: skip
RAN = json.dumps({"kernel": "spin", "count": 5, "launches": 2, "start_ns": 7, "end_ns": 9})


def test_a_child_that_answers(tmp_path: Path) -> None:
    loads = ChildLoads(child(tmp_path, f"echo '{CARD}'; read line; echo \"$line\" > {tmp_path}/asked; echo '{RAN}'"), 0)
    assert loads.card.capability == (9, 0)
    assert loads.run("spin", 5, 2).seconds == 2e-9
    assert json.loads((tmp_path / "asked").read_text()) == {"kernel": "spin", "count": 5, "launches": 2}
    loads.close()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo crash >&2; exit 3", "the process that computes has ended: crash"),
        ("exit 3", "the process that computes has ended: exit 3"),
        ('echo \'{"failed": {"kind": "NoGpu", "text": "no GPU"}}\'', "no GPU"),
    ],
)
def test_a_child_that_does_not(body: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(CufallError, match=why):
        ChildLoads(child(tmp_path, body), 0)


def test_a_child_that_ends_at_work(tmp_path: Path) -> None:
    loads = ChildLoads(child(tmp_path, f"echo '{CARD}'; read line; exit 1"), 0)
    with pytest.raises(SourceError, match="has ended"):
        loads.run("spin", 5, 2)
    with pytest.raises(SourceError, match="has ended"):
        loads.rest(1)
    loads.close()


def test_the_real_child_says_what_it_lacks() -> None:
    """Here there is no driver, or no cuda-bindings; each is one line."""
    from tests.gpu.measure import missing

    if not missing():
        pytest.skip("there is a GPU here")
    with pytest.raises(CufallError, match=r"no NVIDIA driver here|cuda-bindings is not installed") as told:
        ChildLoads(sys.executable, 0)
    assert "\n" not in str(told.value)
