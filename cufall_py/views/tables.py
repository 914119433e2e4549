"""Tables of text and numbers, as lines for a terminal, as Markdown or as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cufall_py.shown import html_table

from .styled import printable

GAP = "  "


@dataclass(frozen=True)
class Table:
    """`words`: how many of the first columns hold words, which stand to the left; numbers stand to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


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
    return html_table(table.head, table.rows, table.words)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


def escaped(text: str) -> str:
    """Text as Markdown shows it, in one line."""
    shown = printable(text)
    return "".join(f"\\{sign}" if sign in r"\`*_[]<>|#~" else sign for sign in shown)
