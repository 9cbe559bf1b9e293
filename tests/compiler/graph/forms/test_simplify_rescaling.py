"""simplify_rescaling makes fewer ops behind integer contractions, and no other numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ingot.compiler.dispatch.form_dispatches import form_dispatches
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.folding.fold_constants import fold_constants
from ingot.compiler.graph.forms.simplify_rescaling import simplify_rescaling
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value, tensor_type, walk
from ingot.compiler.read_source import copy_module
from ingot.hal.spec import dtype

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(2)
ROWS, STEPS, COLUMNS = 6, 12, 5
SHAPE = (ROWS, COLUMNS)


class Layer:
    """A program from u8[6, 12] whose ops have numbers and columns as second operands."""

    def __init__(self, argument: str = "u8") -> None:
        shape = (ROWS, STEPS) if argument == "u8" else SHAPE
        self.block = Block([TensorType(dtype(argument), shape)])
        self.b = Builder(self.block)

    def sums(self) -> Value:
        w = self.b.constant(RANDOM.integers(-128, 128, (STEPS, COLUMNS)).astype(np.int8))
        total = self.b.value(
            "dot_general", self.block.arguments[0], w,
            lhs_contract=(1,), rhs_contract=(0,), dtype=dtype("i32"),
        )  # fmt: skip
        return self.b.value("convert", total, dtype=dtype("f32"))

    def op(self, name: str, x: Value, number: float | Array) -> Value:
        y = self.b.constant(np.asarray(number, np.float32))
        dimensions = (1,) if isinstance(number, np.ndarray) else ()
        return self.b.value(
            name, x, self.b.value("broadcast", y, shape=SHAPE, dimensions=dimensions)
        )

    def quantised(self, x: Value, scale: float, zero: int, target: str) -> Value:
        low = -128 if target == "i8" else 0
        x = self.op("add", self.b.value("round_even", self.op("div", x, scale)), zero)
        limits = [self.b.full(each, dtype("f32"), SHAPE) for each in (low, low + 255)]
        x = self.b.value("clamp", limits[0], x, limits[1])
        return self.b.value("convert", x, dtype=dtype(target))

    def dequantised(self, x: Value, scale: float, zero: int) -> Value:
        x = self.b.value("convert", x, dtype=dtype("f32"))
        return self.op("mul", self.op("sub", x, zero), scale)

    def module(self, result: Value) -> Module:
        self.b.return_(result)
        module = Module()
        module.add(Function("main", Region([self.block]), ["x"], ["y"]))
        return module


def simplified(module: Module) -> Module:
    return eliminate_dead_code(fold_constants(simplify_rescaling(copy_module(module))))


def check(module: Module, x: Array, most: float) -> Counter[str]:
    """Results may be `most` apart, few of them. The ops that are left."""
    changed = simplified(module)
    (wanted,), (got,) = (interpret(each, "main", [x]) for each in (module, changed))
    distance = np.abs(got.astype(np.float64) - wanted)
    assert distance.max() <= most
    assert (distance > 1e-4).mean() < 0.1
    return Counter(op.name for op in walk(changed))


@pytest.mark.parametrize(("target", "zero"), [("u8", 3), ("i8", -7), ("u8", 0)])
def test_a_layer_is_rescaled_once(target: str, zero: int) -> None:
    layer = Layer()
    y = layer.op("mul", layer.sums(), RANDOM.uniform(0.01, 0.02, COLUMNS))
    y = layer.op("add", y, RANDOM.normal(size=COLUMNS))
    module = layer.module(layer.quantised(layer.op("max", y, 0.0), 0.7, zero, target))
    x = RANDOM.integers(0, 256, (ROWS, STEPS)).astype(np.uint8)
    ops = check(module, x, 1)
    assert ops["div"] == ops["clamp"] == 0
    assert (ops["mul"], ops["add"]) == (1, 2 if zero else 1)
    assert ops["max"] == (zero != 0)


def test_numbers_between_two_layers_are_no_codes() -> None:
    layer = Layer()
    codes = layer.quantised(layer.op("mul", layer.sums(), 0.01), 0.5, 9, "u8")
    y = layer.dequantised(codes, 0.5, 9)
    module = layer.module(layer.quantised(y, 0.25, 100, "u8"))
    ops = check(module, RANDOM.integers(0, 256, (ROWS, STEPS)).astype(np.uint8), 2)
    assert ops["convert"] == 2
    assert ops["div"] == 0


def test_what_comes_from_no_contraction_is_divided() -> None:
    layer = Layer("f32")
    codes = layer.quantised(layer.block.arguments[0], 0.5, 9, "u8")
    module = layer.module(layer.quantised(layer.dequantised(codes, 0.5, 9), 0.3, 0, "u8"))
    before = Counter(op.name for op in walk(module))
    x = np.array([[np.nan, np.inf, -np.inf, 0, 1]] * ROWS, np.float32)
    assert check(module, x, 0)["div"] == before["div"]


def test_whole_numbers_by_whole_ones_are_divided() -> None:
    layer = Layer()
    numbers = layer.op("div", layer.sums(), 41)  # 41 times its reciprocal is less than 1
    x = RANDOM.integers(0, 256, (ROWS, STEPS), np.uint8)
    assert check(layer.module(layer.b.value("floor", numbers)), x, 0)["div"] == 1


def test_numbers_may_be_infinite_behind_a_contraction() -> None:
    layer = Layer()
    large = layer.op("mul", layer.sums(), np.full(COLUMNS, 1e35))
    module = layer.module(layer.quantised(large, 3.0, 0, "u8"))
    ops = check(module, np.full((ROWS, STEPS), 7, np.uint8), 0)
    assert (ops["div"], ops["mul"]) == (0, 2)


def test_functions_are_rescaled_as_sums_are() -> None:
    layer = Layer()
    y = layer.b.value("exp", layer.op("mul", layer.sums(), 0.001))
    ops = check(
        layer.module(layer.quantised(layer.op("add", y, 1.0), 0.3, 9, "u8")),
        RANDOM.integers(0, 256, (ROWS, STEPS)).astype(np.uint8), 1,
    )  # fmt: skip
    assert ops["div"] == 0


def test_codes_that_are_quantised_again_need_no_zero_point_and_no_second_rounding() -> None:
    layer = Layer()
    y = layer.op("mul", layer.sums(), 0.01)
    for scale, zero in ((0.5, 9), (0.5, 9), (0.25, 100), (0.7, 3)):
        y = layer.dequantised(layer.quantised(y, scale, zero, "u8"), scale, zero)
    ops = check(layer.module(y), RANDOM.integers(0, 256, (ROWS, STEPS)).astype(np.uint8), 2)
    assert ops["add"] == ops["sub"] == 0
    assert (ops["round_even"], ops["clamp"]) == (2, 3)


@pytest.mark.parametrize(("target", "room"), [("u8", 1), ("i8", 1), ("u8", 3)])
def test_windows_take_the_greatest_code(target: str, room: int) -> None:
    """Where each holds an element: of three rows of padding one window does not."""
    layer = Layer()
    codes = layer.quantised(layer.op("mul", layer.sums(), 0.01), 0.5, 0, target)
    padding = ((room, 2 - room), (1, 1))
    y = layer.dequantised(codes, 0.5, 0)
    y = layer.b.value("reduce_window", y, kind="max", window=(3, 3), padding=padding)
    module = layer.module(layer.quantised(y, 0.5, 0, target))
    ops = check(module, RANDOM.integers(0, 256, (ROWS, STEPS)).astype(np.uint8), 0)
    greatest = next(op for op in walk(simplified(module)) if op.name == "reduce_window")
    assert tensor_type(greatest.result).dtype.name == (target if room == 1 else "f32")
    assert ops["round_even"] == 1 + (room == 3)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_scales_of_other_floats_keep_their_dtype(kind: Any) -> None:
    layer, wanted = Layer(), dtype(np.dtype(kind).name.replace("float", "f"))
    x = layer.b.value("convert", layer.sums(), dtype=wanted)
    for name, number in (("mul", np.full(COLUMNS, 1 / 512)), ("mul", 0.5), ("div", 3.0)):
        y = layer.b.constant(np.asarray(number, kind))
        dimensions = (1,) if isinstance(number, np.ndarray) else ()
        y = layer.b.value("broadcast", y, shape=SHAPE, dimensions=dimensions)
        x = layer.b.value(name, x, y)
    rows = RANDOM.integers(0, 8, (ROWS, STEPS)).astype(np.uint8)  # sums that f16 holds
    counts = check(layer.module(x), rows, most=0.0)
    assert (counts["mul"], counts["div"]) == (2, 1)


@pytest.mark.slow
def test_long_chains_are_followed() -> None:
    layer = Layer()
    y = layer.sums()
    for _ in range(3000):
        y = layer.op("add", y, 0.25)
    ops = check(
        layer.module(layer.quantised(y, 64.5, 0, "u8")), np.ones((ROWS, STEPS), np.uint8), 1
    )
    assert ops["div"] == 0


@pytest.mark.parametrize("is_quantised", [True, False])
def test_only_the_first_of_two_layers_that_are_added_keeps_its_codes(is_quantised: bool) -> None:
    """They wait in memory for the second, which nobody waits for; what has no codes gets none."""
    layer = Layer()
    parts = []
    for scale, zero in ((0.5, 120), (0.25, 131)):
        x = layer.op("mul", layer.sums(), 1e-4)
        if is_quantised:
            x = layer.dequantised(layer.quantised(x, scale / 50, zero, "u8"), scale, zero)
        parts.append(x)
    module = layer.module(layer.b.value("add", *parts))
    x = RANDOM.integers(0, 256, (ROWS, STEPS)).astype(np.uint8)
    check(module, x, 0.5)
    changed = simplified(module)
    results = [each for op in walk(changed) for each in op.results]
    assert sum(tensor_type(each).dtype.name == "u8" for each in results) == is_quantised
    kernels = form_dispatches(changed).functions["main"].block.ops
    made = [tensor_type(op.result).dtype.name for op in kernels if op.name == "dispatch.region"]
    assert made == ["u8" if is_quantised else "f32", "f32"]
