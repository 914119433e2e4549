"""Reading a recording: batch by batch, so that a file may be larger than memory.

The file's layout is told in recording.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from .arrow_file import END_MARK, NUMBERS, joined, numbers, valid
from .errors import CufallError
from .keep import Keep, from_json
from .outline import Event, Outline, Region, Times, outline
from .plan import Plan
from .recording_layout import METADATA_KEY, NO_DEVICE, SCHEMA
from .rotation import Turn
from .samples import Floats, Samples
from .saying import Say
from .sources import Opened
from .thinning import LEAST, MOST, READINGS

Columns = dict[str, NDArray[Any]]
Found = TypeVar("Found")
MOST_AT_ONCE = 12_000
"""Rows of a GPU that are handled at once where it does not matter which batch they lie in: enough that numpy's calls
cost little, few enough that a column stays in the processor's cache."""
LONGEST_NS = 7 * 86_400 * 1_000_000_000
"""Of a sample as a source gives it, with room to spare; a thinned one may be as long as its tier has it."""
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

    `turn` is which set of a rotation it is (rotation.py), None for one that is of none.

    `whole` is False for one that was cut (or is still being written): every complete batch is read, and
    `say` gets one line about it. Positions of GPUs are those in `opened`.

    Raises CufallError for a file that cannot be read, is no recording or is of a newer version.
    """

    def __init__(self, path: str | Path, say: Say = lambda line: None) -> None:
        self._path, self._say, self.whole = Path(path), say, True
        ended = _ends_with(self._path, END_MARK)
        schema, document = _head(self._path)
        self._names: list[str] = schema.names
        try:
            self.opened = [Opened.from_json(gpu) for gpu in document["gpus"]]
            self.plan = Plan.from_json(document["plan"])
            self.versions: dict[str, str] = document["versions"]
            self.keep: Keep = from_json(document.get("keep", ()))
            self.turn = Turn.from_json(document["rotation"]) if "rotation" in document else None
            _check_columns(schema, self.opened)
            self._names.index("event")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CufallError(f"{path}: its head cannot be understood ({type(error).__name__}: {error})") from None
        self._ordinals = [o.device.ordinal for o in self.opened]
        self._position = {ordinal: k for k, ordinal in enumerate(self._ordinals)}
        if not ended:
            self._report_cut()

    def items(self) -> Iterator[Rows | Event]:
        """Everything, in file order; between two events the rows of a batch come GPU by GPU."""
        return _ahead(self._items(batch, self._names, self._rows) for batch in self._batches(self._names))

    def batches(self) -> Iterator[tuple[int, Samples]]:
        """The samples alone, with the position of the GPU they are of."""
        return ((item.gpu, item.samples) for item in self.items() if isinstance(item, Rows))

    def rows(self) -> Iterator[Rows]:
        """The samples with NVML's readings, many at once, GPU by GPU: neither batch nor event parts them."""
        return _ahead(map(self._all_rows, self._joined(self._names)))

    def events(self) -> Iterator[Event]:
        """The events alone; counters are not even decompressed."""
        for batch in self._batches(WITHOUT_COUNTERS):
            yield from (self._event(batch, at) for at in _event_rows(batch))

    def outline(self) -> Outline:
        """How much there is of each GPU, when, and the regions; reads the file once, without its counters."""
        batches = self._joined(WITHOUT_COUNTERS)
        items = _ahead(self._items(batch, WITHOUT_COUNTERS, self._times) for batch in batches)
        return outline(items, len(self.opened))

    def regions(self) -> dict[str, list[Region]]:
        """Each named region's times, oldest first; one that was still open ends with the recording."""
        return self.outline().regions

    def _items(
        self,
        batch: pa.RecordBatch,
        names: Sequence[str],
        rows: Callable[[Columns, int, int], Iterator[Found]],
    ) -> list[Found | Event]:
        columns = {name: numbers(batch.column(name)) for name in names if name != "event"}
        found, begin = list[Found | Event](), 0
        for at in _event_rows(batch):
            found += rows(columns, begin, at)
            found.append(self._event(batch, at))
            begin = at + 1
        return [*found, *rows(columns, begin, batch.num_rows)]

    def _all_rows(self, batch: pa.RecordBatch) -> list[Rows]:
        columns = {name: numbers(batch.column(name)) for name in self._names if name != "event"}
        columns["device"] = np.where(valid(batch.column("event")), NO_DEVICE, columns["device"])
        return [*self._rows(columns, 0, batch.num_rows)]

    def _joined(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return joined(self._batches(names), MOST_AT_ONCE * len(self.opened))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # threads of Arrow's own take half as much again of processor time for batches this small, and no less time
        places = [self._names.index(name) for name in names]
        longest_ns = max(LONGEST_NS, *(2 * tier.period_ns for tier in self.keep), 0)
        wanted = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        try:
            with open(self._path, "rb") as source:
                for batch in pa.ipc.open_stream(source, options=wanted):
                    batch.validate()
                    _check_times(batch, longest_ns)
                    yield batch
        except (pa.ArrowException, OSError, MemoryError):  # a body shorter than its head says, or longer than any is
            self._report_cut()

    def _rows(self, columns: Columns, begin: int, end: int) -> Iterator[Rows]:
        for gpu, rows in self._rows_by_gpu(columns, begin, end):
            counters = self.opened[gpu].metrics.counters
            values = np.empty((len(counters), len(rows)))
            for k, name in enumerate(counters):
                values[k] = columns[name].take(rows)
            start_ns, end_ns, *readings = (columns[name].take(rows) for name in ("start_ns", "end_ns", *READINGS))
            extremes = (self._extremes(gpu, columns, rows, end) for end in (LEAST, MOST)) if self.keep else ()
            samples = Samples(start_ns, end_ns, values.T, *extremes)
            yield Rows(gpu, samples, *(read.astype(np.float64) for read in readings))

    def _extremes(self, gpu: int, columns: Columns, rows: NDArray[np.intp], end: str) -> Floats | None:
        """(n, metrics) of what was kept of longer samples; None if there are none here."""
        labels = [metric.label for metric in self.opened[gpu].metrics.metrics]
        out = np.full((len(labels), len(rows)), np.nan)
        for k, label in enumerate(labels):
            if label + end in columns:
                out[k] = columns[label + end].take(rows)
        return None if np.isnan(out).all() else out.T

    def _times(self, columns: Columns, begin: int, end: int) -> Iterator[Times]:
        for gpu, rows in self._rows_by_gpu(columns, begin, end):
            yield Times(gpu, columns["start_ns"][rows], columns["end_ns"][rows])

    def _rows_by_gpu(self, columns: Columns, begin: int, end: int) -> Iterator[tuple[int, NDArray[np.intp]]]:
        device = columns["device"][begin:end]
        order = np.argsort(device, kind="stable")
        device = device[order]
        firsts, lasts = (np.searchsorted(device, self._ordinals, side).tolist() for side in ("left", "right"))
        for gpu, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
            if first < last:
                yield gpu, begin + order[first:last]

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


def _ahead(batches: Iterator[list[Found]]) -> Iterator[Found]:
    """What all hold, each decompressed and laid out in a thread of its own while the one before is used."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield from batch


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


def _check_times(batch: pa.RecordBatch, longest_ns: int) -> None:
    """Raises ArrowInvalid for a sample of a length that none has: what is made of it would be beyond all memory."""
    length_ns = numbers(batch.column("end_ns")) - numbers(batch.column("start_ns"))
    broken = (length_ns < 0) | (length_ns > longest_ns)
    if broken.any() and broken[~valid(batch.column("event"))].any():
        raise pa.ArrowInvalid("times out of order")


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
