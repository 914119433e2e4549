"""Frames, put together by a clock that the test turns."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cufall_py.frames import Frame, Framer
from cufall_py.metrics import MetricSet
from cufall_py.notes import ClockSteps
from cufall_py.samples import Samples
from tests.helpers import EPOCH, MS, SECOND, SM_ELAPSED, TENSOR, joined, metric, samples, steady, tensor_set

FRAME, PERIOD, WAIT = 100 * MS, 25 * MS, 300 * MS
BOTH = [True, True]


class Clocked(Framer):
    """Whose monotonic clock stands at `ns`; samples come when they end unless told otherwise."""

    ns = 0

    def __init__(self, sets: list[MetricSet]) -> None:
        super().__init__(sets, FRAME, WAIT, lambda: self.ns)

    def add(self, gpu: int, samples: Samples, came_ns: int | None = None) -> None:
        self.ns = int(samples.end_ns[-1]) - EPOCH if came_ns is None else came_ns
        super().add(gpu, samples)

    def at(self, after_ns: int, live: list[bool]) -> list[Frame]:
        """The frames that can go out this long after EPOCH."""
        self.ns = after_ns
        return self.ready(live)


def framer(gpus: int = 2) -> Clocked:
    return Clocked([tensor_set()] * gpus)


def begun(gpus: int = 2) -> Clocked:
    """Every GPU gave one sample that ends where frame 0 begins, at EPOCH."""
    frames = framer(gpus)
    for gpu in range(gpus):
        frames.add(gpu, steady(EPOCH - PERIOD, PERIOD, 1, 0.5))
    frames.begin(EPOCH)
    return frames


def starts(frames: list[Frame]) -> list[int]:
    """In frames after EPOCH."""
    return [(frame.start_ns - EPOCH) // FRAME for frame in frames]


def frame_samples(first: int, count: int = 1, ratio: float = 0.5):  # type: ignore[no-untyped-def]
    """All samples of `count` frames from number `first` on."""
    return steady(EPOCH + first * FRAME, PERIOD, 4 * count, ratio)


def test_a_frame_goes_out_when_every_live_gpu_has_reached_its_end() -> None:
    frames = begun()
    frames.add(0, frame_samples(0))
    assert frames.at(FRAME + 1, BOTH) == []
    frames.add(1, frame_samples(0)[:3])
    assert frames.at(FRAME + 2, BOTH) == []
    frames.add(1, frame_samples(0)[3:])
    assert starts(frames.at(FRAME + 3, BOTH)) == [0]
    assert frames.at(FRAME + 4, BOTH) == []


def test_a_frame_holds_means_extremes_and_how_much_was_measured() -> None:
    frames = begun()
    frames.add(0, joined(EPOCH, PERIOD, [[4 * r * PERIOD, PERIOD] for r in (0.1, 0.2, 0.3, 0.6)]))
    frames.add(1, frame_samples(0, ratio=0.9))
    (frame,) = frames.at(FRAME, BOTH)
    assert (frame.start_ns, frame.period_ns, frame.end_ns) == (EPOCH, FRAME, EPOCH + FRAME)
    assert frame.mean[:, 0] == pytest.approx([0.3, 0.9])
    assert frame.minimum[:, 0] == pytest.approx([0.1, 0.9])
    assert frame.maximum[:, 0] == pytest.approx([0.6, 0.9])
    assert frame.covered_ns == pytest.approx([FRAME, FRAME])
    assert frame.coverage == pytest.approx([1.0, 1.0])
    assert frame.got.tolist() == [4, 4]
    assert frame.expected == pytest.approx([4.0, 4.0])


def test_a_dead_gpu_is_not_waited_for_and_has_no_number() -> None:
    frames = begun()
    frames.add(0, frame_samples(0))
    (frame,) = frames.at(FRAME + 1, [True, False])
    assert frame.mean[0, 0] == pytest.approx(0.5)
    assert np.isnan([frame.mean[1, 0], frame.minimum[1, 0], frame.maximum[1, 0]]).all()
    assert (frame.covered_ns[1], frame.got[1], frame.coverage[1]) == (0, 0, 0)


def test_a_live_gpu_that_gives_nothing_is_waited_for_no_longer_than_said() -> None:
    frames = begun()
    frames.add(0, frame_samples(0, 2))
    assert frames.at(FRAME + WAIT - 1, BOTH) == []
    (frame,) = frames.at(FRAME + WAIT, BOTH)
    assert starts([frame]) == [0]
    assert np.isnan(frame.mean[:, 0]).tolist() == [False, True]


def test_a_gpu_that_never_began_is_waited_for_alike() -> None:
    frames = framer()
    frames.add(0, steady(EPOCH - PERIOD, PERIOD, 1, 0.5))
    assert frames.begun() == [True, False]
    frames.begin(EPOCH)
    frames.add(0, frame_samples(0))
    assert frames.at(FRAME, BOTH) == []
    (frame,) = frames.at(FRAME, [True, False])
    assert np.isnan(frame.expected).tolist() == [False, True]


def test_frames_without_any_live_gpu_go_on() -> None:
    frames = begun()
    assert starts(frames.at(3 * FRAME + WAIT, [False, False])) == [0, 1, 2]


def test_samples_that_come_after_their_frame_are_counted_and_change_nothing() -> None:
    frames = begun()
    frames.add(0, frame_samples(0))
    frames.at(FRAME + WAIT, BOTH)
    frames.add(1, frame_samples(0, 2, ratio=0.25))
    assert frames.late == [0, 4]
    frames.add(0, frame_samples(1))
    (frame,) = frames.at(2 * FRAME, BOTH)
    assert starts([frame]) == [1]
    assert frame.mean[:, 0] == pytest.approx([0.5, 0.25])
    assert frame.got.tolist() == [4, 4]


def test_a_batch_that_is_late_as_a_whole_is_counted() -> None:
    frames = begun()
    frames.at(FRAME + WAIT, BOTH)
    frames.add(1, frame_samples(0))
    assert frames.late == [0, 4]


def test_frames_lie_on_multiples_of_their_length_and_none_is_skipped() -> None:
    frames, seen = framer(1), []
    for at in range(EPOCH + 37 * MS, EPOCH + 37 * MS + 20 * FRAME, 3 * PERIOD):
        frames.add(0, steady(at, PERIOD, 3, 0.5))
        if not seen and at < EPOCH + 40 * MS:
            frames.begin(EPOCH)
        seen += frames.at(at + 3 * PERIOD - EPOCH, [True])
    assert all(frame.start_ns % FRAME == 0 for frame in seen)
    assert starts(seen) == list(range(1, 1 + len(seen)))
    assert len(seen) == 19
    assert all(frame.coverage[0] == pytest.approx(1.0) for frame in seen)


def test_a_gap_gives_frames_without_numbers() -> None:
    frames = begun(1)
    frames.add(0, frame_samples(0))
    frames.add(0, frame_samples(3))
    out = frames.at(4 * FRAME, [True])
    assert starts(out) == [0, 1, 2, 3]
    assert np.isnan([frame.mean[0, 0] for frame in out]).tolist() == [False, True, True, False]
    assert [frame.got[0] for frame in out] == [4, 0, 0, 4]


def test_a_frame_measured_in_part_says_so() -> None:
    frames = begun(1)
    frames.add(0, frame_samples(0)[2:])
    (frame,) = frames.at(FRAME, [True])
    assert frame.coverage[0] == pytest.approx(0.5)
    assert (frame.got[0], frame.expected[0]) == (2, pytest.approx(4.0))
    assert frame.mean[0, 0] == pytest.approx(0.5)


def test_the_first_frame_is_one_that_every_gpu_can_fill() -> None:
    frames = framer()
    frames.add(0, steady(EPOCH + 10 * MS, PERIOD, 20, 0.5))
    frames.add(1, steady(EPOCH + 230 * MS, PERIOD, 20, 0.5))
    frames.begin(EPOCH)
    first = frames.at(500 * MS, BOTH)[0]
    assert starts([first]) == [3]
    assert first.coverage == pytest.approx([1.0, 1.0])


def test_when_no_gpu_has_begun_the_first_frame_is_the_next() -> None:
    frames = framer()
    frames.ns = 30 * MS
    frames.begin(EPOCH + frames.ns)
    assert starts(frames.at(2 * FRAME + WAIT, [False, False])) == [1]


def test_nothing_goes_out_before_the_begin() -> None:
    frames = framer(1)
    frames.add(0, frame_samples(0, 5))
    assert frames.at(10 * FRAME, [True]) == []


def test_a_sample_across_the_edge_counts_in_both_frames_though_it_comes_in_a_later_batch() -> None:
    frames = begun(1)
    edge = EPOCH + FRAME
    frames.add(0, samples([EPOCH], [edge - 20 * MS], [[0.0, 80.0 * MS]]))
    frames.add(0, samples([edge - 20 * MS], [edge + 60 * MS], [[4.0 * 80 * MS, 80.0 * MS]]))
    frames.add(0, samples([edge + 60 * MS], [edge + FRAME], [[0.0, 40.0 * MS]]))
    first, second = frames.at(2 * FRAME, [True])
    assert (first.mean[0, 0], second.mean[0, 0]) == (pytest.approx(0.2), pytest.approx(0.6))
    assert (first.got[0], second.got[0]) == (1, 2)


def test_gpus_that_read_other_counters_share_a_frame() -> None:
    """The second has no tensor counter, but one more than the first; its column is there and reads nothing."""
    first = MetricSet((TENSOR, SM_ELAPSED, "sm__a.sum"), (metric(), metric("sm", "sm__a.sum", peak=1.0)))
    other = (metric().made_absent(), metric("sm", "sm__b.sum", peak=1.0))
    second = MetricSet(("sm__b.sum", "sm__c.sum", "sm__d.sum", SM_ELAPSED), other)
    frames = Clocked([first, second])
    for gpu, row in enumerate(([2.0, 1.0, 0.25], [0.75, 9.0, 9.0, 1.0])):
        frames.add(gpu, joined(EPOCH - PERIOD, PERIOD, [row] * 5))
    frames.begin(EPOCH)
    (frame,) = frames.at(FRAME, BOTH)
    np.testing.assert_allclose(frame.mean, [[0.5, 0.25], [np.nan, 0.75]])
    np.testing.assert_allclose(frame.maximum, [[0.5, 0.25], [np.nan, 0.75]])
    assert frame.coverage == pytest.approx([1.0, 1.0])


def test_a_gpu_that_begins_late_is_described_then() -> None:
    frames = framer()
    frames.add(0, frame_samples(-1, 2))
    frames.begin(EPOCH)
    frames.describe(1, MetricSet((SM_ELAPSED, TENSOR, "x"), (metric(),)))
    frames.add(1, joined(EPOCH, PERIOD, [[1.0, 3.0, 7.0]] * 4))
    (frame,) = frames.at(FRAME, BOTH)
    assert frame.mean[:, 0] == pytest.approx([0.5, 0.75])


# Clocks that are set


HOUR = 3600 * SECOND


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_frames_go_on_when_the_samples_clock_is_set(step: int) -> None:
    frames = begun(1)
    frames.add(0, frame_samples(0))
    assert starts(frames.at(FRAME, [True])) == [0]
    seen = []
    for k in range(1, 4):
        frames.add(0, steady(EPOCH + step + k * FRAME, PERIOD, 4, 0.25), came_ns=(k + 1) * FRAME)
        seen += frames.ready([True])
    assert starts(seen) == [step // FRAME + k for k in range(1, 4)]
    assert [frame.mean[0, 0] for frame in seen] == pytest.approx([0.25] * 3)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
@pytest.mark.parametrize("batches", [1, 4])
def test_gpus_whose_clock_is_set_one_after_the_other_come_together_again(step: int, batches: int) -> None:
    """However many batches a frame comes in; the second follows a frame later."""
    frames, seen = begun(), []
    length = 4 // batches
    for k in range(8 * batches):
        for gpu in range(2):
            at_ns = k * length * PERIOD
            set_by = step if at_ns >= 230 * MS + gpu * FRAME else 0
            frames.add(gpu, steady(EPOCH + set_by + at_ns, PERIOD, length, 0.5), came_ns=at_ns + length * PERIOD)
        seen += frames.ready(BOTH)
    assert len(seen) < 10
    assert starts(seen[-3:]) == [step // FRAME + k for k in (5, 6, 7)]
    assert all(frame.coverage == pytest.approx([1.0, 1.0]) for frame in seen[-3:])


def test_the_wall_clock_does_not_drive_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = begun(1)
    monkeypatch.setattr(time, "time_ns", lambda: EPOCH + HOUR)
    frames.add(0, frame_samples(0))
    assert starts(frames.at(FRAME, [True])) == [0]
    assert frames.at(FRAME + WAIT // 2, [True]) == []


def test_a_backlog_of_some_seconds_is_no_step() -> None:
    frames = begun(1)
    assert starts(frames.at(30 * SECOND + WAIT, [True])) == list(range(300))
    frames.add(0, frame_samples(0, 301), came_ns=30 * SECOND + FRAME)
    assert frames.late == [1200]
    assert starts(frames.at(30 * SECOND + FRAME, [True])) == [300]


def test_a_long_silence_is_given_in_pieces() -> None:
    frames = begun(1)
    count = [len(frames.at(250 * SECOND + WAIT, [False])) for _ in range(4)]
    assert count == [1000, 1000, 500, 0]


def test_that_the_clock_was_set_is_told_once() -> None:
    wall, steady_ns = [EPOCH], [0]
    steps = ClockSteps(lambda: wall[0], lambda: steady_ns[0])
    wall[0], steady_ns[0] = EPOCH + SECOND, SECOND
    assert steps.note() == ""
    wall[0] += HOUR
    assert "was set +3600.0 s" in steps.note()
    assert steps.note() == ""
    wall[0] -= HOUR
    assert "was set -3600.0 s" in steps.note()
