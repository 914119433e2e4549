"""Reports: a recording summed up, read batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .analysis.evidence import INPUTS
from .analysis.groups import Group, found_or_named, grouped, positions
from .analysis.summary import WHOLE, Subject, Summarizer, Summary
from .analysis.verdict_scopes import FrameCodes, Judging, OnFrames, ScopeVerdicts
from .analysis.verdict_windows import WindowVerdict
from .devices import select
from .errors import CufallError, UsageError
from .keep import Keep
from .metrics import MetricSet
from .outline import Event, Outline, Told, regions
from .part import Part
from .readings import THROTTLED
from .recorded_metrics import Picker, Recorded, metrics_of
from .recording_reader import Recording, Rows
from .resolve import Wanted, check
from .rotation import Turn
from .saying import Say
from .sources import Opened
from .spans import FOREVER_NS, Span, union

T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """What a recording comes to. `opened` describes the GPUs of `summary`; `whole` is False for a file that was cut.

    `keep` is what it was thinned by, empty if it was not; `own_extremes` names the metrics of whose longer samples no
    extremes were kept. `kinds` are those of its events. `turn`: which set of a rotation it is, None for one of none.
    `region`: the one that alone is reported, empty for all.
    """

    path: str
    opened: tuple[Opened, ...]
    summary: Summary
    whole: bool
    versions: dict[str, str]
    judging: Judging = Judging()
    groups: tuple[Group, ...] = ()
    keep: Keep = ()
    own_extremes: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    turn: Turn | None = None
    region: str = ""

    def once(self, found: Sequence[T], region: Callable[[T], str]) -> list[T]:
        """For a person, of what is `found` of everything (its `region` is empty) and of regions: of one region
        everything is itself, and is not told again."""
        of_regions = [of for of in found if region(of)]
        return of_regions if self.region and of_regions else list(found)


class Reading:
    """A recording as it is to be reported: chosen GPUs, metrics and part. What `wanted` leaves empty is as recorded.

    `also` names metrics that are wanted besides if there are counters of them; `lacking` has why there are none, by
    name. `say` gets each line a person should read; `judging` says how verdicts are given;
    `groups` which GPUs, by CUDA's numbers, are looked at together: none if None, those that behave alike if empty.

    Raises CufallError for a file that cannot be read, UsageError for what it cannot be asked for.
    """

    def __init__(
        self,
        path: str | Path,
        wanted: Wanted = Wanted(()),
        devices: str = "all",
        part: Part = Part(),
        say: Say = lambda line: None,
        *,
        also: Sequence[str] = (),
        judging: Judging = Judging(),
        groups: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.path, self._recording, self.judging = str(path), Recording(path, say), judging
        self.region = part.region
        recorded = self._recording.opened
        if not recorded:
            raise CufallError(f"{path}: its head describes no GPU")
        chosen = select([opened.device for opened in recorded], devices)
        self._positions = {recorded.index(o): k for k, d in enumerate(chosen) for o in recorded if o.device == d}
        gpus = [recorded[position] for position in self._positions]
        wanted = _with_defaults(wanted, self._recording.plan.wanted)
        check(wanted)
        sets, self.lacking = sets_of(wanted, also, [Recorded(gpu) for gpu in gpus], say, self._recording.turn)
        self.opened = tuple(replace(gpu, metrics=metrics) for gpu, metrics in zip(gpus, sets, strict=True))
        """What is reported of each GPU."""
        self._pickers = [Picker(gpu.metrics, metrics) for gpu, metrics in zip(gpus, sets, strict=True)]
        self._groups = None if groups is None else positions(groups, [d.ordinal for d in chosen])
        self._verdict_sets = [verdict_metrics(Recorded(gpu)) for gpu in gpus]
        self._verdict_pickers = [Picker(gpu.metrics, of) for gpu, of in zip(gpus, self._verdict_sets, strict=True)]
        self.keep = self._recording.keep
        """What it was thinned by, empty if it was not."""
        self.turn = self._recording.turn
        """Which set of a rotation it is, None for one of none."""
        self.part = part.spans(self.outline) if part != Part() else None
        """The stretches that are meant; None: all."""

    @cached_property
    def outline(self) -> Outline:
        """Of the whole recording, with the gaps and counts of the GPUs in `opened`; the file is read once for it."""
        of, positions = self._recording.outline(), self._positions
        self._told = of.told
        gaps = [replace(gap, gpu=positions[gap.gpu]) for gap in of.gaps if gap.gpu in positions]
        counts, periods_ns = [of.counts[k] for k in positions], [of.periods_ns[k] for k in positions]
        periods = [of.periods[k] for k in positions]
        return replace(of, counts=counts, periods_ns=periods_ns, periods=periods, gaps=gaps)

    @cached_property
    def _told(self) -> Told:
        """What its events say; the file is read for that alone where there is no outline yet."""
        told = Told()
        for event in self._recording.events():
            told.note(event)
        return told

    @property
    def spans(self) -> list[Span]:
        """The stretches that are meant, and in which anything was recorded."""
        return self.outline.spans if self.part is None else self.part

    def rows(self) -> Iterator[Rows]:
        """The samples of the chosen GPUs, at their positions in `opened`, with the counters that are asked for."""
        return map(self._asked, self._chosen())

    def _chosen(self) -> Iterator[Rows]:
        """The samples of the chosen GPUs, at their positions, with all counters that were recorded."""
        for item in self._recording.rows():
            if item.gpu in self._positions:
                yield replace(item, gpu=self._positions[item.gpu])

    def _asked(self, rows: Rows) -> Rows:
        """The same with the counters that are asked for alone."""
        return replace(rows, samples=self._pickers[rows.gpu].of(rows.samples))

    def report(self, on_rows: Callable[[Rows], None] = lambda rows: None, on_frames: OnFrames | None = None) -> Report:
        """Read it all; each batch of samples is also given to `on_rows`, each verdict of a frame to `on_frames`."""
        told = self._told
        named = {
            name: [(time.start_ns, time.end_ns) for time in times]
            for name, times in regions(told.marks, -FOREVER_NS, FOREVER_NS).items()
        }
        summarizer = Summarizer(self._subjects(told.reasons), named, self.part, told.span, told.away)
        codes = FrameCodes(len(self.opened)) if self._groups is not None else None
        watchers = [watcher for watcher in (on_frames, codes and codes.add) if watcher]
        verdicts = ScopeVerdicts(self._verdict_sets, summarizer.spans, self.judging, {WHOLE: watchers})
        for read in self._chosen():
            verdicts.add(read.gpu, self._verdict_pickers[read.gpu].of(read.samples))
            rows = self._asked(read)
            summarizer.add(rows.gpu, rows.samples, rows.sm_mhz, rows.power_w)
            on_rows(rows)
        summary = summarizer.summary()
        found = verdicts.verdicts({scope.name: scope.wanted_s for scope in summary.scopes})
        groups = self._grouped(codes.codes(), found[WHOLE]) if codes else []
        of = self._recording
        return Report(
            self.path,
            self.opened,
            replace(summary, verdicts=found),
            of.whole,
            of.versions,
            self.judging,
            tuple(groups),
            of.keep,
            self._own_extremes() if of.keep else (),
            frozenset(told.kinds),
            of.turn,
            self.region,
        )

    def _own_extremes(self) -> tuple[str, ...]:
        """The metrics of whose longer samples no extremes were kept."""
        return tuple(dict.fromkeys(label for picker in self._pickers for label in picker.without))

    def _grouped(self, codes: NDArray[np.int8], windows: Sequence[WindowVerdict]) -> list[Group]:
        shares, means = [window.shares for window in windows], [window.means for window in windows]
        return grouped(codes, found_or_named(self._groups or {}, shares, means), self.judging.frame_ns)

    def _subjects(self, reasons: Iterable[Event]) -> list[Subject]:
        throttled: dict[int | None, list[Event]] = {}
        for event in reasons:
            throttled.setdefault(event.gpu, []).append(event)
        return [
            Subject(opened.device.ordinal, opened.device.name, opened.metrics, _throttled(throttled.get(position, [])))
            for position, opened in zip(self._positions, self.opened, strict=True)
        ]


def verdict_metrics(gpu: Recorded) -> MetricSet:
    """All that verdicts can rest on of what was recorded of a GPU, of the columns of its samples."""
    made = []
    for name in INPUTS:
        try:
            made.append(gpu.metric(name, Wanted((name,))))
        except UsageError:
            pass  # it was not recorded, which the verdict will say where it matters
    return MetricSet(gpu.counters, tuple(made))


def _with_defaults(wanted: Wanted, recorded: Wanted) -> Wanted:
    """What was asked for. If no metric is named, those that were recorded, without what was taken for verdicts alone;
    if nothing is, as they were recorded, too."""
    shown = recorded.asked or recorded.metrics
    if wanted == Wanted(()):
        return replace(recorded, metrics=shown)
    return replace(wanted, metrics=wanted.metrics or shown)


def sets_of(
    wanted: Wanted,
    also: Sequence[str],
    gpus: list[Recorded],
    say: Say = lambda line: None,
    turn: Turn | None = None,
) -> tuple[list[MetricSet], dict[str, str]]:
    """The metrics of each GPU, and why those of `also` are not among them that cannot be made."""
    lacking = {}
    for name in also:
        try:
            metrics_of(replace(wanted, metrics=(name,)), gpus, turn)
        except UsageError as error:
            lacking[name] = str(error)
    names = dict.fromkeys((*wanted.metrics, *(name for name in also if name not in lacking)))
    sets, lines = metrics_of(replace(wanted, metrics=tuple(names)), gpus, turn)
    for line in lines:
        say(line)
    return sets, lacking


def _throttled(reasons: Sequence[Event]) -> list[Span]:
    """When clocks were held back, by NVML's reasons, each of which holds until the next."""
    times = [*(event.start_ns for event in reasons), FOREVER_NS]
    held = zip(reasons, times[:-1], times[1:], strict=True)
    return union((begin, end) for event, begin, end in held if int(event.fields.get("bits", 0)) & THROTTLED)
