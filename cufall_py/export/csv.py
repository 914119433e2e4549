"""Frames as CSV: a row a frame, GPU and metric; empty where nothing was measured."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TextIO

from cufall_py.frames import Frame
from cufall_py.sources import Opened

HEADER = (
    "time",
    "start_ns",
    "gpu",
    "uuid",
    "metric",
    "mean",
    "min",
    "max",
    "samples_expected",
    "samples_got",
    "coverage",
    "sample_us",
    "source",
    "counters",
    "asked",
)


class CsvWriter:
    """Writes the header at once and a frame's rows when it comes. Ratios are 0..1. `gpus` may change with the turns of
    a rotation; `turn` is the one that is on, and stands beside the source.
    """

    def __init__(self, file: TextIO, gpus: Sequence[Opened]) -> None:
        self.gpus, self.turn = gpus, ""
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(HEADER)

    def write(self, frame: Frame) -> None:
        time = iso_time(frame.start_ns)
        for k, opened in enumerate(self.gpus):
            for j, metric in enumerate(opened.metrics.metrics):
                self._writer.writerow(
                    [
                        time,
                        frame.start_ns,
                        opened.device.ordinal,
                        opened.device.uuid,
                        metric.label,
                        _value(frame.mean[k, j]),
                        _value(frame.minimum[k, j]),
                        _value(frame.maximum[k, j]),
                        _value(frame.expected[k]),
                        int(frame.got[k]),
                        _value(frame.coverage[k]),
                        _value(frame.period_ns / frame.expected[k] / 1000),
                        f"{opened.source} {self.turn}".strip(),
                        metric.formula,
                        metric.asked,
                    ]
                )

    def write_figure(self, start_ns: int, name: str, value: float, source: str, metric: str) -> None:
        """A row of what a server (`source`, its address) did from then on, read from its metric: of no GPU."""
        mean_to_sample_us = (_value(value), *[""] * 6)
        self._writer.writerow([iso_time(start_ns), start_ns, "", "", name, *mean_to_sample_us, source, metric, name])


def iso_time(start_ns: int) -> str:
    """Local time with its offset, to the nanosecond."""
    seconds, rest = divmod(start_ns, 1_000_000_000)
    local = datetime.fromtimestamp(seconds, timezone.utc).astimezone()
    offset = local.strftime("%z")
    return f"{local:%Y-%m-%dT%H:%M:%S}.{rest:09d}{offset[:3]}:{offset[3:]}"


def _value(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.9g}"
