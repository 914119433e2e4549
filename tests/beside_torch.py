"""A program in PyTorch's environment, watched: CODE and its words follow the file that is written at its end.

That file says which CUPTI there was at the start, PyTorch's, and what of CUPTI came into the process after that. It
runs there alone, with neither the tests nor their packages.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

OWN = ("cupti", "nvperf")


def libraries() -> set[str]:
    """CUPTI's files that are mapped into this process."""
    mapped = (line.split(maxsplit=5)[5:] for line in Path("/proc/self/maps").read_text().splitlines())
    return {path.strip() for (path,) in filter(None, mapped) if any(name in Path(path).name for name in OWN)}


def modules() -> set[str]:
    return {name for name in sys.modules if name.partition(".")[0] == "cupti"}


def libcupti() -> str:
    (folder,) = importlib.util.find_spec("nvidia").submodule_search_locations  # type: ignore[union-attr,misc]
    (path,) = Path(folder).glob("*/lib/libcupti.so.13")
    return str(path)


def main(seen: str, code: str, *words: str) -> None:
    import torch  # type: ignore[import-not-found]

    ctypes.CDLL(libcupti(), ctypes.RTLD_GLOBAL)  # a build for CUDA has done that, one for the CPU has not
    first = libraries()
    sys.argv[:] = ["program", *words]
    try:
        exec(compile(code, "program", "exec"), {"__name__": "__main__", "torch": torch})
    finally:
        told = {
            "torch": torch.__version__,
            "pinned": importlib.metadata.version("nvidia-cuda-cupti"),
            "first": sorted(first),
            "later": sorted((libraries() - first) | modules()),
        }
        Path(seen).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
