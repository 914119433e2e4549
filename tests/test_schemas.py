"""The JSON that commands write is what the schemas in docs/schemas say, and no more."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from cufall_py import Playback, cli
from tests.helpers import EPOCH, SECOND
from tests.recordings import busy, counters, opened, phases, region, writer
from tests.scripted import ROOT, cufall, script

QUICK = ("--decode-us", "20000", "--frame-us", "20000")


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in cli.END_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def schema(name: str) -> Any:
    """As it is in the docs, but that what it does not tell of may not be there."""
    found = json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return closed(found)


def closed(part: Any) -> Any:
    if isinstance(part, list):
        return [closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    more = {"additionalProperties": False} if "properties" in part and "additionalProperties" not in part else {}
    return {**{name: closed(item) for name, item in part.items()}, **more}


def fits(name: str, text: str) -> Any:
    """The document, which is strict JSON and fits the schema of this name."""
    document = json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    jsonschema.Draft202012Validator(schema(name)).validate(document)
    return document


def run(capfd: pytest.CaptureFixture[str], *words: object) -> str:
    cli._run([*map(str, words)])
    return capfd.readouterr().out


def rich(path: Path) -> Path:
    """Two kinds of GPU, readings, a region, a metric that one lacks, and a file that is cut."""
    with writer(path, [opened(0), opened(2, counters(), "GB100")]) as out:
        region(out, "busy", EPOCH, EPOCH + SECOND)
        out.set_readings(0, 1500.0, 600.0, 4)
        for k in range(4):
            out.add(0, busy(EPOCH + k * SECOND, [0.5] * 1000))
            out.add(1, busy(EPOCH + k * SECOND, [0.1] * 1000))
    path.write_bytes(path.read_bytes()[:-100])
    return path


@pytest.mark.parametrize(
    "words",
    [
        *("", "--raw", "--devices 0", "--region busy", "--metric gr__cycles_elapsed.max --raw"),
        *("--ceiling", "--active-params 1B --batch 4 --tp 2"),
    ],
)
def test_a_report(tmp_path: Path, capfd: pytest.CaptureFixture[str], words: str) -> None:
    files = [rich(tmp_path / "rich.cufall"), phases(tmp_path / "one.cufall")]
    require = ["--require", "coverage[never] > 0", "--require", "tensor.mean > 0.1"]
    found = fits("report", run(capfd, "report", "--json", *words.split(), *require, *files[: 1 if words else 2]))
    rows = [sum(metric["samples"] for metric in r["scopes"][0]["gpus"]) for r in found["recordings"]]
    assert found["samples_read"] == sum(r["samples_read"] for r in found["recordings"]) > 0
    if not words:
        assert rows == [r["samples_read"] for r in found["recordings"]]
    assert {j["outcome"] for r in found["recordings"] for j in r["requirements"]} >= {"not measurable"}


def test_a_report_of_a_thinned_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Playback(phases(tmp_path / "one.cufall", seconds=4)) as playback:
        playback.record(tmp_path / "thinned.cufall", keep="2s@full,forever@1s")
        for _ in playback.frames():
            pass
    (found,) = fits("report", run(capfd, "report", "--json", tmp_path / "thinned.cufall"))["recordings"]
    assert found["keep"] == "2s@full,forever@1s" and len(found["sample_lengths"]) == 2
    assert found["gpus"][0]["sample_period_ns"] is None


def test_a_report_of_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with writer(tmp_path / "empty.cufall", [opened(0)]):
        pass
    found = fits("report", run(capfd, "report", "--json", tmp_path / "empty.cufall"))
    assert found["samples_read"] == 0


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("", "done"),
        ("--require tensor.mean>30", "usage"),
        ("--require tensor.mean>90%", "requirement missed"),
        ("--require coverage[never]>90%", "not a valid measurement"),
        ("--csv /dev/full", "could not run"),
    ],
)
def test_a_result_of_a_report(tmp_path: Path, capfd: pytest.CaptureFixture[str], words: str, meaning: str) -> None:
    place = tmp_path / "result.json"
    run(capfd, "report", phases(tmp_path / "one.cufall"), "--result", place, *words.split())
    found = fits("result", place.read_text())
    assert (found["meaning"], "path" in found) == (meaning, False)


@pytest.mark.parametrize(("end", "meaning"), [("true", "done"), ("exit 3", "the command's own"), ("", "usage")])
def test_a_result_of_a_recording(tmp_path: Path, end: str, meaning: str) -> None:
    place, out = tmp_path / "result.json", tmp_path / "run.cufall"
    command = ["--", "sh", "-c", f"sleep 0.3; {end}"] if end else ["--warmup-sec", "1"]
    words = ["--source", script(tmp_path), *QUICK, "-o", str(out), "--result", str(place), "--require", "coverage > 1%"]
    cufall("record", *words, *command)
    found = fits("result", place.read_text())
    assert (found["meaning"], found["path"]) == (meaning, str(out) if end else None)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_comparison(tmp_path: Path, capfd: pytest.CaptureFixture[str], runs: int) -> None:
    for side in ("base", "new"):
        for k in range(runs):
            phases(tmp_path / f"{side}-{k}.cufall", gpus=2, seconds=1 + k)
    base, new = ([tmp_path / f"{side}-{k}.cufall" for k in range(runs)] for side in ("base", "new"))
    text = run(capfd, "compare", *base, "--new", *new, "--fail-if", "tensor.mean -5%", "--force", "--json")
    found = fits("compare", text)
    assert (found["base"], found["new"]) == ([*map(str, base)], [*map(str, new)])
    assert {finding["gpu"] for finding in found["findings"]} == {0, 1}
