"""Codes of external weights are made in `init`, once for all functions."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.folding.simplify import simplify
from ingot.compiler.graph.forms.fuse_scales import fuse_scales
from ingot.compiler.graph.forms.split_init import split_init
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, walk
from ingot.compiler.ir.verifier import verify
from ingot.hal.spec import dtype

F32, I8 = dtype("f32"), dtype("i8")


def _function(name: str, rows: int) -> Function:
    """x times codes with scales in groups, plus a bias that is twice a parameter."""
    block = Block([TensorType(F32, (rows, 64))])
    b = Builder(block)
    codes = b.value("parameter", scope="", key="q", dtype=I8, shape=(2, 32, 24))
    scales = b.value("parameter", scope="", key="s", dtype=F32, shape=(2, 24))
    bias = b.value("parameter", scope="", key="b", dtype=F32, shape=(24,))
    scales = b.value("broadcast", scales, shape=(2, 32, 24), dimensions=(0, 2))
    weight = b.value("mul", b.value("convert", codes, dtype=F32), scales)
    weight = b.value("reshape", weight, shape=(64, 24))
    y = b.value("dot_general", block.arguments[0], weight, lhs_contract=(1,), rhs_contract=(0,))
    b.return_(b.value("add", y, b.broadcast_to(b.value("add", bias, bias), (rows, 24))))
    return Function(name, Region([block]), ["x"], ["y"])


def test_codes_move_once_and_what_is_left_moves_behind_them() -> None:
    module = Module()
    for name, rows in (("one", 1), ("three", 3)):
        module.add(_function(name, rows))
    module = eliminate_dead_code(fuse_scales(module))
    assert len(module.functions["init"].block.terminator.operands) == 2  # codes and scales
    for name in ("one", "three"):
        left = [op.attributes.key for op in walk(module.functions[name]) if op.name == "parameter"]
        assert left == ["b"]
    main = module.functions["three"].block  # a weight may be made of what `init` gives
    dot = next(op for op in main.ops if op.name == "dot_coded")
    b = Builder([])
    dot.operands[2] = b.value("add", dot.operands[2], dot.operands[2])
    main.ops[main.ops.index(dot) : main.ops.index(dot)] = b.ops
    module = split_init(module)
    verify(module, GRAPH)
    assert not [op for op in walk(module.functions["three"]) if op.name == "parameter"]
    assert [op.name for op in module.functions["init"].block.ops].count("global") == 0
    rng = np.random.default_rng(0)
    q = rng.integers(-128, 128, (2, 32, 24)).astype(np.int8)
    s, bias = rng.random((2, 24)).astype(np.float32), rng.random(24).astype(np.float32)
    weight = (q * s[:, None]).reshape(64, 24)
    for name, rows, times in (("one", 1, 1), ("three", 3, 2)):
        x = rng.standard_normal((rows, 64)).astype(np.float32)
        (got,) = interpret(module, name, [x], {"q": q, "s": s, "b": bias})
        np.testing.assert_allclose(got, times * (x @ weight) + 2 * bias, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("bits", [8, 6, 5, 3])
def test_codes_of_rows_become_words_where_they_lie_and_move_as_words(bits: int) -> None:
    block = Block([TensorType(F32, (3, 64))])
    b = Builder(block)
    code = I8 if bits == 8 else dtype("u8")
    codes = b.value("parameter", scope="", key="q", dtype=code, shape=(40, 2, 32))
    if bits < 8:
        codes = b.value("and", codes, b.full((1 << bits) - 1, code, (40, 2, 32)))
    scales = b.value("parameter", scope="", key="s", dtype=F32, shape=(40, 2))
    scales = b.value("broadcast", scales, shape=(40, 2, 32), dimensions=(0, 1))
    weight = b.value("mul", b.value("convert", codes, dtype=F32), scales)
    weight = b.value("reshape", weight, shape=(40, 64))
    weight = b.value("transpose", weight, permutation=(1, 0))
    y = b.value("dot_general", block.arguments[0], weight, lhs_contract=(1,), rhs_contract=(0,))
    b.return_(y)
    module = Module()
    module.add(Function("main", Region([block]), ["x"], ["y"]))
    module = simplify(eliminate_dead_code(fuse_scales(module)))
    made = [op for op in walk(module.functions["weight.0"]) if op.operands]
    found = {(op.name, tensor_type(op.operands[0]).dtype.name) for op in made}
    words = {pair for pair in found if pair[0] in ("transpose", "slice", "or")} - {
        ("transpose", "f32")
    }
    assert words == {(name, "u32") for name in ("transpose", "slice", "or")[: 3 if bits < 8 else 1]}
    module = split_init(module)
    verify(module, GRAPH)
    rng = np.random.default_rng(0)
    least = -128 if bits == 8 else 0
    q = rng.integers(least, least + 256, (40, 2, 32)).astype(code.numpy)
    s, x = rng.random((40, 2)).astype(np.float32), rng.standard_normal((3, 64)).astype(np.float32)
    (got,) = interpret(module, "main", [x], {"q": q, "s": s})
    numbers = q if bits == 8 else q & ((1 << bits) - 1)
    wanted = x @ (numbers * s[..., None]).reshape(40, 64).T
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-3)
