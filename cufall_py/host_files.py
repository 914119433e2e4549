"""What the kernel and NVIDIA's driver tell of this machine in files, under a `root` so that a test can write its own.

Everything raises OSError for what cannot be read, ValueError or KeyError for what cannot be understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def text(root: Path, path: str) -> str:
    return (root / path).read_text(errors="replace")


def table(text: str) -> dict[str, str]:
    """Lines of `name: value`."""
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def container(root: Path, environ: Mapping[str, str]) -> str:
    """The kind of container this is, empty outside one."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    for kind, path in (("docker", ".dockerenv"), ("podman", "run/.containerenv")):
        if (root / path).exists():
            return kind
    if named := environ.get("container"):
        return named
    found = re.search(r"kubepods|docker|containerd|libpod|lxc", text(root, "proc/self/cgroup"))
    return {"kubepods": "kubernetes", "libpod": "podman"}.get(found[0], found[0]) if found else ""


def admin_only(root: Path) -> bool:
    return table(text(root, "proc/driver/nvidia/params"))["RmProfilingAdminOnly"] != "0"


def driver(root: Path) -> str:
    found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text(root, "proc/driver/nvidia/version"))
    if not found:
        raise ValueError("/proc/driver/nvidia/version names no version")
    return found[1]
