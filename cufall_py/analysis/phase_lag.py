"""How far one signal lags behind another, by cross-correlation, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BLOCKS = 8
"""The lag is found in so many parts of the time, and in all of it."""
LEAST_FRAMES = 32
"""A part shorter than this says nothing."""
LEAST_CORRELATION = 0.5
"""Less alike than this are not the same thing at another time."""


@dataclass(frozen=True)
class Lag:
    """`frames`: by how much the second lags behind the first (less than 0: it leads), with its standard `error`.

    Both NaN where there is none to be told. Of what repeats, a lag is known but for whole periods; this is the one
    nearest to 0.
    """

    frames: float
    error: float


NO_LAG = Lag(math.nan, math.nan)


def lag(first: Floats, second: Floats, most: int) -> Lag:
    """Of two signals (n,) of the same frames, at most so many frames either way.

    The standard error is that of the mean of the lags of BLOCKS parts, no less than the spread of a value that is
    rounded to frames (1/sqrt(12) of one) over the square root of their number. Frames in which one was not measured
    (NaN) count as the mean of the others.
    """
    whole = _peak(first, second, most)
    if whole is None or whole[1] < LEAST_CORRELATION:
        return NO_LAG
    parts = zip(np.array_split(first, BLOCKS), np.array_split(second, BLOCKS), strict=True)
    near = [_peak(a, b, most, round(whole[0])) for a, b in parts if len(a) >= max(LEAST_FRAMES, 4 * most)]
    lags = [peak[0] for peak in near if peak and peak[1] >= LEAST_CORRELATION]
    if len(lags) < 2:
        return NO_LAG
    floor = 1 / math.sqrt(12 * len(lags))
    return Lag(whole[0], max(float(np.std(lags, ddof=1)) / math.sqrt(len(lags)), floor))


def _peak(first: Floats, second: Floats, most: int, near: int = 0) -> tuple[float, float] | None:
    """The lag with the greatest correlation, nearest to `near` of those as great, and that; None of what is flat, or
    never alike."""
    a, b = _centred(first), _centred(second)
    scale = math.sqrt(float((a * a).sum() * (b * b).sum()))
    most = min(most, len(a) - 1)
    if not scale > 0 or most < 1:
        return None
    found = _correlations(a, b, most) / scale
    if not found.max() > 0:  # the opposite of each other at every lag
        return None
    lags = np.arange(-most, most + 1)
    as_great = np.flatnonzero(found >= found.max() * AS_GREAT)
    at = int(as_great[np.abs(lags[as_great] - near).argmin()])
    at = _uphill(found, at)
    return float(lags[at]) + _vertex(found, at), float(found[at])


AS_GREAT = 0.97
"""A peak this near to the greatest is as good: of what repeats, the greatest is chance."""


def _centred(signal: Floats) -> Floats:
    known = np.isfinite(signal)
    mean = signal[known].mean() if known.any() else 0.0
    return np.where(known, signal - mean, 0.0)


def _correlations(a: Floats, b: Floats, most: int) -> Floats:
    """Sums of a[t] b[t + lag] for each lag from -most to most, by FFT; each as if its overlap were whole."""
    size = 1 << (len(a) + most - 1).bit_length()
    sums = np.fft.irfft(np.conj(np.fft.rfft(a, size)) * np.fft.rfft(b, size), size)
    lags = np.arange(-most, most + 1)
    out: Floats = sums[lags] * len(a) / (len(a) - np.abs(lags))
    return out


def _uphill(values: Floats, at: int) -> int:
    while 0 < at < len(values) - 1 and values[at] < max(values[at - 1], values[at + 1]):
        at += 1 if values[at + 1] > values[at - 1] else -1
    return at


def _vertex(values: Floats, at: int) -> float:
    """Where between frames a parabola through a peak and its neighbours is highest, from -0.5 to 0.5."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, peak, after = values[at - 1 : at + 2]
    bend = before - 2 * peak + after
    return float(np.clip((before - after) / (2 * bend), -0.5, 0.5)) if bend < 0 else 0.0
