"""Chains: stages by name and by order, dims across them, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import ingot
from ingot import ops
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import Module, verify
from ingot.compiler.read_source import read_source
from tests.support.devices import load_best
from tests.support.programs import COUNTER, TOTAL

MODEL = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["": 20]>
model (float[batch, 4] x) => (float[batch, 2] scores)
<float[4, 2] weight = {1, 0, 0, 1, 1, 1, 0, 0}> { scores = MatMul(x, weight) }
""")


@ingot.program(ingot.spec("u8[n,4]", n=(1, 9)))
def prepare(pixels: Any) -> Any:
    return {"scaled": pixels / 255, "count": ops.asarray(pixels.shape[0])}


@ingot.program(ingot.spec("f32[rows,2]"))
def best(scores: Any) -> Any:
    return {"place": ops.argmax(scores, axis=1)}


def read(*stages: Any, **options: Any) -> Module:
    module = read_source(ingot.chain(*stages, **options))
    verify(module, GRAPH)
    return module


PIXELS = np.array([[0, 255, 0, 0], [255, 0, 51, 0]], np.uint8)


def test_by_name_and_by_order() -> None:
    module = read(prepare, MODEL, best, connect={"x": "scaled"}, outputs=["scores", "count"])
    main = module.functions["main"]
    assert main.argument_names == ["pixels"]
    assert main.result_names == ["place", "scores", "count"]
    assert [str(type) for type in main.result_types] == ["i64[n]", "f32[n,2]", "i64[]"]
    assert main.symbols == {"n": (1, 9)}
    place, scores, count = interpret(module, "main", [PIXELS])
    assert place.tolist() == [1, 0]
    np.testing.assert_allclose(scores, [[0, 1], [1.2, 0.2]], rtol=1e-6)
    assert count == 2
    single = ingot.trace(lambda p: p / 255, ingot.spec("u8[n,4]"))
    assert interpret(read(single, MODEL), "main", [PIXELS])[0].shape == (2, 2)


def test_chains_of_chains_compile() -> None:
    inner = ingot.chain(prepare, MODEL, connect={"x": "scaled"})
    model = load_best(ingot.chain(inner, best))
    assert np.asarray(model(PIXELS)).tolist() == [1, 0]
    with pytest.raises(ingot.InvalidArgument, match="n"):
        model(np.zeros((10, 4), np.uint8))


def test_inputs_stay_arguments() -> None:
    above = ingot.trace(
        lambda scores, limit: scores > limit, ingot.spec("f32[n,2]"), ingot.spec("f32[n]")
    )
    flat = ingot.trace(lambda x: x + 1, ingot.spec("f32[n,2]"))
    narrow = ingot.trace(
        lambda result0, limit: result0 > limit[:1], ingot.spec("f32[m,2]"), ingot.spec("f32[n]")
    )
    module = read(flat, narrow, inputs=["limit"])
    main = module.functions["main"]
    assert main.argument_names == ["x", "limit"]
    assert [str(value.type) for value in main.arguments] == ["f32[n,2]", "f32[n_2]"]
    with pytest.raises(ingot.CompileError, match="'limit', which no stage before it gives"):
        read(MODEL, above)


def test_dims_are_solved_and_checked() -> None:
    doubled = ingot.trace(lambda x: x[:4], ingot.spec("f32[2*m,4]"))
    module = read(ingot.trace(lambda x: x, ingot.spec("f32[k,4]")), doubled)
    assert module.functions["main"].symbols == {"k": (0, None)}
    interpret(module, "main", [np.ones((6, 4), np.float32)])
    with pytest.raises(ingot.Error):
        interpret(module, "main", [np.ones((5, 4), np.float32)])
    fixed = ingot.trace(lambda x: x, ingot.spec("f32[3,4]"))
    checked = read(ingot.trace(lambda x: x, ingot.spec("f32[k,4]")), fixed)
    interpret(checked, "main", [np.ones((3, 4), np.float32)])
    with pytest.raises(ingot.Error):
        interpret(checked, "main", [np.ones((2, 4), np.float32)])


def test_sizes_from_data_of_several_stages() -> None:
    positive = ingot.trace(lambda x: x[x > 0], ingot.spec("f32[n]"))
    halved = ingot.trace(lambda x: x - 1, ingot.spec("f32[n]"))
    module = read(positive, halved, positive)
    (got,) = interpret(module, "main", [np.array([-1, 0.5, 2, 3], np.float32)])
    assert got.tolist() == [1, 2]


def test_stages_that_do_not_fit() -> None:
    wide = ingot.trace(lambda x: x, ingot.spec("f32[n,3]"))
    ints = ingot.trace(lambda x: x, ingot.spec("i32[n,4]"))
    flat = ingot.trace(lambda x: x, ingot.spec("f32[n]"))
    with pytest.raises(ingot.CompileError, match=r"stage 2.*is f32\[batch,4\].*dim 1 is 3, expec"):
        read(wide, MODEL)
    with pytest.raises(ingot.CompileError, match=r"convert it to f32 in a stage between them"):
        read(ints, MODEL)
    with pytest.raises(ingot.CompileError, match="the ranks differ"):
        read(flat, MODEL)
    with pytest.raises(ingot.CompileError, match="no output 'nothing', input 'limit'"):
        read(MODEL, best, outputs=["nothing"], inputs=["limit"])
    with pytest.raises(ingot.CompileError, match="a chain has no stages"):
        ingot.chain()
    with pytest.raises(ingot.CompileError, match="stage 2: the bytes is no ONNX model"):
        read(wide, b"\x08")
    with pytest.raises(ingot.NotFound, match=r"stage 2 \(gone\.onnx\)"):
        read(wide, "gone.onnx")
    small = ingot.trace(lambda x: x, ingot.spec("f32[n]", n=(1, 4)))
    with pytest.raises(ingot.CompileError, match="the dim 'n' is 5, expected 1"):
        read(ingot.trace(lambda x: x, ingot.spec("f32[5]")), small)
    counting = f"module {{}} {{\n{TOTAL}\nfunc @main{COUNTER}\n}}"
    with pytest.raises(ingot.CompileError, match="stage 2 has the variable 'total'"):
        read(counting, counting)


@pytest.mark.parametrize(
    ("connect", "message"),
    [({"score": "scores"}, "no argument 'score'"), ({"scores": "scaled"}, "takes 'scores'")],
)
def test_what_connect_names_must_be_there(connect: dict[str, str], message: str) -> None:
    """By order the result would be taken that the argument is not to have."""
    model = ingot.trace(lambda x: {"scores": -x}, ingot.spec("f32[n,2]"))
    with pytest.raises(ingot.CompileError, match=message):
        read(model, best, connect=connect)
