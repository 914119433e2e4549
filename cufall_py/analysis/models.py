"""A language model as its config.json describes it: the weights each token is multiplied with, and its attention.

The names are those of Hugging Face's configurations. Weights are counted from the shapes of the linear layers; norms,
biases and rotary tables, a thousandth of all, are left out. docs/ceiling.md has the formulas and where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Config = Mapping[str, Any]
MOST_LAYERS = 10_000
MOST = 10**9
"""Of any other number of a config: far beyond any model, and what is made of them stays finite."""


@dataclass(frozen=True)
class Attention:
    """Of one layer. A token's query meets each token of its context.

    `width`: multiply-adds of one head for one token of context, scores and values together, when tokens come one by
    one (`decode_width`) or many at once (`prefill_width`). `cached`: elements kept of each token. `kv_heads`: into how
    many the cache can be split among GPUs. `window`: how much of the context is seen at most (0: all).
    """

    heads: int
    decode_width: int
    prefill_width: int
    cached: int
    kv_heads: int
    window: int = 0


@dataclass(frozen=True)
class Experts:
    """Of one layer: `count` of `weights` each, of which each token takes `active`."""

    count: int
    active: int
    weights: int

    def expected(self, tokens: float) -> float:
        """How many different ones so many tokens take: E (1 - (1 - k/E)^tokens), each token's choice being even and
        its own. Real routing is less even, and takes fewer."""
        missed: float = (1 - self.active / self.count) ** tokens
        return self.count * (1 - missed)


@dataclass(frozen=True)
class Layer:
    """`split` weights are divided among the GPUs of a tensor-parallel group, `whole` ones are on each; `key_value` are
    split by the heads of the cache. `attention` is None where nothing is known of it."""

    split: int
    whole: int = 0
    key_value: int = 0
    experts: Experts | None = None
    attention: Attention | None = None


@dataclass(frozen=True)
class Format:
    """How weights are kept: bytes each with their scales, and the type that the tensor pipe multiplies."""

    bytes: float = 2.0
    kind: str = "bf16"


PLAIN = Format()


@dataclass(frozen=True)
class Model:
    """`head` are the weights of the last layer, which only tokens that are sampled meet, kept as PLAIN; `embedding`
    ones are looked up, not multiplied."""

    name: str
    layers: tuple[Layer, ...]
    head: int = 0
    embedding: int = 0
    linear: Format = PLAIN
    expert: Format = PLAIN

    @property
    def weights(self) -> int:
        """All of them."""
        return (
            self.embedding
            + self.head
            + sum(_outside(w) + (w.experts.count if w.experts else 0) * _each(w) for w in self.layers)
        )

    @property
    def active(self) -> int:
        """Those that one token is multiplied with."""
        return self.head + sum(_outside(w) + (w.experts.active if w.experts else 0) * _each(w) for w in self.layers)

    @property
    def cached(self) -> int:
        """Elements of cache a token of context, where no window ends it."""
        return sum(layer.attention.cached for layer in self.layers if layer.attention)


def plain_model(active: float, weight_bytes: float) -> Model:
    """A model of which only the weights each token meets are known."""
    return kept_in(Model("active weights alone", (Layer(round(active)),)), weight_bytes)


def kept_in(model: Model, weight_bytes: float) -> Model:
    """The same with every linear layer kept in so many bytes a weight: one is of fp8, less is widened to bf16."""
    kept = Format(weight_bytes, "fp8" if weight_bytes == 1 else "bf16")
    return replace(model, linear=kept, expert=kept)


def model_from(config: Config) -> Model:
    """Of the contents of a config.json. Raises ValueError, with one line of why, for what is not understood."""
    if isinstance(config, Mapping) and config.get("text_config"):  # of a model that also sees or hears
        config = config["text_config"]
    if not isinstance(config, Mapping):
        raise ValueError("it holds no JSON object")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"its model_type is {kind!r}; known are {', '.join(FAMILIES)}")
    try:
        return _model(kind, config)
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}") from None
    except (TypeError, AttributeError, IndexError, ZeroDivisionError):
        raise ValueError("its numbers are not of the kinds they must be") from None


def _model(kind: str, config: Config) -> Model:
    hidden, vocabulary = _whole(config, "hidden_size"), _whole(config, "vocab_size")
    dtype = config.get("dtype") or config.get("torch_dtype") or "auto"
    if dtype not in TYPES:
        raise ValueError(
            f"its dtype is {dtype!r}, which no ceiling is made of: if it runs in bfloat16, write that there"
        )
    linear, expert = _formats(config.get("quantization_config"))
    attention = _latent if config.get("kv_lora_rank") else _grouped
    layers, count = [], _whole(config, "num_hidden_layers")
    if count > MOST_LAYERS:
        raise ValueError(f"its num_hidden_layers is {count}, which no model has")
    for k in range(count):
        base = attention(config, hidden, k)
        layers.append(FAMILIES[kind](base, config, hidden, k))
    tied = bool(config.get("tie_word_embeddings"))
    embedding = 0 if tied else vocabulary * hidden  # tied: the head's own weights are looked up
    return Model(kind, tuple(layers), vocabulary * hidden, embedding, linear, expert)


def _grouped(config: Config, hidden: int, k: int) -> Layer:
    """Grouped-query attention (Ainslie et al. 2023): each token keeps a key and a value of every KV head."""
    heads = _whole(config, "num_attention_heads")
    kv_heads = _optional(config, "num_key_value_heads") or heads
    width = _optional(config, "head_dim") or hidden // heads
    types = config.get("layer_types")
    slides = types[k] == "sliding_attention" if types else bool(config.get("use_sliding_window", True))
    window = _optional(config, "sliding_window") if slides else 0
    attention = Attention(heads, 2 * width, 2 * width, 2 * kv_heads * width, kv_heads, window)
    return Layer(2 * hidden * heads * width, key_value=2 * hidden * kv_heads * width, attention=attention)


def _latent(config: Config, hidden: int, k: int) -> Layer:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): each token keeps one latent and one rotary key for all
    heads. One token at a time, the up-projections are absorbed, and heads meet the latent itself; many at once, keys
    and values are made of it. Both meet the same weights."""
    heads, latent = _whole(config, "num_attention_heads"), _whole(config, "kv_lora_rank")
    plain, rotary, value = (_whole(config, n) for n in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    query_latent = _optional(config, "q_lora_rank")
    query = heads * (plain + rotary)
    attention = Attention(heads, 2 * latent + rotary, plain + rotary + value, latent + rotary, 1)
    split = (query_latent or hidden) * query + latent * heads * (plain + value) + heads * value * hidden
    return Layer(split, whole=hidden * (query_latent + latent + rotary), attention=attention)


def _with(layer: Layer, split: int, whole: int = 0, experts: Experts | None = None) -> Layer:
    return Layer(layer.split + split, layer.whole + whole, layer.key_value, experts, layer.attention)


def _dense(layer: Layer, config: Config, hidden: int, k: int) -> Layer:
    """A gated feed-forward layer: gate, up and down."""
    return _with(layer, 3 * hidden * _whole(config, "intermediate_size"))


def _mixtral(layer: Layer, config: Config, hidden: int, k: int) -> Layer:
    return _mixture(layer, hidden, _whole(config, "num_local_experts"), config, "intermediate_size")


def _qwen_moe(layer: Layer, config: Config, hidden: int, k: int) -> Layer:
    step = _optional(config, "decoder_sparse_step") or 1
    if k in (config.get("mlp_only_layers") or ()) or (k + 1) % step:
        return _dense(layer, config, hidden, k)
    shared = _optional(config, "shared_expert_intermediate_size")
    return _mixture(layer, hidden, _whole(config, "num_experts"), config, "moe_intermediate_size", shared)


def _deepseek(layer: Layer, config: Config, hidden: int, k: int) -> Layer:
    sparse = _optional(config, "n_routed_experts") and k >= _optional(config, "first_k_dense_replace")
    if not sparse or k % (_optional(config, "moe_layer_freq") or 1):
        return _dense(layer, config, hidden, k)
    shared = _optional(config, "n_shared_experts") * _whole(config, "moe_intermediate_size")
    return _mixture(layer, hidden, _whole(config, "n_routed_experts"), config, "moe_intermediate_size", shared)


def _mixture(layer: Layer, hidden: int, count: int, config: Config, width: str, shared: int = 0) -> Layer:
    """A router, experts of which each token takes some, and what is shared by all tokens."""
    experts = Experts(count, _whole(config, "num_experts_per_tok"), 3 * hidden * _whole(config, width))
    if experts.active > count:
        raise ValueError(f"each token takes {experts.active} of {count} experts")
    return _with(layer, 3 * hidden * shared, hidden * count, experts)


TYPES = ("auto", "bfloat16", "float16")
"""Of what is not quantized; both are multiplied at the same rate."""
FAMILIES: dict[str, Callable[[Layer, Config, int, int], Layer]] = {
    "llama": _dense,
    "mistral": _dense,
    "qwen2": _dense,
    "qwen3": _dense,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen_moe,
    "qwen3_moe": _qwen_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt_oss": _mixtral,
}
"""By model_type: what a layer has beside its attention."""


def _formats(quantization: Config | None) -> tuple[Format, Format]:
    """Of the linear layers, and of the experts. Raises ValueError for a method that is not known."""
    if not quantization:
        return PLAIN, PLAIN
    method = str(quantization.get("quant_method"))
    name = str(quantization.get("quant_algo") or method).lower()
    if name == "fp8":
        kept = Format(1.0, "fp8")
    elif name == "mxfp4":  # OCP Microscaling Formats 1.0: 32 values of 4 bits share a scale of 8
        return PLAIN, Format(4.25 / 8, "fp4")
    elif name == "nvfp4":  # 16 values of 4 bits share a scale of 8
        kept = Format(4.5 / 8, "fp4")
    elif name in ("awq", "gptq"):  # a scale of 16 bits a group; products are of what is widened to bf16
        scale = 16 / _whole(quantization, "group_size") if quantization["group_size"] > 0 else 0
        kept = Format((_whole(quantization, "bits") + scale) / 8, "bf16")
    else:
        raise ValueError(f"its quantization {name!r:.50} is not known; give --active-params and --weight-bytes")
    return kept, kept


def _outside(layer: Layer) -> int:
    """Weights that every token meets."""
    return layer.split + layer.whole + layer.key_value


def _each(layer: Layer) -> int:
    return layer.experts.weights if layer.experts else 0


def _whole(config: Config, name: str) -> int:
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ValueError(f"its {name} is {value!r:.50}, no whole number from 1 to 10^9")
    return value


def _optional(config: Config, name: str) -> int:
    """A whole number, 0 where there is none."""
    return _whole(config, name) if config.get(name) else 0
