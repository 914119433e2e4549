"""Which characters an output can show."""

from __future__ import annotations

import os
import sys
from typing import TextIO

PLAIN_LOCALES = ("C", "POSIX")


def takes(stream: TextIO, characters: str) -> bool:
    """Whether all of these can be shown."""
    try:
        characters.encode(encoding_of(stream))
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def encoding_of(stream: TextIO) -> str:
    """That of a stream; but `LC_ALL=C` asks for ASCII, where Python of itself writes UTF-8 (PEP 540).

    A locale that is C because nothing else is said, as in containers, asks for nothing (PEP 538).
    """
    told = os.environ.get("PYTHONUTF8") or os.environ.get("PYTHONIOENCODING")
    if os.environ.get("LC_ALL") in PLAIN_LOCALES and sys.flags.utf8_mode and not told:
        return "ascii"
    return stream.encoding or "ascii"
