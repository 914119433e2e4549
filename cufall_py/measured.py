"""A stretch of a program's time as it is measured: its samples summed up as they come, its statistics, requirements."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .analysis.statistics import Statistics
from .analysis.summary import WHOLE, Scope, Subject, Summarizer, Summary
from .errors import CufallError, UsageError
from .judgements import Judgement, check, judge
from .metrics import MetricSet
from .requirements import Requirement, parse
from .samples import Samples
from .sources import Opened
from .spans import FOREVER_NS

NOT_SAMPLED = "not sampled"


class Measured:
    """A stretch of time of a session, from `begin_ns` (Unix epoch) until it is ended; in memory that does not grow.

    Samples come to `add` in one thread; all else is for any. `live` tells whether a GPU gives samples; those that do
    are waited for, `wait_s` at most, where figures are asked for.
    """

    def __init__(
        self, name: str, opened: Sequence[Opened], begin_ns: int, live: Callable[[int], bool], wait_s: float
    ) -> None:
        self.name, self.begin_ns, self._end_ns = name, begin_ns, 0
        self._subjects = [Subject(o.device.ordinal, o.device.name, o.metrics) for o in opened]
        span = (begin_ns, FOREVER_NS)
        self._summarizer = Summarizer(self._subjects, part=[span], recorded=(begin_ns, begin_ns))
        self._reached_ns = [begin_ns] * len(opened)
        self._live, self._wait_s = live, wait_s
        self._changed = threading.Condition()
        self._summary: Summary | None = None
        self._over = False

    @property
    def complete(self) -> bool:
        """Whether no more samples are to be expected."""
        reached = all(ns >= self._end_ns or not self._live(k) for k, ns in enumerate(self._reached_ns))
        return self._over or (bool(self._end_ns) and reached)

    def add(self, gpu: int, samples: Samples, metrics: MetricSet) -> None:
        """Take the next samples of the GPU at this position; of other metrics than it began with, none."""
        with self._changed:
            if self._summary is None and metrics == self._subjects[gpu].metrics:
                unread = np.full(len(samples), np.nan)
                self._summarizer.add(gpu, samples, unread, unread)
            self._reached_ns[gpu] = max(self._reached_ns[gpu], int(samples.end_ns[-1]))
            self._changed.notify_all()

    def end(self, at_ns: int) -> None:
        """It ended then; to be called as it ends."""
        with self._changed:
            self._end_ns = at_ns
            self._summarizer.end(at_ns)

    def give_up(self) -> None:
        """No more samples come."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def all(self) -> Summary:
        """Everything that is known of it: a scope, a row a GPU and one of all together if there are several.

        Waits until its samples have come. Raises CufallError while it goes on.
        """
        with self._changed:
            if not self._end_ns:
                raise CufallError(f"{self.name} is still being measured: its figures are known after its end")
            if self._summary is None:
                self._changed.wait_for(lambda: self.complete, self._wait_s)
                self._summary = self._summarizer.summary()
            return self._summary

    def summary(self, metric: str = "tensor", gpu: int | None = None) -> Statistics:
        """The statistics of a metric, of the GPU with this CUDA ordinal or of all together; NaN where there is nothing.

        Raises UsageError for what was not sampled, CufallError while it goes on.
        """
        found = self.all()
        return statistics(found, found.scopes[0], metric, gpu)

    def require(self, *texts: str) -> list[Judgement]:
        """Each requirement (docs/report.md), judged on each GPU that it selects. Raises as `judge`, and UsageError for
        what is none."""
        return [judgement for requirement in map(parse, texts) for judgement in self.judge(requirement)]

    def judge(self, requirement: Requirement) -> list[Judgement]:
        """A requirement on each GPU that it selects; the only region that it can name is this one.

        Raises UsageError for what cannot be asked of these GPUs, CufallError while it goes on.
        """
        ordinals = [subject.ordinal for subject in self._subjects]
        check(requirement, ordinals, self._subjects[0].metrics.metrics)
        return judge(requirement, _named(self.all(), self.name), {requirement.metric: NOT_SAMPLED})

    def _repr_html_(self) -> str:
        """As a notebook shows it: a row a GPU."""
        from .views.notebook import overview

        return overview(self.all(), self.name) if self._end_ns else f"{html.escape(self.name)} is still being measured"


def _named(summary: Summary, name: str) -> Summary:
    """With the scope of everything also under this name."""
    whole = summary.scope(WHOLE)
    assert whole
    return replace(summary, scopes=(*summary.scopes, replace(whole, name=name)))


def statistics(summary: Summary, scope: Scope, metric: str, gpu: int | None) -> Statistics:
    """Of a metric in one of the summary's scopes, of the GPU with this CUDA ordinal or of all together.

    Raises UsageError for what was not sampled.
    """
    if metric not in summary.metrics:
        raise UsageError(f"{metric} is not sampled here; there are {', '.join(summary.metrics)}")
    of = dict(zip((subject.ordinal for subject in summary.subjects), scope.rows, strict=True))
    row = of.get(gpu) if gpu is not None else scope.group or scope.rows[0]
    if row is None:
        raise UsageError(f"no GPU {gpu} is sampled here; there are {', '.join(map(str, of))}")
    return row.metrics[summary.metrics.index(metric)]
