"""Groups of GPUs as a person reads them: a table a group, and a line of what it comes to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cufall_py.analysis.groups import Across, Group
from cufall_py.shown import MISSING, percent

from .tables import Table

NEARLY_ALL = 0.99
"""Of the frames: a group that has a verdict of each GPU in less of them says so."""
HEAD = ("gpu", "work", "idle", "waiting", "bubble", "alone", "lag")


def table(group: Group, labels: Sequence[str]) -> Table:
    """A row a GPU; `labels` are those of all GPUs."""
    found = group.across
    columns = (found.work, found.idle, found.waiting, found.bubble, found.alone)
    rows = [
        (labels[position], *(percent(float(column[k])) for column in columns), _lag(group, k))
        for k, position in enumerate(group.positions)
    ]
    return Table(HEAD, rows)


def line(group: Group, labels: Sequence[str]) -> str:
    """`decode: all idle 3.1%, skew 12.0%, straggler g3 (alone at work 17.3%)`."""
    return f"{group.name}: {told(group.across, [labels[position] for position in group.positions])}"


def told(found: Across, labels: Sequence[str]) -> str:
    """The same of a group whose GPUs are called so."""
    told = [f"all idle {percent(found.all_idle)}", f"skew {percent(found.skew)}"]
    if found.straggler >= 0:
        who, alone = labels[found.straggler], float(found.alone[found.straggler])
        told.append(f"straggler {who} (alone at work {percent(alone)})")
    if found.measured < NEARLY_ALL:
        told.append(f"of the {percent(found.measured)} of frames in which each has a verdict")
    return ", ".join(told)


def _lag(group: Group, k: int) -> str:
    """Behind the first of the group, with its standard error."""
    found, frame_ms = group.lags[k], group.frame_ns / 1e6
    if k == 0 or math.isnan(found.frames):
        return MISSING
    return f"{found.frames * frame_ms:.3g} ms +- {found.error * frame_ms:.2g}"
