"""A worker: one process that samples one GPU into its ring.

It writes nothing else but a few events. It ends when the supervisor closes its pipe or dies, when no one has
read its ring for two seconds, or, by the kernel's alarm, when a call into the driver does not return.
"""

from __future__ import annotations

import resource
import select
import signal
import time
from collections.abc import Callable
from contextlib import closing

from .devices import Device
from .errors import CountersOwned, CufallError, SourceError, as_json
from .owned import while_owned
from .plan import Plan
from .ring import RingWriter
from .ring_file import owner_of
from .samples import Even, Samples, Tally
from .screening import Timeline, is_flawless, screen
from .sources import Opened, Provider, Source

READERLESS_S = 2.0
LOOK_S = 0.2
"""How often a worker looks whether it is to end and has readers, counts its cost and puts off the alarm."""
OPEN_S, HUNG_S = 60.0, 10.0
"""A worker that has not started after the one, or reads for longer than the other (or twenty decodes), is ended."""
YOUNG_NS = 1_000_000_000
DECODE_AFTER_NS = 2_000_000
"""A decode comes this long after its mark, so that the sample that ends there is complete."""
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
        opened = while_owned(source.open)
        with closing(while_owned(lambda: RingWriter(opened.ring_name, opened.to_json(), owner=reader))) as ring:
            tell("ring", gpu=device.ordinal, path=str(ring.path))
            return _sample(Sampling(source, opened, ring, plan), tell, end)
    except CufallError as error:
        tell("error", gpu=device.ordinal, error=as_json(_named(error, device, reader)))
        return FINAL
    finally:
        _close(source)


def _named(error: CufallError, device: Device, reader: int) -> CufallError:
    """The error; if the owner of this GPU is a cufall, one that names it."""
    owner = owner_of(device.uuid) if isinstance(error, CountersOwned) else None
    if not owner:
        return error
    if owner == reader:
        return CountersOwned(f"GPU {device.ordinal}: an earlier Session of this program samples it; close() that first")
    return CountersOwned(f"GPU {device.ordinal}: another cufall (process {owner}) samples it; end that first")


def _close(source: Source) -> None:
    try:
        source.close()
    except SourceError:
        pass  # the GPU is given back when this process ends, which is next


def _sample(sampling: Sampling, tell: Callable[..., None], end: int) -> int:
    """Decode into the ring at each mark until the end. Returns FINAL, or AGAIN if the source gave out."""
    look_at = 0.0
    while True:
        due_ns, period_ns = sampling.next_mark(time.time_ns())
        looking = time.monotonic() >= look_at
        ended = _ended_before(due_ns, end) if looking else _slept_until(due_ns)
        if looking:
            look_at = time.monotonic() + LOOK_S
            _end_after(max(HUNG_S, 20e-9 * period_ns))
            sampling.count_cost()
            if not ended and sampling.ring.readerless_s() > READERLESS_S:
                return AGAIN  # the supervisor lives, so its reader does, and may have been stopped for a while
        try:
            jumped = sampling.take(due_ns, period_ns)
        except SourceError as error:
            tell("lost", gpu=sampling.opened.device.ordinal, error=as_json(error))
            return AGAIN
        if jumped:
            told = SourceError(
                f"GPU {sampling.opened.device.ordinal}: the clock of its samples was set; going on with it"
            )
            tell("lost", gpu=sampling.opened.device.ordinal, error=as_json(told))
        if ended:
            return FINAL


class Sampling:
    """The decodes of one GPU into its ring."""

    def __init__(self, source: Source, opened: Opened, ring: RingWriter, plan: Plan) -> None:
        self.opened, self.ring = opened, ring
        self._source, self._timeline = source, Timeline()
        self._decode_ns, self._first_ns = source.decode_ns, min(source.decode_ns, plan.frame_ns)
        self._began_cpu_ns, self._young_until_ns = time.process_time_ns(), time.time_ns() + YOUNG_NS

    def next_mark(self, now_ns: int) -> tuple[int, int]:
        """When the next decode is due, and the period of decodes; at first each frame's, to show the first soon."""
        period_ns = self._first_ns if now_ns < self._young_until_ns else self._decode_ns
        return (now_ns // period_ns + 1) * period_ns + DECODE_AFTER_NS, period_ns

    def take(self, due_ns: int, period_ns: int) -> bool:
        """Decode, screen and write. Returns whether the clock of the samples was set. Raises SourceError."""
        tally, timeline, began_ns = self._source.tally, self._timeline, time.monotonic_ns()
        found, jumped = self._source.read(), False
        if isinstance(found, Even) and is_flawless(found, timeline, self.opened.metrics, began_ns):
            tally.samples += len(found)
            timeline.reach(found.end_ns, began_ns)
            kept: Samples | Even = found
        else:
            kept, jumped = self._screened(found.spread(), began_ns)
        _account(tally, time.monotonic_ns() - began_ns, time.time_ns() - due_ns, period_ns)
        self.ring.write(kept, tally)
        return jumped

    def count_cost(self) -> None:
        """What this process has used so far; not at each decode, for each question to the kernel costs."""
        usage, tally = resource.getrusage(resource.RUSAGE_SELF), self._source.tally
        tally.cpu_ns = int(1e9 * (usage.ru_utime + usage.ru_stime)) - self._began_cpu_ns
        tally.resident_bytes = 1024 * usage.ru_maxrss

    def _screened(self, samples: Samples, began_ns: int) -> tuple[Samples, bool]:
        """Those that can be true, and whether their clock was set."""
        jumped = self._timeline.has_jumped(samples, began_ns)
        if jumped:
            self._timeline = Timeline()
        timeline = self._timeline
        latest_ns = timeline.latest_ns(began_ns)
        kept = screen(samples, timeline.last_end_ns, self.opened.metrics, self._source.tally, latest_ns)
        timeline.note(samples, began_ns)
        return kept, jumped


def _end_after(seconds: float) -> None:
    """Have the kernel end this process then, be it within a call that does not return; 0: not at all."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _ended_before(due_ns: int, end: int) -> bool:
    """Sleep until `due_ns`; true if the pipe has ended meanwhile."""
    return bool(select.select([end], [], [], _left_s(due_ns))[0])


def _slept_until(due_ns: int) -> bool:
    """Sleep alone, in two thirds of the processor time; whether the pipe has ended is not known."""
    time.sleep(_left_s(due_ns))
    return False


def _left_s(due_ns: int) -> float:
    return max(0.0, (due_ns - time.time_ns()) / 1e9)


def _account(tally: Tally, decode_ns: int, after_due_ns: int, period_ns: int) -> None:
    tally.decodes += 1
    tally.decode_ns += decode_ns
    tally.late += after_due_ns > period_ns
    tally.late_ns = max(tally.late_ns, after_due_ns - decode_ns)
