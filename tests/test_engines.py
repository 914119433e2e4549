"""What a page of each engine says, in cufall's names; names that change, ranks, copies, what is not there."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from cufall_py.engines.known import ENGINES
from cufall_py.engines.page import NoMetrics, read
from cufall_py.engines.reading import Reading
from cufall_py.engines.table import QUANTITIES
from tests import pages
from tests.pages import Served, moment


def numbers(page: Served | str) -> dict[str, float]:
    reading = as_read(page)
    return {quantity: value.number for quantity, value in reading.values.items()}


def as_read(page: Served | str) -> Reading:
    return read(page if isinstance(page, str) else page.text, moment(0))


def names(page: Served | str) -> dict[str, str]:
    return {quantity: value.name for quantity, value in as_read(page).values.items()}


def test_vllm() -> None:
    reading = as_read(pages.vllm())
    assert (reading.engine.name, reading.engine.versions, reading.notes) == ("vLLM", "0.13 and newer", ())
    assert numbers(pages.vllm()) == {
        "running": 4,
        "waiting": 2,
        "prompt_tokens": 1000,
        "prefill_tokens": 750,
        "generation_tokens": 500,
        "cache_usage": 0.25,
        "ttft_s": 1,
        "itl_s": 2,
        "tpot_s": 1,
        "drafted_tokens": 100,
        "accepted_tokens": 60,
        "flops_per_gpu": 1e15,
        "read_bytes_per_gpu": 2e12,
        "write_bytes_per_gpu": 1e11,
    }
    assert reading.values["generation_tokens"].name == "vllm:generation_tokens_total"


def test_sglang_by_what_moves_with_each_step() -> None:
    reading = as_read(pages.sglang())
    assert (reading.engine.name, reading.roles, reading.labelled("model_name")) == ("SGLang", {"unified"}, {"m"})
    found = numbers(pages.sglang())
    assert (found["prompt_tokens"], found["prefill_tokens"], found["generation_tokens"]) == (400, 300, 2000)
    assert (found["running"], found["waiting"], found["cache_usage"], found["acceptance"]) == (16, 3, 0.5, 0.8)
    assert {q: reading.values[q].moves for q in ("running", "generation_tokens")} == {
        "running": "interval",
        "generation_tokens": "step",
    }


def test_sglang_without_its_realtime_counters_counts_when_requests_end() -> None:
    reading = as_read(pages.sglang(realtime=False))
    value = reading.values["generation_tokens"]
    assert (value.number, value.name, value.moves) == (1800, "sglang:generation_tokens_total", "finish")
    assert "prefill_tokens" not in reading.values


OTHERS = {
    "TensorRT-LLM": (pages.tensorrt_llm, {"running": 5, "waiting": 1, "cache_usage": 0.4, "generation_tokens": 800}),
    "Triton": (pages.triton, {"running": 6, "waiting": 3, "cache_usage": 0.25}),
    "TGI": (pages.tgi, {"running": 4, "waiting": 2, "prompt_tokens": 300, "generation_tokens": 200, "tpot_s": 1}),
    "llama.cpp": (pages.llama_cpp, {"running": 2, "waiting": 1, "prompt_tokens": 640, "generation_tokens": 320}),
    "Dynamo": (pages.dynamo, {"running": 7, "waiting": 1, "generation_tokens": 500, "cache_usage": 0.6, "itl_s": 1}),
}


@pytest.mark.parametrize("engine", OTHERS)
def test_the_other_tables(engine: str) -> None:
    make, expected = OTHERS[engine]
    found = numbers(make())
    assert as_read(make()).engine.name == engine
    assert {quantity: found[quantity] for quantity in expected} == expected


def test_triton_counts_no_tokens_and_says_so() -> None:
    reading = as_read(pages.triton())
    assert reading.number("generation_tokens") is None
    assert [note for note in reading.notes if "no known token counter" in note]


def test_what_a_labelled_counter_never_counted_is_0_where_its_other_labels_are_there() -> None:
    prefill_only = 'sglang:realtime_tokens_total{mode="prefill_compute",dp_rank="0"} 300\n'
    reading = as_read(prefill_only + "sglang:generation_tokens_total 7\n")
    assert (reading.number("generation_tokens"), reading.values["generation_tokens"].moves) == (0, "step")
    assert reading.number("prompt_tokens") == 300
    assert as_read("sglang:generation_tokens_total 7\n").number("generation_tokens") == 7
    assert (
        as_read('nv_trt_llm_request_metrics{request_type="max"} 9\nnv_inference_pending_request_count 1\n').number(
            "running"
        )
        is None
    )


def test_all_engines_and_quantities_are_tried_here() -> None:
    made = [pages.vllm(), pages.sglang(), *(make() for make, _ in OTHERS.values())]
    assert {as_read(page).engine.name for page in made} == {engine.name for engine in ENGINES}
    assert {q for engine in ENGINES for q in engine.fields} == set(QUANTITIES)


# Spelling (cases B05, B06, B07)

COUNTED = "vllm:generation_tokens_total 500\n"


@pytest.mark.parametrize(
    "page",
    [
        f"# TYPE vllm:generation_tokens_total counter\n{COUNTED}",
        f"# TYPE vllm:generation_tokens counter\n{COUNTED}",
        COUNTED,
        f"{COUNTED}# TYPE vllm:generation_tokens_created gauge\nvllm:generation_tokens_created 1.7e9\n",
        f"# TYPE vllm:generation_tokens counter\n{COUNTED}vllm:generation_tokens_created 1.7e9\n# EOF\n",
        "# TYPE vllm:generation_tokens counter\nvllm:generation_tokens 500\n",
        'vllm_generation_tokens_total{engine="0"} 5e2 1700000000 # {trace_id="a b"} 3 1700000000\n# EOF\n',
        'ray_vllm:generation_tokens_total{ReplicaId="r"} 500\n',
        'ray_vllm_generation_tokens_total{ReplicaId="r"} 500\n',
    ],
)
def test_one_counter_however_it_is_spelled(page: str) -> None:
    assert numbers(page) == {"generation_tokens": 500}


@pytest.mark.parametrize("make", [pages.vllm, pages.sglang, *(make for make, _ in OTHERS.values())])
def test_openmetrics_gives_the_same_as_text(make: object) -> None:
    served = make()  # type: ignore[operator]
    assert numbers(served.openmetrics) == numbers(served.text)


def test_an_old_vllm_has_its_own_table() -> None:
    old = Served()
    old.set("vllm:num_requests_running", 3, model_name="m")
    old.set("vllm:gpu_cache_usage_perc", 0.5, model_name="m")
    old.set("vllm:avg_generation_throughput_toks_per_s", 90, model_name="m")
    assert as_read(old).engine.versions == "before 0.13"
    assert numbers(old) == {"running": 3, "cache_usage": 0.5, "generation_tokens_per_s": 90}


def test_two_spellings_on_one_page_are_not_added_and_the_choice_is_told() -> None:
    both = 'sglang:num_running_reqs{tp_rank="0"} 4\nsglang_num_running_reqs{tp_rank="0"} 9\n'
    reading = as_read(both)
    assert numbers(both) == {"running": 4}
    assert "read as sglang:num_running_reqs" in reading.notes[0]
    assert "not added: sglang_num_running_reqs" in reading.notes[0]


def test_of_two_engines_the_one_that_says_more_is_read() -> None:
    reading = as_read(pages.dynamo().text + pages.vllm().text)
    assert (reading.engine.name, reading.number("generation_tokens")) == ("vLLM", 500)
    assert "dynamo_" in reading.notes[0]


def test_a_page_of_no_engine_says_what_it_has() -> None:
    with pytest.raises(NoMetrics, match="no engine's metrics; seen: process_cpu_seconds_total, python_gc_objects"):
        as_read("process_cpu_seconds_total 3\npython_gc_objects_collected_total 3\n")


def test_an_engine_without_token_counters_says_what_it_has_instead() -> None:
    reading = as_read("vllm:num_requests_running 3\nvllm:tokens_made_total 9\n")
    assert reading.number("generation_tokens") is None
    assert reading.notes == (
        "the server answers, but with no known token counter; seen: vllm:num_requests_running, vllm:tokens_made_total",
    )


# Ranks, copies, several engines (case B10)


def test_data_parallel_engines_add_up_and_their_ratios_do_not() -> None:
    four = numbers(pages.vllm(engines=4))
    assert (four["running"], four["generation_tokens"], four["itl_s"]) == (16, 2000, 8)
    assert (four["cache_usage"], four["flops_per_gpu"]) == (0.25, 1e15)


def test_several_engines_are_known_by_their_labels() -> None:
    reading = as_read(pages.vllm(engines=3))
    assert reading.labelled("engine") == {"0", "1", "2"}


def test_tensor_and_pipeline_ranks_are_copies_and_data_parallel_ranks_are_not() -> None:
    one, many = numbers(pages.sglang()), numbers(pages.sglang(tp=4, pp=2, dp=3))
    assert (many["running"], many["prefill_tokens"]) == (3 * one["running"], 3 * one["prefill_tokens"])
    assert (many["cache_usage"], many["flops_per_gpu"]) == (one["cache_usage"], one["flops_per_gpu"])


def test_the_lowest_rank_speaks_for_its_copies() -> None:
    lines = ['sglang:num_running_reqs{tp_rank="10"} 1', 'sglang:num_running_reqs{tp_rank="2"} 5']
    assert numbers("\n".join([*lines, ""])) == {"running": 5}


def test_a_total_is_not_added_to_its_parts() -> None:
    parts = "".join(f'sglang:num_running_reqs{{priority="{p}"}} {n}\n' for p, n in (("", 5), ("0", 3), ("1", 2)))
    assert numbers(parts) == {"running": 5}
    assert numbers(parts.replace('priority=""', 'priority="2"')) == {"running": 10}


# What is not there


def test_what_is_no_number_is_absent() -> None:
    page = (
        'vllm:kv_cache_usage_perc NaN\nvllm:generation_tokens_total{engine="0"} +Inf\n'
        "vllm:num_requests_running 0\nvllm:num_requests_waiting -1\n"
    )
    assert numbers(page) == {"running": 0}


@pytest.mark.parametrize(
    "second",
    ['{engine="1"} NaN', '{engine="1"} +Inf', '{engine="1"} -1', '{engine="1"} 1e300', '{engine="0"} 5'],
)
def test_a_sum_of_which_a_part_is_not_known_is_not_known(second: str) -> None:
    known, doubted = "vllm:generation_tokens_total", "vllm:num_requests_running"
    assert numbers(f'{known} 9\n{doubted}{{engine="0"}} 3\n{doubted}{second}\n') == {"generation_tokens": 9}


def test_a_share_of_more_than_all_is_not_known() -> None:
    assert numbers("vllm:num_requests_running 3\nvllm:kv_cache_usage_perc 40\n") == {"running": 3}
    assert numbers("vllm:kv_cache_usage_perc 1\n") == {"cache_usage": 1}


def test_a_series_that_is_told_twice_with_the_same_number_counts_once() -> None:
    assert numbers("vllm:num_requests_running 3\n" * 2) == {"running": 3}


def test_of_copies_one_that_knows_speaks() -> None:
    assert numbers('sglang:num_running_reqs{tp_rank="0"} NaN\nsglang:num_running_reqs{tp_rank="1"} 5\n') == {
        "running": 5
    }


def test_a_line_that_is_cut_is_an_error_and_no_number() -> None:
    with pytest.raises(ValueError):
        as_read('vllm:generation_tokens_total{engine="0\n')


def test_a_histogram_needs_sum_and_count_and_does_without_buckets() -> None:
    name = "vllm:inter_token_latency_seconds"
    assert numbers(f"vllm:num_requests_running 1\n{name}_sum 3\n") == {"running": 1}
    value = as_read(f"{name}_sum 3\n{name}_count 6\n").values["itl_s"]
    assert (value.series, value.bounds) == ({(): (3, 6)}, ())


def test_a_label_may_hold_anything() -> None:
    reading = as_read('vllm:num_requests_running{model_name="a \\"b\\", {c} # d=1\u2028e"} 3\n')
    assert (reading.number("running"), reading.labelled("model_name")) == (3, {'a "b", {c} # d=1\u2028e'})


RANKS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 2), st.integers(0, 3), st.integers(0, 1000)),
    min_size=1,
    unique_by=lambda rank: rank[:3],
)


@given(RANKS)
def test_any_ranks_come_to_the_sum_of_the_lowest_copy_of_each_engine(ranks: list[tuple[int, int, int, int]]) -> None:
    lines = [
        f'sglang:num_running_reqs{{tp_rank="{tp}",pp_rank="{pp}",dp_rank="{dp}"}} {n}\n' for tp, pp, dp, n in ranks
    ]
    lowest = {dp: min((pp, tp, n) for tp, pp, other, n in ranks if other == dp)[2] for _, _, dp, _ in ranks}
    assert numbers("".join(lines)) == {"running": sum(lowest.values())}


CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from('{}",=\\ \n\t#_:0aeE+-.\x00\u2028é')), max_size=12)


@given(CHANGES)
def test_whatever_a_page_holds_it_is_read_or_refused(changes: list[tuple[int, str]]) -> None:
    text = list(pages.sglang().text)
    for at, letter in changes:
        text[at % len(text)] = letter
    try:
        assert all(value >= 0 for value in numbers("".join(text)).values())
    except (NoMetrics, ValueError):
        pass  # what a scraper tells of
