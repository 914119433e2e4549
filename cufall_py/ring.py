"""The ring: one mapped file a GPU, written by its worker, read by any number of readers.

    bytes 0..4095          header: magic, version, sizes, generation, heartbeat
    bytes 4096..65535      what is sampled, as JSON with its length and checksum
    from 65536 on          slots of 16 KiB, batch n in slot n modulo their number

A batch is valid by its own sequence number, generation and checksum, and by nothing else: processors that
order memory weakly may show the writer's stores in any order, and Python has no barriers. A reader copies
a slot first and then judges the copy. Who is alive is told by kernel locks on two bytes past the file's
end, which vanish with their holder however it ends; process numbers are only ever printed.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import SourceError
from .ring_file import HEADER, MAGIC, READER_BYTE, WRITER_BYTE, create, header, lock, locked
from .samples import TALLY_FIELDS, Even, Samples, Tally

VERSION = 2
HEARTBEAT_WORD = HEADER.size // 8 - 1
INFO_AT, SLOTS_AT, SLOT_BYTES = 4096, 65536, 16384
INFO = struct.Struct("<II")  # length, checksum
CHECKED = struct.Struct(f"<QIHHqq{TALLY_FIELDS}Q")  # generation, samples, counters, even or not, start, end, tally
SLOT = struct.Struct("<QQ" + CHECKED.format.removeprefix("<"))  # sequence, checksum, what that covers
CHECKED_AT = SLOT.size - CHECKED.size
"""The checksum covers all of a slot after itself, and the sequence number."""
DEFAULT_BYTES = 16 << 20


@dataclass(frozen=True)
class Batch:
    """Samples that were written together, and the worker's counts up to then."""

    samples: Samples
    tally: Tally


def slot_capacity(counters: int) -> int:
    """Samples that fit one slot."""
    return (SLOT_BYTES - SLOT.size) // (16 + 8 * counters)


class RingWriter:
    """The one writer of a GPU's ring. `owner`: the process to end for it to go, this one if not given.

    Raises CountersOwned if another writer has it, SourceError if no directory has room.
    """

    def __init__(self, uuid: str, info: dict[str, Any], size: int = DEFAULT_BYTES, owner: int = 0) -> None:
        self.path, self._fd = create(uuid, size)
        self._map = mmap.mmap(self._fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)  # so no write is a page's first
        self._words = _words(self._map)
        self._slots = (size - SLOTS_AT) // SLOT_BYTES
        self._generation = time.time_ns()
        self._sequence = 0
        self._readerless_since = time.monotonic()
        try:
            self._write_info(info)
        except BaseException:
            self.close()
            raise
        HEADER.pack_into(
            self._map,
            0,
            MAGIC,
            VERSION,
            SLOT_BYTES,
            self._slots,
            owner or os.getpid(),
            self._generation,
            time.monotonic_ns(),
        )

    def write(self, batch: Samples | Even, tally: Tally) -> None:
        """Append a batch, over several slots if it is long; an empty one still carries the tally."""
        room = slot_capacity(batch.values.shape[1])
        if isinstance(batch, Even) and len(batch) <= room:
            self._write_slot(batch, tally)
        else:
            self._write_samples(batch.spread(), room, tally)
        self._words[HEARTBEAT_WORD] = time.monotonic_ns()

    def readerless_s(self) -> float:
        """Seconds since a reader was last seen here."""
        now = time.monotonic()
        if locked(self._fd, READER_BYTE):
            self._readerless_since = now
        return now - self._readerless_since

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
        self._words.release()
        self._map.close()
        os.close(self._fd)

    def _write_samples(self, samples: Samples, room: int, tally: Tally) -> None:
        for at in range(0, max(len(samples), 1), room):
            part = samples[at : at + room]
            times = part.start_ns.tobytes() + part.end_ns.tobytes()
            self._write_slot(Even(0, 0, part.values), tally, times)

    def _write_slot(self, batch: Even, tally: Tally, times: bytes = b"") -> None:
        """`times`: those of samples that are not even."""
        self._sequence += 1
        head = (*batch.values.shape, not times, batch.start_ns, batch.end_ns)
        checked = CHECKED.pack(self._generation, *head, *tally.astuple()) + batch.values.tobytes() + times
        at = SLOTS_AT + (self._sequence % self._slots) * SLOT_BYTES
        words = self._words
        words[at // 8] = 0
        words[at // 8 + 1] = _checksum(checked, self._sequence)
        self._map[at + CHECKED_AT : at + CHECKED_AT + len(checked)] = checked
        words[at // 8] = self._sequence

    def _write_info(self, info: dict[str, Any]) -> None:
        text = json.dumps(info).encode()
        if INFO_AT + INFO.size + len(text) > SLOTS_AT:
            raise SourceError(f"{self.path}: a description of {len(text)} bytes does not fit the ring")
        at = INFO_AT + INFO.size
        self._map[at : at + len(text)] = text
        INFO.pack_into(self._map, INFO_AT, len(text), zlib.crc32(text))


class RingReader:
    """One reader of a ring; several may read at once, each at its own pace.

    `overwritten` counts batches that were written over before they were read.
    """

    def __init__(self, path: Path | str) -> None:
        with ExitStack() as undo:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            undo.callback(os.close, self._fd)
            magic, version, slot_bytes, slots, self.owner, generation, _ = header(self._fd)
            if (magic, version, slot_bytes) != (MAGIC, VERSION, SLOT_BYTES):
                raise SourceError(f"{path}: not a ring of this version of cufall")
            lock(self._fd, READER_BYTE, fcntl.F_RDLCK)
            self._map = mmap.mmap(self._fd, 0, prot=mmap.PROT_READ)
            undo.callback(self._map.close)
            self._words = _words(self._map)
            undo.callback(self._words.release)
            self._slots, self._generation = int(slots), int(generation)
            self._next = 1
            self.overwritten = 0
            self.info = self._read_info()
            undo.pop_all()

    def read(self) -> list[Batch]:
        """Every batch written since the last call, oldest first."""
        return list(self._unread())

    def alive(self) -> bool:
        """Whether the writer still runs."""
        return locked(self._fd, WRITER_BYTE)

    def heartbeat_age_s(self) -> float:
        """Seconds since the writer last wrote."""
        return (time.monotonic_ns() - self._words[HEARTBEAT_WORD]) / 1e9

    def close(self) -> None:
        self._words.release()
        self._map.close()
        os.close(self._fd)

    def _unread(self) -> Iterator[Batch]:
        while (found := self._sequence_at(self._next)) >= self._next:
            if found > self._next:
                self._skip_to(found - self._slots + 1)
                continue
            batch = self._valid_batch(self._next)
            if batch is None and self._sequence_at(self._next) == found:
                return
            if batch is not None:
                self._next += 1
                yield batch

    def _skip_to(self, sequence: int) -> None:
        # what comes next may be written over while it is read; a margin of slots keeps ahead of the writer
        target = max(sequence + self._slots // 8, self._next + 1)
        self.overwritten += target - self._next
        self._next = target

    def _sequence_at(self, sequence: int) -> int:
        return self._words[self._offset(sequence) // 8]

    def _offset(self, sequence: int) -> int:
        return SLOTS_AT + (sequence % self._slots) * SLOT_BYTES

    def _valid_batch(self, sequence: int) -> Batch | None:
        at = self._offset(sequence)
        copy = self._map[at : at + SLOT_BYTES]
        found, checksum, generation, samples, counters, even, start_ns, end_ns, *tally = SLOT.unpack_from(copy)
        used = SLOT.size + (0 if even else 16 * samples) + 8 * samples * counters
        if (found, generation) != (sequence, self._generation) or used > SLOT_BYTES:
            return None
        if not self.intact(copy[:used], sequence, checksum):
            return None
        values = np.frombuffer(copy, np.float64, samples * counters, SLOT.size).reshape(samples, counters)
        if even and samples:
            return Batch(Even(start_ns, end_ns, values).spread(), Tally(*tally))
        times = np.frombuffer(copy, np.int64, 2 * samples, SLOT.size + values.nbytes)
        return Batch(Samples(times[:samples], times[samples:], values), Tally(*tally))

    @staticmethod
    def intact(copy: bytes, sequence: int, checksum: int) -> bool:
        """Whether the copy of a slot is of one piece."""
        return _checksum(memoryview(copy)[CHECKED_AT:], sequence) == checksum

    def _read_info(self) -> dict[str, Any]:
        length, checksum = INFO.unpack_from(self._map, INFO_AT)
        text = self._map[INFO_AT + INFO.size : INFO_AT + INFO.size + length]
        if zlib.crc32(text) != checksum:
            raise SourceError("the ring's description is damaged")
        info: dict[str, Any] = json.loads(text)
        return info


def _words(mapped: mmap.mmap) -> memoryview[int]:
    """The file as 8-byte words, each read and written at once, as struct does not: it clears a word first."""
    return memoryview(mapped).cast("Q")


def _checksum(checked: bytes | memoryview, sequence: int) -> int:
    return zlib.crc32(checked, sequence & 0xFFFFFFFF)
