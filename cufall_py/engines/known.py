"""The engines that cufall knows, newest versions first: names, labels and when each metric moves.

Read in the sources of vLLM 0.33.0 and SGLang 0.5.23, in TensorRT-LLM's and Triton's, and in the documentation of the
others. Every name is optional: engines rename, hide and drop them. Where nobody knows when a metric moves it says
`interval` or `finish`, from which no phase is told.
"""

from __future__ import annotations

from .table import Engine, Metric

_VLLM = {
    "running": (Metric("vllm:num_requests_running", "step"),),
    "waiting": (Metric("vllm:num_requests_waiting", "step"),),
    "prompt_tokens": (Metric("vllm:prompt_tokens_total", "step"),),
    "prefill_tokens": (Metric("vllm:prompt_tokens_by_source_total", "step", where=(("source", ("local_compute",)),)),),
    "generation_tokens": (Metric("vllm:generation_tokens_total", "step"),),
    "cache_usage": (Metric("vllm:kv_cache_usage_perc", "step"),),
    "ttft_s": (Metric("vllm:time_to_first_token_seconds", "step"),),
    "itl_s": (Metric("vllm:inter_token_latency_seconds", "step"),),
    "tpot_s": (Metric("vllm:request_time_per_output_token_seconds", "finish"),),
    "drafted_tokens": (Metric("vllm:spec_decode_num_draft_tokens_total", "step"),),
    "accepted_tokens": (Metric("vllm:spec_decode_num_accepted_tokens_total", "step"),),
    "flops_per_gpu": (Metric("vllm:estimated_flops_per_gpu_total", "step"),),
    "read_bytes_per_gpu": (Metric("vllm:estimated_read_bytes_per_gpu_total", "step"),),
    "write_bytes_per_gpu": (Metric("vllm:estimated_write_bytes_per_gpu_total", "step"),),
}
VLLM = Engine(
    name="vLLM",
    versions="0.13 and newer",
    fields=_VLLM,
    port=8000,
    switch="always there, but for --disable-log-stats; FLOPs and bytes with --enable-mfu-metrics",
    prefixed=True,
    counts_prompts_whole=True,
)
VLLM_BEFORE = Engine(
    name="vLLM",
    versions="before 0.13",
    fields={
        **{name: metrics for name, metrics in _VLLM.items() if name not in ("prefill_tokens", "tpot_s")},
        "cache_usage": (Metric("vllm:gpu_cache_usage_perc", "step"),),
        "itl_s": (Metric("vllm:time_per_output_token_seconds", "step"),),
        "prompt_tokens_per_s": (Metric("vllm:avg_prompt_throughput_toks_per_s", "interval"),),
        "generation_tokens_per_s": (Metric("vllm:avg_generation_throughput_toks_per_s", "interval"),),
    },
    port=8000,
    switch="always there, but for --disable-log-stats",
    prefixed=True,
    counts_prompts_whole=True,
)
_MODE = "sglang:realtime_tokens_total"
SGLANG = Engine(
    name="SGLang",
    versions="0.5 and newer",
    fields={
        "running": (Metric("sglang:num_running_reqs", "interval"),),
        "waiting": (Metric("sglang:num_queue_reqs", "interval"),),
        "prompt_tokens": (
            Metric(_MODE, "step", where=(("mode", ("prefill_compute", "prefill_cache")),)),
            Metric("sglang:prompt_tokens_total", "finish"),
        ),
        "prefill_tokens": (Metric(_MODE, "step", where=(("mode", ("prefill_compute",)),)),),
        "generation_tokens": (
            Metric(_MODE, "step", where=(("mode", ("decode",)),)),
            Metric("sglang:generation_tokens_total", "finish"),
        ),
        "generation_tokens_per_s": (Metric("sglang:gen_throughput", "interval"),),
        "cache_usage": (Metric("sglang:token_usage", "interval"),),
        "ttft_s": (Metric("sglang:time_to_first_token_seconds", "step"),),
        "itl_s": (Metric("sglang:inter_token_latency_seconds", "step"),),
        "tpot_s": (
            Metric("sglang:request_time_per_output_token_seconds", "finish"),
            Metric("sglang:time_per_output_token_seconds", "finish"),
        ),
        "acceptance": (Metric("sglang:spec_accept_rate", "interval"),),
        "flops_per_gpu": (Metric("sglang:estimated_flops_per_gpu_total", "interval"),),
        "read_bytes_per_gpu": (Metric("sglang:estimated_read_bytes_per_gpu_total", "interval"),),
        "write_bytes_per_gpu": (Metric("sglang:estimated_write_bytes_per_gpu_total", "interval"),),
    },
    port=30000,
    switch="--enable-metrics; FLOPs and bytes with --enable-mfu-metrics",
    copies=("pp_rank", "tp_rank", "moe_ep_rank"),
    totals=("priority",),
    role="engine_type",
    prefixed=True,
)
TENSORRT_LLM = Engine(
    name="TensorRT-LLM",
    versions="1.1 and newer",
    fields={
        "running": (Metric("trtllm_num_requests_running", "interval"),),
        "waiting": (Metric("trtllm_num_requests_waiting", "interval"),),
        "prompt_tokens": (Metric("trtllm_prompt_tokens_total", "finish"),),
        "generation_tokens": (Metric("trtllm_generation_tokens_total", "finish"),),
        "cache_usage": (Metric("trtllm_kv_cache_utilization", "interval"),),
        "ttft_s": (Metric("trtllm_time_to_first_token_seconds", "finish"),),
        "tpot_s": (Metric("trtllm_time_per_output_token_seconds", "finish"),),
        "drafted_tokens": (
            Metric("trtllm_spec_decode_num_draft_tokens_total", "finish"),
            Metric("trtllm_spec_decode_drafted_tokens_total", "finish"),
        ),
        "accepted_tokens": (
            Metric("trtllm_spec_decode_num_accepted_tokens_total", "finish"),
            Metric("trtllm_spec_decode_accepted_tokens_total", "finish"),
        ),
    },
    port=8000,
    switch="return_perf_metrics: true (and enable_iter_perf_stats: true) in its --extra_llm_api_options",
    path="/prometheus/metrics",
)
_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
TRITON = Engine(
    name="Triton",
    versions="with the TensorRT-LLM backend",
    fields={
        "running": (Metric(_REQUESTS, "interval", where=(("request_type", ("scheduled",)),)),),
        "waiting": (
            Metric(_REQUESTS, "interval", where=(("request_type", ("waiting",)),)),
            Metric("nv_inference_pending_request_count", "step"),
        ),
        "cache_usage": (
            Metric(
                _BLOCKS,
                "interval",
                where=(("kv_cache_block_type", ("used",)),),
                over=(("kv_cache_block_type", ("max",)),),
            ),
        ),
    },
    port=8002,
    switch="--allow-metrics=true; it counts no tokens",
)
TGI = Engine(
    name="TGI",
    versions="all",
    fields={
        "running": (Metric("tgi_batch_current_size", "step"),),
        "waiting": (Metric("tgi_queue_size", "step"),),
        "prompt_tokens": (Metric("tgi_request_input_length_sum", "finish"),),
        "generation_tokens": (Metric("tgi_request_generated_tokens_sum", "finish"),),
        "tpot_s": (Metric("tgi_request_mean_time_per_token_duration", "finish"),),
    },
    port=80,
    switch="always there",
)
LLAMA_CPP = Engine(
    name="llama.cpp",
    versions="all",
    fields={
        "running": (Metric("llamacpp:requests_processing", "step"),),
        "waiting": (Metric("llamacpp:requests_deferred", "step"),),
        "prompt_tokens": (Metric("llamacpp:prompt_tokens_total", "interval"),),
        "generation_tokens": (Metric("llamacpp:tokens_predicted_total", "finish"),),
        "cache_usage": (Metric("llamacpp:kv_cache_usage_ratio", "step"),),
        "drafted_tokens": (Metric("llamacpp:spec_decode_num_draft_tokens_total", "finish"),),
        "accepted_tokens": (Metric("llamacpp:spec_decode_num_accepted_tokens_total", "finish"),),
    },
    port=8080,
    switch="--metrics",
    prefixed=True,
)
DYNAMO = Engine(
    name="Dynamo",
    versions="its frontend",
    fields={
        "running": (Metric("dynamo_frontend_inflight_requests", "step"),),
        "waiting": (Metric("dynamo_frontend_queued_requests", "step"),),
        "prompt_tokens": (Metric("dynamo_frontend_input_sequence_tokens_sum", "finish"),),
        "generation_tokens": (
            Metric("dynamo_frontend_output_tokens_total", "interval"),
            Metric("dynamo_frontend_output_sequence_tokens_sum", "finish"),
        ),
        "cache_usage": (Metric("dynamo_component_gpu_cache_usage_percent", "interval"),),
        "ttft_s": (Metric("dynamo_frontend_time_to_first_token_seconds", "step"),),
        "itl_s": (Metric("dynamo_frontend_inter_token_latency_seconds", "step"),),
    },
    port=8000,
    switch="always there; a worker's page (DYN_SYSTEM_PORT) has its engine's own metrics as well",
)
ENGINES = (VLLM, VLLM_BEFORE, SGLANG, TENSORRT_LLM, TRITON, TGI, LLAMA_CPP, DYNAMO)
"""A page is read by the table that finds the most in it; the earlier one where two find as much."""
PATHS = tuple(dict.fromkeys(engine.path for engine in ENGINES))
"""Where a page of metrics may be, the likeliest first."""
