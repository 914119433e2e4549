"""`--view verdict`: lines into a pipe, a full screen on a terminal, of GPUs that are known to do one thing."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from cufall_py.analysis.advice import TEXT
from cufall_py.analysis.decision_table import CLASSES
from cufall_py.analysis.recent import Recent
from cufall_py.analysis.verdict_windows import WindowVerdict
from cufall_py.metrics import TIME, Metric
from cufall_py.shown import share_text
from cufall_py.views.styled import plain
from cufall_py.views.verdict import advices, cells, row
from cufall_py.views.verdict_screen import Scene, screen, stripe
from tests.helpers import MS
from tests.recordings import working
from tests.scripted import command, cufall, script
from tests.terminals import Terminal
from tests.test_verdict_report import NAMES, PHASES

GR = Metric("gr", "gr", ("gr__cycles_active.avg",), "gr__cycles_elapsed.max", peak=1.0)
RAW = Metric("dram", "dram", ("dram__bytes_read.sum",), TIME, peak=1.0, bounded=False, plain=True)
COPY = [{"ms": 1000, "gr": 1.0, "sm": 0.9, "dram": 0.8, "issue": 0.1}]


def test_a_recording_into_a_pipe_is_a_line_a_frame(tmp_path: Path) -> None:
    known = str(working(tmp_path / "known.cufall", PHASES, NAMES))
    ended = cufall("replay", known, "--view", "verdict", "--region", "prefill-simt", TZ="UTC")
    lines = ended.stdout.splitlines()
    assert (ended.returncode, len(lines)) == (0, 20)
    assert lines[0] == "00:53:22.000000 g0 cuda-core-bound fma 75%, alu 0%, tensor 0%, dram 3%"
    assert {line.split(maxsplit=1)[1] for line in lines} == {lines[0].split(maxsplit=1)[1]}


def test_frames_are_as_long_as_is_asked(tmp_path: Path) -> None:
    known = str(working(tmp_path / "known.cufall", PHASES[:1], NAMES))
    for words, count in (((), 20), (("--verdict-ms", "200"), 5), (("--frame-us", "100000"), 10)):
        ended = cufall("replay", known, "--view", "verdict", *words)
        assert len(ended.stdout.splitlines()) == count


def test_a_gpu_that_is_sampled_has_verdicts(tmp_path: Path) -> None:
    source = script(tmp_path, gpus=2, pattern=COPY)
    ended = cufall("--source", source, "--view", "verdict", "--duration-sec", "0.3")
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0 and len(lines) == 6
    assert all("g0 memory-bound " in line and "g1 memory-bound " in line and "dram 80%" in line for line in lines)


def test_a_terminal_shows_class_stripe_evidence_and_advice(tmp_path: Path) -> None:
    source = script(tmp_path, gpus=2, pattern=COPY)
    words = command("--view", "verdict", "--source", source, "--decode-us", "50000")
    with Terminal(words, 100, 24) as terminal:
        text = terminal.until(lambda text: re.search(r"^g1 memory-bound +100% +M{8,}", text, re.MULTILINE))
        assert "dram 80%, tensor 0%, sm 90%; to its edge 78%" in text and "device memory is the limit" in text
        assert "m memory-bound" not in text and "M memory-bound" in text
        terminal.press("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before


def test_a_terminal_tells_how_a_group_works_together(tmp_path: Path) -> None:
    nothing = [{"ms": 1000}]
    source = script(tmp_path, gpus=3, patterns=[nothing, COPY, nothing])
    groups = ("--group", "pair=0-1", "--group", "rest=2")
    words = command("--view", "verdict", "--source", source, "--decode-us", "50000", *groups)
    with Terminal(words, 120, 24) as terminal:
        text = terminal.sees("pair (g0, g1): all idle 0%, skew 100%, straggler g1 (alone at work 100%)")
        assert "rest (g2): all idle 100%, skew 0%" in text
        terminal.press("q")
        assert terminal.ends() == 0


@pytest.mark.parametrize(
    "words, code, told",
    [
        (("--group", "a=0"), 2, "--group: is told with --view verdict"),
        (("--view", "verdict", "--raw"), 2, "--raw: not with --view verdict, which takes shares of the peak"),
        (("--view", "verdict", "--full-scale", "2"), 2, "--full-scale: not with --view verdict"),
        (("--view", "verdict", "--group", "a=0", "--group", "b=0"), 2, "--group b=0: GPU 0 is in a already"),
        (("--view", "verdict", "--group", "a=0", "--duration-sec", "0.1"), 0, "--group: stdout is not a terminal"),
    ],
)
def test_where_groups_cannot_be_told_that_is_said(tmp_path: Path, words: tuple[str, ...], code: int, told: str) -> None:
    ended = cufall("--source", script(tmp_path, pattern=COPY), *words)
    assert ended.returncode == code and told in ended.stderr


def test_groups_in_the_environment_wait_for_what_tells_them(tmp_path: Path) -> None:
    """As a --batch there waits for a model."""
    source, out = ("--source", script(tmp_path, pattern=COPY), "--duration-sec", "0.5"), tmp_path / "run.cufall"
    waiting = {"CUFALL_GROUP": "auto", "CUFALL_BATCH": "4"}
    assert cufall(*source, **waiting).returncode == 0
    assert cufall("record", *source, "-o", str(out), **waiting).returncode == 0
    told = cufall("report", str(out), **waiting)
    assert told.returncode == 0 and "group auto-1" in told.stdout


def test_a_group_of_a_gpu_that_is_not_there_is_usage(tmp_path: Path) -> None:
    words = command("--view", "verdict", "--source", script(tmp_path, pattern=COPY), "--group", "a=3")
    with Terminal(words, 100, 24) as terminal:
        assert terminal.ends() == 2
        assert "--group a: no GPU 3; there are 0" in terminal.written.decode()


def test_a_table_that_is_wrong_is_usage_before_anything_starts(tmp_path: Path) -> None:
    ended = cufall("demo", "--view", "verdict", "--verdict-table", str(tmp_path / "none"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--verdict-table" in ended.stderr


def test_a_recording_without_any_evidence_is_told(tmp_path: Path) -> None:
    only = str(working(tmp_path / "l2.cufall", PHASES[:1], ["l2"]))
    ended = cufall("replay", only, "--view", "verdict")
    assert ended.returncode == 2 and "can be made of what was recorded" in ended.stderr


# --- the last seconds


def test_the_newest_frames_are_kept_and_weighed() -> None:
    recent = Recent([GR], 2, 4)
    for k in range(10):
        mean = np.array([[0.0], [np.nan]])
        recent.add(mean, mean, np.array([50.0 * MS if k % 2 else 25.0 * MS, 0.0]), 50 * MS)
    codes = recent.codes()
    assert codes.shape == (4, 2)
    assert {CLASSES[code] for code in codes[:, 0]} == {"idle"} and {CLASSES[code] for code in codes[:, 1]} == {
        "unknown"
    }
    first, second = recent.windows()
    assert (first.shares["idle"], first.shares["unknown"]) == (0.75, 0.25)
    assert (first.verdict, first.means["gr"], second.verdict) == ("idle", 0.0, "unknown")


def test_what_is_no_share_of_a_peak_is_no_evidence() -> None:
    recent = Recent([GR, RAW], 1, 2)
    recent.add(np.array([[1.0, 9e9]]), np.array([[1.0, 9e9]]), np.array([50.0 * MS]), 50 * MS)
    window = recent.windows()[0]
    assert window.verdict == "unknown" and set(window.means) == {"gr"} and "dram" in window.missing


def test_gaps_are_many_where_every_sample_had_some_work() -> None:
    launches = Metric("launches", "launches", ("gr__dispatch_count.sum",), TIME, peak=1e-9, bounded=False, unit="/s")
    link = Metric("pcie.rx", "pcie.rx", ("pcie__read_bytes.sum",), "pcie__cycles_elapsed.avg", peak=1.0)
    for least, verdict in ((0.2, "launch-bound"), (0.0, "unknown")):
        recent = Recent([GR, launches, link], 1, 2)
        recent.add(np.array([[0.3, 30_000, 0.0]]), np.array([[least, 0.0, 0.0]]), np.array([50.0 * MS]), 50 * MS)
        window = recent.windows()[0]
        assert window.verdict == verdict
        # the gap is 0.7, and 0.5 its edge
        assert window.distance == pytest.approx(0.4 if least else math.nan, nan_ok=True)
    assert "gap_within" in recent.windows()[0].missing


@given(st.lists(st.integers(0, len(CLASSES) - 1), max_size=200), st.integers(0, 120))
def test_a_stripe_has_a_letter_a_piece_of_time(codes: list[int], width: int) -> None:
    cells = stripe(np.array(codes, np.int8), width)
    assert len(cells) == min(width, len(codes))
    if len(codes) <= width:
        assert "".join(text for text, _ in cells) == "".join("_lMTCwyX+?"[code] for code in codes)


@given(st.integers(1, 16), st.integers(1, 300), st.integers(1, 60), st.booleans())
def test_every_screen_fits(gpus: int, columns: int, lines: int, ascii_only: bool) -> None:
    recent = Recent([GR], gpus, 4)
    recent.add(np.full((gpus, 1), 0.5), np.full((gpus, 1), 0.5), np.full(gpus, 50.0 * MS), 50 * MS)
    scene = Scene("verdicts", [f"g{k}" for k in range(gpus)], recent.windows(), recent.codes(), 0.05, "世界 said")
    texts = plain(screen(scene, columns, lines, ascii_only)).split("\n")
    assert len(texts) == lines and {cell_len(text) for text in texts} == {columns}
    if lines > gpus + 5 and columns > 20:
        assert sum(text.startswith("g") for text in texts) == gpus


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_what_is_long_is_told_to_its_end(columns: int) -> None:
    recent = Recent([GR], 1, 4)
    recent.add(np.full((1, 1), 0.001), np.full((1, 1), 0.001), np.full(1, 50.0 * MS), 50 * MS)
    said, group = " ".join(["what was said"] * 12), f"all ({', '.join(f'g{k}' for k in range(16))}): skew 3%"
    scene = Scene("verdicts", ["g0"], recent.windows(), recent.codes(), 0.05, said, [group])
    text = plain(screen(scene, columns, 40))
    words = " ".join(text.split())
    assert "…" not in text
    assert all(told in words for told in (TEXT["idle"], said, group, *CLASSES))


def test_where_there_is_no_room_the_end_is_marked() -> None:
    recent = Recent([GR], 2, 4)
    recent.add(np.full((2, 1), 0.001), np.full((2, 1), 0.001), np.full(2, 50.0 * MS), 50 * MS)
    scene = Scene("verdicts", ["g0", "g1"], recent.windows(), recent.codes(), 0.05, "what was said " * 20)
    texts = plain(screen(scene, 60, 10, ascii_only=True)).split("\n")
    assert texts[3].split() == [
        "nothing",
        "runs",
        "on",
        "it:",
        "look",
        "at",
        "what",
        "should",
        "give",
        "it",
        "work",
        "~",
    ]
    assert sum(text.startswith("what was said") for text in texts) == 1 and texts[7].rstrip().endswith("said ~")


@pytest.mark.parametrize(
    "share, text",
    [
        (0, "0%"),
        (0.00004, "<.01%"),
        (0.0013, "0.13%"),
        (0.047, "4.7%"),
        (0.0996, "10%"),
        (1, "100%"),
        (float("nan"), "--"),
    ],
)
def test_shares_are_two_figures_at_most(share: float, text: str) -> None:
    assert share_text(share) == text


def test_a_row_names_each_gpu() -> None:
    text = row(0, ["g0", "g1"], ["idle", "launch-bound"], [{"gr": 0.001}, {"gr": 0.2, "launches": 31_000.0}])
    assert text.endswith(" g0 idle            gr 0.1%  g1 launch-bound    gr 20%, launches 31000/s")


def test_gaps_that_launching_does_not_explain_are_not_called_a_mix_of_limits() -> None:
    """By hand: 0.2 of the time active is less than half of it, 0.9 is more; what is unknown for want of time lacks
    no counter."""
    shares = dict.fromkeys(CLASSES, 0.1)
    empty, busy = (WindowVerdict("mixed", "", shares, shares, {"gr": gr}) for gr in (0.2, 0.9))
    told = list(advices([("a", empty), ("b", busy), ("c", empty)]))
    assert len(told) == 2 and told[0].startswith("mixed (a, c): no kernel runs for most of the time")
    assert told[1].startswith("mixed (b): no one limit")
    (alone,) = advices([("a", busy), ("b", busy)])
    assert alone.startswith("mixed: no one limit")
    many = [*((str(k), empty) for k in range(9)), ("b", busy)]
    assert next(advices(many)).startswith("mixed (0, 1, 2, 3, 4, 5 and 3 more): ")
    lost, lacks = (WindowVerdict("unknown", "", shares, shares, {}, missing) for missing in ((), ("fma",)))
    told = list(advices([("a", lost), ("b", lacks)]))
    assert "a GPU lost" in told[0] and "was not measured: fma" in told[1]


@pytest.mark.parametrize("value", ["0", "60001"])
def test_a_length_that_cannot_be_is_refused_by_its_own_name(tmp_path: Path, value: str) -> None:
    ended = cufall("--source", script(tmp_path, pattern=COPY), "--view", "verdict", "--verdict-ms", value)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"--verdict-ms {value}: must be a whole number from 1 to 60000" in ended.stderr


def test_a_mix_of_classes_has_no_share_of_its_own_beside_it() -> None:
    """By hand: of idle 0.45, memory-bound 0.45 and mixed 0.1 none has half; of mixed 0.6 it has."""
    nothing = dict.fromkeys(CLASSES, 0.0)
    torn = nothing | {"idle": 0.45, "memory-bound": 0.45, "mixed": 0.1}
    assert cells(WindowVerdict("mixed", "idle", torn, torn, {}))[:3] == (
        "mixed",
        "--",
        "memory-bound 45%, idle 45%, mixed 10%",
    )
    whole = nothing | {"idle": 0.4, "mixed": 0.6}
    assert cells(WindowVerdict("mixed", "idle", whole, whole, {}))[:3] == ("mixed", "60%", "idle 40%")
