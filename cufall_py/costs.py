"""What sets of counters cost to sample, as it was measured (benchmarks/counter_cost.py); no other figure is given."""

from __future__ import annotations

from dataclasses import dataclass

CARD, CHIP, DATE = "NVIDIA H200", "GH100", "2026-11-30"
HOW = "under a bf16 GEMM, samples of 1 ms, decodes of 50 ms, raw calls"
DEAR = 0.1
"""A share of a core for one GPU that a set costing more is called dear; what lies between 0.065 and 0.28 is empty."""
TENSOR = "sm__pipe_tensor_cycles_active.avg"
TRIAGE = "the SM's counters as TPC.TriageCompute.*"


@dataclass(frozen=True)
class Cost:
    """A set of metrics (short names or counters, elapsed counters beside them), and what one GPU's sampling took.

    `image_bytes` a sample in CUPTI's counter image, `decode_ms` a decode, `core` of one processor core (0..1).
    """

    metrics: tuple[str, ...]
    image_bytes: int
    decode_ms: float
    core: float
    note: str = ""

    @property
    def label(self) -> str:
        return " + ".join(self.metrics)

    @property
    def dear(self) -> bool:
        return self.core > DEAR


COSTS = (
    Cost((TENSOR,), 20848, 2.2, 0.047),
    Cost(("tensor",), 7024, 1.6, 0.035),
    Cost((TENSOR, "gr__cycles_elapsed.max"), 21136, 2.4, 0.050),
    Cost((TENSOR, "sm", "gr"), 25776, 14.5, 0.283),
    Cost(("tensor", "sm", "gr"), 11952, 2.3, 0.050),
    Cost(("tensor", "sm", "gr", "dram"), 16944, 3.0, 0.062),
    Cost(("tensor", "sm", "gr", "dram", "pcie.rx", "pcie.tx"), 17008, 2.9, 0.061),
    Cost(("tensor", "sm__issue_active.avg"), 39312, 15.4, 0.302),
    Cost(("tensor", "issue"), 11664, 2.3, 0.049),
    Cost(("tensor", "fma"), 16304, 2.3, 0.050),
    Cost(("tensor", "alu"), 11664, 2.2, 0.046),
    Cost(("tensor", "fp64"), 11664, 1.9, 0.042),
    Cost(("tensor", "tensor.hmma"), 11664, 1.8, 0.040),
    Cost(("tensor", "tensor.dmma"), 25488, 3.0, 0.063),
    Cost(("tensor", "l2"), 13232, 2.5, 0.052),
    Cost(("tensor", "occupancy"), 11664, 2.2, 0.047),
    Cost(("tensor", "sm", "gr", "issue", "fma", "alu", "fp64"), 35152, 24.4, 0.469, TRIAGE),
    Cost(("tensor", "sm", "gr", "dram", "issue", "fma", "gr__ctas_launched_realtime.sum"), 30864, 22.0, 0.425, TRIAGE),
)


def costs(family: str | None) -> tuple[Cost, ...]:
    """Every set measured on a chip of this family."""
    return COSTS if family == CHIP else ()


def beside_tensor(name: str, family: str | None) -> Cost | None:
    """What `name` cost when it was sampled with `tensor` (and `tensor` alone); None where nobody has measured it."""
    wanted = {"tensor", name}
    return next((cost for cost in costs(family) if set(cost.metrics) == wanted and not cost.note), None)
