"""`cufall doctor`, run as a shell runs it, on this machine, whatever it has."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cufall_py.cli.options import in_colour
from tests.scripted import ROOT, command, cufall, environment, soon, start, together

STATES = {"ok", "warning", "problem", "unknown"}
TOPICS = ["platform", "driver", "cupti", "mig", "vgpu", "confidential", "permission", "owner"]


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_it_ends_as_it_says(ring_dir: Path) -> None:
    text, document = together([(["doctor"], {}), (["doctor", "--json"], {})])
    told = json.loads(document.stdout)
    assert told["schema"] == 1
    assert [finding["topic"] for finding in told["findings"]][: len(TOPICS)] == TOPICS
    assert {finding["state"] for finding in told["findings"]} <= STATES
    assert (text.returncode, document.returncode) == (0 if told["can_measure"] else 1,) * 2
    assert (text.stderr, document.stderr) == ("", "")
    lines = text.stdout.splitlines()
    assert lines[0].startswith("This machine can")
    assert sum(line.startswith("Next: ") for line in lines) == 1
    assert not ring_dir.exists()


@pytest.mark.skipif(has_driver(), reason="needs a machine without an NVIDIA driver")
def test_without_a_driver_that_is_the_thing_to_do() -> None:
    told = json.loads(cufall("doctor", "--json").stdout)
    assert (told["can_measure"], told["sources"]) == (False, {"cupti": [], "gpm": []})
    assert told["answer"].startswith("This machine cannot measure (driver: no NVIDIA driver here")
    assert "driver" in told["next_step"] or "container" in told["next_step"]


def test_a_python_that_cannot_sample_is_a_finding(tmp_path: Path) -> None:
    pythons = {
        str(tmp_path / "missing"): "No such file or directory",
        script(tmp_path / "crashes", "kill -SEGV $$"): "ended by Segmentation fault",
        script(tmp_path / "talks", "echo hello"): "gave no answer",
        script(tmp_path / "lies", "echo '[1, 2]'"): "cannot be understood",
        script(tmp_path / "bare", f"exec {sys.executable} -S -E \"$@\""): "numpy|cupti",
    }  # fmt: skip
    for ended, why in zip(
        together([(["doctor", "--json"], {"CUFALL_PYTHON": python}) for python in pythons]),
        pythons.values(),
        strict=True,
    ):
        (found,) = [f for f in json.loads(ended.stdout)["findings"] if f["topic"] == "cupti"]
        assert (found["state"], ended.stderr) == ("problem", "")
        assert re.search(why, found["text"]), found
        assert found["fix"]


def test_where_stdout_goes_is_its_own_trouble() -> None:
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command("doctor")], env=environment(), capture_output=True, text=True
    )
    assert (closed.returncode, closed.stderr) == (1, "cufall: stdout is closed, and the findings go there\n")
    full = subprocess.run(
        ["sh", "-c", 'exec "$@" >/dev/full', "sh", *command("doctor")],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (full.returncode, full.stderr) == (1, "cufall: cannot write stdout: No space left on device\n")
    process = start("doctor")
    assert process.stdout and process.stderr
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (141, "")
    process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_all_it_started(number: signal.Signals, tmp_path: Path) -> None:
    hangs = script(tmp_path / "hangs", "sleep 1000 & wait")
    process = start("doctor", env=environment(CUFALL_PYTHON=hangs))
    soon(lambda: [p for p in psutil.Process(process.pid).children(recursive=True) if p.name() == "sleep"])
    time.sleep(0.3)
    process.send_signal(number)
    out, error = process.communicate(timeout=20)
    assert (process.returncode, out, error) == (128 + number, "", "")


def on_terminal(columns: int, **variables: str) -> str:
    """What it draws on a terminal this wide."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        ["sh", "-c", f'stty cols {columns} rows 24; exec "$@"', "sh", *command("doctor")],
        stdin=child,
        stdout=child,
        env=environment(TERM="xterm-256color", **variables),
        cwd=ROOT,
    )
    os.close(child)
    seen = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(parent)
    process.wait(60)
    return seen.decode().replace("\r\n", "\n")


def test_on_a_terminal_it_is_coloured_and_fits() -> None:
    bare = {"NO_COLOR": "", "FORCE_COLOR": "", "CLICOLOR_FORCE": ""}
    seen = on_terminal(60, LC_ALL="C.UTF-8", **bare)
    assert "\x1b[1;3" in seen and "\x1b[32m✓\x1b[0m" in seen
    plain = re.sub(r"\x1b\[[\d;]*m", "", seen)
    assert "60 x 24" in plain
    assert all(len(line) <= 60 or len(line[16:].split()) == 1 for line in plain.splitlines())  # a path stays whole


def test_on_a_poor_terminal_it_is_plain_ascii() -> None:
    seen = on_terminal(80, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", NO_COLOR="1")
    assert seen.isascii() and "\x1b" not in seen
    assert re.search(r"^\+ cupti|^x driver|^\+ driver", seen, re.MULTILINE)


@pytest.mark.parametrize(
    ("asked", "environ", "terminal", "colour"),
    [
        (None, {"TERM": "xterm"}, True, True),
        (None, {"TERM": "xterm"}, False, False),
        (None, {"TERM": "dumb"}, True, False),
        (None, {}, True, False),
        (None, {"TERM": "xterm", "NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        (None, {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        (None, {"FORCE_COLOR": "1"}, False, True),
        (None, {"CLICOLOR_FORCE": "1"}, False, True),
        (None, {"TERM": "xterm", "FORCE_COLOR": "0"}, True, False),
        (True, {"NO_COLOR": "1"}, False, True),
        (False, {"TERM": "xterm", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_what_decides_on_colour(asked: bool | None, environ: dict[str, str], terminal: bool, colour: bool) -> None:
    assert in_colour(asked, environ, terminal) is colour


def test_sampling_options_are_not_its() -> None:
    assert cufall("doctor", "--frame-us", "1000").returncode == 2
    assert cufall("--devices", "0", "doctor").returncode == 2
