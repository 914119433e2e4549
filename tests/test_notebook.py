"""What a notebook shows, and examples/notebook.ipynb as a kernel executes it."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cufall_py
from cufall_py import BackgroundSession, Plan
from cufall_py.attachment import Attachment
from tests import chromium
from tests.helpers import lacking
from tests.scripted import ROOT, script

EXAMPLES = ROOT / "examples"
METRICS = ("tensor", "sm", "gr", "dram", "issue", "fma", "alu", "launches")


@pytest.fixture(scope="module")
def session() -> Iterator[Attachment]:
    """Closed, with a region `some <b>` of both scripted GPUs."""
    source = f"script:{EXAMPLES}/two-gpus.json"
    with cufall_py.Session(source=source, metrics=METRICS) as attached, attached.region("some <b>"):
        time.sleep(1.6)
    yield attached


def cells(html: str) -> list[list[str]]:
    """The cells of a table, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_a_session_shows_its_regions_gpu_by_gpu(session: Attachment) -> None:
    head, *rows = cells(session._repr_html_())
    assert head == ["region", "gpu", "verdict", "seconds", *METRICS, "coverage", "samples"]
    assert [row[:2] for row in rows] == [
        ["everything", "g0"],
        ["", "g1"],
        ["", "all"],
        ["some &lt;b&gt;", "g0"],
        ["", "g1"],
        ["", "all"],
    ]
    second = dict(zip(head, rows[4], strict=True))
    assert (second["verdict"], second["tensor"], second["launches"]) == ("launch-bound", "0.34%", "85000")
    assert float(second["seconds"]) == pytest.approx(1.6, abs=0.3)


def test_statistics_and_verdicts_show_themselves(session: Attachment) -> None:
    head, row = cells(session.summary("some <b>", "dram", gpu=1)._repr_html_())
    assert dict(zip(head, row, strict=True)) | {"samples": "", "coverage": ""} == {
        "metric": "dram",
        **dict.fromkeys(("mean", "min", "p5", "p50", "p95", "max"), "4.50%"),
        "coverage": "",
        "samples": "",
    }
    shown = session.verdict("some <b>", gpu=1)._repr_html_()
    assert shown.startswith("<b>launch-bound</b><table")
    assert cells(shown)[1][0] == "launch-bound"


def test_what_a_verdict_lacks_is_told(tmp_path: Path) -> None:
    source = script(tmp_path, pattern=[{"ms": 1000, "tensor": 0.05, "sm": 0.5, "gr": 0.9}])
    with cufall_py.Session(source=source, metrics=("tensor", "sm", "gr")) as attached:
        time.sleep(0.5)
        shown = attached.verdict()._repr_html_()
    assert shown.startswith("<b>unknown</b>; missing: ")


def test_a_measured_stretch_shows_itself(tmp_path: Path) -> None:
    with BackgroundSession(Plan(source=script(tmp_path), sample_us=1000)) as background:
        with background.region("forward <1>") as measured:
            time.sleep(0.2)
            assert measured._repr_html_() == "forward &lt;1&gt; is still being measured"
        head, row = cells(measured._repr_html_())
    assert (head[:2], row[:2]) == (["region", "gpu"], ["forward &lt;1&gt;", "g0"])
    assert row[head.index("tensor")] == "50.0%"


def test_frames_beside_no_server_are_a_table_without_servers(session: Attachment) -> None:
    table = session.to_pandas()
    assert [*table.columns] == ["time", "gpu", *METRICS, "coverage"]
    assert {*table["gpu"]} == {0, 1} and len(table) >= 2 * 14


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tables_have_no_colours_of_their_own_and_numbers_stand_to_the_right(
    session: Attachment, scheme: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(f'<!doctype html><meta name="color-scheme" content="light dark">{session._repr_html_()}')
    asked = """[...document.querySelectorAll("td")].map((cell) => {
        const style = getComputedStyle(cell);
        return [style.color, style.backgroundColor, style.textAlign];
    })"""
    with chromium.tab(tmp_path / "home") as tab:
        tab.prefer(scheme)
        tab.open(page)
        found = tab.run(asked)
    text = "rgb(0, 0, 0)" if scheme == "light" else "rgb(255, 255, 255)"
    assert {(colour, behind) for colour, behind, _ in found} == {(text, "rgba(0, 0, 0, 0)")}
    row = [side for _, _, side in found[: len(METRICS) + 6]]
    assert row == ["left"] * 3 + ["right"] * (len(METRICS) + 3)


def test_the_notebook_is_kept_without_what_it_put_out() -> None:
    kept = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    code = [cell for cell in kept["cells"] if cell["cell_type"] == "code"]
    assert len(code) > 8
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


def test_the_notebook_runs_and_shows_tables_and_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nbclient", "ipykernel", "matplotlib"):
        if not find_spec(module):
            lacking(f"needs {module}: pip install {module}")
    for name in ("notebook.ipynb", "two-gpus.json", "serve.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    shown = [output for cell in executed(tmp_path) for output in cell.get("outputs", ())]
    assert [output for output in shown if output["output_type"] == "error"] == []
    tables = [html for output in shown if (html := output.get("data", {}).get("text/html"))]
    of_session, statistics, verdict, _, served = tables
    assert [row[0] for row in cells(of_session) if row[0]] == ["region", "everything", "warm-up", "benchmark"]
    assert cells(statistics)[1][0] == "tensor"
    assert verdict.startswith("<b>launch-bound</b>")
    assert "<h4>http://127.0.0.1" in served and "gen tok/s" in served and "4 at once" in served
    assert any("image/png" in output.get("data", {}) for output in shown)
    printed = "".join(output["text"] for output in shown if output["output_type"] == "stream")
    assert printed.count("held") == 3
    assert (tmp_path / "notebook.cufall").exists()


def executed(folder: Path) -> list[Any]:
    """The cells of the notebook in this folder after a kernel has executed all of them there."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(folder / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(folder)}}).execute()
    return list(notebook.cells)
