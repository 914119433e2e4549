"""The page as text: small, whole, harmless, and of the numbers it was made from."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.analysis.decision_table import CLASSES
from cufall_py.analysis.verdict_bins import Strip, VerdictBins
from cufall_py.analysis.verdict_scopes import ScopeVerdicts
from cufall_py.cli.pages import write_html
from cufall_py.errors import InvalidMeasurement, UsageError
from cufall_py.headroom import METRICS, Question
from cufall_py.outline import Region
from cufall_py.part import Part
from cufall_py.pyramid import FACTOR, FEWEST_BINS, Level, Pyramid
from cufall_py.report import Reading
from cufall_py.resolve import Wanted
from cufall_py.sources.script import rate
from cufall_py.views.html_data import NOTHING, Gap, Gpu, Page, Section, most_bins, most_verdict_bins
from cufall_py.views.html_report import html_report
from cufall_py.views.tables import Table
from tests.helpers import EPOCH, MS, SECOND, metric
from tests.recordings import busy, doing, known_metrics, opened, phases, region, working, writer

LIMIT = 2_000_000
NAN = float("nan")


def level(rng: np.random.Generator, gpus: int, bins: int, metrics: int, bin_ns: int = SECOND) -> Level:
    low, mean, high = np.sort(rng.random((3, gpus, bins, metrics)), axis=0)
    return Level(EPOCH, bin_ns, mean, low, high, np.full((gpus, bins), float(bin_ns)))


def noise(gpus: int, metrics: int, bins: int) -> Pyramid:
    """A pyramid of which nothing repeats."""
    rng = np.random.default_rng(5)
    levels = [level(rng, gpus, bins, metrics)]
    while len(levels[-1]) > FEWEST_BINS:
        levels.append(level(rng, gpus, -(-len(levels[-1]) // FACTOR) + 1, metrics))
    return Pyramid(levels, level(rng, gpus, 1, metrics), np.full(gpus, 10**9))


def page(gpus: int, metrics: int, **more: Any) -> Page:
    bins = most_bins(gpus, metrics)
    return Page(
        title="run.cufall",
        gpus=[Gpu(f"g{k}", "NVIDIA H200", 1e6) for k in range(gpus)],
        metrics=[metric(f"metric-{k}") for k in range(metrics)],
        pyramid=noise(gpus, metrics, bins),
        readings=noise(gpus, 2, bins),
        begin_ns=EPOCH,
        spans=[(EPOCH, EPOCH + bins * SECOND)],
        **more,
    )


@pytest.mark.parametrize(("gpus", "metrics"), [(1, 1), (8, 6), (16, 12), (16, 60)])
def test_a_page_of_noise_with_all_marks_there_can_be_is_below_2_mb(gpus: int, metrics: int) -> None:
    step = [Region(EPOCH + k * SECOND, EPOCH + (k + 1) * SECOND, "é" * 1000) for k in range(20_000)]
    gaps = [Gap(0, EPOCH + k * SECOND, EPOCH + k * SECOND + 1, 1) for k in range(20_000)]
    shares = np.random.default_rng(6).dirichlet(np.ones(len(CLASSES)), (gpus, most_verdict_bins(gpus)))
    strip = Strip(EPOCH, SECOND, 50 * MS, shares)
    told = Section("told", Table(("region", "verdict"), [("é" * 1000, "mixed " * 20)] * 20_000), ["a note"])
    marks = {"regions": {"step" * 100: step}, "gaps": gaps, "strip": strip, "sections": [told] * 2}
    text = html_report(page(gpus, metrics, **marks))
    assert "19,700 further rows are not shown" in text
    assert all(f"the 600 longest {marks}; 19,400 are not drawn" in text for marks in ("regions", "gaps"))
    assert len(text.encode()) < LIMIT
    assert len(document(text)["plots"][0]["levels"][0]["data"]) >= gpus * 3 * 2 * 4 / 3 * 50


def made(file: Path, part: Part = Part(), wanted: Wanted | None = None) -> str:
    to = file.with_suffix(".html")
    write_html(Reading(file, wanted or Wanted(()), part=part), str(to))
    return to.read_text(encoding="utf-8")


def document(text: str) -> dict[str, Any]:
    """What the page gives to its script."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    document: dict[str, Any] = json.loads(found[1])
    return document


def numbers(plot: dict[str, Any], at: int = 0) -> np.ndarray[Any, Any]:
    """(gpus, 3, bins) of minimum, mean, maximum of a level, as the script decodes them."""
    of = plot["levels"][at]
    parts = np.frombuffer(base64.b64decode(of["data"]), "<u2").astype(float)
    parts[parts == NOTHING] = NAN
    return (parts / (NOTHING - 1) * plot["top"]).reshape(-1, 3, of["bins"])


def test_the_numbers_are_those_of_the_samples(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened(0), opened(3)]) as out:
        out.add(0, busy(EPOCH, [0.25, 0.0031, 1.0]))
        out.add(1, busy(EPOCH + 2 * MS, [0.5]))
    found = document(made(tmp_path / "run.cufall"))
    assert [gpu["label"] for gpu in found["gpus"]] == ["g0", "g3"]
    (plot,) = found["plots"]
    assert (plot["label"], plot["unit"], plot["levels"][0]["bin"]) == ("tensor", "%", 0.001)
    mean = numbers(plot)[:, 1]
    np.testing.assert_allclose(mean, [[25, 0.31, 100], [NAN, NAN, 50]], atol=100 / NOTHING)
    assert found["view"] == [0, 0.003] and found["begin_ms"] == EPOCH / MS


def test_a_spike_of_a_millisecond_survives_and_the_bin_is_told(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        for k in range(200):
            ratios = np.zeros(1000)
            ratios[617] = 0.93 * (k == 120)
            out.add(0, busy(EPOCH + k * SECOND, ratios.tolist()))
    text = made(tmp_path / "run.cufall")
    assert "finest bins 6 ms" in text
    (plot,) = document(text)["plots"]
    for at, of in enumerate(plot["levels"]):
        peak = numbers(plot, at)[0, 2]
        assert peak.max() == pytest.approx(93, abs=0.01)
        assert int((120.617 - of["start"]) / of["bin"]) == int(peak.argmax())


def test_a_gap_is_a_gap(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 10))
        out.event("gap", gpu=0, start_ns=EPOCH + 10 * MS, end_ns=EPOCH + 30 * MS, samples=20)
        out.add(0, busy(EPOCH + 30 * MS, [0.5] * 10))
    text = made(tmp_path / "run.cufall")
    found = document(text)
    assert np.flatnonzero(np.isnan(numbers(found["plots"][0])[0, 1])).tolist() == list(range(10, 30))
    assert found["gaps"] == [[0, 0.01, 0.03]]
    assert "1 gap of a GPU, 0.020 s, 20 samples" in text and "50.0%</td>" in text


def test_the_share_that_was_measured_reads_as_in_the_report(tmp_path: Path) -> None:
    """Two of three milliseconds; and nearly all is not all."""
    for name, samples, told in (("some", 1, "66.7%"), ("most", 9999, "99.99%")):
        with writer(tmp_path / name, [opened()]) as out:
            out.add(0, busy(EPOCH, [0.5]))
            out.add(0, busy(EPOCH + 2 * MS, [0.5] * samples))
        assert f"g0</th><td>{told}</td>" in made(tmp_path / name)


def test_nothing_is_nothing_and_nearly_all_is_not_all(tmp_path: Path) -> None:
    for ratio, told in ((0.0, "0%"), (0.00004, "&lt;.01%"), (0.9997, "99.97%"), (1.0, "100%")):
        with writer(tmp_path / told, [opened()]) as out:
            out.add(0, busy(EPOCH, [ratio] * 10))
        assert f"<td>100%</td><td>{told}</td><td>{told}</td>" in made(tmp_path / told)


def test_a_part_has_more_detail_and_its_regions_alone(tmp_path: Path) -> None:
    file = phases(tmp_path / "run.cufall", seconds=60)
    whole, part = document(made(file)), document(made(file, Part("70", "72")))
    assert whole["plots"][0]["levels"][0]["bin"] > part["plots"][0]["levels"][0]["bin"] == 0.001
    assert part["view"] == [70, 72]
    assert [name for name, *_ in part["regions"]] == ["all", "busy"]
    of_region = document(made(file, Part(region="idle")))
    means = numbers(of_region["plots"][0])[0, 1]
    assert np.nanmax(means) == 0 and np.isnan(means).sum() == pytest.approx(len(means) / 3, abs=2)


def test_readings_have_plots_where_they_are_known(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        out.set_readings(0, NAN, 612.0)
        out.add(0, busy(EPOCH, [0.5] * 10))
    found = document(made(tmp_path / "run.cufall"))
    assert [(plot["label"], plot["unit"]) for plot in found["plots"]] == [("tensor", "%"), ("power", "W")]
    np.testing.assert_allclose(numbers(found["plots"][1])[0, 1], 612)


WORK = [
    ("copy", {"gr": 1.0, "sm": 0.9, "dram": 0.8, "issue": 0.1}),
    ("products", {"gr": 1.0, "sm": 0.9, "tensor": 0.8, "dram": 0.1, "issue": 0.1}),
    ("nothing", {}),
]


def strip_of(found: dict[str, Any]) -> np.ndarray[Any, Any]:
    """(gpus, bins, CLASSES) of the verdicts in a page, 0 to 255."""
    of = found["verdicts"]
    parts = np.frombuffer(base64.b64decode(of["data"]), np.uint8)
    return parts.reshape(-1, of["bins"], len(of["classes"]))


def test_each_frame_has_its_verdict(tmp_path: Path) -> None:
    names = ("tensor", "sm", "gr", "dram", "issue", "launches")
    found = document(made(working(tmp_path / "run.cufall", WORK, names)))
    of, parts = found["verdicts"], strip_of(found)
    assert (of["frame"], of["bin"], of["bins"]) == (0.05, 0.05, 60)
    seen = [[of["classes"][k] for k in np.flatnonzero(row)] for row in parts[0]]
    assert seen == [["memory-bound"]] * 20 + [["tensor-bound"]] * 20 + [["idle"]] * 20
    assert set(parts.max(axis=2).ravel()) == {255}


def test_what_was_not_measured_is_of_no_class(tmp_path: Path) -> None:
    """Half of the second frame and all of the third were not; the last is shorter than a frame, and all measured."""
    ((_, shares), *_) = WORK
    metrics = known_metrics(("tensor", "sm", "gr", "dram", "issue"), "GH100")
    with writer(tmp_path / "run.cufall", [opened(metrics=metrics)]) as out:
        out.add(0, doing(metrics, shares, EPOCH, 75, "GH100"))
        out.add(0, doing(metrics, shares, EPOCH + 150 * MS, 70, "GH100"))
    parts = strip_of(document(made(tmp_path / "run.cufall")))
    assert parts[0, :, CLASSES.index("memory-bound")].tolist() == [255, 128, 0, 255, 255]
    assert parts.sum() == 255 * 3 + 128


def test_regions_have_their_verdicts_and_their_ceilings_where_asked(tmp_path: Path) -> None:
    names = ("tensor", "sm", "gr", "dram", "issue", "launches")
    file = working(tmp_path / "run.cufall", WORK, names)
    cells = [re.findall("<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", made(file))]
    assert ["products", "g0", "tensor-bound", "100%"] in [row[:4] for row in cells]
    assert "tensor pipe: measured" not in made(file)
    to = tmp_path / "ceiling.html"
    write_html(Reading(file, also=METRICS), str(to), question=Question())
    cells = [re.findall("<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", to.read_text())]
    # 80 % of the tensor pipe beside 10 % of the memory: were the pipe busy all the time, 100 %
    assert ["products", "g0", "counters", "tensor", "80.0%", "100%", "20.0%"] in [row[:7] for row in cells]


def test_the_roofline_has_the_peak_of_the_memory_that_was_counted(tmp_path: Path) -> None:
    file = working(tmp_path / "run.cufall", WORK, ("tensor", "sm", "gr", "dram", "issue"))
    found = document(made(file, wanted=Wanted(("dram", "tensor"))))
    of = found["roofline"]
    assert [found["plots"][of[name]]["label"] for name in ("tensor", "memory")] == ["tensor", "dram"]
    assert of["reachable"] == {"tensor": 0.9, "memory": 0.9}
    bytes_per_s = [rate(name, {"dram": 1.0}, "GH100") for name in ("dram__bytes_read.sum", "dram__bytes_write.sum")]
    assert of["bytes_per_s"] == pytest.approx(sum(bytes_per_s))
    both = Wanted(("dram", "tensor"))
    for other in (Wanted(("tensor",)), replace(both, raw=True), replace(both, full_scale=0.1)):
        assert document(made(file, wanted=other))["roofline"] is None


def test_without_what_verdicts_take_there_are_none(tmp_path: Path) -> None:
    text = made(working(tmp_path / "run.cufall", WORK, ["sm"]), wanted=Wanted(("sm",)))
    assert document(text)["verdicts"] is None and "verdict, of frames" not in text


@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=8),
    in_one=st.integers(1, 7),
    start=st.integers(0, 300),
)
def test_bins_hold_all_that_was_classified(lengths: list[int], in_one: int, start: int) -> None:
    """Stretches of work of so many milliseconds, 100 ms apart: the shares of the bins come to their time."""
    metrics = known_metrics(("tensor", "sm", "gr", "dram", "issue"), "GH100")
    begins = EPOCH + MS * (start + np.cumsum([0, *(length + 100 for length in lengths[:-1])]))
    span = (int(begins[0]), int(begins[-1]) + MS * lengths[-1])
    bins = VerdictBins(1, [span], 50 * MS, 50 * MS * in_one)
    scopes = ScopeVerdicts([metrics], {"": [span]}, watchers={"": [bins.add]})
    for begin, length in zip(begins.tolist(), lengths, strict=True):
        scopes.add(0, doing(metrics, WORK[0][1], begin, length, "GH100"))
    window = scopes.verdicts({"": (span[1] - span[0]) / 1e9})[""][0]
    strip = bins.strip()
    edges = strip.start_ns + strip.bin_ns * np.arange(strip.shares.shape[1] + 1)
    asked = np.diff(np.clip(edges, *span))
    times_ms = asked @ strip.shares[0] / MS
    assert times_ms.sum() == pytest.approx(sum(lengths))
    assert times_ms[CLASSES.index("memory-bound")] == pytest.approx(sum(lengths))
    assert window.shares["memory-bound"] == pytest.approx(sum(lengths) * MS / (span[1] - span[0]))
    assert (strip.shares.sum(axis=2) <= 1 + 1e-9).all()


def test_other_metrics_can_be_asked_for(tmp_path: Path) -> None:
    file = phases(tmp_path / "run.cufall")
    raw = document(made(file, wanted=Wanted(("sm__pipe_tensor_cycles_active.avg",), raw=True)))
    assert [(plot["unit"], plot["top"]) for plot in raw["plots"]] == [("", 2.0)]
    with pytest.raises(UsageError, match="dram is not in the recording"):
        made(file, wanted=Wanted(("dram",)))


def test_a_recording_without_samples_is_no_valid_measurement(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened()]):
        pass
    with pytest.raises(InvalidMeasurement, match=r"run\.cufall: no samples in what was asked for$"):
        made(tmp_path / "run.cufall")


HOSTILE = "\ud800</script><script>document.title='caught'</script><img src=x onerror=alert(1)>{{data}}<!--"


def test_names_are_text_whatever_is_in_them(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        region(out, HOSTILE, EPOCH, EPOCH + MS, HOSTILE)
        out.add(0, busy(EPOCH, [0.5]))
    to = tmp_path / "run.html"
    write_html(Reading(tmp_path / "run.cufall"), str(to), HOSTILE)
    text = to.read_text()
    assert "<script>document" not in text and "<img" not in text
    (found,) = document(text)["regions"]
    told = HOSTILE.replace("\ud800", "?")
    assert told.startswith(found[0]) and told.startswith(found[3])


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    text = made(phases(tmp_path / "run.cufall"))
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert addresses == {"https://github.com/leeoniya/uPlot"}  # named in a comment, as its licence wants
    for loading in (
        r"\ssrc\s*=\s*[\"']",
        r"\shref\s*=",
        r"@import",
        r"url\(",
        r"\bfetch\(",
        "XMLHttpRequest",
        "WebSocket",
    ):
        assert not re.search(loading, text), loading
    assert "default-src 'none'" in text and "Copyright (c) 2022 Leon Sorokin" in text
