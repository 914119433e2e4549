"""`cufall record --source FILE`: the part that is played, with its samples, readings, regions and events."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies

from cufall_py import Part, Plan, Playback, Wanted
from cufall_py.outline import Event
from cufall_py.recording_reader import Recording, Rows
from cufall_py.samples import Samples
from tests.helpers import EPOCH, MS, SECOND, SM_ELAPSED
from tests.recordings import busy, opened, phases, writer
from tests.scripted import cufall


def samples_of(path: Path, gpu: int = 0) -> Samples:
    return Samples.join(samples for k, samples in Recording(path).batches() if k == gpu)


def copied(source: Path, to: Path, part: Part = Part(), duration_s: float = 0.0, plan: Plan = Plan()) -> Recording:
    with Playback(source, plan, part=part) as playback:
        playback.record(to, force=True)
        list(playback.frames(duration_s))
    return Recording(to)


def test_all_of_a_recording_is_copied_as_it_is(tmp_path: Path) -> None:
    source, copy = phases(tmp_path / "source.cufall", gpus=2), tmp_path / "copy.cufall"
    recording = copied(source, copy)
    assert recording.whole
    assert (recording.opened, recording.plan) == (Recording(source).opened, Recording(source).plan)
    for gpu in (0, 1):
        before, after = samples_of(source, gpu), samples_of(copy, gpu)
        for name in ("start_ns", "end_ns", "values"):
            assert (getattr(before, name) == getattr(after, name)).all()
    assert recording.regions() == Recording(source).regions()


@given(strategies.integers(0, 3000), strategies.integers(1, 3000), strategies.integers(0, MS - 1))
def test_a_part_has_its_share_of_samples_and_regions(
    tmp_path_factory: pytest.TempPathFactory, begin_ms: int, length_ms: int, shift_ns: int
) -> None:
    folder = tmp_path_factory.mktemp("part")
    source = phases(folder / "source.cufall")
    begin_ns, end_ns = begin_ms * MS + shift_ns, min((begin_ms + length_ms) * MS + shift_ns, 3 * SECOND)
    if begin_ns >= end_ns:
        return
    copy = copied(source, folder / "copy.cufall", Part(f"{begin_ns / 1e9:.9f}", f"{end_ns / 1e9:.9f}"))
    samples = samples_of(folder / "copy.cufall")
    assert (samples.start_ns[0], samples.end_ns[-1]) == (EPOCH + begin_ns, EPOCH + end_ns)
    assert (samples.start_ns[1:] == samples.end_ns[:-1]).all()
    busy_ns = max(0, min(end_ns, 2 * SECOND) - max(begin_ns, SECOND))
    tensor, elapsed = samples.values[:, 0].sum(), samples.values[:, 1].sum()
    assert elapsed == pytest.approx(2.0 * (end_ns - begin_ns), rel=1e-5)
    assert tensor == pytest.approx(4 * 0.5 * 2.0 * busy_ns, rel=1e-5, abs=1.0)
    regions = copy.regions()
    assert sum(r.end_ns - r.start_ns for r in regions.get("busy", [])) == busy_ns
    assert all(EPOCH + begin_ns <= r.start_ns < r.end_ns <= EPOCH + end_ns for rs in regions.values() for r in rs)


def test_readings_and_events_come_along(tmp_path: Path) -> None:
    source, copy = tmp_path / "source.cufall", tmp_path / "copy.cufall"
    with writer(source, [opened(0), opened(1)]) as out:
        out.set_readings(0, 1000.0, 100.0, reasons=4)
        out.add(0, busy(EPOCH, [0.5] * 100))
        out.event("said", start_ns=EPOCH + 50 * MS, text="before")
        out.event("said", start_ns=EPOCH + 150 * MS, text="within")
        out.event("gap", gpu=1, start_ns=EPOCH + 120 * MS, end_ns=EPOCH + 130 * MS, samples=10)
        out.set_readings(0, 1200.0, float("nan"))
        out.add(0, busy(EPOCH + 100 * MS, [0.5] * 100))
        out.add(1, busy(EPOCH, [0.5] * 200))
        out.event("later kind", gpu=0, start_ns=EPOCH + 160 * MS, what="ever")
        out.event("cost", start_ns=EPOCH + 200 * MS)
    recording = copied(source, copy, Part("0.09", "0.19"), plan=Plan(devices="0"))
    events = [(e.kind, e.start_ns - EPOCH, e.fields) for e in recording.events() if e.kind not in ("start", "end")]
    assert events == [
        ("reasons", 90 * MS, {"bits": 4}),
        ("said", 150 * MS, {"text": "within"}),
        ("later kind", 160 * MS, {"what": "ever"}),
    ]
    rows = [item for item in recording.items() if isinstance(item, Rows)]
    mhz = np.concatenate([r.sm_mhz for r in rows])
    power = np.concatenate([r.power_w for r in rows])
    assert mhz.tolist() == [1000.0] * 10 + [1200.0] * 90
    assert (np.isnan(power).sum(), power[0]) == (90, 100.0)


def test_metrics_that_were_asked_for_are_all_that_is_copied(tmp_path: Path) -> None:
    source, copy = phases(tmp_path / "source.cufall"), tmp_path / "copy.cufall"
    recording = copied(source, copy, plan=Plan(wanted=Wanted(("sm__cycles_elapsed.avg",), raw=True)))
    assert recording.opened[0].metrics.counters == (SM_ELAPSED,)
    assert recording.plan.wanted == Wanted(("sm__cycles_elapsed.avg",), raw=True)
    assert (samples_of(copy).values[:, 0] == samples_of(source).values[:, 1]).all()


def test_only_the_stretches_of_a_region_are_copied(tmp_path: Path) -> None:
    source, copy = phases(tmp_path / "source.cufall"), tmp_path / "copy.cufall"
    recording = copied(source, copy, Part(region="idle"))
    assert len(samples_of(copy)) == 2000
    assert not samples_of(copy).values[:, 0].any()
    assert list(recording.regions()) == ["idle", "all"]
    assert [r.text for r in recording.regions()["idle"]] == ["nothing runs", "nothing runs again"]


def test_regions_of_one_name_that_nest_stay_nested(tmp_path: Path) -> None:
    source, copy = tmp_path / "source.cufall", tmp_path / "copy.cufall"
    with writer(source, [opened()]) as out:
        out.event("region_begin", start_ns=EPOCH, name="a", text="outer")
        out.event("region_begin", start_ns=EPOCH + 20 * MS, name="a", text="inner")
        out.event("region_end", start_ns=EPOCH + 50 * MS, name="a")
        out.event("region_end", start_ns=EPOCH + 90 * MS, name="a")
        out.add(0, busy(EPOCH, [0.5] * 100))
    found = copied(source, copy, Part("0.03")).regions()["a"]
    assert [(r.start_ns - EPOCH, r.end_ns - EPOCH, r.text) for r in found] == [
        (30 * MS, 90 * MS, "outer"),
        (30 * MS, 50 * MS, "inner"),
    ]


def test_a_duration_counts_recorded_time(tmp_path: Path) -> None:
    source, copy = phases(tmp_path / "source.cufall"), tmp_path / "copy.cufall"
    copied(source, copy, duration_s=0.5)
    assert samples_of(copy).end_ns[-1] == EPOCH + SECOND // 2


def test_a_region_that_goes_on_ends_where_the_playing_did(tmp_path: Path) -> None:
    regions = copied(phases(tmp_path / "source.cufall"), tmp_path / "copy.cufall", duration_s=1.5).regions()
    ends_s = {name: [(region.end_ns - EPOCH) / 1e9 for region in times] for name, times in regions.items()}
    assert ends_s == {"idle": [1.0], "all": [1.5], "busy": [1.5]}


def test_the_verb_copies_all_that_was_recorded(tmp_path: Path) -> None:
    source, copy = phases(tmp_path / "source.cufall", gpus=2), tmp_path / "copy.cufall"
    ended = cufall("record", "--source", str(source), "-o", str(copy))
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert Recording(copy).opened == Recording(source).opened
    assert (samples_of(copy, 1).values == samples_of(source, 1).values).all()
    onto = cufall("record", "--source", str(source), "-o", str(source), "--force")
    assert (onto.returncode, onto.stderr) == (2, f"cufall: -o {source}: is what is played\n")
    assert Recording(source).whole


def test_a_command_beside_a_file_lies_at_the_time_that_is_played(tmp_path: Path) -> None:
    source, copy = phases(tmp_path / "source.cufall", seconds=20), tmp_path / "copy.cufall"
    words = ("record", "--source", str(source), "-o", str(copy), "--from", "10", "--speed", "4")
    ended = cufall(*words, "--cooldown-sec", "0.4", "--", "sh", "-c", "sleep 0.5; exit 3")
    assert ended.returncode == 3, ended.stderr
    recording = Recording(copy)
    (ran,) = recording.regions()["command"]
    found = recording.outline()
    assert found.start_ns == EPOCH + 10 * SECOND
    assert 0 <= ran.start_ns - found.start_ns < 0.5 * SECOND
    assert ran.end_ns - ran.start_ns >= 4 * 0.5 * SECOND
    assert found.end_ns - ran.end_ns >= 0.4 * SECOND
    assert found.end_ns < EPOCH + 60 * SECOND


def test_a_command_takes_time(tmp_path: Path) -> None:
    source = phases(tmp_path / "source.cufall")
    words = ("record", "--source", str(source), "-o", str(tmp_path / "x"), "--speed", "max", "--", "echo", "started")
    ended = cufall(*words)
    assert (ended.returncode, ended.stdout) == (2, "")


def test_marks_lie_at_the_time_that_is_played(tmp_path: Path) -> None:
    source, copy = phases(tmp_path / "source.cufall"), tmp_path / "copy.cufall"
    with Playback(source) as playback:
        playback.record(copy)
        frames = playback.frames()
        last = [next(frames) for _ in range(5)][-1]
        playback.mark("region_begin", playback.moment(time.time_ns()), name="here", text="")
        list(frames)
    (here,) = Recording(copy).regions()["here"]
    assert here.start_ns == last.end_ns == EPOCH + SECOND // 2
    marks = [item for item in Recording(copy).items() if isinstance(item, Event) and item.fields.get("name") == "here"]
    assert len(marks) == 1


def test_what_lies_before_what_was_recorded_first_is_left_out_as_it_is_played(tmp_path: Path) -> None:
    source, copy = tmp_path / "source.cufall", tmp_path / "copy.cufall"
    with writer(source, [opened()]) as out:
        out.add(0, busy(EPOCH + 100 * MS, [0.5] * 100))
        out.add(0, busy(EPOCH + 50 * MS, [0.25] * 100))
    copied(source, copy)
    assert (np.diff(samples_of(copy).start_ns) > 0).all()
    assert samples_of(copy).start_ns[0] == EPOCH + 100 * MS
