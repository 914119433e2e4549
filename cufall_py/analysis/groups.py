"""GPUs that work together: who is in which group, who waits for whom, and how far one lags behind another."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cufall_py.devices import numbers_in
from cufall_py.errors import UsageError

from .decision_table import CLASSES, UNKNOWN
from .phase_lag import Lag, lag

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
Bools = NDArray[np.bool_]
IDLE, WAITING = CLASSES.index("idle"), CLASSES.index("waiting")
AUTO, ALL = "auto", "all"
ALIKE = 0.1
"""GPUs are alike if no class has a share, and no metric a mean, that is further apart than this."""
GROUP = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=([0-9]+(?:-[0-9]+)?(?:\+[0-9]+(?:-[0-9]+)?)*)")
MOST_LAG_NS = 1_000_000_000
"""How far apart two GPUs are looked at for doing the same."""


def named(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """What `--group NAME=0-3+5` says: the CUDA numbers of each. Raises UsageError."""
    groups: dict[str, tuple[int, ...]] = {}
    of: dict[int, str] = {}
    for text in texts:
        found = GROUP.fullmatch(text)
        if not found:
            raise UsageError(f"--group {text}: must be NAME=GPUS, as in decode=4-7 or decode=0-3+5, or auto")
        name = found[1]
        if name in groups or name in (AUTO, ALL):
            raise UsageError(f"--group {text}: {'a second ' + name if name in groups else name + ' is taken'}")
        try:
            groups[name] = tuple(numbers_in(found[2]))
        except ValueError as error:
            raise UsageError(f"--group {text}: {error}") from None
        for gpu in groups[name]:
            if gpu in of:
                raise UsageError(f"--group {text}: GPU {gpu} is in {of[gpu]} already")
            of[gpu] = name
    return groups


def positions(groups: Mapping[str, Sequence[int]], ordinals: Sequence[int]) -> dict[str, list[int]]:
    """Where the GPUs of each group are among these CUDA numbers. Raises UsageError for one that is not there."""
    for name, gpus in groups.items():
        if missing := [gpu for gpu in gpus if gpu not in ordinals]:
            there = ", ".join(map(str, sorted(ordinals)))
            raise UsageError(f"--group {name}: no GPU {missing[0]}; there are {there}")
    return {name: [list(ordinals).index(gpu) for gpu in gpus] for name, gpus in groups.items()}


def alike(shares: Sequence[Mapping[str, float]], means: Sequence[Mapping[str, float]]) -> list[list[int]]:
    """Positions of GPUs that behave alike, in groups: any two of one are within ALIKE in every share and mean.

    A mean that is not known of both does not tell them apart; one that is a number a second is left out.
    """
    groups: list[list[int]] = []
    for k in range(len(shares)):
        fitting = [g for g in groups if all(_apart(shares[k], shares[j], means[k], means[j]) <= ALIKE for j in g)]
        if fitting:
            fitting[0].append(k)
        else:
            groups.append([k])
    return groups


def found_or_named(
    groups: Mapping[str, Sequence[int]], shares: Sequence[Mapping[str, float]], means: Sequence[Mapping[str, float]]
) -> Mapping[str, Sequence[int]]:
    """These, or if there are none those that behave alike, as `auto-1`, `auto-2`, ..."""
    return groups or {f"{AUTO}-{k + 1}": gpus for k, gpus in enumerate(alike(shares, means))}


def _apart(one: Mapping[str, float], other: Mapping[str, float], *means: Mapping[str, float]) -> float:
    """The most that two GPUs differ in."""
    of_shares = [abs(one[name] - other[name]) for name in one]
    both = [name for name in means[0] if name in means[1] and max(means[0][name], means[1][name]) <= 2]
    return float(max([*of_shares, *(abs(means[0][name] - means[1][name]) for name in both)], default=0.0))


@dataclass(frozen=True)
class Across:
    """A group of n GPUs over the same frames. Shares are of the frames in which each has a verdict.

    `work`, `idle`, `waiting` (n,) add up to 1 for each GPU: idle and waiting are the verdicts, all else is work. A
    frame in which work begins or ends is work, so frames are to be a hundredth of what is told apart, or shorter.
    `bubble` (n,): of the frames in which any of the group works, those in which this one is idle or waits. `alone`
    (n,): of the same, those in which this one works and all others do not. `straggler` is the position of the one that
    is alone most, -1 if none ever is. `all_idle`: frames in which all are idle. `skew`: the most work less the least.
    `measured`: of all frames those in which each has a verdict, NaN without any.
    """

    frames: int
    measured: float
    work: Floats
    idle: Floats
    waiting: Floats
    bubble: Floats
    alone: Floats
    all_idle: float
    skew: float
    straggler: int


def across(codes: Codes) -> Across:
    """What the verdicts (frames, gpus) of a group say of how it works together; all NaN without a frame measured."""
    known = codes[(codes != UNKNOWN).all(axis=1)]
    idle, waiting = known == IDLE, known == WAITING
    work = ~(idle | waiting)
    together = work[work.any(axis=1)]
    alone = together & (together.sum(axis=1) == 1)[:, None] if codes.shape[1] > 1 else np.zeros_like(together)
    shares_alone = _share(alone)
    return Across(
        len(known),
        len(known) / len(codes) if len(codes) else math.nan,
        _share(work),
        _share(idle),
        _share(waiting),
        _share(~together),
        shares_alone,
        float(_share(idle.all(axis=1, keepdims=True))[0]),
        float(np.ptp(_share(work))) if codes.shape[1] else 0.0,
        int(shares_alone.argmax()) if alone.any() else -1,
    )


@dataclass(frozen=True)
class Group:
    """GPUs at `positions` that work together; `lags` of each behind the first, in frames of `frame_ns`."""

    name: str
    positions: tuple[int, ...]
    across: Across
    lags: tuple[Lag, ...]
    frame_ns: int


def grouped(codes: Codes, groups: Mapping[str, Sequence[int]], frame_ns: int) -> list[Group]:
    """Of the verdicts (frames, gpus) of all GPUs, what each group comes to. Lags are those of when they work."""
    found = []
    most = max(1, min(MOST_LAG_NS // frame_ns, len(codes) // 32))
    for name, gpus in groups.items():
        of = codes[:, list(gpus)]
        work = np.where(of == UNKNOWN, np.nan, (of != IDLE) & (of != WAITING))
        lags = tuple(lag(work[:, 0], work[:, k], most) for k in range(len(gpus)))
        found.append(Group(name, tuple(gpus), across(of), lags, frame_ns))
    return found


def _share(holds: Bools) -> Floats:
    """(n,) the share of rows in which each column holds, NaN without rows."""
    if not len(holds):
        return np.full(holds.shape[1], np.nan)
    out: Floats = holds.mean(axis=0)
    return out
