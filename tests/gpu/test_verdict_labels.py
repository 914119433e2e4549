"""The judging of labelled loads, on a scripted GPU and scripted processes; needs no hardware."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cufall_py.analysis.decision_table import CLASSES, UNKNOWN
from tests.scripted import script

from .test_verdict import Child, measured, order
from .verdict_labels import Expected, Labelled, confusion, expected, held_out, labelled, listing, thin

COPY = {"ms": 1000.0, "sm": 0.95, "gr": 1.0, "dram": 0.8, "issue": 0.1}
ANSWERS = """
import json, sys, time
print(json.dumps({"gpu": "none"}), flush=True)
for line in sys.stdin:
    name = line.split()[0]
    if name == "crash":
        sys.exit(3)
    if name == "hang":
        time.sleep(60)
    print(json.dumps({"load": name, "start_ns": 1, "end_ns": 2, "ends": name == "last"}), flush=True)
    if name == "last":
        time.sleep(60)
"""


class Sleeping:
    """In the place of the process: whatever is asked for is done by the script, and one load cannot be."""

    def run(self, name: str, seconds: float) -> dict[str, Any]:
        if name == "gemm-fp8-512":
            return {"load": name, "failed": "RuntimeError: no fp8 here"}
        if name == "nanosleep":
            raise RuntimeError("it did not start")
        start_ns = time.time_ns()
        time.sleep(seconds)
        return {"load": name, "start_ns": start_ns, "end_ns": time.time_ns()}

    def close(self) -> None:
        pass


def test_what_is_expected_is_a_class_and_has_a_reason() -> None:
    loads = expected()
    for name, load in loads.items():
        assert load.why, name
        assert set(load.classes) <= set(CLASSES) - {CLASSES[UNKNOWN]}, name
    assert sorted(order()) == sorted(loads)


def test_a_third_is_held_out_by_the_alphabet() -> None:
    assert held_out(["e", "f", "a", "d", "c", "b", "g"]) == ("c", "f")
    assert len(held_out(expected())) == len(expected()) // 3


def test_each_load_is_judged_by_its_frames_and_a_failure_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "loads.cufall"
    names = ["gemm-fp8-512", "device-copy", "nanosleep", "softmax"]
    source = script(tmp_path, pattern=[COPY], chip="GH100")
    found = measured(Sleeping(), path, names, seconds=0.6, source=source)
    assert found.failed == {"gemm-fp8-512": "RuntimeError: no fp8 here", "nanosleep": "it did not start"}
    assert set(found.loads) == {"device-copy", "softmax"}
    for load in found.loads.values():
        assert 10 <= load.frames <= 12
        assert load.shares == {"memory-bound": 1.0}
        assert load.means["dram"] == pytest.approx(0.8, rel=0.01)
        assert load.holds(Expected(("memory-bound",), ""))
        assert not load.holds(Expected(("tensor-bound",), ""))
    thin(path, tmp_path / "thin.cufall")
    kept = labelled(tmp_path / "thin.cufall")
    assert set(kept) == set(found.loads)
    assert all(load.shares == {"memory-bound": 1.0} for load in kept.values())
    assert all(4 <= load.frames <= 6 for load in kept.values())


@pytest.mark.parametrize(
    ("shares", "missing", "classes", "holds"),
    [
        ({"idle": 0.95, "mixed": 0.05}, (), ("idle",), True),
        ({"idle": 0.9, "mixed": 0.1}, (), ("idle",), False),
        ({"idle": 0.9, "mixed": 0.1}, (), ("mixed", "idle"), True),
        ({"unknown": 1.0}, ("launches",), ("launch-bound",), True),
        ({"unknown": 1.0}, ("fma",), ("launch-bound",), False),
        ({"unknown": 1.0}, ("launches",), ("memory-bound",), False),
    ],
)
def test_ninety_five_percent_are_to_be_right(
    shares: dict[str, float], missing: tuple[str, ...], classes: tuple[str, ...], holds: bool
) -> None:
    assert Labelled(20, shares, {}, {}, missing).holds(Expected(classes, "")) is holds


def test_a_load_of_no_frames_is_missed() -> None:
    assert not Labelled(0, {}, {}, {}, ()).holds(Expected(("idle",), ""))


def test_tables_for_the_documentation() -> None:
    loads = {
        "a": Labelled(20, {"memory-bound": 1.0}, {}, {"dram": 0.8, "launches": 12.3}, ()),
        "b": Labelled(20, {"mixed": 0.6, "memory-bound": 0.4}, {}, {"dram": 0.43}, ()),
    }
    wanted = dict.fromkeys(loads, Expected(("memory-bound",), ""))
    assert list(confusion(loads, wanted)) == [
        "| expected | loads | `memory-bound` | `mixed` |",
        "|---|---|---|---|",
        "| `memory-bound` | 2 | 70.0 | 30.0 |",
    ]
    assert list(listing(loads, wanted))[2:] == [
        "| a | memory-bound | memory-bound 100 | 80 | 12 |",
        "| b | memory-bound | mixed 60, memory-bound 40 **missed** | 43 |  |",
    ]


def test_a_process_that_ended_or_hangs_is_begun_anew() -> None:
    child = Child((sys.executable, "-c", ANSWERS), answer_s=5)
    try:
        assert "failed" in child.run("crash", 1)
        assert child.run("softmax", 1) == {"load": "softmax", "start_ns": 1, "end_ns": 2}
        assert child.run("last", 1) == {"load": "last", "start_ns": 1, "end_ns": 2}
        assert child.run("softmax", 1)["load"] == "softmax"
        child._answer_s = 0.5
        assert "failed" in child.run("hang", 1)
        child._answer_s = 5
        assert child.run("idle", 1)["load"] == "idle"
    finally:
        child.close()


@pytest.mark.filterwarnings("ignore")  # of PyTorch, not ours
def test_every_expected_load_is_there() -> None:
    pytest.importorskip("torch", reason="the loads need PyTorch")
    pytest.importorskip("transformers", reason="the loads need transformers")
    from . import verdict_loads

    assert set(verdict_loads.LOADS) == set(expected())
