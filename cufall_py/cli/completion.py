"""What a shell completes: verbs, options and the names that options take. Asks no driver, so that it comes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_CUFALL_COMPLETE"
"""Set by the scripts in completion/, as click has it."""
GPUS = "/proc/driver/nvidia/gpus"


def answer(cli: click.Command, instruction: str) -> int:
    """Print the script or the words that a shell asked for; returns the exit code."""
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "cufall", VARIABLE, instruction)


def metric_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from cufall_py.presets import MEANING

    return _items(MEANING, incomplete)


def source_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The words of the option's own metavar, as `cupti` and `script:` of cupti|script:FILE; a FILE is any file."""
    from click.shell_completion import CompletionItem

    kinds = (param.metavar or "").split("|")
    found = _items({kind.removesuffix("FILE"): "" for kind in kinds if kind != "FILE"}, incomplete)
    return [*found, CompletionItem(incomplete, type="file")] if "FILE" in kinds and not found else found


def device_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """all, or numbers and UUIDs as the driver's files tell them, the last of a list."""
    before, comma, last = incomplete.rpartition(",")
    known = _gpus(GPUS) if comma else {"all": "every GPU", **_gpus(GPUS)}
    return _items({before + comma + name: said for name, said in known.items()}, before + comma + last)


def _gpus(folder: str) -> dict[str, str]:
    """As many numbers as there are GPUs, then each UUID and its model."""
    from glob import glob

    told = [dict(_field(line) for line in _lines(file)) for file in sorted(glob(f"{folder}/*/information"))]
    uuids = {gpu["GPU UUID"]: gpu.get("Model", "") for gpu in told if "GPU UUID" in gpu}
    return {**{str(number): "" for number in range(len(told))}, **uuids}


def _field(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _items(names: dict[str, str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name, help=said or None) for name, said in names.items() if name.startswith(incomplete)]
