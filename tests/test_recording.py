"""The `.cufall` file: what is written comes back, whatever happens to the writer or the file."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings, strategies as st

from cufall_py.arrow_file import BATCH_ROWS, END_MARK
from cufall_py.errors import CufallError
from cufall_py.metrics import MetricSet
from cufall_py.outline import Event, Region, regions
from cufall_py.plan import Plan
from cufall_py.recording import RecordingWriter
from cufall_py.recording_layout import METADATA_KEY, NO_DEVICE, SCHEMA
from cufall_py.recording_reader import Recording, Rows
from cufall_py.resolve import Wanted
from cufall_py.samples import Samples
from cufall_py.sources import Opened
from tests.helpers import EPOCH, MS, SECOND, gpu, joined, metric, samples, steady, tensor_set

PLAN = Plan(Wanted(("tensor", "dram")), devices="0,2", source="script:x.json", sample_us=1000)
OTHER_CHIP = MetricSet(("sm__other.sum", "sm__cycles_elapsed.avg"), (metric(counter="sm__other.sum"),))
MOVED = "was removed or moved"


def opened(ordinal: int, metrics: MetricSet | None = None) -> Opened:
    facts = {"cupti": "13.3", "domains": {"sm": 1}}
    return Opened(gpu(ordinal).of_chip("GH100"), metrics or tensor_set(), MS, "time", "script", ("a note",), facts)


GPUS = [opened(0), opened(2, OTHER_CHIP)]


@dataclass
class Clock:
    """Time that moves when told to; the realtime clock is EPOCH at 0."""

    ns: int = 0

    def monotonic_ns(self) -> int:
        return self.ns

    def now_ns(self) -> int:
        return EPOCH + self.ns


def writer(
    path: Path, gpus: Sequence[Opened] = GPUS, clock: Clock | None = None, force: bool = False, live: bool = False
) -> RecordingWriter:
    clock = clock or Clock()
    return RecordingWriter(
        path, gpus, PLAN, force=force, live=live, now_ns=clock.now_ns, monotonic_ns=clock.monotonic_ns
    )


def write_killed(path: Path, batches: int = 2) -> None:
    """Batches of three rows and an event each, as a kill would leave them: not ended, not merged."""
    with writer(path.with_name("going.on"), GPUS[:1]) as out:
        for k in range(batches):
            out.add(0, steady(EPOCH + k * SECOND, MS, 3, 0.5))
            out.event("mark", n=k)
            out.flush()
        shutil.copy(path.with_name("going.on"), path)


def of_gpu(recording: Recording, position: int) -> Samples:
    return Samples.join([batch for at, batch in recording.batches() if at == position])


def raw_batches(path: Path) -> list[pa.RecordBatch]:
    with pa.OSFile(str(path)) as source:
        return list(pa.ipc.open_stream(source))


def same(left: Samples, right: Samples) -> bool:
    """Times equal, values to what a float32 holds."""
    return (
        np.array_equal(left.start_ns, right.start_ns)
        and np.array_equal(left.end_ns, right.end_ns)
        and np.allclose(left.values, right.values, rtol=1e-7, atol=0)
    )


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """As a full disk: no file can grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# --- what is written comes back


counts = st.floats(1, 1e10)
pieces = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.tuples(counts, counts), max_size=6), st.integers(0, 2 * SECOND)),
    max_size=12,
)


@settings(max_examples=30)
@given(pieces)
def test_samples_come_back_whatever_their_order_and_pace(pieces: list[tuple[int, list[list[float]], int]]) -> None:
    given: list[list[Samples]] = [[Samples.empty(2)], [Samples.empty(2)]]
    clock = Clock()
    with TemporaryDirectory() as directory:
        path = Path(directory) / "a.cufall"
        with writer(path, clock=clock) as out:
            for position, rows, later_ns in pieces:
                batch = joined(clock.now_ns(), 1_000_003, np.reshape(rows, (-1, 2)).tolist()) if rows else None
                clock.ns += later_ns
                given[position].append(batch or Samples.empty(2))
                out.add(position, given[position][-1])
        recording = Recording(path, pytest.fail)
        for position, expected in enumerate(map(Samples.join, given)):
            back = Samples.join([Samples.empty(2), *(b for at, b in recording.batches() if at == position)])
            assert same(back, expected)
            assert back.values.dtype == np.float64


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e3, 1e6, 1e10]))
def test_the_mean_after_a_round_trip_is_the_mean(seed: int, size: float) -> None:
    elapsed = np.random.default_rng(seed).uniform(size / 2, size, 5000)
    tensor = elapsed * 4 * np.random.default_rng(seed + 1).uniform(0, 1, 5000)
    given = joined(EPOCH, MS, np.stack([tensor, elapsed], axis=1).tolist())
    with TemporaryDirectory() as directory:
        with writer(Path(directory) / "a.cufall") as out:
            out.add(0, given)
        back = of_gpu(Recording(Path(directory) / "a.cufall"), 0)
    metrics = tensor_set()
    before, after = (
        metrics.ratios(metrics.extend(s.values, s.end_ns - s.start_ns).sum(axis=0, keepdims=True))
        for s in (given, back)
    )
    assert after == pytest.approx(before, rel=1e-6)


def test_what_is_known_at_the_start_comes_back(tmp_path: Path) -> None:
    writer(tmp_path / "a.cufall").close()
    recording = Recording(tmp_path / "a.cufall", pytest.fail)
    assert recording.opened == GPUS
    assert recording.plan == PLAN
    assert set(recording.versions) == {"cufall", "python", "pyarrow"}
    assert recording.whole


def test_chips_with_other_counters_share_a_file(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        out.add(0, samples([EPOCH], [EPOCH + MS], [[1, 2]]))
        out.add(1, samples([EPOCH], [EPOCH + MS], [[3, 4]]))
    rows = [batch.values.tolist() for _, batch in Recording(tmp_path / "a.cufall").batches()]
    assert rows == [[[1, 2]], [[3, 4]]]


def test_a_value_that_was_not_measured_is_not_0(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        out.add(0, samples([EPOCH], [EPOCH + MS], [[np.nan, 2]]))
    assert np.isnan(of_gpu(Recording(tmp_path / "a.cufall"), 0).values).tolist() == [[True, False]]
    assert raw_batches(tmp_path / "a.cufall")[0].column("sm__pipe_tensor_cycles_active.avg").null_count == 3


def test_any_arrow_reader_opens_it(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        out.add(1, samples([EPOCH], [EPOCH + MS], [[3, 4]]))
    with pa.OSFile(str(tmp_path / "a.cufall")) as source:
        table = pa.ipc.open_stream(source).read_all()
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("device", "uint16"),
        ("start_ns", "int64"),
        ("end_ns", "int64"),
        ("sm__pipe_tensor_cycles_active.avg", "float"),
        ("sm__cycles_elapsed.avg", "float"),
        ("sm__other.sum", "float"),
        ("sm_mhz", "float"),
        ("power_w", "float"),
        ("event", "string"),
    ]
    assert table.column("device").to_pylist() == [NO_DEVICE, 2, NO_DEVICE]
    assert list(table.slice(1, 1).to_pylist()[0].values()) == [2, EPOCH, EPOCH + MS, None, 4, 3, None, None, None]


def test_readings_are_those_before_the_row(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        out.add(0, steady(EPOCH, MS, 2, 0.5))
        out.set_readings(0, 1755, 312.5)
        out.add(0, steady(EPOCH + 2 * MS, MS, 1, 0.5))
        out.add(1, steady(EPOCH, MS, 1, 0.5))
    first, second = (i for i in Recording(tmp_path / "a.cufall").items() if isinstance(i, Rows))
    assert first.sm_mhz.tolist() == pytest.approx([np.nan, np.nan, 1755], nan_ok=True)
    assert first.power_w.tolist() == pytest.approx([np.nan, np.nan, 312.5], nan_ok=True)
    assert np.isnan(second.sm_mhz).all()


# --- events


def test_events_keep_their_times_fields_and_gpu(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", clock=Clock(5)) as out:
        out.event("region", start_ns=EPOCH + 1, end_ns=EPOCH + 9, name="décode, [0]", kind="mark")
        out.event("gap", gpu=1, start_ns=EPOCH + 7, lost=3)
        out.event("note", text=None)
    assert list(Recording(tmp_path / "a.cufall").events()) == [
        Event("start", None, EPOCH + 5, EPOCH + 5, {}),
        Event("region", None, EPOCH + 1, EPOCH + 9, {"name": "décode, [0]", "kind": "mark"}),
        Event("gap", 1, EPOCH + 7, EPOCH + 7, {"lost": 3}),
        Event("note", None, EPOCH + 5, EPOCH + 5, {"text": None}),
        Event("end", None, EPOCH + 5, EPOCH + 5, {}),
    ]


def test_events_lie_where_they_came_among_the_samples(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        out.add(0, steady(EPOCH, MS, 2, 0.5))
        out.event("mark")
        out.add(0, steady(EPOCH + 2 * MS, MS, 3, 0.5))
        out.add(1, steady(EPOCH, MS, 1, 0.5))
        out.add(0, steady(EPOCH + 5 * MS, MS, 1, 0.5))
    items = Recording(tmp_path / "a.cufall").items()
    told = [item.kind if isinstance(item, Event) else (item.gpu, len(item.samples)) for item in items]
    assert told == ["start", (0, 2), "mark", (0, 4), (1, 1), "end"]


def test_the_end_tells_what_it_is_given(tmp_path: Path) -> None:
    out = writer(tmp_path / "a.cufall")
    out.close(exit=0, cost={"wall_s": 1.5})
    out.close(exit=1)
    assert [e.fields for e in Recording(tmp_path / "a.cufall").events()] == [{}, {"exit": 0, "cost": {"wall_s": 1.5}}]


def test_an_event_is_strict_json(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out, pytest.raises(ValueError, match="not JSON compliant"):
        out.event("cost", share=float("nan"))


def test_the_clocks_of_each_gpu_are_noted_every_ten_seconds(tmp_path: Path) -> None:
    clock = Clock()
    with writer(tmp_path / "a.cufall", clock=clock, live=True) as out:
        for k in range(25):
            clock.ns = k * SECOND
            out.add(k % 2, steady(EPOCH + clock.ns - 7 * MS, MS, 2, 0.5))
    noted = [
        (e.gpu, e.start_ns - EPOCH, e.fields) for e in Recording(tmp_path / "a.cufall").events() if e.kind == "clock"
    ]
    assert noted == [
        (
            k % 2,
            k * SECOND,
            {
                "newest_end_ns": EPOCH + k * SECOND - 5 * MS,
                "realtime_ns": EPOCH + k * SECOND,
                "monotonic_ns": k * SECOND,
            },
        )
        for k in (0, 1, 10, 11, 20, 21)
    ]


def test_reasons_are_an_event_where_they_change(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall", clock=Clock(5)) as out:
        for reasons in (0, 4, 4, 0):
            out.set_readings(1, 1755, 312.5, reasons)
    found = [e for e in Recording(tmp_path / "a.cufall").events() if e.kind == "reasons"]
    assert [(e.gpu, e.start_ns, e.fields) for e in found] == [(1, EPOCH + 5, {"bits": bits}) for bits in (4, 0)]


# --- regions


def mark(kind: str, name: str, at_ns: int, text: str = "") -> Event:
    return Event(f"region_{kind}", None, at_ns, at_ns, {"name": name} | ({"text": text} if text else {}))


def test_regions_are_paired_by_name_the_latest_begin_with_the_next_end() -> None:
    marks = [
        mark("begin", "a", 10, "one"),
        mark("begin", "b", 12),
        mark("begin", "a", 15, "two"),
        mark("end", "a", 20),
        mark("end", "b", 30),
        mark("end", "a", 40),
        mark("begin", "a", 50, "three"),
    ]
    assert regions(marks, 0, 99) == {
        "a": [Region(10, 40, "one"), Region(15, 20, "two"), Region(50, 99, "three")],
        "b": [Region(12, 30)],
    }


def test_what_has_but_one_end_is_open_to_that_side() -> None:
    assert regions([mark("end", "a", 5), mark("begin", "b", 7)], 1, 9) == {"a": [Region(1, 5)], "b": [Region(7, 9)]}


def test_regions_of_a_cut_file_close_with_it(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.cufall", tmp_path / "cut.cufall"
    with writer(path) as out:
        out.event("region_begin", start_ns=EPOCH + MS, name="décode, [0]", text="x")
        out.add(0, steady(EPOCH, MS, 3, 0.5))
        out.flush()
        shutil.copy(path, cut)
        out.add(0, steady(EPOCH + 3 * MS, MS, 3, 0.5))
        out.event("region_end", start_ns=EPOCH + 4 * MS, name="décode, [0]")
    assert Recording(path).regions() == {"décode, [0]": [Region(EPOCH + MS, EPOCH + 4 * MS, "x")]}
    assert Recording(cut).regions() == {"décode, [0]": [Region(EPOCH + MS, EPOCH + 3 * MS, "x")]}


def test_the_outline_is_what_there_is_of_each_gpu(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        out.add(0, steady(EPOCH, MS, 3, 0.5))
        out.add(0, steady(EPOCH + 8 * MS, 2 * MS, 2, 0.5))
        out.event("gap", gpu=0, start_ns=EPOCH + 3 * MS, end_ns=EPOCH + 8 * MS, samples=5)
    found = Recording(tmp_path / "a.cufall").outline()
    assert found.counts == [5, 0]
    assert found.periods_ns == pytest.approx([MS, np.nan], nan_ok=True)
    assert found.spans == [(EPOCH, EPOCH + 12 * MS)]
    assert [gap.fields for gap in found.gaps] == [{"samples": 5}]


def test_the_outline_tells_from_when_on_samples_are_of_another_length(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        out.add(0, steady(EPOCH, 100 * MS, 80, 0.5))
        out.add(0, steady(EPOCH + 8000 * MS, MS, 500, 0.5))
        out.add(0, steady(EPOCH + 8500 * MS, MS // 4, 1, 0.5))  # one that is shorter is no other length
        out.add(0, steady(EPOCH + 8501 * MS, MS, 499, 0.5))
    assert Recording(tmp_path / "a.cufall").outline().periods[0] == [(EPOCH, 100 * MS), (EPOCH + 8000 * MS, MS)]


# --- batches


def test_a_hole_of_more_than_half_a_period_is_a_gap(tmp_path: Path) -> None:
    """Within a batch or between two; not before the first, not between GPUs, and not where old samples are copied."""
    ends = [0, 1, 3, 3.4, 4.4, 10]
    holes = samples([EPOCH + round(e * MS) - MS for e in ends], [EPOCH + round(e * MS) for e in ends], [[1, 1]] * 6)
    for live in (True, False):
        path = tmp_path / f"{live}.cufall"
        with writer(path, live=live) as out:
            out.add(0, holes[:4])
            out.add(1, steady(EPOCH + SECOND, MS, 1, 0.5))
            out.add(0, holes[4:])
        found = [(e.gpu, e.start_ns - EPOCH, e.end_ns - EPOCH, e.fields) for e in gap_events(path)]
        assert found == ([(0, MS, 2 * MS, {"samples": 1}), (0, 4.4 * MS, 9 * MS, {"samples": 5})] if live else [])


def gap_events(path: Path) -> list[Event]:
    return [event for event in Recording(path).events() if event.kind == "gap"]


def test_a_gpu_keeps_the_counters_it_was_recorded_with(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        assert out.takes(0, opened(0))
        assert not out.takes(0, opened(0, OTHER_CHIP))
        assert out.takes(1, opened(2, OTHER_CHIP))


def test_a_row_is_on_disk_within_a_second(tmp_path: Path) -> None:
    clock = Clock()
    with writer(tmp_path / "a.cufall", clock=clock) as out:
        out.add(0, steady(EPOCH, MS, 2, 0.5))
        clock.ns = SECOND - 1
        out.add(1, steady(EPOCH, MS, 2, 0.5))
        assert [batch.num_rows for batch in raw_batches(tmp_path / "a.cufall")] == [1]
        clock.ns = SECOND
        out.tick()
        assert [batch.num_rows for batch in raw_batches(tmp_path / "a.cufall")] == [1, 4]


def test_a_full_batch_is_written_at_once(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        for k in range(50):
            out.add(k % 2, steady(EPOCH + k * SECOND, MS, 300, 0.5))
        out.add(0, steady(EPOCH + 60 * SECOND, MS, BATCH_ROWS + 5, 0.5))
        rows = [batch.num_rows for batch in raw_batches(tmp_path / "a.cufall")]
    assert rows == [1, 7800, 7200, BATCH_ROWS, 5]


def test_merging_keeps_every_row_in_order(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        for k in range(60):
            out.add(k % 2, steady(EPOCH + k * SECOND, MS, 299, k / 100))
            out.event("mark", n=k)
            out.flush()
        before = pa.Table.from_batches(raw_batches(tmp_path / "a.cufall"))
    after = raw_batches(tmp_path / "a.cufall")
    assert [batch.num_rows for batch in after] == [7801, 7800, 2401]
    assert pa.Table.from_batches(after).slice(0, before.num_rows) == before
    assert after[0].schema.metadata == before.schema.metadata
    assert os.listdir(tmp_path) == ["a.cufall"]


def test_merging_keeps_the_files_mode(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall"):
        os.chmod(tmp_path / "a.cufall", 0o640)
    assert (tmp_path / "a.cufall").stat().st_mode & 0o777 == 0o640
    assert len(raw_batches(tmp_path / "a.cufall")) == 1


def test_without_room_to_merge_the_file_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".a.cufall.merging").mkdir()
    with writer(tmp_path / "a.cufall") as out:
        out.add(0, steady(EPOCH, MS, 2, 0.5))
    assert len(raw_batches(tmp_path / "a.cufall")) == 2
    assert Recording(tmp_path / "a.cufall", pytest.fail).whole


def test_an_interrupt_while_merging_leaves_the_whole_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = writer(tmp_path / "a.cufall")
    out.add(0, steady(EPOCH, MS, 2, 0.5))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", lambda *paths: signal.raise_signal(signal.SIGINT))
        out.close()
    assert len(of_gpu(Recording(tmp_path / "a.cufall", pytest.fail), 0)) == 2
    assert os.listdir(tmp_path) == ["a.cufall"]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.helpers import EPOCH, MS, steady
from tests.test_recording import writer
def kill_at(event, arguments):
    if event == sys.argv[2] and ".merging" in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)
out = writer(Path(sys.argv[3]))
out.add(0, steady(EPOCH, MS, 2, 0.5))
sys.addaudithook(kill_at)
out.close()
"""


@pytest.mark.parametrize("moment", ["open", "os.rename"])
def test_a_kill_while_merging_leaves_a_whole_file(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "a.cufall"
    child = subprocess.run([sys.executable, "-c", KILLED, str(Path(__file__).parents[1]), moment, str(path)])
    assert child.returncode == -signal.SIGKILL
    assert len(of_gpu(Recording(path, pytest.fail), 0)) == 2
    with writer(path, force=True) as again:
        again.add(0, steady(EPOCH, MS, 1, 0.5))
    assert os.listdir(tmp_path) == ["a.cufall"]


# --- cut, foreign and newer files


def test_a_file_cut_anywhere_gives_back_every_complete_batch(tmp_path: Path) -> None:
    whole = tmp_path / "whole.cufall"
    write_killed(whole)
    ends = _batch_ends(whole)
    for size in reversed(range(ends[0], ends[-1] + 1)):
        os.truncate(whole, size)
        said: list[str] = []
        recording = Recording(whole, said.append)
        items = list(recording.items())
        complete = sum(size >= end for end in ends) - 1  # the first holds but the event `start`
        assert sum(len(item.samples) for item in items if isinstance(item, Rows)) == 3 * complete
        assert [item.fields for item in items if isinstance(item, Event)] == [{}, *({"n": k} for k in range(complete))]
        assert len(said) == 1 and "cut short" in said[0] and "\n" not in said[0]
        assert not recording.whole


def test_random_cuts_and_each_of_the_last_4_kb_give_back_exactly_the_whole_batches_before(tmp_path: Path) -> None:
    path, random, each = tmp_path / "a.cufall", np.random.default_rng(7), 50
    (tmp_path / ".a.cufall.merging").mkdir()  # so that its batches stay as they are
    with writer(path) as out:
        for k in range(10):
            for gpu in (0, 1):
                out.add(gpu, joined(EPOCH + k * SECOND, MS, random.integers(0, 2**20, (each, 2)).tolist()))
            out.flush()
    ends, size = _batch_ends(path), path.stat().st_size
    assert len(ends) == 12 and ends[0] < size - 4096 < ends[-3]  # those of the start and the end hold but an event
    written = [of_gpu(Recording(path, pytest.fail), gpu) for gpu in (0, 1)]
    cuts = {*range(size - 4096, size), *random.integers(ends[0], size, 500).tolist()}
    for cut in sorted(cuts, reverse=True):
        os.truncate(path, cut)
        recording = Recording(path)
        found: list[list[Samples]] = [[], []]
        for rows in recording.rows():
            found[rows.gpu].append(rows.samples)
        batches = sum(cut >= end for end in ends[1:-1])
        assert not recording.whole
        for of, parts in zip(written, found, strict=True):
            assert sum(map(len, parts)) == each * batches
            assert not parts or same(Samples.join(parts), of[: each * batches])


def test_a_closed_file_cut_in_its_end_mark_has_everything(tmp_path: Path) -> None:
    with writer(tmp_path / "a.cufall") as out:
        out.add(0, steady(EPOCH, MS, 2, 0.5))
    data = (tmp_path / "a.cufall").read_bytes()
    for size in range(len(data) - 8, len(data)):
        (tmp_path / "cut.cufall").write_bytes(data[:size])
        said: list[str] = []
        assert len(of_gpu(Recording(tmp_path / "cut.cufall", said.append), 0)) == 2
        assert len(said) == 1


def test_a_file_cut_before_its_first_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.cufall"
    write_killed(path)
    with pa.OSFile(str(path)) as source:
        pa.ipc.open_stream(source)
        head = source.tell()
    for size in reversed(range(head)):
        os.truncate(path, size)
        with pytest.raises(CufallError, match="is no recording, or was cut"):
            Recording(path, pytest.fail)


def test_damage_within_is_said_once(tmp_path: Path) -> None:
    write_killed(tmp_path / "a.cufall")
    data, ends = bytearray((tmp_path / "a.cufall").read_bytes()), _batch_ends(tmp_path / "a.cufall")
    data[ends[1] : ends[1] + 200] = b"\xee" * 200
    (tmp_path / "a.cufall").write_bytes(data + b"\xff\xff\xff\xff\0\0\0\0")
    said: list[str] = []
    recording = Recording(tmp_path / "a.cufall", said.append)
    assert recording.whole and not said
    assert [len(list(recording.batches())) for _ in range(2)] == [1, 1]
    assert len(said) == 1 and not recording.whole


@pytest.mark.parametrize("length_ns", [-MS, 2**60])
def test_times_that_cannot_be_are_damage(tmp_path: Path, length_ns: int) -> None:
    last = steady(EPOCH + 2 * MS, MS, 1, 0.5)
    with writer(tmp_path / "whole.cufall") as out:
        out.add(0, steady(EPOCH, MS, 2, 0.5))
        out.flush()
        out.add(0, Samples(last.start_ns, last.start_ns + length_ns, last.values))
        out.flush()
        (tmp_path / "a.cufall").write_bytes((tmp_path / "whole.cufall").read_bytes() + END_MARK)
    said: list[str] = []
    assert len(of_gpu(Recording(tmp_path / "a.cufall", said.append), 0)) == 2
    assert len(said) == 1 and "not whole" in said[0]


@pytest.mark.parametrize("data", [b"", b"PK\3\4 something else", b"\xff" * 64, bytes(64)])
def test_another_kind_of_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.cufall").write_bytes(data)
    with pytest.raises(CufallError, match="is no recording"):
        Recording(tmp_path / "a.cufall")


def test_an_arrow_stream_of_something_else_is_refused(tmp_path: Path) -> None:
    with pa.ipc.new_stream(str(tmp_path / "a.cufall"), pa.schema([("x", pa.int8())])):
        pass
    with pytest.raises(CufallError, match="is no recording"):
        Recording(tmp_path / "a.cufall")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(CufallError, match=r"a\.cufall cannot be read: No such file"):
        Recording(tmp_path / "a.cufall")
    with pytest.raises(CufallError, match="cannot be read: Is a directory"):
        Recording(tmp_path)


def _with_document(path: Path, **changed: object) -> None:
    batches = raw_batches(path)
    document = {**json.loads(batches[0].schema.metadata[METADATA_KEY]), **changed}
    schema = batches[0].schema.with_metadata({METADATA_KEY: json.dumps(document)})
    with pa.ipc.new_stream(str(path), schema) as out:
        out.write_table(pa.Table.from_batches(batches).cast(schema))


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    writer(tmp_path / "a.cufall").close()
    _with_document(tmp_path / "a.cufall", schema=SCHEMA + 1, gpus="of another shape")
    with pytest.raises(CufallError, match="is of version 2, this cufall reads up to 1; update cufall-py"):
        Recording(tmp_path / "a.cufall")


def test_a_head_of_another_shape_is_refused(tmp_path: Path) -> None:
    writer(tmp_path / "a.cufall").close()
    _with_document(tmp_path / "a.cufall", gpus=[{"device": 1}])
    with pytest.raises(CufallError, match="its head cannot be understood"):
        Recording(tmp_path / "a.cufall")


def _batch_ends(path: Path) -> list[int]:
    """Where each batch of an unfinished file ends, in bytes."""
    with pa.OSFile(str(path)) as source:
        return [int(source.tell()) for _ in pa.ipc.open_stream(source)]


# --- places that cannot be written


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.cufall").write_text("mine")
    with pytest.raises(CufallError, match="is there already; force=True overwrites it"):
        writer(tmp_path / "a.cufall")
    assert (tmp_path / "a.cufall").read_text() == "mine"
    writer(tmp_path / "a.cufall", force=True).close()
    assert Recording(tmp_path / "a.cufall", pytest.fail).whole


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "real.cufall").touch()
    (tmp_path / "a.cufall").symlink_to("disk/real.cufall")
    with pytest.raises(CufallError, match="is there already"):
        writer(tmp_path / "a.cufall")
    writer(tmp_path / "a.cufall", force=True).close()
    assert (tmp_path / "a.cufall").is_symlink()
    assert Recording(tmp_path / "disk" / "real.cufall", pytest.fail).whole


def test_a_place_that_cannot_be_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(CufallError, match="cannot be written: No such file or directory"):
        writer(tmp_path / "missing" / "a.cufall")
    with pytest.raises(CufallError, match="cannot be written: Is a directory"):
        writer(tmp_path)


def test_a_full_device_is_told_before_anything_is_measured() -> None:
    with pytest.raises(CufallError, match=r"/dev/full cannot be written: No space left on device$"):
        writer(Path("/dev/full"))


def test_a_disk_full_from_the_start_leaves_no_empty_file(tmp_path: Path) -> None:
    with full_at(100), pytest.raises(CufallError, match="cannot be written: File too large"):
        writer(tmp_path / "a.cufall")
    assert not (tmp_path / "a.cufall").exists()


def test_a_disk_that_fills_up_keeps_every_batch_before(tmp_path: Path) -> None:
    path, written, random = tmp_path / "a.cufall", 0, np.random.default_rng(0)
    with full_at(50_000), pytest.raises(CufallError, match="cannot be written: File too large"), writer(path) as out:
        for k in range(100):
            out.add(0, joined(EPOCH + k * SECOND, MS, random.uniform(0, 1e6, (200, 2)).tolist()))
            out.flush()
            written += 200
    assert written > 1000
    said: list[str] = []
    assert len(of_gpu(Recording(path, said.append), 0)) == written
    assert len(said) == 1
    assert sum(batch.num_rows for batch in raw_batches(path)) == written + 1  # cut back to whole batches


def test_a_disk_full_only_at_the_end_is_told(tmp_path: Path) -> None:
    out = writer(tmp_path / "a.cufall")
    out.add(0, steady(EPOCH, MS, 100, 0.5))
    out.flush()
    with full_at((tmp_path / "a.cufall").stat().st_size + 10), pytest.raises(CufallError, match="File too large"):
        out.close()
    out.close()
    assert len(of_gpu(Recording(tmp_path / "a.cufall"), 0)) == 100


def test_a_removed_directory_is_told_at_the_next_write(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    out = writer(tmp_path / "d" / "a.cufall")
    shutil.rmtree(tmp_path / "d")
    out.add(0, steady(EPOCH, MS, 2, 0.5))
    with pytest.raises(CufallError, match=MOVED):
        out.flush()
    with pytest.raises(CufallError, match=MOVED):
        out.close()


def test_a_file_moved_away_is_told_and_kept(tmp_path: Path) -> None:
    path, moved = tmp_path / "a.cufall", tmp_path / "a.cufall.1"
    with pytest.raises(CufallError, match=MOVED), writer(path) as out:
        out.add(0, steady(EPOCH, MS, 2, 0.5))
        out.flush()
        path.rename(moved)
        path.write_text("of somebody else")
        out.add(0, steady(EPOCH + SECOND, MS, 2, 0.5))
        out.flush()
    assert len(of_gpu(Recording(moved), 0)) == 2
    assert path.read_text() == "of somebody else"


def test_a_pipe_gets_the_whole_stream() -> None:
    reading, writing = os.pipe()
    with writer(Path(f"/dev/fd/{writing}")) as out:
        out.add(0, steady(EPOCH, MS, 5, 0.5))
    os.close(writing)
    with open(reading, "rb") as source:
        assert pa.ipc.open_stream(source).read_all().num_rows == 7
