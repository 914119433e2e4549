"""A session that is recorded: what is in the file is what was sampled."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from cufall_py import Plan, Samples, Wanted
from cufall_py.errors import CufallError
from cufall_py.readings import Readings
from cufall_py.recording_reader import Recording
from cufall_py.session import LiveSession
from tests.scripted import fault, script
from tests.test_readings import PlayedNvml

SCRIPT = {"gpus": 2, "patterns": [[{"ms": 70, "tensor": 0.8}, {"ms": 30}], [{"ms": 10, "tensor": 0.25}]]}
PAIR = Wanted(("sm__pipe_tensor_cycles_active.avg",), "gr__cycles_elapsed.max")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    return Plan(source=f"script:{script}", sample_us=1000, frame_us=20_000, decode_us=20_000)


def test_a_recording_holds_every_sample_from_its_start_on(plan: Plan, tmp_path: Path) -> None:
    taken: list[tuple[int, Samples]] = []
    with LiveSession(plan, on_samples=lambda gpu, samples: taken.append((gpu, samples))) as session:
        session.record(tmp_path / "run.cufall")
        frames = list(session.frames(0.5))
    assert len(frames) == 25
    recording = Recording(tmp_path / "run.cufall")
    for gpu in (0, 1):
        ends = np.concatenate([s.end_ns for k, s in taken if k == gpu])
        read = Samples.join(s for k, s in recording.batches() if k == gpu)
        assert (read.end_ns == ends).all()
    total = Samples.join(s for k, s in recording.batches() if k == 1)
    tensor = total.values[:, 0].sum() / (4 * total.values[:, 1].sum())
    assert tensor == pytest.approx(0.25, rel=1e-6)


def test_it_ends_with_what_it_cost_and_lost(plan: Plan, tmp_path: Path) -> None:
    with LiveSession(plan) as session:
        session.record(tmp_path / "run.cufall")
        list(session.frames(0.2))
    *_, cost, end = Recording(tmp_path / "run.cufall").events()
    assert (cost.kind, end.kind) == ("cost", "end")
    assert cost.fields == asdict(session.cost()) | {"reader_cpu_s": cost.fields["reader_cpu_s"]}
    assert cost.fields["tally"]["samples"] > 0
    assert set(end.fields["tallies"]) == {gpu.device.uuid for gpu in session.gpus}
    assert all(tally["lost"] == 0 and tally["samples"] > 0 for tally in end.fields["tallies"].values())


def test_what_comes_at_the_very_end_is_recorded_and_counted(plan: Plan, tmp_path: Path) -> None:
    """A decode of two seconds is not waited for by the frame, nor by the end; its samples are there."""
    taken: list[Samples] = []
    slow = replace(plan, decode_us=2_000_000)
    with LiveSession(slow, on_samples=lambda gpu, samples: taken.append(samples)) as session:
        session.record(tmp_path / "run.cufall")
        time.sleep(1.2)
        assert not taken
    count = sum(map(len, taken))
    assert count > 100
    assert session.cost().tally.samples == count
    assert sum(len(samples) for _, samples in Recording(tmp_path / "run.cufall").batches()) == count


def test_regions_nest_repeat_and_come_from_any_thread(plan: Plan, tmp_path: Path) -> None:
    with LiveSession(plan) as session:
        with session.region("before"):
            session.record(tmp_path / "run.cufall")
            with session.region("outer", "what is seen"):
                with session.region("inner"):
                    list(session.frames(0.1))
                left_open = session.region("inner")
                another = threading.Thread(target=left_open.__enter__)
                another.start()
                another.join()
                between_ns = time.time_ns()
                list(session.frames(0.1))
        list(session.frames(0.1))
    recording = Recording(tmp_path / "run.cufall")
    regions, outline = recording.regions(), recording.outline()
    assert {name: [time.text for time in times] for name, times in regions.items()} == {
        "before": [""],
        "outer": ["what is seen"],
        "inner": ["", ""],
    }
    (outer,), (first, second) = regions["outer"], regions["inner"]
    assert outer.start_ns <= first.start_ns < first.end_ns <= second.start_ns <= between_ns < outer.end_ns
    assert regions["before"][0].start_ns == outline.start_ns  # it began before there was a recording
    assert second.end_ns >= outline.end_ns  # never closed, so with the recording


def test_a_region_is_told_though_nobody_takes_frames(plan: Plan, tmp_path: Path) -> None:
    with LiveSession(plan) as session:
        session.record(tmp_path / "run.cufall")
        with session.region("alone"):
            time.sleep(0.2)
    (alone,) = Recording(tmp_path / "run.cufall").regions()["alone"]
    assert alone.end_ns - alone.start_ns >= 0.2e9


def test_a_region_needs_a_name(plan: Plan) -> None:
    with LiveSession(plan) as session:
        with session.region("not recorded"):
            pass
        with pytest.raises(CufallError, match="a region needs a name"), session.region(" "):
            pass


def test_a_gap_is_an_event(tmp_path: Path) -> None:
    source = script(tmp_path, faults=[fault(0, "gap", 0.6, 0.1)])
    with LiveSession(Plan(source=source, sample_us=1000, frame_us=20_000, decode_us=20_000)) as session:
        session.record(tmp_path / "run.cufall")
        list(session.frames(1.0))
    (gap,) = [event for event in Recording(tmp_path / "run.cufall").events() if event.kind == "gap"]
    assert gap.gpu == 0
    assert gap.fields["samples"] == pytest.approx(100, abs=2)
    assert (gap.end_ns - gap.start_ns) / 1e6 == pytest.approx(100, abs=2)


def test_a_person_is_told_by_the_readers_own_thread(plan: Plan, tmp_path: Path) -> None:
    """There is no NVML here, which the thread that reads it finds out."""
    said_by: list[tuple[str, threading.Thread]] = []
    with LiveSession(plan, lambda line: said_by.append((line, threading.current_thread()))) as session:
        session._readings = Readings(["GPU-x"], PlayedNvml(opens=False))
        session._readings.start()
        list(session.frames(0.5))
    assert [line for line, _ in said_by] == ["clocks and power are not known: NVML says Driver Not Loaded"]
    assert {thread for _, thread in said_by} == {threading.current_thread()}


def test_an_existing_recording_is_not_written_over(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "run.cufall"
    path.write_text("mine")
    with LiveSession(plan) as session, pytest.raises(CufallError, match=r"run\.cufall"):
        session.record(path)
    assert path.read_text() == "mine"


def test_a_pair_of_two_clocks_is_shown_of_its_own_peak_and_explained_once(plan: Plan) -> None:
    said: list[str] = []
    pair = Plan(**{**vars(plan), "wanted": PAIR})
    with LiveSession(pair, said.append) as session:
        frames = list(session.frames(0.4))
    assert frames[5].mean[1, 0] == pytest.approx(0.25, rel=1e-9)
    explained = [line for line in said if "its own peak (4 a cycle)" in line]
    # the scripted SM clock is 1.755 GHz, the SYS clock 1.6
    assert len(explained) == 1 and "4.39 times that (1.10 gpc_cycle to a sys_cycle)" in explained[0]


def test_raw_is_the_plain_quotient_of_the_pair(plan: Plan) -> None:
    raw = Plan(**{**vars(plan), "wanted": Wanted(PAIR.metrics, PAIR.denominator, raw=True)})
    with LiveSession(raw) as session:
        frame = next(iter(session.frames()))
    assert frame.mean[1, 0] == pytest.approx(0.25 * 4 * 1.755 / 1.6, rel=1e-9)


def test_a_recording_may_have_any_name_a_file_can(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xff.cufall")
    with LiveSession(plan) as session:
        session.record(path)
        list(session.frames(0.1))
    assert sum(len(samples) for _, samples in Recording(path).batches()) > 0


def test_a_closed_session_says_so(plan: Plan, tmp_path: Path) -> None:
    with LiveSession(plan) as session:
        frames = session.frames()
        next(frames)
        time.sleep(1)
        next(frames)  # others are ready too, and not taken
    for use in (lambda: next(frames), lambda: list(session.frames(1)), lambda: session.record(tmp_path / "x")):
        with pytest.raises(CufallError, match="this session is closed"):
            use()


def test_a_session_is_recorded_once(plan: Plan, tmp_path: Path) -> None:
    with LiveSession(plan) as session:
        session.record(tmp_path / "a")
        with pytest.raises(CufallError, match="is being recorded already"):
            session.record(tmp_path / "b")
