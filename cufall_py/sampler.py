"""Sampling in processes of its own: one worker a GPU, under one supervisor.

The supervisor loads what every worker needs, finds the GPUs in a child (so that it never initialises the
driver itself) and forks a worker for each. It talks in JSON lines: the plan on stdin, events on stdout;
the end of stdin ends it. Workers write their GPU's ring and nothing else. A worker ends when the
supervisor tells it, when the supervisor dies, when no one has read its ring for two seconds, or, by the
kernel's alarm, when a call into the driver does not return.
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
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .devices import Device, select as select_devices
from .errors import ERRORS, CountersOwned, CufallError, NoGpu, SourceError
from .plan import Plan
from .ring import RingWriter, clear_stale, owner_of
from .samples import Samples, Tally, screen
from .sources import Opened, Provider, Source, provider

T = TypeVar("T")
READERLESS_S = 2.0
OPEN_S, HUNG_S = 60.0, 10.0
"""A worker that has not started after the one, or reads for longer than the other (or twenty decodes), is ended."""
RESTART_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Waits before each restart of a worker that keeps ending."""
STEADY_S = 30.0
"""A worker that ran this long before it ended is restarted as if it were the first time."""
OWNED_RETRY_S = 2.0
"""How long a GPU that another process holds is asked again: one that was just killed lets go of it soon."""
YOUNG_NS = 1_000_000_000
SKEW_NS = 1_000_000_000
"""A sample that ends this far in the future does not."""
DECODE_AFTER_NS = 2_000_000
"""A decode comes this long after its mark, so that the sample that ends there is complete."""


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
        tell("failed", error=_error(error))


def tell(event: str, **fields: Any) -> None:
    """Write one event; short enough to arrive in one piece though many processes share the pipe."""
    try:
        os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")
    except BrokenPipeError:
        pass  # the end of stdin, which follows, ends everything


def _error(error: CufallError) -> dict[str, str]:
    return {"kind": type(error).__name__, "text": str(error)}


def error_from(data: dict[str, str]) -> CufallError:
    """The error that an event carries."""
    return ERRORS.get(data["kind"], SourceError)(data["text"])


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
                self._tell("lost", gpu=worker.device.ordinal, error=_error(SourceError(f"worker: {error!r}")))
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
            raise error_from(answer)
        return [Device(**device) for device in answer]

    return wait


def _answer(find: Callable[[], list[Device]]) -> Any:
    try:
        return [device.to_json() for device in find()]
    except CufallError as error:
        return _error(error)


FINAL, AGAIN = 0, 3
"""How a worker ends: not to be started again, or to be."""


def work(provider: Provider, device: Device, plan: Plan, tell: Callable[..., None], end: int, reader: int) -> int:
    """Sample one GPU into its ring until the pipe `end` does.

    `reader`: the process to end for this GPU to be free. Returns FINAL or AGAIN.
    """
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    _end_after(OPEN_S)
    source = provider.source(device, plan)
    try:
        opened = _while_owned(source.open)
        with closing(_while_owned(lambda: RingWriter(device.uuid, opened.to_json(), owner=reader))) as ring:
            tell("ring", gpu=device.ordinal, path=str(ring.path))
            return _sample(source, opened, ring, plan, tell, end)
    except CufallError as error:
        owner = owner_of(device.uuid) if isinstance(error, CountersOwned) else None
        if owner:
            error = CountersOwned(f"GPU {device.ordinal}: another cufall (process {owner}) samples it; end that first")
        tell("error", gpu=device.ordinal, error=_error(error))
        return FINAL
    finally:
        source.close()


def _while_owned(take: Callable[[], T]) -> T:
    until = time.monotonic() + OWNED_RETRY_S
    while True:
        try:
            return take()
        except CountersOwned:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _sample(source: Source, opened: Opened, ring: RingWriter, plan: Plan, tell: Callable[..., None], end: int) -> int:
    """Decode into the ring at each mark until the end. Returns FINAL, or AGAIN if the source gave out."""
    last_end_ns, began_cpu_ns, young_until_ns = 0, time.process_time_ns(), time.time_ns() + YOUNG_NS
    while True:
        # at first each frame is decoded as it ends, so that a person sees the first soon
        young = time.time_ns() < young_until_ns
        period_ns = min(plan.decode_ns, plan.frame_ns) if young else plan.decode_ns
        due_ns = (time.time_ns() // period_ns + 1) * period_ns + DECODE_AFTER_NS
        _end_after(0)
        if _ended_before(due_ns, end):
            return FINAL
        if ring.readerless_s() > READERLESS_S:
            return AGAIN  # the supervisor lives, so its reader does, and may have been stopped for a while
        began_ns = time.monotonic_ns()
        _end_after(max(HUNG_S, 20e-9 * plan.decode_ns))
        try:
            samples = source.read()
        except SourceError as error:
            tell("lost", gpu=opened.device.ordinal, error=_error(error))
            return AGAIN
        told_until_ns = _told_until(samples, last_end_ns)
        samples = screen(samples, last_end_ns, opened.metrics, source.tally)
        last_end_ns = told_until_ns
        source.tally.cpu_ns = time.process_time_ns() - began_cpu_ns
        _account(source.tally, time.monotonic_ns() - began_ns, time.time_ns() - due_ns, period_ns)
        ring.write(samples, source.tally)


def _told_until(samples: Samples, last_end_ns: int) -> int:
    """The end of the newest sample, absurd or not: one that is counted as absurd is not missing as well."""
    possible = (samples.end_ns > samples.start_ns) & (samples.end_ns < time.time_ns() + SKEW_NS)
    return int(samples.end_ns[possible].max(initial=last_end_ns))


def _end_after(seconds: float) -> None:
    """Have the kernel end this process then, be it within a call that does not return; 0: not at all."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _ended_before(due_ns: int, end: int) -> bool:
    """Sleep until `due_ns`; true if the pipe has ended meanwhile."""
    wait_s = max(0.0, (due_ns - time.time_ns()) / 1e9)
    return bool(select.select([end], [], [], wait_s)[0])


def _account(tally: Tally, decode_ns: int, after_due_ns: int, period_ns: int) -> None:
    tally.decodes += 1
    tally.decode_ns += decode_ns
    tally.late += after_due_ns > period_ns
    tally.late_ns = max(tally.late_ns, after_due_ns - decode_ns)
    if tally.decodes % 16 == 1:
        tally.resident_bytes = _resident_bytes()


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
