"""An ArrowFile that thins itself while it grows: what gets old goes on in longer samples, or away.

The file has a section for each tier of `--keep`, the coarsest first. What has become too old for a section stands at
its head, so a pass moves whole batches from there to the end of the section before, thinned, and copies all else as the
bytes it is. A pass writes a file beside, a step at each write, and takes the old one's place by a rename: a cut at any
moment leaves one whole file, the old or the new one. Nothing is remembered but where sections begin.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from .arrow_file import BATCH_ROWS, END_MARK, OPTIONS, ArrowFile, numbers, valid
from .errors import UsageError
from .keep import Tier
from .sources import Opened
from .thinning import Carried, Thinner, region_edges_ns

STEPS = 4
"""Of a pass, at each write: a batch that is read and thinned, or CHUNK_BYTES that are copied."""
CHUNK_BYTES = 4 << 20
LEAST_EXCESS_NS = 10_000_000_000
SPAN_EXCESS, FILE_EXCESS = 1 / 8, 1 / 16
"""A pass begins when the finest section reaches back further than its span by the first two (the longer one), and
that is the third of the file: so copying the rest is never more than a few times as much as was written meanwhile."""


BATCHES_A_SPAN = 16
"""At least, of those that are joined: a batch goes on when all of it is too old."""
FOREVER_NS = 2**62


@dataclass(frozen=True)
class _Section:
    """Where in the file it begins, and its last batch, which may grow."""

    begin: int
    tail: int


class KeptFile(ArrowFile):
    """Keeps rows of the GPUs `opened` as `keep` says, by their age before the newest sample.

    Raises as ArrowFile does, and UsageError for a place that is no file. A pass that fails is told to `say`; the file
    then grows until one succeeds.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        force: bool,
        opened: Sequence[Opened],
        keep: Sequence[Tier],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(path, schema, force)
        self._opened, self._say = opened, say
        full = () if keep[0].period_ns == 0 else (Tier(0, 0),)
        self._tiers = [*full, *keep][::-1]
        header = len(_header(schema))
        self._sections = [_Section(header, header) for _ in self._tiers]
        self._newest_ns = self._oldest_ns = self._passed_ns = 0
        self._pass: Generator[None, None, None] | None = None
        if not self._regular:
            self.close()
            raise UsageError(f"--keep: {path} is no file, and a recording is thinned by writing it anew")
        self._beside = self._path.with_name(f".{self._path.name}.thinning")
        with suppress(OSError):  # what a kill left; a pass would tell
            self._beside.unlink(missing_ok=True)

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        super().write(batches)
        for batch in batches:
            self._note_times(batch)
        if not self._pass and self._due():
            self._pass, self._passed_ns = self._thin(), self._newest_ns
        self._go_on(STEPS)

    def end(self) -> None:
        """Thin what has become old since, and mark the end."""
        while self._pass:
            self._go_on(STEPS)
        self._pass = self._thin()
        while self._pass:
            self._go_on(STEPS)
        self._end_stream()

    def close(self) -> None:
        if self._pass:
            self._pass.close()
        super().close()

    def _note_times(self, batch: pa.RecordBatch) -> None:
        rows = np.flatnonzero(~valid(batch.column("event")))
        if len(rows):
            self._newest_ns = batch.column("end_ns")[rows[-1]].as_py()
            self._oldest_ns = self._oldest_ns or batch.column("start_ns")[rows[0]].as_py()

    def _due(self) -> bool:
        span_ns = self._tiers[-1].span_ns
        if span_ns is None or not self._oldest_ns or abs(self._newest_ns - self._passed_ns) < LEAST_EXCESS_NS:
            return False
        age_ns = abs(self._newest_ns - self._oldest_ns)
        excess_ns = age_ns - span_ns
        if excess_ns < max(LEAST_EXCESS_NS, SPAN_EXCESS * span_ns):
            return False
        finest_bytes = self._whole_bytes - self._sections[-1].begin
        return bool(finest_bytes * excess_ns >= FILE_EXCESS * self._whole_bytes * age_ns)

    def _go_on(self, steps: int) -> None:
        """Go on with the pass, if there is one. One that fails leaves the file as it was."""
        try:
            for _ in range(steps):
                if self._pass and next(self._pass, self) is self:
                    self._pass = None
        except (OSError, pa.ArrowException) as error:
            self._pass = None
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._say(f"{self._name} cannot be thinned, and grows: {why}")

    def _thin(self) -> Generator[None, None, None]:
        """A pass, in steps."""
        self._beside.unlink(missing_ok=True)
        new = io.FileIO(self._beside, "x+")
        try:
            shutil.copymode(self._path, self._beside)
            with pa.OSFile(str(self._path)) as old:
                sections, oldest_ns = yield from self._rewritten(old, _Out(new, self._schema))
            os.fsync(new.fileno())
            self._check_place()
            os.replace(self._beside, self._path)
            self._file.close()
            self._file, self._sections, self._oldest_ns = new, sections, oldest_ns
            self._whole_bytes = new.tell()
        finally:
            if self._file is not new:
                new.close()
                self._beside.unlink(missing_ok=True)

    def _rewritten(self, old: pa.OSFile, out: _Out) -> Generator[None, None, tuple[list[_Section], int]]:
        """Write all sections anew; where they are then, and when what is left in the finest begins (0: not known)."""
        begins, read = [section.begin for section in self._sections], self._whole_bytes
        ends, cuts, sections = [*begins[1:], read], list[int](), list[_Section]()
        newest_ns, oldest_ns, edges_ns = self._newest_ns, 0, list[int]()
        for begin, end, tier in zip(begins, ends, self._tiers, strict=True):
            cut, oldest_ns = yield from self._cut(old, begin, end, tier, newest_ns, edges_ns)
            cuts.append(cut)
        out.add((yield from self._carried(old, begins[0], cuts[0])))
        out.flush()
        for k, (section, tier) in enumerate(zip(self._sections, self._tiers, strict=True)):
            here, out.longest_ns = out.at, (tier.span_ns or FOREVER_NS) // BATCHES_A_SPAN
            yield from _copied(old, out, cuts[k], section.tail)
            if tier.period_ns:
                for stored in self._stored(old, max(cuts[k], section.tail), ends[k]):
                    edges_ns += region_edges_ns(stored.batch)
            thinner = Thinner(self._schema, self._opened, tier.period_ns, edges_ns) if tier.period_ns else None
            for stored in self._stored(old, max(cuts[k], section.tail), ends[k]):
                out.add(thinner.add(stored.batch)) if thinner else out.take(old, stored)
                yield
            if thinner:
                for stored in self._stored(old, begins[k + 1], cuts[k + 1]):
                    out.add(thinner.add(stored.batch))
                    yield
                out.add(thinner.rest())
            out.flush()
            sections.append(_Section(here, max(here, out.tail)))
        while read < self._whole_bytes:  # what has come meanwhile
            end = self._whole_bytes
            yield from _copied(old, out, read, end)
            read = end
        return sections, oldest_ns

    def _cut(
        self, old: pa.OSFile, begin: int, end: int, tier: Tier, newest_ns: int, edges_ns: list[int]
    ) -> Generator[None, None, tuple[int, int]]:
        """Where what is young enough for a tier begins in its section, and when that was (0: there is none). Takes
        down the edges of regions up to there, and in the batch after it."""
        if tier.span_ns is None:
            return begin, 0
        for stored in self._stored(old, begin, end):
            start_ns, end_ns = _times(stored.batch)
            edges_ns += region_edges_ns(stored.batch)
            # further away than its span, wherever: what is of a future was recorded before the clock was set back
            if abs(newest_ns - end_ns) < tier.span_ns:
                return stored.begin, start_ns
            yield
        return end, 0

    def _carried(self, old: pa.OSFile, begin: int, end: int) -> Generator[None, None, pa.RecordBatch]:
        """What must outlast the batches that go away, and may not be forgotten with them."""
        carried = Carried(self._schema)
        for stored in self._stored(old, begin, end):
            carried.add(stored.batch)
            yield
        return carried.batch()

    def _stored(self, old: pa.OSFile, begin: int, end: int) -> Iterator[_Stored]:
        """The batches between two places of the file."""
        while begin < end:
            old.seek(begin)
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(old), self._schema)
            after = old.tell()
            yield _Stored(batch, begin, after)
            begin = after


@dataclass(frozen=True)
class _Stored:
    """A batch, and where in the file it begins and ends."""

    batch: pa.RecordBatch
    begin: int
    end: int


class _Out:
    """Appends to a file: the schema at first, bytes as they are, and batches, neighbours joined up to BATCH_ROWS and
    `longest_ns`."""

    def __init__(self, file: io.FileIO, schema: pa.Schema) -> None:
        self._file = file
        self._held: list[pa.RecordBatch] = []
        self._from_ns, self.longest_ns = 0, FOREVER_NS
        self.at = self.tail = 0
        """Where it ends, and where its last batch begins."""
        self.copy(_header(schema))

    def copy(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.at += len(data)

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

    def take(self, old: pa.OSFile, stored: _Stored) -> None:
        """Take the next batch, to be joined if it is small; else as it is, which is many times as fast."""
        if 2 * stored.batch.num_rows <= BATCH_ROWS:
            self.add(stored.batch)
            return
        self.flush()
        self.tail = self.at
        self.copy(_bytes(old, stored.begin, stored.end))

    def flush(self) -> None:
        held, self._held = self._held, []
        if held:
            for batch in pa.Table.from_batches(held).combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
                self.tail = self.at
                self.copy(_encoded(batch))


def _header(schema: pa.Schema) -> bytes:
    """What comes before the first batch."""
    memory = io.BytesIO()
    pa.ipc.new_stream(memory, schema, options=OPTIONS).close()
    return memory.getvalue()[: -len(END_MARK)]


def _encoded(batch: pa.RecordBatch) -> bytes:
    """As it stands in a stream."""
    memory = io.BytesIO()
    with pa.ipc.new_stream(memory, batch.schema, options=OPTIONS) as stream:
        stream.write_batch(batch)
    return memory.getvalue()[len(_header(batch.schema)) : -len(END_MARK)]


def _copied(old: pa.OSFile, out: _Out, begin: int, end: int) -> Iterator[None]:
    """Copy the bytes between two places (none if they are the wrong way round), in steps."""
    while begin < end:
        data = _bytes(old, begin, min(end, begin + CHUNK_BYTES))
        out.copy(data)
        begin += len(data)
        yield


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
