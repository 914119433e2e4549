"""`cufall attach --source FILE`: what attach drew and told, of the recording that it made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cufall_py.errors import UsageError

from . import Ended, end_in_order, say
from .attach_output import end_by, judge, write
from .attach_view import csv_sink, view_of
from .csv_file import open_csv
from .options import is_default, is_typed, plan_from
from .places import RESULT, check_places
from .playing import recording_of
from .screen import Aside, Quit

if TYPE_CHECKING:
    from cufall_py.frames import Frame
    from cufall_py.played_attachment import PlayedAttachment
    from cufall_py.requirements import Requirement

OF_SERVERS = {
    "urls": "URL",
    "pid": "--pid",
    "port": "--port",
    "roles": "--as",
    "group": "--group",
    "api_key": "--api-key",
    "drive": "--drive",
}
OF_LENGTH = {"record": "--record", "duration_sec": "--duration-sec"}


def play(requirements: Sequence[Requirement], options: dict[str, Any], told: dict[str, Any]) -> None:
    """Play it, at its own pace on a terminal, and tell of all of it."""
    path = recording_of(options["source"])
    _check(path, options)
    with ExitStack() as stack:
        file, aside = open_csv(options["csv_path"], (path,), stack), Aside()
        played = stack.enter_context(_played(path, options, aside))
        end_in_order()
        end = _follow(played, options, aside, csv_sink(played, file, options["csv_path"]) if file else None)
        judgements = judge(played, requirements, told, options)
        silent = write(played, (), judgements, options)
    end_by(end, None, judgements, silent)


def _check(path: str, options: dict[str, Any]) -> None:
    for name, flag in (OF_SERVERS | OF_LENGTH).items():
        if is_typed(name) and options.get(name, True):
            why = "its servers are in it" if name in OF_SERVERS else "cufall record copies a part of one"
            raise UsageError(f"{flag}: --source {path} is a recording, and {why}")
    if options["as_json"] and options["csv_path"] == "-":
        raise UsageError("--csv and --json cannot both go to stdout")
    places = {"--svg": options["svg"]} if options["svg"] else {}
    check_places(places, {options["result"]: RESULT, path: "is what is played"})


def _played(path: str, options: dict[str, Any], aside: Aside) -> PlayedAttachment:
    """With the metrics that it was made with, unless others are named."""
    from cufall_py.pace import AS_FAST_AS_IT_GOES
    from cufall_py.played_attachment import PlayedAttachment
    from cufall_py.recording_reader import Recording

    drawn = sys.stdout.isatty() and not options["csv_path"] and not options["as_json"]
    plan = plan_from(dict(options))
    if is_default("metrics") and not options["metric_set"]:
        plan = replace(plan, wanted=Recording(path).plan.wanted)
    return PlayedAttachment(path, plan, aside, 1.0 if drawn else AS_FAST_AS_IT_GOES)


def _follow(
    played: PlayedAttachment, options: dict[str, Any], aside: Aside, sink: Callable[[Frame], None] | None
) -> int:
    """To its end, or until a person's q or a signal: the number of that, else 0."""
    try:
        with view_of(played, options, aside) as shown:
            for frame in played.frames(shown.tick if shown else lambda: None):
                if sink:
                    sink(frame)
                if shown:
                    shown.tick()
    except Quit:
        pass
    except Ended as ended:
        return ended.exit_code
    for line in played.lines():
        say(line)
    return 0
