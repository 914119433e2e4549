"""The two minutes of `cufall verify`: which work is done under which counters, and what each must read.

What is certain by arithmetic: how many instructions a loop does, so that tensor cycles rise with them and each takes
a whole number of cycles; that other work takes none; how many cycles of the SM's own clock a kernel waits; how many
bytes a copy moves. What only another tool can tell (NVML GPM, Nsight Compute) is compared where it is there. How busy
the pipe gets by mma.sync is not judged: on Hopper it takes other instructions to fill it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from cufall_py.errors import CufallError

from . import ptx
from .checks import NOTHING, Check, Counted, at_most, complete, near, unknown, whole
from .loads import Loads, Ran

Say = Callable[[str], None]
Ncu = Callable[[str, int], float]
"""Tensor cycles of one launch of a kernel with this count, by Nsight Compute. Raises CufallError."""
MARGIN_NS = 10_000_000
"""By how much a window is wider than its work; loads leave twice this idle."""
STEADY = 0.3
"""The share of a load's begin that is left out where its pace is looked at."""
SHORT_S, LONG_S = 0.4, 2.0
TURNS = 20_000
SPIN_TURNS = 100_000
"""102 M cycles: some 60 ms, so that a launch's own microseconds are nothing beside it."""
TIMES = 3
"""How much longer the longer of two loops is."""
COPIED_L2 = 8
"""A copy is of so many L2 caches at least."""
LEAST_COPY, MOST_COPY = 1 << 28, 1 << 31


class Counter(Protocol):
    """Sampling that goes on."""

    def over(self, start_ns: int, end_ns: int) -> Counted:
        """What was counted then, once all of it has come."""


class Counting(Protocol):
    """Samples the GPU that the loads are on; `chip` is known once it has been sampled."""

    chip: str

    def sampling(self, metrics: Sequence[str], source: str = "cupti") -> AbstractContextManager[Counter]:
        """With these metrics at once. Raises CufallError where that cannot be."""


class Bench:
    """The loads and counters of one GPU, and how long a load must be to take a time."""

    def __init__(self, loads: Loads, counting: Counting) -> None:
        self.loads, self.counting, self.card = loads, counting, loads.card
        self._launch_s: dict[tuple[str, int], float] = {}

    def run(self, kernel: str, count: int, seconds: float) -> Ran:
        """A load of about so many seconds, after one that warms it up and tells how long a launch takes."""
        return self.loads.run(kernel, count, self.launches(kernel, count, seconds))

    def launches(self, kernel: str, count: int, seconds: float) -> int:
        if (kernel, count) not in self._launch_s:
            self.loads.run(kernel, count, 1)
            self._launch_s[kernel, count] = self.loads.run(kernel, count, 4).seconds / 4
        return max(2, math.ceil(seconds / max(self._launch_s[kernel, count], 1e-6)))

    def instructions(self, ran: Ran, a_turn: int = ptx.UNROLL) -> int:
        """Of all warps, in all of it."""
        return a_turn * ran.count * ran.launches * self.card.blocks * self.card.warps


def verify(loads: Loads, counting: Counting, ncu: Ncu, say: Say) -> list[Check]:
    """All checks. Raises CufallError if not even `tensor` can be sampled, or the loads end."""
    bench = Bench(loads, counting)
    found: list[Check] = []
    for words, names, part in PARTS:
        say(words)
        try:
            found += part(bench)
        except CufallError as error:
            if part is _tensor:
                raise
            found += [unknown(name, metric, str(error)) for name, metric in names]
    say("Nsight Compute")
    return [*found, _by_ncu(bench, ncu)]


def all_work(counter: Counter, ran: Ran) -> Counted:
    """All that a load did."""
    return counter.over(ran.start_ns - MARGIN_NS, ran.end_ns + MARGIN_NS)


def steady(counter: Counter, ran: Ran) -> Counted:
    """While it went at its pace."""
    length = ran.end_ns - ran.start_ns
    return counter.over(ran.start_ns + int(STEADY * length), ran.end_ns - int(0.05 * length))


def _tensor(bench: Bench) -> Iterator[Check]:
    """Tensor cycles of each type of product, none of other work, and the SM's clock."""
    with bench.counting.sampling(("tensor", "sm", "gr")) as counter:
        for kind in ptx.products(bench.card.capability):
            yield from _product(bench, counter, kind)
        yield from _without_tensor(bench, counter)
        yield from _clock(bench, counter)


def _product(bench: Bench, counter: Counter, kind: str) -> list[Check]:
    launches = bench.launches(kind, TURNS, SHORT_S)
    short, long = (bench.loads.run(kind, turns, launches) for turns in (TURNS, TIMES * TURNS))
    few, many = all_work(counter, short), all_work(counter, long)
    cycles = [of.all_of("tensor", bench.card.sms) for of in (few, many)]
    each = cycles[1] / bench.instructions(long)
    rises = near(
        f"{kind}: {TIMES} x the instructions, tensor cycles", "tensor", TIMES, _over(*cycles[::-1]), 0.005, "x"
    )
    checks = [
        rises,
        whole(f"{kind}: tensor cycles of an mma", "tensor", each, "cycles"),
        at_most(f"{kind}: share of the peak, at most", "tensor", 1.0, steady(counter, long).ratio("tensor"), "of peak"),
    ]
    return complete(checks, few, many)


def _without_tensor(bench: Bench, counter: Counter) -> Iterator[Check]:
    ran = {"fma": bench.run("fma", TURNS, SHORT_S), "idle": bench.loads.rest(SHORT_S)}
    for kind, one in ran.items():
        found = all_work(counter, one)
        checks = [near(f"{kind}: no tensor cycles", "tensor", 0.0, found.ratio("tensor"), NOTHING, "of peak")]
        if kind == "idle":
            checks.append(near("idle: gr", "gr", 0.0, found.ratio("gr"), 0.02, "of time"))
        yield from complete(checks, found)


def _clock(bench: Bench, counter: Counter) -> list[Check]:
    """A kernel that waits a number of cycles of its SM's clock, one block on each SM."""
    ran = bench.run("spin", SPIN_TURNS, LONG_S)
    found, exact = all_work(counter, ran), counter.over(ran.start_ns, ran.end_ns)
    cycles = ptx.SPIN_CYCLES * ran.count * ran.launches
    active, elapsed = found.all_of("sm", bench.card.sms) / bench.card.sms, _elapsed(exact, "tensor")
    checks = [
        near("spin: no tensor cycles", "tensor", 0.0, found.ratio("tensor"), NOTHING, "of peak"),
        near("spin: cycles that an SM is active", "sm", 1.0, active / cycles, 0.01, "of those waited"),
        near("spin: elapsed cycles, by the SM's clock", "tensor", 1.0, elapsed / cycles, 0.01, "of those waited"),
        near("spin: gr", "gr", 1.0, exact.ratio("gr"), 0.02, "of time"),
    ]
    return complete(checks, found, exact)


def _elapsed(of: Counted, name: str) -> float:
    return next((of.totals[m.elapsed] for m in of.metrics.metrics if m.label == name and not m.absent), math.nan)


def _types(bench: Bench) -> Iterator[Check]:
    """Tensor cycles by type are all of those of that type, and none of the other's."""
    with bench.counting.sampling(("tensor", "tensor.hmma", "tensor.imma")) as counter:
        for kind, own, other in (("bf16", "tensor.hmma", "tensor.imma"), ("int8", "tensor.imma", "tensor.hmma")):
            found = all_work(counter, bench.run(kind, TURNS, SHORT_S))
            every, ours, theirs = (found.all_of(name, bench.card.sms) for name in ("tensor", own, other))
            yield from complete(
                [
                    near(f"{kind}: {own} of all tensor cycles", own, 1.0, _over(ours, every), 0.001, "of all"),
                    near(f"{kind}: {other} of all tensor cycles", other, 0.0, _over(theirs, every), 0.001, "of all"),
                ],
                found,
            )


def _fma(bench: Bench) -> list[Check]:
    with bench.counting.sampling(("tensor", "fma")) as counter:
        launches = bench.launches("fma", TURNS, SHORT_S)
        short, long = (bench.loads.run("fma", turns, launches) for turns in (TURNS, TIMES * TURNS))
        few, many = all_work(counter, short), all_work(counter, long)
        events = [of.all_of("fma", bench.card.sms) for of in (few, many)]
        checks = [near(f"fma: {TIMES} x the instructions", "fma", TIMES, _over(*events[::-1]), 0.015, "x")]
        if any("inst_executed" in counter for m in many.metrics.metrics if m.label == "fma" for counter in m.counters):
            share = events[1] / bench.instructions(long, ptx.FMA_A_TURN)
            checks.append(near("fma: instructions of those in the loop", "fma", 1.0, share, 0.02, "x"))
        return complete(checks, few, many)


def _bytes(bench: Bench) -> list[Check]:
    """Bytes read and written of a copy that no cache holds."""
    size = _copied(bench)
    with bench.counting.sampling(("tensor", "dram", "gr")) as counter:
        ran = bench.run("copy", size, LONG_S)
        found = all_work(counter, ran)
        moved = float(size * ran.launches)
        parts = [part / moved for part in found.parts("dram", bench.card.sms)]
        read, written = parts if len(parts) == 2 else (math.nan, math.nan)
        checks = [
            near("copy: bytes read of those moved", "dram", 1.0, read, 0.02, "x"),
            near("copy: bytes written of those moved", "dram", 1.0, written, 0.02, "x"),
            near("copy: no tensor cycles", "tensor", 0.0, found.ratio("tensor"), NOTHING, "of peak"),
        ]
        return complete(checks, found)


def _copied(bench: Bench) -> int:
    """Bytes of a copy: of several L2 caches, and of whole MiB."""
    return min(max(LEAST_COPY, COPIED_L2 * bench.card.l2_bytes), MOST_COPY) >> 20 << 20


def _by_gpm(bench: Bench) -> Iterator[Check]:
    """The same seconds by the counters and by NVML's own utilisations."""
    with (
        bench.counting.sampling(("tensor", "dram")) as counter,
        bench.counting.sampling(("tensor", "dram"), source="gpm") as gpm,
    ):
        loads = (("bf16", TURNS, "tensor"), ("copy", _copied(bench), "dram"))
        for kernel, count, name in loads:
            ran = bench.run(kernel, count, LONG_S)
            ours, theirs = steady(counter, ran), steady(gpm, ran)
            said = f"{kernel}: {name}, counters against NVML GPM"
            yield from complete([near(said, name, theirs.ratio(name), ours.ratio(name), 0.02, "of peak")], ours)


def _cost(bench: Bench) -> list[Check]:
    """A load of the same length with sampling off, on, off, ...: the seconds it takes."""
    launches = bench.launches("bf16", TURNS, 1.0)
    off, on = [bench.loads.run("bf16", TURNS, launches).seconds], []
    for _ in range(2):
        with bench.counting.sampling(("tensor",)):
            on.append(bench.loads.run("bf16", TURNS, launches).seconds)
        off.append(bench.loads.run("bf16", TURNS, launches).seconds)
    name, spread = "a load takes, sampled at 1 kHz", (max(off) - min(off)) / statistics.median(off)
    if spread > 0.02:
        return [unknown(name, "", f"without sampling its length differs by {100 * spread:.1f} %")]
    return [near(name, "", 1.0, statistics.median(on) / statistics.median(off), 0.01 + spread, "x")]


def _by_ncu(bench: Bench, ncu: Ncu) -> Check:
    name = "bf16: tensor cycles of a launch, against Nsight Compute"
    try:
        theirs = ncu("bf16", TURNS)
        with bench.counting.sampling(("tensor",)) as counter:
            ran = bench.run("bf16", TURNS, SHORT_S)
            found = all_work(counter, ran)
    except CufallError as error:
        return unknown(name, "tensor", str(error))
    ours = found.all_of("tensor", bench.card.sms) / ran.launches
    return complete([near(name, "tensor", theirs, ours, 0.001 * theirs, "cycles")], found)[0]


def _over(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


Names = Sequence[tuple[str, str]]
PARTS: Sequence[tuple[str, Names, Callable[[Bench], Iterator[Check] | list[Check]]]] = (
    ("tensor cycles, and none of other work", (), _tensor),
    (
        "tensor cycles by type",
        (("tensor cycles by type", "tensor.hmma"), ("tensor cycles by type", "tensor.imma")),
        _types,
    ),
    ("fp32 on the CUDA cores", (("fma: instructions", "fma"),), _fma),
    ("bytes of memory", (("copy: bytes", "dram"),), _bytes),
    ("NVML GPM", (("counters against NVML GPM", "tensor"),), _by_gpm),
    ("what sampling costs", (("a load takes, sampled at 1 kHz", ""),), _cost),
)
"""What a person reads, the checks that cannot be made if its counters cannot be sampled, and what makes them."""
