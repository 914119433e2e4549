"""Stretches of time, as pairs of nanoseconds: joined, cut with one another, rounded out to whole frames."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]
"""From the first to before the second, Unix epoch."""
FOREVER_NS = 2**62
"""Later than any time."""


def union(spans: Iterable[Span], slack_ns: int = 0) -> list[Span]:
    """The same time in stretches that lie apart, by more than `slack_ns`, in order; empty ones are left out."""
    out: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if out and start <= out[-1][1] + slack_ns:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def common(one: Iterable[Span], other: Iterable[Span]) -> list[Span]:
    """The time that is in both."""
    others = list(other)
    return union((max(a, c), min(b, d)) for a, b in one for c, d in others)


def rounded_out(spans: Iterable[Span], step_ns: int) -> list[Span]:
    """Stretches on multiples of `step_ns` that hold these."""
    return union((start // step_ns * step_ns, -(-end // step_ns) * step_ns) for start, end in spans)
