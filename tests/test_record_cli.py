"""`cufall record` as a shell runs it: commands, signals, places that cannot be written, regions, marks."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cufall_py.errors import CufallError
from cufall_py.outline import Outline
from cufall_py.presets import VERDICT_NAMES
from cufall_py.recording_reader import Recording
from cufall_py.samples import Samples
from tests.scripted import command, cufall, environment, fault, script, soon, start
from tests.terminals import Terminal

QUICK = ("--decode-us", "20000", "--frame-us", "20000")
BYTES = bytes(range(256)) * 40
TENSOR, SM_ELAPSED = "sm__pipe_tensor_cycles_active_realtime.avg", "sm__cycles_elapsed.avg"
RELAY = "import os, sys; os.write(1, sys.stdin.buffer.read()); os.write(2, b'\\xff\\x00talk\\n')"


@pytest.fixture
def source(tmp_path: Path) -> str:
    return script(tmp_path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run.cufall"


def recorded(path: Path) -> Outline:
    """What there is of a recording that was ended in order."""
    recording = Recording(path)
    assert recording.whole
    return recording.outline()


def length_s(outline: Outline) -> float:
    return (outline.end_ns - outline.start_ns) / 1e9


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    return ended.stderr.splitlines()[-1]


# Without a command


def test_a_while_is_recorded_with_the_defaults_of_a_recording(source: str, out: Path) -> None:
    ended = cufall("record", "--source", source, "-o", str(out), "--duration-sec", "0.5")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert last_line(ended).startswith(f"cufall: {out} (") and last_line(ended).endswith("): done; exit 0")
    recording, found = Recording(out), recorded(out)
    assert recording.plan.sample_us == 1000
    labels = [metric.label for metric in recording.opened[0].metrics.metrics]
    assert recording.plan.wanted.asked == tuple(labels[:4]) == ("tensor", "sm", "gr", "dram")
    assert set(labels[4:]) == set(VERDICT_NAMES) - set(labels[:4])
    assert length_s(found) >= 0.5
    assert found.periods_ns == [pytest.approx(1e6, rel=0.01)]
    read = Samples.join(samples for _, samples in recording.batches())
    tensor, elapsed = (recording.opened[0].metrics.counters.index(name) for name in (TENSOR, SM_ELAPSED))
    assert read.values[:, tensor].sum() / (4 * read.values[:, elapsed].sum()) == pytest.approx(0.5, rel=1e-6)


def test_sampling_options_and_variables_are_those_of_live(source: str, out: Path) -> None:
    words = ("--source", source, "-o", str(out), "--duration-sec", "0.1", "--metric", "sm")
    ended = cufall("record", *words, CUFALL_SAMPLE_US="5000", CUFALL_FRAME_US="20000")
    assert ended.returncode == 0, ended.stderr
    recording = Recording(out)
    assert (recording.plan.sample_us, recording.plan.frame_us, recording.plan.wanted.metrics) == (5000, 20000, ("sm",))


def test_a_chip_without_one_of_the_default_metrics_is_recorded_without_it(tmp_path: Path, out: Path) -> None:
    source = script(tmp_path, chip="GB20B")
    ended = cufall("record", "--source", source, *QUICK, "-o", str(out), "--duration-sec", "0.1")
    assert ended.returncode == 0, ended.stderr
    assert "dram is not to be had on GB20B" in ended.stderr and "; recorded is tensor, sm, gr\n" in ended.stderr
    asked = cufall("record", "--source", source, "-o", str(out), "--force", "--metric", "dram")
    assert (asked.returncode, "dram is not to be had" in asked.stderr) == (2, True)


def test_without_a_name_it_is_dated_and_in_the_folder_it_runs_in(source: str, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    words = command("record", "--source", source, *QUICK, "--duration-sec", "0.1")
    before = time.strftime("cufall-%Y%m%d-%H%M%S.cufall")
    ended = subprocess.run(words, cwd=here, env=environment(), capture_output=True, text=True)
    (path,) = here.iterdir()
    assert before <= path.name <= time.strftime("cufall-%Y%m%d-%H%M%S.cufall")
    assert f"cufall: {path.name} (" in ended.stderr
    assert recorded(path).counts[0] > 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_keeps_what_was_measured(number: int, source: str, tmp_path: Path) -> None:
    picked = random.Random(number)
    running = []
    for k in range(6):
        path = tmp_path / f"{k}.cufall"
        process = start("record", "--source", source, *QUICK, "-o", str(path))
        running.append((process, path))
        soon(path.exists)
        time.sleep(picked.uniform(0, 0.3))
        process.send_signal(number)
    for process, path in running:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 128 + number, said
        name = signal.Signals(number).name
        assert said.splitlines()[-1].endswith(f": ended by {name}; exit {128 + number}")
        recorded(path)


def holds_samples(path: Path) -> bool:
    """Whether a file that is being written has samples yet; its head alone is some kilobytes."""
    try:
        return Recording(path, lambda line: None).outline().counts[0] > 0
    except CufallError:
        return False


def test_a_second_signal_ends_at_once_and_leaves_a_readable_file(source: str, out: Path) -> None:
    process = start("record", "--source", source, *QUICK, "-o", str(out))
    soon(lambda: holds_samples(out))
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode in (130, 143)
    assert Recording(out).outline().counts[0] > 0


# With a command


def test_a_commands_input_and_output_are_untouched(source: str, out: Path) -> None:
    words = command("record", "--source", source, *QUICK, "-o", str(out), "--", sys.executable, "-c", RELAY)
    ended = subprocess.run(words, input=BYTES, env=environment(), capture_output=True)
    assert (ended.returncode, ended.stdout) == (0, BYTES)
    lines = ended.stderr.splitlines(keepends=True)
    assert [line for line in lines if not line.startswith(b"cufall: ")] == [b"\xff\x00talk\n"]
    assert lines[-1].endswith(b": the command ended with 0; exit 0\n")


def test_open_files_are_handed_on(source: str, out: Path) -> None:
    """As make hands its job server on to what it starts."""
    read, write = os.pipe()
    words = command(
        "record", "--source", source, *QUICK, "-o", str(out), "--", "sh", "-c", f"echo passed >/proc/self/fd/{write}"
    )
    subprocess.run(words, env=environment(), capture_output=True, pass_fds=[write])
    os.close(write)
    assert os.read(read, 100) == b"passed\n"
    os.close(read)


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("exit 7", 7, "the command ended with 7"),
        ("kill -9 $$", 137, "the command was ended by SIGKILL"),
        ("kill -TERM $$", 143, "the command was ended by SIGTERM"),
    ],
)
def test_a_commands_own_end_comes_through(
    source: str, out: Path, tmp_path: Path, line: str, code: int, why: str
) -> None:
    result = tmp_path / "result.json"
    words = ("record", "--source", source, *QUICK, "-o", str(out), "--result", str(result), "--", "sh", "-c", line)
    ended = cufall(*words)
    assert ended.returncode == code
    assert last_line(ended).endswith(f": {why}; exit {code}")
    told = json.loads(result.read_text())
    ended_as = {"schema": 1, "exit_code": code, "meaning": "the command's own", "why": why}
    assert told == {**ended_as, "requirements": [], "path": str(out)}
    recorded(out)


def test_all_after_the_dashes_is_the_commands(source: str, out: Path) -> None:
    words = ("record", "--source", source, *QUICK, "-o", str(out), "--", "printf", "%s|", "-o", "--", "--help", "")
    assert cufall(*words).stdout == "-o|--|--help||"


def test_the_region_command_is_when_it_ran(source: str, out: Path) -> None:
    told = "import time; a = time.time_ns(); time.sleep(0.4); print(a, time.time_ns())"
    words = ("record", "--source", source, *QUICK, "-o", str(out), "--cooldown-sec", "0.3")
    ended = cufall(*words, "--", sys.executable, "-c", told)
    began_ns, ended_ns = map(int, ended.stdout.split())
    found = recorded(out)
    (region,) = found.regions["command"]
    assert region.start_ns <= began_ns < ended_ns <= region.end_ns
    assert found.start_ns <= region.start_ns
    assert found.end_ns - region.end_ns >= 0.3e9


def test_the_region_begins_after_the_warm_up(source: str, out: Path) -> None:
    words = ("record", "--source", source, *QUICK, "-o", str(out), "--warmup-sec", "0.25")
    ended = cufall(*words, "--", "sh", "-c", "date +%s%N; sleep 0.5; date +%s%N")
    began_ns, ended_ns = map(int, ended.stdout.split())
    (region,) = recorded(out).regions["command"]
    assert region.start_ns <= began_ns + 0.25e9
    assert region.end_ns >= ended_ns


def test_a_command_that_ends_within_its_warm_up_has_no_region(source: str, out: Path) -> None:
    ended = cufall("record", "--source", source, *QUICK, "-o", str(out), "--warmup-sec", "60", "--", "true")
    assert ended.returncode == 0
    assert "cufall: the command ended within its warm-up: the recording has no region command\n" in ended.stderr
    assert recorded(out).regions == {}


def test_after_the_duration_the_command_goes_on(source: str, out: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    line = f"until test -e {gate}; do sleep 0.05; done; exit 5"
    words = ("record", "--source", source, *QUICK, "-o", str(out), "--duration-sec", "0.2", "--", "sh", "-c", line)
    process = start(*words)
    assert process.stderr
    said = ""
    while "the command goes on" not in said:
        said = process.stderr.readline()
    found = recorded(out)
    assert found.regions["command"][0].end_ns >= found.end_ns
    gate.touch()
    process.communicate(timeout=60)
    assert process.returncode == 5


def test_what_a_command_leaves_behind_is_not_waited_for(source: str, out: Path) -> None:
    ended = cufall(
        *("record", "--source", source, *QUICK, "-o", str(out), "--"),
        *("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!; exit 3"),
    )
    os.kill(int(ended.stdout), signal.SIGKILL)
    assert ended.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_commands_end_waited_for(number: int, source: str, out: Path) -> None:
    name = signal.Signals(number).name[3:]
    line = f"trap 'sleep 0.3; echo got; exit 9' {name}; echo ready; while :; do sleep 0.02; done"
    process = start("record", "--source", source, *QUICK, "-o", str(out), "--", "sh", "-c", line)
    assert process.stdout and process.stdout.readline() == "ready\n"
    sent_ns = time.time_ns()
    process.send_signal(number)
    output, said = process.communicate(timeout=60)
    assert (output, process.returncode) == ("got\n", 128 + number), said
    assert recorded(out).regions["command"][0].end_ns > sent_ns + 0.3e9


def test_a_signal_that_ends_nothing_is_passed_on_too(source: str, out: Path) -> None:
    line = "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.02; done"
    process = start("record", "--source", source, *QUICK, "-o", str(out), "--", "sh", "-c", line)
    assert process.stdout and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=60)[0] == "got\n"
    assert process.returncode == 0


def test_a_command_that_ignores_sigterm_is_left_at_the_second(source: str, out: Path) -> None:
    line = "trap '' TERM; echo $$; while :; do sleep 0.02; done"
    process = start("record", "--source", source, *QUICK, "-o", str(out), "--", "sh", "-c", line)
    assert process.stdout and process.stderr
    shell = psutil.Process(int(process.stdout.readline()))
    process.terminate()
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    process.wait(60)
    said = os.read(process.stderr.fileno(), 100_000).decode()  # not to its end, for the command has it open
    still_runs = shell.is_running()
    shell.kill()
    process.communicate()
    assert (process.returncode, still_runs) == (143, True)
    assert f"cufall: the command (process {shell.pid}) still runs\n" in said
    recorded(out)


COUNTING = """
import signal, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print("ready", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.5)
print("times", len(got), flush=True)
"""


def test_a_key_on_a_terminal_reaches_the_command_once(source: str, out: Path) -> None:
    words = command("record", "--source", source, *QUICK, "-o", str(out), "--", sys.executable, "-c", COUNTING)
    with Terminal(words) as terminal:
        terminal.sees("ready")
        terminal.press("\x03")
        assert terminal.ends() == 130
    assert b"times 1\r\n" in terminal.written
    assert b" lost, " not in terminal.written  # a command's terminal has no progress of ours in it


# What cannot be


def test_a_command_is_not_started_if_nothing_can_be_measured(tmp_path: Path, out: Path) -> None:
    result = tmp_path / "result.json"
    source = script(tmp_path, faults=[fault(0, "denied")])
    ended = cufall("record", "--source", source, "-o", str(out), "--result", str(result), "--", "echo", "started")
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (1, "", 1)
    told = json.loads(result.read_text())
    assert (told["exit_code"], told["path"], f"cufall: {told['why']}\n") == (1, None, ended.stderr)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-o /nonexistent/x.cufall", "-o /nonexistent/x.cufall: No such file or directory"),
        ("-o /", "-o /: must be a file"),
        ("-o -", "-o -: must be a file"),
        ("--result /nonexistent/x", "--result /nonexistent/x: No such file or directory"),
        ("--duration-sec nan", "--duration-sec nan: must be a number from 0 to 1e+09"),
        ("--warmup-sec -1", "--warmup-sec -1.0: must be a number from 0 to 1e+09"),
        ("--cooldown-sec x", "--cooldown-sec x: must be a number from 0 to 1e+09"),
        ("--warmup-sec 1 --duration-sec 1", "--warmup-sec goes with a command"),
        ("--duration-sec 0.01", "--duration-sec 0.01: must be 0 or at least one frame"),
        ("--", "no command after --"),
        ("-- nosuch-command", "nosuch-command: no such command"),
        ("echo started", "echo: a command goes after --"),
        ("--region x -- echo started", "--region goes with a recording"),
        ("--loop", "--loop"),
        ("--csv -", "--csv"),
    ],
)
def test_what_cannot_be_is_usage_and_starts_nothing(source: str, tmp_path: Path, words: str, told: str) -> None:
    before = {*tmp_path.iterdir()}
    split = words.split()
    given = split if "-o" in split else ["-o", str(tmp_path / "new.cufall"), *split]
    ended = cufall("record", "--source", source, *given)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("cufall: ") and told in ended.stderr
    assert not (tmp_path / "new.cufall").exists()
    assert {path.suffix for path in {*tmp_path.iterdir()} - before} <= {""}  # the folder of rings alone


def test_a_file_that_is_there_is_kept_unless_forced(source: str, out: Path) -> None:
    out.write_text("mine")
    words = ("record", "--source", source, *QUICK, "-o", str(out), "--duration-sec", "0.1")
    ended = cufall(*words)
    assert (ended.returncode, ended.stderr) == (2, f"cufall: -o {out}: is there already; --force writes over it\n")
    assert out.read_text() == "mine"
    assert cufall(*words, "--force").returncode == 0
    recorded(out)


def test_a_forced_file_is_kept_where_nothing_can_be_measured(tmp_path: Path, out: Path) -> None:
    out.write_text("mine")
    source = script(tmp_path, faults=[fault(0, "denied")])
    assert cufall("record", "--source", source, "-o", str(out), "--force").returncode == 1
    assert out.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_is_read_only_is_refused(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o500)
    ended = cufall("record", "--source", source, "-o", str(folder / "x.cufall"), "--", "echo", "started")
    assert (ended.returncode, ended.stdout) == (2, "")


def test_a_full_device_is_an_error_before_the_command_starts(source: str) -> None:
    ended = cufall("record", "--source", source, "-o", "/dev/full", "--", "echo", "started")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "cufall: /dev/full cannot be written: No space left on device\n" in ended.stderr


def test_when_its_folder_is_removed_the_command_goes_on_and_it_ends_with_1(source: str, tmp_path: Path) -> None:
    folder, gate, result = tmp_path / "folder", tmp_path / "gate", tmp_path / "result.json"
    folder.mkdir()
    line = f"echo started; until test -e {gate}; do sleep 0.05; done; echo ended"
    process = start(
        *("record", "--source", source, *QUICK, "-o", str(folder / "x.cufall"), "--result", str(result)),
        *("--", "sh", "-c", line),
    )
    assert process.stdout and process.stderr
    assert process.stdout.readline() == "started\n"
    shutil.rmtree(folder)
    said = ""
    while "cannot be written: the file was removed or moved" not in said:
        said = process.stderr.readline()
    assert said.endswith("; the command goes on\n")
    gate.touch()
    output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == ("ended\n", 1)
    assert json.loads(result.read_text())["exit_code"] == 1


def test_a_disk_that_is_full_leaves_all_before_readable(source: str, out: Path) -> None:
    """A limit of the size of files stands in for the disk; Python ignores its signal, so the write fails."""
    process = start("record", "--source", source, *QUICK, "-o", str(out))
    soon(lambda: holds_samples(out))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (40_000, 40_000))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.splitlines()[-1].endswith("cannot be written: File too large; exit 1")
    assert 5_000 < out.stat().st_size <= 40_000
    assert Recording(out).outline().counts[0] > 100


# Marks


def test_marks_from_another_process_lie_where_they_were_made(source: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.cufall" for k in range(2)]
    others = [script(tmp_path), source]
    words = [("record", "--source", s, *QUICK, "-o", str(p)) for s, p in zip(others, paths, strict=True)]
    first, second = (start(*line) for line in words)
    for path in paths:
        soon(path.exists)
    for process in (first, second):
        soon(lambda: cufall("mark", "never closed", "--pid", str(process.pid)).returncode == 0)  # noqa: B023
    before_ns = time.time_ns()
    assert cufall("mark", "both", "--text", "seen").returncode == 0
    assert cufall("mark", "second only", "--pid", str(second.pid)).returncode == 0
    between_ns = time.time_ns()
    assert cufall("mark", "both", "--end").returncode == 0
    assert cufall("mark", "was never begun", "--end").returncode == 0
    after_ns = time.time_ns()
    for process in (first, second):
        process.terminate()
        process.communicate(timeout=60)
    for path in paths:
        found = recorded(path)
        (both,) = found.regions["both"]
        assert before_ns <= both.start_ns <= between_ns <= both.end_ns <= after_ns
        assert both.text == "seen"
        assert ("second only" in found.regions) == (path == paths[1])
        assert "was never begun" not in found.regions
        assert found.regions.get("second only", found.regions["both"])[0].end_ns >= both.end_ns


def test_a_recorder_leaves_no_socket(source: str, out: Path, ring_dir: Path) -> None:
    cufall("record", "--source", source, *QUICK, "-o", str(out), "--", "true")
    assert list(ring_dir.iterdir()) == []


# Progress


def test_on_a_terminal_it_shows_how_far_it_is_and_clears_that(source: str, out: Path) -> None:
    words = command("record", "--source", source, *QUICK, "-o", str(out))
    with Terminal(words, columns=200) as terminal:
        terminal.until(lambda text: "1 s, " in text and " samples, 0 lost, " in text)
        terminal.process.terminate()
        assert terminal.ends() == 143
        shown = terminal.picture.text
    assert b"\x1b" not in terminal.written
    assert " lost, " not in "".join(line for line in shown.splitlines() if not line.startswith("cufall: "))
    assert "ended by SIGTERM; exit 143" in shown


def test_elsewhere_nothing_of_that_is_written(source: str, out: Path) -> None:
    ended = cufall("record", "--source", source, *QUICK, "-o", str(out), "--duration-sec", "1.2")
    assert all(line.startswith("cufall: ") for line in ended.stderr.splitlines())
    assert "\r" not in ended.stderr
