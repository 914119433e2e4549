"""What `cufall --version` says, without loading CUPTI or the driver."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cufall_py.host_files import driver


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
        return driver(Path("/"))
    except OSError:
        return "not found"
    except ValueError:
        return "unknown"
