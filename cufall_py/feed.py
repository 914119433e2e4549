"""The live feed: a supervisor process, a ring a GPU, and what is said about them."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import sampler
from .devices import Device
from .errors import CufallError, SourceError
from .plan import Plan
from .ring import RingReader
from .samples import Samples, Tally
from .sources import Opened

HUNG_S = 10.0
"""A worker that has not written for this long (or twenty decodes) is killed and started again."""
SILENT_S = 2.0
"""After this long without a batch a person is told."""
END_S = 2.0

Say = Callable[[str], None]


@dataclass
class Gpu:
    """One selected GPU as the session follows it.

    `opened` tells what is sampled, None until its worker has begun. `error`: why it will give nothing
    (any more). `tally` and `overwritten` are of all its workers so far.
    """

    device: Device
    opened: Opened | None = None
    error: CufallError | None = None
    restarts: int = 0
    overwritten: int = 0
    _reader: RingReader | None = None
    _before: Tally = field(default_factory=Tally)
    _now: Tally = field(default_factory=Tally)
    _silent: bool = False

    @property
    def tally(self) -> Tally:
        return self._before + self._now

    @property
    def live(self) -> bool:
        """Whether samples are to be expected."""
        return self._reader is not None and not self._silent

    def attach(self, reader: RingReader) -> None:
        self.detach()
        self._reader, self._silent = reader, False
        self.opened = Opened.from_json(reader.info)

    def detach(self) -> None:
        if self._reader is not None:
            self.overwritten += self._reader.overwritten
            self._reader.close()
            self._reader = None
            self._before, self._now = self.tally, Tally()

    def read(self) -> Samples | None:
        batches = self._reader.read() if self._reader else []
        if not batches:
            return None
        self._now = batches[-1].tally
        return Samples.join([batch.samples for batch in batches])

    def silence_s(self) -> float:
        return self._reader.heartbeat_age_s() if self._reader else 0.0


class LiveFeed:
    """Has the plan carried out by a launched supervisor and reads the rings.

    `say` gets each line a person should read.
    """

    def __init__(self, plan: Plan, say: Say, process: subprocess.Popen[bytes]) -> None:
        self._plan, self._say = plan, say
        self.gpus: list[Gpu] = []
        self._events = b""
        self._process = process
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._out.fileno(), False)
        self._send(plan.to_json())

    def wait_open(self) -> None:
        """Until every selected GPU samples or has said why it will not.

        Raises what kept all of them from it, or the error of the supervisor itself.
        """
        while not self.gpus or any(gpu.opened is None and gpu.error is None for gpu in self.gpus):
            self.wait(1.0)
            self._take_events()
        errors = [gpu.error for gpu in self.gpus if gpu.error]
        if len(errors) == len(self.gpus):
            raise errors[0]
        for error in errors:
            self._say(f"{error}; going on without it")

    def poll(self) -> list[tuple[int, Samples]]:
        """New samples, with the position in `gpus` of the GPU they are of."""
        if select.select([self._out], [], [], 0)[0]:
            self._take_events()
        out = [(k, samples) for k, gpu in enumerate(self.gpus) if (samples := gpu.read()) is not None]
        for gpu in self.gpus:
            self._watch(gpu)
        return out

    def live(self) -> list[bool]:
        return [gpu.live for gpu in self.gpus]

    def cpu_ns(self) -> int:
        """Processor time of all workers."""
        return sum(gpu.tally.cpu_ns for gpu in self.gpus)

    def close(self) -> None:
        """End the workers and take leave of the rings. May be called more than once."""
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
        self._out.close()

    @property
    def _python(self) -> str:
        command = self._process.args
        return str(command[0] if isinstance(command, list) else command)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._in.write(json.dumps(message).encode() + b"\n")
            self._in.flush()
        except BrokenPipeError:
            pass  # its exit is noticed where events are read

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until the supervisor has something to say."""
        select.select([self._out], [], [], seconds)

    def _take_events(self) -> None:
        data = self._out.read()
        if data == b"":
            raise SourceError(
                f"the sampling process ended by itself ({_ending(self._process.wait())}); it runs {self._python}"
            )
        *lines, self._events = (self._events + (data or b"")).split(b"\n")
        for line in lines:
            self._handle(json.loads(line))

    def _handle(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "failed":
            raise sampler.error_from(event["error"])
        if kind == "devices":
            self.gpus = [Gpu(Device(**device)) for device in event["devices"]]
            return
        gpu = next(g for g in self.gpus if g.device.ordinal == event["gpu"])
        getattr(self, f"_on_{kind}")(gpu, event)

    def _on_ring(self, gpu: Gpu, event: dict[str, Any]) -> None:
        before = gpu.opened
        try:
            gpu.attach(RingReader(event["path"]))
        except FileNotFoundError:
            return  # that worker has ended already; the event of its end follows
        if before and gpu.opened and before.metrics != gpu.opened.metrics:
            gpu.error = SourceError(f"GPU {gpu.device.ordinal}: gives other counters than before; it is left out")
            gpu.opened = before
            gpu.detach()
            self._say(str(gpu.error))
            return
        gpu.error = None
        if before:
            self._say(f"GPU {gpu.device.ordinal}: samples come again")

    def _on_error(self, gpu: Gpu, event: dict[str, Any]) -> None:
        gpu.error = sampler.error_from(event["error"])
        if gpu.opened is not None:
            self._say(f"{gpu.error}; it gives no more samples")
            gpu.detach()

    def _on_lost(self, gpu: Gpu, event: dict[str, Any]) -> None:
        self._say(f"{event['error']['text']}")

    def _on_ended(self, gpu: Gpu, event: dict[str, Any]) -> None:
        gpu.restarts += 1
        gpu.detach()
        if gpu.opened is None and gpu.restarts > 2:
            gpu.error = SourceError(f"GPU {gpu.device.ordinal}: its worker cannot start ({_ending(event['code'])})")
            return
        self._say(
            f"GPU {gpu.device.ordinal}: its worker ended ({_ending(event['code'])}), "
            f"starting again in {event['again_s']:g} s"
        )

    def _watch(self, gpu: Gpu) -> None:
        silence_s = gpu.silence_s()
        decode_s = self._plan.decode_ns / 1e9
        silent = silence_s > max(SILENT_S, 4 * decode_s)
        if silent and not gpu._silent:
            self._say(f"GPU {gpu.device.ordinal}: no samples for {silence_s:.1f} s")
        gpu._silent = silent
        if silence_s > max(HUNG_S, 20 * decode_s):
            self._send({"restart": gpu.device.ordinal})


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
