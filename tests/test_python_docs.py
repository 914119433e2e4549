"""The Python of docs/python.md and of the README runs as it stands there, beside a server and on scripted GPUs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cufall_py
import cufall_py.sinks
from cufall_py import Plan, Recording
from cufall_py.attaching import Session, attach
from tests.scripted import ROOT, script
from tests.servers import Running, serving
from tests.test_sinks import Kept

BLOCKS, README = (
    re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    for page in (ROOT / "docs" / "python.md", ROOT / "README.md")
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def names(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the examples may call, and scripted GPUs instead of this machine's."""
    monkeypatch.chdir(tmp_path)
    source = script(tmp_path)

    def work() -> None:
        server.driven(1, 0.5, prompt=10, output=20)
        time.sleep(1.5)

    monkeypatch.setitem(vars(cufall_py), "attach", lambda _: attach(server.url, source=source, sample_us=1000))
    gpus = lambda **more: Session(source=source, sample_us=1000, **more)  # noqa: E731
    monkeypatch.setitem(vars(cufall_py), "Session", gpus)
    monkeypatch.setitem(vars(cufall_py), "Plan", lambda **more: Plan(source=source, **{"sample_us": 1000, **more}))
    return {"run_warm_up": work, "run_benchmark": work, "train_step": lambda: time.sleep(0.1)}


def test_beside_the_programs_own_work(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[0], names)
    frame, figures, *judged = capsys.readouterr().out.splitlines()
    assert frame == "[[0.5 0.  0. ]]"
    assert float(figures.split()[0]) == pytest.approx(0.5)
    assert [line.split()[0] for line in judged] == ["held", "held"]
    assert {*Recording("run.cufall").regions()} == {"warm-up", "benchmark"}
    assert len(names["table"]) > 10


def test_beside_a_server(server: Running, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    names["run_benchmark"] = lambda: server.driven(2, 4.5, prompt=10, output=20)
    exec(BLOCKS[1], names)
    running, *lines = capsys.readouterr().out.splitlines()
    assert float(running) in (0, 1, 2)
    assert [line.split()[0] for line in lines[:2]] == ["held", "held"]
    by_running = [line.split() for line in lines[2:]]
    assert any(int(least) == 2 and float(tokens) > 20 for least, tokens, _ in by_running)
    assert {tensor for _, _, tensor in by_running} == {"0.5"}
    assert {"running", "generation_tokens_per_s"} <= {*names["table"].columns}


def test_in_asyncio(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[2], names)
    assert float(capsys.readouterr().out.split()[-1]) == pytest.approx(0.5)


def test_a_stretch_at_once(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[3], names)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [[str(k), "0.5"] for k in range(3)]


def test_frames(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[4], names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    assert all("[[0.5 0. ]]" in line for line in lines)
    assert os.path.exists("frames.cufall")


def test_a_sink(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    monkeypatch.setattr(cufall_py.sinks, "MlflowSink", lambda: kept)
    exec(BLOCKS[5], names)
    assert len(kept.windows) >= 2 and kept.windows[0][2]["cufall/gpu0/tensor.mean"] == pytest.approx(0.5)


def test_a_sink_of_ones_own(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[6], names)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == [["1", "0.5"], ["2", "0.5"]]


def test_all_of_them_are_run() -> None:
    assert len(BLOCKS) == 7


def test_the_readmes(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    program, reading = README[-2:]
    exec(program, {**names, "decode": lambda tokens: time.sleep(0.5)})
    assert capsys.readouterr().out.split()[0] == "0.5"
    exec(reading, names)
    assert capsys.readouterr().out.startswith("0 [")
