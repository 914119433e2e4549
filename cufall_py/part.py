"""Which part of a recording is meant: `--from`, `--to`, `--region`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from .errors import UsageError
from .outline import Outline
from .spans import Span, common

SECONDS = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)")
ISO_TIME = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
FORMS = "seconds from the start (12.5), seconds before the end (-10) or an ISO time (2026-11-30T12:01:51.8)"


@dataclass(frozen=True)
class Part:
    """`begin` and `end` as FORMS has it, `region` a name; empty: no such limit."""

    begin: str = ""
    end: str = ""
    region: str = ""

    def spans(self, of: Outline) -> list[Span]:
        """The stretches of this recording that are meant.

        Raises UsageError for limits that are none, leave nothing or lie outside, and an unknown region.
        """
        begin_ns = moment("--from", self.begin, of) if self.begin else of.start_ns
        end_ns = moment("--to", self.end, of) if self.end else of.end_ns
        spans = common(of.spans, [(begin_ns, end_ns)])
        if of.spans and not spans:
            raise UsageError(self._nothing(begin_ns < end_ns, of))
        return common(spans, self._region(of)) if self.region else spans

    def _nothing(self, in_order: bool, of: Outline) -> str:
        asked = " ".join(f"{flag} {text}" for flag, text in (("--from", self.begin), ("--to", self.end)) if text)
        problem = "nothing was recorded then"
        if not in_order and self.begin and self.end:
            problem = "the second must be later than the first"
        return f"{asked}: {problem}; the recording is {(of.end_ns - of.start_ns) / 1e9:g} s long"

    def _region(self, of: Outline) -> list[Span]:
        if self.region not in of.regions:
            there = f"there are {', '.join(of.regions)}" if of.regions else "the recording has none"
            raise UsageError(f"--region {self.region}: no such region; {there}")
        return [(region.start_ns, region.end_ns) for region in of.regions[self.region]]


def moment(flag: str, text: str, of: Outline) -> int:
    """A time in a recording, Unix nanoseconds. Raises UsageError naming the forms there are."""
    if SECONDS.fullmatch(text):
        from_ns = of.end_ns if text.startswith("-") else of.start_ns
        return from_ns + round(float(text) * 1e9)
    try:
        return iso_ns(text)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{flag} {text}: must be {FORMS}") from None


def iso_ns(text: str) -> int:
    """An ISO time to the nanosecond, local where it names no offset. Raises ValueError if it is none."""
    found = ISO_TIME.fullmatch(text)
    if not found:
        raise ValueError(text)
    whole, fraction, offset = found.groups(default="")
    offset = "+0000" if offset == "Z" else offset.replace(":", "")
    form = "%Y-%m-%dT%H:%M:%S" if whole.count(":") == 2 else "%Y-%m-%dT%H:%M"
    when = datetime.strptime(whole.replace(" ", "T") + offset, form + ("%z" if offset else ""))
    return round(when.timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0"))
