"""A small inference server: streamed completions as OpenAI has them, and a page of metrics as vLLM or SGLang have it.

    python examples/serve.py --port 8000 [--like sglang] [--log steps.jsonl] [--fake]

Continuous batching, as simple as it can be: after each step, whoever waits is prefilled in a step of its own and joins
those that decode. The model is that of demo_loads.py, with random weights; `--fake` sleeps instead of computing.
`--log` has a line a step: when, what it did, how many ran and waited. Says `ready PORT`, serves until its stdin ends.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MODEL = "demo-1b"
DECODE_LOG_INTERVAL = 40
"""SGLang renews its gauges each so many decode steps."""
SECONDS = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Model(Protocol):
    """Rows are requests in the order in which they joined."""

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Let these join; the first token of each."""

    def decode(self) -> list[int]:
        """The next token of each row."""

    def keep(self, rows: Sequence[int]) -> None:
        """The others have ended."""


class Fake:
    """Takes the time that a model would, and makes the token 1."""

    def __init__(self, prefill_us: float, decode_ms: float) -> None:
        self._prefill_s, self._decode_s, self._rows = prefill_us / 1e6, decode_ms / 1e3, 0

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        time.sleep(self._prefill_s * sum(map(len, prompts)))
        self._rows += len(prompts)
        return [1] * len(prompts)

    def decode(self) -> list[int]:
        time.sleep(self._decode_s)
        return [1] * self._rows

    def keep(self, rows: Sequence[int]) -> None:
        self._rows = len(rows)


class Llama:
    """The model of demo_loads.py. Rows are padded on the left to the longest, and what all have as padding is cut."""

    def __init__(self, device: str, layers: int) -> None:
        import torch
        from demo_loads import CONFIG
        from transformers import LlamaForCausalLM

        self._torch, self._device = torch, device
        torch.manual_seed(0)
        CONFIG.num_hidden_layers = layers or CONFIG.num_hidden_layers
        with torch.device(device):
            model = LlamaForCausalLM(CONFIG)
        self._model = model.to(torch.bfloat16 if device == "cuda" else torch.float32).eval()
        self._cache: Any = None
        self._mask: Any = None
        self._last: Any = None

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        from transformers import DynamicCache

        torch, longest = self._torch, max(map(len, prompts))
        padded = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        known = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        mask, cache = torch.tensor(known, device=self._device), DynamicCache()
        first = self._step(torch.tensor(padded, device=self._device), mask, cache)
        self._join(cache, mask, first)
        return first.flatten().tolist()

    def decode(self) -> list[int]:
        torch = self._torch
        self._mask = torch.cat((self._mask, torch.ones_like(self._mask[:, :1])), dim=1)
        self._last = self._step(self._last, self._mask, self._cache)
        return self._last.flatten().tolist()

    def keep(self, rows: Sequence[int]) -> None:
        if not rows:
            self._cache = self._mask = self._last = None
            return
        index = self._torch.tensor(rows, device=self._device)
        mask = self._mask[index]
        begin = int(mask.any(dim=0).int().argmax())
        self._mask, self._last = mask[:, begin:], self._last[index]
        for layer in self._cache.layers:
            layer.keys, layer.values = layer.keys[index][:, :, begin:], layer.values[index][:, :, begin:]

    def _step(self, ids: Any, mask: Any, cache: Any) -> Any:
        """(rows, 1) the likeliest next token of each."""
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        with self._torch.inference_mode():
            out = self._model(
                ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            return out.logits[:, -1].argmax(dim=-1, keepdim=True)

    def _join(self, cache: Any, mask: Any, first: Any) -> None:
        if self._cache is None:
            self._cache, self._mask, self._last = cache, mask, first
            return
        torch, longest = self._torch, max(self._mask.shape[1], mask.shape[1])

        def both(a: Any, b: Any, dim: int) -> Any:
            return torch.cat((_padded(torch, a, longest, dim), _padded(torch, b, longest, dim)))

        self._mask, self._last = both(self._mask, mask, 1), torch.cat((self._last, first))
        for old, new in zip(self._cache.layers, cache.layers, strict=True):
            old.keys, old.values = both(old.keys, new.keys, 2), both(old.values, new.values, 2)


def _padded(torch: Any, tensor: Any, length: int, dim: int) -> Any:
    """With zeros before it, so that it is as long in this dimension."""
    shape = list(tensor.shape)
    shape[dim] = length - shape[dim]
    return torch.cat((tensor.new_zeros(shape), tensor), dim=dim) if shape[dim] else tensor


@dataclass(eq=False)
class Request:
    prompt: list[int]
    wanted: int
    arrived_s: float = field(default_factory=time.monotonic)
    last_s: float = 0.0
    made: int = 0
    out: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)


class VllmMetrics:
    """All move with each step; a prompt is counted with its first token, which is a generated one, too."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made = {"registry": self.registry, "labelnames": ("model_name", "engine")}
        own = {"model_name": MODEL, "engine": "0"}
        self._running = Gauge("vllm:num_requests_running", "running", **made).labels(**own)
        self._waiting = Gauge("vllm:num_requests_waiting", "waiting", **made).labels(**own)
        self._prompt = Counter("vllm:prompt_tokens", "prompt tokens", **made).labels(**own)
        self._generation = Counter("vllm:generation_tokens", "generated tokens", **made).labels(**own)
        self._ttft = Histogram("vllm:time_to_first_token_seconds", "ttft", buckets=SECONDS, **made).labels(**own)
        self._itl = Histogram("vllm:inter_token_latency_seconds", "itl", buckets=SECONDS, **made).labels(**own)

    def prefilled(self, requests: Sequence[Request]) -> None:
        self._prompt.inc(sum(len(request.prompt) for request in requests))
        self._generation.inc(len(requests))
        for request in requests:
            self._ttft.observe(request.last_s - request.arrived_s)

    def decoded(self, latencies_s: Sequence[float]) -> None:
        self._generation.inc(len(latencies_s))
        for latency_s in latencies_s:
            self._itl.observe(latency_s)

    def stands(self, running: int, waiting: int) -> None:
        self._running.set(running)
        self._waiting.set(waiting)

    def finished(self, request: Request) -> None:
        pass


class SglangMetrics:
    """Tokens by mode move with each step, gauges each DECODE_LOG_INTERVAL decode steps, plain counters at the end."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry, "labelnames": ("model_name", "tp_rank")}
        own = {"model_name": MODEL, "tp_rank": "0"}
        self._running = Gauge("sglang:num_running_reqs", "running", **made).labels(**own)
        self._waiting = Gauge("sglang:num_queue_reqs", "waiting", **made).labels(**own)
        self._throughput = Gauge("sglang:gen_throughput", "tokens a second", **made).labels(**own)
        self._prompt = Counter("sglang:prompt_tokens", "prompt tokens", **made).labels(**own)
        self._generation = Counter("sglang:generation_tokens", "generated tokens", **made).labels(**own)
        self._ttft = Histogram("sglang:time_to_first_token_seconds", "ttft", buckets=SECONDS, **made).labels(**own)
        self._itl = Histogram("sglang:inter_token_latency_seconds", "itl", buckets=SECONDS, **made).labels(**own)
        modes = Counter(
            "sglang:realtime_tokens", "by mode", registry=self.registry, labelnames=("mode", "model_name", "tp_rank")
        )
        self._computed, self._decoded = (modes.labels(mode=m, **own) for m in ("prefill_compute", "decode"))
        self._steps = self._made = 0
        self._since_s = time.monotonic()

    def prefilled(self, requests: Sequence[Request]) -> None:
        self._computed.inc(sum(len(request.prompt) for request in requests))
        for request in requests:
            self._ttft.observe(request.last_s - request.arrived_s)

    def decoded(self, latencies_s: Sequence[float]) -> None:
        self._decoded.inc(len(latencies_s))
        for latency_s in latencies_s:
            self._itl.observe(latency_s)
        self._steps, self._made = self._steps + 1, self._made + len(latencies_s)

    def stands(self, running: int, waiting: int) -> None:
        if self._steps < DECODE_LOG_INTERVAL and running:
            return
        now_s = time.monotonic()
        self._running.set(running)
        self._waiting.set(waiting)
        self._throughput.set(self._made / (now_s - self._since_s))
        self._steps, self._made, self._since_s = 0, 0, now_s

    def finished(self, request: Request) -> None:
        self._prompt.inc(len(request.prompt))
        self._generation.inc(request.made)


class Engine:
    """Steps in a thread of its own while there is work."""

    def __init__(self, model: Model, metrics: VllmMetrics | SglangMetrics, most: int, log: TextIO | None) -> None:
        self._model, self.metrics, self._most, self._log = model, metrics, most, log
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._came = threading.Condition()
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def take(self, request: Request) -> None:
        with self._came:
            self._waiting.append(request)
            self._came.notify()

    def _run(self) -> None:
        while True:
            with self._came:
                while not self._waiting and not self._running:
                    self._came.wait()
                room = self._most - len(self._running)
                joining = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
            if joining:
                self._prefill(joining)
            if self._running:
                self._decode()

    def _prefill(self, joining: list[Request]) -> None:
        begun_s = time.time()
        tokens = self._model.prefill([request.prompt for request in joining])
        now_s = time.monotonic()
        for request in joining:
            request.last_s = now_s
        self._running += joining
        self.metrics.prefilled(joining)
        prompt = sum(len(request.prompt) for request in joining)
        self._give(tokens, joining)
        self._note(begun_s, prompt, len(joining), 0)

    def _decode(self) -> None:
        begun_s, decoding = time.time(), list(self._running)
        tokens, now_s = self._model.decode(), time.monotonic()
        self.metrics.decoded([now_s - request.last_s for request in decoding])
        for request in decoding:
            request.last_s = now_s
        self._give(tokens, decoding)
        self._note(begun_s, 0, 0, len(decoding))

    def _give(self, tokens: Sequence[int], to: Sequence[Request]) -> None:
        """A token each; those that have all they wanted leave."""
        for token, request in zip(tokens, to, strict=True):
            request.made += 1
            request.out.put(token)
        staying = [k for k, request in enumerate(self._running) if request.made < request.wanted]
        if len(staying) < len(self._running):
            for request in self._running:
                if request.made >= request.wanted:
                    self.metrics.finished(request)
            self._running = [self._running[k] for k in staying]
            self._model.keep(staying)

    def _note(self, begun_s: float, prompt: int, firsts: int, decode: int) -> None:
        self.metrics.stands(len(self._running), len(self._waiting))
        if self._log:
            step = {"start_s": begun_s, "end_s": time.time(), "running": len(self._running)}
            step |= {"waiting": len(self._waiting), "prompt": prompt, "firsts": firsts, "decode": decode}
            self._log.write(json.dumps(step) + "\n")


class Handler(BaseHTTPRequestHandler):
    """`/metrics`, `/v1/models` and `/v1/completions`, which only streams."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: Engine

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(generate_latest(self.engine.metrics.registry), "text/plain; version=0.0.4")
        elif self.path == "/v1/models":
            self._send(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())
        else:
            self._send(b"{}", status=404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["prompt"]
        tokens = [1 + sign % 1000 for sign in prompt.encode()] if isinstance(prompt, str) else prompt
        if self.path != "/v1/completions" or not tokens or not body.get("stream"):
            self._send(b'{"error": "only streamed completions are served here"}', status=400)
            return
        request = Request(tokens, int(body.get("max_tokens", 16)))
        self.engine.take(request)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(request.wanted):
            choice = {"index": 0, "text": f" {request.out.get()}", "finish_reason": None}
            self._event({"object": "text_completion", "model": MODEL, "choices": [choice]})
        usage = {"prompt_tokens": len(tokens), "completion_tokens": request.made}
        self._event({"object": "text_completion", "model": MODEL, "choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, data: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, data: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--like", choices=("vllm", "sglang"), default="vllm", help="whose metrics")
    parser.add_argument("--log", default="", metavar="FILE", help="a JSON line a step")
    parser.add_argument("--most", type=int, default=256, metavar="N", help="requests that decode at once")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=0, help="fewer than the model has")
    parser.add_argument("--fake", action="store_true", help="sleep instead of computing")
    parser.add_argument("--prefill-us", type=float, default=20.0, help="of --fake, a prompt token")
    parser.add_argument("--decode-ms", type=float, default=10.0, help="of --fake, a step")
    asked = parser.parse_args()
    log = open(asked.log, "w", buffering=1) if asked.log else None  # noqa: SIM115
    metrics = VllmMetrics() if asked.like == "vllm" else SglangMetrics()
    model: Model = Fake(asked.prefill_us, asked.decode_ms) if asked.fake else Llama(asked.device, asked.layers)
    Handler.engine = Engine(model, metrics, asked.most, log)
    server = Server((asked.host, asked.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
