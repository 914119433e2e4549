"""Tables of text and numbers, as lines for a terminal, as Markdown or as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .styled import printable

GAP = "  "
MISSING = "--"
"""What stands where nothing was measured."""


TOO_LONG = 1e12
"""From here on a number is told with an exponent."""


@dataclass(frozen=True)
class Table:
    """`words`: how many of the first columns hold words, which stand to the left; numbers stand to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


def number(value: float) -> str:
    """A plain number in four digits, or as a whole one; never with an exponent that a large one need not have."""
    if math.isnan(value):
        return MISSING
    return f"{value:.0f}" if 1000 <= abs(value) < TOO_LONG else f"{value:.4g}"


def text(table: Table, ascii_only: bool = False) -> Iterator[str]:
    """Aligned columns, the head in capitals."""
    head = [cell.upper() for cell in table.head]
    rows = [[printable(cell, ascii_only) for cell in row] for row in (head, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if k < table.words else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield GAP.join(cells).rstrip()


def markdown(table: Table) -> Iterator[str]:
    """A table of GitHub's Markdown."""
    yield _row(table.head)
    yield _row(["---" if k < table.words else "--:" for k in range(len(table.head))])
    yield from map(_row, table.rows)


def as_html(table: Table) -> str:
    """A table element."""
    head = _html_cells("th", table.head, table.words)
    rows = "".join(f"<tr>{_html_cells('td', row, table.words)}</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _html_cells(tag: str, cells: Sequence[str], words: int) -> str:
    kinds = [' class="word"' if k < words else "" for k in range(len(cells))]
    return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


def escaped(text: str) -> str:
    """Text as Markdown shows it, in one line."""
    shown = printable(text)
    return "".join(f"\\{sign}" if sign in r"\`*_[]<>|#~" else sign for sign in shown)
