"""`cufall report FILE...`: recordings summed up, as text or as data, and judged."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

import click

from cufall_py.errors import CufallError, UsageError

from . import STDOUT, Verb, ceiling, end_in_order, say, writing
from .charset import takes
from .judging import (
    JUNIT,
    OPTIONS as JUDGING,
    End,
    annotate,
    as_data,
    markdown,
    reading_of,
    requirements_from,
    result_to,
    tell,
    verdict,
)
from .live import live
from .options import RecordingPath, option, wanted_from, with_options
from .places import READ, RESULT, check_places, write_text
from .verdicts import GROUPS, OPTIONS as VERDICTS, groups_from, judging_from

if TYPE_CHECKING:
    from cufall_py.headroom import Question
    from cufall_py.judgements import Judgement
    from cufall_py.recording_reader import Rows
    from cufall_py.report import Reading, Report
    from cufall_py.requirements import Requirement
    from cufall_py.served import Served

    from .judging import Found
    from .pages import HtmlPage

CHOOSING = ("devices", "metrics", "denominator", "no_denominator", "raw", "full_scale", "begin", "end", "region")
"""Options of `live` that say what of a recording is meant."""
BAR = "▇"
OUTPUTS = {"csv_path": "--csv", "markdown": "--markdown", "junit": "--junit", "parquet": "--parquet"}
PAGES = {"html": "--html", "trace": "--trace"}
NO_SAMPLES = "no samples in what was asked for"


def _chosen(param: click.Parameter) -> click.Parameter:
    """An option of `live`, which reads here what there is and needs no GPU."""
    if param.name != "metrics":
        return param
    own = copy(param)
    own.help = "Short name or CUPTI counter; may be repeated. [default: those it was recorded with]"
    return own


@click.command(cls=Verb)
@click.argument("files", nargs=-1, required=True, type=RecordingPath())
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout (docs/report.md has its schema).")
@option("--csv", "csv_path", default="", metavar="FILE|-", help="The summary as CSV.")
@option("--markdown", default="", metavar="FILE|-", help="The summary as Markdown.")
@option("--junit", default="", metavar="FILE|-", help="The requirements as JUnit XML.")
@option("--parquet", default="", metavar="FILE|-", help="The samples of one recording as Parquet.")
@option("--html", default="", metavar="FILE|-", help="One recording as a page for a browser, which needs nothing else.")
@option(
    "--trace", default="", metavar="FILE|-", help="One recording as a Chrome trace, for Perfetto; FILE.gz: compressed."
)
@with_options(*VERDICTS, GROUPS, *ceiling.OPTIONS, *JUDGING)
def report(files: tuple[str, ...], **options: Any) -> None:
    """Sum up recordings: each GPU, all of them, each region; and judge them.

    Without an output on stdout, the summary is text there. Requirements must hold on each GPU of each FILE, in the
    region `command` or `duration` if there is one and no other is named.
    """
    if not sys.stdout:
        raise CufallError("stdout is closed, and the report goes there")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would only wait for one another
    with result_to(options["result"], _taken(files, options)) as told:
        _report(files, options, told)


def _taken(files: Sequence[str], options: dict[str, Any]) -> dict[str, str]:
    """The files that are read, which no output goes to."""
    return dict.fromkeys((*files, options["model"], options["verdict_table"]), READ)


report.params[1:1] = [_chosen(param) for param in live.params if param.name in CHOOSING]


def _report(files: Sequence[str], options: dict[str, Any], told: dict[str, Any]) -> None:
    requirements = requirements_from(options["require"], groups_from(options))
    question = ceiling.question_from(options)
    _check_outputs(files, options, bool(requirements))
    end_in_order()
    readings = [_reading(file, options, requirements, question) for file in files]
    read = [_read(reading, options, requirements, question) for reading in readings]
    found, servers = [of for of, _ in read], [served for _, served in read]
    told["requirements"] += as_data(found)
    _write(found, options, question, servers)
    tell(found)
    annotate(options["annotate"], os.environ, found)
    _end(found)


def _end(found: Found) -> None:
    """The last line and the exit code."""
    judgements = [judgement for _, of in found for judgement in of]
    code, why = verdict(judgements, [line for of, _ in found if (line := _without_samples(of))])
    if why:
        say(f"{why} (exit {code})")
    raise End(code, why or "done")


def _check_outputs(files: Sequence[str], options: dict[str, Any], judging: bool) -> None:
    """Raises UsageError for outputs that cannot be, or not beside one another."""
    paths = {flag: options[name] for name, flag in (OUTPUTS | PAGES).items() if options[name]}
    on_stdout = [flag for flag, path in paths.items() if path == "-"] + ["--json"] * options["as_json"]
    if len(on_stdout) > 1:
        raise UsageError(f"{' and '.join(on_stdout)} cannot both go to stdout")
    if "--junit" in paths and not judging:
        raise UsageError(JUNIT)
    for flag in {"--parquet", *PAGES.values()} & set(paths):
        if len(files) > 1:
            raise UsageError(f"{flag} holds the samples of one recording")
    if paths.get("--parquet") == "-" and sys.stdout.isatty():
        raise UsageError("--parquet -: is no text, and stdout is a terminal")
    taken = {options["result"]: RESULT, **_taken(files, options)}
    check_places({flag: path for flag, path in paths.items() if path != "-"}, taken)


def _reading(
    file: str, options: dict[str, Any], requirements: Sequence[Requirement], question: Question | None
) -> Reading:
    from cufall_py.part import Part

    part = Part(options["begin"], options["end"], options["region"])
    also, judging, groups = ceiling.metrics_of(question), judging_from(options), groups_from(options)
    wanted = wanted_from(options, ())
    return reading_of(file, requirements, wanted, options["devices"], part, judging, also, groups)


def _read(
    reading: Reading, options: dict[str, Any], requirements: Sequence[Requirement], question: Question | None
) -> tuple[tuple[Report, list[Judgement]], list[Served]]:
    """Read it once, for all that is made of its samples, and what it has of inference servers."""
    from cufall_py.served_judgements import judged

    page = _html_page(reading, options)
    with ExitStack() as stack:
        takers = [stack.enter_context(writer) for writer in _writers(reading, options)]
        takers += [page.rows] if page else []

        def take(rows: Rows) -> None:
            for taker in takers:
                taker(rows)

        found = judged(reading, requirements, take, page.frames if page else None)
    servers = _served(found[0], options)
    if page:
        page.write(options["html"], found[0], question=question, servers=servers)
    return found, servers


def _html_page(reading: Reading, options: dict[str, Any]) -> HtmlPage | None:
    """A page or a trace of nothing cannot be, which is only said."""
    from .pages import HtmlPage

    if options["html"] and reading.spans:
        return HtmlPage(reading)
    if options["html"]:
        say(f"--html: {NO_SAMPLES}")
    return None


def _served(of: Report, options: dict[str, Any]) -> list[Served]:
    """Its inference servers on the GPUs that are reported; a file that `attach` did not make is not read again."""
    from cufall_py.engines.events import SERVER

    if SERVER not in of.kinds:
        return []
    from cufall_py.part import Part
    from cufall_py.served import served

    part, gpus = Part(options["begin"], options["end"], options["region"]), [o.device.ordinal for o in of.opened]
    return served(of.path, part, gpus)


def _writers(reading: Reading, options: dict[str, Any]) -> Iterator[AbstractContextManager[Callable[[Rows], None]]]:
    """Of what is made of samples alone."""
    from .pages import trace_writer

    if options["parquet"]:
        yield _parquet_writer(options["parquet"], reading)
    if options["trace"] and reading.spans:
        yield trace_writer(reading, options["trace"])
    elif options["trace"]:
        say(f"--trace: {NO_SAMPLES}")


@contextmanager
def _parquet_writer(path: str, reading: Reading) -> Iterator[Callable[[Any], None]]:
    from cufall_py.export.parquet import ParquetWriter

    place = STDOUT if path == "-" else path
    where = sys.stdout.fileno() if path == "-" else path
    with (
        writing(place),
        open(where, "wb", closefd=path != "-") as file,
        ParquetWriter(file, reading.opened, reading.part, bool(reading.keep)) as writer,
    ):
        yield writer.write


def _write(
    found: Found, options: dict[str, Any], question: Question | None, servers: Sequence[Sequence[Served]]
) -> None:
    from cufall_py.export.junit import junit
    from cufall_py.export.served import with_servers
    from cufall_py.export.summary import csv_text, document

    texts: dict[str, Callable[[], str]] = {
        "csv_path": lambda: csv_text([of for of, _ in found]),
        "markdown": lambda: "".join(map(_markdown, found, servers)),
        "junit": lambda: junit(found),
    }
    taken = options["as_json"] or any(options[name] == "-" for name in OUTPUTS | PAGES)
    for name, text in texts.items():
        if options[name] and options[name] != "-":
            write_text(options[name], text())
    with writing(STDOUT):
        for name, text in texts.items():
            if options[name] == "-":
                sys.stdout.write(text())
        if options["as_json"]:
            told = ceiling.with_ceilings(with_servers(document(found), servers), [of for of, _ in found], question)
            print(json.dumps(told, indent=1, allow_nan=False))
        if not taken:
            print("\n".join(_text(found, question, servers)))
        sys.stdout.flush()


def _markdown(one: tuple[Report, Sequence[Judgement]], servers: Sequence[Served]) -> str:
    from cufall_py.views.served import as_markdown

    return markdown([one]) + "".join(f"{line}\n" for line in as_markdown(servers))


def _text(found: Found, question: Question | None, servers: Sequence[Sequence[Served]]) -> Iterator[str]:
    from cufall_py.views.served import as_text as served_text
    from cufall_py.views.summary import as_text

    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for k, (of, _) in enumerate(found):
        yield from ("", "") if k else ()
        ascii_only = not takes(sys.stdout, "\u2026")
        yield from as_text(of, columns, ascii_only)
        yield from ceiling.lines(of, question, ascii_only)
        if servers[k]:
            yield ""
            yield from served_text(servers[k], ascii_only or not takes(sys.stdout, BAR))


def _without_samples(of: Report) -> str:
    lacking = [
        str(o.device.ordinal)
        for o, row in zip(of.opened, of.summary.scopes[0].rows, strict=True)
        if not row.coverage > 0
    ]
    return f"GPU {', '.join(lacking)}: no samples in {of.path}" if lacking else ""
