"""What can be made of the counters that a recording has: metrics asked for anew, of one GPU of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .errors import UsageError
from .metrics import TIME, Metric, MetricSet
from .presets import SHORT_NAMES
from .resolve import Wanted, is_elapsed, resolve
from .rotation import Turn
from .samples import Floats, Samples
from .sources import Opened

SAME_COUNT = ("sm__pipe_tensor_cycles_active.avg", "sm__pipe_tensor_cycles_active_realtime.avg")
"""Two spellings of one count (docs/adr/0001): where one was recorded, it serves for the other."""


@dataclass(frozen=True)
class Recorded:
    """The counters and peaks of one GPU of a recording."""

    opened: Opened

    @property
    def counters(self) -> tuple[str, ...]:
        return self.opened.metrics.counters

    def metric(self, name: str, wanted: Wanted) -> Metric:
        """One of the wanted metrics. Raises UsageError for one that cannot be made of what was recorded."""
        if self.opened.source == "gpm" and not wanted.raw and not wanted.full_scale:
            # NVML's percents: no counters of a chip, of which others are made
            for known in self.opened.metrics.metrics:
                if known.label == name and not known.absent:
                    return known
        of_name = "" if name in SHORT_NAMES else wanted.denominator
        asked = resolve(replace(wanted, metrics=(name,), denominator=of_name, optional=()), self.opened.device.chip)
        if lacking := [counter for counter in asked.counters if not self._spelt(counter)]:
            raise UsageError(f"{', '.join(lacking)} was not recorded")
        (metric,) = asked.metrics
        spelt = replace(
            metric,
            counters=tuple(self._spelt(counter) for counter in metric.counters),
            elapsed=self._spelt(metric.elapsed),
            peak_of=tuple(self._spelt(counter) for counter in metric.peak_of),
        )
        return replace(spelt, peak=self._peak(spelt)) if spelt.peak_unknown else spelt

    def can_give(self) -> list[str]:
        """The short names that can be made of it, and its counters but for the clocks."""
        short = [name for name in SHORT_NAMES if self._gives(name)]
        return [*short, *(name for name in self.counters if not is_elapsed(name) and self._gives(name))]

    def _gives(self, name: str) -> bool:
        try:
            self.metric(name, Wanted((name,)))
        except UsageError:
            return False
        return True

    def _spelt(self, counter: str) -> str:
        """The recorded counter that counts this, empty if there is none."""
        same = (counter, *SAME_COUNT) if counter in SAME_COUNT else (counter,)
        return next((name for name in same if name == TIME or name in self.counters), "")

    def _peak(self, metric: Metric) -> float:
        """As a recorded metric has it, or as the chip told it."""
        told: dict[str, float] = self.opened.facts.get("peaks", {})
        for known in self.opened.metrics.metrics:
            if known.bounded and known.peak_of == metric.peak_of and not known.peak_unknown:
                return known.peak
        if unknown := [name for name in metric.peak_of if not told.get(name, 0) > 0]:
            raise UsageError(f"the peak of {', '.join(unknown)} was not recorded; --raw or --full-scale does without")
        return sum(told[name] for name in metric.peak_of)


class Picker:
    """Of samples with the counters and extremes of the recorded set, makes those that the metrics of another need."""

    def __init__(self, recorded: MetricSet, asked: MetricSet) -> None:
        self._columns = [recorded.counters.index(name) for name in asked.counters]
        self._all_columns = recorded.counters == asked.counters
        self._as_it_is = recorded == asked
        self._sources = [_source(recorded.metrics, metric) for metric in asked.metrics]
        self.without = tuple(
            metric.label
            for metric, source in zip(asked.metrics, self._sources, strict=True)
            if not source and not metric.absent
        )
        """The metrics of whose longer samples no extremes were kept: other quotients were recorded."""

    def of(self, samples: Samples) -> Samples:
        if self._as_it_is or (self._all_columns and samples.minimum is None):
            return samples
        values = samples.values if self._all_columns else samples.values[:, self._columns]
        extremes = (self._extremes(of) for of in (samples.minimum, samples.maximum))
        return Samples(samples.start_ns, samples.end_ns, values, *extremes)

    def _extremes(self, of: Floats | None) -> Floats | None:
        if of is None:
            return None
        nothing = np.full(len(of), np.nan)
        found = [of[:, source[0]] * source[1] if source else nothing for source in self._sources]
        return np.stack(found, axis=1)


def _source(recorded: Sequence[Metric], asked: Metric) -> tuple[int, float] | None:
    """Which recorded metric divides the same counters, and how many times as much the asked one is."""
    for k, known in enumerate(recorded):
        same = sorted(known.counters) == sorted(asked.counters) and known.elapsed == asked.elapsed
        if same and not known.absent and known.peak > 0:
            return k, known.peak / asked.peak
    return None


def metrics_of(wanted: Wanted, gpus: list[Recorded], turn: Turn | None = None) -> tuple[list[MetricSet], list[str]]:
    """What is to be read of each GPU, and a line for each metric that some of them cannot give: it is absent there.

    Raises UsageError, naming what there is, for a metric that none of them can give; where another set of a rotation
    has it, naming that.
    """
    columns: list[list[Metric]] = []
    lines = []
    for name in dict.fromkeys(wanted.metrics):
        found = [_or_why(gpu, name, wanted) for gpu in gpus]
        known = [metric for metric in found if isinstance(metric, Metric)]
        if not known and name in wanted.optional:
            continue
        if not known:
            if turn and (numbers := turn.elsewhere(name)):
                raise UsageError(f"{name} is not in the recording: set {numbers[0]} of {turn.of} has it")
            can = dict.fromkeys(name for gpu in gpus for name in gpu.can_give())
            raise UsageError(f"{name} is not in the recording ({found[0]}); it can give {', '.join(can) or 'nothing'}")
        columns.append([metric if isinstance(metric, Metric) else known[0].made_absent() for metric in found])
        lines += [
            f"GPU {gpu.opened.device.ordinal}: {name} is absent, {why}"
            for gpu, why in zip(gpus, found, strict=True)
            if isinstance(why, str)
        ]
    if not columns:
        raise UsageError(f"none of {', '.join(wanted.metrics)} can be made of what was recorded")
    return [_together(row, wanted, gpu) for row, gpu in zip(zip(*columns, strict=True), gpus, strict=True)], lines


def _or_why(gpu: Recorded, name: str, wanted: Wanted) -> Metric | str:
    try:
        return gpu.metric(name, wanted)
    except UsageError as error:
        return str(error)


def _together(metrics: tuple[Metric, ...], wanted: Wanted, gpu: Recorded) -> MetricSet:
    """In the order in which they were recorded, so that what was asked last changes nothing."""
    read = {name for metric in metrics for name in (*metric.counters, metric.elapsed)} | {wanted.denominator}
    return MetricSet(tuple(name for name in gpu.counters if name in read), metrics)
