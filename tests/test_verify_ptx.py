"""The kernels of verify: the numbers of instructions in their text, and that NVIDIA's assembler takes it.

The assembler is `ptxas`, on PATH, of a CUDA toolkit in /usr/local, or of `pip install nvidia-cuda-nvcc-cu12`.
`nvdisasm -c` (`pip install nvidia-cuda-nvdisasm`) of what it makes showed 8 HMMA, IMMA, QMMA or OMMA a turn (the loop
is unrolled four times, with its rest), 32 FFMA a turn and one LDG and STG of 128 bits, for every chip below.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from cufall_py.verify import ptx
from tests.helpers import lacking

CHIPS = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0), (12, 1)]
KERNELS = [(chip, kernel) for chip in CHIPS for kernel in (*ptx.products(chip), *ptx.OTHERS)]


def assembler() -> str:
    installed = Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/ptxas")
    toolkits = sorted(Path("/usr/local").glob("cuda*/bin/ptxas"))
    return next(map(str, [*filter(None, [shutil.which("ptxas")]), *installed, *toolkits[::-1]]), "")


@pytest.mark.parametrize(("chip", "kernel"), KERNELS, ids=lambda value: str(value))
def test_a_turn_has_the_instructions_that_are_counted_on(chip: tuple[int, int], kernel: str) -> None:
    text = ptx.text(kernel, chip)
    turn = text.partition("TURN:")[2].partition("bra TURN")[0]
    assert turn.count("mma.sync") == (ptx.UNROLL if kernel in ptx.PRODUCTS else 0)
    assert turn.count("fma.rn") == (ptx.FMA_A_TURN if kernel == "fma" else 0)
    assert text.count("mma.sync") == turn.count("mma.sync")


@pytest.mark.parametrize(("chip", "kernel"), KERNELS, ids=lambda value: str(value))
def test_it_assembles(chip: tuple[int, int], kernel: str, tmp_path: Path) -> None:
    ptxas = assembler()
    if not ptxas:
        pytest.skip("no ptxas here: pip install nvidia-cuda-nvcc-cu12")
    source = tmp_path / "kernel.ptx"
    source.write_text(ptx.text(kernel, chip))
    suffix = "a" if kernel == "fp4" else ""
    words = [ptxas, f"-arch=sm_{chip[0]}{chip[1]}{suffix}", str(source), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(words, capture_output=True, text=True)
    if "not defined for option 'gpu-name'" in done.stderr or "Unsupported .version" in done.stderr:
        lacking(f"{ptxas} is too old for this kernel")
    assert (done.returncode, done.stderr) == (0, "")
