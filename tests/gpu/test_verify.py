"""`cufall verify` on this GPU: everything that it can measure holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .measure import environment, note

pytestmark = pytest.mark.gpu


def test_verify_holds(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "cufall_py", "verify", "--json", str(tmp_path / "found.json"), "--force"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "found.json").read_text())
    note("verify", **{check["name"]: [check["outcome"], check["got"]] for check in document["checks"]})
    assert {"tensor", "sm", "gr", "dram", "fma"} <= set(document["verified"])
