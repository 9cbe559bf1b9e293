"""The names that GGUF files have for the tensors of folders of Hugging Face's layout."""

from __future__ import annotations

import re

__all__ = [
    "BARE",
    "INTERLEAVED",
    "LAYER",
    "OF_LAYER",
    "WHOLE",
    "half_name",
    "kind_of",
    "name_of_half",
    "plain_name",
    "product_name",
]

INTERLEAVED = ("llama4", "chatglm", "glm4", "ernie4_5", "ernie4_5-moe", "command-r", "cohere2")
"""Architectures of which both kinds of files have rows that turn together as neighbours. GGUF files
of others have them so, and folders as halves of a head; or both have halves."""

WHOLE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.embedding_norm": "output_norm",
    "model.final_layernorm": "output_norm",
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
    "lm_head": "output",
    "word_embeddings_layernorm": "token_embd_norm",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
    **{f"model.altup_projections.{place}": f"altup_proj.{place}" for place in range(8)},
    **{
        f"model.altup_unembed_projections.{place}": f"altup_unembd_proj.{place}"
        for place in range(8)
    },
    "embed_out": "output",
    **dict.fromkeys(
        ("wte", "tokens_embed", "word_embeddings", "model.word_embeddings", "gpt_neox.embed_in"),
        "token_embd",
    ),
    **dict.fromkeys(("wpe", "positions_embed", "model.embed_positions"), "position_embd"),
    "model.layer_norm": "output_norm",
    **{
        f"embeddings.{own}": other
        for own, other in {
            "word_embeddings": "token_embd",
            "tok_embeddings": "token_embd",
            "position_embeddings": "position_embd",
            "token_type_embeddings": "token_types",
            "LayerNorm": "token_embd_norm",
            "norm": "token_embd_norm",
        }.items()
    },
    **dict.fromkeys(("final_norm", "norm"), "output_norm"),
    "embed_tokens": "token_embd",
    "output_projection": "output",
    "norm_f": "output_norm",
    **dict.fromkeys(("ln_f", "gpt_neox.final_layer_norm", "model.final_layer_norm"), "output_norm"),
}
_RECURRENT = {"qkv": "attn_qkv", "z": "attn_gate", "b": "ssm_beta", "a": "ssm_alpha"}
_RECURRENT |= {"qkvz": "ssm_in", "ba": "ssm_ba"}
_STATES = ("linear_attn", "mamba", "mixer")
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    **{f"conv.{part}": f"shortconv.{part}" for part in ("conv", "in_proj", "out_proj")},
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
    "feed_forward.gate": "ffn_gate_inp",
    "feed_forward.router": "ffn_gate_inp",
    "pre_ff_layernorm": "ffn_norm",
    "norm_1": "attn_norm",
    "norm_2": "ffn_norm",
    "attn.Wqkv": "attn_qkv",
    "ffn.up_proj": "ffn_up",
    "ffn.down_proj": "ffn_down",
    **{f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    **{
        f"feed_forward.shared_expert.{part}_proj": f"ffn_{part}_shexp"
        for part in ("gate", "up", "down")
    },
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "router.proj": "ffn_gate_inp",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
    "feed_forward.experts.*.w1": "ffn_gate_exps",
    "feed_forward.experts.*.w2": "ffn_down_exps",
    "feed_forward.experts.*.w3": "ffn_up_exps",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    **{f"attention.self.{kind}": f"attn_{kind[0]}" for kind in ("query", "key", "value")},
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
    "attn_norm": "attn_norm",
    "attn.Wo": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
    **{
        f"self_attn.indexer.{own}": f"indexer.{other}"
        for own, other in {
            "wq_b": "attn_q_b",
            "wk": "attn_k",
            "k_norm": "k_norm",
            "weights_proj": "proj",
        }.items()
    },
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.c_fc": "ffn_up",
    "mlp.c_fc_0": "ffn_gate",
    "mlp.c_fc_1": "ffn_up",
    "attention.query_layernorm": "attn_q_norm",
    "attention.key_layernorm": "attn_k_norm",
    **{f"attn.attention.{part}_proj": f"attn_{part}" for part in "qkv"},
    "attn.attention.out_proj": "attn_output",
    "block_sparse_moe.router": "ffn_gate_inp",
    "mlp.c_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router.gate": "ffn_gate_inp",
    "self_attn.gate_proj": "attn_gate",
    "post_norm1": "post_attention_norm",
    "post_norm2": "post_ffw_norm",
    "mlp.router": "ffn_gate_inp",
    "mlp.gate.wg": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "shared_mlp.input_linear": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
    **{
        f"mlp.{shared}.{part}_proj": f"ffn_{part}_shexp"
        for shared in ("shared_expert", "shared_experts", "shared_mlp")
        for part in ("gate", "up", "down")
    },
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    **{
        f"block_sparse_moe.{own}{part}_proj": f"ffn_{part}{other}"
        for own, other in {"": "", "shared_experts.": "_shexp"}.items()
        for part in ("gate", "up", "down")
    },
    "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.*.w3": "ffn_up_exps",
    "block_sparse_moe.experts.*.w2": "ffn_down_exps",
    **dict.fromkeys(("ln_1", "self_attn_layer_norm", "attention_layernorm"), "attn_norm"),
    **dict.fromkeys(("ln_2", "final_layer_norm", "feedforward_layernorm"), "ffn_norm"),
    **{f"linear_attn.in_proj_{own}": other for own, other in _RECURRENT.items()},
    **{
        f"{part}.{own}": f"ssm_{other}"
        for part in _STATES
        for own, other in {"conv1d": "conv1d", "norm": "norm", "out_proj": "out"}.items()
    },
    **{f"{part}.in_proj": "ssm_in" for part in _STATES},
    **{
        f"{part}.{own}": f"ssm_{other}"
        for part in _STATES
        for own, other in {
            "x_proj": "x",
            "dt_proj": "dt",
            "dt_layernorm": "dt_norm",
            "b_layernorm": "b_norm",
            "c_layernorm": "c_norm",
        }.items()
    },
    **{
        f"feed_forward.experts.*.{part}_proj": f"ffn_{part}_exps" for part in ("gate", "up", "down")
    },
    **{f"mixer.{part}_proj": f"attn_{part}" for part in "qkv"},
    "mixer.o_proj": "attn_output",
    "mixer.gate": "ffn_gate_inp",
    **{
        f"self_attn.{gate}{part}_proj": f"ssm_{kind}_{part}"
        for gate, kind in {"f_": "f", "g_": "g", "forget_gate.f_": "f"}.items()
        for part in "ab"
    },
    "self_attn.b_proj": "ssm_beta",
    "self_attn.o_norm": "ssm_norm",
    "self_attn.conv1d": "ssm_conv1d",
    **{f"self_attn.{kind}_conv1d": f"ssm_conv1d_{kind}" for kind in "qkv"},
    "norm": "attn_norm",
    **{
        f"mixer.{own}{part}_proj": f"ffn_{part}{other}"
        for own, other in {"": "", "experts.*.": "_exps", "shared_experts.": "_shexp"}.items()
        for part in ("up", "down")
    },
    "ln_attn": "attn_norm_2",
    "ln_mlp": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attention.query_key_value": "attn_qkv",
    "self_attention.query_key_value": "attn_qkv",
    **{f"attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    **dict.fromkeys(("attn.c_proj", "attn.out_proj", "attention.dense"), "attn_output"),
    **dict.fromkeys(("self_attention.dense", "self_attn.dense"), "attn_output"),
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
    **dict.fromkeys(("mlp.fc1", "mlp.fc_in", "mlp.dense_h_to_4h", "fc1"), "ffn_up"),
    **dict.fromkeys(("mlp.fc2", "mlp.fc_out", "mlp.dense_4h_to_h", "fc2"), "ffn_down"),
}
BARE = {
    **{f"{part}.dt_bias": "ssm_dt.bias" for part in _STATES},
    **{f"{part}.A_log": "ssm_a_log" for part in _STATES},
    **{f"{part}.D": "ssm_d" for part in _STATES},
    **{f"self_attn.{gate}dt_bias": "ssm_dt.bias" for gate in ("", "forget_gate.")},
    **{f"self_attn.{gate}A_log": "ssm_a_log" for gate in ("", "forget_gate.")},
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
    "self_attn.sinks": "attn_sinks.weight",
    "altup.correct_output_scale": "altup_correct_scale.weight",
    "layer_scalar": "layer_output_scale.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "mlp.gate.expert_bias": "exp_probs_b.bias",
    "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "feed_forward.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "feed_forward.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "mlp.experts.gate_up_proj_bias": "ffn_gate_up_exps.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    "feed_forward.expert_bias": "exp_probs_b.bias",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.expert_bias": "exp_probs_b.bias",
    **{f"mlp.act_fn.{part}": f"ffn_act.{part}" for part in ("alpha_p", "alpha_n", "beta", "eps")},
    "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
    "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
}
"""Tensors whose names do not end with weight or bias."""
OF_LAYER = re.compile(r"model\.layers\.(\d+)\.(.*)")
"""A tensor of a layer: its number, and the part with what it is."""


_LAYERS = re.compile(
    r"^((transformer\.)?(h|blocks)|gpt_neox\.layers|(model\.)?decoder\.layers|backbone\.layers|"
    r"((bert|roberta)\.)?encoder\.layer|layers)\."
)
_LANGUAGE = re.compile(r"^(model\.)?language_model\.(model\.|(?=lm_head))?")


def plain_name(name: str) -> str:
    """The name that a tensor of a language model has where there are no other parts beside it:
    "model.norm.weight" of "model.language_model.norm.weight"."""
    name = _LAYERS.sub("model.layers.", name).removeprefix("transformer.")
    name = re.sub(r"^((model\.)?decoder|biogpt)\.", "model.", name)
    name = re.sub(r"^(bert|roberta|model)\.(?=embeddings\.|final_norm\.)", "", name)
    match = _LANGUAGE.match(name)
    if not match:
        return name
    rest = name[match.end() :]
    return rest if rest.startswith("lm_head") else f"model.{rest}"


_HALVES = {"shared": "token_embd", "lm_head": "output"}
_HALVES |= {
    f"{half}.final_layer_norm": f"{half[:3]}.output_norm" for half in ("encoder", "decoder")
}
_OF_HALF = re.compile(r"(enc|dec)oder\.block\.(\d+)\.layer\.(\d)\.(.*)")
_NAMED_HALF = re.compile(r"(enc|dec)\.blk\.(\d+)\.((?:attn|cross_attn|ffn)_.*)")
_PARTS_OF_HALF = {
    **{f"SelfAttention.{part}": f"attn_{part}" for part in "qkvo"},
    "SelfAttention.relative_attention_bias": "attn_rel_b",
    **{f"EncDecAttention.{part}": f"cross_attn_{part}" for part in "qkvo"},
    "DenseReluDense.wi": "ffn_up",
    "DenseReluDense.wi_0": "ffn_gate",
    "DenseReluDense.wi_1": "ffn_up",
    "DenseReluDense.wo": "ffn_down",
}
_NORMS_OF_HALF = {
    "enc": ("attn_norm", "ffn_norm"),
    "dec": ("attn_norm", "cross_attn_norm", "ffn_norm"),
}


def half_name(name: str) -> str:
    """As `product_name`, of a model with an encoder and a decoder, of a tensor's name without its
    last part."""
    match = _OF_HALF.fullmatch(name)
    if match is None:
        return _HALVES.get(name, name)
    half, number, place, part = match.groups()
    norms = _NORMS_OF_HALF[half]
    is_norm = part == "layer_norm" and int(place) < len(norms)
    own = norms[int(place)] if is_norm else _PARTS_OF_HALF.get(part)
    return name if own is None else f"{half}.blk.{number}.{own}"


def name_of_half(name: str) -> str:
    """The folder's name of what `half_name` gives."""
    own = next((own for own, other in _HALVES.items() if other == name), name)
    match = _NAMED_HALF.fullmatch(name)
    if match is None:
        return own
    half, number, part = match.groups()
    norms = _NORMS_OF_HALF[half]
    places = {"attn": 0, "cross": 1, "ffn": len(norms) - 1}
    if part in norms:
        place, own = norms.index(part), "layer_norm"
    else:
        place = places[part.partition("_")[0]]
        own = next((own for own, other in _PARTS_OF_HALF.items() if other == part), part)
    return f"{half}oder.block.{number}.layer.{place}.{own}"


def product_name(name: str) -> str:
    """The name of a product, as "blk.0.attn_q", by that of its module in a folder,
    "model.layers.0.self_attn.q_proj"; one that is not known stays."""
    name = plain_name(name)
    if match := OF_LAYER.fullmatch(name):
        number, part = match.groups()
        return f"blk.{number}.{LAYER[part]}" if part in LAYER else name
    return WHOLE.get(name, name)


def kind_of(name: str) -> str:
    """What products of all layers have in common: "attn_q" of "blk.3.attn_q"."""
    return re.sub(r"^blk\.\d+\.", "", name)
