"""Findings about the GPUs: each one's identity and what came of sampling it, GPM, MIG, virtualisation, NVML."""

from __future__ import annotations

from .facts import Facts, NvmlGpu
from .findings import OK, PROBLEM, UNKNOWN, WARNING, Finding, Gpu, major, named, parted, platform, severity

MIG_FIX = "give this process an instance whose compute is not shared, or switch MIG off"
VGPU_FIX = "on the hypervisor, set the vGPU's parameter enable_profiling to 1"
CONFIDENTIAL_FIX = "on the host, switch confidential computing to devtools mode or off"
OLD_BINDING = "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py"
SHORT = {"CountersDenied": "its counters are denied", "CountersOwned": "another profiler holds its counters"}
"""Failures that have a line of their own."""
PLATFORM_FIXES = {
    "a GPU older than Turing": "use another GPU: PM sampling begins with Turing",
    "mining card": "use another GPU: mining cards have no profiling",
    "SLI": "switch SLI off",
}
"""Of causes that have no line of their own."""
NOT_THERE = ("Not Supported", "Function Not Found")
"""NVML's answers for a field that a GPU or driver does not have, which is no failure."""


def each(facts: Facts, gpus: list[Gpu]) -> list[Finding]:
    """A line a GPU: those that CUDA shows, then those that only NVML does."""
    shown = {gpu.nvml.index for gpu in gpus if gpu.nvml}
    rest = [gpu for gpu in facts.nvml or () if gpu.index not in shown]
    return [_shown(facts, gpu) for gpu in gpus] + [_hidden(facts, gpu) for gpu in rest]


def gpm(facts: Facts, gpus: list[Gpu]) -> Finding:
    """Whether NVML's GPM could serve."""
    have = [gpu.ordinal for gpu in gpus if gpu.has_gpm]
    if have:
        return Finding("gpm", OK, f"NVML gives this process GPM samples of {named(have)}")
    needed = any(not gpu.attempt.sampled for gpu in gpus)
    if facts.nvml is None:
        return Finding("gpm", UNKNOWN, f"NVML does not answer ({facts.why.get('nvml', 'no reason given')})")
    reasons = {gpu.why["gpm"] for gpu in facts.nvml if "gpm" in gpu.why} - set(NOT_THERE)
    if reasons:
        return Finding("gpm", UNKNOWN, f"NVML gives no GPM sample ({', '.join(sorted(reasons))})")
    text = "no GPU here has GPM (Hopper and newer do, where MIG is off)"
    return Finding("gpm", WARNING if needed else OK, text)


def mig(gpus: list[Gpu]) -> Finding:
    on = [gpu for gpu in gpus if gpu.nvml and gpu.nvml.mig]
    if not on:
        return _off("mig", gpus, "mig", "MIG is off")
    where = named(gpu.ordinal for gpu in on)
    if all(gpu.attempt.sampled for gpu in on):
        return Finding("mig", WARNING, f"on at {where}: what is measured is the instance that CUDA shows, not the GPU")
    return Finding(
        "mig", severity(on), f"on at {where}: an instance that shares its compute hides the counters", MIG_FIX
    )


def virtual(facts: Facts, gpus: list[Gpu]) -> Finding:
    found = [gpu for gpu in gpus if platform(facts, gpu) == "virtual GPU"]
    if found:
        where = named(gpu.ordinal for gpu in found)
        return Finding("vgpu", PROBLEM, f"{where}: a virtual GPU whose host has not allowed profiling", VGPU_FIX)
    return _off("vgpu", gpus, "virtual", "no virtual GPU without profiling")


def confidential(facts: Facts, gpus: list[Gpu]) -> Finding:
    topic = "confidential"
    found = [gpu for gpu in gpus if platform(facts, gpu) == "confidential computing"]
    if found:
        return Finding(topic, PROBLEM, "confidential computing is on and hides the counters", CONFIDENTIAL_FIX)
    why = facts.why.get("confidential", "")
    if facts.confidential or any(gpu.attempt.sampled for gpu in gpus) or why in NOT_THERE:
        return Finding(topic, OK, f"confidential computing is {facts.confidential or 'not in the way'}")
    return Finding(
        topic, UNKNOWN, f"whether confidential computing is on is not known ({why or 'NVML does not answer'})"
    )


def binding(facts: Facts) -> Finding:
    """The package that gives the module pynvml, of which there are two."""
    old = facts.bindings.get("pynvml", "12")
    if 0 < major(old) < 12:
        return Finding("nvml", WARNING, f"pynvml {old} hides nvidia-ml-py: both are the module pynvml", OLD_BINDING)
    shown = f"nvidia-ml-py {facts.bindings.get('nvidia-ml-py', 'not installed')}"
    if facts.nvml is None:
        return Finding(
            "nvml", UNKNOWN, f"{shown}: no clocks, power and GPM ({facts.why.get('nvml', 'no reason given')})"
        )
    failed = sorted({name for gpu in facts.nvml for name, why in _failures(gpu)})
    if failed:
        return Finding("nvml", WARNING, f"{shown}: fails to give {', '.join(failed)}")
    return Finding("nvml", OK, shown)


def _shown(facts: Facts, gpu: Gpu) -> Finding:
    topic, state, text, fix = f"gpu {gpu.ordinal}", OK, "can be sampled by cupti", ""
    if not gpu.attempt.sampled:
        text, fix = _failure(facts, gpu)
        state = WARNING if gpu.source else PROBLEM
        text += ", but it can be sampled by gpm" if gpu.source else ""
    notes = "".join(f" ({note})" for note in gpu.attempt.notes)
    return Finding(topic, state, f"{_identity(gpu)}: {text}{notes}", fix)


def _failure(facts: Facts, gpu: Gpu) -> tuple[str, str]:
    """What failed and its fix; none for what has a line of its own."""
    cause = platform(facts, gpu)
    if cause:
        return f"its counters cannot be read ({cause})", PLATFORM_FIXES.get(cause, "")
    if gpu.attempt.kind in SHORT:
        return SHORT[gpu.attempt.kind], ""
    return parted(gpu.attempt.text.removeprefix(f"GPU {gpu.ordinal} ({gpu.cuda.name}): "))


def _identity(gpu: Gpu) -> str:
    chip = f" ({gpu.attempt.chip})" if gpu.attempt.chip else ""
    index = f"NVML {gpu.nvml.index}" if gpu.nvml else "NVML does not show it"
    return f"{gpu.cuda.name}{chip}, {gpu.cuda.uuid}, PCI {gpu.cuda.pci or 'not known'}, CUDA {gpu.ordinal}, {index}"


def _hidden(facts: Facts, gpu: NvmlGpu) -> Finding:
    topic = f"nvml {gpu.index}"
    if why := gpu.why.get("handle"):
        fix = "look at dmesg for Xid; reset it (nvidia-smi --gpu-reset) or reboot"
        return Finding(topic, WARNING, f"this GPU does not answer: {why}", fix)
    identity = f"{gpu.name or 'GPU'}, {gpu.uuid or 'UUID not known'}, PCI {gpu.pci or 'not known'}"
    if facts.cuda is None:
        return Finding(topic, UNKNOWN, f"{identity}: CUDA cannot be asked")
    if facts.visible is not None:
        return Finding(topic, OK, f"{identity}: kept from CUDA by CUDA_VISIBLE_DEVICES={facts.visible}")
    return Finding(topic, WARNING, f"{identity}: CUDA does not show it")


def _failures(gpu: NvmlGpu) -> list[tuple[str, str]]:
    """Fields that should be there, and are not. A GPU without a handle has a line of its own."""
    return [(name, why) for name, why in gpu.why.items() if why not in NOT_THERE and name != "handle"]


def _off(topic: str, gpus: list[Gpu], field: str, text: str) -> Finding:
    """Ok, unless NVML failed to tell for a GPU that could not be sampled."""
    if not gpus:
        return Finding(topic, UNKNOWN, "no GPU to ask")
    blind = [gpu for gpu in gpus if not gpu.attempt.sampled and _untold(gpu, field)]
    if blind:
        return Finding(topic, UNKNOWN, f"NVML does not tell for {named(gpu.ordinal for gpu in blind)}")
    return Finding(topic, OK, text)


def _untold(gpu: Gpu, field: str) -> bool:
    if gpu.nvml is None:
        return True
    return getattr(gpu.nvml, field) is None and gpu.nvml.why.get(field) not in NOT_THERE
