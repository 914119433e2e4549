"""A recording of one set of a rotation: what lies between its turns is of all the time, and no loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cufall_py import Playback
from cufall_py.cli.pages import write_html, write_trace
from cufall_py.errors import UsageError
from cufall_py.export.summary import document
from cufall_py.outline import OTHER_TURNS
from cufall_py.part import Part
from cufall_py.plan import Plan
from cufall_py.recording import RecordingWriter
from cufall_py.recording_reader import Recording
from cufall_py.report import Reading
from cufall_py.resolve import Wanted
from cufall_py.rotation import Turn
from cufall_py.views.summary import as_markdown, as_text
from tests.helpers import EPOCH, SECOND
from tests.recordings import busy, opened, phases
from tests.test_schemas import fits

TURN = Turn(2, 3, 2.0, ("tensor", "sm"), (("tensor", "dram"), ("tensor", "fma")))
LINE = "sampled in turns: set 2 of 3, 2 s each; coverage is of all the time"


def rotated(path: Path, gpus: int = 1) -> Path:
    """From EPOCH to 12 s later; its turns are 2 s to 4 s, a quarter of the peak, and 8 s to 10 s, three quarters; in
    the first a tenth of a second is lost. A region goes from 3 s to 9 s."""
    now_ns = EPOCH
    out = RecordingWriter(
        path, [opened(k) for k in range(gpus)], Plan(), turn=TURN, now_ns=lambda: now_ns, monotonic_ns=lambda: 0
    )
    with out:
        out.event("region_begin", start_ns=EPOCH + 3 * SECOND, name="busy", text="")
        out.event("region_end", start_ns=EPOCH + 9 * SECOND, name="busy")
        for at_s, ratio in ((2, 0.25), (8, 0.75)):
            now_ns = EPOCH + (at_s + 2) * SECOND
            for gpu in range(gpus):
                samples = busy(EPOCH + at_s * SECOND, [ratio] * 2000)
                out.add(gpu, samples[:1000])
                out.add(gpu, samples[1100 if at_s == 2 else 1000 :])
            out.pause()
        now_ns = EPOCH + 12 * SECOND
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return rotated(tmp_path / "x.cufall")


def test_its_head_tells_which_set_it_is(path: Path, tmp_path: Path) -> None:
    assert Recording(path).turn == TURN
    assert Recording(phases(tmp_path / "other.cufall")).turn is None


def test_the_others_turns_are_no_gaps(path: Path) -> None:
    recording = Recording(path)
    away = [
        ((event.start_ns - EPOCH) / SECOND, (event.end_ns - EPOCH) / SECOND, event.gpu)
        for event in recording.events()
        if event.kind == OTHER_TURNS
    ]
    assert away == [(0, 2, 0), (4, 8, 0), (10, 12, 0)]
    (gap,) = recording.outline().gaps
    assert (gap.start_ns, gap.fields["samples"]) == (EPOCH + 3 * SECOND, 100)


def test_coverage_is_of_all_the_time_and_means_are_of_its_turns(path: Path) -> None:
    summary = Reading(path).report().summary
    everything, region = summary.scopes
    assert (everything.wanted_s, region.wanted_s) == (12.0, 6.0)
    assert everything.rows[0].coverage == pytest.approx(3.9 / 12)
    assert region.rows[0].coverage == pytest.approx(1.9 / 6)
    # 1.9 s at a quarter and 2 s at three quarters; of the region 0.9 s and 1 s
    assert everything.rows[0].metrics[0].mean == pytest.approx((1.9 * 0.25 + 2 * 0.75) / 3.9)
    assert region.rows[0].metrics[0].mean == pytest.approx((0.9 * 0.25 + 1 * 0.75) / 1.9)


def test_a_verdict_counts_the_others_turns_as_unknown(path: Path) -> None:
    (window,) = Reading(path).report().summary.verdicts[""]
    assert window.shares["unknown"] >= 8.1 / 12 - 1e-9
    assert sum(window.shares.values()) == pytest.approx(1)


def test_all_that_tells_of_it_says_so(path: Path, tmp_path: Path) -> None:
    report = Reading(path).report()
    assert [*as_text(report)][1] == LINE
    assert LINE in [*as_markdown(report)]
    (told,) = json.loads(json.dumps(document([(report, ())])))["recordings"]
    assert told["rotation"] == {
        "number": 2,
        "of": 3,
        "seconds": 2.0,
        "metrics": ["tensor", "sm"],
        "others": [["tensor", "dram"], ["tensor", "fma"]],
    }
    page, trace = tmp_path / "x.html", tmp_path / "x.json"
    write_html(Reading(path), str(page))
    write_trace(Reading(path), str(trace))
    assert LINE in page.read_text() and "1 gap of a GPU, 0.100 s, 100 samples" in page.read_text()
    assert LINE in trace.read_text()


def test_a_metric_of_another_set_is_pointed_to(path: Path) -> None:
    told = r"^fma is not in the recording: set 3 of 3 has it$"
    with pytest.raises(UsageError, match=told):
        Reading(path, Wanted(("fma",)))
    with pytest.raises(UsageError, match=told):
        Playback(path, Plan(Wanted(("tensor", "fma"))))
    assert Reading(path, also=("dram",)).lacking == {"dram": "dram is not in the recording: set 1 of 3 has it"}
    with pytest.raises(UsageError, match=r"^alu is not in the recording .*; it can give "):
        Reading(path, Wanted(("alu",)))


def test_one_of_no_rotation_says_nothing_of_it(tmp_path: Path) -> None:
    report = Reading(phases(tmp_path / "x.cufall")).report()
    assert "turns" not in "\n".join([*as_text(report), *as_markdown(report)])
    assert document([(report, ())])["recordings"][0]["rotation"] is None


def test_playing_it_says_so_and_loses_nothing_between_turns(path: Path) -> None:
    said: list[str] = []
    with Playback(path, Plan(frame_us=1_000_000), said.append) as playback:
        means = [frame.mean[0, 0] for frame in playback.frames()]
        assert playback.turn == TURN
    assert said == [LINE]
    away = [float("nan")] * 2
    assert means == pytest.approx([*away, 0.25, 0.25, *away, *away, 0.75, 0.75, *away], nan_ok=True)
    (line,) = playback.summary()
    assert line == f"3900 samples in 12.0 s of {path}, 100 lost (0.100 s)"


def test_a_copy_of_a_part_is_of_the_same_set_and_its_coverage_of_that_part(path: Path, tmp_path: Path) -> None:
    with Playback(path, Plan(), part=Part("3.5", "9")) as playback:
        playback.record(tmp_path / "copy.cufall")
        list(playback.frames())
    reading = Reading(tmp_path / "copy.cufall")
    assert reading.turn == TURN
    everything = reading.report().summary.scopes[0]
    assert everything.wanted_s == pytest.approx(5.5)
    assert everything.rows[0].coverage == pytest.approx(1.5 / 5.5)


def test_a_gpu_that_never_came_is_away_all_the_time(tmp_path: Path) -> None:
    now_ns = EPOCH
    out = RecordingWriter(
        tmp_path / "x.cufall", [opened(0), opened(1)], Plan(), turn=TURN, now_ns=lambda: now_ns, monotonic_ns=lambda: 0
    )
    with out:
        out.add(0, busy(EPOCH, [0.5] * 1000))
        now_ns = EPOCH + 4 * SECOND
    first, second = Reading(tmp_path / "x.cufall").report().summary.scopes[0].rows
    assert (first.coverage, second.coverage) == (0.25, 0)


def test_json_of_a_rotated_recording_fits_its_schema(path: Path) -> None:
    fits("report", json.dumps(document([(Reading(path).report(), ())])))


def test_times_are_from_the_begin_of_the_rotation_in_each_of_its_recordings(path: Path) -> None:
    summary = Reading(path, part=Part("1", "3")).report().summary
    assert summary.scopes[0].wanted_s == 2
    assert summary.scopes[0].rows[0].coverage == pytest.approx(0.5)


def test_a_whole_copy_has_the_coverage_of_what_it_is_of(path: Path, tmp_path: Path) -> None:
    with Playback(path, Plan()) as playback:
        playback.record(tmp_path / "copy.cufall")
        list(playback.frames())
    row = Reading(tmp_path / "copy.cufall").report().summary.scopes[0].rows[0]
    assert row.coverage == pytest.approx(3.9 / 12)


def test_the_page_tells_the_same_share(path: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    write_html(Reading(path), str(page))
    assert "<td>32.5%</td><td>50.6%</td>" in page.read_text()  # 3.9 s of 12 s, at (1.9 x 25 + 2 x 75) / 3.9
