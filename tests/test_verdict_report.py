"""Verdicts of recordings: what a person, a script and a CI job get of a GPU whose every phase is known."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from cufall_py import Playback
from tests.recordings import side_by_side, working
from tests.test_report import ends

pytestmark = pytest.mark.usefixtures("signals_as_before")

NAMES = ("tensor", "sm", "gr", "dram", "issue", "fma", "alu", "launches", "pcie.rx", "pcie.tx")
AT_WORK = {"gr": 1.0, "sm": 0.95}
PHASES = [
    ("nothing", {}),
    ("prefill", {**AT_WORK, "tensor": 0.8, "dram": 0.2, "issue": 0.1}),
    ("prefill-simt", {**AT_WORK, "fma": 0.75, "issue": 0.85, "dram": 0.03}),
    ("decode-eager", {"gr": 0.25, "sm": 0.08, "dram": 0.03, "issue": 0.02, "launches": 30_000}),
    ("decode-graph", {"gr": 0.97, "sm": 0.7, "dram": 0.55, "tensor": 0.05, "issue": 0.1, "launches": 100_000}),
    ("all-reduce", {"gr": 1.0, "sm": 0.1, "issue": 0.001}),
]
PREFILL = PHASES[1][1]
EXPECTED = {
    "nothing": "idle",
    "prefill": "tensor_bound",
    "prefill-simt": "cuda_core_bound",
    "decode-eager": "launch_bound",
    "decode-graph": "memory_bound",
    "all-reduce": "waiting",
}


@pytest.fixture
def known(tmp_path: Path) -> str:
    return str(working(tmp_path / "known.cufall", PHASES, NAMES))


@pytest.fixture
def without_fma(tmp_path: Path) -> str:
    names = [name for name in NAMES if name not in ("fma", "alu")]
    return str(working(tmp_path / "without.cufall", PHASES, names))


def scopes(out: str) -> dict[str, dict[str, object]]:
    (recording,) = json.loads(out)["recordings"]
    return {scope["region"] or "": scope["gpus"][0]["verdict"] for scope in recording["scopes"]}


def test_each_region_has_the_verdict_that_its_values_say(known: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ends("--json", capfd, known)
    found = scopes(out)
    assert code == 0
    assert {name: found[name]["class"] for name in EXPECTED} == EXPECTED
    assert all(found[name]["shares"][EXPECTED[name]] == 1 for name in EXPECTED)
    assert found["decode-eager"]["evidence"]["launches"] == pytest.approx(30_000)
    assert found[""]["class"] == "mixed"  # six things, a sixth of the time each
    assert sum(found[""]["shares"].values()) == pytest.approx(1)
    assert "CUDA graphs" in found["decode-eager"]["advice"]


def test_how_far_it_is_from_another_verdict_is_told(known: str, capfd: pytest.CaptureFixture[str]) -> None:
    """By the table: of tensor 0.8 the time is 0.8 / 0.9, which is 0.78 above the half that it takes."""
    found = scopes(ends("--json", capfd, known)[1])
    edges = {
        "nothing": (1.0, None),
        "prefill": (0.8 / 0.9 / 0.5 - 1, "memory_bound"),  # dram is a quarter of what it would have to be
        "prefill-simt": (0.75 / 0.9 / 0.5 - 1, "latency_bound"),  # 0.17 of the time is left, of 0.5
        "decode-eager": (0.75 / 0.5 - 1, "latency_bound"),  # the gap is 0.75, and 0.22 of 0.5 is left
        "decode-graph": (0.55 / 0.9 / 0.5 - 1, "latency_bound"),
    }
    for name, (distance, nearest) in edges.items():
        assert found[name]["distance"] == pytest.approx(distance, abs=1e-6), name
        assert found[name]["nearest"] == nearest, name
    assert (found[""]["distance"], found[""]["nearest"]) == (None, None)  # means of what takes turns tell nothing


def test_what_was_not_measured_is_unknown_and_named(without_fma: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = scopes(ends("--json", capfd, without_fma)[1])
    assert found["prefill-simt"]["class"] == "unknown"
    assert found["prefill-simt"]["missing"] == ["fma"]
    assert [found["prefill-simt"][key] for key in ("runner_up", "nearest", "distance")] == [None, None, None]
    others = {name: verdict for name, verdict in EXPECTED.items() if name != "prefill-simt"}
    assert {name: found[name]["class"] for name in others} == others


def test_a_person_reads_classes_evidence_and_advice(known: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ends("--metric tensor", capfd, known)
    lines = out.splitlines()
    at = lines.index("verdict, of frames of 50 ms; evidence: means of all their time")
    assert lines[at + 1].split() == ["REGION", "GPU", "VERDICT", "SHARE", "BESIDES", "TO", "ITS", "EDGE", "EVIDENCE"]
    simt = next(line for line in lines[at:] if line.startswith("prefill-simt"))
    told = "prefill-simt g0 cuda-core-bound 100% 67%, next latency-bound fma 75%, alu 0%, tensor 0%, dram 3%"
    assert " ".join(simt.split()) == told
    told = [line for line in lines if "the work runs on the CUDA cores" in line]
    assert [line.split(":")[0] for line in told] == ["cuda-core-bound (prefill-simt)"]
    assert code == 0


def test_markdown_has_them_too(known: str, capfd: pytest.CaptureFixture[str]) -> None:
    out = ends("--markdown -", capfd, known)[1]
    assert "| prefill-simt | g0 | cuda-core-bound | 100% |" in out


@pytest.mark.parametrize(
    "requirement, code",
    [
        ("verdict.cuda_core_bound[decode-graph] < 10%", 0),
        ("verdict.cuda_core_bound[prefill-simt] < 10%", 3),
        ("verdict.memory_bound[decode-graph] > 90%", 0),
        ("verdict.idle <= 20%", 0),
        ("verdict.idle >= 20%", 3),
    ],
)
def test_a_verdict_can_be_required(requirement: str, code: int, known: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert ends(f"--require {shlex.quote(requirement)}", capfd, known)[0] == code


@pytest.mark.parametrize(
    "requirement, code",
    [
        ("verdict.cuda_core_bound[prefill-simt] < 10%", 4),  # it may be, and then it is not less
        ("verdict.cuda_core_bound[decode-graph] < 10%", 0),  # what was measured leaves no room for it
        ("verdict.memory_bound[prefill-simt] < 10%", 0),
        ("verdict.unknown < 10%", 3),
        ("verdict.unknown[prefill] < 10%", 0),
    ],
)
def test_what_is_unknown_decides_nothing(
    requirement: str, code: int, without_fma: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found, _, error = ends(f"--require {shlex.quote(requirement)}", capfd, without_fma)
    assert found == code
    assert code != 4 or "not measured: fma" in error[-1]


def test_a_table_of_ones_own(known: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"schema": 1, "rows": [{"class": "idle", "when": ["gr < 0.3"]}]}))
    out = ends(f"--json --verdict-table {table} --verdict-ms 100", capfd, known)[1]
    assert scopes(out)["decode-eager"]["class"] == "idle"
    assert json.loads(out)["recordings"][0]["verdicts"]["frame_ms"] == 100
    for words, told in [
        (f"--verdict-table {tmp_path}/none", "No such file"),
        (f"--verdict-table {known}", "--verdict-table"),
        ("--verdict-ms 0", "from 1 to 60000"),
        ("--verdict-ms x", "from 1 to 60000"),
    ]:
        code, _, error = ends(words, capfd, known)
        assert code == 2 and told in error[-1] and len(error) <= 3


SPIN = {"gr": 1.0, "sm": 0.12, "issue": 0.002}


@pytest.fixture
def four(tmp_path: Path) -> str:
    """Two ranks of which the second works through 200 ms and the first waits for the last 60, and two that do nothing
    but for the first 100 ms of as many; 4 s of it."""
    waits, works = [(140, PREFILL), (60, SPIN)], [(200, PREFILL)]
    idles = [(100, PREFILL), (100, {})]
    return str(side_by_side(tmp_path / "four.cufall", [waits, works, idles, idles], 20, NAMES))


def test_groups_are_told_with_bubbles_and_who_is_waited_for(four: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = "--json --verdict-ms 10 --group ranks=0-1 --group others=2+3"
    code, out, _ = ends(words, capfd, four)
    ranks, others = json.loads(out)["recordings"][0]["groups"]
    assert code == 0 and (ranks["name"], others["name"]) == ("ranks", "others")
    assert [gpu["gpu"] for gpu in others["gpus"]] == [2, 3]
    assert [gpu["bubble"] for gpu in ranks["gpus"]] == pytest.approx([0.3, 0.0])
    assert (ranks["straggler"], ranks["all_idle"], ranks["skew"]) == (1, 0, pytest.approx(0.3))
    assert (others["straggler"], others["all_idle"]) == (None, pytest.approx(0.5))
    assert others["gpus"][1]["lag_s"] == pytest.approx(0, abs=0.001)


def test_a_person_reads_a_table_a_group(four: str, capfd: pytest.CaptureFixture[str]) -> None:
    lines = ends("--verdict-ms 10 --group auto", capfd, four)[1].splitlines()
    at = lines.index("group auto-1: all idle 0%, skew 0%")  # the ranks are not alike
    assert lines[at + 2].split() == ["g0", "70.0%", "0%", "30.0%", "0%", "0%", "--"]
    at = lines.index("group auto-3: all idle 50.0%, skew 0%")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["GPU", "g2", "g3"]


def test_a_group_can_be_required(four: str, capfd: pytest.CaptureFixture[str]) -> None:
    group, required = "--group ranks=0-1", "--require 'tensor.mean[group=ranks] > 50%'"
    assert ends(f"{group} {required}", capfd, four)[0] == 0
    assert ends(f"--group ranks=0-2 {required}", capfd, four)[0] == 3
    for words, told in [
        (f"--group others=2 {required}", "no group ranks; there is all, others"),
        ("--group ranks=0-9", "no GPU 4; there are 0, 1, 2, 3"),
        ("--group auto --group ranks=0", "--group auto"),
        ("--group ranks", "NAME=GPUS"),
    ]:
        code, _, error = ends(words, capfd, four)
        assert code == 2 and any(told in line for line in error)


def test_gaps_of_thinned_samples_are_within_work_only_where_each_sample_had_some(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two GPUs with the same means: one in bursts of 6 ms of each 20, one with a gap in every millisecond."""
    burst = {"gr": 1.0, "sm": 0.3, "issue": 0.1, "launches": 60_000}
    even = {name: 0.3 * value for name, value in burst.items()}
    whole = side_by_side(tmp_path / "whole.cufall", [[(6, burst), (14, {})], [(20, even)]], 500, NAMES)
    thinned = tmp_path / "thinned.cufall"
    with Playback(whole) as playback:
        playback.record(thinned, keep="1s@full,forever@1s")
        for _ in playback.frames():
            pass
    for path, class_of_bursts in ((whole, "mixed"), (thinned, "unknown")):
        code, out, _ = ends("--json", capfd, str(path))
        assert code == 0
        bursts, gaps = (gpu["verdict"] for gpu in json.loads(out)["recordings"][0]["scopes"][0]["gpus"])
        assert (bursts["class"], bursts["shares"]["launch_bound"]) == (class_of_bursts, 0)
        assert gaps["shares"]["launch_bound"] == pytest.approx(1)
    assert bursts["missing"] == ["gap_within"] and bursts["at_most"]["launch_bound"] > 0.7
