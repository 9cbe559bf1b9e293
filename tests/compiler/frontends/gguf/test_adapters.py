"""LoRA adapters: logits against PEFT's and those of merged weights, swaps, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ingot
from ingot.compile_options import parse_lora
from ingot.compiler.frontends.attributes import ADAPTERS
from ingot.compiler.frontends.checkpoint import import_checkpoint
from ingot.compiler.frontends.gguf import import_gguf
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import Parameter
from ingot.compiler.ir import Module, walk
from ingot.hal.adapter import read_adapter
from ingot.hal.checkpoint import Checkpoint
from ingot.language.adapters import Room, parse_adapter
from tests.support.adapters import merged, random_pairs, write_gguf, write_peft
from tests.support.checkpoints import ADAPTED, WITH_ADAPTERS, adapter_of, read_model, write_folder
from tests.support.checkpoints import IDS as WORDS
from tests.support.devices import best_variant
from tests.support.language import IDS, write_model
from tests.support.language_shapes import SHAPES, Shape

SHAPE = SHAPES["llama"]
PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down")


def room_of(module: Module) -> Room:
    """The room for adapters of a program that is not compiled."""
    read = [Parameter.of(op) for op in walk(module) if op.name == "parameter"]
    shapes = {each.key: each.shape for each in read if each.scope == "lora"}
    return Room(module.attributes[ADAPTERS], shapes)


def logits(module: Module, weights: Any, ids: Any, *adapters: tuple[Path, float]) -> list[Any]:
    """Those behind the fifth token of a prompt and the last of those behind it."""
    parameters = dict(weights)
    if adapters or ADAPTERS in module.attributes:
        room = room_of(module)
        for path, scale in adapters:
            room.add(read_adapter(path), scale)
        parameters |= room.arrays
    state: dict[str, Any] = {}
    found = [interpret(module, "prefill", [ids[:5]], parameters, state)[0]]
    for id in ids[5:]:
        (last,) = interpret(module, "decode", [id], parameters, state)
    return [*found, last]


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


def pairs_of(weights: Any, rank: int, seed: int = 0, parts: Any = PARTS) -> Any:
    shapes = {
        name.removesuffix(".weight"): each.shape
        for name, each in weights.items()
        if name.endswith(tuple(f".{part}.weight" for part in parts))
    }
    return random_pairs(shapes, rank, seed)


@pytest.mark.parametrize("name", WITH_ADAPTERS)
def test_logits_are_those_of_peft(name: str, tmp_path: Path) -> None:
    config, weights, _ = read_model(WITH_ADAPTERS[name][0])
    write_folder(tmp_path / "base", config, weights)
    pairs, alpha, options = adapter_of(name, weights)
    adapter = write_peft(tmp_path / "adapter", pairs, alpha, **options)
    module = import_checkpoint(tmp_path / "base", lora=adapter)
    found = logits(module, Checkpoint(tmp_path / "base").parameters(), WORDS, (adapter, 1.0))
    with np.load(ADAPTED) as expected:
        close(found, expected[name])


@pytest.mark.parametrize("name", ["glm4", "cohere2", "youtu"])
def test_adapters_of_folders_are_those_of_merged_weights(name: str, tmp_path: Path) -> None:
    """Heads that turn neighbours, and keys and values that follow from rows of latents."""
    config, weights, _ = read_model(name)
    write_folder(tmp_path, config, weights)
    save_file(weights, tmp_path / "model.safetensors")
    parts = ("q_b_proj", "kv_b_proj", "o_proj") if name == "youtu" else ("q_proj", "v_proj")
    pairs = pairs_of(weights, 3, parts=parts)
    adapter = write_peft(tmp_path / "adapter", pairs, 6.0)
    module, plain = (import_checkpoint(tmp_path, lora=each) for each in (adapter, None))
    found = logits(module, weights, WORDS, (adapter, 1.0))
    close(found, logits(plain, merged(weights, pairs, 2.0), WORDS))


def test_scales_and_several_adapters_are_those_of_merged_weights(tmp_path: Path) -> None:
    path = tmp_path / "base.gguf"
    weights = write_model(path, SHAPE)
    first, second = pairs_of(weights, 3), pairs_of(weights, 2, 1, ("attn_q", "ffn_up"))
    one = write_gguf(tmp_path / "one.gguf", first, 6.0)
    two = write_gguf(tmp_path / "two.gguf", second, None)
    module, plain = import_gguf(path, lora=[one, two]), import_gguf(path)
    both = merged(merged(weights, first, 0.5 * 6 / 3), second, -0.25)
    close(logits(module, weights, IDS, (one, 0.5), (two, -0.25)), logits(plain, both, IDS))
    alone = merged(weights, second, 2.0)
    close(logits(module, weights, IDS, (two, 2.0)), logits(plain, alone, IDS))
    for got, expected in zip(
        logits(module, weights, IDS), logits(plain, weights, IDS), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3", "glm4"])
def test_adapters_of_peft_fit_gguf_files(name: str, tmp_path: Path) -> None:
    """GGUF files of some models have the rows of a head in another order."""
    shape = SHAPES[name]
    path = tmp_path / "base.gguf"
    weights = write_model(path, shape)
    part = "qkv" if name == "phi3" else "q"
    full = random_pairs({"blk.1.attn_" + part: weights[f"blk.1.attn_{part}.weight"].shape}, 2)
    ((key, (down, up)),) = full.items()
    adapter = write_peft(
        tmp_path / "adapter", {f"model.layers.1.self_attn.{part}_proj": (down, up)}, 4.0
    )
    if name == "llama":  # as the converter of llama.cpp has it
        up = up.reshape(shape.heads, 2, -1, up.shape[1]).swapaxes(1, 2).reshape(up.shape)
    expected = logits(import_gguf(path), merged(weights, {key: (down, up)}, 2.0), IDS)
    close(logits(import_gguf(path, lora=2), weights, IDS, (adapter, 1.0)), expected)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any, Any]:
    """A folder, the weights in it, a module with room for rank 4, and one without any."""
    folder = tmp_path_factory.mktemp("adapters")
    weights = write_model(folder / "base.gguf", Shape(layers=1, feed=64))
    options: dict[str, Any] = {"capacity": 16, "variants": [best_variant()]}
    adapted = ingot.compile(folder / "base.gguf", lora=4, **options)
    return folder, weights, adapted, ingot.compile(folder / "base.gguf", **options)


@pytest.mark.slow
def test_adapters_are_swapped_in_a_loaded_model(model: Any) -> None:
    folder, weights, module, other = model
    base = folder / "base.gguf"
    adapted = ingot.load(module, parameters=[base, {"lora": ingot.lora(module)}])
    plain = ingot.load(other, parameters=base)
    options = (np.array([], np.int32), np.float32(0), np.int32(0), np.float32(1))
    options += (np.float32(0), np.float32(1), np.int64(0))

    def run(loaded: Any) -> list[Any]:
        loaded.reset()
        loaded.prefill(IDS[:5])
        found = [np.asarray(loaded.decode(IDS[5]))]
        ids, count = loaded.generate(np.int64(4), *options)
        return [*found, np.asarray(ids)[: int(count)], loaded.state()["logits"]]

    for got, expected in zip(run(adapted), run(plain), strict=True):
        np.testing.assert_array_equal(got, expected)
    for seed, scale in ((0, 1.0), (1, -0.5)):
        pairs = pairs_of(weights, 4, seed)
        path = write_gguf(folder / "adapter.gguf", pairs, 4.0)
        adapted.swap_parameters(ingot.lora(adapted, (path, scale)), scope="lora")
        plain.swap_parameters(merged(weights, pairs, scale))
        for got, expected in zip(run(adapted), run(plain), strict=True):
            close(got, expected)
    wrong = {**ingot.lora(adapted), "blk.0.attn_q.lora_a": np.zeros((3, 64), np.float32)}
    with pytest.raises(ingot.InvalidArgument, match=r"'blk.0.attn_q.lora_a': dim 0 is 3"):
        adapted.swap_parameters(wrong, scope="lora")
    many = {**ingot.lora(adapted), "attn_q.rank": np.array(5, np.int64)}
    adapted.swap_parameters(many, scope="lora")
    with pytest.raises(ingot.InvalidArgument, match=r"'lora/attn_q.rank' is 5, expected 0 to 4"):
        run(adapted)
    with pytest.raises(ingot.InvalidArgument, match="no room for adapters"):
        ingot.lora(plain)


# What is wrong.


def wrong_adapters(folder: Path, weights: Any) -> list[tuple[Any, type[ingot.Error], str]]:
    good = pairs_of(weights, 2)
    name = "blk.0.attn_q"
    down, up = good[name]

    def file(number: int, pairs: Any, alpha: float | None = 1.0, **metadata: str) -> Path:
        return write_gguf(folder / f"{number}.gguf", pairs, alpha, **metadata)

    def peft(number: int, **config: Any) -> Path:
        return write_peft(folder / str(number), {"model.layers.0.self_attn.q_proj": (down, up)},
                          1.0, **config)  # fmt: skip

    halves = file(1, {name: (down, up[:, :1])})
    lonely = folder / "2.gguf"
    writer = gguf.GGUFWriter(lonely, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_tensor(f"{name}.weight.lora_a", down)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    strange = peft(3)
    tensors = load_file(strange / "adapter_model.safetensors")
    save_file({**tensors, "base_model.model.lm_head.weight": up},
              strange / "adapter_model.safetensors")  # fmt: skip
    cut = peft(4) / "adapter_model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-8])
    none = {"model.layers.0.self_attn.q_proj": (down[:0], up[:, :0])}
    empty = write_peft(folder / "18", none, 1.0)
    text = peft(5)
    (text / "adapter_config.json").write_text("[]")
    return [
        (folder / "base.gguf", ingot.InvalidArgument, "is no adapter"),
        (folder / "none.gguf", ingot.NotFound, "none.gguf"),
        (halves, ingot.DataLoss, r"lora_a \[2, 64\] and lora_b \[64, 1\]"),
        (lonely, ingot.DataLoss, "has lora_a, but no lora_b"),
        (strange, ingot.Unsupported, "'base_model.model.lm_head.weight' cannot be used"),
        (cut.parent, ingot.DataLoss, "damaged or cut off"),
        (text, ingot.DataLoss, "no JSON object"),
        (file(6, good, kind="alora"), ingot.Unsupported, "type 'alora'"),
        (file(7, good, architecture="qwen2"), ingot.InvalidArgument, "qwen2 model, not to this"),
        (file(8, {}), ingot.DataLoss, "no factors"),
        (file(9, {"blk.7.attn_q": (down, up)}), ingot.InvalidArgument, "'blk.7.attn_q'"),
        (file(10, {name: (down[:, 1:], up)}), ingot.InvalidArgument, r"\[64, 63\] there, expected"),
        (file(11, pairs_of(weights, 5)), ingot.InvalidArgument, "rank 5, and 0 of 4 are in use"),
        (peft(12, peft_type="IA3"), ingot.Unsupported, "peft_type is 'IA3'"),
        (peft(13, use_dora=True), ingot.Unsupported, "use_dora is True"),
        (peft(14, lora_alpha="much"), ingot.DataLoss, "lora_alpha is 'much'"),
        (peft(15, alpha_pattern={"(a+)+": 1}), ingot.Unsupported, "expected the end of a module"),
        (peft(16, alpha_pattern=["q_proj"]), ingot.DataLoss, "alpha_pattern is"),
        (peft(17, lora_alpha=10**400), ingot.DataLoss, "lora_alpha is 1000"),
        (file(19, {name: (down * np.nan, up)}), ingot.InvalidArgument, "that are no numbers"),
        (file(20, {name: (down, up * np.inf)}), ingot.InvalidArgument, "that are no numbers"),
        (file(21, {name: (down, 9 * up)}, 3e38), ingot.InvalidArgument, "with its scale of 1.5e"),
        (empty, ingot.DataLoss, r"lora_a \[0, 64\] and lora_b \[64, 0\]"),
    ]


def test_wrong_adapters_are_named(tmp_path: Path) -> None:
    weights = write_model(tmp_path / "base.gguf", SHAPE)
    module = import_gguf(tmp_path / "base.gguf", lora=4)
    for path, error, message in wrong_adapters(tmp_path, weights):
        with pytest.raises(error, match=message):
            room_of(module).add(read_adapter(path), 1.0)
    room = room_of(module)
    three = write_gguf(tmp_path / "three.gguf", pairs_of(weights, 3), 1.0)
    room.add(read_adapter(three), 1.0)
    with pytest.raises(ingot.InvalidArgument, match="rank 3, and 3 of 4 are in use"):
        room.add(read_adapter(three), 1.0)


def test_wrong_options_are_told_when_the_model_is_compiled(tmp_path: Path) -> None:
    path = tmp_path / "base.gguf"
    weights = write_model(path, SHAPE)
    pairs = pairs_of(weights, 2)
    adapter = write_gguf(tmp_path / "adapter.gguf", pairs, 1.0)
    other = {"blk.5.attn_q": pairs["blk.0.attn_q"]}
    for lora, message in (
        (0, "lora is 0, expected a rank"),
        ([], "empty list"),
        (path, "is no adapter"),
        (write_gguf(tmp_path / "other.gguf", other, 1.0), "'blk.5.attn_q', which GGUF file"),
    ):
        with pytest.raises(ingot.CompileError, match=message):
            ingot.compile(path, lora=lora)
    with pytest.raises(ingot.CompileError, match=r"is an adapter \(LoRA\): compile the model"):
        ingot.compile(adapter)
    config, tensors, _ = read_model("llama")
    write_folder(tmp_path / "folder", config, tensors)
    module = import_checkpoint(tmp_path / "folder", lora=4)
    with pytest.raises(ingot.InvalidArgument, match="give the folder of PEFT"):
        room_of(module).add(read_adapter(adapter), 1.0)
    source = tmp_path / "a.ir"
    source.write_text("module {}")
    with pytest.raises(ingot.CompileError, match="lora makes room for adapters"):
        ingot.compile(source, lora=4)


def test_scales_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "a:1").touch()
    assert parse_adapter("a.gguf") == "a.gguf"
    assert parse_adapter("a.gguf:0.5") == ("a.gguf", 0.5)
    assert parse_adapter("a.gguf:b") == "a.gguf:b"
    assert parse_adapter(f"{tmp_path}/a:1") == f"{tmp_path}/a:1"
    assert json.dumps(parse_adapter("C:/a:-1")) == '["C:/a", -1.0]'


def test_ranks_and_adapters_of_the_command() -> None:
    assert parse_lora([]) is None
    assert parse_lora(["16"]) == 16
    assert parse_lora(["a.gguf", "16"]) == ["a.gguf", "16"]
