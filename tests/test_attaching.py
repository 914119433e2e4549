"""`cufall_py.attach` in a program, beside a server over real sockets, on scripted GPUs."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

import cufall_py
from cufall_py import Recording
from cufall_py.attachment import Attachment
from cufall_py.engines.drive import Work, drive
from cufall_py.errors import CufallError, UsageError
from cufall_py.launch import launch
from cufall_py.scratch import PREFIX
from cufall_py.served import served
from tests.scripted import ROOT, environment, rings, script, soon
from tests.servers import Running, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server"), "--decode-ms", "5") as running:
        yield running


def attach(server: Running, folder: Path, **options: object) -> Attachment:
    source = script(folder, gpus=2, pattern=[{"ms": 1000, "tensor": 0.5, "sm": 0.9, "dram": 0.25}])
    return cufall_py.attach(server.url, source=source, sample_us=1000, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def done(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attachment]:
    """Attached while two requests at once were served, in the region `two`; closed since."""
    with attach(server, tmp_path_factory.mktemp("done")) as attached:
        with attached.region("two", "at once"):
            drive(server.url, 2, Work(prompt_tokens=10, output_tokens=300, requests=8))
        time.sleep(1.2)
    yield attached


def test_a_region_has_its_statistics_and_verdict(done: Attachment) -> None:
    assert done.summary("two").mean == pytest.approx(0.5)
    assert done.summary("two", "dram", gpu=1).mean == pytest.approx(0.25)
    assert done.summary("two").samples < done.summary().samples
    assert 0 <= done.verdict("two").share <= 1
    with pytest.raises(UsageError, match="no region three; there are two"):
        done.summary("three")
    with pytest.raises(UsageError, match="fma is not sampled here; there are tensor, sm, dram"):
        done.summary("two", "fma")
    with pytest.raises(UsageError, match="no GPU 7 is sampled here; there are 0, 1"):
        done.verdict("two", gpu=7)


def test_requirements_are_judged(done: Attachment) -> None:
    held = done.require("tensor.mean[two,gpu=0] >= 49%", "tokens_per_s[running=2] > 100", "coverage > 90%")
    assert [j.outcome for j in held] == ["held"] * 4
    assert done.require("tensor.mean > 51%")[0].outcome == "missed"
    with pytest.raises(UsageError, match="unknown metric"):
        done.require("tenser.mean > 1%")


def test_frames_as_a_table_have_what_the_server_did(done: Attachment, server: Running) -> None:
    table = done.to_pandas()
    assert {"time", "gpu", "tensor", "sm", "dram", "coverage", "server", "running"} <= {*table.columns}
    assert {*table["gpu"]} == {0, 1} and {*table["server"]} == {server.url}
    working = table[table["running"] == 2]
    assert len(working) > 10
    assert (working["generation_tokens_per_s"] > 100).all()


def test_a_notebook_shows_its_tables(done: Attachment) -> None:
    shown = done._repr_html_()
    assert "<table" in shown and "gen tok/s" in shown and "unsure" in shown


def test_the_recording_can_be_saved_then_and_later(server: Running, tmp_path: Path) -> None:
    with attach(server, tmp_path) as attached:
        with attached.region("short"):
            time.sleep(0.3)
        attached.save(tmp_path / "now.cufall")
        now = Recording(tmp_path / "now.cufall")
        assert now.whole and [*now.regions()] == ["short"] and served(tmp_path / "now.cufall")[0].log.gpus
        with pytest.raises(CufallError, match="cannot be written"):
            attached.save(tmp_path / "none" / "x.cufall")
        with pytest.raises(CufallError, match="is there already"):
            attached.save(tmp_path / "now.cufall")
    attached.save(tmp_path / "now.cufall", force=True)
    saved = Recording(tmp_path / "now.cufall")
    assert saved.whole and [*saved.regions()] == ["short"]
    with pytest.raises(CufallError, match="cannot be written"):
        attached.save(tmp_path / "none" / "x.cufall")


def test_the_temporary_recording_goes_with_what_made_it(server: Running, tmp_path: Path) -> None:
    with attach(server, tmp_path) as attached:
        folder = attached.path.parent
    assert folder.is_dir()
    del attached
    gc.collect()
    assert not folder.exists()


def test_the_newest_and_each_frame_as_it_comes(server: Running, tmp_path: Path) -> None:
    with attach(server, tmp_path) as attached:
        frames = attached.frames()
        first, second = next(frames), next(frames)
        assert second.start_ns - first.start_ns == first.period_ns == 100_000_000
        latest = soon(lambda: (now := attached.latest()).servers[0].interval and now)
        assert latest.frame.start_ns >= second.start_ns
        assert latest.servers[0].reading.engine.name == "vLLM"
        thread = threading.Thread(target=lambda: seen.extend(frames))
        seen: list[object] = []
        thread.start()
        time.sleep(0.5)
    thread.join(5)
    assert not thread.is_alive() and len(seen) > 3


def test_regions_of_many_threads_and_nested_are_all_there(server: Running, tmp_path: Path) -> None:
    with attach(server, tmp_path, record=tmp_path / "run.cufall") as attached:

        def work(k: int) -> None:
            for _ in range(20):
                with attached.region(f"thread {k}"), attached.region("any"):
                    time.sleep(0.001)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(UsageError, match="a region needs a name"):
            attached.region(" ")
    regions = Recording(tmp_path / "run.cufall").regions()
    assert {name: len(times) for name, times in regions.items()} == {
        **{f"thread {k}": 20 for k in range(8)},
        "any": 160,
    }


def test_in_asyncio_nothing_blocks_the_loop(server: Running, tmp_path: Path) -> None:
    async def run() -> tuple[float, int, float]:
        async with attach(server, tmp_path) as attached:
            ticks = asyncio.create_task(ticking())
            count = 0
            async with attached.region("async"):
                async for _ in attached.frames():
                    count += 1
                    if count == 5:
                        break
            found = await attached.aio(attached.summary, "async")
            ticks.cancel()
            return found.mean, count, longest[0]

    longest = [0.0]

    async def ticking() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest[0] = max(longest[0], time.monotonic() - before)

    mean, count, blocked_s = asyncio.run(run())
    assert (mean, count) == (pytest.approx(0.5), 5)
    assert blocked_s < 0.5


def test_a_frame_that_was_not_waited_for_long_enough_comes_next_time(server: Running, tmp_path: Path) -> None:
    async def run(attached: Attachment) -> list[int]:
        frames, seen = attached.frames(), list[int]()
        while len(seen) < 8:
            try:
                seen.append((await asyncio.wait_for(anext(frames), 0.03)).start_ns)
            except TimeoutError:
                pass
        return seen

    with attach(server, tmp_path) as attached:
        seen = asyncio.run(run(attached))
    assert seen == [*range(seen[0], seen[0] + 800_000_000, 100_000_000)]


def test_regions_that_nobody_writes_any_more_take_no_memory(server: Running, tmp_path: Path) -> None:
    with attach(server, tmp_path) as attached:
        pass
    tracemalloc.start()
    for _ in range(20_000):
        with attached.region("late"):
            pass
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 200_000


def test_it_installs_no_signal_handler_and_prints_nothing(
    server: Running, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
    before = [signal.getsignal(number) for number in numbers]
    with attach(server, tmp_path):
        assert [signal.getsignal(number) for number in numbers] == before
        time.sleep(0.3)
    assert capfd.readouterr() == ("", "")


def test_once_it_has_ended_nothing_old_looks_like_now(server: Running, tmp_path: Path) -> None:
    with attach(server, tmp_path) as attached:
        soon(lambda: attached.latest().frame and attached.latest().servers[0].reading)
        child = os.fork()
        if child == 0:
            os._exit(0 if attached.latest().frame is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert attached.latest().frame
    newest = attached.latest()
    assert (newest.frame, newest.servers[0].reading) == (None, None)


def test_a_server_that_is_started_again_is_told_with_its_address(tmp_path: Path) -> None:
    from tests.endpoints import answer, sends, serving as page_server

    def page(tokens: int) -> bytes:
        return answer(f"vllm:num_requests_running 4\nvllm:generation_tokens_total {tokens}\n")

    with (
        page_server(page(500)) as server,
        cufall_py.attach(server.url, source=script(tmp_path), record=tmp_path / "run.cufall") as attached,
    ):
        soon(lambda: attached.latest().servers[0].interval)
        server.talk = sends(page(20))
        told = soon(lambda: [line for line in attached.said if "a counter fell" in line])
    assert told == [f"{server.url}: a counter fell: the server was started again, or another one answers"]


def test_the_recording_stays_its_own_wherever_the_program_goes(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with attach(server, tmp_path, record="run.cufall") as attached:
        time.sleep(0.3)
        monkeypatch.chdir("/")
        assert attached.summary().samples > 100
        with pytest.raises(CufallError, match="is the recording itself"):
            attached.save(tmp_path / "run.cufall", force=True)
    assert Recording(tmp_path / "run.cufall").whole


def test_a_forked_copy_leaves_it_alone(server: Running, tmp_path: Path) -> None:
    with attach(server, tmp_path) as attached:
        child = os.fork()
        if child == 0:
            try:
                with attached.region("of the copy"):
                    pass
                attached.__exit__(None, None, None)
                sys.exit(0)
            finally:
                os._exit(0 if attached.path.exists() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with attached.region("mine"):
            time.sleep(0.2)
        assert attached.summary("mine").samples > 100
    assert [*Recording(attached.path).regions()] == ["mine"]


def test_a_forked_child_lets_go_of_the_sampling_whatever_another_thread_does_with_it(tmp_path: Path) -> None:
    process, done = launch(script(tmp_path)), threading.Event()
    assert process.stdin and process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    stdin, stdout = process.stdin, process.stdout
    reader = threading.Thread(target=lambda: [stdout.read() for _ in iter(done.is_set, True)])
    reader.start()
    try:
        assert all(_closes_in_a_child(stdin, stdout) for _ in range(300))
    finally:
        done.set()
        reader.join()
        stdin.close()
        stdout.close()
        process.wait(10)


def _closes_in_a_child(*pipes: IO[bytes]) -> bool:
    if (child := os.fork()) == 0:
        for pipe in pipes:
            pipe.close()
        os._exit(0)
    until = time.monotonic() + 10
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.0005)
    return True


HOST = """
import sys, time, cufall_py
with cufall_py.attach(sys.argv[1], source=sys.argv[2]) as s:
    print("attached", flush=True)
    time.sleep(60)
"""


def test_a_program_that_is_killed_leaves_no_process_and_no_ring(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    words = [sys.executable, "-c", HOST, server.url, script(tmp_path)]
    ring_dir = tmp_path / "rings"
    with subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment(CUFALL_RING_DIR=str(ring_dir), TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stdout and host.stdout.readline() == "attached\n"
        left = soon(lambda: psutil.Process(host.pid).children(recursive=True))
        host.kill()
    soon(lambda: not any(process.is_running() and process.status() != "zombie" for process in left))
    left_behind = [
        path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if (path / "attached.cufall").exists()
    ]
    assert left_behind  # a killed program cannot clear its folder, the next start does
    with attach(server, tmp_path):
        assert not any(path.exists() for path in left_behind)
    soon(lambda: not [path for path in rings(ring_dir) if path.suffix == ".ring"])


def test_what_keeps_it_from_starting_is_raised(server: Running, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an address is"):
        cufall_py.attach("ftp://x", source=script(tmp_path))
    with pytest.raises(CufallError, match="cannot be written"):
        attach(server, tmp_path, record=tmp_path / "none" / "run.cufall")
    with pytest.raises(UsageError, match="neither a short name nor"):
        attach(server, tmp_path, metrics=("tenser",))
