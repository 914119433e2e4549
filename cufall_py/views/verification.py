"""What `cufall verify` found, as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cufall_py.shown import MISSING
from cufall_py.verify.checks import Check

from .tables import Table, text


def lines(checks: Sequence[Check], ascii_only: bool = False) -> Iterator[str]:
    """A line a check; why not, below, where one is not measurable."""
    rows = [
        (of.outcome, of.metric or MISSING, of.name, _number(of.expected), _number(of.got), of.unit) for of in checks
    ]
    yield from text(Table(("outcome", "metric", "check", "expected", "got", "unit"), rows, words=3), ascii_only)
    for why in dict.fromkeys(of.why for of in checks if of.why):
        names = dict.fromkeys(of.name for of in checks if of.why == why)
        yield f"not measurable: {', '.join(names)}: {why}"


def _number(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.5g}"
