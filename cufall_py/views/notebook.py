"""What a notebook shows of what was measured: one table, a row a region and GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cufall_py.analysis.statistics import Row
from cufall_py.analysis.summary import Scope, Summary
from cufall_py.shown import ALL, EVERYTHING, html_table, percent, value


def overview(summary: Summary, everything: str = EVERYTHING) -> str:
    """The mean of each metric over each region and GPU, how much of it was measured, and the verdicts, if there are
    any; what is of no region is called `everything`. A table element."""
    judged = any(window.shares["unknown"] < 1 for windows in summary.verdicts.values() for window in windows)
    head = ("region", "gpu", *["verdict"] * judged, "seconds", *summary.metrics, "coverage", "samples")
    shown = [scope for scope in summary.scopes if not scope.name or scope.wanted_s]
    rows = [row for scope in shown for row in _rows(summary, scope, scope.name or everything, judged)]
    return html_table(head, rows, words=2 + judged)


def _rows(summary: Summary, scope: Scope, name: str, judged: bool) -> Iterator[list[str]]:
    verdicts = [window.verdict for window in summary.verdicts.get(scope.name, ())]
    gpus = [f"g{subject.ordinal}" for subject in summary.subjects]
    every = [*zip(gpus, scope.rows, strict=True), *([(ALL, scope.group)] if scope.group else [])]
    for k, (gpu, row) in enumerate(every):
        verdict = verdicts[k] if k < len(verdicts) else ""
        yield [name if k == 0 else "", gpu, *[verdict] * judged, f"{scope.wanted_s:.2f}", *_cells(row)]


def _cells(row: Row) -> Sequence[str]:
    means = [value(of.mean, of.plain) for of in row.metrics]
    return (*means, percent(row.coverage), str(row.samples))
