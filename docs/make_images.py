"""Takes the pictures of docs/img: `python docs/make_images.py`. Needs tmux, and two minutes: the demo is played."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
METRICS = [word for name in ("tensor", "sm", "gr", "dram", "fma") for word in ("--metric", name)]
PICTURES = {
    "timeline": (132, 13, 41.0, ["demo", "--view", "timeline", "--color", *METRICS]),
    "verdict": (146, 12, 41.0, ["demo", "--view", "verdict", "--color"]),
    "waterfall": (132, 16, 9.4, ["demo", "--color", "--width", "12", *METRICS[:8]]),
}
"""Columns, lines, seconds after the start, and the words after `cufall`."""


def capture(columns: int, lines: int, seconds: float, words: list[str]) -> str:
    """What a terminal shows so long after the start, with its colours."""
    command = " ".join([sys.executable, "-m", "cufall_py", *words])
    tmux = ["tmux", "-L", "cufall-images"]
    size = ["-x", str(columns), "-y", str(lines)]
    subprocess.run(
        [*tmux, "-u", "new-session", "-d", *size, f"COLORTERM=truecolor {command}; sleep 60"], cwd=ROOT, check=True
    )
    try:
        time.sleep(seconds)
        shown = [*tmux, "capture-pane", "-p", "-e"]
        return subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def picture(name: str) -> None:
    columns, lines, seconds, words = PICTURES[name]
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(capture(columns, lines, seconds, words).rstrip("\n")), soft_wrap=True)
    path = ROOT / "docs" / "img" / f"{name}.svg"
    console.save_svg(str(path), title="cufall " + " ".join(words).replace(" --color", ""))


if __name__ == "__main__":
    for wanted in sys.argv[1:] or PICTURES:
        picture(wanted)
