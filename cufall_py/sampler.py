"""The supervisor: one process that starts a worker a GPU, and starts again those that end.

It loads what every worker needs, finds the GPUs in a child (so that it never initialises the driver
itself) and forks a worker (worker.py) for each. It talks in JSON lines: the plan on stdin, events on
stdout; the end of stdin ends it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .devices import Device, select as select_devices
from .errors import CufallError, NoGpu, SourceError, as_json, from_json
from .plan import Plan
from .ring_file import clear_stale
from .sources import Provider, provider
from .worker import AGAIN, FINAL, work

RESTART_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Waits before each restart of a worker that keeps ending."""
STEADY_S = 30.0
"""A worker that ran this long before it ended is restarted as if it were the first time."""


def main(source: str) -> None:
    """Entry of the supervisor process; the plan comes as the first line of stdin."""
    try:
        supervisor = Supervisor(provider(source), tell)
        supervisor.prepare()
        with open(0, "rb", buffering=0, closefd=False) as stdin:  # unbuffered: what follows is read with select
            request = stdin.readline()
        if request:
            supervisor.run(Plan.from_json(json.loads(request)))
    except CufallError as error:
        tell("failed", error=as_json(error))


def tell(event: str, **fields: Any) -> None:
    """Write one event; short enough to arrive in one piece though many processes share the pipe."""
    try:
        os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")
    except BrokenPipeError:
        pass  # the end of stdin, which follows, ends everything


@dataclass
class Worker:
    """A worker as the supervisor sees it. `pid` 0: not running; `due`: when it is to be started again."""

    device: Device
    pid: int = 0
    started: float = 0.0
    due: float = field(default=float("inf"))
    restarts: int = 0


class Supervisor:
    """Starts the workers, starts again those that die, ends them all."""

    def __init__(self, provider: Provider, tell: Callable[..., None]) -> None:
        self._provider, self._tell, self._reader = provider, tell, os.getppid()
        self._workers: dict[int, Worker] = {}

    def prepare(self) -> None:
        """Look for GPUs in a child while this process loads the libraries. Raises CufallError."""
        self._found = _in_child(self._provider.devices)
        self._provider.prepare()
        clear_stale()

    def run(self, plan: Plan) -> None:
        """Sample until the end of stdin. Raises CufallError if the plan's GPUs are not there."""
        self._plan = plan
        devices = select_devices(self._found(), plan.devices)
        self._tell("devices", devices=[device.to_json() for device in devices])
        self._end, self._alive = os.pipe()  # whose end, when this process closes it or dies, is that of the workers
        self._wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        self._workers = {device.ordinal: Worker(device) for device in devices}
        gc.freeze()  # what is loaded stays: no worker need ever look at it again, and its pages stay shared
        try:
            for worker in self._workers.values():
                self._start(worker)
            self._attend()
        finally:
            self._end_all()

    def _attend(self) -> None:
        """Until the end of stdin: bury and restart workers."""
        while True:
            wait = max(0.0, min(w.due for w in self._workers.values()) - time.monotonic())
            ready = select.select([0, self._wake], [], [], min(wait, 3600.0))[0]
            if 0 in ready and not os.read(0, 4096):
                return
            if self._wake in ready:
                os.read(self._wake, 4096)
            self._bury()
            for worker in self._workers.values():
                if time.monotonic() >= worker.due:
                    self._start(worker)

    def _start(self, worker: Worker) -> None:
        worker.due, worker.started = float("inf"), time.monotonic()
        worker.pid = os.fork()
        if worker.pid == 0:
            status = AGAIN
            try:
                os.close(self._alive)
                status = work(self._provider, worker.device, self._plan, self._tell, self._end, self._reader)
            except Exception as error:
                # not foreseen, so without a remedy; but it must be said, and the GPU tried again
                self._tell("lost", gpu=worker.device.ordinal, error=as_json(SourceError(f"worker: {error!r}")))
            finally:
                os._exit(status)

    def _bury(self) -> None:
        for worker in self._workers.values():
            if worker.pid:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    self._buried(worker, os.waitstatus_to_exitcode(status))

    def _buried(self, worker: Worker, code: int) -> None:
        worker.pid = 0
        if code == FINAL:
            return
        if time.monotonic() - worker.started > STEADY_S:
            worker.restarts = 0
        wait = RESTART_S[min(worker.restarts, len(RESTART_S) - 1)]
        worker.restarts += 1
        worker.due = time.monotonic() + wait
        self._tell("ended", gpu=worker.device.ordinal, code=code, again_s=wait)

    def _end_all(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(self._alive)
        until = time.monotonic() + 1.0
        while any(_running(w) for w in self._workers.values()) and time.monotonic() < until:
            time.sleep(0.005)
        for worker in self._workers.values():
            if _running(worker):
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
        clear_stale()  # a worker that had to be killed has left its ring


def _running(worker: Worker) -> bool:
    if worker.pid and os.waitpid(worker.pid, os.WNOHANG)[0]:
        worker.pid = 0
    return bool(worker.pid)


def _in_child(find: Callable[[], list[Device]]) -> Callable[[], list[Device]]:
    """Start `find` in a child process; the answer waits for it. Raises what it raised."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(_answer(find)).encode())
        finally:
            os._exit(0)
    os.close(write)

    def wait() -> list[Device]:
        with open(read, "rb") as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        if not text:
            raise NoGpu("looking for GPUs ended the process that looked; does nvidia-smi work?")
        answer = json.loads(text)
        if isinstance(answer, dict):
            raise from_json(answer)
        return [Device(**device) for device in answer]

    return wait


def _answer(find: Callable[[], list[Device]]) -> Any:
    try:
        return [device.to_json() for device in find()]
    except CufallError as error:
        return as_json(error)
