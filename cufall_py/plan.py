"""How to sample: what the options mean together, checked once, passed to workers as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from .errors import UsageError
from .resolve import Wanted, check
from .saying import Say

SAMPLES_A_FRAME = 4
RECORD_BYTES = 16 * 1024
"""Hardware buffer taken by a sample: 11.4 KB of a two-counter set on H200, rounded up (docs/benchmarks.md)."""
MOST_BUFFER_BYTES = 64 << 20
LEAST_BUFFER_BYTES = 4 << 20
LEAST_DECODE_NS = 5_000_000
"""No decode is made more often than this unless it was asked for."""
SCRIPT = "script:"
"""What the name of a source begins with whose GPUs are made up."""
LATE_NS = 100_000_000
"""How long past its decode a frame waits for a GPU that has not come."""


@dataclass(frozen=True)
class Plan:
    """Everything a worker and a session need to know. 0 in a field that can be derived means: derive it."""

    wanted: Wanted = Wanted()
    devices: str = "all"
    source: str = "auto"
    sample_us: int = 0
    frame_us: int = 100_000
    decode_us: int = 200_000
    buffer_samples: int = 0
    hw_buffer_mb: int = 0
    trigger: str = "time"
    sysclk_cycles: int = 1_000_000

    @property
    def scripted(self) -> bool:
        """Whether its GPUs are made up, anew each time: nobody computes on them, and their UUIDs do not last."""
        return self.source.startswith(SCRIPT)

    @property
    def sample_ns(self) -> int:
        return 1000 * (self.sample_us or max(LIMITS["sample_us"][0], self.frame_us // SAMPLES_A_FRAME))

    @property
    def frame_ns(self) -> int:
        return 1000 * self.frame_us

    @property
    def decode_ns(self) -> int:
        """As asked, but before the hardware buffer is half full, and not so often that no sample can have come."""
        half_full = self.buffer_bytes // (2 * RECORD_BYTES) * self.sample_ns
        return max(self.sample_ns, min(1000 * self.decode_us, max(half_full, LEAST_DECODE_NS)))

    @property
    def image_samples(self) -> int:
        """Samples one decode can hand over; if there are more, more than one is made, and nothing is lost. Each decode
        clears room for them all, so there is little to spare."""
        return self.buffer_samples or 5 * self.decode_ns // (4 * self.sample_ns) + 8

    @property
    def buffer_bytes(self) -> int:
        """Hardware buffer of a GPU: four decodes or a second, whichever is longer, within bounds."""
        if self.hw_buffer_mb:
            return self.hw_buffer_mb << 20
        samples = max(4000 * self.decode_us, 1_000_000_000) // self.sample_ns
        return min(max(samples * RECORD_BYTES, LEAST_BUFFER_BYTES), MOST_BUFFER_BYTES)

    @property
    def frame_wait_ns(self) -> int:
        return self.decode_ns + LATE_NS

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Plan:
        wanted = {**data["wanted"], **{k: tuple(data["wanted"].get(k, ())) for k in ("metrics", "optional")}}
        return Plan(**{**data, "wanted": Wanted(**wanted)})


LIMITS: dict[str, tuple[int, int]] = {
    "sample_us": (5, 100_000),
    "frame_us": (1_000, 60_000_000),
    "decode_us": (1_000, 10_000_000),
    "buffer_samples": (16, 1_000_000),
    "hw_buffer_mb": (1, 4096),
    "sysclk_cycles": (5_000, 1_000_000_000),
}
"""Least and most of each number that can be given. 5 us to 100 ms is what the H200 accepted."""


DERIVED = ("sample_us", "buffer_samples", "hw_buffer_mb")
"""Those that are derived from the others where they are 0."""
TRIGGERS = ("time", "sysclk")


def checked(plan: Plan) -> Plan:
    """The plan, if it can be carried out. Raises UsageError naming the flag and its range."""
    for name, (least, most) in LIMITS.items():
        value = getattr(plan, name)
        derived = value == 0 and name in DERIVED
        if not derived and not (isinstance(value, int) and least <= value <= most):
            raise UsageError(out_of_limits(name, value))
    if not isinstance(plan.devices, str):
        raise UsageError(f'devices {plan.devices!r}: must be a string, as in "0,1"')
    if plan.trigger not in TRIGGERS:
        raise UsageError(f"--trigger {plan.trigger}: must be one of {', '.join(TRIGGERS)}")
    if plan.sample_ns > plan.frame_ns:
        raise UsageError(f"--sample-us {plan.sample_ns // 1000}: must be at most --frame-us, {plan.frame_us}")
    check(plan.wanted)
    return plan


def out_of_limits(name: str, value: object) -> str:
    """What a person is told who gave this number of the plan."""
    least, most = LIMITS[name]
    return f"{flag(name)} {value}: must be a whole number from {least} to {most}"


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def with_longer_samples(plan: Plan, say: Say) -> Plan:
    """A plan whose sample period the hardware accepts even for very long frames."""
    most = LIMITS["sample_us"][1]
    if plan.sample_us or plan.sample_ns <= 1000 * most:
        return plan
    say(f"samples of {most // 1000} ms: a frame of {plan.frame_us // 1000} ms has {plan.frame_us // most}")
    return replace(plan, sample_us=most)


def with_longer_frames(plan: Plan, sample_ns: int, say: Say) -> Plan:
    """A plan of frames that are no shorter than the samples there are: such would show one sample many times."""
    if sample_ns <= plan.frame_ns:
        return plan
    say(f"frames of {sample_ns // 1_000_000} ms, not {plan.frame_us / 1000:g}: samples are no shorter here")
    return replace(plan, frame_us=sample_ns // 1000)


def whole_frames(duration_s: float, plan: Plan) -> int:
    """How many frames a duration has; 0: no end. Raises UsageError if it is shorter than one."""
    frames = round(duration_s * 1e9) // plan.frame_ns
    if duration_s and not frames:
        least = f"{plan.frame_ns / 1e9:g}"
        raise UsageError(f"--duration-sec {duration_s:g}: must be 0 or at least one frame, {least} s (--frame-us)")
    return frames
