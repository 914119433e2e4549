"""Where everything must be tested, a test that lacks something fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.scripted import ROOT, environment


@pytest.mark.parametrize(("everything", "code", "said"), [("1", 1, "Failed: needs zsh"), ("0", 0, "SKIPPED")])
def test_a_test_that_lacks_something(everything: str, code: int, said: str) -> None:
    words = ["-p", "no:cacheprovider", "-rs", "tests/test_completion.py", "-k", "zsh", "--maxfail=1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env=environment(PATH="/nonexistent", CUFALL_TEST_ALL=everything),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout
