"""Supervisor, workers and reader together: what is measured, and who survives whom."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from cufall_py import Frame, Plan, Wanted
from cufall_py.errors import (
    CountersDenied,
    CountersOwned,
    CufallError,
    InvalidMeasurement,
    LibraryProblem,
    SourceError,
    UsageError,
)
from cufall_py.samples import Samples
from cufall_py.session import LiveSession
from tests.scripted import ROOT, cufall, environment, fault, rings, script, soon, start, workers

FAST = {"frame_us": 50_000, "decode_us": 50_000}


@contextmanager
def session(source: str, heard: list[str] | None = None, **plan: int) -> Iterator[LiveSession]:
    said = [] if heard is None else heard
    with LiveSession(Plan(source=source, **{**FAST, **plan}), said.append) as running:
        yield running


def take(running: LiveSession, seconds: float) -> list[Frame]:
    return list(running.frames(seconds))


def until(running: LiveSession, enough: Callable[[Frame], bool], seconds: float = 20.0) -> list[Frame]:
    """Frames up to the first that is enough."""
    frames, end = [], time.monotonic() + seconds
    for frame in running.frames():
        frames.append(frame)
        if enough(frame):
            return frames
        assert time.monotonic() < end, "no such frame came"
    raise AssertionError("frames ended")


@pytest.mark.parametrize("gpus", [1, 2, 8, 16])
def test_means_are_those_of_arithmetic(tmp_path: Path, gpus: int) -> None:
    """Each GPU is at 1/20 of its number for 30 ms and idle for 20: a frame of 50 ms holds one such period."""
    patterns = [[{"ms": 30, "tensor": (k + 1) / 20}, {"ms": 20}] for k in range(gpus)]
    source = script(tmp_path, gpus=gpus, patterns=patterns)
    with session(source, sample_us=1000, decode_us=200_000) as running:
        frames = take(running, 0.5)
    expected = 0.6 * (np.arange(gpus) + 1) / 20
    assert len(frames) == 10
    for frame in frames:
        np.testing.assert_allclose(frame.mean[:, 0], expected, rtol=1e-6)
        np.testing.assert_allclose(frame.coverage, 1.0)
        assert (frame.minimum[:, 0] < 1e-9).all()
        np.testing.assert_allclose(frame.maximum[:, 0], expected / 0.6, rtol=1e-6)


def test_frames_follow_each_other_on_multiples_of_their_length(tmp_path: Path) -> None:
    with session(script(tmp_path, gpus=2)) as running:
        starts = [frame.start_ns for frame in take(running, 0.5)]
    assert starts[0] % 50_000_000 == 0
    assert set(np.diff(starts)) == {50_000_000}


@pytest.mark.parametrize(("seconds", "frame_us"), [(0.3, 100_000), (1.001, 1000)])
def test_a_duration_gives_exactly_its_frames(tmp_path: Path, seconds: float, frame_us: int) -> None:
    with session(script(tmp_path), frame_us=frame_us) as running:
        assert len(take(running, seconds)) == round(seconds * 1e6) // frame_us


def test_a_duration_ends_with_its_last_frame(tmp_path: Path) -> None:
    """It does not wait for the next one, which is three seconds away."""
    with session(script(tmp_path), frame_us=3_000_000, sample_us=50_000) as running:
        (frame,) = take(running, 3.0)
        assert time.time_ns() - frame.end_ns < 2_500_000_000


def test_a_duration_shorter_than_a_frame_is_refused(tmp_path: Path) -> None:
    with session(script(tmp_path)) as running, pytest.raises(UsageError, match=r"--duration-sec 0\.04: .* 0\.05 s"):
        running.frames(0.04)


def test_frames_can_be_taken_in_turns(tmp_path: Path) -> None:
    with session(script(tmp_path), frame_us=1000, sample_us=500) as running:
        taken = []
        for frame in running.frames():
            taken.append(frame)
            if len(taken) == 7:
                break
        taken += take(running, 0.003)
        taken += [next(running.frames()), *take(running, 0.4)]
    assert len(taken) == 411
    assert set(np.diff([frame.start_ns for frame in taken])) == {1_000_000}


def test_more_open_files_than_select_can_take(tmp_path: Path) -> None:
    with open("/dev/null") as null:
        high = [fcntl.fcntl(null, fcntl.F_DUPFD, 1024) for _ in range(2)]
        held = []
        try:
            while not held or held[-1] < 1024:
                held.append(os.dup(null.fileno()))
            with session(script(tmp_path)) as running:
                assert running._feed._out.fileno() > 1023
                assert len(take(running, 0.2)) == 4
        finally:
            for fd in (*high, *held):
                os.close(fd)


def test_a_hung_gpu_leaves_the_others_alone(tmp_path: Path) -> None:
    heard: list[str] = []
    source = script(tmp_path, gpus=8, faults=[fault(3, "hang", at_s=1.0)])
    with session(source, heard, decode_us=200_000) as running:
        frames = take(running, 4.0)
        age_s = (time.time_ns() - frames[-1].end_ns) / 1e9
        cost = running.cost()
    others = [k for k in range(8) if k != 3]
    assert all((frame.coverage[others] > 0.999).all() for frame in frames)
    np.testing.assert_allclose([frame.mean[others, 0] for frame in frames], 0.5, rtol=1e-6)
    assert age_s < 5
    assert np.isnan(frames[-1].mean[3, 0])
    assert frames[-1].got[3] == 0
    assert cost.tally.lost == 0
    assert [line for line in heard if "GPU 3" in line] == [line for line in heard if "no samples" in line]
    assert len(heard) == 1


def test_a_call_that_does_not_return_is_ended(tmp_path: Path) -> None:
    """As with a real driver the signal that asks a worker to end cannot reach it there."""
    source = script(tmp_path, gpus=2, faults=[fault(1, "hang", at_s=0.5)])
    status = _fork_and_work(source, hung_s=1.0)
    assert status == -signal.SIGALRM


def _fork_and_work(source: str, hung_s: float) -> int:
    code = (
        "import os; from cufall_py import worker; from cufall_py.plan import Plan\n"
        "from cufall_py.sources import provider\n"
        f"worker.HUNG_S = {hung_s}\n"
        f"provider = provider({source!r}); device = provider.devices()[1]\n"
        f"plan = Plan(source={source!r}, frame_us=20000, decode_us=20000)\n"
        "worker.work(provider, device, plan, lambda *_, **__: None, os.pipe()[0], 0)"
    )
    return subprocess.run([sys.executable, "-c", code], env=environment(), check=False, timeout=10).returncode


def test_a_crashed_worker_is_started_again(tmp_path: Path, ring_dir: Path) -> None:
    heard: list[str] = []
    source = script(tmp_path, gpus=2, faults=[fault(1, "crash", at_s=1.0, for_s=0.1)])
    with session(source, heard, decode_us=200_000) as running:
        frames = until(running, lambda frame: "GPU 1: samples come again" in heard and frame.coverage[1] > 0.999)
        tally = running.gpus[1].tally
    gap = [frame for frame in frames if frame.coverage[1] < 0.999]
    assert gap
    assert any(np.isnan(frame.mean[1, 0]) for frame in gap)
    assert all((frame.coverage[0] > 0.999) for frame in frames)
    missing_s = sum(1 - frame.coverage[1] for frame in frames) * 0.05
    # what came first again was, by up to two decodes, too late for frames that no longer waited
    assert tally.lost_ns / 1e9 - 0.01 <= missing_s <= tally.lost_ns / 1e9 + 1.0
    assert heard == ["GPU 1: its worker ended (signal 9), starting again in 0.5 s", "GPU 1: samples come again"]
    assert rings(ring_dir) == []


def test_a_lost_gpu_is_said_and_tried_again(tmp_path: Path) -> None:
    heard: list[str] = []
    with session(script(tmp_path, gpus=2, faults=[fault(0, "lost", at_s=0.7, for_s=0.2)]), heard) as running:
        until(running, lambda frame: "GPU 0: samples come again" in heard)
    assert heard[0] == "GPU 0 (Scripted GPU) is lost"


def test_a_killed_supervisor_is_started_again(tmp_path: Path, ring_dir: Path) -> None:
    heard: list[str] = []
    again = {f"GPU {k}: samples come again" for k in range(2)}
    with session(script(tmp_path, gpus=2), heard) as running:
        taken: list[Frame] = []
        for frame in running.frames():
            taken.append(frame)
            if len(taken) == 5:
                os.kill(running._feed._process.pid, signal.SIGKILL)
            if again <= set(heard) and (frame.coverage > 0.999).all():
                break
            assert len(taken) < 200
    assert heard[0] == "the sampling process ended by itself (signal 9), starting again in 0.5 s"
    assert any(np.isnan(frame.mean).all() for frame in taken)
    np.testing.assert_allclose(taken[-1].mean, 0.5, rtol=1e-6)
    assert set(np.diff([frame.start_ns for frame in taken])) == {50_000_000}
    assert rings(ring_dir) == []


def test_a_killed_supervisor_with_a_hung_worker_is_noticed(tmp_path: Path) -> None:
    """The hung worker outlives it for a while, and holds the pipe that the supervisor wrote to."""
    heard: list[str] = []
    hung: list[int] = []
    with session(script(tmp_path, gpus=2, faults=[fault(1, "hang", at_s=0.8)]), heard) as running:
        for count, _ in enumerate(running.frames()):
            if count == 20:
                hung = [process.pid for process in workers(os.getpid())]
                os.kill(running._feed._process.pid, signal.SIGKILL)
            if "GPU 0: samples come again" in heard:
                break
            assert count < 200
    for pid in hung:  # its alarm would end it, ten seconds after it hung
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_a_supervisor_that_ends_at_once_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUFALL_PYTHON", "/bin/true")
    with pytest.raises(SourceError, match=r"ended by itself \(exit code 0\); it runs /bin/true"):
        LiveSession(Plan(source=script(tmp_path)))


@pytest.mark.parametrize("hung", [False, True])
def test_a_killed_reader_leaves_nothing(tmp_path: Path, ring_dir: Path, hung: bool) -> None:
    source = script(tmp_path, gpus=4, faults=[fault(1, "hang", at_s=0.2)] if hung else [])
    process = start("--source", source, stdout=subprocess.DEVNULL)
    soon(lambda: len(rings(ring_dir)) == 4)
    sampling = [*workers(process.pid), *workers(process.pid)[0].parents()[:1]]
    time.sleep(0.5)
    process.kill()
    process.communicate()
    soon(lambda: not any(p.is_running() for p in sampling) and not rings(ring_dir), 3.0)


@pytest.mark.parametrize(("kind", "error"), [("denied", CountersDenied)])
def test_counters_refused_on_every_gpu_are_an_error(tmp_path: Path, kind: str, error: type[CufallError]) -> None:
    source = script(tmp_path, gpus=2, faults=[fault(0, kind), fault(1, kind)])
    with pytest.raises(error, match=f"GPU 0 .*{kind}"):
        LiveSession(Plan(source=source))


@pytest.mark.parametrize("kind", ["owned"])
def test_counters_refused_on_one_gpu_leave_the_other(tmp_path: Path, kind: str) -> None:
    heard: list[str] = []
    with session(script(tmp_path, gpus=2, faults=[fault(1, kind)]), heard) as running:
        frames = take(running, 0.5)
    np.testing.assert_allclose([frame.mean[0, 0] for frame in frames], 0.5)
    assert all(np.isnan(frame.mean[1, 0]) for frame in frames)
    assert heard == [f"GPU 1 (Scripted GPU): scripted to be {kind}; going on without it"]
    with pytest.raises(InvalidMeasurement, match="no samples of GPU 1"):
        running.check()


def test_a_gpu_that_is_let_go_of_is_taken(tmp_path: Path) -> None:
    with session(script(tmp_path, faults=[fault(0, "owned", for_s=1.0)])) as running:
        assert take(running, 0.2)[-1].coverage[0] > 0.999


def test_the_last_gpu_to_be_refused_ends_it(tmp_path: Path) -> None:
    """It crashes, and meanwhile the counters were closed."""
    faults = [fault(0, "crash", at_s=0.8, for_s=0.1), fault(0, "denied", at_s=0.5)]
    with session(script(tmp_path, faults=faults)) as running, pytest.raises(CountersDenied):
        take(running, 10)


def test_a_second_cufall_is_told_who_has_the_gpu(tmp_path: Path) -> None:
    source = script(tmp_path, gpus=2, uuids=["GPU-aaaa", "GPU-bbbb"])
    with session(source) as first:
        with pytest.raises(CountersOwned, match="GPU 0: an earlier Session of this program"):
            LiveSession(Plan(source=source))
        other = cufall("--source", source)
        assert other.returncode == 1 and f"GPU 0: another cufall (process {os.getpid()})" in other.stderr
        frames = take(first, 0.3)
    assert all((frame.coverage > 0.999).all() for frame in frames)
    with session(source) as second:
        assert len(take(second, 0.2)) == 4


def test_a_stopped_worker_loses_nothing(tmp_path: Path) -> None:
    """Its samples wait in the hardware's buffer; what comes too late for its frame is counted."""
    got: list[Samples] = []
    plan = Plan(source=script(tmp_path), **FAST)
    with LiveSession(plan, on_samples=lambda _, samples: got.append(samples)) as running:
        frames = []
        for frame in running.frames(2.0):
            frames.append(frame)
            if len(frames) == 5:
                (worker,) = workers(os.getpid())
                worker.suspend()
                threading.Timer(1.0, worker.resume).start()
    cost = running.cost()
    samples = Samples.join(got)
    assert (samples.start_ns[1:] == samples.end_ns[:-1]).all()
    assert (cost.tally.samples, cost.tally.lost) == (len(samples), 0)
    assert cost.tally.late >= 1
    late = sum(frame.coverage[0] < 0.999 for frame in frames)
    assert late >= 10
    assert cost.late_samples == pytest.approx(4 * late, abs=8)
    assert frames[-1].coverage[0] > 0.999


def test_what_a_stopped_reader_misses_is_counted(tmp_path: Path) -> None:
    """200 samples of 5 us and seven counters fill a slot: a thousand slots a second, and the ring has as many."""
    wanted = Wanted(("tensor", "sm", "gr", "dram", "l2"))
    plan = Plan(wanted, source=script(tmp_path), sample_us=5, frame_us=20_000, decode_us=20_000, hw_buffer_mb=1024)
    with LiveSession(plan) as running:
        frames = running.frames()
        next(frames)
        time.sleep(2.0)
        missed, seen = [], []
        for frame in frames:
            seen.append(frame)
            if frame.coverage[0] < 0.001:
                missed.append(frame)
            elif missed and frame.coverage[0] > 0.999:
                break
        cost = running.cost()
    assert cost.overwritten > 100
    assert f"{cost.overwritten} batches overwritten unread" in cost.line()
    assert len(missed) > 10
    assert np.isnan([frame.mean for frame in missed]).all()
    assert frame.mean[0, 0] == pytest.approx(0.5)
    missing_s = sum(1 - frame.coverage[0] for frame in seen) * 0.02
    assert cost.tally.lost_ns / 1e9 == pytest.approx(missing_s, abs=0.04)
    assert cost.tally.lost == pytest.approx(cost.tally.lost_ns / 5000, rel=1e-3)


def test_rounds_of_killing_and_starting(tmp_path: Path, ring_dir: Path) -> None:
    """Whoever is killed and whenever, the next cufall on the same GPUs works."""
    dice = random.Random(7)
    source = script(tmp_path, gpus=2, uuids=["GPU-aaaa", "GPU-bbbb"])
    for _ in range(20):
        process = start("--source", source, "--frame-us", "20000", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(0.05, 0.6))
        family = psutil.Process(process.pid).children(recursive=True)
        for victim in [process, *(family if dice.random() < 0.5 else [])]:
            victim.kill()
        process.wait()
    ended = cufall("--source", source, "--frame-us", "20000", "--duration-sec", "0.2")
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 10)
    assert rings(ring_dir) == []


def test_a_forked_child_holds_nothing(tmp_path: Path, ring_dir: Path) -> None:
    """It neither keeps the sampling running after its parent nor ends it before."""
    code = (
        "import os, sys, time, warnings; from cufall_py import Plan; from cufall_py.session import LiveSession\n"
        f"running = LiveSession(Plan(source={script(tmp_path)!r}, frame_us=20000, decode_us=20000))\n"
        "next(running.frames())\n"
        "if os.fork() == 0:\n"
        "    running.close(); os.close(1); os.close(2); time.sleep(2.5); os._exit(0)\n"
        "time.sleep(0.3); print(len(list(running.frames(0.2))), flush=True); os._exit(0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert ended.stdout == "10\n", ended.stderr
    soon(lambda: rings(ring_dir) == [], 1.5)


BARE = "import json, os, sys, atexit\natexit.register(lambda: open({log!r}, 'w').write(json.dumps({{'path': sys.path, 'files': {{n: getattr(m, '__file__', None) for n, m in sys.modules.items()}}}})))\n"  # noqa: E501


def bare_python(folder: Path, *packages: str) -> Path:
    """An interpreter whose site-packages hold these of ours, and at its end tells in seen.json what it loaded."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    ours = Path(sysconfig.get_path("purelib"))
    for name in packages:
        for found in ours.glob(f"{name}*"):
            (site / found.name).symlink_to(found)
    (site / "sitecustomize.py").write_text(BARE.format(log=str(folder / "seen.json")))
    return folder / "bin" / "python"


def test_it_samples_under_another_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which needs numpy, not cufall, runs this package's files, and gets nothing else of ours."""
    other = bare_python(tmp_path / "other", "numpy")
    monkeypatch.setenv("CUFALL_PYTHON", str(other))
    assert subprocess.run([other, "-c", "import cufall_py"], cwd="/", capture_output=True).returncode == 1
    with session(script(tmp_path)) as running:
        np.testing.assert_allclose([frame.mean[0, 0] for frame in take(running, 0.2)], 0.5)
    seen = json.loads((tmp_path / "other" / "seen.json").read_text())
    ours = {name for name in seen["files"] if name.split(".")[0] == "cufall_py"}
    assert {seen["files"][name] for name in ours} <= {str(path) for path in (ROOT / "cufall_py").rglob("*.py")}
    assert {"cufall_py.sampler", "cufall_py.sources.script"} <= ours
    others = [file for name, file in seen["files"].items() if file and name not in ours]
    assert [file for file in others if file.startswith((str(ROOT), sysconfig.get_path("purelib")))] == []
    assert {str(ROOT), sysconfig.get_path("purelib"), ""} & set(seen["path"]) == set()


def test_an_interpreter_that_lacks_numpy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = bare_python(tmp_path / "other")
    monkeypatch.setenv("CUFALL_PYTHON", str(other))
    with pytest.raises(LibraryProblem, match=rf"{other} cannot sample \(No module named 'numpy'\); .*pipx") as caught:
        LiveSession(Plan(source=script(tmp_path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("python", "why"), [("/nonexistent", "No such file"), ("/etc/passwd", "Permission denied")])
def test_an_interpreter_that_is_none_is_one_line(python: str, why: str) -> None:
    ended = cufall(CUFALL_PYTHON=python)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"cufall: CUFALL_PYTHON={python}: {why}")


def test_without_cupti_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    """Before any process is started, so before any driver is looked for."""
    python = bare_python(tmp_path / "bare", "numpy", "click")
    ended = subprocess.run(
        [python, "-m", "cufall_py"], cwd=ROOT, env=environment(PATH="/nonexistent"), capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("cufall: cupti-python is not installed here; ")
    assert "pipx install 'cufall-py[gpu]'" in line and line.endswith("; without a GPU: cufall demo")
    seen = json.loads((tmp_path / "bare" / "seen.json").read_text())["files"]
    assert not {"numpy", "pynvml", "cufall_py.devices"} & set(seen)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("#!{python}\nimport sys\n", True),
        ("#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n", True),
        ("#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n", True),
        ("#!/usr/bin/env python3\n", False),
        ("#!/bin/sh\necho hello\n", False),
        ("#!{own}\n", False),
        ("#!/nonexistent/python3\n", False),
        ("\x7fELF\udcff", False),
    ],
)
def test_the_python_of_an_installed_cufall_is_found(tmp_path: Path, text: str, taken: bool) -> None:
    own = bare_python(tmp_path / "own")
    path = tmp_path / "bin" / "cufall"
    path.parent.mkdir()
    path.write_text(text.format(python=sys.executable, own=own), errors="surrogateescape")
    code = "from cufall_py import launch; print(launch._installed())"
    ended = subprocess.run(
        [own, "-c", code],
        env=environment(PATH=f"/nonexistent:{path.parent}"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == (sys.executable if taken else "None")
