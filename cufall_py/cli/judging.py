"""What every verb that judges shares: `--require`, `--result`, `--annotate`, and how a run ends by them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from cufall_py.errors import CufallError, InvalidMeasurement, RequirementMissed

from . import BROKEN_PIPE, Ended, Unwritable, before_leaving, say, talk
from .options import Texts, option
from .places import check_places, write_text

if TYPE_CHECKING:
    from cufall_py.analysis.verdict_scopes import Judging, OnFrames
    from cufall_py.judgements import Judgement
    from cufall_py.part import Part
    from cufall_py.recording_reader import Rows
    from cufall_py.report import Reading, Report
    from cufall_py.requirements import Requirement
    from cufall_py.resolve import Wanted

    Groups = Mapping[str, tuple[int, ...]]
    """CUDA numbers of the GPUs of each that `--group` names."""
    Found = Sequence[tuple[Report, Sequence[Judgement]]]
    """Of each recording: what it comes to, and what its requirements do."""

SCHEMA = 1
MEANINGS = {
    0: "done",
    1: "could not run",
    2: "usage",
    3: "requirement missed",
    4: "not a valid measurement",
    129: "ended by SIGHUP",
    130: "ended by SIGINT",
    141: "the reader of stdout went away",
    143: "ended by SIGTERM",
}
OWN = "the command's own"
JUNIT = "--junit needs a --require: it holds a case for each"
AFTER_FAILURE = (MEANINGS[4], MEANINGS[3], MEANINGS[0])
"""What counts less than that something could not be written."""
OPTIONS = (
    option(
        "--require",
        multiple=True,
        type=Texts(),
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


class End(Exit):
    """How a command ends that says itself what its exit code means, for it may be another program's."""

    def __init__(self, code: int, why: str, meaning: str = "") -> None:
        super().__init__(code)
        self.why, self.meaning = why, meaning or meaning_of(code)


def meaning_of(code: int) -> str:
    return MEANINGS.get(code, f"ended by signal {code - 128}")


def requirements_from(texts: Sequence[str], groups: Groups | None = None) -> list[Requirement]:
    """`groups`: those that `group=` can name. Raises UsageError for the first that is none."""
    from cufall_py.requirements import parse

    return [parse(text, groups or {}) for text in texts]


@contextmanager
def result_to(path: str, taken: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Whatever ends what is within is written to this file (empty: to none), with the fields that were put in the
    dictionary. One that cannot be written, or is among the files `taken` (see check_places), is refused before."""
    fields: dict[str, Any] = {"requirements": []}
    if not path:
        yield fields
        return
    check_places({"--result": path}, taken)
    write_text(path, "")  # what an earlier run left there is not how this one ends

    def at_once(number: int) -> None:
        _write_result(path, End(128 + number, meaning_of(128 + number)), fields)

    before_leaving.append(at_once)
    end = End(0, MEANINGS[0])
    try:
        yield fields
    except BaseException as error:
        end = _end(error)
        raise
    finally:
        before_leaving.remove(at_once)
        _write_result(path, end, fields)


def _write_result(path: str, end: End, fields: Mapping[str, Any]) -> None:
    document = {"schema": SCHEMA, "exit_code": end.exit_code, "meaning": end.meaning, "why": end.why, **fields}
    try:
        write_text(path, json.dumps(document, indent=2) + "\n")
    except Unwritable as error:
        if end.meaning in AFTER_FAILURE:
            raise
        say(str(error))


def _end(error: BaseException) -> End:
    """What ends with this error, as `cli._run` has it."""
    if isinstance(error, End):
        return error
    if isinstance(error, Unwritable):
        return End(BROKEN_PIPE if error.readerless else CufallError.exit_code, str(error))
    if isinstance(error, click.ClickException):
        return End(error.exit_code, error.format_message())
    if isinstance(error, (Ended, Exit)):
        return End(error.exit_code, meaning_of(error.exit_code))
    if isinstance(error, CufallError):
        return End(error.exit_code, str(error))
    return End(CufallError.exit_code, str(error) if isinstance(error, OSError) else repr(error))


def reading_of(
    file: str,
    requirements: Sequence[Requirement],
    wanted: Wanted | None = None,
    devices: str = "all",
    part: Part | None = None,
    judging: Judging | None = None,
    also: Sequence[str] = (),
    groups: Groups | None = None,
) -> Reading:
    """The recording as it is to be reported, with what the requirements need. Raises UsageError for one that cannot be
    asked of it."""
    from cufall_py.analysis.verdict_scopes import Judging
    from cufall_py.judgements import check, check_gpus
    from cufall_py.part import Part
    from cufall_py.report import Reading
    from cufall_py.resolve import Wanted
    from cufall_py.served import logs

    names, verdicts = dict.fromkeys((*metrics_in(requirements), *also)), judging or Judging()
    chosen = (wanted or Wanted(()), devices, part or Part())
    reading = Reading(file, *chosen, say, also=tuple(names), judging=verdicts, groups=groups)
    has_servers = any(requirement.of_server for requirement in requirements) and bool(logs(file))
    for requirement in requirements:
        can_be = check_gpus if requirement.of_server and has_servers else check
        can_be(requirement, [opened.device.ordinal for opened in reading.opened], reading.opened[0].metrics.metrics)
    return reading


def metrics_in(requirements: Sequence[Requirement]) -> tuple[str, ...]:
    """Each metric that is required something of, once."""
    from cufall_py.requirements import VERDICT

    return tuple(dict.fromkeys(r.metric for r in requirements if r.metric not in ("", VERDICT)))


def judged(
    reading: Reading,
    requirements: Sequence[Requirement],
    on_rows: Callable[[Rows], None] = lambda rows: None,
    on_frames: OnFrames | None = None,
) -> tuple[Report, list[Judgement]]:
    """Read it all, what is read also given to `on_rows` and `on_frames` (Reading.report), and judge it."""
    from cufall_py.judgements import judge
    from cufall_py.served_judgements import judge_served

    report = reading.report(on_rows, on_frames)
    of_servers = judge_served(reading.path, [requirement for requirement in requirements if requirement.of_server])
    found = ((r, of_servers.get(r) or judge(r, report.summary, reading.lacking)) for r in requirements)
    return report, [judgement for _, those in found for judgement in those]


def as_data(found: Found) -> list[dict[str, Any]]:
    """What each requirement came to, as the result file has it."""
    from cufall_py.export.summary import judged as data

    return [{"file": report.path, **data(judgement)} for report, judgements in found for judgement in judgements]


def markdown(found: Found) -> str:
    from cufall_py.views.summary import as_markdown

    return "".join("\n".join(as_markdown(report, judgements)) + "\n\n" for report, judgements in found)


def tell(found: Found) -> None:
    """The table of requirements, on stderr, and what was judged of samples that are not all of one length."""
    from cufall_py.views import tables
    from cufall_py.views.summary import requirements, thinned

    for report, judgements in found:
        if judgements:
            talk(f"{report.path}:" if len(found) > 1 else "")
            for line in tables.text(requirements(judgements)):
                talk(line)
            for line in thinned(report):
                say(f"{report.path}: {line}")


def annotate(mode: str, environ: Mapping[str, str], found: Found) -> None:
    """Lines that GitHub Actions makes annotations of, on stderr, and the step summary, if this is one of its jobs."""
    if mode == "none" or (mode == "auto" and environ.get("GITHUB_ACTIONS") != "true"):
        return
    from cufall_py.export.github import commands

    for report, judgements in found:
        for line in commands(report.path, judgements):
            talk(line)
    if summary := environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(summary, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(markdown(found))
        except OSError as error:
            say(f"the step summary cannot be written: {summary}: {error.strerror}")


def verdict(judgements: Sequence[Judgement], invalid: Sequence[str] = ()) -> tuple[int, str]:
    """The exit code that they come to, and why in words. `invalid`: why it was no valid measurement at all."""
    from cufall_py.judgements import MISSED, NOT_MEASURABLE
    from cufall_py.views.summary import counted

    unknown, missed = ([j for j in judgements if j.outcome == outcome] for outcome in (NOT_MEASURABLE, MISSED))
    if invalid or unknown:
        return InvalidMeasurement.exit_code, f"not a valid measurement: {_first([*invalid, *map(_line, unknown)])}"
    if missed:
        return RequirementMissed.exit_code, f"requirement missed: {_first([*map(_line, missed)])}"
    return 0, f"requirements: {counted(judgements)}" if judgements else ""


def _first(lines: Sequence[str]) -> str:
    return lines[0] + (f", and {len(lines) - 1} more" if len(lines) > 1 else "")


def _line(judgement: Judgement) -> str:
    from cufall_py.views.summary import judged_value

    told = judgement.why or f"it is {judged_value(judgement)}"
    return f"{judgement.requirement.text} on {judgement.subject}: {told}"
