"""What is installed beside the program: tables, completion, man page."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

from tests.helpers import lacking
from tests.scripted import ROOT

SHARED = {
    "share/bash-completion/completions/cufall": "completion/cufall.bash",
    "share/zsh/site-functions/_cufall": "completion/_cufall",
    "share/fish/vendor_completions.d/cufall.fish": "completion/cufall.fish",
    "share/man/man1/cufall.1": "docs/cufall.1",
}
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def test_a_wheel_has_the_tables_and_what_shells_and_man_look_for(tmp_path: Path) -> None:
    if not find_spec("hatchling"):
        lacking("needs hatchling: pip install hatchling")
    done = subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        found = {name.partition(".data/data/")[2] or name: file.read(name) for name in file.namelist()}
    assert {name: found.get(name) for name in SHARED} == {
        name: (ROOT / source).read_bytes() for name, source in SHARED.items()
    }
    assert found["cufall_py/data/tables.json.gz"] == (ROOT / "cufall_py/data/tables.json.gz").read_bytes()
    (entry_points,) = (text.decode() for name, text in found.items() if name.endswith("entry_points.txt"))
    assert "[pytest11]\ncufall = cufall_py.pytest_plugin\n" in entry_points + "\n"
    page = [f"cufall_py/views/html/{name}" for name in ("page.html", "page.css", "page.js")]
    uplot = [f"cufall_py/views/html/uplot/{name}" for name in ("uPlot.iife.min.js", "uPlot.min.css", "LICENSE")]
    assert {*page, *uplot} <= set(found)
