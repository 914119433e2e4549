"""The sampling options, defined once for every verb that samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .completion import device_names, metric_names, source_names

if TYPE_CHECKING:
    from cufall_py.plan import Plan
    from cufall_py.resolve import Wanted


def number(kind: type[int] | type[float], refusal: Callable[[object], str]) -> Callable[[Any], int | float]:
    """A type of option: a number, whole or not. What is none is refused with the option's whole range."""

    def convert(value: Any) -> int | float:
        try:
            return kind(value)
        except (ValueError, OverflowError):
            raise click.UsageError(refusal(value)) from None

    return convert


def with_defaults(command: click.Command, defaults: Mapping[str, object]) -> dict[str, click.Option]:
    """The command's options by name, those of `defaults` with these instead of what they have elsewhere."""
    options = {str(param.name): param for param in command.params if isinstance(param, click.Option)}
    for name, default in defaults.items():
        options[name].default, options[name].show_default = default, True
        options[name].help = (options[name].help or "").partition(" [default")[0]
    return options


def is_default(name: str) -> bool:
    """Whether nobody gave this parameter of the command that runs."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.DEFAULT


def is_typed(name: str) -> bool:
    """Whether it was given on the command line; in the environment it may wait for another command."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


class RecordingPath(click.Path):
    """A file to read. An empty name, as of a variable that is not set, would be the folder this runs in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            raise click.UsageError("an empty file name; name a recording")
        return super().convert(value, param, ctx)


def bad_full_scale(value: object) -> str:
    return f"--full-scale {value}: must be 0 or a number above it"


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """An option that can also be given as CUFALL_ and its long name."""
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    variable = "CUFALL_" + long.removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **settings)


class Texts(click.types.StringParamType):
    """Words with spaces; several in a variable are parted by `;`."""

    envvar_list_splitter = ";"


def plan_number(name: str, default: int, metavar: str, help: str) -> Callable[[Any], Any]:
    """The option of a number of the plan; a default of 0, derived from the others, is told in its help."""

    def refusal(value: object) -> str:
        from cufall_py.plan import out_of_limits

        return out_of_limits(name, value)

    long = "--" + name.replace("_", "-")
    kind = number(int, refusal)
    return option(long, type=kind, default=default, show_default=bool(default), metavar=metavar, help=help)


SAMPLING = (
    option(
        "--source",
        default="auto",
        metavar="auto|cupti|gpm|script:FILE|demo|FILE",
        show_default=True,
        shell_complete=source_names,
        help="Where samples come from; auto: the counters over CUPTI, or NVML GPM where those cannot be had; "
        "FILE: a recording (.cufall).",
    ),
    option(
        "--devices",
        default="all",
        metavar="all|0,1|UUID",
        shell_complete=device_names,
        show_default=True,
        help="GPUs, as CUDA numbers them here (0,4-7), or by UUID.",
    ),
    option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="NAME",
        shell_complete=metric_names,
        help="Short name or CUPTI counter; may be repeated. [default: tensor]",
    ),
    option(
        "--set",
        "metric_set",
        type=click.Choice(["verdict"]),
        default=None,
        help="What verdicts take, as far as this chip has it in one pass; beside --metric.",
    ),
    option("--denominator", default="", metavar="COUNTER", help="What a metric given by its CUPTI name is divided by."),
    click.option("--no-denominator", is_flag=True, help="Unset CUFALL_DENOMINATOR."),
    option(
        "--raw", is_flag=True, help="The plain quotient of the counters, unclamped, instead of a share of the peak."
    ),
    option(
        "--full-scale",
        type=number(float, bad_full_scale),
        default=0.0,
        metavar="V",
        help="The quotient that is 100 %; 0: by the counter's unit.",
    ),
    plan_number("frame_us", 100_000, "US", "Length of a frame."),
    plan_number("sample_us", 0, "US", "Length of a hardware sample. [default: a quarter of a frame]"),
    plan_number("decode_us", 200_000, "US", "How often the hardware buffer is drained."),
    plan_number("buffer_samples", 0, "N", "Samples that one decode can hold. [default: sized]"),
    plan_number("hw_buffer_mb", 0, "MB", "Hardware buffer of a GPU. [default: sized, at most 64]"),
    option(
        "--trigger",
        type=click.Choice(["time", "sysclk"]),
        default="time",
        show_default=True,
        help="What ends a sample.",
    ),
    plan_number("sysclk_cycles", 1_000_000, "N", "Length of a sample with --trigger sysclk."),
)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add these options to a command, in this order."""

    def add(command: Any) -> Any:
        for decorate in reversed(options):
            command = decorate(command)
        return command

    return add


def plan_from(options: dict[str, Any]) -> Plan:
    """The plan that the sampling options mean; takes them out of `options`. Raises UsageError."""
    from cufall_py.plan import LIMITS, Plan, checked

    wanted = wanted_from(options, ("tensor",))
    for name in WANTED:
        options.pop(name, None)
    names = ("source", "devices", "trigger", *LIMITS)
    return checked(Plan(wanted=wanted, **{name: options.pop(name) for name in names}))


WANTED = ("metrics", "metric_set", "denominator", "no_denominator", "raw", "full_scale")
"""The parameters that say what is to be shown."""


def wanted_from(options: dict[str, Any], metrics: tuple[str, ...]) -> Wanted:
    """What WANTED mean together, of these metrics unless others are named. Raises UsageError."""
    from cufall_py.presets import VERDICT_NAMES
    from cufall_py.resolve import Wanted

    from_variable = click.get_current_context().get_parameter_source("denominator") is ParameterSource.ENVIRONMENT
    ignored = options["no_denominator"] and from_variable
    of_set = options.get("metric_set")
    wanted = Wanted(
        metrics=options["metrics"] or (() if of_set else metrics),
        denominator="" if ignored else options["denominator"],
        raw=options["raw"],
        full_scale=_full_scale(options["full_scale"]),
    )
    return wanted.with_optional(VERDICT_NAMES) if of_set else wanted


def check_of_peak(options: Mapping[str, Any], what: str) -> None:
    """Raises UsageError where WANTED make metrics something else than the shares of their peaks that `what` takes."""
    for name, flag in (("raw", "--raw"), ("full_scale", "--full-scale")):
        if options[name]:
            raise click.UsageError(f"{flag}: not with {what}, which takes shares of the peak")


def _full_scale(value: float) -> float:
    if not 0 <= value < float("inf"):
        raise click.UsageError(bad_full_scale(value))
    return value


def in_colour(asked: bool | None, environ: Mapping[str, str], on_terminal: bool) -> bool:
    """--color, then NO_COLOR, then FORCE_COLOR and CLICOLOR_FORCE, then whether a terminal shows it."""
    if asked is not None:
        return asked
    if environ.get("NO_COLOR"):
        return False
    forced = [environ[name] for name in ("FORCE_COLOR", "CLICOLOR_FORCE") if environ.get(name)]
    if forced:
        return forced[0] != "0"
    return on_terminal and environ.get("TERM", "") not in ("", "dumb")
