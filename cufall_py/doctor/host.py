"""Gathers the facts of this machine. A fact that cannot be had is None, with its reason; nothing is raised."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from cufall_py import host_files
from cufall_py.devices import Device
from cufall_py.launch import Question, interpreter
from cufall_py.ring_file import directory_choices, owner_of

from . import proc
from .facts import Attempt, Facts, Libraries, NvmlGpu, Place, Terminal

T = TypeVar("T")
Answer = Callable[[], Any]
"""Waits for what was asked; raises CufallError."""
KEPT = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUFALL_PYTHON")
"""Variables that sudo drops and sampling goes by."""


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

    def close(self) -> None:
        """End what was asked and has not answered."""
        for question in self.questions:
            question.close()


def gather(host: Host, terminal: Terminal) -> Facts:
    """Everything the doctor goes by. Takes as long as sampling takes to start, a minute at most for what hangs."""
    gathering = _Gathering(host)
    fact, why = gathering.fact, gathering.why
    cuda, nvml = gathering.asks("here", "doctor.driver:cuda"), gathering.asks("here", "doctor.driver:nvml")
    libraries = gathering.asks("cupti", "sources.cupti.probe:libraries")
    root, environ = host.root, host.environ
    status = fact("capabilities", lambda: host_files.table(host_files.text(root, "proc/self/status"))) or {}
    facts: dict[str, Any] = {
        "kernel": fact("kernel", lambda: host_files.text(root, "proc/sys/kernel/osrelease").strip()),
        "machine": platform.machine(),
        "jetson": (root / "etc/nv_tegra_release").exists(),
        "container": fact("container", lambda: host_files.container(root, environ)),
        "uid": fact("uid", lambda: int(status["Uid"].split()[1])),
        "capabilities": fact("capabilities", lambda: int(status["CapEff"], 16)) if status else None,
        "admin_only": fact("admin_only", lambda: host_files.admin_only(root)),
        "command": command(sys.argv[0], environ),
        "visible": environ.get("CUDA_VISIBLE_DEVICES"),
        "driver": fact("driver", lambda: host_files.driver(root)),
        "bindings": fact("bindings", lambda: _bindings(host)) or {},
        "processes": fact("processes", lambda: proc.processes(root)),
        "memory_bytes": fact("memory_bytes", lambda: proc.memory(root)),
        "memlock_bytes": fact("memlock_bytes", lambda: proc.memlock(root)),
        "places": fact("places", lambda: tuple(_places(host))),
        "terminal": terminal,
        "cuda": fact("cuda", lambda: _cuda(cuda())),
        "libraries": fact("libraries", lambda: _libraries(libraries())),
    }
    facts["attempts"] = gathering.attempts(facts["cuda"] or ())
    facts |= fact("nvml", lambda: _nvml(nvml(), why)) or {}
    return Facts(**facts, why=why)


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
        """All GPUs are tried at once, each in a process of its own; then those that failed are asked why."""
        tries = [self.asks("cupti", "sources.cupti.probe:attempt", json.dumps(d.to_json())) for d in devices]
        tried = {d.ordinal: self._attempt(d, answer) for d, answer in zip(devices, tries, strict=True)}
        failed = [n for n, attempt in tried.items() if not attempt.sampled]
        asked = {n: self.asks("cupti", "sources.cupti.probe:support", str(n)) for n in failed}
        return tried | {n: replace(tried[n], support=self._support(n, answer)) for n, answer in asked.items()}

    def _attempt(self, device: Device, tried: Answer) -> Attempt:
        try:
            answer = tried()
            error = answer.get("error")
            if not error:
                return Attempt(chip=answer["chip"], notes=tuple(answer["notes"]))
            kind, text = error["kind"], error["text"]
        except Exception as failed:
            kind, text = type(failed).__name__, _reason(failed)
        owner = self.fact("owner", lambda: self._host.owner(device.uuid)) if kind == "CountersOwned" else None
        return Attempt(kind=kind, text=text, owner=owner)

    def _support(self, ordinal: int, answer: Answer) -> dict[str, str] | None:
        return self.fact(f"support {ordinal}", lambda: {f: str(level) for f, level in answer().items() if f != "error"})


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, (KeyError, TypeError, AttributeError)):
        return "the answer cannot be understood"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _cuda(answer: Any) -> tuple[Device, ...]:
    if "error" in answer:
        raise ValueError(answer["error"])
    return tuple(Device(**gpu) for gpu in answer["gpus"])


def _nvml(answer: Any, why: dict[str, str]) -> dict[str, Any]:
    """The facts that NVML gives; one that it fails to give does not replace what is known without it."""
    if "error" in answer:
        why["nvml"] = answer["text"]
        return {"nvml_error": answer["error"]}
    why.update({name: text for name, text in answer["why"].items() if name != "driver"})
    found = {"nvml": tuple(_nvml_gpu(gpu) for gpu in answer["gpus"]), "confidential": answer["confidential"]}
    return {**found, "driver": answer["driver"]} if answer["driver"] else found


def _nvml_gpu(gpu: dict[str, Any]) -> NvmlGpu:
    capability = gpu.get("capability")
    return NvmlGpu(**{**gpu, "capability": tuple(capability) if capability else None})


def _libraries(answer: Any) -> Libraries:
    if "error" in answer:
        raise ValueError(answer["error"]["text"])
    return Libraries(answer["python"], int(answer["cupti"]), dict(answer["packages"]), tuple(answer["paths"]))


def command(program: str, environ: Mapping[str, str]) -> str:
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
            found[name] = str(host.installed(name))
        except PackageNotFoundError:
            pass
    return found


def _places(host: Host) -> Iterator[Place]:
    """Nothing is made: a directory that is not there yet counts as the first above it that is."""
    for path in host.places():
        there = next(folder for folder in (path, *path.parents) if folder.is_dir())
        writable = os.access(there, os.W_OK | os.X_OK) and (there != path or path.stat().st_uid == os.getuid())
        yield Place(str(path), writable, shutil.disk_usage(there).free)
