"""What a comparison is asked: `--fail-if 'METRIC.STAT[REGION] CHANGE'` and `--min-effect CHANGE`, as words and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cufall_py.errors import UsageError

RELATIVE, POINTS = "%", "pp"
STATISTICS = ("mean", "p5", "p50", "p95", "idle_share")
OF_SAMPLES = STATISTICS[1:]
"""Those of the samples' own values, which depend on how long a sample is."""
CHANGE = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(%|pp)")
QUOTED, BARE = r'"([^"]*)"', r'([^\[\]"]*)'
LIMIT = re.compile(rf"\s*([^\s\[\]]+)\.([^\s.\[\]]+)\s*(?:\[(?:{QUOTED}|{BARE})\])?\s+(\S+)\s*")
FORM = "METRIC.STAT CHANGE, as 'tensor.mean -5%' or 'tensor.idle_share[prefill] +2pp'"
LARGEST = 1e6


@dataclass(frozen=True)
class Change:
    """`size` 0.05 is 5 %, or 5 points, by its `unit`; `sign` is -1 or 1."""

    size: float
    unit: str
    sign: int = 1

    def __str__(self) -> str:
        return f"{'-' if self.sign < 0 else '+'}{100 * self.size:g}{self.unit}"


@dataclass(frozen=True)
class Limit:
    """A change that is too much, of a statistic of a metric; `region` empty: of the whole run."""

    metric: str
    statistic: str
    region: str
    most: Change

    def __str__(self) -> str:
        region = f"[{self.region}]" if self.region else ""
        return f"{self.metric}.{self.statistic}{region} {self.most}"


DEFAULT_EFFECTS = (Change(0.015, RELATIVE), Change(0.01, POINTS))
"""By how much two of six runs of one load differed at most on an H200 (docs/statistics.md)."""


def limit(text: str) -> Limit:
    """The limit that `--fail-if` was given. Raises UsageError that says what is wrong and what the form is."""
    found = LIMIT.fullmatch(text)
    if not found:
        raise _refused("--fail-if", text, f"must be {FORM}")
    metric, statistic, quoted, bare, change = found.groups()
    region = quoted if quoted is not None else bare
    if statistic not in STATISTICS:
        raise _refused("--fail-if", text, f"no statistic {statistic}; there are {', '.join(STATISTICS)}")
    if region is not None and not region.strip():
        raise _refused("--fail-if", text, "the brackets hold no region")
    sign, size, unit = _parts("--fail-if", text, change)
    if not sign:
        raise _refused("--fail-if", text, f"is more of it too much (+{change}), or less (-{change})?")
    return Limit(metric, statistic, region.strip() if region else "", Change(size, unit, -1 if sign == "-" else 1))


def effects(texts: Sequence[str]) -> dict[str, float]:
    """The least change that counts, by unit, as `--min-effect` was given; the default of a unit that was not."""
    found = {change.unit: change.size for change in DEFAULT_EFFECTS}
    for text in texts:
        sign, size, unit = _parts("--min-effect", text, text.strip())
        if sign == "-":
            raise _refused("--min-effect", text, "must not be below 0")
        found[unit] = size
    return found


def _parts(option: str, text: str, change: str) -> tuple[str, float, str]:
    found = CHANGE.fullmatch(change)
    if not found or float(found[2]) > LARGEST:
        raise _refused(option, text, f"{change} is no change; must be as 5% (of it) or 5pp (points)")
    return found[1], float(found[2]) / 100, found[3]


def _refused(option: str, text: str, why: str) -> UsageError:
    return UsageError(f"{option} {text}: {why}")
