"""cufall in PyTorch's environment, which pins another CUPTI: it samples under another interpreter, and no CUPTI but
PyTorch's gets into the program.

Needs two environments, which `.ci/run` makes. CUFALL_TEST_TORCH names the Python of one with PyTorch,
nvidia-cuda-cupti 13.0 and cufall without its extra; CUFALL_TEST_GPU that of one with cupti-python.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import lacking
from tests.scripted import ROOT, script
from tests.servers import Running, serving

pytestmark = pytest.mark.torch

LINE = "import runpy; runpy.run_module('cufall_py', run_name='__main__')"
"""The command line, in this process."""
TENSORS = "import torch; a = torch.ones(400, 400)\nfor _ in range(200): a = a @ a / 400\nprint(float(a.sum()))"
SESSION = """
import json, sys, time
import cufall_py
from cufall_py.engines.drive import Work, drive

url, source, path = sys.argv[1:]
with cufall_py.attach(url, source=source, sample_us=1000, record=path) as attached:
    with attached.region("two at once"):
        drive(url, 2, Work(prompt_tokens=10, output_tokens=100, requests=4))
        torch.ones(400, 400) @ torch.ones(400, 400)
    held = [judgement.outcome for judgement in attached.require('tensor.mean["two at once"] >= 49%')]
    print(json.dumps([cufall_py.__file__, attached.summary("two at once").mean, held]))
"""


@dataclass(frozen=True)
class Environments:
    """PyTorch's Python, one that hands all to a Python with cupti-python and notes it in `log`, and a folder."""

    torch: str
    other: str
    log: Path
    folder: Path

    def run(self, code: str, *words: str, **variables: str) -> tuple[str, dict[str, Any]]:
        """What a program in PyTorch's environment prints, and what was seen of CUPTI in its process."""
        seen = self.folder / "seen.json"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CUFALL_TEST_"))}
        done = subprocess.run(
            [self.torch, str(ROOT / "tests" / "beside_torch.py"), str(seen), code, *words],
            cwd=self.folder,
            env={**clean, "CUFALL_PYTHON": self.other, **variables},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, json.loads(seen.read_text())


@pytest.fixture
def environments(tmp_path: Path) -> Environments:
    names = ("CUFALL_TEST_TORCH", "CUFALL_TEST_GPU")
    if not all(name in os.environ for name in names):
        lacking(f"needs the environments that {' and '.join(names)} name; .ci/run makes them")
    torch, gpu = (os.environ[name] for name in names)
    log, other = tmp_path / "log", tmp_path / "other-python"
    other.write_text(f'#!/bin/sh\necho "$4" >>{log}\nexec {gpu} "$@"\n')
    other.chmod(0o755)
    return Environments(torch, str(other), log, tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with serving(tmp_path, "--decode-ms", "5") as running:
        yield running


def clean(seen: dict[str, Any]) -> None:
    """PyTorch's CUPTI was there first, and no other came."""
    assert seen["pinned"].startswith("13.0.")
    assert any("libcupti" in path for path in seen["first"])
    assert seen["later"] == []


def test_the_environments_are_what_is_meant(environments: Environments) -> None:
    find = "import sys, importlib.util as u; print(*(u.find_spec(name) is not None for name in sys.argv[1:]))"
    found, seen = environments.run(find, "cupti", "torch", "cufall_py")
    assert found.split() == ["False", "True", "True"]
    assert seen["pinned"].startswith("13.0.")
    other = subprocess.run([environments.other, "-c", "import cupti, cuda.bindings"], capture_output=True, text=True)
    assert other.returncode == 0, other.stderr
    print(f"torch {seen['torch']}, nvidia-cuda-cupti {seen['pinned']}")


def test_importing_it_starts_and_loads_nothing(environments: Environments) -> None:
    _, seen = environments.run("import cufall_py")
    clean(seen)
    assert not environments.log.exists()


def test_a_program_attaches(environments: Environments, server: Running) -> None:
    out, seen = environments.run(SESSION, server.url, script(environments.folder, gpus=2), "run.cufall")
    file, mean, outcomes = json.loads(out)
    assert not Path(file).is_relative_to(ROOT)  # it is the one that is installed there
    assert (mean, outcomes) == (pytest.approx(0.5), ["held", "held"])
    assert "launch:sample" in environments.log.read_text()
    clean(seen)


def test_the_command_line_attaches(environments: Environments, server: Running) -> None:
    words = ("attach", server.url, "--source", script(environments.folder, gpus=2), "--duration-sec", "1.5", "--json")
    out, seen = environments.run(LINE, *words)
    (one,) = json.loads(out)["servers"]
    assert (one["engine"], one["gpus"]) == ("vLLM", [0, 1])
    assert "launch:sample" in environments.log.read_text()
    clean(seen)


def test_it_records_pytorch_and_reports(environments: Environments) -> None:
    words = ("record", "--source", script(environments.folder), "-o", "run.cufall", "--cooldown-sec", "0.3")
    out, seen = environments.run(LINE, *words, "--", environments.torch, "-c", TENSORS)
    assert out == "160000.0\n"  # 400 x 400 ones, as many products as it likes
    assert "launch:sample" in environments.log.read_text()
    clean(seen)
    environments.log.unlink()
    out, seen = environments.run(LINE, "report", "run.cufall", "--json", "--html", "page.html")
    (recording,) = json.loads(out)["recordings"]
    assert "command" in [scope["region"] for scope in recording["scopes"]]
    assert (environments.folder / "page.html").stat().st_size > 10_000
    assert not environments.log.exists()  # a file is read here
    clean(seen)


def test_cupti_is_asked_with_the_libraries_that_belong_to_it(environments: Environments) -> None:
    """In the other process, though PyTorch's were loaded here."""
    out, seen = environments.run(f"try:\n    {LINE}\nexcept SystemExit: pass", "doctor", "--json")
    (found,) = (finding for finding in json.loads(out)["findings"] if finding["topic"] == "cupti")
    assert found["state"] == "ok", found
    assert str(Path(environments.torch).parent.parent) not in found["text"]
    assert "nvidia-cuda-cupti 13.0" not in found["text"]
    clean(seen)


def test_a_cupti_that_is_loaded_would_be_seen(environments: Environments) -> None:
    ask = "import importlib.util as u; print(*u.find_spec('nvidia').submodule_search_locations)"
    where = subprocess.run([environments.other, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    (library,) = Path(where).glob("*/lib/libcupti.so.13")
    _, seen = environments.run("import ctypes, sys; ctypes.CDLL(sys.argv[1])", str(library))
    assert seen["later"] == [str(library.resolve())]


def test_a_cupti_that_is_imported_would_be_seen(environments: Environments) -> None:
    (environments.folder / "cupti.py").touch()
    _, seen = environments.run("import cupti", PYTHONPATH=str(environments.folder))
    assert seen["later"] == ["cupti"]
