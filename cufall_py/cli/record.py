"""`cufall record`: every sample to a file, without a view: beside a command, for a while, or until a signal."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cufall_py.errors import CufallError, Unsupported, UsageError
from cufall_py.saying import Say

from . import Verb, gate, leave_at_once, say
from .duration import LONGEST_S, bad_duration, duration_from
from .judging import OPTIONS as JUDGING, OWN, End, requirements_from, result_to
from .options import SAMPLING, is_default, number, option, plan_from, with_defaults, with_options
from .places import READ, RESULT, check_places, writable
from .playing import OPTIONS, SUFFIX, is_same, playback, read_of, source_of
from .progress import Progress, size_of
from .rotate import ROTATE, in_turns, seconds_from
from .verdicts import NAMED_GROUPS, groups_named

if TYPE_CHECKING:
    import subprocess

    from cufall_py.plan import Plan
    from cufall_py.playback import Playback
    from cufall_py.recorder import Outcome, Wishes
    from cufall_py.requirements import Requirement
    from cufall_py.resolve import Wanted
    from cufall_py.session import LiveSession
    from cufall_py.turns import Turns

SETS = (("tensor", "sm", "gr", "dram"), ("tensor", "sm", "gr"), ("tensor",))
"""What is recorded unless asked otherwise, with what verdicts take besides: the widest cheap set (docs/metrics.md), or
the first that a chip has."""
SAMPLE_US = 1000
DURATION, WARMUP, COOLDOWN = "--duration-sec", "--warmup-sec", "--cooldown-sec"


class RecordVerb(Verb):
    """What stands after `--` is a command, and none of it an option of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        if not ctx.resilient_parsing:
            if misplaced := ctx.params["command"]:
                raise click.UsageError(
                    f"{misplaced[0]}: a command goes after --, as in cufall record -- {misplaced[0]}"
                )
            if at == len(args) - 1:
                raise click.UsageError("no command after --")
        ctx.params["command"] = tuple(args[at + 1 :])
        return rest


def _bad_seconds(flag: str, value: object) -> str:
    return bad_duration(value).replace(DURATION, flag)


def _seconds(flag: str, help: str) -> Callable[[Any], Any]:
    kind = number(float, lambda value: _bad_seconds(flag, value))
    return option(flag, type=kind, default=0.0, metavar="S", help=help)


@click.command(cls=RecordVerb)
@click.argument("command", nargs=-1, metavar="[-- COMMAND ...]", type=click.UNPROCESSED)
@option(
    "-o",
    "--output",
    default="",
    metavar="FILE",
    help="The recording; with --rotate a file a set is made of its name. "
    "[default: cufall-YYYYmmdd-HHMMSS.cufall in this folder]",
)
@option("--force", is_flag=True, help="Write over a file that is there.")
@option(
    "--keep",
    default="",
    metavar="SPAN@PERIOD,...",
    help="Thin what gets old, as in 30m@full,24h@100ms,forever@1s. [default: forever@full]",
)
@_seconds(DURATION, "End after this many seconds, of a recording its own; 0: with the command, or at Ctrl-C.")
@_seconds(WARMUP, "Let the region `command` begin so long after the command's start.")
@_seconds(COOLDOWN, "Go on so long after the command's end.")
@with_options(*JUDGING, NAMED_GROUPS)
@option("--junit", default="", metavar="FILE", help="The requirements as JUnit XML.")
def record(**options: Any) -> None:
    """Record every sample: beside a command, for a while, or until Ctrl-C; and judge what was recorded.

    A command's input, output and end are its own, and signals are passed on to it; region `command` is when it runs.
    Without one, region `duration` is what --duration-sec asks for, from when all GPUs give samples. Requirements are
    judged at the end, in that region if no other is named.
    """
    taken = {options["output"]: "is where -o goes", read_of(options["source"]): READ}
    with result_to(options["result"], taken) as told:
        told["path"] = None
        _record(options, taken, told)


def _record(options: dict[str, Any], taken: dict[str, str], told: dict[str, Any]) -> None:
    requirements = requirements_from(options["require"], groups_named(options))
    gate.check_asked(requirements, options)
    path = _output(options["output"], options["force"], options["source"])
    _check_keep(options["keep"], path)
    check_places({"--junit": options["junit"]} if options["junit"] else {}, {**taken, options["result"]: RESULT})
    paths, outcome = _recorded(path, requirements, options)
    told |= {"path": str(path.absolute())} if paths == [path] else {"paths": [str(p.absolute()) for p in paths]}
    if requirements:
        outcome = gate.judge(path, requirements, outcome, options, told)
    say(f"{', '.join(map(str, paths))} ({size_of(paths)}): {outcome.why}; exit {outcome.exit_code}")
    raise End(outcome.exit_code, outcome.why, OWN if outcome.own else "")


def _add_options_of_others(command: click.Command) -> None:
    """Those of sampling and of playing, with the defaults of a recording."""
    for decorate in (*SAMPLING, *OPTIONS, ROTATE):
        decorate(command)
    command.params = [param for param in command.params if param.name != "loop"]
    options = with_defaults(command, {"metrics": SETS[0], "sample_us": SAMPLE_US})
    options["speed"].help = "Recorded seconds that go by in one, or max. [default: 1 beside a command, else max]"


_add_options_of_others(record)


def _recorded(path: Path, requirements: Sequence[Requirement], options: dict[str, Any]) -> tuple[list[Path], Outcome]:
    """Record to this path, or of sets in turns to several beside it: which. Raises CufallError, before the command is
    started, if there is nothing to record."""
    wishes = _wishes(options)
    shown = not wishes.command and bool(sys.stderr) and sys.stderr.isatty()  # where a command writes, nothing else does
    progress = Progress([path], shown)
    played = options["source"]
    with ExitStack() as stack:
        begin = _source(options, stack)
        plan = plan_from(options)
        duration_from(options, plan)
        source = begin(plan, progress.say)
        stack.callback(source.close)
        gate.check_recordable(requirements, source)
        progress.paths = source.paths(path)
        _check_beside(path, progress.paths)
        for place in progress.paths:
            _free(place, options["force"], played)
            check_places({"-o": str(place)}, {options["result"]: RESULT})
        return progress.paths, _run(source, path, options, wishes, progress)


def _run(
    source: LiveSession | Turns | Playback, path: Path, options: dict[str, Any], wishes: Wishes, progress: Progress
) -> Outcome:
    from cufall_py.recorder import Recorder, Signals

    signals = Signals(with_command=bool(wishes.command), leave=leave_at_once)
    source.record(path, options["force"], options["keep"])
    recorder = Recorder(source, wishes, signals, progress.say, lambda: progress.show(source.counts))
    outcome = recorder.run()
    progress.clear()
    for line in source.summary():
        say(line)
    return outcome


def _wishes(options: dict[str, Any]) -> Wishes:
    from cufall_py.recorder import Wishes

    command: tuple[str, ...] = options["command"]
    if command and not shutil.which(command[0]):
        why = "cannot be executed" if os.path.exists(command[0]) else "no such command"
        raise UsageError(f"{command[0] or repr('')}: {why}")
    times = [options[flag[2:].replace("-", "_")] for flag in (DURATION, WARMUP, COOLDOWN)]
    for flag, value in zip((DURATION, WARMUP, COOLDOWN), times, strict=True):
        if not 0 <= value <= LONGEST_S:
            raise UsageError(_bad_seconds(flag, value))
        if value and flag != DURATION and not command:
            raise UsageError(f"{flag} goes with a command: cufall record -- COMMAND")
    return Wishes(command, *times)


def _source(options: dict[str, Any], stack: ExitStack) -> Callable[[Plan, Say], LiveSession | Turns | Playback]:
    """What is recorded, once the plan is known."""
    turn_s = seconds_from(options)
    by_default = is_default("metrics")
    options = {**options, "loop": False}

    def play(path: str, plan: Plan, say: Say) -> LiveSession | Turns | Playback:
        return _playback(path, plan, by_default, say, options)

    def sample(plan: Plan, say: Say, process: subprocess.Popen[bytes], asked: float) -> LiveSession | Turns | Playback:
        default = plan.wanted if by_default else None

        def at_once(plan: Plan, process: subprocess.Popen[bytes]) -> LiveSession:
            return _session(plan, plan.wanted == default, say, process, asked)

        if not turn_s:
            return at_once(plan, process)
        wanted = _all_optional(plan.wanted) if default else plan.wanted
        return in_turns(plan, wanted, turn_s, say, process, asked, at_once)

    return source_of(options, stack, play, sample)


def _playback(path: str, plan: Plan, by_default: bool, say: Say, options: dict[str, Any]) -> Playback:
    """All that was recorded, unless metrics were asked for."""
    from cufall_py.recording_reader import Recording

    if by_default and os.path.exists(path):
        plan = replace(plan, wanted=Recording(path).plan.wanted)
    speed = options["speed"] if options["speed"] is not None else float(bool(options["command"]))
    if options["command"] and not speed:
        raise UsageError("--speed max: a command takes time; a number goes with one")
    return playback(path, plan, say, {**options, "speed": speed})


def _session(
    plan: Plan, by_default: bool, say: Say, process: subprocess.Popen[bytes] | None, asked: float
) -> LiveSession:
    """Of the metrics that were asked for, or the widest of SETS that there is."""
    import cufall_py.recording  # noqa: F401  (takes as long as sampling takes to start, so meanwhile)
    from cufall_py.session import LiveSession

    failed: CufallError | None = None
    for wanted in _by_default(plan.wanted) if by_default else [plan.wanted]:
        try:
            session = LiveSession(replace(plan, wanted=wanted), say, process=process, asked=asked)
        except (UsageError, Unsupported) as error:
            failed, process = failed or error, None
            continue
        if failed:
            say(f"{failed}; recorded is {', '.join(wanted.asked)}")
        return session
    assert failed
    raise failed


def _by_default(wanted: Wanted) -> list[Wanted]:
    from cufall_py.presets import VERDICT_NAMES

    return [replace(wanted, metrics=metrics).with_optional(VERDICT_NAMES) for metrics in SETS]


def _all_optional(wanted: Wanted) -> Wanted:
    """The widest of SETS and what verdicts take, as far as there are counters of them, in however many passes."""
    wanted = _by_default(wanted)[0]
    return replace(wanted, optional=wanted.metrics)


def _output(asked: str, force: bool, source: str) -> Path:
    """Where the recording goes. Raises UsageError for a place that it cannot go to."""
    path = writable("-o", asked) if asked else _dated()
    _free(path, force, source)
    return path


def _free(path: Path, force: bool, source: str) -> None:
    if path.is_file() and not force:
        raise UsageError(f"-o {path}: is there already; --force writes over it")
    if is_same(str(path), read_of(source)):
        raise UsageError(f"-o {path}: is what is played")


def _check_beside(path: Path, paths: Sequence[Path]) -> None:
    """Raises UsageError where files beside something that is no file would be made, as in /dev."""
    if paths != [path] and path.exists() and not path.is_file():
        raise UsageError(f"--rotate: {path} is no file, and sets in turn go to files beside it")


def _check_keep(keep: str, path: Path) -> None:
    """Raises UsageError for what `--keep` cannot be, or cannot be kept at this place."""
    if not keep:
        return
    from cufall_py.keep import parse

    parse(keep)
    if path.exists() and not path.is_file():
        raise UsageError(f"--keep: {path} is no file, and a recording is thinned by writing it anew")


def _dated() -> Path:
    """A name that tells when, in the folder that this runs in."""
    name, count = f"cufall-{time.strftime('%Y%m%d-%H%M%S')}", 1
    while (path := Path(f"{name}-{count}{SUFFIX}" if count > 1 else f"{name}{SUFFIX}")).exists():
        count += 1
    return writable("-o", str(path))
