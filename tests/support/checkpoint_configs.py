"""Configurations of small transformers, by name: what they have in common and what is their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
_MOE = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
_SHARED = {"shared_expert_intermediate_size": 48}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
_ROUTED = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
}
_CONVOLVED = {
    "num_hidden_layers": 4,
    "layer_types": ["conv", "full_attention", "conv", "full_attention"],
}
_LATENT = {"kv_lora_rank": 32, "q_lora_rank": None, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16}
_LATENT |= {"v_head_dim": 12, "num_key_value_heads": 4, "head_dim": 8}
_INDEXED = {"q_lora_rank": 24, "index_topk": 12, "index_n_heads": 2, "index_head_dim": 16}
_INDEXED |= {"n_group": 1, "topk_group": 1}
_DEEP = {**_YARN, "rope_theta": 100.0, "mscale": 1.0, "mscale_all_dim": 1.0}
_ALPHA = {"rope_type": "dynamic", "alpha": 10.0, "rope_theta": 100.0, "factor": 1.0}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3 |= {"original_max_position_embeddings": 16, "rope_theta": 100.0}
_LONG = {"rope_type": "longrope", "original_max_position_embeddings": 4, "rope_theta": 100.0}
_LONG |= {f"{each}_factor": (1 + np.arange(8) / 5).tolist() for each in ("short", "long")}
_MINISTRAL = {**_YARN, "rope_theta": 100.0, "original_max_position_embeddings": 4}
_MINISTRAL |= {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
_VISION = {
    "depth": 1, "num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16,
    "num_heads": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    "out_hidden_size": 64, "head_dim": 8, "deepstack_visual_indexes": [0],
    "num_position_embeddings": 4,
}  # fmt: skip
_SECTIONS = {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [2, 3, 3]}
_GEMMA = {"head_dim": 16, "sliding_window": 3, "query_pre_attn_scalar": 24}
_LINEAR = {
    "num_hidden_layers": 4, "head_dim": 16, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 12, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}  # fmt: skip
_MAMBA = {
    "num_hidden_layers": 3, "layer_types": ["linear_attention"] * 2 + ["full_attention"],
    "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_expand": 1,
    "mamba_d_head": 16, "shared_intermediate_size": 48, "num_experts_per_tok": 2,
    "logits_scaling": 2.0, "residual_multiplier": 0.3, "attention_multiplier": 0.2,
}  # fmt: skip
_NEMOTRON = {
    "layers_block_type": ["linear_attention", "mlp", "full_attention", "moe", "linear_attention"],
    "num_hidden_layers": 5, "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2,
    "ssm_state_size": 8, "head_dim": 16, "n_routed_experts": 4, "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 48, "routed_scaling_factor": 1.5, "pad_token_id": 0,
}  # fmt: skip
_OF_LAYERS = {
    "head_dim": 16, "sliding_window": 3, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 90, "final_logit_softcapping": 30.0,
}  # fmt: skip
_GEMMA_4 = {
    "vocab_size_per_layer_input": 100,
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
    "global_head_dim": 32,
}  # fmt: skip
_WHOLE = {"has_groups": False}
_GPT = {**_WHOLE, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 96}
_FALCON = {**_WHOLE, "ffn_hidden_size": 96, "bias": False, "alibi": False}
MODELS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", {"rope_scaling": _LLAMA3}),
    "llama yarn": (
        "Llama",
        {"rope_scaling": {**_YARN, "rope_theta": 100.0}, "attention_bias": True},
    ),
    "mistral": ("Mistral", {"sliding_window": 4, "head_dim": 24}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2 windows": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": ("Gemma2", _GEMMA),
    "gemma3": ("Gemma3Text", {**_GEMMA, "num_hidden_layers": 6}),
    "phi3": ("Phi3", {"sliding_window": 4}),
    "phi3 long": ("Phi3", {"rope_scaling": _LONG, "original_max_position_embeddings": 4}),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "qwen2 experts": ("Qwen2Moe", {**_MOE, **_SHARED, "norm_topk_prob": False}),
    "mistral layers": (
        "Ministral",
        {
            "sliding_window": 4,
            "head_dim": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "ministral3": ("Ministral3", {"rope_parameters": _MINISTRAL, "head_dim": 16}),
    "qwen2.5 of images": ("Qwen2_5_VL", {"vision_config": _VISION, "rope_parameters": _SECTIONS}),
    "qwen3 of images": ("Qwen3VL", {"vision_config": _VISION, "head_dim": 16}),
    "gemma3 of images": ("Gemma3", {"vision_config": _VISION, **_GEMMA, "num_hidden_layers": 6}),
    "mistral of images": ("Mistral3", {"vision_config": _VISION, "head_dim": 16}),
    "olmo2": ("Olmo2", {}),
    "olmo3": (
        "Olmo3",
        {
            "num_hidden_layers": 4,
            "sliding_window": 3,
            "rope_scaling": {**_YARN, "rope_theta": 99.0},
        },
    ),
    "olmoe": ("Olmoe", {**_MOE, "intermediate_size": 32}),
    "exaone4": ("Exaone4", {"num_hidden_layers": 4, "sliding_window": 3}),
    "exaone4 whole": ("Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.3,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.0,
        },
    ),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "no_rope_layer_interval": 2}),
    "glm4": ("Glm4", {"head_dim": 16, "attention_bias": True}),
    "ernie4.5": ("Ernie4_5", {"head_dim": 16, "use_bias": True}),
    "seed": ("SeedOss", {"head_dim": 24, "attention_bias": True, "attention_out_bias": True}),
    "cohere": ("Cohere", {"logit_scale": 0.25}),
    "cohere norms": ("Cohere", {"logit_scale": 0.25, "use_qk_norm": True}),
    "cohere2": ("Cohere2", {"num_hidden_layers": 4, "sliding_window": 3, "head_dim": 16}),
    "stablelm": ("StableLm", {"use_qkv_bias": True}),
    "starcoder2": ("Starcoder2", {"sliding_window": 4}),
    "arcee": ("Arcee", {}),
    "glm4 experts": ("Glm4Moe", {**_ROUTED, "use_qk_norm": True, "attention_bias": True}),
    "dots": ("Dots1", {**_ROUTED, "head_dim": 16}),
    "lfm2": ("Lfm2", {**_CONVOLVED, "conv_bias": True}),
    "lfm2 experts": (
        "Lfm2Moe",
        {
            **_CONVOLVED,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "num_dense_layers": 1,
        },
    ),
    "deepseek v2": ("DeepseekV2", {**_ROUTED, **_LATENT, "norm_topk_prob": False}),
    "deepseek v2 groups": (
        "DeepseekV2",
        {
            **_ROUTED,
            **_LATENT,
            "n_routed_experts": 12,
            "n_group": 4,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
            "norm_topk_prob": False,
        },
    ),
    "deepseek v3 groups": (
        "DeepseekV3",
        {**_ROUTED, **_LATENT, "n_routed_experts": 12, "n_group": 4, "topk_group": 2},
    ),
    "deepseek v3": (
        "DeepseekV3",
        {
            **_ROUTED,
            **_LATENT,
            "n_group": 1,
            "topk_group": 1,
            "q_lora_rank": 24,
            "rope_parameters": _DEEP,
        },
    ),
    "glm4 of latents": ("Glm4MoeLite", {**_ROUTED, **_LATENT, "q_lora_rank": 24}),
    "ernie4.5 experts": (
        "Ernie4_5_Moe",
        {
            "moe_num_experts": 6,
            "moe_k": 3,
            "moe_intermediate_size": 32,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
        },
    ),
    "qwen3 experts of images": (
        "Qwen3VLMoe",
        {**_MOE, "moe_intermediate_size": 48, "vision_config": _VISION, "head_dim": 16},
    ),
    "granite experts": (
        "GraniteMoeShared",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 48,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.3,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.0,
        },
    ),
    "minimax": (
        "MiniMaxM2",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "rotary_dim": 8},
    ),
    "qwen3 next": ("Qwen3Next", {**_MOE, **_SHARED, **_LINEAR}),
    "qwen3.5": ("Qwen3_5Text", _LINEAR),
    "qwen3.5 experts": ("Qwen3_5MoeText", {**_MOE, **_SHARED, **_LINEAR}),
    "granite of states": ("GraniteMoeHybrid", {**_MAMBA, "num_local_experts": 0}),
    "granite experts of states": (
        "GraniteMoeHybrid",
        {**_MAMBA, "num_local_experts": 4, "mamba_n_groups": 1, "position_embedding_type": "rope"},
    ),
    "nemotron of states": ("NemotronH", _NEMOTRON),
    "glm": ("Glm", {"head_dim": 16, "attention_bias": True}),
    "helium": ("Helium", {"head_dim": 16}),
    "nemotron": ("Nemotron", {"head_dim": 16}),
    "olmo": ("Olmo", {"clip_qkv": 0.5}),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "gpt2": ("GPT2", _GPT),
    "gpt neo": (
        "GPTNeo",
        {
            **_WHOLE,
            "num_layers": 2,
            "num_heads": 4,
            "window_size": 3,
            "attention_types": [[["global", "local"], 1]],
        },
    ),
    "starcoder": ("GPTBigCode", {**_GPT, "multi_query": True}),
    "neox": ("GPTNeoX", {**_WHOLE, "rotary_pct": 0.5}),
    "gptj": ("GPTJ", {**_GPT, "rotary_dim": 8}),
    "falcon": ("Falcon", {"multi_query": True, "parallel_attn": True, **_FALCON}),
    "falcon of slopes": (
        "Falcon",
        {"multi_query": False, "parallel_attn": False, **_FALCON, "alibi": True, "bias": True},
    ),
    "falcon of groups": (
        "Falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2, **_FALCON},
    ),
    "deepseek v32": ("DeepseekV32", {**_ROUTED, **_LATENT, **_INDEXED}),
    "glm dsa": ("GlmMoeDsa", {**_ROUTED, **_LATENT, **_INDEXED}),
    "biogpt": ("BioGpt", {**_WHOLE}),
    "openai gpt": (
        "OpenAIGPT",
        {**_WHOLE, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64},
    ),
    "opt": ("OPT", {**_WHOLE, "ffn_dim": 96, "word_embed_proj_dim": 64, "pad_token_id": 1}),
    "bitnet": ("BitNet", {}),
    "hunyuan": ("HunYuanDenseV1", {"head_dim": 16, "rope_parameters": _ALPHA}),
    "hunyuan experts": (
        "HunYuanMoEV1",
        {"head_dim": 16, "num_experts": 4, "moe_topk": 2, "rope_parameters": _ALPHA},
    ),
    "gpt-oss": (
        "GptOss",
        {
            "num_hidden_layers": 3,
            "sliding_window": 3,
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": {**_YARN, "rope_theta": 100.0, "truncate": False},
        },
    ),
    "gemma3n": (
        "Gemma3nText",
        {
            **_OF_LAYERS,
            "num_hidden_layers": 5,
            "num_kv_shared_layers": 2,
            "laurel_rank": 8,
            "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
            "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0, 0.0],
        },
    ),
    "gemma4": (
        "Gemma4Text",
        {**_OF_LAYERS, **_GEMMA_4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    ),
    "gemma4 experts": (
        "Gemma4Text",
        {
            **_OF_LAYERS,
            **_GEMMA_4,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 3,
            "moe_intermediate_size": 48,
        },
    ),
    "bloom": ("Bloom", {**_WHOLE, "n_layer": 2, "n_head": 4}),
    "mpt": (
        "Mpt",
        {
            **_WHOLE,
            "d_model": 48,
            "n_layers": 2,
            "n_heads": 6,
            "max_seq_len": 64,
            "attn_config": {"clip_qkv": 0.5},
        },
    ),
    "mamba2": (
        "Mamba2",
        {"num_heads": 16, "head_dim": 8, "state_size": 8, "n_groups": 2, **_WHOLE},
    ),
    "mamba": ("Mamba", {"state_size": 8, **_WHOLE}),
    "falcon mamba": ("FalconMamba", {"state_size": 8, "mixer_rms_eps": 1e-3, **_WHOLE}),
    "jamba": (
        "Jamba",
        {
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 0,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_d_state": 8,
            "pad_token_id": 0,
        },
    ),
    "kimi linear": (
        "KimiLinear",
        {
            **_ROUTED,
            **_LATENT,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "linear_head_dim": 8,
            "linear_num_heads": 4,
            "n_shared_experts": 1,
            "num_local_experts": 6,
            "pad_token_id": 0,
        },
    ),
    "falcon h1": (
        "FalconH1",
        {
            "head_dim": 16,
            "mamba_d_ssm": 48,
            "mamba_n_heads": 6,
            "mamba_d_head": 8,
            "mamba_n_groups": 2,
            "mamba_d_state": 8,
            "lm_head_multiplier": 0.5,
            "embedding_multiplier": 3.0,
            "mlp_multipliers": [0.9, 0.3],
            "key_multiplier": 0.4,
            "attention_out_multiplier": 0.7,
            "attention_in_multiplier": 0.8,
            "ssm_multipliers": [0.3, 0.25, 0.2, 0.5, 0.4],
            "ssm_in_multiplier": 1.2,
            "ssm_out_multiplier": 0.3,
        },
    ),
    "bamba": (
        "Bamba",
        {
            "attn_layer_indices": [1],
            "mamba_n_heads": 16,
            "mamba_d_head": 8,
            "mamba_d_state": 8,
            "mamba_n_groups": 2,
        },
    ),
    "cwm": (
        "Cwm",
        {
            "head_dim": 16,
            "sliding_window": 3,
            "rope_parameters": _LLAMA3,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ),
    "exaone experts": (
        "ExaoneMoe",
        {
            "head_dim": 16,
            "num_hidden_layers": 4,
            "sliding_window": 3,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
        },
    ),
    "flex olmo": (
        "FlexOlmo",
        {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48},
    ),
    "jais2": ("Jais2", {"head_dim": 16}),
    "solar": ("SolarOpen", {**_ROUTED, "head_dim": 16}),
    "internlm3": ("InternLM3", {"head_dim": 16}),
    "exaone": ("Exaone", {"head_dim": 16}),
    "hyperclova": (
        "HyperCLOVAX",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.3,
            "attention_multiplier": 0.2,
            "logits_scaling": 0.5,
        },
    ),
    "iquest": ("IQuestCoder", {"head_dim": 16}),
    "granite windows": (
        "GraniteSWA",
        {"num_hidden_layers": 4, "sliding_window": 3, "layer_rope_theta": [0, 1e4, 1e4, 1e4]},
    ),
    "granite experts windows": (
        "GraniteMoeSWA",
        {"sliding_window": 3, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "mellum": (
        "Mellum",
        {
            **_MOE,
            "head_dim": 16,
            "sliding_window": 3,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {**_YARN, "rope_theta": 100.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
    ),
    "apertus": ("Apertus", {"rope_parameters": _LLAMA3}),
    "phi experts": (
        "Phimoe",
        {
            "num_local_experts": 6,
            "lm_head_bias": True,
            "attention_bias": True,
            "router_jitter_noise": 0.2,
            "rope_parameters": {**_LONG, "short_mscale": 1.2, "long_mscale": 1.2},
        },
    ),
    "minicpm3": (
        "MiniCPM3",
        {**_LATENT, "q_lora_rank": 24, "v_head_dim": 12, "dim_model_base": 16, "scale_depth": 0.5},
    ),
    "afmoe": (
        "Afmoe",
        {
            **_MOE,
            "head_dim": 16,
            "num_hidden_layers": 4,
            "sliding_window": 3,
            "num_dense_layers": 1,
            "mup_enabled": True,
            "route_scale": 1.5,
            "num_shared_experts": 1,
        },
    ),
    "hy3": (
        "HYV3",
        {
            **_MOE,
            "head_dim": 16,
            "mlp_layer_types": ["dense", "sparse"],
            "num_local_experts": 6,
        },
    ),
    "sarvam": ("SarvamMoE", {**_ROUTED, "head_dim": 16}),
    "cohere2 experts": (
        "Cohere2Moe",
        {
            "num_hidden_layers": 4,
            "sliding_window": 3,
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "num_shared_experts": 1,
            "expert_selection_fn": "sigmoid",
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "prefix_dense_intermediate_size": 80,
            "logit_scale": 0.25,
        },
    ),
    "nanochat": ("NanoChat", {}),
    "youtu": ("Youtu", {**_LATENT, "q_lora_rank": 24}),
    "vaultgemma": ("VaultGemma", _GEMMA),
    "llama4": (
        "Llama4Text",
        {
            "num_hidden_layers": 4,
            "head_dim": 16,
            "intermediate_size_mlp": 80,
            "floor_scale": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "interleave_moe_layer_step": 2,
        },
    ),
    "qwen3 experts": ("Qwen3Moe", {**_MOE, "head_dim": 16, "norm_topk_prob": True}),
}
"""The class of each and its options beyond `SIZES`."""

_NO_GROUPS = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
_OF_BERT = {**_NO_GROUPS, "hidden_act": "gelu", "type_vocab_size": 2}
ENCODERS: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "bert": ("Bert", _OF_BERT, "cls_token"),
    "xlm-roberta": ("XLMRoberta", {**_OF_BERT, "pad_token_id": 1}, "mean_tokens"),
    "modernbert": (
        "ModernBert",
        {**_NO_GROUPS, "num_hidden_layers": 4, "local_attention": 4, "pad_token_id": 0,
         "cls_token_id": 0, "sep_token_id": 1},
        "mean_tokens",
    ),
    "qwen3": ("Qwen3", {**SIZES, "head_dim": 16}, "lasttoken"),
    "gemma3 of both sides": (
        "Gemma3Text",
        {**SIZES, **_GEMMA, "num_hidden_layers": 6, "sliding_window": 4,
         "use_bidirectional_attention": True},
        "mean_tokens",
    ),
}  # fmt: skip
"""Models that make vectors of texts, and by which mode."""

RANKED: dict[str, tuple[str, Mapping[str, Any], str]] = {
    **{
        f"{name} ranked": (kind, {**options, "num_labels": 1}, "")
        for name, (kind, options, _) in ENCODERS.items()
        if name in ("bert", "xlm-roberta", "qwen3")
    },
    "modernbert ranked": (
        "ModernBert",
        {**ENCODERS["modernbert"][1], "num_labels": 1, "classifier_pooling": "mean"},
        "",
    ),
}
"""Models that rank texts."""

_T5 = {
    "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 96, "num_heads": 4, "num_layers": 3,
    "num_decoder_layers": 2, "vocab_size": 100, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20, "decoder_start_token_id": 0,
}  # fmt: skip
_FLAN = {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
HALVES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", _T5),
    "flan-t5": ("T5ForConditionalGeneration", _FLAN),
    "mt5": ("MT5ForConditionalGeneration", {**_FLAN, "model_type": "mt5"}),
    "umt5": ("UMT5ForConditionalGeneration", {**_FLAN, "model_type": "umt5"}),
    "t5 alone": ("T5EncoderModel", _T5),
}
"""Models with an encoder: their class and configuration."""
