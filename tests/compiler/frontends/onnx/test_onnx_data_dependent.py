"""ONNX models whose shapes depend on data, compiled, against NumPy and the reference evaluator."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from ingot.hal.errors import InvalidArgument
from tests.support.devices import load_best
from tests.support.drawn import examples
from tests.support.onnx_cases import Case as Case
from tests.support.onnx_cases import in_onnxruntime, in_reference
from tests.support.onnx_models import build_model, ints, make_value
from tests.support.onnx_sequences import BOOL, INT64, Node

# What the standard's own evaluator says is right.
case_of = partial(Case, oracle=in_reference)


def numbers(*shape: int, seed: int = 0, low: int = -2, high: int = 3) -> np.ndarray[Any, Any]:
    """Small whole numbers, many of them equal or zero."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.float32)


def test_nonzero_and_compress_pick_what_the_reference_picks() -> None:
    case = case_of(
        [
            Node("NonZero", ["x"], ["places"]),
            Node("Compress", ["x", "flat"], ["some"]),
            Node("Compress", ["x", "columns"], ["block"], axis=1),
            Node("Exp", ["block"], ["after"]),
        ],
        [
            make_value("x", ["a", "b"]),
            make_value("flat", ["k"], BOOL),
            make_value("columns", ["c"], BOOL),
        ],
        ["places", "some", "after"],
    )

    @given(st.integers(0, 12), st.integers(0, 12), st.floats(0, 1), st.integers(0, 99))
    @examples(40)
    def run(rows: int, columns: int, density: float, seed: int) -> None:
        random = np.random.default_rng(seed)
        flat = random.random(max(rows * columns - seed % 3, 0)) < density
        kept = random.random(columns) < density
        case.check(x=numbers(rows, columns, seed=seed), flat=flat, columns=kept)

    run()


def test_what_a_condition_says_beyond_the_axis_is_not_looked_at() -> None:
    case = Case(
        [Node("Compress", ["x", "flat"], ["some"]), Node("Compress", ["x", "rows"], ["y"], axis=0)],
        [make_value("x", ["a", 3]), make_value("flat", ["k"], BOOL), make_value("rows", [4], BOOL)],
        ["some", "y"],
    )
    for count in (1, 3, 6):
        x = numbers(count, 3)
        for length in (0, 2, 3 * count, 3 * count + 5):
            case.check(x=x, flat=np.ones(length, bool), rows=np.ones(4, bool))


def test_one_mask_gives_one_count_to_all_that_it_picks() -> None:
    case = case_of(
        [
            Node("Compress", ["x", "mask"], ["a"], axis=0),
            Node("Compress", ["y", "mask"], ["b"], axis=0),
            Node("Add", ["a", "b"], ["sum"]),
        ],
        [make_value("x", ["n"]), make_value("y", ["n"]), make_value("mask", ["n"], BOOL)],
        ["sum"],
    )
    assert case.model.signature.results[0].shape == ("a_count",)
    for count in (0, 1, 9, 100):
        mask = np.arange(count) % 3 == 0
        case.check(x=numbers(count), y=numbers(count, seed=1), mask=mask)


def unique(x: np.ndarray[Any, Any], axis: int | None, is_sorted: bool) -> list[Any]:
    """np.unique with the order of ONNX."""
    x = x.reshape(-1) if axis is None else x
    values, firsts, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(firsts)
        values, firsts, counts = np.take(values, order, axis or 0), firsts[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return [values, firsts, inverse, counts]


@pytest.mark.parametrize("is_sorted", [1, 0])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_gives_all_that_numpy_gives(axis: int | None, is_sorted: int) -> None:
    outputs = ["values", "firsts", "inverse", "counts"]
    attributes = {} if axis is None else {"axis": axis}
    case = case_of(
        [Node("Unique", ["x"], outputs, sorted=is_sorted, **attributes)],
        [make_value("x", ["a", "b"])],
        outputs,
    )

    @given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
    @examples(25)
    def run(rows: int, columns: int, spread: int, seed: int) -> None:
        x = numbers(rows, columns, seed=seed, low=0, high=spread)
        for name, found, expected in zip(
            outputs, case.results(x=x), unique(x, axis, bool(is_sorted)), strict=True
        ):
            np.testing.assert_array_equal(found, expected, err_msg=name)

    run()


@pytest.mark.parametrize("center", [0, 1])
def test_boxes_that_overlap_are_suppressed_as_by_onnxruntime(center: int) -> None:
    case = case_of(
        [
            Node(
                "NonMaxSuppression",
                ["boxes", "scores", "most", "overlap", "least"],
                ["kept"],
                center_point_box=center,
            )
        ],
        [
            make_value("boxes", ["n", "k", 4]),
            make_value("scores", ["n", "c", "k"]),
            make_value("most", [1], INT64),
            make_value("overlap", [1]),
            make_value("least", [1]),
        ],
        ["kept"],
    )
    wanted = in_onnxruntime(onnx.shape_inference.infer_shapes(case.proto))
    random = np.random.default_rng(0)
    for batch, classes, count, most, overlap, least in (
        (1, 1, 6, 3, 0.5, 0.0),
        (2, 3, 40, 10, 0.3, 0.4),
        (1, 2, 50, 100, 0.0, 0.1),
        (1, 1, 5, 0, 0.5, 0.0),
        (2, 2, 30, 5, 0.5, 2.0),
    ):
        boxes = random.random((batch, count, 4), np.float32)
        boxes[..., 2:] *= 0.4 if center else 1
        inputs = {
            "boxes": boxes,
            "scores": random.random((batch, classes, count), np.float32),
            "most": ints(most),
            "overlap": np.array([overlap], np.float32),
            "least": np.array([least], np.float32),
        }
        np.testing.assert_array_equal(case.results(**inputs)[0], wanted(inputs)[0])


def test_a_count_from_data_chooses_the_greatest() -> None:
    case = case_of(
        [Node("TopK", ["x", "k"], ["values", "indices"], name="best")],
        [make_value("x", ["a", "b"]), make_value("k", [1], INT64)],
        ["values", "indices"],
    )
    x = np.random.default_rng(0).permutation(60).reshape(3, 20).astype(np.float32)
    for k in (0, 1, 7, 20):
        case.check(x=x, k=ints(k))
    with pytest.raises(InvalidArgument, match="layer 'best': the count k is 21, expected 0 to 20"):
        case.model.main(x=x, k=ints(21))


@pytest.fixture(scope="module")
def reshape_case() -> Case:
    return case_of(
        [Node("Reshape", ["x", "shape"], ["y"], name="fold"), Node("Exp", ["y"], ["z"])],
        [make_value("x", ["a", 6]), make_value("shape", [3], INT64)],
        ["z"],
    )


@pytest.mark.parametrize("shape", [(2, 4, 3), (-1, 4, 3), (0, -1, 3), (0, 0, 1), (24, 1, -1)])
def test_a_reshape_follows_the_shape_that_it_is_given(
    reshape_case: Case, shape: tuple[int, ...]
) -> None:
    reshape_case.check(x=numbers(4, 6), shape=ints(*shape))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 5, 5), "layer 'fold': 6[*]a is 24, expected .* = 125"),
        ((-3, 2, 2), "layer 'fold': element 0 of the shape is -3, expected 0 to"),
        ((2**40, 2**20, 1), "layer 'fold': 6[*]a is 24, expected .* = 1152921504606846976"),
    ],
)
def test_a_reshape_to_another_count_is_refused(
    reshape_case: Case, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        reshape_case.model.main(x=numbers(4, 6), shape=ints(*shape))


@pytest.fixture(scope="module")
def sized_by_argument() -> Case:
    return case_of(
        [
            Node("Shape", ["like"], ["size"]),
            Node("Concat", ["size", "rest"], ["shape"], axis=0),
            Node("Reshape", ["x", "shape"], ["y"], name="fold"),
            Node("Exp", ["y"], ["z"]),
        ],
        [make_value("x", ["a", 6]), make_value("like", ["k"])],
        ["z"],
        {"rest": ints(-1, 3)},
    )


@pytest.mark.parametrize("size", [0, 1, 4, 8])
def test_a_size_of_an_argument_that_is_0_keeps_the_dim(sized_by_argument: Case, size: int) -> None:
    sized_by_argument.check(x=numbers(4, 6), like=np.zeros(size, np.float32))


def test_a_size_that_may_be_0_takes_no_kernel(sized_by_argument: Case) -> None:
    assert ingot.compile(sized_by_argument.proto).report.dispatches == {"main": 1}


def test_sizes_that_regroup_a_tensor_are_no_more_than_that() -> None:
    nodes = [
        Node("Shape", ["x"], ["size"], start=0, end=2),
        Node("ReduceProd", ["size"], ["rows"]),
        Node("Concat", ["rows", "rest"], ["shape"], axis=0),
        Node("Reshape", ["x", "shape"], ["y"]),
    ]
    proto = build_model(nodes, [make_value("x", ["b", "s", 6])], ["y"], {"rest": ints(6)})
    (result,) = import_onnx(proto).functions["main"].block.terminator.operands
    assert str(result.type) == "f32[b*s,6]"


Array = np.ndarray[Any, Any]
ENDS = st.one_of(st.integers(-9, 9), st.sampled_from([-(2**62), 2**62]))


def elements(x: Array, axis: int, start: int, end: int, step: int) -> Array:
    """x between the ends as the standard clamps them. ONNX's evaluator leaves that to NumPy, for
    which nothing lies backward of what is in front of an axis."""
    length = x.shape[axis]
    start, end = (each + length if each < 0 else each for each in (start, end))
    low, high = (0, length) if step > 0 else (-1, length - 1)
    start, end = min(max(start, 0), high), min(max(end, low), high)
    return x.take(range(start, end, step), axis)


@pytest.mark.parametrize("steps", [(1, 1), (-1, 2), (3, -2)])
def test_slices_between_computed_ends_are_those_of_the_standard(steps: tuple[int, int]) -> None:
    case = case_of(
        [Node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])],
        [
            make_value("x", ["a", 6]),
            make_value("starts", [2], INT64),
            make_value("ends", [2], INT64),
        ],
        ["y"],
        {"axes": ints(0, 1), "steps": ints(*steps)},
    )

    @given(st.integers(1, 7), ENDS, ENDS, ENDS, ENDS)
    @examples(40)
    def run(rows: int, a: int, b: int, c: int, d: int) -> None:
        x = numbers(rows, 6)
        expected = elements(elements(x, 0, a, c, steps[0]), 1, b, d, steps[1])
        got = case.model.main(x=x, starts=ints(a, b), ends=ints(c, d))
        np.testing.assert_array_equal(got, expected)

    run()


@pytest.mark.parametrize("element", [np.int64, np.int32, np.float32])
def test_a_range_between_computed_ends(element: type) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(element))
    case = case_of(
        [Node("Range", ["a", "b", "c"], ["y"], name="steps")],
        [make_value(name, [], kind) for name in "abc"],
        ["y"],
    )
    bounds = [(0, 5, 1), (2, 11, 3), (10, 0, -3), (5, 5, 1), (5, 2, 1), (0, -7, -7)]
    for start, limit, delta in bounds:
        case.check(a=element(start), b=element(limit), c=element(delta))
    with pytest.raises(InvalidArgument, match="layer 'steps': the count of elements is -1"):
        case.model.main(a=element(0), b=element(1), c=element(0))


def test_shapes_from_data_expand_fill_and_tile() -> None:
    case = case_of(
        [
            Node("Expand", ["x", "shape"], ["wide"], name="expand"),
            Node("ConstantOfShape", ["shape"], ["zeros"]),
            Node("Tile", ["x", "shape"], ["tiles"]),
            Node("Add", ["wide", "x"], ["sum"]),
        ],
        [make_value("x", [1, "a", 3]), make_value("shape", [3], INT64)],
        ["wide", "zeros", "tiles", "sum"],
    )
    for rows, shape in ((1, (2, 4, 3)), (4, (2, 1, 1)), (4, (0, 4, 1)), (4, (5, 4, 3))):
        case.check(x=numbers(1, rows, 3), shape=ints(*shape))
    with pytest.raises(InvalidArgument, match=r"layer 'expand'.*is 2, expected 3 to 3"):
        case.model.main(x=numbers(1, 4, 3), shape=ints(1, 4, 2))


def test_what_is_known_beside_a_size_from_data_stays_known() -> None:
    case = case_of(
        [
            Node("Shape", ["x"], ["all"]),
            Node("Gather", ["all", "zero"], ["rows"]),
            Node("Concat", ["rows", "k", "six"], ["shape"], axis=0),
            Node("Expand", ["x", "shape"], ["y"]),
        ],
        [make_value("x", ["a", 1, 6]), make_value("k", [1], INT64)],
        ["y"],
        {"zero": ints(0), "six": ints(6)},
    )
    assert case.model.signature.results[0].shape == ("a", "y_1", 6)
    for count in (0, 1, 5):
        case.check(x=numbers(3, 1, 6), k=ints(count))


def test_a_dim_from_data_has_the_name_that_the_output_declares() -> None:
    model = build_model(
        [Node("Compress", ["x", "mask"], ["y"], axis=0), Node("NonZero", ["x"], ["places"])],
        [make_value("x", ["n", 3]), make_value("mask", ["n"], BOOL)],
        ["y", "places"],
    )
    model.graph.output[0].CopyFrom(make_value("y", ["kept", 3]))
    model.graph.output[1].CopyFrom(make_value("places", [2, "n"], INT64))
    loaded = load_best(model)
    assert [value.shape for value in loaded.signature.results] == [("kept", 3), (2, "places_count")]
    y, _ = loaded.main(x=numbers(4, 3), mask=np.arange(4) < 3)
    assert np.asarray(y).shape == (3, 3)


@pytest.mark.parametrize("limited", [True, False])
def test_a_loop_stacks_as_many_steps_as_data_says(limited: bool) -> None:
    go_on = (
        [Node("ReduceSum", ["next"], ["sum"], keepdims=0), Node("Less", ["sum", "top"], ["go"])]
        if limited
        else [Node("Identity", ["before"], ["go"])]
    )
    body = helper.make_graph(
        [Node("Add", ["v", "one"], ["next"]), Node("Exp", ["v"], ["scan"]), *go_on],
        "body",
        [
            make_value("i", [], INT64),
            make_value("before", [], BOOL),
            make_value("v", ["a"]),
        ],
        [make_value("go", [], BOOL), make_value("next", ["a"]), make_value("scan", ["a"])],
    )
    case = case_of(
        [
            Node("Loop", ["most", "", "x"], ["last", "all"], body=body),
            Node("Neg", ["all"], ["negated"]),
        ],
        [make_value("x", ["a"]), make_value("most", [], INT64)],
        ["last", "all", "negated"],
        {"one": np.float32(1), "top": np.float32(12)},
    )
    for count in (0, 1, 4):
        for most in (1, 2, 9):
            x = np.ones(count, np.float32)
            steps, v, rows = 0, x, []
            while steps < most and (not limited or steps == 0 or v.sum() < 12):
                rows.append(np.exp(v))
                v, steps = v + 1, steps + 1
            last, stacked, negated = case.results(x=x, most=np.int64(most))
            np.testing.assert_array_equal(last, v)
            assert stacked.shape == (steps, count)
            np.testing.assert_allclose(stacked, np.stack(rows), rtol=1e-6)
            np.testing.assert_array_equal(negated, -stacked)
    last, stacked, _ = case.results(x=np.ones(3, np.float32), most=np.int64(-5))
    assert stacked.shape == (0, 3)
    np.testing.assert_array_equal(last, np.ones(3))
    if limited:  # a stack that grows asks for no more than it needs
        _, stacked, _ = case.results(x=np.ones(3, np.float32), most=np.int64(2**62))
        assert stacked.shape == (3, 3)
        return
    with pytest.raises(InvalidArgument, match="the trip count is"):
        case.model.main(x=np.ones(3, np.float32), most=np.int64(2**62))


def test_a_branch_that_is_not_taken_divides_by_no_size_of_zero() -> None:
    rows = [
        Node("Concat", ["size", "rest"], ["shape"], axis=0),
        Node("Reshape", ["x", "shape"], ["y"], allowzero=1),
    ]
    then = helper.make_graph(rows, "then", [], [make_value("y")])
    other = helper.make_graph(
        [Node("Unsqueeze", ["x", "first"], ["z"])], "else", [], [make_value("z")]
    )
    case = case_of(
        [
            Node("Shape", ["like"], ["size"]),
            Node("Squeeze", ["size"], ["count"]),
            Node("Greater", ["count", "none"], ["is_given"]),
            Node("If", ["is_given"], ["r"], then_branch=then, else_branch=other),
        ],
        [make_value("x", ["a"]), make_value("like", ["k"])],
        ["r"],
        {"rest": ints(-1), "first": ints(0), "none": np.int64(0)},
    )
    for size in (0, 2):
        case.check(x=numbers(6), like=np.zeros(size, np.float32))


def bags(kind: str) -> list[onnx.NodeProto]:
    """Rows of x from each offset to the next, reduced, as torch exports embedding bags: bounds
    are one element of the offsets, read in a loop."""
    rows = helper.make_graph(
        [
            Node("Slice", ["x", "start", "end"], ["rows"]),
            Node(kind, ["rows", "zero"], ["row"], keepdims=1),
        ],
        "rows",
        [],
        [make_value("row")],
    )
    none = helper.make_graph(
        [
            Node("Slice", ["x", "zero", "one"], ["row_like"]),
            Node("Sub", ["row_like"] * 2, ["empty"]),
        ],
        "none",
        [],
        [make_value("empty")],
    )
    body = helper.make_graph(
        [
            Node("Reshape", ["i", "flat"], ["at"]),
            Node("Add", ["at", "one"], ["next"]),
            Node("Add", ["one", "next"], ["last"]),
            Node("Slice", ["offsets", "at", "next"], ["start"]),
            Node("Slice", ["offsets", "next", "last"], ["end"]),
            Node("Equal", ["start", "end"], ["is_empty"]),
            Node("If", ["is_empty"], ["bag"], then_branch=none, else_branch=rows),
            Node("Squeeze", ["bag", "zero"], ["reduced"]),
            Node("Identity", ["c"], ["go_on"]),
        ],
        "bag",
        [make_value("i", [], INT64), make_value("c", [], BOOL)],
        [make_value("go_on", [], BOOL), make_value("reduced")],
    )
    return [
        Node("Shape", ["x"], ["length"], end=1),
        Node("Concat", ["given", "length"], ["offsets"], axis=0),
        Node("Size", ["given"], ["count"]),
        Node("Loop", ["count", ""], ["y"], body=body),
    ]


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
def test_slices_in_a_loop_have_bounds_that_are_elements_of_data(kind: str) -> None:
    constants = {"zero": ints(0), "one": ints(1), "flat": ints(-1)}
    inputs = [make_value("x", ["t", 3]), make_value("given", ["b"], INT64)]
    case = case_of(bags(kind), inputs, ["y"], constants)
    x = numbers(6, 3)
    for offsets in ([0, 4], [0, 1, 2], [0], [0, 2, 2, 5], [3, 3]):
        ends = zip(offsets, [*offsets[1:], len(x)], strict=True)
        parts = [x[start:end] if start < end else np.zeros((1, 3)) for start, end in ends]
        wanted = [part.sum(0) if kind == "ReduceSum" else part.mean(0) for part in parts]
        (found,) = case.results(x=x, given=ints(*offsets))
        np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-6)


def test_the_mean_of_no_rows_is_zero_as_in_onnxruntime() -> None:
    nodes = [Node("ReduceMean", ["x", "first"], ["y"], keepdims=0)]
    case = Case(nodes, [make_value("x", ["n", 3])], ["y"], {"first": ints(0)})
    for count in (0, 1, 4):
        case.check(x=numbers(count, 3))
