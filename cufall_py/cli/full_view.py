"""A view on a full screen: drawn as the terminal takes it, its last picture left behind when the screen has gone."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from . import STDOUT, writing
from .screen import Aside, Screen, full_screen

if TYPE_CHECKING:
    from cufall_py.views.styled import Line


class FullView(ABC):
    """What is seen on a full screen; `shown` puts it there. It is drawn by whoever calls `draw`."""

    def __init__(self, on: Screen, colour: bool, ascii_only: bool) -> None:
        self._screen, self._colour, self._ascii_only = on, colour, ascii_only
        self._size = (0, 0)

    @abstractmethod
    def picture(self, columns: int, lines: int, ascii_only: bool) -> list[Line]:
        """So many lines, each of so many cells."""

    @property
    def outdated(self) -> bool:
        """Whether nothing of what was drawn is there any more, or the terminal has another size."""
        return self._screen.stale or self._screen.size() != self._size

    def draw(self) -> None:
        """Raises Unwritable where the terminal takes no more."""
        self._size = self._screen.size()
        picture, encoding = self._as_text(), "ascii" if self._ascii_only else sys.stdout.encoding
        with writing(STDOUT):
            self._screen.draw(picture, encoding)

    def leave_behind(self) -> None:
        """Write the last picture where a person finds it after the screen has gone."""
        picture = [line.rstrip() for line in self._as_text()]
        with writing(STDOUT):
            print(*picture, sep="\n", flush=True)

    def _as_text(self) -> list[str]:
        from cufall_py.views.styled import to_ansi

        return [to_ansi(line, self._colour) for line in self.picture(*self._size, self._ascii_only)]


V = TypeVar("V", bound=FullView)


@contextmanager
def shown(aside: Aside, view: Callable[[Screen], V]) -> Iterator[V]:
    """The terminal shows this view for as long as this lasts; where that ends by itself, the last picture stays."""
    with aside.held():
        with full_screen(sys.stdin.fileno(), sys.stdout.fileno()) as on:
            made = view(on)
            yield made
        made.leave_behind()
