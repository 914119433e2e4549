"""The means of a report at a glance: a row a region and metric, a column a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from cufall_py.analysis.statistics import Row, Statistics
from cufall_py.analysis.summary import Scope
from cufall_py.shown import EVERYTHING, value

from .tables import Table, text

TITLE = "means, at a glance"
MANY_ROWS = 16
"""With more rows than that in a table of a metric, a person wants to see first which of them to look at."""


def worth_it(scopes: Sequence[Scope]) -> bool:
    """Whether there are several GPUs, and so many rows."""
    return len(scopes[0].rows) > 1 and sum(len(scope.rows) for scope in scopes) > MANY_ROWS


def tables(scopes: Sequence[Scope], names: Sequence[str], columns: int = 0) -> list[Table]:
    """`names`: of the scopes' rows (GPUs, and all of them). One table, or for so many columns (0: any) several, each of
    some of them."""
    for count in range(len(names), 0, -1):
        parts = [range(first, min(first + count, len(names))) for first in range(0, len(names), count)]
        made = [_table(scopes, [(k, names[k]) for k in part]) for part in parts]
        if not columns or max(len(line) for table in made for line in text(table)) <= columns:
            break
    return made


def _table(scopes: Sequence[Scope], chosen: Sequence[tuple[int, str]]) -> Table:
    rows = []
    for scope in scopes:
        of = [_rows(scope)[k] for k, _ in chosen]
        for k, metric in enumerate(of[0].metrics):
            region = (scope.name or EVERYTHING) if k == 0 else ""
            rows.append((region, metric.label, *(_mean(row.metrics[k]) for row in of)))
    return Table(("region", "metric", *(name for _, name in chosen)), rows, words=2)


def _mean(of: Statistics) -> str:
    return value(of.mean, of.plain)


def _rows(scope: Scope) -> list[Row]:
    """Of all GPUs together first, if they are told of."""
    return [*([scope.group] if scope.group else []), *scope.rows]
