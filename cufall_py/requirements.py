"""Requirements: `QTY[sel,...] OP NUMBER[%]`, read from text (judged in judgements.py).

QTY is one of QUANTITIES, `verdict.CLASS`, or METRIC.STAT (last dot) with STAT one of STATISTICS. A selector is the
name of a region (quoted if it holds one of `= , ] "` or a space; within quotes a backslash stands before a quote or a
backslash), `gpu=0-3+5`, `running=16` or `running=12-20`, or `group=NAME`: a group of GPUs that was named, or one of
ROLES, the GPUs of the servers that do that alone. A requirement must hold on each selected GPU.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from operator import ge, gt, le, lt, methodcaller
from types import MappingProxyType
from typing import Any

from .analysis.decision_table import SPELT
from .analysis.statistics import Row, Statistics
from .devices import numbers_in
from .errors import UsageError
from .presets import RATES, SHORT_NAMES

OPERATORS: dict[str, Callable[[float, float], bool]] = {">=": ge, "<=": le, ">": gt, "<": lt}
QUANTITIES: dict[str, Callable[[Row], float]] = {"coverage": lambda row: row.coverage}
"""What is known of a GPU whatever the metric. One whose name ends in `_s` has a unit, any other is a ratio."""
OF_SERVERS = ("generation_tokens_per_s", "prompt_tokens_per_s")
"""What is known of an inference server that was attached to; judged in served_judgements.py."""
ROLES = ("prefill", "decode")
"""What an inference server may do alone; `group=` names the GPUs of those that do."""
ALIASES = {"tokens_per_s": "generation_tokens_per_s"}
STATISTICS: dict[str, Callable[[Statistics], float]] = {
    "mean": lambda of: of.mean,
    "min": lambda of: of.minimum,
    "max": lambda of: of.maximum,
    **{f"p{percent}": methodcaller("percentile", percent) for percent in range(1, 100)},
    "below_1": lambda of: of.below_1,
    "below_10": lambda of: of.below_10,
    "above_90": lambda of: of.above_90,
    "idle_share": lambda of: of.idle_share,
    "longest_idle_s": lambda of: of.longest_idle_s,
}
"""What is known of a metric; units as in QUANTITIES."""
VERDICT = "verdict"
"""`verdict.CLASS` is the share of the time that had this verdict, the class spelt with `_`."""
OF_TIME = ("below_1", "below_10", "above_90", "idle_share", "longest_idle_s")
"""Those that a plain quotient, which is no percent, does not have."""
_NAME, _SPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*"), re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_BARE, _QUOTED = re.compile(r'[^=,\]"\s]+'), re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_RANGE = re.compile(r"[0-9]{1,9}(?:-[0-9]{1,9})?")
_GPUS = re.compile(r"[0-9]{1,9}(?:-[0-9]{1,9})?(?:\+[0-9]{1,9}(?:-[0-9]{1,9})?)*")


@dataclass(frozen=True)
class Requirement:
    """`text` as it was written; `metric` is empty for a quantity that is of none. `region` and `gpus` None: the default
    region, all GPUs. `limit` is a ratio 0..1 or in the unit of the quantity; `percent`: it was written with `%`.
    `running`: the least and the most requests that a server was working on. `role`: one of ROLES, what the servers that
    are meant do alone; empty: whatever they do."""

    text: str
    metric: str
    statistic: str
    region: str | None
    gpus: tuple[int, ...] | None
    operator: str
    limit: float
    percent: bool = False
    running: tuple[int, int] | None = None
    role: str = ""

    @property
    def of_server(self) -> bool:
        """Whether it takes what an inference server said."""
        return self.statistic in OF_SERVERS or self.running is not None

    @property
    def quantity(self) -> str:
        return f"{self.metric}.{self.statistic}" if self.metric else self.statistic

    @property
    def of_unit(self) -> bool:
        """Whether the quantity has a unit, seconds or a rate, and is no ratio."""
        return self.statistic.endswith("_s")

    @property
    def of_rate(self) -> bool:
        """Whether it is so much a second."""
        return self.statistic in OF_SERVERS


def parse(text: str, groups: Mapping[str, tuple[int, ...]] = MappingProxyType({})) -> Requirement:
    """Read one; `groups` are the GPUs of each that `group=` can name.

    Raises UsageError with a line that points at the character that is wrong.
    """
    return _Reader(text, groups).requirement()


def metrics_in(requirements: Sequence[Requirement]) -> tuple[str, ...]:
    """Each metric that is required something of, once."""
    return tuple(dict.fromkeys(r.metric for r in requirements if r.metric not in ("", VERDICT)))


class _Reader:
    """Reads a text from begin to end."""

    def __init__(self, text: str, groups: Mapping[str, tuple[int, ...]]) -> None:
        self._text, self._at, self._groups = text, 0, groups

    def requirement(self) -> Requirement:
        self._skip()
        name_at, name = self._at, self._expect(_NAME, "a quantity, such as tensor.mean")
        metric, statistic = self._quantity(name, name_at)
        selected = self._selectors()
        region, gpus, running, role = (selected.get(kind) for kind in ("region", "gpu", "running", "role"))
        if running and metric and statistic != "mean":
            raise self._error(f"of the times when so many requests ran only {metric}.mean is known", name_at)
        if running and (region is not None or metric == VERDICT or statistic == "coverage"):
            raise self._error("running= goes with METRIC.mean or tokens a second, without a region", name_at)
        operator = self._operator()
        limit, percent = self._limit(metric, statistic)
        self._skip()
        if self._at < len(self._text):
            hint = "; a decimal point is a dot" if self._text[self._at] == "," else ""
            raise self._error(f"nothing may follow the number{hint}")
        of = (region, gpus, operator, limit, percent, running, role or "")
        return Requirement(self._text.strip(), metric, statistic, *of)

    def _quantity(self, name: str, at: int) -> tuple[str, str]:
        name = ALIASES.get(name, name)
        if name in (*QUANTITIES, *OF_SERVERS):
            return "", name
        if name.startswith(f"{VERDICT}."):
            return VERDICT, self._verdict_class(name.removeprefix(f"{VERDICT}."), at + len(VERDICT) + 1)
        metric, dot, statistic = name.rpartition(".")
        if not dot or not (metric in SHORT_NAMES or "__" in metric):
            close = get_close_matches(metric or name, [*SHORT_NAMES, *QUANTITIES, *OF_SERVERS], 1)
            known = f"did you mean {close[0]}?" if close and close[0] != name else KNOWN
            what = "metric" if dot else "quantity"
            raise self._error(f"unknown {what} {metric or name}; {known}", at)
        if statistic not in STATISTICS:
            raise self._error(f"unknown statistic {statistic or '(none)'}; {KNOWN_STATISTICS}", at + len(metric) + 1)
        return metric, statistic

    def _verdict_class(self, name: str, at: int) -> str:
        if name in SPELT:
            return name
        begun = [known for known in SPELT if name and known.startswith(name)]  # up to a `-`, as a person reads it
        close = begun or get_close_matches(name, SPELT, 1)
        raise self._error(f"no verdict {name or '(none)'}; " + (f"did you mean {close[0]}?" if close else VERDICTS), at)

    def _selectors(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if not self._take("["):
            return found
        while True:
            self._skip()
            at = self._at
            kind, value = self._selector()
            if kind in found:
                raise self._error(f"a second {kind}; one is enough", at)
            found[kind] = value
            if self._take("]"):
                return found
            if not self._take(","):
                raise self._error("expected , or ]")

    def _selector(self) -> tuple[str, object]:
        if self._peek('"'):
            return "region", self._unquoted()
        at, word = self._at, self._expect(_BARE, "a region, gpu= or group=")
        if not self._take("="):
            return "region", word
        if word == "gpu":
            return "gpu", self._gpus()
        if word == "running":
            return "running", self._running()
        self._skip()
        value_at, value = self._at, self._expect(_BARE, "a value")
        if word == "group" and value == "all":
            return "group", value
        if word == "group" and value in self._groups:
            return "gpu", self._groups[value]
        if word == "group" and value in ROLES:
            return "role", value
        if word == "group":
            there = ", ".join(["all", *self._groups])
            told = f"there is {there} (--group), of servers {' and '.join(ROLES)}; gpu= names single ones"
            raise self._error(f"no group {value}; {told}", value_at)
        told = f'there are gpu=, running=, group=, and regions ("{word}=..." in quotes)'
        raise self._error(f"unknown selector {word}=; {told}", at)

    def _unquoted(self) -> str:
        found = _QUOTED.match(self._text, self._at)
        if not found:
            raise self._error('this quote has no end (within it, \\" is a quote and \\\\ a backslash)')
        self._at = found.end()
        return re.sub(r"\\(.)", r"\1", found[1])

    def _gpus(self) -> tuple[int, ...]:
        self._skip()
        at, words = self._at, self._expect(_GPUS, "numbers of GPUs, as in 0-3+5")
        try:
            return tuple(dict.fromkeys(numbers_in(words)))
        except ValueError as error:
            raise self._error(str(error), at) from None

    def _running(self) -> tuple[int, int]:
        self._skip()
        at, word = self._at, self._expect(_RANGE, "a number of requests, or a range as in 12-20")
        first, _, last = word.partition("-")
        least, most = int(first), int(last or first)
        if least > most:
            raise self._error(f"{word}: must go up", at)
        if self._peek("."):
            raise self._error(f"a range is written with -, as in {word}-{2 * most}")
        return least, most

    def _operator(self) -> str:
        self._skip()
        for operator in OPERATORS:
            if self._take(operator):
                return operator
        raise self._error("expected one of >= > <= <")

    def _limit(self, metric: str, statistic: str) -> tuple[float, bool]:
        self._skip()
        at, word = self._at, self._expect(_NUMBER, "a number")
        number, percent = float(word), self._take("%")
        if not math.isfinite(number):
            raise self._error("must be a finite number", at)
        if statistic.endswith("_s"):
            if percent:
                raise self._error(f"{statistic} has a unit, and is no percent", self._at - 1)
            return number, False
        limit = number / 100 if percent else number
        if metric in RATES:
            if percent:
                raise self._error(f"{metric} is so much a second, and no percent", self._at - 1)
        elif "__" not in metric or percent:  # what a counter comes to may be a plain quotient
            self._check_ratio(limit, word, percent, at)
        return limit, percent

    def _check_ratio(self, limit: float, word: str, percent: bool, at: int) -> None:
        if limit > 1:
            hint = "" if percent or limit > 100 else f'; did you mean "{word}%"?'
            raise self._error(f"a ratio is 0 to 1, or 0% to 100%{hint}", at)
        if limit < 0:
            raise self._error("a ratio is 0 to 1, or 0% to 100%", at)

    def _expect(self, pattern: re.Pattern[str], what: str) -> str:
        found = pattern.match(self._text, self._at)
        if not found:
            raise self._error(f"expected {what}")
        self._at = found.end()
        return found[0]

    def _take(self, sign: str) -> bool:
        self._skip()
        if not self._peek(sign):
            return False
        self._at += len(sign)
        return True

    def _peek(self, sign: str) -> bool:
        return self._text.startswith(sign, self._at)

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _error(self, problem: str, at: int | None = None) -> UsageError:
        return pointed(self._text, self._at if at is None else at, problem)


VERDICTS = f"there are {', '.join(SPELT)}"
KNOWN_STATISTICS = "there are mean, min, max, p1 to p99, " + ", ".join(OF_TIME)
OF_NONE = ", ".join((*QUANTITIES, "verdict.CLASS", *OF_SERVERS))
KNOWN = f"there are {OF_NONE}, and METRIC.STAT of a metric: {', '.join(SHORT_NAMES)} or a counter"


def pointed(text: str, at: int, problem: str) -> UsageError:
    """An error at a character of a requirement: the problem, the text, a caret below it."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in text)
    before = sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in shown[:at])
    return UsageError(f"--require: {problem} (character {at + 1})\n  {shown}\n  {'':{before}}^")
