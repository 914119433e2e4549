"""`cufall compare` on recordings made by hand: what it finds, refuses and ends with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cufall_py import cli
from cufall_py.metrics import Metric, MetricSet
from cufall_py.sources import Opened
from tests.helpers import EPOCH, GR_ELAPSED, MS, SECOND, SM_ELAPSED, TENSOR, metric
from tests.recordings import busy, counters, opened, region, writer
from tests.scripted import cufall

Outcome = tuple[int, str, str]
GR = "gr__cycles_active.avg"
WITH_GR = MetricSet((TENSOR, SM_ELAPSED, GR, GR_ELAPSED), (metric(), Metric("gr", "gr", (GR,), GR_ELAPSED, peak=1.0)))


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The command, in this process: its exit code, stdout and stderr."""

    def run(*words: str | Path) -> Outcome:
        code = cli._run(["compare", *map(str, words)])
        return code, *capfd.readouterr()

    return run


@pytest.fixture(autouse=True)
def _signals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cufall_py.cli.compare.end_in_order", lambda: None)


def noisy(level: float, seed: int, count: int = 2000, spread: float = 0.05) -> list[float]:
    found: list[float] = np.clip(np.random.default_rng(seed).normal(level, spread, count), 0, 1).tolist()
    return found


def record(
    path: Path,
    ratios: Sequence[float],
    gpus: Sequence[Opened] = (opened(),),
    regions: dict[str, tuple[float, float]] | None = None,
    mhz: float = float("nan"),
    reasons: int | None = None,
    period_ns: int = MS,
) -> Path:
    """Every GPU at these ratios of the tensor pipe's peak; regions from and to seconds."""
    with writer(path, gpus) as out:
        for name, (begin, end) in (regions or {}).items():
            region(out, name, EPOCH + int(begin * SECOND), EPOCH + int(end * SECOND))
        for k in range(len(gpus)):
            out.set_readings(k, mhz, float("nan"), reasons)
            out.add(k, busy(EPOCH, ratios, period_ns))
    return path


def level(folder: Path, level: float, seed: int, **settings: Any) -> Path:
    return record(folder / f"{level:g}-{seed}.cufall", noisy(level, seed), **settings)


def findings(run: Callable[..., Outcome], *words: str | Path) -> list[dict[str, Any]]:
    _, out, _ = run(*words, "--json")
    found: list[dict[str, Any]] = json.loads(out)["findings"]
    return found


# What it finds


def test_a_change_is_found_with_its_size_and_ends_0_without_a_limit(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    code, out, error = run(level(tmp_path, 0.5, 1), "--new", level(tmp_path, 0.45, 2))
    head, row, _, made = out.splitlines()
    assert head.split() == ["GPU", "WHERE", "WHAT", "BASE", "NEW", "CHANGE", "95%", "INTERVAL", "VERDICT"]
    assert row.startswith("g0   all time  tensor.mean  4") and row.endswith("lower")
    assert made.startswith("1 against 1 run: within-run noise only")
    assert "its clocks, which may differ" in error
    assert code == 0


def test_the_interval_holds_the_true_change(run: Callable[..., Outcome], tmp_path: Path) -> None:
    (found,) = findings(run, level(tmp_path, 0.5, 1), "--new", level(tmp_path, 0.45, 2))
    assert found["low"] < -0.1 < found["high"] and found["high"] - found["low"] < 0.03
    assert (found["verdict"], found["unit"], found["statistic"]) == ("lower", "relative", "mean")


def test_a_recording_against_itself_has_not_changed(run: Callable[..., Outcome], tmp_path: Path) -> None:
    one = level(tmp_path, 0.5, 1)
    (found,) = findings(run, one, "--new", one)
    assert found["change"] == 0 and found["verdict"] == "no change shown"


def test_three_runs_a_side_tell_how_runs_differ(run: Callable[..., Outcome], tmp_path: Path) -> None:
    base = [level(tmp_path, 0.5 + off, k) for k, off in enumerate((-0.02, 0.0, 0.02))]
    new = [level(tmp_path, 0.51 + off, 10 + k) for k, off in enumerate((-0.02, 0.0, 0.02))]
    (between,) = findings(run, *base, "--new", *new)
    assert between["verdict"] == "no change shown" and between["high"] - between["low"] > 0.1
    (within,) = findings(run, base[1], "--new", new[1])
    assert within["verdict"] == "higher"  # what a single run a side would have shown
    assert "3 runs against 3: intervals by how runs differ" in run(*base, "--new", *new)[1]


def test_a_small_change_counts_as_shown_only_where_runs_tell(run: Callable[..., Outcome], tmp_path: Path) -> None:
    base, new = (record(tmp_path / f"{at}.cufall", noisy(at, 1, spread=0.001)) for at in (0.5, 0.503))
    assert findings(run, base, "--new", new)[0]["verdict"] == "no change shown"
    assert findings(run, base, "--new", new, "--min-effect", "0.1%")[0]["verdict"] == "higher"
    threes = [
        [record(tmp_path / f"{at}-{k}.cufall", noisy(at, k, spread=0.001)) for k in range(3)] for at in (0.5, 0.503)
    ]
    assert findings(run, *threes[0], "--new", *threes[1])[0]["verdict"] == "higher"


def test_regions_are_compared_each(run: Callable[..., Outcome], tmp_path: Path) -> None:
    regions = {"prefill": (0.0, 1.0), "decode": (1.0, 2.0)}
    base = record(tmp_path / "a.cufall", noisy(0.5, 1, 1000) + noisy(0.1, 2, 1000), regions=regions)
    new = record(tmp_path / "b.cufall", noisy(0.5, 3, 1000) + noisy(0.2, 4, 1000), regions={**regions, "more": (0, 1)})
    found = {f["region"]: f["verdict"] for f in findings(run, base, "--new", new)}
    assert found == {None: "inconclusive", "prefill": "no change shown", "decode": "higher"}
    code, out, error = run(base, "--new", new)
    assert "region more is not in all recordings" in error
    assert code == 0 and re.search(r"inconclusive \(\d effective samples, 20 needed\)", out)  # two levels in all


def test_the_region_of_a_command_is_the_whole_run(run: Callable[..., Outcome], tmp_path: Path) -> None:
    paths = [
        record(
            tmp_path / f"{k}.cufall", [0.0] * idle + [0.5] * 1000, regions={"command": (idle / 1000, idle / 1000 + 1)}
        )
        for k, idle in enumerate((100, 900))
    ]
    whole, command = findings(run, paths[0], "--new", paths[1])
    assert (whole["of"], whole["base"], whole["new"]) == ("all time of command", pytest.approx(0.5), pytest.approx(0.5))
    assert command["region"] == "command"


def test_a_sample_on_an_edge_counts_by_its_share(run: Callable[..., Outcome], tmp_path: Path) -> None:
    # 100 ms samples: half of one at 0.2, then two whole at 0.8
    one = record(tmp_path / "a.cufall", [0.2, 0.8, 0.8, 0.0], regions={"r": (0.05, 0.3)}, period_ns=100 * MS)
    found = {f["region"]: f["base"] for f in findings(run, one, "--new", one, "--force")}
    assert found["r"] == pytest.approx((0.5 * 0.2 + 2 * 0.8) / 2.5)


def with_activity(path: Path, ratios: Sequence[float], active: Sequence[float]) -> Path:
    with writer(path, [opened(metrics=WITH_GR)]) as out:
        samples = busy(EPOCH, ratios)
        values = np.column_stack([samples.values[:, :2], np.array(active) * MS, np.full(len(active), float(MS))])
        out.add(0, replace(samples, values=values))
    return path


def test_time_in_which_the_gpu_was_idle_is_left_out(run: Callable[..., Outcome], tmp_path: Path) -> None:
    paths = [
        with_activity(tmp_path / f"{idle}.cufall", [0.0] * idle + [0.4] * 1000, [0.005] * idle + [0.9] * 1000)
        for idle in (200, 2000)
    ]
    tensor, gr = findings(run, paths[0], "--new", paths[1])
    assert (tensor["of"], tensor["base"], tensor["new"]) == ("active time", pytest.approx(0.4), pytest.approx(0.4))
    assert gr["base"] == pytest.approx(0.9)


def test_from_nothing_the_change_is_in_points(run: Callable[..., Outcome], tmp_path: Path) -> None:
    base, new = record(tmp_path / "a.cufall", [0.0] * 1000), level(tmp_path, 0.4, 1)
    (found,) = findings(run, base, "--new", new)
    assert (found["unit"], found["verdict"]) == ("points", "higher")
    assert found["change"] == pytest.approx(0.4, abs=0.01)
    code, out, error = run(base, "--new", new, "--fail-if", "tensor.mean +5%")
    assert code == 4 and "inconclusive +5%" in out and "inconclusive: tensor.mean +5% on g0: --" in error


# Limits


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("tensor.mean -5%", 3),
        ("tensor.mean -15%", 0),
        ("tensor.mean +5%", 0),
        ("tensor.mean -10%", 4),
        ("tensor.mean -3pp", 3),
        ("tensor.p50 -5%", 3),
        ("tensor.p95 -20pp", 0),
        ("tensor.idle_share +1pp", 0),
        ("tensor.mean[nowhere] -5%", 4),
    ],
)
def test_what_a_limit_ends_with(limit: str, code: int, run: Callable[..., Outcome], tmp_path: Path) -> None:
    ended = run(level(tmp_path, 0.5, 1), "--new", level(tmp_path, 0.45, 2), "--fail-if", limit)
    assert ended[0] == code, ended
    if code:
        assert f"{limit} on g0" in ended[2].splitlines()[-1]


def test_what_is_inconclusive_weighs_more_than_what_is_missed(run: Callable[..., Outcome], tmp_path: Path) -> None:
    limits = ("--fail-if", "tensor.mean -5%", "--fail-if", "tensor.mean -10%")
    code, out, _ = run(level(tmp_path, 0.5, 1), "--new", level(tmp_path, 0.45, 2), *limits)
    assert code == 4 and "lower; beyond -5%" in out and "lower; inconclusive -10%" in out


def test_a_change_below_the_least_effect_is_beyond_no_limit(run: Callable[..., Outcome], tmp_path: Path) -> None:
    base, new = (record(tmp_path / f"{at}.cufall", noisy(at, 1, spread=0.001)) for at in (0.5, 0.497))
    assert run(base, "--new", new, "--fail-if", "tensor.mean -0.2%")[0] == 4
    assert run(base, "--new", new, "--fail-if", "tensor.mean -0.2%", "--min-effect", "0.1%")[0] == 3


def test_a_limit_is_for_every_gpu(run: Callable[..., Outcome], tmp_path: Path) -> None:
    gpus = [opened(0), opened(1)]
    base, new = (level(tmp_path, at, seed, gpus=gpus) for at, seed in ((0.5, 1), (0.4, 2)))
    code, _, error = run(base, "--new", new, "--fail-if", "tensor.mean -5%")
    assert code == 3 and "on g0:" in error and "on g1:" in error


def test_a_metric_that_the_counters_can_give_need_not_have_been_shown(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    only_gr = MetricSet(WITH_GR.counters, (WITH_GR.metrics[1],))
    gpus = [replace(opened(metrics=only_gr), facts={"peaks": {TENSOR: 4.0}})]
    path = tmp_path / "a.cufall"
    with writer(path, gpus) as out:
        samples = busy(EPOCH, [0.5] * 1000)
        out.add(0, replace(samples, values=np.column_stack([samples.values[:, :2], np.full((1000, 2), float(MS))])))
    found = findings(run, path, "--new", path, "--fail-if", f"{TENSOR}.mean -5%")
    assert [f["base"] for f in found if f["limit"]] == [pytest.approx(0.5)]
    code, _, error = run(path, "--new", path, "--fail-if", "dram.mean -5%")
    assert code == 2 and f"{path}: dram is not in the recording" in error


def test_points_are_of_shares_alone(run: Callable[..., Outcome], tmp_path: Path) -> None:
    plain = MetricSet(counters().counters, (metric(label="pair", peak=1.0, bounded=False, plain=True),))
    one = level(tmp_path, 0.5, 1, gpus=[opened(metrics=plain)])
    code, out, _ = run(one, "--new", one, "--fail-if", "pair.mean -5%")
    assert code == 0 and "  2 " not in out and "  1.99" in out  # 4 cycles of peak, half of them
    code, _, error = run(one, "--new", one, "--fail-if", "pair.mean -5pp")
    assert code == 2 and "pair is a plain quotient, no share" in error


# What it refuses


def unlike(tmp_path: Path) -> dict[str, tuple[Path, Path, str]]:
    other_gpu = replace(opened(), device=replace(opened().device, name="Another GPU"))
    other_peak = opened(metrics=MetricSet(counters().counters, (metric(peak=2.0),)))
    ratios = noisy(0.4, 1)
    plain = record(tmp_path / "plain.cufall", ratios, mhz=1980, reasons=0)

    def new(name: str, **settings: Any) -> Path:
        return record(tmp_path / f"{name}.cufall", ratios, **{"mhz": 1980, "reasons": 0, **settings})

    formulas = f"tensor is {TENSOR}/(4*{SM_ELAPSED}) and {TENSOR}/(2*{SM_ELAPSED})"
    held = "clocks were held back 0 % and 100 % of the time (power cap)"
    return {
        "gpu": (plain, new("gpu", gpus=[other_gpu]), "g0: the GPU is Made-up GPU and Another GPU"),
        "formula": (plain, new("formula", gpus=[other_peak]), f"g0: {formulas}"),
        "clocks": (plain, new("clocks", mhz=1900), "g0: the SM clock is 1980 and 1900 MHz"),
        "throttled": (plain, new("throttled", reasons=5), f"g0: {held}"),
        "count": (plain, new("count", gpus=[opened(0), opened(1)]), "g1 is not in all recordings"),
        "command": (plain, new("command", regions={"command": (0, 1)}), "only some recordings have the region command"),
        "nothing": (plain, new("nothing", gpus=[opened(0, peaks={})], period_ns=0), "g0 has no samples in"),
    }


@pytest.mark.parametrize("which", ["gpu", "formula", "clocks", "throttled", "count", "command", "nothing"])
def test_what_is_unlike_is_named_and_refused_unless_forced(
    which: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    base, new, why = unlike(tmp_path)[which]
    code, out, error = run(base, "--new", new)
    assert (code, out) == (4, "")
    assert error.startswith("cufall: not comparable: ") and why in error and "--force" in error
    code, out, error = run(base, "--new", new, "--force")
    assert f"cufall: compared all the same: {why}" in error and out
    assert code == (4 if which == "nothing" else 0)


def test_clocks_within_2_percent_and_an_idle_gpus_are_alike(run: Callable[..., Outcome], tmp_path: Path) -> None:
    base = level(tmp_path, 0.4, 1, mhz=1980, reasons=0)
    assert run(base, "--new", level(tmp_path, 0.4, 2, mhz=1950, reasons=1))[0] == 0


def test_the_length_of_samples_matters_to_percentiles_alone(run: Callable[..., Outcome], tmp_path: Path) -> None:
    base = level(tmp_path, 0.4, 1)
    new = level(tmp_path, 0.4, 2, period_ns=2 * MS)
    assert run(base, "--new", new, "--fail-if", "tensor.mean -5%")[0] == 0
    code, _, error = run(base, "--new", new, "--fail-if", "tensor.p50 -5%")
    assert code == 4 and "g0: samples are 1 and 2 ms long" in error


def test_too_few_samples_are_refused_unless_forced(run: Callable[..., Outcome], tmp_path: Path) -> None:
    short = record(tmp_path / "short.cufall", noisy(0.4, 1, 15))
    code, out, error = run(short, "--new", short)
    assert code == 4 and "inconclusive (15 effective samples, 20 needed)" in out
    assert "too little was measured: tensor.mean on g0: 15 effective samples, 20 needed" in error
    assert run(short, "--new", short, "--force")[0] == 0


def test_samples_that_hang_together_are_few(run: Callable[..., Outcome], tmp_path: Path) -> None:
    swings = record(tmp_path / "swings.cufall", [0.2] * 700 + [0.8] * 900 + [0.2] * 400)
    code, out, _ = run(swings, "--new", swings)
    assert code == 4 and "effective samples, 20 needed" in out


def test_a_short_region_that_nobody_asked_for_is_no_reason_to_refuse(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    one = level(tmp_path, 0.4, 1, regions={"short": (0, 0.01)})
    code, out, _ = run(one, "--new", one)
    assert code == 0 and "[short]" in out and "10 effective samples" in out
    assert run(one, "--new", one, "--fail-if", "tensor.mean[short] -5%")[0] == 4


# As a command


def test_the_new_side_takes_all_words_up_to_the_next_option(run: Callable[..., Outcome], tmp_path: Path) -> None:
    a, b, c = (level(tmp_path, 0.5, k) for k in range(3))
    for words in ((a, "--new", b, c), (a, f"--new={b}", c), ("--new", b, c, "--", a), (a, "--new", b, "--new", c)):
        _, out, _ = run("--json", *words)
        told = json.loads(out)
        assert (told["base"], told["new"]) == ([str(a)], [str(b), str(c)])


def test_usage(run: Callable[..., Outcome], tmp_path: Path) -> None:
    one = level(tmp_path, 0.5, 1)
    assert run(one)[0] == 2
    assert run("--new", one)[0] == 2
    assert run(one, "--new")[0] == 2
    assert run(one, "--new", one, "--fail-if", "tensor.mean 5%")[0] == 2
    assert run(one, "--new", tmp_path / "none.cufall")[0] == 1
    assert run(one, "--new", tmp_path)[0] == 1


def test_one_recording_given_twice_is_no_second_run(run: Callable[..., Outcome], tmp_path: Path) -> None:
    """Copies do not differ: an interval of nothing would look like certainty."""
    base, new, third = level(tmp_path, 0.5, 1), level(tmp_path, 0.52, 2), level(tmp_path, 0.52, 3)
    copy = tmp_path / "copy.cufall"
    copy.write_bytes(new.read_bytes())
    for again in (new, copy, f"{tmp_path}/../{tmp_path.name}/{new.name}"):
        code, out, said = run(base, "--new", new, third, again, "--force")
        assert (code, out) == (2, "")
        assert said == f"cufall: {new} and {again} are one recording; how runs differ is told by runs\n"
    assert run(base, "--new", base)[0] == 0


def test_the_same_recordings_give_the_same_document(run: Callable[..., Outcome], tmp_path: Path) -> None:
    words = (level(tmp_path, 0.5, 1), "--new", level(tmp_path, 0.49, 2), "--json", "--fail-if", "tensor.p95 -5%")
    first = run(*words)
    assert first == run(*words)
    told = json.loads(first[1])
    assert (told["schema"], told["noise"], told["confidence"]) == (1, "within runs only", 0.95)


def test_a_recording_that_was_cut_is_compared_by_what_is_left(run: Callable[..., Outcome], tmp_path: Path) -> None:
    one = level(tmp_path, 0.5, 1)
    cut = tmp_path / "cut.cufall"
    cut.write_bytes(one.read_bytes()[:-4])
    code, _, error = run(one, "--new", cut)
    assert code == 0 and f"{cut} is not whole" in error


def test_as_a_shell_runs_it_with_limits_from_the_environment(tmp_path: Path) -> None:
    limits = "tensor.mean -5%;tensor.mean +5%"
    words = ("compare", str(level(tmp_path, 0.5, 1)), "--new", str(level(tmp_path, 0.4, 2)))
    ended = cufall(*words, CUFALL_FAIL_IF=limits)
    assert ended.returncode == 3 and "lower; beyond -5%" in ended.stdout and "lower; within +5%" in ended.stdout
    assert ended.stderr.splitlines()[-1].startswith("cufall: changed by more than the limit: tensor.mean -5% on g0: -")
