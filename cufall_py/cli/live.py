"""`cufall live`: frames to a terminal, a pipe or a CSV as they come."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import click

from cufall_py.errors import CufallError, UsageError
from cufall_py.saying import Say

from . import Ended, Verb, end_in_order, say, writing
from .charset import takes
from .csv_file import csv_writer, open_csv, place_of
from .duration import bad_duration, duration_from
from .options import SAMPLING, check_of_peak, in_colour, is_default, is_typed, number, option, plan_from, with_options
from .playing import OPTIONS as PLAYING, FrameSource, playback, read_of, source_of
from .rotate import ROTATE, in_turns, seconds_from
from .screen import Aside, Quit, why_no_screen
from .verdicts import GROUPS, OPTIONS as VERDICTS, groups_from, judging_from, length_from
from .waterfall import bad_width, check_width, rows

if TYPE_CHECKING:
    import subprocess

    from cufall_py.analysis.verdict_scopes import Judging
    from cufall_py.frames import Frame
    from cufall_py.plan import Plan

    from .timeline import Timeline
    from .verdict_view import Groups, VerdictScreen

VERDICT_LINES = "verdict lines"
SAMPLED = ("source", "rotate")
"""Options that verbs do without which play a recording that they are told otherwise."""


@click.command(cls=Verb)
@with_options(*SAMPLING, *PLAYING, ROTATE)
@option(
    "--duration-sec",
    type=number(float, bad_duration),
    default=0.0,
    metavar="S",
    help="End after this many seconds, of a recording its own; 0: at Ctrl-C, or where it ends.",
)
@option(
    "--width",
    type=number(int, bad_width),
    default=None,
    metavar="N",
    help="Characters of a band. [default: 32, fewer if a terminal is too narrow]",
)
@option("--no-labels", is_flag=True, help="Bands alone, without names and values.")
@option(
    "--view",
    type=click.Choice(["waterfall", "timeline", "verdict"]),
    default="waterfall",
    show_default=True,
    help="A line a frame; the last minutes on a full screen; or what each GPU is bound by.",
)
@with_options(*VERDICTS, GROUPS)
@option(
    "--color/--no-color",
    default=None,
    help="Colour the bands by what is lit in each character; a timeline is coloured unless told not to be.",
)
@option("--no-flush", is_flag=True, help="Let lines wait in the output buffer.")
@option(
    "--csv",
    "csv_path",
    default="",
    metavar="FILE|-",
    help="Write frames as CSV; - writes them in place of the view.",
)
def live(**options: Any) -> None:
    """Watch: a line a frame, a band a GPU and metric."""
    watch(options)


def watch(options: dict[str, Any]) -> None:
    """Show the frames of a source; `options` are those of `live`."""
    if not sys.stdout:
        raise CufallError("stdout is closed, and what is measured goes there")
    named = options["source"]
    with ExitStack() as stack:
        begin = _source(options, stack)
        plan, judging = _plan(options), judging_from(options)
        duration_s = duration_from(options, plan)
        check_width(options["width"])
        groups = _groups(options)
        file = open_csv(options["csv_path"], (read_of(named), options["verdict_table"]), stack)
        view, aside = _view(options, file), Aside()
        source = stack.enter_context(begin(plan, aside))
        sinks = _sinks(source, file, options, view, judging)
        screen = _screen(view, source, aside, options, judging, groups)
        end_in_order()
        try:
            _show(source, duration_s, sinks, screen)
        finally:
            source.close()  # what is still on its way counts too
        _sum_up(source)
    source.check()


def _source(options: dict[str, Any], stack: ExitStack) -> Callable[[Plan, Say], FrameSource]:
    """Where frames come from, once the plan is known."""

    turn_s = seconds_from(options)

    def sample(plan: Plan, say: Say, process: subprocess.Popen[bytes], asked: float) -> FrameSource:
        from cufall_py.session import LiveSession

        def at_once(plan: Plan, process: subprocess.Popen[bytes]) -> LiveSession:
            return LiveSession(plan, say, process=process, asked=asked)

        if not turn_s:
            return at_once(plan, process)
        return in_turns(plan, plan.wanted, turn_s, say, process, asked, at_once)

    return source_of(options, stack, lambda path, plan, say: playback(path, plan, say, options), sample)


def _show(
    source: FrameSource,
    duration_s: float,
    sinks: list[Callable[[Frame], None]],
    screen: AbstractContextManager[Timeline | VerdictScreen | None],
) -> None:
    try:
        with screen as shown:
            if shown:
                sinks = [*sinks, shown.add]
            for frame in source.frames(duration_s, shown.tick if shown else None):
                for sink in sinks:
                    sink(frame)
    except Quit:
        pass
    except Ended:
        source.close()
        _sum_up(source)
        raise


def _sum_up(source: FrameSource) -> None:
    for line in source.summary():
        say(line)


def _plan(options: dict[str, Any]) -> Plan:
    """As the options have it. Verdicts are of frames of --verdict-ms unless a length of frames is given, and take what
    they can rest on besides the metrics that are named."""
    if options["view"] != "verdict":
        return plan_from(options)
    check_of_peak(options, "--view verdict")
    from cufall_py.analysis.evidence import INPUTS
    from cufall_py.plan import checked
    from cufall_py.presets import SHORT_NAMES

    if is_default("frame_us"):
        options["frame_us"] = 1000 * length_from(options)
    if not options["metrics"]:
        options["metric_set"] = "verdict"
    plan = plan_from(options)
    return checked(replace(plan, wanted=plan.wanted.with_optional([name for name in INPUTS if name in SHORT_NAMES])))


def _groups(options: dict[str, Any]) -> Groups | None:
    if options["view"] == "verdict":
        return groups_from(options)
    if options["group"] and is_typed("group"):
        raise UsageError("--group: is told with --view verdict, and by a report of a recording")
    return None


def _view(options: dict[str, Any], file: TextIO | None) -> str:
    """The view that there will be; none beside a CSV on stdout."""
    view: str = "" if file is sys.stdout else options["view"]
    if view in ("", "waterfall") or not (why := why_no_screen(sys.stdin, sys.stdout, os.environ)):
        return view
    if view == "verdict":
        if options["group"]:
            say(f"--group: {why}; a report of a recording tells groups without one")
        return VERDICT_LINES
    say(f"--view timeline: {why}; this is the waterfall")
    return "waterfall"


def _sinks(
    source: FrameSource, file: TextIO | None, options: dict[str, Any], view: str, judging: Judging
) -> list[Callable[[Frame], None]]:
    sinks = []
    if file:
        sinks.append(_csv_sink(source, file, place_of(options["csv_path"]), not options["no_flush"]))
    if view == "waterfall":
        sinks.append(rows(source, options))
    if view == VERDICT_LINES:
        from .verdict_view import line_sink

        sinks.append(line_sink(source, not options["no_flush"], judging.table))
    return sinks


def _csv_sink(source: FrameSource, file: TextIO, place: str, flush: bool) -> Callable[[Frame], None]:
    writer = csv_writer(file, place, source.opened)

    def write(frame: Frame) -> None:
        writer.gpus, writer.turn = source.opened, source.turn.name if source.turn else ""
        with writing(place):
            writer.write(frame)
            if flush:
                file.flush()

    return write


def _screen(
    view: str, source: FrameSource, aside: Aside, options: dict[str, Any], judging: Judging, groups: Groups | None
) -> AbstractContextManager[Timeline | VerdictScreen | None]:
    if view not in ("timeline", "verdict"):
        return nullcontext()
    colour = in_colour(options["color"], os.environ, True)
    ascii_only = not takes(sys.stdout, "\u2581\u2588\u00b7")
    if view == "verdict":
        from .verdict_view import verdicts

        return verdicts(source, aside, colour, ascii_only, judging.table, groups)
    from .full_view import shown
    from .timeline import Timeline

    length_s = source.length_s
    if length_s is not None and options["duration_sec"]:
        length_s = min(length_s, options["duration_sec"])
    return shown(aside, lambda on: Timeline(source, aside, on, length_s, colour, ascii_only))
