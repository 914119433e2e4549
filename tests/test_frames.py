"""Frames, put together by a clock that the test turns."""

from __future__ import annotations

import numpy as np
import pytest

from cufall_py.frames import Frame, Framer
from tests.helpers import EPOCH, MS, joined, samples, steady, tensor_set

FRAME, PERIOD, WAIT = 100 * MS, 25 * MS, 300 * MS
BOTH = [True, True]


def framer(gpus: int = 2) -> Framer:
    return Framer([tensor_set()] * gpus, FRAME, WAIT)


def begun(gpus: int = 2) -> Framer:
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
    assert frames.ready(EPOCH + FRAME + 1, BOTH) == []
    frames.add(1, frame_samples(0)[:3])
    assert frames.ready(EPOCH + FRAME + 2, BOTH) == []
    frames.add(1, frame_samples(0)[3:])
    assert starts(frames.ready(EPOCH + FRAME + 3, BOTH)) == [0]
    assert frames.ready(EPOCH + FRAME + 4, BOTH) == []


def test_a_frame_holds_means_extremes_and_how_much_was_measured() -> None:
    frames = begun()
    frames.add(0, joined(EPOCH, PERIOD, [[4 * r * PERIOD, PERIOD] for r in (0.1, 0.2, 0.3, 0.6)]))
    frames.add(1, frame_samples(0, ratio=0.9))
    (frame,) = frames.ready(EPOCH + FRAME, BOTH)
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
    (frame,) = frames.ready(EPOCH + FRAME + 1, [True, False])
    assert frame.mean[0, 0] == pytest.approx(0.5)
    assert np.isnan([frame.mean[1, 0], frame.minimum[1, 0], frame.maximum[1, 0]]).all()
    assert (frame.covered_ns[1], frame.got[1], frame.coverage[1]) == (0, 0, 0)


def test_a_live_gpu_that_gives_nothing_is_waited_for_no_longer_than_said() -> None:
    frames = begun()
    frames.add(0, frame_samples(0, 2))
    assert frames.ready(EPOCH + FRAME + WAIT - 1, BOTH) == []
    (frame,) = frames.ready(EPOCH + FRAME + WAIT, BOTH)
    assert starts([frame]) == [0]
    assert np.isnan(frame.mean[:, 0]).tolist() == [False, True]


def test_a_gpu_that_never_began_is_waited_for_alike() -> None:
    frames = framer()
    frames.add(0, steady(EPOCH - PERIOD, PERIOD, 1, 0.5))
    assert frames.begun() == [True, False]
    frames.begin(EPOCH)
    frames.add(0, frame_samples(0))
    assert frames.ready(EPOCH + FRAME, BOTH) == []
    (frame,) = frames.ready(EPOCH + FRAME, [True, False])
    assert np.isnan(frame.expected).tolist() == [False, True]


def test_frames_without_any_live_gpu_go_on() -> None:
    frames = begun()
    assert starts(frames.ready(EPOCH + 3 * FRAME + WAIT, [False, False])) == [0, 1, 2]


def test_samples_that_come_after_their_frame_are_counted_and_change_nothing() -> None:
    frames = begun()
    frames.add(0, frame_samples(0))
    frames.ready(EPOCH + FRAME + WAIT, BOTH)
    frames.add(1, frame_samples(0, 2, ratio=0.25))
    assert frames.late == [0, 4]
    frames.add(0, frame_samples(1))
    (frame,) = frames.ready(EPOCH + 2 * FRAME, BOTH)
    assert starts([frame]) == [1]
    assert frame.mean[:, 0] == pytest.approx([0.5, 0.25])
    assert frame.got.tolist() == [4, 4]


def test_a_batch_that_is_late_as_a_whole_is_counted() -> None:
    frames = begun()
    frames.ready(EPOCH + FRAME + WAIT, BOTH)
    frames.add(1, frame_samples(0))
    assert frames.late == [0, 4]


def test_frames_lie_on_multiples_of_their_length_and_none_is_skipped() -> None:
    frames, seen = framer(1), []
    for at in range(EPOCH + 37 * MS, EPOCH + 37 * MS + 20 * FRAME, 3 * PERIOD):
        frames.add(0, steady(at, PERIOD, 3, 0.5))
        if not seen and at < EPOCH + 40 * MS:
            frames.begin(EPOCH)
        seen += frames.ready(at + 3 * PERIOD, [True])
    assert all(frame.start_ns % FRAME == 0 for frame in seen)
    assert starts(seen) == list(range(1, 1 + len(seen)))
    assert len(seen) == 19
    assert all(frame.coverage[0] == pytest.approx(1.0) for frame in seen)


def test_a_gap_gives_frames_without_numbers() -> None:
    frames = begun(1)
    frames.add(0, frame_samples(0))
    frames.add(0, frame_samples(3))
    out = frames.ready(EPOCH + 4 * FRAME, [True])
    assert starts(out) == [0, 1, 2, 3]
    assert np.isnan([frame.mean[0, 0] for frame in out]).tolist() == [False, True, True, False]
    assert [frame.got[0] for frame in out] == [4, 0, 0, 4]


def test_a_frame_measured_in_part_says_so() -> None:
    frames = begun(1)
    frames.add(0, frame_samples(0)[2:])
    (frame,) = frames.ready(EPOCH + FRAME, [True])
    assert frame.coverage[0] == pytest.approx(0.5)
    assert (frame.got[0], frame.expected[0]) == (2, pytest.approx(4.0))
    assert frame.mean[0, 0] == pytest.approx(0.5)


def test_the_first_frame_is_one_that_every_gpu_can_fill() -> None:
    frames = framer()
    frames.add(0, steady(EPOCH + 10 * MS, PERIOD, 20, 0.5))
    frames.add(1, steady(EPOCH + 230 * MS, PERIOD, 20, 0.5))
    frames.begin(EPOCH)
    first = frames.ready(EPOCH + 500 * MS, BOTH)[0]
    assert starts([first]) == [3]
    assert first.coverage == pytest.approx([1.0, 1.0])


def test_when_no_gpu_has_begun_the_first_frame_is_the_next() -> None:
    frames = framer()
    frames.begin(EPOCH + 30 * MS)
    assert starts(frames.ready(EPOCH + 2 * FRAME + WAIT, [False, False])) == [1]


def test_nothing_goes_out_before_the_begin() -> None:
    frames = framer(1)
    frames.add(0, frame_samples(0, 5))
    assert frames.ready(EPOCH + 10 * FRAME, [True]) == []


def test_a_sample_across_the_edge_counts_in_both_frames_though_it_comes_in_a_later_batch() -> None:
    frames = begun(1)
    edge = EPOCH + FRAME
    frames.add(0, samples([EPOCH], [edge - 20 * MS], [[0.0, 80.0 * MS]]))
    frames.add(0, samples([edge - 20 * MS], [edge + 60 * MS], [[4.0 * 80 * MS, 80.0 * MS]]))
    frames.add(0, samples([edge + 60 * MS], [edge + FRAME], [[0.0, 40.0 * MS]]))
    first, second = frames.ready(edge + FRAME, [True])
    assert (first.mean[0, 0], second.mean[0, 0]) == (pytest.approx(0.2), pytest.approx(0.6))
    assert (first.got[0], second.got[0]) == (1, 2)


def test_what_is_left_goes_out_at_the_end() -> None:
    frames = begun()
    frames.add(0, frame_samples(0, 2))
    frames.add(1, frame_samples(0)[:2])
    out = frames.rest()
    assert starts(out) == [0, 1]
    assert [frame.got.tolist() for frame in out] == [[4, 2], [4, 0]]
    assert frames.rest() == []


def test_without_a_begin_the_rest_is_everything() -> None:
    frames = framer()
    frames.add(1, steady(EPOCH + 130 * MS, PERIOD, 2, 0.5))
    frames.add(0, steady(EPOCH + 310 * MS, PERIOD, 1, 0.5))
    out = frames.rest()
    assert starts(out) == [1, 2, 3]
    assert [frame.got.tolist() for frame in out] == [[0, 2], [0, 0], [1, 0]]


def test_nothing_at_all_leaves_nothing() -> None:
    assert framer().rest() == []
