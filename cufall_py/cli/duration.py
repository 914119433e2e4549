"""`--duration-sec`, for every verb that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cufall_py.errors import UsageError

if TYPE_CHECKING:
    from cufall_py.plan import Plan

LONGEST_S = 1e9


def bad_duration(value: object) -> str:
    return f"--duration-sec {value}: must be a number from 0 to {LONGEST_S:g}"


def duration_from(options: dict[str, Any], plan: Plan) -> float:
    """Seconds, 0 for no end. Raises UsageError for what cannot be, or is shorter than a frame of the plan."""
    from cufall_py.plan import whole_frames

    duration_s: float = options["duration_sec"]
    if not 0 <= duration_s <= LONGEST_S:
        raise UsageError(bad_duration(duration_s))
    whole_frames(duration_s, plan)
    return duration_s
