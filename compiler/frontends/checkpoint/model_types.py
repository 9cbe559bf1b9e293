"""The models of folders that can be compiled: what each does differently from others, what its
config.json may leave out, and what it may not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ingot.compiler.frontends.gguf.architectures import ARCHITECTURES, Architecture

__all__ = ["DEFAULTS", "MODEL_TYPES", "STATES_ALONE", "WITHOUT"]

_LLAMA = Architecture()
_QWEN_HYBRID = replace(ARCHITECTURES["qwen3next"], network_norm="ffn_norm", is_less_one=True)
MODEL_TYPES = {
    "llama": _LLAMA,
    "mistral": replace(_LLAMA, window_period=-1),
    "mixtral": replace(_LLAMA, window_period=-1),
    "qwen2": ARCHITECTURES["qwen2"],
    "qwen2_moe": ARCHITECTURES["qwen2moe"],
    "qwen3": ARCHITECTURES["qwen3"],
    "qwen3_moe": ARCHITECTURES["qwen3moe"],
    "gemma": replace(ARCHITECTURES["gemma"], is_less_one=True),
    "gemma2": replace(ARCHITECTURES["gemma2"], is_less_one=True),
    "gemma3_text": replace(ARCHITECTURES["gemma3"], is_less_one=True),
    "gemma3n_text": ARCHITECTURES["gemma3n"],
    "gemma4_text": ARCHITECTURES["gemma4"],
    "llama4_text": replace(ARCHITECTURES["llama4"], chunk=0, has_experts_in_columns=True),
    "phi3": ARCHITECTURES["phi3"],
    "ministral": replace(_LLAMA, window_period=-1),
    "ministral3": _LLAMA,
    "qwen2_vl_text": ARCHITECTURES["qwen2"],
    "qwen2_5_vl_text": ARCHITECTURES["qwen2"],
    "qwen3_vl_text": ARCHITECTURES["qwen3"],
    "olmo2": ARCHITECTURES["olmo2"],
    "olmo3": ARCHITECTURES["olmo2"],
    "olmoe": ARCHITECTURES["olmoe"],
    "exaone4": ARCHITECTURES["exaone4"],
    "granite": replace(_LLAMA, divides_logits=True),
    "smollm3": _LLAMA,
    "glm4": ARCHITECTURES["glm4"],
    "ernie4_5": ARCHITECTURES["ernie4_5"],
    "seed_oss": _LLAMA,
    "cohere": ARCHITECTURES["command-r"],
    "cohere2": ARCHITECTURES["cohere2"],
    "stablelm": ARCHITECTURES["stablelm"],
    "starcoder2": replace(ARCHITECTURES["starcoder2"], window_period=-1),
    "arcee": replace(ARCHITECTURES["arcee"], is_interleaved=False),
    "glm4_moe": replace(ARCHITECTURES["glm4moe"], network_norm="ffn_norm"),
    "ernie4_5_moe": ARCHITECTURES["ernie4_5-moe"],
    "dots1": ARCHITECTURES["dots1"],
    "lfm2": ARCHITECTURES["lfm2"],
    "lfm2_moe": ARCHITECTURES["lfm2moe"],
    "deepseek_v2": replace(_LLAMA, best_of_groups=1),
    **dict.fromkeys(
        ("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa"),
        replace(_LLAMA, gating="sigmoid"),
    ),
    "qwen3_vl_moe_text": ARCHITECTURES["qwen3vlmoe"],
    "granitemoe": replace(_LLAMA, divides_logits=True),
    "nemotron_h": ARCHITECTURES["nemotron_h"],
    "granitemoehybrid": replace(_LLAMA, divides_logits=True, recurrence="mamba"),
    "granitemoeshared": replace(_LLAMA, divides_logits=True),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _QWEN_HYBRID),
    "minimax_m2": ARCHITECTURES["minimax-m2"],
    "glm": ARCHITECTURES["chatglm"],
    "helium": replace(_LLAMA, is_interleaved=True),
    "nemotron": replace(ARCHITECTURES["nemotron"], is_less_one=True),
    "olmo": replace(ARCHITECTURES["olmo"], is_interleaved=False),
    "phi": ARCHITECTURES["phi2"],
    "gpt2": replace(ARCHITECTURES["gpt2"], has_products_in_columns=True),
    "gpt_neo": replace(ARCHITECTURES["gpt2"], is_unscaled=True),
    "gpt_bigcode": replace(ARCHITECTURES["starcoder"], joins_heads=True),
    "gpt_neox": replace(ARCHITECTURES["gptneox"], joins_heads=True),
    "gptj": replace(ARCHITECTURES["phi2"], is_interleaved=True),
    "falcon": replace(ARCHITECTURES["falcon"], joins_heads=True),
    "biogpt": replace(ARCHITECTURES["gpt2"], first_position=2),
    "bert": ARCHITECTURES["bert"],
    **dict.fromkeys(
        ("roberta", "xlm-roberta", "camembert"), replace(ARCHITECTURES["bert"], first_position=2)
    ),
    "modernbert": replace(ARCHITECTURES["modern-bert"], local_rope_base=10000.0),
    "openai-gpt": replace(ARCHITECTURES["gpt2"], norms_sums=True, has_products_in_columns=True),
    "opt": replace(ARCHITECTURES["gpt2"], first_position=2),
    "bitnet": ARCHITECTURES["bitnet"],
    "bloom": replace(ARCHITECTURES["bloom"], joins_heads=True),
    "mpt": replace(ARCHITECTURES["mpt"], activation="gelu_erf"),
    "mamba2": ARCHITECTURES["mamba2"],
    **dict.fromkeys(("mamba", "falcon_mamba"), ARCHITECTURES["mamba"]),
    "jamba": ARCHITECTURES["jamba"],
    "kimi_linear": ARCHITECTURES["kimi-linear"],
    "falcon_h1": ARCHITECTURES["falcon-h1"],
    "bamba": Architecture(recurrence="mamba"),
    "cwm": replace(_LLAMA, window_period=-1),
    "exaone_moe": replace(_LLAMA, gating="sigmoid", window_period=4, rotates_windows_only=True),
    "flex_olmo": replace(ARCHITECTURES["olmo2"], normalizes_shares=False),
    "jais2": ARCHITECTURES["nemotron"],
    "solar_open": replace(_LLAMA, gating="sigmoid"),
    "internlm3": _LLAMA,
    "youtu": _LLAMA,
    **dict.fromkeys(("exaone", "hyperclovax", "iquestcoder"), _LLAMA),
    "granite_swa": replace(_LLAMA, divides_logits=True, window_period=-1),
    "granitemoe_swa": replace(_LLAMA, divides_logits=True, window_period=-1),
    "mellum": ARCHITECTURES["mellum"],
    "apertus": ARCHITECTURES["apertus"],
    "phimoe": Architecture(is_centered=True, gating="mixer", normalizes_shares=False),
    "minicpm3": replace(ARCHITECTURES["minicpm3"], given={}),
    "afmoe": replace(ARCHITECTURES["afmoe"], scales_embedding=False, normalizes_shares=True),
    **dict.fromkeys(("hy_v3", "sarvam_moe"), replace(_LLAMA, gating="sigmoid")),
    "cohere2_moe": replace(ARCHITECTURES["cohere2"], gating="sigmoid"),
    "nanochat": Architecture(
        is_gated=False,
        has_bare_norms=True,
        has_unit_heads=True,
        normalizes_embedding=True,
        turns_backwards=True,
    ),
    "vaultgemma": replace(ARCHITECTURES["gemma2"], is_less_one=True),
    "hunyuan_v1_dense": ARCHITECTURES["hunyuan-dense"],
    "hunyuan_v1_moe": ARCHITECTURES["hunyuan-moe"],
    **dict.fromkeys(("t5", "mt5", "umt5"), ARCHITECTURES["t5"]),
    "gpt_oss": replace(ARCHITECTURES["gpt-oss"], network_norm="ffn_norm", has_paired_gates=True),
}
"""Models that can be compiled, by their `model_type`; of those that see images too, their
`text_config` has it."""

STATES_ALONE = ("mamba", "mamba2", "falcon_mamba")
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "rope_theta": 1e6,
    },
    "gemma4_text": {"altup_num_inputs": 1},
    "olmo": {"layer_norm_eps": 1e-5},
    **{name: {"rotary_pct": 0.5} for name in ("glm", "nemotron", "phi")},
    "gpt_neox": {"rotary_pct": 0.25},
    **{name: {"rotary_pct": 0.25} for name in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")},
    **{name: {"layer_norm_eps": 1e-5} for name in ("opt", "biogpt")},
    "openai-gpt": {"activation_function": "gelu_new"},  # which it calls "gelu"
    "falcon": {"multi_query": True, "max_position_embeddings": 2048},
    "gpt_bigcode": {"multi_query": True},
    "bloom": {"max_position_embeddings": 2048, "activation_function": "gelu_new"},
    "mpt": {"activation_function": "gelu"},
    **{name: {"n_positions": 512} for name in ("t5", "umt5")},
    "mt5": {"n_positions": 512, "scale_decoder_outputs": False},
    **{
        name: {"max_position_embeddings": 1 << 20, "num_attention_heads": 0}
        for name in STATES_ALONE
    },
}
"""What models have whose config.json leaves it out."""

WITHOUT: dict[str, tuple[str, ...]] = {
    "stablelm": ("use_parallel_residual", "qk_layernorm"),
    "bloom": ("apply_residual_connection_post_layernorm",),
    "falcon_h1": ("attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"),
    "gpt2": ("scale_attn_by_inverse_layer_idx",),
}
"""What a model may have that cannot be compiled."""
