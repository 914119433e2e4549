"""Thinning: consecutive samples of a recording made one longer sample, batch by batch, in bounded memory.

Counters are summed (those that are rates, and NVML's readings, are averaged over time), so the mean of any window of
whole rows stays what it was; beside them each metric's least and most value among the samples is kept. A row holds the
samples that begin within one period (on multiples of it since the epoch). It ends earlier where the next sample does
not join to the nanosecond, lacks or has a value that the others do not, or begins before an earlier one ended: so what
was covered, and what was not, stays told as it was. At the edge of a region it ends, too, and the sample that lies
across the edge is left alone, so that means of regions stay what they were. What was thinned can be thinned again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from .arrow_file import numbers, valid
from .outline import REGION_BEGIN, REGION_END, forward
from .samples import Floats, Ints
from .sources import Opened

READINGS = ("sm_mhz", "power_w")
LEAST, MOST = ".min", ".max"
REGION_MARKS = (REGION_BEGIN, REGION_END)


def extremes_of(opened: Sequence[Opened]) -> tuple[str, ...]:
    """The columns that longer samples have beside their counters: two for each metric of any of the GPUs."""
    labels = dict.fromkeys(metric.label for o in opened for metric in o.metrics.metrics if not metric.absent)
    return tuple(label + end for label in labels for end in (LEAST, MOST))


@dataclass(frozen=True)
class _Rows:
    """Of one GPU: `values` (columns, n) in the schema's order, NaN for null; `place` (n,): where in its batch the
    last sample of each was, -1 for before it."""

    place: NDArray[np.intp]
    start_ns: Ints
    end_ns: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.place)

    def __getitem__(self, rows: slice) -> _Rows:
        return _Rows(self.place[rows], self.start_ns[rows], self.end_ns[rows], self.values[:, rows])

    @staticmethod
    def join(parts: Sequence[_Rows]) -> _Rows:
        place, start_ns, end_ns = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("place", "start_ns", "end_ns")
        )
        return _Rows(place, start_ns, end_ns, np.concatenate([part.values for part in parts], axis=1))


class Thinner:
    """Makes samples of `period_ns` of the batches that come in file order; events stay as they are, in their place.

    `edges_ns` are times that a sample of several must not lie across.
    """

    def __init__(
        self, schema: pa.Schema, opened: Sequence[Opened], period_ns: int, edges_ns: Sequence[int] = ()
    ) -> None:
        self._schema, self._names = schema, [name for name in schema.names if str(schema.field(name).type) == "float"]
        edges = np.array(sorted(edges_ns), np.int64)
        self._gpus = [_Gpu(o, self._names, period_ns, edges) for o in opened]

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are complete with this batch."""
        device, start_ns, end_ns = (numbers(batch.column(name)) for name in ("device", "start_ns", "end_ns"))
        values = np.stack([numbers(batch.column(name)) for name in self._names]).astype(np.float64)
        is_event = valid(batch.column("event"))
        found = []
        for gpu in self._gpus:
            at = np.flatnonzero((device == gpu.ordinal) & ~is_event)
            if len(at):
                rows = gpu.add(_Rows(at, start_ns[at], end_ns[at], values[:, at]))
                found.append((np.full(len(rows), gpu.ordinal, np.uint16), rows))
        at = np.flatnonzero(is_event)
        found.append((device[at], _Rows(at, start_ns[at], end_ns[at], values[:, at])))
        return self._batch(found, batch.column("event"))

    def rest(self) -> pa.RecordBatch:
        """The rows that wait for more samples."""
        found = [(np.full(len(rows), gpu.ordinal, np.uint16), rows) for gpu in self._gpus for rows in gpu.rest()]
        return self._batch(found, pa.nulls(0, pa.string()))

    def _batch(self, found: Sequence[tuple[NDArray[np.uint16], _Rows]], events: pa.Array) -> pa.RecordBatch:
        """In the order in which their last samples came."""
        if not found:
            return empty(self._schema)
        rows = _Rows.join([rows for _, rows in found])
        order = np.argsort(rows.place, kind="stable")
        device = np.concatenate([device for device, _ in found])[order]
        texts = np.where(rows.place[order] < 0, len(events), rows.place[order])
        of_values = rows.values[:, order].astype(np.float32)
        columns = {
            "device": pa.array(device),
            "start_ns": pa.array(rows.start_ns[order]),
            "end_ns": pa.array(rows.end_ns[order]),
            **{name: pa.array(column, from_pandas=True) for name, column in zip(self._names, of_values, strict=True)},
            # the last sample of a row has no event, so what is taken from its place is null
            "event": pa.concat_arrays([events, pa.nulls(1, pa.string())]).take(pa.array(texts)),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def region_edges_ns(batch: pa.RecordBatch) -> list[int]:
    """When regions begin and end, by the events of a batch."""
    at = np.flatnonzero(valid(batch.column("event"))).tolist()
    kinds = [json.loads(batch.column("event")[k].as_py())["event"] for k in at]
    return [batch.column("start_ns")[k].as_py() for k, kind in zip(at, kinds, strict=True) if kind in REGION_MARKS]


class Carried:
    """What of batches that go away must stay, at the time at which they ended: the regions that were open then, and
    the `reasons` of each GPU, which hold until the next."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._end_ns = schema, 0
        self._open: dict[str, list[tuple[int, str]]] = {}
        self._reasons: dict[int, str] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        is_event = valid(batch.column("event"))
        ends_ns = numbers(batch.column("end_ns"))
        self._end_ns = int(ends_ns[is_event if is_event.all() else ~is_event].max())
        for at in np.flatnonzero(is_event).tolist():
            self._note(batch.column("device")[at].as_py(), batch.column("event")[at].as_py())

    def batch(self) -> pa.RecordBatch:
        """The events."""
        events = [*self._reasons.items(), *(event for events in self._open.values() for event in events)]
        columns = {
            "device": pa.array([device for device, _ in events], pa.uint16()),
            "start_ns": pa.array([self._end_ns] * len(events), pa.int64()),
            "end_ns": pa.array([self._end_ns] * len(events), pa.int64()),
            "event": pa.array([text for _, text in events], pa.string()),
        }
        nothing = {field.name: pa.nulls(len(events), field.type) for field in self._schema}
        return pa.RecordBatch.from_arrays([*{**nothing, **columns}.values()], schema=self._schema)

    def _note(self, device: int, text: str) -> None:
        event = json.loads(text)
        if event["event"] == "reasons":
            self._reasons[device] = text
        elif event["event"] == REGION_BEGIN:
            self._open.setdefault(str(event["name"]), []).append((device, text))
        elif event["event"] == REGION_END and self._open.get(str(event["name"])):
            self._open[str(event["name"])].pop()


class _Gpu:
    """Thins the samples of one GPU; holds back the row that may go on, and how far time has come."""

    def __init__(self, opened: Opened, names: Sequence[str], period_ns: int, edges_ns: Ints) -> None:
        self._edges_ns = edges_ns
        self.ordinal, self._period_ns, self._metrics = opened.device.ordinal, period_ns, opened.metrics
        self._counters = [names.index(name) for name in opened.metrics.counters]
        rates = {metric.counters[0] for metric in opened.metrics.metrics if metric.rate}
        self._averaged = np.array([name in rates or name in READINGS for name in names], bool)
        self._kept = [k for k, metric in enumerate(opened.metrics.metrics) if not metric.absent]
        labels = [opened.metrics.metrics[k].label for k in self._kept]
        self._least = [names.index(label + LEAST) for label in labels]
        self._most = [names.index(label + MOST) for label in labels]
        self._reached_ns, self._open, self._open_ahead = 0, list[_Rows](), True

    def add(self, rows: _Rows) -> _Rows:
        self._note_extremes(rows)
        ahead = forward(rows.start_ns, rows.end_ns, self._reached_ns)
        self._reached_ns = max(self._reached_ns, int(rows.end_ns[ahead].max(initial=0)))
        if self._open:
            rows, ahead = _Rows.join([*self._open, rows]), np.concatenate(([self._open_ahead], ahead))
        joined = self._joined(rows, ahead)
        last = joined[len(joined) - 1 :]
        self._open = [_Rows(np.array([-1]), last.start_ns, last.end_ns, last.values)]
        self._open_ahead = bool(ahead[-1])
        return joined[: len(joined) - 1]

    def rest(self) -> list[_Rows]:
        found, self._open = self._open, []
        return found

    def _note_extremes(self, rows: _Rows) -> None:
        """A sample that is none of several is its own least and most."""
        quotients = self._metrics.quotients(rows.values[self._counters].T, rows.end_ns - rows.start_ns).T[self._kept]
        rows.values[self._least] = np.fmin(rows.values[self._least], quotients)
        rows.values[self._most] = np.fmax(rows.values[self._most], quotients)

    def _joined(self, rows: _Rows, ahead: NDArray[np.bool_]) -> _Rows:
        begins, length_ns = self._begins(rows, ahead), rows.end_ns - rows.start_ns
        weights = np.where(self._averaged[:, None], length_ns, 1)
        values = np.add.reduceat(rows.values * weights, begins, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            values[self._averaged] /= np.add.reduceat(length_ns, begins)
        values[self._least] = np.fmin.reduceat(rows.values[self._least], begins, axis=1)
        values[self._most] = np.fmax.reduceat(rows.values[self._most], begins, axis=1)
        ends = np.append(begins[1:], len(rows)) - 1
        return _Rows(rows.place[ends], rows.start_ns[begins], rows.end_ns[ends], values)

    def _begins(self, rows: _Rows, ahead: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Where a row begins that does not go on with the one before."""
        known = np.isfinite(rows.values)
        bins = rows.start_ns // self._period_ns
        new = (rows.start_ns[1:] != rows.end_ns[:-1]) | (bins[1:] != bins[:-1]) | (ahead[1:] != ahead[:-1])
        before = np.searchsorted(self._edges_ns, rows.start_ns, "right")
        before += np.searchsorted(self._edges_ns, rows.end_ns, "left")  # odd for one that lies across an edge
        new |= before[1:] != before[:-1]
        new |= (known[:, 1:] != known[:, :-1]).any(axis=0)
        return np.concatenate(([0], np.flatnonzero(new) + 1)).astype(np.intp)
