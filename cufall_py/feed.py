"""The live feed: a supervisor process, a ring a GPU, and what is said about them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
import weakref
from typing import Any

from . import sampler
from .devices import Device
from .errors import CufallError, SourceError, from_json
from .gpu import Gpu
from .launch import launch
from .metrics import MetricSet
from .plan import Plan
from .ring import RingReader
from .samples import Samples
from .saying import Say
from .sources import Opened

START_S = 10.0
"""How long the GPUs that have started wait for those that have not."""
SLOW_S, GIVE_UP_S = 10.0, 60.0
"""After how long a person is told that no GPU has started, and after how long none will."""
SILENT_S = 2.0
"""After this long without a batch a person is told."""
POLL_S = 0.01
END_S = 2.0


class LiveFeed:
    """Has the plan carried out by a launched supervisor and reads the rings.

    `say` gets each line a person should read.
    """

    def __init__(self, plan: Plan, say: Say, process: subprocess.Popen[bytes]) -> None:
        self._plan, self._say = plan, say
        self.gpus: list[Gpu] = []
        self.began = 0.0
        """When the first GPU began to give samples, on the monotonic clock."""
        self._numbered: dict[int, Gpu] = {}
        self._under_way = False
        self._relaunches, self._launched, self._launch_at = 0, 0.0, 0.0
        self._connect(process)
        _feeds.add(self)

    def _connect(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout
        self._process, self._in, self._out, self._events = process, process.stdin, process.stdout, b""
        self._launched, self._launch_at = time.monotonic(), 0.0
        os.set_blocking(self._out.fileno(), False)
        self._poller = select.poll()  # select() takes no file number above 1023
        self._poller.register(self._out, select.POLLIN)
        try:
            self._in.write(json.dumps(self._plan.to_json()).encode() + b"\n")
            self._in.flush()
        except BrokenPipeError:
            pass  # its end is noticed where events are read

    def wait_open(self) -> None:
        """Until every selected GPU samples or has said why it will not, or the rest has waited long enough.

        Raises what kept all of them from it, or the error of the supervisor itself.
        """
        until, slow = self._launched + GIVE_UP_S, self._launched + SLOW_S
        while (not self.gpus or any(map(_undecided, self.gpus))) and time.monotonic() < until:
            self.wait(0.5)
            self._take_events()
            if any(gpu.opened for gpu in self.gpus):
                until = min(until, time.monotonic() + START_S)
            elif time.monotonic() > slow:
                slow = float("inf")
                self._say(f"the GPU driver has not answered for {SLOW_S:g} s; still waiting")
        self._raise_if_none_is_left()
        if not any(gpu.opened for gpu in self.gpus):
            raise SourceError(f"the GPU driver has not answered in {GIVE_UP_S:g} s; does nvidia-smi work?")
        for gpu in self.gpus:
            if gpu.error:
                self._say(f"{gpu.error}; going on without it")
            elif not gpu.opened:
                self._say(f"GPU {gpu.device.ordinal} has not started in {START_S:g} s; going on without it for now")
        self._under_way = True

    def poll(self) -> list[tuple[int, Samples]]:
        """New samples, with the position in `gpus` of the GPU they are of."""
        self._take_events()
        out = self.unread()
        for gpu in self.gpus:
            self._watch(gpu)
        return out

    def unread(self) -> list[tuple[int, Samples]]:
        """What the rings hold, or held when they were left; also after the close."""
        return [(k, samples) for k, gpu in enumerate(self.gpus) for samples in self._read(gpu)]

    def _read(self, gpu: Gpu) -> list[Samples]:
        was_away = gpu.away
        samples = gpu.read()
        if was_away and not gpu.away:
            self._say(f"GPU {gpu.device.ordinal}: samples come again")
        return samples

    def live(self) -> list[bool]:
        return [gpu.live for gpu in self.gpus]

    def close(self) -> None:
        """End the workers and take leave of the rings, but for what is unread. May be called more than once."""
        try:
            self._in.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for gpu in self.gpus:
            gpu.detach()
        self.let_go()

    def let_go(self) -> None:
        """Close what this process has open, and leave the sampling to whoever else has it."""
        for gpu in self.gpus:
            gpu.let_go()
        self._in.close()
        self._out.close()
        _feeds.discard(self)

    @property
    def _python(self) -> str:
        command = self._process.args
        return str(command[0] if isinstance(command, list) else command)

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until the supervisor has something to say: whether it has."""
        if self._launch_at:
            time.sleep(min(seconds, POLL_S))
            return True
        return bool(self._poller.poll(1000 * seconds))

    def _take_events(self) -> None:
        if self._launch_at:
            if time.monotonic() >= self._launch_at:
                self._connect(launch(self._plan.source))
            return
        # asked before reading, so that its last words are read; its workers may keep the pipe open
        code = self._process.poll()
        *lines, self._events = (self._events + (self._out.read() or b"")).split(b"\n")
        for line in lines:
            self._handle(json.loads(line))
        if code is not None:
            self._supervisor_ended(code)

    def _supervisor_ended(self, code: int) -> None:
        what = f"the sampling process ended by itself ({_ending(code)})"
        if not self._under_way:
            raise SourceError(f"{what}; it runs {self._python}")
        if time.monotonic() - self._launched > sampler.STEADY_S:
            self._relaunches = 0
        if self._relaunches == len(sampler.RESTART_S):
            raise SourceError(f"{what} again and again; it runs {self._python}")
        wait_s = sampler.RESTART_S[self._relaunches]
        self._relaunches, self._launch_at = self._relaunches + 1, time.monotonic() + wait_s
        self._in.close()
        self._out.close()
        for gpu in self.gpus:
            gpu.detach()
        self._say(f"{what}, starting again in {wait_s:g} s")

    def _handle(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "failed":
            raise from_json(event["error"])
        if kind == "devices":
            self._on_devices([Device(**device) for device in event["devices"]])
        else:
            getattr(self, f"_on_{kind}")(self._numbered[event["gpu"]], event)

    def _on_devices(self, devices: list[Device]) -> None:
        """A supervisor that was started anew may number the GPUs anew; a script also names them anew."""
        self.gpus = self.gpus or [Gpu(device) for device in devices]
        by_uuid = {gpu.device.uuid: gpu for gpu in self.gpus}
        by_ordinal = {gpu.device.ordinal: gpu for gpu in self.gpus}
        found = [(d.ordinal, by_uuid.get(d.uuid) or by_ordinal.get(d.ordinal)) for d in devices]
        self._numbered = {ordinal: gpu for ordinal, gpu in found if gpu}

    def _on_ring(self, gpu: Gpu, event: dict[str, Any]) -> None:
        try:
            reader = RingReader(event["path"])
        except FileNotFoundError:
            return  # that worker has ended already; the event of its end follows
        opened = Opened.from_json(reader.info)
        if not self._fits(gpu, opened.metrics):
            reader.close()
            self._leave_out(gpu, SourceError(f"GPU {gpu.device.ordinal}: reads other counters than before"))
            return
        gpu.error = None
        self.began = self.began or time.monotonic()
        gpu.attach(reader, opened)

    def _fits(self, gpu: Gpu, metrics: MetricSet) -> bool:
        """The same GPU must read what it read before; GPUs beside each other the same metrics, each in its way."""
        if gpu.opened:
            return metrics == gpu.opened.metrics
        others = [other.opened.metrics for other in self.gpus if other.opened]
        return all(_labels(metrics) == _labels(other) for other in others)

    def _on_error(self, gpu: Gpu, event: dict[str, Any]) -> None:
        self._leave_out(gpu, from_json(event["error"]))

    def _leave_out(self, gpu: Gpu, error: CufallError) -> None:
        """Go on without this GPU; at the start `wait_open` tells, later this does, once an error."""
        known, gpu.error = gpu.error, error
        if not self._under_way:
            return
        gpu.detach()
        if str(known) != str(error):
            self._say(f"{error}; it gives no more samples")
        self._raise_if_none_is_left()

    def _raise_if_none_is_left(self) -> None:
        if all(gpu.error for gpu in self.gpus) and self.gpus[0].error:
            raise self.gpus[0].error

    def _on_lost(self, gpu: Gpu, event: dict[str, Any]) -> None:
        self._say(f"{event['error']['text']}")

    def _on_ended(self, gpu: Gpu, event: dict[str, Any]) -> None:
        gpu.restarts += 1
        gpu.detach()
        if gpu.error:
            return
        if gpu.opened is None and gpu.restarts > 2:
            cause = _ending(event["code"])
            self._leave_out(gpu, SourceError(f"GPU {gpu.device.ordinal}: its worker cannot start ({cause})"))
            return
        self._say(
            f"GPU {gpu.device.ordinal}: its worker ended ({_ending(event['code'])}), "
            f"starting again in {event['again_s']:g} s"
        )

    def _watch(self, gpu: Gpu) -> None:
        silence_s = gpu.silence_s()
        decode_s = self._plan.decode_ns / 1e9
        silent = silence_s > max(SILENT_S, 4 * decode_s)
        if silent and not gpu.away:
            self._say(f"GPU {gpu.device.ordinal}: no samples for {silence_s:.1f} s")
            gpu.away = True


def _undecided(gpu: Gpu) -> bool:
    return gpu.opened is None and gpu.error is None


def _labels(metrics: MetricSet) -> list[str]:
    return [metric.label for metric in metrics.metrics]


def _ending(code: int) -> str:
    if code == -signal.SIGALRM:
        return "a call into the driver did not return"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


_feeds: weakref.WeakSet[LiveFeed] = weakref.WeakSet()


def _let_go_of_all() -> None:
    for feed in list(_feeds):
        feed.let_go()


# a forked child that kept them would keep the workers running after this process
os.register_at_fork(after_in_child=_let_go_of_all)
