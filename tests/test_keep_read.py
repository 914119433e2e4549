"""Thinned recordings as they are read: what is exact stays so, and of what is not it is said what it is of."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from cufall_py import Plan, Playback
from cufall_py.cli.pages import write_html, write_trace
from cufall_py.keep import parse
from cufall_py.pyramid import Builder, Pyramid, bin_length_ns
from cufall_py.recording import RecordingWriter
from cufall_py.report import Reading
from cufall_py.resolve import Wanted
from cufall_py.samples import Samples
from tests.helpers import EPOCH, MS, SECOND
from tests.recordings import SM_HZ, SYS_HZ, counters, opened, region
from tests.scripted import cufall, script

KEEP = "20s@full,1m@1s,forever@10s"
LENGTH_S = 300
PERIOD_NS = 100 * MS
SPIKE = 0.97


@dataclass(frozen=True)
class Pair:
    """The same GPUs recorded twice: all of it, and thinned."""

    whole: Path
    thinned: Path


def ratios() -> np.ndarray:
    """(n,) busy for 3.3 s of 7, and one short spike while it is old."""
    at_s = np.arange(LENGTH_S * 10) / 10
    out = np.where(at_s % 7 < 3.3, 0.2 + 0.1 * np.sin(at_s), 0.0)
    out[533] = SPIKE
    return out


def samples_of(ratio: np.ndarray, first: int) -> Samples:
    edges = EPOCH + PERIOD_NS * np.arange(first, first + len(ratio) + 1, dtype=np.int64)
    elapsed = np.full(len(ratio), SM_HZ * PERIOD_NS)
    elapsed[ratio > 0.25] *= 0.8  # a clock that changes: the mean is no mean of means
    values = np.stack([4 * ratio * elapsed, elapsed, np.full(len(ratio), SYS_HZ * PERIOD_NS)], axis=1)
    return Samples(edges[:-1], edges[1:], values)


def record(path: Path, keep: str) -> None:
    """As it would come: a second at a time, with readings, a region, and a gap of 4.2 s from 100 s on."""
    now_ns = EPOCH
    out = RecordingWriter(
        path,
        [opened(0)],
        Plan(Wanted(("tensor",))),
        live=False,
        now_ns=lambda: now_ns,
        monotonic_ns=lambda: now_ns - EPOCH,
        keep=parse(keep) if keep else (),
    )
    of_all = ratios()
    for second in range(LENGTH_S):
        part, first = of_all[10 * second : 10 * second + 10], 10 * second
        if 100 <= second < 104:
            part = part[:0]
        elif second == 104:
            part, first = part[2:], first + 2
        if second in (40, 200):
            region(out, f"r{second}", EPOCH + second * SECOND - 730 * MS, EPOCH + second * SECOND + 5 * MS)
        if second == 60:
            region(out, "long", EPOCH + 60 * SECOND, EPOCH + 290 * SECOND)
        out.set_readings(0, 1000.0 + second, 200.0 + second % 3, reasons=4 if second > 150 else 0)
        out.add(0, samples_of(part, first))
        now_ns += SECOND
        out.tick()
    out.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    found = Pair(folder / "whole.cufall", folder / "thinned.cufall")
    record(found.whole, "")
    record(found.thinned, KEEP)
    return found


def report(path: Path, *words: str) -> dict[str, object]:
    done = cufall("report", str(path), "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["recordings"][0]  # type: ignore[no-any-return]


def figures(of: dict) -> dict[str, dict]:  # type: ignore[type-arg]
    return {scope["region"]: scope["gpus"][0] for scope in of["scopes"]}


EXACT = ("mean", "min", "max", "coverage")


@pytest.mark.parametrize("words", [(), ("--from", "30", "--to", "250")], ids=["all", "part"])
def test_means_extremes_coverage_and_readings_are_those_of_all_that_was_sampled(
    pair: Pair, words: tuple[str, ...]
) -> None:
    whole, thinned = (figures(report(path, *words)) for path in (pair.whole, pair.thinned))
    assert whole.keys() == thinned.keys() == {None, "r40", "r200", "long"}
    for name in whole:
        one, other = whole[name], thinned[name]
        for key in EXACT:
            assert other["metrics"]["tensor"][key] == pytest.approx(one["metrics"]["tensor"][key], rel=1e-6), (
                name,
                key,
            )
        for key in ("coverage", "sm_mhz", "throttle_share", "power_w", "energy_j"):
            assert other[key] == pytest.approx(one[key], rel=1e-6), (name, key)
    assert thinned[None]["metrics"]["tensor"]["max"] == pytest.approx(SPIKE, rel=1e-6)
    assert thinned[None]["samples"] < whole[None]["samples"] / 5


def test_the_lengths_of_samples_are_told_where_they_differ(pair: Pair) -> None:
    of = report(pair.thinned)
    assert of["keep"] == KEEP
    lengths = {round(length["period_ns"] / 1e8): length for length in of["sample_lengths"]}  # type: ignore[attr-defined]
    assert {1, 10} <= set(lengths) and max(lengths) in range(80, 101)
    assert sum(length["samples"] for length in lengths.values()) == pytest.approx(of["samples_read"], rel=0.02)
    assert sum(length["time_share"] for length in lengths.values()) == pytest.approx(1, abs=0.01)
    assert of["gpus"][0]["sample_period_ns"] is None  # type: ignore[index]
    whole = report(pair.whole)
    assert whole["keep"] is None and whole["gpus"][0]["sample_period_ns"] == PERIOD_NS  # type: ignore[index]
    assert whole["sample_lengths"] == [{"period_ns": PERIOD_NS, "samples": 2958, "time_share": 1.0}]


def test_a_person_and_a_judged_requirement_are_told_what_percentiles_are_of(pair: Pair) -> None:
    text = cufall("report", str(pair.thinned)).stdout
    (note,) = (line for line in text.splitlines() if line.startswith("thinned"))
    assert f"({KEEP})" in note and "percentiles" in note and "100 ms for" in note
    judged = cufall("report", str(pair.thinned), "--require", "tensor.p50 >= 1%", "--csv", "-")
    assert note in judged.stderr
    assert [row["sample_us"] for row in csv.DictReader(io.StringIO(judged.stdout))] == [""] * 4
    assert "thinned" not in cufall("report", str(pair.whole), "--require", "tensor.p50 >= 1%").stderr


def test_twenty_whole_samples_are_those_that_are_left(pair: Pair) -> None:
    words = ("--require", "tensor.mean[long] >= 1%", "--region", "long")
    for path, code in ((pair.whole, 0), (pair.thinned, 0)):
        assert cufall("report", str(path), *words).returncode == code
    # 30 s at most in rows of 10 s
    words = ("--require", "tensor.mean >= 0%", "--from", "110", "--to", "139")
    assert cufall("report", str(pair.whole), *words).returncode == 0
    thinned = cufall("report", str(pair.thinned), *words)
    assert thinned.returncode == 4 and "whole samples, at least 20 are needed" in thinned.stderr


@pytest.mark.parametrize("frame_ns", [10 * SECOND, SECOND // 2])
def test_frames_have_the_same_totals_and_extremes(pair: Pair, frame_ns: int) -> None:
    said: list[str] = []
    plan = Plan(Wanted(("tensor",)), frame_us=frame_ns // 1000)
    with Playback(pair.whole, plan) as one, Playback(pair.thinned, plan, said.append) as other:
        whole, thinned = list(one.frames()), list(other.frames())
    assert len(whole) == len(thinned)
    for frame, same in zip(whole, thinned, strict=True):
        assert same.covered_ns == pytest.approx(frame.covered_ns)
        if frame_ns == 10 * SECOND:
            np.testing.assert_allclose(same.mean, frame.mean, rtol=1e-6)
            np.testing.assert_allclose(same.minimum, frame.minimum, rtol=1e-6)
            np.testing.assert_allclose(same.maximum, frame.maximum, rtol=1e-6)
    assert any("longer than frames" in line for line in said) == (frame_ns < SECOND)
    # how many samples a frame has is told as they come there
    assert thinned[0].expected[0] == pytest.approx(frame_ns / SECOND / 10, rel=0.2)
    assert thinned[-2].expected[0] == pytest.approx(frame_ns / PERIOD_NS, rel=0.01)


def test_another_metric_of_the_same_counters_has_its_extremes_and_one_of_others_says_so(pair: Pair) -> None:
    words = ("--full-scale", "2", "--metric", "tensor")
    one, other = (figures(report(path, *words))[None]["metrics"]["tensor"] for path in (pair.whole, pair.thinned))
    assert {key: other[key] for key in EXACT} == pytest.approx({key: one[key] for key in EXACT}, rel=1e-6)
    words = ("--metric", "sm__cycles_elapsed.avg", "--denominator", "gr__cycles_elapsed.max", "--raw")
    thinned = cufall("report", str(pair.thinned), *words).stdout
    assert "sm__cycles_elapsed.avg: min and max are of the longer samples" in thinned
    assert "min and max are of" not in cufall("report", str(pair.whole), *words).stdout


def binned(path: Path) -> tuple[Pyramid, Pyramid]:
    """Of all of it, in bins that are some samples long where it was not thinned."""
    reading = Reading(path)
    length_ns = reading.spans[-1][1] - reading.spans[0][0]
    builder = Builder(
        [opened.metrics for opened in reading.opened], reading.spans, bin_length_ns(length_ns, PERIOD_NS, 1000)
    )
    for rows in reading.rows():
        builder.add(rows)
    return builder.pyramids()


def test_the_page_has_the_spike_and_says_that_it_was_thinned(pair: Pair, tmp_path: Path) -> None:
    (metrics, _), (of_whole, _) = binned(pair.thinned), binned(pair.whole)
    for level in metrics.levels:
        assert np.nanmax(level.maximum) == pytest.approx(SPIKE, rel=1e-6)
    assert metrics.whole.mean[0, 0, 0] == pytest.approx(of_whole.whole.mean[0, 0, 0], rel=1e-6)
    assert metrics.whole.minimum[0, 0, 0] == of_whole.whole.minimum[0, 0, 0] == 0
    write_html(Reading(pair.thinned), str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert f"thinned ({KEEP})" in page and "one every 100 ms to 10 s" in page


def test_the_trace_has_the_greatest_samples_in_tracks_of_their_own(pair: Pair, tmp_path: Path) -> None:
    write_trace(Reading(pair.thinned), str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    values = {
        name: [e["args"]["%"] for e in trace["traceEvents"] if e.get("name") == name] for name in ("g0 tensor max",)
    }
    assert max(values["g0 tensor max"]) == pytest.approx(100 * SPIKE, abs=1e-3)
    assert trace["otherData"]["thinned"].startswith(f"thinned ({KEEP})")


def test_parquet_has_the_extremes_beside_the_quotients(pair: Pair, tmp_path: Path) -> None:
    for path in (pair.thinned, pair.whole):
        assert cufall("report", str(path), "--parquet", str(tmp_path / f"{path.stem}.parquet")).returncode == 0
    table = pq.read_table(tmp_path / "thinned.parquet").to_pydict()
    assert max(table["ratio.tensor.max"]) == pytest.approx(SPIKE, rel=1e-6)
    assert all(
        low <= value * (1 + 1e-6) and value <= high * (1 + 1e-6)
        for low, value, high in zip(
            table["ratio.tensor.min"], table["ratio.tensor"], table["ratio.tensor.max"], strict=True
        )
    )
    assert "ratio.tensor.max" not in pq.read_schema(tmp_path / "whole.parquet").names


def test_comparing_percentiles_of_samples_of_other_lengths_is_refused(pair: Pair) -> None:
    words = ("compare", str(pair.whole), "--new", str(pair.thinned))
    refused = cufall(*words, "--fail-if", "tensor.p95 -5%")
    assert refused.returncode == 4 and "samples are 100 and" in refused.stderr
    # as they are of thinned recordings that are alike
    alike = cufall("compare", str(pair.thinned), "--new", str(pair.thinned), "--fail-if", "tensor.p95 -5%")
    assert alike.returncode == 4 and "samples are 100 and" in alike.stderr
    means = cufall(*words, "--json")
    (long,) = (found for found in json.loads(means.stdout)["findings"] if found["region"] == "long")
    assert long["base"] == pytest.approx(long["new"], rel=1e-6)


def test_a_copy_of_a_thinned_recording_has_its_extremes_and_can_be_thinned_further(pair: Pair, tmp_path: Path) -> None:
    source = str(pair.thinned)
    copied, further = tmp_path / "copied.cufall", tmp_path / "further.cufall"
    assert cufall("record", "--source", source, "-o", str(copied), "--metric", "tensor").returncode == 0
    done = cufall("record", "--source", source, "-o", str(further), "--keep", "forever@30s")
    assert done.returncode == 0, done.stderr
    original = figures(report(pair.whole))
    for path in (copied, further):
        for name, of in figures(report(path)).items():
            for key in EXACT:
                assert of["metrics"]["tensor"][key] == pytest.approx(original[name]["metrics"]["tensor"][key], rel=1e-5)
    assert report(further)["samples_read"] < report(copied)["samples_read"] / 5  # type: ignore[operator]
    assert report(copied)["keep"] == KEEP and report(further)["keep"] == "forever@30s"


# The command line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--keep", "30m@"), "--keep 30m@: 30m@: must be SPAN@PERIOD"),
        (("--keep", "1h@1s,30m@1s"), "30m@1s: its span must be longer"),
        (("--keep", "forever@1s", "-o", "/dev/null"), "--keep: /dev/null is no file"),
        (("--keep", "1h@500us,forever@1s"), "500us is no longer than a sample, 1ms"),
    ],
)
def test_record_refuses_what_cannot_be_kept_and_starts_nothing(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    out = () if "-o" in words else ("-o", str(tmp_path / "a.cufall"))
    started = tmp_path / "started"
    done = cufall("record", "--source", script(tmp_path), *out, *words, "--", "touch", str(started))
    assert done.returncode == 2 and told in done.stderr, done.stderr
    assert not started.exists() and not (tmp_path / "a.cufall").exists()


def test_a_recording_is_thinned_while_gpus_are_sampled(tmp_path: Path) -> None:
    out = tmp_path / "a.cufall"  # a batch, of a second or two, is thinned when all of it is old
    words = ("--source", script(tmp_path), "-o", str(out), "--duration-sec", "6", "--keep", "1s@full,forever@200ms")
    done = cufall("record", *words)
    assert done.returncode == 0, done.stderr
    of = report(out)
    lengths = [round(length["period_ns"] / MS) for length in of["sample_lengths"]]  # type: ignore[attr-defined]
    assert lengths[0] == 1 and 150 <= lengths[-1] <= 200
    assert figures(of)[None]["metrics"]["tensor"]["mean"] == pytest.approx(0.5, rel=1e-5)
    assert not math.isnan(figures(of)[None]["coverage"]) and counters()
    assert [path.name for path in tmp_path.glob(".*")] == []
