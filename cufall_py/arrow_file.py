"""A growing Arrow stream on disk that holds whole batches only, whatever happens to it."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from .errors import CufallError

BATCH_ROWS = 8_000
"""The most rows of a batch."""
END_MARK = b"\xff\xff\xff\xff\0\0\0\0"
"""How an Arrow stream that was ended ends."""
NUMBERS: dict[str, np.dtype[Any]] = {
    "uint16": np.dtype(np.uint16),
    "int64": np.dtype(np.int64),
    "float": np.dtype(np.float32),
}
"""By Arrow's names of the types of numbers that are read."""
# threads of Arrow's own would add to the cost of sampling beside which this runs
OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=3), use_threads=False)


class ArrowFile:
    """Created when made, in place of a file that is there only with `force`.

    Pipes and devices are written to as they are. Raises CufallError, here and in `write` and `end`, when
    the file cannot be written or is no longer where it was; whole batches before that stay readable.
    """

    def __init__(self, path: Path, schema: pa.Schema, force: bool) -> None:
        self._name, self._schema = path, schema
        try:
            self._regular = path.is_file() or not path.exists()
            self._file = io.FileIO(path, "w" if force or not self._regular else "x")
            self._path = path.resolve()
        except FileExistsError:
            raise CufallError(f"{path} is there already; force=True overwrites it") from None
        except OSError as error:
            raise self._problem(error) from None
        self._memory = io.BytesIO()
        self._stream = pa.ipc.new_stream(self._memory, schema, options=OPTIONS)
        self._whole_bytes = self._batches = self._rows = 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Append batches; those that an earlier call could not write go first."""
        for batch in batches:
            self._stream.write_batch(batch)
            self._rows += batch.num_rows
        self._batches += len(batches)
        self._spill()

    def end(self) -> None:
        """Mark the end, see it safe on disk, and merge small batches where that halves their number."""
        self._end_stream()
        if self._regular and 2 * -(-self._rows // BATCH_ROWS) <= self._batches:
            self._merge()

    def close(self) -> None:
        """Let go of the file; it stays as it is."""
        self._file.close()

    def _end_stream(self) -> None:
        self._stream.close()
        self._spill()
        if self._regular:
            self._sync()

    def _spill(self) -> None:
        """Write what the stream has made. It is kept until all of it is on disk, so nothing is half there."""
        made = self._memory.getvalue()
        try:
            self._check_place()
            self._write_all(made)
        except OSError as error:
            self._take_back()
            raise self._problem(error) from None
        self._whole_bytes += len(made)
        self._memory.seek(0)
        self._memory.truncate()

    def _write_all(self, data: bytes) -> None:
        if self._regular:
            self._file.seek(self._whole_bytes)
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _check_place(self) -> None:
        # the kernel takes writes to a file that has no name any more, and forgets them
        if self._regular and not self._in_place():
            raise OSError(errno.ENOENT, "the file was removed or moved while it was written")

    def _in_place(self) -> bool:
        try:
            return os.path.samefile(self._path, self._file.fileno())
        except FileNotFoundError:
            return False

    def _take_back(self) -> None:
        """Cut what was written of an unfinished batch; a file without any is of no use."""
        try:
            if self._regular:
                os.ftruncate(self._file.fileno(), self._whole_bytes)
            if self._regular and not self._whole_bytes and self._in_place():
                self._path.unlink()
        except OSError:
            pass  # what failed first is what is told; a reader leaves out half a batch by itself

    def _sync(self) -> None:
        try:
            os.fsync(self._file.fileno())  # some file systems tell only now that they are full
        except OSError as error:
            raise self._problem(error) from None

    def _merge(self) -> None:
        try:
            self._replace(self._path.with_name(f".{self._path.name}.merging"))
        except OSError:
            pass  # no room for two: the one there is whole, only less compact

    def _replace(self, beside: Path) -> None:
        """Rewrite beside and rename: a cut at any moment leaves one whole file, this or that."""
        beside.unlink(missing_ok=True)
        try:
            self._rewrite(beside)
            if self._in_place():
                os.replace(beside, self._path)
        finally:
            beside.unlink(missing_ok=True)

    def _rewrite(self, beside: Path) -> None:
        with open(self._path, "rb") as source, open(beside, "xb") as file:
            shutil.copymode(self._path, beside)
            with pa.ipc.new_stream(file, self._schema, options=OPTIONS) as out:
                for batch in joined(pa.ipc.open_stream(source), BATCH_ROWS):
                    out.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())

    def _problem(self, error: OSError) -> CufallError:
        return CufallError(f"{self._name} cannot be written: {error.strerror}")


def joined(batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in as few batches as neighbours make that have `most_rows` at most."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if held and sum(b.num_rows for b in held) + batch.num_rows > most_rows:
            yield _one(held)
            held = []
        held.append(batch)
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def numbers(column: pa.Array) -> NDArray[Any]:
    """Of one of the types NUMBERS; null becomes NaN.

    Arrow's own conversion would load pandas, which takes longer than a short file.
    """
    dtype = NUMBERS[str(column.type)]
    if column.null_count == len(column):
        return np.full(len(column), np.nan)
    out: NDArray[Any] = np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)
    if not column.null_count:
        return out
    out = out.copy() if dtype.kind == "f" else out.astype(np.float64)
    out[~valid(column)] = np.nan
    return out


def array(values: NDArray[Any]) -> pa.Array:
    """What `numbers` gives back: of the type of `values`, NaN as null. Not Arrow's own conversion, for the same reason:
    a recording that has begun, and the command beside it, would wait for pandas."""
    values, missing = np.ascontiguousarray(values), np.isnan(values)
    known = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [known, pa.py_buffer(values)])


def text_array(texts: Sequence[str]) -> pa.Array:
    """Of these; Arrow's own conversion would load pandas, too."""
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(ends), pa.py_buffer(b"".join(data)))


def valid(column: pa.Array) -> NDArray[np.bool_]:
    """(n,) which are not null."""
    if not column.null_count:
        return np.ones(len(column), bool)
    bits = np.frombuffer(column.buffers()[0], np.uint8)
    return np.unpackbits(bits, bitorder="little")[column.offset : column.offset + len(column)].view(bool)
