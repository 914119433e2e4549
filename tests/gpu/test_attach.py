"""Attached to a real model that is served over HTTP: figures against the client's count and the server's own log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import mean

import pytest

import cufall_py
from cufall_py.engines.driven import Driven
from cufall_py.engines.rates import Interval
from cufall_py.served import frame_table, phase_shares, served
from tests.servers import Running, decode_and_rest, prefill_and_rest, serving, true_shares, wrong_and_unsure

from .measure import note

pytestmark = pytest.mark.gpu
AT_ONCE = (1, 4, 16, 64)
EACH_S, PHASE_S, COST_S, COST_TURNS = 7.0, 6.0, 5.0, 4
PROMPT, OUTPUT, COST_OUTPUT = 256, 256, 64
MOST_TOKENS_OFF, MOST_WRONG, MOST_UNSURE = 0.02, 0.05, 0.6
LEAST_SPEED = 0.95
"""What is left of the server's tokens a second beside attach; what differs from one run to the next is noted."""


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real model, with the metrics of the engine that the test names: some of SGLang's move once in many steps."""
    with serving(tmp_path_factory.mktemp("server"), "--like", request.param, fake=False) as running:
        for at_once in (1, AT_ONCE[-1]):
            running.driven(at_once, 0.5, PROMPT, 8)  # kernels are loaded when they are first used
        yield running


like = partial(pytest.mark.parametrize, "server", indirect=True, scope="module")


@like(["vllm"])
def test_by_running_requests_tokens_are_those_that_the_client_counts(server: Running, tmp_path: Path) -> None:
    with cufall_py.attach(server.url, record=tmp_path / "run.cufall") as attached:
        driven = {at_once: server.driven(at_once, EACH_S, PROMPT, OUTPUT) for at_once in AT_ONCE}
        time.sleep(1.5)
        gpus = [opened.device.ordinal for opened in attached.gpus_of(0)]
    (one,) = served(tmp_path / "run.cufall")
    rows = {row.least: row for row in one.rows}
    figures = {
        at_once: {
            "tokens_per_s": asdict(rows[at_once].generation_tokens_per_s),
            "client_tokens_per_s": counted(driven[at_once], list(one.log.intervals), at_once),
            "itl_s": asdict(rows[at_once].tpot_s),
            "client_tpot_s": driven[at_once].percentile_s("tpot_s", 50),
            "metrics": {label: asdict(mean) for label, mean in rows[at_once].metrics.items()},
        }
        for at_once in AT_ONCE
    }
    note("attach_by_running", gpus=gpus, said=list(attached.said), rows=figures, phases=dict(one.phase_s))
    for at_once, found in figures.items():
        client, server_said = found["client_tokens_per_s"], found["tokens_per_s"]["value"]
        assert server_said == pytest.approx(client, rel=MOST_TOKENS_OFF), at_once
        assert 0 < found["metrics"]["tensor"]["value"] < 1
    speeds = [found["tokens_per_s"]["value"] for found in figures.values()]
    assert speeds == sorted(speeds)


def counted(driven: Driven, intervals: list[Interval], at_once: int) -> float:
    """Tokens a second that the client got while the server said at both scrapes that so many ran."""
    held = [i for i in intervals if i.gauges.get("running") == (at_once, at_once)]
    spans = [(i.before.monotonic_ns / 1e9, i.after.monotonic_ns / 1e9) for i in held]
    spans = [(a, b) for a, b in spans if driven.begun_s <= a and b <= driven.ended_s]
    assert len(spans) >= 3
    return sum(driven.between(a, b) * (b - a) for a, b in spans) / sum(b - a for a, b in spans)


@like(["vllm", "sglang"])
def test_phases_are_those_of_the_servers_own_log(server: Running, tmp_path: Path) -> None:
    tensor = {}
    for role in ("prefill", "decode"):
        path = tmp_path / f"{role}.cufall"
        with cufall_py.attach(server.url, roles={server.url: role}, record=path):
            if role == "prefill":
                prefill_and_rest(server, PHASE_S, 1024)
            else:
                decode_and_rest(server, PHASE_S / 2, 400)
        (one,) = served(path)
        frames, _ = frame_table(path)
        true = true_shares(server.steps(), frames.start_ns, frames.end_ns)
        wrong, unsure = wrong_and_unsure(phase_shares(one.log, frames), true)
        means = {phase: dict(zip(one.labels, of.tolist(), strict=True)) for phase, of in one.phase_means.items()}
        told = {"true": true.mean(axis=0).tolist(), "seconds": dict(one.phase_s), "means": means}
        note(f"attach_phase_{role} {one.log.engine}", wrong=wrong, unsure=unsure, **told)
        assert (wrong < MOST_WRONG, unsure < MOST_UNSURE) == (True, True), (wrong, unsure)
        tensor[role] = means[role]["tensor"]
    assert tensor["prefill"] > 5 * tensor["decode"] > 0


@like(["vllm"])
def test_the_server_is_no_slower_beside_it(server: Running, tmp_path: Path) -> None:
    def speed() -> float:
        return server.driven(16, COST_S, PROMPT, COST_OUTPUT).full_tokens_per_s

    speed()  # the first at a length is slower
    off, on = [speed()], []
    for turn in range(COST_TURNS):
        with cufall_py.attach(server.url, record=tmp_path / f"run-{turn}.cufall"):
            on.append(speed())
        off.append(speed())
    ratios = [2 * beside / (before + after) for before, beside, after in zip(off, on, off[1:], strict=False)]
    note("attach_cost", off=off, on=on, ratios=ratios)
    assert mean(ratios) > LEAST_SPEED
    assert max(on) > min(off)
