"""How often the intervals of `cufall compare` hold the truth: `python benchmarks/coverage.py [RUNS [STATISTIC...]]`.

Both sides of each comparison are runs of one made-up load, so the true change is 0. Prints the table of
docs/statistics.md; with 2,000 runs, the default, a share is known to half a point (one standard error).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pool

import numpy as np
from numpy.typing import NDArray

from cufall_py.analysis.comparison import least_samples
from cufall_py.analysis.intervals import Estimate, between_runs, difference, relative, within_run
from cufall_py.analysis.limits import STATISTICS
from cufall_py.analysis.streamed import Chunk, statistic, value

Floats = NDArray[np.float64]
Load = Callable[[int, np.random.Generator], Floats]
"""A run of so many samples, each a share of the peak."""
SAMPLES = 4000
BUSY, REST = 0.6, 0.0


def autoregressive(rho: float) -> Load:
    """About 0.5, a tenth of that as noise; each sample remembers `rho` of the one before."""

    def load(samples: int, rng: np.random.Generator) -> Floats:
        shocks = rng.standard_normal(samples) * np.sqrt(1 - rho**2)
        shocks[0] = rng.standard_normal()
        out, before = np.empty(samples), 0.0
        for k, shock in enumerate(shocks.tolist()):
            out[k] = before = rho * before + shock
        return 0.5 + 0.05 * out

    return load


def bursts(dwells: float, even: bool = False) -> Load:
    """On and off, each for 1/`dwells` of the run in the mean: by chance (exponential), or `even`: half to one and a
    half of that. What is on varies a little by itself."""

    def load(samples: int, rng: np.random.Generator) -> Floats:
        count = int(4 * dwells) + 40
        lengths = rng.uniform(0.5, 1.5, count) if even else rng.exponential(1.0, count)
        edges = np.cumsum(lengths * samples / dwells) - rng.uniform(4, 6) * samples / dwells
        on = (np.searchsorted(edges, np.arange(samples)) + rng.integers(2)) % 2
        return np.where(on, BUSY + 0.01 * rng.standard_normal(samples), REST)

    return load


def drifting(spread: float) -> Load:
    """White noise about a level that differs from run to run."""

    def load(samples: int, rng: np.random.Generator) -> Floats:
        return 0.5 * (1 + spread * rng.standard_normal()) + 0.05 * rng.standard_normal(samples)

    return load


@dataclass(frozen=True)
class Case:
    """`runs` a side, compared by a statistic: below three by the noise within runs."""

    name: str
    load: Load
    statistic: str = "mean"
    runs: int = 1
    samples: int = SAMPLES

    def holds(self, seed: int) -> tuple[bool, bool]:
        """Whether the interval of one comparison holds 0, and whether it has the samples it needs."""
        rng = np.random.default_rng((seed, 17))
        base, new = self.side(rng), self.side(rng)
        interval = difference(base, new) if self.statistic == "idle_share" else relative(base, new)
        enough = min(base.effective, new.effective) >= least_samples(self.statistic, self.runs > 2)
        return interval.low <= 0 <= interval.high, enough

    def side(self, rng: np.random.Generator) -> Estimate:
        found = [statistic(self.statistic) for _ in range(self.runs)]
        for one in found:
            one.add(chunk(self.load(self.samples, rng)))
        if self.runs > 2:
            return between_runs([value(one) for one in found], self.samples)
        return within_run(found[0].sums, found[0].of, found[0].influence(), rng)


def chunk(ratios: Floats) -> Chunk:
    """Samples of 1 ms of a pipe that has 4 cycles of peak, at 2 GHz."""
    cycles = np.full(len(ratios), 8e6)
    return Chunk(ratios * cycles, cycles, np.full(len(ratios), 1e6), np.ones(len(ratios), bool))


CASES = (
    *(Case(f"AR(1), rho {rho:g}", autoregressive(rho)) for rho in (0, 0.5, 0.8, 0.9, 0.95)),
    Case("AR(1), rho 0.95, 1,000 samples", autoregressive(0.95), samples=1000),
    *(Case(f"bursts of 1/{dwells} of the run", bursts(dwells)) for dwells in (1000, 200, 100, 50)),
    Case("bursts of 1/200, of even length", bursts(200, even=True)),
    Case("bursts of 1/50, of even length", bursts(50, even=True)),
    Case("bursts of 1/200 of the run", bursts(200), "idle_share"),
    Case("bursts of 1/50 of the run", bursts(50), "idle_share"),
    *(Case(f"AR(1), rho {rho:g}", autoregressive(rho), which) for rho in (0, 0.8) for which in ("p5", "p50", "p95")),
    Case("runs that differ by 2 %, 3 a side", drifting(0.02), runs=3),
    Case("runs that differ by 2 %, 5 a side", drifting(0.02), runs=5),
    Case("runs that differ by 2 %, 1 a side", drifting(0.02)),
)


def coverage(case: Case, runs: int) -> tuple[float, float]:
    """Of so many comparisons: the share that held the truth, of those with enough samples; and the share of those."""
    told = [case.holds(seed) for seed in range(runs)]
    judged = [held for held, enough in told if enough]
    return sum(judged) / max(1, len(judged)), len(judged) / runs


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    chosen = [k for k, case in enumerate(CASES) if case.statistic in (sys.argv[2:] or STATISTICS)]
    print("| load | statistic | interval holds the truth | refused |\n|---|---|---|---|")
    with Pool() as pool:
        pending = [(CASES[k], pool.apply_async(_by_position, (k, runs))) for k in chosen]
        for case, result in pending:
            held, judged = result.get()
            print(f"| {case.name} | {case.statistic} | {100 * held:.1f} % | {100 * (1 - judged):.1f} % |", flush=True)


def _by_position(k: int, runs: int) -> tuple[float, float]:
    return coverage(CASES[k], runs)


if __name__ == "__main__":
    main()
