"""What verdicts cost: all of cufall with their set, and the work that it looks at."""

from __future__ import annotations

from bench import GEMM, Bench, Figures

from cufall_py.presets import VERDICT_NAMES
from cufall_py.resolve import Wanted

from .cost import tree_cost
from .target import off_on


def verdicts(bench: Bench) -> Figures:
    """As whole_cost, and off/on/off of a decode in a CUDA graph, each with what verdicts take."""
    with bench.load(*GEMM):
        cost = {
            "--set verdict": tree_cost(bench, ("--set", "verdict"), 3.0, 8.0),
            "--view verdict": tree_cost(bench, ("--view", "verdict"), 3.0, 8.0),
        }
    plan = bench.plan(wanted=Wanted().with_optional(VERDICT_NAMES))
    return {"cost": cost, "target": off_on(bench, ("decode", 16), plan, bench.blocks)}
