"""The layout of a recording: `NAME.cufall`, an Arrow IPC stream (zstd) that any Arrow reader opens.

Columns: `device` uint16 (CUDA ordinal; NO_DEVICE for an event not of one GPU), `start_ns` and `end_ns`
int64 (Unix epoch), one float32 a counter of any of the GPUs (null where this one does not have it), in a file that is
thinned `<metric>.min` and `<metric>.max` float32 (of longer samples: the extremes of those that they are made of),
`sm_mhz` and `power_w` float32 (the last NVML readings before), `event` string (JSON; null on data rows).

What is known at the start is one JSON document in the schema's metadata, under METADATA_KEY; everything
learnt later is an event row: `said` (a line for a person), `clock`, `gap`, `region_begin`, `region_end` and
`other_turns` (outline.py), `reasons` (NVML's clock event bits, where they change), and at the close `cost`. The first
row is the event `start`, the last of a recording that was closed is `end`.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from . import __version__
from .arrow_file import array, text_array
from .keep import Keep, to_json
from .plan import Plan
from .rotation import Turn
from .samples import Ints
from .sources import Opened
from .thinning import LEAST, MOST

SCHEMA = 1
"""Version of the layout above; a reader refuses a newer one."""
METADATA_KEY = b"cufall"
NO_DEVICE = 65_535


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one device. `values` (n, counters and READINGS): NaN where there is none."""

    device: int
    start_ns: Ints
    end_ns: Ints
    values: NDArray[np.float32]
    event: str | None = None

    def __len__(self) -> int:
        return len(self.start_ns)


def counters_of(opened: Sequence[Opened]) -> tuple[str, ...]:
    """Every counter of any of the GPUs, once."""
    return tuple(dict.fromkeys(name for o in opened for name in o.metrics.counters))


def places_of_extremes(opened: Opened, columns: Sequence[str]) -> list[tuple[int, int, int]]:
    """Of each metric: its position, and the columns of its least and most."""
    return [
        (k, columns.index(metric.label + LEAST), columns.index(metric.label + MOST))
        for k, metric in enumerate(opened.metrics.metrics)
        if not metric.absent
    ]


def schema_of(columns: Sequence[str], opened: Sequence[Opened], plan: Plan, keep: Keep, turn: Turn | None) -> pa.Schema:
    """These columns between times and events, and all that is known at the start."""
    fields = [
        ("device", pa.uint16()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        *((name, pa.float32()) for name in columns),
        ("event", pa.string()),
    ]
    document = {
        "schema": SCHEMA,
        "versions": {"cufall": __version__, "python": platform.python_version(), "pyarrow": pa.__version__},
        "plan": plan.to_json(),
        "gpus": [o.to_json() for o in opened],
        **({"keep": to_json(keep)} if keep else {}),
        **({"rotation": turn.to_json()} if turn else {}),
    }
    return pa.schema(fields, metadata={METADATA_KEY: json.dumps(document)})


def table_of(pieces: Sequence[Piece], schema: pa.Schema) -> pa.Table:
    """The rows of these pieces (at least one), one after the other."""
    lengths = [len(piece) for piece in pieces]
    devices = np.array([piece.device for piece in pieces], np.uint16)
    # one contiguous row a column
    values = np.ascontiguousarray(np.concatenate([piece.values for piece in pieces]).T)
    columns = [
        array(np.repeat(devices, lengths)),
        array(np.concatenate([piece.start_ns for piece in pieces])),
        array(np.concatenate([piece.end_ns for piece in pieces])),
        *(array(column) for column in values),
        pa.concat_arrays([_event_column(piece) for piece in pieces]),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _event_column(piece: Piece) -> pa.Array:
    return pa.nulls(len(piece), pa.string()) if piece.event is None else text_array([piece.event])
