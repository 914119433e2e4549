"""`--rotate`: sets in turn, live and recorded, of scripted GPUs whose passes have room for few counters."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cufall_py.errors import CufallError, InvalidMeasurement
from cufall_py.outline import OTHER_TURNS
from cufall_py.plan import Plan
from cufall_py.recording_reader import Recording
from cufall_py.report import Reading
from cufall_py.resolve import Wanted
from cufall_py.rotation import Turn
from cufall_py.turns import Turns
from tests.scripted import cufall, fault, rings, script, soon, start

RATIOS = {"tensor": 0.5, "sm": 0.9, "gr": 1.0, "dram": 0.2, "fma": 0.3}
ROOM = 8
"""Of tensor, sm and gr, which take 5 counters, and dram (3) or fma (2) beside them, but not both."""
SETS = (("tensor", "sm", "gr", "dram"), ("tensor", "sm", "gr", "fma"))
ASKED = [word for name in ("dram", "tensor", "sm", "gr", "fma") for word in ("--metric", name)]
QUICK = ("--decode-us", "20000", "--frame-us", "100000")


@pytest.fixture
def source(tmp_path: Path) -> str:
    return script(tmp_path, pattern=[{"ms": 1000, **RATIOS}], pass_counters=ROOM)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run.cufall"


def beside(out: Path, of: int = 2) -> list[Path]:
    return [out.with_name(f"run.turn-{k + 1}-of-{of}.cufall") for k in range(of)]


def holds_samples(path: Path) -> bool:
    try:
        return Recording(path).outline().counts[0] > 100
    except CufallError:  # it is not there yet, or has no first row
        return False


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    return ended.stderr.splitlines()[-1]


# Live


def test_the_waterfall_tells_each_turn_and_has_the_rows_of_its_metrics(source: str) -> None:
    ended = cufall("--source", source, *QUICK, "--rotate", "1", "--duration-sec", "3", *ASKED, "--width", "4")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    heads = [line for line in lines if line.startswith("turn")]
    assert heads[:2] == ["turn 1 of 2: tensor, sm, gr, dram", "turn 2 of 2: tensor, sm, gr, fma"]
    assert heads[2:] in ([], heads[:1])
    assert lines[0] == heads[0]
    first = lines[1 : lines.index(heads[1])]
    second = lines[lines.index(heads[1]) + 1 :]
    second = second[: second.index(heads[0])] if heads[0] in second else second
    assert len(first) == len(second) == 10  # frames of 100 ms in a turn of 1 s
    assert all("g0.dram(  20%)" in line and "fma" not in line for line in first)
    assert all("g0.fma(  30%)" in line and "dram" not in line for line in second)
    assert all("g0.tensor(  50%)" in line for line in (*first, *second))


def test_the_end_tells_how_much_of_the_time_each_set_had(source: str) -> None:
    ended = cufall("--source", source, *QUICK, "--rotate", "1", "--duration-sec", "2.5", *ASKED)
    *_, line, first, second, between, starts, cost = ended.stderr.splitlines()
    assert " samples in " in line and ", 0 lost" in line
    share = r"\d\.\d s of \d\.\d s \((\d+) %\)"
    assert re.fullmatch(rf"cufall: turn 1 of 2 \(tensor, sm, gr, dram\): {share}, in (1 turn|2 turns)", first)
    assert re.fullmatch(rf"cufall: turn 2 of 2 \(tensor, sm, gr, fma\): {share}, in 1 turn", second)
    assert "between turns: " in between and "not measured" in between
    assert re.fullmatch(r"cufall: turns took \d+\.\d s of a processor to start", starts)
    assert "of a core" in cost
    shares = [int(one.split("(")[-1].split(" %)")[0]) for one in (first, second, between)]
    assert sum(shares) == pytest.approx(100, abs=2)
    assert min(shares[:2]) >= 15


def test_what_one_gpu_lacks_is_no_time_between_turns(tmp_path: Path) -> None:
    """GPU 1 never gives a sample: all the time GPU 0 was sampled, but for changes."""
    hung = script(tmp_path, gpus=2, pattern=[{"ms": 1000, **RATIOS}], pass_counters=ROOM, faults=[fault(1, "lost")])
    ended = cufall("--source", hung, *QUICK, "--rotate", "1", "--duration-sec", "2.5", *ASKED)
    (share,) = re.findall(r"between turns: .* \((\d+) %\), not measured", ended.stderr)
    assert int(share) < 40  # of the halves of two GPUs it would be more than 50


def test_a_csv_has_one_header_and_each_metric_the_rows_of_its_turns(source: str) -> None:
    ended = cufall("--source", source, *QUICK, "--rotate", "1", "--duration-sec", "2.5", *ASKED, "--csv", "-")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("time,start_ns") == 1
    rows = list(csv.DictReader(ended.stdout.splitlines()))
    assert {(row["source"], row["metric"]) for row in rows} == {
        (f"script turn {k + 1} of 2", name) for k, names in enumerate(SETS) for name in names
    }
    assert all(float(row["mean"]) == pytest.approx(RATIOS[row["metric"]], rel=1e-6) for row in rows)
    starts = list(dict.fromkeys(int(row["start_ns"]) for row in rows))
    assert starts == sorted(starts)
    by_set = {row["start_ns"]: row["source"] for row in rows}
    assert len({(row["start_ns"], row["source"]) for row in rows}) == len(by_set)  # no frame holds two sets


def test_what_fits_one_pass_goes_on_as_ever_and_says_so(tmp_path: Path, out: Path) -> None:
    whole = script(tmp_path, pattern=[{"ms": 1000, **RATIOS}])
    told = "cufall: --rotate: all of it fits one pass, there is nothing to take in turn"
    ended = cufall("--source", whole, *QUICK, "--rotate", "5", "--duration-sec", "0.3", *ASKED)
    assert ended.returncode == 0
    assert ended.stderr.splitlines().count(told) == 1
    assert "turn" not in ended.stdout and ended.stdout.count("g0.dram(  20%)") == 3
    ended = cufall("record", "--source", whole, *QUICK, "--rotate", "5", "--duration-sec", "0.3", "-o", str(out))
    assert ended.returncode == 0
    assert told in ended.stderr
    recording = Recording(out)
    assert recording.turn is None
    assert recording.plan.wanted.asked == ("tensor", "sm", "gr", "dram")  # as without --rotate


def test_of_a_set_what_an_ordinary_run_leaves_out_comes_too(tmp_path: Path) -> None:
    # GA102's verdict set goes without issue, fma and alu, which are short names of it all the same
    wide = script(tmp_path, chip="GA102", pattern=[{"ms": 1000, "issue": 0.4}])
    ended = cufall("--source", wide, *QUICK, "--rotate", "5", "--duration-sec", "0.2", "--set", "verdict")
    assert "g0.issue(  40%)" in ended.stdout
    assert "cufall: left out: launches is not to be had on GA102: " in ended.stderr
    ended = cufall("--source", wide, *QUICK, "--duration-sec", "0.2", "--set", "verdict")
    assert "g0.issue(   --)" in ended.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--rotate 0.5", "--rotate 0.5: must be 0 or a number of seconds from 1 to 600"),
        ("--rotate 601", "--rotate 601.0: must be 0 or a number of seconds from 1 to 600"),
        ("--rotate soon", "--rotate soon: must be 0 or a number of seconds from 1 to 600"),
        ("--rotate nan", "--rotate nan: must be 0 or a number of seconds from 1 to 600"),
        ("--rotate 1 --frame-us 2000000", "--rotate 1: must be at least one frame, 2 s (--frame-us)"),
        ("--rotate 2 --view timeline", "--view timeline: not with --rotate, for its rows are those of one set"),
        (
            "--rotate 2 --view verdict",
            "--view verdict: not with --rotate, for a frame's verdict compares limits of the same frame",
        ),
        ("record --rotate 2 --require tensor.mean>1%", "--require: not with --rotate, which makes a file a set; "),
        ("record --rotate 2 -- no-such-command", "no-such-command: no such command"),
        ("record --rotate 0.1", "--rotate 0.1: must be 0 or"),
        ("--rotate 2 --metric nvlink.rx --metric c2c.rx --metric nonsense", "--metric nonsense: neither a short name"),
    ],
)
def test_what_cannot_be_is_usage(source: str, tmp_path: Path, words: str, told: str) -> None:
    verb = words.split()[:1] if words.startswith("record") else []
    more = ["-o", str(tmp_path / "x.cufall")] if verb else []
    ended = cufall(*verb, "--source", source, *more, *words.split()[len(verb) :])
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"cufall: {told}" in ended.stderr
    assert not list(tmp_path.glob("*.cufall"))


def test_a_recording_has_what_it_was_made_of(tmp_path: Path) -> None:
    ended = cufall("--source", "demo", "--rotate", "2")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--rotate goes with GPUs that are sampled; a recording has what it was made of" in ended.stderr
    words = ("record", "--source", "demo", "--from", "0", "--to", "0.5", "-o", str(tmp_path / "x.cufall"))
    assert cufall(*words, CUFALL_ROTATE="2").returncode == 0  # there it may wait for GPUs
    assert cufall("demo", "--to", "0.5", "--rotate", "2").returncode == 2


# Recorded


def test_each_set_is_a_recording_of_its_own(source: str, out: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = ("record", "--source", source, *QUICK, "--rotate", "1", "--duration-sec", "4", "-o", str(out))
    ended = cufall(*words, *ASKED, "--result", str(result))
    assert ended.returncode == 0, ended.stderr
    assert not out.exists()
    paths = beside(out)
    assert last_line(ended).startswith(f"cufall: {paths[0]}, {paths[1]} (") and last_line(ended).endswith("; exit 0")
    told = json.loads(result.read_text())
    assert (told["path"], told["paths"]) == (None, [str(path) for path in paths])
    for k, path in enumerate(paths):
        recording, reading = Recording(path), Reading(path)
        assert recording.whole
        assert recording.turn == Turn(k + 1, 2, 1.0, SETS[k], (SETS[1 - k],))
        assert recording.plan.wanted.asked == SETS[k]
        assert recording.outline().gaps == []
        assert sum(event.kind == OTHER_TURNS for event in recording.events()) >= 2
        summary = reading.report().summary
        row = summary.scopes[0].rows[0]
        assert {of.label: of.mean for of in row.metrics} == pytest.approx({n: RATIOS[n] for n in SETS[k]}, rel=1e-6)
        assert 0.2 < row.coverage < 0.75
    coverages = [Reading(path).report().summary.scopes[0].rows[0].coverage for path in paths]
    assert 0.5 < sum(coverages) <= 1


def test_the_files_of_all_sets_are_of_the_same_time(tmp_path: Path, out: Path) -> None:
    """Also where a change of turns takes the last of what was asked for, and where a GPU comes late."""
    faults = [fault(1, "gap", for_s=0.7)]
    source = script(tmp_path, gpus=2, pattern=[{"ms": 1000, **RATIOS}], pass_counters=ROOM, faults=faults)
    words = ("record", "--source", source, *QUICK, "--rotate", "1", "--duration-sec", "2.1", "-o", str(out), *ASKED)
    ended = cufall(*words)
    assert ended.returncode == 0, ended.stderr
    first, second = (Recording(path) for path in beside(out))
    assert first.outline().start_ns == second.outline().start_ns
    assert first.outline().end_ns == second.outline().end_ns
    assert first.regions() == second.regions()
    (region,) = first.regions()["duration"]
    assert region.end_ns - region.start_ns == 2_100_000_000
    assert region.start_ns >= first.outline().start_ns


def test_regions_and_marks_reach_all_files(source: str, out: Path) -> None:
    line = "cufall mark inner; sleep 1.5; cufall mark inner --end".replace("cufall", '"$PYTHON" -m cufall_py')
    words = ("record", "--source", source, *QUICK, "--rotate", "1", *ASKED, "-o", str(out), "--", "sh", "-c", line)
    ended = cufall(*words, PYTHON=sys.executable)
    assert ended.returncode == 0, ended.stderr
    found = [Recording(path).regions() for path in beside(out)]
    assert list(found[0]) == list(found[1]) == ["command", "inner"]
    assert found[0] == found[1]
    (inner,) = found[0]["inner"]
    assert (inner.end_ns - inner.start_ns) / 1e9 >= 1.5


def test_without_metrics_all_that_a_recording_takes_comes_in_some_turn(source: str, out: Path) -> None:
    words = ("record", "--source", source, *QUICK, "--rotate", "1", "--duration-sec", "5", "-o", str(out))
    ended = cufall(*words)
    assert ended.returncode == 0, ended.stderr
    sets = [Recording(path).turn for path in beside(out, 4)]
    assert {name for turn in sets if turn for name in turn.metrics} == {
        *("tensor", "sm", "gr", "dram", "issue", "fma", "alu", "pcie.rx", "pcie.tx", "launches")
    }


def test_a_file_that_is_there_is_refused_before_the_command_starts(source: str, out: Path) -> None:
    beside(out)[1].write_text("mine")
    words = ("record", "--source", source, *QUICK, "--rotate", "1", *ASKED, "-o", str(out))
    ended = cufall(*words, "--", "echo", "started")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"-o {beside(out)[1]}: is there already; --force writes over it" in ended.stderr
    assert beside(out)[1].read_text() == "mine" and not beside(out)[0].exists()
    ended = cufall(*words, "--force", "--duration-sec", "2.5")
    assert ended.returncode == 0, ended.stderr
    assert Recording(beside(out)[1]).whole


def test_nothing_is_made_beside_what_is_no_file(source: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ("record", "--source", source, *QUICK, "--rotate", "1", *ASKED, "-o", str(pipe), "--duration-sec", "1")
    ended = cufall(*words)
    assert ended.returncode == 2
    assert last_line(ended) == f"cufall: --rotate: {pipe} is no file, and sets in turn go to files beside it"
    assert not list(tmp_path.glob("pipe.*"))


def test_the_result_may_not_be_one_of_them(source: str, out: Path) -> None:
    words = ("record", "--source", source, *QUICK, "--rotate", "1", *ASKED, "-o", str(out))
    ended = cufall(*words, "--force", "--result", str(beside(out)[0]))
    assert ended.returncode == 2
    assert f"-o {beside(out)[0]}: is where --result goes" in ended.stderr


def test_a_set_that_never_had_its_turn_is_no_measurement(source: str, out: Path) -> None:
    words = ("record", "--source", source, *QUICK, "--rotate", "5", "--duration-sec", "0.5", *ASKED, "-o", str(out))
    ended = cufall(*words)
    assert ended.returncode == 4
    assert last_line(ended).endswith(": turn 2 of 2 never came; exit 4")
    assert Recording(beside(out)[1]).whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_files_in_order(number: int, source: str, out: Path, ring_dir: Path) -> None:
    process = start("record", "--source", source, *QUICK, "--rotate", "1", *ASKED, "-o", str(out))
    soon(lambda: holds_samples(beside(out)[1]))
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + number, said
    for path in beside(out):
        assert Recording(path).whole and Recording(path).outline().counts[0] > 100
    assert [name.name for name in ring_dir.iterdir()] == []


def test_a_command_ends_with_its_own_end(source: str, out: Path) -> None:
    words = ("record", "--source", source, *QUICK, "--rotate", "1", *ASKED, "-o", str(out))
    ended = cufall(*words, "--", "sh", "-c", "echo out; sleep 2.5; exit 7")
    assert (ended.returncode, ended.stdout) == (7, "out\n")
    assert "the command ended with 7; exit 7" in last_line(ended)


def test_a_disk_that_is_full_leaves_all_before_readable(source: str, out: Path) -> None:
    # one turn: a limit of the size of files would hold for the rings of those to come, too
    process = start("record", "--source", source, *QUICK, "--rotate", "60", *ASKED, "-o", str(out))
    soon(lambda: holds_samples(beside(out)[0]))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (40_000, 40_000))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot be written: File too large; exit 1" in said.splitlines()[-1]
    assert all(Recording(path).opened for path in beside(out))


def test_a_set_that_can_no_longer_be_opened_is_left_out_and_said(source: str, out: Path) -> None:
    """The script goes away, so the next turns find nothing to sample; what was measured stays."""
    process = start("record", "--source", source, *QUICK, "--rotate", "1", *ASKED, "-o", str(out))
    soon(lambda: holds_samples(beside(out)[1]))
    Path(source.removeprefix("script:")).unlink()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert "turn 1 of 2 is left out: --source script:" in said and "turn 2 of 2 is left out: " in said
    assert all(Recording(path).whole and Recording(path).outline().counts[0] > 100 for path in beside(out))


def test_nothing_is_made_where_a_set_cannot_be_sampled(tmp_path: Path, out: Path) -> None:
    denied = script(tmp_path, pass_counters=ROOM, faults=[fault(0, "denied")])
    ended = cufall("record", "--source", denied, "--rotate", "1", *ASKED, "-o", str(out), "--", "echo", "started")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "scripted to be denied" in ended.stderr
    assert not list(tmp_path.glob("*.cufall"))


def test_it_is_thinned_as_any_recording(source: str, out: Path) -> None:
    words = ("record", "--source", source, *QUICK, "--rotate", "1", "--duration-sec", "3.5", *ASKED, "-o", str(out))
    ended = cufall(*words, "--keep", "1s@full,forever@100ms")
    assert ended.returncode == 0, ended.stderr
    for k, path in enumerate(beside(out)):
        row = Reading(path).report().summary.scopes[0].rows[0]
        assert {of.label: of.mean for of in row.metrics} == pytest.approx({n: RATIOS[n] for n in SETS[k]}, rel=1e-6)
        assert Recording(path).turn


# From Python


def test_frames_are_of_the_set_that_is_on(source: str) -> None:
    plan = Plan(Wanted(tuple(RATIOS)), source=source, frame_us=100_000, decode_us=20_000)
    said: list[str] = []
    found: list[tuple[int, dict[str, Any]]] = []
    with Turns(plan, SETS, 1.0, said.append) as turns:
        for frame in turns.frames(2.2):
            labels = [metric.label for metric in turns.opened[0].metrics.metrics]
            found.append((turns.turn.number, dict(zip(labels, frame.mean[0].tolist(), strict=True))))
    turns.check()
    assert [number for number, _ in found][:10] == [1] * 10 and {number for number, _ in found} == {1, 2}
    for number, means in found:
        assert means == pytest.approx({name: RATIOS[name] for name in SETS[number - 1]}, rel=1e-6)
    samples, lost = turns.counts()
    assert samples >= 80 and lost == 0


def test_what_ends_before_each_set_had_its_turn_is_no_measurement(source: str) -> None:
    plan = Plan(Wanted(tuple(RATIOS)), source=source, frame_us=100_000, decode_us=20_000)
    with Turns(plan, SETS, 1.0) as turns:
        next(turns.frames())
    with pytest.raises(InvalidMeasurement, match="turn 2 of 2 never came"):
        turns.check()


@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.7, 1.1, 1.5])
def test_a_key_ends_it_at_any_moment_of_a_turn_and_of_a_change(after_s: float, source: str, ring_dir: Path) -> None:
    process = start("--source", source, *QUICK, "--rotate", "1", *ASKED)
    assert process.stdout
    assert process.stdout.readline().startswith("turn 1 of 2")
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert out[-1:] in ("", "\n") and "Traceback" not in said
    assert "between turns: " in said
    assert soon(lambda: not rings(ring_dir))
