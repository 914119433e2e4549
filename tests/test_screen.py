"""The timeline on a real terminal: it starts, answers keys, stops and goes on, and leaves all as it was."""

from __future__ import annotations

import re
import shlex
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from cufall_py.cli.screen import split_keys
from cufall_py.views.timeline import FOOTERS
from tests.recordings import phases
from tests.scripted import command, cufall, fault, rings, script, soon
from tests.terminals import Picture, Terminal

FRAMES = ("--frame-us", "20000", "--decode-us", "20000")


@pytest.fixture
def source(tmp_path: Path) -> str:
    return script(tmp_path, gpus=2)


def timeline(source: str, *words: str, columns: int = 100, lines: int = 24, **variables: str) -> Terminal:
    return Terminal(command("--view", "timeline", "--source", source, *FRAMES, *words), columns, lines, **variables)


def taken_over(terminal: Terminal) -> bool:
    return terminal.picture.modes.get(1049, False) and not terminal.is_as_before


def test_a_picture_shows_what_was_written() -> None:
    picture = Picture(6, 2)
    picture.feed("\x1b[?25l\x1b[2J\x1b[2;3H\x1b[0;38;5;1m█·\x1b[0mx\x1b[1;1Hab\rc".encode())
    assert (picture.text, picture.modes) == ("cb    \n  █·x ", {25: False})


def test_it_shows_rows_and_q_leaves_the_terminal_as_it_was(source: str, ring_dir: Path) -> None:
    with timeline(source, "--metric", "tensor", "--metric", "sm") as terminal:
        text = terminal.until(lambda text: re.search(r"^g1 tensor +·+█+ +50%", text, re.MULTILINE))
        assert taken_over(terminal)
        assert re.search(r"^g0 sm +·+ +<\.01%", text, re.MULTILINE)
        assert text.startswith("cufall ")
        assert text.count("\n") == 23
        terminal.press("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before
        assert len(re.findall("^cufall: ", terminal.said, re.MULTILINE)) == 2  # samples, cost; NVML is not asked
    assert rings(ring_dir) == []


ENDS: list[tuple[str, Callable[[Terminal], None], int]] = [
    ("Ctrl-C", lambda terminal: terminal.press("\x03"), 130),
    ("Ctrl-C twice", lambda terminal: terminal.press("\x03\x03"), 130),
    ("SIGTERM", lambda terminal: terminal.process.send_signal(signal.SIGTERM), 143),
    ("SIGHUP", lambda terminal: terminal.process.send_signal(signal.SIGHUP), 129),
    ("Ctrl-\\, which is no key, and q", lambda terminal: terminal.press("\x1cq"), 0),
]


def test_after_every_end_the_terminal_is_as_it_was(source: str) -> None:
    with ExitStack() as stack:
        running = [(stack.enter_context(timeline(source)), *end) for end in ENDS]
        for terminal, _, end, _ in running:
            terminal.sees("50%")
            assert taken_over(terminal)
            end(terminal)
        for terminal, name, _, code in running:
            assert (name, terminal.ends(), terminal.is_as_before) == (name, code, True)
            assert "Traceback" not in terminal.said


DEADLY = ["QUIT TRAP ABRT USR1 USR2", "ALRM XCPU VTALRM PROF", "POLL PWR SYS RTMIN RTMAX"]
"""As signal(7) has them; those of faults (SEGV, BUS, FPE, ILL) are left alone."""


@pytest.mark.parametrize("names", DEADLY)
def test_a_signal_that_nobody_waits_for_ends_it_with_a_clean_screen(names: str, source: str, ring_dir: Path) -> None:
    with ExitStack() as stack:
        running = [(stack.enter_context(timeline(source)), signal.Signals[f"SIG{name}"]) for name in names.split()]
        for terminal, number in running:
            terminal.sees("50%")
            assert taken_over(terminal)
            terminal.process.send_signal(number)
        for terminal, number in running:
            assert (terminal.ends(), terminal.is_as_before) == (-number, True)
    soon(lambda: not rings(ring_dir))


def test_a_signal_that_ends_nothing_leaves_the_screen_as_it_is(source: str) -> None:
    with timeline(source) as terminal:
        terminal.sees("50%")
        for name in ("PIPE", "XFSZ", "CHLD", "URG", "WINCH", "CONT"):
            terminal.process.send_signal(signal.Signals[f"SIG{name}"])
        terminal.press("l")
        terminal.sees("linear scale")
        assert taken_over(terminal)
        terminal.press("q")
        assert (terminal.ends(), terminal.is_as_before) == (0, True)


def test_a_source_that_dies_is_told_when_the_screen_is_left(tmp_path: Path) -> None:
    source = script(tmp_path, faults=[fault(0, "crash", at_s=1.0, for_s=0.5), fault(0, "denied", at_s=1.0)])
    with timeline(source) as terminal:
        terminal.sees("50%")
        assert terminal.ends() == 1
        assert terminal.is_as_before
        assert re.search("^cufall: GPU 0.*scripted to be denied", terminal.said, re.MULTILINE)


def test_what_is_said_is_on_the_screen_and_on_stderr_afterwards(tmp_path: Path) -> None:
    source = script(tmp_path, gpus=2, faults=[fault(1, "crash", 0.5, 0.5), fault(1, "denied", 0.5)])
    with timeline(source) as terminal:
        text = terminal.until(lambda text: re.search(r"^\d\d:\d\d:\d\d GPU 1.*no more samples", text, re.MULTILINE))
        terminal.until(lambda text: re.search(r"^g1 .*--", text, re.MULTILINE))
        assert "cufall: GPU 1" not in text
        terminal.press("q")
        assert terminal.ends() in (0, 4)  # by how long ago GPU 1 fell silent
        assert re.search("^cufall: GPU 1.*no more samples", terminal.said, re.MULTILINE)


def test_it_ends_with_its_duration(source: str) -> None:
    with timeline(source, "--duration-sec", "0.5") as terminal:
        assert (terminal.ends(), terminal.is_as_before) == (0, True)


@pytest.mark.parametrize(("words", "seconds"), [((), 3), (("--duration-sec", "2"), 2)])
def test_a_recording_is_seen_whole(words: tuple[str, ...], seconds: int, tmp_path: Path) -> None:
    """A column is a whole number of frames, so that a little more may be seen."""
    path = str(phases(tmp_path / "three.cufall"))
    with Terminal(command("replay", path, "--view", "timeline", "--speed", "max", *words)) as terminal:
        assert (terminal.ends(), terminal.is_as_before) == (0, True)
        last = re.search(r"  last ([\d.]+) s  ", terminal.said)
        assert last and seconds <= float(last[1]) <= 1.2 * seconds


def test_keys_are_answered_while_no_frame_comes(source: str) -> None:
    """A frame takes a minute; the keys do not wait for it."""
    words = command("--view", "timeline", "--source", source, "--frame-us", "60000000")
    with Terminal(words) as terminal:
        terminal.sees("no frame yet")
        terminal.press("h")
        terminal.sees("this help, and back")
        terminal.press("\x1b[B?l")
        terminal.sees("linear scale")
        terminal.press("q")
        assert terminal.ends() == 0


def test_a_pause_holds_the_picture_but_not_the_measurement(source: str, tmp_path: Path) -> None:
    with timeline(source, "--csv", str(tmp_path / "x.csv")) as terminal:
        terminal.sees("50%")
        terminal.press(" ")
        held = terminal.sees("PAUSED").split()[3]
        written = len((tmp_path / "x.csv").read_text())
        until = time.monotonic() + 1.5
        assert terminal.until(lambda _: time.monotonic() > until).split()[3] == held
        assert len((tmp_path / "x.csv").read_text()) > written
        terminal.press(" ")
        terminal.until(lambda text: "PAUSED" not in text and text.split()[2] > held)
        terminal.press("q")
        assert terminal.ends() == 0


def test_it_follows_the_size_of_the_terminal(source: str) -> None:
    with timeline(source) as terminal:
        terminal.sees("50%")
        for columns, lines in ((40, 5), (200, 50), (20, 4), (80, 24)):
            terminal.resize(columns, lines)
            footer = next(text for text in FOOTERS if len(text) <= columns).ljust(columns)
            text = terminal.until(lambda text: text.endswith(f"\n{footer}"))  # noqa: B023
            assert text.startswith("cufall tensor ")
            assert re.search("^g0 ", text, re.MULTILINE)
        terminal.press("q")
        assert (terminal.ends(), terminal.is_as_before) == (0, True)


def test_it_draws_ten_times_a_second_at_most(source: str) -> None:
    with timeline(source) as terminal:
        terminal.sees("50%")
        terminal.written, began = b"", time.monotonic()
        terminal.until(lambda _: time.monotonic() > began + 2)
        assert 2 <= terminal.written.count(b"\x1b[1;1H") <= 10 * (time.monotonic() - began) + 1


def test_stopped_it_gives_the_terminal_back_and_continued_it_takes_it_again(source: str) -> None:
    line = shlex.join(command("--view", "timeline", "--source", source, *FRAMES))
    with Terminal(["bash", "--norc", "--noediting", "-i"], PS1="$ ") as terminal:
        terminal.press(f"{line}; echo ended with $?\n")
        terminal.sees("50%")
        for _ in range(2):
            terminal.press("\x1a")
            terminal.until(lambda _: b"Stopped" in terminal.written)
            assert terminal.is_as_before
            terminal.written = b""
            terminal.press("fg\n")
            terminal.until(lambda text: re.search(r"^g1 .*50%", text, re.MULTILINE))
            assert taken_over(terminal)
        terminal.press("q")
        terminal.until(lambda _: b"; started in" in terminal.written)
        assert terminal.is_as_before
        terminal.press("exit\n")
        assert terminal.ends() == 0


def test_without_a_terminal_it_is_the_waterfall(source: str) -> None:
    ended = cufall("--view", "timeline", "--source", source, "--duration-sec", "0.2", TERM="xterm", FORCE_COLOR="1")
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 2)
    assert "\x1b" not in ended.stdout + ended.stderr
    assert ended.stderr.startswith("cufall: --view timeline: stdout is not a terminal; this is the waterfall\n")


@pytest.mark.parametrize(
    ("words", "term", "why"),
    [
        ("", "dumb", "TERM=dumb cannot move the cursor"),
        ("", "", "TERM= cannot move the cursor"),
        ("</dev/null", "xterm", "stdin is not a terminal"),
        ("<&-", "xterm", "stdin is not a terminal"),
    ],
)
def test_where_no_screen_can_be_it_is_the_waterfall(source: str, words: str, term: str, why: str) -> None:
    line = shlex.join(command("--view", "timeline", "--source", source, "--duration-sec", "0.2"))
    with Terminal(["sh", "-c", f"{line} {words}"], TERM=term) as terminal:
        assert terminal.ends() == 0
        text = terminal.written.decode()
        assert "\x1b" not in text
        assert text.count(f"cufall: --view timeline: {why}; this is the waterfall") == 1
        assert len(re.findall(r"g0\(  50%\)", text)) == 2


def test_the_view_can_be_a_variable_and_a_csv_takes_its_place(source: str) -> None:
    words = ("--source", source, "--duration-sec", "0.1", "--csv", "-")
    ended = cufall(*words, CUFALL_VIEW="timeline")
    assert (ended.returncode, len(ended.stdout.splitlines()), "timeline" in ended.stderr) == (0, 3, False)


LOOKS: list[tuple[dict[str, str], tuple[str, ...], bool, bool]] = [
    ({}, (), True, True),
    ({"NO_COLOR": "1"}, (), False, True),
    ({"NO_COLOR": "1"}, ("--color",), True, True),
    ({}, ("--no-color",), False, True),
    ({"LC_ALL": "C"}, (), True, False),
    ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, (), True, False),
]
"""Variables and options; whether there is colour, and more than ASCII."""


def test_colours_and_characters_are_what_the_terminal_takes(source: str) -> None:
    with ExitStack() as stack:
        running = [
            (stack.enter_context(timeline(source, *words, **variables)), look)
            for look in LOOKS
            for variables, words, _, _ in [look]
        ]
        for terminal, (_, _, colour, unicode) in running:
            terminal.sees("50%")
            terminal.press("q")
            assert terminal.ends() == 0
            assert (b"\x1b[0;38;5;" in terminal.written) == colour
            assert terminal.written.isascii() != unicode


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        (b"", []),
        (b"qq", ["q", "q"]),
        (b"\x1b[A\x1bOB ", ["up", "down", " "]),
        (b"\x1b", ["escape"]),
        (b"\x1b[1;5C\x00\xff\xc3\xa9\x0c", ["[", "1", ";", "5", "C"]),
    ],
)
def test_keys_are_told_from_what_is_none(written: bytes, keys: list[str]) -> None:
    assert split_keys(written) == keys
