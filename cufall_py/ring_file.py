"""The files that rings lie in: where, who holds them, and clearing away what nobody does."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from .errors import CountersOwned, SourceError

MAGIC = b"cufall01"
HEADER = struct.Struct("<8sIIIIQQ")  # magic, version, slot bytes, slots, owner's pid, generation, heartbeat
WRITER_BYTE, READER_BYTE = 1 << 40, (1 << 40) + 1
UNNAMED = ".ring-new"
"""End of the name of a ring that is being made."""
SHARE_OF_SPACE = 4
"""A ring takes at most one part in this many of what is free: a container's /dev/shm is small, and not ours."""


def directory_choices() -> list[Path]:
    """Where rings may lie, best first."""
    if asked := os.environ.get("CUFALL_RING_DIR"):
        return [Path(asked)]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    roots = ["/dev/shm", *([runtime] if runtime else []), tempfile.gettempdir()]
    return [Path(root) / f"cufall-{os.getuid()}" for root in roots if os.path.isdir(root)]


def create(uuid: str, size: int) -> tuple[Path, int]:
    """A new file of `size` bytes, locked, in the best directory that has room. Raises as RingWriter does."""
    failures = []
    choices = directory_choices()
    for directory in choices:
        try:
            make_directory(directory)
            if directory != choices[-1] and size * SHARE_OF_SPACE > shutil.disk_usage(directory).free:
                failures.append(f"{directory}: too small")
                continue
            return _create_in(directory, uuid, size)
        except OSError as error:
            failures.append(f"{directory}: {error.strerror}")
    raise SourceError(
        f"no place for a ring of {size >> 20} MiB ({'; '.join(failures)}); CUFALL_RING_DIR names another folder"
    )


def make_directory(directory: Path) -> None:
    """Make it, for this user alone. Raises OSError if it cannot be or is another's."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.lstat().st_uid != os.getuid():
        raise PermissionError(0, "is another user's")


def _create_in(directory: Path, uuid: str, size: int) -> tuple[Path, int]:
    """Made under another name and locked before it gets its own, so that it is never seen without a writer."""
    path = directory / f"{uuid}.ring"
    fd, temporary = _unnamed(directory, uuid)
    try:
        os.posix_fallocate(fd, 0, size)  # a full tmpfs would otherwise kill the writer later, with SIGBUS
        _take_name(temporary, path)
    except BaseException:
        os.close(fd)
        raise
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path, fd


def _unnamed(directory: Path, uuid: str) -> tuple[int, str]:
    """A new locked file. Before it is locked another cufall, starting, may clear it away; then another one."""
    while True:
        fd, temporary = tempfile.mkstemp(dir=directory, prefix=f".{uuid}.", suffix=UNNAMED)
        try:
            lock(fd, WRITER_BYTE, fcntl.F_WRLCK)
            if os.fstat(fd).st_nlink:
                return fd, temporary
        except BlockingIOError:
            pass
        os.close(fd)


def _take_name(temporary: str, path: Path) -> None:
    for _ in range(10):
        try:
            return os.link(temporary, path)
        except FileExistsError:
            owner = _owner_or_unlink(path)
            if owner is not None:
                raise CountersOwned(f"another cufall (process {owner}) samples this GPU; end it first") from None
    raise CountersOwned(f"{path} changes hands too fast; is cufall being started in a loop?")


def owner_of(uuid: str) -> int | None:
    """The process to end for the ring of this GPU to be free; None if it is."""
    owners = [_owner_or_unlink(directory / f"{uuid}.ring") for directory in directory_choices()]
    return next((owner for owner in owners if owner is not None), None)


def clear_stale() -> None:
    """Remove what a killed cufall left: files in our directories that nobody holds."""
    for directory in directory_choices():
        for path in (*directory.glob("*.ring"), *directory.glob(f".*{UNNAMED}")):
            try:
                if path.suffix == UNNAMED or _is_ring(path):
                    _owner_or_unlink(path)
            except OSError:
                pass  # not a file, or another user's: not left by us


def _owner_or_unlink(path: Path) -> int | None:
    """The process that holds this ring; if none does, remove it and return None."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        lock(fd, WRITER_BYTE, fcntl.F_WRLCK)  # held while it is removed: nobody else then removes a newer one
        if _is_at(path, fd):
            path.unlink()
        return None
    except BlockingIOError:
        return int(header(fd)[4])
    finally:
        os.close(fd)


def _is_ring(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def header(fd: int) -> tuple[Any, ...]:
    return HEADER.unpack(os.pread(fd, HEADER.size, 0).ljust(HEADER.size, b"\0"))


def lock(fd: int, byte: int, kind: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(kind, byte))


def locked(fd: int, byte: int) -> bool:
    """Whether some other open file holds this byte."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, byte))
    return int(struct.unpack_from("h", answer)[0]) != fcntl.F_UNLCK


def _flock(kind: int, byte: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)
