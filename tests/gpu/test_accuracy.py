"""The number is right: against Nsight Compute, NVML GPM and arithmetic."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator

import numpy as np
import pytest

from cufall_py.samples import fold

from .measure import KINDS, SIZES, TENSOR_AVG, TENSOR_PCT, TENSOR_SUM, Gpm, Loads, Sampling, Wanted, note, sampled

pytestmark = pytest.mark.gpu
Ncu = dict[tuple[str, int], dict[str, float]]
WIDE = ("tensor", "sm", "gr", "dram", "pcie.rx", "pcie.tx")
GR = "gr__cycles_elapsed.max"
SECONDS = {"fp64": 1.5}
"""Of products of 8192; the other kinds take 1."""
PHASE_US = 7000


@pytest.fixture(scope="class")
def wide(ncu: Ncu, loads: Loads) -> Iterator[Sampling]:
    """One session at 1 kHz for a class of tests."""
    with Sampling(wanted=Wanted(WIDE), sample_us=1000) as sampling:
        yield sampling


class TestSteadyLoads:
    """Loads that stand still."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_percent_and_cycles_at_8192(self, wide: Sampling, loads: Loads, ncu: Ncu, kind: str) -> None:
        answer = loads.run(kind, 8192, SECONDS.get(kind, 1.0))
        percent, by_ncu = wide.within(answer).percent(), ncu[kind, 8192][TENSOR_PCT]
        note(f"percent {kind}", cufall=percent, ncu=by_ncu)
        assert abs(percent - by_ncu) < 2
        self.conserved(wide, answer, ncu[kind, 8192], f"cycles {kind} 8192")

    @pytest.mark.parametrize("size", [size for size in SIZES if size < 8192])
    @pytest.mark.parametrize("kind", KINDS)
    def test_cycles_of_short_kernels(self, wide: Sampling, loads: Loads, ncu: Ncu, kind: str, size: int) -> None:
        self.conserved(wide, loads.run(kind, size, 0.4), ncu[kind, size], f"cycles {kind} {size}")

    @staticmethod
    def conserved(wide: Sampling, answer: dict[str, int], by_ncu: dict[str, float], name: str) -> None:
        """A window's cycles over its launches are those of one launch; `.avg` is of an SM, `.sum` of all."""
        sms = wide.session.gpus[0].device.sm_count
        found = wide.over(answer)
        each = sms * found.totals[counter_of(wide)] / answer["launches"]
        ratio = each / by_ncu[TENSOR_SUM]
        note(name, launches=answer["launches"], cufall_sum=each, ncu_sum=by_ncu[TENSOR_SUM], ratio=ratio)
        assert ratio == pytest.approx(1, abs=0.01)

    @pytest.mark.parametrize("load", [("bf16", 8192), ("copy", 1024)], ids=lambda load: load[0])
    def test_against_gpm(self, wide: Sampling, loads: Loads, load: tuple[str, int]) -> None:
        gpm = Gpm(wide.session.gpus[0].device.uuid)
        loads.begin(*load, 2.5)
        time.sleep(1.0)
        gpm.take(0)
        time.sleep(1.5)
        gpm.take(1)
        loads.answer()
        by_gpm, start, end = gpm.between()
        window = wide.window(start, end)
        percent = {name: window.percent(name) for name in by_gpm}
        note(f"gpm {load[0]}", cufall=percent, gpm=by_gpm, seconds=(end - start) / 1e9)
        assert percent == pytest.approx(by_gpm, abs=2)

    @pytest.mark.parametrize("load", [("fp32", 4096), ("idle", 0), ("copy", 1024)], ids=lambda load: load[0])
    def test_no_tensor_work_reads_as_none(self, wide: Sampling, loads: Loads, load: tuple[str, int]) -> None:
        found = wide.within(loads.run(*load, 0.8))
        note(f"none {load[0]}", **{name: found.percent(name) for name in WIDE})
        assert found.percent() < 0.1

    def test_sm_and_gr_are_busy_under_a_product_and_idle_without(self, wide: Sampling, loads: Loads) -> None:
        busy, idle = wide.within(loads.run("bf16", 8192, 0.6)), wide.within(loads.run("idle", 0, 0.6))
        note("busy", **{name: busy.percent(name) for name in WIDE})
        assert busy.percent("gr") > 97 and busy.percent("sm") > 90
        assert idle.percent("gr") < 1 and idle.percent("sm") < 0.1

    def test_dram_counts_the_bytes_of_a_device_copy(self, wide: Sampling, loads: Loads) -> None:
        answer = loads.run("copy", 1024, 0.6)
        expected = answer["launches"] * (1024 << 20)
        totals = wide.over(answer).totals
        read, written = totals["dram__bytes_read.sum"] / expected, totals["dram__bytes_write.sum"] / expected
        note("dram", read_ratio=read, written_ratio=written, percent=wide.within(answer).percent("dram"))
        assert read == pytest.approx(1, abs=0.03)
        assert written == pytest.approx(1, abs=0.03)

    @pytest.mark.parametrize(("load", "busy", "quiet"), [("h2d", "pcie.rx", "pcie.tx"), ("d2h", "pcie.tx", "pcie.rx")])
    def test_pcie_counts_bytes_and_direction(
        self, wide: Sampling, loads: Loads, load: str, busy: str, quiet: str
    ) -> None:
        answer = loads.run(load, 256, 0.6)
        expected = answer["launches"] * (256 << 20)
        found = wide.over(answer)
        moved = {
            m.label: sum(found.totals[c] for c in m.counters) / expected
            for m in wide.metrics.metrics
            if "pcie" in m.label
        }
        note(f"pcie {load}", gb_per_s=expected / (answer["end_ns"] - answer["start_ns"]), **moved)
        assert 0.97 < moved[busy] < 1.3, "headers may be counted, payload must be"
        assert moved[quiet] < 0.3 * moved[busy]

    def test_nothing_was_lost_meanwhile(self, wide: Sampling) -> None:
        tally = wide.session.gpus[0].tally
        note("steady tally", **vars(tally), said=wide.said)
        assert tally.lost == tally.absurd == tally.duplicate == 0

    def test_frames_of_any_length_keep_the_total(self, wide: Sampling) -> None:
        samples = wide.samples()
        counted = samples.values.sum(axis=0)
        worst = {}
        for frame_us in (1_000, 7_013, 100_000, 1_234_567):
            folded = fold(samples, 1000 * frame_us, wide.metrics).totals[:, :-1].sum(axis=0)
            worst[str(frame_us)] = float(np.max(np.abs(folded - counted) / np.maximum(counted, 1)))
        note("fold", **worst)
        assert max(worst.values()) < 1e-6


def counter_of(sampling: Sampling) -> str:
    """The counter that `tensor` is read from."""
    return sampling.metrics.metrics[0].counters[0]


def test_the_pair_of_two_clocks(ncu: Ncu, loads: Loads) -> None:
    """Each quotient from a session of its own, over different seconds of a load that stands at the power cap."""
    pair = Wanted((TENSOR_AVG,), denominator=GR)
    clocks = Wanted(("sm__cycles_active.avg",), denominator=GR)
    loads.begin("bf16", 8192, 1e6)
    time.sleep(2.0)
    try:
        tensor = [sampled(1.2).percent()]
        raw = [sampled(1.2, wanted=Wanted((TENSOR_AVG,), denominator=GR, raw=True))]
        shown = sampled(1.2, wanted=pair)
        ratio = sampled(1.2, wanted=clocks)
        raw += [sampled(1.2, wanted=Wanted((TENSOR_AVG,), denominator=GR, raw=True))]
        tensor += [sampled(1.2).percent()]
    finally:
        loads.end()
    sys_by_gpc = ratio.totals[GR] / ratio.totals["sm__cycles_elapsed.avg"]
    plain = statistics.fmean(window.ratio(TENSOR_AVG) for window in raw)
    scaled = 100 * plain / shown.metrics.metrics[0].peak * sys_by_gpc
    percent = shown.percent(TENSOR_AVG)
    note("pair", tensor=tensor, shown=percent, raw=plain, sys_by_gpc=sys_by_gpc, scaled=scaled)
    assert abs(percent - statistics.fmean(tensor)) < 0.5
    assert abs(scaled - statistics.fmean(tensor)) < 0.5


class TestSwitchingLoad:
    """Products, copies and nothing, 7 ms each; how many launches there were is known, and so are the cycles."""

    SECONDS = 4.2
    found: dict[int, float] = {}  # noqa: RUF012  (filled by the tests in turn)

    @pytest.mark.parametrize("sample_us", [100, 1000, 10_000])
    def test_means_are_those_of_arithmetic(self, ncu: Ncu, loads: Loads, sample_us: int) -> None:
        each = ncu["bf16", 2048][TENSOR_AVG]
        with Sampling(sample_us=sample_us, decode_us=100_000) as sampling:
            answer = loads.run("switch", PHASE_US, self.SECONDS)
            whole = sampling.over(answer)
            counter = counter_of(sampling)
            expected = answer["launches"] * each
            self.found[sample_us] = whole.totals[counter] / expected
            inner = [
                sampling.window(start, end).totals[counter] / (launches * each)
                for start, end, launches in two_second_windows(answer["phases"])
            ]
            phases = phase_ratios(sampling, answer["phases"], each) if sample_us == 100 else []
            tally = sampling.session.gpus[0].tally
        note(
            f"switch {sample_us}",
            whole=self.found[sample_us],
            percent=whole.percent(),
            percent_by_arithmetic=100 * expected / (4 * whole.totals["sm__cycles_elapsed.avg"]),
            two_seconds=inner,
            phases=spread(phases),
            phases_seen=len(answer["phases"]),
            beat_ms=spread(np.diff([row[0] for row in answer["phases"]]) / 1e6),
            lost=tally.lost,
        )
        assert self.found[sample_us] == pytest.approx(1, abs=0.01)
        assert inner == pytest.approx([1] * len(inner), abs=0.01)
        assert not phases or abs(statistics.fmean(phases) - 1) < 0.01
        assert all(abs(ratio - 1) < 0.01 for ratio in phases)

    def test_sample_periods_agree(self) -> None:
        if len(self.found) < 3:
            pytest.skip("a run before this one gave nothing to compare")
        note("switch agreement", **{f"{period} us": ratio for period, ratio in self.found.items()})
        assert max(self.found.values()) / min(self.found.values()) - 1 < 0.005


def two_second_windows(phases: list[list]) -> Iterator[tuple[int, int, int]]:
    """Windows of 2 s and a little from the middle of one idle phase to that of another, and their launches."""
    idle = [k for k, row in enumerate(phases[:-1]) if row[2] == "idle"]
    middle = {k: (phases[k][0] + phases[k + 1][0]) // 2 for k in idle}
    for first in idle[:: max(1, len(idle) // 4)]:
        last = next((k for k in idle if middle[k] - middle[first] >= 2_000_000_000), None)
        if last:
            launches = sum(row[3] for row in phases[first:last] if row[2] == "tensor")
            yield middle[first], middle[last], launches


def phase_ratios(sampling: Sampling, phases: list[list], each: float) -> list[float]:
    """Measured over expected cycles of each tensor phase."""
    counter = counter_of(sampling)
    out = []
    for (start, _, kind, launches), (end, *_) in itertools.pairwise(phases):
        if kind == "tensor":
            out.append(sampling.window(start, end).totals[counter] / (launches * each))
    return out


def spread(values: list[float]) -> dict[str, float]:
    if not len(values):
        return {}
    low, middle, high = np.percentile(values, [0, 50, 100])
    return {"least": low, "median": middle, "most": high, "mean": float(np.mean(values)), "count": len(values)}
