"""What the docs say of the program is what the program says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_metrics_page_is_what_the_tables_give() -> None:
    done = subprocess.run([sys.executable, "docs/make_metrics.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
