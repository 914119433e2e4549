"""Two GPUs: which is which, that neither disturbs the other, and what passes between them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cufall_py.samples import Samples

from .measure import ROOT, GpuLoads, LiveSession, Plan, Wanted, Watched, environment, note, run, window, workers

pytestmark = pytest.mark.gpu2
CSV = ("--source", "cupti", "--csv", "-", "--duration-sec", "0.6")
LINK = ("nvlink.tx", "nvlink.rx", "nvltx__bytes_data_user.sum", "nvlrx__bytes_data_user.sum")


@pytest.fixture(scope="module")
def nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    if pynvml.nvmlDeviceGetCount() < 2:
        pytest.skip("needs two GPUs")
    return pynvml


@pytest.fixture(scope="module")
def uuids(nvml: Any) -> list[str]:
    """By PCI address, as NVML numbers them."""
    return [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(k)) for k in range(2)]


@contextmanager
def busy(*cards: int) -> Iterator[None]:
    """A product on each of these cards alone, by NVML's number."""
    loads = [GpuLoads(str(card)) for card in cards]
    try:
        for load in loads:
            load.begin("bf16", 4096, 1e6)
        time.sleep(0.5)
        yield
    finally:
        for load in loads:
            load.close()


def rows_of(*args: str, **variables: str) -> dict[tuple[int, str], float]:
    """(ordinal, UUID) to the mean of its last frame."""
    found = run(*CSV, *args, env=environment(**variables))
    assert found.code == 0, found.said
    return {(int(row["gpu"]), row["uuid"]): float(row["mean"]) for row in found.rows()}


def test_devices_are_those_that_were_asked_for(uuids: list[str]) -> None:
    first, second = uuids
    asked = {
        "all": [(0, first), (1, second)],
        "0": [(0, first)],
        "1": [(1, second)],
        "1,0": [(1, second), (0, first)],
        second: [(1, second)],
        first[:12]: [(0, first)],
    }
    for words, expected in asked.items():
        assert list(rows_of("--devices", words)) == expected, words


def test_the_busy_row_is_always_the_same_card(uuids: list[str]) -> None:
    """However CUDA is told to number the cards (case B12)."""
    first, second = uuids
    forms = {
        (): [first, second],
        (("CUDA_VISIBLE_DEVICES", "1"),): [second],
        (("CUDA_VISIBLE_DEVICES", "0"),): [first],
        (("CUDA_VISIBLE_DEVICES", "1,0"),): [second, first],
        (("CUDA_VISIBLE_DEVICES", second),): [second],
        (("CUDA_VISIBLE_DEVICES", f"{second},{first}"),): [second, first],
        (("CUDA_VISIBLE_DEVICES", second[:16]),): [second],
        (("CUDA_VISIBLE_DEVICES", "1,-1,0"),): [second],
        (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),): [first, second],
        (("CUDA_DEVICE_ORDER", "FASTEST_FIRST"), ("CUDA_VISIBLE_DEVICES", "1,0")): None,
    }
    seen = {}
    with busy(1):
        for form, order in forms.items():
            rows = rows_of("--devices", "all", **dict(form))
            seen[str(form)] = {f"{gpu} {uuid}": mean for (gpu, uuid), mean in rows.items()}
            assert [gpu for gpu, _ in rows] == list(range(len(rows)))
            assert order is None or [uuid for _, uuid in rows] == order
            for (_, uuid), mean in rows.items():
                assert mean > 0.5 if uuid == second else mean < 0.001, (form, rows)
    note("which is busy", **seen)


def test_nothing_is_done_on_a_gpu_that_is_not_selected(nvml: Any) -> None:
    """Memory, processes and clocks of both cards while the second alone is sampled (case B45)."""

    def state() -> list[dict[str, Any]]:
        handles = [nvml.nvmlDeviceGetHandleByIndex(k) for k in range(2)]
        return [
            {
                "used": nvml.nvmlDeviceGetMemoryInfo(h).used,
                "processes": len(nvml.nvmlDeviceGetComputeRunningProcesses(h)),
                "sm_mhz": nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM),
                "watts": nvml.nvmlDeviceGetPowerUsage(h) / 1000,
            }
            for h in handles
        ]

    time.sleep(3)
    before = state()
    watched = Watched("--source", "cupti", "--devices", "1", "--sample-us", "1000")
    assert watched.row_after(0, 10)
    time.sleep(1)
    during = state()
    watched.finish()
    time.sleep(3)
    after = state()
    note("unselected", before=before, during=during, after=after)
    assert [state["processes"] for state in during] == [state["processes"] for state in before]
    assert [during[0][name] for name in ("used", "sm_mhz")] == [before[0][name] for name in ("used", "sm_mhz")]
    assert during[1]["used"] - before[1]["used"] <= 4 << 20  # the driver's own, of any process that opens it
    assert after[1]["used"] == before[1]["used"]


class Both:
    """A session on both, with each one's samples."""

    def __init__(self, **options: Any) -> None:
        self.parts: list[list[Samples]] = [[], []]
        self.said: list[str] = []
        plan = Plan(**{"source": "cupti", "devices": "0,1", "sample_us": 1000, **options})
        self.session = LiveSession(plan, self.said.append, lambda gpu, samples: self.parts[gpu].append(samples))
        self.frames = self.session.frames()

    def until(self, end_ns: int) -> None:
        while next(self.frames).start_ns <= end_ns:
            pass

    def for_s(self, seconds: float) -> None:
        self.until(time.time_ns() + int(1e9 * seconds))

    def samples(self, gpu: int) -> Samples:
        return Samples.join(self.parts[gpu])


def test_a_worker_that_is_killed_or_stopped_leaves_the_other_alone(uuids: list[str]) -> None:
    both = Both()
    try:
        both.for_s(1.0)
        for which in range(2):
            pid = worker_of(uuids[which])
            os.kill(pid, signal.SIGSTOP)
            both.for_s(1.0)
            os.kill(pid, signal.SIGCONT)
            both.for_s(0.5)
            os.kill(worker_of(uuids[which]), signal.SIGKILL)
            both.for_s(4.0)
            assert both.session.gpus[which].live
        lost = [gpu.tally.lost for gpu in both.session.gpus]
        ends = [int(both.samples(k).end_ns[-1]) for k in range(2)]
    finally:
        both.session.close()
    gaps = [int((np.diff(both.samples(k).start_ns) > 2_000_000).sum()) for k in range(2)]
    note("killed and stopped", lost=lost, gaps=gaps, said=both.said)
    assert abs(ends[0] - ends[1]) < 500_000_000
    assert gaps[0] <= 2 and gaps[1] <= 2  # its own kill, and its own stop if that outlasted the buffer


def worker_of(uuid: str) -> int:
    """The worker that has this GPU's ring mapped."""
    return next(pid for pid in workers(os.getpid()) if uuid in Path(f"/proc/{pid}/maps").read_text())


ROUNDS = """
import os, sys, time
from cufall_py.sources.cupti import loader
loader.load()
from cufall_py.sources.cupti import bindings, source
from cufall_py.devices import Device
from cufall_py.plan import Plan
def memory():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
plan = Plan(sample_us=1000, decode_us=20_000)
seen = []
for n in range(int(sys.argv[1])):
    pair = [source.CuptiSource(Device(k, str(k), "GPU"), plan, bindings.BoundPm(k)) for k in range(2)]
    for one in pair:
        one.open()
    first, last = pair if n % 2 else pair[::-1]
    first.close()
    time.sleep(0.005)
    assert len(last.read()), n
    last.close()
    for one in pair[: n % 3]:
        one.close()
    seen.append(memory())
print(seen[9], seen[-1], max(seen))
"""


def test_starting_and_stopping_both_in_one_process_a_hundred_times() -> None:
    """Either is closed first in turn, some twice (case B20); profiler state goes once, last."""
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS, "100"], capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=110
    )
    note("100 rounds", code=done.returncode, out=done.stdout, said=done.stderr[-500:])
    assert done.returncode == 0, done.stderr
    tenth, last, _ = map(int, done.stdout.split())
    assert last <= tenth + 60


@contextmanager
def link_work(kind: str, mebibytes: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("link_work.py")), kind, str(mebibytes), str(seconds)]
    with subprocess.Popen(command, stdout=-1, text=True, env=environment(NCCL_NVLS_ENABLE="0")) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("kind", "mebibytes"), [("peer", 256), ("reduce", 256)])
def test_bytes_between_the_gpus_are_those_the_program_moved(kind: str, mebibytes: int) -> None:
    both = Both(wanted=Wanted(LINK, full_scale=0.0, raw=True))
    try:
        with link_work(kind, mebibytes, 1.5) as work:
            while not (line := _line(work)):
                both.for_s(0.2)
            answer = json.loads(line)
            both.until(answer["end_ns"] + 300_000_000)
        counters = both.session.opened[0].metrics
        found = [
            window(both.samples(k), counters, answer["start_ns"] - 40_000_000, answer["end_ns"] + 40_000_000)
            for k in range(2)
        ]
    finally:
        both.session.close()
    share = {
        f"gpu {k} {name}": found[k].totals[name] / answer["bytes"]
        for k in range(2)
        for name in counters.counters
        if "bytes" in name
    }
    lost = [gpu.tally.lost + gpu.tally.absurd for gpu in both.session.gpus]
    note(
        f"link {kind}",
        **share,
        lost=lost,
        covered_ns=[w.covered_ns for w in found],
        bytes=answer["bytes"],
        seconds=(answer["end_ns"] - answer["start_ns"]) / 1e9,
    )
    assert share["gpu 0 nvltx__bytes_data_user.sum"] == pytest.approx(1, abs=0.03)
    assert share["gpu 1 nvlrx__bytes_data_user.sum"] == pytest.approx(1, abs=0.03)


def _line(process: subprocess.Popen[str]) -> str:
    import select

    assert process.stdout
    return process.stdout.readline() if select.select([process.stdout], [], [], 0)[0] else ""


def test_tensor_parallel_decode_as_seen_on_both() -> None:
    both = Both(wanted=Wanted(("tensor", "sm", "gr", "dram")))
    try:
        with link_work("decode", 0, 3.0) as work:
            while not (line := _line(work)):
                both.for_s(0.2)
            answer = json.loads(line)
            both.until(answer["end_ns"] + 300_000_000)
    finally:
        both.session.close()
    sets = both.session.opened[0].metrics
    start, end = answer["start_ns"] + 500_000_000, answer["end_ns"] - 200_000_000
    samples = [both.samples(k) for k in range(2)]
    means = [window(s, sets, start, end) for s in samples]
    grid = np.arange(start, end, 1_000_000)
    gr = [np.interp(grid, s.end_ns, sets.quotients(s.values, s.end_ns - s.start_ns)[:, 2]) for s in samples]
    idle = [float((g < 0.01).mean()) for g in gr]
    note(
        "tensor parallel decode",
        percent=[{n: m.percent(n) for n in ("tensor", "sm", "gr", "dram")} for m in means],
        steps_per_s=answer["launches"] / (answer["end_ns"] - answer["start_ns"]) * 1e9,
        idle_share=idle,
        correlation=float(np.corrcoef(*gr)[0, 1]),
    )
    # both do the same work; the one that waits for the other spins in its all-reduce, and so is busier by gr
    assert means[0].percent("tensor") == pytest.approx(means[1].percent("tensor"), rel=0.02)
    assert means[0].percent("dram") == pytest.approx(means[1].percent("dram"), rel=0.05)


def test_one_that_is_owned_leaves_the_other() -> None:
    """The second is sampled by another cufall: the first goes on; with auto the second is shown by GPM."""
    owner = Watched("--source", "cupti", "--devices", "1")
    try:
        assert owner.row_after(0, 10)
        counters = run(*CSV, "--devices", "all")
        auto = run("--csv", "-", "--duration-sec", "1", "--devices", "all")
    finally:
        said = owner.finish()
    sources = {(row["gpu"], row["source"]) for row in auto.rows() if row["mean"]}
    note("one owned", code=counters.code, said=counters.said, auto=auto.said, sources=sorted(sources), owner=said)
    assert counters.code == 4 and "another cufall" in counters.said
    assert {row["gpu"] for row in counters.rows() if row["mean"]} == {"0"}
    assert auto.code == 0 and sources == {("0", "cupti"), ("1", "gpm")}
    assert " 0 lost" in said


def test_every_order_of_start_and_stop() -> None:
    for first, last in itertools.permutations("01"):
        a, b = (Watched("--source", "cupti", "--devices", k, "--sample-us", "1000") for k in (first, last))
        assert a.row_after(0, 10) and b.row_after(0, 10)
        a.finish()
        assert b.row_after(time.time_ns(), 3)
        assert " 0 lost" in b.finish()
