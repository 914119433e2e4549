"""What goes wrong on real hardware: kills, stops, rivals, questions that cannot be asked, full buffers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from harness import running, supervisors, tree, workers

from cufall_py.errors import CountersOwned
from cufall_py.session import LiveSession

from .measure import Loads, Plan, Sampling, Watched, cufall, ended, environment, note, nvidia_smi, run

pytestmark = pytest.mark.gpu
ROUNDS = 20
VICTIMS = ("worker", "supervisor", "reader", "all")
QUICK = ("--devices", "0", "--frame-us", "20000", "--decode-us", "20000")
SHORT = ("--source", "cupti", "--devices", "0", "--duration-sec", "0.5", "--csv", "-")


@pytest.fixture
def gemm(loads: Loads) -> Iterator[None]:
    """A product that runs all the time."""
    loads.begin("bf16", 8192, 1e6)
    yield
    loads.end()


def test_killed_at_random_and_started_at_once(gemm: None, ring_dir: Path) -> None:
    """Every victim, while starting and while sampling; each start after a kill must give rows again."""
    chance, seen, took = random.Random(7), set(), []
    for turn in range(ROUNDS):
        victim, starting = VICTIMS[turn % len(VICTIMS)], turn // len(VICTIMS) % 2
        began, watched = time.monotonic(), Watched(*QUICK)
        if starting:
            time.sleep(chance.uniform(0, 1.2))
        else:
            assert watched.row_after(0, 10), f"turn {turn}: {watched.finish()}"
            took.append(time.monotonic() - began)
            time.sleep(chance.uniform(0, 0.2))
        seen |= set(tree(watched.pid))
        kill(watched, victim, bool(starting))
    last = Watched(*QUICK)
    assert last.row_after(0, 10)
    seen |= set(tree(last.pid))
    last.finish()
    time.sleep(0.5)
    note("kills", rounds=ROUNDS, to_first_row_s=took)
    assert not [pid for pid in seen if running(pid)]
    assert not list(ring_dir.glob("*"))


def kill(watched: Watched, victim: str, starting: bool) -> None:
    """SIGKILL one process of a cufall, or all, and see what the others do; one still starting may lack some."""
    chosen = {
        "worker": workers(watched.pid),
        "supervisor": supervisors(watched.pid),
        "reader": [watched.pid],
        "all": tree(watched.pid),
    }[victim]
    assert chosen or starting
    now = time.time_ns()
    for pid in chosen:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if victim in ("worker", "supervisor") and not watched.row_after(now, 10):
        # without its sampling process one that has not sampled yet ends, and says so
        assert starting and watched.process.poll() == 1, f"no rows after its {victim} was killed"
    watched.process.kill()
    watched.process.communicate()


def test_a_second_one_is_refused_and_the_first_goes_on(gemm: None) -> None:
    first = Watched("--source", "cupti", "--devices", "0", "--sample-us", "1000")
    assert first.row_after(0, 10)
    second = run(*SHORT)
    with pytest.raises(CountersOwned):
        LiveSession(Plan(devices="0", source="cupti"))
    assert first.row_after(time.time_ns(), 5)
    said = first.finish()
    after = run(*SHORT)
    note("second", code=second.code, said=second.said, names_owner=str(first.pid) in second.said, first=said)
    assert second.code == 1 and second.out == "" and len(second.said.splitlines()) == 1
    assert " 0 lost" in said
    assert after.code == 0 and after.rows()


@pytest.mark.parametrize(
    "metrics",
    [
        ("sm__nope.avg",),
        ("sm__cycles_active.avg.foo",),
        ("tensor", "sm__nope.avg"),
        ("sm__inst_executed_pipe_fma.sum", "sm__pipe_fma_cycles_active.avg"),
    ],
    ids=["unknown", "unknown submetric", "one unknown of two", "two passes"],
)
def test_a_question_that_cannot_be_asked_is_usage(metrics: tuple[str, ...]) -> None:
    found = run("--devices", "0", *asking(*metrics), "--duration-sec", "1")
    note(f"usage {' '.join(metrics)}", code=found.code, said=found.said, took_s=found.took_s)
    assert found.code == 2 and found.out == ""
    assert len(found.said.splitlines()) == 1


def asking(*metrics: str) -> list[str]:
    return [word for metric in metrics for word in ("--metric", metric)]


def test_a_unit_that_is_not_there_is_left_out() -> None:
    if int(nvidia_smi("count")) > 1:
        pytest.skip("this GPU may have an NVLink peer; run this on a machine with one GPU")
    beside = run(*SHORT, *asking("tensor", "nvlink.rx"))
    alone = run(*SHORT, *asking("nvlink.rx"))
    note("absent unit", beside=beside.said, alone=alone.said, took_s=[beside.took_s, alone.took_s])
    assert beside.code == 0 and "left out nvlink.rx" in beside.said
    assert {row["metric"] for row in beside.rows() if row["mean"]} == {"tensor"}
    assert alone.code == 1 and len(alone.said.splitlines()) == 1


def test_a_stopped_worker_goes_on_and_every_sample_is_accounted_for(gemm: None) -> None:
    with Sampling(sample_us=1000) as sampling:
        sampling.for_s(1.0)
        worker = workers(os.getpid())[0]
        os.kill(worker, signal.SIGSTOP)
        sampling.for_s(5.0)
        os.kill(worker, signal.SIGCONT)
        went_on_ns = time.time_ns()
        sampling.for_s(2.0)
        now = time.time_ns()
        last_second = sampling.window(now - 1_300_000_000, now - 300_000_000)
        accounted = accounted_for(sampling, 1_000_000)
        tally = vars(sampling.session.gpus[0].tally)
        note("stopped", accounted=accounted, gaps_s=gaps_s(sampling, went_on_ns), **tally, said=sampling.said)
        assert sampling.session.gpus[0].restarts == 0
    assert accounted == pytest.approx(1, abs=0.01)
    assert last_second.covered_ns == pytest.approx(1e9, rel=0.01)


def test_a_full_buffer_that_keeps_the_latest_counts_what_it_lost(gemm: None) -> None:
    options = {"sample_us": 20, "decode_us": 500_000, "hw_buffer_mb": 1, "buffer_samples": 4000}
    with Sampling(**options) as sampling:
        sampling.for_s(4.0)
        tally, accounted = sampling.session.gpus[0].tally, accounted_for(sampling, 20_000)
    note("overflow", accounted=accounted, **vars(tally))
    assert tally.lost > 0
    assert accounted == pytest.approx(1, abs=0.01)


def gaps_s(sampling: Sampling, origin_ns: int) -> list[tuple[float, float]]:
    """From when to when nothing was sampled for two samples or more, before and after a moment."""
    samples = sampling.samples()
    after = np.flatnonzero(samples.start_ns[1:] - samples.end_ns[:-1] > 2_000_000)
    edges = zip(samples.end_ns[after].tolist(), samples.start_ns[after + 1].tolist(), strict=True)
    return [((a - origin_ns) / 1e9, (b - origin_ns) / 1e9) for a, b in edges]


def accounted_for(sampling: Sampling, period_ns: int) -> float:
    """Samples got and counted as lost, over those that the time they span has."""
    samples, tally = sampling.samples(), sampling.session.gpus[0].tally
    expected = (int(samples.end_ns[-1]) - int(samples.start_ns[0])) / period_ns
    return (tally.samples + tally.lost + tally.absurd) / expected


def test_the_sysclk_trigger_samples() -> None:
    found = run(*SHORT[:2], "--trigger", "sysclk", "--sysclk-cycles", "1500000", "--csv", "-", "--duration-sec", "1")
    rows = found.rows()
    note("sysclk", code=found.code, said=found.said, sample_us=[row["sample_us"] for row in rows[:3]])
    assert found.code == 0
    assert all(float(row["coverage"]) > 0.99 for row in rows)
    assert all(300 < float(row["sample_us"]) < 5000 for row in rows)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_a_signal_at_any_moment_of_the_start_ends_it(number: signal.Signals, code: int) -> None:
    """A signal before Python runs our code ends it by that signal, which a shell shows as the same number."""
    chance, found = random.Random(number), []
    for _ in range(7):
        process = cufall(*QUICK, "--csv", "-", stdout=-1, stderr=-1)
        after_s = chance.uniform(0.02, 1.6)
        time.sleep(after_s)
        process.send_signal(number)
        end = ended(process, time.monotonic(), 20)
        found.append({"after_s": after_s, "code": end.code, "took_s": end.took_s, "said": end.said[-300:]})
    again = run(*SHORT)
    note(f"signal {number.name}", found=found, again=again.code)
    assert all(end["code"] in (code, -number) for end in found)
    assert all(end["took_s"] < 2 for end in found)
    assert not any("Traceback" in str(end["said"]) for end in found if end["code"] == code)
    assert again.code == 0 and again.rows()


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    watched = Watched(*QUICK)
    assert watched.row_after(0, 10)
    assert watched.process.stdout and watched.process.stderr
    watched.process.stdout.close()
    code = watched.process.wait(5)
    said = watched.process.stderr.read().decode()
    watched.process.stderr.close()
    note("reader gone", code=code, said=said)
    assert code == 141 and "Traceback" not in said
    assert run(*SHORT).code == 0


def test_no_context_is_made(loads: Loads) -> None:
    loads.begin("bf16", 2048, 1e6)
    time.sleep(1.0)
    before = nvidia_smi("memory.used")
    watched = Watched(*QUICK)
    assert watched.row_after(0, 10)
    ours, during = set(map(str, tree(watched.pid))), nvidia_smi("memory.used")
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    listed = set(subprocess.run(command, capture_output=True, text=True).stdout.split())
    watched.finish()
    time.sleep(0.2)
    after = nvidia_smi("memory.used")
    loads.end()
    note("context", memory_mib=[before, during, after], listed=sorted(listed), ours=sorted(ours))
    assert before == during == after
    assert not listed & ours


def test_an_unprivileged_user_gets_samples_or_a_line_that_says_why() -> None:
    if os.geteuid() or not shutil.which("runuser"):
        pytest.skip("needs root and runuser to become another user")
    as_nobody = ["runuser", "-u", "nobody", "--"]
    if subprocess.run(
        [*as_nobody, sys.executable, "-c", "import cufall_py.cli"], env=environment(), cwd="/"
    ).returncode:
        pytest.skip("nobody may not read this Python or this checkout")
    env = {key: value for key, value in environment().items() if key != "CUFALL_RING_DIR"}
    command = [*as_nobody, sys.executable, "-m", "cufall_py", *SHORT[2:]]
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=60)
    note("unprivileged", code=done.returncode, said=done.stderr, rows=len(done.stdout.splitlines()) - 1)
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 1
    if ",gpm," in done.stdout:
        assert "keeps the counters" in done.stderr and "NVML GPM instead" in done.stderr
