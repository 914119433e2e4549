"""Short names: which counters mean `tensor`, `sm`, `dram`, ... on which chip.

A chip is known by its family. What VERIFIED lists agreed, on that chip, with the plain counter and with
Nsight Compute, or with the bytes that were moved (docs/accuracy.md); all else is the plain spelling of
CUPTI's tables and shown as not verified. `_realtime` spellings are counted once a TPC instead of once an SM
sub-partition: a third of the bytes a sample, and what keeps a set of several cheap to decode (docs/benchmarks.md).
"""

from __future__ import annotations

from dataclasses import dataclass

SM, SMSP, GR = "sm__cycles_elapsed.avg", "smsp__cycles_elapsed.avg", "gr__cycles_elapsed.max"
TIME, PER_SECOND = "time", "/s"
"""As an elapsed counter, a sample's own nanoseconds; and the unit of what is counted over them."""
DRAM, L2, PCIE = "dram__cycles_elapsed.avg", "lts__cycles_elapsed.avg", "pcie__cycles_elapsed.avg"


@dataclass(frozen=True)
class Recipe:
    """The counters that are summed, the elapsed counter of their clock, and whose peaks add up.

    With a `unit` it is no share of a peak, of which there is none, but that much of the unit.
    """

    counters: tuple[str, ...]
    elapsed: str
    peak_of: tuple[str, ...]
    unit: str = ""


Table = dict[str, "Recipe | str"]
"""Short name to recipe, or to the reason why the chip has none."""


def one(counter: str, elapsed: str) -> Recipe:
    return Recipe((counter,), elapsed, (counter,))


def shared(first: str, second: str, elapsed: str) -> Recipe:
    """Two directions of one bus: either alone can take all of its peak."""
    return Recipe((first, second), elapsed, (first,))


def both(first: str, second: str, elapsed: str) -> Recipe:
    """Two pipes side by side: the peak is the sum of theirs."""
    return Recipe((first, second), elapsed, (first, second))


def a_second(counter: str) -> Recipe:
    """Events a second."""
    return Recipe((counter,), TIME, (), PER_SECOND)


def c2c(elapsed: str) -> Table:
    """NVLink-C2C; its elapsed counter has another spelling on each family."""
    return {
        "c2c.rx": one("ctc__rx_bytes_data_user.sum", elapsed),
        "c2c.tx": one("ctc__tx_bytes_data_user.sum", elapsed),
    }


FMA_SPLIT = both("sm__inst_executed_pipe_fmaheavy_realtime.sum", "sm__inst_executed_pipe_fmalite_realtime.sum", SM)
FMA_PIPE = one("sm__pipe_fma_cycles_active.avg", SM)
NO_LINK = "this chip has no NVLink"
NO_C2C = "this chip has no NVLink-C2C"
NO_SPLIT = "this chip does not count tensor cycles by type"
NO_LAUNCHES = "nobody has looked for a counter of kernel launches on this chip"
LAUNCHES: Table = {"launches": a_second("gr__dispatch_count.sum")}
NOT_ONE_PASS = "needs more than one pass on this chip"

COMMON: Table = {
    "tensor": one("sm__pipe_tensor_cycles_active.avg", SM),
    "sm": one("sm__cycles_active.avg", SM),
    "gr": one("gr__cycles_active.avg", GR),
    "dram": shared("dram__bytes_read.sum", "dram__bytes_write.sum", DRAM),
    "issue": one("sm__issue_active.avg", SM),
    "fma": FMA_PIPE,
    "alu": one("sm__inst_executed_pipe_alu.sum", SM),
    "fp64": NOT_ONE_PASS,
    "l2": one("lts__t_bytes.sum", L2),
    "pcie.rx": one("pcie__read_bytes.sum", PCIE),
    "pcie.tx": one("pcie__write_bytes.sum", PCIE),
    "nvlink.rx": NO_LINK,
    "nvlink.tx": NO_LINK,
    "c2c.rx": NO_C2C,
    "c2c.tx": NO_C2C,
    "tensor.hmma": NO_SPLIT,
    "tensor.imma": NO_SPLIT,
    "tensor.dmma": NO_SPLIT,
    "occupancy": one("sm__warps_active.avg", SM),
    "launches": NO_LAUNCHES,
    "ctas": a_second("sm__ctas_launched.sum"),
}
SHORT_NAMES = tuple(COMMON)
RATES = ("launches", "ctas")
"""Those that are so much a second, and no share of a peak."""
MEANING = {
    "tensor": "cycles in which the tensor pipe was active",
    "sm": "cycles in which an SM had a warp resident",
    "gr": "cycles in which the graphics and compute engine was active",
    "dram": "bytes read and written of device memory",
    "issue": "instructions issued to the schedulers' slots",
    "fma": "FMA pipe use (fp32 and part of integer work on the CUDA cores)",
    "alu": "ALU pipe use (integer and logic work on the CUDA cores)",
    "fp64": "FP64 pipe use outside the tensor pipe",
    "l2": "bytes through the L2 cache",
    "pcie.rx": "bytes received over PCIe",
    "pcie.tx": "bytes sent over PCIe",
    "nvlink.rx": "bytes received over NVLink",
    "nvlink.tx": "bytes sent over NVLink",
    "c2c.rx": "bytes received over NVLink-C2C",
    "c2c.tx": "bytes sent over NVLink-C2C",
    "tensor.hmma": "tensor cycles of floating-point products (fp16, bf16, tf32, fp8)",
    "tensor.imma": "tensor cycles of integer products",
    "tensor.dmma": "tensor cycles of fp64 products",
    "occupancy": "warps resident, of the most an SM can hold",
    "launches": "kernels given to the engine, a second (no percent)",
    "ctas": "thread blocks (CTAs) launched, a second (no percent)",
}
NVLINK: Table = {
    "nvlink.rx": one("nvlrx__bytes.sum", "nvlrx__cycles_elapsed.avg"),
    "nvlink.tx": one("nvltx__bytes.sum", "nvltx__cycles_elapsed.avg"),
}
UNIFIED: Table = {
    **dict.fromkeys(("dram", "pcie.rx", "pcie.tx"), "this chip shares the system's memory and has no counter of it"),
    **c2c("ctc__cycles_elapsed.avg"),
}
SUBPIPES: Table = {
    "tensor.hmma": one("sm__pipe_tensor_subpipe_hmma_cycles_active_realtime.avg", SM),
    "tensor.imma": one("sm__pipe_tensor_subpipe_imma_cycles_active_realtime.avg", SM),
}
FP64_PIPE = one("sm__pipe_fp64_cycles_active.avg", SM)
GH100: Table = {
    "tensor": one("sm__pipe_tensor_cycles_active_realtime.avg", SM),
    "issue": one("sm__inst_executed_realtime.sum", SM),
    "fma": FMA_SPLIT,
    "alu": one("sm__inst_executed_pipe_alu_realtime.sum", SM),
    "fp64": one("sm__pipe_fp64_cycles_active_realtime.avg", SM),
    "tensor.hmma": one("sm__pipe_tensor_op_hmma_cycles_active_realtime.avg", SM),
    "tensor.imma": one("sm__pipe_tensor_op_imma_cycles_active_realtime.avg", SM),
    "tensor.dmma": one("smsp__pipe_tensor_op_dmma_cycles_active_realtime.avg", SMSP),
    "occupancy": one("sm__warps_active_realtime.avg", SM),
    "ctas": a_second("gr__ctas_launched_realtime.sum"),
    **c2c("CTC.TriageCompute.ctc__cycles_elapsed.avg"),
}
TCGEN05 = "SM 10.x may count its tensor work (tcgen05) elsewhere, and nobody has checked this chip"
SM10: Table = {
    **dict.fromkeys(("tensor", "tensor.hmma", "tensor.imma", "tensor.dmma"), TCGEN05),
    **dict.fromkeys(("nvlink.rx", "nvlink.tx"), "this chip has no elapsed counter of that link's clock"),
    **c2c("CTC_A.TriageCompute.ctc__cycles_elapsed.avg"),
}
FAMILIES: dict[str, Table] = {
    "GA100": {**COMMON, **NVLINK, **LAUNCHES, "fp64": FP64_PIPE},
    "GA10x": {**COMMON, **NVLINK, "fma": FMA_SPLIT},
    "AD10x": {**COMMON, **LAUNCHES, "fma": FMA_SPLIT},
    "GH100": {**COMMON, **NVLINK, **LAUNCHES, **GH100},
    "GB100": {**COMMON, **SM10, **LAUNCHES, "fma": FMA_SPLIT, "fp64": FP64_PIPE},
    "GB110": {**COMMON, **SM10, "fma": FMA_SPLIT},
    "GB20x": {
        **COMMON,
        **SUBPIPES,
        **LAUNCHES,
        "dram": shared("dram__bytes_op_read.sum", "dram__bytes_op_write.sum", DRAM),
    },
    "GB10B": {**COMMON, **UNIFIED},
    "GB20B": {**COMMON, **UNIFIED, **SUBPIPES},
}
VERDICT_SETS: dict[str, tuple[str, ...]] = {
    "GA100": ("tensor", "sm", "gr", "dram", "pcie.rx", "pcie.tx"),
    "GA10x": ("tensor", "sm", "gr", "dram", "pcie.rx", "pcie.tx"),
    "AD10x": ("tensor", "sm", "gr", "dram", "pcie.rx", "pcie.tx"),
    "GH100": ("tensor", "sm", "gr", "dram", "issue", "fma", "alu", "launches", "pcie.rx", "pcie.tx"),
    "GB100": ("sm", "gr", "dram", "pcie.rx", "pcie.tx"),
    "GB110": ("sm", "gr", "dram", "pcie.rx", "pcie.tx"),
    "GB20x": ("tensor", "sm", "gr", "dram", "pcie.rx", "pcie.tx"),
    "GB10B": ("tensor", "sm", "gr"),
    "GB20B": ("tensor", "sm", "gr"),
}
"""By family: what `--set verdict` reads, in one pass. What is not in it, verdicts go without, and say so."""
VERDICT_NAMES = tuple(name for name in SHORT_NAMES if any(name in names for names in VERDICT_SETS.values()))
"""All of these, so that GPUs of several kinds have the same rows."""
VERIFIED: dict[str, tuple[str, ...]] = {
    "GH100": (
        "tensor",
        "sm",
        "gr",
        "dram",
        "l2",
        "issue",
        "fma",
        "alu",
        "pcie.rx",
        "pcie.tx",
        "tensor.hmma",
        "tensor.imma",
        "tensor.dmma",
        "occupancy",
        "launches",
        "ctas",
    )
}
"""By family: the short names that were checked on hardware."""
PEAKS: dict[str, dict[str, float]] = {
    "GH100": {
        "sm__pipe_tensor_cycles_active.avg": 4,
        "sm__pipe_tensor_cycles_active_realtime.avg": 4,
        "sm__cycles_active.avg": 1,
        "sm__warps_active.avg": 64,
    }
}
"""By family: peaks a cycle as hardware told them (docs/accuracy.md). To sample, they are asked of the chip itself."""
CHIPS = {
    "GA100": "GA100",
    "GA10": "GA10x",
    "AD10": "AD10x",
    "GH100": "GH100",
    "GB100": "GB100",
    "GB102": "GB100",
    "GB110": "GB110",
    "GB20B": "GB20B",
    "GB10B": "GB10B",
    "GB20": "GB20x",
}
"""Start of CUPTI's chip name to family; the longest that fits wins."""


def family(chip: str) -> str | None:
    """The family of a chip, None if cufall does not know it."""
    fits = [start for start in CHIPS if chip.upper().startswith(start)]
    return CHIPS[max(fits, key=len)] if fits else None


def table(chip: str) -> Table:
    """Short names on this chip; empty if its family is unknown."""
    known = family(chip)
    return FAMILIES[known] if known else {}


def in_verdict_set(name: str, chip: str) -> bool:
    """Whether `--set verdict` reads this short name on this chip."""
    return name in VERDICT_SETS.get(family(chip) or "", ())


def verified(name: str, chip: str) -> bool:
    """Whether this short name was checked on hardware of this chip's family."""
    return name in VERIFIED.get(family(chip) or "", ())
