"""Small language models of each architecture: what sizes and keys their GGUF files have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["GPT", "QKV", "SHAPES", "UNDEFINED", "Shape"]

GPT = (
    "bloom",
    "mpt",
    "gpt2",
    "starcoder",
    "gptneox",
    "falcon",
    "phi2",
    "nemotron",
    "orion",
    "olmo",
    "jais2",
    "codeshell",
    "dbrx",
)


@dataclass(frozen=True)
class Shape:
    """A model: its sizes and what its architecture asks for."""

    architecture: str = "llama"
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_length: int = 16
    feed: int = 96
    vocabulary: int = 100
    context: int = 64
    tied: bool = False
    rope_length: int | None = None
    has_rope_factors: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    experts: int = 0
    chosen: int = 2
    shared: int = 0  # features of the expert of all tokens
    rank: int = 0  # of rows that keys and values follow from
    query_rank: int = 0
    dense: int = 0  # layers in front that have no experts
    ahead: int = 0  # layers behind that guess further tokens
    normed: bool = False  # heads of glm4moe
    own: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    """Shapes of tensors that are others, by name; None: it has none. A name without a number is of
    all layers, one that ends with / of none."""

    @property
    def is_centered(self) -> bool:
        """Whether norms are those of LayerNorm."""
        others = ("command-r", "cohere2", "stablelm", "starcoder2", "neo-bert", *GPT)
        others += ("rwkv6", "rwkv7", "jais")
        return (self.architecture in others) != ("bert" in self.architecture.split("-"))

    @property
    def is_parallel(self) -> bool:
        """Whether attention and network read the same norm."""
        return self.architecture in ("command-r", "cohere2", "phi2", "falcon")

    @property
    def is_interleaved(self) -> bool:
        """Whether neighbours turn, not halves."""
        return self.architecture in (
            "llama", "mistral3", "granite", "smollm3", "glm4", "ernie4_5", "command-r", "cohere2",
            "arcee", "ernie4_5-moe", "granitemoe", "deepseek2",
        )  # fmt: skip

    def is_rotated(self, layer: int) -> bool:
        """Whether a layer turns queries and keys."""
        if self.architecture == "smollm3":
            return (layer + 1) % 4 > 0
        has_windows = "attention.sliding_window" in self.metadata
        is_mixed = self.architecture in ("exaone4", "cohere2") and has_windows
        return not is_mixed or self.has_window(layer)

    def has_window(self, layer: int) -> bool:
        """Whether a layer sees the last positions only."""
        if "shortconv.l_cache" in self.metadata:
            return not self.metadata["attention.head_count_kv"][layer]
        periods = {"gemma2": 2, "gemma3": 6, "olmo2": 4, "exaone4": 4, "cohere2": 4, "gpt-oss": 2}
        period = periods.get(self.architecture, 0)
        if "attention.sliding_window" not in self.metadata:
            return False
        if self.architecture == "phi3":
            return True
        return period > 0 and layer % period < period - 1


SHAPES = {
    "llama": Shape(has_rope_factors=True),
    "llama tied": Shape(
        tied=True, metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    ),
    "llama yarn": Shape(
        metadata={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 16,
            "rope.freq_base": 100.0,
        }
    ),
    "mistral": Shape(kv_heads=1, head_length=24, metadata={"rope.freq_base": 1e6}),
    "qwen2": Shape("qwen2", tied=True),
    "qwen3": Shape("qwen3", head_length=32),
    "gemma": Shape("gemma", tied=True),
    "gemma2": Shape(
        "gemma2", tied=True, layers=3,
        metadata={
            "attention.sliding_window": 3,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Shape(
        "gemma3", tied=True, layers=6,
        metadata={"attention.sliding_window": 3, "rope.freq_base": 1e6,
                  "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    ),
    "phi3": Shape("phi3", rope_length=12, metadata={"attention.sliding_window": 4}),
    "mistral3": Shape("mistral3", metadata={
        "attention.temperature_scale": 0.1, "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 4,
        "rope.scaling.yarn_log_multiplier": 1.0, "rope.freq_base": 100.0,
    }),
    "qwen2vl": Shape("qwen2vl", metadata={"rope.dimension_sections": [2, 3, 3, 0]}),
    "qwen3vl": Shape("qwen3vl", metadata={"rope.dimension_sections": [3, 3, 2, 0]}),
    "olmo2": Shape("olmo2"),
    "olmo3": Shape("olmo2", layers=4, metadata={
        "attention.sliding_window": 3, "attention.sliding_window_pattern": [True] * 3 + [False],
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16, "rope.freq_base": 100.0,
    }),
    "olmoe": Shape("olmoe", kv_heads=4, experts=6, chosen=3, feed=32),
    "exaone4": Shape("exaone4"),
    "exaone4 windows": Shape("exaone4", layers=4, metadata={"attention.sliding_window": 3}),
    "granite": Shape("granite", metadata={
        "embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.2, "logit_scale": 2.0,
    }),
    "smollm3": Shape("smollm3", layers=4),
    "glm4": Shape("glm4", rope_length=8),
    "ernie4_5": Shape("ernie4_5"),
    "command-r": Shape("command-r", tied=True, metadata={"logit_scale": 0.25}),
    "cohere2": Shape("cohere2", tied=True, layers=4, metadata={
        "logit_scale": 0.25, "attention.sliding_window": 3,
    }),
    "stablelm": Shape("stablelm", rope_length=8),
    "starcoder2": Shape("starcoder2"),
    "arcee": Shape("arcee"),
    "gpt-oss": Shape("gpt-oss", layers=3, experts=4, feed=32, metadata={
        "attention.sliding_window": 3, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16, "rope.freq_base": 100.0,
    }),
    "glm4moe": Shape("glm4moe", layers=3, dense=1, ahead=1, experts=6, chosen=3, feed=32,
        shared=64, rope_length=8, normed=True, metadata={
            "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_gating_func": 2,
        }),
    "ernie4_5-moe": Shape("ernie4_5-moe", layers=3, dense=1, experts=6, chosen=3, feed=32,
        shared=32, metadata={"interleave_moe_layer_step": 1}),
    "dots1": Shape("dots1", layers=3, kv_heads=4, dense=1, experts=6, chosen=3, feed=32, shared=64,
        metadata={"expert_weights_norm": True, "expert_weights_scale": 2.5,
                  "expert_gating_func": 2}),
    "deepseek2": Shape("deepseek2", layers=3, dense=1, experts=6, chosen=3, feed=32, shared=64,
        kv_heads=1, head_length=40, rope_length=8, rank=32, query_rank=24, metadata={
            "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_gating_func": 2,
            "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.freq_base": 100.0,
            "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 0.1,
        }),
    "deepseek2 groups": Shape("deepseek2", layers=3, dense=1, experts=12, chosen=3, feed=32,
        shared=64, kv_heads=1, head_length=40, rope_length=8, rank=32, query_rank=24, metadata={
            "expert_group_count": 4, "expert_group_used_count": 2, "expert_gating_func": 2,
            "expert_weights_norm": True,
        }),
    "deepseek2 lite": Shape("deepseek2", layers=3, dense=1, experts=6, chosen=3, feed=32,
        shared=64, kv_heads=1, head_length=40, rope_length=8, rank=32),
    "lfm2": Shape("lfm2", layers=4, tied=True, metadata={
        "attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3,
    }),
    "lfm2 experts": Shape("lfm2moe", layers=4, tied=True, dense=1, experts=6, chosen=3, feed=32,
        metadata={"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3,
                  "expert_gating_func": 2}),
    "qwen3vlmoe": Shape("qwen3vlmoe", experts=8, feed=32, metadata={
        "rope.dimension_sections": [3, 3, 2, 0],
    }),
    "granitemoe": Shape("granitemoe", experts=4, feed=32, shared=48, metadata={
        "embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.2, "logit_scale": 2.0,
    }),
    "seed_oss": Shape("seed_oss"),
    "hunyuan": Shape("hunyuan-dense", tied=True),
    "hunyuan experts": Shape("hunyuan-moe", experts=4, feed=32, shared=32),
    "mixtral": Shape(experts=4, feed=32),
    "qwen2moe": Shape("qwen2moe", experts=6, chosen=3, feed=32, shared=48),
    "qwen3moe": Shape("qwen3moe", experts=8, feed=32),
}  # fmt: skip
"""A small model of each architecture."""

_STATES = {"ssm.conv_kernel": 4, "ssm.inner_size": 32, "ssm.state_size": 8, "ssm.time_step_rank": 4,
           "ssm.group_count": 2, "full_attention_interval": 4}  # fmt: skip
_GRANITE_STATES = {
    **_STATES, "ssm.inner_size": 128, "attention.head_count_kv": [0, 0, 2], "embedding_scale": 3.0,
    "residual_scale": 0.3, "attention.scale": 0.2, "logit_scale": 2.0,
}  # fmt: skip
_QWEN_STATES = {**_STATES, "rope.dimension_sections": [1, 1, 0, 0]}
# llama.cpp has gemma3n's number of a layer's inputs, rank and sparsity in its code, and divides
# squares under a deviation by one less than their number.
QKV = ("attn_q", "attn_k", "attn_v")
_NO_ATTENTION = dict.fromkeys(
    (*QKV, "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"), None
)
_STATES_OF_128 = {**_STATES, "ssm.inner_size": 128}
_MAMBA_2 = {
    "ssm_in": (292, 64), "ssm_conv1d": (160, 4), "ssm_conv1d.bias": (160,), "ssm_dt": (4,),
    "ssm_a": (4, 1), "ssm_d": (4, 1), "ssm_norm": (2, 64), "ssm_out": (64, 128),
}  # fmt: skip
_MAMBA_1 = {
    "ssm_in": (256, 64), "ssm_conv1d": (128, 4), "ssm_conv1d.bias": (128,), "ssm_x": (20, 128),
    "ssm_dt.weight": (128, 4), "ssm_dt.bias": (128,), "ssm_a": (128, 8), "ssm_d": (128,),
    "ssm_out": (64, 128),
}  # fmt: skip
_LAYER_INPUTS = {
    "attention.sliding_window": 3, "embedding_length_per_layer_input": 8,
    "final_logit_softcapping": 30.0,
}  # fmt: skip
_GEMMA_4 = {
    **_LAYER_INPUTS, "attention.sliding_window_pattern": [True, False] * 2,
    "attention.key_length_swa": 16, "attention.value_length_swa": 16, "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4, "rope.dimension_count_swa": 16,
}  # fmt: skip
_OWN_INPUTS = {
    "per_layer_proj_norm.weight/": (8,), "inp_gate": (8, 64), "proj": (64, 8), "post_norm": (64,),
}  # fmt: skip
_OWN_LENGTHS = {
    f"{number}.{part}": dims
    for number in (0, 2)
    for part, dims in {
        "attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64),
        "attn_q_norm": (16,), "attn_k_norm": (16,),
    }.items()
}  # fmt: skip
_RWKV = {
    "wkv.head_size": 16, "attention.head_count": 0, "time_mix_extra_dim": 8,
    "time_decay_extra_dim": 12, "attention.decay_lora_rank": 12, "attention.iclr_lora_rank": 8,
    "attention.value_residual_mix_lora_rank": 4, "attention.gate_lora_rank": 16,
}  # fmt: skip
_NO_HEADS = dict.fromkeys((*QKV, "attn_output"))


def _square(width: int) -> dict[str, tuple[int, ...] | None]:
    kinds = ("receptance", "key", "value", "output")
    return {f"time_mix_{kind}": (width, width) for kind in kinds}


def _mixed(width: int) -> dict[str, tuple[int, ...] | None]:
    """What layers of RWKV have beside a state."""
    lines = ("attn_norm.bias", "attn_norm_2", "attn_norm_2.bias", "time_mix_ln", "time_mix_ln.bias")
    lines += ("output_norm.bias/", "token_embd_norm.weight/", "token_embd_norm.bias/")
    return dict.fromkeys(("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")) | {
        **dict.fromkeys(lines, (width,)), "channel_mix_lerp_k": (1, 1, width),
        "channel_mix_key": (96, width), "channel_mix_value": (width, 96),
    }  # fmt: skip


_RWKV_6 = _NO_HEADS | _square(64) | {
    "time_mix_w1": (40, 64), "time_mix_w2": (5, 64, 8), "time_mix_lerp_x": (1, 1, 64),
    "time_mix_lerp_fused": (5, 1, 1, 64), "time_mix_gate": (64, 64), "time_mix_decay": (64,),
    "time_mix_decay_w1": (12, 64), "time_mix_decay_w2": (64, 12),
}  # fmt: skip
# llama.cpp reads past heads of RWKV 7 that are shorter than 64.
_RWKV_7 = _NO_HEADS | _square(128) | {
    f"time_mix_{kind}": (128,) for kind in ("w0", "a0", "v0", "k_k", "k_a", "r_k")
} | {
    f"time_mix_{kind}{number}": (rank, 128) if number == 1 else (128, rank)
    for kind, rank in (("w", 12), ("a", 8), ("v", 4)) for number in (1, 2)
} | {"0.time_mix_v1": (8, 128), "0.time_mix_v2": (128, 8)}  # fmt: skip
UNDEFINED = {
    "jais": Shape(
        "jais", kv_heads=4, own={"output_norm.bias/": (64,)},
        metadata={"attention.max_alibi_bias": 8.0},
    ),
    "qwen3next": Shape("qwen3next", layers=4, rope_length=4, experts=6, chosen=3, feed=32,
        shared=32, metadata=_STATES),
    "nemotron_h": Shape("nemotron_h", layers=4, metadata={
        **_STATES, "attention.head_count_kv": [0, 0, 2, 0], "feed_forward_length": [0, 96, 0, 0],
        "attention.layer_norm_epsilon": 1e-5,
    }),
    "nemotron_h experts": Shape("nemotron_h_moe", layers=4, experts=6, chosen=3, feed=32, shared=48,
        metadata={
            **_STATES, "attention.head_count_kv": [0, 0, 2, 0], "expert_gating_func": 2,
            "feed_forward_length": [0, 32, 0, 0], "attention.layer_norm_epsilon": 1e-5,
            "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_shared_count": 1,
        }),
    "granitehybrid": Shape("granitehybrid", layers=3, metadata=_GRANITE_STATES),
    "granitehybrid experts": Shape("granitehybrid", layers=3, experts=4, feed=32, shared=48,
        metadata={**_GRANITE_STATES, "rope.scaling.finetuned": False}),
    "qwen35": Shape("qwen35", layers=4, rope_length=4, metadata=_QWEN_STATES),
    "qwen35moe": Shape("qwen35moe", layers=4, rope_length=4, experts=6, chosen=3, feed=32,
        shared=32, metadata=_QWEN_STATES),
    "gemma3n": Shape("gemma3n", layers=5, tied=True, metadata=_LAYER_INPUTS | {
            "altup.num_inputs": 4, "altup.active_idx": 0, "embedding_length_per_layer_input": 256,
            "activation_sparsity_scale": [1.6448533535003662 * (96 / 95) ** 0.5] * 5,
            "attention.sliding_window_pattern": [True] * 4 + [False],
        }, own={
            "per_layer_token_embd.weight/": (264, 1280), "per_layer_model_proj.weight/": (1280, 64),
            "per_layer_proj_norm.weight/": (256,), "inp_gate": (256, 64), "proj": (64, 256),
            "post_norm": (64,),
            "altup_proj.weight/": (3, 64, 64), "altup_unembd_proj.weight/": (3, 64, 64),
            "altup_router": (4, 64), "altup_router_norm": (64,), "altup_predict_coef": (16, 4),
            "altup_correct_coef": (4, 4), "altup_correct_scale": (64,), "laurel_l": (64, 64),
            "laurel_r": (64, 64), "laurel_post_norm": (64,),
        }),
    "gemma4": Shape("gemma4", layers=4, tied=True, head_length=32, metadata=_GEMMA_4 | {
            "attention.shared_kv_layers": 2,
        }, own=_OWN_INPUTS | _OWN_LENGTHS | {
            "per_layer_token_embd.weight/": (264, 32), "per_layer_model_proj.weight/": (32, 64),
            "layer_output_scale": (1,), "rope_freqs.weight/": (16,),
        }),
    "gemma4 experts": Shape("gemma4", layers=4, tied=True, head_length=32, metadata=_GEMMA_4 | {
            "attention.head_count_kv": [2, 1, 2, 1], "embedding_length_per_layer_input": 0,
            "expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 48,
        }, own=_OWN_LENGTHS | {
            "1.attn_k": (32, 64), "3.attn_k": (32, 64), "1.attn_v": None, "3.attn_v": None,
            "layer_output_scale": (1,), "rope_freqs.weight/": (16,), "ffn_gate_inp": (6, 64),
            "ffn_gate_inp.scale": (64,), "ffn_down_exps.scale": (6,), "pre_ffw_norm_2": (64,),
            "ffn_gate_up_exps": (6, 96, 64), "ffn_down_exps": (6, 64, 48),
            "post_ffw_norm_1": (64,), "post_ffw_norm_2": (64,),
        }),
    "llama4": Shape("llama4", layers=4, experts=16, chosen=2, feed=48, metadata={
            "interleave_moe_layer_step": 2, "feed_forward_length": 96,
        }, shared=48, own={
            f"{number}.{part}": None for number in (0, 2) for part in (
                "ffn_gate_inp", *(f"ffn_{each}_{kind}" for each in ("gate", "up", "down")
                                  for kind in ("exps", "shexp")))
        } | {
            f"{number}.ffn_{part}": dims for number in (0, 2)
            for part, dims in {"gate": (96, 64), "up": (96, 64), "down": (64, 96)}.items()
        }),
    "minicpm": Shape("minicpm", metadata={
        "embedding_scale": 3.0, "residual_scale": 0.3, "logit_scale": 2.0,
    }),
    "bloom": Shape("bloom", kv_heads=4, tied=True, own={
            "token_embd_norm.weight/": (64,), "token_embd_norm.bias/": (64,),
        }),
    "mpt": Shape("mpt", heads=6, kv_heads=6, width=96, tied=True, metadata={
            "attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 0.5,
        }),
    "refact": Shape("refact", kv_heads=1),
    "baichuan": Shape("baichuan", kv_heads=4, layers=40, feed=48),
    "mamba2": Shape("mamba2", layers=2, tied=True, own=_NO_ATTENTION | _MAMBA_2,
        metadata=_STATES_OF_128 | {"attention.head_count": 0, "feed_forward_length": 0}),
    "kimi-linear": Shape("kimi-linear", layers=3, dense=1, experts=6, chosen=3, feed=32, shared=32,
        kv_heads=1, head_length=40, rope_length=8, rank=32, metadata={
            "attention.head_count_kv": [0, 1, 0], "kda.head_dim": 8, "ssm.conv_kernel": 4,
            "expert_gating_func": 2, "expert_weights_scale": 1.5,
        }, own={
            f"{layer}.{part}": dims for layer in (0, 2) for part, dims in (
                dict.fromkeys(("shortconv.in_proj", "shortconv.conv", "shortconv.out_proj"))
                | dict.fromkeys(QKV, (32, 64))
                | {f"ssm_conv1d_{kind}": (32, 1, 4) for kind in "qkv"}
                | {f"ssm_{kind}_a": (8, 64) for kind in "fg"}
                | {f"ssm_{kind}_b": (32, 8) for kind in "fg"}
                | {"ssm_beta": (4, 64), "ssm_a": (4, 1), "ssm_dt.bias": (32,), "ssm_norm": (8,),
                   "attn_output": (64, 32)}
            ).items()
        } | {f"{layer}.exp_probs_b": (6,) for layer in (1, 2)}),
    "mamba": Shape("mamba", tied=True, own=_NO_ATTENTION | _MAMBA_1, metadata=_STATES_OF_128 | {
        "attention.head_count": 0, "feed_forward_length": 0,
    }),
    "falcon mamba": Shape("mamba", own=_NO_ATTENTION | _MAMBA_1, metadata=_STATES_OF_128 | {
        "attention.head_count": 0, "feed_forward_length": 0, "ssm.dt_b_c_rms": True,
    }),
    "jamba": Shape("jamba", layers=4, metadata=_STATES_OF_128 | {
        "attention.head_count_kv": [0, 2, 0, 2], "expert_count": 4, "expert_used_count": 2,
    }, own={
        f"{layer}.{part}": dims for layer in (0, 2) for part, dims in (
            dict.fromkeys(("shortconv.in_proj", "shortconv.conv", "shortconv.out_proj")) | _MAMBA_1
            | {"ssm_dt_norm": (4,), "ssm_b_norm": (8,), "ssm_c_norm": (8,)}
        ).items()
    } | {
        f"{layer}.{part}": dims for layer in (0, 2) for part, dims in {
            "ffn_gate": None, "ffn_up": None, "ffn_down": None, "ffn_gate_inp": (4, 64),
            "ffn_gate_exps": (4, 96, 64), "ffn_up_exps": (4, 96, 64), "ffn_down_exps": (4, 64, 96),
        }.items()
    }),
    "falcon-h1": Shape("falcon-h1", own={
            part: dims for part, dims in _MAMBA_2.items() if part != "ssm_norm"
        } | {"ffn_norm": None, "blk.0.ffn_norm/": (64,), "blk.1.ffn_norm/": (64,)},
        metadata=_STATES_OF_128),
    "rwkv6": Shape("rwkv6", kv_heads=0, metadata=_RWKV | {"rescale_every_n_layers": 2},
        own=_RWKV_6 | _mixed(64) | {
            "channel_mix_lerp_r": (1, 1, 64), "channel_mix_receptance": (64, 64),
            "time_mix_first": (4, 16),
        }),
    "rwkv6qwen2": Shape("rwkv6qwen2", metadata=_RWKV | {"token_shift_count": 1}, own=_RWKV_6 | {
        "time_mix_key": (32, 64), "time_mix_value": (32, 64), "time_mix_key.bias": (32,),
        "time_mix_value.bias": (32,), "time_mix_receptance.bias": (64,),
    }),
    "rwkv7": Shape("rwkv7", width=128, kv_heads=0, metadata=_RWKV | {"wkv.head_size": 64},
        own=_RWKV_7 | _mixed(128) | {
            "time_mix_g1": (16, 128), "time_mix_g2": (128, 16),
            "time_mix_lerp_fused": (6, 1, 1, 128),
        }),
    "arwkv7": Shape("arwkv7", width=128, kv_heads=0, metadata=_RWKV | {
            "wkv.head_size": 64, "token_shift_count": 1,
        }, own=_RWKV_7 | {"time_mix_lerp_fused": (5, 1, 1, 128)}),
    "mistral4": Shape("mistral4", layers=3, dense=1, experts=6, chosen=3, feed=32, shared=32,
        kv_heads=1, head_length=40, rope_length=8, rank=32, query_rank=24, metadata={
            "expert_weights_norm": True, "attention.temperature_scale": 0.1,
            "attention.temperature_length": 4, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16,
            "rope.scaling.yarn_log_multiplier": 0.1, "rope.freq_base": 100.0,
        }),
    "glm-dsa": Shape("glm-dsa", layers=3, dense=1, experts=6, chosen=3, feed=32, shared=32,
        kv_heads=1, head_length=40, rope_length=8, rank=32, query_rank=24, metadata={
            "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_gating_func": 2,
            "attention.indexer.head_count": 2, "attention.indexer.key_length": 64,
            "attention.indexer.top_k": 12,
        }, own={
            "indexer.attn_k": (64, 64), "indexer.attn_q_b": (128, 24), "indexer.proj": (2, 64),
            "indexer.k_norm": (64,), "indexer.k_norm.bias": (64,),
        }),
    "hunyuan_vl": Shape("hunyuan_vl", tied=True, metadata={
        "rope.dimension_sections": [2, 3, 3, 0],
    }),
    "paddleocr": Shape("paddleocr", metadata={"rope.dimension_sections": [2, 3, 3, 0]}),
    "mimo2": Shape("mimo2", layers=4, dense=1, experts=6, chosen=3, feed=32, rope_length=8,
        metadata={
            "attention.sliding_window": 3, "attention.head_count_kv": [1, 2, 2, 1],
            "attention.sliding_window_pattern": [False, True, True, False],
            "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "feed_forward_length": 96,
            "attention.value_scale": 0.7,
        }, own={
            f"{layer}.attn_{kind}": (16, 64) for layer in (0, 3) for kind in "kv"
        } | {
            f"{layer}.attn_sinks": (4,) for layer in (1, 2)
        } | {
            f"{layer}.exp_probs_b": (6,) for layer in (1, 2, 3)
        }),
    "bailingmoe": Shape("bailingmoe", experts=6, chosen=3, feed=32, shared=32, metadata={
        "leading_dense_block_count": 0, "expert_shared_count": 1, "expert_weights_norm": True,
        "expert_weights_scale": 1.5,
    }),
    "jais2": Shape("jais2"),
    "exaone-moe": Shape("exaone-moe", layers=4, dense=1, experts=6, chosen=3, feed=32, shared=32,
        metadata={"attention.sliding_window": 3, "expert_weights_norm": True,
                  "expert_weights_scale": 1.5, "expert_gating_func": 2}),
    "apertus": Shape("apertus", metadata={
        f"xielu.{kind}": [number, number / 2] for kind, number in
        {"alpha_p": 0.8, "alpha_n": 0.6, "beta": 0.5, "eps": -1e-6}.items()
    }, own={"ffn_gate": None}),
    "dbrx": Shape("dbrx", experts=4, feed=32, metadata={"attention.clamp_kqv": 0.5}, own={
        "ffn_norm": None, "attn_output_norm": (64,), "output_norm.bias/": None,
    }),
    "minicpm3": Shape("minicpm3", kv_heads=4, head_length=24, rope_length=8,
        metadata={"attention.kv_lora_rank": 32, "attention.q_lora_rank": 24,
                  "attention.value_length": 16},
        own=dict.fromkeys(QKV) | {
            "attn_q_a": (24, 64), "attn_q_a_norm": (24,), "attn_q_b": (96, 24),
            "attn_kv_a_mqa": (40, 64), "attn_kv_a_norm": (32,), "attn_kv_b": (128, 32),
            "attn_output": (64, 64),
        }),
    "afmoe": Shape("afmoe", layers=4, dense=1, experts=6, chosen=3, feed=32, shared=32,
        metadata={"attention.sliding_window": 3, "expert_weights_norm": True,
                  "expert_weights_scale": 1.5, "expert_gating_func": 2},
        own={"post_attention_norm": (64,), "post_ffw_norm": (64,), "attn_gate": (64, 64)}),
    "maincoder": Shape("maincoder"),
    "mellum": Shape("mellum", layers=4, experts=6, chosen=3, feed=32, metadata={
        "attention.sliding_window": 3, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16, "rope.freq_base": 100.0,
    }),
    "hy_v3": Shape("hy_v3", experts=6, chosen=3, feed=32, shared=32, metadata={
        "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_gating_func": 2,
    }, own={"blk.0.exp_probs_b/": (6,), "blk.1.exp_probs_b/": (6,)}),
    "bailingmoe2": Shape("bailingmoe2", layers=3, dense=1, experts=8, chosen=3, feed=32, shared=32,
        metadata={"expert_weights_norm": True, "expert_weights_scale": 1.5,
                  "expert_gating_func": 2, "expert_group_count": 4, "expert_group_used_count": 2}),
    "codeshell": Shape("codeshell"),
    "granite_swa": Shape("granite_swa", layers=4, metadata={
        "embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.2, "logit_scale": 2.0,
        "attention.sliding_window": 3, "attention.rope_pattern": [False, True, True, True],
        "attention.sliding_window_pattern": [False, True, True, True],
    }, own={"attn_sinks": (4,)}),
    "minimax-m2": Shape("minimax-m2", experts=6, chosen=3, feed=32, rope_length=8, metadata={
        "expert_gating_func": 2,
    }),
    "exaone": Shape("exaone"),
    "internlm2": Shape("internlm2"),
    "xverse": Shape("xverse"),
    "orion": Shape("orion"),
    "qwen": Shape("qwen", kv_heads=4, metadata={"feed_forward_length": 192}),
    "pangu": Shape("pangu-embedded"),
    "deepseek": Shape("deepseek", layers=3, dense=1, experts=6, chosen=3, feed=32, shared=64,
        metadata={"expert_weights_scale": 1.5}),
    "chatglm": Shape("chatglm", rope_length=8),
    "nemotron": Shape("nemotron", rope_length=8),
    "olmo": Shape("olmo", metadata={"attention.clamp_kqv": 0.5}),
    "phi2": Shape("phi2", kv_heads=4, rope_length=8),
    "gpt2": Shape("gpt2", kv_heads=4),
    "starcoder": Shape("starcoder", kv_heads=1),
    "gptneox": Shape("gptneox", kv_heads=4, rope_length=8, metadata={
        "use_parallel_residual": True,
    }),
    "gptneox in turn": Shape("gptneox", kv_heads=4, metadata={"use_parallel_residual": False}),
    "falcon": Shape("falcon", kv_heads=1),
    "bitnet": Shape("bitnet", tied=True),
}  # fmt: skip
"""Models that are compared with llama.cpp alone."""
