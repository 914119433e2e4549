"""What summaries of each second cost their program: `python benchmarks/log_to.py`, on scripted GPUs at 1 kHz.

Of the whole process, which takes samples, sums them up and writes windows to a sink that does nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from cufall_py import BackgroundSession, Plan, Wanted, log_to

METRICS = ("tensor", "sm", "dram")
SECONDS = 20.0


class Nowhere:
    def write(self, second: int, end_ns: int, values: Mapping[str, float]) -> None:
        pass

    def close(self) -> None:
        pass


def main() -> None:
    for gpus in (1, 8):
        shares = {logged: share(gpus, logged) for logged in (False, True)}
        print(f"{gpus} GPUs: {shares[False]:.2f} % of a core, with log_to {shares[True]:.2f} %")


def share(gpus: int, logged: bool) -> float:
    """Percent of a core that this process takes while it does nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"gpus": gpus, "pattern": [{"ms": 1000, "tensor": 0.5, "sm": 0.5, "dram": 0.2}]}))
        plan = Plan(source=f"script:{script}", wanted=Wanted(METRICS), sample_us=1000)
        with BackgroundSession(plan) as session:
            time.sleep(2)
            begun_s, cpu_s = time.monotonic(), time.process_time()
            with log_to(session, Nowhere()) if logged else nullcontext():
                time.sleep(SECONDS)
            return 100 * (time.process_time() - cpu_s) / (time.monotonic() - begun_s)


if __name__ == "__main__":
    main()
