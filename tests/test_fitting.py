"""What fits one pass, as the source tells it, and what of a question cannot be had at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cufall_py.devices import Device
from cufall_py.errors import UsageError
from cufall_py.fitting import Fitting, ask, fitting, with_metrics
from cufall_py.plan import Plan
from cufall_py.presets import VERDICT_NAMES
from cufall_py.resolve import Wanted
from cufall_py.sources import Passes, Source
from cufall_py.sources.script import ScriptProvider, parse
from tests.scripted import script

FIVE = Wanted(("dram", "tensor", "sm", "gr", "fma"))
"""On GH100 counters: tensor 1, sm 1, each with the SM's clock, gr 2, dram 3, fma 2 with the SM's clock again."""


def scripted(**fields: Any) -> ScriptProvider:
    return ScriptProvider(parse(json.dumps({"pattern": [{"ms": 1}], **fields})))


def test_what_fits_is_one_set() -> None:
    assert fitting(scripted(), Plan(FIVE)) == Fitting((("tensor", "sm", "gr", "dram", "fma"),))
    assert fitting(scripted(pass_counters=10), Plan(FIVE)).sets == (("tensor", "sm", "gr", "dram", "fma"),)


def test_what_does_not_is_parted_by_the_counters_that_a_pass_has_room_for() -> None:
    # tensor, sm and gr take 5 of them: with dram 8, with fma 7
    parted = (("tensor", "sm", "gr", "dram"), ("tensor", "sm", "gr", "fma"))
    assert fitting(scripted(pass_counters=9), Plan(FIVE)).sets == parted
    assert fitting(scripted(pass_counters=8), Plan(FIVE)).sets == parted


def test_a_metric_that_no_pass_takes_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"^dram needs 2 passes on GH100, one can be sampled$"):
        fitting(scripted(pass_counters=2), Plan(FIVE))


def test_a_metric_that_the_chip_lacks_is_refused_as_when_it_is_sampled() -> None:
    with pytest.raises(UsageError, match=r"^nvlink\.rx is not to be had on AD102: this chip has no NVLink"):
        fitting(scripted(chip="AD102"), Plan(Wanted(("tensor", "nvlink.rx"))))


def test_of_a_set_what_the_chip_lacks_is_left_out_and_said_and_all_else_comes() -> None:
    # `--set verdict` leaves out on AD102 what does not fit one pass; in turns it is all there
    plan = Plan(Wanted(()).with_optional(VERDICT_NAMES))
    found = fitting(scripted(chip="GA102", pass_counters=9), plan)
    assert {name for one in found.sets for name in one} == set(VERDICT_NAMES) - {"launches"}
    assert all(one[:3] == ("tensor", "sm", "gr") for one in found.sets)
    (line,) = found.left_out
    assert line.startswith("left out: launches is not to be had on GA102: ")


class Mixed:
    """Two GPUs of two chips, of which the second has room for less."""

    def prepare(self) -> None:
        pass

    def devices(self) -> list[Device]:
        return [Device(0, "GPU-0", "One"), Device(1, "GPU-1", "Two")]

    def source(self, device: Device, plan: Plan) -> Source:
        raise NotImplementedError

    def passes(self, device: Device) -> Passes | None:
        chip, room = [("GH100", 99), ("AD102", 4)][device.ordinal]

        def of(counters: Sequence[str]) -> int:
            return -(-len(counters) // room)

        return Passes(chip, of)


def test_a_set_fits_all_chips_that_are_sampled() -> None:
    wanted = Wanted(("tensor", "sm", "dram", "nvlink.rx"))
    assert fitting(Mixed(), Plan(wanted, devices="0")).sets == (("tensor", "sm", "dram", "nvlink.rx"),)
    # the second chip has no NVLink, which is then a matter of the first alone
    assert fitting(Mixed(), Plan(wanted)).sets == (("tensor", "sm", "nvlink.rx"), ("dram",))


def test_a_source_that_gives_all_at_once_has_one_set() -> None:
    class Whole(Mixed):
        def passes(self, device: Device) -> None:
            return None

    assert fitting(Whole(), Plan(FIVE)).sets == (FIVE.metrics,)


def test_a_denominator_goes_with_the_sets_that_have_a_counter() -> None:
    wanted = Wanted(("tensor", "sm__cycles_active.avg"), denominator="gr__cycles_elapsed.max")
    assert with_metrics(wanted, ("tensor",)).denominator == ""
    assert with_metrics(wanted, ("tensor", "sm__cycles_active.avg")).denominator == "gr__cycles_elapsed.max"


def test_it_is_asked_of_a_process_of_its_own(tmp_path: Path) -> None:
    plan = Plan(FIVE, source=script(tmp_path, pass_counters=8))
    assert ask(plan) == Fitting((("tensor", "sm", "gr", "dram"), ("tensor", "sm", "gr", "fma")))
    with pytest.raises(UsageError, match="no such GPU"):
        ask(Plan(FIVE, source=plan.source, devices="7"))
    with pytest.raises(UsageError, match="No such file"):
        ask(Plan(FIVE, source=f"script:{tmp_path}/none.json"))
