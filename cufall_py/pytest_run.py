"""What a run of pytest measures with: one session of all its tests, begun when one first asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from .errors import CountersOwned, CufallError, UsageError

if TYPE_CHECKING:
    from .background import BackgroundSession
    from .plan import Plan

SAMPLE_US, DECODE_US = 1000, 50_000
"""A test of a tenth of a second has enough samples, and the last of them are waited for a twentieth at most."""
SAMPLED = ("auto", "cupti", "gpm")


class Run:
    """`options` by name, without the `cufall-` before it; empty for what was not given. `worker_of`: the run of xdist
    that this process works for, or empty. `lines` are for a person, at the end.
    """

    def __init__(self, options: Mapping[str, Any], worker_of: str) -> None:
        self._options, self._worker_of = options, worker_of
        self.records = str(options["record"])
        self._session: BackgroundSession | None = None
        self._failed: CufallError | None = None
        self._held = ExitStack()
        self.lines: list[str] = []

    @property
    def recording(self) -> bool:
        return bool(self.records and self._session)

    def session(self) -> BackgroundSession:
        """Raises CufallError, the same each time, if there can be none."""
        if self._failed:
            raise self._failed
        if not self._session:
            try:
                self._session = self._begin()
            except CufallError as error:
                self._failed = error
                raise
        return self._session

    def say(self, line: str) -> None:
        """Each line once."""
        if line not in self.lines:
            self.lines.append(line)

    def close(self) -> None:
        """End sampling and the recording."""
        session, self._session = self._session, None
        try:
            if session:
                self.say(session.close().line())
        except CufallError as error:
            self.say(str(error))
        finally:
            self._held.close()

    def _begin(self) -> BackgroundSession:
        from .background import BackgroundSession

        plan = self._plan()
        if self._worker_of:
            self._held.enter_context(_turn(self._worker_of))
        return BackgroundSession(plan, self.say, self.records)

    def _plan(self) -> Plan:
        from .plan import SCRIPT, Plan, checked, out_of_limits
        from .resolve import Wanted

        source = self._options["source"] or "auto"
        if source not in SAMPLED and not source.startswith(SCRIPT):
            raise UsageError(f"--cufall-source {source}: not {', '.join(SAMPLED)} or script:FILE")
        asked = self._options["sample-us"] or SAMPLE_US
        try:
            sample_us = int(asked)
        except ValueError:
            raise UsageError(out_of_limits("sample_us", asked)) from None
        wanted, devices = Wanted(tuple(self._options["metric"]) or ("tensor",)), self._options["devices"] or "all"
        return checked(Plan(wanted, devices, source, sample_us=sample_us, decode_us=DECODE_US))


def _turn(run: str) -> AbstractContextManager[object]:
    """Held by the one worker of xdist that samples; gone with its process. Raises CountersOwned in the others."""
    import socket

    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0cufall-pytest-{run}")
    except OSError:
        held.close()
        raise CountersOwned(
            "another worker of xdist samples the GPUs of this run; keep tests that measure in one file, "
            "with --dist loadfile"
        ) from None
    return held
