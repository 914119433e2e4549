"""What has a short way for what is nearly always so: it gives what the definition does, whichever way is taken."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from cufall_py.analysis.windows import Windows
from cufall_py.outline import forward, middles

times = st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 4)), min_size=1, max_size=12)
"""Of each sample: how long after the one before it begins, and how long it is."""
steps_back = st.integers(0, 3)


@given(times, steps_back, st.integers(0, 20))
def test_forward_is_what_begins_once_all_before_has_ended(
    drawn: list[tuple[int, int]], back: int, newest_ns: int
) -> None:
    start = np.cumsum([gap - back for gap, _ in drawn]) + 10
    end = start + np.array([length for _, length in drawn])
    expected, reached = [], newest_ns
    for begins, ends in zip(start.tolist(), end.tolist(), strict=True):
        expected.append(begins >= reached and ends > begins)
        reached = max(reached, ends)
    assert forward(start, end, newest_ns).tolist() == expected


@given(times, st.lists(st.tuples(st.integers(-5, 60), st.integers(1, 40)), max_size=4))
def test_overlap_is_what_lies_within_nanosecond_by_nanosecond(
    drawn: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    lengths = [max(length, 1) for _, length in drawn]
    start = np.cumsum([0, *lengths[:-1]]) + np.cumsum([gap for gap, _ in drawn])
    within = {ns for begin, length in spans for ns in range(begin, begin + length)}
    expected = [len(within & {*range(a, a + n)}) for a, n in zip(start.tolist(), lengths, strict=True)]
    found = Windows([(begin, begin + length) for begin, length in spans]).overlap_ns(start, start + np.array(lengths))
    assert found.tolist() == expected


@given(st.lists(st.integers(1, 10**9) | st.integers(999_968, 999_999), min_size=1, max_size=12))
def test_middles_are_those_of_the_lengths_in_order(drawn: list[int]) -> None:
    ordered = sorted(drawn)
    assert middles(np.array(drawn)) == (ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2])
