"""`cufall doctor`: can this machine measure, by what, and what to do if not."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from cufall_py.errors import CufallError

from . import STDOUT, Verb, end_in_order, writing
from .charset import encoding_of
from .options import in_colour, option

if TYPE_CHECKING:
    from cufall_py.doctor.diagnosis import Diagnosis
    from cufall_py.doctor.facts import Terminal

PIPE_COLUMNS = 80
"""Width of lines that go to no terminal."""


@click.command(cls=Verb)
@option("--json", "as_json", is_flag=True, help="One JSON document in place of the lines.")
@option("--color/--no-color", default=None, help="Colour the marks. [default: on a terminal]")
def doctor(as_json: bool, color: bool | None) -> None:
    """Say whether this machine can measure, by what, and what to do if not.

    A line a topic, with its fix. Each GPU is really sampled for a moment. Ends 0 if any can be, 1 if none.
    """
    if not sys.stdout:
        raise CufallError("stdout is closed, and the findings go there")
    from cufall_py.doctor.diagnosis import examine
    from cufall_py.doctor.host import Host, gather

    terminal, host = _terminal(), Host()
    end_in_order()
    try:
        diagnosis = examine(gather(host, terminal))
    finally:
        host.close()
    with writing(STDOUT):
        print(json.dumps(diagnosis.to_json(), indent=2) if as_json else _shown(diagnosis, terminal, color), flush=True)
    raise Exit(0 if diagnosis.can_measure else CufallError.exit_code)


def _shown(diagnosis: Diagnosis, terminal: Terminal, color: bool | None) -> str:
    from cufall_py.doctor.surroundings import is_utf8
    from cufall_py.views.doctor import lines

    colour = in_colour(color, os.environ, bool(terminal.columns))
    return "\n".join(lines(diagnosis, terminal.columns or PIPE_COLUMNS, colour, not is_utf8(terminal.encoding)))


def _terminal() -> Terminal:
    from cufall_py.doctor.facts import Terminal

    columns, rows = shutil.get_terminal_size() if sys.stdout.isatty() else (0, 0)
    encoding = encoding_of(sys.stdout)
    return Terminal(os.environ.get("TERM", ""), encoding, bool(os.environ.get("NO_COLOR")), columns, rows)
