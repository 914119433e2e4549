"""What is known of a chip's metrics, from the tables that come with cufall: rows as data, patterns, costs."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given, strategies as st

from cufall_py.catalogue import Row, base_of, close, document, matching, rows, sets, typed
from cufall_py.costs import COSTS, beside_tensor
from cufall_py.errors import UsageError
from cufall_py.presets import MEANING, PEAKS, SHORT_NAMES
from cufall_py.resolve import Wanted, check
from cufall_py.tables import matches, shipped

CHIPS = ("GH100", "GA100", "GB202", "AD102", "GB100")
"""Those of which every name comes with cufall."""


def row(chip: str, name: str) -> Row:
    (found,) = [row for row in rows(shipped(chip)) if row.name == name]
    return found


GOLDEN = {
    ("GH100", "tensor"): Row(
        name="tensor",
        kind="short name",
        description="cycles in which the tensor pipe was active",
        unit="gpc_cycle",
        clock="gpc_cycle",
        passes=1,
        beside=1,
        peak=4,
        verified=True,
        core=0.035,
        counters=("sm__pipe_tensor_cycles_active_realtime.avg",),
        elapsed="sm__cycles_elapsed.avg",
    ),
    ("GH100", "dram"): Row(
        name="dram",
        kind="short name",
        description="bytes read and written of device memory",
        unit="byte",
        passes=1,
        beside=1,
        verified=True,
        counters=("dram__bytes_read.sum", "dram__bytes_write.sum"),
        elapsed="dram__cycles_elapsed.avg",
    ),
    ("GH100", "sm__pipe_fma_cycles_active.avg"): Row(
        name="sm__pipe_fma_cycles_active.avg",
        kind="counter",
        unit="gpc_cycle",
        clock="gpc_cycle",
        passes=1,
        beside=2,
        elapsed="sm__cycles_elapsed.avg",
    ),
    ("GA100", "tensor"): Row(
        name="tensor",
        kind="short name",
        description="cycles in which the tensor pipe was active",
        unit="gpc_cycle",
        clock="gpc_cycle",
        passes=1,
        beside=1,
        counters=("sm__pipe_tensor_cycles_active.avg",),
        elapsed="sm__cycles_elapsed.avg",
    ),
    ("GA100", "tensor.hmma"): Row(
        name="tensor.hmma",
        kind="short name",
        description="tensor cycles of floating-point products (fp16, bf16, tf32, fp8)",
        absent="this chip does not count tensor cycles by type",
    ),
    ("GB202", "issue"): Row(
        name="issue",
        kind="short name",
        description="instructions issued to the schedulers' slots",
        unit="gpc_cycle",
        clock="gpc_cycle",
        passes=1,
        beside=2,
        counters=("sm__issue_active.avg",),
        elapsed="sm__cycles_elapsed.avg",
    ),
    ("GB202", "sm__throughput.avg.pct_of_peak_sustained_elapsed"): Row(
        name="sm__throughput.avg.pct_of_peak_sustained_elapsed", kind="throughput"
    ),
}
"""Passes and units as NVIDIA's driver told them of each chip, costs as they were read on the H200."""


@pytest.mark.parametrize(("chip", "name"), GOLDEN)
def test_what_a_row_says(chip: str, name: str) -> None:
    assert row(chip, name) == GOLDEN[chip, name]


@pytest.mark.parametrize(
    ("chip", "counters", "ratios", "throughputs"),
    [("GH100", 672, 614, 81), ("GB202", 958, 626, 81), ("GA100", 593, 566, 54)],
)
def test_every_name_is_there_once(chip: str, counters: int, ratios: int, throughputs: int) -> None:
    found = rows(shipped(chip))
    kinds = [row.kind for row in found]
    assert kinds[: len(SHORT_NAMES)] == ["short name"] * len(SHORT_NAMES)
    assert [kinds.count(kind) for kind in ("counter", "ratio", "throughput")] == [counters, ratios, throughputs]
    assert len({row.name for row in found}) == len(found)


@pytest.mark.parametrize("chip", CHIPS)
def test_every_name_is_one_that_can_be_asked_for(chip: str) -> None:
    for found in rows(shipped(chip)):
        check(Wanted((found.name,)))


def test_a_chip_whose_names_did_not_come_has_its_short_names_and_what_was_asked_about() -> None:
    found = {row.name: row for row in rows(shipped("GB203"))}
    assert found["tensor"].passes == 1 and found["tensor"].beside is None
    assert row("GA102", "sm__pipe_tensor_cycles_active.avg").unit == "gpc_cycle"


def test_a_chip_that_no_short_name_is_known_of_has_its_counters() -> None:
    found = rows(shipped("TU102"))
    assert {row.kind for row in found} == {"counter"}
    assert row("TU102", "sm__pipe_tensor_cycles_active.avg").passes == 2


def test_a_chip_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"--chip GX999: .*GA100.*GH100"):
        shipped("GX999")
    with pytest.raises(UsageError, match="did you mean GH100"):
        shipped("gh1000")


def test_the_case_of_a_chip_does_not_count() -> None:
    assert shipped("gh100") == shipped("GH100")


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("", "tensor", True),
        ("TENSOR", "tensor.hmma", True),
        ("sm__*tensor*active", "sm__pipe_tensor_cycles_active.avg", True),
        ("*active", "sm__pipe_tensor_cycles_active_realtime.avg", False),
        ("nvlink-c2c", "c2c.rx", True),
        ("dram__bytes_read", "dram", True),
        ("t?nsor", "tensor", True),
        ("ensor", "sm", False),
        ("[", "tensor", False),
    ],
)
def test_what_a_pattern_fits(pattern: str, name: str, fits: bool) -> None:
    assert (name in {row.name for row in matching(rows(shipped("GH100")), pattern)}) == fits


@given(st.text(st.characters(codec="ascii", exclude_characters="*?["), max_size=12), st.text(max_size=8), st.text())
def test_a_part_of_a_text_fits_it_whatever_its_case(part: str, before: str, after: str) -> None:
    assert matches(part.upper(), before + part.lower() + after)


def test_a_name_that_nearly_fits_is_told_its_neighbours() -> None:
    found = rows(shipped("GH100"))
    assert close(found, "tensr")[0] == "tensor"
    assert close(found, "sm__pipe_tensor_cycle_actve*")[0].startswith("sm__pipe_tensor_cycles_active")
    assert close(found, "qqqqqq") == []


def test_what_sets_cost_is_told_of_the_family_they_were_measured_on() -> None:
    assert len(sets(shipped("GH100"), "")) == len(COSTS)
    assert sets(shipped("GA100"), "") == []
    assert [cost.label for cost in sets(shipped("GH100"), "pcie")] == ["tensor + sm + gr + dram + pcie.rx + pcie.tx"]


def test_a_cost_is_that_of_the_set_with_tensor_alone() -> None:
    assert [(cost := beside_tensor(name, "GH100")) and cost.core for name in ("tensor", "fma", "dram")] == [
        0.035,
        0.050,
        None,
    ]
    assert beside_tensor("tensor", "GA100") is None


def test_dear_is_what_costs_a_fifth_of_a_core_or_more() -> None:
    assert {cost.dear for cost in COSTS if cost.core > 0.2} == {True}
    assert {cost.dear for cost in COSTS if cost.core < 0.07} == {False}


def test_every_short_name_has_a_meaning_and_every_peak_is_a_counters() -> None:
    assert tuple(MEANING) == SHORT_NAMES
    names = {row.name for row in rows(shipped("GH100"))}
    assert set(PEAKS["GH100"]) <= names


def test_the_document_says_what_the_rows_say() -> None:
    tables = shipped("GH100")
    found = matching(rows(tables), "tensor.imma")
    told = document(tables, found, sets(tables, "tensor.imma"))
    assert (told["schema"], told["chip"], told["family"]) == (1, "GH100", "GH100")
    assert told["metrics"] == [asdict(row) for row in found]
    assert told["source"] == "the tables shipped with cufall"
    assert told["sets"]["measured"] == []


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("sm__cycles_active.avg", "sm__cycles_active"),
        ("TPC.TriageCompute.sm__cycles_active.avg", "TPC.TriageCompute.sm__cycles_active"),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm__throughput"),
        ("tensor.hmma", "tensor.hmma"),
    ],
)
def test_a_rollup_is_what_follows_the_name(name: str, base: str) -> None:
    assert base_of(name) == base


def test_usual_rollups() -> None:
    assert typed("counter", "sm__cycles_active") == "sm__cycles_active.avg"
    assert typed("counter", "dram__bytes") == "dram__bytes.sum"
    assert typed("ratio", "lts__t_sector_hit_rate") == "lts__t_sector_hit_rate.ratio"
