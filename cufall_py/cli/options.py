"""The sampling options, defined once for every verb that samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from cufall_py.plan import Plan


def number(kind: type[int] | type[float], refusal: Callable[[object], str]) -> Callable[[Any], int | float]:
    """A type of option: a number, whole or not. What is none is refused with the option's whole range."""

    def convert(value: Any) -> int | float:
        try:
            return kind(value)
        except (ValueError, OverflowError):
            raise click.UsageError(refusal(value)) from None

    return convert


def limited(name: str) -> Callable[[Any], int | float]:
    """A number of the plan."""
    return number(int, lambda value: out_of_limits(name, value))


def out_of_limits(name: str, value: object) -> str:
    from cufall_py.plan import LIMITS, flag

    least, most = LIMITS[name]
    return f"{flag(name)} {value}: must be a whole number from {least} to {most}"


def bad_full_scale(value: object) -> str:
    return f"--full-scale {value}: must be 0 or a number above it"


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """An option that can also be given as CUFALL_ and its long name."""
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    variable = "CUFALL_" + long.removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **settings)


SAMPLING = (
    option(
        "--source", default="cupti", metavar="cupti|script:FILE", show_default=True, help="Where samples come from."
    ),
    option(
        "--devices",
        default="all",
        metavar="all|0,1|UUID",
        show_default=True,
        help="GPUs, as CUDA numbers them here, or by UUID.",
    ),
    option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="NAME",
        help="Short name or CUPTI counter; may be repeated. [default: tensor]",
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
    option(
        "--frame-us",
        type=limited("frame_us"),
        default=100_000,
        show_default=True,
        metavar="US",
        help="Length of a frame.",
    ),
    option(
        "--sample-us",
        type=limited("sample_us"),
        default=0,
        metavar="US",
        help="Length of a hardware sample. [default: a quarter of a frame]",
    ),
    option(
        "--decode-us",
        type=limited("decode_us"),
        default=200_000,
        show_default=True,
        metavar="US",
        help="How often the hardware buffer is drained.",
    ),
    option(
        "--buffer-samples",
        type=limited("buffer_samples"),
        default=0,
        metavar="N",
        help="Samples that one decode can hold. [default: sized]",
    ),
    option(
        "--hw-buffer-mb",
        type=limited("hw_buffer_mb"),
        default=0,
        metavar="MB",
        help="Hardware buffer of a GPU. [default: sized, at most 64]",
    ),
    option(
        "--trigger",
        type=click.Choice(["time", "sysclk"]),
        default="time",
        show_default=True,
        help="What ends a sample.",
    ),
    option(
        "--sysclk-cycles",
        type=limited("sysclk_cycles"),
        default=1_000_000,
        show_default=True,
        metavar="N",
        help="Length of a sample with --trigger sysclk.",
    ),
)


def sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the sampling options; the command gets them as `plan_from` takes them."""
    for decorate in reversed(SAMPLING):
        command = decorate(command)
    return command


def plan_from(options: dict[str, Any]) -> Plan:
    """The plan that the sampling options mean; takes them out of `options`. Raises UsageError."""
    from cufall_py.plan import LIMITS, Plan
    from cufall_py.resolve import Wanted

    take = options.pop
    from_variable = click.get_current_context().get_parameter_source("denominator") is ParameterSource.ENVIRONMENT
    ignored = take("no_denominator") and from_variable
    denominator = take("denominator")
    wanted = Wanted(
        metrics=take("metrics") or ("tensor",),
        denominator="" if ignored else denominator,
        raw=take("raw"),
        full_scale=_full_scale(take("full_scale")),
    )
    names = ("source", "devices", "trigger", *LIMITS)
    given = {name: take(name) for name in names}
    for name in LIMITS:
        if given[name] < 0 or (name in ("frame_us", "decode_us", "sysclk_cycles") and not given[name]):
            raise click.UsageError(out_of_limits(name, given[name]))
    return Plan(wanted=wanted, **given)


def _full_scale(value: float) -> float:
    if not 0 <= value < float("inf"):
        raise click.UsageError(bad_full_scale(value))
    return value
