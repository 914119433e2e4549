"""`cufall verify`: known work on this GPU, and whether its counters read what they must."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from cufall_py import __version__
from cufall_py.errors import CufallError, SourceError

from . import STDOUT, Verb, end_in_order, say, writing
from .charset import takes
from .options import option

if TYPE_CHECKING:
    from cufall_py.verify.checks import Check, Counted
    from cufall_py.verify.experiment import Counter, Counting, Ncu
    from cufall_py.verify.loads import Card, Loads

SCHEMA = 1
SAMPLE_US = 1000


@click.command(cls=Verb)
@option(
    "--device", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="GPU, as CUDA numbers them."
)
@click.option("--json", "as_json", is_flag=True, help="All of it as JSON on stdout, to send in.")
@click.option("--force", is_flag=True, help="Also on a GPU that others use, whose work is then counted too.")
def verify(device: int, as_json: bool, force: bool) -> None:
    """Hold this GPU's counters against arithmetic: a minute of known work.

    It computes on the GPU (products, copies, waiting), and what it finds is kept for this user: short names that held
    are shown as verified from then on. Ends 0 if all that could be measured held, 3 if something was missed, 4 if
    nothing could be measured.
    """
    if not sys.stdout:
        raise CufallError("stdout is closed, and the findings go there")
    from cufall_py.launch import interpreter
    from cufall_py.verify.loads import ChildLoads
    from cufall_py.verify.ncu import asker

    end_in_order()
    python = interpreter("cupti")
    loads = ChildLoads(python, device)
    try:
        if (users := other_users(loads.card)) and not force:
            raise SourceError(
                f"GPU {device} is in use by {users}, whose work would be counted too; --force does it anyway"
            )
        code = run(loads, Sessions(loads.card), asker(python, device), as_json, bool(users), driver())
    finally:
        loads.close()
    raise Exit(code)


def run(loads: Loads, counting: Counting, ncu: Ncu, as_json: bool, forced: bool, driver: str) -> int:
    """Do it, show it, keep it; the exit code."""
    from cufall_py import verified
    from cufall_py.verify.checks import exit_code
    from cufall_py.verify.experiment import verify as verify_all

    checks = verify_all(loads, counting, ncu, lambda words: say(f"verifying: {words}"))
    document = as_document(loads.card, counting.chip, driver, checks, forced)
    _show(document, checks, as_json)
    if forced:
        say("others used the GPU meanwhile: what held is not kept")
    else:
        try:
            say(f"kept in {verified.keep(document)}: send it in")
        except OSError as error:
            say(f"what was found cannot be kept: {error.filename}: {error.strerror}")
    return exit_code(checks)


def _show(document: dict[str, Any], checks: Sequence[Check], as_json: bool) -> None:
    from cufall_py.views.verification import lines

    with writing(STDOUT):
        if as_json:
            print(json.dumps(document, indent=1, allow_nan=False))
        else:
            print("\n".join(lines(checks, not takes(sys.stdout, "\u2026"))))
        sys.stdout.flush()


def as_document(card: Card, chip: str, driver: str, checks: Sequence[Check], forced: bool) -> dict[str, Any]:
    """What was found, as strict JSON takes it."""
    from cufall_py.export.nulls import or_null
    from cufall_py.verify.checks import verified

    def plain(check: Check) -> dict[str, Any]:
        fields = asdict(check)
        return {k: or_null(v) if isinstance(v, float) else v for k, v in fields.items()}

    return {
        "schema": SCHEMA,
        "cufall": __version__,
        "date": f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
        "driver": driver,
        "gpu": {**asdict(card), "chip": chip},
        "in_use_by_others": forced,
        "verified": list(verified(checks)),
        "checks": [plain(check) for check in checks],
    }


def other_users(card: Card) -> str:
    """Who else computes on it, as NVML tells; empty for nobody. Our own process that computes is one of them."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(card.uuid)
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:  # whatever NVML or a broken installation raises: then nobody can say
        return ""
    from cufall_py.processes import names_of

    if len(found) <= 1:
        return ""
    return ", ".join(dict.fromkeys(names_of([process.pid for process in found])))


def driver() -> str:
    """Its version, as NVML tells."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:
        return "unknown"


class Sessions:
    """Counting by sessions of this GPU."""

    def __init__(self, card: Card) -> None:
        self._card, self.chip = card, ""

    @contextmanager
    def sampling(self, metrics: Sequence[str], source: str = "cupti") -> Iterator[Counter]:
        from cufall_py.plan import Plan
        from cufall_py.resolve import Wanted
        from cufall_py.session import LiveSession

        kept: list[Any] = []
        sample_us = SAMPLE_US if source == "cupti" else 0
        plan = Plan(source=source, devices=self._card.uuid, wanted=Wanted(tuple(metrics)), sample_us=sample_us)
        with LiveSession(plan, on_samples=lambda gpu, samples: kept.append(samples)) as session:
            self.chip = self.chip or session.opened[0].device.chip
            yield SessionCounter(session, kept)


class SessionCounter:
    """The samples of a session that goes on."""

    def __init__(self, session: Any, kept: list[Any]) -> None:
        self._session, self._kept = session, kept
        self._frames, self._reached_ns = session.frames(), 0

    def over(self, start_ns: int, end_ns: int) -> Counted:
        """Takes frames until one begins after the end, so that every sample up to it has come."""
        from cufall_py.samples import Samples
        from cufall_py.verify.checks import counted

        while self._reached_ns <= end_ns:
            self._reached_ns = next(self._frames).start_ns
        return counted(Samples.join(self._kept), self._session.opened[0].metrics, start_ns, end_ns)
