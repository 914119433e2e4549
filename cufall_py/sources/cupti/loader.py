"""Loads CUPTI and its two nvperf libraries from one installation.

The dynamic linker may find the three in three places (a PyTorch wheel, a system toolkit, cupti-python's
own wheel), and libcupti 13.0 with nvperf 13.5 ends in a segmentation fault. So they are opened here by
absolute path, from one folder, before `cupti` is imported; what is already loaded is then what it finds.
"""

from __future__ import annotations

import _ctypes
import ctypes
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from cufall_py.errors import LibraryProblem

LIBRARIES = ("libnvperf_host.so", "libnvperf_target.so", "libcupti.so.13")
MINIMUM = 130300
"""cuptiGetVersion of the first release whose PM sampling cupti-python binds (13.3)."""
INSTALL = "install it with: pipx install 'cufall-py[gpu]'"


_handles: dict[str, int] = {}


@dataclass(frozen=True)
class Libraries:
    """The installation in use: its folder, and libcupti's own version number (0: it would not tell)."""

    folder: Path
    version: int


def load() -> Libraries:
    """Open the three libraries of one folder for the whole process.

    Raises LibraryProblem naming the path at fault and the remedy.
    """
    folder = find()
    for name in LIBRARIES:
        try:
            _handles[name] = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)._handle
        except OSError as error:
            raise LibraryProblem(f"cannot load {folder / name} ({error}); {INSTALL}") from None
    version = _version(folder / LIBRARIES[-1])
    if 0 < version < MINIMUM:
        raise LibraryProblem(f"{folder / LIBRARIES[-1]} is CUPTI {version}, {MINIMUM} or newer is needed; {INSTALL}")
    return Libraries(folder, version)


def let_go_of_target() -> None:
    """Drop this process's own hold of libnvperf_target, once the GPU is taken and its set scheduled.

    It is opened so that whoever asks for it by name gets this one. CUPTI 13.5 samples without it, and it
    takes 112 MB; if CUPTI did take it, the linker's count keeps it where it is.
    """
    if handle := _handles.pop("libnvperf_target.so", None):
        _ctypes.dlclose(handle)


def find() -> Path:
    """The first folder that holds all three, cupti-python's own neighbour before any toolkit."""
    tried = candidates()
    for folder in tried:
        if all((folder / name).is_file() for name in LIBRARIES):
            return folder
    missing = [str(f / n) for f in tried for n in LIBRARIES if f.is_dir() and not (f / n).is_file()]
    what = f"{missing[0]} is missing" if missing else "no CUPTI 13 found"
    raise LibraryProblem(f"{what}; {INSTALL}")


def candidates() -> list[Path]:
    """Folders to look in, in order; they need not exist."""
    spec = importlib.util.find_spec("cupti")
    if spec is None:
        raise LibraryProblem(f"cupti-python is not installed here; {INSTALL}")
    beside = [Path(place).parent for place in spec.submodule_search_locations or ()]
    nvidia = importlib.util.find_spec("nvidia")
    elsewhere = [Path(place).parent for place in (nvidia and nvidia.submodule_search_locations) or ()]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    wheels = [site / "nvidia" / "cu13" / "lib" for site in dict.fromkeys(beside + elsewhere)]
    return wheels + [Path(root) / "extras" / "CUPTI" / "lib64" for root in toolkits if root]


def mapped() -> list[str]:
    """Paths of every CUPTI and nvperf library in this process, as the kernel tells them."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[-1].strip() for line in maps if ".so" in line}
    return sorted(p for p in paths if "libcupti" in p or "libnvperf" in p)


def _version(libcupti: Path) -> int:
    version = ctypes.c_uint32(0)
    ctypes.CDLL(str(libcupti)).cuptiGetVersion(ctypes.byref(version))
    return version.value
