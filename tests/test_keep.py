"""`--keep`: what gets old is kept in longer samples, and all that can be told of them stays what it was."""

from __future__ import annotations

import os
import random
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cufall_py.arrow_file import BATCH_ROWS
from cufall_py.errors import UsageError
from cufall_py.keep import Tier, parse, told
from cufall_py.outline import Event, Region
from cufall_py.plan import Plan
from cufall_py.recording import RecordingWriter
from cufall_py.recording_reader import Recording
from cufall_py.samples import Samples
from cufall_py.sources import Opened
from tests.helpers import EPOCH, MS, SECOND
from tests.recordings import counters, opened

MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
SLACK_S = 10
"""A section reaches further back than its span by an eighth of it, or so many seconds."""


# What can be asked


@pytest.mark.parametrize(
    ("text", "tiers"),
    [
        ("30m@full,24h@100ms,forever@1s", [(30 * MINUTE, 0), (24 * HOUR, 100 * MS), (None, SECOND)]),
        ("1.5h@50us", [(5400 * SECOND, 50_000)]),
        ("7d@1m", [(168 * HOUR, MINUTE)]),
        ("forever@full", [(None, 0)]),
        ("", []),
    ],
)
def test_what_a_person_writes_is_read_and_told_again(text: str, tiers: list[tuple[int | None, int]]) -> None:
    assert parse(text) == tuple(Tier(*tier) for tier in tiers)
    assert parse(told(parse(text))) == parse(text)


BAD = {
    "30m@": "30m@: must be SPAN@PERIOD",
    "@1s": "@1s: must be SPAN@PERIOD",
    "1h": "1h: must be SPAN@PERIOD",
    "1h@1s,": "an empty part: must be SPAN@PERIOD",
    "1h@1s,30m@2s": "30m@2s: its span must be longer than the one before, 1h",
    "1h@1s,60m@2s": "60m@2s: its span must be longer than the one before, 1h",
    "1h@full,2h@full": "2h@full: its period must be longer than the one before, full",
    "1h@2s,2h@1s": "2h@1s: its period must be longer than the one before, 2s",
    "0h@1s": "0h@1s: 0h must be forever, or a number above 0",
    "1h@0s": "1h@0s: 0s must be full, or a number above 0",
    "nan@1s": "nan@1s: nan must be forever",
    "1h@nan": "1h@nan: nan must be full",
    "-1h@1s": "-1h@1s: -1h must be",
    "1e9h@1s": "1e9h@1s: 1e9h must be",
    "99999999d@1s": "99999999d@1s: 99999999d must be",
    "1h@1w": "1h@1w: 1w must be",
    "forever@1s,24h@2s": "24h@2s: nothing is older than forever, which must come last",
    "full@1s": "full@1s: full must be forever",
    "1h@forever": "1h@forever: forever must be full",
}


@pytest.mark.parametrize("text", BAD)
def test_what_makes_no_sense_is_refused_by_its_part(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert str(refused.value).startswith(f"--keep {text}: {BAD[text]}")


def test_a_period_no_longer_than_a_sample_is_refused_before_there_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1ms is no longer than a sample, 1ms"):
        RecordingWriter(tmp_path / "a.cufall", [opened()], Plan(), keep=parse("1h@1ms,forever@1s"))
    assert not os.listdir(tmp_path)


def test_a_place_that_cannot_be_written_anew_is_refused() -> None:
    with pytest.raises(UsageError, match="/dev/null is no file"):
        RecordingWriter("/dev/null", [opened()], Plan(), keep=parse("forever@1s"))


# What is fed, and by a clock of its own


@dataclass
class Made:
    """A recording that is thinned as it is made, and all that went into it."""

    path: Path
    keep: str
    gpus: list[Opened] = field(default_factory=lambda: [opened(0), opened(1)])
    said: list[str] = field(default_factory=list)
    live: bool = False

    def __post_init__(self) -> None:
        self.now_ns = EPOCH
        self.fed: list[list[Samples]] = [[] for _ in self.gpus]
        self.events: list[tuple[str, int, str]] = []
        self.writer = RecordingWriter(
            self.path,
            self.gpus,
            Plan(),
            live=self.live,
            now_ns=lambda: self.now_ns,
            monotonic_ns=lambda: self.now_ns - EPOCH,
            keep=parse(self.keep),
            say=self.said.append,
        )

    def add(self, gpu: int, samples: Samples) -> None:
        self.fed[gpu].append(samples)
        self.writer.add(gpu, samples)

    def event(self, kind: str, at_ns: int, name: str) -> None:
        self.events.append((kind, at_ns, name))
        self.writer.event(kind, start_ns=at_ns, name=name)

    def region(self, name: str, start_ns: int, end_ns: int) -> None:
        self.event("region_begin", start_ns, name)
        self.event("region_end", end_ns, name)

    def of(self, gpu: int) -> Samples:
        return Samples.join(self.fed[gpu])


RANDOM = np.random.default_rng(7)


def noisy(start_ns: int, count: int, period_ns: int = 100 * MS) -> Samples:
    """Samples of `counters()` that join; float32 holds them."""
    edges = start_ns + period_ns * np.arange(count + 1, dtype=np.int64)
    values = np.stack([RANDOM.random(count) * 8 * period_ns, np.full(count, 2.0 * period_ns), np.ones(count)], axis=1)
    return Samples(edges[:-1], edges[1:], values.astype(np.float32).astype(np.float64))


def fill(made: Made, seconds: int, period_ns: int = 100 * MS, each_s: int = 1) -> Iterator[int]:
    """All GPUs, so many seconds at a time; gives the time at which each is written."""
    for _ in range(seconds // each_s):
        for gpu in range(len(made.gpus)):
            made.add(gpu, noisy(made.now_ns, each_s * SECOND // period_ns, period_ns))
        made.now_ns += each_s * SECOND
        made.writer.tick()
        yield made.now_ns


def read(path: Path, gpu: int) -> Samples:
    said: list[str] = []
    samples = [samples for at, samples in Recording(path, said.append).batches() if at == gpu]
    return Samples.join(samples)


def quotients(samples: Samples) -> np.ndarray:
    return samples.values[:, 0] / samples.values[:, 1] / 4


def check_rows(rows: Samples, original: Samples, longest_ns: int) -> None:
    """Each row is the samples that lie in its time: all of them, no other, and nothing between them."""
    assert (rows.end_ns - rows.start_ns).max() <= longest_ns + (original.end_ns - original.start_ns).max()
    least, most = rows.extremes(quotients(rows)[:, None].repeat(2, axis=1))
    first = 0
    for k in range(len(rows)):
        last = first
        while original.end_ns[last] != rows.end_ns[k]:
            last += 1
        part = original[first : last + 1]
        assert part.start_ns[0] == rows.start_ns[k]
        np.testing.assert_array_equal(part.start_ns[1:], part.end_ns[:-1])
        np.testing.assert_allclose(rows.values[k], part.values.sum(axis=0), rtol=3e-7)
        assert least[k, 0] == pytest.approx(quotients(part).min(), rel=1e-6, nan_ok=True)
        assert most[k, 0] == pytest.approx(quotients(part).max(), rel=1e-6, nan_ok=True)
        first = last + 1
    assert first == len(original)


# What is kept


def test_rows_are_sums_of_their_samples_with_the_extremes_of_these(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "20s@full,2m@1s,forever@10s")
    for _ in fill(made, 600):
        pass
    made.writer.close()
    for gpu in (0, 1):
        rows = read(made.path, gpu)
        check_rows(rows, made.of(gpu), 10 * SECOND)
        lengths = dict(zip(*np.unique(rows.end_ns - rows.start_ns, return_counts=True), strict=True))
        assert set(lengths) >= {100 * MS, SECOND, 10 * SECOND}
        assert lengths[100 * MS] >= 200  # 20 s of ten a second
        assert lengths[SECOND] >= 100  # what is from 20 s to 2 m old
    assert Recording(made.path).whole
    assert os.listdir(tmp_path) == ["a.cufall"]


def test_rows_are_as_many_as_the_spans_and_periods_make(tmp_path: Path) -> None:
    # 20 s at 10 Hz, up to 2 m at 1 Hz, 480 s of the 600 at 0.1 Hz; in addition what waits for a pass, and two edges
    made = Made(tmp_path / "a.cufall", "20s@full,2m@1s,forever@10s", [opened(0)])
    for now_ns in fill(made, 600):
        made.writer.flush()
        age_s = (now_ns - EPOCH) // SECOND
        rows = 10 * min(age_s, 20 + SLACK_S + 8) + min(age_s, 120 + SLACK_S + 15) + age_s / 10 + 20
        assert len(read(made.path, 0)) <= rows
    made.writer.close()


def test_samples_alone_can_be_thinned_at_once(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "forever@1m", [opened(0)])
    for _ in fill(made, 1800, each_s=5):
        pass
    made.writer.close()
    rows = read(made.path, 0)
    # a minute is one row, however many passes it took to get there; it was begun and ended within one
    assert rows.start_ns[1] % MINUTE == 0
    assert (rows.end_ns[1:-1] - rows.start_ns[1:-1] == MINUTE).all() and len(rows) == 31


moments = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(1, 300),
        st.sampled_from([0, 0, 0, 1, 30 * MS, 3 * SECOND, 90 * SECOND]),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(moments)
def test_holes_and_what_has_no_value_stay_as_they_were(pieces: list[tuple[int, int, int, bool]]) -> None:
    with TemporaryDirectory() as folder:
        made = Made(Path(folder, "a.cufall"), "10s@full,30s@1s,forever@7s")
        reached = [EPOCH, EPOCH]
        for gpu, count, hole_ns, without in pieces:
            samples = noisy(reached[gpu] + hole_ns, count)
            if without:
                samples.values[:, 1] = np.nan
            made.add(gpu, samples)
            reached[gpu] = int(samples.end_ns[-1])
            made.event("mark", reached[gpu], f"{gpu}")
            made.now_ns = max(reached)
            made.writer.flush()
        made.writer.close()
        for gpu in (0, 1):
            if made.fed[gpu]:
                check_rows(read(made.path, gpu), made.of(gpu), 7 * SECOND)
        found = [(e.kind, e.start_ns, e.fields["name"]) for e in Recording(made.path).events() if e.kind == "mark"]
        assert found == made.events


def test_regions_keep_their_means_though_they_begin_and_end_within_a_period(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "10s@full,forever@10s", [opened(0)])
    edges_ns = EPOCH + 33 * SECOND + 250 * MS, EPOCH + 57 * SECOND + 50 * MS
    for now_ns in fill(made, 300):
        for kind, edge_ns in zip(("region_begin", "region_end"), edges_ns, strict=True):
            if edge_ns < now_ns < edge_ns + SECOND:
                made.event(kind, edge_ns, "r")
    made.writer.close()
    rows = read(made.path, 0)
    for edge_ns in edges_ns:
        (across,) = np.flatnonzero((rows.start_ns < edge_ns) & (rows.end_ns > edge_ns))
        assert rows.end_ns[across] - rows.start_ns[across] == 100 * MS
    check_rows(rows, made.of(0), 10 * SECOND)


def test_what_lies_before_a_clock_was_set_back_and_after_it_stays_apart(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "10s@full,forever@10s", [opened(0)])
    for _ in fill(made, 100):
        pass
    made.now_ns -= 45 * SECOND
    for _ in fill(made, 200):
        pass
    made.writer.close()
    rows = read(made.path, 0)
    (back,) = np.flatnonzero(np.diff(rows.start_ns) < 0) + 1
    assert rows.start_ns[back] == EPOCH + 55 * SECOND
    # the samples that a reader leaves out, up to where time had come before, are in rows of their own
    behind = rows[back:]
    assert EPOCH + 100 * SECOND in behind.start_ns
    original = made.of(0)
    check_rows(rows[:back], original[:1000], 10 * SECOND)
    check_rows(behind, original[1000:], 10 * SECOND)
    # a clock that is wrong for a while does not keep all that follows from being thinned
    assert len(rows) < 600


# What goes away


def test_what_is_older_than_the_last_span_goes_and_open_regions_and_reasons_stay(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "20s@full,1m@1s", [opened(0)])
    sizes = []
    made.writer.set_readings(0, 1980.0, 300.0, reasons=4)
    made.region("over", EPOCH + SECOND, EPOCH + 2 * SECOND)
    made.event("region_begin", EPOCH + SECOND, "open")
    made.event("region_begin", EPOCH + 2 * SECOND, "ends late")
    for now_ns in fill(made, 900):
        sizes.append(made.path.stat().st_size)
        if now_ns == EPOCH + 890 * SECOND:
            made.event("region_end", now_ns, "ends late")
    made.writer.close()
    rows = read(made.path, 0)
    oldest_s = (made.now_ns - rows.start_ns[0]) / SECOND
    assert 60 <= oldest_s <= 60 + SLACK_S + 30
    recording = Recording(made.path)
    regions = recording.regions()
    assert set(regions) == {"open", "ends late"}
    assert regions["open"][0].end_ns == made.now_ns
    assert regions["ends late"] == [Region(regions["open"][0].start_ns, EPOCH + 890 * SECOND)]
    assert abs(regions["open"][0].start_ns - rows.start_ns[0]) <= SECOND
    (reasons,) = (event for event in recording.events() if event.kind == "reasons")
    assert (reasons.gpu, reasons.fields, reasons.start_ns) == (0, {"bits": 4}, regions["open"][0].start_ns)
    # flat: no more after a quarter of an hour than after three minutes
    assert max(sizes[200:]) <= 1.1 * max(sizes[:200])


def test_events_stay_as_long_as_the_time_they_lie_in(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "20s@full,1m@1s", [opened(0)])
    for now_ns in fill(made, 300):
        made.event("mark", now_ns, str(now_ns))
    made.writer.close()
    found = [event.start_ns for event in Recording(made.path).events() if event.kind == "mark"]
    assert found == [at_ns for _, at_ns, _ in made.events if at_ns >= found[0]]
    assert abs(found[0] - read(made.path, 0).start_ns[0]) <= 2 * SECOND


# Memory, cuts and failures


def test_memory_and_size_do_not_grow_with_the_length(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "30s@full,2m@1s", [opened(0)], live=True)
    memory, sizes = [], []
    tracemalloc.start()
    for now_ns in fill(made, 3600, period_ns=50 * MS, each_s=2):
        made.fed[0].clear()
        if (now_ns - EPOCH) % (600 * SECOND) == 0:
            memory.append(tracemalloc.get_traced_memory()[0])
            sizes.append(made.path.stat().st_size)
    tracemalloc.stop()
    made.writer.close()
    assert max(memory[1:]) - memory[1] < 200_000, memory
    assert max(sizes[1:]) < 1.3 * min(sizes[1:]), sizes


def test_a_kill_at_any_moment_leaves_a_whole_file_with_all_that_was_written(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "20s@full,forever@1s", [opened(0)])
    seen = set()
    for step, now_ns in enumerate(fill(made, 240)):
        made.writer.flush()
        beside = tmp_path / ".a.cufall.thinning"
        seen.add(beside.exists())
        if step % 3 == 0:
            rows = read(made.path, 0)
            assert (rows.start_ns[0], rows.end_ns[-1]) == (EPOCH, now_ns)
            np.testing.assert_allclose(rows.values.sum(axis=0), made.of(0).values.sum(axis=0), rtol=1e-6)
    assert seen == {True, False}  # a pass goes on over several writes, and was looked at meanwhile
    killed = tmp_path / "killed" / "a.cufall"
    shutil.copytree(tmp_path, killed.parent, ignore=shutil.ignore_patterns("killed"))
    made.writer.close()
    (killed.parent / ".a.cufall.thinning").write_bytes(b"left over")
    again = RecordingWriter(killed, [opened(0)], Plan(), force=True, keep=parse("forever@1s"))
    again.close()
    assert os.listdir(killed.parent) == ["a.cufall"]


def test_a_thinned_file_that_is_cut_anywhere_gives_its_whole_batches(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "20s@full,2m@1s,forever@10s", [opened(0)])
    for _ in fill(made, 600):
        pass
    made.writer.close()
    whole, rows = made.path.read_bytes(), read(made.path, 0)
    head = whole.find(b"start") + 1000
    cuts = random.Random(1).sample(range(head, len(whole)), 60)
    for cut in cuts:
        (tmp_path / "cut.cufall").write_bytes(whole[:cut])
        found = [s for _, s in Recording(tmp_path / "cut.cufall").batches()]
        part = Samples.join(found) if found else rows[:0]
        np.testing.assert_array_equal(part.values, rows.values[: len(part)])


def test_a_pass_that_fails_is_told_and_the_recording_goes_on(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "20s@full,forever@1s", [opened(0)])
    blocked = tmp_path / ".a.cufall.thinning"
    for now_ns in fill(made, 120):
        if now_ns == EPOCH + 10 * SECOND:
            (blocked / "there").mkdir(parents=True)
        if now_ns == EPOCH + 80 * SECOND:
            shutil.rmtree(blocked)
    assert made.said and all("a.cufall cannot be thinned, and grows: " in line for line in made.said)
    made.writer.close()
    check_rows(read(made.path, 0), made.of(0), SECOND)
    assert len(read(made.path, 0)) < 120 + 10 * (20 + SLACK_S)


def test_batches_hold_no_more_rows_than_others(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "10s@full,forever@1s", [opened(0), opened(1)])
    for _ in fill(made, 60, period_ns=MS):
        pass
    made.writer.close()
    assert max(len(samples) for _, samples in Recording(made.path).batches()) <= BATCH_ROWS


def test_without_keep_nothing_of_it_is_in_the_file(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "a.cufall", [opened(0)], Plan()) as out:
        out.add(0, noisy(EPOCH, 10))
    recording = Recording(tmp_path / "a.cufall")
    assert recording.keep == ()
    assert all(samples.minimum is None for _, samples in recording.batches())
    assert recording.opened[0].metrics == counters()


def test_the_head_tells_how_a_file_was_thinned(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.cufall", "1h@full,forever@1s")
    made.writer.close()
    assert Recording(made.path).keep == parse("1h@full,forever@1s")
    assert [event.kind for event in Recording(made.path).items() if isinstance(event, Event)] == ["start", "end"]
