"""Language models from GGUF files: every architecture against its definition in NumPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import ingot
from ingot.compiler.dispatch.find_views import find_views
from ingot.compiler.dispatch.ops import entries_of
from ingot.compiler.dispatch.outline import region_key
from ingot.compiler.frontends.gguf import import_gguf
from ingot.compiler.frontends.gguf.architectures import ARCHITECTURES
from ingot.compiler.graph.forms.separate_scopes import separate_scopes
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import GRAPH_PASSES
from ingot.compiler.graph.rewriter import tensor_ops
from ingot.compiler.ir.verifier import verify
from ingot.compiler.pipeline import DISPATCH_PASSES
from ingot.compiler.read_source import read_sketch, read_source
from ingot.hal.gguf import Gguf
from tests.support.language import IDS, KEYS, PEER_SHAPES, tensors, write_model
from tests.support.language_logits import logits
from tests.support.language_shapes import SHAPES, UNDEFINED, Shape


def _close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_those_of_the_definition(name: str, tmp_path: Path) -> None:
    """A prefill, another one behind it, and single tokens."""
    path, shape = tmp_path / "model.gguf", SHAPES[name]
    expected = logits(shape, write_model(path, shape), IDS)
    module = import_gguf(path)
    verify(module, GRAPH)
    parameters, state = Gguf(path).parameters(), {}
    for start, end in ((0, 5), (5, 7)):
        (got,) = interpret(module, "prefill", [IDS[start:end]], parameters, state)
        _close(got, expected[end - 1])
    for place in range(7, len(IDS)):
        (got,) = interpret(module, "decode", [IDS[place]], parameters, state)
        _close(got, expected[place])


def test_the_definitions_are_those_of_llama_cpp(tmp_path: Path) -> None:
    """Its GELU looks up f16, which is what the bound of gemma and starcoder2 is for; qwen2vl is as
    far away with its first token."""
    with np.load(Path(__file__).parent / "llama_cpp.npz") as found:
        assert set(found) == set(PEER_SHAPES)
        for name in PEER_SHAPES.keys() - UNDEFINED.keys():
            shape = PEER_SHAPES[name]
            weights = write_model(tmp_path / "model.gguf", shape, tokenizer=KEYS)
            expected = logits(shape, weights, IDS)[-1]
            is_rounded = name.startswith(("gemma", "starcoder2", "qwen2vl"))
            bound = (1e-3 if is_rounded else 2e-6) * np.abs(expected).max()
            np.testing.assert_allclose(found[name], expected, atol=bound, err_msg=name)


@pytest.mark.parametrize("name", UNDEFINED)
def test_logits_are_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    """Of models without a definition here; some look up a GELU of f16, and lengths of keys have
    another least one in kimi-linear."""
    path, shape = tmp_path / "model.gguf", UNDEFINED[name]
    write_model(path, PEER_SHAPES[name], tokenizer=KEYS)
    module, parameters, state = import_gguf(path), Gguf(path).parameters(), {}
    verify(module, GRAPH)
    interpret(module, "prefill", [IDS[:7]], parameters, state)
    interpret(module, "decode", [IDS[7]], parameters, state)
    (got,) = interpret(module, "decode", [IDS[8]], parameters, state)
    with np.load(Path(__file__).parent / "llama_cpp.npz") as found:
        bound = 2e-3 if "gelu" in ARCHITECTURES[shape.architecture].activation else 2e-5
        bound = 5e-5 if name == "kimi-linear" else bound
        expected = found[name]
    np.testing.assert_allclose(got, expected, atol=bound * np.abs(expected).max())


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_sketch_has_the_kernels_of_the_whole(name: str, tmp_path: Path) -> None:
    """Compilers begin with these."""
    path, layers = tmp_path / "model.gguf", 12
    write_model(path, replace(SHAPES[name], layers=layers), "Q8_0", {"attn_v": "F16"})
    whole, sketch = read_source(path), read_sketch(path)
    assert sketch is not None
    assert whole.functions.keys() == sketch.functions.keys()
    entries = []
    for module in (whole, sketch):
        for run in (*GRAPH_PASSES, separate_scopes, *DISPATCH_PASSES):
            module = run(module)
        entries.append({each.name: region_key(each.body) for each in entries_of(module)})
    assert entries[0] == entries[1]


def test_a_model_of_few_layers_has_no_sketch(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, Shape(layers=3))
    assert read_sketch(path) is None
    assert read_sketch(tmp_path / "missing.gguf") is None
    assert read_sketch(path.read_bytes()) is None


@pytest.mark.slow
def test_a_compiled_model_keeps_its_blocks(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    shape = Shape(layers=1, tied=True)
    types = {"attn_v": "F16", "attn_output": "Q8_0", "ffn_up": "Q4_1", "ffn_down": "Q5_0"}
    expected = logits(shape, write_model(path, shape, "Q4_0", types), IDS)
    model = ingot.load(ingot.compile(path, variants=["x86-64-v3"]), parameters=path)
    names = [each.name for each in model.variables]
    assert names == ["length", "logits", "seen", "cache.0.k", "cache.0.v"]
    _close(model.prefill(IDS[:7]).numpy(), expected[6])
    for place in range(7, len(IDS)):
        _close(model.decode(IDS[place]).numpy(), expected[place])
    with pytest.raises(ingot.OutOfRange, match=r"capacity 64"):
        model.prefill(np.zeros(60, np.int32))
    _close(model.fork(state=False).prefill(IDS).numpy(), expected[-1])


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_drafted_tokens_stay_as_far_as_they_would_be_chosen(
    temperature: float, tmp_path: Path
) -> None:
    """Tokens and state are those of `generate`; what does not stay is forgotten by position."""
    path = tmp_path / "model.gguf"
    write_model(path, SHAPES["gemma2"])
    module, parameters = import_gguf(path, verify=True), Gguf(path).parameters()
    verify(module, GRAPH)
    options = [np.float32(temperature), np.int32(9), np.float32(0.9), np.float32(0.01)]
    options += [np.float32(1.3), np.int64(5)]

    def call(name: str, state: Any, *arguments: Any) -> Any:
        return interpret(module, name, arguments, parameters, state)

    expected: dict[str, Any] = {}
    call("prefill", expected, IDS)
    ids, _ = call("generate", expected, np.int64(6), np.zeros(0, np.int32), *options)
    ids = ids[:6]
    state: dict[str, Any] = {}
    call("prefill", state, IDS)
    wrong = np.array([*ids[:3], (ids[3] + 1) % 100, 99, ids[5]], np.int32)
    assert call("verify", state, wrong, *options) == [3, ids[3]]
    assert state["length"] == len(IDS) + 3
    assert set(np.nonzero(state["seen"] < len(IDS) + 3)[0]) == {*IDS, *ids[:3]}
    assert call("verify", state, ids[3:], *options)[0] == 3
    _close(state["logits"], expected["logits"])
    np.testing.assert_array_equal(state["seen"], expected["seen"])
    call("rewind", state, np.int64(len(IDS)))
    call("decode", state, ids[0])
    assert call("verify", state, ids[1:], *options)[0] == 5
    _close(state["logits"], expected["logits"])
    with pytest.raises(ingot.OutOfRange, match="rewound is 16, expected 0 to 15"):
        call("rewind", state, np.int64(16))


def test_a_cache_of_halves(tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", SHAPES["gemma2"]
    expected = logits(shape, write_model(path, shape), IDS)
    module, parameters = import_gguf(path, cache="f16"), Gguf(path).parameters()
    assert str(module.variables["cache.1.k"].type) == "f16[2,64,16]"
    state: dict[str, Any] = {}
    interpret(module, "prefill", [IDS[:-1]], parameters, state)
    (got,) = interpret(module, "decode", [IDS[-1]], parameters, state)
    assert 0 < np.abs(got - expected[-1]).max() < 2e-3 * np.abs(expected[-1]).max()
    with pytest.raises(ingot.CompileError, match="cache is 'f8', expected 'f32' or 'f16'"):
        ingot.compile(path, cache="f8")
    with pytest.raises(ingot.CompileError, match="verify adds a function for drafted tokens to"):
        ingot.compile(module, verify=True)


def test_chosen_experts_are_read_where_their_panels_lie(tmp_path: Path) -> None:
    """A loop of one token, and one of several, have coded products with views of all panels."""
    path = tmp_path / "model.gguf"
    types = {"ffn_gate_exps": "Q4_0", "ffn_up_exps": "Q4_1", "ffn_down_exps": "F16"}
    write_model(path, replace(SHAPES["qwen3moe"], layers=1), "F32", types)
    module = import_gguf(path, capacity=16)
    for each in (*GRAPH_PASSES, *DISPATCH_PASSES[: DISPATCH_PASSES.index(find_views) + 1]):
        module = each(module)
    for name in ("prefill", "decode"):
        loops = [op for op in module.functions[name].block.ops if op.name == "while"]
        ops = list(tensor_ops(loops[0].regions[1].block))
        products = [op for op in ops if op.name in ("dot_coded", "dot_packed")]
        assert len(products) == 4  # and that of the minima
        weights = [each for op in products for each in op.operands[1:]]
        assert [each.owner.name for each in weights] == ["view"] * 6  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_compiled_mixture_of_experts(tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", replace(SHAPES["qwen2moe"], layers=1)
    types = {"ffn_gate_exps": "Q4_0", "ffn_up_exps": "Q4_0", "ffn_down_exps": "F16"}
    expected = logits(shape, write_model(path, shape, "F32", types), IDS)
    model = ingot.load(ingot.compile(path, variants=["x86-64-v3"]), parameters=path)
    _close(model.prefill(IDS[:7]).numpy(), expected[6])
    for place in range(7, len(IDS)):
        _close(model.decode(IDS[place]).numpy(), expected[place])


def _broken(path: Path, **changes: Any) -> str:
    """What is said of a llama file with these things changed."""
    missing, metadata = changes.pop("missing", ()), changes.pop("metadata", {})
    shape = Shape(layers=1, **changes)
    every = tensors(shape)
    write_model(
        path, replace(shape, metadata=metadata), names=[n for n in every if n not in missing]
    )
    with pytest.raises(ingot.CompileError) as caught:
        import_gguf(path)
    return str(caught.value)


def test_what_is_missing_is_named_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    text = _broken(path, missing=("blk.0.attn_k.weight", "output_norm.weight"))
    assert "tensor 'blk.0.attn_k.weight' is missing" in text
    assert "tensor 'output_norm.weight' is missing" in text
    text = _broken(path, metadata={"attention.head_count": 3, "rope.scaling.type": "su"})
    assert "2 heads of keys do not divide 3 heads of queries" in text
    assert "positions are scaled as 'su'" in text
    text = _broken(path, metadata={"expert_count": 2, "expert_used_count": 3})
    assert "each token chooses 3 of 2 experts" in text
    for groups, used in ((3, 2), (2, 3), (4, 2)):  # the last of one expert each
        wrong = {"expert_group_count": groups, "expert_group_used_count": used}
        text = _broken(path, experts=4, metadata=wrong)
        assert f"each token chooses 2 of 4 experts, out of {used} of {groups} groups" in text
    text = _broken(path, experts=4, metadata={"expert_count": 3})
    assert "'blk.0.ffn_up_exps.weight' has the shape [4, 96, 64], expected [3, 96, 64]" in text
    text = _broken(path, metadata={"block_count": 0})
    assert "'llama.block_count' is 0, expected a positive integer" in text
    text = _broken(path, metadata={"embedding_length": 32})
    assert "'token_embd.weight' has the shape [100, 64], expected [100, 32]" in text
    text = _broken(path, metadata={"block_count": 1 << 24, "rope.freq_base": 0.0})
    assert "'llama.block_count' is 16777216, but there are only 12 tensors" in text
    assert "'llama.rope.freq_base' is 0.0, expected a positive number" in text
    assert "the architecture is 'clip'" in _broken(path, architecture="clip")
    text = _broken(path, metadata={"altup.num_inputs": 2})
    assert "'llama.altup.num_inputs' is 2, but tokens bring nothing for layers: 'llama.emb" in text


def test_keys_of_other_types_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    wrong = {"rope.scaling.type": [1, 2], "expert_count": [1, 2], "block_count": ["a"]}
    text = _broken(path, metadata=wrong)
    assert "'llama.rope.scaling.type' is array([1, 2]" in text
    assert "'llama.expert_count' is array([1, 2]" in text
    assert "'llama.block_count' is ['a'], expected a positive integer" in text
    wrong = {"expert_gating_func": [1], "expert_weights_norm": "no", "nextn_predict_layers": 4}
    text = _broken(path, experts=4, metadata=wrong)
    assert "'llama.expert_gating_func' is array([1], dtype=int32), expected 1 or 2" in text
    assert "'llama.expert_weights_norm' is 'no', expected true or false" in text
    assert "'llama.nextn_predict_layers' is 4, but there are only 1 layers" in text


def test_places_that_f16_does_not_hold_are_refused(tmp_path: Path) -> None:
    path, shape = tmp_path / "model.gguf", UNDEFINED["mpt"]
    write_model(path, replace(shape, metadata={**shape.metadata, "context_length": 1 << 17}))
    for capacity, cache in ((1 << 16, "f16"), (1 << 17, "f32")):
        import_gguf(path, capacity=capacity, cache=cache)
    with pytest.raises(ingot.CompileError, match="is 65537, but keys that tell their position"):
        import_gguf(path, capacity=(1 << 16) + 1, cache="f16")


def test_tensors_that_belong_to_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, Shape(metadata={"block_count": 1}))
    with pytest.raises(ingot.CompileError, match=r"9 tensors belong to nothing that llama"):
        import_gguf(path)


def test_adapters_are_not_taken_for_models(tmp_path: Path) -> None:
    path = tmp_path / "adapter.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ingot.CompileError, match=r"adapter \(LoRA\): compile the model"):
        ingot.compile(path)


def test_types_without_decoding_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, Shape(layers=1), "F32", {"ffn_up": "F64"})
    with pytest.raises(ingot.CompileError, match=r"'blk.0.ffn_up.weight' has the type F64; those"):
        import_gguf(path)


def test_a_damaged_file_is_a_compile_error(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, Shape(layers=1))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ingot.CompileError, match="leaves the file"):
        ingot.compile(path)
    with pytest.raises(ingot.CompileError, match="pass its path"):
        ingot.compile(path.read_bytes())
    write_model(path, Shape(layers=1))
    with pytest.raises(ingot.CompileError, match="capacity is 65, but the model has 64 positions"):
        ingot.compile(path, capacity=65)


def test_scales_that_a_model_needs_are_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, replace(UNDEFINED["minicpm"], metadata={}))
    with pytest.raises(ingot.CompileError, match=r"the key 'minicpm\.residual_scale' is missing"):
        import_gguf(path)
