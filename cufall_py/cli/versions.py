"""What `cufall --version` says, without loading CUPTI or the driver."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/version")


def versions(own: str) -> str:
    """cufall's version, those of cupti-python and CUPTI installed here, and the driver's."""
    binding, library = _installed("cupti-python"), _installed("nvidia-cuda-cupti")
    return f"cufall {own} (cupti-python {binding}, CUPTI {library}, driver {_driver()})"


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed here"


def _driver() -> str:
    try:
        found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", DRIVER.read_text())
    except OSError:
        return "not found"
    return found.group(1) if found else "unknown"
