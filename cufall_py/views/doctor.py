"""A diagnosis as lines of text: the answer, a line a finding with its fix below it, what to do next."""

from __future__ import annotations

import textwrap

from cufall_py.doctor.diagnosis import Diagnosis
from cufall_py.doctor.findings import OK, PROBLEM, UNKNOWN, WARNING, Finding

MARKS = {OK: "✓", WARNING: "!", PROBLEM: "✗", UNKNOWN: "?"}
ASCII_MARKS = {**MARKS, OK: "+", PROBLEM: "x"}
COLOURS = {OK: "32", WARNING: "33", PROBLEM: "31", UNKNOWN: "36"}
"""SGR codes: green, yellow, red, cyan."""
LEAST_WIDTH, MOST_WIDTH = 40, 120


def lines(diagnosis: Diagnosis, width: int, colour: bool, ascii_only: bool) -> list[str]:
    """Each at most `width` characters, but for what cannot be broken and below 40; escapes not counted."""
    width = min(max(width, LEAST_WIDTH), MOST_WIDTH)
    answer, step = (_wrapped(text, width, "") for text in (diagnosis.answer, f"Next: {diagnosis.next_step}"))
    label = max(len(finding.topic) for finding in diagnosis.findings) + 2
    body = [line for f in diagnosis.findings for line in _finding(f, width, label, colour, ascii_only)]
    bold = "1;" + COLOURS[OK if diagnosis.can_measure else PROBLEM]
    told = [
        *(_painted(line, bold, colour) for line in answer),
        "",
        *body,
        "",
        *(_painted(s, "1", colour) for s in step),
    ]
    return [line.encode("ascii", "replace").decode() for line in told] if ascii_only else told


def _finding(finding: Finding, width: int, label: int, colour: bool, ascii_only: bool) -> list[str]:
    indent = " " * (label + 2)
    first, *more = _wrapped(finding.text, width, indent)
    mark = (ASCII_MARKS if ascii_only else MARKS)[finding.state]
    head = f"{_painted(mark, COLOURS[finding.state], colour)} {finding.topic:<{label}}{first[len(indent) :]}"
    fix = _wrapped(f"fix: {finding.fix}", width, indent) if finding.fix else []
    return [head.rstrip(), *more, *fix]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Commands and paths stay whole, to be copied."""
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [indent]


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text else text
