"""The reader's side of the supervisor's events, told by a supervisor that only plays them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cufall_py import feed as module
from cufall_py.errors import SourceError
from cufall_py.feed import LiveFeed
from cufall_py.metrics import Metric, MetricSet
from cufall_py.plan import Plan
from cufall_py.ring import SLOT_BYTES, SLOTS_AT, RingWriter
from cufall_py.samples import Tally
from cufall_py.sources import Opened
from tests.helpers import EPOCH, MS, SECOND, gpu, metric, steady, tensor_set

GPUS = [gpu(0), gpu(1)]
OTHER = MetricSet(("sm__other.sum", "sm__cycles_elapsed.avg"), (metric(counter="sm__other.sum"),))


class Played:
    """A supervisor of GPUS and its workers; `tell` is told to the feed, whose lines come to `said`."""

    def __init__(self, feed: LiveFeed, events: int, said: list[str]) -> None:
        self.feed, self._events, self.said = feed, events, said

    def tell(self, event: str, **fields: Any) -> None:
        os.write(self._events, json.dumps({"event": event, **fields}).encode() + b"\n")

    def ring(self, ordinal: int, metrics: MetricSet | None = None, size: int = 1 << 20) -> RingWriter:
        """One that a worker has just made and told of."""
        opened = Opened(GPUS[ordinal], metrics or tensor_set(), MS, "time", "script")
        ring = RingWriter(GPUS[ordinal].uuid, opened.to_json(), size)
        self.tell("ring", gpu=ordinal, path=str(ring.path))
        return ring

    def ended(self, ordinal: int) -> None:
        self.tell("ended", gpu=ordinal, code=1, again_s=0.5)

    def poll(self, seconds: float = 0.2) -> list[tuple[int, int]]:
        """GPU and number of samples of each batch that came meanwhile."""
        until, found = time.monotonic() + seconds, []
        while time.monotonic() < until:
            found += [(k, len(samples)) for k, samples in self.feed.poll()]
            time.sleep(0.01)
        return found


@contextmanager
def played(plan: Plan = Plan()) -> Iterator[Played]:
    read, write = os.pipe()
    said: list[str] = []
    process = subprocess.Popen(
        ["sh", "-c", f"read plan; exec cat /dev/fd/{read}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[read],
    )
    os.close(read)
    supervisor = Played(LiveFeed(plan, said.append, process), write, said)
    supervisor.tell("devices", devices=[device.to_json() for device in GPUS])
    try:
        yield supervisor
    finally:
        os.close(write)
        supervisor.feed.close()


def test_gpus_may_read_the_same_metrics_from_other_counters() -> None:
    with played() as supervisor:
        rings = [supervisor.ring(0), supervisor.ring(1, OTHER)]
        supervisor.feed.wait_open()
        rings[1].write(steady(EPOCH, MS, 3, 0.5), Tally(samples=3))
        assert supervisor.poll() == [(1, 3)]
        assert supervisor.said == []


def test_a_gpu_with_other_metrics_than_the_rest_is_left_out() -> None:
    with played() as supervisor:
        supervisor.ring(0)
        supervisor.ring(1, MetricSet(("a", "b"), (Metric("a", "a/b", ("a",), "b"),)))
        supervisor.feed.wait_open()
        assert supervisor.said == ["GPU 1: reads other counters than before; going on without it"]


def test_a_gpu_that_comes_back_with_other_counters_is_left_out_and_told_once() -> None:
    with played() as supervisor:
        first = [supervisor.ring(0), supervisor.ring(1)]
        supervisor.feed.wait_open()
        for _ in range(3):
            supervisor.ended(1)
            first.pop().close()
            first.append(supervisor.ring(1, OTHER))
            supervisor.poll()
        lines = [line for line in supervisor.said if "other counters" in line]
        assert lines == ["GPU 1: reads other counters than before; it gives no more samples"]
        supervisor.ended(0)
        first[0].close()
        supervisor.ring(0, OTHER)
        with pytest.raises(SourceError, match="GPU 0: reads other counters"):
            supervisor.poll()


def test_what_a_worker_wrote_last_is_read_after_its_end() -> None:
    with played() as supervisor:
        rings = [supervisor.ring(0), supervisor.ring(1)]
        supervisor.feed.wait_open()
        rings[0].write(steady(EPOCH, MS, 5, 0.5), Tally(samples=5))
        rings[0].close()
        supervisor.ended(0)
        assert supervisor.poll() == [(0, 5)]
        assert supervisor.feed.live() == [False, True]
        assert supervisor.said == ["GPU 0: its worker ended (exit code 1), starting again in 0.5 s"]
        rings[1].write(steady(EPOCH, MS, 7, 0.5), Tally(samples=7))
        rings[1].close()
    assert [(k, len(samples)) for k, samples in supervisor.feed.unread()] == [(1, 7)]
    assert [gpu.tally.samples for gpu in supervisor.feed.gpus] == [5, 7]


def test_what_was_written_over_unread_is_lost() -> None:
    slots = 8
    with played() as supervisor:
        supervisor.ring(1)
        ring = supervisor.ring(0, size=SLOTS_AT + slots * SLOT_BYTES)
        supervisor.feed.wait_open()
        for k in range(20):
            ring.write(steady(EPOCH + 10 * k * MS, MS, 10, 0.5), Tally(samples=10 * (k + 1), lost=0))
            if k == 2:
                assert supervisor.poll() == [(0, 30)]
        (found,) = supervisor.poll()
        tally = supervisor.feed.gpus[0].tally
    assert tally.lost == 170 - found[1] > 0
    assert tally.lost_ns == tally.lost * MS
    assert supervisor.feed.gpus[0].overwritten == tally.lost // 10


def test_what_the_worker_counted_itself_is_not_counted_twice() -> None:
    with played() as supervisor:
        supervisor.ring(1)
        first = supervisor.ring(0)
        supervisor.feed.wait_open()
        first.write(steady(EPOCH, MS, 10, 0.5), Tally(samples=10))
        first.close()
        supervisor.ended(0)
        second = supervisor.ring(0)
        second.write(steady(EPOCH + 30 * MS, MS, 10, 0.5), Tally(samples=10))
        second.write(steady(EPOCH + 45 * MS, MS, 10, 0.5), Tally(samples=20, lost=5, lost_ns=5 * MS))
        supervisor.poll()
        tally = supervisor.feed.gpus[0].tally
    assert (tally.lost, tally.lost_ns) == (25, 25 * MS)


def test_a_batch_is_cut_where_the_clock_was_set() -> None:
    with played() as supervisor:
        supervisor.ring(1)
        ring = supervisor.ring(0)
        supervisor.feed.wait_open()
        for start in (EPOCH, EPOCH + 3600 * SECOND, EPOCH - 3600 * SECOND):
            ring.write(steady(start, MS, 4, 0.5), Tally())
        assert supervisor.poll() == [(0, 4), (0, 4), (0, 4)]


def test_a_driver_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.2)
    monkeypatch.setattr(module, "GIVE_UP_S", 1.0)
    with played() as supervisor:
        with pytest.raises(SourceError, match=r"has not answered in 1 s"):
            supervisor.feed.wait_open()
        assert supervisor.said == ["the GPU driver has not answered for 0.2 s; still waiting"]
