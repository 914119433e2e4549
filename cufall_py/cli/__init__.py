"""The command line: words to objects, errors and signals to exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.exceptions import Exit

from cufall_py import __version__
from cufall_py.errors import CufallError

from . import completion
from .help import write_examples, write_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

BROKEN_PIPE = 141
STDOUT = "stdout"
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal asked the command to end; what was measured is kept."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Unwritable(Exception):
    """A place that data goes to takes no more."""

    def __init__(self, place: str, error: OSError) -> None:
        super().__init__(f"cannot write {place}: {error.strerror}")
        self.readerless = place == STDOUT and isinstance(error, BrokenPipeError)


@contextmanager
def writing(place: str) -> Iterator[None]:
    """What goes wrong within is told as the place's fault; no other OSError is."""
    try:
        yield
    except OSError as error:
        raise Unwritable(place, error) from None


class Verb(click.Command):
    """Its `--help` and `--version` are written to stdout while its words are read; its options stand in groups."""

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        with writing(STDOUT):
            return super().make_context(*args, **settings)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self.get_params(ctx), ctx, formatter)


class Verbs(Verb, click.Group):
    """Verbs, each in the module of its name; a command line that begins with an option is `live`'s."""

    NAMES = ("live", "record", "mark", "replay", "report", "compare", "attach", "metrics", "doctor", "verify", "demo")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        bare = not args and not ctx.resilient_parsing  # as a shell asks what can come first
        if bare or (args and args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["live", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Those of `live` too, whose verb can be left out."""
        self.format_commands(ctx, formatter)
        write_options([*self._live(ctx).params, *self.get_params(ctx)], ctx, formatter)
        write_examples(formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs and options, those of `live` too."""
        found = [*super().shell_complete(ctx, incomplete), *self._live(ctx).shell_complete(ctx, incomplete)]
        return [*{item.value: item for item in found}.values()]

    def _live(self, ctx: click.Context) -> click.Command:
        command = self.get_command(ctx, "live")
        assert command
        return command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.NAMES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.NAMES:
            if ctx.resilient_parsing:
                return None
            from difflib import get_close_matches

            close = get_close_matches(name, self.NAMES, 1)
            raise click.UsageError(f"no verb {name}" + (f"; did you mean {close[0]}?" if close else "; see cufall -h"))
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
    "CUFALL_FRAME_US for --frame-us. Exit codes: 0 done, 1 could not run, 2 usage, 3 a requirement was missed or a "
    "limit passed, 4 not a valid measurement, 130 and 143 ended by a signal, 141 reader went away; of record also the "
    "command's own.",
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
    _on_end_signals(_leave)
    if asked := os.environ.get(completion.VARIABLE):
        sys.exit(completion.answer(cli, asked))
    _stand_in_for_closed()
    if sys.stdout:
        _write_in_full()
    sys.exit(_run(sys.argv[1:]))


def end_in_order() -> None:
    """From now on there is something to keep: the first signal raises Ended, a second ends at once."""
    _on_end_signals(_raise_ended)


def _run(words: list[str]) -> int:
    # not click's own main(), which ends with 1 when the reader of stdout goes away
    try:
        with cli.make_context("cufall", words) as context:
            cli.invoke(context)
        if sys.stdout:
            with writing(STDOUT):
                sys.stdout.flush()
        return 0
    except Exit as done:
        return done.exit_code
    except click.ClickException as error:
        say(error.format_message())
        return error.exit_code
    except CufallError as error:
        say(str(error))
        return error.exit_code
    except Ended as ended:
        return ended.exit_code
    except Unwritable as failed:
        if not failed.readerless:
            say(str(failed))
        return _without_stdout(BROKEN_PIPE if failed.readerless else CufallError.exit_code)
    except OSError as error:
        say(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return CufallError.exit_code


def _without_stdout(code: int) -> int:
    """The interpreter flushes stdout once more at its end, and would complain."""
    if sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _stand_in_for_closed() -> None:
    """Where the caller closed 0, 1 or 2, no file of ours may get that number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def _write_in_full() -> None:
    """Make stdout write all that it is given; what its encoding lacks, as its number.

    With PYTHONUNBUFFERED, as container images set it, a write is cut where a disk is full or a reader goes away, and
    half a document would end with 0. A buffer goes on with the rest, and so is told why.
    """
    settings: dict[str, Any] = {"encoding": sys.stdout.encoding, "errors": "backslashreplace", "closefd": False}
    sys.stdout = open(sys.stdout.fileno(), "w", **settings)  # noqa: SIM115


def say(line: str) -> None:
    """Tell a person something, on stderr."""
    talk(f"cufall: {line}")


def talk(line: str) -> None:
    """A line on stderr as it is; a stderr that is gone is no reason to stop."""
    try:
        click.echo(line, err=True)
    except OSError:
        pass


def _on_end_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in END_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, handler)


before_leaving: list[Callable[[int], None]] = []
"""What must not be left undone even where a signal, of this number, ends the process at once: a terminal that was taken
over, a file that tells how it ended."""


def leave_at_once(number: int) -> NoReturn:
    """End as this signal ends a process."""
    for step in before_leaving:
        step(number)
    os._exit(128 + number)


def _leave(number: int, _: FrameType | None) -> None:
    """Nothing is measured yet. An exception could be swallowed by what is being imported; this cannot."""
    leave_at_once(number)


def _raise_ended(number: int, _: FrameType | None) -> None:
    _on_end_signals(_leave)
    raise Ended(number)
