"""What the metadata of a GGUF file says of a language model: sizes, and what its architecture does
differently from others. All that is wrong or not supported is listed in one CompileError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ingot.compiler.frontends.gguf.architectures import ARCHITECTURES, Architecture
from ingot.compiler.frontends.gguf.halves_configuration import Decoder, Relative, read_halves
from ingot.compiler.frontends.gguf.keys import Keys, shown
from ingot.compiler.frontends.gguf.layer_kinds import (
    TAPS,
    feeds_of_layers,
    has_states_only,
    heads_of_keys,
    kinds_of_layers,
    numbers_of_layers,
)
from ingot.compiler.frontends.gguf.pooling import Head, read_pooling
from ingot.compiler.frontends.gguf.rope import Rope, read_rope
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError
from ingot.hal.gguf import Gguf

__all__ = [
    "SLOPED",
    "Configuration",
    "Curve",
    "Groups",
    "Heads",
    "Recurrence",
    "read_configuration",
    "read_keys",
]

SLOPED = 2
"""Features that keys have beside their own where scores have slopes."""
_MOST_EXPERTS = 128  # of Llama 4; with so many, and only then, heads are not normalized
_MOST_HEADS = 1 << 12  # each with slopes of its own
_CHOOSING = ("attn_k.weight", "attn_q_b.weight", "k_norm.weight", "k_norm.bias", "proj.weight")
_MOST_TAPS = 64  # of a convolution, each with code of its own


@dataclass(frozen=True)
class Latent:
    """Features of heads that follow from the rows of a cache (`latent.py`)."""

    key_length: int
    value_length: int


@dataclass(frozen=True)
class Heads:
    """The heads of keys and values of a layer, and their features."""

    count: int
    key_length: int
    value_length: int


@dataclass(frozen=True)
class Groups:
    """Experts that lie in groups: a token chooses among those of the `used` groups in which the sum
    of the `best` greatest shares, with their biases, is greatest."""

    count: int
    used: int
    best: int


@dataclass(frozen=True)
class Curve:
    """What the activation xielu is of. Above 0: softplus(rise) x^2 + slope x; else
    (exp(min(x, end)) - 1 - x) (slope + softplus(fall)) + slope x."""

    rise: float
    fall: float
    slope: float
    end: float


@dataclass(frozen=True)
class Recurrence:
    """Layers with a state that goes from token to token (`recurrent.py`)."""

    is_delta: bool  # by the gated delta rule, else Mamba 2
    takes_turns: bool  # heads of values, with those of keys
    key_heads: int
    value_heads: int
    key_length: int
    value_length: int
    rank: int = 0  # of what steps are made of, where each feature of keys decays by itself
    normalizes: bool = False  # what steps, B and C are made of
    epsilon: float = 0.0
    has_own_decays: bool = False  # of features of keys, under the delta rule

    shifts: bool = False  # no convolution: layers read each token beside the one before it

    @property
    def rows(self) -> int:
        """Features under the convolution."""
        if self.rank or self.shifts:
            return self.value_heads * self.value_length
        return 2 * self.key_heads * self.key_length + self.value_heads * self.value_length

    @property
    def state(self) -> tuple[int, int, int]:
        """The shape of a layer's state."""
        return self.value_heads, self.key_length, self.value_length


@dataclass(frozen=True)
class Configuration:
    """The sizes of a model; lengths are counts of elements."""

    name: str
    architecture: Architecture
    layers: int
    width: int
    heads: int  # of queries
    attention: tuple[Heads, ...]  # of each layer
    sources: tuple[int, ...]  # the layers to whose keys and values layers attend
    context: int
    epsilon: float
    rope: Rope
    local_rope: Rope  # of layers with windows
    unit_heads: bool  # queries and keys that were rotated are normalized
    chunk: int  # of which positions layers that are rotated see their own; 0: all
    chosen_keys: int  # that layers see of a text, as heads for that choose them; 0: all
    value_scale: float  # of what attention gives
    window: int  # positions that a layer with a window sees; 0: all
    is_parallel: bool
    attention_cap: float  # of scores; 0: none
    projection_limit: float  # the greatest magnitude of queries, keys and values; 0: none
    logit_cap: float
    experts: int  # 0: layers have one network each
    chosen_experts: int  # by each token
    expert_length: int  # features between the products of an expert
    gating: str
    groups: Groups | None
    normalizes_shares: bool
    share_scale: float  # of the shares of experts
    latent: Latent | None
    ahead: int  # layers behind the last one, which guess further tokens, and are not used
    scale: float  # of scores
    windows: tuple[bool, ...]  # whether a layer attends to the last positions only
    rotated: tuple[bool, ...]  # whether queries and keys of a layer turn with their positions
    convolved: tuple[bool, ...]  # whether a layer is a convolution over `window` positions
    networks: tuple[bool, ...]  # whether a layer is a network alone
    recurrence: Recurrence | None  # what follows these convolutions
    embedding_scale: float
    residual_scale: float  # of what is added to a token's numbers
    logit_scale: float
    temperature_scale: float  # queries grow with the logarithm of their position; 0: they do not
    temperature_length: int  # in how many positions by a step
    thresholds: tuple[float, ...]  # of gates, in deviations above their mean; without any: none
    curves: tuple[Curve, ...]  # of each layer's xielu, where these are no tensors
    mixer_noise: float  # how far scores may be below the best one to count in its share
    layer_input: int  # features that a token brings for each layer; 0: none
    slopes: tuple[float, ...]  # of heads, by which scores grow with the place of a key; or none
    streams: int  # versions of a token's numbers that go through the layers
    swiglu_alpha: float  # of swiglu_oai: what gates are multiplied by under the logistic
    swiglu_limit: float  # and the greatest magnitude in front of it
    has_feed_rows: bool  # networks read each token beside the one before it, too
    halving_period: int  # behind each of so many layers numbers are halved; 0: they are not
    relative: Relative | None
    decoder: Decoder | None  # what reads the results of this model
    pooling: str  # how tokens become a vector: mean, first or last, or not: tokens; none: logits
    head: Head | None  # of models that rank texts
    is_causal: bool  # tokens see none behind them
    sketched: tuple[int, ...] = ()  # the layers that are built; without any all

    @property
    def built(self) -> Sequence[int]:
        """The layers that are built."""
        return self.sketched or range(self.layers)

    def cached(self, layer: int) -> dict[str, tuple[int, int]]:
        """What the cache holds of a layer: heads and their features by a name of it."""
        if self.networks[layer] or self.sources[layer] != layer:
            return {}
        heads, rows = self.attention[layer], dict[str, tuple[int, int]]()
        if self.convolved[layer]:
            rows = {"rows": (1, self.recurrence.rows if self.recurrence else self.width)}
            if self.has_feed_rows:
                rows["feed_rows"] = rows["rows"]
            if not self.architecture.has_both:
                return rows
        length = heads.key_length + (SLOPED if self.has_sloped_keys else 0)
        return {"k": (heads.count, length), "v": (heads.count, heads.value_length), **rows}

    @property
    def unused(self) -> Sequence[str]:
        """Tensors that files may have without use: of layers that attend to what others have put,
        of logits where there are none, and of a choice that leaves nothing out."""
        shared = [layer for layer, source in enumerate(self.sources) if layer != source]
        parts = ("attn_k", "attn_v", "attn_k_norm")
        names = ["output.weight", "output.bias"] if self.pooling else []
        if self.recurrence and self.recurrence.shifts:  # the first layer has no value before it
            names += [f"blk.0.time_mix_v{number}.weight" for number in range(3)]
        if self.chosen_keys:  # by these, from among more than a text may have
            names += [
                f"blk.{layer}.indexer.{part}" for layer in range(self.layers) for part in _CHOOSING
            ]
        return [*names, *(f"blk.{layer}.{part}.weight" for layer in shared for part in parts)]

    @property
    def longest(self) -> int:
        """Positions of texts at most, where longer ones are seen in part only; 0: there is none."""
        return min((each for each in (self.chunk, self.chosen_keys) if each), default=0)

    @property
    def has_sloped_keys(self) -> bool:
        """Whether keys have features of slopes; where tokens see both sides, scores have them."""
        return bool(self.slopes) and not self.pooling

    @property
    def recurrent(self) -> Sequence[int]:
        """The layers with a state."""
        return [n for n, each in enumerate(self.convolved) if each and self.recurrence]

    def has_window(self, layer: int) -> bool:
        """Whether a layer attends to the last positions only."""
        return self.windows[layer]

    def is_local(self, layer: int, part: str) -> bool:
        """Whether a cache of it holds the last positions only."""
        return part.endswith("rows") or self.windows[layer]


def read_configuration(file: Gguf) -> Configuration:
    """The configuration of a file. CompileError: it lacks something, or asks for what cannot be
    compiled."""
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise CompileError(
            f"GGUF file '{file.path}': the architecture is {shown(name)}; those that can be "
            f"compiled are: {', '.join(ARCHITECTURES)} (mistral and mixtral have files of llama)"
        )
    keys, architecture = Keys(file.metadata, name), ARCHITECTURES[name]
    if architecture.has_halves and "enc.blk.0.ffn_gate.weight" in file.tensors:
        architecture = replace(architecture, is_gated=True, activation="gelu")
    return read_keys(keys, f"GGUF file '{file.path}'", architecture, len(file.tensors))


def read_keys(
    keys: Keys,
    what: str,
    architecture: Architecture,
    tensors: int,
    layer_types: Sequence[bool] | None = None,
    convolved: Sequence[bool] | None = None,
    rotated: Sequence[bool] | None = None,
    networks: Sequence[bool] | None = None,
    counts_ahead: bool = True,
) -> Configuration:
    """The configuration that keys tell, of the model `what` with so many tensors. Where that does
    not follow from keys or the architecture, `layer_types` says which layers have windows,
    `convolved`, which are convolutions, `rotated`, which are rotated, and `networks`, which are
    networks alone. `counts_ahead`: the layers count those that guess further tokens."""
    ahead, layers = keys.size("nextn_predict_layers", 0), keys.size("block_count")
    if ahead > layers - counts_ahead:
        keys.problems.append(
            f"the key '{keys.name_of('nextn_predict_layers')}' is {ahead}, but there are only "
            f"{layers} layers"
        )
        ahead = 0
    layers -= ahead if counts_ahead else 0
    if layers > tensors:
        keys.problems.append(
            f"the key '{keys.name_of('block_count')}' is {layers}, but there are only {tensors} "
            "tensors"
        )
        layers = 1
    lists = (layer_types, convolved, rotated, networks)
    kinds = kinds_of_layers(keys, architecture, layers, *lists)
    configuration = _read(keys, architecture, ahead, *kinds)
    if keys.problems:
        raise CompileError(
            "\n  ".join([f"{what} cannot be compiled:", *dict.fromkeys(keys.problems)])
        )
    return configuration


def _slopes(keys: Keys, architecture: Architecture, heads: int, layers: int) -> tuple[float, ...]:
    """Powers of two, for heads that are no power of two with those between (ALiBi)."""
    if architecture.sloped_layers not in (-1, layers):
        return ()
    greatest = keys.number("attention.max_alibi_bias", 8.0)
    whole = 1 << (heads - 1).bit_length()
    powers = 2.0 ** (-greatest / whole * np.arange(1, whole + 1))
    if whole != heads:
        powers = np.concatenate([powers[1::2], powers[::2]])[:heads]
    return tuple(powers.tolist())


_GATINGS = {1: "softmax", 2: "sigmoid"}


def _gating(keys: Keys, default: str) -> str:
    """How scores of experts become shares."""
    key = "expert_gating_func"
    given = keys.value(key, None)
    found = default if given is None else _GATINGS.get(given) if type(given) is int else None
    if found is None:
        keys.problems.append(f"the key '{keys.name_of(key)}' is {shown(given)}, expected 1 or 2")
    return found or default


def _groups(keys: Keys, architecture: Architecture, experts: int, chosen: int) -> Groups | None:
    """The groups of experts; None where all are in one."""
    count, used = keys.size("expert_group_count", 1), keys.size("expert_group_used_count", 1)
    if count == 1 or not experts:
        return None
    size, best = experts // count, architecture.best_of_groups
    if experts % count or used > count or not best <= size or chosen > used * size:
        keys.problems.append(
            f"each token chooses {chosen} of {experts} experts, out of {used} of {count} groups"
        )
    return Groups(count, used, best)


def _taps(keys: Keys, architecture: Architecture, is_needed: bool) -> int:
    """The tokens that a convolution sees; 0: there is none."""
    if architecture.is_shifted:
        return 2
    key = next((each for each in TAPS if keys.has(each)), TAPS[0])
    taps = keys.size(key, 0)
    if taps > _MOST_TAPS or (is_needed and not taps):
        keys.problems.append(
            f"the key '{keys.name_of(key)}' is {taps}, expected a positive integer up to "
            f"{_MOST_TAPS}"
        )
    return taps


def _recurrence(keys: Keys, kind: str) -> Recurrence | None:
    """What follows convolutions, if something does."""
    if not kind:
        return None
    if kind.startswith("rwkv"):
        width, length = keys.size("embedding_length"), keys.size("wkv.head_size")
        heads = max(width // length, 1)
        kept = keys.size("attention.head_count_kv", 0) or heads
        if heads * length != width or heads % kept:
            keys.problems.append(f"{width} features are no heads of {length} in {kept} groups")
        return Recurrence(kind == "rwkv 7", False, kept, heads, length, length, shifts=True)
    if kind == "kimi":
        heads, length = keys.size("attention.head_count"), keys.size("kda.head_dim")
        heads = keys.size("kda.head_count", heads)
        return Recurrence(True, False, heads, heads, length, length, has_own_decays=True)
    inner, heads = keys.size("ssm.inner_size"), keys.size("ssm.time_step_rank")
    if kind == "mamba 1":
        length, normalizes = keys.size("ssm.state_size"), keys.flag("ssm.dt_b_c_rms", False)
        epsilon = keys.number("ssm.norm_epsilon", keys.number("attention.layer_norm_rms_epsilon"))
        return Recurrence(False, False, 1, inner, length, 1, heads, normalizes, epsilon)
    groups, length = keys.size("ssm.group_count", 1), keys.size("ssm.state_size")
    if inner % heads or heads % groups:
        keys.problems.append(
            f"{inner} features of {heads} heads in {groups} groups do not divide each other"
        )
    lengths = (length, max(inner // heads, 1))
    return Recurrence(kind != "mamba", kind == "delta in turns", groups, heads, *lengths)


def _experts(keys: Keys) -> tuple[int, int]:
    """How many experts there are, and how many a token chooses."""
    experts, chosen = keys.size("expert_count", 0), keys.size("expert_used_count", 0)
    if experts and not 0 < chosen <= experts:
        keys.problems.append(f"each token chooses {chosen} of {experts} experts")
    return experts, chosen


def _latent(keys: Keys, key_length: int, value_length: int, turned: int) -> Latent:
    """The features of heads that follow from rows, of which so many are rotated."""
    key = keys.size("attention.key_length_mla", key_length)
    if key <= turned:
        keys.problems.append(f"{turned} of {key} features of a head are rotated")
    return Latent(key, keys.size("attention.value_length_mla", value_length))


@dataclass(frozen=True)
class _Attention:
    """What is read of attention."""

    heads: int
    of_layers: tuple[Heads, ...]
    latent: Latent | None
    rope: Rope
    local_rope: Rope
    scale: float


def _attention(
    keys: Keys, architecture: Architecture, windows: Sequence[bool], width: int, context: int
) -> _Attention:
    layers, has_none = len(windows), has_states_only(keys, architecture)
    heads = 1 if has_none else keys.size("attention.head_count")
    if heads > _MOST_HEADS:
        keys.problems.append(
            f"the key '{keys.name_of('attention.head_count')}' is {heads}, expected at most "
            f"{_MOST_HEADS}"
        )
        heads = 1
    if width % heads and not keys.has("attention.key_length"):
        keys.problems.append(f"{heads} heads do not divide the width of {width}")
    rank = keys.size("attention.kv_lora_rank", 0)
    key_length = keys.size("attention.key_length", max(width // heads, 1))
    value_length = keys.size(
        "attention.value_length", max(width // heads, 1) if rank else key_length
    )
    turned = keys.size("rope.dimension_count", key_length)
    rope = read_rope(keys, turned, context, architecture.yarn_log_unit)
    local_length = keys.size("attention.key_length_swa", key_length)
    local_value = value_length if keys.has("attention.value_length") else local_length
    local_lengths = (local_length, keys.size("attention.value_length_swa", local_value))
    local_rope = _local_rope(keys, architecture, rope, turned + local_length - key_length)
    scored = width // heads if layers == architecture.large_layers else key_length
    power = -1.0 if architecture.scales_by_length else -0.5
    scale = keys.number("query_pre_attn_scalar", scored) ** power
    latent = _latent(keys, key_length, value_length, turned) if rank else None
    if latent is not None:
        key_length, value_length = rank + turned, rank
        local_lengths = (key_length, value_length)
        scale = latent.key_length**-0.5 * rope.magnitude**2
    scale = keys.number("attention.scale", 1.0 if architecture.is_unscaled else scale)
    counts = (
        [1] * layers
        if rank or has_none
        else [heads if n < 0 else n for n in heads_of_keys(keys, layers)]
    )
    for count in {*counts} - {0}:
        if heads % count:
            keys.problems.append(f"{count} heads of keys do not divide {heads} heads of queries")
    lengths = {False: (key_length, value_length), True: local_lengths}
    of_layers = tuple(
        Heads(count, *lengths[is_local]) for count, is_local in zip(counts, windows, strict=True)
    )
    return _Attention(heads, of_layers, latent, rope, local_rope, scale)


def _local_rope(keys: Keys, architecture: Architecture, rope: Rope, turned: int) -> Rope:
    """How layers with windows rotate, so many features where nothing else is said."""
    key = "rope.freq_base_swa"
    if not (architecture.local_rope_base or architecture.has_plain_windows or keys.has(key)):
        return rope
    base = keys.number(key, architecture.local_rope_base or rope.base)
    turned = keys.size("rope.dimension_count_swa", max(turned, 2))
    if base <= 1 or turned % 2:
        keys.problems.append(f"layers with windows rotate {turned} features by the base {base}")
        return rope
    return Rope(base, turned, is_plain=True)


def _sources(keys: Keys, windows: Sequence[bool]) -> tuple[int, ...]:
    """The layers to whose keys and values layers attend: the last ones to those of the last layer
    in front of them that sees as much."""
    key, layers = "attention.shared_kv_layers", len(windows)
    own = layers - keys.size(key, 0)
    last = {windows[layer]: layer for layer in range(max(own, 0))}
    if any(windows[layer] not in last for layer in range(max(own, 0), layers)):
        keys.problems.append(
            f"the key '{keys.name_of(key)}' is {layers - own}, but no layer in front of these has "
            "keys and values for them"
        )
        return tuple(range(layers))
    return tuple(layer if layer < own else last[windows[layer]] for layer in range(layers))


def _curves(keys: Keys, architecture: Architecture, layers: int) -> tuple[Curve, ...]:
    """The numbers of xielu, if the metadata has them."""
    kinds = ("alpha_p", "alpha_n", "beta", "eps")
    if architecture.activation != "xielu" or not keys.has("xielu.alpha_p"):
        return ()
    lists = [numbers_of_layers(keys, f"xielu.{kind}", layers) for kind in kinds]
    return tuple(Curve(*each) for each in zip(*lists, strict=False))


def _factors(
    keys: Keys, architecture: Architecture, layers: int, width: int, original: int
) -> dict[str, Any]:
    """By what numbers are multiplied on their way, and limits of them."""
    embedding_scale = width**0.5 if architecture.scales_embedding else 1.0
    is_needed, given = architecture.needs_scales, architecture.given
    default = None if is_needed else 1.0
    depth = keys.number("depth_scale", given.get("depth_scale", 0.0))
    base = keys.number("base_width", given.get("base_width", 0.0))
    logit_scale = keys.number("logit_scale", width / base if base else default)
    embedding_scale = given.get("embedding_scale", embedding_scale)
    return {
        "embedding_scale": keys.number("embedding_scale", None if is_needed else embedding_scale),
        "residual_scale": keys.number("residual_scale", depth / layers**0.5 if depth else default),
        "logit_scale": 1 / logit_scale if architecture.divides_logits else logit_scale,
        "temperature_scale": keys.number(
            "attention.temperature_scale", architecture.temperature_scale
        ),
        "temperature_length": keys.size(
            "attention.temperature_length",
            architecture.temperature_length or original,
        ),
        "halving_period": keys.size("rescale_every_n_layers", 0),
        "value_scale": keys.number("attention.value_scale", 1.0),
        "swiglu_alpha": keys.number("swiglu_alpha", 1.702),
        "swiglu_limit": keys.number("swiglu_limit", 7.0),
    }


def _bounds(keys: Keys, architecture: Architecture) -> dict[str, Any]:
    """How many positions layers see of a text."""
    chunk = keys.size("attention.chunk_size", architecture.chunk)
    return {"chunk": chunk, "chosen_keys": keys.size("attention.indexer.top_k", 0)}


def _unit_heads(keys: Keys, architecture: Architecture, experts: int) -> bool:
    is_usual = architecture.has_unit_heads and experts != _MOST_EXPERTS
    return keys.flag("attention.unit_heads", is_usual)


def _inputs(keys: Keys) -> dict[str, Any]:
    """The features that a token brings for each layer, and its versions, which these correct."""
    key = "altup.num_inputs"
    length, streams = keys.size("embedding_length_per_layer_input", 0), keys.size(key, 1)
    if streams > 1 and not length:
        keys.problems.append(
            f"the key '{keys.name_of(key)}' is {streams}, but tokens bring nothing for layers: "
            f"'{keys.name_of('embedding_length_per_layer_input')}' is 0"
        )
    return {"layer_input": length, "streams": streams}


def _read(
    keys: Keys,
    architecture: Architecture,
    ahead: int,
    windows: tuple[bool, ...],
    rotated: tuple[bool, ...],
    convolved: tuple[bool, ...],
    networks: tuple[bool, ...],
) -> Configuration:
    width, context = keys.size("embedding_length"), keys.size("context_length")
    attention = _attention(keys, architecture, windows, width, context)
    experts, chosen = _experts(keys)
    feed = max(feeds_of_layers(keys, len(windows)), default=0)
    epsilon = "layer_norm_epsilon" if architecture.is_centered else "layer_norm_rms_epsilon"
    taps = _taps(keys, architecture, any(convolved))
    return Configuration(
        name=keys.prefix,
        architecture=architecture,
        layers=len(windows),
        width=width,
        heads=attention.heads,
        attention=attention.of_layers,
        sources=_sources(keys, windows),
        latent=attention.latent,
        context=context,
        epsilon=keys.number(f"attention.{epsilon}"),
        window=taps or keys.size("attention.sliding_window", 0),
        is_parallel=keys.flag("use_parallel_residual", architecture.is_parallel),
        attention_cap=keys.number("attn_logit_softcapping", 0.0),
        projection_limit=keys.number("attention.clamp_kqv", 0.0),
        logit_cap=keys.number("final_logit_softcapping", 0.0),
        experts=experts,
        mixer_noise=keys.number("mixer_noise", 0.0),
        chosen_experts=chosen,
        expert_length=keys.size("expert_feed_forward_length", feed),
        gating=_gating(keys, architecture.gating),
        groups=_groups(keys, architecture, experts, chosen),
        normalizes_shares=keys.flag("expert_weights_norm", architecture.normalizes_shares),
        share_scale=keys.number("expert_weights_scale", 1.0),
        ahead=ahead,
        scale=attention.scale,
        windows=windows,
        rotated=rotated,
        convolved=convolved,
        networks=networks,
        recurrence=_recurrence(keys, architecture.recurrence),
        **_factors(keys, architecture, len(windows), width, attention.rope.original),
        thresholds=numbers_of_layers(keys, "activation_sparsity_scale", len(windows)),
        curves=_curves(keys, architecture, len(windows)),
        **_inputs(keys),
        **read_halves(keys, architecture, len(windows)),
        has_feed_rows=architecture.is_shifted and keys.size("token_shift_count", 2) == 2,
        **read_pooling(keys, architecture),
        is_causal=keys.flag("attention.causal", not architecture.is_encoder),
        slopes=_slopes(keys, architecture, attention.heads, len(windows)),
        rope=attention.rope,
        local_rope=attention.local_rope,
        **_bounds(keys, architecture),
        unit_heads=_unit_heads(keys, architecture, experts),
    )
