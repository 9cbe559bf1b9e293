"""Sequences, optionals, and loops whose values change their dims, against onnxruntime.

Every model is compiled once with symbolic dims and run at several shapes.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.helper import make_tensor

from ingot.hal.errors import InvalidArgument, OutOfRange
from tests.support.devices import load_best
from tests.support.onnx_models import build_model, make_value
from tests.support.onnx_sequences import (
    BOOL,
    FLOAT,
    INT64,
    Case,
    Node,
    X,
    body,
    rows,
    sequence,
    tensor,
)

LOOP = [tensor("i", element=INT64), tensor("go", element=BOOL)]
GOES_ON = Node("Identity", ["go"], ["on"])
ON = tensor("on", element=BOOL)
N = tensor("n", element=INT64)


def test_a_sequence_of_known_length_leaves_nothing_behind() -> None:
    case = Case(
        [
            Node("SequenceConstruct", ["x", "y"], ["s"]),
            Node("SequenceInsert", ["s", "y", "n0"], ["t"]),
            Node("SequenceErase", ["t", "n-1"], ["u"]),
            Node("SequenceAt", ["u", "n1"], ["first"]),
            Node("SequenceLength", ["t"], ["length"]),
            Node("ConcatFromSequence", ["t"], ["joined"], axis=0),
            Node("SequenceConstruct", ["x", "x"], ["pair"]),
            Node("ConcatFromSequence", ["pair"], ["stacked"], axis=-1, new_axis=1),
            Node("Identity", ["u"], ["v"]),
            Node("SequenceAt", ["v", "n-2"], ["last"]),
        ],
        [X, tensor("y", "b", 3)],
        *[make_value(name) for name in ("first", "joined", "stacked", "last")],
        make_value("length", element=INT64),
    )
    assert case.lists() == []
    for a, b in ((0, 1), (2, 2), (3, 5)):
        case.check(x=rows(a), y=rows(b, first=100))


def growing_sequence() -> Case:
    """s = [x]; n times: s += [x * i]; all of s, its length, element k."""
    step = body(
        [
            Node("Cast", ["i"], ["f"], to=FLOAT),
            Node("Mul", ["x", "f"], ["m"]),
            Node("SequenceInsert", ["s", "m"], ["t"]),
            GOES_ON,
        ],
        [*LOOP, sequence("s")],
        [ON, sequence("t")],
    )
    return Case(
        [
            Node("SequenceConstruct", ["x"], ["start"]),
            Node("Loop", ["n", "", "start"], ["s"], body=step),
            Node("SequenceLength", ["s"], ["length"]),
            Node("SequenceAt", ["s", "k"], ["element"]),
            Node("ConcatFromSequence", ["s"], ["joined"], axis=0),
            Node("ConcatFromSequence", ["s"], ["wide"], axis=1),
            Node("ConcatFromSequence", ["s"], ["stacked"], axis=1, new_axis=1),
        ],
        [X, N, tensor("k", element=INT64)],
        make_value("length", element=INT64),
        *[make_value(name) for name in ("element", "joined", "wide", "stacked")],
    )


def test_a_sequence_grows_in_a_loop() -> None:
    case = growing_sequence()
    for a, n, k in ((2, 0, 0), (1, 3, 2), (3, 5, -1), (0, 2, 1), (2, 40, -41)):
        case.check(x=rows(a), n=np.int64(n), k=np.int64(k))


def test_a_position_that_no_element_has_is_refused() -> None:
    case = growing_sequence()
    for k in (3, -4, 1 << 40):
        with pytest.raises(OutOfRange, match=r"SequenceAt_3.*the position in the sequence is"):
            case.call(x=rows(1), n=np.int64(2), k=np.int64(k))
    case.check(x=rows(1), n=np.int64(2), k=np.int64(2))


def test_a_queue_of_tensors_moves_through_a_loop() -> None:
    step = body(
        [
            Node("SequenceAt", ["s", "n0"], ["head"]),
            Node("Add", ["head", "one"], ["more"]),
            Node("Concat", ["more", "more"], ["twice"], axis=0),
            Node("SequenceErase", ["s", "n0"], ["rest"]),
            Node("SequenceInsert", ["rest", "twice"], ["t"]),
            Node("SequenceInsert", ["t", "head", "n1"], ["u"]),
            Node("SequenceErase", ["u", "n0"], ["w"]),
            GOES_ON,
        ],
        [*LOOP, sequence("s")],
        [ON, sequence("w")],
        one=np.float32(1),
    )
    case = Case(
        [
            Node("SequenceConstruct", ["x", "y"], ["start"]),
            Node("Loop", ["n", "", "start"], ["s"], body=step),
            Node("SequenceAt", ["s", "n0"], ["first"]),
            Node("SequenceAt", ["s", "n1"], ["second"]),
        ],
        [X, tensor("y", "b", 3), N],
        make_value("first"),
        make_value("second"),
    )
    assert case.lists() == []
    for a, b, n in ((1, 2, 0), (2, 1, 1), (1, 1, 4), (0, 3, 3)):
        case.check(x=rows(a), y=rows(b, first=50), n=np.int64(n))


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_tensor_is_split_into_a_sequence(keepdims: int) -> None:
    case = Case(
        [
            Node("SplitToSequence", ["x"], ["single"], axis=0, keepdims=keepdims),
            Node("SequenceLength", ["single"], ["count"]),
            Node("SequenceAt", ["single", "n-1"], ["last"]),
            Node("SplitToSequence", ["x", "k"], ["parts"], axis=0),
            Node("SequenceAt", ["parts", "n-1"], ["rest"]),
            Node("SplitToSequence", ["x", "sizes"], ["named"], axis=1),
            Node("SequenceAt", ["named", "n1"], ["right"]),
            Node("SplitToSequence", ["x", "n2"], ["halves"], axis=1),
            Node("SequenceAt", ["halves", "n1"], ["half"]),
        ],
        [X, tensor("k", element=INT64)],
        make_value("count", element=INT64),
        *[make_value(name) for name in ("last", "rest", "right", "half")],
        constants={"sizes": np.array([1, 2])},
    )
    for a, k in ((1, 1), (5, 2), (6, 3), (4, 9)):
        case.check(x=rows(a), k=np.int64(k))
    with pytest.raises(InvalidArgument, match="the split is 0"):
        case.call(x=rows(2), k=np.int64(0))


def test_a_body_is_mapped_over_sequences() -> None:
    mapped = body(
        [Node("Add", ["e", "shift"], ["f"]), Node("ReduceSum", ["e"], ["g"], keepdims=0)],
        [tensor("e", "r", 3), tensor("shift")],
        [make_value("f"), make_value("g")],
    )
    tail = [
        Node("ConcatFromSequence", ["f"], ["joined"], axis=0),
        Node("ConcatFromSequence", ["g"], ["sums"], axis=0, new_axis=1),
    ]
    known = Case(
        [
            Node("SequenceConstruct", ["x", "x"], ["s"]),
            Node("SequenceMap", ["s", "shift"], ["f", "g"], body=mapped),
            *tail,
        ],
        [X, tensor("shift")],
        make_value("joined"),
        make_value("sums"),
    )
    assert known.lists() == []
    split = Case(
        [
            Node("SplitToSequence", ["x"], ["s"], axis=0),
            Node("SequenceMap", ["s", "shift"], ["f", "g"], body=mapped),
            *tail,
        ],
        [X, tensor("shift")],
        make_value("joined"),
        make_value("sums"),
    )
    for a in (1, 2, 7):
        known.check(x=rows(a), shift=np.float32(3))
        split.check(x=rows(a), shift=np.float32(3))


def test_branches_give_sequences_of_other_lengths() -> None:
    longer = body([Node("SequenceInsert", ["s", "y"], ["t"])], [], [sequence("t")])
    same = body([Node("Identity", ["s"], ["t"])], [], [sequence("t")])
    case = Case(
        [
            Node("SequenceConstruct", ["x"], ["s"]),
            Node("If", ["p"], ["u"], then_branch=longer, else_branch=same),
            Node("SequenceLength", ["u"], ["length"]),
            Node("ConcatFromSequence", ["u"], ["joined"], axis=0),
            Node("SequenceAt", ["u", "n-1"], ["last"]),
        ],
        [X, tensor("y", "b", 3), tensor("p", element=BOOL)],
        make_value("length", element=INT64),
        make_value("joined"),
        make_value("last"),
    )
    for p in (False, True):
        case.check(x=rows(2), y=rows(3, first=9), p=np.array(p))


def optional(name: str) -> onnx.ValueInfoProto:
    type = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["k", 3]))
    return helper.make_value_info(name, type)


def test_an_optional_is_present_or_not() -> None:
    type = helper.make_tensor_type_proto(FLOAT, ["k", 3])
    some = body([Node("Optional", ["x"], ["o"])], [], [optional("o")])
    none = body([Node("Optional", [], ["o"], type=type)], [], [optional("o")])
    given = body([Node("OptionalGetElement", ["q"], ["e"])], [], [tensor("e", "e0", 3)])
    zero = body([Node("Neg", ["y"], ["e"])], [], [tensor("e", "e0", 3)])
    case = Case(
        [
            Node("If", ["p"], ["q"], then_branch=some, else_branch=none),
            Node("OptionalHasElement", ["q"], ["has"]),
            Node("If", ["has"], ["r"], then_branch=given, else_branch=zero),
            Node("Optional", ["y"], ["known"]),
            Node("OptionalHasElement", ["known"], ["always"]),
            Node("OptionalGetElement", ["known"], ["back"]),
        ],
        [X, tensor("y", "b", 3), tensor("p", element=BOOL)],
        make_value("has", element=BOOL),
        make_value("r"),
        make_value("always", element=BOOL),
        make_value("back"),
    )
    for p in (False, True):
        case.check(x=rows(2), y=rows(4, first=9), p=np.array(p))


def test_an_optional_without_content_gives_none() -> None:
    type = helper.make_tensor_type_proto(FLOAT, ["k", 3])
    some = body([Node("Optional", ["x"], ["o"])], [], [optional("o")])
    none = body([Node("Optional", [], ["o"], type=type)], [], [optional("o")])
    nodes = [
        Node("If", ["p"], ["q"], then_branch=some, else_branch=none),
        Node("OptionalGetElement", ["q"], ["e"]),
    ]
    proto = build_model(nodes, [X, tensor("p", element=BOOL)], ["e"], opset=18)
    model = load_best(proto)
    np.testing.assert_array_equal(np.asarray(model(rows(2), np.array(True))), rows(2))
    with pytest.raises(InvalidArgument, match="the optional has no element"):
        model(rows(2), np.array(False))


# Loops.


@pytest.mark.slow
def test_carried_values_may_change_their_dims() -> None:
    step = body(
        [
            Node("Concat", ["c", "x"], ["d"], axis=0),
            Node("Concat", ["w", "w"], ["v"], axis=1),
            Node("ReduceSum", ["d"], ["total"], keepdims=0),
            Node("Less", ["total", "top"], ["on"]),
            Node("Shape", ["d"], ["size"]),
        ],
        [*LOOP, tensor("c", "c0", 3), tensor("w", 2, "w1")],
        [ON, tensor("d", "d0", 3), tensor("v", 2, "v1"), tensor("size", 2, element=INT64)],
        top=np.float32(200),
    )
    for trips, condition in (("n", ""), ("n", "go"), ("", "go"), ("", "")):
        case = Case(
            [Node("Loop", [trips, condition, "x", "w"], ["c", "v", "sizes"], body=step)],
            [X, tensor("w", 2, "b"), N, tensor("go", element=BOOL)],
            make_value("c"),
            make_value("v"),
            make_value("sizes", element=INT64),
        )
        for a, n, go in ((1, 0, True), (2, 3, True), (5, 2, False), (3, 6, True)):
            inputs = {"x": rows(a, first=2), "w": rows(2, 1), "n": np.int64(n)}
            case.check(**inputs, go=np.array(go or not trips))


def test_a_loop_in_a_loop_grows_one_value() -> None:
    inner = body(
        [Node("Concat", ["c", "x"], ["d"], axis=0), Node("Identity", ["g"], ["h"])],
        [tensor("j", element=INT64), tensor("g", element=BOOL), tensor("c", "c0", 3)],
        [tensor("h", element=BOOL), tensor("d", "d0", 3)],
    )
    outer = body(
        [
            Node("Loop", ["i", "", "e"], ["f"], body=inner),
            Node("Neg", ["f"], ["k"]),
            GOES_ON,
        ],
        [*LOOP, tensor("e", "e0", 3)],
        [ON, tensor("k", "k0", 3)],
    )
    case = Case([Node("Loop", ["n", "", "x"], ["y"], body=outer)], [X, N], make_value("y"))
    for a, n in ((1, 0), (1, 1), (2, 4), (0, 3)):
        case.check(x=rows(a), n=np.int64(n))


def nested(depth: int) -> onnx.GraphProto:
    """The body of `depth` loops, each of whose values grows."""
    inner = [Node("Concat", ["c", "x"], ["d"], axis=0)]
    if depth:
        inner = [Node("Loop", ["n1", "", "c"], ["d"], body=nested(depth - 1))]
    return body([*inner, GOES_ON], [*LOOP, tensor("c", "c0", 3)], [ON, tensor("d", "d0", 3)])


def test_loops_nested_deeply_are_imported_in_little_time() -> None:
    case = Case([Node("Loop", ["n2", "", "x"], ["y"], body=nested(12))], [X], make_value("y"))
    np.testing.assert_array_equal(case.call(x=rows(1))[0], np.tile(rows(1), (3, 1)))


def test_stacked_values_whose_dims_only_a_step_knows_must_be_equal() -> None:
    step = body(
        [Node("Greater", ["x", "i_float"], ["mask"]), Node("Compress", ["x", "flags"], ["kept"])],
        [*LOOP],
        [ON, make_value("kept")],
    )
    step.node.extend([GOES_ON])
    step.node[0].CopyFrom(Node("GreaterOrEqual", ["flat", "i_float"], ["flags"]))
    step.node.insert(0, Node("Cast", ["i"], ["i_float"], to=FLOAT))
    step.node.insert(0, Node("Reshape", ["x", "all"], ["flat"]))
    case = Case(
        [Node("Loop", ["n", ""], ["kept"], body=step)],
        [tensor("x", "a"), N],
        make_value("kept"),
        constants={"all": np.array([-1])},
    )
    x = np.array([5, 0, 6, 7], np.float32)
    case.check(x=x + 9, n=np.int64(3))
    case.check(x=np.array([9, -1, -1, 8], np.float32), n=np.int64(4))
    with pytest.raises(InvalidArgument, match="expected"):
        case.call(x=x, n=np.int64(2))


def test_parts_of_as_many_lengths_as_the_call_brings() -> None:
    """The second sequence has one row each, as torch splits what it repeats."""
    case = Case(
        [
            Node("SplitToSequence", ["x", "sizes"], ["parts"], axis=0),
            Node("SequenceAt", ["parts", "n"], ["part"]),
            Node("ConcatFromSequence", ["parts"], ["whole"], axis=0),
            Node("Shape", ["x"], ["count"], end=1),
            Node("ConstantOfShape", ["count"], ["ones"], value=make_tensor("one", INT64, [1], [1])),
            Node("SplitToSequence", ["x", "ones"], ["rows"], axis=0),
            Node("SequenceAt", ["rows", "n"], ["row"]),
        ],
        [X, tensor("sizes", "k", element=INT64), N],
        *[make_value(name) for name in ("part", "whole", "row")],
    )
    for sizes, at in (([2, 3, 1], 1), ([6], 0), ([0, 4, 2, 0], -2)):
        case.check(x=rows(6), sizes=np.array(sizes), n=np.array(at))
    for sizes in ([2, 3], [2, -1, 5]):
        with pytest.raises((InvalidArgument, OutOfRange), match=r"the s(um of the s)?plit is"):
            case.call(x=rows(6), sizes=np.array(sizes), n=np.array(0))
