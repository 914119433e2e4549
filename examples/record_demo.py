"""Takes the recording that `cufall demo` plays: `python examples/record_demo.py demo.cufall` on a machine with a GPU.

Needs PyTorch and transformers beside cufall. Regions are what examples/demo_loads.py runs, five seconds each.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from cufall_py import Plan, Wanted
from cufall_py.errors import UsageError
from cufall_py.session import LiveSession

SECONDS = 5.2
LOADS = Path(__file__).with_name("demo_loads.py")
BEST = ("tensor", "sm", "gr", "dram", "issue", "fma", "alu", "occupancy", "launches", "ctas", "pcie.rx", "pcie.tx")
SETS = (BEST, tuple(name for name in BEST if name not in ("alu", "occupancy")), ("tensor", "sm", "gr", "dram"))
"""Best first: the first that this GPU can sample in one pass is taken."""
SEEN = {
    "idle": "nothing runs",
    "prefill": "eight prompts of 2,048 tokens in bf16: large products, and the tensor pipe works",
    "prefill-simt": "a prompt in fp32 without tf32: the SMs are as busy, on the CUDA cores; the tensor pipe is idle",
    "decode-1": "one sequence, kernels launched one by one: the GPU waits for the host most of the time",
    "decode-16": "sixteen sequences, launched one by one: below 1 %, and the GPU still waits for the host",
    "decode-16-graph": "sixteen in bf16 as a CUDA graph: many times the tensor use; always busy, with tiny kernels",
    "decode-16-simt": "sixteen sequences in fp32 without tf32: below 1 % again, but the GPU is active: wrong kernels",
}


def started() -> LiveSession:
    for metrics in SETS:
        try:
            return LiveSession(Plan(Wanted(metrics), sample_us=1000, source="cupti", devices="0"), say=tell)
        except UsageError as error:
            tell(f"{', '.join(metrics)}: {error}")
    raise SystemExit("this GPU can sample none of the sets")


def tell(line: str) -> None:
    print(line, file=sys.stderr)


def mark(session: LiveSession, loads: subprocess.Popen[str]) -> None:
    """A region from each `begin` to its `end`."""
    assert loads.stdout
    for line in loads.stdout:
        _, name = line.split()
        with session.region(name, SEEN[name]):
            loads.stdout.readline()


def main(path: str) -> None:
    with subprocess.Popen([sys.executable, LOADS, str(SECONDS)], stdin=-1, stdout=-1, text=True) as loads:
        assert loads.stdin and loads.stdout
        loads.stdout.readline()  # it has its model
        with started() as session:
            session.record(path, force=True)
            marks = threading.Thread(target=mark, args=(session, loads))
            marks.start()
            loads.stdin.close()
            for _ in session.frames():
                if not marks.is_alive():
                    break
    for line in session.summary():
        tell(line)


if __name__ == "__main__":
    main(sys.argv[1])
