"""What the GPU tests measure with: sampled windows, Nsight Compute, NVML, and a place for the figures."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
from harness import GpuLoads, Loads, Report, cufall, environment, workers  # noqa: E402

from cufall_py.metrics import MetricSet  # noqa: E402
from cufall_py.plan import Plan  # noqa: E402
from cufall_py.resolve import Wanted  # noqa: E402
from cufall_py.samples import Samples  # noqa: E402
from cufall_py.session import LiveSession  # noqa: E402

__all__ = ["GpuLoads", "LiveSession", "Loads", "Plan", "Wanted", "cufall", "environment", "workers"]

KINDS = ("bf16", "fp16", "tf32", "fp8", "int8", "fp64")
SIZES = (512, 2048, 8192)
PRODUCTS = tuple((kind, size) for kind in KINDS for size in SIZES)
TENSOR_SUM = "sm__pipe_tensor_cycles_active.sum"
TENSOR_AVG = "sm__pipe_tensor_cycles_active.avg"
TENSOR_PCT = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
NCU_METRICS = (TENSOR_SUM, TENSOR_AVG, TENSOR_PCT, "gpu__time_duration.sum")
REPORT = os.environ.get("CUFALL_GPU_REPORT")
"""Taken at once, for tests run with no such variable set."""
MARGIN_NS = 10_000_000
"""Loads leave twice this idle on either side, so that a window wider by it holds all their work and no other."""


def missing() -> str:
    """Why nothing here can run; empty if it can."""
    try:
        import pynvml

        pynvml.nvmlInit()
        found = pynvml.nvmlDeviceGetCount()
    except Exception as error:
        return f"no NVIDIA GPU here ({error}); run these on a machine with one"
    return "" if found else "the NVIDIA driver shows no GPU; run these on a machine with one"


def note(name: str, **figures: Any) -> None:
    """Keep figures in the file that CUFALL_GPU_REPORT names, if it does."""
    if REPORT:
        Report(REPORT).save(name, figures)


@dataclass(frozen=True)
class Window:
    """What was counted between two moments: each counter's sum, and how much of the time was covered, ns."""

    metrics: MetricSet
    totals: dict[str, float]
    covered_ns: float

    def ratio(self, metric: str = "tensor") -> float:
        """A metric's mean over the window, 0..1, by the set's own formula."""
        found = next(m for m in self.metrics.metrics if metric in (m.label, m.asked))
        top = sum(self.totals[name] for name in found.counters)
        return top / (found.peak * self.totals[found.elapsed])

    def percent(self, metric: str = "tensor") -> float:
        return 100 * self.ratio(metric)


class Sampling:
    """A session whose samples are kept. `devices` 0, as the loads run there. A context manager."""

    def __init__(self, **options: Any) -> None:
        self._parts: list[Samples] = []
        self.said: list[str] = []
        plan = Plan(**{"source": "cupti", "devices": "0", **options})
        self.session = LiveSession(plan, self.said.append, lambda gpu, samples: self._parts.append(samples))
        self._frames, self._reached_ns = self.session.frames(), 0
        self.metrics = self.session.opened[0].metrics

    def __enter__(self) -> Sampling:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def for_s(self, seconds: float) -> None:
        """Sample for so long from now."""
        self.until(time.time_ns() + int(1e9 * seconds))

    def until(self, end_ns: int) -> None:
        """Take frames until one begins after `end_ns`, so that every sample up to it has come."""
        while self._reached_ns <= end_ns:
            self._reached_ns = next(self._frames).start_ns

    def samples(self) -> Samples:
        return Samples.join(self._parts)

    def window(self, start_ns: int, end_ns: int) -> Window:
        self.until(end_ns)
        return window(self.samples(), self.metrics, start_ns, end_ns)

    def over(self, answer: dict[str, Any]) -> Window:
        """All that a load did."""
        return self.window(answer["start_ns"] - MARGIN_NS, answer["end_ns"] + MARGIN_NS)

    def within(self, answer: dict[str, Any], skip: float = 0.3) -> Window:
        """The steady part of a load: without its first `skip` and its last 2 %."""
        start, length = answer["start_ns"], answer["end_ns"] - answer["start_ns"]
        return self.window(start + int(skip * length), start + int(0.98 * length))


def window(samples: Samples, metrics: MetricSet, start_ns: int, end_ns: int) -> Window:
    """Samples count by the share of them that lies within."""
    inside = np.minimum(samples.end_ns, end_ns) - np.maximum(samples.start_ns, start_ns)
    length = samples.end_ns - samples.start_ns
    share = np.clip(inside / length, 0, 1)
    totals = share @ samples.values
    return Window(metrics, dict(zip(metrics.counters, totals.tolist(), strict=True)), float(share @ length))


def sampled(seconds: float, **options: Any) -> Window:
    """What a session of its own counts of what runs now, over `seconds`."""
    with Sampling(**options) as sampling:
        start = time.time_ns()
        sampling.for_s(seconds)
        return sampling.window(start, start + int(1e9 * seconds))


# Nsight Compute -----------------------------------------------------------------------------------------


def ncu_products(
    wanted: Sequence[tuple[str, int]] = PRODUCTS, metrics: Sequence[str] = NCU_METRICS
) -> dict[tuple[str, int], dict[str, float]]:
    """Each product's counters in one launch, by Nsight Compute at free-running clocks."""
    command = [
        "ncu",
        "--clock-control",
        "none",
        "--cache-control",
        "none",
        "--profile-from-start",
        "off",
        "--csv",
        "--page",
        "raw",
    ]
    command += ["--metrics", ",".join(metrics), sys.executable, str(Path(__file__).with_name("ncu_products.py"))]
    command += [f"{kind}:{size}" for kind, size in wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment())
    found = launches(done.stdout.splitlines(), metrics)
    if len(found) != len(wanted):
        raise RuntimeError(f"ncu gave {len(found)} launches of {len(wanted)}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return dict(zip(wanted, found, strict=True))


def launches(lines: Iterable[str], metrics: Sequence[str] = NCU_METRICS) -> list[dict[str, float]]:
    """The products in ncu's raw CSV, in order: runs of kernels between PyTorch's own, their counters summed.

    The percentage is that of the run's longest kernel.
    """
    table = list(csv.DictReader(line for line in lines if line.startswith('"')))
    out: list[dict[str, float]] = []
    apart = True
    for row in table[1:]:  # the first names the units
        if re.search(r"\bat::|spin_kernel", row["Kernel Name"]):
            apart = True
            continue
        values = {name: float(row[name].replace(",", "")) for name in metrics if row.get(name)}
        out.append(values) if apart else out.append(_together(out.pop(), values))
        apart = False
    return out


def _together(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    longest = max(a, b, key=lambda values: values["gpu__time_duration.sum"])
    return {name: longest[name] if "pct" in name else a[name] + b[name] for name in a}


# NVML ---------------------------------------------------------------------------------------------------


GPM_METRICS = {"gr": 1, "sm": 2, "tensor": 5, "dram": 10}


class Gpm:
    """NVML's own utilisations between two of its samples; it renews what they hold every 100 ms."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._n, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
        self._at_ns = [0, 0]

    def take(self, which: int) -> None:
        before = time.time_ns()
        self._n.nvmlGpmSampleGet(self._handle, self._samples[which])
        self._at_ns[which] = (before + time.time_ns()) // 2

    def between(self) -> tuple[dict[str, float], int, int]:
        """Percent of each of GPM_METRICS, and the times of the two samples."""
        n = self._n
        ask = n.c_nvmlGpmMetricsGet_t()
        ask.version, ask.numMetrics = n.NVML_GPM_METRICS_GET_VERSION, len(GPM_METRICS)
        ask.sample1, ask.sample2 = self._samples
        for k, number in enumerate(GPM_METRICS.values()):
            ask.metrics[k].metricId = number
        n.nvmlGpmMetricsGet(ask)
        return {name: ask.metrics[k].value for k, name in enumerate(GPM_METRICS)}, *self._at_ns


def nvidia_smi(query: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "--id=0"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# the command --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code (negative: the signal), what it wrote, how long it took."""

    code: int
    out: str
    said: str
    took_s: float

    def rows(self) -> list[dict[str, str]]:
        """Its CSV."""
        return list(csv.DictReader(self.out.splitlines()))


def run(*args: str, timeout: float = 60, **settings: Any) -> Ended:
    """Run `cufall` with these arguments to its end."""
    began = time.monotonic()
    process = cufall(*args, stdout=-1, stderr=-1, **settings)
    return ended(process, began, timeout)


def ended(process: subprocess.Popen[bytes], began: float, timeout: float = 60) -> Ended:
    out, said = process.communicate(timeout=timeout)
    return Ended(process.returncode, out.decode(), said.decode(), time.monotonic() - began)


class Watched:
    """A running `cufall --csv -`, whose rows can be waited for."""

    def __init__(self, *args: str) -> None:
        self.process = cufall("--csv", "-", *args, stdout=-1, stderr=-1)
        self.pid = self.process.pid
        self._text = b""
        assert self.process.stdout
        os.set_blocking(self.process.stdout.fileno(), False)

    def row_after(self, moment_ns: int, timeout: float) -> bool:
        """Wait until a row of a frame that was measured and begins after `moment_ns` has been written."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if any(int(row[1]) > moment_ns and row[5] for row in self._new_rows()):
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.005)
        return False

    def _new_rows(self) -> list[list[str]]:
        assert self.process.stdout
        *lines, self._text = (self._text + (self.process.stdout.read() or b"")).split(b"\n")
        return [row for row in csv.reader(line.decode() for line in lines) if row[0] != "time"]

    def finish(self) -> str:
        """End it as a person would, and give what it said."""
        self.process.terminate()
        return self.process.communicate(timeout=10)[1].decode()
