"""What a session comes to: what it took, what came of each GPU, and whether that is of the whole run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .gpu import Gpu
from .metrics import INFINITE
from .notes import rest_lost
from .samples import Tally
from .self_cost import Cost

MOST_SILENT_S = 1.0
"""How much longer than two decodes a GPU may have given nothing at the end."""


class Account:
    """Of a session of these GPUs that was asked for, and began, at these moments of the monotonic clock.

    `decode_s`: how often a GPU gives something. `cpu_s` tells the processor time that the session's reader took so far.
    """

    def __init__(
        self, gpus: Sequence[Gpu], asked: float, began: float, decode_s: float, cpu_s: Callable[[], float]
    ) -> None:
        self._gpus, self._began, self._start_s = gpus, began, began - asked
        self._most_silent_s = MOST_SILENT_S + 2 * decode_s
        self._cpu_s = cpu_s
        self._cpu_in_all_s: float | None = None
        self._gave, self._ended = [began] * len(gpus), 0.0

    @property
    def ended(self) -> bool:
        """Whether sampling has ended."""
        return bool(self._ended)

    def gave(self, gpu: int) -> None:
        """The GPU at this position has given samples now."""
        self._gave[gpu] = time.monotonic()

    def end(self) -> None:
        """Sampling ends now; what came until then is still to be taken. May be called more than once."""
        self._ended = self._ended or time.monotonic()

    def settle(self) -> None:
        """All that came has been taken. May be called more than once."""
        self._cpu_in_all_s = self._reader_cpu_s()

    def cost(self, late_samples: int) -> Cost:
        """What has been taken so far; `late_samples` came too late for their frame."""
        tally = Tally()
        for gpu in self._gpus:
            tally = tally + gpu.tally
        return Cost(
            wall_s=(self._ended or time.monotonic()) - self._began,
            reader_cpu_s=self._reader_cpu_s(),
            workers_cpu_s=tally.cpu_ns / 1e9,
            tally=tally,
            late_samples=late_samples,
            overwritten=sum(gpu.overwritten for gpu in self._gpus),
            start_s=self._start_s,
        )

    def lines(self, late_samples: int) -> list[str]:
        """What was measured and what it took, a line each for a person."""
        cost = self.cost(late_samples)
        silent_s = {gpu.device.ordinal: s for k, gpu in enumerate(self._gpus) if (s := self._silent_s(k))}
        return [cost.line() + rest_lost(silent_s), cost.cost_line()]

    def problems(self) -> list[str]:
        """Of each GPU, why what was measured of it is not of the whole run; nothing of one of which it is."""
        return [problem for gpu in range(len(self._gpus)) if (problem := self._problem(gpu))]

    def _reader_cpu_s(self) -> float:
        return self._cpu_s() if self._cpu_in_all_s is None else self._cpu_in_all_s

    def _problem(self, gpu: int) -> str:
        of, silent_s = self._gpus[gpu], self._silent_s(gpu)
        if not of.tally.samples:
            return f"no samples of {of.error}" if of.error else f"GPU {of.device.ordinal} gave no samples"
        return f"GPU {of.device.ordinal}: nothing was measured for the last {silent_s:.1f} s" if silent_s else ""

    def _silent_s(self, gpu: int) -> float:
        """How long nothing has come of a GPU, if that is too long, else 0; infinite if nothing ever did."""
        if not self._gpus[gpu].tally.samples:
            return INFINITE
        silent_s = (self._ended or time.monotonic()) - self._gave[gpu]
        return silent_s if silent_s > self._most_silent_s else 0.0
