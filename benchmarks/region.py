"""What a region of an attached session costs its program: `python benchmarks/region.py`, on scripted GPUs."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from cufall_py.attaching import Attachment
from cufall_py.engines.servers import Server
from cufall_py.plan import Plan

COUNT, ROUNDS = 2000, 20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"pattern": [{"ms": 1000, "tensor": 0.5}]}))
        with Attachment([Server("http://127.0.0.1:9")], Plan(source=f"script:{script}")) as attached:
            times_us = sorted(one(attached) for _ in range(ROUNDS))
    print(f"enter and exit: median {times_us[ROUNDS // 2]:.2f} us, most {times_us[-1]:.2f} us ({COUNT} at a time)")


def one(attached: Attachment) -> float:
    begun_ns = time.perf_counter_ns()
    for _ in range(COUNT):
        with attached.region("step"):
            pass
    took_us = (time.perf_counter_ns() - begun_ns) / 1e3 / COUNT
    time.sleep(0.2)
    return took_us


if __name__ == "__main__":
    main()
