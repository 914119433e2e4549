"""Marks: any program of this user names a stretch of time in the recordings that are being made.

Each recorder has a datagram socket of mode 0600 in the directory of the rings. A mark is one datagram of JSON
(`name`, `text`, `end`, `at_ns`), stamped by its sender, so that it lies where it was made however late it is read.
Loads nothing heavy: this is imported into programs that compute.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import CufallError, UsageError
from .ring_file import directory_choices, make_directory

SUFFIX = ".marks"
LONGEST = 2_000
"""Characters of a name and of a text."""
LARGEST_BYTES = 65_536
SEND_S = 0.2
"""How long a recorder that is stopped, and whose socket is full, is waited for."""


@dataclass(frozen=True)
class Mark:
    """The begin of a region, or with `end` the end of the newest of that name. `at_ns`: Unix epoch."""

    name: str
    text: str
    end: bool
    at_ns: int

    @staticmethod
    def from_bytes(data: bytes) -> Mark:
        """Raises ValueError for what is no mark."""
        try:
            mark = Mark(**json.loads(data))
        except TypeError:
            raise ValueError("no mark") from None
        if [type(value) for value in asdict(mark).values()] != [str, str, bool, int] or not mark.name.strip():
            raise ValueError("no mark")
        return mark


@contextmanager
def mark(name: str, text: str = "", *, pid: int = 0, required: bool = False) -> Iterator[None]:
    """Name the time within in every recording that this user's recorders make now, or in that of process `pid`.

    Where none runs nothing happens, unless it is `required`: then CufallError is raised. UsageError: an empty name.
    """
    mark_begin(name, text, pid=pid, required=required)
    try:
        yield
    finally:
        mark_end(name, pid=pid)


def mark_begin(name: str, text: str = "", *, pid: int = 0, required: bool = False) -> int:
    """Open a region; as `mark` has it. Returns how many recorders were told."""
    return _send(Mark(name, text, False, time.time_ns()), pid, required)


def mark_end(name: str, *, pid: int = 0, required: bool = False) -> int:
    """Close the newest open region of this name; as `mark` has it. Returns how many recorders were told."""
    return _send(Mark(name, "", True, time.time_ns()), pid, required)


def _send(mark: Mark, pid: int, required: bool) -> int:
    if not mark.name.strip():
        raise UsageError("a region needs a name")
    if max(len(mark.name), len(mark.text)) > LONGEST:
        raise UsageError(f"a region's name and text have at most {LONGEST} characters")
    data = json.dumps(asdict(mark)).encode()
    found = [path for path in _sockets() if pid in (0, _pid(path))]
    told = sum(_deliver(data, path) for path in found)
    if required and not told:
        whose = f" with process number {pid}" if pid else ""
        raise CufallError(f"no recorder{whose} runs here to be told of {mark.name}; start one with cufall record")
    return told


class MarksSocket:
    """Gets marks until closed and hands each to `take`, from a thread of its own. Raises OSError if it cannot be."""

    def __init__(self, take: Callable[[Mark], None]) -> None:
        self._take, self._end = take, secrets.token_bytes(16)
        self._path = _directory() / f"{os.getpid()}.{secrets.token_hex(4)}{SUFFIX}"
        self._socket = _new_socket()
        os.fchmod(self._socket.fileno(), 0o600)  # before it has a name: it is never anybody else's to write to
        self._own = _new_socket()
        with _short(self._path) as short:
            self._socket.bind(short)
            self._own.connect(short)
        self._thread = threading.Thread(target=self._run, name="cufall-marks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (data := self._socket.recv(LARGEST_BYTES)) != self._end:
            try:
                self._take(Mark.from_bytes(data))
            except (ValueError, RecursionError):
                pass  # not by cufall; whoever may write here is this user

    def close(self) -> None:
        """Take what was sent until now, and leave nothing behind. May be called more than once."""
        if self._thread.is_alive():
            self._path.unlink(missing_ok=True)
            self._own.send(self._end)
            self._thread.join()
        self._own.close()
        self._socket.close()

    def __enter__(self) -> MarksSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def clear_stale() -> None:
    """Remove the sockets of recorders that were killed."""
    for path in _sockets():
        _deliver(b"", path)


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def _directory() -> Path:
    """The first of the runtime directories that there is or can be made."""
    failed = OSError(errno.ENOENT, "no runtime directory")
    for directory in directory_choices():
        try:
            make_directory(directory)
            return directory
        except OSError as error:
            failed = error
    raise failed


def _sockets() -> list[Path]:
    return [path for directory in directory_choices() for path in sorted(directory.glob(f"*{SUFFIX}"))]


def _pid(path: Path) -> int:
    first = path.name.partition(".")[0]
    return int(first) if first.isdecimal() else -1


def _deliver(data: bytes, path: Path) -> bool:
    """Whether a recorder got it. The socket of one that is gone is removed."""
    try:
        with _new_socket() as sender, _short(path) as short:
            sender.settimeout(SEND_S)
            sender.connect(short)
            if data:
                sender.send(data)
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return False
    except OSError:  # it is another user's, has just ended, or is stopped
        return False
    return True


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """The same file by a name that fits a socket's address, which has 107 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
