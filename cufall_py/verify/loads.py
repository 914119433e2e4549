"""Work on one GPU of which it is known what counters must read: the protocol, and a process of its own that does it.

It computes in another process, under the Python that has cuda-bindings, so that a crash or a hang of the driver is told
and not shared, and so that what samples has no CUDA context.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Protocol

from cufall_py.errors import SourceError, from_json
from cufall_py.launch import command

ANSWER_S = 60.0
"""How long one load may take to be done; none is planned for more than a few seconds."""
LEAVE_S = 2.0


@dataclass(frozen=True)
class Card:
    """The GPU that computes. `capability` is its compute capability, `driver` what CUDA says of itself (13.0: 13000).

    Products and FMA run in `blocks` of `warps`.
    """

    ordinal: int
    uuid: str
    name: str
    capability: tuple[int, int]
    sms: int
    l2_bytes: int
    cuda: int
    blocks: int
    warps: int


@dataclass(frozen=True)
class Ran:
    """What was done between two moments (Unix nanoseconds); nothing else was from a margin before to one after."""

    kernel: str
    count: int
    launches: int
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


class Loads(Protocol):
    """Does work on one GPU, one thing at a time. Every method raises SourceError."""

    card: Card

    def run(self, kernel: str, count: int, launches: int) -> Ran:
        """Launch a kernel of ptx.py back to back and wait for its end. `count`: turns of its loop; of `copy`, bytes."""

    def rest(self, seconds: float) -> Ran:
        """Do nothing."""

    def close(self) -> None: ...


class ChildLoads:
    """Loads in a process under this Python, on the GPU with this CUDA ordinal."""

    def __init__(self, python: str, ordinal: int) -> None:
        self._python = python
        try:
            self._process = subprocess.Popen(
                command(python, "verify.device:serve", str(ordinal)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C is for us, who then end it in order
            )
        except OSError as error:
            raise SourceError(f"{python} cannot be started: {error.strerror}") from None
        try:
            found = self._answer()
        except BaseException:
            self.close()
            raise
        self.card = Card(**{**found, "capability": tuple(found["capability"])})

    def run(self, kernel: str, count: int, launches: int) -> Ran:
        return Ran(**self._ask(kernel=kernel, count=count, launches=launches))

    def rest(self, seconds: float) -> Ran:
        return Ran(**self._ask(kernel="rest", count=int(seconds * 1000), launches=1))

    def close(self) -> None:
        process = self._process
        try:
            if process.stdin:
                process.stdin.close()
        except OSError:  # it is gone, and something was still to be written
            pass
        try:
            process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()

    def _ask(self, **words: Any) -> dict[str, Any]:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # its end is told below
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """One line of its stdout. Raises what it says, or SourceError if it says nothing."""
        assert self._process.stdout
        line, until = b"", time.monotonic() + ANSWER_S
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise SourceError(f"the work to verify has not ended in {ANSWER_S:g} s; does nvidia-smi answer?")
            if not (byte := os.read(self._process.stdout.fileno(), 1 << 16)):
                raise SourceError(f"the process that computes has ended: {self._last_words()}")
            line += byte
        found: dict[str, Any] = json.loads(line)
        if "failed" in found:
            raise from_json(found["failed"])
        return found

    def _last_words(self) -> str:
        assert self._process.stderr
        try:
            code = self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            return "it has closed its output"
        said = self._process.stderr.read().decode(errors="backslashreplace").strip().splitlines()
        return said[-1] if said else f"exit {code}"
