"""Where frames come from: GPUs that are sampled, or a recording that is played, with the options for that."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from cufall_py.errors import CufallError, UsageError
from cufall_py.saying import Say

from .options import is_typed, option

if TYPE_CHECKING:
    import subprocess

    from cufall_py.frames import Frame
    from cufall_py.plan import Plan
    from cufall_py.playback import Playback
    from cufall_py.readings import Reading
    from cufall_py.rotation import Turn
    from cufall_py.sources import Opened

T = TypeVar("T")
SUFFIX = ".cufall"
SCRIPT = "script:"
DEMO = "demo"
DEMO_FILE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "demo.cufall")


class FrameSource(Protocol):
    """Where frames come from: GPUs that are sampled (LiveSession), or a recording (Playback). A context manager."""

    plan: Plan

    @property
    def opened(self) -> list[Opened]:
        """What the rows of its frames are; with another turn of a rotation, others."""

    @property
    def turn(self) -> Turn | None:
        """The set of a rotation that is on, None where there is but one set."""

    @property
    def length_s(self) -> float | None:
        """From its first frame to its last; None where it goes on until it is ended."""

    def frames(self, duration_s: float = 0.0, tick: Callable[[], None] | None = None) -> Iterator[Frame]:
        """As many as `duration_s` has, or to the end; `tick` is called many times a second while there is none."""

    def reading(self, gpu: int) -> Reading:
        """The newest that NVML told of the GPU of this row."""

    def cost_share(self) -> float:
        """Of a core, what cufall takes; NaN where that is not known."""

    def summary(self) -> list[str]:
        """Lines for a person, after the last frame."""

    def check(self) -> None:
        """After the close: raise InvalidMeasurement if it was no valid measurement."""

    def close(self) -> None:
        """May be called more than once."""

    def __enter__(self) -> FrameSource: ...

    def __exit__(self, *_: Any) -> None: ...


def _speed(value: str) -> float:
    from cufall_py.pace import AS_FAST_AS_IT_GOES, bad_speed

    try:
        return AS_FAST_AS_IT_GOES if value == "max" else float(value)
    except ValueError:
        raise click.UsageError(bad_speed(value)) from None


OPTIONS = (
    option(
        "--speed",
        type=_speed,
        default=None,
        metavar="X|max",
        help="Recorded seconds that go by in one; max or 0: as fast as it goes. "
        "[default: 1 drawn on a terminal, max into a pipe or file and with --csv]",
    ),
    option(
        "--from",
        "begin",
        default="",
        metavar="T",
        help="Begin there: seconds from the start (12.5), before the end (-10), or an ISO time.",
    ),
    option("--to", "end", default="", metavar="T", help="End there, told in the same ways."),
    option("--region", default="", metavar="NAME", help="Play the times of this region alone."),
    option("--loop", is_flag=True, help="Begin again at the end, until Ctrl-C."),
)
"""Those that go with a recording."""
NAMES = {"speed": "--speed", "begin": "--from", "end": "--to", "region": "--region", "loop": "--loop"}


def recording_of(source: str) -> str:
    """The path of the recording that a `--source` names, by its suffix or a `/`; empty for one that samples."""
    if source == DEMO:
        return DEMO_FILE
    is_path = source.endswith(SUFFIX) or os.sep in source
    return source if is_path and not source.startswith(SCRIPT) else ""


def read_of(source: str) -> str:
    """The path of the file that a `--source` is read from; empty if there is none."""
    return recording_of(source) or (source.removeprefix(SCRIPT) if source.startswith(SCRIPT) else "")


def is_same(path: str, other: str) -> bool:
    """Whether two paths are, by whatever names, one file."""
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def refuse_playing_options(options: dict[str, Any]) -> None:
    """Raises UsageError for one that was given where nothing is played; in the environment it may wait for one."""
    for name, flag in NAMES.items():
        if options[name] not in ("", None, False) and is_typed(name):
            raise UsageError(f"{flag} goes with a recording: --source FILE or cufall replay FILE")


def source_of(
    options: dict[str, Any],
    stack: ExitStack,
    play: Callable[[str, Plan, Say], T],
    sample: Callable[[Plan, Say, subprocess.Popen[bytes], float], T],
) -> Callable[[Plan, Say], T]:
    """What begins as soon as the plan is known: to `play` a path, or to `sample` with a supervisor, launched when that
    was asked for (on the monotonic clock), that loads from now on, while this process does."""
    if path := recording_of(options["source"]):
        return lambda plan, say: play(path, plan, say)
    refuse_playing_options(options)
    from cufall_py.launch import launch

    asked = time.monotonic()
    process = stack.enter_context(launch(options["source"]))
    stack.callback(process.kill)
    return lambda plan, say: sample(plan, say, process, asked)


def playback(path: str, plan: Plan, say: Say, options: dict[str, Any]) -> Playback:
    """The frames of a recording, as the options have them."""
    from cufall_py.pace import AS_FAST_AS_IT_GOES, Pace
    from cufall_py.part import Part
    from cufall_py.playback import Playback

    if path == DEMO_FILE and not os.path.exists(path):
        raise CufallError(f"this cufall was packaged without the demo recording ({DEMO_FILE})")
    speed = options["speed"]
    if speed is None:
        speed = 1.0 if sys.stdout.isatty() and not options["csv_path"] else AS_FAST_AS_IT_GOES
    part = Part(options["begin"], options["end"], options["region"])
    return Playback(path, plan, say, part=part, pace=Pace(speed), loop=options["loop"])
