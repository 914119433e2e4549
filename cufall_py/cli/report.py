"""`cufall report FILE...`: recordings summed up, as text or as data, and judged."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any

import click

from cufall_py.errors import CufallError, UsageError

from . import STDOUT, Verb, end_in_order, say, writing
from .judging import (
    OPTIONS as JUDGING,
    annotate,
    check_places,
    conclude,
    requirements_from,
    result_to,
    tell,
    write_text,
)
from .live import live, takes
from .options import option, wanted_from, with_options

if TYPE_CHECKING:
    from cufall_py.judgements import Judgement
    from cufall_py.report import Reading, Report
    from cufall_py.requirements import Requirement

    Found = list[tuple[Report, list[Judgement]]]

CHOOSING = ("devices", "metrics", "denominator", "no_denominator", "raw", "full_scale", "begin", "end", "region")
"""Options of `live` that say what of a recording is meant."""
OUTPUTS = {"csv_path": "--csv", "markdown": "--markdown", "junit": "--junit", "parquet": "--parquet"}
PAGES = {"html": "--html", "trace": "--trace"}


def _chosen(param: click.Parameter) -> click.Parameter:
    """An option of `live`, which reads here what there is and needs no GPU."""
    if param.name != "metrics":
        return param
    own = copy(param)
    own.help = "Short name or CUPTI counter; may be repeated. [default: those it was recorded with]"
    return own


@click.command(cls=Verb)
@click.argument("files", nargs=-1, required=True)
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout (docs/report.md has its schema).")
@option("--csv", "csv_path", default="", metavar="FILE|-", help="The summary as CSV.")
@option("--markdown", default="", metavar="FILE|-", help="The summary as Markdown.")
@option("--junit", default="", metavar="FILE|-", help="The requirements as JUnit XML.")
@option("--parquet", default="", metavar="FILE|-", help="The samples of one recording as Parquet.")
@option("--html", default="", metavar="FILE|-", help="One recording as a page for a browser, which needs nothing else.")
@option(
    "--trace", default="", metavar="FILE|-", help="One recording as a Chrome trace, for Perfetto; FILE.gz: compressed."
)
@with_options(*JUDGING)
def report(files: tuple[str, ...], **options: Any) -> None:
    """Sum up recordings: each GPU, all of them, each region; and judge them.

    Without an output on stdout, the summary is text there. Requirements must hold on each GPU of each FILE, in the
    region `command` if there is one and no other is named.
    """
    if not sys.stdout:
        raise CufallError("stdout is closed, and the report goes there")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would only wait for one another
    with result_to(options["result"], files) as judged:
        _report(files, options, judged)


report.params[1:1] = [_chosen(param) for param in live.params if param.name in CHOOSING]


def _report(files: Sequence[str], options: dict[str, Any], judged: list[dict[str, Any]]) -> None:
    requirements = requirements_from(options["require"])
    _check_outputs(files, options, bool(requirements))
    from cufall_py.export.summary import judged as as_data

    end_in_order()
    readings = [_reading(file, options, requirements) for file in files]
    found = [_read(reading, options, requirements) for reading in readings]
    judged += [{"file": of.path, **as_data(judgement)} for of, judgements in found for judgement in judgements]
    _write(found, options)
    by_path = [(of.path, judgements) for of, judgements in found]
    tell(by_path)
    _tell_thinned(found, requirements)
    annotate(options["annotate"], os.environ, by_path, lambda: _markdown(found))
    conclude(by_path, [line for of, _ in found if (line := _without_samples(of))])


def _check_outputs(files: Sequence[str], options: dict[str, Any], judging: bool) -> None:
    """Raises UsageError for outputs that cannot be, or not beside one another."""
    paths = {flag: options[name] for name, flag in (OUTPUTS | PAGES).items() if options[name]}
    on_stdout = [flag for flag, path in paths.items() if path == "-"] + ["--json"] * options["as_json"]
    if len(on_stdout) > 1:
        raise UsageError(f"{' and '.join(on_stdout)} cannot both go to stdout")
    if "--junit" in paths and not judging:
        raise UsageError("--junit needs a --require: it holds a case for each")
    for flag in {"--parquet", *PAGES.values()} & set(paths):
        if len(files) > 1:
            raise UsageError(f"{flag} holds the samples of one recording")
    for flag in set(PAGES.values()) & set(paths):
        if options["devices"] != "all":
            raise UsageError(f"{flag} is of all GPUs of a recording: leave out --devices")
    if paths.get("--parquet") == "-" and sys.stdout.isatty():
        raise UsageError("--parquet -: is no text, and stdout is a terminal")
    check_places({flag: path for flag, path in paths.items() if path != "-"}, [*files, options["result"]])


def _reading(file: str, options: dict[str, Any], requirements: Sequence[Requirement]) -> Reading:
    from cufall_py.judgements import check
    from cufall_py.part import Part
    from cufall_py.report import Reading

    part = Part(options["begin"], options["end"], options["region"])
    also = tuple(dict.fromkeys(requirement.metric for requirement in requirements if requirement.metric))
    reading = Reading(file, wanted_from(options, ()), options["devices"], part, say, also=also)
    for requirement in requirements:
        ordinals = [opened.device.ordinal for opened in reading.opened]
        check(requirement, ordinals, reading.opened[0].metrics.metrics)
    return reading


def _read(
    reading: Reading, options: dict[str, Any], requirements: Sequence[Requirement]
) -> tuple[Report, list[Judgement]]:
    from cufall_py.judgements import judge

    with _parquet(options["parquet"], reading) as on_rows:
        of = reading.report(on_rows)
    return of, [j for requirement in requirements for j in judge(requirement, of.summary, reading.lacking)]


def _tell_thinned(found: Found, requirements: Sequence[Requirement]) -> None:
    """What was judged of samples that are not all of one length."""
    from cufall_py.views.summary import thinned

    for of, _ in found if requirements else ():
        for line in thinned(of):
            say(f"{of.path}: {line}")


def _parquet(path: str, reading: Reading) -> AbstractContextManager[Callable[[Any], None]]:
    return _parquet_writer(path, reading) if path else nullcontext(lambda rows: None)


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


def _write(found: Found, options: dict[str, Any]) -> None:
    from cufall_py.export.junit import junit
    from cufall_py.export.summary import csv_text, document

    texts: dict[str, Callable[[], str]] = {
        "csv_path": lambda: csv_text([of for of, _ in found]),
        "markdown": lambda: _markdown(found),
        "junit": lambda: junit(found),
    }
    _write_pages(found[0][0].path, options)
    taken = options["as_json"] or any(options[name] == "-" for name in OUTPUTS | PAGES)
    for name, text in texts.items():
        if options[name] and options[name] != "-":
            write_text(options[name], text())
    with writing(STDOUT):
        for name, text in texts.items():
            if options[name] == "-":
                sys.stdout.write(text())
        if options["as_json"]:
            print(json.dumps(document(found), indent=1, allow_nan=False))
        if not taken:
            print("\n".join(_text(found)))
        sys.stdout.flush()


def _write_pages(path: str, options: dict[str, Any]) -> None:
    if not any(options[name] for name in PAGES):
        return
    from cufall_py.part import Part
    from cufall_py.recording_reader import Recording

    from .pages import shown, write_html, write_trace

    wanted, part = wanted_from(options, ()), Part(options["begin"], options["end"], options["region"])
    what = shown(Recording(path), os.path.basename(path), part, wanted if wanted.metrics else None)
    for name, write in (("html", write_html), ("trace", write_trace)):
        if options[name]:
            write(what, options[name])


def _text(found: Found) -> Iterator[str]:
    from cufall_py.views.summary import as_text

    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for k, (of, _) in enumerate(found):
        yield from ("", "") if k else ()
        yield from as_text(of, columns, not takes(sys.stdout, "\u2026"))


def _markdown(found: Found) -> str:
    from cufall_py.views.summary import as_markdown

    return "".join("\n".join(as_markdown(of, judgements)) + "\n\n" for of, judgements in found)


def _without_samples(of: Report) -> str:
    lacking = [
        str(o.device.ordinal)
        for o, row in zip(of.opened, of.summary.scopes[0].rows, strict=True)
        if not row.coverage > 0
    ]
    return f"GPU {', '.join(lacking)}: no samples in {of.path}" if lacking else ""
