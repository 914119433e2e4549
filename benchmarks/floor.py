"""The floor: floor.cpp, compiled against the CUPTI that cufall uses, and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from harness import HERE, environment

from cufall_py.sources.cupti import loader

END_S = 60.0
"""How much longer than it samples a floor may take, set-up and end included."""


class Floor(Protocol):
    """What CUPTI's own calls cost, at the same counters and periods."""

    def run(
        self, counters: tuple[str, ...], sample_us: int, decode_us: int, seconds: float, gpu: int = 0
    ) -> dict[str, Any]:
        """What the floor prints after sampling for `seconds`."""

    def beside(
        self, counters: tuple[str, ...], sample_us: int, decode_us: int, lead_s: float, seconds: float
    ) -> AbstractContextManager[None]:
        """The floor meanwhile: it must sample `lead_s` after its start, and does so for `seconds` more at least."""


class CuptiFloor:
    """The floor; on the first GPU where none is named."""

    def __init__(self, folder: Path) -> None:
        self._program = build(folder)

    def run(
        self, counters: tuple[str, ...], sample_us: int, decode_us: int, seconds: float, gpu: int = 0
    ) -> dict[str, Any]:
        with self._start(counters, sample_us, decode_us, seconds, gpu) as process:
            try:
                return result(process, seconds + END_S)
            finally:
                process.kill()

    @contextmanager
    def beside(
        self, counters: tuple[str, ...], sample_us: int, decode_us: int, lead_s: float, seconds: float
    ) -> Iterator[None]:
        """Raises afterwards if the floor did not sample from `lead_s` on until what was done meanwhile had ended."""
        with self._start(counters, sample_us, decode_us, lead_s + seconds) as process:
            try:
                yield
                early = process.poll() is not None
                found = result(process, lead_s + seconds + END_S)
            finally:
                process.kill()
        if early:
            raise RuntimeError("the floor ended before what it was to run beside")
        if found["setup_s"] > lead_s:
            raise RuntimeError(f"the floor took {found['setup_s']:g} s to start, not {lead_s:g} s")
        if not found["samples"]:
            raise RuntimeError("the floor took no samples")

    def _start(
        self, counters: tuple[str, ...], sample_us: int, decode_us: int, seconds: float, gpu: int = 0
    ) -> subprocess.Popen[str]:
        command = [str(self._program), str(gpu), str(sample_us), str(decode_us), str(seconds), *counters]
        env = environment(LD_LIBRARY_PATH=str(loader.find()))  # where CUPTI looks for its own libraries
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


class NoFloor:
    """In the place of the floor where a script plays the GPU."""

    def run(
        self, counters: tuple[str, ...], sample_us: int, decode_us: int, seconds: float, gpu: int = 0
    ) -> dict[str, Any]:
        return {}

    def beside(
        self, counters: tuple[str, ...], sample_us: int, decode_us: int, lead_s: float, seconds: float
    ) -> AbstractContextManager[None]:
        return nullcontext()


def result(process: subprocess.Popen[str], timeout_s: float) -> dict[str, Any]:
    """Wait for a floor's end and give what it printed; raises where it ended otherwise."""
    out, said = process.communicate(timeout=timeout_s)
    if process.returncode:
        raise RuntimeError(f"floor ended with {process.returncode}: {said.strip()}")
    return dict(json.loads(out))


def build(folder: Path) -> Path:
    """Compile the floor; the program's path."""
    library, cuda = loader.find(), Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    program = folder / "floor"
    command = ["g++", "-O2", "-o", str(program), str(HERE / "floor.cpp")]
    command += [f"-I{library.parent / 'include'}", f"-I{library.parents[1] / 'include'}", f"-I{cuda / 'include'}"]
    command += [f"-L{library}", "-l:libcupti.so.13", libcuda(cuda), f"-Wl,-rpath,{library},--disable-new-dtags"]
    command += ["-Wl,--allow-shlib-undefined"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return program


def libcuda(cuda: Path) -> str:
    """A libcuda to link with: the toolkit's stub, or the driver's own as the dynamic linker finds it."""
    for place in (cuda / "lib64/stubs/libcuda.so", *cuda.glob("targets/*/lib/stubs/libcuda.so")):
        if place.exists():
            return str(place)
    code = "import ctypes; ctypes.CDLL('libcuda.so.1'); print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    return next(line.split()[-1] for line in maps.splitlines() if "libcuda.so" in line)
