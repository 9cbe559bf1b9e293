"""Sizes, amounts, bounds and steps of shape ops that only the call knows, compiled, against
the reference evaluator, NumPy and onnxruntime."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from ingot.hal.errors import InvalidArgument, OutOfRange
from tests.support.drawn import examples
from tests.support.onnx_cases import Case
from tests.support.onnx_models import make_value

Node = helper.make_node
INT64 = 7


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def counted(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def vector(name: str, count: int) -> onnx.ValueInfoProto:
    return make_value(name, [count], INT64)


@cache
def parts() -> Case:
    nodes = [
        Node("Split", ["x", "sizes"], ["a", "b", "c"], axis=1, name="cut"),
        Node("Exp", ["b"], ["after"]),
    ]
    return Case(nodes, [make_value("x", ["m", "n"]), vector("sizes", 3)], ["a", "b", "c", "after"])


@given(*[st.integers(0, 4)] * 4)
@examples(20)
def test_the_sizes_of_parts_come_from_data(m: int, a: int, b: int, c: int) -> None:
    results = parts().results(x=counted(m, a + b + c), sizes=ints(a, b, c))
    wanted = np.split(counted(m, a + b + c), [a, a + b], 1)
    for found, expected in zip(results, [*wanted, np.exp(wanted[1])], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((2, 2, 2), "layer 'cut': .* is 6, expected at most n = 5"),
        ((2, 2, 0), "layer 'cut'"),
        ((4, -1, 2), "layer 'cut': element 1 of the sizes of the parts is -1, expected 0 to"),
    ],
)
def test_parts_that_are_not_the_whole_are_refused(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parts().model.main(x=counted(2, 5), sizes=ints(*sizes))


@cache
def slices() -> Case:
    nodes = [
        Node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"], name="strided"),
        Node("Slice", ["x", "starts", "ends", "axes", "fixed"], ["z"]),
    ]
    inputs = [make_value("x", ["m", "n"]), *(vector(each, 2) for each in ("starts", "ends"))]
    constants = {"axes": ints(1, 0), "fixed": ints(-1, 2)}
    return Case(nodes, [*inputs, vector("steps", 2)], ["y", "z"], constants)


ENDS = st.one_of(st.integers(-7, 7), st.sampled_from([2**63 - 1, -(2**63) + 1]))
STEPS = st.integers(-3, 3).filter(bool)


@given(*[st.integers(0, 5)] * 2, *[ENDS] * 4, *[STEPS] * 2)
@examples(80)
def test_bounds_and_steps_of_slices_come_from_data(
    m: int, n: int, a: int, b: int, c: int, d: int, s: int, t: int
) -> None:
    x = counted(m, n)
    found = slices().results(x=x, starts=ints(a, b), ends=ints(c, d), steps=ints(s, t))
    np.testing.assert_array_equal(found[0], x[part(b, d, t, m), part(a, c, s, n)])
    np.testing.assert_array_equal(found[1], x[part(b, d, 2, m), part(a, c, -1, n)])


def part(start: int, end: int, step: int, dim: int) -> slice:
    """As Python, but that a start in front of the axis is its first element, also backward."""
    return slice(max(start, -dim) if dim else start, end, step)


@given(*[st.integers(1, 5)] * 2, *[st.integers(-7, 7)] * 4, *[STEPS] * 2)
@examples(80)
def test_slices_of_what_is_there_are_those_of_onnxruntime(
    m: int, n: int, a: int, b: int, c: int, d: int, s: int, t: int
) -> None:
    slices().check(x=counted(m, n), starts=ints(a, b), ends=ints(c, d), steps=ints(s, t))


def test_a_step_of_zero_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="layer 'strided': the count of elements on axis 0"):
        slices().model.main(x=counted(3, 3), starts=ints(0, 0), ends=ints(3, 3), steps=ints(1, 0))


MODES = ("constant", "edge", "reflect", "wrap")


@cache
def pads() -> Case:
    nodes = [Node("Pad", ["x", "amounts"], [mode], mode=mode, name=mode) for mode in MODES]
    nodes += [Node("Pad", ["x", "fixed"], [f"{mode}s"], mode=mode) for mode in MODES]
    outputs = [*MODES, *(f"{mode}s" for mode in MODES)]
    inputs = [make_value("x", ["m", "n"]), vector("amounts", 4)]
    return Case(nodes, inputs, outputs, {"fixed": ints(1, 0, 0, 2)})


@given(st.integers(3, 6), st.integers(3, 6), st.tuples(*[st.integers(-1, 2)] * 4))
@examples(30)
def test_amounts_of_padding_come_from_data(m: int, n: int, amounts: tuple[int, ...]) -> None:
    x = counted(m, n)
    found = pads().results(x=x, amounts=ints(*amounts))
    for each, used in ((found[:4], amounts), (found[4:], (1, 0, 0, 2))):
        low, high = used[:2], used[2:]
        kept = x[max(-low[0], 0) : m - max(-high[0], 0), max(-low[1], 0) : n - max(-high[1], 0)]
        width = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
        for mode, array in zip(MODES, each, strict=True):
            np.testing.assert_array_equal(array, np.pad(kept, width, mode=mode), mode)  # type: ignore[call-overload]


def test_padding_that_takes_from_nothing_is_an_error() -> None:
    with pytest.raises(OutOfRange, match=r"index 0 is out of range \[0, 0\)"):
        pads().model.main(x=counted(0, 3), amounts=ints(1, 0, 0, 0))
    for amount in (-2, -(2**63)):
        with pytest.raises(InvalidArgument, match="expected"):
            pads().model.main(x=counted(3, 3), amounts=ints(amount, 0, amount, 0))


def test_padded_dims_of_many_axes_are_one_symbol_each() -> None:
    """Products of them would be very many terms, of which kernels check the sizes of memory."""
    inputs = [make_value("x", [f"d{axis}" for axis in range(6)]), vector("amounts", 12)]
    case = Case([Node("Pad", ["x", "amounts"], ["y"])], inputs, ["y"])
    shape = str(case.model.signature).rpartition("f32")[2]
    assert not set(shape) & set("+-*"), shape
    case.check(x=counted(2, 1, 3, 1, 2, 1), amounts=ints(1, 0, 0, 2, -1, 0, 0, 1, -2, 0, 0, 1))


@cache
def hot() -> Case:
    nodes = [Node("OneHot", ["i", "depth", "values"], ["y"], axis=0, name="hot")]
    inputs = [make_value("i", ["n"], INT64), make_value("depth", [], INT64)]
    return Case(nodes, [*inputs, make_value("values", [2])], ["y"])


def test_the_depth_of_a_one_hot_comes_from_data() -> None:
    for depth in (1, 3, 7):
        hot().check(i=ints(0, 2, -1, 5), depth=np.array(depth), values=counted(2))
    with pytest.raises(InvalidArgument, match="layer 'hot': the depth is -1, expected 0 to"):
        hot().model.main(i=ints(0), depth=np.int64(-1), values=counted(2))


def test_bounds_below_zero_of_a_size_count_from_the_end() -> None:
    """x[: n - 4] where n is 3 is x[:-1]."""
    nodes = [
        Node("Shape", ["x"], ["shape"]),
        Node("Sub", ["shape", "four"], ["end"]),
        Node("Slice", ["x", "zero", "end"], ["y"]),
    ]
    case = Case(nodes, [make_value("x", ["n"])], ["y"], {"four": ints(4), "zero": ints(0)})
    for n in range(8):
        np.testing.assert_array_equal(case.results(x=counted(n))[0], counted(n)[: n - 4])


def test_poolings_round_up_whatever_the_image() -> None:
    options = {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}
    nodes = [
        Node("MaxPool", ["x"], ["max"], pads=[1, 0, 1, 1], **options),
        Node("AveragePool", ["x"], ["mean"], **options),
        Node("AveragePool", ["x"], ["all"], pads=[1, 1, 1, 0], count_include_pad=1, **options),
    ]
    case = Case(nodes, [make_value("x", ["b", 2, "h", "w"])], ["max", "mean", "all"])
    for height, width in ((3, 2), (4, 5), (7, 6), (8, 3)):
        case.check(x=counted(1, 2, height, width))
