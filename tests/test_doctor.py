"""What the doctor says of a machine, from facts alone: played machines, golden screens, properties."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cufall_py.devices import Device
from cufall_py.doctor import surroundings
from cufall_py.doctor.diagnosis import examine
from cufall_py.doctor.facts import Facts, Holder, Libraries, Place, Processes
from cufall_py.doctor.findings import Finding, named
from cufall_py.ring import DEFAULT_BYTES
from cufall_py.views.doctor import lines
from tests.doctored import (
    DENIED,
    GIB,
    HEALTHY,
    MACHINES,
    MIB,
    NO_DRIVER,
    OWNED,
    SAMPLED,
    both,
    broken,
    cuda,
    nvml,
    screens,
    uuid,
    without_gpm,
)

SCREENS = Path(__file__).parent / "data" / "doctor-machines.txt"


def finding(facts: Facts, topic: str) -> Finding:
    (found,) = [f for f in examine(facts).findings if f.topic == topic]
    return found


def test_what_is_said_of_each_played_machine() -> None:
    assert screens() == SCREENS.read_text(encoding="utf-8").removesuffix("\n")


CAN_BY = {
    "cupti": ["healthy", "dcgm idle", "mig ok", "lost", "hidden", "pynvml", "spark", "small"],
    "gpm": ["old driver, Hopper", "denied, user, gpm"],
    "cupti gpm": ["owned by dcgm", "owned by cufall", "owned unseen", "owned hidepid"],
}


@pytest.mark.parametrize("name", MACHINES)
def test_it_can_measure_exactly_where_a_gpu_can_be_sampled(name: str) -> None:
    found = examine(MACHINES[name])
    by = " ".join(source for source, ordinals in found.sources.items() if ordinals)
    assert by == next((sources for sources, names in CAN_BY.items() if name in names), "")
    assert found.can_measure == bool(by)
    assert found.answer.startswith("This machine can measure" if by else "This machine cannot measure (")


@pytest.mark.parametrize("name", MACHINES)
def test_there_is_one_thing_to_do_next(name: str) -> None:
    found = examine(MACHINES[name])
    assert found.next_step and "\n" not in found.next_step
    if not found.can_measure:
        assert any(f.state == "problem" for f in found.findings)


@pytest.mark.parametrize("name", ["wsl", "wsl by flag", "vgpu", "vgpu flag", "cc", "arch", "jetson"])
def test_no_permission_is_advised_where_none_helps(name: str) -> None:
    said = " ".join(f"{f.text} {f.fix}" for f in examine(MACHINES[name]).findings)
    assert not any(word in said for word in ("sudo", "SYS_ADMIN to", "--cap-add", "NVreg_"))


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"uid": 1000}, "run as root: sudo /opt/cufall/bin/cufall"),
        ({"uid": 0, "container": "docker"}, "start the container with --cap-add SYS_ADMIN"),
        ({"uid": 0, "container": "podman"}, "start the container with --cap-add SYS_ADMIN"),
        ({"uid": 0, "container": "kubernetes"}, "add SYS_ADMIN to the container's securityContext.capabilities"),
        (
            {"uid": 7, "container": "docker"},
            "start the container with --cap-add SYS_ADMIN"
            ", as root, for an added capability does not reach another user",
        ),
    ],
)
def test_the_way_out_is_the_one_that_applies_here(changes: dict[str, Any], fix: str) -> None:
    facts = broken(attempts=both(DENIED), admin_only=True, nvml=without_gpm(), **changes)
    assert examine(facts).next_step == fix
    assert finding(facts, "permission").fix.startswith(f"{fix}; or for every user, for good: options nvidia NVreg_")


@pytest.mark.parametrize(
    ("admin_only", "capabilities", "state"),
    [
        (False, 0, "ok"),
        (True, 1 << 21, "ok"),
        (True, 1 << 38, "ok"),
        (True, 0, "problem"),
        (True, 1 << 12, "problem"),
        (True, None, "unknown"),
        (None, 1 << 21, "unknown"),
    ],
)
def test_permission_is_foretold_where_no_gpu_was_tried(
    admin_only: bool | None, capabilities: int | None, state: str
) -> None:
    facts = replace(NO_DRIVER, admin_only=admin_only, capabilities=capabilities)
    assert finding(facts, "permission").state == state


def test_gpus_are_joined_by_uuid_and_not_by_number() -> None:
    # cards A, B, C of NVML are C, A, B to CUDA
    cards = {"A": 0x10, "B": 0x20, "C": 0x30}
    facts = broken(
        nvml=tuple(nvml(n, cards[card], name=f"card {card}") for n, card in enumerate("ABC")),
        cuda=tuple(cuda(n, cards[card]) for n, card in enumerate("CAB")),
        attempts={0: SAMPLED, 1: SAMPLED, 2: SAMPLED},
    )
    for ordinal, card, index in ((0, "C", 2), (1, "A", 0), (2, "B", 1)):
        text = finding(facts, f"gpu {ordinal}").text
        assert f"{uuid(cards[card])}, PCI 0000:{cards[card]:02x}:00.0, CUDA {ordinal}, NVML {index}" in text


def test_a_mig_instance_is_joined_with_its_gpu_by_pci() -> None:
    instance = Device(0, "GPU-of-an-instance", "NVIDIA H200 MIG 1g.18gb", "0000:1B:00.0")
    facts = broken(cuda=(instance,), attempts={0: SAMPLED}, nvml=(nvml(0, 0x18), nvml(1, 0x1B, mig=True)))
    assert "NVML 1" in finding(facts, "gpu 0").text
    assert finding(facts, "mig").text == "on at GPU 0: what is measured is the instance that CUDA shows, not the GPU"


def test_a_gpu_that_is_owned_or_denied_leaves_the_others_alone() -> None:
    found = examine(broken(attempts={0: SAMPLED, 1: OWNED}, nvml=without_gpm()))
    assert (found.can_measure, found.sources["cupti"]) == (True, [0])
    assert found.answer == "This machine can measure GPU 0 by cupti, but not GPU 1."


def test_a_virtual_gpu_that_is_owned_is_owned() -> None:
    facts = broken(attempts=both(OWNED), nvml=without_gpm(virtual="vgpu"))
    assert finding(facts, "vgpu").state == "ok"
    assert finding(facts, "owner").state == "problem"


def test_another_cufall_is_named_by_its_ring() -> None:
    facts = broken(attempts={0: SAMPLED, 1: replace(OWNED, owner=4711)})
    assert "cufall, process 4711" in finding(facts, "owner").text


def test_a_profiler_that_runs_and_holds_nothing_is_no_trouble() -> None:
    dcgm = Processes((Holder(77, "nv-hostengine (DCGM)"),))
    assert finding(broken(processes=dcgm), "owner").state == "ok"
    assert finding(replace(NO_DRIVER, processes=dcgm), "owner").state == "warning"


def test_a_lost_gpu_is_told_and_the_other_measures() -> None:
    found = examine(MACHINES["lost"])
    assert found.can_measure
    assert "GPU is lost" in finding(MACHINES["lost"], "nvml 0").text


@pytest.mark.parametrize(
    ("version", "state"), [("579.99", "warning"), ("580.0", "ok"), ("610.1.2", "ok"), ("garbage", "ok")]
)
def test_the_driver_that_cupti_13_needs(version: str, state: str) -> None:
    assert finding(broken(driver=version), "driver").state == state
    assert finding(broken(driver=version, attempts=both(DENIED)), "driver").state == state
    nothing_serves = broken(driver=version, attempts=both(DENIED), nvml=without_gpm())
    assert finding(nothing_serves, "driver").state == ("ok" if state == "ok" else "problem")


@pytest.mark.parametrize(
    ("version", "state"), [("8.0.4", "warning"), ("11.5.3", "warning"), ("12.0.0", "ok"), ("None", "ok"), ("", "ok")]
)
def test_the_old_pynvml_is_named(version: str, state: str) -> None:
    found = finding(broken(bindings={"nvidia-ml-py": "13.0", "pynvml": version}), "nvml")
    assert found.state == state
    assert ("pip uninstall pynvml" in found.fix) == (state == "warning")


def test_rings_go_where_a_worker_would_put_them() -> None:
    assert surroundings.RING_BYTES == DEFAULT_BYTES
    shm = Place("/dev/shm/cufall-1", True, (4 + 1) * 16 * MIB)  # two rings: four times the second's room is free
    tmp = Place("/tmp/cufall-1", True, 32 * MIB)
    assert finding(broken(places=(shm, tmp)), "rings").text.startswith("/dev/shm")
    assert finding(broken(places=(replace(shm, free_bytes=shm.free_bytes - 1), tmp)), "rings").text.startswith("/tmp")
    full = broken(places=(replace(shm, writable=False), replace(tmp, free_bytes=1)))
    assert finding(full, "rings").state == "problem"
    assert not examine(full).can_measure


def test_a_limit_on_memory_is_held_against_what_all_gpus_take() -> None:
    assert finding(broken(memory_bytes=1 * GIB), "memory").state == "ok"
    assert finding(broken(memory_bytes=1 * MIB), "memory").state == "warning"
    assert "RLIMIT_MEMLOCK unlimited" in finding(broken(memlock_bytes=-1), "memory").text


def test_ordinals_are_listed_as_runs() -> None:
    assert [named(n) for n in ([3], [0, 1, 2], [0, 2], [7, 1, 2, 4])] == [
        "GPU 3",
        "GPUs 0-2",
        "GPUs 0 and 2",
        "GPUs 1-2, 4 and 7",
    ]


UNTOLD = st.lists(st.sampled_from([f.name for f in fields(Facts) if f.default is None]), unique=True)


@given(st.sampled_from(sorted(MACHINES)), UNTOLD, st.integers(1, 300), st.booleans())
def test_whatever_could_not_be_told_there_is_an_answer_that_fits(
    name: str, untold: list[str], width: int, ascii_only: bool
) -> None:
    found = examine(replace(MACHINES[name], **dict.fromkeys(untold)))
    shown = lines(found, width, False, ascii_only)
    assert found.answer.startswith("This machine can")
    assert " ".join(shown[:2]).startswith(("This machine can measure", "This machine cannot"))
    assert not ascii_only or "\n".join(shown).isascii()
    assert [line for line in shown if not fits(line, width)] == []


def fits(line: str, width: int) -> bool:
    """In what is left of the 16 columns of mark and topic; a path or a command's word stays whole, by itself."""
    return len(line) <= max(width, 40) or len(line[16:].split()) == 1


FOLDERS = st.text("abc-._/", max_size=200).map(lambda path: f"/{path}")
HOLDERS = st.builds(Holder, st.integers(1, 1 << 22), st.sampled_from(["cufall", "nv-hostengine (DCGM)", "ncu"]))


@given(st.sampled_from(sorted(MACHINES)), FOLDERS, st.lists(HOLDERS, max_size=60), st.integers(40, 130), st.booleans())
def test_paths_and_lists_of_processes_of_any_length_fit(
    name: str, folder: str, holders: list[Holder], width: int, colour: bool
) -> None:
    """However long, and however many."""
    libraries = Libraries(f"{folder}/python", 0, {"cupti-python": "13.4.0"}, (f"{folder}/a", f"{folder}x/b"))
    machine = replace(
        MACHINES[name],
        libraries=libraries,
        places=(Place(folder, True, 64 * MIB),),
        processes=Processes(tuple(holders), hidden=len(holders)),
        command=f"env CUFALL_PYTHON={folder} {folder}/cufall",
    )
    shown = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines(examine(machine), width, colour, False)]
    assert [line for line in shown if not fits(line, width)] == []
    told = " ".join(" ".join(shown).split())
    assert all(f"process {holder.pid}" in told for holder in holders)


def test_colour_paints_marks_and_the_answer_and_nothing_else() -> None:
    plain, painted = (lines(examine(HEALTHY), 100, colour, False) for colour in (False, True))
    bare = "\n".join(painted)
    for code in ("\x1b[1;32m", "\x1b[32m", "\x1b[1m", "\x1b[0m"):
        assert code in bare
        bare = bare.replace(code, "")
    assert bare == "\n".join(plain)


def test_json_is_one_document_with_a_version() -> None:
    told = examine(MACHINES["owned by cufall"]).to_json()
    assert (told["schema"], told["can_measure"], told["sources"]) == (1, True, {"cupti": [0], "gpm": [1]})
    assert {"topic", "state", "text", "fix"} == set(told["findings"][0])
