"""`cufall demo`: the recording that comes with cufall, and what is seen in it."""

from __future__ import annotations

from typing import Any

from . import Verb
from .live import SAMPLED, live, watch
from .playing import DEMO


def _demo(**options: Any) -> None:
    watch({**options, "rotate": 0.0, "source": DEMO})


demo = Verb(
    "demo",
    params=[option for option in live.params if option.name not in SAMPLED],
    callback=_demo,
    help="Play what an H200 did, once: no GPU is needed.",
)
