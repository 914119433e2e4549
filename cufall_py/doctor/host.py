"""Gathers the facts of this machine. A fact that cannot be had is None, with its reason; nothing is raised."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from cufall_py.devices import Device
from cufall_py.launch import Question, interpreter
from cufall_py.ring_file import directory_choices, owner_of

from .facts import Attempt, Facts, Holder, Libraries, NvmlGpu, Place, Processes, Terminal

T = TypeVar("T")
Answer = Callable[[], Any]
"""Waits for what was asked; raises CufallError."""
HOLDERS = {
    "nv-hostengine": "DCGM",
    "dcgm-exporter": "DCGM",
    "dcgmi": "DCGM",
    "nsys": "Nsight Systems",
    "ncu": "Nsight Compute",
    "utlz": "Utilyze",
}
"""Programs that take the PM unit, and what they are of."""
SAMPLING = "launch:sample"
"""A word of the command line of every cufall that samples (launch.command)."""
KEPT = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUFALL_PYTHON")
"""Variables that sudo drops and sampling goes by."""
UNLIMITED = -1
V1_UNLIMITED = 1 << 60


@dataclass
class Host:
    """Where facts come from. `root` is before every path of /proc, /sys and /etc; `asks` starts an entry of this
    package in a process of its own, under this Python or the one that can sample."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    installed: Callable[[str], str] = version
    places: Callable[[], list[Path]] = directory_choices
    owner: Callable[[str], int | None] = owner_of
    questions: list[Question] = field(default_factory=list)

    def asks(self, source: str, entry: str, *words: str) -> Answer:
        question = Question(interpreter(source) if source == "cupti" else sys.executable, entry, *words)
        self.questions.append(question)
        return question.answer

    def text(self, path: str) -> str:
        """Raises OSError."""
        return (self.root / path).read_text(errors="replace")

    def close(self) -> None:
        """End what was asked and has not answered."""
        for question in self.questions:
            question.close()


def gather(host: Host, terminal: Terminal) -> Facts:
    """Everything the doctor goes by. Takes as long as sampling takes to start, a minute at most for what hangs."""
    gathering = _Gathering(host)
    fact, why = gathering.fact, gathering.why
    told = {name: gathering.asks(*asked) for name, asked in ASKED.items()}
    status = fact("capabilities", lambda: _table(host.text("proc/self/status"))) or {}
    facts: dict[str, Any] = {
        "kernel": fact("kernel", lambda: host.text("proc/sys/kernel/osrelease").strip()),
        "machine": platform.machine(),
        "jetson": (host.root / "etc/nv_tegra_release").exists(),
        "container": fact("container", lambda: _container(host)),
        "uid": fact("uid", lambda: int(status["Uid"].split()[1])),
        "capabilities": fact("capabilities", lambda: int(status["CapEff"], 16)),
        "admin_only": fact("admin_only", lambda: _admin_only(host)),
        "command": _command(sys.argv[0], host.environ),
        "visible": host.environ.get("CUDA_VISIBLE_DEVICES"),
        "bindings": _bindings(host),
        "processes": fact("processes", lambda: _processes(host)),
        "memory_bytes": fact("memory_bytes", lambda: _memory(host)),
        "memlock_bytes": fact("memlock_bytes", lambda: _memlock(host)),
        "places": fact("places", lambda: tuple(_places(host))),
        "terminal": terminal,
    }
    cuda = fact("cuda", lambda: _cuda(told["cuda"]()))
    nvml = fact("nvml", told["nvml"]) or {}
    return Facts(
        **facts,
        cuda=cuda,
        libraries=fact("libraries", lambda: _libraries(told["libraries"]())),
        attempts=gathering.attempts(cuda or ()),
        **_nvml(nvml, why),
        driver=nvml.get("driver") or fact("driver", lambda: _driver(host)),
        why=why,
    )


ASKED = {
    "cuda": ("here", "doctor.driver:cuda"),
    "nvml": ("here", "doctor.driver:nvml"),
    "libraries": ("cupti", "sources.cupti.probe:libraries"),
}


class _Gathering:
    """Keeps why a fact cannot be had."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.why: dict[str, str] = {}

    def fact(self, name: str, find: Callable[[], T]) -> T | None:
        try:
            return find()
        except Exception as error:  # whatever is broken here is what a doctor is asked about
            self.why[name] = _reason(error)
            return None

    def asks(self, source: str, entry: str, *words: str) -> Answer:
        """Starts it now; a failure to start is told to whoever waits for the answer."""
        try:
            return self._host.asks(source, entry, *words)
        except Exception as error:
            failed = error

            def answer() -> Any:
                raise failed

            return answer

    def attempts(self, devices: tuple[Device, ...]) -> dict[int, Attempt]:
        """All GPUs are tried at once, each in a process of its own."""
        tries = [self.asks("cupti", "sources.cupti.probe:attempt", json.dumps(d.to_json())) for d in devices]
        supports = [self.asks("cupti", "sources.cupti.probe:support", str(d.ordinal)) for d in devices]
        return {d.ordinal: self._attempt(d, *both) for d, *both in zip(devices, tries, supports, strict=True)}

    def _attempt(self, device: Device, tried: Answer, supported: Answer) -> Attempt:
        name = f"support {device.ordinal}"
        support = self.fact(name, lambda: {str(flag): str(level) for flag, level in supported().items()})
        try:
            answer = tried()
            error = answer.get("error")
            if not error:
                return Attempt(chip=answer["chip"], notes=tuple(answer["notes"]), support=support)
            kind, text = error["kind"], error["text"]
        except Exception as error:
            kind, text = type(error).__name__, _reason(error)
        owner = self.fact("owner", lambda: self._host.owner(device.uuid)) if kind == "CountersOwned" else None
        return Attempt(kind=kind, text=text, support=support, owner=owner)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _cuda(answer: dict[str, Any]) -> tuple[Device, ...]:
    if "error" in answer:
        raise ValueError(answer["error"])
    return tuple(Device(**gpu) for gpu in answer["gpus"])


def _nvml(answer: dict[str, Any], why: dict[str, str]) -> dict[str, Any]:
    if "gpus" not in answer:
        why.setdefault("nvml", str(answer.get("text", "no answer")))
        return {"nvml_error": str(answer.get("error", "no answer"))}
    why.update(answer["why"])
    return {"nvml": tuple(_nvml_gpu(gpu) for gpu in answer["gpus"]), "confidential": answer["confidential"]}


def _nvml_gpu(gpu: dict[str, Any]) -> NvmlGpu:
    capability = gpu.get("capability")
    return NvmlGpu(**{**gpu, "capability": tuple(capability) if capability else None})


def _libraries(answer: dict[str, Any]) -> Libraries:
    if "error" in answer:
        raise ValueError(answer["error"]["text"])
    return Libraries(answer["python"], int(answer["cupti"]), dict(answer["packages"]), tuple(answer["paths"]))


def _table(text: str) -> dict[str, str]:
    """Lines of `name: value`."""
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _container(host: Host) -> str:
    """The kind of container this is, empty outside one."""
    if "KUBERNETES_SERVICE_HOST" in host.environ:
        return "kubernetes"
    for kind, path in (("docker", ".dockerenv"), ("podman", "run/.containerenv")):
        if (host.root / path).exists():
            return kind
    if named := host.environ.get("container"):
        return named
    found = re.search(r"kubepods|docker|containerd|libpod|lxc", host.text("proc/self/cgroup"))
    return {"kubepods": "kubernetes", "libpod": "podman"}.get(found[0], found[0]) if found else ""


def _admin_only(host: Host) -> bool:
    return _table(host.text("proc/driver/nvidia/params"))["RmProfilingAdminOnly"] != "0"


def _driver(host: Host) -> str:
    found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", host.text("proc/driver/nvidia/version"))
    if not found:
        raise ValueError("/proc/driver/nvidia/version names no version")
    return found[1]


def _command(program: str, environ: Mapping[str, str]) -> str:
    """This cufall by its full path, with what a change of user would lose."""
    path = shutil.which(program)
    words = (
        [str(Path(path).absolute())] if path and Path(path).name == "cufall" else [sys.executable, "-m", "cufall_py"]
    )
    kept = [f"{name}={environ[name]}" for name in KEPT if name in environ]
    return shlex.join([*(["env", *kept] if kept else []), *words])


def _bindings(host: Host) -> dict[str, str]:
    """Versions of the packages that give a module `pynvml`; those that are not there are left out."""
    found = {}
    for name in ("nvidia-ml-py", "pynvml"):
        try:
            found[name] = host.installed(name)
        except PackageNotFoundError:
            pass
    return found


def _processes(host: Host) -> Processes:
    holders, hidden = [], 0
    for pid in sorted(int(path.name) for path in (host.root / "proc").iterdir() if path.name.isdigit()):
        try:
            name = _holder(host.text(f"proc/{pid}/cmdline").split("\0"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        except OSError:
            hidden += 1
            continue
        if name:
            holders.append(Holder(pid, name))
    return Processes(tuple(holders), hidden)


def _holder(words: list[str]) -> str:
    program = words[0].rpartition("/")[2]
    if SAMPLING in words:
        return "cufall"
    return f"{program} ({HOLDERS[program]})" if program in HOLDERS else ""


def _memory(host: Host) -> int:
    """What may still be taken: of the machine's memory, and of every control group this is in."""
    left = [1024 * int(_table(host.text("proc/meminfo"))["MemAvailable"].split()[0])]
    for folder, limit, used in _groups(host):
        try:
            most = host.text(f"{folder}/{limit}").strip()
            if most != "max" and int(most) < V1_UNLIMITED:
                left.append(max(0, int(most) - int(host.text(f"{folder}/{used}")) + _reclaimable(host, folder)))
        except OSError:
            pass  # a group that is not shown here, or has no such limit
    return min(left)


def _groups(host: Host) -> Iterator[tuple[str, str, str]]:
    """Folders of this process's control groups of memory, each with its files for the limit and the use."""
    for line in host.text("proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        root, files = ("sys/fs/cgroup/memory", V1_FILES) if kinds else ("sys/fs/cgroup", V2_FILES)
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for count in range(len(parts), -1, -1):
            yield "/".join([root, *parts[:count]]), *files


V1_FILES, V2_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")


def _reclaimable(host: Host, folder: str) -> int:
    """Page cache that the kernel gives up first."""
    found = re.search(r"^(?:total_)?inactive_file (\d+)$", host.text(f"{folder}/memory.stat"), re.MULTILINE)
    return int(found[1]) if found else 0


def _memlock(host: Host) -> int:
    found = re.search(r"^Max locked memory +(\w+)", host.text("proc/self/limits"), re.MULTILINE)
    if not found:
        raise ValueError("/proc/self/limits does not tell")
    return UNLIMITED if found[1] == "unlimited" else int(found[1])


def _places(host: Host) -> Iterator[Place]:
    """Nothing is made: a directory that is not there yet counts as the first above it that is."""
    for path in host.places():
        there = next(folder for folder in (path, *path.parents) if folder.is_dir())
        writable = os.access(there, os.W_OK | os.X_OK) and (there != path or path.stat().st_uid == os.getuid())
        yield Place(str(path), writable, shutil.disk_usage(there).free)
