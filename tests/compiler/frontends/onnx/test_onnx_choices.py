"""Inputs that shape an op and that only the call knows, and branches of several ranks, compiled,
against NumPy and onnxruntime."""

from __future__ import annotations

from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from ingot.compiler.frontends.onnx import import_onnx
from ingot.hal.errors import CompileError, InvalidArgument
from tests.support.onnx_cases import Case
from tests.support.onnx_models import build_model, ints, make_value
from tests.support.onnx_sequences import INT64, Node, body
from tests.support.products import draw


@cache
def reductions() -> Case:
    nodes = [
        Node("ReduceSum", ["x", "one"], ["sum"], name="sum", keepdims=0),
        Node("ReduceMean", ["x", "two"], ["mean"], name="mean", keepdims=0),
        Node("ReduceLogSumExp", ["x", "two"], ["log"], keepdims=1),
        Node("ReduceMax", ["x", "any"], ["max"], name="max", keepdims=1),
        Node("ReduceL2", ["x", "any"], ["norm"], noop_with_empty_axes=1),
        Node("CumSum", ["x", "axis"], ["running"], name="running", reverse=1),
    ]
    inputs = [
        make_value("x", ["a", "b", 3]),
        make_value("one", [1], INT64),
        make_value("two", [2], INT64),
        make_value("any", ["n"], INT64),
        make_value("axis", [], TensorProto.INT32),
    ]
    return Case(nodes, inputs, ["sum", "mean", "log", "max", "norm", "running"])


@pytest.mark.parametrize("axis", range(-3, 3))
def test_axes_of_reductions_come_from_data(axis: int) -> None:
    others = [each for each in range(3) if each != axis % 3]
    for a, b in ((2, 4), (1, 1)):
        for some in ([], [axis], [axis, *others], others):
            two = ints(axis, others[a - 1])
            given = {
                "one": ints(axis),
                "two": two,
                "any": ints(*some),
                "axis": np.array(axis, np.int32),
            }
            reductions().check(x=draw(a, b, 3), **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"one": ints(3)}, r"layer 'sum': the count of its different axes among \[0, 1, 2\] is 0"),
        ({"one": ints(-4)}, "layer 'sum': the count of its different axes"),
        ({"two": ints(1, -2)}, "layer 'mean': the count of its different axes .* is 1, expected 2"),
        ({"any": ints(0, 1, 5)}, "layer 'max': the count of its axes among .* is 2, expected"),
        ({"axis": np.array(3, np.int32)}, "layer 'running': the count of its different axis among"),
    ],
)
def test_axes_that_do_not_exist_are_refused_at_the_call(
    change: dict[str, Any], message: str
) -> None:
    given = {"one": ints(0), "two": ints(0, 1), "any": ints(0), "axis": np.array(0, np.int32)}
    with pytest.raises(InvalidArgument, match=message):
        reductions().model.main(x=draw(2, 2, 3), **{**given, **change})


@cache
def shapes() -> Case:
    nodes = [
        Node("Unsqueeze", ["x", "axes"], ["wide"]),
        Node("Squeeze", ["wide", "axes"], ["narrow"], name="narrow"),
        Node("Slice", ["x", "starts", "ends", "two", "steps"], ["part"]),
        Node("Pad", ["x", "pads", "", "one"], ["padded"], mode="edge"),
    ]
    inputs = [make_value("x", ["a", "b", 4])]
    inputs += [make_value(name, [2], INT64) for name in ("axes", "two", "starts", "ends", "pads")]
    inputs.append(make_value("one", [1], INT64))
    return Case(nodes, inputs, ["wide", "narrow", "part", "padded"], {"steps": ints(2, 1)})


def test_axes_of_shape_ops_come_from_data() -> None:
    x = draw(3, 2, 4)
    for place, axes in enumerate(permutations(range(-5, 5), 2)):
        if axes[0] % 5 == axes[1] % 5 or place % 3:
            continue
        first = axes[0] % 3
        two = (first - 3 * (place % 2), (first + 1 + place % 2) % 3)
        shapes().check(
            x=x,
            axes=ints(*axes),
            two=ints(*two),
            starts=ints(0, -2),
            ends=ints(-1, 9),
            one=ints(first),
            pads=ints(1, 2),
        )


def test_an_axis_that_is_longer_than_one_cannot_be_squeezed() -> None:
    nodes = [Node("Squeeze", ["x", "axes"], ["y"], name="narrow")]
    inputs = [make_value("x", ["a", "b", 4]), make_value("axes", [1], INT64)]
    case = Case(nodes, inputs, ["y"])
    case.check(x=draw(1, 3, 4), axes=ints(0))
    case.check(x=draw(3, 1, 4), axes=ints(-2))
    with pytest.raises(InvalidArgument, match="layer 'narrow'"):
        case.model.main(x=draw(1, 3, 4), axes=ints(1))
    with pytest.raises(InvalidArgument, match=r"among \[0, 1\] is 0, expected 1"):
        case.model.main(x=draw(1, 1, 4), axes=ints(2))


def test_too_many_choices_are_refused_by_name() -> None:
    nodes = [Node("ReduceSum", ["x", "axes"], ["y"], name="sum")]
    inputs = [make_value("x", [2] * 8), make_value("axes", ["n"], INT64)]
    with pytest.raises(CompileError, match=r"layer 'sum'.*its axes depend on data and may be any"):
        import_onnx(build_model(nodes, inputs, ["y"]))


def squeezed_if_single(*after: onnx.NodeProto) -> list[onnx.NodeProto]:
    """What torch's older exporter makes of squeeze(1), and nodes behind it."""
    then = body([Node("Squeeze", ["x", "at"], ["s"])], [], [onnx.ValueInfoProto(name="s")])
    otherwise = body([Node("Identity", ["x"], ["k"])], [], [onnx.ValueInfoProto(name="k")])
    return [
        Node("Shape", ["x"], ["dim"], start=1, end=2),
        Node("Equal", ["dim", "at"], ["single"]),
        Node("If", ["single"], ["v"], name="maybe", then_branch=then, else_branch=otherwise),
        *after,
    ]


def test_branches_of_several_ranks_go_on_until_the_ranks_are_one() -> None:
    nodes = squeezed_if_single(
        Node("Exp", ["v"], ["e"]),
        Node("Add", ["e", "bias"], ["sum"]),
        Node("Shape", ["sum"], ["shape"]),
        Node("Size", ["sum"], ["count"]),
        Node("ReduceSum", ["sum", "last"], ["total"], keepdims=0),
        Node("Reshape", ["total", "flat"], ["y"]),
    )
    constants = {"at": ints(1), "last": ints(-1), "flat": ints(-1), "bias": draw(4)}
    case = Case(nodes, [make_value("x", ["a", "b", 4])], ["y", "count"], constants)
    for a, b in ((3, 1), (3, 2), (1, 1), (0, 2)):
        case.check(x=draw(a, b, 4))


def test_a_result_of_several_ranks_is_refused_by_name() -> None:
    model = build_model(
        squeezed_if_single(), [make_value("x", ["a", "b", 4])], ["v"], {"at": ints(1)}
    )
    with pytest.raises(
        CompileError, match=r"'v' is f32\[a,4\] or f32\[a,b,4\], as .* layer 'maybe'"
    ):
        import_onnx(model)


def test_a_layer_that_takes_one_of_several_ranks_refuses_the_others_at_the_call() -> None:
    """As the last scatter of skl2onnx's KNNImputer does."""
    nodes = squeezed_if_single(Node("MatMul", ["v", "w"], ["p"]), Node("Gemm", ["p", "w"], ["y"]))
    constants = {"at": ints(1), "w": draw(4, 4)}
    case = Case(nodes, [make_value("x", ["a", "b", 4])], ["y"], constants)
    case.check(x=draw(3, 1, 4))
    with pytest.raises(InvalidArgument, match=r"what layer 'Gemm_\d' is given is 3, expected 2"):
        case.model.main(x=draw(3, 2, 4))
