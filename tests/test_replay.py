"""A recording as the command's source: `replay`, `--source FILE`, `demo`; run as a shell runs it, without any GPU."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cufall_py import cli
from cufall_py.cli import playing
from tests.helpers import EPOCH, GR_ELAPSED, SECOND, TENSOR
from tests.recordings import busy, opened, phases, region, writer
from tests.scripted import cufall, start, together
from tests.test_cli import Terminal

ENGINEER = (
    f"--devices all --metric {TENSOR} --denominator {GR_ELAPSED} --color --hw-buffer-mb 250 --frame-us 50000".split()
)
NOBODY_SAMPLES = {"CUFALL_PYTHON": "/nonexistent"}
"""A supervisor could not even be started."""


@pytest.fixture
def three(tmp_path: Path) -> str:
    return str(phases(tmp_path / "three.cufall", gpus=2))


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return cufall(*words, **NOBODY_SAMPLES, TZ="UTC", **variables)


def labels(text: str) -> list[list[str]]:
    return [re.findall(r"g\d\((.*?)\)", line) for line in text.splitlines()]


def test_a_recording_is_shown_as_a_gpu_is(three: str) -> None:
    ended = run("replay", three, "--frame-us", "1000000", "--width", "4")
    assert ended.stdout.splitlines() == [
        "00:53:20.000000 g0(<.01%) \u2800\u2800\u2800\u2800 g1(<.01%) \u2800\u2800\u2800\u2800",
        "00:53:21.000000 g0(  50%) \u28b8\u28b8\u28b8\u28b8 g1(  50%) \u28b8\u28b8\u28b8\u28b8",
        "00:53:22.000000 g0(<.01%) \u2800\u2800\u2800\u2800 g1(<.01%) \u2800\u2800\u2800\u2800",
    ]
    assert ended.stderr.splitlines() == [
        "cufall: [idle] nothing runs",
        "cufall: [busy] half of the peak",
        "cufall: [idle] nothing runs again",
        f"cufall: 6000 samples in 3.0 s of {three}, 0 lost (0.000 s)",
    ]
    assert ended.returncode == 0


def test_it_is_the_same_by_its_verb_and_as_a_source(three: str) -> None:
    words = ["--csv", "-", "--region", "busy", "--devices", "1"]
    runs = together(
        [
            (["replay", three, *words], NOBODY_SAMPLES),
            (["--source", three, *words], NOBODY_SAMPLES),
            (["live", *words], {"CUFALL_SOURCE": three, **NOBODY_SAMPLES}),
        ]
    )
    rows = list(csv.DictReader(io.StringIO(runs[0].stdout)))
    assert [(row["start_ns"], row["gpu"], row["mean"]) for row in rows] == [
        (str(EPOCH + SECOND + k * 100_000_000), "1", "0.5") for k in range(10)
    ]
    assert len({ended.stdout for ended in runs}) == 1
    assert {ended.returncode for ended in runs} == {0}


def test_the_engineers_command(three: str) -> None:
    ended = run("--source", three, *ENGINEER)
    assert ended.returncode == 0
    assert ended.stdout.count("\x1b[0m") == 2 * 60
    assert "g0(  50%)" in ended.stdout
    assert "is 8.00 times that" in ended.stderr


def test_what_is_of_hardware_is_accepted(three: str) -> None:
    plain = run("replay", three).stdout
    lines = (
        "--sample-us 5000 --decode-us 1000000 --buffer-samples 16 --hw-buffer-mb 1",
        "--trigger sysclk --sysclk-cycles 5000",
        "--speed max",
        "--speed 0",
    )
    assert [run("replay", three, *shlex.split(line)).stdout for line in lines] == [plain] * len(lines)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--metric dram", "dram is not in the recording ("),
        ("--region decode", "no such region; there are idle, all, busy"),
        ("--from 5", "--from 5: nothing was recorded then; the recording is 3 s long"),
        ("--to x", "--to x: must be seconds from the start"),
        ("--speed fast", "--speed fast: must be a number above 0, or max"),
        ("--speed -1", "--speed -1.0: must be a number above 0, or max"),
        ("--speed nan", "--speed nan: must be"),
        ("--devices 2", "--devices 2: no such GPU; there are 0"),
        ("--source cupti", "--source"),
        ("--csv /nonexistent/x", "--csv /nonexistent/x: No such file"),
        ("--duration-sec 0.01", "must be 0 or at least one frame"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    three: str, words: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["replay", three, *shlex.split(words)]) == 2
    out, error = capfd.readouterr()
    (line,) = error.splitlines()
    assert out == "" and line.startswith("cufall: ") and told in line


@pytest.mark.parametrize("words", ["--speed 2", "--from 1", "--to 1", "--region x", "--loop"])
def test_what_goes_with_a_recording_alone(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["--source", "script:x.json", *words.split()]) == 2
    flag = words.split()[0]
    assert capfd.readouterr().err == f"cufall: {flag} goes with a recording: --source FILE or cufall replay FILE\n"


def test_what_is_no_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.cufall").write_text("mine")
    for name in ("missing.cufall", "text.cufall", "."):
        for words in (["replay", str(tmp_path / name)], ["--source", str(tmp_path / name)]):
            assert cli._run(words) == 1
            (line,) = capfd.readouterr().err.splitlines()
            assert line.startswith(f"cufall: {tmp_path / name}")
    for words in (["replay"], ["replay", "a", "b"]):
        assert cli._run(words) == 2
        assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [["replay", ""], ["report", ""], ["report", "a", ""], ["compare", "", "--new", "a"], ["compare", "a", "--new", ""]],
)
def test_an_empty_name_is_usage_and_not_the_folder(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli._run(words) == 2
    assert capfd.readouterr().err == "cufall: an empty file name; name a recording\n"


def test_a_file_that_is_named_as_a_source_is_does_not_stand_for_it(
    three: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(three, "cupti")
    assert "CUFALL_PYTHON=/nonexistent" in run("--source", "cupti").stderr


def test_a_file_may_be_named_as_a_source_is(three: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "cupti", "script:x"):
        shutil.copy(three, name)
        assert len(run("replay", name).stdout.splitlines()) == 30


def test_exit_codes_of_what_was_recorded(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", [opened(0), opened(1)]) as out:
        out.add(0, busy(EPOCH, [0.5] * 1000))
        region(out, "nothing", EPOCH + SECOND // 2, EPOCH + SECOND)
    data = (tmp_path / "a.cufall").read_bytes()
    (tmp_path / "cut.cufall").write_bytes(data[:-8])
    ended = run("replay", str(tmp_path / "a.cufall"))
    assert (ended.returncode, labels(ended.stdout)[0]) == (4, ["  50%", "   --"])
    assert ended.stderr.splitlines()[-1].startswith("cufall: GPU 1: no samples in what was played of ")
    cut = run("replay", str(tmp_path / "cut.cufall"), "--devices", "0")
    assert (cut.returncode, len(cut.stdout.splitlines())) == (0, 10)
    assert "is not whole (cut short or damaged)" in cut.stderr.splitlines()[0]


# Pace, signals, outputs


def test_a_terminal_sees_it_as_it_was_and_a_file_gets_it_at_once(tmp_path: Path) -> None:
    """An hour in ten-second frames into a pipe, and into a CSV; in a terminal no faster than its two seconds."""
    with writer(tmp_path / "hour.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 36_000, 100_000_000))
    words = ("replay", str(tmp_path / "hour.cufall"), "--frame-us", "10000000")
    assert len(run(*words).stdout.splitlines()) == 360
    with Terminal(*words, "--csv", str(tmp_path / "hour.csv")) as terminal:
        assert terminal.rest()[0] == 0
    assert len((tmp_path / "hour.csv").read_text().splitlines()) == 361
    began = time.monotonic()
    with Terminal("replay", str(tmp_path / "hour.cufall"), "--duration-sec", "2", "--frame-us", "500000") as terminal:
        code, text = terminal.rest()
    assert (code, text.count(b"g0(")) == (0, 4)
    assert time.monotonic() - began >= 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_loop_is_ended_by_a_signal(three: str, number: int, code: int) -> None:
    process = start("replay", three, "--loop", "--speed", "100", "--frame-us", "20000")
    assert process.stdout and process.stderr
    with process.stdout as out, process.stderr as said:
        for _ in range(200):
            assert out.readline().endswith("\n")
        process.send_signal(number)
        rest, last = out.read(), said.read().splitlines()[-1]
    assert process.wait(60) == code
    assert rest == "" or rest.endswith("\n")
    assert last.startswith("cufall: ") and " samples in " in last


def test_ctrl_c_while_it_waits(three: str) -> None:
    with Terminal("replay", three, "--frame-us", "500000") as terminal:
        terminal.read_until(b"g0(")
        os.write(terminal.fd, b"\x03")
        code, text = terminal.rest()
    assert code == 130
    assert b"Traceback" not in text and b" samples in " in text


def test_a_reader_that_goes_away(three: str) -> None:
    for words in ([], ["--csv", "-"]):
        process = start("replay", three, "--loop", *words)
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert "Traceback" not in process.stderr.read()
        process.stderr.close()


# The demo


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = phases(tmp_path / "packaged.cufall")
    monkeypatch.setattr(playing, "DEMO_FILE", str(path))
    before = {number: signal.getsignal(number) for number in cli.END_SIGNALS}
    yield path
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("words", [["demo"], ["--source", "demo"]])
def test_the_demo_plays_once_and_tells_what_is_seen(
    packaged: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli._run([*words, "--frame-us", "500000"]) == 0
    out, error = capfd.readouterr()
    assert len(out.splitlines()) == 6
    assert "cufall: [busy] half of the peak" in error.splitlines()


def test_the_engineers_command_runs_on_the_demo(packaged: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["--source", "demo", *ENGINEER]) == 0
    assert "g0(  50%)" in capfd.readouterr().out


def test_without_the_demos_file_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(playing, "DEMO_FILE", str(tmp_path / "demo.cufall"))
    assert cli._run(["demo"]) == 1
    assert "packaged without the demo recording" in capfd.readouterr().err


@pytest.mark.parametrize("words", [["replay", "{file}"], ["--source", "{file}"]])
def test_what_is_played_is_not_written_over(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    path = phases(tmp_path / "run.cufall")
    before = path.read_bytes()
    assert cli._run([*(word.format(file=path) for word in words), "--csv", str(path)]) == 2
    assert path.read_bytes() == before
    assert "that file is what is read" in capfd.readouterr().err


def test_the_table_of_verdicts_is_not_written_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.json"
    path.write_text('{"schema": 1}')
    words = ["replay", str(phases(tmp_path / "run.cufall")), "--view", "verdict"]
    assert cli._run([*words, "--verdict-table", str(path), "--csv", str(path)]) == 2
    assert path.read_text() == '{"schema": 1}'
    assert "that file is what is read" in capfd.readouterr().err


def test_what_is_no_file_is_refused_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["replay", "/dev/zero"]) == 1
    assert "it is no file" in capfd.readouterr().err


def test_a_file_that_is_called_as_a_source_is_may_be_written(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").write_text("of yesterday")
    assert cli._run(["demo", "--csv", "demo", "--frame-us", "500000"]) == 0
    assert Path("demo").read_text().startswith("time,")
