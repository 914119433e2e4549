"""CUPTI's host tables, as `cufall metrics` asks for them, against those that come with cufall."""

from __future__ import annotations

from typing import Any

import pytest

from cufall_py.catalogue import rows
from cufall_py.launch import ask
from cufall_py.tables import Tables, shipped

from .measure import note

pytestmark = pytest.mark.gpu


def told(chip: str, pattern: str) -> Tables:
    answer: dict[str, Any] = ask("sources.cupti.tables:tell", chip, pattern)
    return Tables(**answer["tables"])


@pytest.mark.parametrize("chip", ["GH100", "GA100", "GB202", "AD102", "GB100"])
def test_cupti_says_what_the_shipped_tables_say(chip: str) -> None:
    cupti, ours = told(chip, "sm__pipe_tensor"), shipped(chip)
    assert {kind: set(names) for kind, names in cupti.names.items()} == {k: set(n) for k, n in ours.names.items()}
    assert {name: cupti.units[name] for name in ours.units} == ours.units
    both = set(cupti.passes) & set(ours.passes)
    assert {name: cupti.passes[name] for name in both} == {name: ours.passes[name] for name in both}
    beside = {name: (cupti.beside.get(name), passes) for name, passes in ours.beside.items() if name in cupti.beside}
    note(f"tables of {chip}", source=cupti.source, beside=beside)
    assert beside["sm"] == (1, 1)


def test_the_gpu_here_is_told_of_with_words_for_every_counter() -> None:
    found = [row for row in rows(told("", "sm__pipe_tensor_cycles_active")) if row.kind == "counter"]
    assert sum(not row.description for row in found) < len(found) / 10
    (tensor,) = [row for row in found if row.name == "sm__pipe_tensor_cycles_active.avg"]
    assert (tensor.unit, tensor.clock, tensor.passes) == ("gpc_cycle", "gpc_cycle", 1)
