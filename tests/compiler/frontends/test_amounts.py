"""What an import says of the elements of small tensors is what the program computes."""

from __future__ import annotations

import math
import random
import warnings

import numpy as np
import pytest

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.symbols import Atom, Symbols
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Block, Function, Module, Region, Value, parse_type
from ingot.compiler.ir.dims import Expr, evaluate, symbol
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

N = symbol("n")
DTYPES = [*(f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64))]
DTYPES += ["i1", "f16", "bf16", "f32", "f64"]
WHOLE = [0, 1, 2, 3, 5, 7, 100, 127, 200, 255, 40000, 65535, 2**31 - 1, 2**32 - 1, 2**63 - 1]
FLOATS = [0.0, 0.5, 1.0, 1.5, 2.5, 3.7, 300.0, 65520.0, 1e10, 1e30, math.inf, math.nan]
BINARY = ["add", "sub", "mul", "div", "rem", "max", "min", "and", "or", "xor", "compare"]
UNARY = ["neg", "abs", "sign", "not", "floor", "ceil", "sqrt", "convert", "reduce", "reverse"]
TERNARY = ["select", "clamp"]
DIRECTIONS = ["eq", "ne", "lt", "le", "gt", "ge"]


class _Drawn:
    """A few ops on tensors of two elements, some of which are sizes."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.block = Block([parse_type("f32[n,0]")])
        self.builder = Builder(self.block)
        self.values: list[Value] = [self.leaf(dtype(self.draw.choice(DTYPES))) for _ in range(3)]
        while len(self.values) < 7:
            try:
                self.values.append(self.op())
            except CompileError:  # the op does not take the dtype
                continue
        self.builder.return_(*self.values)
        self.module = Module()
        self.module.add(Function("main", Region([self.block]), ["x"]))

    def leaf(self, element: DType) -> Value:
        draw, b = self.draw, self.builder
        if draw.random() < 0.4:
            size = b.value("dim", value=draw.choice([N, N + 1, N * 2]), dtype=dtype("i64"))
            return b.broadcast_to(b.value("convert", size, dtype=element), (2,))
        if element.is_float:
            numbers = [draw.choice([1, -1]) * draw.choice(FLOATS) for _ in range(2)]
            with np.errstate(over="ignore"):
                return b.constant(np.array(numbers).astype(element.numpy), element)
        high = 2 ** (element.bits - (element.kind == "i" and element.bits > 1)) - 1
        low = -high - 1 if element.kind == "i" and element.bits > 1 else 0
        fitting = [each for each in WHOLE + [-each for each in WHOLE] if low <= each <= high]
        return b.constant(np.array([draw.choice(fitting) for _ in range(2)]), element)

    def op(self) -> Value:
        draw, b = self.draw, self.builder
        x = draw.choice(self.values)
        kind = draw.random()
        if kind < 0.2:
            y, z = (self.leaf(tensor_type(x).dtype) for _ in range(2))
            if draw.choice(TERNARY) == "clamp":
                return b.value("clamp", b.value("min", y, z), x, b.value("max", y, z))
            direction = draw.choice(DIRECTIONS)
            condition = b.value("compare", x, y, direction=direction)
            if draw.random() < 0.5:  # a truth of two comparisons
                other = b.value("compare", x, z, direction=draw.choice(DIRECTIONS))
                condition = b.value(draw.choice(["and", "or"]), condition, other)
            return b.value("select", condition, y, z)
        if kind < 0.6:
            name = draw.choice(BINARY)
            direction = draw.choice(DIRECTIONS)
            attributes = {"direction": direction} if name == "compare" else {}
            return b.value(name, x, self.leaf(tensor_type(x).dtype), **attributes)
        name = draw.choice(UNARY)
        if name == "convert":
            return b.value(name, x, dtype=dtype(draw.choice(DTYPES)))
        if name == "reduce":
            kind = draw.choice(["add", "mul", "max", "min", "and", "or", "xor"])
            return b.broadcast_to(b.value(name, x, axes=(0,), kind=kind), (2,))
        return b.value(name, x, **({"axes": (0,)} if name == "reverse" else {}))


def _compared(drawn: _Drawn, n: int) -> tuple[int, int]:
    """How many elements were known and compared, and how many of them were sizes."""
    amounts = Amounts(Symbols())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = interpret(drawn.module, arguments=[np.empty((n, 0), np.float32)])
    known = sizes = 0
    for value, result in zip(drawn.values, results, strict=True):
        elements = amounts.of(value)
        for element, expected in [] if elements is None else zip(elements, result, strict=True):
            number = evaluate(element, {"n": n}) if isinstance(element, Expr) else element
            if isinstance(element, Expr) and abs(number) >= 2**31:
                return known, sizes  # sizes of 32 bits are taken to be smaller
            known, sizes = known + 1, sizes + isinstance(element, Expr)
            want = float(expected) if isinstance(number, float) else expected.item()
            assert str(number) == str(want), (n, str(element))
    return known, sizes


def test_elements_that_are_known_are_those_of_the_program() -> None:
    drawn = [_Drawn(seed) for seed in range(150)]
    counts = [_compared(each, n) for each in drawn for n in (0, 1, 2, 300)]
    known, sizes = map(sum, zip(*counts, strict=True))
    assert known > 2500
    assert sizes > 250


@pytest.mark.parametrize("element", ["u32", "u64"])
def test_a_size_below_zero_is_no_size_of_an_unsigned_dtype(element: str) -> None:
    block = Block([parse_type("f32[n,0]")])
    b = Builder(block)
    size = b.value("dim", value=N, dtype=dtype("i64"))
    size = b.value("convert", size, dtype=dtype(element))
    one = b.constant(1, element)
    amounts = Amounts(Symbols())
    above, below = amounts.of(b.value("add", size, one)), amounts.of(b.value("sub", size, one))
    assert above is not None
    assert above.item() == N + 1
    assert below is None


def test_a_size_that_a_comparison_chooses_is_a_dim() -> None:
    b = Builder(Block([parse_type("f32[n,0]")]))
    size, three = (b.number(each, "i64") for each in (N, 3))
    amounts = Amounts(Symbols())
    condition = b.value("compare", size, three, direction="gt")
    chosen = amounts.of(b.value("select", condition, size, b.value("mul", size, three)))
    assert amounts.of(condition) is None
    assert amounts.truth(condition) == (Atom("gt", N - 3),)
    assert chosen is not None
    assert [evaluate(chosen.item(), {"n": n}) for n in (2, 3, 4)] == [6, 9, 4]


def test_what_follows_from_a_size_that_was_read_is_a_dim() -> None:
    block = Block([parse_type("i32[]")])
    b = Builder(block)
    read = b.value("add", block.arguments[0], b.constant(1, "i32"))
    amounts = Amounts(Symbols())
    assert amounts.of(read) is None
    size = amounts.define_size(b, read, lambda: "k", "the count")
    twice = amounts.of(b.value("mul", read, b.constant(2, "i32")))
    assert twice is not None
    assert twice.item() == size * 2


def test_sizes_whose_count_is_open_are_refused() -> None:
    block = Block([parse_type("i64[n]")])
    with pytest.raises(CompileError, match=r"op 'x' reads sizes from i64\[n\]: their count must"):
        Amounts(Symbols()).parts(Builder(block), block.arguments[0], "op 'x'")
