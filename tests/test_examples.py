"""The examples run as they stand there, on scripted GPUs (serve.py: test_attach.py; the notebook: test_notebook.py)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from cufall_py import Recording
from tests.helpers import lacking
from tests.scripted import ROOT, environment, script

EXAMPLES = ROOT / "examples"


def example(folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one in a folder, with a source of scripted GPUs, half busy."""
    line = [sys.executable, str(EXAMPLES / name), "--source", script(folder), *words]
    return subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True, timeout=100)


def test_a_training_loop_is_measured_phase_by_phase(tmp_path: Path) -> None:
    done = example(tmp_path, "training_loop.py", "--steps", "60", "--record", "train.cufall")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\w+): tensor 50\.00 % of the peak, (?:9[5-9]|100) % of the time", done.stdout, re.MULTILINE)
    assert found == ["forward", "backward", "update"]
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 2 and losses[1] < losses[0]
    assert {name: len(times) for name, times in Recording(tmp_path / "train.cufall").regions().items()} == {
        "forward": 60,
        "backward": 60,
        "update": 60,
    }


@pytest.mark.parametrize("name", ["training_loop.py", "gemm_bench.py"])
def test_what_cannot_be_sampled_is_told_in_a_line(name: str, tmp_path: Path) -> None:
    done = example(tmp_path, name, "--source", "script:gone.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("--source script:gone.json: ") and done.stderr.count("\n") == 1


def test_a_training_loop_goes_to_a_tracker(tmp_path: Path) -> None:
    if not find_spec("tensorboardX"):
        lacking("needs tensorboardX: pip install tensorboardX")
    done = example(tmp_path, "training_loop.py", "--steps", "60", "--tracker", "tensorboard")
    assert done.returncode == 0, done.stderr
    (events,) = tmp_path.glob("runs/*/*")
    assert b"cufall/gpu0/tensor.mean" in events.read_bytes()


def test_a_benchmark_tells_each_size_and_judges_it(tmp_path: Path) -> None:
    words = ("--sizes", "64,128", "--seconds", "0.3")
    done = example(tmp_path, "gemm_bench.py", *words, "--require", "tensor.mean >= 49%")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["size"] for line in lines] == [64, 128]
    for line in lines:
        assert line["tensor"] == pytest.approx(0.5)
        assert line["tflops"] > 0
        assert line["requirements"] == ["GPU 0: tensor.mean >= 49%: held"]
    assert example(tmp_path, "gemm_bench.py", *words, "--require", "tensor.mean >= 51%").returncode == 3
    assert example(tmp_path, "gemm_bench.py", *words, "--require", "dram.mean >= 51%").returncode == 4


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of the FastAPI example behind uvicorn."""
    words = ["--app-dir", str(EXAMPLES), "--port", "0", "fastapi_middleware:app"]
    with subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *words],
        env=environment(CUFALL_SOURCE=script(folder)),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr
            yield next(found[0] for line in process.stderr if (found := re.findall(r"http://[\d.]+:\d+", line)))
        finally:
            process.terminate()
            process.communicate(timeout=20)


def asked(url: str, method: str = "GET") -> dict[str, Any]:
    with urlopen(Request(url, method=method), timeout=30) as answer:
        return dict(json.load(answer))


def test_a_middleware_makes_regions_of_requests(tmp_path: Path) -> None:
    for module in ("fastapi", "uvicorn"):
        if not find_spec(module):
            lacking(f"needs {module}: pip install {module}")
    with serving(tmp_path) as url, ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda path: asked(f"{url}{path}", "POST"), ["/embed", "/score"] * 2))
        assert answers == [{"dimensions": 1024}, {"score": 0.5}] * 2
        for region in ("/embed", "/score", "wait%20for%20the%20model", "compute"):
            busy = asked(f"{url}/busy?region={region}")
            assert (busy["mean"], busy["coverage"]) == (pytest.approx(0.5), pytest.approx(1.0))
            assert 20 <= busy["samples"] < 100
        assert asked(f"{url}/busy?metric=dram")["mean"] == 0
        with pytest.raises(HTTPError, match="404"):
            asked(f"{url}/busy?region=none")
