"""What every verb that judges shares: `--require`, `--result`, `--annotate`, and how a run ends by them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from cufall_py.errors import CufallError, InvalidMeasurement, RequirementMissed, UsageError

from . import Ended, Unwritable, say, writing
from .options import option

if TYPE_CHECKING:
    from cufall_py.judgements import Judgement
    from cufall_py.requirements import Requirement

    Judged = Sequence[tuple[str, Sequence[Judgement]]]
    """Of each recording: its path, and what its requirements came to."""

SCHEMA = 1
MEANINGS = {
    0: "done",
    1: "could not run",
    2: "usage",
    3: "requirement missed",
    4: "not a valid measurement",
    130: "ended by SIGINT",
    141: "the reader of stdout went away",
    143: "ended by SIGTERM",
}
OPTIONS = (
    option(
        "--require",
        multiple=True,
        metavar="EXPR",
        help="What must hold on each GPU, such as 'tensor.mean >= 30%' or 'tensor.p50[prefill,gpu=0-3] > 0.4'; "
        "may be repeated.",
    ),
    option(
        "--result",
        default="",
        metavar="FILE",
        help="Write the exit code, why, and what each requirement came to, as JSON.",
    ),
    option(
        "--annotate",
        type=click.Choice(["auto", "github", "none"]),
        default="auto",
        show_default=True,
        help="Annotations and a step summary for GitHub Actions; auto: where GITHUB_ACTIONS is true.",
    ),
)


def requirements_from(texts: Sequence[str], groups: Mapping[str, tuple[int, ...]] | None = None) -> list[Requirement]:
    """`groups`: those that `group=` can name. Raises UsageError for the first that is none."""
    from cufall_py.requirements import parse

    return [parse(text, groups or {}) for text in texts]


@contextmanager
def result_to(path: str, taken: Sequence[str] = ()) -> Iterator[list[dict[str, Any]]]:
    """Whatever ends what is within is written to this file (empty: to none), with the requirements that were put in
    the list. One that cannot be written, or is among the files `taken`, is refused before."""
    judged: list[dict[str, Any]] = []
    if path:
        check_places({"--result": path}, taken)
    code, why = 0, MEANINGS[0]
    try:
        yield judged
    except (CufallError, click.ClickException, Exit, Ended, Unwritable, OSError) as error:
        code, why = _code(error), _text(error)
        raise
    except BaseException as error:
        code, why = 1, repr(error)
        raise
    finally:
        if path:
            meaning = MEANINGS.get(code, "the command's own")
            document = {"schema": SCHEMA, "exit_code": code, "meaning": meaning, "why": why, "requirements": judged}
            write_text(path, json.dumps(document, indent=2) + "\n")


def check_places(paths: Mapping[str, str], taken: Sequence[str]) -> None:
    """Raises UsageError if one of these files, by flag, cannot be written, or is another or one of those `taken`."""
    others = {os.path.realpath(file): "is what is read" for file in taken if file}
    for flag, path in paths.items():
        if other := others.get(os.path.realpath(path)):
            raise UsageError(f"{flag} {path}: {other}")
        others[os.path.realpath(path)] = f"is where {flag} goes"
        try:
            open(path, "a").close()
        except OSError as error:
            raise UsageError(f"{flag} {path}: {error.strerror}") from None


def write_text(path: str, text: str) -> None:
    with writing(path), open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.write(text)


def tell(judged: Judged) -> None:
    """The table of requirements, on stderr."""
    from cufall_py.views import tables
    from cufall_py.views.summary import requirements

    for path, judgements in judged:
        if judgements:
            click.echo(f"{path}:" if len(judged) > 1 else "", err=True)
            for line in tables.text(requirements(judgements)):
                click.echo(line, err=True)


def annotate(mode: str, environ: Mapping[str, str], judged: Judged, markdown: Callable[[], str]) -> None:
    """Lines that GitHub Actions makes annotations of, on stderr, and the step summary, if this is one of its jobs."""
    if mode == "none" or (mode == "auto" and environ.get("GITHUB_ACTIONS") != "true"):
        return
    from cufall_py.export.github import commands

    for path, judgements in judged:
        for line in commands(path, judgements):
            click.echo(line, err=True)
    if summary := environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(summary, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(markdown())
        except OSError as error:
            say(f"the step summary cannot be written: {summary}: {error.strerror}")


def conclude(judged: Judged, invalid: Sequence[str] = ()) -> None:
    """End as the requirements have it: say that they held, or raise InvalidMeasurement or RequirementMissed.

    `invalid`: why it was no valid measurement, whatever was required.
    """
    from cufall_py.judgements import MISSED, NOT_MEASURABLE
    from cufall_py.views.summary import counted

    every = [judgement for _, judgements in judged for judgement in judgements]
    unknown, missed = ([j for j in every if j.outcome == outcome] for outcome in (NOT_MEASURABLE, MISSED))
    if invalid or unknown:
        raise InvalidMeasurement(f"not a valid measurement: {_first([*invalid, *map(_line, unknown)])} (exit 4)")
    if missed:
        raise RequirementMissed(f"requirement missed: {_first([*map(_line, missed)])} (exit 3)")
    if every:
        say(f"requirements: {counted(every)} (exit 0)")


def _first(lines: Sequence[str]) -> str:
    return lines[0] + (f", and {len(lines) - 1} more" if len(lines) > 1 else "")


def _line(judgement: Judgement) -> str:
    from cufall_py.views.summary import judged_value

    told = judgement.why or f"it is {judged_value(judgement)}"
    return f"{judgement.requirement.text} on GPU {judgement.gpu}: {told}"


def _code(error: BaseException) -> int:
    if isinstance(error, Unwritable):
        return 141 if error.readerless else CufallError.exit_code
    return int(getattr(error, "exit_code", CufallError.exit_code))


def _text(error: BaseException) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, (Ended, Exit)):
        return MEANINGS.get(error.exit_code, f"ended by signal {error.exit_code - 128}")
    return str(error)
