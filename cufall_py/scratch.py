"""Folders in the temporary one that go with whoever made them: at its end, or, if it was killed, at the next start.

A lock on a file in it tells that it is in use, for the kernel lets go of that however a process ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

PREFIX, LOCK = "cufall-attached-", "in-use"


def folder(owner: object) -> Path:
    """A new one, which goes when `owner` does, or this process ends in order; a forked copy of it leaves it alone."""
    _clear_stale()
    path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getuid()}-"))
    lock = os.open(path / "new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(path / "new", path / LOCK)  # nobody else looks at it before it is locked
    weakref.finalize(owner, _remove, path, lock, os.getpid())
    return path


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _clear_stale() -> None:
    """Remove those that nobody uses."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}{os.getuid()}-*"):
        try:
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # it is being made, or gone
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # in use
        finally:
            os.close(lock)
