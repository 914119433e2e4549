"""Completion in real shells, through the scripts that are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cufall_py.cli import completion
from tests.helpers import lacking
from tests.scripted import ROOT, environment

SCRIPTS = ROOT / "completion"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose `cufall` is this checkout."""
    program = tmp_path / "bin" / "cufall"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cufall_py "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


BASH = """
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
function=$(complete -p cufall | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function cufall; printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
_describe() { print -l -- ${(P)3%%:*} }
compadd() { print -l -- ${(P)@[-1]} }
words=("${@:2}"); CURRENT=$#words
fpath=($1 $fpath); autoload -U _cufall; _cufall
"""
FISH = "source $argv[1]; complete -C $argv[2]"


def completed(shell: str, path: str, *words: str) -> list[str]:
    """The words that a shell offers for the last of these."""
    if not shutil.which(shell):
        lacking(f"needs {shell}: apt-get install {shell}")
    line = {
        "bash": ["bash", "--norc", "-c", BASH, "bash", str(SCRIPTS / "cufall.bash"), *words],
        "zsh": ["zsh", "-f", "-c", ZSH, "zsh", str(SCRIPTS), *words],
        "fish": ["fish", "--no-config", "-c", FISH, str(SCRIPTS / "cufall.fish"), " ".join(words)],
    }[shell]
    ended = subprocess.run(line, env=environment(PATH=path), capture_output=True, text=True, timeout=60)
    assert ended.stderr == ""
    return [word.split("\t")[0] for word in ended.stdout.split("\n") if word]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["me"], {"metrics"}),
        (["--me"], {"--metric"}),
        (["--metric", "tensor."], {"tensor.hmma", "tensor.imma", "tensor.dmma"}),
        (["live", "--width", "x", "--metric", "dr"], {"dram"}),
        (["live", "--trigger", ""], {"time", "sysclk"}),
        (["metrics", "occ"], {"occupancy"}),
    ],
)
def test_what_a_shell_offers(shell: str, path: str, words: list[str], offered: set[str]) -> None:
    assert set(completed(shell, path, "cufall", *words)) == offered


def test_all_that_can_come_first_is_offered(path: str) -> None:
    assert {"live", "metrics"} <= set(completed("bash", path, "cufall", ""))
    assert {"--version", "--help", "--frame-us", "--csv"} <= set(completed("bash", path, "cufall", "-"))


def test_sources_are_offered(path: str) -> None:
    assert {"cupti", "script:"} <= set(completed("bash", path, "cufall", "--source", ""))


def test_what_is_no_verb_is_no_error(path: str) -> None:
    completed("bash", path, "cufall", "xyzzy", "-")


def test_without_the_program_there_is_silence() -> None:
    line = ["bash", "--norc", "-c", f". {SCRIPTS / 'cufall.bash'}"]
    ended = subprocess.run(line, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_completion_loads_nothing_heavy() -> None:
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from cufall_py.cli import main; main()"
    asked = {"_CUFALL_COMPLETE": "bash_complete", "COMP_WORDS": "cufall --metric t", "COMP_CWORD": "2"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment(**asked), capture_output=True, text=True)
    assert "plain,tensor" in ended.stdout
    assert not {"numpy", "rich", "pandas", "pyarrow", "pynvml", "cupti"} & set(ended.stdout.split())


INFORMATION = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 66\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ["all", "0", "1", "GPU-aaaa", "GPU-bbbb"]),
        ("G", ["GPU-aaaa", "GPU-bbbb"]),
        ("0,", ["0,0", "0,1", "0,GPU-aaaa", "0,GPU-bbbb"]),
        ("0,GPU-b", ["0,GPU-bbbb"]),
        ("x", []),
    ],
)
def test_devices_are_those_that_the_drivers_files_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]
) -> None:
    for bus, uuid in (("0000:19:00.0", "GPU-aaaa"), ("0000:3b:00.0", "GPU-bbbb")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(INFORMATION.format(uuid=uuid))
    monkeypatch.setattr(completion, "GPUS", tmp_path)
    option = click.Option(["--devices"])
    found = completion.device_names(click.Context(click.Command("live")), option, typed)
    assert [item.value for item in found] == offered


@pytest.mark.parametrize(
    ("metavar", "typed", "offered"),
    [
        ("cupti|script:FILE", "", [("plain", "cupti"), ("plain", "script:")]),
        ("auto|cupti|FILE", "c", [("plain", "cupti")]),
        ("auto|cupti|FILE", "./x", [("file", "./x")]),
        ("cupti|script:FILE", "x", []),
    ],
)
def test_sources_are_the_words_of_the_option(metavar: str, typed: str, offered: list[tuple[str, str]]) -> None:
    option = click.Option(["--source"], metavar=metavar)
    found = completion.source_names(click.Context(click.Command("live")), option, typed)
    assert [(item.type, item.value) for item in found] == offered
