"""A pass over a recording that is thinned: what is too old for its section goes to the one before, all else is copied.

Batches of the file are read one by one at their places; a section's last batch is made anew with what comes behind it,
so that batches do not get smaller with each pass, and rows that were begun go on.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from .arrow_file import BATCH_ROWS, END_MARK, OPTIONS, numbers, valid
from .keep import Tier
from .sources import Opened
from .thinning import Carried, Thinner, region_edges_ns

CHUNK_BYTES = 4 << 20
"""What is copied in one step, or"""
BATCHES_LOOKED_AT = 4
"""so many batches are read, or one is thinned."""
BATCHES_A_SPAN = 16
"""At least, of those that are joined: a batch goes on when all of it is too old."""
FOREVER_NS = 2**62
Steps = Generator[None, None, None]


@dataclass(frozen=True)
class Section:
    """Where in the file it begins, and its last batch, which may grow."""

    begin: int
    tail: int


@dataclass(frozen=True)
class _Stored:
    """A batch, and where in the file it begins and ends."""

    batch: pa.RecordBatch
    begin: int
    end: int


class Pass:
    """From `old` to `new`, for tiers from the coarsest to the finest; what is old is so at `newest_ns`.

    After the run, `sections` are those of the new file, and `oldest_ns` is when what is left in the finest begins (0:
    not known).
    """

    def __init__(
        self,
        old: pa.OSFile,
        new: io.FileIO,
        schema: pa.Schema,
        opened: Sequence[Opened],
        tiers: Sequence[Tier],
        newest_ns: int,
    ) -> None:
        self._old, self._out, self._schema, self._opened = old, _Out(new, schema), schema, opened
        self._tiers, self._newest_ns = tiers, newest_ns
        self._edges_ns: list[int] = []
        self.sections: list[Section] = []
        self.oldest_ns = 0

    def run(self, sections: Sequence[Section], length: Callable[[], int]) -> Steps:
        """Steps; `length` tells how long the old file is, which may grow meanwhile."""
        read = length()
        begins = [section.begin for section in sections]
        ends, cuts = [*begins[1:], read], list[int]()
        for begin, end, tier in zip(begins, ends, self._tiers, strict=True):
            cuts.append((yield from self._cut(begin, end, tier)))
        begin = self._out.at
        yield from self._carry(begins[0], cuts[0])
        for k, tier in enumerate(self._tiers):
            self._out.longest_ns = (tier.span_ns or FOREVER_NS) // BATCHES_A_SPAN
            yield from self._copy(cuts[k], sections[k].tail)
            rest = max(cuts[k], sections[k].tail), ends[k]
            if tier.period_ns:
                yield from self._thin(tier, [rest, (begins[k + 1], cuts[k + 1])])
            else:
                yield from self._join(*rest)
            self._out.flush()
            self.sections.append(Section(begin, max(begin, self._out.tail)))
            begin = self._out.at
        while read < length():  # what has come meanwhile
            end = length()
            yield from self._copy(read, end)
            read = end

    def _cut(self, begin: int, end: int, tier: Tier) -> Generator[None, None, int]:
        """Where in a section what is young enough for its tier begins. Takes down the edges of regions up to there, and
        in the batch after it."""
        self.oldest_ns = 0
        if tier.span_ns is None:
            return begin
        for count, stored in enumerate(self._stored(begin, end)):
            start_ns, end_ns = _times(stored.batch)
            self._edges_ns += region_edges_ns(stored.batch)
            # further away than its span, wherever: what is of a future was recorded before the clock was set back
            if abs(self._newest_ns - end_ns) < tier.span_ns:
                self.oldest_ns = start_ns
                return stored.begin
            if count % BATCHES_LOOKED_AT == 0:
                yield
        return end

    def _carry(self, begin: int, end: int) -> Steps:
        """Let what lies between go away, but for what must outlast it."""
        carried = Carried(self._schema)
        for stored in self._stored(begin, end):
            carried.add(stored.batch)
            yield
        self._out.add(carried.batch())
        self._out.flush()

    def _thin(self, tier: Tier, stretches: Sequence[tuple[int, int]]) -> Steps:
        """Thin the batches of these stretches of the file together: the first ends the section, and is thinned."""
        for stored in self._stored(*stretches[0]):
            self._edges_ns += region_edges_ns(stored.batch)
        thinner = Thinner(self._schema, self._opened, tier.period_ns, self._edges_ns)
        for stretch in stretches:
            for stored in self._stored(*stretch):
                self._out.add(thinner.add(stored.batch))
                yield
        self._out.add(thinner.rest())

    def _join(self, begin: int, end: int) -> Steps:
        """Join small batches; large ones stay as they are, which is many times as fast."""
        for count, stored in enumerate(self._stored(begin, end)):
            if 2 * stored.batch.num_rows <= BATCH_ROWS:
                self._out.add(stored.batch)
            else:
                self._out.take(_bytes(self._old, stored.begin, stored.end))
            if count % BATCHES_LOOKED_AT == 0:
                yield

    def _copy(self, begin: int, end: int) -> Steps:
        """Copy the bytes between two places; none if they are the wrong way round."""
        while begin < end:
            data = _bytes(self._old, begin, min(end, begin + CHUNK_BYTES))
            self._out.copy(data)
            begin += len(data)
            yield

    def _stored(self, begin: int, end: int) -> Iterator[_Stored]:
        """The batches between two places."""
        while begin < end:
            self._old.seek(begin)
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(self._old), self._schema)
            after = self._old.tell()
            yield _Stored(batch, begin, after)
            begin = after


class _Out:
    """Appends to a file: the schema at first, bytes as they are, and batches, neighbours joined up to BATCH_ROWS and
    `longest_ns`."""

    def __init__(self, file: io.FileIO, schema: pa.Schema) -> None:
        self._file, self._head = file, header(schema)
        self._held: list[pa.RecordBatch] = []
        self._from_ns, self.longest_ns = 0, FOREVER_NS
        self.at = self.tail = 0
        """Where it ends, and where the last batch begins that was not copied."""
        self.copy(self._head)

    def copy(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.at += len(data)
        if len(data) == CHUNK_BYTES:  # so that the end of the pass does not wait for all of it
            os.fdatasync(self._file.fileno())

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next batch, to be joined."""
        if not batch.num_rows:
            return
        start_ns, end_ns = _times(batch)
        rows = sum(held.num_rows for held in self._held) + batch.num_rows
        if self._held and (rows > BATCH_ROWS or abs(end_ns - self._from_ns) > self.longest_ns):
            self.flush()
        self._from_ns = self._from_ns if self._held else start_ns
        self._held.append(batch)

    def take(self, data: bytes) -> None:
        """Take the next batch as the bytes that it is."""
        self.flush()
        self.tail = self.at
        self.copy(data)

    def flush(self) -> None:
        """Write what is held."""
        held, self._held = self._held, []
        if held:
            for batch in pa.Table.from_batches(held).combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
                self.tail = self.at
                self.copy(_stream([batch], batch.schema)[len(self._head) :])


def header(schema: pa.Schema) -> bytes:
    """What comes before the first batch."""
    return _stream([], schema)


def _stream(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """As they stand in a file, without its end."""
    memory = io.BytesIO()
    with pa.ipc.new_stream(memory, schema, options=OPTIONS) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return memory.getvalue()[: -len(END_MARK)]


def _bytes(old: pa.OSFile, begin: int, end: int) -> bytes:
    old.seek(begin)
    data: bytes = old.read(end - begin)
    if len(data) < end - begin:
        raise OSError(errno.EIO, "it is shorter than what was written")
    return data


def _times(batch: pa.RecordBatch) -> tuple[int, int]:
    """When the first of its samples began and the last ended; of events, if it has nothing else."""
    rows = ~valid(batch.column("event"))
    rows = rows if rows.any() else ~rows
    start_ns, end_ns = (numbers(batch.column(name))[rows] for name in ("start_ns", "end_ns"))
    return int(start_ns.min()), int(end_ns.max())
