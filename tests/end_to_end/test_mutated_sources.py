"""Whatever is done to a source program, it compiles in time or gives one of Ingot's errors.

OpenCL alone takes all levels of the compiler and no C compiler.
"""

from __future__ import annotations

import random
import re
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot import ops
from ingot.compiler.ir import to_text
from ingot.compiler.read_source import read_source

NUMBERS = [0, 1, -1, 3, 255, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]


def _compile(source: Any) -> None:
    """Only what says what is wrong may be raised, and soon."""
    start = time.process_time()
    errors = ingot.CompileError, ingot.DataLoss, ingot.InvalidArgument, ingot.NotFound
    with suppress(*errors, ingot.Unsupported):
        ingot.compile(source, target="opencl", fallback=False)
    assert time.process_time() - start < 8


def _onnx(
    op: str,
    shape: list[Any],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one op, whose first operand is the argument and whose others are weights."""
    weights = weights or {}
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *weights], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _ngrams(shape: list[Any], skip: int) -> onnx.ModelProto:
    lists = {"ngram_counts": [0, 0], "ngram_indexes": [0], "pool_int64s": [1, 2]}
    sizes = {"min_gram_length": 2, "max_gram_length": 2, "max_skip_count": skip}
    model = _onnx("TfIdfVectorizer", shape[2:], mode="TF", **sizes, **lists)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    return model


W = {"w": np.ones((3, 3, 3, 3), np.float32)}


@pytest.mark.parametrize("shape", [["n", 3, 8, 8], [1, 3, "h", "w"]])
@pytest.mark.parametrize(
    "make",
    [
        lambda shape, n: _onnx("Conv", shape, W, pads=[n, 0, 0, 0]),
        lambda shape, n: _onnx("Conv", shape, W, dilations=[n, 1], pads=[n] * 4),
        lambda shape, n: _onnx("ConvTranspose", shape, W, strides=[n, 1]),
        lambda shape, n: _onnx("MaxPool", shape, kernel_shape=[n, 2]),
        lambda shape, n: _onnx("LRN", shape, size=n),
        lambda shape, n: _onnx("SplitToSequence", shape, axis=3),
        lambda shape, n: _onnx("Pad", shape, {"p": np.array([0, 0, n, 0, 0, 0, 1, 0])}),
        lambda shape, n: _onnx("Tile", shape, {"p": np.array([1, 1, n, 1])}),
        lambda shape, n: _ngrams(shape, n),
    ],
    ids=["pads", "dilations", "strides", "kernel", "size", "split", "pad", "tile", "skip"],
)
def test_numbers_of_any_size_are_refused_or_compiled(
    make: Callable[[list[Any], int], onnx.ModelProto], shape: list[Any]
) -> None:
    for number in (2**31 - 1, 2**62, -(2**63)):
        _compile(make(shape, number))


@pytest.mark.parametrize("op", ["ReduceSum", "Unsqueeze", "Squeeze"])
def test_lists_of_axes_that_the_call_gives_may_say_that_they_are_long(op: str) -> None:
    model = _onnx(op, ["n", 3])
    model.graph.node[0].input.append("axes")
    axes = helper.make_tensor_value_info("axes", TensorProto.INT64, [2**31 - 1])
    model.graph.input.append(axes)
    _compile(model)


def test_trees_may_say_that_they_have_many_targets() -> None:
    tree = {"nodes_treeids": [0], "nodes_nodeids": [0], "nodes_modes": ["LEAF"]}
    tree |= {f"nodes_{each}nodeids": [0] for each in ("true", "false")}
    tree |= {"nodes_featureids": [0], "nodes_values": [0.0], "target_weights": [1.0]}
    tree |= {f"target_{each}ids": [0] for each in ("tree", "node", "")}
    model = _onnx("TreeEnsembleRegressor", ["n", 3], n_targets=2**31 - 1, **tree)
    model.graph.node[0].domain = "ai.onnx.ml"
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    _compile(model)


def test_lines_may_be_longer_than_an_index_of_32_bits() -> None:
    _compile(_onnx("Unique", [2**31 - 1]))


def test_a_tensor_of_many_parts_is_split_in_a_loop() -> None:
    _compile(_onnx("SplitToSequence", [1 << 40, 2]))


def _program(*lines: str) -> str:
    """Of an argument %x, a result %y, and constants %c and %z."""
    constants = (f"%{name} = constant() {{value=dense<{type} 1.5>}} : {type}"
                 for name, type in (("c", "f32[2]"), ("z", "f32[]")))  # fmt: skip
    body = "\n".join((*constants, *lines, "return(%y)"))
    return f'module {{}} {{ func @main(%x: f32[2] "x") -> (f32[2] "y") {{\n{body}\n}} }}'


@pytest.mark.parametrize(
    "source",
    [
        ingot.trace(
            lambda x: x + ops.sum(ops.astype(ops.arange(1 << 28), "f32")), ingot.spec("f32[2]")
        ),
        _program(
            "%p = pad(%c, %z) {low=[0], high=[-2147483648], interior=[2147483648]} : f32[2]",
            "%y = add(%x, %p) : f32[2]",
        ),
        _program(
            '%p = reduce_window(%c) {kind="add", window=[1073741824], strides=[1], '
            "padding=[(536870912, 536870911)], base_dilation=[1], window_dilation=[1]} : f32[2]",
            "%y = add(%x, %p) : f32[2]",
        ),
    ],
    ids=["iota", "pad", "window"],
)
def test_constants_that_become_large_are_not_made_by_the_compiler(source: Any) -> None:
    tracemalloc.start()
    try:
        _compile(source)
        assert tracemalloc.get_traced_memory()[1] < 1 << 29
    finally:
        tracemalloc.stop()


def _artifact() -> bytes:
    def model(x: Any, w: Any) -> Any:
        y = jax.lax.fori_loop(0, 3, lambda i, a: a @ w + i, x)
        return jax.lax.sort(jax.nn.softmax(y)), jax.lax.pad(y, 0.0, [(1, 2, 1), (0, -1, 0)])

    spec = jax.ShapeDtypeStruct((4, 4), "float32")
    return bytes(jax.export.export(jax.jit(model))(spec, spec).mlir_module_serialized)


def _mutate_bytes(data: bytes, draw: random.Random) -> bytes:
    result = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 5])):
        place = draw.randrange(len(result))
        match draw.randrange(3):
            case 0:
                result[place] = draw.choice([0, 1, 127, 128, 255, draw.randrange(256)])
            case 1:
                del result[place : place + draw.randrange(1, 9)]
            case 2:
                result[place:place] = draw.randbytes(draw.randrange(1, 9))
    return bytes(result)


def _mutate_text(text: str, draw: random.Random) -> str:
    for _ in range(draw.choice([1, 1, 2])):
        found = draw.choice(list(re.finditer(r"-?\d+", text)))
        if draw.random() < 0.6:
            text = f"{text[: found.start()]}{draw.choice(NUMBERS)}{text[found.end() :]}"
        else:
            place = draw.randrange(len(text))
            letter = draw.choice('(){}[]<>,:=%@"\\^!.-* a0\0\ud800')
            text = f"{text[:place]}{letter}{text[place + 1 :]}"
    return text


def test_mutated_artifacts_give_programs_or_errors() -> None:
    draw, data = random.Random(1), _artifact()
    for _ in range(150):
        _compile(_mutate_bytes(data, draw))


def test_mutated_texts_give_programs_or_errors() -> None:
    draw, text = random.Random(2), to_text(read_source(_artifact()))
    for _ in range(150):
        _compile(_mutate_text(text, draw))


def test_mutated_models_give_programs_or_errors() -> None:
    draw, path = random.Random(3), Path(__file__).parent.parent / "models" / "mlp.onnx"
    data = path.read_bytes()
    for _ in range(100):
        _compile(_mutate_bytes(data, draw))


@pytest.mark.parametrize(
    "source",
    [
        "a" * 5000,
        "a\0b",
        "\ud800",
        "(\n" * 3000,
        b"module {" + b"(" * 10_000,
        "module {a = " + "[" * 20_000,
        "module {a = " + "9" * 5000 + "} {}",
        'module {a = "\\ud800"} { func @main(%x: f32[2] "\\ud800") -> (f32[2] "\\udfff") '
        "{ return(%x) } }",
        "module { func @main() -> (i8[4294967296]) { %0 = constant() {value = dense<3> : "
        "i8[4294967296]} : i8[4294967296] return(%0) } }",
    ],
    ids=["long", "nul", "surrogate", "lines", "open", "nested", "digits", "strings", "splat"],
)
def test_texts_of_any_kind_give_programs_or_errors(source: str | bytes) -> None:
    _compile(source)
