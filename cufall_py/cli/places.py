"""Where outputs go: what cannot be written is refused before anything is started."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from cufall_py.errors import UsageError

from . import writing

READ, RESULT = "is what is read", "is where --result goes"


def writable(flag: str, name: str) -> Path:
    """The path, if a file can be written there; it is not touched. Raises UsageError."""
    path = Path(name)
    real(name)
    try:
        is_there, is_folder = path.exists(), path.is_dir()
    except OSError as error:
        raise UsageError(f"{flag} {name}: {error.strerror}") from None
    if is_folder or name == "-":
        raise UsageError(f"{flag} {name}: must be a file")
    if not is_there and not path.parent.is_dir():
        raise UsageError(f"{flag} {name}: {os.strerror(errno.ENOENT)}")
    if not os.access(path if is_there else path.parent, os.W_OK):
        raise UsageError(f"{flag} {name}: {os.strerror(errno.EACCES)}")
    return path


def real(path: str) -> str:
    """The file's own path. Raises UsageError if it is told from the folder that this runs in, and that is gone."""
    try:
        return os.path.realpath(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: the folder that this runs in is gone; change to one that is there") from None


def check_places(paths: Mapping[str, str], taken: Mapping[str, str]) -> None:
    """Raises UsageError if one of these files, by flag, cannot be written, or is another or one of those `taken`, which
    say what they are."""
    others = {real(file): what for file, what in taken.items() if file}
    for flag, path in paths.items():
        if other := others.get(real(path)):
            raise UsageError(f"{flag} {path}: {other}")
        others[real(path)] = f"is where {flag} goes"
        writable(flag, path)


def write_text(path: str, text: str) -> None:
    with writing(path), open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.write(text)
