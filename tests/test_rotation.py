"""Which sets a rotation takes in turn, and what is said of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from cufall_py.errors import UsageError
from cufall_py.rotation import Turn, checked_seconds, places, sets_of, shares, turns

NAMES = ("tensor", "sm", "gr", "dram", "issue", "fma", "alu", "l2")


def at_most(room: int, **sizes: int):  # type: ignore[no-untyped-def]
    """A pass that has room for so much; a metric takes 1 unless `sizes` says otherwise."""
    return lambda names: sum(sizes.get(name, 1) for name in names) <= room


def test_what_fits_one_pass_is_one_set_in_the_order_asked() -> None:
    assert sets_of(("dram", "gr", "tensor"), at_most(9)) == [("tensor", "gr", "dram")]


def test_each_set_begins_with_the_base_and_takes_the_rest_greedily() -> None:
    asked = ("tensor", "fma", "dram", "sm", "gr", "issue", "alu")
    assert sets_of(asked, at_most(5, fma=2)) == [
        ("tensor", "sm", "gr", "fma"),
        ("tensor", "sm", "gr", "dram", "issue"),
        ("tensor", "sm", "gr", "alu"),
    ]
    # a small one that comes later takes the room that a large one leaves
    assert sets_of(("tensor", "dram", "fma", "alu"), at_most(3, fma=2)) == [
        ("tensor", "dram", "alu"),
        ("tensor", "fma"),
    ]


def test_a_base_that_does_not_fit_is_taken_as_far_as_it_does() -> None:
    assert sets_of(("tensor", "sm", "gr", "dram"), at_most(2)) == [
        ("tensor", "sm"),
        ("tensor", "gr"),
        ("tensor", "dram"),
    ]


def test_a_metric_that_does_not_fit_beside_the_base_has_what_of_it_fits() -> None:
    assert sets_of(("tensor", "sm", "gr", "dram", "fma"), at_most(4, fma=3)) == [
        ("tensor", "sm", "gr", "dram"),
        ("tensor", "fma"),
    ]


def test_without_a_base_that_is_asked_for_there_is_none() -> None:
    assert sets_of(("fma", "alu", "fma"), at_most(1)) == [("fma",), ("alu",)]


@given(st.lists(st.sampled_from(NAMES), min_size=1), st.integers(1, 8), st.data())
def test_every_name_comes_and_every_set_fits(names: list[str], room: int, data: st.DataObject) -> None:
    sizes = {name: data.draw(st.integers(1, room)) for name in NAMES}
    fits = at_most(room, **sizes)
    found = sets_of(names, fits)
    assert set(names) == {name for one in found for name in one}
    assert all(fits(one) and len(set(one)) == len(one) for one in found)
    rest = [name for one in found for name in one if name not in ("tensor", "sm", "gr")]
    assert len(rest) == len(set(rest))


def test_a_turn_tells_the_others() -> None:
    first, second = turns([("tensor", "dram"), ("tensor", "fma")], 10.0)
    assert first == Turn(1, 2, 10.0, ("tensor", "dram"), (("tensor", "fma"),))
    assert second.line == "sampled in turns: set 2 of 2, 10 s each; coverage is of all the time"
    assert second.name == "turn 2 of 2"
    assert Turn.from_json(json.loads(json.dumps(first.to_json()))) == first


@pytest.mark.parametrize("seconds", [0.001, 0.99, 600.1, float("inf"), float("nan"), -1.0])
def test_a_turn_has_a_least_and_a_most_length(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"^--rotate .*: must be 0 or a number of seconds from 1 to 600$"):
        checked_seconds(seconds)


def test_a_turn_may_have_the_least_and_the_most_length_and_none_is_none() -> None:
    assert [checked_seconds(seconds) for seconds in (1.0, 600.0, 0.0)] == [1.0, 600.0, 0.0]


def test_the_shares_of_the_time_are_told() -> None:
    found = turns([("tensor", "dram"), ("tensor", "fma")], 2.0)
    assert [*shares(found, [3, 1], [6.3, 2.1], 10.5)] == [
        "turn 1 of 2 (tensor, dram): 6.3 s of 10.5 s (60 %), in 3 turns",
        "turn 2 of 2 (tensor, fma): 2.1 s of 10.5 s (20 %), in 1 turn",
        "between turns: 2.1 s of 10.5 s (20 %), not measured",
    ]


def test_recordings_of_sets_lie_beside_one_another() -> None:
    assert places(Path("here/a.b.cufall"), 2) == [Path(f"here/a.b.turn-{k}-of-2.cufall") for k in (1, 2)]
