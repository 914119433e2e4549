"""What drawing costs: eight scripted GPUs in a terminal, as the waterfall and as the timeline."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

from bench import Bench, Figures
from harness import cpu_s, cufall, environment

from .cost import FOUR

SOURCE = "script:examples/eight-gpus.json"
COLUMNS, LINES = 160, 50
FROM_S, TO_S = 5.0, 20.0
FIRST_LINE = b"\x1b[1;1H"
"""Stands in every drawing of a timeline: its first line tells the time."""
VIEWS = ("waterfall", "timeline")
WORDS = {"tensor": (), "tensor + sm + gr + dram": FOUR, "the same, decodes of 100 ms": (*FOUR, "--decode-us", "100000")}


def timeline(bench: Bench) -> Figures:
    """The reader's processor time and drawings for both views, 5 to 20 s after the start; needs no GPU."""
    return {f"{view}, {name}": drawn(view, words) for name, words in WORDS.items() for view in VIEWS}


def drawn(view: str, words: tuple[str, ...]) -> Figures:
    outer, inner = pty.openpty()
    fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = cufall(
        *("--source", SOURCE, "--view", view, *words),
        stdin=inner,
        stdout=inner,
        stderr=subprocess.DEVNULL,
        env=environment(TERM="xterm-256color"),
    )
    os.close(inner)
    try:
        taken(outer, FROM_S)
        before_s, began_s = cpu_s([process.pid]), time.monotonic()
        written = taken(outer, TO_S - FROM_S)
        wall_s, used_s = time.monotonic() - began_s, cpu_s([process.pid]) - before_s
    finally:
        process.terminate()
        process.wait()
        os.close(outer)
    return {
        "reader_cpu_pct": 100 * used_s / wall_s,
        "drawings_per_s": written.count(FIRST_LINE if view == "timeline" else b"\n") / wall_s,
        "bytes_per_s": len(written) / wall_s,
    }


def taken(terminal: int, seconds: float) -> bytes:
    """What is written to a terminal in this time; nobody who looks at it makes it wait."""
    out, until = b"", time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left_s)[0]:
            out += os.read(terminal, 65536)
    return out
