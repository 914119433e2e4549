"""Sampling under another interpreter than the program that attaches, which has no cupti."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .measure import ROOT, environment, note

pytestmark = pytest.mark.gpu
NEEDED = ("click", "numpy")
PROGRAM = """
import importlib.util, json
assert importlib.util.find_spec("cupti") is None
from cufall_py import Plan
from cufall_py.session import LiveSession
with LiveSession(Plan(devices="0")) as session:
    frames = [frame.mean.tolist() for frame in session.frames(1.0)]
    print(json.dumps([frames, session.gpus[0].opened.facts]))
"""


@pytest.fixture
def without_cupti() -> dict[str, str]:
    """An environment in which this Python finds cufall and its needs, but no cupti."""
    bare = environment(PYTHONPATH=str(ROOT))
    code = (
        f"import importlib.util as u; print(u.find_spec('cupti') is None, all(u.find_spec(name) for name in {NEEDED}))"
    )
    told = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True).stdout.split()
    if told != ["True", "True"]:
        pytest.skip("cupti is installed in this Python itself; put it on PYTHONPATH only, and numpy and click not")
    return bare


@pytest.fixture
def other_python(tmp_path: Path) -> str:
    """A Python that finds cupti where this one does, but not this checkout."""
    spec = importlib.util.find_spec("cupti")
    assert spec and spec.submodule_search_locations
    site = Path(next(iter(spec.submodule_search_locations))).parent
    script = tmp_path / "python-with-cupti"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_sampling_runs_under_the_python_that_is_named(without_cupti: dict[str, str], other_python: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=without_cupti | {"CUFALL_PYTHON": other_python},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    frames, facts = json.loads(done.stdout)
    note("another interpreter", frames=len(frames), facts=facts)
    assert len(frames) >= 9


def test_without_any_it_says_how_to_get_one(without_cupti: dict[str, str]) -> None:
    command = [sys.executable, "-m", "cufall_py", "--duration-sec", "1"]
    env = without_cupti | {"PATH": "/nowhere"}
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pipx install" in done.stderr and len(done.stderr.splitlines()) == 1
