"""The CUPTI source: PM sampling of one GPU, and what its hardware and library do that their manual omits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cufall_py.devices import Device, cuda_devices
from cufall_py.errors import SourceError, Unsupported, UsageError
from cufall_py.metrics import MetricSet
from cufall_py.plan import Plan
from cufall_py.resolve import chip_note, resolve
from cufall_py.samples import Samples, Tally
from cufall_py.sources import Opened

from . import loader
from .problems import explain
from .protocol import Config, CuptiError, Pm
from .times import lay_out

SYSCLK_HZ = 1_500_000_000
"""Taken for a SYSCLK interval when the time trigger is refused; the times of the samples tell the truth."""
SILENCE_S = 0.5
"""How long a started GPU may give no sample before its counters are suspected."""
OPTIONAL_UNITS = ("nvlrx__", "nvltx__", "ctc__", "pcie__", "dram__")
"""Units that a GPU of the chip may lack, most often first."""


class CuptiProvider:
    """GPUs as CUDA shows them, each sampled over cupti-python."""

    def prepare(self) -> None:
        loader.load()
        from . import bindings  # noqa: F401  (imported before the fork, so that every worker has it)

    def devices(self) -> list[Device]:
        return cuda_devices()

    def source(self, device: Device, plan: Plan) -> CuptiSource:
        from .bindings import BoundPm

        return CuptiSource(device, plan, lambda: BoundPm(device.ordinal))


class CuptiSource:
    """PM sampling of one GPU; `make_pm` gives a fresh handle, for CUPTI cannot configure one twice."""

    def __init__(self, device: Device, plan: Plan, make_pm: Callable[[], Pm]) -> None:
        self.device, self.plan, self.tally = device, plan, Tally()
        self._make_pm = make_pm
        self._pm: Pm | None = None
        self._notes: list[str] = []
        self._last_end_ns = 0
        self._early = Samples.empty(0)

    def open(self) -> Opened:
        try:
            return self._open()
        except CuptiError as error:
            self.close()
            raise explain(error, self.device) from None
        except BaseException:
            self.close()
            raise

    def read(self) -> Samples:
        try:
            early, self._early = self._early, self._early[:0]
            return Samples.join([early, self._drain()])
        except CuptiError as error:
            raise explain(error, self.device) from None

    def close(self) -> None:
        pm, self._pm = self._pm, None
        if pm is None:
            return
        try:
            pm.stop()
        except CuptiError:
            pass  # a GPU that fails to stop is still given back
        finally:
            pm.disable()

    def _open(self) -> Opened:
        chip = self._fresh().enable()
        wanted = self.plan.wanted
        metrics = self._present(resolve(wanted, chip), chip)
        self._notes += filter(None, [chip_note(wanted, chip)])
        self._config = self._start(metrics)
        metrics = self._with_samples(metrics)
        peaks = self._opened.constants([f"{name}.peak_sustained" for name in metrics.unknown_peaks()])
        metrics = metrics.with_peaks(dict(zip(metrics.unknown_peaks(), peaks, strict=True)))
        _check_peaks(metrics)
        return Opened(
            device=self.device.of_chip(chip),
            metrics=metrics,
            sample_ns=self._config.interval if self._config.time_trigger else 0,
            trigger="time" if self._config.time_trigger else "sysclk",
            source="cupti",
            notes=tuple(self._notes),
            facts={
                "libraries": loader.mapped(),
                "clocks": {name: self._opened.clock(name) for name in metrics.counters},
            },
        )

    @property
    def _opened(self) -> Pm:
        if self._pm is None:
            raise SourceError(f"GPU {self.device.ordinal} is not open")
        return self._pm

    def _fresh(self) -> Pm:
        self.close()
        self._pm = self._make_pm()
        return self._pm

    def _present(self, metrics: MetricSet, chip: str) -> MetricSet:
        """The set without the counters of units that are not there; what is left must fit one pass."""
        self._check_names(metrics.counters, chip)
        left = metrics
        if not self._opened.present(metrics.counters):
            left = self._leave_out(metrics, [n for n in metrics.counters if not self._opened.present([n])])
        passes = self._opened.passes(left.counters)
        if passes != 1:
            raise UsageError(
                f"{' + '.join(m.asked for m in left.metrics)} need {passes} passes on {chip}, "
                "one can be sampled; ask for fewer metrics at a time"
            )
        return left

    def _check_names(self, counters: Sequence[str], chip: str) -> None:
        """CUPTI refuses a set that holds an unknown name with statuses that do not say so."""
        try:
            self._opened.passes(counters)
        except CuptiError:
            for name in counters:
                self._check_name(name, chip)
            raise

    def _check_name(self, name: str, chip: str) -> None:
        try:
            self._opened.passes([name])
        except CuptiError as error:
            raise UsageError(f"{name} is not a counter of {chip} (CUPTI says {error.status})") from None

    def _leave_out(self, metrics: MetricSet, absent: Sequence[str]) -> MetricSet:
        if not absent:
            return metrics
        left = metrics.without(absent)
        gone = [m.asked for m in metrics.metrics if m not in left.metrics]
        if not left.metrics:
            raise Unsupported(
                f"GPU {self.device.ordinal}: {', '.join(gone)} cannot be measured, its unit gives no samples here"
            )
        self._notes.append(f"left out {', '.join(gone)}: the unit of {absent[0]} is not there")
        return left

    def _start(self, metrics: MetricSet) -> Config:
        """Start with the wished trigger and append mode, or with what the chip has instead."""
        plan = self.plan
        wished = Config(
            metrics.counters,
            plan.sample_ns if plan.trigger == "time" else plan.sysclk_cycles,
            plan.trigger == "time",
            True,
            plan.buffer_bytes,
            plan.image_samples,
        )
        for config in _fallbacks(wished):
            try:
                self._opened.configure(config)
            except CuptiError as error:
                if error.status != "NOT_SUPPORTED" or config == _fallbacks(wished)[-1]:
                    raise
                self._fresh().enable()
            else:
                self._say_trigger(wished, config)
                self._opened.start()
                return config
        raise AssertionError("unreachable: the last way in either started or raised")

    def _say_trigger(self, wished: Config, config: Config) -> None:
        if wished.time_trigger and not config.time_trigger:
            self._notes.append(
                f"this chip has no time trigger: samples every {config.interval} SYSCLK cycles instead, "
                "so their length follows that clock"
            )

    def _with_samples(self, metrics: MetricSet) -> MetricSet:
        """Wait for the first samples; a counter of an absent unit silences its whole set, so drop such."""
        for unit in ("", *OPTIONAL_UNITS):
            suspects = [name for name in metrics.counters if unit and unit in name]
            if unit and not suspects:
                continue
            if suspects:
                metrics = self._leave_out(metrics, suspects)
                self._fresh().enable()
                self._config = self._start(metrics)
            if self._wait_for_samples():
                return metrics
        raise Unsupported(f"GPU {self.device.ordinal} started but gives no samples of {', '.join(metrics.counters)}")

    def _wait_for_samples(self) -> bool:
        patience = SILENCE_S + 3 * self.plan.sample_ns / 1e9
        until = time.monotonic() + patience
        while time.monotonic() < until:
            self._early = self._drain()
            if len(self._early):
                return True
            time.sleep(min(0.005, patience / 20))
        return False

    def _drain(self) -> Samples:
        """Decode until the hardware buffer is empty, and give every sample its time."""
        parts = []
        while True:
            found = self._opened.decode()
            parts.append(self._taken(found.samples))
            if found.overflow:
                self._recover()
                break
            if not found.image_full:
                break
        samples = lay_out(Samples.join(parts), self._last_end_ns, self._config.interval, self.tally)
        if len(samples):
            self._last_end_ns = int(samples.end_ns[-1])
        return samples

    def _taken(self, count: int) -> Samples:
        pm = self._opened
        return Samples(
            pm.start_ns[:count].astype(np.int64), pm.end_ns[:count].astype(np.int64), pm.values[:count].copy()
        )

    def _recover(self) -> None:
        """A full buffer that keeps its oldest records gives nothing more: begin again on a fresh handle."""
        self.tally.overflows += 1
        self._last_end_ns = 0
        self._fresh().enable()
        self._opened.configure(self._config)
        self._opened.start()


def _fallbacks(wished: Config) -> list[Config]:
    """Ways to sample, best first: Turing cannot keep the latest records, Turing and GA100 have no time trigger."""
    ways = [wished, replace(wished, keep_latest=False)]
    if wished.time_trigger:
        cycles = max(1, wished.interval * SYSCLK_HZ // 1_000_000_000)
        ways += [replace(way, time_trigger=False, interval=cycles) for way in ways]
    return ways


def _check_peaks(metrics: MetricSet) -> None:
    for metric in metrics.metrics:
        if not metric.peak > 0:
            raise UsageError(
                f"{metric.asked} has no peak on this chip, so no percent; give --denominator, --full-scale or --raw"
            )
