"""How busy the tensor pipe could have been, as `report` is asked: `--ceiling`, or a model and how it is served."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cufall_py.errors import UsageError

from .options import check_of_peak, is_typed, option

if TYPE_CHECKING:
    from cufall_py.analysis.models import Model
    from cufall_py.headroom import Question
    from cufall_py.report import Report

SCALES = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


MOST, MOST_WHOLE = 1e15, 10**9
"""Of a quantity and of a count: far beyond any model and server, and what is made of them stays finite."""


class Quantity(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number above some least one, with a scale if it has one: 37B, 70K, 0.53."""

    name = "quantity"

    def __init__(self, above: float = 0) -> None:
        self.above = above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().upper()
        scale = SCALES.get(text[-1:], 1.0)
        try:
            number = float(text[:-1] if scale > 1 else text) * scale
        except ValueError:
            number = math.nan
        if not self.above < number <= MOST:
            self.fail(f"{value} is no number above {self.above:g}, to 1000T, such as 37B or 70K", param, ctx)
        return number


OPTIONS = (
    option("--ceiling", is_flag=True, help="How busy the tensor pipe could have been, and what fills the gap."),
    option("--model", default="", metavar="FILE", help="By this model too: its config.json, as Hugging Face has it."),
    option("--active-params", type=Quantity(1), metavar="N", help="Instead: weights that a token meets, such as 37B."),
    option("--weight-bytes", type=Quantity(), metavar="B", help="Bytes of a weight. [default: the model's, else 2]"),
    option(
        "--kv-bytes", type=Quantity(), metavar="B", help="Bytes of cache a token, all layers. [default: the model's]"
    ),
    option("--batch", type=click.IntRange(1, MOST_WHOLE), metavar="N", help="Sequences at once. [default: 1]"),
    option("--context", type=click.IntRange(0, MOST_WHOLE), metavar="N", help="Tokens of each sequence. [default: 0]"),
    option("--phase", type=click.Choice(["prefill", "decode"]), help="What the steps are. [default: decode]"),
    option("--tp", type=click.IntRange(1, MOST_WHOLE), metavar="N", help="GPUs that split each layer. [default: 1]"),
)
OF_MODEL = ("weight_bytes", "kv_bytes", "batch", "context", "phase", "tp")


def question_from(options: dict[str, Any]) -> Question | None:
    """What is asked, None if nothing is. Raises UsageError for what does not go together."""
    of_model = options["model"] or options["active_params"]
    given = [name for name in OF_MODEL if options[name] is not None and is_typed(name)]
    if given and not of_model:
        raise UsageError(f"--{given[0].replace('_', '-')} is of a model: give --model or --active-params too")
    if options["model"] and options["active_params"]:
        raise UsageError("--model and --active-params both say which model it is: give one")
    if options["phase"] == "prefill" and not options["context"]:
        raise UsageError("--phase prefill needs --context: the tokens of each prompt")
    if not (options["ceiling"] or of_model):
        return None
    check_of_peak(options, "a ceiling")
    from cufall_py.analysis.ceiling import Serving
    from cufall_py.headroom import Question

    kv_bytes = math.nan if options["kv_bytes"] is None else options["kv_bytes"]
    batch, context, gpus = options["batch"] or 1, options["context"] or 0, options["tp"] or 1
    serving = Serving(batch, context, options["phase"] == "prefill", gpus, kv_bytes)
    return Question(_model(options) if of_model else None, serving)


def metrics_of(question: Question | None) -> list[str]:
    """What must be in the report to answer it."""
    if not question:
        return []
    from cufall_py.headroom import METRICS

    return list(METRICS)


def lines(report: Report, question: Question | None, ascii_only: bool) -> list[str]:
    """The answer as text."""
    if not question:
        return []
    from cufall_py.headroom import told
    from cufall_py.views.headroom import lines

    kinds = [opened.device.name for opened in report.opened]
    return lines(question, told(report, question), kinds, ascii_only)


def with_ceilings(document: dict[str, Any], reports: Sequence[Report], question: Question | None) -> dict[str, Any]:
    """A report's document, with the answer as `ceilings` of each recording."""
    if not question:
        return document
    from cufall_py.export.headroom import as_data
    from cufall_py.headroom import headrooms

    for recording, report in zip(document["recordings"], reports, strict=True):
        recording["ceilings"] = as_data(question, headrooms(report, question))
    return document


def _model(options: dict[str, Any]) -> Model:
    from cufall_py.analysis.models import kept_in, plain_model

    if options["active_params"]:
        return plain_model(options["active_params"], options["weight_bytes"] or 2.0)
    model = _from_file(options["model"])
    return kept_in(model, options["weight_bytes"]) if options["weight_bytes"] else model


def _from_file(path: str) -> Model:
    from cufall_py.analysis.models import model_from

    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        return model_from(config)
    except OSError as error:
        raise UsageError(f"--model {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--model {path}: it is no text") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"--model {path}: it is no JSON ({error.msg}, line {error.lineno})") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--model {path}: {error}") from None
