"""`cufall verify` on this GPU: everything that it can measure holds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .measure import environment, note

pytestmark = pytest.mark.gpu


def test_verify_holds() -> None:
    words = [sys.executable, "-m", "cufall_py", "verify", "--json", "--force"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    note("verify", **{check["name"]: [check["outcome"], check["got"]] for check in document["checks"]})
    assert {"tensor", "sm", "gr", "dram", "fma"} <= set(document["verified"])
