"""Machines as the doctor sees them: a healthy one of two H200s, and what makes others of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cufall_py.devices import Device
from cufall_py.doctor.diagnosis import examine
from cufall_py.doctor.facts import Attempt, Facts, Holder, Libraries, NvmlGpu, Place, Processes, Terminal
from cufall_py.views.doctor import lines

GIB, MIB = 1 << 30, 1 << 20
FOLDER = "/opt/cufall/lib/python3.12/site-packages/nvidia/cu13/lib"
PATHS = tuple(f"{FOLDER}/{name}" for name in ("libcupti.so.13", "libnvperf_host.so", "libnvperf_target.so"))
DENIED = Attempt(kind="CountersDenied", text="GPU 0 (NVIDIA H200): the driver keeps the counters; run as root")
OWNED = Attempt(kind="CountersOwned", text="GPU 0 (NVIDIA H200): another profiler holds its counters")
SAMPLED = Attempt(chip="GH100")


def uuid(card: int) -> str:
    return f"GPU-{card:08x}-1111-2222-3333-444444444444"


def cuda(ordinal: int, card: int, **more: Any) -> Device:
    return Device(ordinal, uuid(card), "NVIDIA H200", f"0000:{card:02x}:00.0", 132, **more)


def nvml(index: int, card: int, **more: Any) -> NvmlGpu:
    whole = NvmlGpu(index, uuid(card), "NVIDIA H200", f"00000000:{card:02X}:00.0", (9, 0), False, "none", True)
    return replace(whole, **more)


HEALTHY = Facts(
    kernel="6.8.0-51-generic",
    machine="x86_64",
    jetson=False,
    container="",
    uid=1000,
    capabilities=0,
    admin_only=False,
    command="/opt/cufall/bin/cufall",
    driver="580.159.04",
    cuda=(cuda(0, 0x1B), cuda(1, 0x18)),
    nvml=(nvml(0, 0x18), nvml(1, 0x1B)),
    confidential="off",
    bindings={"nvidia-ml-py": "13.580.82"},
    libraries=Libraries(
        "/opt/cufall/bin/python", 130500, {"cupti-python": "13.4.0", "nvidia-cuda-cupti": "13.5.25"}, PATHS
    ),
    attempts={0: SAMPLED, 1: SAMPLED},
    processes=Processes(),
    memory_bytes=100 * GIB,
    memlock_bytes=8 * MIB,
    places=(Place("/dev/shm/cufall-1000", True, 64 * GIB), Place("/tmp/cufall-1000", True, 10 * GIB)),
    terminal=Terminal("xterm-256color", "utf-8", False, 120, 40),
)


def both(attempt: Attempt) -> dict[int, Attempt]:
    return {0: attempt, 1: attempt}


def without_gpm(**more: Any) -> tuple[NvmlGpu, ...]:
    return (nvml(0, 0x18, gpm=False, **more), nvml(1, 0x1B, gpm=False, **more))


def broken(**changes: Any) -> Facts:
    """The healthy machine but for these facts."""
    return replace(HEALTHY, **changes)


NO_DRIVER = broken(
    driver=None,
    cuda=None,
    nvml=None,
    nvml_error="LibraryNotFound",
    confidential=None,
    admin_only=None,
    attempts={},
    why={
        "cuda": "no NVIDIA driver here (libcuda.so.1 cannot be loaded); in a container, start it with GPU access",
        "nvml": "NVML Shared Library Not Found",
        "admin_only": "/proc/driver/nvidia/params: No such file or directory",
        "driver": "/proc/driver/nvidia/version: No such file or directory",
    },
)


NO_CUPTI = "cupti-python is not installed here; install it with: pipx install 'cufall-py[gpu]'"
MACHINES: dict[str, Facts] = {
    "healthy": HEALTHY,
    "no driver": NO_DRIVER,
    "no driver in kubernetes": replace(NO_DRIVER, container="kubernetes"),
    "old driver, Hopper": broken(
        driver="550.54.15",
        attempts=both(
            Attempt(kind="SourceError", text="GPU 0 (NVIDIA H200): CUPTI's PmSamplingEnable failed with NOT_SUPPORTED")
        ),
    ),
    "old driver, Ampere": broken(
        driver="535.1",
        nvml=without_gpm(capability=(8, 0)),
        attempts=both(Attempt(kind="SourceError", text="CUPTI's PmSamplingEnable failed with NOT_SUPPORTED")),
    ),
    "denied, user": broken(admin_only=True, attempts=both(DENIED), nvml=without_gpm()),
    "denied, user, gpm": broken(admin_only=True, attempts=both(DENIED)),
    "denied, docker root": broken(
        admin_only=True, attempts=both(DENIED), nvml=without_gpm(), container="docker", uid=0
    ),
    "denied, docker user": broken(admin_only=True, attempts=both(DENIED), nvml=without_gpm(), container="docker"),
    "denied, kubernetes": broken(
        admin_only=True, attempts=both(DENIED), nvml=without_gpm(), container="kubernetes", uid=0
    ),
    "denied, user ns": broken(
        admin_only=True, attempts=both(DENIED), nvml=without_gpm(), container="podman", uid=0, capabilities=1 << 21
    ),
    "denied, bare root": broken(admin_only=True, attempts=both(DENIED), nvml=without_gpm(), uid=0),
    "owned by dcgm": broken(
        attempts={0: SAMPLED, 1: OWNED}, processes=Processes((Holder(77, "nv-hostengine (DCGM)"),))
    ),
    "owned by cufall": broken(attempts={0: SAMPLED, 1: replace(OWNED, owner=4711)}),
    "owned unseen": broken(attempts={0: SAMPLED, 1: OWNED}, container="docker"),
    "owned hidepid": broken(attempts={0: SAMPLED, 1: OWNED}, processes=Processes((), 12)),
    "dcgm idle": broken(processes=Processes((Holder(77, "nv-hostengine (DCGM)"),))),
    "wsl": broken(
        kernel="5.15.167.4-microsoft-standard-WSL2",
        attempts=both(DENIED),
        admin_only=None,
        nvml=without_gpm(),
        why={"admin_only": "x: No such file or directory"},
    ),
    "wsl by flag": broken(attempts=both(replace(DENIED, support={"wsl": "unsupported"})), nvml=without_gpm()),
    "vgpu": broken(attempts=both(DENIED), admin_only=True, nvml=without_gpm(virtual="vgpu")),
    "vgpu flag": broken(
        attempts=both(Attempt(kind="Unsupported", text="x", support={"vgpu": "disabled"})),
        nvml=without_gpm(virtual=None, why={"virtual": "Not Supported"}),
    ),
    "cc": broken(attempts=both(Attempt(kind="Unsupported", text="x")), confidential="on", nvml=without_gpm()),
    "arch": broken(attempts=both(Attempt(kind="Unsupported", text="x")), nvml=without_gpm(capability=(7, 0))),
    "jetson": replace(NO_DRIVER, jetson=True, machine="aarch64"),
    "mig": broken(
        attempts=both(Attempt(kind="Unsupported", text="GPU 0 (NVIDIA H200) is a MIG instance")),
        nvml=(nvml(0, 0x18, mig=True), nvml(1, 0x1B, mig=True)),
    ),
    "mig ok": broken(nvml=(nvml(0, 0x18, mig=True), nvml(1, 0x1B, mig=True))),
    "lost": broken(
        cuda=(cuda(0, 0x1B),), nvml=(NvmlGpu(0, why={"handle": "GPU is lost"}), nvml(1, 0x1B)), attempts={0: SAMPLED}
    ),
    "hidden": broken(cuda=(cuda(0, 0x1B),), attempts={0: SAMPLED}, visible="1"),
    "mismatch": broken(
        cuda=None,
        attempts={},
        nvml=None,
        nvml_error="LibRmVersionMismatch",
        confidential=None,
        why={
            "nvml": "RM has detected an NVML/RM version mismatch.",
            "cuda": "the NVIDIA driver cannot be initialised: unknown error (803); does nvidia-smi work?",
        },
    ),
    "daemon-reload": broken(
        container="docker",
        cuda=None,
        attempts={},
        nvml=None,
        nvml_error="Unknown",
        confidential=None,
        why={"nvml": "Unknown Error", "cuda": "CUDA shows no GPU here; look at CUDA_VISIBLE_DEVICES and at nvidia-smi"},
    ),
    "no cuda gpu": broken(
        cuda=None,
        attempts={},
        visible="",
        why={"cuda": "CUDA shows no GPU here; look at CUDA_VISIBLE_DEVICES and at nvidia-smi"},
    ),
    "no cupti": broken(
        libraries=None,
        nvml=without_gpm(),
        attempts=both(
            Attempt(
                kind="LibraryProblem",
                text=NO_CUPTI,
            )
        ),
        why={"libraries": NO_CUPTI},
    ),
    "mixed": broken(
        libraries=replace(HEALTHY.libraries, paths=(*PATHS[:2], "/usr/local/cuda/lib64/libnvperf_target.so")),
        nvml=without_gpm(),
        attempts=both(Attempt(kind="SourceError", text="/p gave no answer: it was ended by Segmentation fault")),
    ),
    "pynvml": broken(bindings={"nvidia-ml-py": "13", "pynvml": "11.5.3"}),
    "spark": broken(
        nvml=(
            nvml(0, 0x18, mig=None, virtual=None, why={"mig": "Not Supported", "virtual": "Not Supported"}),
            nvml(1, 0x1B),
        )
    ),
    "small": broken(
        memory_bytes=100 * MIB,
        places=(Place("/dev/shm/cufall-1000", True, 64 * MIB), Place("/tmp/cufall-1000", True, 9 * GIB)),
        container="docker",
        terminal=Terminal("dumb", "ascii", False, 30, 4),
    ),
    "roomless": broken(places=(Place("/dev/shm/cufall-1000", False, 64 * MIB),)),
    "nothing": Facts(),
}


def screens() -> str:
    """What the doctor says of each machine, as tests/data/doctor-machines.txt keeps it; of all but the first, what is
    not ok. `python -m tests.doctored > tests/data/doctor-machines.txt`, then read what has changed."""
    told = []
    for name, facts in MACHINES.items():
        found = examine(facts)
        shown = tuple(f for f in found.findings if f.state != "ok" or facts is HEALTHY) or found.findings[:1]
        told += [f"=== {name}", *lines(replace(found, findings=shown), 100, False, False), ""]
    return "\n".join(told)


if __name__ == "__main__":
    print(screens())
