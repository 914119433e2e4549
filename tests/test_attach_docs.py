"""The Python of docs/attach.md runs as it stands there, beside a server and on scripted GPUs."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cufall_py
from cufall_py import Plan
from cufall_py.attaching import attach
from tests.scripted import ROOT, script
from tests.servers import Running, serving

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "attach.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def names(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the examples may call, and scripted GPUs instead of the server's."""
    monkeypatch.chdir(tmp_path)
    source = script(tmp_path)
    monkeypatch.setitem(vars(cufall_py), "attach", lambda _: attach(server.url, source=source, sample_us=1000))
    monkeypatch.setitem(vars(cufall_py), "Plan", lambda: Plan(source=source, sample_us=1000))
    work = lambda: time.sleep(1.2)  # noqa: E731
    return {"run_warm_up": work, "run_benchmark": work, "train_step": lambda: time.sleep(0.1)}


def test_attached(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[0], names)
    out = capsys.readouterr().out.split()
    assert float(out[1]) == pytest.approx(0.5)
    assert out.count("held") == 2
    assert os.path.exists("run.cufall")
    assert len(names["table"]) > 10


def test_in_asyncio(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[1], names)
    assert float(capsys.readouterr().out.split()[-1]) == pytest.approx(0.5)


def test_a_middleware(server: Running, names: dict[str, Any], tmp_path: Path) -> None:
    exec(BLOCKS[2], names)

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await asyncio.sleep(0.05)

    with cufall_py.attach(server.url) as session:
        wrapped = names["Regions"](app, session)
        for scope in ({"type": "http", "path": "/v1/completions"}, {"type": "lifespan"}):
            asyncio.run(wrapped(scope, None, None))
        assert session.summary("/v1/completions").samples > 20


def test_a_training_loop(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[3], names)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [[str(k), "0.5"] for k in range(3)]


def test_all_of_them_are_run() -> None:
    assert len(BLOCKS) == 4
