"""Findings about what sampling needs beside a GPU: memory, a place for rings, a terminal to show it on."""

from __future__ import annotations

from cufall_py.ring_file import SHARE_OF_SPACE

from .facts import Facts, Place, Terminal
from .findings import OK, PROBLEM, UNKNOWN, WARNING, Finding

MIB = 1 << 20
WORKER_BYTES, READER_BYTES = 192 * MIB, 128 * MIB
"""What a worker and the rest of cufall take (docs/benchmarks.md)."""
RING_BYTES = 16 * MIB
LEAST_COLUMNS, LEAST_LINES = 40, 5


def memory(facts: Facts, gpu_count: int) -> Finding:
    need = READER_BYTES + max(1, gpu_count) * WORKER_BYTES
    locked = "" if facts.memlock_bytes is None else f"; RLIMIT_MEMLOCK {size(facts.memlock_bytes)}"
    if facts.memory_bytes is None:
        return Finding("memory", UNKNOWN, f"not known ({facts.why.get('memory_bytes', 'no reason given')}){locked}")
    text = f"{size(facts.memory_bytes)} may be taken here, about {size(need)} are needed{locked}"
    if 0 <= facts.memory_bytes < need:
        return Finding("memory", WARNING, text, "raise the memory limit, or choose fewer GPUs with --devices")
    return Finding("memory", OK, text)


def rings(facts: Facts, gpu_count: int) -> Finding:
    """Which directory would be taken, by the rule of ring_file.create."""
    places, count = facts.places, max(1, gpu_count)
    if places is None:
        return Finding("rings", UNKNOWN, f"not known ({facts.why.get('places', 'no reason given')})")
    taken = next((p for p in places if _takes(p, count, SHARE_OF_SPACE if p is not places[-1] else 1)), None)
    passed = "; ".join(f"{p.path} {_refusal(p)}" for p in places[: places.index(taken) if taken else len(places)])
    if taken is None:
        text = f"no place for {count} rings of {size(RING_BYTES)}: {passed}"
        return Finding("rings", PROBLEM, text, "name a directory of yours with room in CUFALL_RING_DIR")
    text = f"{taken.path} ({size(taken.free_bytes)} free)"
    if passed:
        fix = "start the container with a larger --shm-size" if facts.container else ""
        return Finding("rings", WARNING, f"{text}, for {passed}", fix)
    return Finding("rings", OK, text)


def terminal(facts: Facts) -> Finding:
    shown = facts.terminal
    if shown is None:
        return Finding("terminal", UNKNOWN, "not known")
    if not shown.columns:
        return Finding("terminal", OK, f"none (stdout goes elsewhere), {shown.encoding}")
    text = f"TERM={shown.term or '(unset)'}, {shown.encoding}, {shown.columns} x {shown.lines}, {_colour(shown)}"
    lacks = {
        "export LC_ALL=C.UTF-8 for bands of dots": not is_utf8(shown.encoding),
        "set TERM to what the terminal is, as in TERM=xterm-256color": shown.term in ("", "dumb", "unknown"),
        f"make it {LEAST_COLUMNS} x {LEAST_LINES} or larger": shown.columns < LEAST_COLUMNS
        or shown.lines < LEAST_LINES,
    }
    fix = "; ".join(text for text, applies in lacks.items() if applies)
    return Finding("terminal", WARNING if fix else OK, text, fix)


def size(count: int) -> str:
    """Bytes for a person; -1 is no limit."""
    if count < 0:
        return "unlimited"
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count // MIB} MiB"


def is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("-", "").replace("_", "") == "utf8"


def _takes(place: Place, count: int, share: int) -> bool:
    return place.writable and place.free_bytes >= (count - 1 + share) * RING_BYTES


def _refusal(place: Place) -> str:
    return f"has only {size(place.free_bytes)} free" if place.writable else "is not ours to write to"


def _colour(terminal: Terminal) -> str:
    return "no colour (NO_COLOR)" if terminal.no_color else "colour"
