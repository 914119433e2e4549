"""The command, run as a shell runs it: options, exit codes, signals, outputs that fail."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import pty
import random
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from cufall_py import cli
from tests.scripted import ROOT, command, cufall, environment, fault, rings, script, soon, start, together, workers
from tests.terminals import run_in

SHORT = ("--frame-us", "20000", "--duration-sec", "0.1")
HEADER = (
    "time,start_ns,gpu,uuid,metric,mean,min,max,samples_expected,samples_got,coverage,sample_us,source,counters,asked"
)
ROW = re.compile(r"^\d\d:\d\d:\d\d\.\d{6} g0\(  50%\) [\u2800-\u28ff]{32}$")
COUNTER = "sm__pipe_tensor_cycles_active.avg"
ENDED = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def source(tmp_path: Path) -> str:
    return script(tmp_path)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# What can be asked for


def test_every_option_is_taken(source: str) -> None:
    lines = (
        "--devices all --no-denominator --full-scale 0 --trigger time --width 8 --no-labels --color --no-flush",
        "--metric sm --metric dram --devices 0 --full-scale 4 --sample-us 1000 --decode-us 20000",
        f"--metric {COUNTER} --denominator gr__cycles_elapsed.max --color --hw-buffer-mb 250",
        f"--metric {COUNTER} --raw --buffer-samples 4096",
        "--trigger sysclk --sysclk-cycles 1000000",
    )
    for ended in together([(["--source", source, *SHORT, *shlex.split(line)], {}) for line in lines]):
        assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 5), ended.stderr


def test_live_is_the_verb_of_no_verb(source: str) -> None:
    assert cufall("live", "--source", source, *SHORT).returncode == 0


def test_the_row_is_the_originals(source: str) -> None:
    ended = cufall("--source", source, *SHORT)
    lines = ended.stdout.splitlines()
    assert len(lines) == 5
    assert all(ROW.match(line) for line in lines)
    assert re.match(r"^cufall: \d+ samples in .*\ncufall: cost .* started in [\d.]+ s$", ended.stderr)


WHOLE_RANGES = {
    "--frame-us": (1_000, 60_000_000),
    "--sample-us": (5, 100_000),
    "--decode-us": (1_000, 10_000_000),
    "--buffer-samples": (16, 1_000_000),
    "--hw-buffer-mb": (1, 4_096),
    "--sysclk-cycles": (5_000, 1_000_000_000),
    "--width": (1, 1_000),
}
ZERO_IS_BY_DEFAULT = ("--sample-us", "--buffer-samples", "--hw-buffer-mb")
NO_NUMBERS = ("nan", "inf", "-1", "1e3", "0,5", "", " ", "9" * 30, "9" * 5000, "ten")


@pytest.mark.usefixtures("nobody_samples")
@pytest.mark.parametrize("flag", WHOLE_RANGES)
def test_bad_whole_numbers_are_refused_with_their_range(flag: str, capfd: pytest.CaptureFixture[str]) -> None:
    least, most = WHOLE_RANGES[flag]
    below = [] if least == 1 and flag in ZERO_IS_BY_DEFAULT else [str(least - 1)]
    for value in (*NO_NUMBERS, *below, str(most + 1)):
        line = refused([f"{flag}={value}"], capfd)
        assert re.match(rf"cufall: {flag} {re.escape(value)}: must be .*from {least} to {most}$", line), line


@pytest.fixture
def nobody_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the sampling process, which starts fast."""

    def launch(_: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr("cufall_py.launch.launch", launch)


def refused(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that the command ends with, run in this process."""
    code = cli._run(words)
    out, error = capfd.readouterr()
    (line,) = error.splitlines()
    assert (code, out) == (2, "")
    return line


@pytest.mark.usefixtures("nobody_samples")
@pytest.mark.parametrize(
    ("flag", "told"), [("--duration-sec", "from 0 to 1e+09"), ("--full-scale", "0 or a number above it")]
)
def test_bad_numbers_are_refused_with_their_range(flag: str, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    for value in ("nan", "inf", "-inf", "-1.0", "0,5", "", "ten"):
        line = refused([f"{flag}={value}"], capfd)
        assert line.startswith(f"cufall: {flag} {value}: must be ")
        assert line.endswith(told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--devices 7", "--devices 7: no such GPU; there are 0"),
        ("--devices ''", "--devices (empty): no such GPU"),
        ("--devices 0,0", "GPU 0 is named twice"),
        ("--metric tensr", "did you mean tensor?"),
        ("--metric ''", "neither a short name nor a CUPTI counter"),
        ("--metric sm__x", "needs a rollup"),
        ("--denominator gr__cycles_elapsed.max", "--denominator goes with a metric given by its CUPTI name"),
        ("--trigger never", "'time', 'sysclk'"),
        ("--frame-us 1000 --sample-us 2000", "--sample-us 2000: must be at most --frame-us, 1000"),
        ("--source nothing", "--source nothing: not auto"),
        ("--source script:/nonexistent", "--source script:/nonexistent: No such file"),
        ("--csv /nonexistent/x.csv", "--csv /nonexistent/x.csv: No such file or directory"),
        ("--csv /", "--csv /: Is a directory"),
        ("--framus 5", "--framus"),
        ("--frame-us", "--frame-us"),
        ("extra", "extra"),
        ("--frame-us 10000 live", "live"),
        ("--frame-us 200000", "--duration-sec 0.1: must be 0 or at least one frame, 0.2 s"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    source: str, words: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    line = refused(["--source", source, "--duration-sec", "0.1", *shlex.split(words)], capfd)
    assert line.startswith("cufall: ")
    assert told in line


def test_an_unknown_verb_is_told_its_neighbour() -> None:
    assert cufall("liev").stderr == "cufall: no verb liev; did you mean live?\n"
    assert cufall("xyzzy").returncode == 2


# Variables


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("CUFALL_FRAME_US", "7", "--frame-us 7:"),
        ("CUFALL_SAMPLE_US", "1", "--sample-us 1:"),
        ("CUFALL_DECODE_US", "1", "--decode-us 1:"),
        ("CUFALL_BUFFER_SAMPLES", "1", "--buffer-samples 1:"),
        ("CUFALL_HW_BUFFER_MB", "9999", "--hw-buffer-mb 9999:"),
        ("CUFALL_SYSCLK_CYCLES", "1", "--sysclk-cycles 1:"),
        ("CUFALL_TRIGGER", "x", "trigger"),
        ("CUFALL_DEVICES", "9", "--devices 9:"),
        ("CUFALL_METRIC", "tensr", "--metric tensr:"),
        ("CUFALL_DENOMINATOR", "x", "--denominator x:"),
        ("CUFALL_FULL_SCALE", "nan", "--full-scale nan:"),
        ("CUFALL_WIDTH", "0", "--width 0:"),
        ("CUFALL_DURATION_SEC", "x", "--duration-sec x:"),
        ("CUFALL_SOURCE", "x", "--source x:"),
        ("CUFALL_CSV", "/", "--csv /:"),
        ("CUFALL_RAW", "x", "raw"),
        ("CUFALL_COLOR", "x", "color"),
        ("CUFALL_VIEW", "x", "'waterfall', 'timeline'"),
        ("CUFALL_NO_LABELS", "x", "no-labels"),
        ("CUFALL_NO_FLUSH", "x", "no-flush"),
    ],
)
def test_each_option_has_a_variable(
    source: str,
    variable: str,
    value: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUFALL_SOURCE", source)
    monkeypatch.setenv(variable, value)
    assert told in refused([], capfd)


def test_variables_do_what_the_options_do(source: str) -> None:
    ended = cufall(
        CUFALL_SOURCE=source,
        CUFALL_FRAME_US="20000",
        CUFALL_DURATION_SEC="0.1",
        CUFALL_METRIC="tensor sm",
        CUFALL_WIDTH="2",
        CUFALL_COLOR="",
    )
    assert len(ended.stdout.splitlines()) == 5
    assert re.search(r" g0\.tensor\(  50%\) \S\S g0\.sm\(<\.01%\) \S\S$", ended.stdout.splitlines()[0])


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], f"{COUNTER}/gr__cycles_elapsed.max"),
        (["--no-denominator"], COUNTER),
        (["--no-denominator", "--denominator", "sm__cycles_elapsed.avg"], f"{COUNTER}/sm__cycles_elapsed.avg"),
    ],
)
def test_no_denominator_unsets_the_variable_alone(source: str, words: list[str], asked: str) -> None:
    ended = cufall(
        *("--source", source, "--metric", COUNTER, "--csv", "-"),
        *SHORT,
        *words,
        CUFALL_DENOMINATOR="gr__cycles_elapsed.max",
    )
    assert {row["asked"] for row in rows_of(ended.stdout)} == {asked}


# Help and versions


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["live", "-h"], ["live", "--help"], ["--width", "3", "--help"]])
def test_help_needs_no_driver(words: list[str]) -> None:
    ended = cufall(*words, PATH="/nonexistent", LC_ALL="C")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Usage: cufall ")


def test_help_lists_what_works() -> None:
    listed = cufall("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
    verbs = re.findall(r"^  (\w+)", listed, re.MULTILINE)
    assert verbs
    for verb in verbs:
        assert cufall(verb, "--help").returncode == 0


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from cufall_py import cli; code = cli._run(['--help']); print(code, *sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert not {"numpy", "rich", "pandas", "pyarrow", "pynvml", "cupti"} & set(ended.stdout.split())


def test_the_version_needs_no_driver() -> None:
    ended = cufall("--version", PATH="/nonexistent")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.match(r"^cufall \d+\.\d+\.\d+ \(cupti-python .*, CUPTI .*, driver .*\)\n$", ended.stdout)


# Outputs


def test_csv_on_stdout_takes_the_views_place(source: str) -> None:
    ended = cufall("--source", source, *SHORT, "--csv", "-")
    assert ended.stdout.splitlines()[0] == HEADER
    rows = rows_of(ended.stdout)
    assert len(rows) == 5
    assert all(float(row["mean"]) == pytest.approx(0.5) and row["coverage"] == "1" for row in rows)


def test_csv_in_a_file_goes_beside_the_view(source: str, tmp_path: Path) -> None:
    path = tmp_path / "frames.csv"
    ended = cufall("--source", source, *SHORT, "--csv", str(path))
    shown = [line.split()[0] for line in ended.stdout.splitlines()]
    written = rows_of(path.read_text(encoding="utf-8"))
    assert [row["time"][11:26] for row in written] == shown


def test_nothing_is_sampled_for_a_csv_that_cannot_be(tmp_path: Path, ring_dir: Path) -> None:
    source = script(tmp_path, faults=[fault(0, "denied")])
    ended = cufall("--source", source, "--csv", str(tmp_path / "missing" / "x.csv"))
    assert (ended.returncode, "No such file" in ended.stderr) == (2, True)
    assert rings(ring_dir) == []


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    folder.mkdir()
    source = script(folder)
    ended = cufall("--source", source, *SHORT, "--csv", str(folder / "x.csv"))
    assert ended.returncode == 0, ended.stderr
    assert len(rows_of((folder / "x.csv").read_text())) == 5
    ended = cufall("--source", f"script:{folder}/none")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    ended = cufall("--source", source, "--csv", f"{folder}/none/x", PYTHONIOENCODING="ascii")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("words", [[], ["--csv", "-"]])
def test_a_reader_that_goes_away_ends_it_quietly(source: str, ring_dir: Path, words: list[str]) -> None:
    process = start("--source", source, "--frame-us", "20000", *words)
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 141
    told = process.stderr.read().splitlines()
    process.stderr.close()
    assert told == []
    assert rings(ring_dir) == []


@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [
        (">&-", 1, ["cufall: stdout is closed, and what is measured goes there"]),
        (">/dev/full", 1, ["cufall: cannot write stdout: No space left on device"]),
        (
            ">/dev/full --no-flush --frame-us 1000",
            1,
            ["cufall: cannot write stdout: No space left on device"],
        ),
        (">/dev/null --csv /dev/full", 1, ["cufall: cannot write /dev/full: No space left on device"]),
        ("2>&- >/dev/null", 0, []),
        ("2>/dev/full >/dev/null", 0, []),
        ("<&- >/dev/null", 0, []),
        ("0<&- 1>&- 2>&-", 1, []),
    ],
)
def test_outputs_that_take_nothing(source: str, redirection: str, code: int, told: list[str]) -> None:
    line = shlex.join(command("--source", source, *SHORT)) + " " + redirection
    ended = subprocess.run(
        ["sh", "-c", line], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == code
    assert not_summed_up(ended.stderr) == told


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (OSError(24, "Too many open files", "/dev/shm/x"), 1, ["cufall: /dev/shm/x: Too many open files"]),
        (BlockingIOError(11, "Resource temporarily unavailable"), 1, ["cufall: Resource temporarily unavailable"]),
        (BrokenPipeError(32, "Broken pipe"), 1, ["cufall: Broken pipe"]),
        (cli.Unwritable("x.csv", BrokenPipeError(32, "Broken pipe")), 1, ["cufall: cannot write x.csv: Broken pipe"]),
    ],
)
def test_only_what_an_output_raises_is_told_as_its_failure(
    raised: Exception, code: int, told: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def launch(_: str) -> None:
        raise raised

    monkeypatch.setattr("cufall_py.launch.launch", launch)
    assert cli._run([]) == code
    assert capfd.readouterr().err.splitlines() == told


def test_help_into_a_closed_pipe_is_a_reader_gone() -> None:
    for words in (["--help"], ["live", "--help"], ["--version"]):
        line = shlex.join(command(*words)) + ' | :; exit "${PIPESTATUS[0]}"'
        ended = subprocess.run(["bash", "-c", "sleep 0; " + line], env=environment(), capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (141, "")


def test_help_into_a_full_disk_is_no_traceback() -> None:
    ended = subprocess.run(
        ["sh", "-c", shlex.join(command("--help")) + " >/dev/full"], env=environment(), capture_output=True, text=True
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_takes_a_part_is_told(tmp_path: Path, unbuffered: str) -> None:
    """A file may have 8 KiB, less than the list is long. Python itself would not go on after a write that was cut."""
    line = f"ulimit -f 8; exec {shlex.join(command('metrics'))} >{tmp_path}/list"
    ended = subprocess.run(
        ["bash", "-c", line], env=environment(PYTHONUNBUFFERED=unbuffered), capture_output=True, text=True
    )
    assert (tmp_path / "list").stat().st_size == 8 * 1024
    assert (ended.returncode, ended.stderr) == (1, "cufall: cannot write stdout: File too large\n")


def test_a_slow_reader_stalls_nothing(source: str) -> None:
    """It reads a line in a third of a second, of pages; what it reads is whole, and nothing is lost."""
    process = start(
        "--source", source, "--frame-us", "10000", "--sample-us", "1000", "--width", "1000", "--duration-sec", "2"
    )
    assert process.stdout and process.stderr
    fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)
    lines = []
    for _ in range(8):
        lines.append(process.stdout.readline())
        time.sleep(0.33)
    lines += process.stdout.readlines()
    assert process.wait(60) == 0
    summary = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert len(lines) == 200
    assert all("(  50%)" in line for line in lines)
    assert " 0 lost" in summary
    assert "overwritten" not in summary


# Exit codes


REFUSED = [("denied", [0, 1], 1, 0), ("owned", [0, 1], 1, 0), ("denied", [1], 4, 5), ("owned", [0], 4, 5)]
"""What happens to which of two GPUs; the exit code and the number of frames that come of it."""


def test_refused_counters(tmp_path: Path) -> None:
    sources = [script(tmp_path, gpus=2, faults=[fault(gpu, kind) for gpu in gpus]) for kind, gpus, _, _ in REFUSED]
    all_ended = together([(["--source", source, *SHORT], {}) for source in sources])
    for ended, (kind, _, code, frames) in zip(all_ended, REFUSED, strict=True):
        assert (ended.returncode, len(ended.stdout.splitlines())) == (code, frames)
        assert "Traceback" not in ended.stderr
        assert f"scripted to be {kind}" in ended.stderr
        assert "<.01%" not in ended.stdout


# Signals


def test_signals_end_it_in_order_at_any_moment(source: str, tmp_path: Path, ring_dir: Path) -> None:
    """Ten moments a signal, from when cufall's own code first runs: imports, start, decodes, writes."""
    dice = random.Random(5)
    for _ in range(10):
        paths = {number: tmp_path / f"{number}.csv" for number in ENDED}
        words = ("--source", source, "--frame-us", "20000", "--csv")
        running = {number: start(*words, str(path), stdout=subprocess.DEVNULL) for number, path in paths.items()}
        for number, process in running.items():
            soon(lambda: has_its_handlers(process.pid))  # noqa: B023
            threading.Timer(dice.uniform(0, 0.7), process.send_signal, (number,)).start()
        began = time.monotonic()
        for number, process in running.items():
            _, error = process.communicate(timeout=60)
            assert time.monotonic() - began < 0.7 + 20
            assert process.returncode == ENDED[number], error
            assert not_summed_up(error) == []
            is_whole_csv(paths[number])
        soon(lambda: rings(ring_dir) == [], 10.0)


def has_its_handlers(pid: int) -> bool:
    """Whether a process catches SIGHUP, which Python by itself does not."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(caught and int(caught[1], 16) >> (signal.SIGHUP - 1) & 1)


def is_whole_csv(path: Path) -> None:
    text = path.read_text() if path.exists() else ""
    assert text == "" or text.endswith("\n")
    assert all(len(row) == HEADER.count(",") + 1 for row in csv.reader(io.StringIO(text)))


def test_a_second_signal_ends_it_at_once(tmp_path: Path, ring_dir: Path) -> None:
    """One GPU hangs, so the first one takes its time."""
    source = script(tmp_path, gpus=2, faults=[fault(1, "hang", at_s=0.4)])
    process = start("--source", source, "--frame-us", "20000", stdout=subprocess.DEVNULL)
    soon(lambda: len(rings(ring_dir)) == 2)
    time.sleep(0.6)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert time.monotonic() - began < 5
    _, error = process.communicate(timeout=60)
    assert "Traceback" not in error
    soon(lambda: rings(ring_dir) == [], 20.0)


def test_what_was_lost_of_a_gpu_is_told_at_the_end(tmp_path: Path) -> None:
    faults = [fault(1, "lost", at_s=1.0), fault(2, "denied")]
    ended = cufall("--source", script(tmp_path, gpus=3, faults=faults), "--duration-sec", "4")
    assert ended.returncode == 4
    lost = re.search(
        r" 0 lost \(0\.000 s\), and the last (\d\.\d) s of GPU 1, all of GPU 2$", ended.stderr, re.MULTILINE
    )
    assert lost and 2.5 <= float(lost[1]) <= 4.5


def test_nohup_is_respected(source: str) -> None:
    words = ("--source", source, "--frame-us", "20000", "--duration-sec", "2")
    process = start(*words, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert workers(process.pid)
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, len(out.splitlines())) == (0, 100)


def test_ctrl_c_in_a_terminal(source: str, ring_dir: Path) -> None:
    with Terminal("--source", source, "--frame-us", "20000") as terminal:
        terminal.read_until(b"g0(")
        os.write(terminal.fd, b"\x03")
        code, text = terminal.rest()
    assert code == 130
    assert text.count(b"cufall: ") == 2
    assert b"\x1b" not in text
    assert b"Traceback" not in text
    assert rings(ring_dir) == []


def test_a_terminal_that_goes_away(source: str, ring_dir: Path) -> None:
    terminal = Terminal("--source", source, "--frame-us", "20000")
    terminal.read_until(b"g0(")
    os.close(terminal.fd)
    assert terminal.process.wait(60) == 129
    soon(lambda: rings(ring_dir) == [], 10.0)


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, *words: str, **variables: str) -> None:
        self.fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        self.process = run_in(inner, command(*words), **variables)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)

    def read_until(self, wanted: bytes) -> bytes:
        text = b""
        while wanted not in text:
            assert select.select([self.fd], [], [], 60)[0], text
            text += os.read(self.fd, 65536)
        return text

    def rest(self) -> tuple[int, bytes]:
        """Exit code and all it still wrote."""
        text = b""
        while select.select([self.fd], [], [], 60)[0]:
            try:
                text += os.read(self.fd, 65536)
            except OSError:  # as Linux tells the end of a terminal
                break
        return self.process.wait(60), text


# Encodings, colours, places


ENCODINGS: list[tuple[dict[str, str], bool]] = [
    ({"LC_ALL": "C"}, False),
    ({"LC_ALL": "POSIX"}, False),
    ({"LC_ALL": "", "LC_CTYPE": "", "LANG": ""}, True),
    ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "C"}, True),
    ({"LC_ALL": "C", "PYTHONUTF8": "1"}, True),
    ({"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}, True),
    ({"LC_ALL": "C.UTF-8", "PYTHONUTF8": "0"}, True),
    ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, False),
    ({"PYTHONIOENCODING": "ascii"}, False),
    ({"PYTHONIOENCODING": "latin-1"}, False),
    ({"PYTHONIOENCODING": "cp1252"}, False),
    ({"PYTHONIOENCODING": "utf-8"}, True),
]
"""And whether they have Braille."""
BRAILLE_BANDS = "g0(  50%) \u28b8\u28b8\u28b8\u28b8 g1(   --) \u00b7\u00b7\u00b7\u00b7"
TOLD_OF_ASCII = ": bands are of .:-=+*#@ (least to most), ? where not measured"
ASCII_BANDS = "g0(  50%) ==== g1(   --) ????"


def test_every_encoding_gets_a_band_it_can_show(tmp_path: Path) -> None:
    words = ["--source", script(tmp_path, gpus=2, faults=[fault(1, "denied")]), *SHORT, "--width", "4"]
    all_ended = together([(words, variables) for variables, _ in ENCODINGS])
    for ended, (variables, dots) in zip(all_ended, ENCODINGS, strict=True):
        bands = {line.split(" ", 1)[1] for line in ended.stdout.splitlines()}
        assert bands == {BRAILLE_BANDS if dots else ASCII_BANDS}, variables
        assert ended.stderr.count(TOLD_OF_ASCII) == (not dots)
        assert (ended.returncode, "Traceback" in ended.stderr) == (4, False)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_name_that_cannot_be_encoded_is_no_error(tmp_path: Path, encoding: str) -> None:
    source = script(tmp_path, uuids=["GPU-\u00e9\u4e16"])
    ended = cufall("--source", source, *SHORT, "--csv", "-", PYTHONIOENCODING=encoding)
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 6), ended.stderr
    assert "4e16" in ended.stdout


def test_colour_comes_when_asked_for_and_only_then(source: str) -> None:
    variables: tuple[dict[str, str], ...] = ({"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "CI": "1"})
    words = ["--source", source, *SHORT]
    assert not any("\x1b" in ended.stdout for ended in together([(words, v) for v in variables]))
    assert all("\x1b[38;5;" in ended.stdout for ended in together([([*words, "--color"], v) for v in variables]))


def test_no_escape_reaches_a_terminal_unasked(source: str) -> None:
    with Terminal("--source", source, *SHORT, FORCE_COLOR="1", TERM="xterm-256color") as terminal:
        code, text = terminal.rest()
    assert (code, text.count(b"g0(  50%)")) == (0, 5)
    assert b"\x1b" not in text


def test_widths(source: str) -> None:
    widths = (1, 1000)
    all_ended = together([(["--source", source, *SHORT, "--width", str(width)], {}) for width in widths])
    for ended, width in zip(all_ended, widths, strict=True):
        assert {len(line.split()[-1]) for line in ended.stdout.splitlines()} == {width}


def not_summed_up(said: str) -> list[str]:
    """What was said beside the two lines at the end of a run."""
    return [line for line in said.splitlines() if " samples in " not in line and "; started in " not in line]


def test_without_labels_there_are_bands_alone(source: str) -> None:
    ended = cufall("--source", source, *SHORT, "--no-labels", "--width", "4")
    assert {line.split(" ", 1)[1] for line in ended.stdout.splitlines()} == {"\u28b8" * 4}


def test_times_are_those_of_the_place(source: str) -> None:
    ended = cufall("--source", source, *SHORT, "--csv", "-", TZ="Asia/Kathmandu")
    for row in rows_of(ended.stdout):
        assert row["time"].endswith("+05:45")
        told = datetime.fromisoformat(row["time"][:26] + row["time"][29:])
        assert int(told.timestamp() * 1e6) * 1000 == int(row["start_ns"])


def test_a_package_in_the_folder_it_runs_in_is_not_run(source: str, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')")
    line = [sys.executable, "-P", "-m", "cufall_py"] if sys.version_info >= (3, 11) else command()
    cwd = tmp_path if sys.version_info >= (3, 11) else ROOT
    ended = subprocess.run(
        [*line, "--source", source, *SHORT], cwd=cwd, env=environment(), capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_it_leaves_no_child(source: str) -> None:
    process = start("--source", source, "--frame-us", "20000", "--duration-sec", "2")
    family = [psutil.Process(process.pid), *workers(process.pid)]
    process.communicate(timeout=60)
    soon(lambda: not any(member.is_running() for member in family))
