"""cufall: how busy the tensor pipe of every GPU is, many times a second, from outside.

Importing this loads no driver, no CUPTI and no pandas; names are fetched when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Attachment",
    "BackgroundSession",
    "CufallError",
    "Frame",
    "Part",
    "Plan",
    "Playback",
    "Recording",
    "Samples",
    "Session",
    "Wanted",
    "__version__",
    "attach",
    "log_to",
    "mark",
    "mark_begin",
    "mark_end",
]

if TYPE_CHECKING:
    from .attaching import Session, attach
    from .attachment import Attachment
    from .background import BackgroundSession
    from .errors import CufallError
    from .feeding import log_to
    from .frames import Frame
    from .marks import mark, mark_begin, mark_end
    from .part import Part
    from .plan import Plan
    from .playback import Playback
    from .recording_reader import Recording
    from .resolve import Wanted
    from .samples import Samples

_HOMES = {
    "Attachment": "attachment",
    "BackgroundSession": "background",
    "CufallError": "errors",
    "Frame": "frames",
    "Part": "part",
    "Plan": "plan",
    "Playback": "playback",
    "Recording": "recording_reader",
    "Samples": "samples",
    "Session": "attaching",
    "Wanted": "resolve",
    "attach": "attaching",
    "log_to": "feeding",
    "mark": "marks",
    "mark_begin": "marks",
    "mark_end": "marks",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
