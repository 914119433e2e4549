"""How the doctor finds out: a made-up /proc, an NVML that fails in every way, Pythons that cannot sample."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cufall_py import host_files
from cufall_py.devices import Device
from cufall_py.doctor import driver, proc
from cufall_py.doctor.diagnosis import examine
from cufall_py.doctor.facts import Facts, Holder, Terminal
from cufall_py.doctor.host import Host, command, gather
from cufall_py.errors import LibraryProblem, SourceError
from cufall_py.launch import Question, ask
from cufall_py.sources.cupti.problems import explain
from cufall_py.sources.cupti.protocol import CuptiError

TERMINAL = Terminal("xterm", "utf-8", False, 80, 24)
CGROUP = "0::/box\n"
FILES = {
    "proc/self/status": "Name:\tpython\nUid:\t1000\t1001\t1000\t1000\nCapEff:\t0000004000000000\n",
    "proc/sys/kernel/osrelease": "6.8.0\n",
    "proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module  580.159.04  Release\n",
    "proc/self/cgroup": CGROUP,
    "proc/meminfo": "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\n",
    "proc/self/limits": "Max locked memory         8388608              8388608              bytes     \n",
    "sys/fs/cgroup/memory.max": "max\n",
    "sys/fs/cgroup/box/memory.max": "1000000000\n",
    "sys/fs/cgroup/box/memory.current": "900000000\n",
    "sys/fs/cgroup/box/memory.stat": "anon 1\ninactive_file 300000000\n",
    "proc/10/cmdline": "/usr/bin/nv-hostengine\0-n\0",
    "proc/11/cmdline": "/usr/bin/python3\0-c\0import sys\0/x/cufall_py\0launch:sample\0cupti\0",
    "proc/12/cmdline": "grep\0nv-hostengine\0",
    "proc/13/cmdline": "",
}
GPUS = [Device(0, "GPU-a", "A", "0000:01:00.0"), Device(1, "GPU-b", "B", "0000:02:00.0")]


def machine(root: Path, **files: str | None) -> Path:
    """A root with these files; None leaves one out."""
    for path, text in {**FILES, **files}.items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return root


class Answers(Host):
    """A host whose questions are answered from a table: entry, or entry and first word, to answer or error."""

    def __init__(self, root: Path, answers: dict[str, Any], **more: Any) -> None:
        super().__init__(root=root, environ={}, installed=not_installed, places=lambda: [root / "rings"], **more)
        self.answers = answers

    def asks(self, source: str, entry: str, *words: str) -> Callable[[], Any]:
        name = entry.partition(":")[2]
        key = f"{name} {json.loads(words[0])['ordinal']}" if name == "attempt" else " ".join([name, *words])
        answer = self.answers.get(key, SourceError(f"{entry} was not to be asked"))

        def wait() -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return wait


def not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


WHOLE: dict[str, Any] = {
    "cuda": {"gpus": [gpu.to_json() for gpu in GPUS]},
    "nvml": {"driver": "580.159.04", "confidential": "off", "gpus": [], "why": {}},
    "libraries": {"python": "/p", "cupti": 130500, "packages": {"cupti-python": "13.4.0"}, "paths": ["/l/a", "/l/b"]},
    "attempt 0": {"chip": "GH100", "notes": ["a note"]},
    "attempt 1": {"error": {"kind": "CountersOwned", "text": "GPU 1 (B): held"}},
    "support 1": {"vgpu": "supported", "wsl": "unsupported"},
}


def test_what_a_machine_tells(tmp_path: Path) -> None:
    facts = gather(Answers(machine(tmp_path), WHOLE, owner={"GPU-b": 4711}.get), TERMINAL)
    assert (facts.uid, facts.capabilities, facts.rights) == (1001, 1 << 38, ["CAP_PERFMON"])
    assert (facts.admin_only, facts.driver, facts.kernel, facts.container) == (True, "580.159.04", "6.8.0", "")
    assert facts.memlock_bytes == 8388608
    assert facts.memory_bytes == 1000000000 - 900000000 + 300000000
    assert facts.processes
    assert facts.processes.holders == (Holder(10, "nv-hostengine (DCGM)"), Holder(11, "cufall"))
    assert facts.cuda == tuple(GPUS)
    assert facts.attempts[0].sampled and facts.attempts[0].notes == ("a note",)
    assert (facts.attempts[1].kind, facts.attempts[1].owner) == ("CountersOwned", 4711)
    assert facts.attempts[1].support == WHOLE["support 1"]
    assert facts.why == {}


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("how", ["missing", "unreadable", "garbage"])
def test_no_file_is_needed(path: str, how: str, tmp_path: Path) -> None:
    root = machine(tmp_path, **{path: "\0\xff garbage: x\n" if how == "garbage" else None})
    if how == "unreadable":
        (root / path).mkdir(parents=True)  # reading it fails, for root too
    found = examine(gather(Answers(root, WHOLE), TERMINAL))
    assert found.sources["cupti"] == [0]


@pytest.mark.parametrize("asked", WHOLE)
@pytest.mark.parametrize(
    "answer", [None, 1, [], {}, "text", {"error": 1}, {"gpus": 1}, SourceError("ended"), OSError(2, "gone", "/x")]
)
def test_no_answer_is_needed_or_trusted(asked: str, answer: Any, tmp_path: Path) -> None:
    found = examine(gather(Answers(machine(tmp_path), {**WHOLE, asked: answer}), TERMINAL))
    assert found.sources["cupti"] == ([] if asked in ("cuda", "attempt 0") else [0])


def test_one_gpu_that_crashes_its_probe_leaves_the_other(tmp_path: Path) -> None:
    crashed = SourceError("/p gave no answer: it was ended by Segmentation fault")
    facts = gather(Answers(machine(tmp_path), {**WHOLE, "attempt 1": crashed}), TERMINAL)
    assert facts.attempts[0].sampled
    assert facts.attempts[1].text == str(crashed)


def test_processes_that_end_or_hide_meanwhile(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "proc/20").mkdir()  # gone before it was read
    (root / "proc/21/cmdline").mkdir(parents=True)  # will not be read
    found = proc.processes(root)
    assert (len(found.holders), found.hidden) == (2, 1)


@pytest.mark.parametrize(
    ("environ", "path", "cgroup", "kind"),
    [
        ({}, None, "0::/\n", ""),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None, "0::/\n", "kubernetes"),
        ({}, ".dockerenv", "0::/\n", "docker"),
        ({}, "run/.containerenv", "0::/\n", "podman"),
        ({"container": "lxc"}, None, "0::/\n", "lxc"),
        ({}, None, "12:memory:/kubepods/besteffort/pod1\n", "kubernetes"),
        ({}, None, "0::/system.slice/docker-1.scope\n", "docker"),
    ],
)
def test_containers_are_told_apart(
    environ: dict[str, str], path: str | None, cgroup: str, kind: str, tmp_path: Path
) -> None:
    root = machine(tmp_path, **{"proc/self/cgroup": cgroup}, **({path: ""} if path else {}))
    assert host_files.container(root, environ) == kind


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max"}, 3000000 * 1024),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n5:memory:/docker/1\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "500",
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 100\n",
            },
            1600,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            3000000 * 1024,
        ),
    ],
)
def test_memory_is_that_of_the_tightest_group(files: dict[str, str], left: int, tmp_path: Path) -> None:
    assert proc.memory(machine(tmp_path, **files)) == left


def test_the_command_for_another_user_is_whole(tmp_path: Path) -> None:
    program = tmp_path / "cufall"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert command(str(program), {}) == str(program)
    assert command(str(program), {"CUDA_VISIBLE_DEVICES": "1,0", "HOME": "/x"}) == (
        f"env CUDA_VISIBLE_DEVICES=1,0 {program}"
    )
    assert command("/x/cufall_py/__main__.py", {}) == f"{sys.executable} -m cufall_py"


# NVML


class NVMLError_GpuIsLost(Exception):
    pass


class NVMLError_NotSupported(Exception):
    pass


class NVMLError_LibRmVersionMismatch(Exception):
    pass


class PlayedNvml:
    """The functions of pynvml that are asked, of `count` GPUs. `failing`: function to what it raises, for GPUs in
    `where` or for all."""

    def __init__(
        self, count: int = 2, failing: dict[str, Exception] | None = None, where: tuple[int, ...] | None = None
    ) -> None:
        self.count, self.failing, self.where = count, failing or {}, where
        self.samples = 0
        self.null: tuple[int, ...] = ()

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlSystemGetDriverVersion": lambda: b"580.159.04",
            "nvmlSystemGetConfComputeState": lambda: SimpleNamespace(ccFeature=0, devToolsMode=0),
            "nvmlDeviceGetHandleByIndex": lambda index: None if index in self.null else index + 100,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
            "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=b"00000000:1B:00.0"),
            "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
            "nvmlDeviceGetMigMode": lambda handle: [0, 0],
            "nvmlDeviceGetVirtualizationMode": lambda handle: 1,
            "nvmlGpmQueryDeviceSupport": lambda handle: SimpleNamespace(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": self._alloc,
            "nvmlGpmSampleGet": lambda handle, sample: sample,
            "nvmlGpmSampleFree": self._free,
        }
        if name not in answers:
            raise AttributeError(f"module 'pynvml' has no attribute '{name}'")

        def call(*arguments: Any) -> Any:
            assert None not in arguments, "a null handle reached the library"
            gpu = next((a - (100 if a >= 100 else 0) for a in arguments if isinstance(a, int)), None)
            if name in self.failing and (self.where is None or gpu in self.where):
                raise self.failing[name]
            return answers[name](*arguments)

        return call

    def _alloc(self) -> str:
        self.samples += 1
        return "sample"

    def _free(self, sample: str) -> None:
        self.samples -= 1


def test_what_nvml_tells() -> None:
    nvml = PlayedNvml()
    told = driver.told(nvml)
    assert (told["driver"], told["confidential"], told["why"]) == ("580.159.04", "off", {})
    assert told["gpus"][1] == {
        "index": 1,
        "uuid": "GPU-101",
        "name": "NVIDIA H200",
        "pci": "00000000:1B:00.0",
        "capability": [9, 0],
        "mig": False,
        "virtual": "passthrough",
        "gpm": True,
        "why": {},
    }
    assert nvml.samples == 0


FIELDS = {
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetPciInfo": "pci",
    "nvmlDeviceGetCudaComputeCapability": "capability",
    "nvmlDeviceGetMigMode": "mig",
    "nvmlDeviceGetVirtualizationMode": "virtual",
    "nvmlGpmQueryDeviceSupport": "gpm",
    "nvmlGpmSampleAlloc": "gpm",
    "nvmlGpmSampleGet": "gpm",
    "nvmlGpmSampleFree": "gpm",
}


@pytest.mark.parametrize("function", FIELDS)
@pytest.mark.parametrize("error", [NVMLError_NotSupported("Not Supported"), AttributeError("no attribute")])
def test_a_field_that_fails_is_absent_alone(function: str, error: Exception) -> None:
    told = driver.told(PlayedNvml(failing={function: error}, where=None))
    for gpu in told["gpus"]:
        assert gpu["why"] == {FIELDS[function]: str(error)}
        assert [name for name, value in gpu.items() if value is None] == [FIELDS[function]]


def test_a_gpm_sample_that_fails_is_given_back() -> None:
    nvml = PlayedNvml(failing={"nvmlGpmSampleGet": NVMLError_NotSupported("Insufficient Permissions")})
    assert driver.told(nvml)["gpus"][0]["why"] == {"gpm": "Insufficient Permissions"}
    assert nvml.samples == 0


def test_a_lost_gpu_and_a_null_handle_leave_the_others() -> None:
    nvml = PlayedNvml(4, failing={"nvmlDeviceGetHandleByIndex": NVMLError_GpuIsLost("GPU is lost")}, where=(2,))
    nvml.null = (3,)
    gpus = driver.told(nvml)["gpus"]
    assert [gpu["why"].get("handle") for gpu in gpus] == [None, None, "GPU is lost", "no handle"]


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount"])
def test_an_nvml_that_does_not_start_is_told_by_its_first_error(function: str) -> None:
    told = driver.told(PlayedNvml(failing={function: NVMLError_LibRmVersionMismatch("mismatch")}))
    assert told == {"error": "LibRmVersionMismatch", "text": "mismatch"}


@pytest.mark.parametrize(("feature", "tools", "told"), [(0, 0, "off"), (0, 1, "off"), (1, 0, "on"), (1, 1, "devtools")])
def test_confidential_computing_with_developer_tools_is_told_apart(feature: int, tools: int, told: str) -> None:
    class Confidential(PlayedNvml):
        def nvmlSystemGetConfComputeState(self) -> Any:
            return SimpleNamespace(ccFeature=feature, devToolsMode=tools)

    assert driver.told(Confidential())["confidential"] == told


# Pythons that cannot sample


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    def make(body: str) -> Path:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        monkeypatch.setenv("CUFALL_PYTHON", str(path))
        return path

    return make


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("kill -SEGV $$", "it was ended by Segmentation fault"),
        ("exit 3", "it ended with 3"),
        ("printf '\\377\\376 garbage'", "it ended with 0"),
        ("echo 'no module named x' >&2; exit 1", "no module named x"),
    ],
)
def test_a_python_that_gives_no_answer_is_named(body: str, why: str, python: Callable[[str], Path]) -> None:
    path = python(body)
    with pytest.raises(SourceError, match=f"^{path} gave no answer: {why}$"):
        ask("doctor.driver:cuda")


def test_a_python_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUFALL_PYTHON", str(tmp_path / "nothing"))
    with pytest.raises(LibraryProblem, match=r"^CUFALL_PYTHON=.*nothing: No such file or directory$"):
        ask("doctor.driver:cuda")


def test_a_question_that_hangs_is_ended_with_what_it_started(python: Callable[[str], Path], tmp_path: Path) -> None:
    path = python(f"sleep 1000 & echo $! > {tmp_path}/pid; wait")
    question = Question(str(path), "doctor.driver:cuda")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        pass
    question.close()
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}/exe")


def test_on_wsl_a_denied_counter_is_the_platforms_doing() -> None:
    error = CuptiError("PmSamplingEnable", "INSUFFICIENT_PRIVILEGES")
    told = str(explain(error, GPUS[0], kernel="5.15.0-microsoft-standard-WSL2"))
    assert "WSL" in told and "root" not in told
    assert "root" in str(explain(error, GPUS[0], kernel="6.8.0"))


@pytest.mark.parametrize(
    ("files", "told", "way_out"),
    [
        ({}, "(RmProfilingAdminOnly is 1)", "; run as root, or for good"),
        ({".dockerenv": ""}, "(RmProfilingAdminOnly is 1)", "; start the container with --cap-add SYS_ADMIN"),
        (
            {"proc/self/cgroup": "0::/system.slice/docker-1.scope\n"},
            "",
            "; start the container with --cap-add SYS_ADMIN",
        ),
        (
            {"proc/driver/nvidia/params": "RmProfilingAdminOnly: 0\n"},
            "(though RmProfilingAdminOnly is 0)",
            "; run as root",
        ),
        ({"proc/driver/nvidia/params": "Other: 0\n"}, "from this user; run", "; run as root"),
    ],
)
def test_denied_counters_name_what_the_driver_says_and_the_way_out_from_here(
    files: dict[str, str], told: str, way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("container", raising=False)
    error = CuptiError("PmSamplingEnable", "INSUFFICIENT_PRIVILEGES")
    line = str(explain(error, GPUS[0], kernel="6.8.0", root=machine(tmp_path, **files)))
    assert told in line and way_out in line


def test_nothing_told_is_still_an_answer() -> None:
    assert not examine(Facts()).can_measure
