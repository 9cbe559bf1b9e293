"""Codes in the place of weights: programs give what they give with the rounded weights, and end
as products of bytes or of packed codes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import DotCoded
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.graph.quantizing.insert_codes import Change, Range, insert_codes
from ingot.compiler.graph.quantizing.layers import Layer, find_layers, prepare
from ingot.compiler.graph.weight_arrays import WeightArrays
from ingot.compiler.ir import Module, Value, walk
from ingot.compiler.read_source import copy_module
from ingot.quantizing.weights import Grid, rounded
from tests.support.drawn import examples
from tests.support.programs import program

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(7)


def numbers(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def weight_of(module: Module, layer: Layer) -> Array:
    weight = WeightArrays(module.functions[layer.function]).of(layer.weight)
    assert weight is not None
    return weight


def changed(module: Module, bits: int, group: int = 0, range: Range | None = None) -> Module:
    """The program with all weights quantised."""
    changes = {}
    for name, layer in find_layers(module).items():
        matrix = layer.matrix(weight_of(module, layer))
        codes, _ = rounded(matrix, Grid(bits, group or layer.inputs, True), bits < 8)
        changes[name] = Change(codes, None if layer.obstacle else range)
    return insert_codes(copy_module(module), changes)


def with_rounded_weights(module: Module, bits: int, group: int = 0) -> Callable[..., Any]:
    """The float program, whose weights are the numbers that codes stand for."""
    weights: dict[Value, Array] = {}
    for layer in find_layers(module).values():
        weight = weight_of(module, layer)
        codes, _ = rounded(layer.matrix(weight), Grid(bits, group or layer.inputs, True), bits < 8)
        order = layer.free + layer.summed
        shape = [weight.shape[axis] for axis in order]
        weights[layer.weight] = np.transpose(codes.numbers().reshape(shape), np.argsort(order))

    def call(*arrays: Array) -> Array:
        def listen(value: Value, array: Any) -> Any:
            return weights.get(value, array)

        (result,) = interpret(module, "main", arrays, listener=listen)
        return result

    return call


@given(st.data())
@examples(25)
def test_products_give_what_the_rounded_weight_gives(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(1, 5), min_size=0, max_size=2), "rows")
    free = data.draw(st.lists(st.integers(1, 9), min_size=0, max_size=2), "free")
    k = data.draw(st.lists(st.integers(1, 24), min_size=1, max_size=2), "summed")
    order = data.draw(st.permutations(range(len(free) + len(k))), "axes of the weight")
    bits = data.draw(st.sampled_from((2, 3, 4, 8)), "bits")
    groups = [each for each in range(1, prod(k) + 1) if prod(k) % each == 0]
    group = data.draw(st.sampled_from(groups), "group")
    on_left = data.draw(st.booleans(), "weight on the left")
    dims = [*free, *k]
    weight = numbers(*(dims[axis] for axis in order))
    contract = tuple(order.index(len(free) + place) for place in range(len(k)))
    x_contract = tuple(range(len(rows), len(rows) + len(k)))

    def build(b: Builder, x: Value) -> Value:
        w = b.constant(weight)
        sides = ((w, contract), (x, x_contract)) if on_left else ((x, x_contract), (w, contract))
        (left, lhs), (right, rhs) = sides
        return b.value("dot_general", left, right, lhs_contract=lhs, rhs_contract=rhs)

    module = program(build, f"f32[{','.join(map(str, [*rows, *k]))}]")
    x = numbers(*rows, *k)
    wanted = with_rounded_weights(module, bits, group)(x)
    quantised = changed(module, bits, group)
    for each in (quantised, run_graph_passes(copy_module(quantised))):
        (got,) = interpret(each, "main", [x])
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("layout", ["nchw,oihw->nchw", "nhwc,hwio->nhwc"])
@pytest.mark.parametrize("bits", [4, 8])
def test_convolutions_give_what_the_rounded_weight_gives(
    groups: int, layout: str, bits: int
) -> None:
    is_first = layout.startswith("nchw")
    weight = numbers(6, 6 // groups, 3, 2) if is_first else numbers(3, 2, 6 // groups, 6)
    shape = (2, 6, 5, 7) if is_first else (2, 5, 7, 6)

    def build(b: Builder, x: Value) -> Value:
        w = b.constant(weight)
        pads = ((1, 0), (0, 2))
        return b.value("convolution", x, w, layout=layout, groups=groups, padding=pads)

    module = program(build, f"f32[{','.join(map(str, shape))}]")
    (layer,) = find_layers(module).values()
    assert layer.kind == ("depthwise" if groups == 6 else "convolution")
    assert not layer.obstacle
    x = numbers(*shape)
    (got,) = interpret(changed(module, bits), "main", [x])
    wanted = with_rounded_weights(module, bits)(x)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_of_a_table_are_taken_packed(bits: int) -> None:
    table = numbers(11, 32)

    def build(b: Builder, index: Value) -> Value:
        return b.value("take", b.constant(table), index, axis=0, mode="clamp")

    module = program(build, "i32[2,3]")
    index = RANDOM.integers(0, 11, (2, 3)).astype(np.int32)
    quantised = changed(module, bits, 16)
    (got,) = interpret(quantised, "main", [index])
    np.testing.assert_allclose(got, with_rounded_weights(module, bits, 16)(index), rtol=1e-6)
    done = run_graph_passes(quantised)
    lengths = [op.result.type.shape[0] for op in walk(done) if op.name == "take"]  # type: ignore[union-attr]
    assert lengths
    assert "init" not in done.functions  # no table of floats is made


def test_a_product_of_quantised_tensors_becomes_one_of_bytes() -> None:
    weight, range = numbers(24, 7), Range(0.03, 100)

    def build(b: Builder, x: Value) -> Value:
        y = b.value("dot_general", x, b.constant(weight), lhs_contract=(1,), rhs_contract=(0,))
        return b.value("max", y, b.full(0.0, "f32", (5, 7)))

    module = program(build, "f32[5,24]")
    x = 3 * numbers(5, 24)
    wanted = with_rounded_weights(module, 8)(range.rounded(x))
    quantised = changed(module, 8, range=range)
    (got,) = interpret(quantised, "main", [x])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    done = run_graph_passes(quantised)
    assert [
        [each.type.dtype.name for each in op.operands]  # type: ignore[union-attr]
        for op in walk(done)
        if op.name == "dot_packed"
    ] == [["u8", "i8"]]
    (got,) = interpret(done, "main", [x])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_a_weight_alone_is_multiplied_packed(bits: int) -> None:
    weight = numbers(20, 64)

    def build(b: Builder, x: Value) -> Value:
        return b.value("dot_general", x, b.constant(weight), lhs_contract=(1,), rhs_contract=(1,))

    done = run_graph_passes(changed(program(build, "f32[3,64]"), bits, 0 if bits == 8 else 32))
    names = [op.name for op in walk(done)]
    assert "dot_packed" not in names
    (width,) = (op.attributes.width for op in walk(done) if isinstance(op.attributes, DotCoded))
    assert width == bits


def test_what_convolutions_read_is_bytes_for_all_and_so_is_what_its_maximum_is_of() -> None:
    weight = numbers(4, 3, 1, 1)

    def build(b: Builder, x: Value) -> tuple[Value, Value, Value]:
        top = b.value(
            "reduce_window", b.value("abs", x), kind="max", window=(1, 1, 2, 2),
            strides=(1, 1, 2, 2),
        )  # fmt: skip
        y = b.value("convolution", top, b.constant(weight), layout="nchw,oihw->nchw")
        return y, b.value("exp", top), top

    module = program(build, "f32[1,3,4,4]")
    done = changed(module, 8, range=Range(0.05, 0))
    (window,) = (op for op in walk(done) if op.name == "reduce_window")
    (exp,) = (op for op in walk(done) if op.name == "exp")
    for op in (window, exp):  # each reads numbers that codes stand for
        assert op.operands[0].owner.name == "mul"  # type: ignore[union-attr]
    x = np.float32(0.05) * RANDOM.integers(-255, 256, (1, 3, 4, 4)).astype(np.float32)
    wanted = interpret(module, "main", [x])[1]
    np.testing.assert_allclose(interpret(done, "main", [x])[1], wanted, rtol=1e-4)
    assert done.functions["main"].block.terminator.operands[2] is window.result  # stays float


def test_a_range_that_the_call_finds_covers_its_numbers() -> None:
    weight = np.eye(6, dtype=np.float32)

    def build(b: Builder, x: Value) -> Value:
        return b.value("dot_general", x, b.constant(weight), lhs_contract=(1,), rhs_contract=(0,))

    module = program(build, "f32[r,6]", symbols={"r": (1, None)})
    (name,) = find_layers(module)
    codes, _ = rounded(weight, Grid(8, 6, False), False)
    done = insert_codes(copy_module(module), {name: Change(codes, is_dynamic=True)})
    for scale in (1e-3, 1.0, 1e4):
        x = scale * numbers(5, 6)
        step = (max(x.max(), 0) - min(x.min(), 0)) / 255
        (got,) = interpret(done, "main", [x])
        assert np.abs(got - x).max() <= 0.51 * step + np.abs(x).max() / 200
    zeros = np.zeros((2, 6), np.float32)
    np.testing.assert_array_equal(interpret(done, "main", [zeros])[0], zeros)


def test_layers_have_names_of_their_own() -> None:
    def build(b: Builder, x: Value) -> Value:
        for place in range(4):
            with b.at("same" if place < 3 else "same (2)"):
                w = b.constant(numbers(4, 4))
                x = b.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,))
        return x

    layers = find_layers(prepare(program(build, "f32[2,4]")))
    assert list(layers) == ["same", "same (3)", "same (4)", "same (2)"]
