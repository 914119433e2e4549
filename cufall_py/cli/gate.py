"""What is required of a recording that is being made: checked before anything is started, judged at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cufall_py.errors import CufallError, InvalidMeasurement, UsageError

from . import Unwritable, end_in_order, say
from .judging import JUNIT, annotate, as_data, reading_of, tell, verdict
from .places import write_text
from .playing import recording_of

if TYPE_CHECKING:
    from cufall_py.playback import Playback
    from cufall_py.recorder import Outcome
    from cufall_py.requirements import Requirement
    from cufall_py.session import LiveSession
    from cufall_py.turns import Turns

    from .judging import Found


def check_asked(requirements: Sequence[Requirement], options: dict[str, Any]) -> None:
    """What can be known of requirements before anything is started. Raises UsageError."""
    if options["junit"] and not requirements:
        raise UsageError(JUNIT)
    output = options["output"]
    if requirements and os.path.exists(output) and not os.path.isfile(output):
        raise UsageError(f"-o {output}: is no file, and what is required is judged of the file")
    if not recording_of(options["source"]):
        check_sampled(requirements, options["metrics"])


def check_sampled(requirements: Sequence[Requirement], metrics: Sequence[str]) -> None:
    """Raises UsageError for the first that is of a metric which is not among these."""
    from cufall_py.requirements import metrics_in, pointed

    for requirement in requirements:
        if not set(metrics_in([requirement])) <= set(metrics):
            told = f"{requirement.metric} is not sampled; --metric names it and the others ({', '.join(metrics)})"
            raise pointed(requirement.text, 0, told)


def check_recordable(requirements: Sequence[Requirement], source: LiveSession | Turns | Playback) -> None:
    """Raises UsageError for a requirement on a GPU or metric that will not be in the recording."""
    from cufall_py.judgements import check
    from cufall_py.recorded_metrics import Recorded
    from cufall_py.report import sets_of
    from cufall_py.requirements import metrics_in, pointed

    gpus = source.recordable
    sets, lacking = sets_of(source.plan.wanted, metrics_in(requirements), [Recorded(gpu) for gpu in gpus])
    for requirement in requirements:
        if why := lacking.get(requirement.metric):
            raise pointed(requirement.text, 0, why)
        check(requirement, [gpu.device.ordinal for gpu in gpus], sets[0].metrics)


def judge(
    path: Path, requirements: Sequence[Requirement], recorded: Outcome, options: dict[str, Any], told: dict[str, Any]
) -> Outcome:
    """How it ends all in all, when the recording has ended so. A signal that comes meanwhile ends it in order."""
    end_in_order()
    outcome = _judged(path, requirements, recorded, options, told)
    is_open = recorded.exit_code in (0, InvalidMeasurement.exit_code) and not recorded.own
    return outcome if is_open else recorded  # a signal, the command's own end and what failed come before


def _judged(
    path: Path, requirements: Sequence[Requirement], recorded: Outcome, options: dict[str, Any], told: dict[str, Any]
) -> Outcome:
    """What the requirements come to on what was recorded, however that ended; a person is told all of it."""
    from cufall_py.recorder import COMMAND, Outcome
    from cufall_py.served_judgements import judged

    if options["command"]:  # that is meant even if it ended before its region began
        requirements = [replace(r, region=COMMAND if r.region is None else r.region) for r in requirements]
    try:
        found = [judged(reading_of(str(path), requirements), requirements)]
    except CufallError as error:
        say(f"the requirements are not judged: {error}")
        return Outcome(error.exit_code, f"the requirements are not judged: {error}")
    told["requirements"] += as_data(found)
    tell(found)
    annotate(options["annotate"], os.environ, found)
    try:
        _write_junit(options["junit"], found)
    except Unwritable as error:
        say(str(error))
        return Outcome(CufallError.exit_code, str(error))
    code, why = verdict(found[0][1], [recorded.why] if recorded.exit_code else [])
    return Outcome(code, why if code else f"{recorded.why}; {why}")


def _write_junit(path: str, found: Found) -> None:
    from cufall_py.export.junit import junit

    if path:
        write_text(path, junit(found))
