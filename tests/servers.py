"""Inference servers for tests: examples/serve.py over real sockets, and what its log says that it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cufall_py.analysis.phases import PHASES
from cufall_py.engines.drive import Work, drive
from cufall_py.engines.driven import Driven

ROOT = Path(__file__).resolve().parent.parent
Step = dict[str, float]
GAP_S = 0.05
"""Between two steps no longer apart the server is not idle: it takes in answers and questions."""


@dataclass(frozen=True)
class Running:
    url: str
    port: int
    pid: int
    log: Path

    def steps(self) -> list[Step]:
        """What it did, step by step, by its own log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def driven(self, at_once: int, seconds: float, prompt: int, output: int) -> Driven:
        """Driven by so many at once until none begins any more after so long."""
        stop = threading.Event()
        timer = threading.Timer(seconds, stop.set)
        timer.start()
        try:
            return drive(self.url, at_once, Work(prompt, output, requests=1_000_000), stop=stop)
        finally:
            timer.cancel()


@contextmanager
def serving(folder: Path, *words: str, fake: bool = True) -> Iterator[Running]:
    """A server for as long as this lasts; `fake`: one that sleeps instead of computing."""
    log = folder / "steps.jsonl"
    command = [sys.executable, str(ROOT / "examples" / "serve.py"), "--port", "0", "--log", str(log), *words]
    with subprocess.Popen(
        [*command, *(["--fake"] if fake else [])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            said, _, port = process.stdout.readline().partition(" ")
            assert said == "ready", "the server did not start"
            yield Running(f"http://127.0.0.1:{int(port)}", int(port), process.pid, log)
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(10)


def prefill_and_rest(server: Running, seconds: float, prompt: int) -> None:
    """Prompts whose first token is all that is wanted, then nothing."""
    server.driven(4, seconds, prompt, 1)
    time.sleep(seconds / 2)


def decode_and_rest(server: Running, seconds: float, output: int) -> None:
    """Short prompts and many tokens, then nothing."""
    server.driven(4, seconds, 8, output)
    time.sleep(seconds / 2)


def true_shares(steps: Sequence[Step], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, 5) the share of each frame that was each of PHASES, by the server's log; never unsure."""
    shares = np.zeros((len(start_ns), len(PHASES)))
    begins = [step["start_s"] for step in steps]
    ends = [
        after if after - step["end_s"] < GAP_S else step["end_s"]
        for step, after in zip(steps, [*begins[1:], np.inf], strict=True)
    ]
    for step, end_s in zip(steps, ends, strict=True):
        overlap = np.minimum(end_ns, int(1e9 * end_s)) - np.maximum(start_ns, int(1e9 * step["start_s"]))
        phase = PHASES.index("prefill" if step["prompt"] else "decode")
        shares[:, phase] += np.maximum(overlap, 0) / (end_ns - start_ns)
    shares[:, PHASES.index("idle")] = np.maximum(0, 1 - shares.sum(axis=1))
    return shares


def wrong_and_unsure(called: NDArray[np.float64], true: NDArray[np.float64]) -> tuple[float, float]:
    """Shares of the time that were called a phase that it was not (`mixed` is no wrong name where both were), and that
    were called none."""
    unsure, mixed = PHASES.index("unsure"), PHASES.index("mixed")
    sure = np.delete(called, [unsure, mixed], axis=1)
    wrong = np.maximum(0, sure - np.delete(true, [unsure, mixed], axis=1)).sum(axis=1)
    return float(wrong.mean()), float((called[:, unsure] + called[:, mixed]).mean())
