"""Lines of styled text for full screens: what they are, how long they may be, and what a terminal is sent for them."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
Line = list[Span]
"""Pieces of text, each with the name of its style."""

RAMP = (25, 26, 32, 33, 31, 37, 36, 35, 34, 70, 106, 142, 178, 172, 166, 160)
"""256-colour codes from least to most, none lost on black or on white: a hue for each quarter."""
_CODES = {
    "": "0",
    "bold": "0;1",
    "dim": "0;38;5;244",
    "warn": "0;1;38;5;208",
    **{f"ramp{k}": f"0;38;5;{code}" for k, code in enumerate(RAMP)},
}
_PLAINER = str.maketrans({"█": "@", "▇": "#", "▆": "*", "▅": "+", "▄": "=", "▃": "-", "▂": ":", "▁": ".", "·": "?"})
_PLAINER |= str.maketrans({"…": "~", "─": "-", "←": "<", "↓": "v", "×": "x"})


def fitted(line: Line, width: int, ascii_only: bool = False) -> Line:
    """The line in exactly `width` cells: cut, its end marked, or filled up with blanks; nothing moves a cursor."""
    out: Line = []
    left = width
    for text, style in line:
        text = printable(text, ascii_only)
        size = cell_len(text)
        out.append((text if size <= left else _cut(text, left, ascii_only), style))
        left -= min(size, left)
    out.append((" " * left, ""))
    return [span for span in out if span[0]]


def printable(text: str, ascii_only: bool = False) -> str:
    """What may be shown of a text from anywhere: names of processes may hold anything."""
    if ascii_only:
        text = text.translate(_PLAINER).encode("ascii", "replace").decode()
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def wrapped(text: str, columns: int, most: int, indent: str = "") -> list[str]:
    """Whole words on as many lines of `columns` as it takes, up to `most`; the end of more is marked."""
    if not text or most < 1 or columns < 1:
        return []
    indent = indent if len(indent) < columns // 2 else ""
    placeholder = " …" if columns - len(indent) > 2 else "…"
    return wrap(
        printable(text),
        columns,
        initial_indent=indent,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=placeholder,
    )


def _cut(text: str, width: int, ascii_only: bool) -> str:
    return set_cell_size(text, width - 1) + ("~" if ascii_only else "…") if width else ""


def plain(lines: Iterable[Line]) -> str:
    """The characters alone."""
    return "\n".join("".join(text for text, _ in line) for line in lines)


def to_ansi(line: Line, colour: bool) -> str:
    """What a terminal is sent for a line. Without colour: its characters alone."""
    if not colour:
        return "".join(text for text, _ in line)
    return "".join(f"\x1b[{_CODES[style]}m{text}" for text, style in line) + "\x1b[0m"
