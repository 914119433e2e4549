"""Which part of each frame was prefill, which decode: by what an engine's token counters did between scrapes.

Counters a second apart tell that prompt and generation tokens were both made, not in which order: that is `mixed`.
Phases are right to one step of the engine, for a counter moves when the step has ended. docs/engines.md has the rules.
"""

from __future__ import annotations

import numpy as np

from .scrapes import Bools, Floats, Ints, Scrapes

PHASES = ("prefill", "decode", "mixed", "idle", "unsure")
DECODE, UNSURE = PHASES.index("decode"), PHASES.index("unsure")
LONGEST_S = 1e6
"""For a prefill of which nobody knows how long it took."""
Codes = Ints


def phase_codes(scrapes: Scrapes) -> Codes:
    """(k,) the phase of each interval, as its place in PHASES.

    Unsure: counters that are not known or do not move with each step; nothing counted while requests run; and both
    sides of where tokens begin or cease: of an interval without any the last step may have begun in it, of one with
    some a part was idle. So may be that of the first and last, and of those beside a scrape that failed.
    """
    prompt, decode = scrapes.prompt > 0, scrapes.decode > 0
    codes = np.select([prompt & decode, prompt, decode], [2, 0, 1], 3)
    known = np.isfinite(scrapes.prompt) & np.isfinite(scrapes.decode) & scrapes.of_steps
    none, some = known & ~prompt & ~decode, known & (prompt | decode)
    busy, idle = _surely(scrapes, scrapes.running > 0), _surely(scrapes, scrapes.running == 0)
    none_before, none_after = _beside(scrapes, none)
    _, some_after = _beside(scrapes, some)
    long_step = none & (busy.any(axis=1) | some_after)
    partly_idle = some & (idle.any(axis=1) | none_before | none_after)
    doubted = ~known | long_step | partly_idle | (some & ~_between(scrapes))
    return np.where(doubted, UNSURE, codes).astype(np.int64)


def frame_shares(start_ns: Ints, end_ns: Ints, scrapes: Scrapes) -> Floats:
    """(n, 5) the share of each frame that is of each of PHASES; they add up to 1.

    `start_ns`, `end_ns` (n,): frames, in order. Time that no interval covers is unsure, and so is what lies within
    the alignment error of an edge between two phases.
    """
    codes = phase_codes(scrapes)
    starts, ends = _sure_spans(scrapes, codes)
    shares = np.zeros((len(start_ns), len(PHASES)))
    length_ns = (end_ns - start_ns).astype(np.float64)
    for phase in range(UNSURE):
        of_phase = (codes == phase) & (starts < ends)
        shares[:, phase] = _covered_ns(start_ns, end_ns, starts[of_phase], ends[of_phase]) / length_ns
    shares[:, UNSURE] = np.maximum(0.0, 1.0 - shares[:, :UNSURE].sum(axis=1))
    return shares


def phase_seconds(start_ns: Ints, end_ns: Ints, shares: Floats) -> dict[str, float]:
    """How long each phase lasted over all frames."""
    seconds = shares.T @ ((end_ns - start_ns) / 1e9)
    return dict(zip(PHASES, seconds.tolist(), strict=True))


def phase_means(shares: Floats, values: Floats, covered_ns: Floats) -> dict[str, Floats]:
    """(m,) mean of each metric by phase: `values` (n, m) of frames, weighted by share and `covered_ns` (n,).

    NaN where a phase has nothing measured. Frames that hold two phases count to both by their shares.
    """
    measured = np.isfinite(values)
    weights = shares[:, :, None] * np.where(measured, covered_ns[:, None], 0.0)[:, None, :]
    totals = (weights * np.where(measured, values, 0.0)[:, None, :]).sum(axis=0)
    whole = weights.sum(axis=0)
    means = np.divide(totals, whole, out=np.full_like(totals, np.nan), where=whole > 0)
    return dict(zip(PHASES, means, strict=True))


def _surely(scrapes: Scrapes, holds: Bools) -> Bools:
    """(k, 2) where the running requests say so, and are not of some time ago."""
    sure: Bools = holds & scrapes.running_of_steps[:, None]
    return sure


def _beside(scrapes: Scrapes, holds: Bools) -> tuple[Bools, Bools]:
    """(k,) each: whether it holds of the interval that ends where this one begins, and of the one that follows."""
    joined = scrapes.joined
    after = joined & np.append(holds[1:], False)[: len(holds)]
    before = np.append(False, (joined & holds)[:-1])[: len(holds)]
    return before, after


def _between(scrapes: Scrapes) -> Bools:
    """(k,) whether one ends where it begins and another begins where it ends."""
    between: Bools = scrapes.joined & np.append(False, scrapes.joined[:-1])[: len(scrapes)]
    return between


def _sure_spans(scrapes: Scrapes, codes: Codes) -> tuple[Ints, Ints]:
    """Intervals without what an edge to another phase may be off by, and decoding without what may be prefill too."""
    same = scrapes.joined & (codes == np.append(codes[1:], UNSURE)[: len(codes)])
    after = np.where(same, 0, scrapes.error_ns[:, 1])
    before = np.where(np.append(False, same[:-1])[: len(same)], 0, scrapes.error_ns[:, 0])
    begun_ns = _prefill_begun_ns(scrapes)
    ends = np.where(codes == DECODE, np.minimum(scrapes.end_ns - after, begun_ns), scrapes.end_ns - after)
    return scrapes.start_ns + before, ends


def _prefill_begun_ns(scrapes: Scrapes) -> Ints:
    """(k,) when the prefill of prompts that are counted in later intervals may have begun, at the earliest."""
    far = np.iinfo(np.int64).max
    length_ns = np.minimum(np.nan_to_num(scrapes.prefill_s, nan=np.inf), LONGEST_S) * 1e9
    begun = np.where(scrapes.prompt > 0, scrapes.start_ns - length_ns.astype(np.int64), far)
    earliest = np.minimum.accumulate(begun[::-1])[::-1]
    return np.append(earliest[1:], far)[: len(begun)].astype(np.int64)


def _covered_ns(start_ns: Ints, end_ns: Ints, span_starts: Ints, span_ends: Ints) -> Floats:
    """(n,) how much of each frame lies within the spans, which are in order and lie apart."""
    if not len(span_starts):
        return np.zeros(len(start_ns))
    origin = span_starts[0]
    knots = np.stack((span_starts, span_ends), axis=1).ravel() - origin
    lengths = span_ends - span_starts
    sums = np.stack((np.cumsum(lengths) - lengths, np.cumsum(lengths)), axis=1).ravel()
    reached = (np.interp(edge - origin, knots, sums) for edge in (start_ns, end_ns))
    before, after = reached
    covered: Floats = after - before
    return covered
