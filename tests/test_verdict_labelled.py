"""Verdicts of loads that an H200 ran, as they were recorded: a third of a second of each (docs/verdict.md)."""

from __future__ import annotations

import pytest

from tests.gpu.verdict_labels import Labelled, expected, labelled
from tests.helpers import DATA

EXPECTED = expected()
MISSED = {"decode-64-bf16-graph": "mixed", "decode-16-fp32-eager": "launch-bound"}
"""What arithmetic had told otherwise, and why: docs/verdict.md."""


@pytest.fixture(scope="module")
def loads() -> dict[str, Labelled]:
    return labelled(DATA / "verdict-loads.cufall")


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(MISSED)))
def test_frames_are_in_the_class_that_was_expected(loads: dict[str, Labelled], name: str) -> None:
    assert loads[name].holds(EXPECTED[name]), loads[name]


@pytest.mark.parametrize("name", MISSED)
def test_two_are_what_their_counters_tell(loads: dict[str, Labelled], name: str) -> None:
    assert loads[name].shares == {MISSED[name]: 1.0}
    assert MISSED[name] not in EXPECTED[name].classes
