"""For pytest: `with cufall("decode") as m:`, and `@pytest.mark.cufall(require="tensor.mean >= 30%")` (docs/pytest.md).

pytest loads this in every run where cufall is installed: all that sampling needs is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pytest

from .errors import CufallError, SourceError
from .pytest_run import SAMPLE_US, Run

if TYPE_CHECKING:
    from .background import BackgroundSession
    from .measured import Measured
    from .requirements import Requirement

MARKER = "cufall(require): what must hold of the GPUs during the test's call, such as 'tensor.mean >= 30%', or a list"
OPTIONS = {
    "metric": ("NAME", "Short name or CUPTI counter; may be repeated (default: tensor)."),
    "devices": ("all|0,1|UUID", "GPUs, as CUDA numbers them here, or by UUID (default: all)."),
    "source": ("SOURCE", "Where samples come from: auto, cupti, gpm or script:FILE (default: auto)."),
    "sample-us": ("US", f"Length of a hardware sample (default: {SAMPLE_US})."),
    "record": ("FILE", "Keep every sample in this recording, with a region for each test."),
}
_LINES: Literal["linelist"] = "linelist"
_STRING: Literal["string"] = "string"
REQUIRED = "cufall_required"
_RUN: pytest.StashKey[Run] = pytest.StashKey()
_REQUIRED: pytest.StashKey[list[Requirement]] = pytest.StashKey()
_REGIONS: pytest.StashKey[list[Measured]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cufall", "tensor use of GPUs")
    for name, (metavar, told) in OPTIONS.items():
        action, kind = ("append", _LINES) if name == "metric" else ("store", _STRING)
        group.addoption(f"--cufall-{name}", dest=_dest(name), default=None, metavar=metavar, action=action, help=told)
        parser.addini(_dest(name), told, type=kind)
    told = "Fail, not skip, what cannot be measured."
    group.addoption("--cufall-required", dest=REQUIRED, action="store_true", help=told)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    worker_of = getattr(config, "workerinput", {}).get("testrunuid", "")
    config.stash[_RUN] = Run({name: _option(config, name) for name in OPTIONS}, worker_of)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What the call will be judged by; sampling begins here, so that the call does not wait for it."""
    if texts := _texts(item):
        _session(item.config)
        item.stash[_REQUIRED] = _requirements(texts)
    elif item.config.stash[_RUN].records:
        _begin_recording(item.config)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Measured is what other plugins leave of the call: the test's own function."""
    required = item.stash.get(_REQUIRED, None)
    with ExitStack() as stack:
        measured = _measured(item, bool(required), stack)
        outcome = yield
    if outcome.excinfo is None and measured and required:
        try:
            _judge(item, required, measured)
        except pytest.fail.Exception as failure:
            outcome.force_exception(failure)


@pytest.fixture
def cufall(request: pytest.FixtureRequest) -> Callable[[str], AbstractContextManager[Measured]]:
    """`with cufall("decode") as m:` measures the GPUs within; then `m.summary("tensor").mean`, of all GPUs together."""
    session = _session(request.config)
    regions: list[Measured] = request.node.stash.setdefault(_REGIONS, [])

    @contextmanager
    def measure(name: str) -> Iterator[Measured]:
        with ExitStack() as stack:
            with _failing():
                measured = stack.enter_context(session.region(name))
            regions.append(measured)
            yield measured

    return measure


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    run = session.config.stash[_RUN]
    run.close()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cufall"] = run.lines


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the process that started the workers of xdist: what this one has to say."""
    for line in getattr(node, "workeroutput", {}).get("cufall", []):
        node.config.stash[_RUN].say(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash[_RUN].lines:
        terminalreporter.section("cufall")
        for line in lines:
            terminalreporter.line(line)


def _dest(name: str) -> str:
    return "cufall_" + name.replace("-", "_")


def _option(config: pytest.Config, name: str) -> Any:
    given = config.getoption(_dest(name))
    return config.getini(_dest(name)) if given is None else given


def _texts(item: pytest.Item) -> list[str]:
    """The requirements of a test's marks. Fails it for a mark without any."""
    texts: list[str] = []
    for mark in item.iter_markers("cufall"):
        wanted = mark.kwargs.get("require")
        found = [wanted] if isinstance(wanted, str) else list(wanted) if isinstance(wanted, Iterable) else []
        if mark.args or set(mark.kwargs) != {"require"} or not found or not all(isinstance(t, str) for t in found):
            pytest.fail("pytest.mark.cufall takes require=, a string or a list of strings", pytrace=False)
        texts += found
    return texts


def _session(config: pytest.Config) -> BackgroundSession:
    """The session of the run. Skips the test without counters; fails it if they are required, or something is wrong."""
    run: Run = config.stash[_RUN]
    try:
        return run.session()
    except CufallError as error:
        if _is_failure(config, error):
            _fail(error)
        raise pytest.skip.Exception(f"cufall: {error}") from None


def _begin_recording(config: pytest.Config) -> None:
    """For a test that asks for nothing, which runs all the same where there can be none, unless it is required."""
    try:
        config.stash[_RUN].session()
    except CufallError as error:
        if _is_failure(config, error):
            _fail(error)
        config.stash[_RUN].say(f"there is no recording: {error}")


def _measured(item: pytest.Item, required: bool, stack: ExitStack) -> Measured | None:
    """The test's call as it is measured from now on, until the stack is closed; None if nobody asks for it."""
    run: Run = item.config.stash[_RUN]
    if not required and not run.recording:
        return None
    try:
        return stack.enter_context(run.session().region(item.nodeid))
    except CufallError as error:
        if required:
            _fail(error)
        run.say(f"from {item.nodeid} on nothing is recorded: {error}")
        return None


def _requirements(texts: list[str]) -> list[Requirement]:
    from .requirements import parse

    with _failing():
        return [parse(text) for text in texts]


def _judge(item: pytest.Item, required: list[Requirement], call: Measured) -> None:
    from .pytest_words import problems

    regions: list[Measured] = item.stash.get(_REGIONS, [])
    with _failing():
        told = problems(required, call, regions)
    if told:
        pytest.fail("\n".join(told), pytrace=False)


def _is_failure(config: pytest.Config, error: CufallError) -> bool:
    """Whether it is not only that there are no counters, or none may be wanting."""
    return not isinstance(error, SourceError) or bool(config.getoption(REQUIRED))


@contextmanager
def _failing() -> Iterator[None]:
    """What cufall refuses within fails the test in its own words."""
    try:
        yield
    except CufallError as error:
        _fail(error)


def _fail(error: CufallError) -> NoReturn:
    raise pytest.fail.Exception(f"cufall: {str(error).removeprefix('--require: ')}", pytrace=False) from None
