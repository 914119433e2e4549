"""How busy the tensor pipe could be: against arithmetic, published sizes of models and data sheets."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cufall_py import cli
from cufall_py.analysis.ceiling import (
    MEMORY,
    NOTHING,
    TENSOR,
    Ceiling,
    Serving,
    ceiling,
    gap,
    of_times,
    work,
)
from cufall_py.analysis.models import Experts, Model, kept_in, model_from, plain_model
from cufall_py.metrics import MetricSet
from cufall_py.peaks import TABLE, peaks_of
from cufall_py.resolve import Wanted
from cufall_py.samples import Samples
from cufall_py.sources import Opened
from cufall_py.sources.gpm import gpm_set
from tests.helpers import DATA, EPOCH, SM_ELAPSED, TENSOR as TENSOR_COUNTER, joined, metric
from tests.recordings import opened, region, writer

pytestmark = pytest.mark.usefixtures("signals_as_before")

H200 = peaks_of("NVIDIA H200")
assert H200


def config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "models" / f"{name}.json").read_text())
    return found


def model(name: str, **changes: Any) -> Model:
    return model_from({**config(name), **changes})


# -- data sheets

TFLOPS = {
    "NVIDIA A100-SXM4-80GB": {"bf16": 312, "int8": 624},
    "NVIDIA H100 80GB HBM3": {"bf16": 989.4, "fp8": 1978.9, "int8": 1978.9},
    "NVIDIA H100 PCIe": {"bf16": 756, "fp8": 1513},
    "NVIDIA H200": {"bf16": 989.5, "fp8": 1979},
    "NVIDIA B200": {"bf16": 2250, "fp8": 4500, "fp4": 9000},
    "NVIDIA L40S": {"bf16": 733 / 2, "fp8": 733},
    "NVIDIA GeForce RTX 4090": {"bf16": 165.2, "fp8": 330.3, "int8": 660.6},
    "NVIDIA GeForce RTX 5090": {"bf16": 209.5, "fp4": 1676},
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": {"bf16": 503.8, "fp8": 1007.6, "fp4": 2015.2},
}


@pytest.mark.parametrize("name", TFLOPS)
def test_the_table_comes_to_the_data_sheets_rates(name: str) -> None:
    peaks = peaks_of(name)
    assert peaks
    for kind, tera in TFLOPS[name].items():
        assert peaks.flop[kind] * peaks.sms * peaks.mhz * 1e6 == pytest.approx(tera * 1e12, rel=0.005)


def test_a_cycle_of_the_h200_is_what_nsight_compute_counted() -> None:
    """2 N^3 FLOP of a product of N = 2048 over the tensor cycles of one launch (docs/accuracy.md), 4 of which make a
    cycle of an SM."""
    assert H200.flop_per_cycle("bf16") == 2 * 2048**3 / 16777216 * 4
    assert H200.flop_per_cycle("fp8") == 2 * 2048**3 / 8388608 * 4


def test_a_chip_that_is_not_known_is_absent() -> None:
    assert peaks_of("NVIDIA H20") is None
    names = [name for product in json.loads(TABLE.read_text())["products"] for name in product["names"]]
    assert len(names) == len(set(names))


# -- models

PUBLISHED = {  # weights of all layers, and those of one token, as their makers state them
    "llama-3.1-8b": (8.03e9, None),
    "qwen3-8b": (8.19e9, None),
    "qwen3-30b-a3b": (30.5e9, 3.3e9 - 0.31e9),  # the makers count the embedding too
    "mixtral-8x7b": (46.7e9, 12.9e9 - 0.13e9),
    "deepseek-v3": (671e9, 36.6e9),
    "deepseek-v2-lite": (15.7e9, 2.4e9),
    "gpt-oss-20b": (20.91e9, 3.61e9),
    "gpt-oss-120b": (116.83e9, 5.13e9),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_are_those_that_were_published(name: str) -> None:
    found, (weights, active) = model(name), PUBLISHED[name]
    assert found.weights == pytest.approx(weights, rel=0.002)
    if active:
        assert found.active == pytest.approx(active, rel=0.025)


def test_cache_of_a_token() -> None:
    """DeepSeek-V3 keeps 70.272 KB a token (Insights into DeepSeek-V3, table 1); a Llama of 8 KV heads of 128 keeps
    2 x 32 x 8 x 128 elements."""
    assert model("deepseek-v3").cached * 2 == 70272
    assert model("llama-3.1-8b").cached == 2 * 32 * 8 * 128


@settings(deadline=None)
@given(st.integers(1, 64), st.data())
def test_expected_experts(count: int, data: st.DataObject) -> None:
    active = data.draw(st.integers(1, count))
    experts = Experts(count, active, 1)
    assert experts.expected(1) == pytest.approx(active)
    fewer, more = (experts.expected(tokens) for tokens in (3, 30))
    assert active - 1e-9 <= fewer <= more + 1e-9 <= count + 2e-9


def test_expected_experts_by_drawing_them() -> None:
    draw = random.Random(1)
    drawn = [len({e for _ in range(16) for e in draw.sample(range(128), 8)}) for _ in range(400)]
    assert Experts(128, 8, 1).expected(16) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)


# -- work and ceilings


def test_a_dense_model_at_batch_1_on_an_h200() -> None:
    """2 FLOP a weight over 989.5 TFLOP/s against 2 bytes a weight over 4.8 TB/s: half a percent, of any size."""
    for active in (1e9, 70e9):
        found = ceiling(work(plain_model(active, 2), Serving()), H200, 132, 1830)
        assert found == Ceiling(pytest.approx((2 / 989.5e12) / (2 / 4.8e12), rel=1e-3), MEMORY, 1.0)


def test_it_rises_with_the_batch_until_the_tensor_pipe_is_the_limit() -> None:
    """989.5e12 / 4.8e12 = 206 FLOP a byte: of 2-byte weights at batch 206."""
    model = plain_model(1e9, 2)
    below, above = (ceiling(work(model, Serving(batch)), H200, 132, 1830) for batch in (200, 212))
    assert (below.limit, above.limit, above.ratio) == (MEMORY, TENSOR, 1.0)
    assert below.ratio == pytest.approx(200 / 206.15, rel=1e-3)
    assert above.memory == pytest.approx(206.15 / 212, rel=1e-3)


def test_it_is_of_the_peak_at_the_clock() -> None:
    """At half of the clock the same FLOP take twice the cycles' time, and the memory does not wait longer."""
    fast, slow = (ceiling(work(plain_model(1e9, 2), Serving()), H200, 132, mhz) for mhz in (1830, 915))
    assert slow.ratio == pytest.approx(2 * fast.ratio)


def test_fp8_halves_the_bytes_and_the_cycles() -> None:
    """So that the share stays, where a chip has products of fp8; where it has none it doubles."""
    a100 = peaks_of("NVIDIA A100-SXM4-80GB")
    assert a100
    found = {
        (peaks, size): ceiling(work(plain_model(1e9, size), Serving()), chip, 108, 1410).ratio
        for peaks, chip in (("H200", H200), ("A100", a100))
        for size in (1, 2)
    }
    assert found["H200", 1] == pytest.approx(found["H200", 2])
    assert found["A100", 1] == pytest.approx(2 * found["A100", 2])


def test_decode_of_grouped_attention() -> None:
    """Of a Llama 8B: 4 FLOP for each of 32 heads x 128 and each token of context, 2 bytes x 131072 / 2 of cache."""
    llama = model("llama-3.1-8b")
    bare, full = (work(llama, Serving(4, context)) for context in (0, 1000))
    assert full.flop["bf16"] - bare.flop["bf16"] == 4 * 32 * 128 * 1000 * 32 * 4
    assert full.cache_bytes == 131072 * 1001 * 4
    assert full.weight_bytes == bare.weight_bytes == pytest.approx(2 * (8.03e9 - 128256 * 4096), rel=1e-3)


def test_prefill_of_grouped_attention() -> None:
    """A token sees itself and those before it; only the last of each prompt is sampled."""
    found = work(model("llama-3.1-8b"), Serving(2, 100, prefill=True))
    layers = 2 * (8.03e9 - 2 * 128256 * 4096) * 200
    attention, head = 4 * 32 * 128 * 5050 * 32 * 2, 2 * 128256 * 4096 * 2
    assert found.flop["bf16"] == pytest.approx(layers + attention + head, rel=1e-3)
    assert found.cache_bytes == 131072 * 200


def test_decode_of_latent_attention() -> None:
    """Each of 128 heads meets a latent of 512 + 64 and sums one of 512, in bf16 beside linear layers of fp8."""
    found = work(model("deepseek-v3"), Serving(1, 4096))
    head = 2 * 129280 * 7168
    assert found.flop["bf16"] == 2 * 128 * (512 + 64 + 512) * 4096 * 61 + head
    assert found.flop["fp8"] == pytest.approx(2 * (36.6e9 - 129280 * 7168), rel=0.01)
    assert found.cache_bytes == 70272 * 4097


def test_a_window_ends_the_context() -> None:
    """gpt-oss-20b: 12 layers see 128 tokens, 12 see all; each keeps 2 x 8 x 64 elements of 2 bytes a token."""
    found = work(model("gpt-oss-20b"), Serving(1, 10_000))
    assert found.cache_bytes == 12 * 2048 * (129 + 10_001)


def test_weights_of_four_bits() -> None:
    """gpt-oss-120b's checkpoint is 60.8 GiB, of which the embedding is 2 x 201088 x 2880 bytes."""
    every = work(model("gpt-oss-120b"), Serving(1_000_000))
    assert every.weight_bytes == pytest.approx(60.8 * 2**30 - 2 * 201088 * 2880, rel=0.005)


def test_a_group_of_gpus_splits_what_can_be_split() -> None:
    """Half of the weights and of the cache on each of 2; on 16 GPUs 8 KV heads leave each a whole one; a latent is on
    each whole."""
    llama, serving = model("llama-3.1-8b"), Serving(8, 1000)
    one, two, sixteen = (work(llama, Serving(8, 1000, gpus=gpus)) for gpus in (1, 2, 16))
    assert (two.weight_bytes, two.cache_bytes) == (one.weight_bytes / 2, one.cache_bytes / 2)
    assert two.flop["bf16"] == one.flop["bf16"] / 2
    assert sixteen.cache_bytes == one.cache_bytes / 8
    assert (
        work(model("deepseek-v3"), Serving(8, 1000, gpus=8)).cache_bytes
        == work(model("deepseek-v3"), serving).cache_bytes
    )


def test_cache_bytes_as_given() -> None:
    assert work(plain_model(37e9, 1), Serving(8, 99, kv_bytes=70e3)).cache_bytes == 8 * 100 * 70e3


@pytest.mark.parametrize(
    ("quantization", "size", "kind"),
    [
        ({"quant_method": "fp8"}, 1, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625, "fp4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.515625, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1, "bf16"),
    ],
)
def test_formats(quantization: dict[str, Any], size: float, kind: str) -> None:
    kept = model("llama-3.1-8b", quantization_config=quantization).linear
    assert (kept.bytes, kept.kind) == (size, kind)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_type": "mamba"}, "its model_type is 'mamba'; known are llama"),
        ({"model_type": None}, "its model_type is None"),
        ({"model_type": []}, "its model_type is []"),
        ({"text_config": "x"}, "it holds no JSON object"),
        ({"hidden_size": "big"}, "its hidden_size is 'big', no whole number"),
        ({"num_hidden_layers": 0}, "its num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**9}, "its num_hidden_layers is 1000000000, which no model has"),
        ({"hidden_size": 10**400}, "its hidden_size is 1000"),
        ({"quantization_config": {"quant_method": "awq", "group_size": 10**400, "bits": 4}}, "its group_size is 1000"),
        ({"quantization_config": {"quant_method": "a\nb"}}, "its quantization 'a\\nb' is not known"),
        ({"num_key_value_heads": "8"}, "its num_key_value_heads is '8', no whole number"),
        (
            {"quantization_config": {"quant_method": "awq", "group_size": "x", "bits": 4}},
            "its numbers are not of the kinds they must be",
        ),
        ({"layer_types": ["full_attention"]}, "its numbers are not of the kinds they must be"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "its quantization 'bitsandbytes' is not known"),
        ({"torch_dtype": "float32"}, "its dtype is 'float32', which no ceiling is made of"),
        ({"dtype": 5}, "its dtype is 5, which no ceiling is made of"),
        ({"quantization_config": {"quant_method": "awq"}}, "it has no group_size"),
    ],
)
def test_what_is_no_model_is_told_in_a_line(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as told:
        model("llama-3.1-8b", **changes)
    assert str(told.value).startswith(why)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*config("deepseek-v3")]), st.none() | st.integers(-2, 9) | st.text(max_size=2)))
def test_no_config_ends_in_anything_but_a_line(changes: dict[str, Any]) -> None:
    try:
        model_from({**config("deepseek-v3"), **changes})
    except ValueError as error:
        assert "\n" not in str(error)


def test_the_largest_that_can_be_asked_are_finite() -> None:
    most = dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"), 10**9)
    of = work(kept_in(model("llama-3.1-8b", **most), 1e15), Serving(10**9, 10**9, prefill=True, kv_bytes=1e15))
    assert all(math.isfinite(number) for number in (of.bytes, *of.flop.values()))


# -- gaps


def test_by_counters() -> None:
    """A fifth of the tensor pipe and half of the memory: were the memory busy all the time, two fifths."""
    assert of_times(0.2, 0.5) == Ceiling(0.4, MEMORY, 1.0)
    assert of_times(0.5, 0.2) == Ceiling(1.0, TENSOR, 0.4)
    assert of_times(0.0, 0.2).limit == NOTHING
    assert math.isnan(of_times(math.nan, 0.2).ratio)
    assert math.isnan(of_times(0.2, math.nan).ratio)


def test_what_fills_a_gap_under_the_memory() -> None:
    """Possible 8 %: the GPU is active half of the time, its memory at a quarter of its peak, and 1 % measured."""
    found = gap(0.01, 0.5, 0.25, Ceiling(0.08, MEMORY, 1.0))
    assert [share for _, share in found.parts] == pytest.approx([0.04, 0.02, 0.01])


def test_what_fills_a_gap_under_the_tensor_pipe() -> None:
    found = gap(0.3, 0.9, 0.1, Ceiling(1.0, TENSOR, 0.1))
    assert found.parts == (
        ("GPU not active", pytest.approx(0.1)),
        ("tensor pipe idle while active", pytest.approx(0.6)),
    )


def test_parts_that_cannot_be_told_apart_are_one() -> None:
    found = gap(0.01, math.nan, math.nan, Ceiling(0.08, MEMORY, 1.0))
    assert len(found.parts) == 1 and found.parts[0][0].count(", or ") == 2
    assert gap(math.nan, 0.5, 0.5, Ceiling(0.08, MEMORY, 1.0)).parts[-1][0] == "memory below its peak while active"


share = st.floats(0, 1)


@given(share, share | st.just(math.nan), share | st.just(math.nan), st.floats(1e-6, 1), st.floats(1e-6, 1))
def test_the_parts_add_up(measured: float, active: float, memory: float, tensor: float, bytes_s: float) -> None:
    of = of_times(tensor, bytes_s)
    found = gap(measured, active, memory, of)
    assert sum(share for _, share in found.parts) == pytest.approx(of.ratio - measured, abs=1e-9)


# -- the report

COUNTERS = (TENSOR_COUNTER, SM_ELAPSED, "gr__cycles_active.avg", "gr__cycles_elapsed.max", "dram__bytes_read.sum",
            "dram__bytes_write.sum", "dram__cycles_elapsed.avg")  # fmt: skip


def described(ordinal: int, name: str, counters: tuple[str, ...] = COUNTERS) -> Opened:
    """A GPU whose short names resolve from what was recorded; DRAM moves 100 bytes a cycle at most."""
    peaks = {"dram__bytes_read.sum": 100.0, "gr__cycles_active.avg": 1.0}
    made = opened(ordinal, MetricSet(counters, (metric(),)), peaks=peaks)
    return replace(made, device=replace(made.device, name=name, sm_count=132))


def shares(tensor: float, active: float, memory: float, columns: int = 7) -> Samples:
    """A second at these shares, every clock at 1 GHz."""
    row = [4e6 * tensor, 1e6, 1e6 * active, 1e6, 1e8 * memory, 0.0, 1e6][:columns]
    return joined(EPOCH, 1_000_000, [row] * 1000)


@pytest.fixture
def decode(tmp_path: Path) -> str:
    """An H200 and a GPU that nobody knows: 0.1 % of the tensor pipe, half active, memory at a quarter."""
    path = tmp_path / "decode.cufall"
    with writer(path, [described(0, "NVIDIA H200"), described(1, "Made-up GPU")]) as out:
        region(out, "decode", EPOCH, EPOCH + 1_000_000_000)
        for gpu in (0, 1):
            out.add(gpu, shares(0.001, 0.5, 0.25))
    return str(path)


def ends(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, list[str]]:
    code = cli._run(["report", *words])
    out, error = capfd.readouterr()
    return code, out, error.splitlines()


def rows(capfd: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    code, out, _ = ends(capfd, "--json", *words)
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)["recordings"][0]["ceilings"]["rows"]
    return found


def test_a_report_by_counters(decode: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = rows(capfd, decode, "--ceiling")
    assert [(row["region"], row["gpu"], row["by"]) for row in found] == [
        (region, gpu, "counters") for region in (None, "decode") for gpu in (0, 1)
    ]
    row = found[2]
    assert (row["measured"], row["ceiling"], row["limit"]) == (pytest.approx(0.001), pytest.approx(0.004), "memory")
    assert [part["share"] for part in row["parts"]] == pytest.approx([0.002, 0.001, 0.0], abs=1e-12)


def test_a_part_has_ceilings_of_the_regions_in_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.cufall"
    with writer(path, [described(0, "NVIDIA H200")]) as out:
        region(out, "first", EPOCH, EPOCH + 500_000_000)
        region(out, "second", EPOCH + 500_000_000, EPOCH + 1_000_000_000)
        out.add(0, shares(0.001, 0.5, 0.25))
    found = rows(capfd, str(path), "--ceiling", "--region", "second")
    assert [row["region"] for row in found] == [None, "second"]


def test_a_report_by_a_model(decode: str, capfd: pytest.CaptureFixture[str]) -> None:
    """1 G weights of 2 bytes at batch 1: 0.485 % at the data sheet's 1.83 GHz; at the 1 GHz of the cycles that were
    counted, a larger share of them. A quarter of 100 bytes a cycle of 1 GHz are 25 GB/s."""
    found = [row for row in rows(capfd, decode, "--active-params", "1B") if row["by"] == "model"]
    possible = 0.004851 * 1.83
    assert found[0]["ceiling"] == pytest.approx(possible, rel=1e-3)
    assert (found[0]["sm_mhz"], found[0]["clock_by"]) == (pytest.approx(1000), "counters")
    half, quarter = possible / 2, possible / 4
    assert [part["share"] for part in found[0]["parts"]] == pytest.approx([half, quarter, quarter - 0.001], rel=2e-3)
    assert (found[1]["ceiling"], found[1]["why"]) == (None, "no data sheet of Made-up GPU is known")
    assert found[0]["dram_bytes_per_s"] == pytest.approx(25e9)


def test_without_cycles_the_clock_is_nvmls_or_the_data_sheets(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Percents of GPM have no cycles."""
    percents = gpm_set(Wanted(("tensor",)))
    for mhz, clock in ((1500.0, "NVML"), (math.nan, "data sheet")):
        path = tmp_path / f"{clock}.cufall"
        gpu = replace(described(0, "NVIDIA H200"), metrics=percents, source="gpm")
        with writer(path, [gpu]) as out:
            out.set_readings(0, mhz, math.nan, None)
            out.add(0, joined(EPOCH, 100_000_000, [[0.4]] * 30))
        row = rows(capfd, str(path), "--active-params", "1B")[1]
        assert (row["clock_by"], row["sm_mhz"]) == (clock, 1500.0 if mhz > 0 else 1830)
        assert row["ceiling"] == pytest.approx(0.004851 * 1830 / row["sm_mhz"], rel=1e-3)


ONE_KIND = "a model's row is right only where the work was what --phase, --batch and --context say"


def test_a_report_as_text(decode: str, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(DATA / "models" / "llama-3.1-8b.json")
    code, out, _ = ends(capfd, decode, "--region", "decode", "--model", file, "--batch", "4", "--context", "1000")
    lines = out.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("tensor pipe: measured, ceiling"))
    assert lines[at + 1].split()[:7] == ["REGION", "GPU", "BY", "LIMIT", "MEASURED", "CEILING", "GAP"]
    model = next(line.split() for line in lines[at:] if line.startswith("decode  g0   model"))
    assert not any(line.startswith(("everything", ONE_KIND)) for line in lines)
    _, out, _ = ends(capfd, decode, "--model", file, "--batch", "4", "--context", "1000")
    assert sum(line.startswith(ONE_KIND) for line in out.splitlines()) == 1
    assert model[3:5] == ["memory", "0.10%"]
    assert code == 0 and "g1: no ceiling: no data sheet of Made-up GPU is known" in lines
    assert any("decode at batch 4, 1000 tokens of context" in line for line in lines)
    assert any(line.startswith("NVIDIA H200: NVIDIA H200 Tensor Core GPU data sheet") for line in lines)


def test_what_was_not_recorded_is_no_ceiling(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tensor.cufall"
    with writer(path, [described(0, "NVIDIA H200", COUNTERS[:2])]) as out:
        out.add(0, shares(0.001, 0.5, 0.25, columns=2))
    found = rows(capfd, str(path), "--active-params", "1B")
    assert (found[0]["ceiling"], found[0]["why"]) == (None, "dram not measured")
    assert (found[1]["measured"], len(found[1]["parts"])) == (pytest.approx(0.001), 1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--batch 4", "--batch is of a model: give --model or --active-params too"),
        ("--active-params 1B --model x", "--model and --active-params both say which model it is: give one"),
        ("--active-params 1B --phase prefill", "--phase prefill needs --context"),
        ("--ceiling --raw", "--raw: not with a ceiling, which takes shares of the peak"),
        ("--active-params 1B --full-scale 0.1", "--full-scale: not with a ceiling, which takes shares of the peak"),
        ("--active-params many", "many is no number above 1"),
        ("--active-params -3B", "-3B is no number above 1"),
        ("--active-params nan", "nan is no number above 1"),
        ("--active-params 0.3", "0.3 is no number above 1"),
        ("--active-params 1e308", "1e308 is no number above 1, to 1000T"),
        ("--active-params 1B --kv-bytes 1e308", "1e308 is no number above 0, to 1000T"),
        ("--active-params 1B --batch 1" + 400 * "0", "is not in the range 1<=x<=1000000000"),
        ("--active-params 1B --tp 1" + 400 * "0", "is not in the range 1<=x<=1000000000"),
        ("--model /nonexistent", "--model /nonexistent: No such file or directory"),
        ("--model {dir}/no.json", "no.json: it is no JSON (Expecting value, line 1)"),
        ("--model {dir}/list.json", "list.json: it holds no JSON object"),
        ("--model {dir}/bytes.json", "bytes.json: it is no text"),
        ("--model {dir}/bert.json", "bert.json: its model_type is 'bert'"),
    ],
)
def test_what_cannot_be_asked(
    words: str, why: str, decode: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no.json").write_text("model")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "bert.json").write_text('{"model_type": "bert"}')
    code, out, error = ends(capfd, decode, *words.format(dir=tmp_path).split())
    assert (code, out, len(error)) == (2, "", 1)
    assert why in error[0]
