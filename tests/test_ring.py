"""The ring: what is read was written, whole, and what was not read is counted."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cufall_py import ring as ring_module
from cufall_py.errors import CountersOwned, SourceError
from cufall_py.gpu import Gpu
from cufall_py.ring import Batch, RingReader, RingWriter, slot_capacity
from cufall_py.ring_file import clear_stale, directory_choices, owner_of
from cufall_py.samples import Even, Samples, Tally
from cufall_py.sources import Opened
from tests.helpers import EPOCH, gpu, joined, tensor_set

UUID = "GPU-11111111-2222-3333-4444-555555555555"
SLOT, HEAD = 16384, 65536
ROOT = Path(__file__).parent.parent


def size_of(slots: int) -> int:
    return HEAD + slots * SLOT


def numbered(n: int, count: int = 3) -> Samples:
    """A batch that tells its number in every value."""
    return joined(EPOCH + 1000 * n, 10, [[n + 0.25, n + 0.5]] * count)


def numbers(batches: list[Batch]) -> list[int]:
    return [int(batch.samples.values[0, 0]) for batch in batches]


@contextmanager
def rings(slots: int = 16, readers: int = 1) -> Iterator[tuple[RingWriter, list[RingReader]]]:
    writer = RingWriter(UUID, {"what": "numbers"}, size_of(slots))
    reading = [RingReader(writer.path) for _ in range(readers)]
    try:
        yield writer, reading
    finally:
        for reader in reading:
            reader.close()
        writer.close()


@contextmanager
def writer_process(slots: int, batches: int | str, done: bool = True) -> Iterator[subprocess.Popen[str]]:
    """Another process with a ring; `done`: only once it has written all its batches."""
    command = [sys.executable, "-m", "tests.ring_writer", UUID, str(size_of(slots)), str(batches)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "ready\n"
            if done:
                assert process.stdout.readline() == f"{batches}\n"
            yield process
        finally:
            process.kill()


def until(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


# --- what is written is read ---


def test_a_batch_comes_out_as_it_went_in() -> None:
    with rings() as (writer, (reader,)):
        sent, tally = joined(EPOCH, 7, [[1.5, -2.0, 1e300], [0.1, 3.0, 2**52 + 1.0]]), Tally(*range(1, 14))
        writer.write(sent, tally)
        (batch,) = reader.read()
        np.testing.assert_array_equal(batch.samples.start_ns, sent.start_ns)
        np.testing.assert_array_equal(batch.samples.end_ns, sent.end_ns)
        np.testing.assert_array_equal(batch.samples.values, sent.values)
        assert batch.tally == tally
        assert reader.read() == []


def test_an_empty_batch_carries_the_tally() -> None:
    with rings() as (writer, (reader,)):
        writer.write(Samples.empty(2), Tally(decodes=5))
        (batch,) = reader.read()
        assert (len(batch.samples), batch.samples.values.shape, batch.tally.decodes) == (0, (0, 2), 5)


@pytest.mark.parametrize("count", [1, 2, 7, slot_capacity(2), slot_capacity(2) + 1, 3000])
def test_even_samples_come_out_each_with_its_times(count: int) -> None:
    values = np.arange(2.0 * count).reshape(count, 2)
    with rings() as (writer, (reader,)):
        writer.write(Even(EPOCH, EPOCH + 1000 * count, values), Tally(decodes=1))
        read = [batch.samples for batch in reader.read()]
    assert np.concatenate([s.start_ns for s in read]).tolist() == [EPOCH + 1000 * k for k in range(count)]
    assert np.concatenate([s.end_ns for s in read]).tolist() == [EPOCH + 1000 * k for k in range(1, count + 1)]
    np.testing.assert_array_equal(np.concatenate([s.values for s in read]), values)


def test_a_reader_is_told_what_is_sampled_and_by_whom() -> None:
    with rings() as (_, (reader,)):
        assert reader.info == {"what": "numbers"}
        assert reader.owner == os.getpid()


def test_a_batch_longer_than_a_slot_takes_several() -> None:
    room = (SLOT - 168) // (16 + 2 * 8)
    assert slot_capacity(2) in (room, room - 1, room + 1)
    count = 3 * slot_capacity(2) + 5
    sent = joined(EPOCH, 10, [[float(k), float(-k)] for k in range(count)])
    with rings(slots=8) as (writer, (reader,)):
        writer.write(sent, Tally(samples=count))
        batches = reader.read()
        assert [len(batch.samples) for batch in batches] == [*[slot_capacity(2)] * 3, 5]
        got = Samples.join(batch.samples for batch in batches)
        np.testing.assert_array_equal(got.values, sent.values)
        np.testing.assert_array_equal(got.end_ns, sent.end_ns)
        assert {batch.tally.samples for batch in batches} == {count}


@settings(max_examples=15)
@given(st.lists(st.integers(0, 12), max_size=12), st.integers(1, 40))
def test_every_batch_is_read_once_or_counted(writes: list[int], slots: int) -> None:
    with rings(slots) as (writer, (reader,)):
        seen: list[int] = []
        written = 0
        for count in writes:
            for _ in range(count):
                written += 1
                writer.write(numbered(written), Tally())
            seen += numbers(reader.read())
        assert seen == sorted(set(seen))
        assert len(seen) + reader.overwritten == written


def test_readers_read_at_their_own_pace() -> None:
    with rings(slots=16, readers=3) as (writer, (often, seldom, never)):
        seen = []
        for n in range(1, 13):
            writer.write(numbered(n), Tally())
            seen += numbers(often.read())
        assert seen == list(range(1, 13))
        assert numbers(seldom.read()) == list(range(1, 13))
        late = RingReader(writer.path)
        assert numbers(late.read()) == list(range(1, 13))
        late.close()
        assert [reader.overwritten for reader in (often, seldom, never)] == [0, 0, 0]


def test_a_full_ring_loses_nothing() -> None:
    with rings(slots=16) as (writer, (reader,)):
        for n in range(1, 17):
            writer.write(numbered(n), Tally())
        assert numbers(reader.read()) == list(range(1, 17))
        assert reader.overwritten == 0


@pytest.mark.parametrize(("slots", "written"), [(16, 17), (16, 40), (8, 1000), (1, 5), (2, 7), (64, 65), (64, 6400)])
def test_what_was_overwritten_is_counted_exactly(slots: int, written: int) -> None:
    with rings(slots) as (writer, (reader,)):
        for n in range(1, written + 1):
            writer.write(numbered(n), Tally())
        seen = numbers(reader.read())
        # the newest, in order, and all that fit but a margin of an eighth
        assert seen == list(range(written - len(seen) + 1, written + 1))
        assert len(seen) + reader.overwritten == written
        assert len(seen) >= max(1, slots - slots // 8 - 1)


def test_after_an_overrun_reading_goes_on() -> None:
    with rings(slots=4) as (writer, (reader,)):
        for n in range(1, 12):
            writer.write(numbered(n), Tally())
        before = numbers(reader.read())
        for n in range(12, 15):
            writer.write(numbered(n), Tally())
        assert numbers(reader.read()) == [12, 13, 14]
        assert len(before) + reader.overwritten == 11


def test_sequence_numbers_beyond_32_bits_are_read() -> None:
    with rings(slots=4) as (writer, (reader,)):
        writer._sequence = reader._next = 2**32 - 2
        reader._next += 1
        for n in range(4):
            writer.write(numbered(n), Tally())
        assert numbers(reader.read()) == [0, 1, 2, 3]


# --- a batch is whole or not delivered ---


def is_whole(batch: Batch) -> bool:
    n = batch.tally.decodes
    samples = batch.samples
    same = (samples.start_ns == n).all() and (samples.end_ns == n).all() and (samples.values == n).all()
    return bool(same) and batch.tally.overflows == n and len(samples) == slot_capacity(2)


class TrustingReader(RingReader):
    """Takes every copy of a slot for whole: without its check, torn batches must be seen."""

    @staticmethod
    def intact(copy: bytes, sequence: int, checksum: int) -> bool:
        return True


def race(kind: type[RingReader], slots: int, enough: Callable[[int, int], bool], seconds: float) -> tuple[int, int]:
    """Read while another process writes as fast as it can: batches delivered, and how many of them were torn."""
    delivered = torn = 0
    with writer_process(slots, "forever", done=False):
        reader = kind(directory_choices()[0] / f"{UUID}.ring")
        end = time.monotonic() + seconds
        while time.monotonic() < end and not enough(delivered, torn):
            for batch in reader.read():
                delivered += 1
                torn += not is_whole(batch)
        reader.close()
    return delivered, torn


@pytest.mark.parametrize("slots", [1, 2, 16])
def test_no_torn_batch_is_ever_delivered(slots: int) -> None:
    delivered, torn = race(RingReader, slots, lambda delivered, _: delivered >= 10_000, seconds=4.0)
    assert delivered > 50
    assert torn == 0


def test_without_the_check_torn_batches_are_seen() -> None:
    _, torn = race(TrustingReader, 1, lambda _, torn: torn > 0, seconds=30.0)
    assert torn > 0


def test_a_race_leaves_an_exact_count() -> None:
    with writer_process(4, 3000, done=False):
        reader = RingReader(directory_choices()[0] / f"{UUID}.ring")
        seen = [0]
        while seen[-1] < 3000:
            time.sleep(0.001)  # by then the writer has been round
            seen += [batch.tally.decodes for batch in reader.read()]
        assert (np.diff(seen) > 0).all()
        assert len(seen[1:]) + reader.overwritten == 3000
        assert reader.overwritten > 0
        reader.close()


@pytest.mark.parametrize("at", [0, 8, 12, 20, 100, 200])
def test_a_slot_with_one_wrong_byte_is_not_delivered(at: int) -> None:
    with rings() as (writer, (reader,)):
        writer.write(numbered(1), Tally(1, 2, 3))
        offset = HEAD + SLOT + at  # batch 1 lies in slot 1
        with open(writer.path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 0x40]))
        assert reader.read() == []


def test_batches_of_an_earlier_ring_in_the_same_file_are_not_read() -> None:
    with rings() as (writer, (reader,)):
        writer.write(numbered(1), Tally())
        reader._generation += 1
        assert reader.read() == []


# --- who is there ---


def test_a_killed_writer_is_noticed_and_cleared_away() -> None:
    with writer_process(4, 3) as process:
        path = directory_choices()[0] / f"{UUID}.ring"
        reader = RingReader(path)
        assert reader.alive()
        assert reader.owner == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not reader.alive()
        # what it wrote can still be read
        assert [batch.tally.decodes for batch in reader.read()] == [1, 2, 3]
        assert path.exists()
        clear_stale()
        assert not path.exists()
        reader.close()


def test_the_next_writer_takes_the_place_of_a_killed_one() -> None:
    with writer_process(4, 3) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with rings() as (writer, (reader,)):
        assert reader.owner == os.getpid()
        writer.write(numbered(1), Tally())
        assert numbers(reader.read()) == [1]
    assert list(directory_choices()[0].iterdir()) == []


def test_a_second_writer_is_told_who_has_the_gpu() -> None:
    with writer_process(4, 3) as process:
        with pytest.raises(CountersOwned, match=f"process {process.pid}\\)"):
            RingWriter(UUID, {}, size_of(4))
        # the first is unharmed
        reader = RingReader(directory_choices()[0] / f"{UUID}.ring")
        assert reader.alive()
        assert until(lambda: len(reader.read()) > 0)
        reader.close()
    assert [path.name for path in directory_choices()[0].iterdir()] == [f"{UUID}.ring"]


def test_the_owner_of_a_ring_is_told_while_it_is_held() -> None:
    assert owner_of(UUID) is None
    with writer_process(4, 3) as process:
        assert owner_of(UUID) == process.pid
        process.kill()
        process.wait()
        assert owner_of(UUID) is None
    assert list(directory_choices()[0].iterdir()) == []


def test_the_owner_can_be_another_process_than_the_writer() -> None:
    writer = RingWriter(UUID, {}, size_of(4), owner=4242)
    try:
        assert owner_of(UUID) == 4242
        with pytest.raises(CountersOwned, match="process 4242"):
            RingWriter(UUID, {}, size_of(4))
    finally:
        writer.close()


def test_clearing_leaves_rings_that_are_written() -> None:
    with rings() as (writer, (reader,)):
        clear_stale()
        assert writer.path.exists()
        assert reader.alive()


def test_clearing_removes_what_was_left_half_made(ring_dir: Path) -> None:
    with rings() as (writer, _):
        mode = stat.S_IMODE(writer.path.stat().st_mode)
    left = half_made(ring_dir)
    assert mode == 0o600
    clear_stale()
    assert not left.exists()


def half_made(ring_dir: Path) -> Path:
    """What a writer killed between making and naming its file leaves; found by killing one there."""
    code = (
        "import os, signal; from cufall_py import ring\n"
        "ring.os.posix_fallocate = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"ring.RingWriter({UUID!r}, {{}}, {size_of(4)})"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = ring_dir.iterdir()
    return left


def test_clearing_touches_nothing_that_is_not_ours(ring_dir: Path) -> None:
    ring_dir.mkdir()
    others = [ring_dir / name for name in (".bashrc.bak", ".config.json", "notes.txt")]
    for path in others:
        path.write_text("mine")
    (ring_dir / "a-folder.ring").mkdir()
    clear_stale()
    assert all(path.exists() for path in others)


def test_clearing_without_a_directory_is_nothing(ring_dir: Path) -> None:
    clear_stale()
    assert not ring_dir.exists()


def test_a_writer_knows_for_how_long_it_has_had_no_reader() -> None:
    with rings(readers=0) as (writer, _):
        time.sleep(0.6)
        assert writer.readerless_s() >= 0.6
        reader, second = RingReader(writer.path), RingReader(writer.path)
        assert writer.readerless_s() < 0.6
        reader.close()
        assert writer.readerless_s() < 0.6
        second.close()
        time.sleep(0.6)
        assert 0.6 <= writer.readerless_s() < 5


def test_a_reader_knows_for_how_long_nothing_was_written() -> None:
    with rings() as (writer, (reader,)):
        time.sleep(0.2)
        assert 0.2 <= reader.heartbeat_age_s() < 5
        writer.write(Samples.empty(2), Tally())
        assert reader.heartbeat_age_s() < 0.2


def test_a_closed_ring_leaves_no_file_and_no_writer() -> None:
    writer = RingWriter(UUID, {}, size_of(4))
    reader = RingReader(writer.path)
    writer.close()
    assert not writer.path.exists()
    assert not reader.alive()
    reader.close()


# --- the file ---


def test_only_its_user_can_open_a_ring() -> None:
    with rings() as (writer, _):
        assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(writer.path.parent.stat().st_mode) == 0o700


def test_a_ring_has_its_size_from_the_start() -> None:
    with rings(slots=5) as (writer, _):
        assert writer.path.stat().st_size == size_of(5)
        assert writer.path.stat().st_blocks * 512 >= size_of(5)


@pytest.mark.parametrize(("at", "value"), [(0, b"cufall99"), (8, struct.pack("<I", 99)), (12, struct.pack("<I", 4096))])
def test_a_ring_of_another_version_is_refused_and_let_go(at: int, value: bytes) -> None:
    with rings(readers=0) as (writer, _):
        with open(writer.path, "r+b") as file:
            file.seek(at)
            file.write(value)
        with pytest.raises(SourceError, match="not a ring of this version"):
            RingReader(writer.path)
        time.sleep(0.02)
        assert writer.readerless_s() >= 0.02


def test_a_damaged_description_is_refused() -> None:
    with rings(readers=0) as (writer, _):
        with open(writer.path, "r+b") as file:
            file.seek(4096 + 8)
            file.write(b"[")
        with pytest.raises(SourceError, match="damaged"):
            RingReader(writer.path)


@pytest.mark.parametrize("content", [b"", b"cufall01", b"\0" * 100])
def test_a_file_too_short_for_a_ring_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "short.ring"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="not a ring"):
        RingReader(path)


def test_a_description_that_does_not_fit_is_refused_and_leaves_nothing(ring_dir: Path) -> None:
    with pytest.raises(SourceError, match="does not fit"):
        RingWriter(UUID, {"notes": "x" * HEAD}, size_of(4))
    assert list(ring_dir.iterdir()) == []


def test_no_directory_for_a_ring_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUFALL_RING_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(SourceError, match="no place for a ring of 16 MiB") as error:
        RingWriter(UUID, {})
    assert str(tmp_path) in str(error.value)
    assert str(error.value).endswith("; CUFALL_RING_DIR names another folder")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a tmpfs at /dev/shm")
def test_a_full_directory_is_said_and_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    # a tmpfs refuses at once what is more than it can ever hold
    directory = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="cufall-test-"))
    try:
        monkeypatch.setenv("CUFALL_RING_DIR", str(directory))
        with pytest.raises(SourceError, match="no place for a ring of 1073741824 MiB"):
            RingWriter(UUID, {}, 1 << 50)
        assert list(directory.iterdir()) == []
    finally:
        shutil.rmtree(directory)


def test_without_an_asked_directory_shared_memory_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUFALL_RING_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    choices = [str(path) for path in directory_choices()]
    own = f"cufall-{os.getuid()}"
    assert f"{tmp_path}/{own}" in choices
    assert choices[-1] == f"{tempfile.gettempdir()}/{own}"
    if os.path.isdir("/dev/shm"):
        assert choices[0] == f"/dev/shm/{own}"


def test_the_layout_is_fixed() -> None:
    assert (ring_module.SLOTS_AT, ring_module.SLOT_BYTES, ring_module.DEFAULT_BYTES) == (HEAD, SLOT, 16 << 20)


class Interrupted(RingReader):
    """A signal comes once it is closed, before that is noted anywhere."""

    def close(self) -> None:
        super().close()
        raise KeyboardInterrupt


def test_an_interrupt_while_leaving_a_ring_leaves_it_left() -> None:
    with rings(readers=0) as (writer, _):
        writer.write(numbered(1), Tally())
        followed = Gpu(gpu(0))
        followed.attach(Interrupted(writer.path), Opened(gpu(0), tensor_set(), 1000, "time", "script"))
        with pytest.raises(KeyboardInterrupt):
            followed.detach()
        followed.detach()  # as whoever ends it all does
        assert [len(samples) for samples in followed.read()] == [3] and not followed.live
