"""Summaries of windows of time in trackers: what is written, and that the trackers' own files hold it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cufall_py
from cufall_py import BackgroundSession, Plan, Recording, feeding, log_to
from cufall_py.errors import CufallError, UsageError
from cufall_py.session import LiveSession
from cufall_py.sinks import MlflowSink, TensorBoardSink, WandbSink
from tests.helpers import lacking
from tests.scripted import ROOT, environment, fault, script, soon
from tests.servers import Running, serving

SECOND = 1_000_000_000


@dataclass
class Kept:
    """A sink that keeps what it is given. `problems`: what is raised for the first windows; `takes_s`: how long each
    takes it."""

    problems: list[BaseException] = field(default_factory=list)
    takes_s: float = 0.0
    windows: list[tuple[int, int, dict[str, float]]] = field(default_factory=list)
    closed: int = 0

    def write(self, second: int, end_ns: int, values: Mapping[str, float]) -> None:
        time.sleep(self.takes_s)
        if self.problems:
            raise self.problems.pop(0)
        self.windows.append((second, end_ns, dict(values)))

    def close(self) -> None:
        self.closed += 1


def plan(tmp_path: Path, **fields: object) -> Plan:
    return Plan(source=script(tmp_path, **fields), sample_us=1000, decode_us=20_000)


def test_each_second_is_written_once_and_the_rest_at_the_end(tmp_path: Path) -> None:
    kept = Kept()
    with BackgroundSession(plan(tmp_path, gpus=2)) as session:
        begun_ns = time.time_ns()
        with log_to(session, kept):
            time.sleep(2.4)
        ended_ns = time.time_ns()
    assert [second for second, _, _ in kept.windows] == [1, 2, 3]
    first, second, last = (end_ns for _, end_ns, _ in kept.windows)
    assert min(first - begun_ns, second - first) >= SECOND
    assert second < last < ended_ns
    names = {f"cufall/gpu{gpu}/{name}" for gpu in (0, 1) for name in ("coverage", "tensor.mean")}
    for _, _, values in kept.windows:
        assert {*values} == names
        assert values["cufall/gpu1/tensor.mean"] == pytest.approx(0.5)
        assert values["cufall/gpu0/coverage"] == pytest.approx(1.0, abs=0.02)
    assert kept.closed == 1


def test_a_windows_mean_is_the_quotient_of_its_sums(tmp_path: Path) -> None:
    kept, path = Kept(), tmp_path / "run.cufall"
    pattern = [{"ms": 130, "tensor": 0.9}, {"ms": 370, "tensor": 0.05}]
    with BackgroundSession(plan(tmp_path, pattern=pattern), record=str(path)) as session, log_to(session, kept):
        time.sleep(2.5)
    (recorded,) = Recording(path).opened
    (metric,) = recorded.metrics.metrics
    columns = [recorded.metrics.counters.index(name) for name in (*metric.counters, metric.elapsed)]
    of = [samples for _, samples in Recording(path).batches()]
    start_ns, end_ns = (np.concatenate([getattr(s, name) for s in of]) for name in ("start_ns", "end_ns"))
    counted, elapsed = np.concatenate([s.values for s in of])[:, columns].T
    for (_, begin, _), (_, end, values) in pairwise(kept.windows):
        share = np.clip((np.minimum(end_ns, end) - np.maximum(start_ns, begin)) / (end_ns - start_ns), 0, 1)
        assert metric.peak is not None
        expected = (counted * share).sum() / (metric.peak * (elapsed * share).sum())
        assert values["cufall/gpu0/tensor.mean"] == pytest.approx(expected, rel=1e-4)


def test_statistics_are_those_that_are_asked_for(tmp_path: Path) -> None:
    kept = Kept()
    pattern = [{"ms": 50, "tensor": 0.9}, {"ms": 50, "tensor": 0.1}]
    session = BackgroundSession(plan(tmp_path, pattern=pattern))
    with session, log_to(session, kept, statistics=("max", "p10", "above_90")):
        time.sleep(0.6)
    ((_, _, values),) = kept.windows
    assert values["cufall/gpu0/tensor.max"] == pytest.approx(0.9, abs=0.01)
    assert values["cufall/gpu0/tensor.p10"] == pytest.approx(0.1, abs=0.01)
    assert "cufall/gpu0/tensor.mean" not in values


def test_what_was_not_measured_is_not_written(tmp_path: Path) -> None:
    kept = Kept()
    source = plan(tmp_path, gpus=2, faults=[fault(1, "lost", 0.3)])
    with BackgroundSession(source) as session, log_to(session, kept):
        time.sleep(2.2)
    _, _, values = kept.windows[-1]
    assert values["cufall/gpu1/coverage"] == 0
    assert "cufall/gpu1/tensor.mean" not in values
    assert values["cufall/gpu0/tensor.mean"] == pytest.approx(0.5)


def test_a_slow_sink_has_longer_windows_and_misses_nothing(tmp_path: Path) -> None:
    kept = Kept(takes_s=1.2)
    with BackgroundSession(plan(tmp_path)) as session, log_to(session, kept) as log:
        begun_s = time.monotonic()
        soon(lambda: log.written >= 2)
        assert time.monotonic() - begun_s > 2
    (_, first, _), (second, later, values) = kept.windows[:2]
    assert later - first > 1.2 * SECOND
    assert second == pytest.approx(1 + (later - first) / SECOND, abs=0.75)
    assert values["cufall/gpu0/coverage"] == pytest.approx(1.0, abs=0.02)


def test_what_a_sink_raises_is_told_once_and_goes_on(tmp_path: Path) -> None:
    kept = Kept(problems=[OSError("no route to host\nand more"), OSError("again")])
    said: list[str] = []
    with BackgroundSession(plan(tmp_path)) as session, log_to(session, kept, say=said.append) as log:
        time.sleep(3.3)
    assert (log.lost, log.written) == (2, 2)
    assert said == ["Kept does not take a window: OSError: no route to host"]


class _Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("problem", "told"),
    [(SystemExit(3), "SystemExit: 3"), (KeyboardInterrupt(), "KeyboardInterrupt"), (_Speechless(), "_Speechless")],
)
def test_whatever_a_sink_raises_is_told(problem: BaseException, told: str, tmp_path: Path) -> None:
    kept, said = Kept(problems=[problem]), list[str]()
    with BackgroundSession(plan(tmp_path)) as session, log_to(session, kept, say=said.append) as log:
        time.sleep(1.2)
    assert said == [f"Kept does not take a window: {told}"]
    assert (log.lost, log.written, kept.closed) == (1, 1, 1)


def test_a_sink_that_took_nothing_is_an_error_at_the_end(tmp_path: Path) -> None:
    kept = Kept(problems=[OSError("no such run")])
    with pytest.raises(CufallError, match="Kept took none of 1 windows: OSError: no such run"):  # noqa: SIM117
        with BackgroundSession(plan(tmp_path)) as session, log_to(session, kept):
            time.sleep(0.2)
    assert kept.closed == 1


def test_what_the_program_raises_comes_first(tmp_path: Path) -> None:
    said: list[str] = []
    kept = Kept(problems=[OSError("no such run")])
    with BackgroundSession(plan(tmp_path)) as session, pytest.raises(ValueError, match="mine"):  # noqa: SIM117
        with log_to(session, kept, say=said.append):
            raise ValueError("mine")
    assert said[-1] == "Kept took none of 1 windows: OSError: no such run"


def test_a_session_that_ends_first_ends_it(tmp_path: Path) -> None:
    kept = Kept()
    session = BackgroundSession(plan(tmp_path))
    with log_to(session, kept) as log:
        time.sleep(0.3)
        session.close()
    log.close()  # once more does nothing
    assert (len(kept.windows), kept.closed) == (1, 1)
    assert kept.windows[0][2]["cufall/gpu0/tensor.mean"] == pytest.approx(0.5)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with BackgroundSession(plan(tmp_path)) as session:
        with pytest.raises(UsageError, match=r"every_s=0\.5: from 1 to 600 seconds"):
            log_to(session, Kept(), every_s=0.5)
        with pytest.raises(UsageError, match="no statistic median"):
            log_to(session, Kept(), statistics=("median",))
    with LiveSession(plan(tmp_path)) as polled, pytest.raises(UsageError, match="which have threads of their own"):
        log_to(polled, Kept())  # type: ignore[arg-type]


def test_in_asyncio_its_end_is_awaited(tmp_path: Path) -> None:
    kept = Kept(takes_s=0.5)

    async def run() -> int:
        with BackgroundSession(plan(tmp_path)) as session:
            async with log_to(session, kept):
                await asyncio.sleep(0.2)
                counting = asyncio.create_task(count())
            counting.cancel()
        return len(counted)

    counted = list[int]()

    async def count() -> None:
        while True:
            await asyncio.sleep(0.01)
            counted.append(1)

    assert asyncio.run(run()) > 10  # whatever else there is went on meanwhile
    assert (len(kept.windows), kept.closed) == (1, 1)


def test_a_sink_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "LAST_S", 0.5)
    kept, said = Kept(takes_s=5), list[str]()
    with BackgroundSession(plan(tmp_path)) as session:
        begun_s = time.monotonic()
        with log_to(session, kept, say=said.append):
            time.sleep(0.1)
        assert time.monotonic() - begun_s < 4
    assert said == ["Kept has not taken the last window in 0.5 s"]
    assert kept.closed == 0


def test_a_close_that_is_interrupted_can_be_made_up_for(tmp_path: Path) -> None:
    kept = Kept(takes_s=1.0)
    before = signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        with BackgroundSession(plan(tmp_path)) as session:
            log = log_to(session, kept)
            time.sleep(0.1)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                log.close()
            assert (len(kept.windows), kept.closed) == (0, 0)
            log.close()
            log.close()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (len(kept.windows), kept.closed) == (1, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server"), "--decode-ms", "5") as running:
        yield running


def test_a_servers_figures_are_written_too(server: Running, tmp_path: Path) -> None:
    kept = Kept()
    with cufall_py.attach(server.url, source=script(tmp_path), sample_us=1000) as session:
        with log_to(session, kept):
            driven = server.driven(2, 4.0, prompt=10, output=200)
            time.sleep(1.5)
        assert session.summary().samples > 100
    written = [values for _, _, values in kept.windows]
    working = [values for values in written if values.get("cufall/server0/running") == 2]
    assert len(working) >= 2
    expected = pytest.approx(driven.tokens_per_s, rel=0.2)
    assert [values["cufall/server0/generation_tokens_per_s"] for values in working] == [expected] * len(working)
    assert all(0.004 < values["cufall/server0/itl_s"] < 0.05 for values in working)
    assert all("cufall/gpu0/tensor.mean" in values for values in written)
    ends = [end_ns for _, end_ns, _ in kept.windows]
    assert all(later - one >= 0.99 * SECOND for one, later in pairwise(ends[:-1]))


def test_of_a_server_that_does_not_answer_there_is_nothing(tmp_path: Path) -> None:
    kept = Kept()
    with serving(tmp_path) as gone:
        session = cufall_py.attach(gone.url, source=script(tmp_path), sample_us=1000)
    with session, log_to(session, kept):
        time.sleep(1.3)
    assert [sorted(values) for _, _, values in kept.windows][-1][0] == "cufall/gpu0/coverage"
    assert not any("server" in name for _, _, values in kept.windows for name in values)


FORKS = """
import os, sys, time
from cufall_py import BackgroundSession, Plan, log_to

class Printed:
    def write(self, second, end_ns, values):
        print("window", flush=True)
    def close(self):
        print("closed", flush=True)

with BackgroundSession(Plan(source=sys.argv[1], sample_us=1000)) as session:
    with log_to(session, Printed()):
        time.sleep(0.3)
        child = os.fork()
        if child == 0:
            log = None
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_forked_copy_leaves_it_alone(tmp_path: Path) -> None:
    assert program(tmp_path, FORKS, script(tmp_path)).split() == ["window", "closed"]


def program(folder: Path, text: str, *words: str, **variables: str) -> str:
    """What a program that somebody could have written prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text, *words],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MLFLOW = """
import json, sys, threading, time
import mlflow
from cufall_py import BackgroundSession, Plan, log_to
from cufall_py.sinks import MlflowSink

mlflow.set_tracking_uri(sys.argv[2])
found = {}
with BackgroundSession(Plan(source=sys.argv[1], sample_us=1000)) as session:
    with mlflow.start_run() as run, log_to(session, MlflowSink()):
        mlflow.log_metric("loss", 0.25, step=700)
        time.sleep(1.5)
        mlflow.log_metric("loss", 0.125, step=701)
    with log_to(session, MlflowSink()):
        own = mlflow.active_run().info.run_id
        time.sleep(0.2)
    with log_to(session, MlflowSink(run.info.run_id)):
        time.sleep(0.2)
    other = MlflowSink()
    ending = threading.Thread(target=other.close)
    ending.start()
    ending.join()
    mlflow.end_run()
assert mlflow.active_run() is None
client = mlflow.MlflowClient()
MlflowSink(own).write(9, time.time_ns(), {f"many/{k}": 1.0 for k in range(1001)})
told = lambda run_id, name: [[m.step, m.timestamp, m.value] for m in client.get_metric_history(run_id, name)]
print(json.dumps({
    "tensor": told(run.info.run_id, "cufall/gpu0/tensor.mean"),
    "loss": told(run.info.run_id, "loss"),
    "own": told(own, "cufall/gpu0/tensor.mean"),
    "many": sum(name.startswith("many") for name in client.get_run(own).data.metrics),
    "status": [client.get_run(name).info.status for name in (run.info.run_id, own, other.run_id)],
    "now": int(time.time() * 1000),
}))
"""


def test_mlflow_reads_back_what_was_written(tmp_path: Path) -> None:
    needs("mlflow", "mlflow-skinny")
    store = f"file://{tmp_path}/runs"  # the only one that mlflow-skinny has
    found = json.loads(program(tmp_path, MLFLOW, script(tmp_path), store, MLFLOW_ALLOW_FILE_STORE="true"))
    steps, times_ms, values = zip(*found["tensor"], strict=True)
    assert values == (pytest.approx(0.5),) * 3
    assert steps[:2] == (1, 2)
    assert all(0 <= found["now"] - ms < 60_000 for ms in times_ms)
    assert [(step, value) for step, _, value in found["loss"]] == [(700, 0.25), (701, 0.125)]
    assert [value for _, _, value in found["own"]] == [pytest.approx(0.5)]
    assert found["many"] == 1001  # MLflow takes 1000 at once
    assert found["status"] == ["FINISHED"] * 3


WANDB = """
import sys, time
import wandb
from cufall_py import BackgroundSession, Plan, log_to
from cufall_py.sinks import WandbSink

with BackgroundSession(Plan(source=sys.argv[1], sample_us=1000)) as session:
    with wandb.init(project="tried", id="given") as run, log_to(session, WandbSink(run)):
        for step in (10, 11, 12):
            run.log({"loss": 1 / step}, step=step)
            time.sleep(1.25)
        run.log({"loss": 0.0}, step=13)
    sink = WandbSink()
    with log_to(session, sink):
        print(sink.run.id)
        time.sleep(1.25)
"""


def test_wandb_has_the_windows_and_the_programs_own_steps(tmp_path: Path) -> None:
    needs("wandb", "wandb")
    own = program(tmp_path, WANDB, script(tmp_path), WANDB_MODE="offline", WANDB_SILENT="true").split()[-1]
    given = history(tmp_path, "given")
    assert [row["_step"] for row in given] == [10, 11, 12, 13]
    assert [row["loss"] for row in given] == [pytest.approx(1 / step) for step in (10, 11, 12)] + [0.0]
    there = [row for row in given if "cufall/gpu0/tensor.mean" in row]
    assert len(there) >= 3
    assert all(row["cufall/gpu0/tensor.mean"] == pytest.approx(0.5) for row in there)
    seconds = [row["cufall/seconds"] for row in there]
    assert seconds == sorted({*seconds})
    assert [row["cufall/seconds"] for row in history(tmp_path, own)] == [1, 2]


def history(folder: Path, run: str) -> list[dict[str, Any]]:
    """The rows of a run's history, from the file that W&B keeps of it until it is sent."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob(f"wandb/offline-run-*-{run}/*.wandb")
    parsed = [Record.FromString(data) for data in log_records(path.read_bytes())]
    rows = [record.history.item for record in parsed if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row} for row in rows]


def log_records(data: bytes, at: int = 7, block: int = 32768) -> Iterator[bytes]:
    """The records of a file of LevelDB's log format after a header: each in pieces with checksum, length and kind."""
    record = b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def test_tensorboards_file_has_each_scalar_with_its_step_and_time(tmp_path: Path) -> None:
    needs("tensorboardX", "tensorboardX")
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path / "tb")) as writer:
        with BackgroundSession(plan(tmp_path)) as session, log_to(session, TensorBoardSink(writer)):
            writer.add_scalar("loss", 0.25, 700)
            time.sleep(1.2)
        writer.add_scalar("loss", 0.125, 701)  # it is open still
    found = scalars(tmp_path / "tb")
    assert [(step, value) for tag, step, _, value in found if tag == "loss"] == [(700, 0.25), (701, 0.125)]
    tensor = [(step, at_s, value) for tag, step, at_s, value in found if tag == "cufall/gpu0/tensor.mean"]
    assert [(step, value) for step, _, value in tensor] == [(1, pytest.approx(0.5)), (2, pytest.approx(0.5))]
    assert all(0 <= time.time() - at_s < 60 for _, at_s, _ in tensor)


def scalars(folder: Path) -> list[tuple[str, int, float, float]]:
    """Tag, step, time and value of each, from the events of a file: length, checksum, event, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.iterdir()
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = Event.FromString(data[at + 12 : at + 12 + length])
        found += [(value.tag, event.step, event.wall_time, value.simple_value) for value in event.summary.value]
        at += 16 + length
    return found


@pytest.mark.parametrize(("name", "sink"), [("mlflow", MlflowSink), ("wandb", WandbSink)])
def test_a_library_that_is_missing_is_told_in_a_line(name: str, sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CufallError, match=f"{name} cannot be imported here: pip install 'cufall-py\\[{name}\\]'"):
        sink()


def needs(module: str, package: str) -> None:
    if not find_spec(module):
        lacking(f"needs {package}: pip install {package}")


def test_importing_loads_no_tracker() -> None:
    told = "import cufall_py.sinks, cufall_py.feeding, sys; print({'mlflow', 'wandb', 'tensorboardX'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, env={**os.environ}, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
