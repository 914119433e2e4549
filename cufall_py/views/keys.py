"""What the keys of the timeline do: a state, and the state after a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

SPANS_S = (2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 21_600, 86_400)
DEFAULT_SPAN_S = 60
LEAST_SLOTS = 10
"""In the shortest span that is offered."""
SORTS = ("gpu", "now", "mean", "max")
DETAILS = ("auto", "on", "off")

KEYS = (
    ("q", "quit"),
    ("space", "pause, go on"),
    ("+ -", "longer, shorter time"),
    ("m", "next metric alone, then all"),
    ("1 ... 9", "show or hide a metric"),
    ("s", "sort by gpu, now, mean, max of the first metric"),
    ("l", "logarithmic or linear scale"),
    ("i", "clocks, power, processes: where they fit, always, never"),
    ("up down", "move through what does not fit"),
    ("Ctrl-L", "draw anew"),
    ("h", "this help, and back"),
)


@dataclass(frozen=True)
class State:
    """How the timeline is looked at. `hidden`: numbers of metrics; `top`: the first line that is shown."""

    metrics: int
    spans_s: tuple[float, ...] = (DEFAULT_SPAN_S,)
    span: int = 0
    hidden: frozenset[int] = frozenset()
    sort: str = SORTS[0]
    details: str = DETAILS[0]
    linear: bool = False
    paused: bool = False
    help: bool = False
    top: int = 0
    ended: bool = False

    @property
    def span_s(self) -> float:
        return self.spans_s[self.span]

    @property
    def shown(self) -> list[int]:
        """The metrics that are shown, one at least."""
        return [k for k in range(self.metrics) if k not in self.hidden]


def begin(metrics: int, slot_ns: int, most_ns: int, length_s: float | None = None) -> State:
    """The state at the start, for a history of slots of this length that goes back so far.

    What is `length_s` long in all is shown whole, as far as that goes.
    """
    spans_s: tuple[float, ...] = tuple(s for s in SPANS_S if LEAST_SLOTS * slot_ns <= s * 1e9 <= most_ns)
    if length_s is not None:
        whole_s = min(max(length_s, LEAST_SLOTS * slot_ns / 1e9), most_ns / 1e9)
        spans_s = tuple(sorted({*spans_s, whole_s}))
        return State(metrics, spans_s, spans_s.index(whole_s))
    long = [k for k, s in enumerate(spans_s) if s >= DEFAULT_SPAN_S]
    return State(metrics, spans_s, long[0] if long else len(spans_s) - 1)


def pressed(state: State, key: str) -> State:
    """The state after a key; the same for a key that means nothing."""
    if key in tuple("123456789"):
        return _toggled(state, int(key) - 1)
    return DOES[key](state) if key in DOES else state


def _toggled(state: State, metric: int) -> State:
    hidden = state.hidden ^ {metric}
    fits = 0 <= metric < state.metrics and len(hidden) < state.metrics
    return replace(state, hidden=hidden) if fits else state


def _next_metric(state: State) -> State:
    everything = frozenset(range(state.metrics))
    alone = 0 if not state.hidden else state.shown[0] + 1
    return replace(state, hidden=everything - {alone} if alone < state.metrics else frozenset())


def _stretched(by: int) -> Callable[[State], State]:
    return lambda state: replace(state, span=min(max(state.span + by, 0), len(state.spans_s) - 1))


def _moved(by: int) -> Callable[[State], State]:
    return lambda state: replace(state, top=max(state.top + by, 0))


def _after(choices: tuple[str, ...], choice: str) -> str:
    return choices[(choices.index(choice) + 1) % len(choices)]


def _helped(state: State) -> State:
    return replace(state, help=not state.help)


DOES: dict[str, Callable[[State], State]] = {
    "q": lambda state: replace(state, ended=True),
    " ": lambda state: replace(state, paused=not state.paused),
    "+": _stretched(1),
    "=": _stretched(1),
    "-": _stretched(-1),
    "right": _stretched(-1),
    "left": _stretched(1),
    "m": _next_metric,
    "s": lambda state: replace(state, sort=_after(SORTS, state.sort)),
    "l": lambda state: replace(state, linear=not state.linear),
    "i": lambda state: replace(state, details=_after(DETAILS, state.details)),
    "up": _moved(-1),
    "down": _moved(1),
    "h": _helped,
    "?": _helped,
    "escape": lambda state: replace(state, help=False),
}
