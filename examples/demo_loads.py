"""Work for the demo recording: a Llama-shaped model of about 1B parameters with random weights.

`python demo_loads.py SECONDS` says `ready`, waits for the end of stdin, and runs each load that long: `begin NAME` and
`end NAME` on stdout, one a line; the GPU rests between them. Needs PyTorch and transformers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

Step = Callable[[], object]
PROMPT, CONTEXT, PROMPTS = 2048, 512, 8
CONFIG = LlamaConfig(
    vocab_size=32_000,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=22,
    num_attention_heads=32,
    num_key_value_heads=4,
    max_position_embeddings=4096,
)


def model(dtype: torch.dtype) -> LlamaForCausalLM:
    torch.manual_seed(0)
    with torch.device("cuda"):
        return LlamaForCausalLM(CONFIG).to(dtype).eval()


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, CONFIG.vocab_size, (batch, length), device="cuda")


def prefill(llama: LlamaForCausalLM, batch: int) -> Step:
    prompts = tokens(batch, PROMPT)
    return lambda: llama(prompts, use_cache=False, logits_to_keep=1)


def decode(llama: LlamaForCausalLM, batch: int) -> Step:
    """One token a sequence at a context of CONTEXT, which stays as it is: every step does the same."""
    cache = DynamicCache()
    llama(tokens(batch, CONTEXT), past_key_values=cache, use_cache=True, logits_to_keep=1)
    context = [(layer.keys, layer.values) for layer in cache.layers]
    last = tokens(batch, 1)

    def step() -> None:
        llama(last, past_key_values=cache, use_cache=True)
        for layer, (keys, values) in zip(cache.layers, context, strict=True):
            layer.keys, layer.values = keys, values

    return step


def graphed(step: Step) -> Step:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()

    def replay() -> None:
        graph.replay()
        keep(step)

    return replay


def keep(_: object) -> None:
    """A graph does not keep what it works on; who calls this does."""


def idle() -> None:
    time.sleep(0.01)


@contextmanager
def said(name: str) -> Iterator[None]:
    torch.cuda.synchronize()
    time.sleep(0.3)
    print("begin", name, flush=True)
    yield
    torch.cuda.synchronize()
    print("end", name, flush=True)


def run(name: str, step: Step, seconds: float) -> None:
    for _ in range(3):
        step()
    with said(name):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            step()
            torch.cuda.current_stream().synchronize()  # as sampling the next token does


def attempt(name: str, make: Callable[[], Step], seconds: float) -> None:
    """A load that this version of the libraries cannot run is left out, and that is said."""
    try:
        run(name, make(), seconds)
    except Exception as error:
        print(f"demo_loads: {name} left out: {error}", file=sys.stderr, flush=True)
    torch.cuda.empty_cache()


@torch.inference_mode()
def main(seconds: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    half, single = model(torch.bfloat16), model(torch.float32)
    print("ready", flush=True)
    sys.stdin.read()
    run("idle", idle, seconds)
    attempt("prefill", lambda: prefill(half, PROMPTS), seconds)
    attempt("prefill-simt", lambda: prefill(single, 1), seconds)
    attempt("decode-1", lambda: decode(half, 1), seconds)
    attempt("decode-16", lambda: decode(half, 16), seconds)
    attempt("decode-16-simt", lambda: decode(single, 16), seconds)
    attempt("decode-16-graph", lambda: graphed(decode(half, 16)), seconds)


if __name__ == "__main__":
    main(float(sys.argv[1]))
