"""Verdicts of frames: expected classes are arithmetic on what was put in, or what an H200 was known to run."""

from __future__ import annotations

import csv
import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cufall_py.analysis.decision_table import CLASSES, TABLE, DecisionTable, condition, parse
from cufall_py.analysis.evidence import INPUTS
from cufall_py.analysis.verdict import NONE, Verdicts, classify, missing_names, rivals
from cufall_py.analysis.verdict_frames import FrameTotals, frame_totals
from cufall_py.analysis.verdict_windows import Classifier, first_two, verdicts_of
from cufall_py.errors import UsageError
from cufall_py.metrics import TIME, Metric, MetricSet
from cufall_py.samples import Samples, fold
from tests.helpers import DATA, MS

QUIET = {"tensor": 0.0, "sm": 0.0, "gr": 0.0, "dram": 0.0, "issue": 0.0, "fma": 0.0, "alu": 0.0, "launches": 0.0}
QUIET |= {"pcie.rx": 0.0, "pcie.tx": 0.0}


def judged(table: DecisionTable = TABLE, **values: float | None) -> tuple[str, str, float, tuple[str, ...]]:
    """Class, runner-up, distance and what is missing of one frame; what is not named was measured as 0."""
    given_ = {**QUIET, **{name.replace("__", "."): value for name, value in values.items()}}
    if given_["gr"] is not None:
        given_.setdefault("gap_within", 1 - given_["gr"])
    means = {name: np.array([value]) for name, value in given_.items() if value is not None}
    found = classify(means, 1, table)
    (runner_up,), (distance,) = rivals(means, found.classes, table)
    named = CLASSES[runner_up] if runner_up != NONE else ""
    return found.names()[0], named, float(distance), missing_names(int(found.missing[0]))


BUSY = {"sm": 0.95, "gr": 1.0}


@pytest.mark.parametrize(
    "values, verdict",
    [
        ({"gr": 0.0099}, "idle"),
        ({"gr": 0.0101}, "mixed"),
        ({**BUSY, "tensor": 0.46, "issue": 0.1}, "tensor-bound"),
        ({**BUSY, "tensor": 0.44, "dram": 0.2, "issue": 0.1}, "mixed"),  # 0.49 of the time, and 0.22 of it
        ({**BUSY, "tensor": 0.44, "issue": 0.1}, "latency-bound"),  # 0.49 of the time; of the rest nothing is known
        ({**BUSY, "dram": 0.46, "issue": 0.1}, "memory-bound"),
        ({**BUSY, "dram": 0.7, "tensor": 0.6, "issue": 0.1}, "memory-bound"),  # the larger of the two
        ({**BUSY, "dram": 0.6, "tensor": 0.7, "issue": 0.1}, "tensor-bound"),
        ({**BUSY, "fma": 0.8, "issue": 0.9, "dram": 0.03}, "cuda-core-bound"),
        ({**BUSY, "alu": 0.8, "issue": 0.5, "dram": 0.03}, "cuda-core-bound"),
        ({**BUSY, "fma": 0.5, "issue": 0.6, "dram": 0.6}, "memory-bound"),
        ({**BUSY, "fma": 0.8, "issue": 0.9, "tensor": 0.2}, "mixed"),  # the tensor pipe is not near 0
        ({"gr": 0.3, "sm": 0.09, "launches": 20_000, "dram": 0.03}, "launch-bound"),
        ({"gr": 0.3, "sm": 0.09, "launches": 100, "dram": 0.03}, "mixed"),  # 3 ms apart: no launch takes so long
        ({"gr": 0.3, "sm": 0.3, "launches": 60_000, "gap_within": 0.1}, "mixed"),  # one long gap, then graphs
        ({"gr": 0.7, "sm": 0.2, "launches": 20_000, "issue": 0.1, "dram": 0.03}, "latency-bound"),
        ({**BUSY, "issue": 0.01}, "waiting"),
        ({"gr": 1.0, "sm": 1 / 132, "issue": 1e-6}, "waiting"),  # one block that polls
        ({**BUSY, "issue": 0.01, "dram": 0.2}, "latency-bound"),
        ({**BUSY, "issue": 0.01, "tensor": 0.1}, "latency-bound"),
        ({**BUSY, "issue": 0.2}, "latency-bound"),
        ({**BUSY, "issue": 0.8, "fma": 0.3, "alu": 0.3}, "mixed"),  # the schedulers are no less busy than they can be
        ({"pcie__rx": 0.9}, "transfer-bound"),  # copy engines: GR does nothing
        ({**BUSY, "nvlink__tx": 0.8, "dram": 0.2, "issue": 0.02}, "transfer-bound"),
    ],
)
def test_a_frame_is_in_the_class_that_its_values_say(values: dict[str, float], verdict: str) -> None:
    assert judged(**values)[0] == verdict


@pytest.mark.parametrize(
    "values, maybe, missing",
    [
        ({**BUSY, "fma": None, "alu": None, "issue": None}, "cuda-core-bound", ("fma", "issue")),
        ({**BUSY, "alu": None, "fma": 0.2, "issue": 0.6}, "cuda-core-bound", ("alu",)),
        ({"gr": 0.3, "launches": None}, "launch-bound", ("launches",)),
        ({"gr": 0.3, "launches": 20_000, "gap_within": None}, "launch-bound", ("gap_within",)),
        ({**BUSY, "issue": 0.01, "pcie__rx": None, "pcie__tx": None}, "transfer-bound", ("link",)),
        ({**BUSY, "issue": None, "dram": 0.05}, "waiting", ("issue",)),
        ({"gr": None, "sm": 0.2, "issue": 0.01, "launches": 20_000}, "launch-bound", ("gr",)),
    ],
)
def test_what_was_not_measured_cannot_be_claimed(
    values: dict[str, float | None], maybe: str, missing: tuple[str, ...]
) -> None:
    verdict, runner_up, distance, named = judged(**values)
    assert (verdict, runner_up, named) == ("unknown", maybe, missing)
    assert np.isnan(distance)


def test_what_was_measured_bounds_what_was_not() -> None:
    # an instruction of a pipe was issued, so one that hardly issues leaves no room for FMA and ALU
    assert judged(**BUSY, issue=0.01, fma=None, alu=None)[0] == "waiting"
    # a launch has a CTA, so fewer CTAs than it takes are no launches
    assert judged(gr=0.3, launches=None, ctas=100)[0] == "mixed"
    assert judged(gr=0.3, launches=None, ctas=1e6)[0] == "unknown"
    # no pipe works more than the engine does
    assert judged(gr=0.005, tensor=None, fma=None, alu=None, issue=None, dram=0.0)[0] == "idle"


def test_evidence_that_was_measured_is_enough_whatever_else_was_not() -> None:
    assert judged(**BUSY, dram=0.8, tensor=None, fma=None, alu=None, issue=None, pcie__rx=None)[0] == "memory-bound"


@pytest.mark.parametrize(
    "values, distance, runner_up",
    [
        ({**BUSY, "dram": 0.9, "issue": 0.1}, 1.0, ""),  # all of the time, twice the half that it takes
        ({**BUSY, "dram": 0.54, "issue": 0.1}, 0.2, "latency-bound"),  # 0.6 of the time, 0.1 above a half
        ({**BUSY, "dram": 0.7, "tensor": 0.63, "issue": 0.1}, 0.1, "tensor-bound"),
        ({"gr": 0.4, "sm": 0.2, "launches": 10_000}, 0.2, "waiting"),  # the gap is 0.6, launches twice what it takes
        ({"gr": 0.002}, 0.8, ""),
        ({**BUSY, "tensor": 0.405, "dram": 0.3, "issue": 0.2}, 0.1, "tensor-bound"),  # mixed; 0.45 of the time
    ],
)
def test_distance_is_the_share_of_the_nearest_edge(values: dict[str, float], distance: float, runner_up: str) -> None:
    found = judged(**values)
    assert found[2] == pytest.approx(distance, abs=1e-9)
    assert found[1] == runner_up


def phases() -> tuple[Samples, MetricSet, dict[str, list[tuple[int, int]]]]:
    """What an H200 did, and when: its tensor cycles are held against the clock that was recorded, GR's."""
    data = np.load(DATA / "h200-phases-1khz.npz")
    names = tuple(str(name) for name in data["metrics"])
    tensor, elapsed, gr, _, dram = names
    metrics = MetricSet(
        names,
        (
            Metric("tensor", "", (tensor,), elapsed, peak=4.0),
            Metric("gr", "", (gr,), elapsed, peak=1.0),
            Metric("dram", "", (dram,), TIME, peak=100.0, rate=True),
        ),
    )
    when: dict[str, list[tuple[int, int]]] = {}
    with (DATA / "h200-phases-1khz.truth.csv").open() as file:
        for row in csv.DictReader(file):
            when.setdefault(row["phase"], []).append((int(row["start_ns"]), int(row["end_ns"])))
    return Samples(data["start_ns"], data["end_ns"], data["values"]), metrics, when


@pytest.mark.parametrize(
    "phase, verdict", [("idle", "idle"), ("copy", "memory-bound"), ("gemm", "tensor-bound"), ("fp32", "unknown")]
)
def test_an_h200_is_read_right(phase: str, verdict: str) -> None:
    samples, metrics, when = phases()
    frames = frame_totals(samples, metrics, 50 * MS)
    start_ns = frames.numbers * frames.frame_ns
    found, known = verdicts_of(frames, metrics), np.zeros(len(frames), bool)
    for begin_ns, end_ns in when[phase]:
        known |= (start_ns >= begin_ns) & (start_ns + frames.frame_ns <= end_ns) & (frames.covered_ns > 49 * MS)
    assert known.sum() >= 8
    assert Counter(np.array(found.names())[known]) == {verdict: known.sum()}
    if verdict == "unknown":
        assert all("fma" in missing_names(int(bits)) for bits in found.missing[known])


SHARES = st.floats(0, 1, width=32)
MEANS = st.fixed_dictionaries(
    dict.fromkeys(("tensor", "dram", "fma", "alu", "issue", "sm", "gr", "pcie.rx"), SHARES)
    | {"launches": st.floats(0, 1e5, width=32)}
)
ROOFS = ("tensor-bound", "memory-bound", "cuda-core-bound", "transfer-bound")


@given(MEANS, st.sets(st.sampled_from(sorted(INPUTS)), max_size=4))
@settings(max_examples=300)
def test_measuring_less_makes_no_other_claim_than_a_roof_that_was_reached(
    means: dict[str, float], hidden: set[str]
) -> None:
    means["gr"] = max(means[name] for name in ("gr", "sm", "tensor", "fma", "alu", "dram"))
    means["gap_within"] = 1 - means["gr"]
    means["issue"] = max(means["issue"], means["fma"] + means["alu"] / 2)  # as the hardware has it
    if means["issue"] > 1 or means["issue"] > means["sm"]:
        return
    whole = classify({name: np.array([value]) for name, value in means.items()}, 1).names()[0]
    part = classify({name: np.array([v]) for name, v in means.items() if name not in hidden}, 1).names()[0]
    if part not in (whole, "unknown"):
        unseen = ("idle", "launch-bound") if whole == "transfer-bound" else ()  # copies leave the engine idle
        assert (whole in ROOFS and part in (*ROOFS, *unseen)) or (whole == "mixed" and part in ROOFS)


def test_verdicts_have_a_row_a_frame_and_none_is_none() -> None:
    assert len(classify({}, 0)) == 0
    nothing = classify({}, 3)
    assert nothing.names() == ["unknown"] * 3
    assert isinstance(nothing, Verdicts)


# --- the table as a file


def test_the_table_reads_back_as_it_was_written() -> None:
    assert parse(json.dumps(TABLE.to_json())) == TABLE


def test_a_table_can_move_an_edge() -> None:
    rows = [{"class": "idle", "when": ["gr < 0.2"]}]
    table = parse(json.dumps({"schema": 1, "rows": rows}))
    assert judged(table, gr=0.15)[0] == "idle"
    assert judged(table, gr=0.25)[0] == "mixed"
    half = parse(json.dumps({"schema": 1, "reachable": {"memory": 0.5}}))
    assert judged(half, **BUSY, dram=0.26, issue=0.1)[0] == "memory-bound"


@pytest.mark.parametrize(
    "text, problem",
    [
        ("{", "not JSON"),
        ("[]", '"schema": 1'),
        ('{"schema": 2}', '"schema": 1'),
        ('{"schema": 1, "edges": []}', "no field edges"),
        ('{"schema": 1, "rows": []}', "rows must be"),
        ('{"schema": 1, "rows": [{"class": "idle"}]}', "rows must be"),
        ('{"schema": 1, "rows": [{"class": "busy", "when": ["gr < 1"]}]}', "no class busy"),
        ('{"schema": 1, "rows": [{"class": "unknown", "when": ["gr < 1"]}]}', "no class unknown"),
        ('{"schema": 1, "rows": [{"class": "idle", "when": []}]}', "needs a condition"),
        ('{"schema": 1, "rows": [{"class": "idle", "when": ["gr = 1"]}]}', "gr = 1: must be"),
        ('{"schema": 1, "rows": [{"class": "idle", "when": ["gpu < 1"]}]}', "no quantity gpu"),
        ('{"schema": 1, "rows": [{"class": "idle", "when": ["gr < nan"]}]}', "above 0"),
        ('{"schema": 1, "rows": [{"class": "idle", "when": ["gr >= largest_time"]}]}', "above 0"),
        ('{"schema": 1, "reachable": {"l2": 0.9}}', "no l2 in reachable"),
        ('{"schema": 1, "reachable": {"memory": 2}}', "from 0.01 to 1"),
        ('{"schema": 1, "reachable": {"memory": 1e-320}}', "from 0.01 to 1"),
        ('{"schema": 1, "reachable": 1}', "must be an object"),
    ],
)
def test_a_table_that_is_wrong_is_refused_in_a_line(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert problem in str(error.value) and "\n" not in str(error.value)


def test_a_condition_reads_as_it_was_written() -> None:
    assert str(condition("gr < 0.01")) == "gr < 0.01"
    assert str(condition("tensor_time >= largest_time")) == "tensor_time >= largest_time"


# --- frames


def counted(lengths_ms: list[float], start_ms: float = 0.0) -> Samples:
    """Samples that join, of these lengths, in which one event a microsecond was counted."""
    edges = np.rint((start_ms + np.concatenate(([0.0], np.cumsum(lengths_ms)))) * MS).astype(np.int64) + 10**18
    return Samples(edges[:-1], edges[1:], np.diff(edges)[:, None] / 1e3)


ONE = MetricSet(("a__events.sum",), (Metric("gr", "", ("a__events.sum",), TIME, peak=1e-3),))


@given(
    st.lists(st.floats(0.5, 160), min_size=1, max_size=60),
    st.floats(0, 200),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_frames_hold_what_was_counted_in_them_however_it_came(
    lengths: list[float], start_ms: float, cuts: list[int]
) -> None:
    samples = counted(lengths, start_ms)
    parts = [Samples(s, e, v) for s, e, v in _cut(samples, cuts)]
    found = FrameTotals.join([frame_totals(part, ONE, 50 * MS) for part in parts])
    assert found.totals[:, 0] * 1e3 == pytest.approx(found.covered_ns)  # one a microsecond, all of the time
    assert found.covered_ns.sum() == pytest.approx(samples.end_ns[-1] - samples.start_ns[0])
    assert (found.covered_ns <= 50 * MS * (1 + 1e-9)).all()
    assert (np.diff(found.numbers) > 0).all()
    known = fold(samples, 50 * MS, ONE)
    at = found.numbers - known.start_ns // (50 * MS)
    assert found.totals == pytest.approx(known.totals[at])


def _cut(samples: Samples, cuts: list[int]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    edges = sorted({0, len(samples), *(cut for cut in cuts if cut < len(samples))})
    return [(samples.start_ns[a:b], samples.end_ns[a:b], samples.values[a:b]) for a, b in pairwise(edges)]


def test_a_hole_has_no_frames_and_samples_without_a_value_are_none() -> None:
    early, late = counted([1.0] * 100), counted([1.0] * 100, 1e9)
    late.values[:50] = np.nan
    found = frame_totals(Samples.join([early, late]), ONE, 50 * MS)
    assert len(found) == 3
    assert found.covered_ns.tolist() == [50 * MS] * 3


# --- windows


@given(st.lists(st.sampled_from([0.0, 0.3, 0.9]), min_size=1, max_size=40), st.floats(0, 3), st.integers(1, 7))
def test_shares_add_up_to_the_window(levels: list[float], beyond_s: float, batch: int) -> None:
    """A frame of 50 ms is idle, unknown (launches are not measured) or, of these metrics, unknown as well."""
    samples = counted([10.0] * 5 * len(levels))
    samples.values[:] *= np.repeat(levels, 5)[:, None]
    classifier = Classifier(ONE, 50 * MS)
    for at in range(0, len(samples), batch):
        classifier.add(samples[at : at + batch])
    wanted_ns = len(levels) * 50 * MS + beyond_s * 1e9
    window = classifier.verdict(wanted_ns)
    assert sum(window.shares.values()) == pytest.approx(1)
    assert window.shares["idle"] == pytest.approx(levels.count(0.0) * 50 * MS / wanted_ns)
    assert window.shares["unknown"] == pytest.approx(1 - window.shares["idle"])
    assert window.means["gr"] == pytest.approx(np.mean(levels))


@pytest.mark.parametrize(
    "shares, verdict, runner_up",
    [
        ({"idle": 0.5, "memory-bound": 0.3, "unknown": 0.2}, "idle", "memory-bound"),
        ({"idle": 0.49, "memory-bound": 0.31, "unknown": 0.2}, "mixed", "idle"),
        ({"unknown": 0.7, "idle": 0.3}, "unknown", "idle"),
        ({"mixed": 0.4, "memory-bound": 0.35, "idle": 0.25}, "mixed", "memory-bound"),
        ({"waiting": 1.0}, "waiting", ""),
    ],
)
def test_a_window_is_what_has_half_of_it(shares: dict[str, float], verdict: str, runner_up: str) -> None:
    first, second = first_two(np.array([shares.get(name, 0.0) for name in CLASSES]))
    assert (CLASSES[first], CLASSES[second] if second >= 0 else "") == (verdict, runner_up)


def test_nothing_measured_is_unknown() -> None:
    for wanted_ns in (0, 10**9):
        window = Classifier(ONE, 50 * MS).verdict(wanted_ns)
        assert (window.verdict, window.shares["unknown"], dict(window.means)) == ("unknown", 1.0, {})


def test_what_is_unknown_may_be_some_classes_and_not_others() -> None:
    """Half of two seconds at a third of the engine: launches were not measured; no link, so a transfer as well."""
    samples = counted([10.0] * 100)
    samples.values[:] *= 0.3
    classifier = Classifier(ONE, 50 * MS)
    classifier.add(samples)
    window = classifier.verdict(2e9)
    assert window.at_most["launch-bound"] == pytest.approx(1.0)
    assert window.at_most["cuda-core-bound"] == pytest.approx(0.5)  # no pipe has half where the engine has a third
    assert window.shares["launch-bound"] == 0
    assert set(window.missing) >= {"launches", "link"}


def test_gaps_within_are_those_of_samples_that_had_work() -> None:
    """Of 100 ms, the engine works a third of each of the first 30 samples, all of 10, and none of the rest."""
    samples = counted([1.0] * 100)
    samples.values[:] *= np.repeat([0.3, 1.0, 0.0], [30, 10, 60])[:, None]
    found = frame_totals(samples, ONE, 50 * MS)
    assert found.gap_ns == pytest.approx([0.7 * 30 * MS, 0.0])
    joined = FrameTotals.join([frame_totals(samples[:17], ONE, 50 * MS), frame_totals(samples[17:], ONE, 50 * MS)])
    assert joined.gap_ns == pytest.approx(found.gap_ns)


def test_gaps_within_are_not_known_of_joined_samples_of_which_one_had_nothing() -> None:
    samples = counted([50.0] * 3)
    samples.values[:] *= 0.3
    least = np.array([[0.25], [0.0], [np.nan]])  # the last is none of several
    joined = Samples(samples.start_ns, samples.end_ns, samples.values, least, least + 0.5)
    assert frame_totals(joined, ONE, 50 * MS).gap_ns == pytest.approx([35 * MS, np.nan, 35 * MS], nan_ok=True)


def test_gaps_within_are_the_same_of_short_samples() -> None:
    """A kernel of 20 us each 100 us, by samples of 20 us: four of five had nothing, and yet these are gaps."""
    samples = counted([0.02] * 5000)
    samples.values[:] *= np.where(np.arange(5000) % 5 == 0, 1.0, 0.0)[:, None]
    samples.values[2500:] = 0
    assert frame_totals(samples, ONE, 50 * MS).gap_ns == pytest.approx([40 * MS, 0.0])


def test_bursts_of_kernels_are_not_bound_by_launching() -> None:
    """Both a third active, at the same launches a second: in short pieces all along, or in one burst a frame."""
    names = ("gr__cycles_active.avg", "gr__cycles_elapsed.max", "gr__dispatch_count.sum", "pcie__read_bytes.sum")
    gr = Metric("gr", "", (names[0],), names[1], peak=1.0)
    launches = Metric("launches", "", (names[2],), TIME, peak=1e-9, bounded=False, plain=True, unit="/s")
    nothing = [Metric(name, "", (names[3],), TIME, peak=1.0) for name in ("pcie.rx", "dram")]
    metrics = MetricSet(names, (gr, launches, *nothing))
    even, burst = np.full(50, 0.32), np.repeat([1.0, 0.0], [16, 34])
    for activity, verdict in ((even, "launch-bound"), (burst, "mixed")):
        values = np.stack([activity * 1e6, np.full(50, 1e6), activity * 100, np.zeros(50)], axis=1)
        edges = 10**18 + MS * np.arange(51, dtype=np.int64)
        frames = frame_totals(Samples(edges[:-1], edges[1:], values), metrics, 50 * MS)
        assert verdicts_of(frames, metrics).names() == [verdict]


@pytest.mark.parametrize("pipe", ["sm", "tensor", "issue", "fma", "alu", "fp64"])
def test_a_pipe_at_work_is_not_idle_though_gr_was_not_measured(pipe: str) -> None:
    """No pipe is active while the engine is not: 5 % of one is more than the 1 % of gr that idle may have."""
    found = classify({pipe: np.array([0.05, 0.005])}, 2)
    assert found.names() == ["unknown", "unknown"]
    assert (found.possible >> CLASSES.index("idle") & 1).tolist() == [0, 1]
    assert classify({"dram": np.array([0.05])}, 1).possible[0] >> CLASSES.index("idle") & 1
