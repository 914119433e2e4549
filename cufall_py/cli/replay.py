"""`cufall replay FILE`: what `live` shows, of a recording."""

from __future__ import annotations

import os
from typing import Any

import click

from . import Verb
from .live import SAMPLED, live, watch
from .options import RecordingPath


def _replay(file: str, **options: Any) -> None:
    watch({**options, "rotate": 0.0, "source": os.path.join(os.curdir, file)})  # a path, whatever its name


replay = Verb(
    "replay",
    params=[
        click.Argument(["file"], type=RecordingPath()),
        *(option for option in live.params if option.name not in SAMPLED),
    ],
    callback=_replay,
    help="Play a recording: no GPU is needed.",
)
