"""Verdicts as a person reads them: a table of a window's, and a line a GPU of the last seconds as they come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cufall_py.analysis.advice import advice, evidence
from cufall_py.analysis.decision_table import CLASSES
from cufall_py.analysis.verdict_windows import WindowVerdict
from cufall_py.presets import RATES
from cufall_py.shown import MISSING, share_text

from .waterfall import clock

NAME_WIDTH = max(map(len, CLASSES))
LEAST_SHARE = 0.0005
"""What rounds to 0.0 % is not named."""
MOST_PLACES = 6
"""Of those where a sentence holds, so many are named."""


def evidence_text(verdict: str, means: Mapping[str, float]) -> str:
    """`dram 61%, tensor 4.7%`: the values that a class rests on."""
    return ", ".join(f"{name} {value_text(name, value)}" for name, value in evidence(verdict, means))


def value_text(name: str, value: float) -> str:
    """A share of the peak as a percent; of RATES, so many a second."""
    if math.isnan(value):
        return MISSING
    return f"{value:.0f}/s" if name in RATES else share_text(value)


def own_share(window: WindowVerdict) -> str:
    """The share of the verdict itself; `--` of a mix of classes of which another has more: `mixed 8%` would be read as
    if little were known."""
    return share_text(window.share) if _leads(window) else MISSING


def _leads(window: WindowVerdict) -> bool:
    return window.share >= max(window.shares.values())


HEAD = ("verdict", "share", "besides", "to its edge", "evidence")


def cells(window: WindowVerdict) -> tuple[str, ...]:
    """A window under HEAD."""
    evidence = evidence_text(window.verdict, window.means)
    return (window.verdict, own_share(window), besides(window), edge_text(window), evidence)


def besides(window: WindowVerdict) -> str:
    """`waiting 38%`: the classes that took time but for one whose share is told beside the verdict, most first."""
    told = window.verdict if _leads(window) else ""
    found = [(share, name) for name, share in window.shares.items() if share >= LEAST_SHARE and name != told]
    return ", ".join(f"{name} {share_text(share)}" for share, name in sorted(found, reverse=True))


def edge_text(window: WindowVerdict) -> str:
    """`20%, next latency-bound`: by how much the evidence would have to change for another verdict."""
    return ", next ".join(filter(None, [share_text(window.distance), window.nearest]))


def row(start_ns: int, gpus: Sequence[str], verdicts: Sequence[str], means: Sequence[Mapping[str, float]]) -> str:
    """`23:26:27.507739 g0 memory-bound    dram 61%, tensor 4.7%  g1 ...`: a frame as a line."""
    parts = [
        f"{gpu} {verdict:{NAME_WIDTH}} {evidence_text(verdict, of)}"
        for gpu, verdict, of in zip(gpus, verdicts, means, strict=True)
    ]
    return f"{clock(start_ns)} {'  '.join(parts)}"


def advices(windows: Iterable[tuple[str, WindowVerdict]]) -> Iterator[str]:
    """What to do about each class among these (place, window), each sentence once, with the places where it holds if
    there are several sentences; of unknown with all that any of them lacked."""
    windows = list(windows)
    lacking = tuple(dict.fromkeys(name for _, w in windows if w.verdict == "unknown" for name in w.missing))
    found: dict[tuple[str, str], dict[str, None]] = {}
    for place, w in windows:
        found.setdefault((w.verdict, advice(w.verdict, w.missing and lacking, w.means)), {})[place] = None
    for (name, sentence), places in found.items():
        yield f"{name}{f' ({_listed([*places])})' * (len(found) > 1)}: {sentence}"


def _listed(places: Sequence[str]) -> str:
    more = len(places) - MOST_PLACES
    return ", ".join(places[:MOST_PLACES]) + (f" and {more} more" if more > 0 else "")
