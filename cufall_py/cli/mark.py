"""`cufall mark`: name a stretch of time in the recordings that are being made."""

from __future__ import annotations

import click

from . import Verb


@click.command(cls=Verb)
@click.argument("name")
@click.option("--end", is_flag=True, help="Close the newest open region of this name.")
@click.option("--pid", type=click.IntRange(1), default=None, metavar="PID", help="Tell this recorder alone.")
@click.option("--text", default="", metavar="TEXT", help="What is seen in it, for a person.")
def mark(name: str, end: bool, pid: int | None, text: str) -> None:
    """Open a region in this user's running recorders (cufall record). Ends 1 if none runs."""
    if end and text:
        raise click.UsageError("--text goes with the begin of a region, not with --end")
    from cufall_py.marks import mark_begin, mark_end

    if end:
        mark_end(name, pid=pid or 0, required=True)
    else:
        mark_begin(name, text, pid=pid or 0, required=True)
