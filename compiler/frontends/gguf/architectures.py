"""What architectures of language models do differently from others, beyond the tensors and keys
that their files have: a row of a table for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from ingot.compiler.ir.dataclass import dataclass

__all__ = ["ARCHITECTURES", "Architecture"]


@dataclass(frozen=True)
class Architecture:
    """How layers of a family differ beyond the tensors that they have."""

    # Which layers there are.
    has_single_parts: bool = False  # a layer is attention, has a state, or is a network
    has_both: bool = False  # a layer has a state beside attention
    recurrence: str = ""  # of other layers: delta (in turns), kimi, mamba, mamba 1, rwkv 6 or 7
    is_parallel: bool = False  # both read the tokens, by one norm or two, and are added together
    has_halves: bool = False  # an encoder, and where it is none alone a decoder that reads it
    is_encoder: bool = False  # tokens see all of their text, and become a vector together
    ranked_pooling: str = "first"  # of encoders that rank texts, how tokens become a vector
    head_activation: str = "tanh"  # of what makes a score of that

    # Tokens and logits.
    first_position: int = 0  # row of the table of positions that the first token has
    scales_embedding: bool = False  # by the root of the width
    normalizes_embedding: bool = False  # without a weight
    needs_scales: bool = False  # of embeddings, of what is added, and of logits
    divides_logits: bool = False  # by their scale
    given: Mapping[str, float] = field(default_factory=dict)  # numbers that files leave out

    # Norms.
    is_centered: bool = False  # norms take the mean away first (LayerNorm)
    has_bare_norms: bool = False  # norms have no weights
    is_less_one: bool = False  # weights of norms are
    has_norms_before: bool = True  # attention and networks; else behind them only
    norms_sums: bool = False  # norms stand behind sums, of attention or networks and what they read
    starts_normed: bool = False  # the first layer has no norm in front
    network_norm: str = "ffn_norm"  # the tensor of the norm in front of networks

    # Heads.
    joins_heads: bool = False  # joined projections: of each head of keys its queries, key, value
    gates_attention: bool = False  # rows of queries have those of a gate beside them, head by head
    has_bare_values: bool = False  # values are normalized; where they have no weight they are keys
    has_unit_heads: bool = False  # queries and keys that were rotated are normalized

    # Rotations.
    is_interleaved: bool = False  # neighbours turn together, not halves
    turns_halves: bool = False  # those of latents; else neighbours do
    turns_backwards: bool = False  # by angles below 0
    turns_first: bool = False  # before heads are normalized
    still_period: int = 0  # of so many layers the last is not rotated; 0: all are
    tells_rotation: bool = False  # rope.scaling.finetuned says whether layers are rotated
    rotates_windows_only: bool = False  # where some layers have windows
    has_plain_windows: bool = False  # layers with windows rotate by the base alone
    local_rope_base: float | None = None  # of layers with a window
    yarn_log_unit: float = 1.0  # of yarn_log_multiplier

    # Scores.
    window_period: int = 0  # of so many layers the last attends to all positions; 0: all do
    looks_far_first: bool = False  # of so many layers the first does instead
    chunk: int = 0  # of which positions layers that are rotated see their own
    scales_by_length: bool = False  # scores are divided by the length of heads, not its root
    is_unscaled: bool = False  # scores are products of queries and keys as they are
    large_layers: int = 0  # a model of so many layers scales scores by width / heads
    warms_still: bool = False  # queries that are not rotated grow with their position
    temperature_scale: float = 0.0  # by how much
    temperature_length: int = 0  # in how many positions by a step; 0: in the original ones
    sloped_layers: int = 0  # a model of so many has slopes (ALiBi) and no rotations; -1: of any
    scales_slopes: bool = False  # as scores are

    # Networks and experts.
    is_gated: bool = True  # networks have a gate
    activation: str = "silu"  # or one of those in `feed_forward.py`
    gating: str = "softmax"  # or sigmoid, which makes shares of scores of experts
    best_of_groups: int = 2  # experts by which a group of them is chosen
    normalizes_shares: bool = True  # those of the experts that a token chose
    weighs_inputs: bool = False  # shares multiply what experts read, not what they give

    # How weights lie.
    has_paired_gates: bool = False  # rows of gate and up of joined experts take turns
    has_products_in_columns: bool = False  # weights of products lie as [k, length]
    has_experts_in_columns: bool = False  # joined weights of experts lie as [experts, k, length]

    @property
    def is_shifted(self) -> bool:
        """Whether layers are those of RWKV, which read each token beside the one before it."""
        return self.recurrence.startswith("rwkv")


_GRANITE = Architecture(is_interleaved=True, divides_logits=True, tells_rotation=True)
_QWEN_HYBRID = Architecture(
    recurrence="delta", gates_attention=True, network_norm="post_attention_norm"
)
_NEMOTRON_HYBRID = Architecture(
    recurrence="mamba", has_single_parts=True, is_gated=False, activation="relu2", still_period=1,
    gating="sigmoid",
)  # fmt: skip
_GEMMA_OF_LAYERS = Architecture(
    scales_embedding=True, activation="gelu", is_unscaled=True, has_bare_values=True
)
_LLAMA_4 = Architecture(
    is_interleaved=True, gating="sigmoid", normalizes_shares=False, weighs_inputs=True,
    has_unit_heads=True, still_period=4, chunk=8192, warms_still=True,
    temperature_scale=0.1, temperature_length=8192,
)  # fmt: skip
_BERT = Architecture(
    is_encoder=True, is_centered=True, norms_sums=True, is_gated=False, activation="gelu_erf",
    still_period=1,
)  # fmt: skip
_T5 = Architecture(
    has_halves=True, is_unscaled=True, is_gated=False, activation="relu", still_period=1
)
_GPT = Architecture(is_centered=True, is_gated=False, activation="gelu")
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
    "gemma3n": replace(_GEMMA_OF_LAYERS, window_period=5, local_rope_base=10000.0),
    "gemma4": replace(_GEMMA_OF_LAYERS, local_rope_base=10000.0),
    "llama4": _LLAMA_4,
    "phi3": Architecture(window_period=-1),
    "mistral3": Architecture(is_interleaved=True),
    "qwen2vl": Architecture(),
    "qwen3vl": Architecture(),
    "olmo2": Architecture(has_norms_before=False, window_period=4, has_plain_windows=True),
    "olmoe": Architecture(normalizes_shares=False),
    "exaone4": Architecture(has_norms_before=False, window_period=4, rotates_windows_only=True),
    "granite": _GRANITE,
    "smollm3": Architecture(is_interleaved=True, still_period=4),
    "glm4": Architecture(is_interleaved=True),
    "ernie4_5": Architecture(is_interleaved=True),
    "command-r": Architecture(is_interleaved=True, is_centered=True, is_parallel=True),
    "cohere2": Architecture(
        is_interleaved=True,
        is_centered=True,
        is_parallel=True,
        window_period=4,
        rotates_windows_only=True,
    ),
    "stablelm": Architecture(is_centered=True),
    "starcoder2": Architecture(is_centered=True, is_gated=False, activation="gelu"),
    "arcee": Architecture(is_interleaved=True, is_gated=False, activation="relu2"),
    "glm4moe": Architecture(gating="sigmoid", network_norm="post_attention_norm"),
    "ernie4_5-moe": Architecture(is_interleaved=True),
    "dots1": Architecture(normalizes_shares=False, gating="sigmoid"),
    "qwen3vlmoe": Architecture(),
    "granitemoe": _GRANITE,
    **dict.fromkeys(("nemotron_h", "nemotron_h_moe"), _NEMOTRON_HYBRID),
    "granitehybrid": replace(_GRANITE, recurrence="mamba"),
    "lfm2": Architecture(),
    "lfm2moe": Architecture(gating="sigmoid"),
    **dict.fromkeys(
        ("deepseek2", "mistral4"), Architecture(normalizes_shares=False, yarn_log_unit=0.1)
    ),
    **dict.fromkeys(
        ("glm-dsa", "deepseek32"),
        Architecture(normalizes_shares=False, yarn_log_unit=0.1, gating="sigmoid"),
    ),
    "bailingmoe": Architecture(is_interleaved=True, normalizes_shares=False),
    "seed_oss": Architecture(network_norm="post_attention_norm"),
    "qwen3next": _QWEN_HYBRID,
    "qwen35": replace(_QWEN_HYBRID, recurrence="delta in turns"),
    "qwen35moe": replace(_QWEN_HYBRID, recurrence="delta in turns"),
    "mimo2": Architecture(gating="sigmoid"),
    "minimax-m2": Architecture(gating="sigmoid"),
    **dict.fromkeys(("exaone", "paddleocr"), Architecture()),
    "internlm2": Architecture(is_interleaved=True),
    "xverse": Architecture(is_interleaved=True),
    "orion": Architecture(is_centered=True),
    "qwen": Architecture(),
    "pangu-embedded": Architecture(),
    "deepseek": Architecture(is_interleaved=True, normalizes_shares=False),
    "chatglm": Architecture(is_interleaved=True),
    "jais2": replace(_GPT, activation="relu2"),
    "exaone-moe": Architecture(
        gating="sigmoid", normalizes_shares=False, window_period=4, rotates_windows_only=True
    ),
    "apertus": Architecture(is_gated=False, activation="xielu"),
    "dbrx": Architecture(is_centered=True, network_norm="attn_output_norm"),
    "minicpm3": Architecture(
        turns_halves=True,
        divides_logits=True,
        given={"embedding_scale": 12.0, "depth_scale": 1.4, "base_width": 256.0},
    ),
    "afmoe": Architecture(
        scales_embedding=True,
        gating="sigmoid",
        normalizes_shares=False,
        window_period=4,
        rotates_windows_only=True,
    ),
    "maincoder": Architecture(is_interleaved=True, turns_first=True),
    "mellum": Architecture(has_plain_windows=True, window_period=4),
    "hy_v3": Architecture(gating="sigmoid", normalizes_shares=False),
    "granite_swa": replace(_GRANITE, tells_rotation=False),
    "bailingmoe2": Architecture(gating="sigmoid", normalizes_shares=False),
    "codeshell": _GPT,
    "nemotron": Architecture(is_centered=True, is_gated=False, activation="relu2"),
    "olmo": Architecture(is_interleaved=True, is_centered=True, has_bare_norms=True),
    "phi2": replace(_GPT, is_parallel=True),
    "gpt2": replace(_GPT, still_period=1),
    "starcoder": replace(_GPT, still_period=1),
    "gptneox": replace(_GPT, is_parallel=True),
    "falcon": replace(_GPT, is_parallel=True, network_norm="attn_norm"),
    "minicpm": replace(_GRANITE, tells_rotation=False, needs_scales=True),
    "bloom": replace(_GPT, still_period=1, sloped_layers=-1),
    "mpt": replace(_GPT, still_period=1, sloped_layers=-1),
    "jais": Architecture(is_centered=True, still_period=1, sloped_layers=-1, scales_by_length=True),
    "refact": Architecture(sloped_layers=-1),
    "baichuan": Architecture(is_interleaved=True, sloped_layers=40),
    "kimi-linear": Architecture(recurrence="kimi", still_period=1, gating="sigmoid"),
    "mamba": Architecture(recurrence="mamba 1", has_single_parts=True),
    "jamba": Architecture(recurrence="mamba 1", still_period=1, normalizes_shares=False),
    "mamba2": Architecture(recurrence="mamba", has_single_parts=True),
    "rwkv6": Architecture(recurrence="rwkv 6", is_centered=True, network_norm="attn_norm_2"),
    "rwkv6qwen2": Architecture(recurrence="rwkv 6"),
    "rwkv7": Architecture(recurrence="rwkv 7", is_centered=True, network_norm="attn_norm_2"),
    "arwkv7": Architecture(recurrence="rwkv 7"),
    "falcon-h1": Architecture(recurrence="mamba", has_both=True),
    "bitnet": Architecture(),
    **dict.fromkeys(("hunyuan-dense", "hunyuan_vl"), Architecture(turns_first=True)),
    "hunyuan-moe": Architecture(turns_first=True),
    "t5": _T5,
    "t5encoder": replace(_T5, is_encoder=True),
    "bert": _BERT,
    "nomic-bert": replace(_BERT, is_gated=True, activation="silu", still_period=0),
    "nomic-bert-moe": replace(_BERT, normalizes_shares=False, still_period=0),
    "jina-bert-v2": replace(_BERT, is_gated=True, sloped_layers=-1),
    "jina-bert-v3": replace(_BERT, still_period=0),
    "modern-bert": Architecture(
        is_encoder=True,
        is_centered=True,
        activation="gelu_erf",
        starts_normed=True,
        window_period=3,
        looks_far_first=True,
        ranked_pooling="mean",
        head_activation="gelu_erf",
    ),
    "neo-bert": Architecture(is_encoder=True, is_interleaved=True),
    "eurobert": Architecture(is_encoder=True),
    "llama-embed": Architecture(is_encoder=True, is_interleaved=True),
    "gemma-embedding": Architecture(
        is_encoder=True,
        scales_embedding=True,
        activation="gelu",
        window_period=6,
        local_rope_base=10000.0,
    ),
    "gpt-oss": Architecture(
        window_period=2, activation="swiglu_oai", network_norm="post_attention_norm"
    ),
}
"""Architectures that can be compiled, by their names in `general.architecture`. Mistral and
Mixtral have files of `llama`, OLMo 3 of `olmo2`. A period of -1: all layers have a window, if the
file has one."""
