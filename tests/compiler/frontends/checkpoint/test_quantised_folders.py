"""Folders of quantised weights: the numbers are those that each method's documentation says, and
products keep the codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import ingot
from ingot.compiler.frontends.checkpoint import import_checkpoint
from ingot.compiler.frontends.checkpoint.codes import FourBits, WrongPartsError
from ingot.compiler.frontends.checkpoint.quantised import CodedTensor
from ingot.compiler.graph.forms.round_rows import set_precision
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.ops import DotCoded
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.graph.rewriter import tensor_ops
from ingot.compiler.ir import walk
from ingot.compiler.ir.verifier import verify
from ingot.hal.checkpoint import Checkpoint
from ingot.hal.gguf import BlockType, GgufTensor
from tests.support.checkpoints import IDS, read_model, write_folder
from tests.support.quantised_folders import (
    awq,
    floats,
    four_bits,
    gptq,
    integers,
    llm_int8,
    packed,
    ternary,
    torchao,
    torchao_floats,
    write_gpt_oss,
    write_quantised,
)

Array = Any


def _compressed(**weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}


def _torchao(kind: str, **data: str) -> dict[str, Any]:
    values = {key: {"_type": "torch.dtype", "_data": value} for key, value in data.items()}
    return {"_type": f"{kind}Config", "_version": 2, "_data": values}


def _of_torchao(default: Any) -> dict[str, Any]:
    return {"quant_method": "torchao", "quant_type": {"default": default}}


CASES: Mapping[str, tuple[Mapping[str, Any], Any, int]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}, gptq, 4),
    "gptq zeros": (
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False},
        partial(gptq, sym=False),
        4,
    ),
    "gptq v2": (
        {"quant_method": "gptq", "bits": 4, "sym": False, "checkpoint_format": "gptq_v2"},
        partial(gptq, sym=False, v2=True),
        4,
    ),
    "gptq order": (
        {"quant_method": "gptq", "bits": 4, "sym": False, "desc_act": True},
        partial(gptq, sym=False, order=True),
        4,
    ),
    "gptq whole rows": (
        {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": True},
        partial(gptq, group=-1),
        4,
    ),
    "gptq 8 bits": ({"quant_method": "gptq", "bits": 8}, partial(gptq, bits=8), 8),
    "gptq 3 bits": (
        {"quant_method": "gptq", "bits": 3, "sym": False},
        partial(gptq, bits=3, sym=False),
        3,
    ),
    "gptq 2 bits": ({"quant_method": "gptq", "bits": 2}, partial(gptq, bits=2), 2),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True}, awq, 4),
    "awq symmetric": (
        {"quant_method": "awq", "bits": 4, "zero_point": False},
        partial(awq, zero_point=False),
        4,
    ),
    "auto-round": (
        {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"},
        gptq,
        4,
    ),
    "packed": (_compressed(num_bits=4, symmetric=True, strategy="group"), packed, 4),
    "packed zeros": (_compressed(num_bits=4, symmetric=False), partial(packed, symmetric=False), 4),
    "packed order": (
        _compressed(num_bits=4, symmetric=True, actorder="group"),
        partial(packed, order=True),
        4,
    ),
    "packed 8 bits": (_compressed(num_bits=8), partial(packed, bits=8, group=-1), 8),
    "integers": (_compressed(num_bits=8, strategy="channel"), integers, 8),
    "integers, one scale": (_compressed(num_bits=8), partial(integers, per="tensor"), 8),
    "integers, zeros": (_compressed(num_bits=8), partial(integers, asymmetric=True), 8),
    "f8": (_compressed(num_bits=8, type="float"), floats, 8),
    "f8 of rows": (_compressed(num_bits=8, type="float"), partial(floats, block=(1, 0)), 8),
    "f8 of blocks": (
        {"quant_method": "fp8", "weight_block_size": [24, 16], "activation_scheme": "dynamic"},
        partial(floats, block=(24, 16), name="weight_scale_inv"),
        8,
    ),
    "nf4 with codes of scales": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        partial(four_bits, nested=True),
        4,
    ),
    "fp4 of long blocks": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        partial(four_bits, kind="fp4", block=256),
        4,
    ),
    "bitnet": ({"quant_method": "bitnet"}, partial(ternary, divides=True), 2),
    "bitnet, scales": ({"quant_method": "bitnet", "linear_class": "autobitlinear"}, ternary, 2),
    "torchao": (
        _of_torchao(_torchao("IntxWeightOnly", weight_dtype="int4", mapping_type="SYMMETRIC")),
        torchao,
        4,
    ),
    "torchao zeros": (
        _of_torchao({"_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": {
            "_default": _torchao("Int8DynamicActivationIntxWeight", weight_dtype="int4",
                                 weight_mapping_type="ASYMMETRIC"),
            "re:.*other": _torchao("IntxWeightOnly", weight_dtype="int2"), "lm_head": None,
        }}}),
        partial(torchao, symmetric=False),
        4,
    ),
    "torchao by names": (
        _of_torchao({"_type": "FqnToConfig", "_data": {"fqn_to_config": {
            **dict.fromkeys(
                ("_default", "re:.*layers", "re:.*q_proj[.]weight"),
                _torchao("IntxWeightOnly", weight_dtype="int2"),
            ),
            **dict.fromkeys(
                (r"re:.*_proj\.weight", *(f"model.layers.{n}.self_attn.q_proj" for n in range(2))),
                _torchao("IntxWeightOnly", weight_dtype="int4"),
            ),
        }}}),
        torchao,
        4,
    ),
    "torchao int8": (
        _of_torchao(_torchao("Int8WeightOnly")), partial(torchao, bits=8, group=-1), 8
    ),
    "torchao f8": (_of_torchao(_torchao("Float8WeightOnly")), torchao_floats, 8),
    "bitsandbytes int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, llm_int8, 8),
}  # fmt: skip
"""What config.json says, what writes a weight, and the bits of a code."""


def _logits(folder: Path) -> list[Array]:
    """The logits behind the fifth token of a prompt and the last of four behind it."""
    module = import_checkpoint(folder)
    verify(module, GRAPH)
    parameters, state = Checkpoint(folder).parameters(), {}
    found = [interpret(module, "prefill", [IDS[:5]], parameters, state)[0]]
    for id in IDS[5:]:
        (last,) = interpret(module, "decode", [id], parameters, state)
    return [*found, last]


def _model() -> tuple[dict[str, Any], dict[str, Array]]:
    """A model whose rows hold whole groups."""
    config, weights, _ = read_model("llama")
    return config, weights


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_the_method(name: str, tmp_path: Path) -> None:
    quantization, write, bits = CASES[name]
    has_tables = "load_in_4bit" in quantization  # of 16 bits in two of i8
    bound = 1e-4 if has_tables else 2e-5
    config, weights = _model()
    plain = write_quantised(tmp_path / "coded", config, weights, quantization, write)
    write_folder(tmp_path / "plain", config, {})
    save_file(plain, tmp_path / "plain/model.safetensors")
    for got, expected in zip(_logits(tmp_path / "coded"), _logits(tmp_path / "plain"), strict=True):
        np.testing.assert_allclose(got, expected, atol=bound * np.abs(expected).max())
    module = run_graph_passes(import_checkpoint(tmp_path / "coded"))
    ops = [op for op in tensor_ops(module.functions["decode"].block) if op.name == "dot_coded"]
    assert {DotCoded.of(op).width for op in ops} == {bits}
    assert len(ops) == 2 * 7 * (1 + has_tables)
    expected = _logits(tmp_path / "plain")
    parameters = Checkpoint(tmp_path / "coded").parameters()
    (got,) = interpret(module, "prefill", [IDS[:5]], parameters, {})
    np.testing.assert_allclose(got, expected[0], atol=bound * np.abs(expected[0]).max())


@pytest.mark.parametrize(
    ("model", "method"),
    [("qwen3 experts", "gptq"), ("glm4", "integers"), ("cohere", "integers")],
    ids=["experts are stacked", "rotated pairs", "rotated pairs without biases"],
)
def test_folders_of_other_models(model: str, method: str, tmp_path: Path) -> None:
    config, weights, _ = read_model(model)
    quantization, write, _ = CASES[method]
    plain = write_quantised(tmp_path / "coded", config, weights, quantization, write)
    write_folder(tmp_path / "plain", config, {})
    save_file(plain, tmp_path / "plain/model.safetensors")
    for got, expected in zip(_logits(tmp_path / "coded"), _logits(tmp_path / "plain"), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


def test_experts_of_gpt_oss(tmp_path: Path) -> None:
    config, weights, _ = read_model("gpt-oss")
    plain = write_gpt_oss(tmp_path / "coded", config, weights)
    write_folder(tmp_path / "plain", config, {})
    save_file(plain, tmp_path / "plain/model.safetensors")
    for got, expected in zip(_logits(tmp_path / "coded"), _logits(tmp_path / "plain"), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())
    module = run_graph_passes(import_checkpoint(tmp_path / "coded"))
    ops = [op for op in walk(module.functions["decode"]) if op.name == "dot_coded"]
    assert len(ops) == 3 * 2


def test_a_group_is_for_modules_by_name_before_classes(tmp_path: Path) -> None:
    config, weights = _model()
    method = _compressed(num_bits=4, symmetric=False)
    (classes,) = method["config_groups"].values()
    by_name = {"targets": ["re:.*other"], "weights": {"num_bits": 8, "symmetric": True}}
    method["config_groups"] = {"0": by_name, "1": {**classes, "targets": ["Linear"]}}
    write = partial(packed, symmetric=False)
    plain = write_quantised(tmp_path / "coded", config, weights, method, write)
    write_folder(tmp_path / "plain", config, {})
    save_file(plain, tmp_path / "plain/model.safetensors")
    for got, expected in zip(_logits(tmp_path / "coded"), _logits(tmp_path / "plain"), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


def test_scales_of_whole_rows_meet_rounded_activations(tmp_path: Path) -> None:
    """A scale of activations counts for 128 of a row, though the weight's counts for all."""
    config, weights, _ = read_model("llama")
    config |= {"intermediate_size": 1024, "num_hidden_layers": 1}
    random = np.random.default_rng(0)
    for name in list(weights):
        if ".mlp." in name:
            shape = (64, 1024) if "down" in name else (1024, 64)
            weights[name] = random.normal(0, 0.1, shape).astype(np.float32)
        if ".layers.1." in name:
            del weights[name]
    quantization, write, _ = CASES["integers"]
    write_quantised(tmp_path, config, weights, quantization, write)
    (expected, *_) = _logits(tmp_path)
    module = import_checkpoint(tmp_path)
    set_precision(module, "int8")
    module = run_graph_passes(module)
    ops = [op for op in tensor_ops(module.functions["decode"].block) if op.name == "dot_scaled"]
    assert {DotCoded.of(op).group for op in ops} == {64, 128}
    assert len(ops) == 7
    parameters = Checkpoint(tmp_path).parameters()
    (got,) = interpret(module, "prefill", [IDS[:5]], parameters, {})
    assert np.abs(got - expected).max() < 0.03 * np.abs(expected).max()


def _refused(folder: Path, changes: Mapping[str, Any], **changed: Array | None) -> str:
    """What is said of a folder of GPTQ with other settings or tensors of a weight."""
    quantization, write, _ = CASES["gptq zeros"]
    config, weights = _model()

    def wrong(w: Array) -> Any:
        parts, plain = write(w)
        parts |= changed
        return {name: each for name, each in parts.items() if each is not None}, plain

    write_quantised(folder, config, weights, {**quantization, **changes}, wrong)
    with pytest.raises(ingot.CompileError) as caught:
        import_checkpoint(folder)
    return str(caught.value)


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    text = _refused(tmp_path, {"quant_method": "vptq"})
    assert "quantised by 'vptq', which cannot be read from a folder" in text
    assert "gptq, awq" in text
    assert "pass the folder of the float model, with weights='int4' or 'int8'" in text
    assert "'bits' is 5; those that can be read are: 2, 3, 4, 8" in _refused(tmp_path, {"bits": 5})
    text = _refused(tmp_path, _of_torchao(_torchao("Int4WeightOnly")))
    assert "'quant_type' is 'Int4WeightOnlyConfig'; those that can be read are: Int8W" in text
    text = _refused(tmp_path, {"checkpoint_format": "marlin"})
    assert "'checkpoint_format' is 'marlin'; those that can be read are: gptq, gptq_v2" in text
    assert "its qzeros are missing, and it is not symmetric" in _refused(tmp_path, {}, qzeros=None)
    text = _refused(tmp_path, {}, scales=np.ones((7, 4), np.float16))
    assert "'model.layers.0.mlp.down_proj': its scales has 7 groups, which do not divide" in text
    assert "... and 9 more" in text
    text = _refused(tmp_path, {}, qweight=np.ones(8, np.int32))
    assert "its qweight has the shape [8], expected rows and columns" in text
    text = _refused(tmp_path, {}, extra=np.zeros(3, np.int32))
    assert "down_proj.extra' has the dtype I32" in text
    assert "and those of weights quantised by gptq" in text
    assert "'version' is 'gemv'" in _refused(tmp_path, {"quant_method": "awq", "version": "gemv"})
    left_out = dict.fromkeys(("qweight", "qzeros", "scales", "g_idx"))
    parts = {"weight": np.zeros((2, 4, 64), np.uint8), "weight_scale": np.ones(1, np.float32)}
    text = _refused(tmp_path, {"quant_method": "bitnet"}, **left_out, **parts)
    assert "its weight has the shape [2, 4, 64], expected [4, 64]" in text
    method = {"quant_method": "bitnet", "quantization_mode": "online"}
    assert "'quantization_mode' is 'online'; those that can be" in _refused(tmp_path, method)
    method = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
    text = _refused(tmp_path, method)
    assert "'format' is 'nvfp4-pack-quantized'; those that can be read are: pack-quantized" in text
    slow = {"(.*)*(.*)*(.*)*(.*)*x$": {"bits": 8}}  # as Python matches it, for years
    assert "'bits' is 5" in _refused(tmp_path, {"bits": 5, "dynamic": slow})
    text = _refused(tmp_path, {"dynamic": {"[": {"bits": 8}}})
    assert "it has the pattern '['" in text


def test_what_is_told_of_codes_of_4_bits_is_checked() -> None:
    parts, _ = four_bits(np.arange(1, 257).reshape(4, 64).astype(np.float32), nested=True)
    state = "weight.quant_state.bitsandbytes__nf4"
    told = json.loads(parts[state].tobytes())

    def refused(**changed: Any) -> str:
        tensors = {
            name: GgufTensor(name, BlockType(_TYPES[each.dtype.name], 1, 1), each.shape, each)
            for name, each in {**parts, **changed}.items()
            if each is not None
        }
        with pytest.raises(WrongPartsError) as caught:
            CodedTensor.of("w", FourBits(), tensors)
        return str(caught.value)

    def state_of(**changes: Any) -> Any:
        return {state: np.frombuffer(json.dumps({**told, **changes}).encode(), np.uint8)}

    assert "what is told of its codes is wrong: 'shape'" in refused(**{state: None})
    assert "is wrong" in refused(**{state: np.frombuffer(b"[" * 9999, np.uint8)})
    for wrong in ({"shape": [4, 63]}, {"blocksize": 0}, {"shape": 3}, {"nested_offset": 1e99}):
        assert "is wrong" in refused(**state_of(**wrong))
    for name in ("blocksize", "nested_blocksize"):
        assert "at most 4096 elements" in refused(**state_of(**{name: 1 << 30}))
    assert "its weight has the shape [128, 1], expected [64, 1]" in refused(
        **state_of(shape=[2, 64])
    )
    assert "16 numbers" in refused(**{"weight.quant_map": np.ones(15, np.float32)})
    assert "its weight.nested_absmax is missing" in refused(**{"weight.nested_absmax": None})


_TYPES = {"float32": "F32", "uint8": "U8"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gptq order", "awq"])
def test_a_compiled_folder(name: str, tmp_path: Path) -> None:
    quantization, write, _ = CASES[name]
    config, weights = _model()
    write_quantised(tmp_path, config, weights, quantization, write)
    expected = _logits(tmp_path)
    model = ingot.load(ingot.compile(tmp_path, variants=["x86-64-v3"]), parameters=tmp_path)
    got = model.prefill(IDS[:5]).numpy()
    np.testing.assert_allclose(got, expected[0], atol=2e-5 * np.abs(expected[0]).max())
    for id in IDS[5:]:
        last = model.decode(id).numpy()
    np.testing.assert_allclose(last, expected[1], atol=2e-5 * np.abs(expected[1]).max())
