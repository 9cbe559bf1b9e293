"""ONNX ops through the whole compiler and the runtime, against onnxruntime.

Each family is one model with symbolic dims and one output per op: it is compiled once and run
on several shapes, dims of 1 and 0 among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.devices import load_best
from tests.support.onnx_cases import Case, Pair, in_reference
from tests.support.onnx_models import build_model, make_value

Node = helper.make_node


def _family(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    initializers: dict[str, Any] | None = None,
) -> Pair:
    return Pair(build_model(nodes, inputs, [node.output[0] for node in nodes], initializers))


def _unary(names: Sequence[str], element: int = TensorProto.FLOAT) -> Pair:
    nodes = [Node(name, ["x"], [name]) for name in names]
    return _family(nodes, [make_value("x", ["n", "m"], element)])


SPECIAL = np.array([[0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5]], np.float32)


def test_float_unary_ops_and_activations() -> None:
    pair = _unary(
        [
            *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Reciprocal", "Round"),
            *("Sigmoid", "Sign", "Sin", "Tanh", "Elu", "HardSigmoid", "HardSwish", "Gelu"),
            *("LeakyRelu", "Relu", "Selu", "Softplus", "Softsign", "Mish", "ThresholdedRelu"),
        ]
    )
    generator = np.random.default_rng(0)
    for shape in ((1, 1), (3, 17), (0, 4), (2, 64)):
        pair.check(x=(4 * generator.standard_normal(shape)).astype(np.float32))
    no_sign_of_nan = np.where(np.isnan(SPECIAL), 0, SPECIAL)
    pair.check(x=no_sign_of_nan[:, [0, 1, 2, 3, 7]])


def test_celu_with_an_alpha_of_0_is_relu() -> None:
    x = np.array([-np.inf, -2, -0.5, 0, 1, np.inf], np.float32)
    model = build_model([Node("Celu", ["x"], ["y"], alpha=0.0)], [make_value("x", [6])], ["y"])
    np.testing.assert_array_equal(load_best(model).main(x), np.maximum(x, 0))


def test_functions_of_positive_numbers_and_of_small_ones() -> None:
    positive = _unary(["Log", "Sqrt", "Asinh", "Atan", "Sinh", "Cosh"])
    positive.check(x=np.geomspace(1e-4, 40, 33, dtype=np.float32)[None])
    small = _unary(["Asin", "Acos", "Atanh", "Tan"])
    small.check(x=np.linspace(-0.99, 0.99, 33, dtype=np.float32)[None])


def test_comparisons_and_logic_of_special_numbers() -> None:
    nodes = [
        *(Node(name, ["x", "y"], [name]) for name in ("Equal", "Greater", "Less")),
        Node("GreaterOrEqual", ["x", "y"], ["ge"]),
        Node("IsNaN", ["x"], ["nan"]),
        Node("IsInf", ["x"], ["inf"], detect_negative=0),
        Node("And", ["Greater", "nan"], ["and"]),
        Node("Xor", ["Less", "ge"], ["xor"]),
        Node("Not", ["Less"], ["not"]),
        Node("Where", ["Less", "x", "y"], ["where"]),
    ]
    pair = _family(nodes, [make_value("x", ["n", 1]), make_value("y", ["m"])])
    pair.check(x=SPECIAL.T.copy(), y=SPECIAL[0])


def test_slopes_are_smaller_than_what_they_slope_or_make_it_larger() -> None:
    slopes = {"one": [0.1], "row": [0.1, 0.2, 0.3], "rank": [[[-1, 2, 3]]]}
    slopes |= {"rows": [[[1], [2]]], "wide": [[[1]], [[2]]]}
    nodes = [Node("PRelu", ["x", each], [f"y_{each}"]) for each in slopes]
    nodes.append(Node("PRelu", ["narrow", "row"], ["y_narrow"]))
    arrays = {name: np.array(value, np.float32) for name, value in slopes.items()}
    inputs = [make_value("x", [2, 3]), make_value("narrow", ["n", 1])]
    x = np.array([[-1, 2, -3], [0, -0.5, 4]], np.float32)
    _family(nodes, inputs, arrays).check(x=x, narrow=x[:, :1])


@pytest.mark.parametrize(
    ("element", "dtype"), [(TensorProto.FLOAT, np.float32), (TensorProto.INT32, np.int32)]
)
def test_binary_ops_broadcast(element: int, dtype: Any) -> None:
    names = ["Add", "Sub", "Mul", "Div", "Max", "Min"]
    nodes = [Node(name, ["x", "y"], [name]) for name in names]
    inputs = [make_value("x", ["a", "b", "c"], element), make_value("y", ["b", 1], element)]
    pair = _family(nodes, inputs)
    for a, b, c in ((1, 1, 1), (2, 3, 5), (1, 4, 16), (0, 2, 3)):
        x = np.arange(-7, a * b * c - 7).reshape(a, b, c).astype(dtype)
        y = np.arange(1, b + 1).reshape(b, 1).astype(dtype)
        pair.check(x=x, y=y)


def test_reductions_of_every_kind_over_last_middle_and_all_axes() -> None:
    names = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"]
    nodes = [
        Node(name, ["x", axes], [f"{name}_{axes}"], keepdims=keep)
        for name in names
        for axes, keep in (("last", 0), ("middle", 1), ("two", 0), ("all", 1))
    ]
    axes = {"last": [2], "middle": [1], "two": [0, -1], "all": [0, 1, 2]}
    arrays = {name: np.array(value, np.int64) for name, value in axes.items()}
    pair = _family(nodes, [make_value("x", ["a", "b", "c"])], arrays)
    generator = np.random.default_rng(1)
    for shape in ((1, 1, 1), (2, 3, 5), (3, 4, 33)):
        pair.check(1e-5, x=generator.standard_normal(shape, np.float32))


def test_logarithms_of_sums_of_integers_are_rounded_toward_zero() -> None:
    names = ["ReduceLogSum", "ReduceLogSumExp"]
    nodes = [Node(name, ["x", "axes"], [name], keepdims=0) for name in names]
    inputs = [make_value("x", ["n", "m"], TensorProto.INT64)]
    pair = _family(nodes, inputs, {"axes": np.array([1], np.int64)})
    for n, greatest in ((1, 2), (5, 40), (3, 900)):
        x = np.zeros((n, 4), np.int64)
        x[:, 1] = np.arange(greatest, greatest + n)
        pair.check(x=x)


def test_what_is_quantised_by_its_range_may_be_zeros() -> None:
    outputs = ["codes", "scale", "point"]
    nodes = [Node("DynamicQuantizeLinear", ["x"], outputs)]
    pair = Pair(build_model(nodes, [make_value("x", ["n"])], outputs))
    for x in ([0, 0, 0], [1, 2, 4], [-1, -3], [-2, 0.5, 7]):
        pair.check(x=np.array(x, np.float32))


def test_row_ops_normalise_and_find_the_greatest() -> None:
    nodes = [
        Node("Softmax", ["x"], ["softmax"]),
        Node("Softmax", ["x"], ["softmax1"], axis=1),
        Node("LogSoftmax", ["x"], ["log_softmax"]),
        Node("LayerNormalization", ["x", "scale", "shift"], ["layer"]),
        Node("ArgMax", ["x"], ["arg_max"], axis=-1),
        Node("ArgMin", ["x"], ["arg_min"], axis=1, keepdims=0),
        Node("LpNormalization", ["x"], ["lp"], axis=2),
    ]
    generator = np.random.default_rng(2)
    weights = {name: generator.random(20, np.float32) for name in ("scale", "shift")}
    pair = _family(nodes, [make_value("x", ["a", "b", 20])], weights)
    for shape in ((1, 1, 20), (2, 7, 20), (5, 16, 20)):
        pair.check(1e-5, x=generator.standard_normal(shape, np.float32))


def test_convolutions_and_pools() -> None:
    generator = np.random.default_rng(3)
    weights = {
        "dense": generator.standard_normal((8, 4, 3, 3), np.float32),
        "point": generator.standard_normal((5, 4, 1, 1), np.float32),
        "depth": generator.standard_normal((4, 1, 3, 3), np.float32),
        "grouped": generator.standard_normal((6, 2, 3, 3), np.float32),
        "points": generator.standard_normal((6, 2, 1, 1), np.float32),
        "narrow": generator.standard_normal((8, 2, 3, 3), np.float32),
        "bias": generator.standard_normal(8, np.float32),
        **{name: 0.5 + generator.random(4, np.float32) for name in ("s", "b", "m", "v")},
    }
    nodes = [
        Node("Conv", ["x", "dense", "bias"], ["plain"], pads=[1, 1, 1, 1]),
        Node("Conv", ["x", "dense"], ["strided"], strides=[2, 2], auto_pad="SAME_UPPER"),
        Node("Conv", ["x", "dense"], ["dilated"], dilations=[2, 2], pads=[2, 2, 2, 2]),
        Node("Conv", ["x", "point"], ["pointwise"]),
        Node("Conv", ["x", "depth"], ["depthwise"], group=4, pads=[1, 1, 1, 1]),
        Node("Conv", ["x", "grouped"], ["groups"], group=2, pads=[0, 1, 1, 0]),
        Node("Conv", ["x", "points"], ["points_of_groups"], group=2),
        Node("Conv", ["x", "narrow", "bias"], ["narrow_groups"], group=2, strides=[2, 1]),
        Node("BatchNormalization", ["x", "s", "b", "m", "v"], ["normal"]),
        Node("MaxPool", ["x"], ["max"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        Node("AveragePool", ["x"], ["average"], kernel_shape=[2, 3], pads=[0, 1, 1, 1]),
        Node("GlobalAveragePool", ["x"], ["global"]),
    ]
    pair = _family(nodes, [make_value("x", ["n", 4, 9, 8])], weights)
    for count in (1, 3):
        pair.check(1e-5, x=generator.standard_normal((count, 4, 9, 8), np.float32))


def test_matrix_products_of_every_rank() -> None:
    generator = np.random.default_rng(4)
    weights = {
        "w": generator.standard_normal((12, 7), np.float32),
        "column": generator.standard_normal(12, np.float32),
        "bias": generator.standard_normal(7, np.float32),
    }
    nodes = [
        Node("MatMul", ["x", "w"], ["rows"]),
        Node("MatMul", ["x", "column"], ["vector"]),
        Node("MatMul", ["x", "y"], ["batched"]),
        Node("Gemm", ["flat", "w", "bias"], ["gemm"], alpha=0.5, beta=2.0),
        Node("Einsum", ["x", "y"], ["einsum"], equation="bmk,bkn->bnm"),
    ]
    inputs = [
        make_value("x", ["b", "m", 12]),
        make_value("y", ["b", 12, "n"]),
        make_value("flat", ["m", 12]),
    ]
    pair = _family(nodes, inputs, weights)
    for b, m, n in ((1, 1, 1), (2, 5, 17), (3, 16, 33)):
        pair.check(
            1e-5,
            x=generator.standard_normal((b, m, 12), np.float32),
            y=generator.standard_normal((b, 12, n), np.float32),
            flat=generator.standard_normal((m, 12), np.float32),
        )


def test_ops_that_move_elements() -> None:
    arrays = {
        "starts": [1, -3],
        "ends": [2**63 - 1, 100],
        "axes": [1, 2],
        "steps": [1, 2],
        "pads": [0, 1, 0, 2, 0, 1],
        "repeats": [2, 1, 3],
        "rows": [0, -1, 1],
        "shape": [0, -1],
        "wide": [2, 1, 1, 1],
    }
    constants: dict[str, Any] = {name: np.array(v, np.int64) for name, v in arrays.items()}
    nodes = [
        Node("Transpose", ["x"], ["transpose"], perm=[2, 0, 1]),
        Node("Slice", ["x", "starts", "ends", "axes", "steps"], ["slice"]),
        Node("Pad", ["x", "pads"], ["pad"]),
        Node("Tile", ["x", "repeats"], ["tile"]),
        Node("Gather", ["x", "rows"], ["gather"], axis=2),
        Node("Reshape", ["x", "shape"], ["reshape"]),
        Node("Expand", ["x", "wide"], ["expand"]),
        Node("Concat", ["x", "transposed", "x"], ["concat"], axis=1),
        Node("Shape", ["x"], ["size"]),
        Node("Flatten", ["x"], ["flatten"], axis=2),
        Node("Trilu", ["x"], ["triangle"], upper=0),
    ]
    nodes.insert(0, Node("Identity", ["x"], ["transposed"]))
    pair = _family(nodes, [make_value("x", ["a", "b", 6])], constants)
    for a, b in ((1, 2), (4, 3), (2, 8)):
        pair.check(x=np.arange(a * b * 6, dtype=np.float32).reshape(a, b, 6))


def test_conversions_between_dtypes() -> None:
    targets = ("FLOAT", "DOUBLE", "FLOAT16", "INT32", "INT64", "INT8", "UINT8", "BOOL")
    codes = {name: TensorProto.DataType.Value(name) for name in targets}
    for source in ("FLOAT", "INT32", "UINT8", "BOOL"):
        nodes = [Node("Cast", ["x"], [name], to=code) for name, code in codes.items()]
        nodes += [
            Node("Cast", ["x"], ["narrow"], to=TensorProto.FLOAT8E4M3FN),
            Node("Cast", ["narrow"], ["of_8_bits"], to=TensorProto.FLOAT),
        ]
        inputs = [make_value("x", ["n"], codes[source])]
        pair = Pair(build_model(nodes, inputs, [*targets, "of_8_bits"]))
        dtype = helper.tensor_dtype_to_np_dtype(codes[source])
        pair.check(x=np.array([0, 1, 2, 100], np.int64).astype(dtype))


def test_powers_of_integers_to_whole_floats_are_whole() -> None:
    inputs = [make_value("x", ["n"], TensorProto.INT32), make_value("y", ["n"], TensorProto.FLOAT)]
    pair = _family([Node("Pow", ["x", "y"], ["z"])], inputs)
    x = np.arange(-12, 13, dtype=np.int32)
    for exponent in (0.0, 1.0, 3.0, 5.0, 6.0, 7.0):
        results = pair.model(x, np.full(x.shape, exponent, np.float32)).numpy()
        np.testing.assert_array_equal(results, x ** int(exponent))


def test_attributes_that_are_floats_work_on_integers() -> None:
    nodes = [
        *(Node("Shrink", ["x"], ["soft"], lambd=0.5, bias=1.5), Node("Shrink", ["x"], ["hard"])),
        *(
            Node("Gemm", ["x", "w", "c"], ["y"], alpha=0.5, beta=1.5),
            Node("Gemm", ["x", "w"], ["z"]),
        ),
        Node("Gemm", ["x", "w", "c"], ["whole"], alpha=2.0, beta=-3.0),
    ]
    initializers = {"w": np.array([[1, -2], [3, 5]], np.int32), "c": np.array([3, -1], np.int32)}
    x = make_value("x", ["n", 2], TensorProto.INT32)
    outputs = [node.output[0] for node in nodes]
    case = Case(nodes, [x], outputs, initializers, oracle=in_reference)
    case.check(x=np.array([[-2, -1], [0, 1], [2, 7]], np.int32))
