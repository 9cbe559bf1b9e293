"""Long reductions to few results are cut in two, and give the same."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.split_reductions import split_reductions
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import Reduce
from ingot.compiler.ir import Module, TensorType
from ingot.hal.spec import dtype
from tests.support.programs import program


def reductions(module: Module) -> list[tuple[int, ...]]:
    """The axes of every reduction that is left."""
    eliminate_dead_code(module)
    ops = module.functions["main"].block.ops
    return [Reduce.of(op).axes for op in ops if op.name == "reduce"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((1024, 512), (0, 1), [(1,), (0,)]),
        ((3, 1 << 19), (1,), [(2,), (1,)]),
        ((1 << 18,), (0,), [(1,), (0,)]),
        ((2, 600, 2, 600), (1, 3), [(3,), (1,)]),
        ((64, 1 << 18), (1,), [(1,)]),
        ((1 << 17,), (0,), [(0,)]),
        (((1 << 18) + 3,), (0,), [(0,)]),
    ],
)
@pytest.mark.parametrize("name", ["f32", "bf16", "i32"])
def test_long_rows_are_cut_where_they_are_few(shape, axes, expected, name: str) -> None:
    def body(b, x):
        return b.op("reduce", b.op("abs", x), axes=axes, kind="add")

    type = TensorType(dtype(name), shape)
    whole, cut = (program(body, type) for _ in range(2))
    split_reductions(cut)
    assert reductions(cut) == expected
    x = (np.random.default_rng(0).random(shape) * 4).astype(type.dtype.numpy)
    (a,), (b,) = (interpret(each, "main", [x]) for each in (whole, cut))
    np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-5)


def test_element_wise_ops_stay_beside_the_reduction() -> None:
    def body(b, x):
        scaled = b.op("mul", x, b.full(2.0, "f32", (1 << 20,)))
        return b.op("reduce", b.op("exp", scaled), axes=(0,), kind="max")

    module = program(body, "f32[1048576]")
    assert len(reductions(split_reductions(module))) == 2
    names = [op.name for op in module.functions["main"].block.ops]
    assert names.index("reshape") < names.index("mul")


def test_a_symbolic_axis_gives_the_parts() -> None:
    module = program(
        lambda b, x: b.op("reduce", x, axes=(0, 1, 2), kind="add"),
        "f32[n,1024,512]",
        symbols={"n": (1, None)},
    )
    assert reductions(split_reductions(module)) == [(1, 2), (0,)]
