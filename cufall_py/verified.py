"""What `cufall verify` found on this machine: kept for this user, and read wherever a short name is shown.

One file a kind of GPU, the newest wins: $XDG_STATE_HOME/cufall/verified (~/.local/state by default).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Verification:
    """Short names that held on a kind of GPU here."""

    chip: str
    gpu: str
    driver: str
    date: str
    metrics: tuple[str, ...]

    def words(self) -> str:
        """Where it holds."""
        return f"verified on {self.gpu}, driver {self.driver}"


def directory() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "cufall" / "verified"


def keep(document: dict[str, Any]) -> Path:
    """Keep what verify found. Raises OSError."""
    path = directory() / (re.sub(r"\W+", "-", document["gpu"]["name"]) + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def here(chip: str) -> tuple[Verification, ...]:
    """What was verified here on this chip; what cannot be read counts for nothing."""
    return tuple(found for found in _all() if found.chip == chip)


def _all() -> Iterator[Verification]:
    try:
        paths = sorted(directory().glob("*.json"))
    except OSError:
        return
    for path in paths:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            gpu = found["gpu"]
            yield Verification(gpu["chip"], gpu["name"], found["driver"], found["date"], tuple(found["verified"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
