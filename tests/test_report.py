"""`cufall report`: what a person, a script and a CI job get of recordings whose every figure is known."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from cufall_py import cli
from tests.helpers import DATA, EPOCH, MS, SECOND
from tests.recordings import busy, counters, opened, phases, region, writer
from tests.scripted import cufall, start
from tests.test_cli import Terminal

pytestmark = pytest.mark.usefixtures("signals_as_before")

NOBODY_SAMPLES = {"CUFALL_PYTHON": "/nonexistent", "TZ": "UTC"}
LLAMA = (DATA / "models" / "llama-3.1-8b.json").read_text()


@pytest.fixture
def three(tmp_path: Path) -> str:
    """Two GPUs: a second idle (region idle), one at half of the peak (busy), one idle."""
    return str(phases(tmp_path / "three.cufall", gpus=2))


def report(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return cufall("report", *words, **NOBODY_SAMPLES, **variables)


def ends(words: str, capfd: pytest.CaptureFixture[str], *files: str) -> tuple[int, str, list[str]]:
    """Exit code, stdout and the lines of stderr, in this process."""
    code = cli._run(["report", *files, *shlex.split(words)])
    out, error = capfd.readouterr()
    return code, out, error.splitlines()


def document(capfd: pytest.CaptureFixture[str], *files: str, words: str = "") -> dict[str, object]:
    code, out, _ = ends(f"--json {words}", capfd, *files)
    assert code == 0
    found: dict[str, object] = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    return found


def test_what_a_person_sees(three: str) -> None:
    ended = report(three)
    assert ended.stdout.count("REGION") == 2 and "clocks and power" not in ended.stdout  # NVML told nothing
    lines = ended.stdout.splitlines()
    assert (
        lines[0] == f"{three}: 2 GPUs (Made-up GPU), 3.000 s from 2026-11-30 00:53:20+0000, 6000 samples read of 1 ms"
    )
    assert lines[2] == "tensor, of the peak: sm__pipe_tensor_cycles_active.avg/(4*sm__cycles_elapsed.avg)"
    at = lines.index(next(line for line in lines if line.startswith("REGION")))
    head = "REGION GPU MEAN MIN P5 P50 P95 MAX <1% <10% >90% IDLE LONGEST IDLE COVERAGE SAMPLES"
    assert lines[at].split() == head.split()
    shares = ["66.7%", "66.7%", "0%", "66.7%", "1", "s", "100%"]
    assert lines[at + 1].split() == ["everything", "g0", "16.7%", "0%", "0%", "0%", "50.0%", "50.0%", *shares, "3000"]
    busy_at = next(k for k, line in enumerate(lines) if line.startswith("busy"))
    halves = ["50.0%"] * 6
    assert lines[busy_at].split() == ["busy", "g0", *halves, *["0%"] * 4, "0", "s", "100%", "1000"]
    assert lines[busy_at + 2].split()[:2] == ["all", "50.0%"]
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_of_many_rows_the_means_come_first_a_column_a_gpu(tmp_path: Path) -> None:
    """Eight GPUs, g3 at half of its peak in the second that is the region busy, the others a tenth of it."""
    with writer(tmp_path / "run.cufall", [opened(k) for k in range(8)]) as out:
        for k in range(8):
            out.add(k, busy(EPOCH, [0.0] * 1000 + [0.5 if k == 3 else 0.05] * 1000))
        region(out, "idle", EPOCH, EPOCH + SECOND)
        region(out, "busy", EPOCH + SECOND, EPOCH + 2 * SECOND)
    path = str(tmp_path / "run.cufall")
    lines = report(path).stdout.splitlines()
    assert lines[2:7] == [
        "means, at a glance",
        "REGION      METRIC    ALL     G0     G1     G2     G3     G4     G5     G6     G7",
        "everything  tensor  5.31%  2.50%  2.50%  2.50%  25.0%  2.50%  2.50%  2.50%  2.50%",
        "idle        tensor     0%     0%     0%     0%     0%     0%     0%     0%     0%",
        "busy        tensor  10.6%  5.00%  5.00%  5.00%  50.0%  5.00%  5.00%  5.00%  5.00%",
    ]
    with Terminal("report", path, COLUMNS="60") as terminal:
        code, text = terminal.rest()
    heads = [line.split() for line in text.decode().splitlines() if line.startswith("REGION      METRIC")]
    assert code == 0 and [head[2:] for head in heads] == [["ALL", "G0", "G1", "G2", "G3", "G4"], ["G5", "G6", "G7"]]
    assert "at a glance" not in report(path, "--devices", "3").stdout


def test_a_period_that_rounds_to_a_millisecond_is_told_as_one(tmp_path: Path) -> None:
    """As an H200 has it: 999,999 ns."""
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 100, period_ns=MS - 1))
    assert report(str(tmp_path / "run.cufall")).stdout.splitlines()[0].endswith("100 samples read of 1 ms")


def test_a_narrow_terminal_gets_two_tables(three: str) -> None:
    with Terminal("report", three, COLUMNS="80") as terminal:
        code, text = terminal.rest()
    lines = text.decode().splitlines()
    assert code == 0 and max(len(line) for line in lines if line.split()[1:2] in (["g0"], ["GPU"])) <= 80
    assert sum(line.startswith("REGION") for line in lines) == 3 and "LONGEST IDLE" in text.decode()


def test_the_document(three: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = document(capfd, three)
    (recording,) = found["recordings"]  # type: ignore[misc]
    assert (found["schema"], found["samples_read"], recording["samples_read"]) == (1, 6000, 6000)
    assert (recording["file"], recording["whole"]) == (three, True)
    assert recording["spans_ns"] == [[EPOCH, EPOCH + 3 * SECOND]]
    assert [gpu["sample_period_ns"] for gpu in recording["gpus"]] == [MS, MS]
    assert [scope["region"] for scope in recording["scopes"]] == [None, "idle", "all", "busy"]
    busy = recording["scopes"][3]
    assert (busy["wanted_s"], busy["gpus"][1]["gpu"], busy["gpus"][1]["samples"]) == (1.0, 1, 1000)
    tensor = busy["gpus"][1]["metrics"]["tensor"]
    assert {tensor[name] for name in ("mean", "time_mean", "min", "p1", "p50", "p99", "max")} == {0.5}
    assert (tensor["below_10"], tensor["longest_idle_s"], tensor["coverage"], tensor["samples"]) == (0, 0, 1, 1000)
    assert busy["gpus"][0]["power_w"] is None
    assert busy["all"]["metrics"]["tensor"]["samples"] == 2000
    assert recording["scopes"][2]["gpus"][0]["metrics"]["tensor"]["mean"] == 0.25


def test_csv_and_markdown(three: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ends(f"--csv - --markdown {tmp_path}/x.md --devices 1", capfd, three)
    rows = [row for row in csv.DictReader(io.StringIO(out)) if row["metric"] == "tensor"]
    assert code == 0
    assert [(row["region"], row["gpu"], row["mean"]) for row in rows] == [
        ("", "1", str(1 / 6)),
        ("idle", "1", "0.0"),
        ("all", "1", "0.25"),
        ("busy", "1", "0.5"),
    ]
    assert (rows[0]["sample_us"], rows[0]["power_w"], rows[0]["samples"]) == ("1000.0", "", "3000")
    text = (tmp_path / "x.md").read_text()
    assert "| everything | g1 | 16.7% | 0% |" in text and text.startswith("## ")


def test_parquet_holds_the_samples_and_their_quotients(three: str, tmp_path: Path) -> None:
    """Of a part: the samples wholly inside, by a pipe as by a file."""
    assert report(three, "--parquet", f"{tmp_path}/x.parquet", "--region", "busy").returncode == 0
    table = pq.read_table(tmp_path / "x.parquet").to_pandas()
    assert len(table) == 2000 and set(table["ratio.tensor"]) == {0.5} and set(table["gpu"]) == {0, 1}
    assert table["start_ns"].min() == EPOCH + SECOND and table["end_ns"].max() == EPOCH + 2 * SECOND
    assert table["sm__cycles_elapsed.avg"].eq(2 * MS).all() and table["power_w"].isna().all()
    piped = tmp_path / "piped"
    words = ["report", three, "--parquet", "-"]
    with piped.open("wb") as out:
        assert start(*words, stdout=out, stderr=subprocess.DEVNULL).wait(60) == 0
    assert pq.read_metadata(piped).num_rows == 6000


def test_a_part_of_it(three: str, capfd: pytest.CaptureFixture[str]) -> None:
    for words, mean, samples in (("--region busy", 0.5, 1000), ("--from 0.5 --to 1.5", 0.25, 1000)):
        (recording,) = document(capfd, three, words=words)["recordings"]  # type: ignore[misc]
        tensor = recording["scopes"][0]["gpus"][0]["metrics"]["tensor"]
        assert (tensor["mean"], tensor["samples"], tensor["coverage"]) == (mean, samples, 1.0)


def test_regions_outside_the_part_have_no_rows(three: str, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = ends("--region busy", capfd, three)
    assert {line.split()[0] for line in out.splitlines() if " g0 " in line} == {"all", "busy"}


def test_one_region_is_told_once(three: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert "everything" in ends("--from 1 --to 2", capfd, three)[1]
    assert "everything" not in ends("--region busy", capfd, three)[1]
    assert "everything" not in ends("--region busy --markdown -", capfd, three)[1]
    scopes = document(capfd, three, words="--region busy")["recordings"][0]["scopes"]  # type: ignore[index]
    assert scopes[0]["region"] is None


def test_a_counter_by_its_name_over_another(three: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = "--metric sm__pipe_tensor_cycles_active.avg --denominator gr__cycles_elapsed.max --raw --region busy"
    (recording,) = document(capfd, three, words=words)["recordings"]  # type: ignore[misc]
    (metric,) = recording["scopes"][0]["gpus"][0]["metrics"].values()
    assert (metric["mean"], metric["below_1"], metric["longest_idle_s"]) == (4.0, None, None)


def uneven(path: Path) -> str:
    """Two GPUs for two seconds, the first of them region `early`: g0 at 10 and 30 %, g1 at 50 and 70 %, with a gap."""
    with writer(path, [opened(0), opened(1)]) as out:
        region(out, "early", EPOCH, EPOCH + SECOND)
        for gpu, ratios in enumerate(((0.1, 0.3), (0.5, 0.7))):
            for second, ratio in enumerate(ratios):
                out.add(gpu, busy(EPOCH + second * SECOND, [ratio] * 1000))
            out.event("gap", gpu=gpu, start_ns=EPOCH + gpu * SECOND, end_ns=EPOCH + gpu * SECOND + MS, samples=gpu + 1)
    return str(path)


def of_page(path: Path) -> dict[str, Any]:
    """What the page gives to its script."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    document: dict[str, Any] = json.loads(found[1])
    return document


@pytest.mark.parametrize(
    ("part", "gaps"),
    [("--region early", []), ("--to 1", []), ("--from 1", [[0, 1, 1.001]]), ("--from -1", [[0, 1, 1.001]])],
)
def test_every_output_is_of_the_same_gpus_and_part(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], part: str, gaps: list[list[float]]
) -> None:
    names = {name: tmp_path / f"out.{name}" for name in ("csv", "markdown", "parquet", "html", "trace")}
    outputs = " ".join(f"--{name} {path}" for name, path in names.items())
    code, text, _ = ends(f"--json --devices 1 {part} {outputs}", capfd, uneven(tmp_path / "run.cufall"))
    percent, ratio = (70, 0.7) if "from" in part else (50, 0.5)
    begin_ns = EPOCH + SECOND * ("from" in part)
    (recording,) = json.loads(text)["recordings"]
    (row,) = recording["scopes"][0]["gpus"]
    assert (code, row["gpu"], row["samples"]) == (0, 1, 1000)
    assert row["metrics"]["tensor"]["mean"] == pytest.approx(ratio, rel=1e-6)
    rows = list(csv.DictReader(io.StringIO(names["csv"].read_text())))
    assert {row["gpu"] for row in rows} == {"1"} and float(rows[0]["mean"]) == pytest.approx(ratio, rel=1e-6)
    assert f"g1 | {percent}.0%" in names["markdown"].read_text() and "g0" not in names["markdown"].read_text()
    table = pq.read_table(names["parquet"])
    assert (set(table["gpu"].to_pylist()), table.num_rows, table["start_ns"][0].as_py()) == ({1}, 1000, begin_ns)
    page = of_page(names["html"])
    assert [gpu["label"] for gpu in page["gpus"]] == ["g1"]
    assert page["view"] == [begin_ns / SECOND - EPOCH / SECOND, begin_ns / SECOND - EPOCH / SECOND + 1]
    assert page["gaps"] == gaps
    events = [event for event in json.loads(names["trace"].read_text())["traceEvents"] if event["ph"] == "C"]
    assert {event["name"] for event in events} == {"g1 tensor"}
    assert [event["args"]["%"] for event in events] == [percent, -1]


def test_several_outputs_at_once_are_what_each_is_alone(three: str, tmp_path: Path) -> None:
    def made(*names: str) -> list[bytes]:
        paths = [tmp_path / f"{len(names)}.{name}" for name in names]
        words = [word for name, path in zip(names, paths, strict=True) for word in (f"--{name}", str(path))]
        assert report(three, *words).returncode == 0
        return [path.read_bytes() for path in paths]

    names = ("html", "trace", "parquet", "csv")
    assert made(*names) == [made(name)[0] for name in names]


def test_without_samples_there_is_no_page_and_all_else_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with writer(tmp_path / "empty.cufall", [opened(0)]):
        pass
    words = f"--html {tmp_path}/page.html --junit {tmp_path}/junit.xml --require 'tensor.mean > 1%'"
    code, text, lines = ends(words, capfd, str(tmp_path / "empty.cufall"))
    assert code == 4 and "no samples" in text
    assert "cufall: --html: no samples in what was asked for" in lines
    assert not (tmp_path / "page.html").exists()
    assert ET.parse(tmp_path / "junit.xml").getroot().get("errors") == "1"


# Requirements


def judged(capfd: pytest.CaptureFixture[str], three: str, *texts: str, words: str = "") -> tuple[int, list[str]]:
    asked = " ".join(f"--require {shlex.quote(text)}" for text in texts)
    code, _, lines = ends(f"{asked} {words}", capfd, three)
    return code, lines


def test_held_missed_and_not_measurable(three: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, lines = judged(capfd, three, "tensor.mean[busy] >= 50%", "coverage >= 99%")
    assert (code, lines[-1]) == (0, "cufall: requirements: 4 held (exit 0)")
    assert lines[2].split() == ["held", *["tensor.mean[busy]", ">=", "50%"], "g0", "busy", "50.0%", "1000", "100%"]
    code, lines = judged(capfd, three, "tensor.mean[busy] >= 50%", "tensor.mean[all] >= 30%")
    told = "cufall: requirement missed: tensor.mean[all] >= 30% on GPU 0: it is 25.0%, and 1 more (exit 3)"
    assert (code, lines[-1]) == (3, told)
    for text, why in (
        ("tensor.mean[never] > 0", "region never never came"),
        ("dram.mean > 0", "dram__bytes_read.sum, dram__bytes_write.sum, dram__cycles_elapsed.avg was not recorded"),
        ("gr.mean > 0", "gr__cycles_active.avg was not recorded"),
    ):
        code, lines = judged(capfd, three, "tensor.mean[all] >= 30%", f"{text}")
        assert code == 4
        assert lines[-1].startswith(f"cufall: not a valid measurement: {text} on GPU 0: ") and why in lines[-1]


def test_a_usage_error_points_at_it(three: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, lines = judged(capfd, three, "tensor.mean >= 30")
    assert code == 2
    assert lines[1:] == ["  tensor.mean >= 30", f"  {'':15}^"]
    assert judged(capfd, three, "tensor.mean[gpu=7] >= 30%")[0] == 2


def test_the_result_is_written_whatever_it_is(three: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "result.json"
    cases = [
        ("--require 'tensor.mean[busy] > 1%'", 0, "done", ["held", "held"]),
        ("--require 'tensor.mean[all,gpu=1] > 90%'", 3, "requirement missed", ["missed"]),
        ("--require 'tensor.mean[never] > 1%'", 4, "not a valid measurement", ["not measurable"] * 2),
        ("--require 'tensor.mean > '", 2, "usage", []),
        ("--devices 9", 2, "usage", []),
        ("--csv /dev/full", 1, "could not run", []),
    ]
    for words, code, meaning, outcomes in cases:
        assert ends(f"{words} --result {place}", capfd, three)[0] == code
        found = json.loads(place.read_text())
        assert (found["schema"], found["exit_code"], found["meaning"]) == (1, code, meaning)
        assert [r["outcome"] for r in found["requirements"]] == outcomes
    assert found["why"] == "cannot write /dev/full: No space left on device"


def test_junit(three: str, capfd: pytest.CaptureFixture[str]) -> None:
    texts = ("tensor.mean[busy] > 1%", "tensor.p5[all] > 1%", 'coverage["\x01"] > 0')
    words = "--junit - " + " ".join(f"--require {shlex.quote(text)}" for text in texts)
    code, out, _ = ends(words, capfd, three)
    root = ET.fromstring(out)
    (suite,) = root
    assert code == 4
    for element in (root, suite):
        assert [element.get(name) for name in ("tests", "failures", "errors")] == ["6", "2", "2"]
    assert [child.tag for case in suite for child in case if child.tag != "system-out"] == ["failure"] * 2 + [
        "error"
    ] * 2
    assert suite[0].get("name") == "tensor.mean[busy] > 1% (GPU 0)"
    failure = suite[2].find("failure")
    assert failure is not None and failure.get("message") == "tensor.p5 is 0%"


def test_github_gets_annotations_and_a_summary(
    three: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    texts = ("tensor.mean[busy] > 1%", "tensor.mean[all,gpu=0] >= 30%")
    assert not [line for line in judged(capfd, three, *texts)[1] if line.startswith("::")]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert not [line for line in judged(capfd, three, *texts, words="--annotate none")[1] if line.startswith("::")]
    assert not summary.exists()
    _, lines = judged(capfd, three, *texts)
    told = f"tensor.mean[all,gpu=0] >= 30%25 on GPU 0 of {three}: it is 25.0%25, of 2000 samples"
    assert [line for line in lines if line.startswith("::")] == [f"::error title=cufall%3A missed::{told}"]
    text = summary.read_text()
    assert "| missed | tensor.mean\\[all,gpu=0\\] \\>= 30% | g0 | all | 25.0% | 2000 | 100% |" in text
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    code, lines = judged(capfd, three, texts[0])
    assert code == 0 and "cufall: the step summary cannot be written: /dev/full: No space left on device" in lines


def test_several_recordings_each_have_to_hold(three: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = str(tmp_path / "other.cufall")
    with writer(Path(other), [opened(0)]) as out:
        out.add(0, busy(EPOCH, [0.3] * 100))
    code, out_text, lines = ends("--json --require 'tensor.mean[gpu=0] >= 20%'", capfd, other, three)
    found = json.loads(out_text)
    assert code == 3 and lines[-1].endswith("tensor.mean[gpu=0] >= 20% on GPU 0: it is 16.7% (exit 3)")
    assert found["samples_read"] == 6100
    assert [r["requirements"][0]["outcome"] for r in found["recordings"]] == ["held", "missed"]
    code, out_text, _ = ends("", capfd, other, three)
    assert code == 0 and out_text.count("samples read of 1 ms") == 2


# What may go wrong


@pytest.mark.parametrize("output", ["--html", "--csv", "--result"])
@pytest.mark.parametrize(("read", "text"), [("--model", LLAMA), ("--verdict-table", '{"schema": 1}')])
def test_what_is_asked_by_is_not_written_over(
    three: str, read: str, text: str, output: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "asked.json"
    path.write_text(text)
    code, _, lines = ends(f"{read} {path} {output} {path}", capfd, three)
    assert (code, lines) == (2, [f"cufall: {output} {path}: is what is read"])
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--json --csv -", "--csv and --json cannot both go to stdout"),
        ("--csv - --markdown -", "--csv and --markdown cannot both go to stdout"),
        ("--junit -", "--junit needs a --require"),
        ("--csv /nonexistent/x", "--csv /nonexistent/x: No such file"),
        ("--result /nonexistent/x", "--result /nonexistent/x: No such file"),
        ("--csv {three}", "is what is read"),
        ("--result {three}", "is what is read"),
        ("--csv {folder}/a --markdown {folder}/a", "is where --csv goes"),
        ("--parquet {folder}/a {three}", "--parquet holds the samples of one recording"),
        ("--metric dram", "dram is not in the recording ("),
        ("--region never", "no such region; there are idle, all, busy"),
        ("--denominator x", "--denominator x: "),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    three: str, words: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = Path(three).read_bytes()
    code, out, lines = ends(words.format(three=three, folder=tmp_path), capfd, three)
    assert (code, out, len(lines)) == (2, "", 1) and told in lines[0]
    assert Path(three).read_bytes() == before


def test_what_is_no_recording(three: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.cufall").write_text("mine")
    for name in ("missing.cufall", "text.cufall", "."):
        code, out, lines = ends("", capfd, three, str(tmp_path / name))
        assert (code, out, len(lines)) == (1, "", 1)
    assert ends("", capfd)[0] == 2


def test_a_cut_file_is_judged_on_what_there_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with writer(tmp_path / "a.cufall", [opened(0)]) as out:
        region(out, "command", EPOCH, None)
        for k in range(20):
            out.add(0, busy(EPOCH + k * SECOND, [0.5] * 1000))
    data = (tmp_path / "a.cufall").read_bytes()
    cut = tmp_path / "cut.cufall"
    cut.write_bytes(data[: len(data) * 3 // 4])
    code, out_text, lines = ends("--json --require 'tensor.mean >= 50%'", capfd, str(cut))
    (recording,) = json.loads(out_text)["recordings"]
    assert code == 0 and not recording["whole"]
    assert 0 < recording["samples_read"] < 20_000 and recording["samples_read"] % 1000 == 0
    assert [line for line in lines if "is not whole" in line] == lines[:1]
    assert recording["scopes"][1]["wanted_s"] == recording["samples_read"] / 1000


def test_a_gpu_without_samples_is_no_valid_measurement(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with writer(tmp_path / "a.cufall", [opened(0), opened(1)]) as out:
        out.add(0, busy(EPOCH, [0.5] * 100))
    code, text, lines = ends("", capfd, str(tmp_path / "a.cufall"))
    assert code == 4 and "GPU 1: no samples in " in lines[-1]
    row = next(line for line in text.splitlines() if " g1 " in line)
    assert row.split() == ["g1", *["--"] * 11, "0%", "0"]
    assert ends("--devices 0", capfd, str(tmp_path / "a.cufall"))[0] == 0
    with writer(tmp_path / "empty.cufall", [opened(0)]) as out:
        pass
    assert ends("--require 'coverage > 0'", capfd, str(tmp_path / "empty.cufall"))[0] == 4


def test_throttling_and_readings_are_of_the_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Held back by the power cap from the end of the first of four quarters to that of the second; then only idle."""
    with writer(tmp_path / "a.cufall", [opened(0, counters())]) as out:
        for k, bits in enumerate((0, 4, 1, 1)):
            out.set_readings(0, 1000.0 + k, 100.0 * k)
            out.event("reasons", gpu=0, start_ns=EPOCH + k * SECOND, bits=bits)
            out.add(0, busy(EPOCH + k * SECOND, [0.5] * 1000))
    (recording,) = document(capfd, str(tmp_path / "a.cufall"))["recordings"]  # type: ignore[misc]
    row = recording["scopes"][0]["gpus"][0]
    assert (row["throttle_share"], row["sm_mhz"], row["power_w"], row["energy_j"]) == (0.25, 1001.5, 150.0, 600.0)


def test_a_reader_that_goes_away_and_a_full_disk(three: str) -> None:
    process = start("report", three, "--json")
    assert process.stdout and process.stderr
    process.stdout.close()
    assert (process.wait(60), "Traceback" in process.stderr.read()) == (141, False)
    process.stderr.close()
    with open("/dev/full", "w") as full:
        process = start("report", three, stdout=full)
        assert process.stderr
        assert (process.wait(60), process.stderr.read()) == (
            1,
            "cufall: cannot write stdout: No space left on device\n",
        )
        process.stderr.close()
