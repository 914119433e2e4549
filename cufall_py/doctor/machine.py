"""Findings about the machine: driver, libraries, permission, who holds the counters, what kind of machine it is."""

from __future__ import annotations

from .facts import Facts
from .findings import OK, PROBLEM, UNKNOWN, WARNING, Finding, Gpu, listed, major, named, parted, platform, severity

LEAST_DRIVER = 580
"""Of the drivers that CUPTI 13 runs on."""
LEAST_GPM = (9, 0)
"""Compute capability of Hopper, the first with GPM."""
FOR_GOOD = (
    "or for every user, for good: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d on the host, "
    "then reboot it"
)
GPU_ACCESS = {
    "docker": "start the container with --gpus all (the host needs NVIDIA's driver and Container Toolkit)",
    "podman": "start the container with --device nvidia.com/gpu=all",
    "kubernetes": "give the container resources.limits nvidia.com/gpu",
}
ANY_ACCESS = "start the container with access to the GPUs"
GRANTS = {"kubernetes": "add SYS_ADMIN to the container's securityContext.capabilities"}
ANY_GRANT = "start the container with --cap-add SYS_ADMIN"
NVML_ERRORS = {
    "LibRmVersionMismatch": ("the driver was updated under the running kernel module", "reboot"),
    "DriverNotLoaded": ("the driver's kernel module is not loaded", "sudo modprobe nvidia, and look at dmesg"),
    "NoPermission": ("this user may not open /dev/nvidia*", "give it access to /dev/nvidia*"),
    "GpuIsLost": ("a GPU has fallen off the bus", "reboot, and look at dmesg for Xid"),
    "Unknown": ("the driver does not answer", "reboot, and look at dmesg"),
}
"""NVML's error to what it means and its cure on a host."""
RECREATE = (
    "recreate the container: its access to the GPUs was taken away, as a systemctl daemon-reload on the host does"
)
PAUSES = {
    "DCGM": "dcgmi profile --pause while you measure, then --resume",
    "Nsight Systems": "let nsys end, or start it without --gpu-metrics-devices",
    "Nsight Compute": "let ncu end",
    "cufall": "end that cufall",
}
"""How a holder is made to let go."""


def kind(facts: Facts, gpus: list[Gpu]) -> Finding:
    """Whether this is a kind of machine on which counters can be read."""
    place = f"in a {facts.container} container" if facts.container else "not in a container"
    if facts.container is None:
        place = f"whether in a container is not known ({_why(facts, 'container')})"
    text = f"Linux {facts.machine or ''} ({facts.kernel or 'kernel not known'}), {place}".replace("  ", " ")
    causes = {cause for gpu in gpus if (cause := platform(facts, gpu)) in ("WSL", "Jetson")}
    cause = next(iter(causes), "WSL" if facts.wsl else "Jetson" if facts.jetson else "")
    if not cause:
        return Finding("platform", OK, text)
    if any(gpu.attempt.sampled for gpu in gpus):
        return Finding("platform", OK, f"{cause}, and its counters can be read")
    fix = {
        "WSL": "measure under Linux itself; no permission helps here",
        "Jetson": "measure on another machine: cufall does not sample Jetson's GPU",
    }
    return Finding("platform", PROBLEM, f"{cause}, where the counters cannot be reached", fix[cause])


def driver(facts: Facts, gpus: list[Gpu]) -> Finding:
    if facts.nvml_error in NVML_ERRORS:
        text, cure = NVML_ERRORS[facts.nvml_error]
        shown = f"{facts.driver}: " if facts.driver else ""
        return Finding("driver", PROBLEM, f"{shown}{text} (NVML: {_why(facts, 'nvml')})", _cure(facts, cure))
    if facts.driver is None and facts.cuda is None:
        return Finding("driver", PROBLEM, *_no_driver(facts))
    if facts.driver and 0 < major(facts.driver) < LEAST_DRIVER:
        return _old_driver(facts, gpus)
    if facts.cuda is None:
        text, fix = parted(_why(facts, "cuda"))
        return Finding("driver", PROBLEM, f"{facts.driver}: {text}", _access(facts) or fix)
    if facts.driver is None:
        return Finding("driver", UNKNOWN, f"it works, its version is not told ({_why(facts, 'driver')})")
    return Finding("driver", OK, f"{facts.driver} (CUPTI 13 needs {LEAST_DRIVER} or newer)")


def libraries(facts: Facts) -> Finding:
    """Which CUPTI sampling would load."""
    found = facts.libraries
    if found is None:
        text, fix = parted(_why(facts, "libraries"))
        return Finding("cupti", PROBLEM, text, fix or "pipx install 'cufall-py[gpu]', and unset CUFALL_PYTHON")
    folders = sorted({path.rpartition("/")[0] for path in found.paths})
    packages = ", ".join(f"{name} {version or 'not installed'}" for name, version in found.packages.items())
    number = f"CUPTI {found.cupti // 10000}.{found.cupti % 10000 // 100}, " if found.cupti else ""
    names = listed([path.rpartition("/")[2] for path in found.paths])
    if len(folders) > 1:
        text = f"{number}{packages}: {names} come from {listed(folders)}, and mixed ones crash"
        return Finding("cupti", PROBLEM, text, "unset LD_LIBRARY_PATH and LD_PRELOAD, or reinstall with pipx")
    return Finding("cupti", OK, f"{number}{packages}: {names} of {listed(folders)}, under {found.python}")


def permission(facts: Facts, gpus: list[Gpu]) -> Finding:
    denied = [gpu for gpu in gpus if gpu.attempt.kind == "CountersDenied"]
    for_others = {None: "", True: "RmProfilingAdminOnly is 1", False: "RmProfilingAdminOnly is 0"}[facts.admin_only]
    if any(gpu.attempt.sampled for gpu in gpus):
        return Finding("permission", OK, _sentence("this process may read counters", for_others, _rights(facts)))
    if denied and all(platform(facts, gpu) for gpu in denied):
        cause = platform(facts, denied[0])
        return Finding("permission", UNKNOWN, f"CUPTI says denied, but the cause is the platform ({cause})")
    if denied or (facts.admin_only and facts.privileged is False):
        text = _sentence("the driver keeps the counters from this process", for_others, _rights(facts))
        return Finding("permission", severity(denied), text, way_out(facts))
    if facts.admin_only is None:
        return Finding("permission", UNKNOWN, f"not known ({_why(facts, 'admin_only')}), {_rights(facts)}")
    if facts.admin_only and facts.privileged is None:
        return Finding("permission", UNKNOWN, _sentence("not known", for_others, _rights(facts)))
    return Finding("permission", OK, _sentence("nothing stands against reading counters", for_others, _rights(facts)))


def way_out(facts: Facts) -> str:
    """What gives this process the counters, as it runs here."""
    if facts.privileged:  # and was refused: these capabilities are of a user namespace, the driver asks the host's
        return f"root of this user namespace is not root of the host: run it outside; {FOR_GOOD}"
    if not facts.container:
        return f"{_as_root(facts)}; {FOR_GOOD}"
    as_root = "" if facts.uid == 0 else ", as root, for an added capability does not reach another user"
    return f"{GRANTS.get(facts.container, ANY_GRANT)}{as_root}; {FOR_GOOD}"


def owner(facts: Facts, gpus: list[Gpu]) -> Finding:
    """Who holds the PM unit, as far as it can be told from here."""
    owned = [gpu for gpu in gpus if gpu.attempt.kind == "CountersOwned"]
    if owned:
        seen = _seen(facts, owned)
        where = named(gpu.ordinal for gpu in owned)
        return Finding(
            "owner", severity(owned), f"another profiler holds the counters of {where}: {seen}", _pause(facts, owned)
        )
    if facts.processes is None:
        return Finding("owner", UNKNOWN, f"processes cannot be listed ({_why(facts, 'processes')})")
    if not facts.processes.holders:
        return Finding("owner", OK, f"no other profiler is seen here{_blind(facts)}")
    if gpus and all(gpu.attempt.sampled for gpu in gpus):
        return Finding("owner", OK, f"{_seen(facts, [])}: does not hold the counters now")
    return Finding("owner", WARNING, f"{_seen(facts, [])}: may take the counters", _pause(facts, []))


def _no_driver(facts: Facts) -> tuple[str, str]:
    text, _ = parted(_why(facts, "cuda"))
    if facts.jetson:
        return f"{text}; Jetson has a driver of its own", ""
    return text, _access(facts) or f"install NVIDIA's driver, {LEAST_DRIVER} or newer; nvidia-smi must work"


def _old_driver(facts: Facts, gpus: list[Gpu]) -> Finding:
    text = f"{facts.driver} is too old for CUPTI 13, which needs {LEAST_DRIVER}"
    update = f"update the driver to {LEAST_DRIVER} or newer"
    if gpus and all(gpu.attempt.sampled for gpu in gpus):
        return Finding("driver", WARNING, f"{text}, though it samples here", update)
    if any(gpu.source == "gpm" for gpu in gpus):
        return Finding("driver", WARNING, f"{text}; NVML's GPM serves instead", update)
    older = [gpu for gpu in gpus if gpu.nvml and gpu.nvml.capability and gpu.nvml.capability < LEAST_GPM]
    why = "these GPUs are older than Hopper" if gpus and len(older) == len(gpus) else "Hopper and newer have it"
    return Finding("driver", PROBLEM, f"{text}; NVML's GPM would serve without, but {why}", update)


def _cure(facts: Facts, cure: str) -> str:
    return RECREATE if facts.container else cure


def _access(facts: Facts) -> str:
    return GPU_ACCESS.get(facts.container, ANY_ACCESS) if facts.container else ""


def _as_root(facts: Facts) -> str:
    if facts.uid == 0:
        return "root here lacks CAP_SYS_ADMIN: start it with that"
    return f"run as root: sudo {facts.command}"


def _rights(facts: Facts) -> str:
    """Who this process is to the kernel."""
    if facts.uid is None or facts.privileged is None:
        return f"its capabilities are not known ({_why(facts, 'capabilities')})"
    who = "root" if facts.uid == 0 else f"user {facts.uid}"
    return f"{who} with {listed(facts.rights)}" if facts.rights else f"{who} without CAP_SYS_ADMIN and CAP_PERFMON"


def _sentence(text: str, *more: str) -> str:
    return f"{text}: {', '.join(filter(None, more))}"


def _seen(facts: Facts, owned: list[Gpu]) -> str:
    """Holders by name and process; a cufall that samples is known by its ring too."""
    found = {holder.pid: holder.name for holder in (facts.processes.holders if facts.processes else ())}
    found |= {gpu.attempt.owner: "cufall" for gpu in owned if gpu.attempt.owner}
    if not found:
        return f"none is seen here{_blind(facts)}"
    return listed([f"{name}, process {pid}" for pid, name in sorted(found.items())])


def _pause(facts: Facts, owned: list[Gpu]) -> str:
    seen = _seen(facts, owned)
    fixes = [fix for holder, fix in PAUSES.items() if holder in seen]
    where = "on the host" if facts.container else "as root"
    return "; ".join(fixes) or f"look {where} for nv-hostengine, dcgm-exporter, nsys, ncu and other users' cufall"


def _blind(facts: Facts) -> str:
    """What cannot be seen from here."""
    hidden = facts.processes.hidden if facts.processes else 0
    parts = [
        "the host's processes are not visible from a container" if facts.container else "",
        f"{hidden} processes do not tell what they are" if hidden else "",
    ]
    shown = " and ".join(filter(None, parts))
    return f" ({shown})" if shown else ""


def _why(facts: Facts, name: str) -> str:
    return facts.why.get(name, "no reason given")
