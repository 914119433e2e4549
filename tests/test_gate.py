"""`cufall record --require`: checked before anything is started, judged at the end, and told in every way there is."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from cufall_py.recording_reader import Recording
from tests.helpers import EPOCH, SECOND
from tests.recordings import busy, opened, phases, region, writer
from tests.scripted import cufall, fault, late, script, soon, start

QUICK = ("--decode-us", "20000", "--frame-us", "20000")


class Run:
    """Where a recording of two GPUs, half busy and a fifth busy, and what is told of it go."""

    def __init__(self, folder: Path) -> None:
        self.out, self.result, self.junit = (folder / name for name in ("run.cufall", "result.json", "junit.xml"))
        self.source = script(folder, gpus=2, patterns=[[{"ms": 1000, "tensor": ratio}] for ratio in (0.5, 0.2)])

    def words(self, *words: str, source: str = "") -> tuple[str, ...]:
        places = ("-o", str(self.out), "--result", str(self.result))
        return ("record", "--source", source or self.source, *QUICK, *places, *words)

    def __call__(self, *words: str, source: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return cufall(*self.words(*words, source=source), **variables)

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.result.read_text())
        return found

    @property
    def outcomes(self) -> list[str]:
        return [judgement["outcome"] for judgement in self.told["requirements"]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def sleeping(line: str = "", seconds: float = 0.4) -> tuple[str, ...]:
    return ("--", "sh", "-c", f"echo started; sleep {seconds}; {line or 'true'}")


# Judged


def test_what_was_thinned_is_judged_as_it_was_kept_and_that_is_said(run: Run) -> None:
    done = run("--keep", "1s@full,forever@500ms", "--duration-sec", "3", "--require", "tensor.mean >= 10%")
    assert done.returncode == 0, done.stderr
    assert run.outcomes == ["held", "held"] and Recording(run.out).keep
    assert f"{run.out}: thinned (1s@full,forever@500ms): samples of " in done.stderr


def test_a_keep_that_is_none_is_refused_before_anything_is_started(run: Run) -> None:
    done = run("--keep", "1s@often", *sleeping())
    assert done.returncode == 2 and "--keep 1s@often: 1s@often: often must be full, or a number" in done.stderr
    assert run.told["meaning"] == "usage" and "started" not in done.stdout and not run.out.exists()


def test_what_held_is_told_on_stderr_and_in_files(run: Run) -> None:
    ended = run(
        "--require", "tensor.mean >= 19%", "--require", "coverage[gpu=1] >= 90%", "--junit", str(run.junit), *sleeping()
    )
    assert (ended.returncode, ended.stdout) == (0, "started\n")
    table = [line.split() for line in ended.stderr.splitlines() if line.startswith("held")]
    assert [row[:7] for row in table] == [
        ["held", "tensor.mean", ">=", "19%", "g0", "command", "50.0%"],
        ["held", "tensor.mean", ">=", "19%", "g1", "command", "20.0%"],
        ["held", "coverage[gpu=1]", ">=", "90%", "g1", "command", table[2][6]],
    ]
    last = ended.stderr.splitlines()[-1]
    assert last.endswith(": the command ended with 0; requirements: 3 held; exit 0")
    told = run.told
    assert [told[name] for name in ("schema", "exit_code", "meaning", "path")] == [1, 0, "done", str(run.out)]
    assert told["why"] == "the command ended with 0; requirements: 3 held"
    assert [(r["gpu"], r["region"], r["outcome"]) for r in told["requirements"]] == [
        (0, "command", "held"),
        (1, "command", "held"),
        (1, "command", "held"),
    ]
    assert told["requirements"][0]["value"] == pytest.approx(0.5, rel=1e-6)
    assert [case.get("name") for case in ET.parse(run.junit).iter("testcase")] == [
        "tensor.mean >= 19% (GPU 0)",
        "tensor.mean >= 19% (GPU 1)",
        "coverage[gpu=1] >= 90% (GPU 1)",
    ]


def test_report_judges_the_same_recording_the_same(run: Run, tmp_path: Path) -> None:
    requirements = (
        "--require",
        "tensor.mean >= 30%",
        "--require",
        "sm.p50 > 1%",
        "--require",
        "tensor.max[never] > 1%",
    )
    ended = run(*requirements, *sleeping())
    other = tmp_path / "other.json"
    again = cufall("report", str(run.out), *requirements, "--result", str(other))
    assert (ended.returncode, again.returncode) == (4, 4)
    assert json.loads(other.read_text())["requirements"] == run.told["requirements"]
    assert run.outcomes == ["held", "missed", "missed", "missed", "not measurable", "not measurable"]


def test_what_was_missed_ends_with_3(run: Run) -> None:
    ended = run("--require", "tensor.mean >= 30%", "--duration-sec", "0.3")
    assert (ended.returncode, run.told["meaning"], run.outcomes) == (3, "requirement missed", ["held", "missed"])
    why = "requirement missed: tensor.mean >= 30% on GPU 1: it is 20.0%"
    assert run.told["why"] == why and ended.stderr.splitlines()[-1].endswith(f": {why}; exit 3")
    assert {r["region"] for r in run.told["requirements"]} == {"duration"}


def test_gpus_that_start_one_after_the_other_hold_a_coverage(run: Run, tmp_path: Path) -> None:
    """Of 2 s the last of eight would miss a third if they were counted from the first sample of any."""
    source = script(tmp_path, gpus=8, faults=late(8, last_s=1.5))
    ended = run("--require", "coverage >= 99%", "--duration-sec", "2", source=source)
    assert (ended.returncode, run.outcomes) == (0, ["held"] * 8), ended.stderr
    assert [(r["region"], r["coverage"] > 0.999) for r in run.told["requirements"]] == [("duration", True)] * 8
    (of_duration,) = Recording(run.out).outline().regions["duration"]
    assert of_duration.end_ns - of_duration.start_ns == 2 * SECOND
    whole = cufall("report", str(run.out), "--json")
    covered = [gpu["coverage"] for gpu in json.loads(whole.stdout)["recordings"][0]["scopes"][0]["gpus"]]
    assert min(covered) < 0.9


@pytest.mark.parametrize(("last_s", "code", "outcome"), [(6.5, 3, "missed"), (1e9, 4, "not measurable")])
def test_a_gpu_that_starts_much_too_late_or_never_does_not(
    run: Run, tmp_path: Path, last_s: float, code: int, outcome: str
) -> None:
    source = script(tmp_path, gpus=3, faults=late(3, last_s))
    ended = run("--require", "coverage >= 99%", "--duration-sec", "6", source=source)
    assert (ended.returncode, run.outcomes) == (code, ["held", "held", outcome]), ended.stderr


def test_a_file_that_is_recorded_has_the_regions_that_it_had(run: Run, tmp_path: Path) -> None:
    source = str(phases(tmp_path / "three.cufall"))
    assert run("--require", "coverage >= 99%", "--duration-sec", "1", source=source).returncode == 0
    assert "duration" not in Recording(run.out).outline().regions


def test_a_variable_holds_several(run: Run) -> None:
    ended = run(*sleeping(), CUFALL_REQUIRE="tensor.mean >= 30%; coverage > 1%")
    assert (ended.returncode, run.outcomes) == (3, ["held", "missed", "held", "held"])


def test_a_verdict_can_be_required(run: Run) -> None:
    """It is of no one metric. By the table of docs the first GPU is tensor-bound, the second idle, as its script has
    no `gr`."""
    ended = run("--require", "verdict.idle < 50%", *sleeping())
    assert (ended.returncode, run.outcomes) == (3, ["held", "missed"])


def test_a_group_can_be_named(run: Run) -> None:
    groups = ("--group", "prefill=0", "--group", "decode=1")
    ended = run(*groups, "--require", "tensor.mean[group=decode] >= 30%", *sleeping())
    assert (ended.returncode, run.outcomes) == (3, ["missed"])
    assert [found["gpu"] for found in run.told["requirements"]] == [1]


def test_a_command_that_ends_before_its_region_begins_is_not_judged_by_what_came_before(run: Run) -> None:
    ended = run("--warmup-sec", "60", "--require", "tensor.mean > 1%", *sleeping())
    assert (ended.returncode, run.outcomes) == (4, ["not measurable"] * 2)
    assert "tensor.mean > 1% on GPU 0: region command never came" in ended.stderr


def test_too_few_samples_are_no_measurement(run: Run) -> None:
    ended = run("--sample-us", "20000", "--require", "tensor.mean > 1%", *sleeping(seconds=0.1))
    assert (ended.returncode, run.told["meaning"]) == (4, "not a valid measurement")


# Whose end comes first


@pytest.mark.parametrize(("line", "code"), [("exit 3", 3), ("exit 7", 7), ("kill -9 $$", 137)])
def test_a_commands_own_end_comes_before_what_was_missed(run: Run, line: str, code: int) -> None:
    ended = run("--require", "tensor.mean >= 30%", *sleeping(line))
    assert (ended.returncode, run.told["exit_code"], run.told["meaning"]) == (code, code, "the command's own")
    assert run.outcomes == ["held", "missed"]
    assert "missed " in ended.stderr and ended.stderr.splitlines()[-1].endswith(f"; exit {code}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_comes_before_it_too_and_what_was_measured_is_judged(run: Run, number: int) -> None:
    process = start(*run.words("--require", "tensor.mean >= 30%"))
    soon(lambda: run.out.exists() and run.out.stat().st_size > 8000)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == run.told["exit_code"] == 128 + number
    assert run.told["meaning"] == run.told["why"] == f"ended by {signal.Signals(number).name}"
    assert run.outcomes == ["held", "missed"]


def test_a_signal_that_ends_at_once_is_told_too(run: Run) -> None:
    process = start(*run.words())
    soon(lambda: run.out.exists() and run.out.stat().st_size > 5000)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert run.told["exit_code"] == process.returncode
    assert run.told["meaning"] == {130: "ended by SIGINT", 143: "ended by SIGTERM"}[process.returncode]


def test_what_an_earlier_run_left_is_not_taken_for_the_end_of_one_that_was_killed(run: Run) -> None:
    run.result.write_text('{"exit_code": 0}')
    process = start(*run.words())
    soon(lambda: run.out.exists() and run.out.stat().st_size > 5000)
    process.kill()
    process.communicate(timeout=60)
    assert run.result.read_text() == ""


@pytest.mark.parametrize("kind", ["lost", "gap"])
def test_a_gpu_that_was_lost_on_the_way_is_no_valid_measurement(run: Run, tmp_path: Path, kind: str) -> None:
    source = script(tmp_path, gpus=2, faults=[fault(1, kind, at_s=1.0)])
    ended = run("--require", "tensor.mean >= 30%", "--duration-sec", "3.5", source=source)
    assert (ended.returncode, run.told["meaning"]) == (4, "not a valid measurement")
    assert "GPU 1" in run.told["why"] and run.outcomes[0] == "held"


def test_a_gpu_without_samples_is_no_valid_measurement(run: Run, tmp_path: Path) -> None:
    source = script(tmp_path, gpus=2, faults=[fault(1, "denied")])
    ended = run("--require", "tensor.mean[gpu=0] >= 30%", "--duration-sec", "0.5", source=source)
    assert (ended.returncode, run.outcomes) == (4, ["held"])
    assert "no samples of GPU 1" in run.told["why"]


def test_no_gpu_at_all_could_not_run(run: Run, tmp_path: Path) -> None:
    ended = run("--require", "tensor.mean >= 30%", *sleeping(), source=script(tmp_path, faults=[fault(0, "denied")]))
    assert (ended.returncode, ended.stdout, run.told["meaning"]) == (1, "", "could not run")
    assert (run.told["path"], run.outcomes) == (None, [])


def test_a_full_disk_ends_with_1_and_what_there_is_is_judged(run: Run) -> None:
    """A limit of the size of files stands in for the disk; the small result file stays below it."""
    process = start(*run.words("--require", "tensor.mean >= 30%"))
    soon(lambda: run.out.exists() and run.out.stat().st_size > 10_000)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (60_000, 60_000))
    _, said = process.communicate(timeout=60)
    assert (process.returncode, run.told["meaning"]) == (1, "could not run")
    assert run.told["why"].endswith("cannot be written: File too large")
    assert run.outcomes == ["held", "missed"]
    assert sum(r["samples"] for r in run.told["requirements"]) == sum(Recording(run.out).outline().counts)
    assert "is not whole" in said


def test_a_file_that_is_gone_is_said_not_to_be_judged(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    run.out = folder / "run.cufall"
    process = start(*run.words("--require", "tensor.mean >= 30%"))
    soon(lambda: run.out.exists() and run.out.stat().st_size > 5000)
    shutil.rmtree(folder)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, run.outcomes) == (1, [])
    assert f"cufall: the requirements are not judged: {run.out} cannot be read: No such file" in said
    assert "the file was removed or moved" in run.told["why"]


@pytest.mark.parametrize(("line", "code"), [("exit 7", 7), ("true", 1)])
def test_a_result_that_cannot_be_written_hides_no_end_that_comes_first(run: Run, line: str, code: int) -> None:
    for flag in ("--result", "--junit"):
        ended = run("--force", flag, "/dev/full", "--require", "tensor.mean >= 1%", *sleeping(line))
        assert ended.returncode == code
        assert "cufall: cannot write /dev/full: No space left on device\n" in ended.stderr


def test_a_stderr_that_is_gone_changes_nothing(run: Run) -> None:
    process = start(*run.words("--require", "tensor.mean >= 30%", *sleeping()))
    assert process.stderr
    process.stderr.close()
    assert (process.wait(60), run.outcomes) == (3, ["held", "missed"])
    assert process.stdout
    process.stdout.close()


# Refused before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--require tensor.maen>1%", "--require: unknown statistic maen"),
        ("--require tensor.mean>30", 'did you mean "30%"?'),
        ("--require fp64.mean>1%", "fp64 is not sampled; --metric names it and the others (tensor, sm, gr, dram)"),
        ("--metric sm --require tensor.mean>1%", "tensor is not sampled; --metric names it and the others (sm)"),
        ("--require tensor.mean[gpu=2]>1%", "no GPU 2; there are 0, 1 (character 13)"),
        ("--devices 1 --require tensor.mean[gpu=0]>1%", "no GPU 0; there are 1"),
        ("--raw --require tensor.mean>30%", "tensor is a plain quotient here, no percent"),
        ("--junit {folder}/j.xml", "--junit needs a --require"),
        ("--group a=0", "--group: names GPUs for a --require"),
        ("--group auto --require coverage>1%", "--group auto: finds groups in a report"),
        ("--group a=5 --require coverage[group=a]>1%", "no GPU 5; there are 0, 1"),
        ("--junit /nonexistent/j.xml --require coverage>1%", "--junit /nonexistent/j.xml: No such file"),
        ("--junit - --require coverage>1%", "--junit -: must be a file"),
        ("--junit {folder}/run.cufall --require coverage>1%", "is where -o goes"),
        ("--junit {folder}/result.json --require coverage>1%", "is where --result goes"),
    ],
)
def test_what_cannot_be_required_is_usage_and_starts_nothing(run: Run, tmp_path: Path, words: str, told: str) -> None:
    ended = run(*words.format(folder=tmp_path).split(), *sleeping())
    assert (ended.returncode, ended.stdout) == (2, "") and told in ended.stderr
    assert (run.told["exit_code"], run.told["meaning"], run.told["path"]) == (2, "usage", None)
    assert told in run.told["why"]
    assert not run.out.exists() and not run.junit.exists()


def test_a_metric_that_a_chip_turns_out_to_lack_is_usage_too(run: Run, tmp_path: Path) -> None:
    run.out.write_text("mine")
    ended = run("--force", "--require", "dram.mean > 1%", *sleeping(), source=script(tmp_path, chip="GB20B"))
    assert (ended.returncode, ended.stdout, run.told["meaning"]) == (2, "", "usage")
    assert run.out.read_text() == "mine"


@pytest.mark.parametrize("place", ["result", "out"])
def test_what_is_read_is_not_where_it_is_told(run: Run, tmp_path: Path, place: str) -> None:
    recording = phases(tmp_path / "played.cufall")
    before = recording.read_bytes()
    setattr(run, place, recording)
    ended = run("--force", "--require", "coverage > 1%", source=str(recording))
    assert (ended.returncode, recording.read_bytes() == before) == (2, True)


def test_a_place_that_is_no_file_cannot_be_judged(run: Run) -> None:
    run.out = Path("/dev/null")
    ended = run("--require", "coverage > 1%", *sleeping())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "-o /dev/null: is no file, and what is required is judged of the file" in ended.stderr


# Of a recording that is played


def test_a_part_of_a_recording_is_judged_as_it_is_copied(run: Run, tmp_path: Path) -> None:
    recording = str(phases(tmp_path / "played.cufall", gpus=2))
    ended = run(
        "--region", "all", "--require", "tensor.mean >= 25%", "--require", "tensor.mean[busy] >= 50%", source=recording
    )
    assert (ended.returncode, run.outcomes) == (0, ["held"] * 4)
    assert [r["samples"] for r in run.told["requirements"]] == [2000, 2000, 1000, 1000]
    ended = run("--force", "--devices", "1", "--require", "tensor.mean[idle] > 0", source=recording)
    assert (ended.returncode, run.outcomes, run.told["requirements"][0]["gpu"]) == (3, ["missed"], 1)


def test_a_metric_need_not_be_shown_if_its_counters_are_copied(run: Run, tmp_path: Path) -> None:
    recording = tmp_path / "played.cufall"
    with writer(recording, [opened(0)]) as out:
        region(out, "command", EPOCH, EPOCH + SECOND // 2)
        out.add(0, busy(EPOCH, [0.5] * 500 + [0.1] * 500))
    counter = "sm__pipe_tensor_cycles_active.avg"
    ended = run("--require", f"{counter}.mean >= 50%", source=str(recording))
    assert (ended.returncode, run.outcomes, run.told["requirements"][0]["region"]) == (0, ["held"], "command")
    ended = run("--force", "--require", "dram.mean > 0", source=str(recording))
    assert ended.returncode == 2 and "dram is not in the recording" in ended.stderr


# GitHub


def test_github_gets_annotations_and_a_summary(run: Run, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    variables = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    words = ("--require", "tensor.mean >= 30%", *sleeping())
    ended = run(*words, **variables)
    samples = run.told["requirements"][1]["samples"]
    told = f"tensor.mean >= 30%25 on GPU 1 of {run.out}: it is 20.0%25, of {samples} samples"
    assert [line for line in ended.stderr.splitlines() if line.startswith("::")] == [
        f"::error title=cufall%3A missed::{told}"
    ]
    assert ended.stdout == "started\n"
    assert "| missed | tensor.mean \\>= 30% | g1 | command | 20.0% |" in summary.read_text()
    summary.unlink()
    ended = run("--force", "--annotate", "none", *words, **variables)
    assert "::error" not in ended.stderr and not summary.exists()
