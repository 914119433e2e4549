"""A recording played: what its frames say is what was recorded, whatever part, order, pace and metric."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py import CufallError, Frame, Part, Plan, Playback, Recording, Wanted
from cufall_py.errors import InvalidMeasurement, UsageError
from cufall_py.metrics import MetricSet
from cufall_py.pace import Pace
from cufall_py.readings import Reading
from cufall_py.recording import RecordingWriter
from cufall_py.sources import Opened
from cufall_py.sources.gpm import gpm_set
from tests.helpers import (
    EPOCH,
    GR_ELAPSED,
    MS,
    SECOND,
    SM_ELAPSED,
    TENSOR,
    joined,
    metric,
    samples,
    steady,
    tensor_set,
)
from tests.recordings import REALTIME, busy, counters, opened, phases, region, writer

PLAN = Plan(frame_us=10_000)
FRAME_NS = 10 * MS
ENGINEER = Wanted((TENSOR,), GR_ELAPSED)


def played(path: Path, plan: Plan = PLAN, **options: object) -> list[Frame]:
    with Playback(path, plan, **options) as playback:  # type: ignore[arg-type]
        return list(playback.frames())


def refused(path: Path, plan: Plan = PLAN, **options: object) -> str:
    with pytest.raises(UsageError) as told:
        Playback(path, plan, **options)  # type: ignore[arg-type]
    return str(told.value)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    return phases(tmp_path / "three.cufall")


# --- what was recorded is what is played


@dataclass
class Told:
    """What a frame has of one GPU, added up by hand: covered nanoseconds, and tensor cycles as a share of the peak."""

    covered_ns: float = 0.0
    busy_ns: float = 0.0
    got: int = 0


def by_hand(pieces: list[tuple[int, int, list[float]]], gpu: int) -> dict[int, Told]:
    """Frame start to what is in it, of samples of 3 ms laid from these times on."""
    frames: dict[int, Told] = {}
    for _, start_ns, ratios in (piece for piece in pieces if piece[0] == gpu):
        for k, ratio in enumerate(ratios):
            a, b = start_ns + 3 * MS * k, start_ns + 3 * MS * (k + 1)
            for frame in range(a // FRAME_NS * FRAME_NS, b, FRAME_NS):
                told, share_ns = frames.setdefault(frame, Told()), min(b, frame + FRAME_NS) - max(a, frame)
                told.covered_ns += share_ns
                told.busy_ns += share_ns * ratio
                told.got += frame < b <= frame + FRAME_NS
    return frames


ratio = st.floats(0.001, 1)
batches = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 40 * MS), st.lists(ratio, min_size=1, max_size=20)), min_size=1
)


def laid_out(batches: list[tuple[int, int, list[float]]]) -> list[tuple[int, int, list[float]]]:
    """(gpu, start, ratios): each GPU's batches one after the other, so long after the one before."""
    at = [EPOCH + 123_457, EPOCH + 7 * MS]
    out = []
    for gpu, later_ns, ratios in batches:
        at[gpu] += later_ns
        out.append((gpu, at[gpu], ratios))
        at[gpu] += 3 * MS * len(ratios)
    return out


def write(path: Path, pieces: list[tuple[int, int, list[float]]]) -> None:
    with writer(path, [opened(0), opened(1)]) as out:
        for gpu, start_ns, ratios in pieces:
            out.add(gpu, busy(start_ns, ratios, 3 * MS))
            out.flush()


@given(batches)
def test_frames_are_what_the_samples_add_up_to_in_any_order(batches: list[tuple[int, int, list[float]]]) -> None:
    """One GPU may come seconds behind the other, or stop; nothing is late, and no frame is missing or comes twice."""
    pieces = laid_out(batches)
    with TemporaryDirectory() as folder:
        write(Path(folder) / "a.cufall", pieces)
        frames = played(Path(folder) / "a.cufall")
    first, last = frames[0].start_ns, frames[-1].start_ns
    assert [frame.start_ns for frame in frames] == list(range(first, last + 1, FRAME_NS))
    expected = [by_hand(pieces, gpu) for gpu in (0, 1)]
    assert {first, last} == {min(min(e) for e in expected if e), max(max(e) for e in expected if e)}
    for frame in frames:
        for gpu in (0, 1):
            told = expected[gpu].get(frame.start_ns, Told())
            assert frame.covered_ns[gpu] == pytest.approx(told.covered_ns)
            assert frame.got[gpu] == told.got
            mean = told.busy_ns / told.covered_ns if told.covered_ns else math.nan
            assert frame.mean[gpu, 0] == pytest.approx(mean, rel=1e-5, nan_ok=True)


@given(batches, st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)))
def test_any_two_parts_add_up_to_the_whole(
    batches: list[tuple[int, int, list[float]]], shares: tuple[float, float, float]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.cufall"
        write(path, laid_out(batches))
        length_s = Recording(path).outline().end_ns - Recording(path).outline().start_ns
        a, b, c = (f"{share * length_s / 1e9:.9f}" for share in sorted(shares))
        if not 0 < float(a) < float(b) < float(c):
            return
        one, two, both = (added(path, Part(*ends)) for ends in ((a, b), (b, c), (a, c)))
    for start_ns, whole in both.items():
        halves = one.get(start_ns, np.zeros(6)) + two.get(start_ns, np.zeros(6))
        assert halves[:4] == pytest.approx(whole[:4], rel=1e-4, abs=10)
        assert halves[4:].tolist() == whole[4:].tolist()
    assert {*one, *two} == {*both}


def added(path: Path, part: Part) -> dict[int, np.ndarray]:
    """Frame start to covered and busy nanoseconds of each GPU, and its samples."""
    return {
        frame.start_ns: np.concatenate(
            [frame.covered_ns, np.nan_to_num(frame.mean[:, 0]) * frame.covered_ns, frame.got]
        )
        for frame in played(path, part=part)
    }


def test_a_sample_that_touches_a_region_twice_is_one(tmp_path: Path) -> None:
    """It counts where it ends; one that ends outside counts nowhere, by its share it does."""
    with writer(tmp_path / "a.cufall", [opened()]) as out:
        for start_us, end_us in ((0, 5_200), (5_400, 5_600), (5_700, 12_500)):
            region(out, "twice", EPOCH + 1000 * start_us, EPOCH + 1000 * end_us)
        out.add(0, busy(EPOCH, [0.5] * 20))
    with Playback(tmp_path / "a.cufall", PLAN, part=Part(region="twice")) as playback:
        frames = list(playback.frames())
        assert [frame.got.tolist() for frame in frames] == [[10], [2]]
        assert [frame.covered_ns.tolist() for frame in frames] == [[9.7 * MS], [2.5 * MS]]
        assert playback.counts()[0] == 12
        playback.check()


def test_a_part_of_a_sample_is_measured_though_no_sample_ends_in_it(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 20))
    with Playback(tmp_path / "a.cufall", PLAN, part=Part("0.0052", "0.0058")) as playback:
        (frame,) = playback.frames()
        assert (frame.got.tolist(), frame.covered_ns.tolist()) == ([0], [pytest.approx(0.6 * MS)])
        playback.check()


def test_a_new_frame_length_folds_anew(three: Path) -> None:
    frames = played(three, Plan(frame_us=2_000_000))
    assert means(frames) == [0.25, 0]
    assert [(frame.expected[0], frame.got[0], frame.coverage[0]) for frame in frames] == [
        (2000, 2000, 1),
        (2000, 1000, 0.5),
    ]


def test_how_long_it_is_in_whole_frames(three: Path) -> None:
    for part, length_s in ((Part(), 3.0), (Part("1", "1.205"), 0.21), (Part(region="idle"), 3.0), (Part("-1"), 1.0)):
        with Playback(three, PLAN, part=part) as playback:
            assert playback.length_s == pytest.approx(length_s)


def test_a_gap_stays_a_gap(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 15))
        out.event("gap", gpu=0, start_ns=EPOCH + 15 * MS, end_ns=EPOCH + 42 * MS, samples=27)
        out.add(0, busy(EPOCH + 42 * MS, [0.5] * 8))
    with Playback(tmp_path / "a.cufall", PLAN) as playback:
        frames = list(playback.frames())
        assert playback.summary() == [f"23 samples in 0.1 s of {tmp_path / 'a.cufall'}, 27 lost (0.027 s)"]
    assert [frame.coverage[0] for frame in frames] == [1, 0.5, 0, 0, 0.8]
    assert [math.isnan(frame.mean[0, 0]) for frame in frames] == [False, False, True, True, False]


def test_what_was_not_measured_is_not_0(tmp_path: Path) -> None:
    """Nor does it take away what was measured before and after it."""
    values = busy(EPOCH, [0.5] * 40)
    values.values[15, 0] = math.nan
    with writer(tmp_path / "a.cufall", [opened()]) as out:
        out.add(0, values)
    found = [frame.mean[0, 0] for frame in played(tmp_path / "a.cufall")]
    assert found == pytest.approx([0.5, math.nan, 0.5, 0.5], nan_ok=True)


def test_gpus_come_late_and_vanish_as_they_did(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", [opened(0), opened(1)]) as out:
        out.add(0, busy(EPOCH, [0.25] * 30))
        out.add(1, busy(EPOCH + 10 * MS, [0.5] * 10))
    frames = played(tmp_path / "a.cufall")
    assert [frame.coverage.tolist() for frame in frames] == [[1, 0], [1, 1], [1, 0]]


def test_a_night_in_which_the_machine_slept_is_not_played(tmp_path: Path) -> None:
    morning_ns = EPOCH + 8 * 3600 * SECOND
    with writer(tmp_path / "a.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 10))
        out.add(0, busy(morning_ns, [0.5] * 10))
    assert [frame.start_ns for frame in played(tmp_path / "a.cufall")] == [EPOCH, morning_ns]


def test_a_clock_set_back_is_told_and_not_played_twice(tmp_path: Path) -> None:
    said: list[str] = []
    with writer(tmp_path / "a.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 20))
        out.add(0, busy(EPOCH + 10 * MS, [0.9] * 15))
    frames = played(tmp_path / "a.cufall", say=said.append)
    assert [round(frame.mean[0, 0], 3) for frame in frames] == [0.5, 0.5, 0.9]
    assert said == ["10 samples lie before earlier ones, for a clock was set back: they are left out"]


def test_gpus_are_chosen_among_those_recorded(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", [opened(2), opened(5)]) as out:
        out.add(0, busy(EPOCH, [0.25] * 10))
        out.add(1, busy(EPOCH, [0.75] * 10))
    (frame,) = played(tmp_path / "a.cufall", Plan(frame_us=10_000, devices="5"))
    assert frame.mean.ravel().tolist() == pytest.approx([0.75])
    assert "no such GPU; there are 2" in refused(tmp_path / "a.cufall", Plan(devices="0"))


def test_a_gpu_without_samples_is_no_valid_measurement(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", [opened(0), opened(1)]) as out:
        out.add(0, busy(EPOCH, [0.25] * 10))
    with Playback(tmp_path / "a.cufall", PLAN) as playback:
        assert len(list(playback.frames())) == 1
        with pytest.raises(InvalidMeasurement, match="GPU 1: no samples in what was played of"):
            playback.check()


def test_what_was_lost_of_a_gpu_that_never_came_back_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.cufall"
    with writer(path, [opened(0), opened(1)]) as out:
        out.add(0, busy(EPOCH, [0.25] * 3000))
        out.add(1, busy(EPOCH, [0.25] * 500))
    for part, told in (
        (Part("", "1.4"), ", 0 lost (0.000 s)"),
        (Part("", "2"), ", 0 lost (0.000 s), and the last 1.5 s of GPU 1"),
        (Part(), ", 0 lost (0.000 s), and the last 2.5 s of GPU 1"),
        (Part("1"), ", 0 lost (0.000 s), and all of GPU 1"),
    ):
        with Playback(path, PLAN, part=part) as playback:
            assert list(playback.frames())
            assert playback.summary()[0].partition(str(path))[2] == told


def test_an_empty_recording_has_no_frames(tmp_path: Path) -> None:
    writer(tmp_path / "a.cufall", [opened()]).close()
    with Playback(tmp_path / "a.cufall", PLAN, loop=True) as playback:
        assert list(playback.frames()) == []
        with pytest.raises(InvalidMeasurement, match="GPU 0: no samples"):
            playback.check()


def test_a_file_cut_anywhere_plays_what_is_whole(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.cufall", tmp_path / "cut.cufall"
    out = writer(whole, [opened()])
    region(out, "open", EPOCH, None, "is seen")
    ends = []
    for k in range(5):
        out.add(0, busy(EPOCH + 10 * k * MS, [0.5] * 10))
        out.flush()
        ends.append(whole.stat().st_size)
    data = whole.read_bytes()
    out.close()
    for size in range(ends[0], ends[-1], 97):
        cut.write_bytes(data[:size])
        said: list[str] = []
        frames = played(cut, say=said.append, part=Part(region="open"))
        assert len(frames) == sum(end <= size for end in ends)
        assert said == [
            f"{cut} is not whole (cut short or damaged): read up to its last complete batch",
            "[open] is seen",
        ]


# --- parts


def means(frames: list[Frame]) -> list[float]:
    return [round(float(frame.mean[0, 0]), 6) for frame in frames]


SECOND_FRAMES = Plan(frame_us=1_000_000)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Part(), [0, 0.5, 0]),
        (Part(begin="1"), [0.5, 0]),
        (Part(begin="+1.0"), [0.5, 0]),
        (Part(end="1."), [0]),
        (Part(begin="-2", end="-1"), [0.5]),
        (Part(begin="1", end="2026-11-30T00:53:22Z", region="all"), [0.5]),
        (Part(region="busy"), [0.5]),
        (Part(region="idle"), [0, 0]),
        (Part(region="all"), [0.5, 0]),
        (Part(begin="0.5", end="1.5"), [0, 0.5]),
    ],
)
def test_parts(three: Path, part: Part, expected: list[float]) -> None:
    assert means(played(three, SECOND_FRAMES, part=part)) == expected


def test_the_part_of_a_frame_says_how_much_is_covered(three: Path) -> None:
    frames = played(three, SECOND_FRAMES, part=Part(begin="0.5", end="1.25"))
    assert [frame.coverage[0] for frame in frames] == [0.5, 0.25]
    assert [frame.start_ns for frame in frames] == [EPOCH, EPOCH + SECOND]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T00:53:21.5+00:00",
        "2026-11-30 01:53:21,500+0100",
        "2026-11-30T00:53:21.500000000Z",
        "2026-11-29T19:53:21.5",
    ],
)
def test_times_to_begin_at(three: Path, text: str, timezone: object) -> None:
    timezone("America/New_York")  # type: ignore[operator]
    (frame, _) = played(three, SECOND_FRAMES, part=Part(begin=text))
    assert (frame.start_ns, frame.coverage[0]) == (EPOCH + SECOND, 0.5)


LATER = "2026-11-30T00:53:29Z"


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (Part(begin="ten"), "--from ten: must be seconds from the start (12.5), seconds before the end (-10) or an"),
        (Part(end="2026-13-30T12:40"), "--to 2026-13-30T12:40: must be seconds"),
        (Part(begin="nan"), "--from nan: must be seconds"),
        (Part(begin="1e3"), "--from 1e3: must be seconds"),
        (Part(begin="3"), "--from 3: nothing was recorded then; the recording is 3 s long"),
        (Part(begin=LATER), f"--from {LATER}: nothing was recorded then; the recording is 3 s long"),
        (Part(end="-3"), "--to -3: nothing was recorded then"),
        (Part(begin="2", end="1"), "--from 2 --to 1: the second must be later than the first"),
        (Part(region="decode"), "--region decode: no such region; there are idle, all, busy"),
    ],
)
def test_parts_that_cannot_be(three: Path, part: Part, told: str) -> None:
    assert told in refused(three, part=part)


def test_without_regions_it_says_so(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.25] * 10))
    assert "--region x: no such region; the recording has none" in refused(tmp_path / "a.cufall", part=Part(region="x"))


def test_what_is_seen_in_a_region_is_told_as_it_begins(three: Path) -> None:
    said: list[str] = []
    with Playback(three, SECOND_FRAMES, said.append) as playback:
        told = [(said.copy(), said.clear())[0] for _ in playback.frames()]
    assert told == [["[idle] nothing runs"], ["[busy] half of the peak"], ["[idle] nothing runs again"]]
    Playback(three, SECOND_FRAMES, said.append, part=Part(begin="1.5", end="2")).frames().__next__()
    assert said == ["[busy] half of the peak"]


# --- pace


@dataclass
class Clock:
    """Sleeps at once, and writes down until when."""

    at_s: float = 100.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds
        self.slept.append(round(self.at_s - 100, 9))

    def pace(self, speed: float) -> Pace:
        return Pace(speed, self.monotonic, self.sleep)


def test_speed_only_paces(three: Path) -> None:
    for speed, until in ((1.0, [1, 2, 3]), (4.0, [0.25, 0.5, 0.75]), (0.5, [2, 4, 6]), (0.0, [])):
        clock = Clock()
        assert means(played(three, SECOND_FRAMES, pace=clock.pace(speed))) == [0, 0.5, 0]
        assert clock.slept == until


def test_a_reader_that_takes_its_time_is_waited_for_less(three: Path) -> None:
    clock = Clock()
    with Playback(three, SECOND_FRAMES, pace=clock.pace(1)) as playback:
        for _ in playback.frames():
            clock.at_s += 0.25
    assert clock.slept == [1, 2, 3]


def test_what_was_stopped_for_long_goes_on_at_its_pace() -> None:
    clock = Clock()
    pace = clock.pace(1)
    pace.wait(0.1)
    clock.at_s += 60
    for _ in range(15):
        pace.wait(0.1)
    assert clock.slept == pytest.approx([0.1, 60.2, 60.3, 60.4, 60.5, 60.6])


@pytest.mark.parametrize("speed", [-1.0, math.nan, math.inf])
def test_a_speed_that_is_none(speed: float) -> None:
    with pytest.raises(UsageError, match="must be a number above 0, or max"):
        Pace(speed)


def test_a_duration_counts_recorded_time(three: Path) -> None:
    with Playback(three, PLAN) as playback:
        assert means(list(playback.frames(1))) == [0] * 100
        assert means(list(playback.frames(1))) == [0.5] * 100
        assert playback.summary() == [f"2000 samples in 2.0 s of {three}, 0 lost (0.000 s)"]
        assert len(list(playback.frames())) == 100
        assert list(playback.frames()) == []


def test_a_loop_begins_again(three: Path) -> None:
    with Playback(three, SECOND_FRAMES, loop=True) as playback:
        frames = list(playback.frames(7))
    assert means(frames) == [0, 0.5, 0, 0, 0.5, 0, 0]
    assert frames[3].start_ns == EPOCH


# --- metrics


def one_gpu(path: Path, metrics: MetricSet, peaks: dict[str, float] | None = None) -> Path:
    with writer(path, [opened(0, metrics, peaks=peaks)]) as out:
        out.add(0, busy(EPOCH, [0.25] * 10))
    return path


@pytest.mark.parametrize("spelling", [TENSOR, REALTIME])
def test_the_engineers_command_reads_either_spelling(tmp_path: Path, spelling: str) -> None:
    """2 SM cycles to a SYS cycle and 4 a cycle: the plain quotient is 8 times the share of the peak."""
    said: list[str] = []
    path = one_gpu(tmp_path / "a.cufall", counters(spelling))
    with Playback(path, Plan(ENGINEER, hw_buffer_mb=250, frame_us=10_000), said.append) as playback:
        (frame,) = playback.frames()
        (shown,) = playback.opened[0].metrics.metrics
    assert frame.mean.ravel().tolist() == pytest.approx([0.25])
    assert (shown.asked, shown.formula) == (f"{TENSOR}/{GR_ELAPSED}", f"{spelling}/(4*{SM_ELAPSED})")
    assert len(said) == 1 and "is 8.00 times that (2.00 gpc_cycle to a sys_cycle)" in said[0]


@pytest.mark.parametrize("spelling", [TENSOR, REALTIME])
def test_a_short_name_reads_either_spelling(tmp_path: Path, spelling: str) -> None:
    (frame,) = played(one_gpu(tmp_path / "a.cufall", counters(spelling)))
    assert frame.mean.ravel().tolist() == pytest.approx([0.25])


def test_raw_and_full_scale(tmp_path: Path) -> None:
    path = one_gpu(tmp_path / "a.cufall", counters())
    raw = Plan(Wanted((TENSOR,), GR_ELAPSED, raw=True), frame_us=10_000)
    assert played(path, raw)[0].mean.ravel().tolist() == pytest.approx([2.0])
    scaled = Plan(Wanted((TENSOR,), GR_ELAPSED, full_scale=16), frame_us=10_000)
    assert played(path, scaled)[0].mean.ravel().tolist() == pytest.approx([0.125])


def test_a_metric_it_was_not_taken_with_has_the_peak_the_chip_told(tmp_path: Path) -> None:
    bare = MetricSet((TENSOR, SM_ELAPSED, GR_ELAPSED), (metric(counter=SM_ELAPSED, peak=1.0),))
    told = one_gpu(tmp_path / "told.cufall", bare, {TENSOR: 2.0})
    assert played(told)[0].mean.ravel().tolist() == pytest.approx([0.5])
    untold = one_gpu(tmp_path / "untold.cufall", bare)
    assert f"(the peak of {TENSOR} was not recorded; --raw or --full-scale does without)" in refused(untold)


def test_a_metric_of_two_peaks(tmp_path: Path) -> None:
    heavy, lite = (f"sm__inst_executed_pipe_fma{kind}_realtime.sum" for kind in ("heavy", "lite"))
    metrics = MetricSet((heavy, lite, SM_ELAPSED), (metric(counter=SM_ELAPSED, peak=1.0),))
    path = tmp_path / "a.cufall"
    with writer(path, [opened(0, metrics, peaks={heavy: 3.0, lite: 1.0})]) as out:
        out.add(0, samples([EPOCH], [EPOCH + 10 * MS], [[1e6, 1e6, 1e6]]))
    assert played(path, Plan(Wanted(("fma",)), frame_us=10_000))[0].mean.ravel().tolist() == pytest.approx([0.5])


def test_a_rate_is_weighted_by_time_also_where_it_is_cut(tmp_path: Path) -> None:
    pct = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
    with writer(tmp_path / "a.cufall", [opened(0, MetricSet((pct,), ()))]) as out:
        out.add(0, samples([EPOCH, EPOCH + 4 * MS], [EPOCH + 4 * MS, EPOCH + 10 * MS], [[80], [20]]))
    frames = played(tmp_path / "a.cufall", Plan(Wanted((pct,)), frame_us=10_000), part=Part("0.002", "0.008"))
    assert frames[0].mean.ravel().tolist() == pytest.approx([(2 * 0.8 + 4 * 0.2) / 6])


def test_a_metric_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    path = one_gpu(tmp_path / "a.cufall", counters())
    can = f"it can give tensor, {TENSOR}"
    for name, lacking in (
        ("dram", "dram__bytes_read.sum, dram__bytes_write.sum, dram__cycles_elapsed.avg was not recorded"),
        ("sm__warps_active.avg", "sm__warps_active.avg was not recorded"),
    ):
        assert refused(path, Plan(Wanted((name,)))) == f"{name} is not in the recording ({lacking}); {can}"
    other = Wanted((TENSOR,), "sys__cycles_elapsed.max")
    assert "sys__cycles_elapsed.max was not recorded" in refused(path, Plan(other))


def test_gpus_of_two_chips_each_in_its_own_spelling(tmp_path: Path) -> None:
    """The second has no counter for dram, and the first one of its own."""
    read, write, ticks = "dram__bytes_read.sum", "dram__bytes_write.sum", "dram__cycles_elapsed.avg"
    hopper = MetricSet((REALTIME, SM_ELAPSED, read, write, ticks), (metric(counter=REALTIME),))
    ada = MetricSet((TENSOR, SM_ELAPSED), (metric(peak=2.0),))
    gpus = [opened(0, hopper, "GH100", {read: 10.0}), opened(1, ada, "AD102")]
    with writer(tmp_path / "a.cufall", gpus) as out:
        out.add(0, samples([EPOCH], [EPOCH + 10 * MS], [[2e7, 2e7, 1e7, 1e7, 1e7]]))
        out.add(1, samples([EPOCH], [EPOCH + 10 * MS], [[2e7, 2e7]]))
    said: list[str] = []
    (frame,) = played(tmp_path / "a.cufall", Plan(Wanted(("tensor", "dram")), frame_us=10_000), say=said.append)
    assert frame.mean.tolist() == [pytest.approx([0.25, 0.2]), pytest.approx([0.5, math.nan], nan_ok=True)]
    lacking = "dram__bytes_read.sum, dram__bytes_write.sum, dram__cycles_elapsed.avg was not recorded"
    assert said == [f"GPU 1: dram is absent, {lacking}", "tensor, dram on AD10x: not verified on hardware"]


# --- readings


def test_readings_come_back_with_the_frames(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", [opened()]) as out:
        out.add(0, busy(EPOCH, [0.5] * 10))
        out.set_readings(0, 1755.0, 312.5)
        out.add(0, busy(EPOCH + 10 * MS, [0.5] * 20))
        out.set_readings(0, math.nan, 700.0, reasons=4)
        out.add(0, busy(EPOCH + 30 * MS, [0.5] * 10))
    with Playback(tmp_path / "a.cufall", PLAN) as playback:
        assert playback.reading(0) == Reading()
        found = [playback.reading(0) for _ in playback.frames()]
    assert [reading.power_w for reading in found] == pytest.approx([math.nan, 312.5, 312.5, 700], nan_ok=True)
    assert [reading.sm_mhz for reading in found] == pytest.approx([math.nan, 1755, 1755, math.nan], nan_ok=True)
    assert found[-1].reasons == 4


# --- files that cannot be


@pytest.mark.parametrize("name", ["missing.cufall", ".", "text.cufall"])
def test_what_is_no_recording(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.cufall").write_text("mine")
    with pytest.raises(CufallError) as told:
        Playback(tmp_path / name)
    assert told.value.exit_code == 1 and "\n" not in str(told.value)


def test_the_file_is_let_go_of(three: Path) -> None:
    before = set(open_files())
    playback = Playback(three, PLAN)
    next(playback.frames())
    playback.close()
    playback.close()
    assert set(open_files()) == before
    assert list(playback.frames()) == []


def open_files() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            pass  # that of the listing itself


def test_what_gpm_gave_is_played_as_it_was(tmp_path: Path) -> None:
    """Percents of NVML's, of which no other metric can be made."""
    plan = Plan(Wanted(("tensor", "dram")), source="gpm")
    nvml = Opened(opened().device, gpm_set(plan.wanted), 100 * MS, "time", "gpm")
    with RecordingWriter(tmp_path / "gpm.cufall", [nvml], plan, live=False) as writer:
        writer.add(0, joined(EPOCH, 100 * MS, [[25.0, 50.0], [75.0, 50.0]]))
    with Playback(tmp_path / "gpm.cufall", Plan(Wanted(("dram", "tensor")), frame_us=200_000)) as playing:
        (frame,) = playing.frames()
    assert frame.mean.tolist() == [[0.5, 0.5]]
    with pytest.raises(UsageError, match=r"fma is not in the recording .* it can give tensor, dram"):
        Playback(tmp_path / "gpm.cufall", Plan(Wanted(("fma",))))


def test_frames_are_no_shorter_than_the_samples_there_are(tmp_path: Path) -> None:
    plan, said = Plan(sample_us=100_000), list[str]()
    slow = Opened(opened().device, tensor_set(), 100 * MS, "time", "cupti")
    with RecordingWriter(tmp_path / "slow.cufall", [slow], plan, live=False) as writer:
        writer.add(0, steady(EPOCH, 100 * MS, 10, 0.5))
    with Playback(tmp_path / "slow.cufall", Plan(frame_us=20_000, sample_us=5), said.append) as playing:
        frames = list(playing.frames())
    assert len(frames) == 10 and playing.plan.frame_us == 100_000
    assert "frames of 100 ms" in said[0]
