"""How values are told to a person: percents, plain numbers, and tables in a page or a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

MISSING = "--"
"""What stands where nothing was measured."""
ALL, EVERYTHING = "all", "everything"
"""All GPUs together; what is of no region."""
TOO_LONG = 1e12
"""From here on a number is told with an exponent."""


def percent(ratio: float) -> str:
    """Two decimals where one would make nothing of little, or all of nearly all."""
    if math.isnan(ratio):
        return MISSING
    if ratio in (0, 1):
        return f"{100 * ratio:.0f}%"
    if 0 < ratio < 0.00005:
        return "<.01%"
    if 0.9995 <= ratio < 1:
        return f"{min(100 * ratio, 99.99):.2f}%"
    return f"{100 * ratio:.{2 if ratio < 0.09995 else 1}f}%"


def share_text(share: float) -> str:
    """A percent in two digits at the most, for a line or a cell beside many others."""
    if math.isnan(share):
        return MISSING
    of_100 = 100 * share
    if 0 < of_100 < 0.01:
        return "<.01%"
    return f"{of_100:.2g}%" if of_100 < 9.95 else f"{of_100:.0f}%"


def plain(value: float) -> str:
    """A plain number in four digits, or as a whole one; never with an exponent that a large one need not have."""
    if math.isnan(value):
        return MISSING
    return f"{value:.0f}" if 1000 <= abs(value) < TOO_LONG else f"{value:.4g}"


def value(number: float, is_plain: bool) -> str:
    """Of a metric: a plain number, or as a percent what is a ratio."""
    return plain(number) if is_plain else percent(number)


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table element. The first `words` columns hold words, which stand to the left; numbers stand to the right."""
    body = "".join(f"<tr>{_cells('td', row, words)}</tr>" for row in rows)
    head_row = f"<thead><tr>{_cells('th', head, words)}</tr></thead>"
    return f'<table style="text-align:right">{head_row}<tbody>{body}</tbody></table>'


def _cells(tag: str, cells: Sequence[str], words: int) -> str:
    kinds = [' class="word" style="text-align:left"' if k < words else "" for k in range(len(cells))]
    return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
