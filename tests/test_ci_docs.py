"""docs/ci.md: its files can be read by what reads them, and its lines run as they stand there, on scripted GPUs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from tests.helpers import lacking
from tests.scripted import ROOT, environment, script

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
CUFALL = """#!/bin/sh
[ "$1" = doctor ] && exit 0
exec "{python}" -m cufall_py "$@"
"""
STUBS = {
    "pipx": "exit 0",
    "apt-get": "exit 0",
    "logger": 'cat "$4" > logged',
    "ssh": 'shift; mkdir -p remote; cd remote; exec sh -c "$*"',
}
"""What the lines need of their machine. ssh joins its words and starts a shell, as the real one does."""


def blocks(language: str) -> Iterator[str]:
    return (found[1] for found in re.finditer(rf"```{language}\n(.*?)```", PAGE, re.DOTALL))


class Machine:
    """A folder with a bench.py, and all that the page's lines ask for on the PATH."""

    def __init__(self, folder: Path, tensor: float) -> None:
        self.folder = folder / "checkout"
        programs = folder / "bin"
        for made in (self.folder, programs):
            made.mkdir()
        (self.folder / "bench.py").write_text("import time; time.sleep(0.4); print('done')")
        stubs = {name: f"#!/bin/sh\n{text}\n" for name, text in STUBS.items()}
        stubs["cufall"] = CUFALL.format(python=sys.executable)
        for name, text in stubs.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self._environment = environment(
            PATH=f"{programs}:{os.environ['PATH']}",
            HOME=str(folder),
            CUFALL_SOURCE=script(folder, pattern=[{"ms": 1000, "tensor": tensor, "gr": 0.9}]),
            GITHUB_ACTIONS="true",
            GITHUB_PATH=str(folder / "path"),
            GITHUB_STEP_SUMMARY=str(folder / "summary.md"),
        )

    def run(self, line: str, *shell: str) -> subprocess.CompletedProcess[str]:
        """In the shell that GitHub and GitLab have, which ends at the first error, or in another."""
        words = [*(shell or ("bash", "-e")), "-c", line]
        return subprocess.run(words, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=60)


def github() -> dict[str, Any]:
    (found,) = [text for text in blocks("yaml") if "runs-on" in text]
    document: dict[str, Any] = yaml.safe_load(found)
    return document


def gitlab() -> dict[str, Any]:
    (found,) = [text for text in blocks("yaml") if "script:" in text]
    document: dict[str, Any] = yaml.safe_load(found)
    return document


@pytest.mark.parametrize("tensor, code", [(0.5, 0), (0.1, 3)])
def test_the_job_of_github_ends_as_what_was_measured_has_it(tmp_path: Path, tensor: float, code: int) -> None:
    machine = Machine(tmp_path, tensor)
    job = github()["jobs"]["tensor"]
    ended = {step["run"]: machine.run(step["run"]) for step in job["steps"] if "run" in step}
    judged = {line: done for line, done in ended.items() if "--require" in line}
    assert [done.returncode for done in judged.values()] == [code], judged
    assert [done.returncode for line, done in ended.items() if line not in judged] == [0] * (len(ended) - 1), ended
    ((step, done),) = judged.items()
    missed = "\n::error title=cufall%3A missed::tensor.mean >= 30%25 on GPU 0 "
    assert (missed in f"\n{done.stderr}") == (code == 3)
    summary = (tmp_path / "summary.md").read_text()
    assert (summary.count("## run.cufall: "), summary.count("### Requirements")) == (1, 1)
    result = json.loads((machine.folder / "result.json").read_text())
    assert (result["exit_code"], len(result["requirements"])) == (code, step.count("--require"))
    (upload,) = [step["with"]["path"] for step in job["steps"] if "upload" in step.get("uses", "")]
    assert all((machine.folder / name).stat().st_size for name in upload.split())


def test_the_job_of_github_asks_for_what_it_needs() -> None:
    """YAML reads `on` as true."""
    job = github()
    assert (job[True], job["permissions"]) == (["pull_request"], {"contents": "read"})
    tensor = job["jobs"]["tensor"]
    assert "gpu" in tensor["runs-on"]
    assert {"--gpus", "SYS_ADMIN"} <= set(tensor["container"]["options"].split())
    assert all(set(step) <= {"name", "if", "run", "uses", "with"} for step in tensor["steps"])


@pytest.mark.parametrize("tensor, code", [(0.5, 0), (0.1, 3)])
def test_the_job_of_gitlab_leaves_a_junit_report(tmp_path: Path, tensor: float, code: int) -> None:
    machine, job = Machine(tmp_path, tensor), gitlab()["tensor"]
    ended = [machine.run(line) for line in job["script"]]
    assert [done.returncode for done in ended] == [0, code], ended
    report = ET.parse(machine.folder / job["artifacts"]["reports"]["junit"]).getroot()
    assert (report.get("tests"), report.get("failures")) == ("2", "1" if code else "0")
    assert all((machine.folder / name).exists() for name in job["artifacts"]["paths"])
    assert job["allow_failure"] == {"exit_codes": [4]}


def test_the_lines_against_a_baseline_tell_a_change_from_none(tmp_path: Path) -> None:
    (lines,) = blocks("bash")
    folders = [tmp_path / name for name in ("before", "after")]
    for folder in folders:
        folder.mkdir()
    before, after = Machine(folders[0], 0.5), Machine(folders[1], 0.4)
    record = lines.splitlines()[0]
    assert before.run(record).returncode == 0
    for made in before.folder.glob("new*.cufall"):
        for machine in (before, after):
            (machine.folder / made.name.replace("new", "base")).write_bytes(made.read_bytes())
    same, lower = before.run(lines), after.run(lines)
    assert (same.returncode, lower.returncode) == (0, 3), (same, lower)
    (found,) = [f for f in json.loads((after.folder / "compare.json").read_text())["findings"] if f["limit"]]
    assert (found["outcome"], round(found["change"], 2)) == ("beyond", -0.2)


@pytest.mark.parametrize("tensor, held", [(0.5, True), (0.1, False)])
def test_the_makefile_measures_once_and_judges_each_time(tmp_path: Path, tensor: float, held: bool) -> None:
    if not which("make"):
        lacking("needs make: apt-get install -y make")
    machine = Machine(tmp_path, tensor)
    (makefile,) = blocks("make")
    (machine.folder / "Makefile").write_text(makefile)
    first, second = machine.run("make tensor"), machine.run("make tensor")
    assert (first.returncode, second.returncode) == ((0, 0) if held else (2, 2)), first
    assert "cufall record" in first.stdout and "cufall record" not in second.stdout


@pytest.mark.parametrize("tensor, held", [(0.5, True), (0.01, False)])
def test_the_line_for_cron_records_and_tells_what_missed(tmp_path: Path, tensor: float, held: bool) -> None:
    (table,) = blocks("crontab")
    variable, line = table.splitlines()
    assert re.fullmatch(r"PATH=\S+", variable)
    *when, command = line.split(" ", 5)
    assert all(re.fullmatch(r"\*(/\d+)?", field) for field in when)
    assert not re.search(r"(?<!\\)%", command)  # cron would end the command there
    machine = Machine(tmp_path, tensor)
    command = command.replace(r"\%", "%").replace("/var/log/cufall", ".").replace("sec 60", "sec 1")
    assert machine.run(command, "sh").returncode == 0
    (recording,) = machine.folder.glob("*.cufall")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-\d{4}", recording.stem)
    logged = machine.folder / "logged"
    assert logged.exists() != held
    assert held or json.loads(logged.read_text())["exit_code"] == 3


def test_the_lines_for_ssh_bring_the_exit_code_and_the_data_here(tmp_path: Path) -> None:
    (lines,) = blocks("sh")
    machine = Machine(tmp_path, 0.1)
    short = re.sub(r"sec \d+", "sec 1", lines).splitlines()
    judged, copied, watched = (machine.run(line, "sh") for line in short)
    assert judged.stdout.endswith("ended with 3\n"), judged
    assert copied.returncode == 0 and "10.0%" in copied.stdout, copied
    assert watched.returncode == 0
    assert (machine.folder / "now.csv").read_text().startswith("time,start_ns,gpu")
