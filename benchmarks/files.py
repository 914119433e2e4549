"""Recordings as files: what writing, reporting and the page cost: `python benchmarks/files.py OUT.json`.

Needs no GPU: the samples are those of the demo, which an H200 gave, over and over with noise (real_load.py). The page
needs Chromium, the comparison polars (`pip install polars`). OUT.json is written after each part, with the load.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import HERE, ROOT, Report, environment

sys.path.insert(0, str(ROOT))
import real_load
from real_load import DECODE_ROWS, Load

from cufall_py import Plan, Wanted
from cufall_py.recording import RecordingWriter
from tests import chromium

Figures = dict[str, Any]
METRICS = ("tensor", "sm", "dram")
"""Of six counters."""


def main() -> None:
    given = arguments()
    report = Report(given.out)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        bench = Bench(Path(folder), given.gpus, given.seconds, given.turns)
        for part in given.only.split(","):
            found = PARTS[part](bench) | {"load_average": os.getloadavg(), "date": time.strftime("%F %T")}
            report.save(part, found)
            print(part, json.dumps(found, default=float), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="JSON to write")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=3600, help="length of the recording [3600]")
    parser.add_argument("--turns", type=int, default=3, help="how often each is measured [3]")
    parser.add_argument("--folder", help="where the recordings lie meanwhile: 2.5 GB for an hour")
    return parser.parse_args()


class Bench:
    """Recordings of real samples, made when they are first asked for."""

    def __init__(self, folder: Path, gpus: int, seconds: int, turns: int) -> None:
        self.folder, self.gpus, self.seconds, self.turns = folder, gpus, seconds, turns
        self.load = real_load.load(*METRICS)

    def recording(self, seconds: int) -> Path:
        path = self.folder / f"{seconds}.cufall"
        if not path.exists():
            real_load.write(path, self.load, self.gpus, seconds)
        return path


def writing(bench: Bench) -> Figures:
    """The writer at the pace at which samples come, and what a real sample takes in the file."""
    shares = [_paced(bench, 10) for _ in range(bench.turns)]
    return {"core_pct": shares, "bytes_a_real_sample": _real_bytes(bench.folder / "real.cufall", bench.load)}


def _paced(bench: Bench, seconds: int) -> float:
    """Percent of a core that writing takes, less what waiting for the samples does."""
    decodes = list(real_load.decodes(bench.load, bench.gpus, seconds))
    opened = [real_load.of_gpu(bench.load.opened, gpu) for gpu in range(bench.gpus)]
    path = bench.folder / "paced.cufall"
    idle_s = _cpu_of(lambda k: None, len(decodes))
    with RecordingWriter(path, opened, Plan(wanted=Wanted(METRICS)), force=True) as out:

        def write(k: int) -> None:
            for gpu, samples in enumerate(decodes[k]):
                out.add(gpu, samples)

        busy_s = _cpu_of(write, len(decodes))
    return 100 * (busy_s - idle_s) / seconds


def _cpu_of(step: Callable[[int], None], times: int) -> float:
    """Processor seconds of a step every decode."""
    began, cpu_s = time.monotonic(), time.process_time()
    for k in range(times):
        time.sleep(max(0.0, began + k * DECODE_ROWS / 1000 - time.monotonic()))
        step(k)
    return time.process_time() - cpu_s


def _real_bytes(path: Path, load: Load) -> float:
    """Of the demo's own samples, without noise, as one recording of one GPU."""
    with RecordingWriter(path, [load.opened], Plan(wanted=Wanted(METRICS))) as out:
        for first in range(0, len(load.samples), DECODE_ROWS):
            samples = load.samples[first : first + DECODE_ROWS]
            out.set_readings(0, 1755.0 + first % 45, 500.0 + first % 90)
            out.add(0, samples)
    return path.stat().st_size / len(load.samples)


def report(bench: Bench) -> Figures:
    """`cufall report` of the whole recording and of a sixth of it, and polars over its export, in turns."""
    whole, part = bench.recording(bench.seconds), bench.recording(bench.seconds // 6)
    export = bench.folder / "run.parquet"
    exported = measured("-m", "cufall_py", "report", str(whole), "--parquet", str(export))
    found: dict[str, list[Figures]] = {"report": [], "polars": [], "report of a sixth": []}
    for _ in range(bench.turns):
        found["report"].append(measured("-m", "cufall_py", "report", str(whole)))
        found["polars"].append(measured(str(HERE / "by_polars.py"), str(export), str(bench.folder / "polars.json")))
        found["report of a sixth"].append(measured("-m", "cufall_py", "report", str(part)))
    found["report"].append(measured("-m", "cufall_py", "report", str(whole)))
    ratios = {key: _middle(found["report"], key) / _middle(found["polars"], key) for key in ("wall_s", "cpu_s")}
    return {**found, "ratios": ratios, "export": exported, "bytes": whole.stat().st_size}


def _middle(turns: list[Figures], key: str) -> float:
    return statistics.median(turn[key] for turn in turns)


def html(bench: Bench) -> Figures:
    """`cufall report --html`, and when Chromium has painted the page."""
    page = bench.folder / "run.html"
    command = ("-m", "cufall_py", "report", str(bench.recording(bench.seconds)), "--html", str(page))
    made = [measured(*command) for _ in range(bench.turns)]
    with chromium.tab(bench.folder / "profile") as tab:
        painted = [_painted(tab, page) for _ in range(bench.turns)]
    return {"made": made, "bytes": page.stat().st_size, "painted_ms": painted}


WHEN = """new Promise((done) => {
    const look = () => {
        const [entry] = performance.getEntriesByName("%s");
        entry ? done(entry.startTime) : setTimeout(look, 10);
    };
    look();
})"""
"""Milliseconds after the page was asked for; Chromium may tell of a paint a little after it."""


def _painted(tab: chromium.Tab, page: Path) -> Figures:
    tab.open(page)
    tab.settle()
    times = {"first paint": "first-contentful-paint", "plots drawn": "drawn"}
    return {what: tab.run(WHEN % name) for what, name in times.items()}


def measured(*command: str) -> Figures:
    """Seconds and memory of a Python command that ends well. `anonymous_mb`: the most that is no mapped file."""
    began, most_kb = time.monotonic(), 0
    child = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, env=environment(), cwd=ROOT)
    while True:
        most_kb = max(most_kb, _anonymous_kb(child.pid))
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.02)
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return {"wall_s": time.monotonic() - began, "cpu_s": cpu_s, "anonymous_mb": most_kb / 1024}


def _anonymous_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


PARTS: dict[str, Callable[[Bench], Figures]] = {part.__name__: part for part in (writing, report, html)}


if __name__ == "__main__":
    main()
