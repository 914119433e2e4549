"""Requirements as GitHub Actions shows them: a workflow command for each that did not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cufall_py.judgements import HELD, Judgement
from cufall_py.views.summary import judged_value


def commands(path: str, judgements: Sequence[Judgement]) -> Iterator[str]:
    """A line for each requirement and GPU that was missed or could not be measured."""
    for judgement in judgements:
        if judgement.outcome != HELD:
            told = judgement.why or f"it is {judged_value(judgement)}, of {judgement.samples} samples"
            message = f"{judgement.requirement.text} on {judgement.subject} of {path}: {told}"
            yield f"::error title={_property(f'cufall: {judgement.outcome}')}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
