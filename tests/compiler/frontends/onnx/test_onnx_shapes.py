"""Symbolic dims and shape arithmetic: what is folded into dim expressions at import."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Module, TensorType
from ingot.compiler.ir.dims import symbols_of
from ingot.hal.errors import CompileError, InvalidArgument
from tests.support.onnx_models import build_model, make_value

Node = helper.make_node


def _result_type(module: Module) -> str:
    (type,) = module.functions["main"].result_types
    assert isinstance(type, TensorType)
    return str(type)


def _run(module: Module, *arguments: Any) -> Any:
    (result,) = interpret(module, "main", arguments)
    return result


def test_equal_dim_params_are_one_symbol_and_others_are_respelled() -> None:
    model = build_model(
        [Node("Add", ["x", "y"], ["z"])],
        [make_value("x", ["batch size", 3]), make_value("y", ["batch size", 3])],
        ["z"],
    )
    module = import_onnx(model)
    assert _result_type(module) == "f32[batch_size,3]"
    assert module.functions["main"].symbols == {"batch_size": (0, None)}


def test_a_dim_without_a_name_is_a_symbol_of_its_own() -> None:
    value = make_value("x", ["a", 3])
    value.type.tensor_type.shape.dim[0].ClearField("dim_param")
    model = build_model([Node("Relu", ["x"], ["y"])], [value], ["y"])
    assert _result_type(import_onnx(model)) == "f32[x_dim0,3]"


@pytest.mark.parametrize("dim", [-1, "?", "*", "-1"])
def test_what_exporters_write_for_any_size_names_no_dim(dim: int | str) -> None:
    value = make_value("x", [dim, 3, dim])
    module = import_onnx(build_model([Node("Relu", ["x"], ["y"])], [value], ["y"]))
    assert _result_type(module) == "f32[x_dim0,3,x_dim2]"


def test_dims_that_broadcast_give_a_broadcast_expression() -> None:
    model = build_model(
        [Node("Add", ["x", "y"], ["z"])], [make_value("x", ["a"]), make_value("y", ["b"])], ["z"]
    )
    module = import_onnx(model)
    assert _result_type(module) == "f32[broadcast(a, b)]"
    x, y = np.ones(4, np.float32), np.ones(1, np.float32)
    assert _run(module, x, y).shape == _run(module, y, x).shape == (4,)


_PADS = {
    "(n - x % n) % n": [
        Node("Mod", ["image", "n"], ["left"]),
        Node("Sub", ["n", "left"], ["short"]),
        Node("Mod", ["short", "n"], ["pad"]),
    ],
    "-x % n": [Node("Neg", ["image"], ["below"]), Node("Mod", ["below", "n"], ["pad"])],
    "-(-x // n) * n - x": [
        Node("Add", ["image", "n1"], ["more"]),
        Node("Div", ["more", "n"], ["ceiling"]),
        Node("Mul", ["ceiling", "n"], ["padded"]),
        Node("Sub", ["padded", "image"], ["pad"]),
    ],
    "where(x % n == 0, 0, n - x % n)": [
        Node("Mod", ["image", "n"], ["left"]),
        Node("Sub", ["n", "left"], ["short"]),
        Node("Equal", ["left", "nothing"], ["fits"]),
        Node("Where", ["fits", "nothing", "short"], ["pad"]),
    ],
}


@pytest.mark.parametrize("spelling", _PADS)
def test_windows_of_padded_images_are_put_together_to_the_images(spelling: str) -> None:
    model = build_model(
        [
            Node("Shape", ["x"], ["image"], start=1, end=3),
            *_PADS[spelling],
            Node("Concat", ["zeros", "pad"], ["pads"], axis=0),
            Node("Pad", ["x", "pads", "", "axes"], ["padded_x"]),
            Node("Add", ["image", "pad"], ["whole"]),
            Node("Div", ["whole", "n"], ["counts"]),
            Node("Split", ["counts"], ["rows", "columns"], num_outputs=2),
            Node("Concat", ["any", "rows", "n", "columns", "n", "any1"], ["cut"], axis=0),
            Node("Reshape", ["padded_x", "cut"], ["parts"]),
            Node("Transpose", ["parts"], ["moved"], perm=[0, 1, 3, 2, 4, 5]),
            Node("Reshape", ["moved", "flat"], ["windows"]),
            Node("ReduceProd", ["counts"], ["count"], keepdims=1),
            Node("Shape", ["windows"], ["all"], start=0, end=1),
            Node("Div", ["all", "count"], ["images"]),
            Node("Concat", ["images", "counts", "n", "n", "any1"], ["back"], axis=0),
            Node("Reshape", ["windows", "back"], ["apart"]),
            Node("Transpose", ["apart"], ["again"], perm=[0, 1, 3, 2, 4, 5]),
            Node("Concat", ["images", "whole", "any1"], ["as_image"], axis=0),
            Node("Reshape", ["again", "as_image"], ["whole_image"]),
            Node("Slice", ["whole_image", "zeros", "image", "axes"], ["y"]),
        ],
        [make_value("x", ["b", "h", "w", 3])],
        ["y"],
        {
            "n": [7], "n1": [6], "nothing": [0], "any": [0], "any1": [3],
            "flat": [-1, 49, 3], "axes": [1, 2], "zeros": [0, 0],
        },
    )  # fmt: skip
    module = import_onnx(model)
    assert _result_type(module) == "f32[b,h,w,3]"
    for shape in [(2, 13, 21, 3), (1, 7, 1, 3)]:
        x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(_run(module, x), x)


def test_shape_gather_concat_reshape_folds_into_dims() -> None:
    model = build_model(
        [
            Node("Shape", ["x"], ["shape"]),
            Node("Gather", ["shape", "zero"], ["batch"]),
            Node("Unsqueeze", ["batch", "first"], ["batch1"]),
            Node("Concat", ["batch1", "rest"], ["target"], axis=0),
            Node("Reshape", ["x", "target"], ["y"]),
        ],
        [make_value("x", ["b", "s", 6])],
        ["y"],
        {
            "zero": np.int64(0),
            "first": np.array([0], np.int64),
            "rest": np.array([-1, 2], np.int64),
        },
    )
    module = import_onnx(model)
    assert _result_type(module) == "f32[b,3*s,2]"
    x = np.random.default_rng(0).random((2, 5, 6), np.float32)
    np.testing.assert_array_equal(_run(module, x), x.reshape(2, 15, 2))


@pytest.mark.parametrize(
    ("starts", "ends", "steps", "expected"),
    [
        (0, 2**63 - 1, 1, slice(None)),
        (1, 2**63 - 1, 1, slice(1, None)),
        (-2, 2**31 - 1, 1, slice(-2, None)),
        (0, -1, 1, slice(None, -1)),
        (3, 100, 2, slice(3, 100, 2)),
        (-1, -(2**63), -1, slice(None, None, -1)),
        (-2, 0, -2, slice(-2, 0, -2)),
        (100, 1, -3, slice(100, 1, -3)),
        (-8, -(2**63), -1, slice(0, None, -1)),
        (-8, 3, 1, slice(-8, 3)),
    ],
)
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_slices_of_a_symbolic_dim_are_those_of_python(
    starts: int, ends: int, steps: int, expected: slice, length: int
) -> None:
    bounds = {"starts": starts, "ends": ends, "axes": 0, "steps": steps}
    model = build_model(
        [Node("Slice", ["x", *bounds], ["y"])],
        [make_value("x", ["n"])],
        ["y"],
        {name: np.array([value], np.int64) for name, value in bounds.items()},
    )
    x = np.arange(length, dtype=np.float32)
    np.testing.assert_array_equal(_run(import_onnx(model), x), x[expected])


def test_a_range_up_to_a_symbolic_dim_has_that_length() -> None:
    model = build_model(
        [
            Node("Shape", ["x"], ["shape"]),
            Node("Squeeze", ["shape"], ["length"]),
            Node("Range", ["zero", "length", "one"], ["y"]),
        ],
        [make_value("x", ["n"])],
        ["y"],
        {"zero": np.int64(0), "one": np.int64(1)},
    )
    module = import_onnx(model)
    assert _result_type(module) == "i64[n]"
    np.testing.assert_array_equal(_run(module, np.zeros(5, np.float32)), np.arange(5))


def _window_count(length: str, window: int, stride: int, name: str) -> list[onnx.NodeProto]:
    """(length - window) / stride + 1 as torch exports it: ONNX divides toward zero."""
    number = {"window": -window, "stride": stride, "one": 1}
    constants = [Node("Constant", [], [f"{name}_{key}"], value_int=number[key]) for key in number]
    return [
        *constants,
        Node("Add", [f"{name}_window", length], [f"{name}_room"]),
        Node("Div", [f"{name}_room", f"{name}_stride"], [f"{name}_steps"]),
        Node("Add", [f"{name}_steps", f"{name}_one"], [name]),
    ]


def _zeros_of_size(windows: list[tuple[int, int]]) -> Module:
    """Zeros, as many as are left of n by windows (size, stride) one behind the other."""
    nodes = [Node("Shape", ["x"], ["shape"]), Node("Squeeze", ["shape"], ["count"])]
    count = "count"
    for index, window in enumerate(windows):
        nodes += _window_count(count, *window, f"count{index}")
        count = f"count{index}"
    nodes += [
        Node("Constant", [], ["zero"], value_int=0),
        Node("Max", [count, "zero"], ["length"]),
        Node("Unsqueeze", ["length", "zeroth"], ["target"]),
        Node("ConstantOfShape", ["target"], ["y"]),
    ]
    constants = {"zeroth": np.array([0], np.int64)}
    return import_onnx(build_model(nodes, [make_value("x", ["n"])], ["y"], constants))


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([(1, 2)], "max(1, floordiv(n+1, 2))"),
        ([(1, 2)] * 5, "max(1, floordiv(n+31, 32))"),
        ([(3, 2)], "max(floordiv(n+1, 2), min(1, floordiv(n, 2))+1)-1"),
        ([(10, 5), (3, 2), (3, 2), (2, 2)], None),
        ([(5, 2), (4, 3), (7, 1), (-2, 3)], None),
        ([(5, 2)] * 20, None),
    ],
)
def test_sizes_that_are_divided_toward_zero_are_expressions_of_symbols(
    windows: list[tuple[int, int]], expected: str | None
) -> None:
    module = _zeros_of_size(windows)
    (type,) = module.functions["main"].result_types
    assert isinstance(type, TensorType)
    assert symbols_of(type.shape[0]) == {"n"}
    assert expected is None or str(type) == f"f32[{expected}]"
    assert len(str(type)) < 400
    for length in (*range(30), 100, 399, 400, 1001):
        count = length
        for window, stride in windows:
            count = math.trunc((count - window) / stride) + 1
        assert _run(module, np.zeros(length, np.float32)).shape == (max(count, 0),)


def test_a_size_too_large_to_follow_is_known_when_the_program_runs() -> None:
    nodes = [Node("Shape", ["x"], ["shape"])]
    nodes += [Node("Mul", [f"shape{i}" if i else "shape"] * 2, [f"shape{i + 1}"]) for i in range(9)]
    nodes += [Node("ConstantOfShape", ["shape9"], ["y"])]
    module = import_onnx(build_model(nodes, [make_value("x", ["n"])], ["y"]))
    for length in (0, 1):
        assert _run(module, np.zeros(length, np.float32)).shape == (length,)


def test_what_is_as_long_as_a_convolution_of_torch_has_its_dims() -> None:
    weight = np.random.default_rng(1).random((2, 3, 3), np.float32)
    model = build_model(
        [
            Node("Conv", ["x", "weight"], ["h"], strides=[2], pads=[1, 1]),
            Node("Shape", ["x"], ["length"], start=2, end=3),
            *_window_count("length", 1, 2, "size"),
            Node("Expand", ["bias", "size"], ["biases"]),
            Node("Add", ["h", "biases"], ["y"]),
        ],
        [make_value("x", ["b", 3, "n"]), make_value("bias", [1])],
        ["y"],
        {"weight": weight},
    )
    module = import_onnx(model)
    assert _result_type(module) == "f32[b,2,floordiv(n+1, 2)]"
    for length in (1, 2, 3, 8):
        x = np.random.default_rng(length).random((2, 3, length), np.float32)
        bias = np.float32([0.5])
        (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x, "bias": bias})
        np.testing.assert_allclose(_run(module, x, bias), expected, rtol=1e-5)


def test_a_convolution_of_symbolic_size_has_symbolic_result_dims() -> None:
    weight = np.random.default_rng(1).random((4, 3, 3, 3), np.float32)
    model = build_model(
        [Node("Conv", ["x", "w"], ["y"], strides=[2, 2], auto_pad="SAME_UPPER")],
        [make_value("x", ["n", 3, "h", 8])],
        ["y"],
        {"w": weight},
    )
    module = import_onnx(model)
    for height in (5, 6, 9):
        x = np.ones((1, 3, height, 8), np.float32)
        assert _run(module, x).shape == (1, 4, -(-height // 2), 4)


def test_a_dim_that_would_be_squeezed_at_some_calls_alone_is_not_1() -> None:
    model = build_model([Node("Squeeze", ["x"], ["y"])], [make_value("x", ["n", 1, 3])], ["y"])
    module = import_onnx(model)
    assert [_run(module, np.zeros((n, 1, 3), np.float32)).shape for n in (0, 2)] == [(0, 3), (2, 3)]
    with pytest.raises(InvalidArgument, match="whether dim 0 is 1, which Squeeze without axes"):
        _run(module, np.zeros((1, 1, 3), np.float32))


def test_a_rank_that_depends_on_data_is_refused_with_the_layer() -> None:
    model = build_model(
        [Node("Reshape", ["x", "shape"], ["y"], name="to_rows")],
        [make_value("x", [4]), make_value("shape", ["rank"], 7)],
        ["y"],
    )
    with pytest.raises(CompileError, match=r"'to_rows'.*count must be known"):
        import_onnx(model)


def test_boolean_initializers_take_a_byte_each() -> None:
    mask = np.array([[True, False, True], [False, False, True]])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Where", ["mask", "x", "y"], ["z"])],
        "g",
        [onnx.helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, [2, 3]) for each in "xy"],
        [onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [2, 3])],
        [onnx.numpy_helper.from_array(mask, "mask")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    (got,) = interpret(import_onnx(model), "main", [x, y])
    np.testing.assert_array_equal(got, mask.astype(np.float32))


def _two(op: str, x: list[Any], y: list[Any], **attributes: Any) -> onnx.ModelProto:
    node = Node(op, ["x", "y"], ["z"], name="join", **attributes)
    return build_model([node], [make_value("x", x), make_value("y", y)], ["z"])


def test_dims_that_must_be_equal_become_one_symbol() -> None:
    module = import_onnx(_two("MatMul", ["b", "k"], ["c", "n"]))
    assert [str(value.type) for value in module.functions["main"].arguments] == [
        "f32[b,k]",
        "f32[k,n]",
    ]
    x, y = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(_run(module, x, y), x @ y)
    with pytest.raises(InvalidArgument, match=r"argument 1 'y': dim 0 .'k'. is 4, expected 3"):
        _run(module, x, np.ones((4, 4), np.float32))


def test_a_name_of_the_model_stays_where_one_symbol_has_none() -> None:
    model = _two("Concat", ["", "d"], ["n", "e"], axis=1)
    (x, _) = import_onnx(model).functions["main"].arguments
    assert str(x.type) == "f32[n,d]"


def test_a_dim_that_meets_a_weight_is_a_number() -> None:
    node = Node("MatMul", ["x", "w"], ["y"])
    weight = {"w": np.ones((3, 2), np.float32)}
    module = import_onnx(build_model([node], [make_value("x", ["b", "k"])], ["y"], weight))
    assert str(module.functions["main"].arguments[0].type) == "f32[b,3]"


def test_dims_that_no_symbol_makes_equal_are_checked_when_the_model_runs() -> None:
    nodes = [Node("Add", ["x", "y"], ["sum"]), Node("Concat", ["sum", "x"], ["z"], axis=1)]
    inputs = [make_value("x", ["a", 2]), make_value("y", ["b", 2])]
    module = import_onnx(build_model(nodes, inputs, ["z"]))
    x, y = np.ones((3, 2), np.float32), np.ones((1, 2), np.float32)
    assert _run(module, x, y).shape == (3, 4)
    with pytest.raises(InvalidArgument, match="'Concat_1': 1 is not equal to 3"):
        _run(module, y, x)


def test_a_branch_that_is_not_taken_asks_nothing_of_dims() -> None:
    def branch(op: str, *names: str) -> onnx.GraphProto:
        return helper.make_graph([Node(op, names, ["r"])], op, [], [onnx.ValueInfoProto(name="r")])

    node = Node(
        "If", ["p"], ["z"], then_branch=branch("MatMul", "x", "y"), else_branch=branch("Neg", "x")
    )
    inputs = [make_value("p", [], TensorProto.BOOL)]
    inputs += [make_value("x", ["a", "b"]), make_value("y", ["c", "b"])]
    module = import_onnx(build_model([node], inputs, ["z"]))
    x, y = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(_run(module, np.bool_(False), x, y), -x)
    with pytest.raises(InvalidArgument, match="4 is not equal to 3"):
        _run(module, np.bool_(True), x, y)
    y = np.ones((3, 3), np.float32)
    np.testing.assert_array_equal(_run(module, np.bool_(True), x, y), x @ y)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("past + 1", "past+1"),
        ("2*past", "2*past"),
        ("past*s-1", "past*s-1"),
        ("(s - 1)//2 + 1", "floordiv(s+1, 2)"),
        ("Max(1, s)", "max(1, s)"),
        ("s**2", "s*s"),
        ("Mod(s, 2)", "2*floordiv(s+1, 2)-s"),
        ("batch size", "batch_size"),
        ("batch-size", "batch_size"),
        ("s//t", "s__t"),
        ("1", "_1"),
        ("f(s)", "f_s_"),
    ],
)
def test_a_dim_param_may_be_an_expression_of_names(given: str, expected: str) -> None:
    inputs = [make_value("x", ["past", "s"]), make_value("y", [given])]
    model = build_model([Node("Neg", ["y"], ["z"])], inputs, ["z"])
    assert _result_type(import_onnx(model)) == f"f32[{expected}]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("((a+b+c+d+e+f+g+h)**8)**8", "dim '.*fixed sizes"),
        ("(((a**8)**8)**8)**8", "dim '.*degree"),
        ("(((9**8)**8)**8)*a", "dim '.*bits"),
        ("a*" + "9" * 5000, None),
        ("(" * 3000 + "a" + ")" * 3000, None),
        ("-" * 9000 + "a", None),
        ("1if a else b", None),
        ("a\0b", None),
    ],
)
def test_a_dim_param_that_grows_without_end_is_refused_and_none_takes_long(
    given: str, message: str | None
) -> None:
    inputs = [make_value("x", list("abcdefgh")), make_value("y", [given])]
    model = build_model([Node("Neg", ["y"], ["z"])], inputs, ["z"])
    start = time.process_time()
    if message is None:
        assert _result_type(import_onnx(model)).startswith("f32[")
    else:
        with pytest.raises(CompileError, match=message):
            import_onnx(model)
    assert time.process_time() - start < 3
