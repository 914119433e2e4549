"""Which samples can be true: the others are counted, and kept out of everything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .metrics import SATURATED, MetricSet
from .samples import TOO_LONG_NS, Even, Ints, Samples, Tally

SKEW_NS = 1_000_000_000
"""How far a GPU's time may run away from this machine's between two decodes and still be believed."""
FEW = 250
"""Samples that plain Python judges faster than numpy."""
NEVER_NS = 2**63 - 1


@dataclass
class Timeline:
    """Where the samples of one GPU stand: the end of the newest that came, and when that was.

    `ahead_ns`: by how much the newest end was ahead of the monotonic clock when it came. That clock is never
    set, so what lies further ahead of it later has a broken timestamp.
    """

    last_end_ns: int = 0
    ahead_ns: int = 0

    def latest_ns(self, monotonic_ns: int) -> int:
        """No sample that comes now can end later than this."""
        return monotonic_ns + self.ahead_ns + SKEW_NS if self.last_end_ns else NEVER_NS

    def goes_on_with(self, batch: Even, monotonic_ns: int) -> bool:
        """Whether it begins where the newest ended, if any has, and ends when it can."""
        return self.last_end_ns in (0, batch.start_ns) and batch.end_ns <= self.latest_ns(monotonic_ns)

    def reach(self, end_ns: int, monotonic_ns: int) -> None:
        """A sample has come that ends then."""
        self.last_end_ns = max(self.last_end_ns, end_ns)
        self.ahead_ns = self.last_end_ns - monotonic_ns

    def has_jumped(self, samples: Samples, monotonic_ns: int) -> bool:
        """Whether every sample lies where none can: then the clock they are told in was set."""
        if not len(samples) or not self.last_end_ns:
            return False
        end, earliest_ns, latest_ns = samples.end_ns, self.last_end_ns - SKEW_NS, self.latest_ns(monotonic_ns)
        return bool((end > latest_ns).all() or (end < earliest_ns).all())

    def note(self, samples: Samples, monotonic_ns: int) -> None:
        """These have come. One that is absurd by its values counts too: it is not missing."""
        possible = samples.end_ns[~untimely(samples, self.latest_ns(monotonic_ns))]
        if len(possible):
            self.reach(int(possible.max()), monotonic_ns)


def is_flawless(batch: Even, timeline: Timeline, metrics: MetricSet, monotonic_ns: int) -> bool:
    """Whether `screen` would find nothing to leave out or to count as missing, as nearly always. Of FEW at most."""
    if len(batch) > FEW or not timeline.goes_on_with(batch, monotonic_ns):
        return False
    return metrics.believable(batch.values.tolist(), (batch.end_ns - batch.start_ns) / len(batch))


def screen(samples: Samples, last_end_ns: int, metrics: MetricSet, tally: Tally, latest_ns: int = NEVER_NS) -> Samples:
    """The samples that can be true: between `last_end_ns` and `latest_ns`, forward in time, at most at their peak.

    What is left out is counted in `tally`, as are the gaps between what came (with the median length of
    these samples as the period). Samples that come out do not overlap.
    """
    if not len(samples):
        return samples
    timely = samples[~untimely(samples, latest_ns)]
    previous = _latest_before(timely.end_ns, last_end_ns)
    repeats = timely.end_ns <= previous
    fresh = _apart(timely, previous)[~repeats]
    _count_gaps(fresh, last_end_ns, len(samples) - len(timely), tally)
    kept = fresh[~absurd(fresh, metrics)]
    tally.duplicate += int(repeats.sum())
    tally.absurd += len(samples) - len(timely) + len(fresh) - len(kept)
    tally.samples += len(kept)
    return kept


def untimely(samples: Samples, latest_ns: int = NEVER_NS) -> NDArray[np.bool_]:
    """Which rows cannot be by their times: ending before they start, too late, or longer than any sample is."""
    length = samples.end_ns - samples.start_ns
    out: NDArray[np.bool_] = (length <= 0) | (length > TOO_LONG_NS) | (samples.end_ns > latest_ns)
    return out


def absurd(samples: Samples, metrics: MetricSet) -> NDArray[np.bool_]:
    """Which rows cannot be by their values: saturated, negative, not finite, or above a peak."""
    broken = (~np.isfinite(samples.values) | (samples.values == SATURATED) | (samples.values < 0)).any(axis=1)
    with np.errstate(invalid="ignore"):
        above = metrics.quotients(samples.values, samples.end_ns - samples.start_ns) > metrics.ceilings()
    out: NDArray[np.bool_] = broken | above.any(axis=1)
    return out


def _latest_before(end_ns: Ints, last_end_ns: int) -> Ints:
    running = np.maximum.accumulate(np.concatenate(([last_end_ns], end_ns)))
    latest: Ints = running[:-1]
    return latest


def _apart(samples: Samples, previous_ns: Ints) -> Samples:
    """None begins before the one before it ended: times laid out by cufall can be some microseconds off."""
    return Samples(np.maximum(samples.start_ns, previous_ns), samples.end_ns, samples.values)


def _count_gaps(samples: Samples, last_end_ns: int, left_out: int, tally: Tally) -> None:
    """Count what is missing between samples, but for the `left_out` that came and were not believed."""
    if not len(samples):
        return
    period_ns = samples.period_ns
    missing_ns = samples.gaps_ns(last_end_ns, period_ns)
    tally.lost += max(0, int(np.round(missing_ns / period_ns).sum()) - left_out)
    tally.lost_ns += max(0, int(missing_ns.sum()) - left_out * period_ns)
