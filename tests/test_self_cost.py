"""What cufall says of its own cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cufall_py import Plan
from cufall_py.samples import Samples, Tally
from cufall_py.self_cost import Cost
from cufall_py.session import LiveSession
from tests.scripted import cufall, fault, script

LINE = re.compile(
    r"^cufall: (?P<samples>\d+) samples in (?P<wall>[\d.]+) s, (?P<lost>\d+) lost \((?P<lost_s>[\d.]+) s\)"
    r"(?P<also>.*)\ncufall: cost (?P<share>[\d.]+) % of a core \(workers (?P<workers>[\d.]+), "
    r"reader (?P<reader>[\d.]+)\), (?P<memory>\d+) MiB a worker, (?P<decode>[\d.]+) ms a decode, "
    r"at most (?P<late>[\d.]+) ms late; started in (?P<start>[\d.]+) s$"
)


def test_the_summary_has_everything(tmp_path: Path) -> None:
    ended = cufall("--source", script(tmp_path, gpus=2), "--frame-us", "20000", "--duration-sec", "1.5")
    found = LINE.match(ended.stderr.strip())
    assert found, ended.stderr
    said = {name: float(text) for name, text in found.groupdict().items() if name != "also"}
    assert 2 * 1.5 / 0.005 <= said["samples"] <= 2 * (said["wall"] + 0.5) / 0.005
    assert 1.5 <= said["wall"] < 20
    assert 0 < said["start"] < 20
    assert (said["lost"], found["also"]) == (0, "")
    assert said["share"] == pytest.approx(said["workers"] + said["reader"], abs=0.02)
    assert 0 < said["decode"] < 50
    assert 5 < said["memory"] < 300


def test_faults_are_counted_in_it(tmp_path: Path) -> None:
    faults = [fault(0, "gap", 0.5, 0.1), fault(0, "absurd", 0.7, 0.05), fault(0, "duplicate", 0.8, 0.05)]
    words = ("--frame-us", "20000", "--sample-us", "1000", "--decode-us", "20000", "--duration-sec", "1.5")
    ended = cufall("--source", script(tmp_path, faults=faults), *words)
    found = LINE.match(ended.stderr.strip())
    assert found, ended.stderr
    assert float(found["lost"]) == pytest.approx(100, abs=2)
    assert float(found["lost_s"]) == pytest.approx(0.1, abs=0.002)
    told = {name: int(count) for count, name in re.findall(r", (\d+) (absurd|duplicate)", found["also"])}
    assert told == {"absurd": pytest.approx(50, abs=1), "duplicate": pytest.approx(50, abs=1)}


def test_cost_is_the_tallys_sum(tmp_path: Path) -> None:
    got: list[Samples] = []
    plan = Plan(source=script(tmp_path, gpus=3, burn_ms=4), frame_us=20_000, decode_us=20_000)
    with LiveSession(plan, on_samples=lambda _, samples: got.append(samples)) as running:
        list(running.frames(1.0))
    cost = running.cost()
    tallies = [gpu.tally for gpu in running.gpus]
    assert cost.tally.samples == sum(map(len, got)) == sum(tally.samples for tally in tallies)
    assert cost.tally.decodes == sum(tally.decodes for tally in tallies)
    assert cost.workers_cpu_s == cost.tally.cpu_ns / 1e9 == sum(tally.cpu_ns for tally in tallies) / 1e9
    assert cost.tally.late_ns == max(tally.late_ns for tally in tallies)
    assert 0.004 <= cost.workers_cpu_s / cost.tally.decodes < 0.012
    assert cost.tally.decode_ns / cost.tally.decodes >= 4e6
    assert cost.share == pytest.approx((cost.reader_cpu_s + cost.workers_cpu_s) / cost.wall_s)
    assert 0 < cost.reader_cpu_s < cost.wall_s


def test_nothing_measured_costs_no_division() -> None:
    cost = Cost(0.0, 0.0, 0.0, Tally(), 0, 0)
    assert cost.line() == "0 samples in 0.0 s, 0 lost (0.000 s)"
    assert cost.cost_line().startswith(
        "cost 0 ms of a processor (workers 0, reader 0), 0 MiB a worker, 0.00 ms a decode"
    )


def test_a_share_of_less_than_a_second_is_not_told() -> None:
    assert (
        Cost(0.9, 0.02, 0.01, Tally(), 0, 0).cost_line().startswith("cost 30 ms of a processor (workers 10, reader 20)")
    )
    assert (
        Cost(2.0, 0.02, 0.01, Tally(), 0, 0).cost_line().startswith("cost 1.50 % of a core (workers 0.50, reader 1.00)")
    )


def test_what_went_wrong_is_named_only_if_it_did() -> None:
    tally = Tally(absurd=1, duplicate=2, rebuilt=3, overflows=4, late=5)
    line = Cost(1.0, 0.0, 0.0, tally, 6, 7).line()
    assert (
        ", 1 absurd, 2 duplicate, 3 re-timed, 4 buffer overflows, 5 late decodes, 6 too late for their frame, "
        "7 batches overwritten unread" in line
    )
