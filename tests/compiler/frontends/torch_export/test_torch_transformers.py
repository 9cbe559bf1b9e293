"""Architectures of transformers at reduced width, with dynamic batch and sequence, against eager
torch; a decoder with its cache as arguments and as state."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source

pytest.importorskip("torch.export")  # a folder that is called torch is none
pytest.importorskip("transformers")
torch = import_module("torch")
transformers = import_module("transformers")

pytestmark = pytest.mark.slow
SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": 99,
}  # fmt: skip
ENCODER = {**SMALL, "max_position_embeddings": 64}
GROUPED = {**ENCODER, "num_key_value_heads": 2}
EXPERTS = {**GROUPED, "pad_token_id": 0, "num_experts_per_tok": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "BertModel": ("ids", ENCODER),
    "RobertaModel": ("ids", ENCODER),
    "DistilBertModel": ("ids", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
        "vocab_size": 99}),
    "AlbertModel": ("ids", {**ENCODER, "embedding_size": 16}),
    "ElectraModel": ("ids", {**ENCODER, "embedding_size": 16}),
    "MPNetModel": ("ids", ENCODER),
    "DebertaModel": ("ids", ENCODER),
    "DebertaV2Model": ("ids", ENCODER),
    "FNetModel": ("ids1", {**ENCODER, "type_vocab_size": 2}),
    "GPT2LMHeadModel": ("dec", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99,
        "n_positions": 64}),
    "GPTNeoXForCausalLM": ("dec", ENCODER),
    "GPTJForCausalLM": ("dec", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4,
        "vocab_size": 99, "n_positions": 64}),
    "OPTForCausalLM": ("dec", {"hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "ffn_dim": 64, "vocab_size": 99, "max_position_embeddings":
        64, "word_embed_proj_dim": 32}),
    "BloomForCausalLM": ("dec", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size":
        99}),
    "LlamaForCausalLM": ("dec", GROUPED),
    "MistralForCausalLM": ("dec", GROUPED),
    "Qwen2ForCausalLM": ("dec", GROUPED),
    "Qwen3ForCausalLM": ("dec", {**GROUPED, "head_dim": 8}),
    "GemmaForCausalLM": ("dec", {**GROUPED, "head_dim": 8}),
    "Gemma2ForCausalLM": ("dec", {**GROUPED, "head_dim": 8}),
    "PhiForCausalLM": ("dec", GROUPED),
    "Phi3ForCausalLM": ("dec", {**GROUPED, "pad_token_id": 0}),
    "StableLmForCausalLM": ("dec", GROUPED),
    "Olmo2ForCausalLM": ("dec", {**GROUPED, "pad_token_id": 0}),
    "FalconForCausalLM": ("dec", {"hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 99}),
    "SmolLM3ForCausalLM": ("dec", {**GROUPED, "pad_token_id": 0}),
    "Gemma3ForCausalLM": ("dec", {**GROUPED, "head_dim": 8, "sliding_window": 4}),
    "MixtralForCausalLM": ("dec", {**EXPERTS, "num_local_experts": 4}),
    "GptOssForCausalLM": ("dec", {**EXPERTS, "head_dim": 8, "num_local_experts": 4,
        "sliding_window": 4}),
    "DeepseekV2ForCausalLM": ("dec", {**EXPERTS, "num_key_value_heads": 4, "kv_lora_rank": 16,
        "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
        "n_routed_experts": 4, "moe_intermediate_size": 16, "n_group": 2, "topk_group": 1,
        "first_k_dense_replace": 1, "n_shared_experts": 1}),
    "XLNetModel": ("ids", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64,
        "vocab_size": 99}),
    "ModernBertModel": ("ids", {**ENCODER, "pad_token_id": 0, "local_attention": 8,
        "global_attn_every_n_layers": 2}),
    "T5Model": ("s2s", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
        "vocab_size": 99}),
    "BartModel": ("s2s", {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "vocab_size": 99, "max_position_embeddings": 64}),
    "ViTModel": ("img", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "image_size": 32, "patch_size": 8}),
    "DeiTModel": ("img", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "image_size": 32, "patch_size": 8}),
    "SwinModel": ("img", {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2],
        "window_size": 4, "image_size": 32, "patch_size": 4}),
    "ConvNextModel": ("img", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}),
    "ResNetModel": ("img", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
    "SegformerModel": ("img", {"num_encoder_blocks": 2, "hidden_sizes": [8, 16], "depths": [1,
        1], "sr_ratios": [2, 1], "num_attention_heads": [1, 2], "patch_sizes": [7, 3],
        "strides": [4, 2], "mlp_ratios": [2, 2]}),
    "Dinov2Model": ("img", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads":
        4, "image_size": 32, "patch_size": 8}),
    "CLIPTextModel": ("ids", {**SMALL, "max_position_embeddings": 32, "eos_token_id": 2}),
    "CLIPVisionModel": ("img", {"hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32, "patch_size":
        8}),
    "Wav2Vec2Model": ("wav", {"hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 32, "conv_dim": (16,
        16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}),
    "WhisperModel": ("whisper", {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "vocab_size": 99, "num_mel_bins": 8, "max_source_positions":
        20, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id":
        2, "decoder_start_token_id": 1}),
    "Swinv2Model": ("img", {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2],
        "num_heads": [2], "window_size": 4}),
    "Mamba2ForCausalLM": ("dec", {"hidden_size": 32, "num_hidden_layers": 1, "state_size": 8,
        "vocab_size": 99, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}),
    "PaliGemmaForConditionalGeneration": ("vlm", {"image_token_index": 98, "projection_dim": 32,
        "text_config": {**GROUPED, "model_type": "gemma", "head_dim": 8},
        "vision_config": {**SMALL, "projection_dim": 32, "image_size": 32, "patch_size": 8}}),
}  # fmt: skip
"""Classes by what they take: token ids with a mask or alone, of a decoder, of both halves, pixels,
samples of sound, a spectrogram with ids, or ids with pixels."""


class Called(torch.nn.Module):  # type: ignore[misc, name-defined]
    """The first result of a model, whose arguments come by position."""

    def __init__(self, model: Any, names: list[str], **options: Any) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *given: Any) -> Any:
        return self.model(**dict(zip(self.names, given, strict=True)), **self.options)[0]


def arguments(kind: str, batch: int, length: int) -> dict[str, Any]:
    ids = torch.randint(3, 90, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, -1] = int(kind == "dec")
    pixels, sound = torch.randn(batch, 3, 32, 32), torch.randn(batch, length * 40)
    tokens = torch.cat((torch.full((batch, 16), 98), ids), 1)  # an image's stand in front
    kinds = {"attention_mask": torch.ones_like(tokens), "token_type_ids": torch.zeros_like(tokens)}
    seen = {"input_ids": tokens, **kinds}
    return {
        "ids": {"input_ids": ids, "attention_mask": mask},
        "ids1": {"input_ids": ids},
        "dec": {"input_ids": ids, "attention_mask": mask},
        "s2s": {"input_ids": ids, "decoder_input_ids": ids[:, 2:]},
        "img": {"pixel_values": pixels},
        "wav": {"input_values": sound},
        "whisper": {"input_features": torch.randn(batch, 8, 40), "decoder_input_ids": ids},
        "vlm": {**seen, "pixel_values": pixels},
    }[kind]


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    return kind(kind.config_class(**MODELS[name][1])).eval()


@pytest.mark.parametrize("name", MODELS)
def test_an_architecture_agrees_for_other_sizes(name: str) -> None:
    kind = MODELS[name][0]
    first, other = arguments(kind, 2, 7), arguments(kind, 3, 11)
    options = {"use_cache": False} if kind in ("dec", "s2s", "whisper", "vlm") else {}
    model = Called(model_of(name), list(first), **options)
    fixed = {"img": (1, 2, 3), "vlm": (1, 2, 3), "whisper": (1, 2)}.get(kind, ())
    dynamic = torch.export.Dim.DYNAMIC
    shapes = tuple(
        {axis: dynamic for axis in range(x.dim()) if x.dim() == 2 or axis not in fixed}
        for x in first.values()
    )
    module = read_source(model, example_inputs=tuple(first.values()), dynamic_shapes=(shapes,))
    (found,) = interpret(module, "main", [each.numpy() for each in other.values()])
    with torch.no_grad():
        expected = model(*other.values()).numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-4 * max(1, np.abs(expected).max()))


class WithCache(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Logits, and the cache behind the one that is an argument."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, past: Any) -> Any:
        cache = transformers.DynamicCache(ddp_cache_data=past)
        found = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
        return found.logits, [(each.keys, each.values) for each in found.past_key_values.layers]


def test_a_cache_of_arguments_and_results() -> None:
    model, ids = model_of("LlamaForCausalLM"), torch.randint(0, 99, (2, 6))
    with torch.no_grad():
        whole = model(input_ids=ids).logits.numpy()
        layers = model(input_ids=ids[:, :3], use_cache=True).past_key_values.layers
    cache = [each.numpy() for layer in layers for each in (layer.keys, layer.values)]
    past = [(torch.zeros(2, 2, 3, 8), torch.zeros(2, 2, 3, 8)) for _ in range(2)]
    batch, length, before = (torch.export.Dim.DYNAMIC for _ in range(3))
    shapes = ({0: batch, 1: length}, [({0: batch, 2: before},) * 2] * 2)
    module = read_source(WithCache(model), example_inputs=(ids[:, :2], past), dynamic_shapes=shapes)
    found = interpret(module, "main", [ids[:, 3:5].numpy(), *cache])
    np.testing.assert_allclose(found[0], whole[:, 3:5], atol=1e-5)
    assert found[1].shape == (2, 2, 5, 8)


def test_a_cache_of_buffers_is_state() -> None:
    executorch = import_module("transformers.integrations.executorch")
    model, ids = model_of("LlamaForCausalLM"), torch.randint(0, 99, (2, 6))
    with torch.no_grad():
        whole = model(input_ids=ids).logits.numpy()
    sizes = {"batch_size": 2, "max_cache_len": 16}
    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    model.generation_config.cache_config = {**sizes, "device": "cpu"}
    static = executorch.TorchExportableModuleWithStaticCache(
        model, **sizes, device=torch.device("cpu")
    )
    given = {"input_ids": ids[:, :2], "cache_position": torch.arange(2)}
    length = torch.export.Dim.DYNAMIC
    shapes = {"input_ids": {1: length}, "cache_position": {0: length}}
    program = torch.export.export(static, (), given, dynamic_shapes=shapes, strict=False)
    module, state = read_source(program), {}
    assert len(module.variables) == 6
    parts = [
        interpret(module, "main", [ids[:, a:b].numpy(), np.arange(a, b)], state=state)[0]
        for a, b in ((0, 3), (3, 6))
    ]
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, atol=1e-5)
