"""`--drive`: a load for the server that is attached to, one number of requests at once after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cufall_py.errors import CufallError, UsageError

from .options import number, option

if TYPE_CHECKING:
    from cufall_py.attachment import Attachment
    from cufall_py.engines.drive import Work
    from cufall_py.engines.driven import Driven

SETTLE_S = 1.5
"""After a load so long is waited, so that a scrape of its end comes."""


def bad_number(flag: str, value: object) -> str:
    return f"{flag} {value}: must be a whole number above 0"


def count_option(flag: str, default: int, metavar: str, help: str) -> Callable[[Any], Any]:
    kind = number(int, lambda value: bad_number(flag, value))
    return option(flag, type=kind, default=default, show_default=bool(default), metavar=metavar, help=help)


OPTIONS = (
    option(
        "--drive",
        default="",
        metavar="N,N,...",
        help="Send a load to the server: so many streamed completions at once, one number after the other.",
    ),
    count_option("--requests", 0, "N", "Requests of each number at once. [default: 4 for each at once]"),
    count_option("--prompt-tokens", 512, "N", "Tokens of a prompt of the load."),
    count_option("--output-tokens", 128, "N", "Tokens that each request of the load asks for."),
    option(
        "--model-name",
        default="",
        metavar="NAME",
        help="The model that the load asks for. [default: the server's first]",
    ),
)


def loads_from(options: dict[str, Any]) -> tuple[Sequence[int], Work] | None:
    """What --drive sends, if it was given. Raises UsageError."""
    from cufall_py.engines.drive import Work, levels

    for flag in ("--requests", "--prompt-tokens", "--output-tokens"):
        value = options[flag[2:].replace("-", "_")]
        if value < (0 if flag == "--requests" else 1):
            raise UsageError(bad_number(flag, value))
    if not options["drive"]:
        return None
    try:
        at_once = levels(options["drive"])
    except ValueError:
        raise UsageError(f"--drive {options['drive']}: must be numbers of requests at once, as in 1,4,16,64") from None
    return at_once, Work(
        options["prompt_tokens"], options["output_tokens"], options["requests"], model=options["model_name"]
    )


class Load:
    """One number of requests at once after the other, in a thread; each is a region of the recording."""

    def __init__(self, attachment: Attachment, at_once: Sequence[int], work: Work, key: str) -> None:
        self._attachment, self._at_once, self._work, self._key = attachment, at_once, work, key
        self._stop, self._done, self._ended_s = threading.Event(), list[Any](), 0.0
        self.failure: CufallError | None = None
        self._thread = threading.Thread(target=self._run, name="cufall-drive", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def over(self) -> bool:
        """Whether all was sent, or something (`failure`) kept it from that, and the scrape after it has come."""
        if self._thread.is_alive():
            return False
        self._ended_s = self._ended_s or time.monotonic()
        return time.monotonic() >= self._ended_s + SETTLE_S

    def stop(self) -> list[Driven]:
        """What came so far; what is under way is not waited for long."""
        self._stop.set()
        self._thread.join(1.0)
        return self._done

    def _run(self) -> None:
        from cufall_py.engines.drive import DriveProblem, drive

        url = self._attachment.servers[0].address
        try:
            for at_once in self._at_once:
                if self._stop.is_set():
                    return
                with self._attachment.region(f"drive-{at_once}", f"{at_once} requests at once"):
                    driven = drive(url, at_once, self._work, self._key, self._stop)
                self._done.append(driven)
                if driven.problems:
                    raise DriveProblem(driven.problems[0])
        except CufallError as error:
            self.failure = error
