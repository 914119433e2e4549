"""What is asked of CUPTI's host side for `cufall metrics`, against a chip that is played."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from cufall_py.catalogue import rows
from cufall_py.errors import UsageError
from cufall_py.sources.cupti import tables
from cufall_py.sources.cupti.protocol import CuptiError
from cufall_py.tables import Tables

NAMES = {
    "COUNTER": ["sm__cycles_active", "sm__cycles_elapsed", "sm__pipe_fma_cycles_active", "odd__x"],
    "RATIO": ["lts__hit_rate"],
    "THROUGHPUT": ["sm__throughput"],
}


class PlayedTables:
    """A chip of six metrics. `dear` counters make a set need two passes; `odd__x` is listed and refused."""

    version = 130500

    def __init__(self, more: int = 0) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._names = {**NAMES, "COUNTER": [*NAMES["COUNTER"], *(f"many__{n}" for n in range(more))]}

    def chips(self) -> list[str]:
        return ["GA100", "GH100", "GX999"]

    def chip_here(self, gpu: int = 0) -> str:
        return ["GH100", "GA100"][gpu]

    def base_metrics(self, chip: str, kind: str) -> list[str]:
        return self._names[kind]

    def properties(self, chip: str, metric: str) -> tuple[str, str]:
        if metric == "odd__x":
            raise CuptiError("GetMetricProperties", "INVALID_PARAMETER")
        return f"# of {metric}", "gpc_cycle" if "cycles" in metric else ""

    def passes(self, chip: str, counters: Iterable[str]) -> int:
        wanted = tuple(counters)
        self.asked.append(wanted)
        if "odd__x.sum" in wanted:
            raise CuptiError("ConfigAddMetrics", "UNKNOWN")
        return 2 if "sm__pipe_fma_cycles_active.avg" in wanted and len(wanted) > 1 else 1


def told(answer: dict[str, Any]) -> Tables:
    return Tables(**json.loads(json.dumps(answer["tables"])))


def test_the_chip_here_is_told_of_unless_another_is_named() -> None:
    assert told(tables.answer(PlayedTables(), "", "")).chip == "GH100"
    assert told(tables.answer(PlayedTables(), "ga100", "")).chip == "GA100"


def test_names_units_and_words_are_cuptis() -> None:
    found = told(tables.answer(PlayedTables(), "", "sm__"))
    assert found.names == {"counter": NAMES["COUNTER"], "ratio": NAMES["RATIO"], "throughput": NAMES["THROUGHPUT"]}
    assert found.source == "CUPTI 13.5"
    row = next(row for row in rows(found) if row.name == "sm__cycles_active.avg")
    assert (row.description, row.unit, row.clock, row.passes) == ("# of sm__cycles_active", "gpc_cycle", "gpc_cycle", 1)


def test_whole_sets_are_counted_beside_tensor_sm_and_gr() -> None:
    host = PlayedTables()
    found = told(tables.answer(host, "", "sm__pipe_fma"))
    assert (found.passes["sm__pipe_fma_cycles_active"], found.beside["sm__pipe_fma_cycles_active"]) == (1, 2)
    beside_dram = next(
        asked for asked in host.asked if "dram__bytes_read.sum" in asked and "sm__cycles_active.avg" in asked
    )
    assert {"dram__bytes_write.sum", "dram__cycles_elapsed.avg", "gr__cycles_elapsed.max"} < set(beside_dram)
    assert len(set(beside_dram)) == len(beside_dram)


def test_a_name_that_cupti_lists_and_refuses_is_one_that_nothing_is_known_of() -> None:
    found = told(tables.answer(PlayedTables(), "", "odd"))
    (row,) = [row for row in rows(found) if row.name == "odd__x.sum"]
    assert (row.description, row.unit, row.passes, row.beside) == ("", "", None, None)


def test_a_pattern_finds_words_too() -> None:
    assert "lts__hit_rate" in told(tables.answer(PlayedTables(), "", "# OF LTS")).passes


def test_passes_of_more_than_a_person_reads_are_not_asked() -> None:
    host = PlayedTables(more=200)
    found = told(tables.answer(host, "", "many"))
    assert not any("many" in counter for asked in host.asked for counter in asked)
    assert found.passes["tensor"] == 1
    assert "many__7" in told(tables.answer(PlayedTables(more=200), "", "many__7")).passes


def test_a_chip_without_short_names_has_its_counters() -> None:
    found = told(tables.answer(PlayedTables(), "GX999", "active"))
    assert found.passes == {"sm__cycles_active": 1, "sm__pipe_fma_cycles_active": 1}
    assert found.beside == {}


def test_a_chip_that_cupti_does_not_know_is_usage() -> None:
    failed = tables.answer(PlayedTables(), "GH10", "")["failed"]
    assert failed["kind"] == "UsageError"
    assert "did you mean" in failed["text"]


def test_a_call_that_fails_is_named() -> None:
    class Broken(PlayedTables):
        def chip_here(self, gpu: int = 0) -> str:
            raise CuptiError("DeviceGetChipName", "NOT_INITIALIZED")

    failed = tables.answer(Broken(), "", "")["failed"]
    assert failed == {"kind": "SourceError", "text": "CUPTI's DeviceGetChipName failed with NOT_INITIALIZED"}


def test_without_a_driver_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(tables.ctypes, "CDLL", no_library)
    tables.tell("", "")
    assert json.loads(capsys.readouterr().out)["failed"] == {
        "kind": "NoGpu",
        "text": "no NVIDIA driver here (libcuda.so.1)",
    }


def test_passes_are_of_the_chip_of_the_gpu_that_is_meant() -> None:
    passes = tables.passes_by(PlayedTables(), 1)
    assert passes.chip == "GA100"
    assert passes.of(["sm__pipe_fma_cycles_active.avg"]) == 1
    assert passes.of(["sm__pipe_fma_cycles_active.avg", "sm__cycles_elapsed.avg"]) == 2
    with pytest.raises(UsageError, match=r"^odd__x\.sum: not to be had on GA100 \(CUPTI says UNKNOWN\)$"):
        passes.of(["odd__x.sum"])
