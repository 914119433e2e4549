"""The command line: words to objects, errors and signals to exit codes."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

import click

from cufall_py import __version__
from cufall_py.errors import CufallError

BROKEN_PIPE = 141


class Ended(BaseException):
    """A signal asked the command to end; what was measured is kept."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Verbs(click.Group):
    """Verbs, each in the module of its name; a command line that begins with an option is `live`'s."""

    NAMES = ("live",)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["live", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.NAMES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.NAMES:
            return None
        from importlib import import_module

        command: click.Command = getattr(import_module(f"cufall_py.cli.{name}"), name)
        return command


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from .versions import versions

        click.echo(versions(__version__))
        ctx.exit()


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without a verb, cufall is `cufall live`. Each option can be given as an environment variable, "
    "CUFALL_FRAME_US for --frame-us. Exit codes: 0 done, 1 could not run, 2 usage, 4 not a valid "
    "measurement, 130 and 143 ended by a signal, 141 reader went away.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Versions of cufall, CUPTI and the driver.",
)
def cli() -> None:
    """How busy the tensor pipe of every GPU is, many times a second, from outside the process that uses it."""


def main() -> NoReturn:
    """Entry of the `cufall` command."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    sys.exit(_run())


def _run() -> int:
    try:
        result: Any = cli.main(standalone_mode=False, prog_name="cufall")
        sys.stdout.flush()
        return int(result or 0)
    except click.ClickException as error:
        error.show()
        return 2
    except CufallError as error:
        say(str(error))
        return error.exit_code
    except Ended as ended:
        return ended.exit_code
    except BrokenPipeError:
        # the interpreter flushes stdout once more at its end, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def say(line: str) -> None:
    """Tell a person something, on stderr; a stderr that is gone is no reason to stop."""
    try:
        click.echo(f"cufall: {line}", err=True)
    except OSError:
        pass


def _on_signal(number: int, _: FrameType | None) -> None:
    signal.signal(number, lambda *_: os._exit(128 + number))  # a second one ends at once
    raise Ended(number)
