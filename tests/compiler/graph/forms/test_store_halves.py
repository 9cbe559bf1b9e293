"""What waits for a later product, and images of the greatest elements, as bf16."""

from __future__ import annotations

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.round_factors import round_factors
from ingot.compiler.graph.forms.round_rows import set_precision
from ingot.compiler.graph.forms.store_halves import store_halves
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Block, Function, Module, Region, Value
from tests.support.products import draw, f32

SIZE = 64


def product(b: Builder, x: Value, seed: int, exact: bool = False) -> Value:
    w = b.constant(draw(SIZE, SIZE, seed=seed) / 8)
    return b.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,), exact=exact)


def program(b: Builder, x: Value) -> list[Value]:
    """One sum that is a factor and a residual, one that is read otherwise, too, two products of the
    greatest elements, and what is to be exact."""
    y = b.value("max", product(b, x, 1), b.full(0.0, "f32", (SIZE, SIZE)))
    z = b.value("add", product(b, y, 2), y)
    read = b.value("add", product(b, z, 3), z)
    window = {"window": (2, 1), "strides": (2, 1)}
    rows = b.value("reduce_window", product(b, read, 4), kind="max", **window)
    exact = b.value("add", product(b, x, 7, exact=True), product(b, x, 8, exact=True))
    sums = b.value("reduce", z, axes=(1,), kind="add")
    return [sums, product(b, rows, 5), product(b, rows, 6), exact]


def test_what_only_sums_of_later_products_read_is_rounded_and_once() -> None:
    block = Block([f32(SIZE, SIZE)])
    builder = Builder(block)
    builder.return_(*program(builder, block.arguments[0]))
    module = Module()
    module.add(Function("main", Region([block]), ["x"], ["a", "b", "c", "d"]))
    set_precision(module, "bf16")
    x = draw(SIZE, SIZE)
    wanted = interpret(round_factors(module), "main", [x])
    eliminate_dead_code(store_halves(module))
    ops = module.functions["main"].block.ops
    made = {result: op for op in ops for result in op.results}
    adds = [[made[each].name for each in op.operands] for op in ops if op.name == "add"]
    assert adds == [["dot_general", "convert"], ["dot_general", "add"], ["dot_general"] * 2]
    narrow = [op for op in ops if op.name == "convert" and "bf16" in str(op.result.type)]
    assert len({op.operands[0] for op in narrow}) == len(narrow)
    assert [str(op.result.type)[:4] for op in ops if op.name == "reduce_window"] == ["bf16"]
    for got, each in zip(interpret(module, "main", [x]), wanted, strict=True):
        assert abs(got - each).max() < 0.01 * abs(each).max()
