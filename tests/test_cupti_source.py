"""The CUPTI source against hardware that does what real hardware was seen to do."""

from __future__ import annotations

import numpy as np
import pytest

from cufall_py.devices import Device
from cufall_py.errors import CountersDenied, CountersOwned, SourceError, Unsupported, UsageError
from cufall_py.plan import Plan
from cufall_py.resolve import Wanted
from cufall_py.samples import Samples
from cufall_py.sources import Opened
from cufall_py.sources.cupti.source import CuptiSource
from tests.pm_double import MS, PlayedPm

DEVICE = Device(3, "GPU-0", "NVIDIA H200")
MILLISECOND = Plan(sample_us=1000, frame_us=10_000, decode_us=50_000)
TENSOR = "sm__pipe_tensor_cycles_active_realtime.avg"
NVLINK = ("nvlrx__bytes.sum", "nvlrx__cycles_elapsed.avg")


def opened(pm: PlayedPm, *metrics: str, plan: Plan = MILLISECOND) -> tuple[CuptiSource, Opened]:
    wanted = Wanted(metrics or ("tensor",))
    source = CuptiSource(DEVICE, Plan(**{**vars(plan), "wanted": wanted}), pm)
    return source, source.open()


def read_after(source: CuptiSource, pm: PlayedPm, milliseconds: int) -> Samples:
    pm.now_ns += milliseconds * MS
    return Samples.join([source.read().spread()])  # a copy: the next read writes over it


def test_the_first_sample_which_has_no_start_is_dropped() -> None:
    pm = PlayedPm()
    source, _ = opened(pm)
    samples = read_after(source, pm, 20)
    assert (samples.start_ns > 0).all()
    assert int(samples.start_ns[0]) == pm._origin_ns + MS  # the second the hardware made


def test_samples_join_from_open_through_later_reads() -> None:
    pm = PlayedPm()
    source, _ = opened(pm)
    samples = Samples.join([read_after(source, pm, 20), read_after(source, pm, 30)])
    assert (samples.start_ns[1:] == samples.end_ns[:-1]).all()
    assert source.tally.rebuilt == 0


def test_the_times_of_samples_that_lie_evenly_are_not_asked_for() -> None:
    pm = PlayedPm()
    source, _ = opened(pm)
    read_after(source, pm, 20)
    pm.calls.clear()
    samples = read_after(source, pm, 30)
    assert (len(samples), pm.calls) == (31, ["decode"])
    assert set((samples.end_ns - samples.start_ns).tolist()) == {MS}


def test_peaks_come_from_the_chip() -> None:
    _, told = opened(PlayedPm(peaks={TENSOR: 4.0}))
    assert told.metrics.metrics[0].peak == 4.0
    assert told.device.chip == "GH100"


def test_the_peaks_of_all_counters_are_told_where_they_have_one() -> None:
    """So that a recording can be asked for other metrics than it was taken with."""
    _, told = opened(PlayedPm(peaks={TENSOR: 4.0, "sm__cycles_elapsed.avg": 0.0}), "tensor", "gr")
    assert told.facts["peaks"] == {TENSOR: 4.0, "gr__cycles_active.avg": 1.0, "gr__cycles_elapsed.max": 1.0}


def test_a_counter_without_a_peak_is_refused() -> None:
    with pytest.raises(UsageError, match="no peak"):
        opened(PlayedPm(peaks={TENSOR: 0.0}))


def test_an_absent_unit_is_left_out_and_said() -> None:
    _, told = opened(PlayedPm(absent_units=("nvlrx__",)), "tensor", "nvlink.rx")
    assert [(m.label, m.absent) for m in told.metrics.metrics] == [("tensor", False), ("nvlink.rx", True)]
    assert not set(NVLINK) & set(told.metrics.counters)
    assert any("nvlink.rx" in note for note in told.notes)


def test_an_absent_unit_alone_cannot_be_measured() -> None:
    with pytest.raises(Unsupported, match=r"nvlink\.rx"):
        opened(PlayedPm(absent_units=("nvlrx__",)), "nvlink.rx")


def test_a_unit_that_silences_all_others_is_found_and_left_out() -> None:
    pm = PlayedPm(silent_units=("nvlrx__",))
    source, told = opened(pm, "tensor", "nvlink.rx")
    assert [(m.label, m.absent) for m in told.metrics.metrics] == [("tensor", False), ("nvlink.rx", True)]
    assert len(read_after(source, pm, 10)) > 0


def test_silence_of_everything_is_an_error() -> None:
    with pytest.raises(Unsupported, match="gives no samples"):
        opened(PlayedPm(silent_units=("sm__",)))


def test_an_unknown_name_is_told_by_name_though_cupti_does_not() -> None:
    known = frozenset({"sm__cycles_active.avg", "sm__cycles_elapsed.avg"})
    with pytest.raises(UsageError, match=r"sm__nope\.avg is not a counter of GH100"):
        opened(PlayedPm(known_names=known), "sm__cycles_active.avg", "sm__nope.avg")


def test_a_set_of_two_passes_is_refused() -> None:
    with pytest.raises(UsageError, match="need 2 passes"):
        opened(PlayedPm(pass_count=2), "tensor", "dram")


@pytest.mark.parametrize(
    ("call", "status", "kind", "words"),
    [
        ("enable", "INSUFFICIENT_PRIVILEGES", CountersDenied, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("configure", "HARDWARE_BUSY", CountersOwned, "another profiler"),
        ("enable", "INVALID_OPERATION", CountersOwned, "another profiler"),
        ("enable", "WSL_DEVICE_NOT_SUPPORTED", Unsupported, "WSL"),
        ("enable", "VIRTUALIZED_DEVICE_NOT_SUPPORTED", Unsupported, "virtual GPU"),
        ("enable", "CONFIDENTIAL_COMPUTING_NOT_SUPPORTED", Unsupported, "confidential computing"),
        ("enable", "MIG_DEVICE_NOT_SUPPORTED", Unsupported, "MIG"),
        ("start", "OUT_OF_MEMORY", SourceError, "--hw-buffer-mb"),
        ("start", "UNKNOWN", SourceError, "UNKNOWN"),
    ],
)
def test_a_refusal_says_which_gpu_and_what_to_do(call: str, status: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        opened(PlayedPm(errors={call: status}))
    assert words in str(caught.value)
    assert "GPU 3" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_platform_trouble_gives_no_advice_on_permissions() -> None:
    with pytest.raises(Unsupported) as caught:
        opened(PlayedPm(errors={"enable": "WSL_DEVICE_NOT_SUPPORTED"}))
    assert "root" not in str(caught.value)


def test_without_a_time_trigger_it_counts_sysclk_cycles_and_says_so() -> None:
    pm = PlayedPm(chip="GA100", refuses=("time trigger",))
    source, told = opened(pm)
    assert told.trigger == "sysclk"
    assert any("no time trigger" in note for note in told.notes)
    samples = read_after(source, pm, 30)
    # 1 ms at the 1.5 GHz that is assumed is 1.5 ms at this chip's 1 GHz: the samples' own times are believed
    assert set((samples.end_ns - samples.start_ns).tolist()) == {1_500_000}


def test_without_keep_latest_it_keeps_the_oldest() -> None:
    pm = PlayedPm(chip="GA102", refuses=("keep latest",))
    _, told = opened(pm)
    assert told.trigger == "time"
    assert not pm.config.keep_latest


def test_a_backlog_that_fills_the_image_keeps_every_sample_in_its_place() -> None:
    pm = PlayedPm()
    source, _ = opened(pm)
    before = read_after(source, pm, 10)
    samples = read_after(source, pm, 1000)  # twelve images' worth
    ends = np.concatenate([before.end_ns[-1:], samples.end_ns])
    assert np.abs(np.diff(ends) - MS).max() <= 1000
    assert (samples.start_ns == ends[:-1]).all()
    assert source.tally.rebuilt > 900


def test_the_newest_kept_lets_the_times_tell_the_loss() -> None:
    pm = PlayedPm(buffer_samples=50)
    source, _ = opened(pm, plan=Plan(sample_us=1000, frame_us=10_000, decode_us=50_000, buffer_samples=400))
    before = read_after(source, pm, 10)
    samples = read_after(source, pm, 200)
    assert len(samples) == 50
    assert int(samples.start_ns[0] - before.end_ns[-1]) > 100 * MS


def test_after_records_were_written_over_for_long_it_begins_anew() -> None:
    """As after the process was stopped: once hardware wrote over what was being read, decodes can find nothing."""
    pm = PlayedPm(buffer_samples=200, loses_its_place=True)
    source, _ = opened(pm, plan=Plan(sample_us=1000, frame_us=10_000, decode_us=50_000, buffer_samples=400))
    before, kept = read_after(source, pm, 10), read_after(source, pm, 500)
    after = [read_after(source, pm, 50) for _ in range(3)]
    assert (len(kept), source.tally.overflows) == (200, 1)
    assert int(kept.start_ns[0] - before.end_ns[-1]) > 200 * MS
    assert [len(samples) for samples in after] == [50, 51, 51]  # the first of a beginning has no start


def test_the_oldest_kept_overflows_is_counted_and_goes_on() -> None:
    pm = PlayedPm(buffer_samples=50, refuses=("keep latest",))
    source, _ = opened(pm)
    last = int(read_after(source, pm, 10).end_ns[-1])
    assert len(read_after(source, pm, 200)) == 0
    assert source.tally.overflows == 1
    samples = read_after(source, pm, 20)
    assert len(samples) > 10
    # what began with the new start is not taken to continue what was before
    assert int(samples.start_ns[0]) > last + 100 * MS


def test_a_backlog_that_only_grows_ends_with_a_new_beginning() -> None:
    """A decode that takes longer than the samples it hands over: no read goes on for ever."""
    pm = PlayedPm(decode_ms=60.0)
    source, _ = opened(pm, plan=Plan(sample_us=1000, frame_us=10_000, decode_us=50_000, buffer_samples=16))
    samples = read_after(source, pm, 100)
    assert source.tally.overflows >= 1
    assert (samples.end_ns > 0).all() and (samples.end_ns <= pm.now_ns).all()


def test_a_failing_decode_is_an_error_of_this_gpu() -> None:
    pm = PlayedPm()
    source, _ = opened(pm)
    pm.errors["decode"] = "UNKNOWN"
    with pytest.raises(SourceError, match="GPU 3"):
        source.read()


def test_closing_gives_the_gpu_back_whatever_happened() -> None:
    pm = PlayedPm(errors={"start": "UNKNOWN"})
    source = CuptiSource(DEVICE, MILLISECOND, pm)
    with pytest.raises(SourceError):
        source.open()
    source.close()
    source.close()
    assert not pm.enabled
