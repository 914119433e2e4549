"""The scripted source: made-up GPUs whose every counter is known, for demonstrations and tests.

A script (script_file) tells how many GPUs, what they do over time (a pattern of phases that repeats), and
faults at times. Counters are exact integrals of the pattern, so any window's mean can be
told by arithmetic. It runs in real workers, as the hardware does.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import numpy as np

from cufall_py.devices import Device
from cufall_py.errors import CountersDenied, CountersOwned, SourceError, UsageError
from cufall_py.metrics import MetricSet
from cufall_py.plan import RECORD_BYTES, Plan
from cufall_py.presets import COMMON, Recipe, table
from cufall_py.resolve import check_one_pass, resolve, unit_of
from cufall_py.samples import Even, Floats, Ints, Samples, Tally

from . import Opened, Passes
from .script_file import Phase, Script, parse

CLOCK_HZ = {"sm": 1.755e9, "smsp": 1.755e9, "gr": 1.6e9, "dram": 3.2e9, "lts": 1.6e9, "pcie": 1.0e9}
"""By the unit of an elapsed counter; other units tick at 1 GHz."""
CLOCKS = {"sm": "gpc_cycle", "smsp": "gpc_cycle", "gr": "sys_cycle", "dram": "dram_cycle", "lts": "lts_cycle"}
PEAKS = {
    "sm__pipe_tensor": 4.0,
    "smsp__pipe_tensor": 1.0,
    "dram__bytes": 1504.0,
    "sm__inst_executed_pipe": 264.0,
    "sm__inst_executed_realtime": 528.0,
    "sm__pipe_fp64": 4.0,
    "lts__t_bytes": 9024.0,
    "pcie__": 63.0,
    "sm__warps_active": 64.0,
}
"""Peak a cycle by the start of a counter's name, as an H200 told them; 1 for others."""


class ScriptProvider:
    """The GPUs of a script; its time begins when the provider is made."""

    def __init__(self, script: Script, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.script, self._now_ns, self.origin_ns = script, now_ns, now_ns()

    @staticmethod
    def from_file(path: str) -> ScriptProvider:
        try:
            return ScriptProvider(parse(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, MemoryError, RecursionError, UsageError) as error:
            raise UsageError(f"--source script:{path}: {getattr(error, 'strerror', None) or error}") from None

    def prepare(self) -> None:
        pass

    def devices(self) -> list[Device]:
        return [Device(k, self._uuid(k), self.script.name, f"0000:{k:02x}:00.0", 132) for k in range(self.script.count)]

    def source(self, device: Device, plan: Plan) -> ScriptSource:
        return ScriptSource(self.script, device, plan, self.origin_ns, self._now_ns)

    def passes(self, device: Device) -> Passes:
        return Passes(self.script.chip, lambda counters: passes(self.script, counters))

    def _uuid(self, ordinal: int) -> str:
        if ordinal < len(self.script.uuids):
            return self.script.uuids[ordinal]
        # of this run alone, so that two runs of one script do not share a ring
        seed = hashlib.sha256(f"{self.origin_ns} {os.getpid()} {ordinal}".encode()).digest()
        return f"GPU-{UUID(bytes=seed[:16])}"


class ScriptSource:
    """One scripted GPU."""

    def __init__(self, script: Script, device: Device, plan: Plan, origin_ns: int, now_ns: Callable[[], int]) -> None:
        self.tally = Tally()
        self._script, self._device, self._plan = script, device, plan
        self._origin_ns, self._now_ns = origin_ns, now_ns
        self._faults = [f for f in script.faults if f.gpu == device.ordinal]
        self._pattern = script.patterns[device.ordinal % len(script.patterns)]

    @property
    def decode_ns(self) -> int:
        return self._plan.decode_ns

    def open(self) -> Opened:
        self._raise_at_open()
        metrics = resolve(self._plan.wanted, self._script.chip)
        check_one_pass(metrics, passes(self._script, metrics.counters), self._script.chip)
        metrics = metrics.with_peaks({name: peak(name) for name in metrics.unknown_peaks()})
        self._metrics = metrics
        self._rates = np.stack([self._rate(phase, metrics) for phase in self._pattern])
        self._next_ns = self._now_ns()
        clocks = {name: CLOCKS.get(unit_of(name), "cycle") for name in metrics.counters}
        device = self._device.of_chip(self._script.chip)
        facts = {"clocks": clocks, "peaks": {name: peak(name) for name in metrics.counters}}
        return Opened(device, metrics, self._plan.sample_ns, "time", "script", facts=facts)

    def read(self) -> Samples | Even:
        elapsed_s = (self._now_ns() - self._origin_ns) / 1e9
        self._misbehave(elapsed_s)
        _burn(self._script.burn_ms)
        period = self._plan.sample_ns
        count = (self._now_ns() - self._next_ns) // period
        held = max(1, self._plan.buffer_bytes // RECORD_BYTES)
        if count > held:
            self._next_ns += (count - held) * period
        edges = self._next_ns + period * np.arange(max(0, min(count, held)) + 1, dtype=np.int64)
        start_ns, self._next_ns = int(edges[0]), int(edges[-1])
        values = np.diff(self.totals(edges), axis=0)
        whole = Even.between(start_ns, self._next_ns, period, values) if not self._faults else None
        return whole or self._flawed(Samples(edges[:-1], edges[1:], values))

    def close(self) -> None:
        pass

    def totals(self, at_ns: Ints) -> Floats:
        """Every counter's running total at these times, (n, counters): the pattern's exact integral."""
        shift_ns = self._origin_ns + int(1e6 * self._script.stagger_ms * self._device.ordinal)
        lengths_s = np.array([phase.ms / 1e3 for phase in self._pattern])
        bounds = np.concatenate(([0.0], np.cumsum(lengths_s)))
        sums = np.concatenate(
            [np.zeros((1, self._rates.shape[1])), np.cumsum(self._rates * lengths_s[:, None], axis=0)]
        )
        cycles, within = np.divmod((at_ns - shift_ns) / 1e9, bounds[-1])
        columns = [np.interp(within, bounds, sums[:, k]) for k in range(sums.shape[1])]
        out: Floats = cycles[:, None] * sums[-1] + np.stack(columns, axis=1)
        return out

    def _rate(self, phase: Phase, metrics: MetricSet) -> Floats:
        """Each counter's amount a second in a phase."""
        return np.array([rate(name, phase.ratios, self._script.chip) for name in metrics.counters])

    def _raise_at_open(self) -> None:
        elapsed_s = (self._now_ns() - self._origin_ns) / 1e9
        for fault in self._faults:
            if fault.kind in ("denied", "owned") and fault.active(elapsed_s):
                kind = CountersDenied if fault.kind == "denied" else CountersOwned
                raise kind(f"GPU {self._device.ordinal} ({self._device.name}): scripted to be {fault.kind}")

    def _misbehave(self, elapsed_s: float) -> None:
        for fault in self._faults:
            if not fault.active(elapsed_s):
                continue
            if fault.kind == "hang":
                time.sleep(min(fault.at_s + fault.for_s - elapsed_s, 1e6))
            elif fault.kind == "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault.kind == "lost":
                raise SourceError(f"GPU {self._device.ordinal} ({self._device.name}) is lost")

    def _flawed(self, samples: Samples) -> Samples:
        since_s = (samples.end_ns - self._origin_ns) / 1e9
        for fault in self._faults:
            hit = (since_s >= fault.at_s) & (since_s < fault.at_s + fault.for_s)
            if fault.kind == "gap":
                samples, since_s = samples[~hit], since_s[~hit]
            elif fault.kind == "absurd":
                samples.values[hit] = 2**32 - 1
            elif fault.kind == "duplicate":
                order = np.sort(np.concatenate([np.arange(len(samples)), np.flatnonzero(hit)]))
                samples, since_s = samples[order], since_s[order]
        return samples


def passes(script: Script, counters: Sequence[str]) -> int:
    """How many passes these counters need together. Raises UsageError for one that no short name is made of."""
    for name in counters:
        rate(name, {}, script.chip)
    return -(-len(set(counters)) // script.pass_counters)


def peak(counter: str) -> float:
    """What a scripted counter can count in a cycle."""
    fits = [start for start in PEAKS if counter.startswith(start)]
    return PEAKS[max(fits, key=len)] if fits else 1.0


def rate(counter: str, ratios: dict[str, float], chip: str) -> float:
    """A counter's amount a second when its metric stands at the ratio that `ratios` gives it.

    Raises UsageError for one that no short name is made of: what it would count is not in the script.
    """
    if "cycles_elapsed" in counter:
        return clock_hz(counter)
    for recipes in (table(chip), COMMON):
        for name, recipe in recipes.items():
            if isinstance(recipe, Recipe) and counter in recipe.counters:
                if recipe.unit:
                    return ratios.get(name, 0.0)
                share = len(recipe.peak_of) / len(recipe.counters)
                return ratios.get(name, 0.0) * share * peak(counter) * clock_hz(recipe.elapsed)
    raise UsageError(f"{counter} is not a counter of a scripted {chip}: it has those of the short names")


def clock_hz(elapsed: str) -> float:
    return CLOCK_HZ.get(unit_of(elapsed), 1e9)


def _burn(milliseconds: float) -> None:
    """Use this much processor time with the interpreter's lock released, as a decode does."""
    until = time.thread_time() + milliseconds / 1e3
    while time.thread_time() < until:
        hashlib.sha256(b"\0" * 200_000)
