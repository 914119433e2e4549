"""One line about one topic, and what more than one topic goes by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cufall_py.devices import Device

from .facts import Attempt, Facts, NvmlGpu

OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "unknown"


@dataclass(frozen=True)
class Finding:
    """`state`: ok, warning (it measures, but not all or not as well as it could), problem (it cannot) or unknown.
    `fix`: what to do, or nothing."""

    topic: str
    state: str
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Gpu:
    """One GPU that CUDA shows, what NVML says of it, and what came of sampling it."""

    cuda: Device
    nvml: NvmlGpu | None
    attempt: Attempt

    @property
    def ordinal(self) -> int:
        return self.cuda.ordinal

    @property
    def source(self) -> str:
        """What it can be sampled by: cupti, gpm or nothing."""
        if self.attempt.sampled:
            return "cupti"
        return "gpm" if self.has_gpm else ""

    @property
    def has_gpm(self) -> bool:
        return bool(self.nvml and self.nvml.gpm and not self.nvml.mig)

    def support(self, flag: str) -> str:
        return (self.attempt.support or {}).get(flag, "")


def severity(gpus: Sequence[Gpu]) -> str:
    """Of what keeps CUPTI from these GPUs: a warning if another source serves them all."""
    return WARNING if gpus and all(gpu.source for gpu in gpus) else PROBLEM


UNTRIED = Attempt(kind="SourceError", text="it was not tried")


def joined(facts: Facts) -> list[Gpu]:
    """GPUs in CUDA's order, joined with NVML's by UUID, a MIG instance with its parent by PCI id."""
    nvml = [gpu for gpu in facts.nvml or () if gpu.uuid or gpu.pci]
    by_uuid = {gpu.uuid: gpu for gpu in nvml if gpu.uuid}
    by_pci = {_pci(gpu.pci): gpu for gpu in nvml if gpu.pci}
    return [
        Gpu(d, by_uuid.get(d.uuid) or by_pci.get(_pci(d.pci)), facts.attempts.get(d.ordinal, UNTRIED))
        for d in facts.cuda or ()
    ]


def named(ordinals: Iterable[int]) -> str:
    """GPU 3, or GPUs 0-2 and 5."""
    runs: list[list[int]] = []
    for n in sorted(ordinals):
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    words = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    plural = "s" if len(runs) > 1 or any(a != b for a, b in runs) else ""
    return f"GPU{plural} {listed(words)}"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def parted(message: str) -> tuple[str, str]:
    """An error's line as what failed and what to do."""
    text, _, fix = message.partition("; ")
    return text, fix


def major(version: str) -> int:
    """The first number of a version; 0 where there is none."""
    digits = version.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def platform(facts: Facts, gpu: Gpu) -> str:
    """The kind of machine that keeps this GPU's counters from everyone, so that no permission helps; or nothing."""
    if gpu.attempt.sampled or gpu.attempt.kind in ("CountersOwned", "LibraryProblem"):
        return ""
    causes = {
        "WSL": facts.wsl or gpu.support("wsl") == "unsupported",
        "Jetson": bool(facts.jetson),
        "virtual GPU": (gpu.nvml is not None and gpu.nvml.virtual == "vgpu")
        or gpu.support("vgpu") in ("unsupported", "disabled"),
        "confidential computing": facts.confidential == "on" or gpu.support("confidential_computing") == "unsupported",
        "mining card": gpu.support("cmp") == "unsupported",
        "SLI": gpu.support("sli") == "unsupported",
        "a GPU older than Turing": gpu.support("architecture") == "unsupported"
        or bool(gpu.nvml and gpu.nvml.capability and gpu.nvml.capability < (7, 5)),
    }
    return next((name for name, applies in causes.items() if applies), "")


def _pci(text: str | None) -> str:
    """NVML writes eight digits of the domain, CUDA four."""
    domain, _, rest = (text or "").lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"
