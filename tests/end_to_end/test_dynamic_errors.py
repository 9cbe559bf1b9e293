"""Bad input of dynamic programs: what the error says, and that the session then works on.

Every case is one compiled program, a good call, and calls that must fail. After each of these
the good call is made again in the same session and must give the right numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from onnx import TensorProto, helper

import ingot
from ingot.hal.errors import (
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    InvalidArgument,
    OutOfMemory,
    OutOfRange,
)
from tests.support.devices import load_best

jax = pytest.importorskip("jax")
jnp = jax.numpy

Array = np.ndarray[Any, Any]
TYPES = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64, "i1": TensorProto.BOOL}
HUGE = 2**60


def value(text: str) -> Any:
    """ "x: f32[n,4]" as an ONNX value."""
    name, _, type = text.partition(": ")
    dtype, _, dims = type.rstrip("]").partition("[")
    shape = [int(dim) if dim.isdecimal() else dim for dim in dims.split(",") if dim]
    return helper.make_tensor_value_info(name, TYPES[dtype], shape)


def onnx_model(
    op: str, inputs: Sequence[str], outputs: Sequence[str], layer: str, **attributes: Any
) -> ingot.Module:
    """A model of one node."""
    operands, results = [value(each) for each in inputs], [value(each) for each in outputs]
    names = [[each.name for each in values] for values in (operands, results)]
    if op == "Loop":
        names[0].insert(0, "")
    node = helper.make_node(op, *names, layer, **attributes)
    graph = helper.make_graph([node], "g", operands, results)
    opsets = [helper.make_opsetid("", 17)]
    return ingot.compile(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def jax_model(function: Callable[..., Any], *shapes: Any, **options: Any) -> ingot.Module:
    specs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return ingot.compile(jax.export.export(jax.jit(function))(*specs), **options)


def sums() -> ingot.Module:
    b, s = jax.export.symbolic_shape("b, s", constraints=["b >= 2", "b <= 8", "s <= 64"])
    return jax_model(lambda x, y: x + y, (2 * b, s), (2 * b, s))


def prefixes() -> ingot.Module:
    """f32[a,4], f32[b,4] with a >= b."""
    a, b = jax.export.symbolic_shape("a, b", constraints=["a >= b"])
    return jax_model(lambda x, y: x[: y.shape[0]] + y, (a, 4), (b, 4))


def folded() -> ingot.Module:
    """Two reshapes one after the other, of which each relies on a count of elements."""
    return ingot.compile(
        """
        module {} {
          func @main(%x: f32[b] "x", %y: f32[b+s] "y", %z: f32[n] "z") -> (f32[b+s] "sum")
              symbols {b in [0, none], n in [0, none], s in [0, none]} {
            %0 = exp(%y) : f32[b+s] loc("exp")
            %1 = reshape(%z) {shape=[<2*b>]} : f32[2*b] loc("first")
            %2 = reshape(%1) {shape=[<b+s>]} : f32[b+s] loc("second")
            %3 = add(%2, %0) : f32[b+s] loc("add")
            return(%3)
          }
        }"""
    )


def asserted() -> ingot.Module:
    """An assertion on data."""
    from jaxlib.mlir.dialects import stablehlo

    text = """
    func.func public @main(%a: tensor<?xf32>, %n: tensor<i32>) -> tensor<?xf32> {
      %0 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare GT, %n, %0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.custom_call @shape_assertion(%1)
        {error_message = "too small", has_side_effect = true} : (tensor<i1>) -> ()
      return %a : tensor<?xf32>
    }"""
    return ingot.compile(stablehlo.serialize_portable_artifact_str(text, "1.9.0"))


def squares() -> ingot.Module:
    """f32[n,0] -> f32[n,n]: a great result of an argument without bytes."""
    (n,) = jax.export.symbolic_shape("n")

    def function(x: Any) -> Any:
        ones = jnp.ones((x.shape[0], x.shape[0]))
        return jnp.exp(ones) @ ones

    return jax_model(function, (n, 0))


def endless(op: str) -> ingot.Module:
    """ONNX: a Loop whose condition stays as it is."""
    names = ["i: i64[]", "c: i1[]", "v: f32[n]"]
    nodes = [
        helper.make_node("Identity", ["c"], ["next"]),
        helper.make_node(op, ["v", "v"], ["w"], "step"),
    ]
    results = [value("next: i1[]"), value("w: f32[n]")]
    body = helper.make_graph(nodes, "body", [value(each) for each in names], results)
    return onnx_model("Loop", ["go: i1[]", "x: f32[n]"], ["y: f32[n]"], "forever", body=body)


def endless_jax() -> ingot.Module:
    return jax_model(
        lambda x: jax.lax.while_loop(lambda c: jnp.sum(c) < 9, lambda c: c * 2, x), (8,)
    )


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def counted(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def wide(*shape: int) -> Array:
    """An array of any size in four bytes: one element, seen again and again."""
    return as_strided(zeros(1), shape, [0] * len(shape))


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


@dataclass(frozen=True)
class Bad:
    """Arguments and limits of a call that must fail, and with what."""

    arguments: tuple[Any, ...]
    error: type[Error]
    message: str
    limits: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Case:
    """`good`: arguments of a call that must work; `expected`: its result."""

    module: Callable[[], ingot.Module]
    good: tuple[Any, ...]
    expected: Array
    bad: tuple[Bad, ...]


STEPS, TIME = (("max_steps", 1000),), (("timeout", 0.02),)
NO_END = (
    Bad((np.bool_(True), counted(3)), DeadlineExceeded, "limit of 1000 steps", STEPS),
    Bad((np.bool_(True), counted(3)), DeadlineExceeded, "longer than its timeout", TIME),
)
NO_INDEX = r"'pick' \(operand 1\): index {} is out of range \[0, {}\)"
NO_PLACE = r"'put' \(operand 1\): index {} is out of range \[0, {}\)"
NO_SIZE = r"layer '{}': {} is {}, expected 0 to "
X = counted(5, 4)

CASES = {
    "arguments": Case(
        sums,
        (counted(4, 5), counted(4, 5)),
        2 * counted(4, 5),
        (
            Bad(
                (zeros(4, 5), zeros(4, 6)),
                InvalidArgument,
                r"argument 1 'y': dim 1 \('s'\) is 6, but argument 0 'x' has s = 5",
            ),
            Bad(
                (zeros(4, 5), zeros(6, 5)),
                InvalidArgument,
                r"argument 1 'y': dim 0 \('2\*b'\) is 6, expected 4",
            ),
            Bad((zeros(5, 5), zeros(5, 5)), InvalidArgument, r"is 5, .* not of the form 2\*b"),
            Bad((zeros(2, 5), zeros(2, 5)), InvalidArgument, "b is 1, expected at least 2"),
            Bad((zeros(18, 5), zeros(18, 5)), InvalidArgument, "b is 9, expected at most 8"),
            Bad((zeros(4, 0), zeros(4, 0)), InvalidArgument, r"\('s'\) is 0, expected at least 1"),
            Bad((zeros(4, 65), zeros(4, 65)), InvalidArgument, "is 65, expected at most 64"),
            Bad((wide(4, 2**40), zeros(4, 1)), OutOfMemory, "argument 0 'x': is not contiguous"),
        ),
    ),
    "relations": Case(
        prefixes,
        (counted(5, 4), counted(3, 4)),
        2 * counted(3, 4),
        (
            Bad(
                (zeros(3, 4), zeros(5, 4)),
                InvalidArgument,
                r"'shape_assertion': b is 5, expected at most a = 3",
            ),
        ),
    ),
    "sums of symbols": Case(
        folded,
        (zeros(2), zeros(4), counted(4)),
        counted(4) + 1,
        (
            Bad((zeros(2), zeros(1), zeros(4)), InvalidArgument, "s is -1, expected at least 0"),
            Bad((zeros(2), zeros(4), zeros(5)), InvalidArgument, r"n is 5, expected 2\*b = 4"),
            Bad((zeros(2), zeros(5), zeros(4)), InvalidArgument, r"2\*b is 4, expected b\+s = 5"),
            Bad((zeros(2), zeros(5), zeros(5)), InvalidArgument, r"'first': n is 5, .* = 4"),
        ),
    ),
    "assertions on data": Case(
        asserted,
        (counted(2), np.int32(4)),
        counted(2),
        (Bad((counted(2), np.int32(3)), InvalidArgument, "the assertion 'too small' is 0"),),
    ),
    "great results": Case(
        squares,
        (zeros(3, 0),),
        np.full((3, 3), 3 * np.exp(np.float32(1))),
        (
            Bad((zeros(2**24, 0),), OutOfMemory, "2251799813685248 bytes"),
            Bad((zeros(2**40, 0),), InvalidArgument, "does not fit 64 bits"),
        ),
    ),
    "sizes from data": Case(
        lambda: onnx_model("ConstantOfShape", ["s: i64[2]"], ["y: f32[a,b]"], "fill"),
        (ints(2, 3),),
        zeros(2, 3),
        (
            Bad((ints(2, -3),), InvalidArgument, NO_SIZE.format("fill", ".*", -3)),
            Bad((ints(HUGE, 3),), InvalidArgument, NO_SIZE.format("fill", ".*", HUGE)),
            Bad((ints(2**30, 2**30),), OutOfMemory, "4611686018427387904 bytes"),
            Bad((ints(2**40, 2**40),), InvalidArgument, r"'y'.* more than 2\^63 bytes"),
        ),
    ),
    "counts from data": Case(
        lambda: onnx_model("Range", ["a: i64[]", "b: i64[]", "c: i64[]"], ["y: i64[k]"], "count"),
        (np.int64(2), np.int64(9), np.int64(3)),
        ints(2, 5, 8),
        (
            Bad((np.int64(0), np.int64(9), np.int64(0)), InvalidArgument, "'count': the count"),
            Bad((np.int64(0), np.int64(2**62), np.int64(1)), InvalidArgument, str(2**62)),
        ),
    ),
    "a reshape": Case(
        lambda: onnx_model("Reshape", ["x: f32[n]", "s: i64[2]"], ["y: f32[a,b]"], "fold"),
        (counted(6), ints(2, -1)),
        counted(2, 3),
        (
            Bad((zeros(6), ints(4, 2)), InvalidArgument, r"'fold': n is 6, expected a\*b = 8"),
            Bad((zeros(6), ints(4, -1)), InvalidArgument, "'fold': n is 6, expected"),
            Bad((zeros(6), ints(-2, 3)), InvalidArgument, NO_SIZE.format("fold", ".*", -2)),
            Bad((zeros(6), ints(HUGE, HUGE)), InvalidArgument, "'fold'"),
        ),
    ),
    "an expansion": Case(
        lambda: onnx_model("Expand", ["x: f32[n,1]", "s: i64[2]"], ["y: f32[a,b]"], "widen"),
        (counted(2, 1), ints(1, 3)),
        np.repeat(counted(2, 1), 3, 1),
        (
            Bad((zeros(2, 1), ints(3, 3)), InvalidArgument, "'widen': dims 2 and 3 do not"),
            Bad((zeros(2, 1), ints(1, HUGE)), InvalidArgument, NO_SIZE.format("widen", ".*", HUGE)),
        ),
    ),
    "top k": Case(
        lambda: onnx_model("TopK", ["x: f32[n]", "k: i64[1]"], ["y: f32[k]", "i: i64[k]"], "best"),
        (counted(4), ints(2)),
        np.array([3, 2], np.float32),
        (
            Bad((zeros(4), ints(5)), InvalidArgument, "'best': the count k is 5, expected 0 to 4"),
            Bad((zeros(4), ints(-1)), InvalidArgument, "the count k is -1"),
        ),
    ),
    "gather": Case(
        lambda: onnx_model("Gather", ["x: f32[n,4]", "i: i64[k]"], ["y: f32[k,4]"], "pick"),
        (X, ints(4, -5)),
        X[[4, 0]],
        (
            Bad((X, ints(0, 5)), OutOfRange, NO_INDEX.format(5, 5)),
            Bad((X, ints(0, 1, -6)), OutOfRange, NO_INDEX.format(-6, 5)),
            Bad((X, ints(HUGE)), OutOfRange, NO_INDEX.format(HUGE, 5)),
            Bad((zeros(0, 4), ints(0)), OutOfRange, NO_INDEX.format(0, 0)),
        ),
    ),
    "gather of elements": Case(
        lambda: onnx_model(
            "GatherElements", ["x: f32[n,4]", "i: i64[k,4]"], ["y: f32[k,4]"], "pick", axis=0
        ),
        (X, ints(0, 1, -1, 3).reshape(1, 4)),
        X[[0, 1, 4, 3], range(4)].reshape(1, 4),
        (Bad((X, ints(0, 0, 9, 0).reshape(1, 4)), OutOfRange, NO_INDEX.format(9, 5)),),
    ),
    "gather of parts": Case(
        lambda: onnx_model("GatherND", ["x: f32[n,4]", "i: i64[k,2]"], ["y: f32[k]"], "pick"),
        (X, ints(4, 3, 0, -1).reshape(2, 2)),
        X[[4, 0], [3, 3]],
        (
            Bad((X, ints(0, 0, 0, 4).reshape(2, 2)), OutOfRange, "'pick'.* index 4 "),
            Bad((X, ints(0, 0, 5, 0).reshape(2, 2)), OutOfRange, "'pick'.* index 5 "),
        ),
    ),
    "scatter of parts": Case(
        lambda: onnx_model(
            "ScatterND", ["x: f32[n,4]", "i: i64[k,1]", "u: f32[k,4]"], ["y: f32[n,4]"], "put"
        ),
        (zeros(2, 4), ints(-1).reshape(1, 1), counted(1, 4)),
        np.concatenate([zeros(1, 4), counted(1, 4)]),
        (
            Bad(
                (zeros(2, 4), ints(2).reshape(1, 1), zeros(1, 4)),
                OutOfRange,
                NO_PLACE.format(2, 2),
            ),
        ),
    ),
    "a loop without end": Case(
        lambda: endless("Add"), (np.bool_(False), counted(3)), counted(3), NO_END
    ),
    "a while without end": Case(
        endless_jax,
        (counted(8),),
        counted(8),
        (
            Bad((zeros(8),), DeadlineExceeded, "limit of 1000 steps", STEPS),
            Bad((zeros(8),), DeadlineExceeded, "longer than its timeout", TIME),
        ),
    ),
}


@cache
def model_of(name: str) -> ingot.Model:
    """One session per case, for all its calls."""
    return ingot.load(CASES[name].module())


def check_good(name: str) -> None:
    results = model_of(name)(*CASES[name].good)
    first = results[0] if isinstance(results, tuple) else results
    np.testing.assert_allclose(np.asarray(first), CASES[name].expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        pytest.param(name, bad, id=f"{name} {place}")
        for name, case in CASES.items()
        for place, bad in enumerate(case.bad)
    ],
)
def test_bad_input_is_named_and_the_session_works_on(name: str, bad: Bad) -> None:
    check_good(name)
    with pytest.raises(bad.error, match=bad.message):
        model_of(name).call(*bad.arguments, **dict(bad.limits))
    check_good(name)


def counter(shape: tuple[int, ...], name: str = "total") -> ingot.Model:
    """main(x) -> (y): the sum of all x so far, in the variable `name`."""
    text = f"f32[{','.join(map(str, shape))}]"
    return ingot.load(
        ingot.compile(
            f"""
            module {{}} {{
              func @main(%x: {text} "x", %t: {text} "{name}") -> ({text} "y", {text} "next") {{
                %y = add(%x, %t) : {text}
                return(%y, %y)
              }}
            }}""",
            state={"next": name},
        )
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: counter((3,)), r"variable 'total': shape is \(3,\), but must be \(2,\)"),
        (lambda: counter((2,), "count"), "the state lacks variable 'total'"),
    ],
    ids=["shape", "name"],
)
def test_state_of_another_module_is_refused(other: Callable[[], Any], message: str) -> None:
    model = counter((2,))
    model(counted(2))
    with pytest.raises(InvalidArgument, match=message):
        model.load_state(other().state())
    np.testing.assert_array_equal(model(counted(2)), 2 * counted(2))


def test_a_loop_without_end_that_changes_state_asks_for_a_reset() -> None:
    """The limit ends the call; what holds for any failed call holds for its state."""

    def function(state: Any, x: Any) -> Any:
        return jax.lax.while_loop(lambda c: jnp.sum(x) > 0, lambda c: c + x, state), x

    specs = [jax.ShapeDtypeStruct((4,), np.float32)] * 2
    exported = jax.export.export(jax.jit(function))(*specs)
    model = load_best(exported, state=ingot.state.carried("state"))
    with pytest.raises(DeadlineExceeded, match="limit of 1000 steps"):
        model.call(counted(4), max_steps=1000)
    with pytest.raises(FailedPrecondition, match="'state': reset the session or load its state"):
        model(zeros(4))
    model.reset()
    np.testing.assert_array_equal(model.state()["state"], zeros(4))
    np.testing.assert_array_equal(model(zeros(4)), zeros(4))
