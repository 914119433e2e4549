"""Reading a recording: batch by batch, so that a file may be larger than memory.

The file's layout is told in recording.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from .arrow_file import END_MARK, NUMBERS, numbers, valid
from .errors import CufallError
from .keep import Keep, from_json
from .outline import Event as Event, Outline, Region, Times, outline
from .plan import Plan
from .recording import METADATA_KEY, NO_DEVICE, SCHEMA
from .samples import Floats, Samples
from .sources import Opened
from .thinning import LEAST, MOST, READINGS

Columns = dict[str, NDArray[Any]]
Found = TypeVar("Found")
WITHOUT_COUNTERS = ("device", "start_ns", "end_ns", "event")


@dataclass(frozen=True)
class Rows:
    """Samples of the GPU at position `gpu`; `sm_mhz` and `power_w` (n,) as NVML read last, NaN if never."""

    gpu: int
    samples: Samples
    sm_mhz: Floats
    power_w: Floats

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> Rows:
        return Rows(self.gpu, self.samples[rows], self.sm_mhz[rows], self.power_w[rows])

    def steps(self) -> list[int]:
        """The first row and those with other readings than the one before; two NaN are the same."""
        read = np.stack((self.sm_mhz, self.power_w), axis=1)
        same = (read[1:] == read[:-1]) | (np.isnan(read[1:]) & np.isnan(read[:-1]))
        found: list[int] = np.flatnonzero(~same.all(axis=1)).tolist()
        return [0, *(row + 1 for row in found)]


class Recording:
    """A `.cufall` file. `opened` and `plan` are what it was recorded with, `versions` by what.

    `keep` is what it was thinned by (keep.py), empty if it was not: then samples are longer where they are old.

    `whole` is False for one that was cut (or is still being written): every complete batch is read, and
    `say` gets one line about it. Positions of GPUs are those in `opened`.

    Raises CufallError for a file that cannot be read, is no recording or is of a newer version.
    """

    def __init__(self, path: str | Path, say: Callable[[str], None] = lambda line: None) -> None:
        self._path, self._say, self.whole = Path(path), say, True
        ended = _ends_with(self._path, END_MARK)
        schema, document = _head(self._path)
        self._names: list[str] = schema.names
        try:
            self.opened = [Opened.from_json(gpu) for gpu in document["gpus"]]
            self.plan = Plan.from_json(document["plan"])
            self.versions: dict[str, str] = document["versions"]
            self.keep: Keep = from_json(document.get("keep", ()))
            _check_columns(schema, self.opened)
            self._names.index("event")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CufallError(f"{path}: its head cannot be understood ({type(error).__name__}: {error})") from None
        self._position = {o.device.ordinal: k for k, o in enumerate(self.opened)}
        if not ended:
            self._report_cut()

    def items(self) -> Iterator[Rows | Event]:
        """Everything, in file order; between two events the rows of a batch come GPU by GPU."""
        return self._items(self._names, self._rows)

    def batches(self) -> Iterator[tuple[int, Samples]]:
        """The samples alone, with the position of the GPU they are of."""
        return ((item.gpu, item.samples) for item in self.items() if isinstance(item, Rows))

    def rows(self) -> Iterator[Rows]:
        """The samples with NVML's readings, GPU by GPU of a whole batch: no event parts them."""
        for batch in self._batches(self._names):
            columns = {name: numbers(batch.column(name)) for name in self._names if name != "event"}
            columns["device"] = np.where(valid(batch.column("event")), NO_DEVICE, columns["device"])
            yield from self._rows(columns, 0, batch.num_rows)

    def events(self) -> Iterator[Event]:
        """The events alone; counters are not even decompressed."""
        for batch in self._batches(WITHOUT_COUNTERS):
            for at in _event_rows(batch):
                yield self._event(batch, at)

    def outline(self) -> Outline:
        """How much there is of each GPU, when, and the regions; reads the file once, without its counters."""
        return outline(self._items(WITHOUT_COUNTERS, self._times), len(self.opened))

    def regions(self) -> dict[str, list[Region]]:
        """Each named region's times, oldest first; one that was still open ends with the recording."""
        return self.outline().regions

    def _items(
        self, names: Sequence[str], rows: Callable[[Columns, int, int], Iterator[Found]]
    ) -> Iterator[Found | Event]:
        for batch in self._batches(names):
            columns = {name: numbers(batch.column(name)) for name in names if name != "event"}
            begin = 0
            for at in _event_rows(batch):
                yield from rows(columns, begin, at)
                yield self._event(batch, at)
                begin = at + 1
            yield from rows(columns, begin, batch.num_rows)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = pa.ipc.IpcReadOptions(included_fields=[self._names.index(name) for name in names])
        try:
            with open(self._path, "rb") as source:
                for batch in pa.ipc.open_stream(source, options=wanted):
                    batch.validate()
                    yield batch
        except (pa.ArrowException, OSError, MemoryError):  # a body shorter than its head says, or longer than any is
            self._report_cut()

    def _rows(self, columns: Columns, begin: int, end: int) -> Iterator[Rows]:
        names = [name for name in columns if name not in WITHOUT_COUNTERS]
        values = np.empty((len(names), end - begin))
        for k, name in enumerate(names):
            values[k] = columns[name][begin:end]
        start_ns, end_ns = columns["start_ns"][begin:end], columns["end_ns"][begin:end]
        for gpu, rows in self._rows_by_gpu(columns, begin, end):
            at = rows - begin
            of_gpu = values[:, at]
            places = [names.index(name) for name in self.opened[gpu].metrics.counters]
            readings = (of_gpu[names.index(name)] for name in READINGS)
            extremes = (self._extremes(gpu, names, of_gpu, end) for end in (LEAST, MOST))
            yield Rows(gpu, Samples(start_ns[at], end_ns[at], of_gpu[places].T, *extremes), *readings)

    def _extremes(self, gpu: int, names: Sequence[str], of_gpu: Floats, end: str) -> Floats | None:
        """(n, metrics) of what was kept of longer samples; None if there are none here."""
        if not self.keep:
            return None
        labels = [metric.label for metric in self.opened[gpu].metrics.metrics]
        nothing = np.full(of_gpu.shape[1], np.nan)
        found = [of_gpu[names.index(label + end)] if label + end in names else nothing for label in labels]
        out: Floats = np.stack(found, axis=1)
        return None if np.isnan(out).all() else out

    def _times(self, columns: Columns, begin: int, end: int) -> Iterator[Times]:
        for gpu, rows in self._rows_by_gpu(columns, begin, end):
            yield Times(gpu, columns["start_ns"][rows], columns["end_ns"][rows])

    def _rows_by_gpu(self, columns: Columns, begin: int, end: int) -> Iterator[tuple[int, NDArray[np.intp]]]:
        for gpu, opened in enumerate(self.opened):
            rows = begin + np.flatnonzero(columns["device"][begin:end] == opened.device.ordinal)
            if len(rows):
                yield gpu, rows

    def _event(self, batch: pa.RecordBatch, at: int) -> Event:
        device, start_ns, end_ns = (batch.column(name)[at].as_py() for name in ("device", "start_ns", "end_ns"))
        try:
            fields = json.loads(batch.column("event")[at].as_py())
            kind = fields.pop("event")
        except (ValueError, LookupError, AttributeError):
            self._report_cut()
            kind, fields = "damaged", {}
        return Event(kind, self._position.get(device), start_ns, end_ns, fields)

    def _report_cut(self) -> None:
        if self.whole:
            self._say(f"{self._path} is not whole (cut short or damaged): read up to its last complete batch")
        self.whole = False


def _head(path: Path) -> tuple[pa.Schema, dict[str, Any]]:
    """The schema, and the document in its metadata."""
    try:
        with open(path, "rb") as source:
            schema = pa.ipc.open_stream(source).schema
        document: dict[str, Any] = json.loads((schema.metadata or {})[METADATA_KEY])
        version = int(document["schema"])
        schema.names  # noqa: B018  (damaged ones are found out when they are read)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        raise CufallError(f"{path} is no recording, or was cut before its first row") from None
    if version > SCHEMA:
        raise CufallError(f"{path} is of version {version}, this cufall reads up to {SCHEMA}; update cufall-py")
    return schema, document


def _check_columns(schema: pa.Schema, opened: Sequence[Opened]) -> None:
    """Raises KeyError for a column that is missing or of another type than the layout says."""
    counters = [name for o in opened for name in o.metrics.counters]
    for name in ("device", "start_ns", "end_ns", *counters, *READINGS):
        NUMBERS[str(schema.field(name).type)]


def _ends_with(path: Path, mark: bytes) -> bool:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise CufallError(f"{path} cannot be read: it is no file, and a recording is read more than once")
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(mark)))
            return file.read() == mark
    except OSError as error:
        raise CufallError(f"{path} cannot be read: {error.strerror or error}") from None


def _event_rows(batch: pa.RecordBatch) -> list[int]:
    rows: list[int] = np.flatnonzero(valid(batch.column("event"))).tolist()
    return rows
