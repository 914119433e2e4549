"""The metrics of a chip as lines of text: columns a person reads, each name whole."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from cufall_py.catalogue import Row
from cufall_py.costs import CARD, DATE, HOW, Cost

UNKNOWN = "-"
GAP = "  "
LEAST_TEXT, GOOD_TEXT = 24, 40
"""Characters that words need beside the other columns, else they go below, indented; and what names leave them."""
INDENT = "    "
LEGEND = (
    "passes: alone, and beside tensor + sm + gr (1 can be sampled); core: of a processor core for one GPU, "
    f"with tensor, on an {CARD}, {DATE}, {HOW}; -: not known"
)


def listing(rows: Sequence[Row], sets: Sequence[Cost], columns: int = 0) -> Iterator[str]:
    """A line a metric, a heading for each kind. `columns`: those of the terminal, 0: no wrapping at all.

    With `columns`, words wrap, and what does not fit beside a long name stands below it.
    """
    blocks = [(_head(kind), [_cells(row) for row in group]) for kind, group in groupby(rows, lambda row: row.kind)]
    if sets:
        after_short = 1 if rows and rows[0].kind == "short name" else 0
        blocks.insert(after_short, (("core", "decode", "bytes", "", "set"), [_cost(cost) for cost in sets]))
    for number, (head, cells) in enumerate(blocks):
        if number:
            yield ""
        yield from table(head, cells, columns)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """Aligned columns; the first is a name, which is never cut, the last words, which may wrap."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)][:-1]
    if columns:
        others = sum(widths[1:]) + len(GAP) * len(widths)
        widths[0] = min(widths[0], max(columns - others - GOOD_TEXT, columns // 3))
    longest = max((len(word) for row in rows for word in row[-1].split()), default=0)
    beside = columns - sum(widths) - len(GAP) * len(widths) >= max(LEAST_TEXT, longest)
    titles = [title.upper() for title in head]
    yield (_fixed(titles, widths) + (titles[-1] if beside or not columns else "")).rstrip()
    for row in rows:
        yield from _lines(row, widths, columns, beside)


def _lines(row: Sequence[str], widths: Sequence[int], columns: int, beside: bool) -> Iterator[str]:
    *cells, words = row
    if not columns:
        yield (_fixed(row, widths) + words).rstrip()
        return
    if len(cells[0]) > widths[0]:
        yield cells[0]
        cells[0] = ""
    fixed = _fixed([*cells, words], widths)
    if beside:
        yield from _wrapped(words, fixed, " " * len(fixed), columns)
    else:
        yield fixed.rstrip()
        yield from _wrapped(words, INDENT, INDENT, columns) if words else ()


def _fixed(row: Sequence[str], widths: Sequence[int]) -> str:
    """All but the words."""
    return "".join(cell.ljust(width) + GAP for cell, width in zip(row[:-1], widths, strict=True))


def _wrapped(words: str, first: str, later: str, columns: int) -> Iterator[str]:
    wrapper = textwrap.TextWrapper(columns, first, later, break_long_words=False, break_on_hyphens=False)
    yield from (line.rstrip() for line in wrapper.wrap(words) or [first])


def _head(kind: str) -> tuple[str, ...]:
    if kind == "short name":
        return (kind, "passes", "beside", "verified", "core", "peak", "unit", "clock", "what it is")
    return (kind, "passes", "beside", "peak", "unit", "clock", "what it is")


def _cells(row: Row) -> tuple[str, ...]:
    numbers = (_number(row.passes), _number(row.beside))
    checked = (_verified(row), _percent(row.core))
    rest = (_number(row.peak), row.unit or UNKNOWN, row.clock or UNKNOWN, _words(row))
    return (row.name, *numbers, *(checked if row.kind == "short name" else ()), *rest)


def _verified(row: Row) -> str:
    if not row.counters:
        return UNKNOWN
    return "yes" if row.verified else "here" if row.verified_here else "no"


def _words(row: Row) -> str:
    """The description in one line, and what a short name is made of."""
    said = " ".join(row.description.split())
    if row.absent:
        return f"absent: {row.absent} ({said})"
    if row.counters:
        return f"{said}: {' + '.join(row.counters)} over {row.elapsed}"
    return said


def _cost(cost: Cost) -> tuple[str, ...]:
    note = f" ({cost.note})" if cost.note else ""
    cells = (_percent(cost.core), f"{cost.decode_ms:g} ms", str(cost.image_bytes), "dear" if cost.dear else "cheap")
    return (*cells, cost.label + note)


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f}%"
