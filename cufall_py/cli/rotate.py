"""`--rotate`, for every verb that samples: what does not fit one pass, in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cufall_py.errors import UsageError
from cufall_py.rotation import bad_seconds, checked_seconds
from cufall_py.saying import Say

from .options import is_typed, number, option
from .playing import recording_of

if TYPE_CHECKING:
    import subprocess

    from cufall_py.plan import Plan
    from cufall_py.resolve import Wanted
    from cufall_py.session import LiveSession
    from cufall_py.turns import Turns

NAME = "rotate"
ROTATE = option(
    f"--{NAME}",
    type=number(float, bad_seconds),
    default=0.0,
    metavar="SECONDS",
    help="Where metrics do not fit one pass, sample sets of them in turns of so many seconds.",
)
VIEWS = {
    "timeline": "its rows are those of one set",
    "verdict": "a frame's verdict compares limits of the same frame",
}


def seconds_from(options: dict[str, Any]) -> float:
    """The length of a turn, 0 for no turns. Raises UsageError for one that cannot be, or not beside other options."""
    seconds: float = options[NAME]
    if recording_of(options["source"]):
        if seconds and is_typed(NAME):
            raise UsageError("--rotate goes with GPUs that are sampled; a recording has what it was made of")
        return 0.0
    if seconds and (why := VIEWS.get(options.get("view", ""))):
        raise UsageError(f"--view {options['view']}: not with --rotate, for {why}")
    if seconds and options.get("require"):
        raise UsageError("--require: not with --rotate, which makes a file a set; cufall report FILE --require judges")
    return checked_seconds(seconds)


def in_turns(
    plan: Plan,
    wanted: Wanted,
    seconds: float,
    say: Say,
    process: subprocess.Popen[bytes],
    asked: float,
    at_once: Callable[[Plan, subprocess.Popen[bytes]], LiveSession],
) -> LiveSession | Turns:
    """What is wanted in turns; where that fits one pass, what samples the plan `at_once`. Raises CufallError."""
    from cufall_py.fitting import ask, with_metrics
    from cufall_py.turns import Turns

    if seconds * 1e9 < plan.frame_ns:
        raise UsageError(f"--rotate {seconds:g}: must be at least one frame, {plan.frame_ns / 1e9:g} s (--frame-us)")
    found = ask(replace(plan, wanted=wanted))
    for line in found.left_out:
        say(line)
    if len(found.sets) > 1:
        return Turns(replace(plan, wanted=wanted), found.sets, seconds, say, process, asked)
    say("--rotate: all of it fits one pass, there is nothing to take in turn")
    return at_once(replace(plan, wanted=with_metrics(wanted, found.sets[0])) if found.beyond else plan, process)
