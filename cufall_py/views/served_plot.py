"""By running requests as a picture: a panel a quantity, a point a row with its 95 % interval. SVG, alone in a file."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from cufall_py.analysis.concurrency import Mean
from cufall_py.served import Served

from .served import headings, in_unit, number, running, times, title, tokens

WIDTH, HEIGHT, GAP, LEFT, TOP = 220, 130, 50, 50, 60
DOT, INK, LINE = 3, "#333", "#2b7bba"


def svg(found: Sequence[Served]) -> str:
    """Tokens a second, inter-token latency and each metric against running requests; a row of panels a server."""
    width = LEFT + max((len(_panels(one)) for one in found), default=1) * (WIDTH + GAP)
    each = TOP + HEIGHT + 50
    body = "".join(f'<g transform="translate(0 {k * each})">{_server(one)}</g>' for k, one in enumerate(found))
    height = max(each * len(found), 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}">'
        f'<rect width="{width}" height="{height}" fill="white"/>{body}</svg>\n'
    )


def _server(one: Served) -> str:
    head = f'<text x="{LEFT}" y="20" font-size="13">{html.escape(title(one.log))}: against running requests</text>'
    return head + "".join("".join(_panel(k, name, means, one)) for k, (name, means) in enumerate(_panels(one)))


def _panels(one: Served) -> list[tuple[str, list[Mean]]]:
    made = [(name, means) for name, means in tokens(one.rows).items() if any(mean.value > 0 for mean in means)]
    panels = [
        *made,
        ("inter-token latency, ms", [times(row.tpot_s, 1000) for row in one.rows]),
        *(
            (f"{label}, %" if unit == "%" else heading, [in_unit(row.metrics[label], unit)[0] for row in one.rows])
            for label, unit, heading in zip(one.labels, one.units, headings(one), strict=True)
        ),
    ]
    return [(name, means) for name, means in panels if any(math.isfinite(mean.value) for mean in means)]


def _panel(k: int, name: str, means: Sequence[Mean], one: Served) -> Iterator[str]:
    """Rows stand at even distances, for numbers of requests are mostly powers of two; values begin at 0."""
    left, bottom = LEFT + k * (WIDTH + GAP), TOP + HEIGHT
    most = max(_top(mean) for mean in means if math.isfinite(mean.value)) or 1.0
    xs = [left + WIDTH * (j + 0.5) / len(means) for j in range(len(means))]
    yield f'<text x="{left}" y="{TOP - 10}">{html.escape(name)}</text>'
    yield f'<path d="M{left} {TOP}V{bottom}H{left + WIDTH}" fill="none" stroke="{INK}"/>'
    yield f'<text x="{left - 4}" y="{TOP + 4}" text-anchor="end">{number(most)}</text>'
    yield f'<text x="{left - 4}" y="{bottom}" text-anchor="end">0</text>'
    shown = [(x, mean) for x, mean in zip(xs, means, strict=True) if math.isfinite(mean.value)]
    points = " ".join(f"{x:.1f},{bottom - HEIGHT * mean.value / most:.1f}" for x, mean in shown)
    yield f'<polyline points="{points}" fill="none" stroke="{LINE}"/>'
    for x, mean in shown:
        if math.isfinite(mean.low):
            low, high = (bottom - HEIGHT * max(value, 0) / most for value in (mean.low, mean.high))
            yield f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{LINE}"/>'
        yield f'<circle cx="{x:.1f}" cy="{bottom - HEIGHT * mean.value / most:.1f}" r="{DOT}" fill="{LINE}"/>'
    for x, row in zip(xs, one.rows, strict=True):
        yield f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{running(row)}</text>'


def _top(mean: Mean) -> float:
    return mean.high if math.isfinite(mean.high) else mean.value
