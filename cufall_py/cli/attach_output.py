"""What `cufall attach` leaves at its end: requirements judged, tables, data, a picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cufall_py.errors import CufallError, InvalidMeasurement

from . import STDOUT, say, talk, writing
from .charset import takes
from .judging import End, meaning_of, verdict
from .places import write_text

if TYPE_CHECKING:
    from cufall_py.engines.driven import Driven
    from cufall_py.judgements import Judgement
    from cufall_py.requirements import Requirement
    from cufall_py.served import Served
    from cufall_py.sources import Opened


class Made(Protocol):
    """What there is to tell of: a recording, and the GPUs of it that are meant."""

    path: Path
    opened: list[Opened]


def judge(
    attachment: Made, requirements: Sequence[Requirement], told: dict[str, Any], options: dict[str, Any]
) -> list[Judgement]:
    from cufall_py.export.summary import judged
    from cufall_py.served_judgements import judge_recording
    from cufall_py.views import tables
    from cufall_py.views.summary import requirements as shown

    if not requirements:
        return []
    found = judge_recording(attachment.path, requirements, _devices(attachment))
    told["requirements"] += [{"file": options["record"], **judged(judgement)} for judgement in found]
    for line in tables.text(shown(found)):
        talk(line)
    return found


def _devices(attachment: Made) -> str:
    return ",".join(str(opened.device.ordinal) for opened in attachment.opened)


def write(
    attachment: Made, driven: Sequence[Driven], judgements: Sequence[Judgement], options: dict[str, Any]
) -> list[str]:
    """The tables, as text or as data, and the picture. Returns why it was no valid measurement of a server."""
    from cufall_py.served import served

    found = served(attachment.path, gpus=[opened.device.ordinal for opened in attachment.opened])
    try:
        if sys.stdout:
            _print(found, driven, judgements, options)
    finally:  # what keeps one from being written keeps not the other
        if options["svg"]:
            from cufall_py.views.served_plot import svg

            write_text(options["svg"], svg(found))
    return [f"{one.log.url}: no page of metrics came" for one in found if not one.log.readings]


def _print(
    found: Sequence[Served], driven: Sequence[Driven], judgements: Sequence[Judgement], options: dict[str, Any]
) -> None:
    with writing(STDOUT):
        if options["as_json"]:
            from cufall_py.export.served import document

            print(json.dumps(document(found, judgements, driven), indent=1, allow_nan=False))
        elif options["csv_path"] != "-":
            print(*_text(found, driven), sep="\n")
        sys.stdout.flush()


def _text(found: Sequence[Served], driven: Sequence[Driven]) -> Iterator[str]:
    from cufall_py.views import tables
    from cufall_py.views.driven import notes, table
    from cufall_py.views.served import as_text

    ascii_only = not takes(sys.stdout, "▇…")
    yield ""
    yield from as_text(found, ascii_only)
    if driven:
        yield from ("", "the load, by the client's own clock")
        yield from tables.text(table(driven), ascii_only)
        yield from notes(driven)


def end_by(end: int, failure: CufallError | None, judgements: Sequence[Judgement], silent: Sequence[str]) -> None:
    """The first that applies, top down, of the table of exit codes. `silent`: of servers that said nothing."""
    if end:
        raise End(end, meaning_of(end))
    if failure and not isinstance(failure, InvalidMeasurement):
        raise failure
    code, why = verdict(judgements, [*([str(failure)] if failure else []), *silent])
    if why:
        say(f"{why} (exit {code})")
    raise End(code, why or "done")
