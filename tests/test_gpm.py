"""GPM: totals that are renewed ten times a second become samples of one period each; and what falls back on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.devices import Device
from cufall_py.errors import (
    AbsentUnit,
    CountersDenied,
    CountersOwned,
    LibraryProblem,
    SourceError,
    Unsupported,
    UsageError,
)
from cufall_py.plan import Plan
from cufall_py.resolve import Wanted
from cufall_py.samples import Samples, Tally
from cufall_py.sources import Opened, Passes, Source
from cufall_py.sources.auto import AutoProvider, AutoSource
from cufall_py.sources.gpm import BEHIND_NS, LOOK_NS, PERIOD_NS, GpmSource, gpm_set, renewal
from tests.helpers import EPOCH, MS, tensor_set

DEVICE = Device(2, "GPU-2", "NVIDIA H200")
TENSOR = "NVML_GPM_METRIC_ANY_TENSOR_UTIL"
NAN = float("nan")


@dataclass
class PlayedGpm:
    """A driver that renews its totals every 100 ms from EPOCH on, of a GPU whose tensor pipe is busy k % in period k.

    What shows at a renewal had ended BEHIND_NS before it. A look takes 0.3 ms, and other time passes as it is moved.
    """

    missing: tuple[str, ...] = ()
    error: SourceError | None = None
    now_ns: int = EPOCH + 30 * MS
    looks: list[int] = field(default_factory=lambda: [0, 0])
    count: int = 0

    def clock(self) -> int:
        return self.now_ns

    def open(self) -> None:
        if self.error:
            raise self.error
        self.looks = [self._renewals()] * 2

    def look(self) -> None:
        self.now_ns += 300_000
        self.count += 1
        self.looks[1] = self._renewals()

    def since(self, names: Sequence[str]) -> list[float]:
        if self.error:
            raise self.error
        first, last = self.looks
        mean = (first + last - 1) / 2 if last > first else 0.0  # of the periods first .. last - 1
        values = dict.fromkeys(names, mean)
        values["NVML_GPM_METRIC_DRAM_BW_UTIL"] = 50.0 if last > first else NAN
        return [NAN if name in self.missing else values[name] for name in names]

    def keep(self) -> None:
        self.looks[0] = self.looks[1]

    def close(self) -> None: ...

    def _renewals(self) -> int:
        return (self.now_ns - EPOCH) // PERIOD_NS


def source_of(gpm: PlayedGpm, *metrics: str, **wanted: object) -> GpmSource:
    plan = Plan(Wanted(metrics or ("tensor",), **wanted))  # type: ignore[arg-type]
    source = GpmSource(DEVICE, plan, gpm, gpm.clock)

    # its first renewals are waited for in real time: let that pass for the played clock too
    def look() -> None:
        gpm.now_ns += 20 * MS
        PlayedGpm.look(gpm)

    gpm.look = look  # type: ignore[method-assign]
    return source


def opened(gpm: PlayedGpm, *metrics: str) -> tuple[GpmSource, Opened]:
    source = source_of(gpm, *metrics)
    told = source.open()
    del gpm.look  # type: ignore[method-assign]
    return source, told


def read_for(source: GpmSource, gpm: PlayedGpm, milliseconds: int, step_ms: int = 20) -> Samples:
    parts = [Samples.empty(1)]
    for _ in range(milliseconds // step_ms):
        gpm.now_ns += step_ms * MS
        parts.append(source.read())
    return Samples.join(parts)


def test_a_renewal_is_a_sample_of_its_period() -> None:
    gpm = PlayedGpm()
    source, told = opened(gpm)
    samples = read_for(source, gpm, 2000)
    assert told.sample_ns == PERIOD_NS and told.source == "gpm"
    assert len(samples) in (19, 20)
    period = np.round((samples.end_ns + BEHIND_NS - EPOCH) / PERIOD_NS) - 1
    np.testing.assert_array_equal(samples.values[:, 0], period)
    assert np.abs(samples.end_ns - (EPOCH + (period + 1) * PERIOD_NS - BEHIND_NS)).max() <= 11 * MS
    np.testing.assert_array_equal(samples.start_ns[1:], samples.end_ns[:-1])


def test_looks_close_in_on_when_a_period_ends() -> None:
    gpm = PlayedGpm()
    source, _ = opened(gpm)
    parts, first_ns = [], gpm.now_ns
    for k in range(200):
        gpm.now_ns = first_ns + k * LOOK_NS
        parts.append(source.read())
    samples = Samples.join(parts)
    ends = (samples.end_ns + BEHIND_NS - EPOCH) % PERIOD_NS
    assert np.minimum(ends, PERIOD_NS - ends)[-10:].max() <= 2 * MS


def test_a_renewal_that_was_looked_for_late_is_put_where_it_was_due() -> None:
    assert renewal(0, 40 * MS, 50 * MS) == 45 * MS
    assert renewal(1000 * MS, 1090 * MS, 1101 * MS) == 1100 * MS
    assert renewal(1000 * MS, 1020 * MS, 1180 * MS) == 1100 * MS
    assert renewal(1000 * MS, 1080 * MS, 1390 * MS) == 1200 * MS  # one or more of three: no look tells
    assert renewal(1000 * MS, 1102 * MS, 1112 * MS) == 1102 * MS  # later than it was due


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30))
def test_however_seldom_it_is_read_periods_join_and_none_is_counted_twice(waits_ms: list[int]) -> None:
    gpm = PlayedGpm()
    source, _ = opened(gpm)
    first = gpm.looks[0]
    parts = []
    for wait in waits_ms:
        gpm.now_ns += wait * MS
        parts.append(source.read())
    samples = Samples.join(parts)
    if not len(samples):
        return
    np.testing.assert_array_equal(samples.start_ns[1:], samples.end_ns[:-1])
    # sample k covers the renewals from where the last ended: its mean is theirs
    edges = [first]
    for value in samples.values[:, 0]:
        edges.append(int(2 * value - edges[-1] + 1))
    assert all(b > a for a, b in pairwise(edges)) and edges[-1] == gpm.looks[0]


def test_a_gpu_of_which_nothing_is_renewed_is_not_idle_but_silent() -> None:
    gpm = PlayedGpm()
    source, _ = opened(gpm)
    gpm._renewals = lambda: gpm.looks[0]  # type: ignore[method-assign]
    assert len(read_for(source, gpm, 1000)) == 0


def test_what_gpm_fails_to_give_is_absent_and_said() -> None:
    _, told = opened(PlayedGpm(missing=("NVML_GPM_METRIC_SM_UTIL",)), "tensor", "sm")
    assert [(m.label, m.absent) for m in told.metrics.metrics] == [("tensor", False), ("sm", True)]
    assert "SM_UTIL" in told.notes[0]


def test_nothing_given_is_an_error() -> None:
    with pytest.raises(Unsupported, match="gives no tensor here"):
        source_of(PlayedGpm(missing=(TENSOR,))).open()


@pytest.mark.parametrize("name", ["fma", "pcie.rx", "sm__inst_executed.sum", "dram__bytes_read.sum"])
def test_what_gpm_does_not_measure_is_refused(name: str) -> None:
    with pytest.raises(Unsupported, match=f"cannot give {name}"):
        gpm_set(Wanted((name,)))


def test_plain_quotients_cannot_be_made_of_percents() -> None:
    with pytest.raises(Unsupported, match="--raw"):
        gpm_set(Wanted(("tensor",), raw=True))


def test_the_engineers_pair_is_the_same_share() -> None:
    name, pair = "sm__pipe_tensor_cycles_active.avg", "gr__cycles_elapsed.max"
    (metric,) = gpm_set(Wanted((name,), denominator=pair)).metrics
    assert (metric.counters, metric.asked, metric.formula) == ((TENSOR,), f"{name}/{pair}", f"{TENSOR}/100")


def test_percents_become_ratios() -> None:
    metrics = gpm_set(Wanted(("tensor", "dram")))
    assert metrics.quotients(np.array([[93.4, 17.0]]), np.array([PERIOD_NS])).tolist() == [[0.934, 0.17]]


# --- falling back ---


@dataclass
class Plays:
    """A source and its provider that open with what is given, or raise it."""

    source_name: str
    error: Exception | None = None
    unprepared: LibraryProblem | None = None
    closed: int = 0
    tally: Tally = field(default_factory=Tally)
    decode_ns: int = 7

    def prepare(self) -> None:
        if self.unprepared:
            raise self.unprepared

    def devices(self) -> list[Device]:
        return [DEVICE]

    def source(self, device: Device, plan: Plan) -> Source:
        return self

    def passes(self, device: Device) -> Passes | None:
        if self.error:
            raise self.error
        return Passes("GH100", len) if self.source_name == "cupti" else None

    def open(self) -> Opened:
        if self.error:
            raise self.error
        return Opened(DEVICE, tensor_set(), PERIOD_NS, "time", self.source_name)

    def read(self) -> Samples:
        return Samples.empty(2)

    def close(self) -> None:
        self.closed += 1


def auto(first: Plays, second: Plays) -> AutoSource:
    provider = AutoProvider(first, second)
    provider.prepare()
    return provider.source(DEVICE, Plan())


def test_what_fits_one_pass_is_asked_of_who_samples() -> None:
    provider = AutoProvider(Plays("cupti"), Plays("gpm"))
    provider.prepare()
    passes = provider.passes(DEVICE)
    assert passes and (passes.chip, passes.of(("a", "b"))) == ("GH100", 2)
    too_old = LibraryProblem("this driver is too old")
    for first in (Plays("cupti", error=too_old), Plays("cupti", unprepared=too_old)):
        provider = AutoProvider(first, Plays("gpm"))
        provider.prepare()
        assert provider.passes(DEVICE) is None


def test_the_counters_are_taken_where_they_can_be_had() -> None:
    first, second = Plays("cupti"), Plays("gpm")
    source = auto(first, second)
    told = source.open()
    assert (told.source, told.notes, source.tally is first.tally) == ("cupti", (), True)


@pytest.mark.parametrize(
    "error",
    [
        CountersDenied("GPU 2 (NVIDIA H200): the driver keeps the counters from this user; run as root"),
        CountersOwned("GPU 2 (NVIDIA H200): another profiler holds its counters"),
        LibraryProblem("this driver is of CUDA 12.4; CUPTI 13 needs one of CUDA 13.0, 580 or newer"),
        Unsupported("GPU 2 (NVIDIA H200) is a virtual GPU without profiling"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_hinders_the_counters_is_told_and_gpm_shown(error: SourceError) -> None:
    first, second = Plays("cupti", error), Plays("gpm")
    source = auto(first, second)
    told = source.open()
    assert (told.source, first.closed, source.decode_ns) == ("gpm", 1, second.decode_ns)
    (note,) = told.notes
    assert str(error).removeprefix("GPU 2 (NVIDIA H200): ") in note
    assert "NVML GPM instead, 10 readings a second" in note
    source.close()
    assert second.closed == 1


def test_without_cupti_gpm_is_shown() -> None:
    told = auto(Plays("cupti", unprepared=LibraryProblem("CUPTI is not here")), Plays("gpm")).open()
    assert told.source == "gpm" and "CUPTI is not here" in told.notes[0]


def test_what_neither_gives_is_told_with_both_reasons() -> None:
    first = Plays("cupti", CountersDenied("GPU 2 (NVIDIA H200): denied"))
    with pytest.raises(SourceError, match=r"^GPU 2 \(NVIDIA H200\): denied; and no GPM$"):
        auto(first, Plays("gpm", Unsupported("no GPM"))).open()


@pytest.mark.parametrize(
    "error", [UsageError("no such counter"), AbsentUnit("no NVLink"), SourceError("out of memory")]
)
def test_what_gpm_would_not_mend_is_not_hidden_by_it(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        auto(Plays("cupti", error), Plays("gpm")).open()
