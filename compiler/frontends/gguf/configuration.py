"""What the metadata of a GGUF file says of a language model: sizes, and what its architecture does
differently from others. All that is wrong or not supported is listed in one CompileError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError
from ingot.hal.gguf import Gguf

__all__ = ["ARCHITECTURES", "Architecture", "Configuration", "read_configuration"]

_GREATEST = 1 << 24  # of a size in the metadata
_LARGEST = 1e30  # of a number


@dataclass(frozen=True)
class Architecture:
    """How layers of a family differ beyond the tensors that they have."""

    is_interleaved: bool = False  # rotary embedding turns neighbours, not halves
    scales_embedding: bool = False  # by the root of the width
    activation: str = "silu"  # or gelu, the one with tanh
    window_period: int = 0  # of so many layers the last attends to all positions; 0: all do
    local_rope_base: float | None = None  # of layers with a window
    large_layers: int = 0  # a model of so many layers scales scores by width / heads
    normalizes_shares: bool = True  # those of the experts that a token chose


ARCHITECTURES = {
    "llama": Architecture(is_interleaved=True),
    "qwen2": Architecture(),
    "qwen2moe": Architecture(normalizes_shares=False),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(),
    "gemma": Architecture(scales_embedding=True, activation="gelu"),
    "gemma2": Architecture(
        scales_embedding=True, activation="gelu", window_period=2, large_layers=46
    ),
    "gemma3": Architecture(
        scales_embedding=True,
        activation="gelu",
        window_period=6,
        local_rope_base=10000.0,
        large_layers=62,
    ),
    "phi3": Architecture(window_period=-1),
}
"""Architectures that can be compiled, by their names in `general.architecture`. Mistral and
Mixtral have files of `llama`. A period of -1: all layers have a window, if the file has one."""


@dataclass(frozen=True)
class Configuration:
    """The sizes of a model; lengths are counts of elements."""

    name: str
    architecture: Architecture
    layers: int
    width: int
    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    context: int
    epsilon: float
    rope_base: float
    rope_length: int  # features of a head that are rotated
    rope_divisor: float  # of all positions
    rope_factor: float  # of sines and cosines
    original_context: int
    window: int  # positions that a layer with a window sees; 0: all
    attention_cap: float  # of scores; 0: none
    logit_cap: float
    experts: int  # 0: layers have one network each
    chosen_experts: int  # by each token
    expert_length: int  # features between the products of an expert
    shared_length: int  # of what all tokens pass beside their experts

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        is_large = self.layers == self.architecture.large_layers
        return float((self.width // self.heads if is_large else self.key_length) ** -0.5)

    def has_window(self, layer: int) -> bool:
        """Whether a layer attends to the last positions only."""
        period = self.architecture.window_period
        return self.window > 0 and period != 0 and (period < 0 or layer % period != period - 1)


def read_configuration(file: Gguf) -> Configuration:
    """The configuration of a file. CompileError: it lacks something, or asks for what cannot be
    compiled."""
    reader = _Keys(file.metadata)
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise CompileError(
            f"GGUF file '{file.path}': the architecture is {_shown(name)}; those that can be "
            f"compiled are: {', '.join(ARCHITECTURES)} (mistral and mixtral have files of llama)"
        )
    reader.prefix = name
    configuration = _read(reader, name)
    if configuration.layers > len(file.tensors):
        reader.problems.append(
            f"the key '{name}.block_count' is {configuration.layers}, but there are only "
            f"{len(file.tensors)} tensors"
        )
    reader.check_unsupported()
    if reader.problems:
        raise CompileError(
            "\n  ".join([f"GGUF file '{file.path}' cannot be compiled:", *reader.problems])
        )
    return configuration


def _read(keys: _Keys, name: str) -> Configuration:
    width, heads = keys.size("embedding_length"), keys.size("attention.head_count")
    if width % heads and f"{name}.attention.key_length" not in keys.metadata:
        keys.problems.append(f"{heads} heads do not divide the width of {width}")
    kv_heads = keys.size("attention.head_count_kv", heads)
    if heads % kv_heads:
        keys.problems.append(f"{kv_heads} heads of keys do not divide {heads} heads of queries")
    key_length = keys.size("attention.key_length", max(width // heads, 1))
    context = keys.size("context_length")
    linear = keys.text("rope.scaling.type") == "linear"
    experts, chosen = keys.size("expert_count", 0), keys.size("expert_used_count", 0)
    if chosen > experts or (experts and not chosen):
        keys.problems.append(f"each token chooses {chosen} of {experts} experts")
    length = keys.size("feed_forward_length", 0)
    return Configuration(
        name=name,
        architecture=ARCHITECTURES[name],
        layers=keys.size("block_count"),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        key_length=key_length,
        value_length=keys.size("attention.value_length", key_length),
        context=context,
        epsilon=keys.number("attention.layer_norm_rms_epsilon"),
        rope_base=keys.number("rope.freq_base", 10000.0),
        rope_length=keys.size("rope.dimension_count", key_length),
        rope_divisor=keys.number("rope.scaling.factor", 1.0) if linear else 1.0,
        rope_factor=keys.number("rope.scaling.attn_factor", 1.0),
        original_context=keys.size("rope.scaling.original_context_length", context),
        window=keys.size("attention.sliding_window", 0),
        attention_cap=keys.number("attn_logit_softcapping", 0.0),
        logit_cap=keys.number("final_logit_softcapping", 0.0),
        experts=experts,
        chosen_experts=chosen,
        expert_length=keys.size("expert_feed_forward_length", length),
        shared_length=keys.size("expert_shared_feed_forward_length", length),
    )


class _Keys:
    """Reads keys below the architecture's name, and notes what is wrong with them."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata, self.prefix = metadata, ""
        self.problems: list[str] = []

    def size(self, key: str, default: int | None = None) -> int:
        """A count; 1 with a note where it is missing or wrong."""
        value = self.metadata.get(f"{self.prefix}.{key}", default)
        least = 1 if default is None else min(default, 1)
        if type(value) is int and least <= value <= _GREATEST:
            return value
        what = "is missing" if value is None else f"is {_shown(value)}, expected a positive integer"
        self.problems.append(f"the key '{self.prefix}.{key}' {what}")
        return 1

    def number(self, key: str, default: float | None = None) -> float:
        value = self.metadata.get(f"{self.prefix}.{key}", default)
        if isinstance(value, (int, float)) and (0 < value < _LARGEST or value == default):
            return float(value)
        what = "is missing" if value is None else f"is {_shown(value)}, expected a positive number"
        self.problems.append(f"the key '{self.prefix}.{key}' {what}")
        return 1.0

    def text(self, key: str) -> str:
        """A word; none where it is missing, with a note where it is wrong."""
        value = self.metadata.get(f"{self.prefix}.{key}", "none")
        if isinstance(value, str):
            return value
        self.problems.append(f"the key '{self.prefix}.{key}' is {_shown(value)}, expected a text")
        return "none"

    def check_unsupported(self) -> None:
        """Note what there is nothing for."""
        kind = self.text("rope.scaling.type")
        if kind not in ("none", "linear", "longrope"):
            self.problems.append(f"positions are scaled as {kind!r}, expected linear or longrope")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]}..."
