"""Short names against CUPTI's own tables of each chip, as a driver told them (cufall_py/data)."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from cufall_py.errors import UsageError
from cufall_py.presets import (
    FAMILIES,
    RATES,
    SHORT_NAMES,
    TIME,
    VERDICT_NAMES,
    VERDICT_SETS,
    VERIFIED,
    Recipe,
    family,
    table,
    verified,
)
from cufall_py.resolve import Wanted, resolve
from cufall_py.tables import DATA

TABLES: dict[str, dict[str, dict[str, Any]]] = json.loads(gzip.decompress(DATA.read_bytes()))
PASSES: dict[str, dict[str, int]] = {chip: told["passes"] for chip, told in TABLES.items()}
COUNTERS: dict[str, dict[str, list[str]]] = {chip: told["names"] for chip, told in TABLES.items() if told["names"]}
CHIPS = [chip for chip in PASSES if family(chip)]
PAIR = Wanted(("sm__pipe_tensor_cycles_active.avg",), "gr__cycles_elapsed.max")


def key(counters: tuple[str, ...]) -> str:
    return "+".join(sorted(set(counters)))


def test_every_promised_family_has_a_chip_in_the_tables() -> None:
    assert {family(chip) for chip in CHIPS} == set(FAMILIES)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", SHORT_NAMES)
def test_a_short_name_resolves_in_one_pass_or_says_why_not(chip: str, name: str) -> None:
    recipe = table(chip)[name]
    if isinstance(recipe, str):
        with pytest.raises(UsageError, match=name):
            resolve(Wanted((name,)), chip)
        return
    if name in RATES:
        assert resolve(Wanted((name,)), chip).counters == recipe.counters  # no elapsed counter, and passes not told
        return
    assert PASSES[chip][key(resolve(Wanted((name,)), chip).counters)] == 1


@pytest.mark.parametrize("chip", CHIPS)
def test_the_verdict_set_is_of_what_the_chip_has(chip: str) -> None:
    names = VERDICT_SETS[str(family(chip))]
    resolve(Wanted(names), chip)
    made = resolve(Wanted(()).with_optional(VERDICT_NAMES), chip)
    assert [metric.label for metric in made.metrics] == list(VERDICT_NAMES)
    assert [metric.label for metric in made.metrics if not metric.absent] == [n for n in VERDICT_NAMES if n in names]


def test_what_is_asked_for_besides_the_verdict_set_must_be_there() -> None:
    made = resolve(Wanted(("l2", "sm")).with_optional(VERDICT_NAMES), "GH100")
    assert [metric.label for metric in made.metrics][:3] == ["l2", "sm", "tensor"]
    with pytest.raises(UsageError, match="fp64 is not to be had"):
        resolve(Wanted(("fp64",)).with_optional(VERDICT_NAMES), "GB202")


def test_launches_are_so_many_a_second() -> None:
    made = resolve(Wanted(("launches",)), "GH100")
    (metric,) = made.metrics
    assert (metric.plain, metric.bounded, metric.unit, metric.peak_unknown) == (True, False, "/s", False)
    assert made.quotients(np.array([[300.0]]), np.array([10_000_000]))[0, 0] == pytest.approx(30_000)
    of_100k = resolve(Wanted(("launches",), full_scale=100_000), "GH100")
    assert of_100k.quotients(np.array([[300.0]]), np.array([10_000_000]))[0, 0] == pytest.approx(0.3)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_engineers_pair_resolves_in_one_pass(chip: str) -> None:
    counters = resolve(PAIR, chip).counters
    assert counters == ("sm__pipe_tensor_cycles_active.avg", "sm__cycles_elapsed.avg", "gr__cycles_elapsed.max")
    assert PASSES[chip][key(counters)] == 1


@pytest.mark.parametrize("chip", COUNTERS)
def test_every_counter_of_a_recipe_is_in_the_chips_list(chip: str) -> None:
    known = set(COUNTERS[chip]["COUNTER"])
    for recipe in table(chip).values():
        if isinstance(recipe, Recipe):
            assert {name.rsplit(".", 1)[0] for name in (*recipe.counters, recipe.elapsed)} <= known | {TIME}


@pytest.mark.parametrize("chip", COUNTERS)
def test_numerator_and_elapsed_are_of_one_unit(chip: str) -> None:
    for recipe in table(chip).values():
        if isinstance(recipe, Recipe) and not recipe.unit:
            units = {name.split("__")[0].split(".")[-1] for name in (*recipe.counters, recipe.elapsed)}
            assert len(units) == 1


@pytest.mark.parametrize(
    ("chip", "expected"),
    [
        ("GH100", "GH100"),
        ("gh100", "GH100"),
        ("GB202", "GB20x"),
        ("GB20B", "GB20B"),
        ("GB100", "GB100"),
        ("GB110", "GB110"),
        ("GA102", "GA10x"),
        ("GA100", "GA100"),
        ("TU102", None),
        ("GR100", None),
        ("", None),
    ],
)
def test_the_longest_name_that_fits_tells_the_family(chip: str, expected: str | None) -> None:
    assert family(chip) == expected


def test_an_unknown_chip_has_no_short_names_but_takes_cuptis_own() -> None:
    with pytest.raises(UsageError, match="GX999"):
        resolve(Wanted(("tensor",)), "GX999")
    assert resolve(PAIR, "GX999").counters


def test_only_what_was_read_on_hardware_is_called_verified() -> None:
    assert set(VERIFIED) == {"GH100"}
    assert all(isinstance(table("GH100")[name], Recipe) for name in VERIFIED["GH100"])
    assert verified("tensor", "GH100") and not verified("fp64", "GH100") and not verified("tensor", "GA100")
