"""The CUPTI source: PM sampling of one GPU, and what its hardware and library do that their manual omits."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from cufall_py.devices import Device, cuda_devices, show_only
from cufall_py.errors import AbsentUnit, LibraryProblem, UsageError
from cufall_py.metrics import INFINITE, MetricSet
from cufall_py.plan import Plan
from cufall_py.resolve import check_one_pass, chip_note, resolve
from cufall_py.samples import TOO_LONG_NS, Even, Samples, Tally
from cufall_py.sources import Opened, Passes
from cufall_py.verified import here

from . import loader
from .problems import explain
from .protocol import Config, CuptiError, Decoded, Pm
from .times import lay_out

SYSCLK_MHZ, FASTEST_SYSCLK_MHZ = 1500, 2500
"""Taken for a SYSCLK interval when the time trigger is refused, and for how many samples can come of one; the
times of the samples tell the truth."""
SLOWEST_SYSCLK_HZ = 200e6
DRAIN_S = 0.5
"""How long one read may go on decoding, or a decode's period if that is longer."""
SILENCE_S = 0.5
"""How long a started GPU may give no sample before its counters are suspected."""
OPTIONAL_UNITS = ("nvlrx__", "nvltx__", "ctc__", "pcie__", "dram__")
"""Units that a GPU of the chip may lack, most often first."""


class CuptiProvider:
    """GPUs as CUDA shows them, each sampled over cupti-python."""

    def prepare(self) -> None:
        loader.load()
        try:
            from . import bindings  # noqa: F401  (imported before the fork, so that every worker has it)
        except ImportError as error:
            raise LibraryProblem(f"cupti-python cannot be imported ({error}); {loader.INSTALL}") from None

    def devices(self) -> list[Device]:
        return cuda_devices()

    def source(self, device: Device, plan: Plan) -> CuptiSource:
        from .bindings import BoundPm

        return CuptiSource(device, plan, BoundPm(show_only(device)))

    def passes(self, device: Device) -> Passes:
        from .tables import passes_on

        try:
            return passes_on(device.ordinal)
        except CuptiError as error:
            raise explain(error, device) from None


class CuptiSource:
    """PM sampling of one GPU through its handle `pm`."""

    def __init__(self, device: Device, plan: Plan, pm: Pm) -> None:
        self.device, self.plan, self.tally = device, plan, Tally()
        self._pm = pm
        self._notes: list[str] = []
        self._last_end_ns = self._period_ns = 0
        self._early: Samples | None = None

    @property
    def decode_ns(self) -> int:
        return self.plan.decode_ns

    def open(self) -> Opened:
        try:
            return self._open()
        except CuptiError as error:
            raise explain(error, self.device) from None

    def read(self) -> Samples | Even:
        try:
            found = self._drain()
            if self._early is not None:
                found, self._early = Samples.join([self._early, found.spread()]), None
            return found
        except CuptiError as error:
            raise explain(error, self.device) from None

    def close(self) -> None:
        try:
            self._pm.close()
        except CuptiError as error:
            raise explain(error, self.device) from None

    def _open(self) -> Opened:
        chip = self._pm.enable()
        self._metrics = self._scheduled(resolve(self.plan.wanted, chip), chip)
        self._notes += filter(None, [chip_note(self.plan.wanted, chip, here(chip))])
        libraries = loader.mapped()
        loader.let_go_of_target()  # before the hardware buffer is taken, so that both are never held at once
        self._start()
        self._see_samples()
        metrics = self._with_peaks()
        return Opened(
            device=self.device.of_chip(chip),
            metrics=metrics,
            sample_ns=self._config.interval if self._config.time_trigger else 0,
            trigger="time" if self._config.time_trigger else "sysclk",
            source="cupti",
            notes=tuple(self._notes),
            facts={
                "libraries": libraries,
                "clocks": {name: self._pm.clock(name) for name in metrics.counters},
                "peaks": self._peaks(metrics.counters),
            },
        )

    def _scheduled(self, metrics: MetricSet, chip: str) -> MetricSet:
        """Schedule the set, without the counters of units that are not there. What is left must fit one pass."""
        try:
            passes = self._pm.schedule(metrics.counters)
        except CuptiError:
            # CUPTI refuses the whole set, with statuses that name neither the counter nor the reason
            metrics = self._leave_out(metrics, self._absent(metrics.counters, chip))
            passes = self._pm.schedule(metrics.counters)
        check_one_pass(metrics, passes, chip)
        return metrics

    def _absent(self, counters: Sequence[str], chip: str) -> list[str]:
        """Counters of the chip whose units this GPU lacks. Raises UsageError for one the chip does not know."""
        absent = []
        for name in counters:
            try:
                self._pm.schedule([name])
            except CuptiError as error:
                if not self._pm.known(name):
                    raise UsageError(f"{name} is not a counter of {chip} (CUPTI says {error.status})") from None
                absent.append(name)
        return absent

    def _leave_out(self, metrics: MetricSet, missing: Sequence[str]) -> MetricSet:
        if not missing:
            return metrics
        left = metrics.without(missing)
        gone = [m.asked for m, now in zip(metrics.metrics, left.metrics, strict=True) if now.absent and not m.absent]
        if all(m.absent for m in left.metrics):
            raise AbsentUnit(
                f"GPU {self.device.ordinal}: {', '.join(gone)} cannot be measured, its unit gives no samples here"
            )
        self._notes.append(f"left out {', '.join(gone)}: the unit of {missing[0]} is not there")
        return left

    def _with_peaks(self) -> MetricSet:
        names = self._metrics.unknown_peaks()
        peaks = self._pm.constants([f"{name}.peak_sustained" for name in names])
        metrics = self._metrics.with_peaks(dict(zip(names, peaks, strict=True)))
        for metric in metrics.metrics:
            if not metric.absent and not metric.peak > 0:
                raise UsageError(
                    f"{metric.asked} has no peak on this chip, so no percent; give --denominator, --full-scale or --raw"
                )
        return metrics

    def _peaks(self, counters: Sequence[str]) -> dict[str, float]:
        """Of each counter that has one, so that a recording can be asked for other metrics than it was taken with."""
        peaks = {}
        for name in counters:
            try:
                (peaks[name],) = self._pm.constants([f"{name}.peak_sustained"])
            except CuptiError:
                continue  # a rate, or a counter that has none
        return {name: value for name, value in peaks.items() if 0 < value < INFINITE}

    def _start(self) -> None:
        """Start with the wished trigger and append mode, or with what the chip has instead."""
        ways = _ways(self.plan)
        for config in ways:
            try:
                self._pm.configure(config)
            except CuptiError as error:
                if error.status != "NOT_SUPPORTED" or config is ways[-1]:
                    raise
                self._pm.enable()
                self._pm.schedule(self._metrics.counters)
            else:
                self._config = config
                self._say_trigger()
                self._pm.start()
                return

    def _say_trigger(self) -> None:
        if self.plan.trigger == "time" and not self._config.time_trigger:
            self._notes.append(
                f"this chip has no time trigger: samples every {self._config.interval} SYSCLK cycles instead, "
                "so their length follows that clock"
            )

    def _see_samples(self) -> None:
        """Wait for the first samples; a counter of an absent unit silences its whole set, so drop such."""
        for unit in ("", *OPTIONAL_UNITS):
            suspects = [name for name in self._metrics.counters if unit and unit in name]
            if suspects:
                self._metrics = self._leave_out(self._metrics, suspects)
                self._restart()
            if (suspects or not unit) and self._wait_for_samples():
                return
        counters = ", ".join(self._metrics.counters)
        raise AbsentUnit(f"GPU {self.device.ordinal} started but gives no samples of {counters}")

    def _restart(self) -> None:
        self._pm.enable()
        self._pm.schedule(self._metrics.counters)
        self._pm.configure(self._config)
        self._pm.start()
        self._last_end_ns = 0

    def _wait_for_samples(self) -> bool:
        period_s = self.plan.sample_ns / 1e9 if self._config.time_trigger else self._config.interval / SLOWEST_SYSCLK_HZ
        until = time.monotonic() + SILENCE_S + 3 * period_s
        while time.monotonic() < until:
            found = self._drain().spread()
            if len(found):
                self._early = Samples.join([found])  # a copy, for the next decode writes over it
                return True
            time.sleep(0.005)
        return False

    def _drain(self) -> Samples | Even:
        """Decode until the hardware buffer is empty, and give every sample its time."""
        found = self._pm.decode()
        whole = self._whole(found)
        if whole is None:
            return self._drain_from(found)
        self._last_end_ns = whole.end_ns
        return whole

    def _whole(self, found: Decoded) -> Even | None:
        """All there is, if it came at once and nothing is missing in it, as nearly always."""
        if not found.samples or found.image_full or found.overflow or not self._config.time_trigger:
            return None
        if 0 < self._last_end_ns < found.start_ns - self._far_ns:
            return None
        return Even.between(found.start_ns, found.end_ns, self._config.interval, self._pm.values[: found.samples])

    def _drain_from(self, found: Decoded) -> Samples:
        """What was found, and what further decodes find until the hardware buffer is empty."""
        parts, until = [self._taken(found.samples)], time.monotonic() + max(self.plan.decode_ns / 1e9, DRAIN_S)
        while found.image_full and not found.overflow and time.monotonic() <= until:
            found = self._pm.decode()
            parts.append(self._taken(found.samples))
        samples = parts[0] if len(parts) == 1 else Samples.join(parts)
        # where decoding cannot keep up, the times of the newest will never be known
        samples = self._timed(samples[: _timed_until(samples)] if found.image_full else samples)
        written_over = self._went_round(samples)
        if len(samples):
            self._last_end_ns = int(samples.end_ns[-1])
        if found.image_full or found.overflow or written_over:
            self._recover()
        return samples

    def _went_round(self, samples: Samples) -> bool:
        """Whether the hardware wrote over records that this process, stopped for a while, had not decoded. CUPTI may
        then find nothing more until the hardware has come round once again."""
        return bool(len(samples) and samples.gaps_ns(self._last_end_ns, 0).max() > self._far_ns)

    @property
    def _far_ns(self) -> int:
        """More than ever waits for a decode."""
        return 2 * self.plan.decode_ns

    def _timed(self, samples: Samples) -> Samples:
        if self._config.time_trigger:
            period_ns = self._config.interval
            return lay_out(samples, self._last_end_ns, period_ns, 3 * period_ns // 2, self.tally)
        known = (samples.start_ns > 0) & (samples.end_ns > samples.start_ns)
        if known.any():
            self._period_ns = int(np.median(samples.end_ns[known] - samples.start_ns[known]))
        return lay_out(samples, self._last_end_ns, self._period_ns, TOO_LONG_NS, self.tally)

    def _taken(self, count: int) -> Samples:
        pm = self._pm
        pm.read_times(count)
        return Samples(
            pm.start_ns[:count].astype(np.int64), pm.end_ns[:count].astype(np.int64), pm.values[:count].copy()
        )

    def _recover(self) -> None:
        """Begin anew: after a full buffer that keeps its oldest records, a backlog that only grows, and records that
        were written over."""
        self.tally.overflows += 1
        self._restart()


def _timed_until(samples: Samples) -> int:
    """How many samples there are up to the last with a time."""
    known = np.flatnonzero(samples.end_ns)
    return int(known[-1]) + 1 if len(known) else 0


def _ways(plan: Plan) -> list[Config]:
    """Ways to sample, best first: Turing cannot keep the latest records, Turing and GA100 have no time trigger."""
    by_time = [Config(plan.sample_ns, True, latest, plan.buffer_bytes, plan.image_samples) for latest in (True, False)]
    cycles = plan.sysclk_cycles if plan.trigger == "sysclk" else plan.sample_ns * SYSCLK_MHZ // 1000
    image = plan.buffer_samples or 5 * plan.decode_ns * FASTEST_SYSCLK_MHZ // (4000 * cycles) + 8
    by_sysclk = [Config(cycles, False, latest, plan.buffer_bytes, image) for latest in (True, False)]
    return by_sysclk if plan.trigger == "sysclk" else by_time + by_sysclk
