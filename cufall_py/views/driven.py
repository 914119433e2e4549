"""What a load that cufall sent came to, by the client's own clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cufall_py.engines.driven import Driven

from .served import milliseconds, number
from .tables import Table


def table(found: Sequence[Driven]) -> Table:
    """A row a number at once; `full` is while so many ran, `all` has the ramps at both ends as well."""
    head = ("at once", "requests", "tokens", "tok/s full", "tok/s all", "ttft p50", "ttft p95", "tpot p50", "tpot p95")
    rows = [
        [
            str(one.concurrency),
            str(len(one.asked)),
            str(one.tokens),
            number(one.full_tokens_per_s),
            number(one.tokens_per_s),
            *(milliseconds(one.percentile_s(name, p)) for name in ("ttft_s", "tpot_s") for p in (50, 95)),
        ]
        for one in found
    ]
    return Table(head, rows, words=0)


def notes(found: Sequence[Driven]) -> Iterator[str]:
    """What a reader of the table has to know besides."""
    if any(one.by_pieces for one in found):
        yield "the server does not say how many tokens it made: each piece of its streams counts as one"
