"""The CSV: its header, its rows, and times that other programs read."""

from __future__ import annotations

import calendar
import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone as zone
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cufall_py.export.csv import CsvWriter, iso_time
from cufall_py.frames import Frame
from cufall_py.metrics import MetricSet
from cufall_py.sources import Opened
from tests.helpers import EPOCH, MS, SECOND, SM_ELAPSED, TENSOR, gpu, metric, tensor_set
from tests.scripted import ROOT

HEADER = (
    "time,start_ns,gpu,uuid,metric,mean,min,max,samples_expected,samples_got,coverage,sample_us,source,counters,asked"
)
NAN = float("nan")
SPRING = calendar.timegm((2026, 3, 29, 1, 0, 0)) * SECOND
"""When Berlin's clocks go from 02:00 to 03:00."""
AUTUMN = calendar.timegm((2026, 10, 25, 1, 0, 0)) * SECOND
"""When they go from 03:00 back to 02:00."""


def opened(ordinal: int, metrics: MetricSet | None = None) -> Opened:
    return Opened(gpu(ordinal), metrics or tensor_set(), 25 * MS, "time", "script")


def frame(start_ns: int = EPOCH) -> Frame:
    """Of two GPUs: the first three quarters measured, the second not at all."""
    return Frame(
        start_ns,
        100 * MS,
        mean=np.array([[0.25], [NAN]]),
        minimum=np.array([[0.125], [NAN]]),
        maximum=np.array([[0.5], [NAN]]),
        covered_ns=np.array([75.0 * MS, 0.0]),
        got=np.array([3, 0]),
        expected=np.array([4.0, NAN]),
    )


def written(*frames: Frame, gpus: list[Opened] | None = None) -> str:
    file = io.StringIO()
    writer = CsvWriter(file, gpus or [opened(0), opened(3)])
    for one in frames:
        writer.write(one)
    return file.getvalue()


def test_the_header_is_there_from_the_start() -> None:
    assert written() == HEADER + "\n"


def test_the_docs_tell_every_column_in_order_and_no_other() -> None:
    page = (ROOT / "docs" / "csv.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == HEADER.split(",")


def test_the_example_of_the_docs_runs() -> None:
    page = (ROOT / "docs" / "csv.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace('"run.csv"', "file"), {"file": io.StringIO(written(frame(), frame(EPOCH + 100 * MS)))}, names)
    assert names["means"][(0, "tensor")].tolist() == [0.25, 0.25]


def test_a_metric_that_a_gpu_does_not_have_is_a_row_without_counters() -> None:
    absent = replace(opened(3), metrics=tensor_set().without([TENSOR]))
    first, second = csv.DictReader(io.StringIO(written(frame(), gpus=[opened(0), absent])))
    assert (first["metric"], second["metric"]) == ("tensor", "tensor")
    assert (second["mean"], second["counters"]) == ("", "")
    assert first["counters"] == f"{TENSOR}/(4*{SM_ELAPSED})"


def test_a_frame_is_a_row_a_gpu(timezone: Callable[[str], None]) -> None:
    timezone("UTC")
    first, second = written(frame()).splitlines()[1:]
    # 1,796,000,000 s after the epoch
    assert first == (
        "2026-11-30T00:53:20.000000000+00:00,1796000000000000000,0,GPU-00000000-0000-0000-0000-000000000000,"
        f"tensor,0.25,0.125,0.5,4,3,0.75,25000,script,{TENSOR}/(4*{SM_ELAPSED}),tensor"
    )
    assert second.startswith("2026-11-30T00:53:20.000000000+00:00,1796000000000000000,3,GPU-00000003-")


def test_not_measured_is_empty_and_never_zero() -> None:
    row = list(csv.DictReader(io.StringIO(written(frame()))))[1]
    empty = [name for name, value in row.items() if value == ""]
    assert empty == ["mean", "min", "max", "samples_expected", "sample_us"]
    assert (row["samples_got"], row["coverage"]) == ("0", "0")


def test_several_metrics_are_rows_of_their_own() -> None:
    two = MetricSet((TENSOR, SM_ELAPSED), (metric("tensor"), metric("sm")))
    wide = replace(frame(), mean=np.array([[0.25, 0.75]]), minimum=np.array([[0, 0.5]]), maximum=np.array([[1, 1.0]]))
    rows = list(csv.DictReader(io.StringIO(written(wide, gpus=[opened(0, two)]))))
    read = [(row["metric"], row["mean"], row["min"]) for row in rows]
    assert read == [("tensor", "0.25", "0"), ("sm", "0.75", "0.5")]


def test_what_was_asked_for_and_what_was_read_are_both_told() -> None:
    pair = f"{TENSOR}/gr__cycles_elapsed.max"
    asked = MetricSet((TENSOR, SM_ELAPSED), (replace(metric(), asked=pair),))
    row = next(csv.DictReader(io.StringIO(written(frame(), gpus=[opened(0, asked)] * 2))))
    assert (row["asked"], row["counters"]) == (pair, f"{TENSOR}/(4*{SM_ELAPSED})")


@pytest.mark.parametrize(
    ("start_ns", "text"),
    [
        (SPRING - SECOND, "2026-03-29T01:59:59.000000000+01:00"),
        (SPRING, "2026-03-29T03:00:00.000000000+02:00"),
        (AUTUMN - 1, "2026-10-25T02:59:59.999999999+02:00"),
        (AUTUMN, "2026-10-25T02:00:00.000000000+01:00"),
        (AUTUMN + 50_001_000, "2026-10-25T02:00:00.050001000+01:00"),
    ],
)
def test_times_keep_their_offset_over_a_change_of_clocks(
    timezone: Callable[[str], None], start_ns: int, text: str
) -> None:
    timezone("Europe/Berlin")
    assert iso_time(start_ns) == text


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC", "America/St_Johns", "Asia/Kathmandu"])
def test_python_reads_the_times_back(timezone: Callable[[str], None], name: str) -> None:
    timezone(name)
    for change in (SPRING, AUTUMN):
        for start_ns in range(change - 2 * SECOND, change + 2 * SECOND, 50 * MS):
            text = iso_time(start_ns)
            # datetime knows microseconds; before Python 3.11 it reads no more digits than those
            read = datetime.fromisoformat(re.sub(r"(\.\d{6})\d{3}", r"\1", text))
            assert read.utcoffset() is not None
            assert read == datetime.fromtimestamp(start_ns // SECOND, zone.utc).replace(
                microsecond=start_ns % SECOND // 1000
            )


def test_pandas_reads_the_times_back_over_both_changes_of_clocks(timezone: Callable[[str], None]) -> None:
    timezone("Europe/Berlin")
    starts = [change + k * 100 * MS for change in (SPRING, AUTUMN) for k in range(-20, 20)]
    table = pd.read_csv(io.StringIO(written(*map(frame, starts))))
    table = table[table["gpu"] == 0]
    assert table["start_ns"].tolist() == starts
    read = pd.to_datetime(table["time"], utc=True, format="ISO8601")
    assert read.dt.as_unit("ns").astype("int64").tolist() == starts
    assert table["mean"].tolist() == [0.25] * len(starts)


def test_pandas_takes_what_was_not_measured_as_missing() -> None:
    table = pd.read_csv(io.StringIO(written(frame())))
    assert table["mean"].isna().tolist() == [False, True]
