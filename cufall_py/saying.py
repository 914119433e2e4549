"""How lines reach a person: what is below the command line and the views prints nothing, and is given a `Say`."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Takes a line that a person should read."""
