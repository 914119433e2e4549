"""A transformer benchmark to be measured: `cufall record -o run.cufall -- python examples/transformer_bench.py`.

Prefill and decode of a Llama-shaped model of about 1B parameters with random weights, on one GPU. Each is a region
of the recording; tokens a second go to stdout as JSON. Needs PyTorch and transformers.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from demo_loads import PROMPT, Step, decode, graphed, model, prefill

from cufall_py import mark

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--prompts", type=int, default=4, help=f"prompts of {PROMPT} tokens at once in prefill [4]")
    parser.add_argument("--batch", type=int, default=16, help="sequences at once in decode [16]")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each phase runs [3]")
    return parser.parse_args()


def steps_per_s(step: Step, seconds: float) -> float:
    done, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        step()
        torch.cuda.synchronize()
        done += 1
    return done / (time.monotonic() - began)


def phase(name: str, step: Step, tokens: int, seconds: float) -> dict[str, float]:
    """Tokens a second of a phase, which is marked in the recordings that are being made."""
    steps_per_s(step, 0.3)
    with mark(name):
        return {f"{name}_tokens_per_s": tokens * steps_per_s(step, seconds)}


@torch.inference_mode()
def main() -> None:
    asked = arguments()
    torch.backends.cuda.matmul.allow_tf32 = asked.dtype == "tf32"
    llama = model(DTYPES[asked.dtype])
    found = phase("prefill", prefill(llama, asked.prompts), asked.prompts * PROMPT, asked.seconds)
    found |= phase("decode", graphed(decode(llama, asked.batch)), asked.batch, asked.seconds)
    print(json.dumps({"dtype": asked.dtype, **found}))


if __name__ == "__main__":
    main()
