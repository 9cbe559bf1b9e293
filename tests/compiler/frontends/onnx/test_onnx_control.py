"""If, Loop and Scan give what onnxruntime gives, before and after the graph passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto
from onnx.helper import make_attribute, make_function, make_graph, make_node, make_opsetid

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import Module, parse, to_text, verify, walk
from ingot.hal.errors import CompileError
from tests.support.drawn import examples
from tests.support.onnx_models import build_model, in_session, make_value

BOOL, INT64, FLOAT = TensorProto.BOOL, TensorProto.INT64, TensorProto.FLOAT
Node = make_node


def body(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    **constants: Any,
) -> onnx.GraphProto:
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    return make_graph(list(nodes), "body", list(inputs), list(outputs), tensors)


def value(name: str, shape: Sequence[Any] | None = None, element: int = FLOAT) -> Any:
    return make_value(name, shape, element)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    model = build_model(nodes, inputs, [], constants, opset=17)
    model.graph.output.extend(outputs)
    model.ir_version = 8
    return model


def check(model: onnx.ModelProto, *runs: dict[str, Any]) -> Module:
    """The module after the passes; before and after it gives what onnxruntime gives."""
    module = import_onnx(model)
    for each in (None, run_graph_passes):
        if each is not None:
            each(module)
        verify(module, GRAPH)
        assert to_text(parse(to_text(module))) == to_text(module)
        for arrays in runs:
            results = interpret(module, "main", list(arrays.values()))
            for result, wanted in zip(results, in_session(model, arrays), strict=True):
                assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
                np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    return module


def names(module: Module) -> list[str]:
    return [op.name for op in walk(module)]


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def twice(**constants: Any) -> onnx.GraphProto:
    return body([Node("Concat", ["x", "x"], ["t"], axis=0)], [], [value("t")], **constants)


def test_branches_may_differ_in_dims_and_read_weights_of_both_graphs() -> None:
    shift = body([Node("Add", ["x", "w"], ["s"])], [], [value("s")])
    inner = body([Node("Mul", ["x", "v"], ["m"]), Node("Concat", ["m", "m"], ["t"], axis=0)], [],
                 [value("t")], v=np.float32(3))  # fmt: skip
    model = model_of(
        [Node("If", ["p"], ["y"], then_branch=inner, else_branch=shift),
         Node("Neg", ["y"], ["z"]), Node("Add", ["x", "w"], ["u"])],
        [value("x", (2, 3)), value("p", (), BOOL)],
        [value("z"), value("u")],
        {"w": np.float32([1, 2, 3])},
    )  # fmt: skip
    check(model, {"x": X, "p": np.array(True)}, {"x": X, "p": np.array(False)})


def test_a_condition_known_at_import_chooses_among_branches_of_other_ranks() -> None:
    squeezed = body([Node("Squeeze", ["x"], ["s"])], [], [value("s")])
    nodes = [
        Node("Shape", ["x"], ["shape"]),
        Node("Gather", ["shape", "zero"], ["first"]),
        Node("Equal", ["first", "one"], ["p"]),
        Node("If", ["p"], ["y"], then_branch=squeezed, else_branch=twice()),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1)}
    for rows in (1, 2):
        model = model_of(nodes, [value("x", (rows, 3))], [value("y")], constants)
        assert "if" not in names(check(model, {"x": X[:rows]}))


def test_branches_of_other_ranks_are_refused_where_either_may_run() -> None:
    flat = body([Node("ReduceSum", ["x"], ["s"], keepdims=0)], [], [value("s")])
    node = Node("If", ["p"], ["y"], then_branch=flat, else_branch=twice(), name="choose")
    model = model_of([node], [value("x", (2, 3)), value("p", (), BOOL)], [value("y")])
    with pytest.raises(CompileError, match=r"'y' is f32\[\] or f32\[4,3\], as .* layer 'choose'"):
        import_onnx(model)


def test_every_missing_layer_of_all_bodies_is_listed() -> None:
    def odd(name: str) -> onnx.GraphProto:
        return body([Node("NoSuchOp", ["x"], ["d"], name=name)], [], [value("d")])

    node = Node("If", ["p"], ["y"], then_branch=odd("one"), else_branch=odd("two"), name="choose")
    model = model_of([node], [value("x", (3, 3)), value("p", (), BOOL)], [value("y")])
    with pytest.raises(CompileError) as caught:
        import_onnx(model)
    message = str(caught.value)
    assert "1 problem\n" in message
    assert "layer 'choose/one': NoSuchOp(f32[3,3])" in message
    assert "(also in 1 more place: 'choose/two')" in message


def test_a_body_that_reads_what_nothing_defines_is_refused() -> None:
    lost = body([Node("Neg", ["lost"], ["d"])], [], [value("d")])
    node = Node("If", ["p"], ["y"], then_branch=lost, else_branch=twice(), name="choose")
    model = model_of([node], [value("x", (3, 3)), value("p", (), BOOL)], [value("y")])
    with pytest.raises(CompileError, match="If 'choose' reads 'lost', which nothing defines"):
        import_onnx(model)


# Loop


def loop_body(*extra: onnx.NodeProto, go_on: str = "go", scans: int = 1) -> onnx.GraphProto:
    """a = a + x * i; stacks a."""
    nodes = [
        Node("Cast", ["i"], ["f"], to=FLOAT),
        Node("Mul", ["x", "f"], ["step"]),
        Node("Add", ["a", "step"], ["following"]),
        Node("Identity", ["following"], ["stacked"]),
        *extra,
    ]
    if go_on == "same":
        nodes.append(Node("Identity", ["go"], ["same"]))
    inputs = [value("i", (), INT64), value("go", (), BOOL), value("a", (2, 3))]
    outputs = [value(go_on, (), BOOL), value("following", (2, 3)), value("stacked", (2, 3))]
    return body(nodes, inputs, outputs[: 2 + scans], limit=np.float32(9))


LIMITED = (
    Node("ReduceMax", ["following"], ["greatest"], keepdims=0),
    Node("Less", ["greatest", "limit"], ["less"]),
)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_of_known_length_writes_what_it_stacks_in_place(count: int) -> None:
    graph = loop_body(go_on="same")
    model = model_of(
        [Node("Loop", ["n", "", "x"], ["last", "all"], body=graph)],
        [value("x", (2, 3))],
        [value("last"), value("all")],
        {"n": np.int64(count)},
    )
    module = check(model, {"x": X})
    assert "concatenate" not in names(module)
    assert "while" in names(module) or count < 2


@pytest.mark.parametrize("limited", [False, True])
def test_a_loop_of_unknown_length_grows_what_it_stacks(limited: bool) -> None:
    graph = loop_body(*(LIMITED if limited else ()), go_on="less" if limited else "same")
    model = model_of(
        [Node("Loop", ["n", "p", "x"], ["last", "all"], body=graph)],
        [value("x", (2, 3)), value("n", (), INT64), value("p", (), BOOL)],
        [value("last"), value("all")],
    )
    runs = [
        {"x": X, "n": np.array(n), "p": np.array(p)}
        for n, p in ((0, True), (1, True), (6, True), (6, False))
    ]
    check(model, *runs)


def test_the_length_of_a_loop_may_be_a_symbolic_dim() -> None:
    nodes = [
        Node("Shape", ["y"], ["shape"]),
        Node("Gather", ["shape", "zero"], ["n"]),
        Node("Loop", ["n", "", "x"], ["last", "all"], body=loop_body(go_on="same")),
    ]
    model = model_of(
        nodes,
        [value("x", (2, 3)), value("y", ("rows",))],
        [value("last"), value("all")],
        {"zero": np.int64(0)},
    )
    module = check(model, *({"x": X, "y": np.zeros(n, np.float32)} for n in (0, 1, 5)))
    assert str(module.functions["main"].result_types[1]) == "f32[rows,2,3]"


def test_a_carried_value_may_grow() -> None:
    grow = body(
        [Node("Concat", ["a", "x"], ["longer"], axis=0), Node("Identity", ["go"], ["same"])],
        [value("i", (), INT64), value("go", (), BOOL), value("a", (None, 3))],
        [value("same", (), BOOL), value("longer", (None, 3))],
    )
    nodes = [Node("Loop", ["n", "", "x"], ["last"], body=grow), Node("Neg", ["last"], ["z"])]
    model = model_of(nodes, [value("x", (2, 3)), value("n", (), INT64)], [value("z")])
    check(model, *({"x": X, "n": np.array(n)} for n in (0, 1, 3)))


def test_a_body_may_declare_sizes_that_only_a_step_knows() -> None:
    """x[i : i + 1] has one row for every i, as the body declares."""
    row = body(
        [Node("Add", ["i", "one"], ["end"]), Node("Unsqueeze", ["i", "zero"], ["starts"]),
         Node("Unsqueeze", ["end", "zero"], ["ends"]),
         Node("Slice", ["x", "starts", "ends"], ["row"]), Node("Add", ["a", "row"], ["sum"]),
         Node("Identity", ["sum"], ["stacked"]), Node("Identity", ["go"], ["same"])],
        [value("i", (), INT64), value("go", (), BOOL), value("a", (1, 3))],
        [value("same", (), BOOL), value("sum", (1, 3)), value("stacked", (1, 3))],
        one=np.int64(1), zero=np.int64([0]),
    )  # fmt: skip
    model = model_of(
        [Node("Loop", ["n", "", "first"], ["last", "all"], body=row)],
        [value("x", (2, 3)), value("n", (), INT64)],
        [value("last"), value("all")],
        {"first": np.zeros((1, 3), np.float32)},
    )
    check(model, *({"x": X, "n": np.array(n)} for n in (0, 1, 2)))


def test_a_carried_value_must_keep_its_dtype_and_rank() -> None:
    flat = body(
        [Node("ReduceSum", ["a"], ["flat"], keepdims=0), Node("Identity", ["go"], ["same"])],
        [value("i", (), INT64), value("go", (), BOOL), value("a")],
        [value("same", (), BOOL), value("flat")],
    )
    node = Node("Loop", ["n", "", "x"], ["last"], body=flat, name="turns")
    model = model_of([node], [value("x", (2, 3)), value("n", (), INT64)], [value("last")])
    with pytest.raises(CompileError, match=r"layer 'turns'.*carried value 0 is f32\[2,3\] before"):
        import_onnx(model)


def test_branches_and_loops_nest() -> None:
    odd = body([Node("Add", ["a", "w"], ["more"])], [], [value("more")])
    even = body(
        [Node("Loop", ["two", "", "a"], ["inner"], body=body(
            [Node("Mul", ["b", "half"], ["less"]), Node("Add", ["less", "w"], ["moved"]),
             Node("Identity", ["on"], ["still"])],
            [value("j", (), INT64), value("on", (), BOOL), value("b", (2, 3))],
            [value("still", (), BOOL), value("moved", (2, 3))],
            half=np.float32(0.5)))],
        [], [value("inner")], two=np.int64(2),
    )  # fmt: skip
    outer = body(
        [Node("Mod", ["i", "two"], ["rest"]), Node("Cast", ["rest"], ["p"], to=BOOL),
         Node("If", ["p"], ["chosen"], then_branch=odd, else_branch=even),
         Node("ReduceSum", ["chosen"], ["sum"], keepdims=0), Node("Identity", ["go"], ["same"])],
        [value("i", (), INT64), value("go", (), BOOL), value("a", (2, 3))],
        [value("same", (), BOOL), value("chosen", (2, 3)), value("sum", ())],
        two=np.int64(2),
    )  # fmt: skip
    model = model_of(
        [Node("Loop", ["n", "", "x"], ["last", "sums"], body=outer)],
        [value("x", (2, 3)), value("n", (), INT64)],
        [value("last"), value("sums")],
        {"w": np.float32([1, 0, -1])},
    )
    check(model, *({"x": X, "n": np.array(n)} for n in (0, 1, 4)))


def test_a_function_of_the_model_may_branch_and_its_branches_know_its_attributes() -> None:
    negated = body([Node("Neg", ["a"], ["n"])], [], [value("n")])
    slope = AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT)
    bent = Node("LeakyRelu", ["a"], ["k"])
    bent.attribute.append(slope)
    nodes = [
        Node("ReduceSum", ["a"], ["s"], keepdims=0),
        Node("Cast", ["s"], ["p"], to=BOOL),
        Node("If", ["p"], ["r"], then_branch=body([bent], [], [value("k")]), else_branch=negated),
    ]
    function = make_function(
        *("own", "Flip", ["a"], ["r"], nodes, [make_opsetid("", 17)]),
        attribute_protos=[make_attribute("slope", 0.5)],
    )
    calls = [
        Node("Flip", ["x"], ["h"], domain="own"),
        Node("Flip", ["h"], ["y"], domain="own", slope=0.25),
    ]
    model = model_of(calls, [value("x", (2, 3))], [value("y")])
    model.functions.append(function)
    model.opset_import.append(make_opsetid("own", 1))
    check(model, {"x": X}, {"x": X * 0})


# Scan


@examples(12)
@given(st.data())
def test_drawn_scans(data: st.DataObject) -> None:
    """s = s + x y; stacks s and x - y, along drawn axes in drawn directions."""
    axes = [data.draw(st.integers(-2, 1)) for _ in range(4)]
    directions = [data.draw(st.integers(0, 1)) for _ in range(4)]
    steps = data.draw(st.integers(1, 3))
    step = body(
        [Node("Mul", ["x", "y"], ["xy"]), Node("Add", ["s", "xy"], ["t"]),
         Node("Identity", ["t"], ["u"]), Node("Sub", ["x", "y"], ["v"])],
        [value("s", (3,)), value("x", (3,)), value("y", (3,))],
        [value("t", (3,)), value("u", (3,)), value("v", (3,))],
    )  # fmt: skip
    node = Node(
        "Scan", ["a", "b", "c"], ["t", "us", "vs"], body=step, num_scan_inputs=2,
        scan_input_axes=axes[:2], scan_input_directions=directions[:2],
        scan_output_axes=axes[2:], scan_output_directions=directions[2:],
    )  # fmt: skip
    shapes = [(steps, 3) if axis in (0, -2) else (3, steps) for axis in axes[:2]]
    model = model_of(
        [node],
        [value("a", (3,)), value("b", shapes[0]), value("c", shapes[1])],
        [value("t"), value("us"), value("vs")],
    )
    random = np.random.default_rng(0)
    b, c = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
    check(model, {"a": np.float32([1, 2, 3]), "b": b, "c": c})


def test_the_length_of_a_scan_may_be_symbolic() -> None:
    step = body(
        [Node("Add", ["s", "x"], ["t"]), Node("Identity", ["t"], ["u"])],
        [value("s", (3,)), value("x", (3,))],
        [value("t", (3,)), value("u", (3,))],
    )
    node = Node("Scan", ["a", "b"], ["t", "us"], body=step, num_scan_inputs=1)
    model = model_of([node], [value("a", (3,)), value("b", ("n", 3))], [value("t"), value("us")])
    start = np.zeros(3, np.float32)
    check(model, *({"a": start, "b": np.ones((n, 3), np.float32)} for n in (1, 4)))


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_of_opset_8_takes_every_example_by_itself(lengths: bool, backward: int) -> None:
    step = body(
        [Node("Add", ["s", "x"], ["t"]), Node("Mul", ["t", "y"], ["u"])],
        [value("s", (3,)), value("x", (3,)), value("y", (3,))],
        [value("t", (3,)), value("u", (3,))],
    )
    inputs = ["lengths" if lengths else "", "a", "b", "c"]
    node = Node("Scan", inputs, ["t", "us"], body=step, num_scan_inputs=2, directions=[backward, 0])
    model = build_model(
        [node],
        [value("a", ("n", 3)), value("b", ("n", "s", 3)), value("c", ("n", "s", 3))],
        [],
        opset=8,
    )
    if lengths:
        model.graph.input.append(value("lengths", ("n",), INT64))
    model.graph.output.extend([value("t"), value("us")])
    model.ir_version = 3
    runs = []
    for batch, steps in ((1, 1), (2, 4), (3, 2)):
        random = np.random.default_rng(batch)
        a = random.standard_normal((batch, 3)).astype(np.float32)
        b, c = (random.standard_normal((batch, steps, 3)).astype(np.float32) for _ in range(2))
        run: dict[str, Any] = {"a": a, "b": b, "c": c}
        if lengths:  # onnxruntime leaves zeros behind the length, as is done here
            run["lengths"] = np.minimum(np.arange(batch) + 1, steps)
        runs.append(run)
    check(model, *runs)
