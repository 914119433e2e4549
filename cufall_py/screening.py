"""Which samples can be true: the others are counted, and kept out of everything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .metrics import MetricSet
from .samples import TOO_LONG_NS, Ints, Samples, Tally

SATURATED = float(2**32 - 1)
"""A 32-bit hardware counter that ran into its end."""
SKEW_NS = 1_000_000_000
"""How far a GPU's time may run away from this machine's between two decodes and still be believed."""
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

    def has_jumped(self, samples: Samples, monotonic_ns: int) -> bool:
        """Whether every sample lies where none can: then the clock they are told in was set."""
        if not len(samples) or not self.last_end_ns:
            return False
        end, earliest_ns, latest_ns = samples.end_ns, self.last_end_ns - SKEW_NS, self.latest_ns(monotonic_ns)
        if earliest_ns <= end[-1] <= latest_ns:  # as nearly always
            return False
        return bool((end > latest_ns).all() or (end < earliest_ns).all())

    def note(self, samples: Samples, kept: Samples, monotonic_ns: int) -> None:
        """These have come, and those were kept. One that is absurd by its values counts too: it is not missing."""
        possible = kept if kept is samples else samples[~untimely(samples, self.latest_ns(monotonic_ns))]
        if len(possible):
            newest_ns = possible.end_ns[-1] if kept is samples else possible.end_ns.max()
            self.last_end_ns = max(self.last_end_ns, int(newest_ns))
            self.ahead_ns = self.last_end_ns - monotonic_ns


def screen(samples: Samples, last_end_ns: int, metrics: MetricSet, tally: Tally, latest_ns: int = NEVER_NS) -> Samples:
    """The samples that can be true: between `last_end_ns` and `latest_ns`, forward in time, at most at their peak.

    What is left out is counted in `tally`, as are the gaps between what came (with the median length of
    these samples as the period). Samples that come out do not overlap.
    """
    if not len(samples) or _is_flawless(samples, last_end_ns, metrics, latest_ns):
        tally.samples += len(samples)
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


def _is_flawless(samples: Samples, last_end_ns: int, metrics: MetricSet, latest_ns: int) -> bool:
    """Whether `screen` has nothing to do, as nearly always: told in a tenth of the time."""
    start, end, values = samples.start_ns, samples.end_ns, samples.values
    length = end - start
    most = values.max()
    return bool(
        (not last_end_ns or start[0] == last_end_ns)
        and (start[1:] == end[:-1]).all()
        and length.min() > 0
        and end[-1] <= latest_ns
        and end[-1] - start[0] <= TOO_LONG_NS
        and values.min() >= 0
        and (most < SATURATED or (most < np.inf and (values != SATURATED).all()))
        and metrics.within_ceilings(values, length)
    )


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
