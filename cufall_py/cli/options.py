"""The sampling options, defined once for every verb that samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cufall_py.plan import Plan


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
        type=float,
        default=0.0,
        metavar="V",
        help="The quotient that is 100 %; 0: by the counter's unit.",
    ),
    option("--frame-us", type=int, default=100_000, show_default=True, metavar="US", help="Length of a frame."),
    option(
        "--sample-us",
        type=int,
        default=0,
        metavar="US",
        help="Length of a hardware sample. [default: a quarter of a frame]",
    ),
    option(
        "--decode-us",
        type=int,
        default=200_000,
        show_default=True,
        metavar="US",
        help="How often the hardware buffer is drained.",
    ),
    option(
        "--buffer-samples", type=int, default=0, metavar="N", help="Samples that one decode can hold. [default: sized]"
    ),
    option(
        "--hw-buffer-mb",
        type=int,
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
        type=int,
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
    from cufall_py.plan import LIMITS, Plan, flag
    from cufall_py.resolve import Wanted

    take = options.pop
    ignored = take("no_denominator")
    denominator = take("denominator")
    wanted = Wanted(
        metrics=take("metrics") or ("tensor",),
        denominator="" if ignored else denominator,
        raw=take("raw"),
        full_scale=_full_scale(take("full_scale")),
    )
    names = ("source", "devices", "trigger", *LIMITS)
    given = {name: take(name) for name in names}
    for name, (least, most) in LIMITS.items():
        if given[name] < 0 or (name in ("frame_us", "decode_us", "sysclk_cycles") and not given[name]):
            raise click.UsageError(f"{flag(name)} {given[name]}: must be from {least} to {most}")
    return Plan(wanted=wanted, **given)


def _full_scale(value: float) -> float:
    if not 0 <= value < float("inf"):
        raise click.UsageError(f"--full-scale {value}: must be 0 or a number above it")
    return value
