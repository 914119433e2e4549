"""Frames of a recording with what its inference servers did meanwhile, as a table of pandas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .engines.columns import columns
from .served import FrameTable, Log, frame_table, logs

SERVED = ("running", "generation_tokens_per_s", "prompt_tokens_per_s")


def table(path: str | Path) -> pd.DataFrame:
    """A row a frame, GPU and server on it: `time` (UTC), `gpu` (CUDA ordinal), a column a metric, `coverage` (0..1).

    Where there are servers also `server` (URL), and SERVED of the interval between two scrapes that holds all of the
    frame; NaN where that is not known."""
    frames, _ = frame_table(path)
    found = logs(path)
    places = [(k, log) for k, gpu in enumerate(frames.gpus) for log in _on(gpu, found)]
    parts = [_of_gpu(frames, k).assign(**(_served(frames, log) if found else {})) for k, log in places]
    return pd.concat(parts).sort_values(["time", "gpu"], kind="stable", ignore_index=True)


def _on(gpu: int, found: Sequence[Log]) -> Sequence[Log | None]:
    """The servers on a GPU; None where there is none."""
    return [log for log in found if gpu in log.gpus] or [None]


def _of_gpu(frames: FrameTable, k: int) -> pd.DataFrame:
    values: dict[str, object] = {
        "time": pd.to_datetime(frames.start_ns, utc=True),
        "gpu": frames.gpus[k],
        **{label: frames.mean[:, k, j] for j, label in enumerate(frames.labels)},
        "coverage": frames.covered_ns[:, k] / (frames.end_ns - frames.start_ns),
    }
    return pd.DataFrame(values)


def _served(frames: FrameTable, log: Log | None) -> dict[str, Any]:
    url = log.url if log else None
    if log is None or not log.intervals:
        return {"server": url, **dict.fromkeys(SERVED, np.nan)}
    scrapes = columns(log.intervals)
    at = np.searchsorted(scrapes.start_ns, frames.start_ns, side="right") - 1
    inside = (at >= 0) & (frames.end_ns <= scrapes.end_ns[at])
    seconds = (scrapes.end_ns - scrapes.start_ns) / 1e9
    steady = np.where(scrapes.running[:, 0] == scrapes.running[:, 1], scrapes.running[:, 0], np.nan)
    figures = (steady, scrapes.generation / seconds, scrapes.prompt / seconds)
    told = {name: np.where(inside, values[at], np.nan) for name, values in zip(SERVED, figures, strict=True)}
    return {"server": url, **told}
