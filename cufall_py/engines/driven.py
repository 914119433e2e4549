"""What came of a load that was sent, by the client's own clock: its requests, and figures of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Asked:
    """One request: when it was sent and when each piece came, on the monotonic clock; how many tokens it says it made
    and was given. `told`: whether it said so; else each piece counts as a token."""

    sent_s: float
    came_s: tuple[float, ...]
    made: int
    prompt: int
    told: bool = True

    @property
    def ttft_s(self) -> float:
        return self.came_s[0] - self.sent_s

    @property
    def tpot_s(self) -> float:
        """A token after the first; NaN for one token."""
        return (self.came_s[-1] - self.came_s[0]) / (self.made - 1) if self.made > 1 else float("nan")


@dataclass(frozen=True)
class Driven:
    """What came of one number at once. `begun_s`, `ended_s`: of all of it; `full`: from when each of them had its first
    token until the first had no more to ask, so that all the time so many ran."""

    concurrency: int
    begun_s: float
    ended_s: float
    full: tuple[float, float]
    asked: tuple[Asked, ...]
    problems: tuple[str, ...]

    @property
    def tokens(self) -> int:
        return sum(one.made for one in self.asked)

    @property
    def by_pieces(self) -> bool:
        """Whether pieces were counted somewhere in place of tokens."""
        return not all(one.told for one in self.asked)

    @property
    def tokens_per_s(self) -> float:
        """Over all of it, the ramps at both ends as well."""
        return self.tokens / (self.ended_s - self.begun_s)

    @property
    def full_tokens_per_s(self) -> float:
        """While so many ran; NaN if they never did."""
        return self.between(*self.full)

    def between(self, begin_s: float, end_s: float) -> float:
        """Tokens a second that came between two moments; NaN for none."""
        if end_s <= begin_s:
            return float("nan")
        tokens = 0.0
        for one in self.asked:
            came = np.array(one.came_s)
            tokens += one.made / len(came) * int(((came > begin_s) & (came <= end_s)).sum())
        return tokens / (end_s - begin_s)

    def percentile_s(self, name: str, percent: float) -> float:
        """Of `ttft_s` or `tpot_s`; NaN without any."""
        values = np.array([getattr(one, name) for one in self.asked], np.float64)
        known = values[np.isfinite(values)]
        return float(np.percentile(known, percent)) if len(known) else float("nan")
