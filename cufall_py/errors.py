"""Everything cufall raises on purpose, each with the exit code it ends a command with.

CufallError (1, could not run)
├── UsageError (2)
├── InvalidMeasurement (4)
├── RequirementMissed (3)
└── SourceError (1)
    ├── LibraryProblem      CUPTI is missing, incomplete, mixed or too old
    ├── NoGpu               no driver, or no GPU that was asked for
    ├── CountersDenied      the driver keeps the counters from this user
    ├── CountersOwned       another profiler holds the GPU's PM unit
    └── Unsupported         this GPU, platform or counter set cannot be sampled
        └── AbsentUnit      the GPU lacks the unit whose counters were asked for
"""

from __future__ import annotations

from collections.abc import Callable


class CufallError(Exception):
    """A failure a person can act on: its text is one line that says what failed and what to do."""

    exit_code = 1


class UsageError(CufallError):
    """What was asked for is not something cufall can be asked for."""

    exit_code = 2


class InvalidMeasurement(CufallError):
    """It ran, but what it measured cannot be used."""

    exit_code = 4


class RequirementMissed(CufallError):
    """It was measured, and is not what it must be."""

    exit_code = 3


class SourceError(CufallError):
    """A source could not be opened or stopped giving samples."""


class LibraryProblem(SourceError):
    """CUPTI is missing, incomplete, mixed or too old."""


class NoGpu(SourceError):
    """No driver, or no GPU that was asked for."""


class CountersDenied(SourceError):
    """The driver keeps the counters from this user."""


class CountersOwned(SourceError):
    """Another profiler holds the GPU's PM unit."""


class Unsupported(SourceError):
    """This GPU, platform or counter set cannot be sampled."""


class AbsentUnit(Unsupported):
    """The GPU lacks the unit whose counters were asked for."""


def error_of(step: Callable[[], object]) -> CufallError | None:
    """What kept a step from being done, where there is more to do before it is raised; None if nothing did."""
    try:
        step()
    except CufallError as error:
        return error
    return None


def as_json(error: CufallError) -> dict[str, str]:
    """An error as it crosses a pipe."""
    return {"kind": type(error).__name__, "text": str(error)}


def from_json(data: dict[str, str]) -> CufallError:
    """The error that crossed a pipe, as what it was."""
    return _kinds(CufallError).get(data["kind"], SourceError)(data["text"])


def _kinds(base: type[CufallError]) -> dict[str, type[CufallError]]:
    below = [kind for child in base.__subclasses__() for kind in _kinds(child).values()]
    return {kind.__name__: kind for kind in (base, *below)}
