"""The trace: what Perfetto reads of it, and whose clock it is on."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cufall_py.cli import Unwritable, pages
from cufall_py.cli.pages import write_trace
from cufall_py.part import Part
from cufall_py.report import Reading
from cufall_py.samples import Samples
from tests.helpers import EPOCH, MS, SECOND
from tests.recordings import busy, opened, phases, region, writer

TORCH_BASE_NS = 1_790_857_026_000_000_000
"""`baseTimeNanoseconds` of a PyTorch profiler trace that was taken in November 2026, when EPOCH is."""


def traced(file: Path, part: Part = Part(), name: str = "trace.json") -> dict[str, Any]:
    to = file.with_name(name)
    write_trace(Reading(file, part=part), str(to))
    found: dict[str, Any] = json.loads(gzip.decompress(to.read_bytes()) if name.endswith(".gz") else to.read_text())
    return found


def counters(trace: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Each counter track as Perfetto names it, by the event's name and its argument's; its times and values."""
    tracks = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            ((unit, value),) = event["args"].items()
            tracks[f"{event['name']} {unit}"].append((event["ts"], value))
    return tracks


def us(ns: int) -> float:
    return (ns - TORCH_BASE_NS) / 1000


def test_counters_have_names_and_lie_on_the_clock_of_a_torch_trace(tmp_path: Path) -> None:
    trace = traced(phases(tmp_path / "run.cufall", gpus=2))
    assert trace["baseTimeNanoseconds"] == TORCH_BASE_NS
    tracks = counters(trace)
    assert sorted(tracks) == ["g0 tensor %", "g1 tensor %"]
    expected = [(us(EPOCH), 0), (us(EPOCH + SECOND), 50), (us(EPOCH + 2 * SECOND), 0), (us(EPOCH + 3 * SECOND), -1)]
    assert tracks["g0 tensor %"] == tracks["g1 tensor %"] == expected


def test_processes_and_regions_have_names(tmp_path: Path) -> None:
    trace = traced(phases(tmp_path / "run.cufall", gpus=2))
    events = trace["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert set(names.values()) == {"regions (cufall)", "GPU 0 Made-up GPU (cufall)", "GPU 1 Made-up GPU (cufall)"}
    assert {e["pid"] for e in events} == set(names)
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X"]
    assert all(threads[e["pid"], e["tid"]] == e["name"] for e in slices)
    told = sorted((e["name"], round(e["ts"] - us(EPOCH)), e["dur"], e["args"].get("text")) for e in slices)
    assert told == [
        ("all", 1_000_000, 2_000_000, None),
        ("busy", 1_000_000, 1_000_000, "half of the peak"),
        ("idle", 0, 1_000_000, "nothing runs"),
        ("idle", 2_000_000, 1_000_000, "nothing runs again"),
    ]


def test_slices_of_a_thread_do_not_overlap(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 100))
        for begin, end in ((0, 50), (10, 60), (20, 30), (60, 90)):
            region(out, "step", EPOCH + begin * MS, EPOCH + end * MS)
    lanes = defaultdict(list)
    for event in traced(tmp_path / "run.cufall")["traceEvents"]:
        if event["ph"] == "X":
            lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert sum(map(len, lanes.values())) == 4
    for lane in lanes.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(lane))


def test_every_sample_is_there_to_the_nanosecond(tmp_path: Path) -> None:
    edges = EPOCH + np.cumsum([0, 999_937, 999_993, 999_941])
    values = np.array([[4 * 2e6 * ratio, 2e6, 1e6] for ratio in (0.1, 0.2, 0.3)])
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        out.add(0, Samples(edges[:-1], edges[1:], values))
    file = tmp_path / "trace.json"
    write_trace(Reading(tmp_path / "run.cufall"), str(file))
    track = counters(json.loads(file.read_text(), parse_float=lambda text: int(text.replace(".", ""))))["g0 tensor %"]
    assert [ts + TORCH_BASE_NS for ts, _ in track] == edges.tolist()
    assert [value for _, value in track] == [10, 20, 30, -1]


def test_a_gap_is_not_measured_and_no_value_is_held_over_it(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 10))
        out.add(0, busy(EPOCH + 20 * MS, [0.5] * 10))
    track = counters(traced(tmp_path / "run.cufall"))["g0 tensor %"]
    at = [0, 10, 20, 30]
    assert track == list(zip([us(EPOCH + k * MS) for k in at], [50, -1, 50, -1], strict=True))


def test_readings_are_tracks_of_their_own(tmp_path: Path) -> None:
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 5))
        out.set_readings(0, 1500.0, 612.5)
        out.add(0, busy(EPOCH + 5 * MS, [0.5] * 5))
    tracks = counters(traced(tmp_path / "run.cufall"))
    assert tracks["g0 SM clock MHz"] == [(us(EPOCH + 5 * MS), 1500), (us(EPOCH + 10 * MS), -1)]
    assert tracks["g0 power W"] == [(us(EPOCH + 5 * MS), 612.5), (us(EPOCH + 10 * MS), -1)]


def test_a_part_is_the_part(tmp_path: Path) -> None:
    track = counters(traced(phases(tmp_path / "run.cufall"), Part(region="busy")))["g0 tensor %"]
    assert track == [(us(EPOCH + SECOND), 50), (us(EPOCH + 2 * SECOND), -1)]


def test_a_long_recording_has_means_and_maxima_of_bins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_VALUES", 500)  # in place of hours of samples
    with writer(tmp_path / "run.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.1] * 500 + [0.9] + [0.1] * 499))
    trace = traced(tmp_path / "run.cufall")
    assert trace["otherData"]["bins, ns"] == 2 * MS
    tracks = counters(trace)
    begin, after = us(EPOCH + 500 * MS), us(EPOCH + 502 * MS)
    assert tracks["g0 tensor %"] == [(us(EPOCH), 10), (begin, 50), (after, 10), (us(EPOCH + SECOND), -1)]
    assert tracks["g0 tensor max %"] == [(us(EPOCH), 10), (begin, 90), (after, 10), (us(EPOCH + SECOND), -1)]


def test_times_go_forward_on_each_track(tmp_path: Path) -> None:
    for track in counters(traced(phases(tmp_path / "run.cufall", gpus=3), Part("0.5", "2.5"))).values():
        assert [ts for ts, _ in track] == sorted({ts for ts, _ in track})


def test_a_name_in_gz_is_compressed(tmp_path: Path) -> None:
    plain = traced(phases(tmp_path / "run.cufall"))
    assert traced(tmp_path / "run.cufall", name="trace.json.gz") == plain


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    what = Reading(phases(tmp_path / "run.cufall"))
    with pytest.raises(Unwritable, match=r"^cannot write .*: No such file or directory$"):
        write_trace(what, str(tmp_path / "none" / "trace.json"))
    with pytest.raises(Unwritable, match=r"^cannot write /dev/full: No space left on device$"):
        write_trace(what, "/dev/full")
