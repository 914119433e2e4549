"""`cufall attach`: inference servers beside their GPUs: drawn, recorded, judged, and, if asked, given a load."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from cufall_py.errors import CufallError, UsageError, error_of

from . import Ended, Verb, end_in_order, gate, say
from .attach_load import OPTIONS as LOAD, Load, bad_number, loads_from
from .attach_output import end_by, judge, write
from .attach_view import Shown, csv_sink, view_of
from .csv_file import open_csv
from .duration import bad_duration, duration_from
from .judging import OPTIONS as JUDGING, requirements_from, result_to
from .options import SAMPLING, is_default, number, option, plan_from, with_defaults, with_options
from .places import RESULT, check_places, writable
from .playing import recording_of
from .screen import Aside, Quit
from .verdicts import named_alone

if TYPE_CHECKING:
    from cufall_py.attachment import Attachment
    from cufall_py.plan import Plan
    from cufall_py.requirements import Requirement

    from .judging import Groups

METRICS = ("tensor", "sm", "dram")
SAMPLE_US = 10_000
TICK_S = 0.05


@click.command(cls=Verb)
@click.argument("urls", nargs=-1, metavar="[URL ...]")
@option(
    "--pid",
    type=number(int, lambda v: bad_number("--pid", v)),
    default=None,
    metavar="PID",
    help="The servers of this process and its children.",
)
@option(
    "--port",
    type=number(int, lambda v: bad_number("--port", v)),
    default=None,
    metavar="N",
    help="The server that listens on this port of this machine.",
)
@option(
    "--as",
    "roles",
    multiple=True,
    metavar="ROLE=URL",
    help="A server and what it does, as in prefill=http://127.0.0.1:8001; may be repeated.",
)
@option(
    "--group",
    multiple=True,
    metavar="NAME=GPUS",
    help="GPUs of the servers that do NAME (prefill or decode), as decode=4-7, or that a requirement can name as "
    "group=NAME; may be repeated.",
)
@option("--api-key", default="", metavar="KEY", help="Sent as a bearer token to the servers that are named.")
@option(
    "--duration-sec",
    type=number(float, bad_duration),
    default=0.0,
    metavar="S",
    help="End after this many seconds; 0: at Ctrl-C, or with the load.",
)
@option("--record", default="", metavar="FILE", help="Keep the recording: samples and all that the servers said.")
@option("--force", is_flag=True, help="Write over a recording that is there.")
@option(
    "--csv",
    "csv_path",
    default="",
    metavar="FILE|-",
    help="Frames and what servers said as CSV; - writes it in place of the view.",
)
@option(
    "--json",
    "as_json",
    is_flag=True,
    help="At the end one JSON document on stdout, in place of view and tables (docs/attach.md).",
)
@option("--svg", default="", metavar="FILE", help="Figures against running requests as a picture.")
@option("--color/--no-color", default=None, help="Colour the screen, which is coloured unless told not to be.")
@with_options(*LOAD)
@with_options(*JUDGING)
def attach(urls: tuple[str, ...], **options: Any) -> None:
    """Inference servers beside their GPUs: tokens and tensor use, by running requests and by phase.

    Without URL, --pid or --port: the servers with metrics that listen on this machine. Their GPUs are those on which
    NVML lists their processes, unless --devices names them. Nothing is sent to a server but requests for its page of
    metrics, once a second, unless --drive is given.
    """
    with result_to(options["result"], {options["record"]: "is where --record goes"}) as told:
        _attach(urls, options, told)


def _add_options_of_sampling(command: click.Command) -> None:
    for decorate in SAMPLING:
        decorate(command)
    command.params = [param for param in command.params if param.name != "annotate"]  # of files that are judged
    options = with_defaults(command, {"metrics": METRICS, "sample_us": SAMPLE_US})
    options["source"].metavar = "auto|cupti|gpm|script:FILE|FILE"
    options["source"].help = (
        "Where samples come from; auto: the counters over CUPTI, or NVML GPM where those cannot be had. A recording "
        "that attach made is played, with what its servers said."
    )
    options["devices"].show_default = "those of the servers"


_add_options_of_sampling(attach)


def _attach(urls: Sequence[str], options: dict[str, Any], told: dict[str, Any]) -> None:
    from cufall_py.recorder import Duration

    groups = named_alone(options)
    requirements = requirements_from(options["require"], groups)
    if recording_of(options["source"]):
        from .attach_played import play

        play(requirements, options, told)
        return
    _check(urls, options, requirements)
    loads = loads_from(options)
    devices = "" if is_default("devices") else options["devices"]
    plan = plan_from({**options, "devices": "all"})
    duration_s = duration_from(options, plan)
    with ExitStack() as stack:
        file, aside = open_csv(options["csv_path"], (), stack), Aside()
        attachment = stack.enter_context(_attached(urls, devices, plan, groups, options, aside))
        _check_judged(requirements, groups, attachment)
        shown = view_of(attachment, options, aside)
        duration = Duration(attachment.mark)
        sinks: list[Callable[[Any], None]] = [duration.take] if duration_s else []
        if file:
            sinks.append(csv_sink(attachment, file, options["csv_path"]))
        end_in_order()
        load = Load(attachment, *loads, options["api_key"]) if loads else None
        end = _follow(attachment, duration_s, shown, sinks, load)
        duration.end()
        driven = load.stop() if load else []
        closed = error_of(attachment.close)
        failure = (load.failure if load else None) or closed
        for line in attachment.lines():
            say(line)
        judgements = judge(attachment, requirements, told, options)
        silent = write(attachment, driven, judgements, options)
    end_by(end, failure, judgements, silent)


def _check(urls: Sequence[str], options: dict[str, Any], requirements: Sequence[Requirement]) -> None:
    """What can be refused before anything is started."""
    if options["api_key"] and not (urls or options["roles"] or options["port"] or options["pid"]):
        raise UsageError("--api-key goes with a URL, --port or --pid: it would be sent to whoever listens here")
    if options["as_json"] and options["csv_path"] == "-":
        raise UsageError("--csv and --json cannot both go to stdout")
    if (options["as_json"] or not options["csv_path"]) and not sys.stdout:
        raise CufallError("stdout is closed, and what is measured goes there")
    if options["record"] and not options["force"] and writable("--record", options["record"]).is_file():
        raise UsageError(f"--record {options['record']}: is there already; --force writes over it")
    places = {flag: options[flag[2:]] for flag in ("--record", "--svg") if options[flag[2:]]}
    check_places(places, {options["result"]: RESULT, options["csv_path"].removeprefix("-"): "is where --csv goes"})
    gate.check_sampled(requirements, options["metrics"])


def _check_judged(requirements: Sequence[Requirement], groups: Groups, attachment: Attachment) -> None:
    """Raises UsageError for a group of GPUs, or a requirement on a GPU, server or metric, that is not there."""
    from cufall_py.analysis.groups import positions
    from cufall_py.judgements import check_gpus
    from cufall_py.served_judgements import check_servers

    ordinals, metrics = [o.device.ordinal for o in attachment.opened], attachment.opened[0].metrics.metrics
    positions(groups, ordinals)
    there = attachment.logs()
    for requirement in requirements:
        check_gpus(requirement, ordinals, metrics)
        if requirement.of_server or requirement.role:
            check_servers(requirement, there, there)


def _roles(words: Sequence[str]) -> Mapping[str, str]:
    from cufall_py.engines.fetch import public
    from cufall_py.requirements import ROLES

    found = dict[str, str]()
    for word in words:
        role, is_there, url = word.partition("=")
        if not is_there or role not in ROLES or not url:
            raise UsageError(f"--as {role}{is_there}{public(url)}: must be prefill=URL or decode=URL")
        if found.setdefault(url, role) != role:
            raise UsageError(f"--as {role}={public(url)}: it is given another role, too")
    return found


@contextmanager
def _attached(
    urls: Sequence[str], devices: str, plan: Plan, groups: Groups, options: dict[str, Any], aside: Aside
) -> Iterator[Attachment]:
    from cufall_py.attaching import with_gpus
    from cufall_py.attachment import Attachment
    from cufall_py.engines.servers import servers

    found = servers(urls, options["pid"], options["port"], _roles(options["roles"]))
    if options["drive"] and len(found) != 1:
        raise UsageError("--drive sends to one server; name its URL")
    gpus, plan = with_gpus(found, devices, plan, say, groups=groups)
    for server in found:
        say(f"attaching to {server.url}" + (f" ({server.role})" if server.role else ""))
    attachment = Attachment(found, plan, gpus=gpus, key=options["api_key"], record=options["record"], say=aside)
    try:
        yield attachment
    finally:
        attachment.end()


def _follow(
    attachment: Attachment,
    duration_s: float,
    view: AbstractContextManager[Shown | None],
    sinks: Sequence[Callable[[Any], None]],
    load: Load | None,
) -> int:
    """Until the duration, the load's end, a person's q, or a signal: the number of that, else 0."""
    try:
        with view as shown:
            _loop(attachment, duration_s, shown, sinks, load)
    except Quit:
        pass
    except Ended as ended:
        return ended.exit_code
    return 0


def _loop(
    attachment: Attachment,
    duration_s: float,
    shown: Shown | None,
    sinks: Sequence[Callable[[Any], None]],
    load: Load | None,
) -> None:
    from cufall_py.plan import whole_frames

    frames, left = attachment.frames(), whole_frames(duration_s, attachment.plan)
    if load:
        load.start()
    while not attachment.ended:
        while frames.held:
            frame = frames.held.popleft()
            for sink in sinks:
                sink(frame)
            left -= 1
            if left == 0:
                return
        if shown:
            shown.tick()
        if load and load.over():
            return
        time.sleep(TICK_S)
