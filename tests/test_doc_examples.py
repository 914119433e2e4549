"""Command lines of the docs run as they stand there, on scripted GPUs where they would take real ones (the jobs of
docs/ci.md: test_ci_docs.py)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cufall_py import Plan, Wanted
from cufall_py.session import LiveSession
from tests.scripted import ROOT, environment, script

Shell = Callable[[str], "subprocess.CompletedProcess[str]"]
DOCS = ROOT / "docs"
PAGES = ("ci.md", "report.md", "report-html.md")
BUSY = [{"ms": 1000, "tensor": 0.62, "sm": 0.95, "gr": 0.99, "dram": 0.35}]
BENCH = "import time; time.sleep(0.5); print('a line of the benchmark')\n"


@pytest.fixture
def source(tmp_path: Path) -> str:
    return script(tmp_path, gpus=2, pattern=BUSY)


@pytest.fixture
def shell(tmp_path: Path, source: str) -> Shell:
    """A folder with `bench.py` and the examples, and `cufall` and `python` to be called there."""
    here, programs = tmp_path / "here", tmp_path / "programs"
    for folder in (here, programs):
        folder.mkdir()
    for name, words in (("cufall", "-m cufall_py"), ("python3", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    (here / "bench.py").write_text(BENCH)
    (here / "examples").symlink_to(ROOT / "examples")
    variables = environment(PATH=f"{programs}:/usr/bin:/bin", CUFALL_SOURCE=source, CUFALL_DECODE_US="50000")

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", line], env=variables, cwd=here, capture_output=True, text=True)

    return run


def commands(page: str) -> list[str]:
    """What is typed, of a page."""
    lines = re.findall(r"^    (cufall .*)$", (DOCS / page).read_text(), re.MULTILINE)
    return [line.partition("  # ")[0].rstrip() for line in lines]


@pytest.fixture
def recordings(source: str, tmp_path: Path, shell: Shell) -> None:
    """What the lines of `report` read: two GPUs, with a region `prefill`."""
    plan = Plan(source=source, wanted=Wanted(("tensor", "dram")), frame_us=50_000, sample_us=1000, decode_us=50_000)
    with LiveSession(plan) as session:
        session.record(tmp_path / "here" / "run.cufall")
        with session.region("prefill"):
            for _ in session.frames(0.3):
                pass
    for name in ("a", "b"):
        shutil.copy(tmp_path / "here" / "run.cufall", tmp_path / "here" / f"{name}.cufall")


@pytest.mark.parametrize("line", [line for page in PAGES for line in commands(page) if " report " in line])
def test_a_line_of_report_runs(line: str, shell: Shell, recordings: None) -> None:
    ended = shell(line)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


@pytest.mark.parametrize("line", [line for page in PAGES for line in commands(page) if " record " in line])
def test_a_line_of_record_runs(line: str, shell: Shell, tmp_path: Path) -> None:
    ended = shell(line.replace("--duration-sec 30", "--duration-sec 0.5"))
    assert ended.returncode == (3 if "eight-gpus" in line else 0), ended.stderr
    assert [*(tmp_path / "here").glob("*.cufall")]
