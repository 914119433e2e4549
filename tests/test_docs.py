"""What the docs say of the program is what the program says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cufall_py import errors
from tests.scripted import ROOT, environment


@pytest.mark.parametrize("script", ["make_metrics.py", "make_man.py", "make_engines.py"])
def test_a_generated_page_is_what_the_program_gives(script: str) -> None:
    words = [sys.executable, f"docs/{script}", "--check"]
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_is_unfinished_or_points_nowhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "@@" not in text
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), target


ERRORS = {name for name in vars(errors) if name[0].isupper()} - {"UsageError"}
SAYING = {"say", "_say", "_tell", "put"}


def messages() -> Iterator[tuple[str, str]]:
    """Where cufall makes an error or says a line, and the longest piece of it that does not differ from time to time;
    usage errors are left out, for they name the option that is wrong."""
    for path in (ROOT / "cufall_py").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and call.args and name_of(call.func) in ERRORS | SAYING:
                pieces = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
                fixed = max(
                    (piece.partition("; ")[0].strip(" :;(,") for piece in map(str, pieces)), key=len, default=""
                )
                if len(fixed) > 10:
                    yield f"{path.name}:{call.lineno}", fixed


def name_of(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def test_every_message_is_in_the_troubleshooting_page() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    found = list(messages())
    assert len(found) > 30
    assert [(where, text) for where, text in found if text not in page] == []
