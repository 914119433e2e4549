"""`--help` in groups, with command lines that run as they stand there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cufall_py.cli import Verb
from cufall_py.cli.help import EXAMPLES, GROUPS, OTHERS, grouped
from cufall_py.cli.live import live
from cufall_py.cli.options import option
from tests.scripted import cufall, environment, script

PROGRAM = """#!/bin/sh
case $1 in
  -*) exec "{python}" -m cufall_py "$@" --source "{source}" --duration-sec 0.2 ;;
  *) exec "{python}" -m cufall_py "$@" ;;
esac
"""
"""The command of an example on scripted GPUs and for a moment; the last of a repeated option counts."""


@pytest.mark.parametrize("purpose", EXAMPLES)
def test_an_example_runs_as_it_stands(purpose: str, tmp_path: Path) -> None:
    program = tmp_path / "cufall"
    program.write_text(PROGRAM.format(python=sys.executable, source=script(tmp_path, gpus=2)))
    program.chmod(0o755)
    variables = environment(PATH=f"{tmp_path}:/usr/bin:/bin")
    ended = subprocess.run(["sh", "-c", EXAMPLES[purpose]], env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    written = tmp_path / "run.csv"
    assert ended.stdout or written.read_text().startswith("time,start_ns,gpu")


def test_the_examples_are_in_the_help() -> None:
    told = cufall("--help").stdout
    assert all(line in told for text in EXAMPLES.values() for line in text.splitlines())


def test_every_option_of_live_is_told_once_in_its_group() -> None:
    groups = grouped(live.params)
    assert list(groups)[:3] == ["Sampling", "Output", "Hardware"]
    told = [param.name for group in groups.values() for param in group]
    assert sorted(told) == sorted(param.name or "" for param in live.params)


def test_help_without_a_verb_has_lives_options_in_groups() -> None:
    told = cufall("--help").stdout
    titles = [line for line in told.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Commands:", "Sampling:", "Output:", "Hardware:", f"{OTHERS}:", "Examples:"]
    assert told.count("--help ") == 1


def test_an_option_without_a_group_comes_last() -> None:
    @click.command(cls=Verb)
    @option("--later", is_flag=True, help="Added later.")
    @option("--frame-us", help="Known.")
    def verb() -> None: ...

    told = CliRunner().invoke(verb, ["--help"]).output
    assert told.index("Sampling:") < told.index("--frame-us") < told.index(f"{OTHERS}:") < told.index("--later")


def test_options_of_no_group_alone_need_no_heading() -> None:
    @click.command(cls=Verb)
    @option("--later", is_flag=True, help="Added later.")
    def verb() -> None: ...

    assert "\nOptions:\n  --later" in CliRunner().invoke(verb, ["--help"]).output


def test_no_parameter_is_in_two_groups() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert len(set(names)) == len(names)
