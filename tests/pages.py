"""Pages of metrics as inference servers give them, made with prometheus-client's own registries.

Names and labels are those of docs/engines.md's sources, written out here and not taken from cufall's tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from cufall_py.engines.reading import Moment

LATENCY = (0.001, 0.01, 0.1, 1.0)


class Served:
    """A registry: `count`, `set` and `observe` make a metric when it is first named."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made: dict[str, Counter | Gauge | Histogram] = {}

    def count(self, name: str, amount: float, **labels: str) -> None:
        child = self._child(Counter, name.removesuffix("_total"), labels)
        assert isinstance(child, Counter)
        child.inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        child = self._child(Gauge, name, labels)
        assert isinstance(child, Gauge)
        child.set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        child = self._child(Histogram, name, labels, buckets=LATENCY)
        assert isinstance(child, Histogram)
        child.observe(value)

    def _child(self, kind: type, name: str, labels: Mapping[str, str], **more: object) -> Counter | Gauge | Histogram:
        if name not in self._made:
            self._made[name] = kind(name, name, list(labels), registry=self.registry, **more)
        return self._made[name].labels(**labels) if labels else self._made[name]

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()

    @property
    def openmetrics(self) -> str:
        return generate_openmetrics(self.registry).decode()


def vllm(engines: int = 1, prompt: float = 1000, generation: float = 500, running: float = 4) -> Served:
    """A vLLM of some data-parallel engines, each with these numbers."""
    served = Served()
    for engine in range(engines):
        own = {"model_name": "m", "engine": str(engine)}
        served.set("vllm:num_requests_running", running, **own)
        served.set("vllm:num_requests_waiting", 2, **own)
        served.set("vllm:kv_cache_usage_perc", 0.25, **own)
        served.count("vllm:prompt_tokens_total", prompt, **own)
        served.count("vllm:prompt_tokens_by_source_total", 0.75 * prompt, source="local_compute", **own)
        served.count("vllm:prompt_tokens_by_source_total", 0.25 * prompt, source="local_cache_hit", **own)
        served.count("vllm:generation_tokens_total", generation, **own)
        served.observe("vllm:iteration_tokens_total", 8, **own)
        served.observe("vllm:time_to_first_token_seconds", 0.05, **own)
        for seconds in (0.005, 0.02):
            served.observe("vllm:inter_token_latency_seconds", seconds, **own)
        served.observe("vllm:request_time_per_output_token_seconds", 0.02, **own)
        served.count("vllm:spec_decode_num_draft_tokens_total", 100, **own)
        served.count("vllm:spec_decode_num_accepted_tokens_total", 60, **own)
        served.count("vllm:estimated_flops_per_gpu_total", 1e15, **own)
        served.count("vllm:estimated_read_bytes_per_gpu_total", 2e12, **own)
        served.count("vllm:estimated_write_bytes_per_gpu_total", 1e11, **own)
    return served


def sglang(tp: int = 1, pp: int = 1, dp: int = 1, role: str = "unified", realtime: bool = True) -> Served:
    """An SGLang whose ranks each tell the same numbers."""
    served = Served()
    ranks = [(t, p, d) for t in range(tp) for p in range(pp) for d in range(dp)]
    for t, p, d in ranks:
        own = {"model_name": "m", "engine_type": role, "tp_rank": str(t), "pp_rank": str(p), "dp_rank": str(d)}
        served.set("sglang:num_running_reqs", 16, moe_ep_rank="0", **own)
        served.set("sglang:num_queue_reqs", 3, moe_ep_rank="0", **own)
        served.set("sglang:token_usage", 0.5, moe_ep_rank="0", **own)
        served.set("sglang:gen_throughput", 777, moe_ep_rank="0", **own)
        served.set("sglang:spec_accept_rate", 0.8, moe_ep_rank="0", **own)
        served.count("sglang:estimated_flops_per_gpu_total", 1e15, moe_ep_rank="0", **own)
        if realtime:
            for mode, amount in (("prefill_compute", 300), ("prefill_cache", 100), ("decode", 2000)):
                served.count("sglang:realtime_tokens_total", amount, mode=mode, moe_ep_rank="0", **own)
    tokenizer = {"model_name": "m", "engine_type": role}
    for streaming in ("true", "false"):
        served.count("sglang:prompt_tokens_total", 150, is_streaming=streaming, **tokenizer)
        served.count("sglang:generation_tokens_total", 900, is_streaming=streaming, **tokenizer)
        served.observe("sglang:time_to_first_token_seconds", 0.05, is_streaming=streaming, **tokenizer)
    served.observe("sglang:inter_token_latency_seconds", 0.02, **tokenizer)
    return served


def tensorrt_llm() -> Served:
    served, own = Served(), {"model_name": "m", "engine_type": "trtllm"}
    served.set("trtllm_num_requests_running", 5, **own)
    served.set("trtllm_num_requests_waiting", 1, **own)
    served.set("trtllm_kv_cache_utilization", 0.4, **own)
    served.count("trtllm_prompt_tokens_total", 1200, **own)
    served.count("trtllm_generation_tokens_total", 800, **own)
    served.observe("trtllm_time_to_first_token_seconds", 0.05, **own)
    served.observe("trtllm_time_per_output_token_seconds", 0.02, **own)
    return served


def triton() -> Served:
    served, own = Served(), {"model": "tensorrt_llm", "version": "1"}
    for kind, number in (("active", 9), ("scheduled", 6), ("context", 1), ("max", 64), ("waiting", 3)):
        served.set("nv_trt_llm_request_metrics", number, request_type=kind, **own)
    for kind, number in (("used", 30), ("free", 90), ("max", 120), ("tokens_per", 64)):
        served.set("nv_trt_llm_kv_cache_block_metrics", number, kv_cache_block_type=kind, **own)
    served.set("nv_trt_llm_v1_metrics", 7, v1_specific_metric="total_generation_tokens", **own)
    return served


def tgi() -> Served:
    served = Served()
    served.set("tgi_batch_current_size", 4)
    served.set("tgi_queue_size", 2)
    served.observe("tgi_request_input_length", 300)
    served.observe("tgi_request_generated_tokens", 120)
    served.observe("tgi_request_generated_tokens", 80)
    served.observe("tgi_request_mean_time_per_token_duration", 0.02)
    return served


def llama_cpp() -> Served:
    served = Served()
    served.count("llamacpp:prompt_tokens_total", 640)
    served.count("llamacpp:tokens_predicted_total", 320)
    served.set("llamacpp:predicted_tokens_seconds", 55)
    served.set("llamacpp:requests_processing", 2)
    served.set("llamacpp:requests_deferred", 1)
    return served


def dynamo() -> Served:
    served = Served()
    served.set("dynamo_frontend_inflight_requests", 7, model="m")
    served.set("dynamo_frontend_queued_requests", 1, model="m")
    served.count("dynamo_frontend_output_tokens_total", 500, model="m")
    served.observe("dynamo_frontend_time_to_first_token_seconds", 0.05, model="m")
    served.observe("dynamo_frontend_inter_token_latency_seconds", 0.02, model="m")
    served.set("dynamo_component_gpu_cache_usage_percent", 0.6)
    return served


def moment(at_s: float, error_ns: int = 0) -> Moment:
    """A second of a run, on a Unix clock of the size that occurs."""
    at_ns = round(at_s * 1e9)
    return Moment(1_796_000_000_000_000_000 + at_ns, at_ns, error_ns)
