"""Writing a recording (recording_layout.py has what is in one, recording_reader.py reads it back)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from .arrow_file import BATCH_ROWS, ArrowFile
from .gaps import gaps
from .keep import Keep, check_periods
from .outline import OTHER_TURNS
from .plan import Plan
from .recording_layout import NO_DEVICE, Piece, counters_of, places_of_extremes, schema_of, table_of
from .rotation import Turn
from .samples import Samples
from .saying import Say
from .sources import Opened
from .thinning import READINGS, extremes_of

BATCH_NS = 1_000_000_000
"""A row waits at most this long for its batch to fill."""
CLOCK_NS = 10_000_000_000
"""How often the clocks are written down, for each GPU."""


class RecordingWriter:
    """Writes samples and events of the GPUs in `opened` to `path`, which it creates. A context manager.

    A batch of rows holds all GPUs and goes out when it has BATCH_ROWS rows (or would have more), or when
    its first row is BATCH_NS old, so a kill loses at most a second. With `live`, each GPU's newest
    `end_ns` is written beside `now_ns()` and `monotonic_ns()` every CLOCK_NS (event `clock`), and where
    samples are missing (event `gap`); leave them out where old samples are copied, which have theirs.

    With `keep` the file is thinned as it grows (kept_file.py), and `say` gets a line where that fails; `of_thinned` is
    what the recording was kept by that the samples come from. `turn` says which set of a rotation this is; until the
    first sample, and after each `pause`, what is missing is the others' (event `other_turns`) and no gap.

    Every method that can write raises CufallError when that fails; what was written before stays readable.
    So does the constructor, also when there is such a file already and no `force`; it raises UsageError for a `keep`
    that is not for samples of this length, or not for this place.
    """

    def __init__(
        self,
        path: str | Path,
        opened: Sequence[Opened],
        plan: Plan,
        *,
        force: bool = False,
        live: bool = True,
        keep: Keep = (),
        of_thinned: Keep = (),
        turn: Turn | None = None,
        say: Say = lambda line: None,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        check_periods(keep, max((o.sample_ns for o in opened), default=0))
        extremes = extremes_of(opened) if keep or of_thinned else ()
        columns = (*counters_of(opened), *extremes, *READINGS)
        self._ordinals = [o.device.ordinal for o in opened]
        self._counters = [o.metrics.counters for o in opened]
        self._places = [[columns.index(name) for name in o.metrics.counters] for o in opened]
        self._extremes = [places_of_extremes(o, columns) for o in opened] if extremes else []
        self._width = len(columns)
        self._readings = np.full((len(opened), len(READINGS)), np.nan)
        self._reasons = [0] * len(opened)
        self._now_ns, self._monotonic_ns = now_ns, monotonic_ns
        self._live, self._clock_due_ns, self._last_end_ns = live, [0] * len(opened), [0] * len(opened)
        self._away, self._begun_ns = [False] * len(opened), 0
        self._pending: list[Piece] = []
        self._pending_rows = self._due_ns = 0
        self._schema = schema_of(columns, opened, plan, keep or of_thinned, turn)
        self._file = _file(Path(path), self._schema, force, opened, keep, say)
        self._begin()
        if turn and live:
            self.begun(now_ns())
            self.pause()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def takes(self, gpu: int, opened: Opened) -> bool:
        """Whether samples of this kind can be added: the head tells once and for all what a GPU's are."""
        return opened.metrics.counters == self._counters[gpu]

    def add(self, gpu: int, samples: Samples) -> None:
        """Take samples of the GPU at this position in `opened`."""
        if len(samples):
            self._note_gaps(gpu, samples)
            values = np.full((len(samples), self._width), np.nan, np.float32)
            values[:, self._places[gpu]] = samples.values
            if samples.minimum is not None and samples.maximum is not None and self._extremes:
                for k, least, most in self._extremes[gpu]:
                    values[:, least], values[:, most] = samples.minimum[:, k], samples.maximum[:, k]
            values[:, -len(READINGS) :] = self._readings[gpu]
            self._append(Piece(self._ordinals[gpu], samples.start_ns, samples.end_ns, values))
            self._note_clocks(gpu, int(samples.end_ns[-1]))
        self.tick()

    def event(
        self,
        event: str,
        *,
        gpu: int | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        **fields: Any,
    ) -> None:
        """Take something that happened: by itself now, else from `start_ns` (to `end_ns`).

        `fields` must fit strict JSON: TypeError or ValueError (nan) otherwise.
        """
        start_ns = self._now_ns() if start_ns is None else start_ns
        end_ns = start_ns if end_ns is None else end_ns
        device = NO_DEVICE if gpu is None else self._ordinals[gpu]
        text = json.dumps({"event": event, **fields}, allow_nan=False)
        nothing = np.full((1, self._width), np.nan, np.float32)
        self._append(Piece(device, np.array([start_ns]), np.array([end_ns]), nothing, text))
        self.tick()

    def set_readings(self, gpu: int, sm_mhz: float, power_w: float, reasons: int | None = None) -> None:
        """What NVML read of this GPU, for the rows that come from now on; NaN for not known.

        `reasons`, its clock event bits, are an event `reasons` where they change.
        """
        self._readings[gpu] = sm_mhz, power_w
        if reasons is not None and reasons != self._reasons[gpu]:
            self._reasons[gpu] = reasons
            self.event("reasons", gpu=gpu, bits=reasons)

    def pause(self) -> None:
        """From now on others have their turn, until a sample comes."""
        self._away = [True] * len(self._away)

    def begun(self, at_ns: int) -> None:
        """The rotation began then, whenever this file was made."""
        self._begun_ns = at_ns

    def resume(self, at_ns: int) -> None:
        """The others' turns went on until then."""
        for gpu, away in enumerate(self._away):
            if away:
                self._come_back(gpu, at_ns)

    def tick(self) -> None:
        """Write if it is time to; to be called at least every BATCH_NS when nothing else is."""
        if self._pending_rows >= BATCH_ROWS or (self._pending and self._monotonic_ns() >= self._due_ns):
            self.flush()

    def flush(self) -> None:
        """Write every row that has come."""
        pieces, self._pending, self._pending_rows = self._pending, [], 0
        if pieces:
            self._file.write(table_of(pieces, self._schema).to_batches(max_chunksize=BATCH_ROWS))

    def close(self, **fields: Any) -> None:
        """Write the event `end` with these fields, end the file and merge its small batches.

        May be called more than once; after the first it does nothing.
        """
        if self.closed:
            return
        try:
            self.resume(self._now_ns())
            self.event("end", **fields)
            self.flush()
            self._file.end()
        finally:
            self._file.close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Write the first row at once: a place that takes nothing is found out before anything is measured."""
        try:
            self.event("start")
            self.flush()
        except BaseException:
            self._file.close()
            raise

    def _append(self, piece: Piece) -> None:
        if self._pending_rows + len(piece) > BATCH_ROWS:
            self.flush()
        if not self._pending:
            self._due_ns = self._monotonic_ns() + BATCH_NS
        self._pending.append(piece)
        self._pending_rows += len(piece)

    def _note_gaps(self, gpu: int, samples: Samples) -> None:
        if self._away[gpu]:
            self._come_back(gpu, int(samples.start_ns[0]))
        for gap in gaps(samples, self._last_end_ns[gpu]) if self._live else ():
            self.event("gap", gpu=gpu, **asdict(gap))
        self._last_end_ns[gpu] = int(samples.end_ns[-1])

    def _come_back(self, gpu: int, at_ns: int) -> None:
        """Others had their turn until then."""
        self._away[gpu], gone_ns = False, self._last_end_ns[gpu] or self._begun_ns
        self._last_end_ns[gpu] = max(gone_ns, at_ns)
        if 0 < gone_ns < at_ns:
            self.event(OTHER_TURNS, gpu=gpu, start_ns=gone_ns, end_ns=at_ns)

    def _note_clocks(self, gpu: int, newest_end_ns: int) -> None:
        monotonic_ns, realtime_ns = self._monotonic_ns(), self._now_ns()
        if not self._live or monotonic_ns < self._clock_due_ns[gpu]:
            return
        self._clock_due_ns[gpu] = monotonic_ns + CLOCK_NS
        times = {"newest_end_ns": newest_end_ns, "realtime_ns": realtime_ns, "monotonic_ns": monotonic_ns}
        self.event("clock", gpu=gpu, start_ns=realtime_ns, **times)


def _file(path: Path, schema: pa.Schema, force: bool, opened: Sequence[Opened], keep: Keep, say: Say) -> ArrowFile:
    if not keep:
        return ArrowFile(path, schema, force)
    from .kept_file import KeptFile

    return KeptFile(path, schema, force, opened, keep, say)
