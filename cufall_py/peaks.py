"""What a GPU can do at most by its data sheet: tensor FLOP a cycle, bytes a second. The table is data/peaks.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TABLE = Path(__file__).parent / "data" / "peaks.json"
LEAST = "bf16"
"""The type of factors that every product of the table has; one that it lacks is computed as this."""


@dataclass(frozen=True)
class Peaks:
    """Of one product. `flop`: dense FLOP of the tensor pipe in a cycle of one SM, by type of the factors, sums in fp32.

    `mhz` is the clock that the data sheet's rates hold at. What a GPU could do follows its clock:
    `flop[kind] x sms x clock`.
    """

    names: tuple[str, ...]
    sms: int
    mhz: float
    flop: Mapping[str, float]
    bytes_per_s: float
    source: str

    def flop_per_cycle(self, kind: str) -> float:
        """Of one SM. A type that the chip has no products of is widened to bf16 first, as kernels do."""
        return self.flop.get(kind, self.flop[LEAST])


def peaks_of(name: str) -> Peaks | None:
    """By the name the driver gives a GPU; None if it is not in the table: nothing is assumed of a chip like another."""
    return _table().get(name)


@lru_cache
def _table() -> dict[str, Peaks]:
    products = json.loads(TABLE.read_text(encoding="utf-8"))["products"]
    found = [Peaks(**{**product, "names": tuple(product["names"])}) for product in products]
    return {name: peaks for peaks in found for name in peaks.names}
