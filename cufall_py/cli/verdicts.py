"""The options of verdicts, for every verb that gives them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cufall_py.errors import UsageError

from .options import is_typed, number, option

if TYPE_CHECKING:
    from cufall_py.analysis.verdict_scopes import Judging

LEAST_MS, DEFAULT_MS, MOST_MS = 1, 50, 60_000


def bad_length(value: object) -> str:
    return f"--verdict-ms {value}: must be a whole number from {LEAST_MS} to {MOST_MS}"


OPTIONS = (
    option(
        "--verdict-ms",
        type=number(int, bad_length),
        default=DEFAULT_MS,
        show_default=True,
        metavar="MS",
        help="Length of the frames that verdicts are given of.",
    ),
    option(
        "--verdict-table",
        default="",
        metavar="FILE",
        help="The table that verdicts are read from, as JSON (docs/verdict.md).",
    ),
)


GROUPS = option(
    "--group",
    multiple=True,
    metavar="NAME=GPUS|auto",
    help="GPUs that work together, as decode=4-7 (may be repeated), or auto: those that behave alike. Told are "
    "bubbles, the straggler, skew and lags.",
)


def groups_from(options: dict[str, Any]) -> dict[str, tuple[int, ...]] | None:
    """The groups that are named, by CUDA's numbers; None if none is wanted, empty for auto. Raises UsageError."""
    texts = options["group"]
    if not texts:
        return None
    from cufall_py.analysis.groups import AUTO, named

    if AUTO in texts and len(texts) > 1:
        raise UsageError("--group auto: finds groups by itself, and goes with no other --group")
    return {} if AUTO in texts else named(texts)


NAMED_GROUPS = option(
    "--group",
    multiple=True,
    metavar="NAME=GPUS",
    help="GPUs that a requirement can name as group=NAME, as decode=4-7; may be repeated.",
)


def groups_named(options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Those that requirements can name. Raises UsageError, also for what is named and not required anything of."""
    if not options["require"] and not is_typed("group"):
        return {}  # in the environment it may wait for a report
    groups = named_alone(options)
    if groups and not options["require"]:
        raise UsageError("--group: names GPUs for a --require, such as 'tensor.mean[group=decode] >= 5%'")
    return groups


def named_alone(options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Those that are named. Raises UsageError, also for auto."""
    groups = groups_from(options)
    if groups == {}:
        raise UsageError("--group auto: finds groups in a report; here they are named, as decode=4-7")
    return groups or {}


def length_from(options: dict[str, Any]) -> int:
    """Milliseconds of the frames of verdicts. Raises UsageError."""
    length_ms: int = options["verdict_ms"]
    if not LEAST_MS <= length_ms <= MOST_MS:
        raise UsageError(bad_length(length_ms))
    return length_ms


def judging_from(options: dict[str, Any]) -> Judging:
    """How verdicts are to be given. Raises UsageError."""
    from cufall_py.analysis.decision_table import TABLE, parse
    from cufall_py.analysis.verdict_scopes import Judging

    length_ms, path = length_from(options), options["verdict_table"]
    if not path:
        return Judging(length_ms * 1_000_000, TABLE)
    try:
        return Judging(length_ms * 1_000_000, parse(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, MemoryError, RecursionError, UsageError) as error:
        raise UsageError(f"--verdict-table {path}: {getattr(error, 'strerror', None) or error}") from None
