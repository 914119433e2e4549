"""What cufall itself takes, and the two lines that tell it at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from .samples import Tally

LEAST_SHARE_S = 1.0
"""What is taken in a shorter run says nothing about a share of time."""


@dataclass(frozen=True)
class Cost:
    """What cufall itself took so far. Processor times in seconds, `share`s of one core."""

    wall_s: float = 0.0
    reader_cpu_s: float = 0.0
    workers_cpu_s: float = 0.0
    tally: Tally = field(default_factory=Tally)
    late_samples: int = 0
    overwritten: int = 0
    start_s: float = 0.0
    """From the wish to sample until GPUs did."""

    @property
    def share(self) -> float:
        return (self.reader_cpu_s + self.workers_cpu_s) / self.wall_s if self.wall_s else 0.0

    def line(self) -> str:
        """What was measured, in one line for a person at the end of a run."""
        t = self.tally
        return f"{t.samples} samples in {self.wall_s:.1f} s, {t.lost} lost ({t.lost_ns / 1e9:.3f} s){_also(t, self)}"

    def cost_line(self) -> str:
        """What it took, in another."""
        t, scale, unit = self.tally, 100 / max(self.wall_s, 1e-9), "% of a core"
        if self.wall_s < LEAST_SHARE_S:
            scale, unit = 1000, "ms of a processor"
        digits = 2 if self.wall_s >= LEAST_SHARE_S else 0
        total, workers, reader = (
            f"{scale * cpu_s:.{digits}f}"
            for cpu_s in (self.workers_cpu_s + self.reader_cpu_s, self.workers_cpu_s, self.reader_cpu_s)
        )
        return (
            f"cost {total} {unit} (workers {workers}, reader {reader}), {t.resident_bytes >> 20} MiB a worker, "
            f"{t.decode_ns / max(t.decodes, 1) / 1e6:.2f} ms a decode, at most {t.late_ns / 1e6:.1f} ms late; "
            f"started in {self.start_s:.1f} s"
        )


def together(costs: Iterable[Cost]) -> Cost:
    """What runs one after the other took in all."""
    total = Cost()
    for cost in costs:
        sums = {f.name: getattr(total, f.name) + getattr(cost, f.name) for f in fields(Cost)}
        total = Cost(**{**sums, "start_s": total.start_s or cost.start_s})
    return total


def _also(tally: Tally, cost: Cost) -> str:
    words = {
        "absurd": tally.absurd,
        "duplicate": tally.duplicate,
        "re-timed": tally.rebuilt,
        "buffer overflows": tally.overflows,
        "late decodes": tally.late,
        "too late for their frame": cost.late_samples,
        "batches overwritten unread": cost.overwritten,
    }
    return "".join(f", {count} {word}" for word, count in words.items() if count)
