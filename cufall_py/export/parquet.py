"""Samples as Parquet: a row a sample, its counters and the metrics made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from cufall_py.analysis.windows import Windows
from cufall_py.recording_reader import Rows
from cufall_py.sources import Opened
from cufall_py.spans import Span

GROUP_ROWS = 131_072
"""Rows of a row group: as many as readers like, and few enough to hold."""


class ParquetWriter:
    """Writes rows as they come to `file`. A context manager; `part`: the stretches whose whole samples are wanted.

    Columns: `gpu` (uint16), `start_ns`, `end_ns` (int64), a float32 a counter, `sm_mhz`, `power_w`, and a float64 a
    metric, called `ratio.` and its label: the sample's own quotient, null where there is none. Of a recording that
    was `thinned` also `ratio.`, the label and `.min` or `.max`: the extremes of the samples that a longer one is made
    of.
    """

    def __init__(
        self, file: BinaryIO, opened: Sequence[Opened], part: Sequence[Span] | None = None, thinned: bool = False
    ) -> None:
        self._thinned = thinned
        self._opened, self._windows = opened, None if part is None else Windows(part)
        self._counters = list(dict.fromkeys(name for o in opened for name in o.metrics.counters))
        self._labels = [metric.label for metric in opened[0].metrics.metrics]
        numbers = [(name, pa.float32()) for name in (*self._counters, "sm_mhz", "power_w")]
        ends = ("", ".min", ".max") if thinned else ("",)
        ratios = [(f"ratio.{label}{end}", pa.float64()) for end in ends for label in self._labels]
        times = [("gpu", pa.uint16()), ("start_ns", pa.int64()), ("end_ns", pa.int64())]
        self._schema = pa.schema([*times, *numbers, *ratios])
        self._held: list[pa.RecordBatch] = []
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: Rows) -> None:
        """Take the next samples."""
        batch = self._batch(rows)
        if batch.num_rows:
            self._held.append(batch)
        if sum(held.num_rows for held in self._held) >= GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _flush(self) -> None:
        held, self._held = self._held, []
        if held:
            self._writer.write_table(pa.Table.from_batches(held), row_group_size=GROUP_ROWS)

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        samples, sm_mhz, power_w = rows.samples, rows.sm_mhz, rows.power_w
        if self._windows:
            length_ns = samples.end_ns - samples.start_ns
            inside = self._windows.overlap_ns(samples.start_ns, samples.end_ns) == length_ns
            samples, sm_mhz, power_w = samples[inside], sm_mhz[inside], power_w[inside]
        opened = self._opened[rows.gpu]
        quotients = opened.metrics.quotients(samples.values, samples.end_ns - samples.start_ns)
        extremes = samples.extremes(quotients) if self._thinned else ()
        values = dict(zip(opened.metrics.counters, samples.values.T, strict=True))
        nothing = np.full(len(samples), np.nan)
        numbers = [*(values.get(name, nothing) for name in self._counters), sm_mhz, power_w]
        columns = [
            pa.array(np.full(len(samples), opened.device.ordinal, np.uint16)),
            pa.array(samples.start_ns),
            pa.array(samples.end_ns),
            *(pa.array(np.ascontiguousarray(column, np.float32), from_pandas=True) for column in numbers),
            *(
                pa.array(np.ascontiguousarray(column), from_pandas=True)
                for of in (quotients, *extremes)
                for column in of.T
            ),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
