"""The scripted source counts exactly what its script says, and goes wrong exactly where it says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.errors import CountersDenied, CountersOwned, SourceError, UsageError
from cufall_py.plan import Plan
from cufall_py.resolve import Wanted
from cufall_py.samples import Samples
from cufall_py.screening import screen
from cufall_py.sources import provider
from cufall_py.sources.script import ScriptProvider, ScriptSource
from cufall_py.sources.script_file import FAULT_FIELDS, FIELDS, parse
from tests.helpers import EPOCH, MS, SECOND

SM_HZ, DRAM_HZ, TENSOR_PEAK, DRAM_PEAK = 1.755e9, 3.2e9, 4.0, 1504.0
"""What docs/scripted.md says a scripted H200 is."""
HALF_THEN_IDLE: list[dict[str, float]] = [{"ms": 100, "tensor": 0.5, "sm": 0.9}, {"ms": 100}]
ROOT = Path(__file__).parent.parent


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = EPOCH

    def __call__(self) -> int:
        return self.now_ns

    def move(self, milliseconds: float) -> None:
        self.now_ns += round(milliseconds * MS)


def plan_of(*metrics: str, sample_us: int = 1000, **more: Any) -> Plan:
    return Plan(Wanted(metrics or ("tensor",)), sample_us=sample_us, frame_us=100_000, **more)


def source_of(clock: Clock, plan: Plan | None = None, gpu: int = 0, **script: Any) -> ScriptSource:
    text = json.dumps({"gpus": 2, "pattern": HALF_THEN_IDLE, **script})
    made = ScriptProvider(parse(text), clock)
    return made.source(made.devices()[gpu], plan or plan_of())


def read_after(source: ScriptSource, clock: Clock, milliseconds: float) -> Samples:
    clock.move(milliseconds)
    return source.read().spread()


def tensor_cycles(since_s: float) -> float:
    """Since the start of HALF_THEN_IDLE: half of the peak for 0.1 s of every 0.2 s."""
    cycles, within = divmod(since_s, 0.2)
    return 0.5 * TENSOR_PEAK * SM_HZ * (cycles * 0.1 + min(within, 0.1))


# --- counters ---


def test_totals_are_the_integral_of_the_pattern() -> None:
    clock = Clock()
    source = source_of(clock)
    source.open()
    samples = read_after(source, clock, 1000)
    assert len(samples) == 1000
    # half a second at half of 4 x 1.755 GHz, and a second of the clock
    assert samples.values.sum(axis=0) == pytest.approx([1.755e9, 1.755e9], rel=1e-9)


@given(st.integers(5, 100_000), st.floats(1, 900))
def test_any_window_is_the_integral_of_the_pattern(sample_us: int, milliseconds: float) -> None:
    clock = Clock()
    source = source_of(clock, plan_of(sample_us=sample_us, hw_buffer_mb=4096))
    source.open()
    samples = read_after(source, clock, milliseconds)
    count = round(milliseconds * MS) // (1000 * sample_us)
    assert len(samples) == count
    spanned_s = count * sample_us / 1e6
    assert samples.values[:, 0].sum() == pytest.approx(tensor_cycles(spanned_s), rel=1e-6, abs=1e3)
    assert samples.values[:, 1].sum() == pytest.approx(SM_HZ * spanned_s, rel=1e-6, abs=1e3)


def test_every_sample_is_the_integral_over_itself() -> None:
    clock = Clock()
    source = source_of(clock, plan_of(sample_us=7_000))
    source.open()
    samples = read_after(source, clock, 700)
    for start, end, value in zip(samples.start_ns, samples.end_ns, samples.values[:, 0], strict=True):
        counted = tensor_cycles((end - EPOCH) / SECOND) - tensor_cycles((start - EPOCH) / SECOND)
        assert value == pytest.approx(counted, rel=1e-6, abs=1e3)


def test_samples_join_from_read_to_read() -> None:
    clock = Clock()
    source = source_of(clock)
    source.open()
    samples = Samples.join(read_after(source, clock, ms) for ms in (0.5, 3.2, 0.1, 0, 12.2))
    assert samples.start_ns[0] == EPOCH
    np.testing.assert_array_equal(samples.start_ns[1:], samples.end_ns[:-1])
    assert set((samples.end_ns - samples.start_ns).tolist()) == {MS}
    assert len(samples) == 16


def test_metrics_read_the_ratios_of_the_script() -> None:
    clock = Clock()
    ratios = {
        "tensor": 0.3,
        "sm": 0.95,
        "gr": 0.99,
        "dram": 0.35,
        "issue": 0.2,
        "fma": 0.1,
        "occupancy": 0.6,
        "l2": 0.4,
    }
    source = source_of(clock, plan_of(*ratios), pattern=[{"ms": 100, **ratios}])
    metrics = source.open().metrics
    samples = read_after(source, clock, 10)
    quotients = metrics.quotients(samples.values, samples.end_ns - samples.start_ns)
    assert [m.label for m in metrics.metrics] == list(ratios)
    assert quotients == pytest.approx(np.array([list(ratios.values())] * 10), rel=1e-6)


def test_two_directions_share_a_bus() -> None:
    clock = Clock()
    source = source_of(clock, plan_of("dram"), pattern=[{"ms": 100, "dram": 0.5}])
    names = source.open().metrics.counters
    totals = dict(zip(names, read_after(source, clock, 1000).values.sum(axis=0), strict=True))
    moved = [amount for name, amount in totals.items() if name.startswith("dram__bytes")]
    # a quarter of the peak each way
    assert moved == pytest.approx([0.25 * DRAM_PEAK * DRAM_HZ] * 2, rel=1e-9)


def test_a_ratio_not_named_is_zero_and_not_missing() -> None:
    clock = Clock()
    source = source_of(clock, pattern=[{"ms": 10, "sm": 1.0}])
    source.open()
    assert read_after(source, clock, 20).values[:, 0].tolist() == [0.0] * 20


def test_gpus_take_patterns_in_turn() -> None:
    patterns = [[{"ms": 10, "tensor": 0.2}], [{"ms": 10, "tensor": 0.8}]]
    for gpu, ratio in ((0, 0.2), (1, 0.8), (2, 0.2)):
        clock = Clock()
        made = ScriptProvider(parse(json.dumps({"gpus": 3, "patterns": patterns})), clock)
        source = made.source(made.devices()[gpu], plan_of())
        source.open()
        total = read_after(source, clock, 100).values[:, 0].sum()
        assert total == pytest.approx(ratio * TENSOR_PEAK * SM_HZ * 0.1, rel=1e-9)


def test_a_gpu_begins_its_pattern_later_by_the_stagger() -> None:
    clock = Clock()
    source = source_of(clock, gpu=1, stagger_ms=30)
    source.open()
    samples = read_after(source, clock, 200)
    # busy from 30 to 130 ms after the start; before it, the end of the pattern: idle
    busy = samples.values[:, 0] > 0
    assert busy.tolist() == [False] * 30 + [True] * 100 + [False] * 70


def test_what_does_not_fit_the_buffer_is_overwritten() -> None:
    clock = Clock()
    source = source_of(clock, plan_of(hw_buffer_mb=1))
    opened = source.open()
    samples = read_after(source, clock, 1000)
    # 1 MiB in records of 16 KiB
    assert len(samples) == 64
    assert samples.end_ns[-1] == EPOCH + 1000 * MS
    assert len(screen(samples, EPOCH, opened.metrics, source.tally)) == 64
    assert (source.tally.lost, source.tally.lost_ns) == (936, 936 * MS)


def test_decoding_can_be_made_to_cost_processor_time() -> None:
    clock = Clock()
    source = source_of(clock, burn_ms=20)
    source.open()
    before = time.thread_time()
    source.read()
    assert time.thread_time() - before >= 0.02


# --- faults ---


def faulty(clock: Clock, kind: str, gpu: int = 0, **fault: float) -> ScriptSource:
    return source_of(clock, gpu=gpu, faults=[{"gpu": 0, "kind": kind, **fault}])


def screened(source: ScriptSource, clock: Clock, milliseconds: float) -> Samples:
    metrics = source.open().metrics
    return screen(read_after(source, clock, milliseconds), EPOCH, metrics, source.tally)


def test_a_gap_is_lost_and_counted() -> None:
    clock = Clock()
    source = faulty(clock, "gap", at_s=0.02, for_s=0.01)
    kept = screened(source, clock, 50)
    # those that end at 20, 21, ... 29 ms
    assert ((kept.end_ns - EPOCH) // MS).tolist() == [*range(1, 20), *range(30, 51)]
    assert (source.tally.lost, source.tally.lost_ns) == (10, 10 * MS)


def test_absurd_samples_are_screened() -> None:
    clock = Clock()
    source = faulty(clock, "absurd", at_s=0.02, for_s=0.01)
    kept = screened(source, clock, 50)
    assert (len(kept), source.tally.absurd, source.tally.lost) == (40, 10, 0)
    assert kept.values.max() < 2**32 - 1


def test_duplicates_are_screened() -> None:
    clock = Clock()
    source = faulty(clock, "duplicate", at_s=0.02, for_s=0.01)
    kept = screened(source, clock, 50)
    assert (len(kept), source.tally.duplicate, source.tally.lost) == (50, 10, 0)


def test_faults_at_once_do_not_disturb_each_other() -> None:
    clock = Clock()
    kinds = {"gap": 0.01, "absurd": 0.02, "duplicate": 0.03}
    source = source_of(clock, faults=[{"gpu": 0, "kind": k, "at_s": at, "for_s": 0.005} for k, at in kinds.items()])
    kept = screened(source, clock, 50)
    assert (source.tally.lost, source.tally.absurd, source.tally.duplicate, len(kept)) == (5, 5, 5, 40)


def test_a_lost_gpu_says_so_and_may_come_back() -> None:
    clock = Clock()
    source = faulty(clock, "lost", at_s=0.02, for_s=0.01)
    source.open()
    assert len(read_after(source, clock, 19)) == 19
    with pytest.raises(SourceError, match=r"GPU 0 .* is lost"):
        read_after(source, clock, 1)
    assert len(read_after(source, clock, 10)) == 11


@pytest.mark.parametrize(("kind", "error"), [("denied", CountersDenied), ("owned", CountersOwned)])
def test_counters_can_be_kept_from_it(kind: str, error: type[SourceError]) -> None:
    clock = Clock()
    source = faulty(clock, kind, for_s=1.0)
    with pytest.raises(error, match=f"GPU 0 .*{kind}"):
        source.open()
    clock.move(1000)
    assert source.open().source == "script"


def test_a_hang_lasts_as_long_as_it_says() -> None:
    clock = Clock()
    source = faulty(clock, "hang", at_s=0.02, for_s=0.08)
    source.open()
    clock.move(50)
    before = time.monotonic()
    source.read()
    # of its 80 ms 50 are left at 50 ms after the start
    assert 0.05 <= time.monotonic() - before < 2.0


def test_a_crash_kills_the_process() -> None:
    code = (
        "from tests.test_script import Clock, faulty\n"
        "clock = Clock(); source = faulty(clock, 'crash', at_s=0.01); source.open()\n"
        "print(len(source.read()), flush=True); clock.move(10); source.read()"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "0\n")


@pytest.mark.parametrize("kind", ["gap", "absurd", "duplicate", "lost", "denied", "owned", "crash", "hang"])
def test_a_fault_is_its_gpus_alone(kind: str) -> None:
    clock = Clock()
    source = faulty(clock, kind, gpu=1)
    assert len(screened(source, clock, 50)) == 50


# --- scripts ---


def test_gpus_have_what_identifies_them() -> None:
    uuids = ["GPU-a", "GPU-b"]
    script = parse(json.dumps({"gpus": 3, "name": "H", "pattern": HALF_THEN_IDLE, "uuids": uuids}))
    devices = ScriptProvider(script, Clock()).devices()
    assert [device.ordinal for device in devices] == [0, 1, 2]
    assert [device.uuid for device in devices[:2]] == uuids
    assert len({device.uuid for device in devices}) == len({device.pci for device in devices}) == 3


def test_two_runs_of_a_script_do_not_share_a_ring() -> None:
    script, later = parse(json.dumps({"pattern": HALF_THEN_IDLE})), Clock()
    later.move(1)
    first, second = ScriptProvider(script, Clock()), ScriptProvider(script, later)
    assert first.devices()[0].uuid != second.devices()[0].uuid


def test_a_chip_without_a_counter_refuses_its_name() -> None:
    with pytest.raises(UsageError, match="NVLink"):
        source_of(Clock(), plan_of("nvlink.rx"), chip="AD102").open()


ONE = '"pattern": [{"ms": 5}]'
TWO = f'{ONE}, "gpus": 2'
BAD = {
    "{": "not JSON: ",
    "": "not JSON: ",
    "[]": "the script: must be an object, not []",
    "7": "the script: must be an object, not 7",
    "{}": "needs pattern or patterns, one of them",
    '{"pattern": [], "patterns": []}': "needs pattern or patterns, one of them",
    '{"patern": []}': "the script has no field patern; there are gpus, name,",
    f'{{{ONE}, "gpus": 2, "gpus": 3}}': "gpus is given twice",
    '{"patterns": 5}': "patterns: must be a list, not 5",
    '{"pattern": {"ms": 5}}': 'pattern: must be a list, not {"ms": 5}',
    '{"pattern": []}': "pattern: must be a list of phases, not []",
    '{"patterns": []}': "patterns: an empty list",
    '{"patterns": [[{"ms": 5}], []]}': "patterns[1]: must be a list of phases, not []",
    '{"pattern": ["busy"]}': "pattern[0]: must be an object, not busy",
    '{"pattern": [{"ms": 5}, {"tensor": 0.5}]}': "pattern[1]: needs ms",
    '{"pattern": [{"ms": 0}]}': "pattern[0].ms: must be a number from 0.001 to 86400000, not 0",
    '{"pattern": [{"ms": -5}]}': "pattern[0].ms: must be a number from 0.001 to 86400000, not -5",
    '{"pattern": [{"ms": Infinity}]}': "pattern[0].ms: must be a number from 0.001 to 86400000, not Infinity",
    '{"pattern": [{"ms": NaN}]}': "pattern[0].ms: must be a number from 0.001 to 86400000, not NaN",
    '{"pattern": [{"ms": "5"}]}': "pattern[0].ms: must be a number from 0.001 to 86400000, not 5",
    '{"pattern": [{"ms": true}]}': "pattern[0].ms: must be a number from 0.001 to 86400000, not true",
    '{"patterns": [[{"ms": 5}], [{"ms": 5, "tensr": 0.5}]]}': "patterns[1][0] has no field tensr; there are ms, tensor",
    '{"pattern": [{"ms": 5, "tensor": 1.5}]}': "pattern[0].tensor: must be a number from 0 to 1, not 1.5",
    '{"pattern": [{"ms": 5, "tensor": -0.1}]}': "pattern[0].tensor: must be a number from 0 to 1, not -0.1",
    '{"pattern": [{"ms": 5, "tensor": NaN}]}': "pattern[0].tensor: must be a number from 0 to 1, not NaN",
    '{"pattern": [{"ms": 5, "tensor": null}]}': "pattern[0].tensor: must be a number from 0 to 1, not null",
    f'{{{ONE}, "gpus": 0}}': "gpus: must be a whole number from 1 to 16, not 0",
    f'{{{ONE}, "gpus": 17}}': "gpus: must be a whole number from 1 to 16, not 17",
    f'{{{ONE}, "gpus": 2.0}}': "gpus: must be a whole number from 1 to 16, not 2.0",
    f'{{{ONE}, "gpus": true}}': "gpus: must be a whole number from 1 to 16, not true",
    f'{{{ONE}, "gpus": "many"}}': "gpus: must be a whole number from 1 to 16, not many",
    f'{{{ONE}, "name": 5}}': "name: must be text of 1 to 50 characters, not 5",
    f'{{{ONE}, "name": "a\\nb"}}': 'name: must be text of 1 to 50 characters, not "a\\nb"',
    f'{{{ONE}, "chip": ""}}': "chip: must be text of 1 to 50 characters, not ",
    f'{{{ONE}, "chip": "{"G" * 51}"}}': f"chip: must be text of 1 to 50 characters, not {'G' * 50}...",
    f'{{{TWO}, "uuids": "GPU-a"}}': "uuids: must be a list, not GPU-a",
    f'{{{TWO}, "uuids": ["GPU-a", "GPU-a"]}}': "uuids[1] of GPU 1: GPU-a is that of GPU 0, too",
    f'{{{TWO}, "uuids": ["GPU-a", 7]}}': "uuids[1] of GPU 1: must be text of 1 to 50 characters, not 7",
    f'{{{TWO}, "uuids": ["a/b"]}}': "uuids[0] of GPU 0: a/b cannot be the name of a file",
    f'{{{TWO}, "uuids": [".."]}}': "uuids[0] of GPU 0: .. cannot be the name of a file",
    f'{{{TWO}, "uuids": ["a", "b", "c"]}}': "uuids: 3 of them for 2 GPUs",
    f'{{{ONE}, "stagger_ms": NaN}}': "stagger_ms: must be a number from 0 to 86400000, not NaN",
    f'{{{ONE}, "stagger_ms": 1e30}}': "stagger_ms: must be a number from 0 to 86400000, not 1e+30",
    f'{{{ONE}, "stagger_ms": 1{"0" * 400}}}': f"stagger_ms: must be a number from 0 to 86400000, not 1{'0' * 49}...",
    f'{{{ONE}, "stagger_ms": -1}}': "stagger_ms: must be a number from 0 to 86400000, not -1",
    f'{{{ONE}, "stagger_ms": "some"}}': "stagger_ms: must be a number from 0 to 86400000, not some",
    f'{{{ONE}, "burn_ms": 1e9}}': "burn_ms: must be a number from 0 to 60000, not 1000000000.0",
    f'{{{ONE}, "faults": {{}}}}': "faults: must be a list, not {}",
    f'{{{ONE}, "faults": ["lost"]}}': "faults[0]: must be an object, not lost",
    f'{{{ONE}, "faults": [{{"kind": "lost"}}]}}': "faults[0]: needs gpu",
    f'{{{ONE}, "faults": [{{"gpu": 0}}]}}': "faults[0]: needs kind",
    f'{{{ONE}, "faults": [{{"gpu": 1, "kind": "lost"}}]}}': "faults[0].gpu: must be a whole number from 0 to 0, not 1",
    f'{{{ONE}, "faults": [{{"gpu": 0, "kind": "fire"}}]}}': "faults[0] of GPU 0: kind: must be one of hang, crash,",
    f'{{{ONE}, "faults": [{{"gpu": 0, "kind": ["lost"]}}]}}': "faults[0] of GPU 0: kind: must be one of hang, crash,",
    f'{{{ONE}, "faults": [{{"gpu": 0, "kind": "lost", "why": 1}}]}}': "faults[0] has no field why; there are gpu, kind",
}
WORDS = st.sampled_from([*FIELDS, *FAULT_FIELDS, "ms", "tensor"])
BAD_TIMES = ["NaN", "-1", "-0.001", "Infinity", '"noon"', "null", "true", "1e300"]


@pytest.mark.parametrize(("text", "told"), BAD.items())
def test_a_bad_script_is_usage_and_the_key_at_fault_is_named(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["at_s", "for_s"])
@pytest.mark.parametrize("time", BAD_TIMES)
def test_a_time_that_is_none_is_told_with_its_gpu(time: str, key: str) -> None:
    fault = f'{{"gpu": 1, "kind": "gap", "{key}": {time}}}'
    with pytest.raises(UsageError) as error:
        parse(f'{{{TWO}, "faults": [{{"gpu": 0, "kind": "gap"}}, {fault}]}}')
    assert str(error.value).startswith(f"faults[1] of GPU 1: {key}: must be a number from 0 to 1000000000, not ")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, anything, max_size=3))
def test_whatever_stands_in_a_script_it_is_a_script_or_usage(data: dict[str, Any]) -> None:
    try:
        parse(json.dumps({"pattern": HALF_THEN_IDLE, **data}))
    except UsageError as error:
        assert "\n" not in str(error)


def test_the_file_and_the_field_at_fault_are_named(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"gpus": 2, "pattern": [{"ms": 1}], "faults": [{"gpu": 1, "kind": "gap", "at_s": NaN}]}')
    with pytest.raises(UsageError) as error:
        provider(f"script:{path}")
    told = "faults[0] of GPU 1: at_s: must be a number from 0 to 1000000000, not NaN"
    assert str(error.value) == f"--source script:{path}: {told}"


@pytest.mark.parametrize("metric", ["foo__bar.avg", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"])
def test_a_counter_that_a_script_cannot_play_is_refused_not_zero(metric: str) -> None:
    script = ScriptProvider(parse('{"pattern": [{"ms": 1, "tensor": 0.5}]}'))
    source = script.source(script.devices()[0], Plan(wanted=Wanted((metric,))))
    with pytest.raises(UsageError, match="is not a counter of a scripted GH100"):
        source.open()


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_script_that_cannot_be_read_is_usage(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--source script:{tmp_path}"):
        provider(f"script:{tmp_path / name}")


def test_a_script_that_is_no_text_is_usage(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="--source script:"):
        provider(f"script:{tmp_path / 'binary'}")


def test_an_unknown_source_is_usage() -> None:
    with pytest.raises(UsageError, match="--source cupty"):
        provider("cupty")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.json")), ids=lambda path: path.name)
def test_the_examples_are_good_scripts(path: Path) -> None:
    assert parse(path.read_text()).count >= 1


def test_a_set_that_needs_more_counters_than_a_pass_has_is_refused() -> None:
    # tensor and the SM's clock, two directions of dram and its clock
    source = source_of(Clock(), plan_of("tensor", "dram"), pass_counters=4)
    with pytest.raises(UsageError, match=r"^tensor \+ dram need 2 passes on GH100, one can be sampled; ask for fewer"):
        source.open()
    assert len(source_of(Clock(), plan_of("tensor", "dram"), pass_counters=5).open().metrics.counters) == 5


@pytest.mark.parametrize("count", [0, 1001, 2.5, "4"])
def test_a_pass_has_room_for_a_whole_number_of_counters(count: object) -> None:
    with pytest.raises(UsageError, match="pass_counters: must be a whole number from 1 to 1000"):
        parse(json.dumps({"pattern": HALF_THEN_IDLE, "pass_counters": count}))
