"""Measures what cufall costs, beside the floor, on this machine: `python benchmarks/run.py OUT.json`.

OUT.json is written after each part; a part that fails leaves its error there and the rest goes on.
A part that is run again replaces what it wrote before. benchmarks/report.py makes tables of it.
With --source script:FILE it runs anywhere: no floor, no loads, figures of the scripted source.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: this process forks workers
import numpy as np
from harness import (
    HERE,
    ROOT,
    GpuLoads,
    Loads,
    NoLoads,
    Report,
    cpu_s,
    cufall,
    environment,
    memory_mb,
    tree,
    workers,
)

sys.path.insert(0, str(ROOT))
from cufall_py.devices import Device
from cufall_py.launch import launch
from cufall_py.plan import Plan
from cufall_py.resolve import Wanted
from cufall_py.samples import Samples, Tally
from cufall_py.session import Session
from cufall_py.sources.cupti import loader

Figures = dict[str, Any]
PLAIN, REALTIME = "sm__pipe_tensor_cycles_active.avg", "sm__pipe_tensor_cycles_active_realtime.avg"
ELAPSED = "sm__cycles_elapsed.avg"
EQUAL_WORK = ((1000, 10_000), (1000, 50_000), (100, 50_000))
"""(sample, decode) in us at which the worker is held against the floor."""
FLOOR_BUFFER_MB = 256
POLL_NS = 20_000_000
"""How seldom a session may look whether a frame's time has come; a frame is late beyond that."""
FOUR = ("--metric", "tensor", "--metric", "sm", "--metric", "gr", "--metric", "dram")
PER_FRAME = ("--frame-us", "10000", "--decode-us", "10000")
GEMM = ("bf16", 8192)


@dataclass
class Bench:
    """What every part needs: where samples come from, how long parts take, loads and the floor when asked for."""

    source: str = "cupti"
    seconds: float = 300.0
    blocks: int = 12
    counters: tuple[str, ...] = (PLAIN, REALTIME)
    keep: Callable[[str, Figures], None] = lambda name, figures: None
    """Takes what a part has so far, in case it is cut short."""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="cufall-bench-")))

    @property
    def real(self) -> bool:
        return self.source == "cupti"

    @cached_property
    def loads(self) -> Loads:
        return GpuLoads() if self.real else NoLoads()

    @cached_property
    def floor(self) -> list[str]:
        """The command that starts the floor."""
        return [str(build_floor(self.folder)), "0"]

    @cached_property
    def nvml(self) -> Nvml | None:
        return Nvml(self.device.uuid) if self.real else None

    @cached_property
    def device(self) -> Device:
        """The GPU that is measured."""
        with Session(self.plan()) as session:
            return session.gpus[0].device

    def plan(self, **options: Any) -> Plan:
        return Plan(**{"source": self.source, "devices": "0", **options})

    def start(self, *args: str, **settings: Any) -> subprocess.Popen[bytes]:
        return cufall("--source", self.source, "--devices", "0", *args, **settings)

    @contextmanager
    def load(self, name: str, size: int, settle_s: float = 1.0) -> Iterator[None]:
        """Keep the GPU at this work meanwhile."""
        self.loads.begin(name, size, 1e6)
        time.sleep(settle_s if self.real else 0.0)
        try:
            yield
        finally:
            self.loads.end()

    def run_floor(self, counters: tuple[str, ...], sample_us: int, decode_us: int, seconds: float) -> Figures:
        if not self.real:
            return {}
        command = [*self.floor, str(sample_us), str(decode_us), str(seconds), *counters]
        env = environment(LD_LIBRARY_PATH=str(loader.find()))  # where CUPTI looks for its own libraries
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, env=env)
        if done.returncode:
            raise RuntimeError(f"floor: {done.stderr.strip() or done.returncode}")
        return dict(json.loads(done.stdout))


def build_floor(folder: Path) -> Path:
    """Compile floor.cpp against the CUPTI that cufall uses."""
    library, cuda = loader.find(), Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    program = folder / "floor"
    command = ["g++", "-O2", "-o", str(program), str(HERE / "floor.cpp")]
    command += [f"-I{library.parent / 'include'}", f"-I{library.parents[1] / 'include'}", f"-I{cuda / 'include'}"]
    command += [f"-L{library}", "-l:libcupti.so.13", libcuda(cuda), f"-Wl,-rpath,{library},--disable-new-dtags"]
    command += ["-Wl,--allow-shlib-undefined"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return program


def libcuda(cuda: Path) -> str:
    """A libcuda to link with: the toolkit's stub, or the driver's own as the dynamic linker finds it."""
    for place in (cuda / "lib64/stubs/libcuda.so", *cuda.glob("targets/*/lib/stubs/libcuda.so")):
        if place.exists():
            return str(place)
    code = "import ctypes; ctypes.CDLL('libcuda.so.1'); print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    return next(line.split()[-1] for line in maps.splitlines() if "libcuda.so" in line)


class Nvml:
    """Clocks, P-state and power of one GPU."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> dict[str, float]:
        n, handle = self._nvml, self._handle
        return {
            "sm_mhz": n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM),
            "memory_mhz": n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM),
            "p_state": n.nvmlDeviceGetPerformanceState(handle),
            "power_w": n.nvmlDeviceGetPowerUsage(handle) / 1000,
        }


def watched(nvml: Nvml | None, seconds: float) -> dict[str, float]:
    """Sleep, and give the means of what NVML read meanwhile."""
    until, readings = time.monotonic() + seconds, []
    while time.monotonic() < until:
        readings += [nvml.read()] if nvml else []
        time.sleep(min(0.1, seconds))
    return mean(readings)


def mean(readings: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.fmean(r[key] for r in readings) for key in (readings[0] if readings else ())}


# worker_cpu, memory ---------------------------------------------------------------------------------------


def worker_cpu(bench: Bench) -> Figures:
    """Floor, worker, floor: processor share of a core at equal counters, samples and decodes a second."""
    out: Figures = {}
    with bench.load(*GEMM):
        for counter in bench.counters:
            for sample_us, decode_us in EQUAL_WORK:
                out[f"{counter} {sample_us} {decode_us}"] = beside_floor(bench, counter, sample_us, decode_us)
    return out


def beside_floor(bench: Bench, counter: str, sample_us: int, decode_us: int, seconds: float = 2.0) -> Figures:
    counters = (counter, ELAPSED)
    before = bench.run_floor(counters, sample_us, decode_us, seconds)
    worker = run_worker(bench, counter, sample_us, decode_us, seconds)
    after = bench.run_floor(counters, sample_us, decode_us, seconds)
    out = {"floor": [before, after], "worker": worker}
    if before:
        out["ratio"] = worker["cpu_pct"] / statistics.fmean((before["cpu_pct"], after["cpu_pct"]))
    return out


def run_worker(
    bench: Bench, counter: str, sample_us: int, decode_us: int, seconds: float, buffer_mb: int = FLOOR_BUFFER_MB
) -> Figures:
    """A session's worker in its steady state."""
    plan = bench.plan(
        wanted=Wanted((counter,)),
        sample_us=sample_us,
        decode_us=decode_us,
        frame_us=decode_us,
        hw_buffer_mb=buffer_mb,
    )
    with Session(plan) as session:
        marks: list[tuple[float, Tally]] = []
        began = time.monotonic()
        for _ in session.frames():
            marks.append((time.monotonic(), session.gpus[0].tally))
            if time.monotonic() - began > seconds + 0.7:
                break
        first = next(k for k, (at, _) in enumerate(marks) if at - began > 0.7)
        worker = workers(os.getpid())
        return between(marks[first], marks[-1]) | {"memory_mb": memory_mb(worker[0])}


def between(first: tuple[float, Tally], last: tuple[float, Tally]) -> Figures:
    """What a worker did between two moments."""
    wall_s, (a, b) = last[0] - first[0], (first[1], last[1])
    decodes = max(b.decodes - a.decodes, 1)
    return {
        "cpu_pct": 100 * (b.cpu_ns - a.cpu_ns) / 1e9 / wall_s,
        "decodes_per_s": decodes / wall_s,
        "decode_us": (b.decode_ns - a.decode_ns) / decodes / 1000,
        "samples_per_s": (b.samples - a.samples) / wall_s,
        "late": b.late - a.late,
        "latest_ms": b.late_ns / 1e6,
        "lost": b.lost - a.lost,
        "absurd": b.absurd - a.absurd,
        "duplicate": b.duplicate - a.duplicate,
        "rebuilt": b.rebuilt - a.rebuilt,
    }


def memory(bench: Bench) -> Figures:
    """Resident memory of floor and worker at the same hardware buffer, and of a worker at its defaults."""
    with bench.load(*GEMM):
        floor = bench.run_floor((PLAIN, ELAPSED), 1000, 50_000, 1.0)
        same = run_worker(bench, PLAIN, 1000, 50_000, 1.0)["memory_mb"]
        default = run_worker(bench, REALTIME, 25_000, 200_000, 1.0, 0)["memory_mb"]
    return {"floor_mb": floor.get("rss_mb"), "buffer_mb": FLOOR_BUFFER_MB, "worker_mb": same, "default_mb": default}


# whole_cost, frame_age, first_frame ---------------------------------------------------------------------


def whole_cost(bench: Bench, from_s: float = 3.0, to_s: float = 10.0) -> Figures:
    """All processes of `cufall --duration-sec 10 > file`, from 3 to 10 s after exec."""
    with bench.load(*GEMM):
        return {
            "defaults": tree_cost(bench, (), from_s, to_s),
            "four": tree_cost(bench, FOUR, from_s, to_s),
        }


def tree_cost(bench: Bench, args: tuple[str, ...], from_s: float, to_s: float) -> Figures:
    with open(bench.folder / "waterfall.txt", "wb") as file:
        process = bench.start(*args, "--duration-sec", f"{to_s:g}", stdout=file, stderr=subprocess.PIPE)
        began = time.monotonic()
        time.sleep(from_s)
        pids, first_at = tree(process.pid), time.monotonic()
        first = {pid: cpu_s([pid]) for pid in pids}
        time.sleep(to_s - (time.monotonic() - began))
        used = {pid: cpu_s([pid]) - before for pid, before in first.items()}
        wall_s = time.monotonic() - first_at
        said = process.communicate()[1].decode()
    return {
        "cpu_pct": 100 * sum(used.values()) / wall_s,
        "by_process_pct": [100 * used[pid] / wall_s for pid in pids],
        "said": said.splitlines()[-1:],
    }


def frame_age(bench: Bench, seconds: float = 6.0) -> Figures:
    """How old a frame is when its row can be read from stdout: row read minus frame end."""
    with bench.load(*GEMM):
        return {
            "defaults": ages(bench, (), 100_000_000, seconds),
            "per frame": ages(bench, PER_FRAME, 10_000_000, seconds),
        }


def ages(bench: Bench, args: tuple[str, ...], frame_ns: int, seconds: float) -> Figures:
    process = bench.start(*args, "--csv", "-", "--duration-sec", f"{seconds:g}", stdout=-1, stderr=-1)
    found = [(at - int(row.split(b",")[1]) - frame_ns) / 1e6 for at, row in rows(process)]
    process.communicate()
    p50, p95 = np.percentile(found, [50, 95])
    return {"rows": len(found), "p50_ms": p50, "p95_ms": p95, "max_ms": max(found), "first_ms": found[0]}


def rows(process: subprocess.Popen[bytes]) -> Iterator[tuple[int, bytes]]:
    """CSV rows of a process as they come, each with the time it was read, ns; the header is left out."""
    assert process.stdout
    text, header = b"", True
    while data := os.read(process.stdout.fileno(), 65536):
        now = time.time_ns()
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            if not header:
                yield now, line
            header = False


def first_frame(bench: Bench, times: int = 3) -> Figures:
    """From exec to the first row, beside the floor's first value and a bare `import cupti.cupti`."""
    out: Figures = {"defaults_s": [], "per_frame_s": [], "import_s": [], "floor_s": [], "floor_per_frame_s": []}
    for _ in range(times if bench.real else 1):
        out["defaults_s"].append(to_first_row(bench, ()))
        out["per_frame_s"].append(to_first_row(bench, PER_FRAME))
        out["import_s"].append(bare_import())
        for key, sample_us, decode_us in (("floor_s", 25_000, 200_000), ("floor_per_frame_s", 2500, 10_000)):
            floor = bench.run_floor((REALTIME, ELAPSED), sample_us, decode_us, 0.3)
            out[key] += [floor["first_value_s"]] if floor else []
    return out | {"help": help_time()}


def to_first_row(bench: Bench, args: tuple[str, ...]) -> float:
    began = time.monotonic()
    process = bench.start(*args, "--csv", "-", stdout=-1, stderr=-1)
    found = next(rows(process), None)
    took = time.monotonic() - began
    process.terminate()
    said = process.communicate()[1]
    if found is None:
        raise RuntimeError(f"no row came: {said.decode()}")
    return took


def bare_import() -> float:
    """Seconds that `import cupti.cupti` takes in a fresh Python."""
    code = "import time; t = time.perf_counter()\nimport cupti.cupti\nprint(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    return float(done.stdout or "nan")


def help_time(times: int = 5) -> Figures:
    took = []
    for _ in range(times):
        began = time.monotonic()
        cufall("--help", stdout=subprocess.DEVNULL).wait()
        took.append(time.monotonic() - began)
    code = (
        "import sys; sys.argv = ['cufall', '--help']\nfrom cufall_py.cli import main\n"
        "try: main()\nexcept SystemExit: print(sorted({'numpy', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    return {"s": took, "median_s": statistics.median(took), "heavy_modules": done.stderr.strip()}


# losses -------------------------------------------------------------------------------------------------


def losses(bench: Bench) -> Figures:
    """Samples got, lost and expected over a long run at 1 kHz."""
    return {"1000 us": count_samples(bench, 1000, bench.seconds)}


def losses_fast(bench: Bench) -> Figures:
    """The same for 30 s at 10 kHz, and for 3 s beyond what can be kept up with."""
    return {f"{us} us": count_samples(bench, us, min(bench.seconds, s)) for us, s in ((100, 30.0), (20, 3.0))}


def count_samples(bench: Bench, sample_us: int, seconds: float) -> Figures:
    """Under a change of load every five seconds, with the memory of the worker every ten."""
    edges: list[tuple[int, int]] = []

    def on_samples(gpu: int, samples: Samples) -> None:
        edges.append((int(samples.start_ns[0]), int(samples.end_ns[-1])))

    plan = bench.plan(sample_us=sample_us)
    work = [GEMM, ("copy", 1024), ("decode", 16), ("idle", 0)]
    with Session(plan, on_samples=on_samples) as session:
        worker = workers(os.getpid())[0]
        memories: list[dict[str, float]] = []
        began, until = time.monotonic(), time.monotonic() + seconds
        frames = session.frames()
        while time.monotonic() < until:
            if len(memories) * 10 <= time.monotonic() - began:
                memories.append(memory_mb(worker) | {"reader": memory_mb(os.getpid())["now"]})
            name, size = work[len(memories) % len(work)] if seconds > 5 else GEMM
            bench.loads.run(name, size, min(5.0, until - time.monotonic()))
            now = time.time_ns()
            next(frame for frame in frames if frame.end_ns > now)
            found = counted(session, (edges[0][0], edges[-1][1]), 1000 * sample_us) | {"memory_mb": memories}
            bench.keep(f"losses so far, {sample_us} us", found)
    return found


def counted(session: Session, span: tuple[int, int], period_ns: int) -> Figures:
    """What a session got and lost of the samples that the time from its first to its last has."""
    tally, span_ns = session.gpus[0].tally, span[1] - span[0]
    expected = span_ns / period_ns
    return {
        "span_s": span_ns / 1e9,
        "got": tally.samples,
        "lost": tally.lost,
        "lost_s": tally.lost_ns / 1e9,
        "expected": expected,
        "accounted": (tally.samples + tally.lost + tally.absurd) / expected,
        "absurd": tally.absurd,
        "duplicate": tally.duplicate,
        "rebuilt": tally.rebuilt,
        "late_decodes": tally.late,
        "latest_ms": tally.late_ns / 1e6,
        "decodes": tally.decodes,
        "overwritten": session.cost().overwritten,
        "cpu_pct": 100 * tally.cpu_ns / span_ns,
    }


# target -------------------------------------------------------------------------------------------------


def target(bench: Bench) -> Figures:
    """The rate of work off/on/off, in many short blocks; clocks and power in each state."""
    out: Figures = {"idle": idle_watts(bench)}
    few = max(2, 2 * bench.blocks // 3)
    for name, load, plan, blocks in (
        ("GEMM", GEMM, bench.plan(), bench.blocks),
        ("GEMM, 10 kHz", GEMM, bench.plan(sample_us=100), bench.blocks),
        ("decode in a graph", ("decode", 16), bench.plan(), bench.blocks),
        ("decode, eager", ("eager", 16), bench.plan(), few),
        ("10 us kernels", ("tiny", 0), bench.plan(), few),
    ):
        out[name] = off_on(bench, load, plan, blocks)
        print(f"target {name}: {out[name]['ratio']:.4f}", file=sys.stderr, flush=True)
    return out


def off_on(bench: Bench, load: tuple[str, int], plan: Plan, blocks: int) -> Figures:
    """`blocks` times off and on, and off once more; each on is held against the two offs around it."""
    samples = 0
    with launched(bench.source, blocks) as ready:
        bench.loads.begin(*load, 1e6)
        try:
            time.sleep(3.0 if bench.real else 0.5)
            off, on = [block(bench)], []
            for process in ready:
                with Session(plan, process=process) as session:
                    on.append(block(bench, session))
                    samples += session.gpus[0].tally.samples
                off.append(block(bench))
        finally:
            answer = bench.loads.end()
    rates_off, rates_on = (np.array([rate(answer["marks"], a, b) for a, b, _ in found]) for found in (off, on))
    ratios = rates_on / ((rates_off[:-1] + rates_off[1:]) / 2)
    return interval(ratios) | {
        "per_s": {"off": float(rates_off.mean()), "on": float(rates_on.mean())},
        "ratios": ratios.tolist(),
        "clocks": {"off": mean_readings(off), "on": mean_readings(on)},
        "samples": samples,
    }


def target_floor(bench: Bench) -> Figures:
    """The same of the GEMM loop with longer stretches, and with the floor in cufall's place every other time."""
    settle_s, seconds = (0.8, 1.6) if bench.real else (0.1, 0.3)
    blocks: dict[str, list[Block]] = {"off": [], "cufall": [], "floor": []}
    with launched(bench.source, bench.blocks) as ready:
        bench.loads.begin(*GEMM, 1e6)
        try:
            time.sleep(3.0 if bench.real else 0.5)
            for process in ready:
                blocks["off"].append(block(bench, None, settle_s, seconds))
                with Session(bench.plan(), process=process) as session:
                    blocks["cufall"].append(block(bench, session, settle_s, seconds))
                blocks["off"].append(block(bench, None, settle_s, seconds))
                with floor_runs(bench, settle_s + seconds + 1.5):
                    blocks["floor"].append(block(bench, None, settle_s + 0.5, seconds))
            blocks["off"].append(block(bench, None, settle_s, seconds))
        finally:
            answer = bench.loads.end()
    rates = {state: np.array([rate(answer["marks"], a, b) for a, b, _ in found]) for state, found in blocks.items()}
    around = (rates["off"][:-1] + rates["off"][1:]) / 2
    return {
        "cufall": interval(rates["cufall"] / around[0::2]),
        "floor": interval(rates["floor"] / around[1::2]),
        "clocks": {state: mean_readings(found) for state, found in blocks.items()},
        "rates": {state: found.tolist() for state, found in rates.items()},
    }


@contextmanager
def floor_runs(bench: Bench, seconds: float) -> Iterator[None]:
    """The floor at cufall's default periods, from before to after what is done meanwhile."""
    if not bench.real:
        yield
        return
    command = [*bench.floor, "25000", "200000", str(seconds), REALTIME, ELAPSED]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    yield
    process.wait()


@contextmanager
def launched(source: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Sampling processes that have loaded, and wait for their plan: a session on one starts fast."""
    ready = [launch(source) for _ in range(count)]
    try:
        yield ready
    finally:
        for process in ready:
            assert process.stdin and process.stdout
            process.stdin.close()
            process.stdout.close()
            process.wait()


Block = tuple[int, int, dict[str, float]]
"""Start and end, ns, of a stretch that is judged, and the means of NVML's readings in it."""


def block(bench: Bench, session: Session | None = None, settle_s: float = 0.1, seconds: float = 0.7) -> Block:
    """A stretch without cufall, or with it: then its frames are taken as they come."""
    time.sleep(settle_s)
    start, readings = time.time_ns(), []
    for _ in session.frames() if session else pauses(0.1):
        readings += [bench.nvml.read()] if bench.nvml else []
        if time.time_ns() - start > seconds * 1e9:
            break
    return start, time.time_ns(), mean(readings)


def pauses(seconds: float) -> Iterator[None]:
    while True:
        time.sleep(seconds)
        yield


def rate(marks: list[list[int]], start_ns: int, end_ns: int) -> float:
    """Launches a second between the first and the last mark of a stretch."""
    inside = [(at, done) for at, done in marks if start_ns <= at <= end_ns]
    (first, done_first), (last, done_last) = inside[0], inside[-1]
    return 1e9 * (done_last - done_first) / (last - first)


def interval(ratios: np.ndarray[Any, Any], draws: int = 10_000) -> Figures:
    """Mean with its 95 % interval by the bootstrap."""
    rng = np.random.default_rng(0)
    means = rng.choice(ratios, (draws, len(ratios))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {"ratio": float(ratios.mean()), "low": low, "high": high, "half_width_pct": 50 * (high - low)}


def mean_readings(blocks: list[Block]) -> dict[str, float]:
    return mean([readings for *_, readings in blocks])


def idle_watts(bench: Bench) -> Figures:
    """An idle GPU before, during and after; run before any load has started a context."""
    settle_s, seconds = (2.0, 2.0) if bench.real else (0.1, 0.2)
    device = bench.device
    time.sleep(settle_s)
    before = watched(bench.nvml, seconds)
    with Session(bench.plan(sample_us=1000)):
        time.sleep(settle_s)
        during = watched(bench.nvml, seconds)
    time.sleep(settle_s)
    return {"gpu": device.name, "before": before, "during": during, "after": watched(bench.nvml, seconds)}


# eight --------------------------------------------------------------------------------------------------


def eight(bench: Bench, seconds: float = 8.0) -> Figures:
    """Eight scripted GPUs whose decodes burn processor time, at 1 kHz with four counters; needs no GPU."""
    burns = (1.5, 4.0, 10.0) if (os.cpu_count() or 1) >= 8 else (1.5, 4.0)
    out: Figures = {"cores": os.cpu_count()}
    for burn_ms in burns:
        out[f"{burn_ms:g} ms"] = eight_gpus(bench, burn_ms, [], seconds)
    hang = [{"gpu": 3, "kind": "hang", "at_s": 4.0}]
    out["one hung"] = eight_gpus(bench, 1.5, hang, seconds + 8)
    return out


def eight_gpus(bench: Bench, burn_ms: float, faults: list[dict[str, Any]], seconds: float) -> Figures:
    script = {"gpus": 8, "burn_ms": burn_ms, "faults": faults, "pattern": [{"ms": 100, "tensor": 0.5, "gr": 0.9}]}
    path = bench.folder / "eight.json"
    path.write_text(json.dumps(script))
    hung = {fault["gpu"] for fault in faults}
    well = [gpu for gpu in range(8) if gpu not in hung]
    plan = Plan(Wanted(("tensor", "gr")), source=f"script:{path}", sample_us=1000, decode_us=50_000)
    said: list[str] = []
    late, thin, thin_frames, ages_ms, used = [], [], [], [], []
    with Session(plan, said.append) as session:
        for frame in session.frames(seconds):
            age_ns = time.time_ns() - frame.end_ns
            late.append(age_ns > plan.frame_wait_ns + POLL_NS)
            thin.append(float(frame.coverage[well].min()) < 0.999)
            if thin[-1]:
                thin_frames.append([len(thin), age_ns / 1e6, frame.coverage.tolist()])
            ages_ms.append(age_ns / 1e6)
            used.append((time.monotonic(), time.process_time()))
        cost = session.cost()
    settled = next(k for k, (at, _) in enumerate(used) if at - used[0][0] > 1)
    (t0, c0), (t1, c1) = used[settled], used[-1]
    return {
        "counters": list(session.opened[0].metrics.counters),
        "frames": len(late),
        "late": sum(late),
        "late_after_1s": sum(late[settled:]),
        "thin": sum(thin),
        "thin_after_1s": sum(thin[settled:]),
        "thin_frames": thin_frames[:20],
        "age_p95_ms": float(np.percentile(ages_ms, 95)),
        "age_max_ms": max(ages_ms),
        "age_max_after_1s_ms": max(ages_ms[settled:]),
        "reader_cpu_pct": 100 * (c1 - c0) / (t1 - t0),
        "workers_cpu_pct": 100 * cost.workers_cpu_s / cost.wall_s,
        "lost": cost.tally.lost,
        "late_decodes": cost.tally.late,
        "said": said,
    }


PARTS: dict[str, Callable[[Bench], Figures]] = {
    part.__name__: part
    for part in (
        target,
        target_floor,
        worker_cpu,
        memory,
        whole_cost,
        frame_age,
        first_frame,
        eight,
        losses_fast,
        losses,
    )
}
"""In the order they run: `target` first, while nothing has woken the GPU yet."""


def machine() -> Figures:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"]
    try:
        gpus = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    except OSError:
        gpus = []
    return {"cores": os.cpu_count(), "gpus": gpus, "python": sys.version.split()[0], "date": time.strftime("%F %T")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="JSON to write")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--source", default="cupti")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long the run at 1 kHz takes [300]")
    parser.add_argument("--blocks", type=int, default=12, help="on-blocks of each load in target [12]")
    parser.add_argument("--counter", choices=(PLAIN, REALTIME), action="append", help="of worker_cpu [both]")
    given = parser.parse_args()
    counters = tuple(given.counter or (PLAIN, REALTIME))
    bench, report = Bench(given.source, given.seconds, given.blocks, counters), Report(given.out)
    bench.keep = report.save
    report.save("machine", machine())
    for name in given.only.split(","):
        began = time.monotonic()
        try:
            found = PARTS[name](bench)
        except Exception:
            found = {"error": traceback.format_exc()}
            print(found["error"], file=sys.stderr)
        report.save(name, found | {"took_s": time.monotonic() - began})
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    if "loads" in vars(bench):
        bench.loads.close()


if __name__ == "__main__":
    main()
