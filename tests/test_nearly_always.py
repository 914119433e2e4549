"""What has a short way for what is nearly always so: it gives what the definition does, whichever way is taken."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from cufall_py.analysis.runs import Runs
from cufall_py.analysis.tally import Stretch, tally
from cufall_py.analysis.windows import Windows
from cufall_py.metrics import Metric, MetricSet
from cufall_py.outline import forward, middles
from cufall_py.samples import Samples

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
    windows, end = Windows([(begin, begin + length) for begin, length in spans]), start + np.array(lengths)
    assert windows.overlap_ns(start, end).tolist() == expected
    assert windows.touch(int(start[0]), int(end[-1])) == bool(within & {*range(int(start[0]), int(end[-1]))})


@given(st.lists(st.integers(1, 10**9) | st.integers(999_968, 999_999), min_size=1, max_size=12))
def test_middles_are_those_of_the_lengths_in_order(drawn: list[int]) -> None:
    ordered = sorted(drawn)
    assert middles(np.array(drawn)) == (ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2])


around_edges = st.sampled_from([0.001, 0.01, 0.1, 0.9]).flatmap(
    lambda edge: st.sampled_from([edge, np.nextafter(edge, 0), np.nextafter(edge, 1), edge - 3e-5, edge + 3e-5])
)


@given(st.lists(around_edges | st.floats(0, 1.02), min_size=1, max_size=12), st.booleans())
def test_the_time_below_an_edge_is_that_of_the_values_below_it(values: list[float], bounded: bool) -> None:
    start = np.arange(len(values)) * 1000
    samples = Samples(start, start + 1000, np.array([[value, 1.0] for value in values]))
    nothing = np.zeros(len(values))
    metrics = MetricSet(("a", "b"), (Metric("a", "a", ("a",), "b", peak=1.0, bounded=bounded),))
    (found,) = tally(
        metrics, Stretch(samples, nothing, nothing, nothing.astype(int)), samples.end_ns - start, 0
    ).metrics
    *below, up_to_90 = (1000 * sum(value < edge for value in values) for edge in (0.001, 0.01, 0.1, 0.9))
    up_to_90 += 1000 * values.count(0.9)
    assert found.lower_ns(relative=not bounded) == [*below, up_to_90]


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_the_longest_run_is_found_sample_by_sample(held: list[bool], gaps: list[int]) -> None:
    start = np.cumsum(np.array(gaps[: len(held)]) + 10)
    end, slack_ns, longest, begun = start + 10, 1, 0, None
    for k, on in enumerate(held):
        broken = k > 0 and start[k] - end[k - 1] > slack_ns
        begun = None if not on else start[k] if begun is None or broken else begun
        longest = max(longest, int(end[k] - begun) if begun is not None else 0)
    assert Runs.of(start, end, np.array(held), slack_ns).longest_ns == longest
