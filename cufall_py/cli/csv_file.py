"""`--csv FILE|-`: opened before anything is started, and emptied when there is something to write."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TextIO

from cufall_py.errors import UsageError

from . import STDOUT, writing
from .playing import is_same

if TYPE_CHECKING:
    from cufall_py.export.csv import CsvWriter
    from cufall_py.sources import Opened


def open_csv(path: str, read: Sequence[str], stack: ExitStack) -> TextIO | None:
    """None for an empty path. Raises UsageError for what cannot be written, or is among the files that are `read`."""
    if not path:
        return None
    if path == "-":
        return sys.stdout
    if any(is_same(path, file) for file in read):
        raise UsageError(f"--csv {path}: that file is what is read")
    try:
        file = open(path, "a", encoding="utf-8", errors="backslashreplace", newline="")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"--csv {path}: {error.strerror}") from None
    stack.callback(_close, file, path)
    return file


def _close(file: TextIO, path: str) -> None:
    with writing(path):
        file.close()


def place_of(path: str) -> str:
    """What it is called where it cannot be written."""
    return STDOUT if path == "-" else path


def csv_writer(file: TextIO, place: str, opened: Sequence[Opened]) -> CsvWriter:
    """Of an open file, whose former rows go now."""
    from cufall_py.export.csv import CsvWriter

    with writing(place):
        if file is not sys.stdout and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(0)
        return CsvWriter(file, opened)
