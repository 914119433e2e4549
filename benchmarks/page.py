"""An hour of eight GPUs at 1 kHz as a page: how long it takes to make, how large it is, when Chromium has drawn it.

    python benchmarks/page.py [SECONDS [GPUS]]

Needs no GPU. The recording is made up here, with three metrics, readings and a region every half minute.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cufall_py import Plan, Wanted
from cufall_py.cli.pages import write_html
from cufall_py.devices import Device
from cufall_py.recording import RecordingWriter
from cufall_py.report import Reading
from cufall_py.resolve import resolve
from cufall_py.samples import Floats, Samples
from cufall_py.sources import Opened
from tests import chromium

SECOND, KHZ = 1_000_000_000, 1000
BEGIN_NS = 1_796_000_000 * SECOND
CYCLES = 1_980_000.0
"""Of a millisecond."""
WANTED = Wanted(("tensor", "sm", "dram"))
PEAKS = {"tensor": 4.0, "dram": 1504.0}


def made_up(path: Path, seconds: int, gpus: int) -> None:
    """A recording whose GPUs go through prefill and decode, each a little later than the one before."""
    metrics = resolve(WANTED, "GH100")
    metrics = metrics.with_peaks({name: _peak(name) for name in metrics.unknown_peaks()})
    opened = [
        Opened(Device(k, f"GPU-{k}", "Made-up GPU", chip="GH100"), metrics, 1_000_000, "time", "script", (), {})
        for k in range(gpus)
    ]
    rng = np.random.default_rng(3)
    clock = {"now_ns": lambda: BEGIN_NS, "monotonic_ns": lambda: 0}
    with RecordingWriter(path, opened, Plan(wanted=WANTED), live=False, **clock) as out:
        for second in range(seconds):
            at = BEGIN_NS + second * SECOND
            if second % 30 == 0:
                out.event("region_begin", start_ns=at, name="prefill" if second % 60 else "decode", text="")
                out.event("region_end", start_ns=at + 25 * SECOND, name="prefill" if second % 60 else "decode")
            edges = at + np.arange(KHZ + 1, dtype=np.int64) * (SECOND // KHZ)
            for gpu in range(gpus):
                out.set_readings(gpu, 1755.0 + second % 45, 500.0 + 10 * gpu + second % 90)
                out.add(gpu, Samples(edges[:-1], edges[1:], _values(metrics.counters, rng, second - 3 * gpu)))


def _peak(counter: str) -> float:
    return next((peak for name, peak in PEAKS.items() if name in counter), 1.0)


def _values(counters: tuple[str, ...], rng: np.random.Generator, second: int) -> Floats:
    busy = np.clip((0.6 if second % 60 < 30 else 0.02) + 0.1 * rng.standard_normal(KHZ), 0, 1)
    columns = [CYCLES if "elapsed" in name else busy * _peak(name) * CYCLES for name in counters]
    return np.stack([np.broadcast_to(column, KHZ) for column in columns], axis=1)


def main() -> None:
    seconds, gpus = (int(word) for word in [*sys.argv[1:], *("3600", "8")[len(sys.argv) - 1 :]])
    with tempfile.TemporaryDirectory() as folder:
        recording, page = Path(folder) / "run.cufall", Path(folder) / "run.html"
        made_up(recording, seconds, gpus)
        began, cpu = time.monotonic(), time.process_time()
        write_html(Reading(recording), str(page))
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cost = f"{took:.1f} s (CPU {cpu:.1f} s), {resident:.0f} MB"
        print(f"{seconds} s of {gpus} GPUs: {cost}, {page.stat().st_size:,} bytes")
        with chromium.tab(Path(folder) / "profile") as tab:
            for _ in range(3):
                tab.open(page)
                tab.settle()
                paint = tab.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                drawn = tab.run("performance.getEntriesByName('drawn')[0].startTime")
                print(f"first paint {paint:.0f} ms, plots drawn {drawn:.0f} ms")


if __name__ == "__main__":
    main()
