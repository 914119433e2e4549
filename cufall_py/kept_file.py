"""An ArrowFile that thins itself while it grows: what gets old goes on in longer samples, or away.

The file has a section for each tier of `--keep`, the coarsest first. What has become too old for a section stands at
its head, so a pass (rewriting.py) moves whole batches from there to the end of the section before, thinned, and copies
all else as the bytes it is. It writes a file beside, a few steps at each write, which takes the old one's place by a
rename: a cut at any moment leaves one whole file, the old or the new one. Nothing is remembered but where sections are.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from .arrow_file import ArrowFile, valid
from .errors import UsageError
from .keep import Tier
from .rewriting import Pass, Section, header
from .saying import Say
from .sources import Opened

STEPS = 8
"""Of a pass, at each write: some 50 ms at most."""
LEAST_EXCESS_NS = 10_000_000_000
SPAN_EXCESS, FILE_EXCESS = 1 / 8, 1 / 16
"""A pass begins when the finest section reaches back further than its span by the first two (the longer one), and
that is the third of the file: so copying the rest is never more than a few times as much as was written meanwhile."""


class KeptFile(ArrowFile):
    """Keeps rows of the GPUs `opened` as `keep` says, by their age before the newest sample.

    Raises as ArrowFile does, and UsageError for a place that is no file. That a pass failed is told to `say`, once;
    the file then grows until one succeeds.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        force: bool,
        opened: Sequence[Opened],
        keep: Sequence[Tier],
        say: Say,
    ) -> None:
        super().__init__(path, schema, force)
        self._opened, self._say, self._failed = opened, say, False
        full = () if keep[0].period_ns == 0 else (Tier(0, 0),)
        self._tiers = [*full, *keep][::-1]
        begin = len(header(schema))
        self._sections = [Section(begin, begin) for _ in self._tiers]
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
        self._go_on()

    def end(self) -> None:
        """Thin what has become old since, and mark the end."""
        while self._pass:
            self._go_on()
        self._pass = self._thin()
        while self._pass:
            self._go_on()
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

    def _go_on(self) -> None:
        """Go on with the pass, if there is one. One that fails leaves the file as it was."""
        try:
            for _ in range(STEPS):
                if self._pass and next(self._pass, self) is self:
                    self._pass, self._failed = None, False
        except (OSError, pa.ArrowException) as error:
            self._pass = None
            why = error.strerror if isinstance(error, OSError) else str(error)
            if not self._failed:
                self._say(f"{self._name} cannot be thinned, and grows: {why}")
            self._failed = True

    def _thin(self) -> Generator[None, None, None]:
        """A pass, in steps."""
        self._beside.unlink(missing_ok=True)
        new = io.FileIO(self._beside, "x+")
        try:
            shutil.copymode(self._path, self._beside)
            with pa.OSFile(str(self._path)) as old:
                found = Pass(old, new, self._schema, self._opened, self._tiers, self._newest_ns)
                yield from found.run(self._sections, lambda: self._whole_bytes)
            os.fsync(new.fileno())
            self._check_place()
            os.replace(self._beside, self._path)
            self._file.close()
            self._file, self._sections, self._oldest_ns = new, found.sections, found.oldest_ns
            self._whole_bytes = new.tell()
        finally:
            if self._file is not new:
                new.close()
                self._beside.unlink(missing_ok=True)
