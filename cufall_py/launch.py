"""Starts the sampling process under a Python that can sample. Loads nothing heavy, so that it comes first."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .errors import LibraryProblem, SourceError

BOOT = (
    "import sys;sys.path[:]=[p for p in sys.path if p];import importlib.util as u;d=sys.argv[1];"
    "s=u.spec_from_file_location('cufall_py',d+'/__init__.py',submodule_search_locations=[d]);"
    "m=u.module_from_spec(s);sys.modules['cufall_py']=m;s.loader.exec_module(m);from importlib import import_module;"
    "module,entry=sys.argv[2].split(':');getattr(import_module('cufall_py.'+module),entry)(*sys.argv[3:])"
)
"""Makes this package alone importable in another interpreter (not its parent folder, our site-packages), and calls
`module:entry` of it with the words that follow."""
ANSWER_S, LEAVE_S = 60.0, 1.0
"""How long an answer may take; how long a process that was killed may."""
LOOK_S = 0.002
"""How often one that is waited for is looked at."""
PYTHON_OF_SCRIPT = re.compile(r"^(?:#!|'''exec' [\"']?)(/[^\"'\n]*python[^\"'\s]*)", re.MULTILINE)
"""The first line of a script that pip or pipx made, or the second one where the path is long or has spaces."""
INSTALL = (
    "install cufall on its own with: pipx install 'cufall-py[gpu]', or name a Python that has it in CUFALL_PYTHON; "
    "without a GPU: cufall demo"
)


class Process(subprocess.Popen[bytes]):
    """A child that is asked and waited for without a lock.

    Popen's own takes one, which stays taken where a signal's handler raises just then: whoever waits for the child next
    waits for ever. A supervisor is asked a hundred times a second, and signals end a reader by an exception.
    """

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # an exception came when its end was known and not yet kept
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(LOOK_S)
        return code


def launch(source: str) -> subprocess.Popen[bytes]:
    """A supervisor for this source, loading; the plan on its stdin starts it, the end of its stdin ends it.

    Raises LibraryProblem when no interpreter can sample.
    """
    try:
        return Process(
            command(interpreter(source), "launch:sample", source),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a buffer has a lock, which a forked child never gets if another thread held it
            start_new_session=True,  # a Ctrl-C is for the reader, which then ends sampling in order
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
    except OSError as error:
        raise LibraryProblem(f"CUFALL_PYTHON={os.environ.get('CUFALL_PYTHON')}: {error.strerror}") from None


def command(python: str, entry: str, *words: str) -> list[str]:
    """To call `module:entry` of this package with these words under another interpreter."""
    return [python, "-c", BOOT, str(Path(__file__).resolve().parent), entry, *words]


def ask(entry: str, *words: str) -> Any:
    """The JSON that `module:entry` prints under the Python that can sample, where what CUPTI knows is asked for.

    Raises LibraryProblem when no interpreter can sample, SourceError when it gave no answer.
    """
    question = Question(interpreter("cupti"), entry, *words)
    try:
        return question.answer()
    finally:
        question.close()


class Question:
    """`module:entry` of this package, running under another interpreter to print an answer in JSON.

    Raises LibraryProblem where the interpreter cannot be started.
    """

    def __init__(self, python: str, entry: str, *words: str) -> None:
        self._python, self._entry, self._until = python, entry, time.monotonic() + ANSWER_S
        try:
            self._process = Process(
                command(python, entry, *words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that `close` ends whatever it has started, too
            )
        except OSError as error:
            raise LibraryProblem(f"CUFALL_PYTHON={os.environ.get('CUFALL_PYTHON')}: {error.strerror}") from None

    def answer(self) -> Any:
        """Wait for it, a minute from the beginning at most. Raises SourceError when there is none."""
        try:
            out, talk = self._process.communicate(timeout=max(0.0, self._until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise SourceError(f"{self._entry}: no answer in {ANSWER_S:g} s") from None
        try:
            return json.loads(out)
        except ValueError:
            said = talk.decode(errors="backslashreplace").strip().splitlines()
            why = said[-1] if said else _end(self._process.returncode)
            raise SourceError(f"{self._python} gave no answer: {why}") from None

    def close(self) -> None:
        """End it if it still runs. One that hangs in the driver cannot be waited for."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            try:
                self._process.communicate(timeout=LEAVE_S)
            except subprocess.TimeoutExpired:
                pass


def _end(code: int) -> str:
    return f"it was ended by {signal.strsignal(-code)}" if code < 0 else f"it ended with {code}"


def interpreter(source: str) -> str:
    """The Python that can sample: CUFALL_PYTHON, this one if it can, or that of an installed cufall."""
    if asked := os.environ.get("CUFALL_PYTHON"):
        return asked
    if source not in ("cupti", "auto") or importlib.util.find_spec("cupti"):
        return sys.executable
    if found := _installed():
        return found
    raise LibraryProblem(f"cupti-python is not installed here; {INSTALL}")


def sample(source: str) -> None:
    """Entry of the sampling process: says in one line what its interpreter lacks."""
    try:
        from .sampler import main
    except ImportError as error:
        text = f"{sys.executable} cannot sample ({str(error).strip().splitlines()[0]}); {INSTALL}"
        print(json.dumps({"event": "failed", "error": {"kind": LibraryProblem.__name__, "text": text}}), flush=True)
    else:
        main(source)


def _installed() -> str | None:
    """The interpreter of a `cufall` on PATH that is not this one."""
    for folder in os.get_exec_path():
        try:
            with open(Path(folder) / "cufall", "rb") as file:
                found = PYTHON_OF_SCRIPT.match(os.fsdecode(file.read(1000)).replace("#!/bin/sh\n", "", 1))
        except OSError:
            continue
        if found and os.access(found[1], os.X_OK) and Path(found[1]).parent != Path(sys.executable).parent:
            return found[1]
    return None
