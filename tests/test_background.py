"""A session beside a program: what is measured of the program's own time, by a thread that is there anyway."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cufall_py import BackgroundSession, Plan, Recording
from cufall_py.errors import CufallError, SourceError, UsageError
from tests.scripted import environment, fault, script, soon
from tests.test_recording import full_at


def plan(tmp_path: Path, **fields: object) -> Plan:
    return Plan(source=script(tmp_path, **fields), sample_us=1000, decode_us=20_000)


def test_a_stretch_of_a_programs_time_is_measured_whole(tmp_path: Path) -> None:
    with BackgroundSession(plan(tmp_path)) as session:
        with session.region("outer") as outer:
            with session.region("inner") as inner:
                time.sleep(0.2)
            time.sleep(0.1)
        inside, around = inner.summary("tensor"), outer.summary("tensor")
    assert (inside.mean, inside.p50, inside.below_1) == (pytest.approx(0.5), pytest.approx(0.5), 0)
    assert inside.coverage == around.coverage == pytest.approx(1.0, abs=1e-9)
    assert 190 < inside.samples < around.samples
    assert around.samples > 290


def test_it_is_recorded_with_its_regions(tmp_path: Path) -> None:
    path = tmp_path / "run.cufall"
    with BackgroundSession(plan(tmp_path), record=str(path)) as session:
        with session.region("decode", "16 at once") as measured:
            time.sleep(0.2)
        assert session.close().tally.samples > 200
    (region,) = Recording(path).regions()["decode"]
    assert region.text == "16 at once"
    assert (region.end_ns - region.start_ns) / 1e9 == measured.all().scopes[0].wanted_s


def test_the_programs_own_work_is_not_counted_as_its_cost(tmp_path: Path) -> None:
    with BackgroundSession(plan(tmp_path)) as session:
        began_s = time.process_time()
        while time.process_time() - began_s < 1.0:
            sum(range(1000))
        cost = session.close()
    assert 0 < cost.reader_cpu_s < 0.5


def test_any_thread_measures(tmp_path: Path) -> None:
    found: list[float] = []

    def work() -> None:
        with session.region("of a thread") as measured:
            time.sleep(0.1)
        found.append(measured.summary("tensor").mean)

    with BackgroundSession(plan(tmp_path)) as session:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [pytest.approx(0.5)] * 8


def test_what_keeps_it_from_starting_is_raised(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="GPU 0"):
        BackgroundSession(plan(tmp_path, faults=[fault(0, "denied")]))
    with pytest.raises(UsageError, match="No such file"):
        BackgroundSession(Plan(source=f"script:{tmp_path}/none"))


def test_a_place_that_takes_no_recording_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(CufallError, match="No such file or directory"):
        BackgroundSession(plan(tmp_path), record=str(tmp_path / "none" / "run.cufall"))


def test_a_region_that_goes_on_when_it_is_closed_has_what_came(tmp_path: Path) -> None:
    session = BackgroundSession(plan(tmp_path))
    with session.region("cut") as measured:
        time.sleep(0.1)
        session.close()
        time.sleep(0.1)
    found = measured.summary("tensor")
    assert found.samples > 50
    assert 0.2 < found.coverage < 0.9
    session.close()  # once more does nothing


def test_a_gpu_that_is_lost_is_not_waited_for(tmp_path: Path) -> None:
    source = plan(tmp_path, gpus=2, faults=[fault(1, "lost", 0.7)])
    said: list[str] = []
    with BackgroundSession(source, said.append) as session:
        with session.region("all along") as measured:
            time.sleep(1.5)
        found = [measured.summary("tensor", gpu=k) for k in (0, 1)]
    assert found[0].coverage == pytest.approx(1.0)
    assert 0.1 < found[1].coverage < 0.9
    assert any("GPU 1" in line for line in said)


def test_a_region_needs_a_name(tmp_path: Path) -> None:
    named = pytest.raises(UsageError, match="a region needs a name")
    with BackgroundSession(plan(tmp_path)) as session, named, session.region(" "):
        pass


def test_a_recording_that_fails_is_told_where_it_is_asked_for_next_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.cufall"
    with pytest.raises(CufallError, match="File too large") as failed:  # noqa: SIM117
        with BackgroundSession(plan(tmp_path), record=str(path)) as session, full_at(20_000):
            with session.region("whole") as measured:
                time.sleep(0.1)
            assert measured.summary("tensor").samples > 50
            soon(lambda: not threads())
            with pytest.raises(CufallError, match="File too large"), session.region("none"):
                pass
    assert str(path) in str(failed.value)
    assert sum(len(samples) for _, samples in Recording(path).batches()) > 100


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "cufall"]


def test_what_the_program_raises_comes_first(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="mine"), BackgroundSession(plan(tmp_path)):
        raise OSError("mine")
    assert threads() == []


INTERRUPTED = """
import os, signal, sys, threading, time
from cufall_py import BackgroundSession, Plan
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    BackgroundSession(Plan(source=sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted")
until = time.monotonic() + 20
while any(thread.name == "cufall" for thread in threading.enumerate()) and time.monotonic() < until:
    time.sleep(0.05)
print([thread.name for thread in threading.enumerate() if thread.daemon])
"""


def test_an_interrupt_while_it_starts_leaves_nothing_sampling(tmp_path: Path) -> None:
    words = [sys.executable, "-c", INTERRUPTED, script(tmp_path)]
    ended = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60)
    assert ended.stdout.splitlines() == ["interrupted", "[]"], ended.stderr
