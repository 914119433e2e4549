"""Inference servers for tests: examples/serve.py, which sleeps instead of computing, over real sockets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.scripted import ROOT, environment


@dataclass(frozen=True)
class Running:
    url: str
    port: int
    pid: int
    log: Path

    def steps(self) -> list[dict[str, float]]:
        """What it did, step by step, by its own log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def serving(folder: Path, *words: str, fake: bool = True) -> Iterator[Running]:
    """A server for as long as this lasts."""
    log = folder / "steps.jsonl"
    command = [sys.executable, str(ROOT / "examples" / "serve.py"), "--port", "0", "--log", str(log), *words]
    with subprocess.Popen(
        [*command, *(["--fake"] if fake else [])],
        env=environment(),
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
