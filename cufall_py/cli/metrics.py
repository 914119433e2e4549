"""`cufall metrics`: what can be measured on a chip, and what each costs."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from cufall_py.errors import CufallError, SourceError, from_json

from . import STDOUT, Verb, end_in_order, say, writing
from .completion import metric_names
from .options import option

if TYPE_CHECKING:
    from cufall_py.tables import Tables


@click.command(cls=Verb)
@click.argument("pattern", default="", shell_complete=metric_names)
@option("--chip", default="", metavar="NAME", help="CUPTI's name of a chip. [default: that of GPU 0 here, else GH100]")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def metrics(pattern: str, chip: str, as_json: bool) -> None:
    """List: short names and counters of a chip, their units, passes and cost.

    PATTERN is a part of a name or description, or a glob of the whole; without it, everything is listed. Where CUPTI
    can be asked, passes are counted for short names, and for CUPTI's own when PATTERN fits no more than 100.
    """
    if not sys.stdout:
        raise CufallError("stdout is closed, and the list goes there")
    end_in_order()
    tables = _known(chip, pattern)
    from cufall_py.catalogue import close, document, matching, rows, sets
    from cufall_py.verified import here
    from cufall_py.views.listing import LEGEND, listing

    verifications = here(tables.chip)
    every = rows(tables, verifications)
    found, measured = matching(every, pattern), sets(tables, pattern)
    if not found:
        near = ", ".join(close(every, pattern))
        raise CufallError(f"{tables.chip} has no metric like {pattern!r}" + (f"; there is {near}" if near else ""))
    if as_json:
        lines = [json.dumps(document(tables, found, measured), indent=1)]
    else:
        lines = [*listing(found, measured, shutil.get_terminal_size().columns if sys.stdout.isatty() else 0)]
    with writing(STDOUT):
        click.echo("\n".join(lines))
    if not as_json:
        say(LEGEND)
        say(f"{tables.chip} by {tables.source}")
        for one in verifications:
            say(f"{', '.join(one.metrics) or 'nothing'}: {one.words()} ({one.date}, cufall verify)")


def _known(chip: str, pattern: str) -> Tables:
    """CUPTI's tables where it can be asked, else the shipped ones; their source says why."""
    from cufall_py.launch import ask
    from cufall_py.tables import USUAL, Tables, shipped

    try:
        answer = ask("sources.cupti.tables:tell", chip, pattern)
        if "failed" in answer:
            raise from_json(answer["failed"])
        return Tables(**answer["tables"])
    except SourceError as error:
        found = shipped(chip or USUAL)
        return replace(found, source=f"{found.source}; CUPTI gave none: {error}")
