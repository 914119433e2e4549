"""Measured, ceiling and gap of the tensor pipe as a table, and the notes a person needs to read it right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cufall_py.analysis.ceiling import MEMORY_BELOW, NOT_ACTIVE, NOTHING, OR, Serving, Work
from cufall_py.analysis.models import Model
from cufall_py.headroom import BY_MODEL, CLOCK_STATED, Headroom, Question
from cufall_py.peaks import peaks_of
from cufall_py.shown import EVERYTHING, MISSING, percent

from .tables import Table, text

TITLE = "tensor pipe: measured, ceiling, and what fills the gap (shares of its peak)"
NOT_ACTIVE_COLUMN, MEMORY_COLUMN, REST_COLUMN = FILLS = ("not active", "memory idle", "rest")
COLUMNS = {NOT_ACTIVE: NOT_ACTIVE_COLUMN, MEMORY_BELOW: MEMORY_COLUMN}


def lines(question: Question, found: Sequence[Headroom], kinds: Sequence[str], ascii_only: bool = False) -> list[str]:
    """A table of all rows, then the notes. `kinds`: the names of the GPUs."""
    return ["", TITLE, *text(table(found), ascii_only), "", *notes(question, found, kinds)]


def table(found: Sequence[Headroom]) -> Table:
    """A row a region, GPU and way of telling the ceiling."""
    head = ("region", "gpu", "by", "limit", "measured", "ceiling", "gap", *FILLS, "memory")
    return Table(head, [_cells(headroom) for headroom in found], words=4)


def _cells(of: Headroom) -> tuple[str, ...]:
    gap = of.gap
    place = (of.region or EVERYTHING, f"g{of.gpu}", of.by)
    if math.isnan(gap.ceiling.ratio):
        return (*place, MISSING, percent(gap.measured), *[MISSING] * (len(FILLS) + 2), _moved(of))
    limit = MISSING if gap.ceiling.limit == NOTHING else gap.ceiling.limit
    figures = (gap.measured, gap.ceiling.ratio, gap.ceiling.ratio - gap.measured, *_filled(of))
    return (*place, limit, *map(_points, figures), _moved(of))


def _moved(of: Headroom) -> str:
    return MISSING if math.isnan(of.bytes_per_s) else f"{of.bytes_per_s / 1e9:.4g} GB/s"


def _filled(of: Headroom) -> tuple[float, ...]:
    """The parts by column; one that holds two, for they cannot be told apart, stands in the later of them."""
    columns = dict.fromkeys(FILLS, math.nan)
    for name, points in of.gap.parts:
        columns[COLUMNS.get(name.split(OR)[-1], REST_COLUMN)] = points
    return tuple(columns.values())


def _points(share: float) -> str:
    return f"-{percent(-share)}" if share < 0 else percent(share)


def notes(question: Question, found: Sequence[Headroom], kinds: Sequence[str]) -> Iterator[str]:
    """What a person must know to read the table right. `kinds`: the names of the GPUs."""
    yield "by counters: what the same instructions and bytes could reach, were the busier of both busy all the time"
    if question.model and question.work:
        yield f"by model: {_told(question.model, question.serving)}; {_step(question.work)}"
    for kind in dict.fromkeys(kinds):
        if question.model and (peaks := peaks_of(kind)):
            yield f"{kind}: {peaks.source}"
    for why in dict.fromkeys(of.why for of in found if of.why):
        where = dict.fromkeys(f"g{of.gpu}" for of in found if of.why == why)
        yield f"{', '.join(where)}: no ceiling: {why}"
    of_model = [of for of in found if of.by == BY_MODEL and not math.isnan(of.gap.ceiling.ratio)]
    if unclocked := dict.fromkeys(f"g{of.gpu} {of.mhz:.0f} MHz" for of in of_model if of.clock == CLOCK_STATED):
        yield f"the SM clock was not measured, so it is the data sheet's: {', '.join(unclocked)}"
    if len({of.region for of in of_model}) > 1:
        yield (
            "a model's row is right only where the work was what --phase, --batch and --context say: --region NAME "
            "tells one region alone"
        )
    if any(of.gap.measured > of.gap.ceiling.ratio for of in of_model):
        yield (
            "more than the model's ceiling was measured: products are padded to whole tiles, or more tokens went "
            "through than --batch and --context say"
        )


def _told(model: Model, serving: Serving) -> str:
    phase = "prefill" if serving.prefill else "decode"
    served = (
        f"{phase} of {serving.batch} x {serving.context} tokens"
        if serving.prefill
        else (f"{phase} at batch {serving.batch}, {serving.context} tokens of context")
    )
    split = f", each layer split over {serving.gpus} GPUs" if serving.gpus > 1 else ""
    return f"{model.name}, {model.active / 1e9:.4g} B weights a token, {served}{split}"


def _step(work: Work) -> str:
    flop = " + ".join(f"{flop / 1e9:.4g} GFLOP ({kind})" for kind, flop in work.flop.items()) or "no FLOP"
    return (
        f"a step on each GPU: {flop}, {work.weight_bytes / 1e9:.4g} GB of weights, {work.cache_bytes / 1e9:.4g} GB of "
        "cache; activations are left out"
    )
