"""Regions that differ in numbers share an entry, which reads the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.dispatch.form_dispatches import form_dispatches
from ingot.compiler.dispatch.outline import outline
from ingot.compiler.dispatch.share_numbers import share_numbers
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops import Clamp, Constant
from ingot.compiler.ir import Function, Module, TensorType, Value, walk
from ingot.hal.spec import dtype
from tests.support.programs import program

F32, I32 = dtype("f32"), dtype("i32")
SHAPE = (64, 64)


def weight(b: Builder) -> Value:
    return b.constant(np.ones((4, 4, 16, 1), np.float32))


def scaled(b: Builder, x: Value, factors: tuple[float, ...]) -> Value:
    """A product with a weight and, behind it, each factor taken away, and doubled."""
    y = b.value("dot_packed", b.value("reshape", x, shape=(1024, 4)), weight(b), n=64)
    for each in factors:
        y = b.value("sub", y, b.full(each, F32, (1024, 64)))
        y = b.value("mul", y, b.full(2.0, F32, (1024, 64)))
    return b.value("slice", y, start=(0, 0), limit=SHAPE)


def outlined(*layers: tuple[float, ...]) -> Module:
    def build(b: Builder, x: Value) -> Value:
        for factors in layers:
            x = scaled(b, x, factors)
        return x

    module = program(build, TensorType(F32, SHAPE))
    return outline(share_numbers(form_dispatches(module)))


def products(module: Module) -> list[Function]:
    return [
        each
        for each in module.functions.values()
        if each.name != "main" and any(op.name == "dot_packed" for op in walk(each))
    ]


def numbers(function: Function) -> list[float]:
    """The constants in its code."""
    return [float(Constant.of(op).value.array) for op in walk(function) if op.name == "constant"]


def test_numbers_that_differ_are_read_and_others_stay() -> None:
    (entry,) = products(outlined((3.0, 5.0), (4.0, 5.0), (4.5, 5.0)))
    assert sorted(numbers(entry)) == [2.0, 2.0, 5.0]
    assert [str(each.type) for each in entry.arguments].count("f32[]") == 1


def test_what_is_equal_by_chance_does_not_tell_layers_apart() -> None:
    (entry,) = products(outlined((3.0, 3.0), (4.0, 5.0)))
    assert [str(each.type) for each in entry.arguments].count("f32[]") == 2
    (entry,) = products(outlined((3.0, 3.0), (4.0, 4.0)))
    assert [str(each.type) for each in entry.arguments].count("f32[]") == 1


def test_a_single_region_keeps_its_numbers() -> None:
    (entry,) = products(outlined((3.0, 4.0)))
    assert all(str(each.type) != "f32[]" for each in entry.arguments)


@pytest.mark.parametrize("most", [9.0, np.nan])
def test_limits_and_zero_points_of_layers_are_read(most: float) -> None:
    def build(b: Builder, x: Value) -> Value:
        for low, zero in ((-3.0, 5), (-4.0, 6)):
            y = b.value("dot_packed", b.value("reshape", x, shape=(1024, 4)), weight(b), n=64)
            limits = [b.full(each, F32, (1024, 64)) for each in (low, most)]
            y = b.value("convert", b.value("clamp", limits[0], y, limits[1]), dtype=I32)
            y = b.value("mul", y, b.full(zero, I32, (1024, 64)))
            x = b.value("slice", b.value("convert", y, dtype=F32), start=(0, 0), limit=SHAPE)
        return x

    module = program(build, TensorType(F32, SHAPE))
    (entry,) = products(outline(share_numbers(form_dispatches(module))))
    kinds = [str(each.type) for each in entry.arguments]
    assert (kinds.count("f32[]"), kinds.count("i32[]")) == (1, 1)
    np.testing.assert_array_equal(numbers(entry), [most])
    (clamp,) = (op for op in walk(entry) if op.name == "clamp")
    assert Clamp.of(clamp).numbers == (most == 9)
