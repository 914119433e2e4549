"""`cufall compare`: did a change of the load, or of the machine, change what the GPUs do?"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from cufall_py.errors import CufallError, InvalidMeasurement, UsageError

from . import STDOUT, Verb, end_in_order, say, writing
from .options import RecordingPath, Texts, option

if TYPE_CHECKING:
    from cufall_py.analysis.comparison import Comparison

MISSED = 3
NEW = "--new"


class Spread(Verb):
    """`--new` takes all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*_spread(args)])


def _spread(words: list[str]) -> Iterator[str]:
    """The words as click takes them, each file of the new side behind a `--new` of its own."""
    is_value = is_another = False
    for word in words:
        if word.startswith("-"):
            is_value, is_another = word == NEW, word.startswith(f"{NEW}=")
        elif is_value:
            is_value, is_another = False, True
        elif is_another:
            yield NEW
        yield word


@click.command(cls=Spread)
@click.argument("base", nargs=-1, required=True, metavar="BASE...", type=RecordingPath())
@option(NEW, multiple=True, required=True, metavar="FILE...", type=RecordingPath(), help="The recordings to compare.")
@option(
    "--fail-if",
    multiple=True,
    type=Texts(),
    metavar="LIMIT",
    help="A change that is too much, as 'tensor.mean -5%' or 'tensor.idle_share[prefill] +2pp'; may be repeated.",
)
@option(
    "--min-effect",
    multiple=True,
    type=Texts(),
    metavar="CHANGE",
    help="With fewer than three runs a side, the least change that counts as shown. [default: 1.5% and 1pp]",
)
@option("--force", is_flag=True, help="Compare what differs in GPU, metric, samples or clocks, or has few samples.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def compare(
    base: tuple[str, ...],
    new: tuple[str, ...],
    fail_if: tuple[str, ...],
    min_effect: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Compare recordings, BASE with --new: what changed, and whether that is more than noise.

    Three or more runs a side tell how runs differ; fewer only the noise within them. Ends 3 if a limit is passed for
    certain, 4 if that cannot be told or the recordings cannot be compared.
    """
    if not sys.stdout:
        raise CufallError("stdout is closed, and the comparison goes there")
    from cufall_py.analysis.comparison import LEAST_SAMPLES, compare as compared
    from cufall_py.analysis.likeness import differences
    from cufall_py.analysis.limits import effects as effects_of, limit
    from cufall_py.analysis.series import Key, Sides, read
    from cufall_py.views.comparison import document, lines

    for side in (base, new):
        _check_each_is_a_run(side)
    limits, effects = [limit(text) for text in fail_if], effects_of(min_effect)
    end_in_order()
    asked = [Key(limit.region, limit.metric, limit.statistic) for limit in limits]
    sides = Sides(*([read(path, asked, say) for path in paths] for paths in (base, new)))
    unlike = differences(sides, limits)
    _refuse(unlike, force)
    found = compared(sides, limits, effects, 0 if force else LEAST_SAMPLES)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    with writing(STDOUT):
        if as_json:
            click.echo(json.dumps(document(found, sides, effects, unlike), indent=1, allow_nan=False))
        else:
            click.echo("\n".join(lines(found, sides, effects, columns)))
    for note in found.notes:
        say(note)
    _end(found)


def _check_each_is_a_run(paths: Sequence[str]) -> None:
    """Raises UsageError for a recording that is there twice: copies do not differ, and would pass for certainty."""
    for one, other in combinations(filter(os.path.isfile, paths), 2):
        if filecmp.cmp(one, other, shallow=False):
            raise UsageError(f"{one} and {other} are one recording; how runs differ is told by runs")


def _refuse(unlike: list[str], force: bool) -> None:
    if unlike and not force:
        raise InvalidMeasurement(f"not comparable: {'; '.join(unlike)}; --force compares all the same")
    for line in unlike:
        say(f"compared all the same: {line}")


def _end(found: Comparison) -> None:
    from cufall_py.analysis.comparison import BEYOND, INCONCLUSIVE
    from cufall_py.views.comparison import told

    if not found.findings:
        raise InvalidMeasurement("the recordings have nothing measured in common")
    if found.lacking:
        raise InvalidMeasurement(f"too little was measured: {'; '.join(map(told, found.lacking))}")
    if unclear := found.that_are(INCONCLUSIVE):
        raise InvalidMeasurement(f"inconclusive: {'; '.join(map(told, unclear))}")
    if missed := found.that_are(BEYOND):
        say(f"changed by more than the limit: {'; '.join(map(told, missed))}")
        raise Exit(MISSED)
