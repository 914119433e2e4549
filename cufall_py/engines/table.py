"""What cufall reads of an inference server, and how a table says which of an engine's metrics that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Moves = Literal["step", "interval", "finish"]
"""When a metric moves: with each step of the engine; now and then, or nobody knows when; when a request ends."""
Across = Literal["sum", "mean"]


@dataclass(frozen=True)
class Quantity:
    """One thing that is read, under the name that cufall has for it, whatever the engine.

    `across`: what several engines behind one page (data-parallel ranks, models) come to together.
    """

    kind: Kind
    unit: str
    meaning: str
    across: Across = "sum"


QUANTITIES: Mapping[str, Quantity] = {
    "running": Quantity("gauge", "requests", "requests that are being worked on"),
    "waiting": Quantity("gauge", "requests", "requests in the queue"),
    "prompt_tokens": Quantity("counter", "tokens", "prompt tokens, those found in a cache as well"),
    "prefill_tokens": Quantity("counter", "tokens", "prompt tokens that were computed"),
    "generation_tokens": Quantity("counter", "tokens", "tokens made"),
    "prompt_tokens_per_s": Quantity("gauge", "tokens/s", "the engine's own figure, used where no counter is"),
    "generation_tokens_per_s": Quantity("gauge", "tokens/s", "the engine's own figure, used where no counter is"),
    "cache_usage": Quantity("gauge", "ratio", "share of the KV cache that is used, 0..1", "mean"),
    "ttft_s": Quantity("histogram", "s", "time to first token"),
    "itl_s": Quantity("histogram", "s", "time between two tokens of a request"),
    "tpot_s": Quantity("histogram", "s", "a request's mean time per token after its first"),
    "drafted_tokens": Quantity("counter", "tokens", "speculated tokens that were tried"),
    "accepted_tokens": Quantity("counter", "tokens", "speculated tokens that were kept"),
    "acceptance": Quantity("gauge", "ratio", "share of the speculated tokens that is kept, 0..1", "mean"),
    "flops_per_gpu": Quantity("counter", "FLOP", "the engine's estimate of what each GPU computed", "mean"),
    "read_bytes_per_gpu": Quantity("counter", "bytes", "the engine's estimate of what each GPU read", "mean"),
    "write_bytes_per_gpu": Quantity("counter", "bytes", "the engine's estimate of what each GPU wrote", "mean"),
}


@dataclass(frozen=True)
class Metric:
    """One of an engine's metrics, by the name of its samples; of a histogram without `_bucket`, `_sum`, `_count`.

    `where`: labels that its series must have, each with the values that count. `over`: the same, for a gauge that
    is a share: the series that it is divided by.
    """

    name: str
    moves: Moves
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    over: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Engine:
    """One engine in a range of versions.

    `fields`: the metrics that give each quantity, the best first. `copies`: labels along which each rank tells the
    same number again. `totals`: labels whose empty value is the sum of the others. `role`: the label that says
    whether it does prefill or decode. `prefixed`: its names may be spelled `x:`, `x_`, `ray_x:` or `ray_x_`.
    `counts_prompts_whole`: a prompt is counted when its first token is made, which is then among generation_tokens.
    """

    name: str
    versions: str
    fields: Mapping[str, tuple[Metric, ...]]
    port: int
    switch: str
    path: str = "/metrics"
    copies: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    role: str = ""
    prefixed: bool = False
    counts_prompts_whole: bool = False


STYLES = ("{name}", "{escaped}", "ray_{name}", "ray_{escaped}")
"""How a prefixed name may be spelled, the first preferred: as the engine does, with the colon escaped, through Ray."""


def spelled(engine: Engine, name: str, style: str) -> str:
    """A name of the engine's table in one of its styles."""
    return style.format(name=name, escaped=name.replace(":", "_", 1))


def styles(engine: Engine) -> tuple[str, ...]:
    return STYLES if engine.prefixed else STYLES[:1]
