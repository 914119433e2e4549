"""`cufall metrics`, run as a shell runs it on a machine without a driver."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.scripted import command, cufall, environment, start, together
from tests.test_cli import Terminal

NO_CUPTI = {"CUFALL_PYTHON": "/nonexistent/python"}
"""So that a machine with a GPU gives these tests the same tables."""
SOURCE = "cufall: GH100 by the tables shipped with cufall; CUPTI gave none: CUFALL_PYTHON=/nonexistent/python: "


def test_rows_are_data_and_the_rest_is_talk() -> None:
    ended = cufall("metrics", "l2", **NO_CUPTI)
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[1].split()[:5] == ["l2", "1", "1", "yes", "5.2%"]
    legend, source = ended.stderr.splitlines()
    assert legend.startswith("cufall: passes: ")
    assert source.startswith(SOURCE)


def test_everything_is_listed_without_a_pattern() -> None:
    listed = cufall("metrics", **NO_CUPTI).stdout.splitlines()
    assert len(listed) == 21 + 18 + 672 + 614 + 81 + 5 + 4
    assert not any("\t" in line for line in listed)


def test_json_is_one_document() -> None:
    ended = cufall("metrics", "TENSOR.?MMA", "--chip", "gh100", "--json", **NO_CUPTI)
    told = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr, told["schema"], told["chip"]) == (0, "", 1, "GH100")
    assert [row["name"] for row in told["metrics"]] == ["tensor.hmma", "tensor.imma", "tensor.dmma"]
    assert "CUPTI gave none" in told["source"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["tensr"], 1, "GH100 has no metric like 'tensr'; there is tensor"),
        (["qqqqqq"], 1, "GH100 has no metric like 'qqqqqq'"),
        (["a\nb"], 1, "GH100 has no metric like 'a\\nb'"),
        (["tensor.hmma", "--chip", "GB20"], 2, "--chip GB20: cufall has no tables of it; did you mean GB"),
        (["tensor", "--chip", "x"], 2, "--chip x: cufall has no tables of it; there are "),
        (["tensor", "sm"], 2, "unexpected extra argument"),
        (["--frame-us", "10000"], 2, "--frame-us"),
        (["--metric", "tensor"], 2, "--metric"),
    ],
)
def test_what_cannot_be_is_one_line(words: list[str], code: int, told: str) -> None:
    ended = cufall("metrics", *words, **NO_CUPTI)
    assert (ended.returncode, ended.stdout) == (code, "")
    (line,) = ended.stderr.splitlines()
    assert told in line


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    process = start("metrics", env=environment(**NO_CUPTI))
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize(
    ("redirection", "told"),
    [
        (">&-", "cufall: stdout is closed, and the list goes there\n"),
        (">/dev/full", "cufall: cannot write stdout: No space left on device\n"),
    ],
)
def test_a_stdout_that_takes_nothing(redirection: str, told: str) -> None:
    line = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command("metrics", "l2")]
    ended = subprocess.run(line, env=environment(**NO_CUPTI), capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, told)


def test_options_are_variables_too() -> None:
    ended = cufall("metrics", "tensor", CUFALL_CHIP="GA100", CUFALL_JSON="1", **NO_CUPTI)
    assert json.loads(ended.stdout)["chip"] == "GA100"


def test_any_encoding_can_print_it() -> None:
    runs = [(["metrics", "dram"], {"LC_ALL": "C", "PYTHONUTF8": "0", **NO_CUPTI}), (["metrics", "\u00e9"], NO_CUPTI)]
    listed, refused = together(runs)
    assert (listed.returncode, refused.returncode, len(refused.stderr.splitlines())) == (0, 1, 1)


def test_on_a_terminal_words_wrap() -> None:
    with Terminal("metrics", "gr", COLUMNS="80", **NO_CUPTI) as terminal:
        code, text = terminal.rest()
    lines = text.decode().splitlines()
    assert code == 0
    assert b"\x1b" not in text
    assert "    cycles in which the graphics and compute engine was active:" in lines


def test_a_python_that_cannot_be_asked_is_said(tmp_path: Path) -> None:
    ended = cufall("metrics", "l2", CUFALL_PYTHON="/bin/false")
    assert ended.returncode == 0
    assert "CUPTI gave none: /bin/false gave no answer" in ended.stderr
