"""How busy the tensor pipe could be: the work of a step, the time its limits leave, and what fills the gap to it.

A step needs at least the longest of what each unit needs alone (the roofline of Williams, Waterman and Patterson
2009, told in time): FLOP / peak of the tensor pipe, bytes / bandwidth of the memory. The tensor pipe is at most busy
for its own share of that. Everything left out (activations, norms, launches, communication) can only lower what is
possible, so the figure is an upper bound. docs/ceiling.md has the formulas, what is left out, and what it was checked
against.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cufall_py.peaks import Peaks

from .models import PLAIN, Layer, Model

TENSOR, MEMORY, NOTHING = "tensor", "memory", "nothing"
NOT_ACTIVE, MEMORY_BELOW = "GPU not active", "memory below its peak while active"
OR = ", or "
"""Between the names of parts that cannot be told apart."""
ELEMENT = 2.0
"""Bytes of an element of cache, unless a model is said to keep others."""


@dataclass(frozen=True)
class Serving:
    """How a model is run: `batch` sequences at once, each with `context` tokens before it (decode) or in it (prefill),
    on `gpus` that split each layer. `kv_bytes`: of cache a token of context, in all layers; NaN: as the model has it.
    """

    batch: int = 1
    context: int = 0
    prefill: bool = False
    gpus: int = 1
    kv_bytes: float = math.nan

    @property
    def tokens(self) -> int:
        """That go through the layers in one step."""
        return self.batch * self.context if self.prefill else self.batch


@dataclass(frozen=True)
class Work:
    """Of one step, on one GPU: FLOP of the tensor pipe by type of the factors, and bytes of device memory."""

    flop: Mapping[str, float]
    weight_bytes: float
    cache_bytes: float

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.cache_bytes


@dataclass(frozen=True)
class Ceiling:
    """`ratio`: the most that the tensor pipe can be busy, by `limit` (TENSOR, MEMORY, or NOTHING to do).

    `memory`: how busy the device memory is then.
    """

    ratio: float
    limit: str
    memory: float = math.nan


@dataclass(frozen=True)
class Gap:
    """What is measured below a ceiling; `parts` are what fills it, in shares of the tensor pipe's peak, and add up to
    ceiling - measured. The last of them is below 0 where more was measured than the others leave."""

    measured: float
    ceiling: Ceiling
    parts: tuple[tuple[str, float], ...]


def work(model: Model, serving: Serving) -> Work:
    """2 FLOP for each weight and token; each weight that any token meets is read once a step; the cache is read once a
    sequence (decode) and written once a token."""
    flop: dict[str, float] = {}
    weight_bytes = cache_bytes = 0.0
    for layer in model.layers:
        outside, taken, read = _weights(layer, serving)
        _add(flop, model.linear.kind, 2 * outside * serving.tokens)
        _add(flop, model.expert.kind, 2 * taken * serving.tokens)
        weight_bytes += outside * model.linear.bytes + read * model.expert.bytes
        _add(flop, PLAIN.kind, _attention_flop(layer, serving))
        cache_bytes += _cache_bytes(layer, serving)
    head = model.head / serving.gpus
    _add(flop, PLAIN.kind, 2 * head * serving.batch)  # only the last token of each sequence is sampled
    if not math.isnan(serving.kv_bytes):
        cache_bytes = serving.kv_bytes * _cached_tokens(serving, 0)
    return Work(flop, weight_bytes + head * PLAIN.bytes, cache_bytes)


def tensor_s(work: Work, peaks: Peaks, sms: int, mhz: float) -> float:
    """Seconds that the tensor pipes need for it at this clock."""
    rate = sms * mhz * 1e6
    return sum(flop / (peaks.flop_per_cycle(kind) * rate) for kind, flop in work.flop.items())


def ceiling(work: Work, peaks: Peaks, sms: int, mhz: float) -> Ceiling:
    """min(1, tensor / max(tensor, memory)), each in seconds alone; `mhz` is the clock of the SMs, as measured."""
    return of_times(tensor_s(work, peaks, sms, mhz), work.bytes / peaks.bytes_per_s)


def of_times(tensor: float, memory: float) -> Ceiling:
    """From what each needs alone, in one unit of time; NaN for what is not known.

    Of the shares measured of each one's own peak it is what the same instructions and bytes could reach, were the
    busier of both busy all the time, which needs neither a model nor a data sheet.
    """
    longest = max(tensor, memory) if not math.isnan(tensor + memory) else math.nan
    if math.isnan(longest):
        return Ceiling(math.nan, NOTHING)
    if tensor == 0:
        return Ceiling(0.0, NOTHING)
    return Ceiling(tensor / longest, TENSOR if tensor >= memory else MEMORY, memory / longest)


def gap(measured: float, active: float, memory: float, ceiling: Ceiling) -> Gap:
    """What fills it. `active`: share of the time that the GPU was; `memory`: busy share of its bandwidth; NaN: unknown.

    Levels fall from the ceiling to what was measured: what it would be in the time the GPU was active; what it would be
    at the pace that bytes really moved (where memory is the limit); what it is. Each part is the step to the next; of a
    level that is not known, both steps are one.
    """
    levels = [(NOT_ACTIVE, ceiling.ratio * active)]
    if ceiling.limit == MEMORY:
        levels.append((MEMORY_BELOW, ceiling.ratio * memory / ceiling.memory))
    last = "less tensor work than these bytes go with" if ceiling.limit == MEMORY else "tensor pipe idle while active"
    levels.append((last, measured))
    return Gap(measured, ceiling, tuple(_steps(ceiling.ratio, levels)))


def _steps(top: float, levels: Iterable[tuple[str, float]]) -> Iterable[tuple[str, float]]:
    names: list[str] = []
    for name, level in levels:
        names.append(name)
        if not math.isnan(level):
            yield OR.join(names), top - level
            top, names = level, []


def _weights(layer: Layer, serving: Serving) -> tuple[float, float, float]:
    """On one GPU: weights outside the experts; of experts that one token takes; of experts that are read in a step."""
    heads = layer.attention.kv_heads if layer.attention else 1
    outside = layer.split / serving.gpus + layer.whole + layer.key_value * _share(heads, serving.gpus)
    if not layer.experts:
        return outside, 0.0, 0.0
    each = layer.experts.weights / serving.gpus
    return outside, layer.experts.active * each, layer.experts.expected(serving.tokens) * each


def _attention_flop(layer: Layer, serving: Serving) -> float:
    """2 FLOP for each multiply-add of each head with each token that it sees."""
    of = layer.attention
    if not of:
        return 0.0
    heads = of.heads * _share(of.heads, serving.gpus)
    if serving.prefill:
        return 2 * heads * of.prefill_width * serving.batch * _pairs(serving.context, of.window)
    return 2 * heads * of.decode_width * serving.batch * _seen(serving.context, of.window)


def _cache_bytes(layer: Layer, serving: Serving) -> float:
    of = layer.attention
    if not of:
        return 0.0
    return of.cached * _share(of.kv_heads, serving.gpus) * ELEMENT * _cached_tokens(serving, of.window)


def _cached_tokens(serving: Serving, window: int) -> int:
    """Tokens whose cache is read or written in a step."""
    if serving.prefill:
        return serving.tokens
    return serving.batch * (_seen(serving.context, window) + 1)


def _seen(context: int, window: int) -> int:
    return min(context, window) if window else context


def _pairs(context: int, window: int) -> float:
    """Pairs of a token and one that it sees, itself and those before it: 1 + 2 + ... up to the window."""
    full = _seen(context, window)
    return full * (full + 1) / 2 + (context - full) * full


def _share(parts: int, gpus: int) -> float:
    """Of what comes in so many parts, how much the fullest of the GPUs has; what cannot be split is on each."""
    return -(-parts // gpus) / parts


def _add(flop: dict[str, float], kind: str, more: float) -> None:
    if more:
        flop[kind] = flop.get(kind, 0.0) + more
