"""multiply_codes makes products of quantised tensors products of bytes, and changes no number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from ingot.compiler.graph.forms.fuse_scales import fuse_scales
from ingot.compiler.graph.forms.multiply_codes import (
    IN_INTEGERS,
    LEFT_IN_FLOAT,
    multiply_codes,
)
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Module, TensorType, walk
from ingot.compiler.read_source import copy_module, read_source
from ingot.hal.spec import dtype
from tests.support.drawn import examples

Array = np.ndarray[Any, Any]
Nodes = list[onnx.NodeProto]
RANDOM = np.random.default_rng(11)
TYPES = {
    np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8, np.int16: TensorProto.INT16,
    np.float32: TensorProto.FLOAT,
}  # fmt: skip


def model(nodes: Nodes, x: Any, shape: Any, constants: dict[str, Array]) -> onnx.ModelProto:
    """A model of the nodes from "x" to "y"; or from "x" and "w", of two dtypes and shapes."""
    arguments = zip("xw", x, shape, strict=True) if isinstance(x, tuple) else [("x", x, shape)]
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info(name, TYPES[kind], dims) for name, kind, dims in arguments],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def integers(kind: Any, *shape: int) -> Array:
    info = np.iinfo(kind)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(kind)


def products(module: Module) -> list[tuple[str, ...]]:
    """The dtypes of operands of each contraction."""
    return [
        tuple(each.type.dtype.name for each in op.operands if isinstance(each.type, TensorType))
        for op in walk(module)
        if op.name in ("dot_general", "convolution")
    ]


def check(source: onnx.ModelProto, *x: Array, exact: bool = True) -> list[tuple[str, ...]]:
    """Compare the results of the program with those of the one that multiplies codes."""
    module = read_source(source)
    changed = multiply_codes(copy_module(module))
    (wanted,), (got,) = (interpret(each, "main", list(x)) for each in (module, changed))
    if exact:
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6 * np.abs(wanted).max())
    return products(changed)


def dequantised(kind: Any, weight: Any, per_column: bool, zero: bool) -> dict[str, Array]:
    """Constants of a product of x [5, 13] with a weight [13, 7]."""
    columns = (7,) if per_column else ()
    return {
        "sx": np.float32(0.02) * np.ones((), np.float32),
        "zx": integers(kind) if zero else np.zeros((), kind),
        "w": integers(weight, 13, 7),
        "sw": RANDOM.uniform(0.01, 0.05, columns).astype(np.float32),
        "zw": integers(weight, *columns) if zero else np.zeros(columns, weight),
    }


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("weight", [np.uint8, np.int8])
@pytest.mark.parametrize(("per_column", "zero"), [(False, False), (True, False), (True, True)])
def test_a_product_of_dequantised_tensors_becomes_one_of_codes(
    kind: Any, weight: Any, per_column: bool, zero: bool
) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=1),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    source = model(nodes, kind, ["m", 13], dequantised(kind, weight, per_column, zero))
    assert check(source, integers(kind, 5, 13), exact=False) == [("u8", "i8")]


def test_moves_between_weights_and_products_are_seen_through() -> None:
    constants = dequantised(np.uint8, np.int8, True, True)
    constants["w"] = np.ascontiguousarray(constants["w"].T)
    constants["shape"] = np.array([5, 13])
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=0),
        helper.make_node("Transpose", ["b"], ["bt"], perm=[1, 0]),
        helper.make_node("Reshape", ["a", "shape"], ["rows"]),
        helper.make_node("MatMul", ["rows", "bt"], ["y"]),
    ]
    source = model(nodes, np.uint8, [13, 5], constants)
    assert check(source, integers(np.uint8, 13, 5), exact=False) == [("u8", "i8")]


@pytest.mark.parametrize("weight", [np.uint8, np.int8])
def test_integer_products_keep_every_bit(weight: Any) -> None:
    constants = dequantised(np.uint8, weight, True, True)
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["y"])]
    source = model(nodes, np.uint8, ["m", 13], constants)
    assert check(source, integers(np.uint8, 5, 13)) == [("u8", "i8")]


@examples(60)
@given(
    data=st.data(),
    kinds=st.tuples(*[st.sampled_from((np.uint8, np.int8))] * 2),
    sizes=st.tuples(*[st.integers(1, 9)] * 3),
    batch=st.lists(st.integers(1, 3), max_size=2),
    spelling=st.sampled_from(("integers", "floats", "heads")),
)
def test_products_of_two_activations_keep_every_bit(
    data: Any, kinds: tuple[Any, Any], sizes: tuple[int, int, int], batch: list[int], spelling: str
) -> None:
    (m, k, n), rank = sizes, len(batch)
    shapes = [[*batch, m, k], [*batch, k, n]]
    constants: dict[str, Array] = {"s": np.array(0.25, np.float32)}
    for name, kind in zip("ab", kinds, strict=True):
        info = np.iinfo(kind)
        zero = data.draw(st.sampled_from((info.min, info.max, 0)) | st.integers(info.min, info.max))
        constants["z" + name] = np.array(zero, kind)
    sides = ["x", "w"]
    nodes = []
    if spelling == "heads":  # rows of a sequence, whose heads become batches
        order = [rank, *range(rank), rank + 1]
        for at, shape in enumerate(shapes):
            shapes[at] = [shape[order.index(axis)] for axis in range(rank + 2)]
            nodes.append(helper.make_node("Transpose", [sides[at]], [f"t{at}"], perm=order))
        sides = ["t0", "t1"]
    if spelling == "integers":
        nodes.append(helper.make_node("MatMulInteger", [*sides, "za", "zb"], ["y"]))
    else:
        for at, name in enumerate("ab"):
            parts = [sides[at], "s", f"z{name}"]
            nodes.append(helper.make_node("DequantizeLinear", parts, [name]))
        nodes.append(helper.make_node("MatMul", ["a", "b"], ["y"]))
    source = model(nodes, kinds, shapes, constants)
    arrays = [integers(kind, *shape) for kind, shape in zip(kinds, shapes, strict=True)]
    assert check(source, *arrays) == [("u8", "i8")]


def test_sums_along_any_number_of_steps_without_a_bound_are_of_floats() -> None:
    constants = {"s": np.ones((), np.float32), "z": np.zeros((), np.uint8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    source = model(nodes, (np.uint8, np.uint8), (["m", "k"], ["k", 7]), constants)
    arrays = integers(np.uint8, 5, 13), integers(np.uint8, 13, 7)
    assert check(source, *arrays) == [("f32", "f32")]
    ((_, reason),) = multiply_codes(read_source(source)).attributes[LEFT_IN_FLOAT]
    assert reason == "sums of k products of bytes may not fit 32 bits"
    for most in (33025, 33026):
        module = read_source(source)
        module.functions["main"].symbols["k"] = (1, most)
        assert (LEFT_IN_FLOAT in multiply_codes(module).attributes) == (most * 255**2 >= 2**31)


def test_a_dynamic_scale_is_a_number_of_the_call() -> None:
    constants = dequantised(np.uint8, np.int8, True, False)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "zw"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    source = model(nodes, np.float32, ["m", 13], constants)
    x = RANDOM.normal(size=(5, 13)).astype(np.float32)
    assert check(source, x) == [("u8", "i8")]


@pytest.mark.parametrize(("kind", "weight"), [(np.uint8, np.int8), (np.int8, np.uint8)])
@pytest.mark.parametrize(("groups", "zero"), [(1, False), (1, True), (2, True), (6, True)])
def test_convolutions_pad_with_the_zero_point(
    kind: Any, weight: Any, groups: int, zero: bool
) -> None:
    constants = {
        "sx": np.float32(0.02) * np.ones((), np.float32),
        "zx": integers(kind) if zero else np.zeros((), kind),
        "w": integers(weight, 6, 6 // groups, 3, 3),
        "sw": RANDOM.uniform(0.01, 0.05, 6).astype(np.float32),
        "zw": integers(weight, 6) if zero else np.zeros(6, weight),
    }
    moves = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": groups}
    integer = [helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], **moves)]
    x = integers(kind, 2, 6, 7, 5)
    found = check(model(integer, kind, [2, 6, "h", 5], constants), x)
    assert set(found) == {("u8", "i8")}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=0),
        helper.make_node("Conv", ["a", "b"], ["y"], **moves),
    ]
    found = check(model(nodes, kind, [2, 6, "h", 5], constants), x, exact=False)
    assert set(found) == {("u8", "i8")}


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16])
@pytest.mark.parametrize(
    "moves",
    [
        {"strides": [2, 3], "pads": [1, 0, 0, 2]},
        {"strides": [3, 1], "output_padding": [1, 0], "group": 2},
        {"strides": [4, 4]},  # windows that some results lie between
    ],
)
def test_transposed_convolutions_have_zero_points(kind: Any, moves: dict[str, Any]) -> None:
    columns = () if "group" in moves else (4,)
    constants = {
        "sx": np.float32(0.02) * np.ones((), np.float32),
        "zx": integers(kind),
        "w": integers(np.int8, 6, 4 // moves.get("group", 1), 3, 3),
        "sw": np.asarray(RANDOM.uniform(0.01, 0.05, columns), np.float32),
        "zw": np.zeros(columns, np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=1),
        helper.make_node("ConvTranspose", ["a", "b"], ["y"], **moves),
    ]
    x = integers(kind, 2, 6, 7, 5)
    found = check(model(nodes, kind, [2, 6, "h", 5], constants), x, exact=False)
    assert set(found) == {("u8", "i8")}


def by_rows() -> Nodes:
    """Rows of x less their greatest codes, times scales of their own, as "rows"."""
    return [
        helper.make_node("ReduceMax", ["x", "last"], ["zero"]),
        helper.make_node("Cast", ["zero"], ["wide_zero"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["wide", "wide_zero"], ["numbers"]),
        helper.make_node("Exp", ["sx"], ["factor"]),
        helper.make_node("Mul", ["wide_zero", "wide_zero"], ["square"]),
        helper.make_node("Add", ["square", "factor"], ["scale"]),
        helper.make_node("Mul", ["numbers", "scale"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["rows"]),
    ]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_rows_may_have_scales_and_zero_points_of_their_own(kind: Any) -> None:
    for zero in (False, True):
        constants = dequantised(kind, np.int8, True, zero)
        constants |= {"last": np.array([2]), "shape": np.array([-1, 13])}
        nodes = [
            *by_rows(),
            helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=1),
            helper.make_node("MatMul", ["rows", "b"], ["y"]),
        ]
        source = model(nodes, kind, ["b", "m", 13], constants)
        assert check(source, integers(kind, 2, 5, 13), exact=False) == [("u8", "i8")]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_rows_of_codes_meet_weights_with_scales_of_groups_in_integers(kind: Any) -> None:
    constants = {"last": np.array([2]), "shape": np.array([-1, 32]), "sx": np.float32([0.5])}
    constants["w"] = RANDOM.integers(-8, 8, (32, 7)).astype(np.int8)
    constants["sw"] = RANDOM.uniform(0.01, 0.05, (2, 7)).astype(np.float32)
    nodes = [
        *by_rows(),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["b"], axis=0, block_size=16),
        helper.make_node("MatMul", ["rows", "b"], ["y"]),
    ]
    module, x = read_source(model(nodes, kind, ["b", "m", 32], constants)), integers(kind, 2, 5, 32)
    changed = fuse_scales(multiply_codes(copy_module(module)))
    assert [op.name for op in walk(changed) if op.name.startswith("dot_")] == ["dot_scaled"]
    assert IN_INTEGERS in changed.attributes
    assert LEFT_IN_FLOAT not in changed.attributes
    (wanted,), (got,) = (interpret(each, "main", [x]) for each in (module, changed))
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6 * np.abs(wanted).max())


def test_rows_of_a_quantised_table_are_taken_as_codes() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["table"]),
        helper.make_node("Cast", ["x"], ["rows"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "rows"], ["y"], axis=1),
    ]
    source = model(nodes, np.uint8, ["m"], dequantised(np.uint8, np.int8, False, True))
    check(source, np.array([3, 6, 0, 3], np.uint8))
    changed = multiply_codes(read_source(source))
    (take,) = (op for op in walk(changed) if op.name == "take")
    assert take.operands[0].type == TensorType(dtype("i8"), (13, 7))


def blocked(constants: dict[str, Array]) -> Nodes:
    constants["sw"] = np.ones((2, 7), np.float32)
    constants["zw"] = np.zeros((2, 7), np.int8)
    return [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=0, block_size=7),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]


def plain(constants: dict[str, Array]) -> Nodes:
    return [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["a", "sx"], ["c"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=1),
        helper.make_node("MatMul", ["c", "b"], ["y"]),
    ]


def far_zero(constants: dict[str, Array]) -> Nodes:
    """A zero point that no padding with codes can have."""
    constants["zx"] = np.float32([300])
    constants["w"] = integers(np.int8, 7, 13, 1)
    constants["shape"] = np.array([1, 13, -1])
    return [
        helper.make_node("Reshape", ["x", "shape"], ["image"]),
        helper.make_node("Cast", ["image"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["a", "zx"], ["c"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=0),
        helper.make_node("Conv", ["c", "b"], ["y"], pads=[1, 1]),
    ]


@pytest.mark.parametrize(
    ("spelling", "reason"),
    [
        (blocked, "scales or zero points of its weight change along what is summed"),
        (plain, "its input is not quantised"),
        (far_zero, "its input is quantised to u8"),
    ],
)
def test_what_does_not_fit_stays_a_product_of_floats(
    spelling: Callable[[dict[str, Array]], Nodes], reason: str
) -> None:
    constants = dequantised(np.uint8, np.int8, True, False)
    nodes = spelling(constants)
    source = model(nodes, np.uint8, ["m", 13], constants)
    assert check(source, integers(np.uint8, 5, 13)) == [("f32", "f32")]
    left = multiply_codes(read_source(source)).attributes[LEFT_IN_FLOAT]
    assert [each for _, each in left] == [reason]


@pytest.mark.parametrize(
    ("kind", "code", "zero", "depth", "fits"),
    [
        (np.uint8, 255, 0, 65793, True),
        (np.uint8, 255, 0, 65794, False),
        (np.uint8, 0, 255, 65793, True),
        (np.int8, -128, 0, 131071, True),
        (np.int8, -128, 127, 65794, False),
    ],
)
def test_sums_that_may_leave_32_bits_are_of_floats(
    kind: Any, code: int, zero: int, depth: int, fits: bool
) -> None:
    constants = {
        "s": np.ones((), np.float32),
        "zx": np.array(zero, kind),
        "w": np.full((depth, 1), -128, np.int8),
        "zw": np.zeros((), np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "s", "zw"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    source = model(nodes, kind, [1, depth], constants)
    found = check(source, np.full((1, depth), code, kind), exact=False)
    assert found == [("u8", "i8") if fits else ("f32", "f32")]


def test_differences_that_wrap_are_codes() -> None:
    constants = {"z": np.array(100, np.uint8), "w": integers(np.uint8, 13, 7)}
    nodes = [
        helper.make_node("Sub", ["x", "z"], ["a"]),
        helper.make_node("MatMulInteger", ["a", "w"], ["y"]),
    ]
    source = model(nodes, np.uint8, ["m", 13], constants)
    assert check(source, integers(np.uint8, 5, 13)) == [("u8", "i8")]


def test_products_in_f64_keep_their_digits() -> None:
    constants = {"s": np.array(0.1), "w": integers(np.int8, 13, 7)}
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["c", "s"], ["a"]),
        helper.make_node("Cast", ["w"], ["b"], to=TensorProto.DOUBLE),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    source = model(nodes, np.uint8, ["m", 13], constants)
    assert check(source, integers(np.uint8, 5, 13)) == [("f64", "f64")]
