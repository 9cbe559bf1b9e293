"""Sorting, scattering, updating and accumulating through compiler and runtime.

Graph programs at symbolic dims against the interpreter, JAX programs against JAX, ONNX
models against onnxruntime; and what happens at the call when an index or a size is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.compiler.ir.dims import symbol
from ingot.hal import spec
from ingot.hal.errors import OutOfRange
from tests.support.compiled_programs import Program, build
from tests.support.devices import load_best

I64 = spec.dtype("i64")
B, S = symbol("b"), symbol("s")
ANY: tuple[int, int | None] = (0, None)
SYMBOLS = {"b": ANY, "s": ANY}
ROWS: dict[str, Any] = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
}


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def by_absolute(b: Builder, x: Value) -> list[Value]:
    """x sorted along axis 0 by the absolute value, and where its elements came from."""
    block = Block([ScalarType(spec.dtype("f32"))] * 2 + [ScalarType(I64)] * 2)
    inner = Builder(block)
    a, c = (inner.op("abs", each) for each in block.arguments[:2])
    inner.yield_(inner.op("compare", a, c, direction="gt"))
    places = b.op("iota", dtype=I64, shape=x.type.shape, axis=0)
    return list(b.op("sort", x, places, regions=[Region([block])], axis=0))


def test_lines_of_symbolic_length() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        total = b.op("cumulative", b.op("exp", x), axis=0, kind="add", exclusive=True)
        back = b.op("cumulative", x, axis=1, kind="max", reverse=True)
        top = b.op("top_k", b.op("mul", x, x), k=S, axis=1, largest=False, dtype=I64)
        return [*by_absolute(b, b.op("neg", x)), total, back, *top]

    program = Program(build(make, ("f32", (B, S)), symbols=SYMBOLS))
    for size in ((0, 3), (1, 1), (2, 7), (33, 3), (5, 64), (100, 0)):
        program.check(numbers(size), tolerance=1e-5)


def test_long_lines_are_sorted_in_a_workspace() -> None:
    program = Program(build(by_absolute, ("f32", (B, 2)), symbols={"b": ANY}))
    assert "b" in program.module.report.peaks["main"]
    x = np.random.default_rng(0).integers(-50, 50, (70_000, 2)).astype(np.float32)
    values, places = program.call(x)
    order = np.argsort(-np.abs(x), axis=0, kind="stable")
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 0))


def test_scatters_and_gathers_at_symbolic_dims() -> None:
    def make(b: Builder, x: Value, i: Value) -> list[Value]:
        column = b.op("reshape", i, shape=(S, 1))
        rows = b.op("take", x, i, axis=0, mode="wrap_check")
        kinds = ("set", "add", "max")
        found = [b.op("scatter", x, column, rows, kind=kind, **ROWS) for kind in kinds]
        counts = b.op(
            "scatter",
            b.full(0, "i64", (B,)),
            column,
            b.full(1, "i64", (S,)),
            kind="add",
            mode="wrap_check",
            **{**ROWS, "update_window_dims": ()},
        )
        return [*found, counts]

    program = Program(build(make, ("f32", (B, 20)), ("i64", (S,)), symbols=SYMBOLS))
    for size, count in ((0, 0), (1, 4), (7, 0), (7, 50)):
        indices = np.random.default_rng(count).integers(-size, max(size, 1), count)
        program.check(numbers((size, 20)), indices, tolerance=1e-6)


def test_blocks_move_in_and_out_at_computed_places() -> None:
    def make(b: Builder, x: Value, u: Value, i: Value) -> list[Value]:
        j = b.op("sub", i, b.constant(2, "i32"))
        block = b.op("dynamic_slice", x, i, j, sizes=(S, 3))
        update = b.op("add", u, block)
        return [block, b.op("dynamic_update_slice", b.op("neg", x), update, j, i)]

    module = build(
        make,
        ("f32", (B, 5)),
        ("f32", (S, 3)),
        ("i32", ()),
        symbols={"b": (1, None), "s": (0, None)},
    )
    program = Program(module)
    for size, block in ((1, 1), (9, 0), (9, 4), (40, 40)):
        for place in (-3, 0, 2, 100):
            program.check(numbers((size, 5)), numbers((block, 3), 1), np.array(place, np.int32))
    with pytest.raises(ingot.InvalidArgument, match=r"s.*b|b.*s"):
        program.call(numbers((3, 5)), numbers((4, 3)), np.array(0, np.int32))
    program.check(numbers((3, 5)), numbers((3, 3)), np.array(0, np.int32))


def test_an_update_takes_the_memory_of_an_operand_that_dies() -> None:
    def make(b: Builder, x: Value, u: Value, i: Value) -> list[Value]:
        cache = b.op("cumulative", x, axis=0, kind="max")
        zero = b.constant(0, "i32")
        cache = b.op("dynamic_update_slice", cache, u, i, zero)
        cache = b.op("dynamic_update_slice", cache, u, b.op("add", i, i), zero)
        return [b.op("reduce", cache, axes=(1,), kind="add")]

    program = Program(
        build(make, ("f32", (B, 256)), ("f32", (1, 256)), ("i32", ()), symbols={"b": ANY})
    )
    assert program.module.report.peaks["main"] == "1024*b"
    for size in (1, 3, 300):
        for place in (-1, 0, 2, 150):
            arguments = (numbers((size, 256)), numbers((1, 256), 1), np.array(place, np.int32))
            program.check(*arguments, tolerance=1e-5, atol=1e-5)


def test_scatter_gives_the_same_bits_for_any_number_of_threads() -> None:
    def make(b: Builder, x: Value, i: Value, u: Value) -> list[Value]:
        return [b.op("scatter", x, i, u, kind="add", **ROWS)]

    module = ingot.compile(
        build(make, ("f32", (50, 4096)), ("i32", (S, 1)), ("f32", (S, 4096)), symbols={"s": ANY})
    )
    random = np.random.default_rng(0)
    indices = random.integers(-5, 55, (300, 1)).astype(np.int32)
    arguments = (numbers((50, 4096)), indices, numbers((300, 4096), 1))
    results = [ingot.load(module, threads=count)(*arguments).numpy() for count in (1, 2, 5)]
    assert all(each.tobytes() == results[0].tobytes() for each in results)


@pytest.mark.parametrize("index", [6, -7])
@pytest.mark.parametrize("name", ["take", "gather", "scatter"])
def test_an_index_outside_is_an_error_that_names_it_and_the_session_goes_on(
    name: str, index: int
) -> None:
    def make(b: Builder, x: Value, i: Value) -> list[Value]:
        with b.at("decoder/lookup"):
            if name == "take":
                return [b.op("take", x, b.op("reshape", i, shape=(S,)), axis=0, mode="wrap_check")]
            if name == "scatter":
                update = b.full(1, "f32", (S, 4))
                return [b.op("scatter", x, i, update, mode="wrap_check", **ROWS)]
            found = b.op(
                "gather",
                *(x, i),
                offset_dims=(1,),
                collapsed_slice_dims=(0,),
                start_index_map=(0,),
                index_vector_dim=1,
                slice_sizes=(1, 4),
                mode="wrap_check",
            )
            return [found]

    program = Program(build(make, ("f32", (B, 4)), ("i64", (S, 1)), symbols=SYMBOLS))
    x, good = numbers((6, 4)), np.array([[0], [-6], [5]])
    program.check(x, good)
    with pytest.raises(ingot.OutOfRange) as error:
        program.call(x, np.array([[0], [index], [1]]))
    message = str(error.value)
    assert "decoder/lookup" in message
    assert f"(operand 1): index {index} is out of range [0, 6)" in message
    assert name.replace("gather", "take") in message
    program.check(x, good)


def test_more_than_there_are_is_refused_at_the_call() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        return list(b.op("top_k", x, k=5, axis=0, dtype=I64))

    program = Program(build(make, ("f32", (B,)), symbols={"b": ANY}))
    program.check(numbers((5,)))
    with pytest.raises(ingot.InvalidArgument, match="5"):
        program.call(numbers((4,)))
    program.check(numbers((50,)))


def jax_programs() -> dict[str, Callable[..., Any]]:
    import jax.numpy as jnp
    from jax import lax

    return {
        "sort": lambda x, i: (
            jnp.sort(x, 0),
            jnp.argsort(x, 1, descending=True),
            jnp.unique(i, size=4),
        ),
        "lexsort": lambda x, i: jnp.lexsort((x[:, 0], i)),
        "median": lambda x, i: (jnp.median(x, 0), jnp.quantile(x, 0.3, axis=1)),
        "top_k": lambda x, i: lax.top_k(x, 3),
        "running": lambda x, i: (
            jnp.cumsum(x, 0),
            jnp.cumprod(x, 1),
            lax.cummax(x, 1, reverse=True),
        ),
        "set": lambda x, i: (x.at[i].set(7.0), x.at[:, i].set(x[:, i] * 2), x.at[i, i].set(-1.0)),
        "combine": lambda x, i: (
            x.at[i].add(x[i]),
            x.at[i, 1].multiply(3.0),
            x.at[i].max(0.5, mode="drop"),
            x.at[1:3, i].min(0.0),
            x.at[i].subtract(x[i] * 2),
            jnp.isnan(x).at[i, 1].max(True),
        ),
        "segments": lambda x, i: jnp.zeros((4, x.shape[1])).at[i].add(x),
        "along": lambda x, i: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
        "slices": lambda x, i: (
            lax.dynamic_slice(x, (i[0], i[1]), (2, 3)),
            lax.dynamic_update_slice(x, x[:2, :2] * 2, (i[2], i[3])),
            lax.dynamic_index_in_dim(x, i[1], 1),
        ),
        "histogram": lambda x, i: jnp.histogram(x[1:3], bins=3)[0],
    }


@pytest.mark.parametrize("name", list(jax_programs()))
def test_jax_programs(name: str) -> None:
    jax = pytest.importorskip("jax")
    function = jax.jit(jax_programs()[name])
    x = numbers((5, 6))
    x[0, 1], x[3, 2], x[3, 3] = np.nan, np.inf, -0.0
    for indices in ([0, 3, 1, 2, 3], [4, -1, 9, -8, 4]):
        arguments = (x, np.array(indices, np.int32))
        exported = jax.export.export(function)(*arguments)
        kept = [arguments[place] for place in exported.module_kept_var_idx]
        results = load_best(exported)(*kept)
        results = results if isinstance(results, tuple) else (results,)
        for got, expected in zip(results, jax.tree.leaves(function(*arguments)), strict=True):
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_jax_program_of_symbolic_shape() -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def function(x: Any, i: Any) -> Any:
        return jnp.sort(x, 1), jnp.argsort(x, 0), jnp.cumsum(x, 1), x.at[i].add(1.0)

    b, n = jax.export.symbolic_shape("b, n")
    shapes = (jax.ShapeDtypeStruct((b, n), np.float32), jax.ShapeDtypeStruct((n,), np.int32))
    model = load_best(jax.export.export(jax.jit(function))(*shapes))
    for rows, columns in ((1, 1), (4, 9), (30, 100)):
        x = numbers((rows, columns))
        indices = np.random.default_rng(0).integers(0, rows, columns).astype(np.int32)
        wanted = function(jnp.asarray(x), indices)
        for got, expected in zip(model(x, indices), wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)


def onnx_family() -> Any:
    from onnx import TensorProto, helper

    node = helper.make_node
    scatters = [
        node("ScatterElements", ["x", "j", "v"], [f"elements_{kind}"], axis=1, reduction=kind)
        for kind in ("none", "add", "mul", "max", "min")
    ]
    blocks = [
        node("ScatterND", ["x", "i", "rows"], [f"nd_{kind}"], reduction=kind)
        for kind in ("none", "add", "max")
    ]
    nodes = [
        *scatters,
        *blocks,
        node("ScatterElements", ["x", "corner", "few"], ["in_corner"], axis=0),
        node("GatherElements", ["x", "j"], ["gathered"], axis=1),
        node("GatherND", ["x", "i"], ["gathered_nd"]),
        node("CumSum", ["x", "one"], ["sums"], exclusive=1, reverse=1),
        node("OneHot", ["j", "depth", "onoff"], ["hot"], axis=1),
        node("Trilu", ["x", "one"], ["upper"], upper=1),
        node("Trilu", ["x", "diagonal"], ["lower"], upper=0),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s"]),
        helper.make_tensor_value_info("j", TensorProto.INT64, ["b", "k"]),
        helper.make_tensor_value_info("v", TensorProto.FLOAT, ["b", "k"]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["n", 1]),
        helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", "s"]),
        helper.make_tensor_value_info("corner", TensorProto.INT64, ["b", 2]),
        helper.make_tensor_value_info("few", TensorProto.FLOAT, ["b", 2]),
        helper.make_tensor_value_info("diagonal", TensorProto.INT64, []),
    ]
    constants = {
        "one": np.array(1),
        "depth": np.array(4),
        "onoff": np.array([-1, 1], np.float32),
    }
    outputs = [onnx_value(name) for each in nodes for name in each.output]
    tensors = [helper_tensor(name, array) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "indexed", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def onnx_value(name: str) -> Any:
    import onnx

    return onnx.ValueInfoProto(name=name)


def helper_tensor(name: str, array: np.ndarray[Any, Any]) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)


def test_onnx_models() -> None:
    evaluator = pytest.importorskip("onnx.reference")
    model = onnx_family()
    reference = evaluator.ReferenceEvaluator(model)
    compiled = load_best(model)
    random = np.random.default_rng(0)
    for b, s, k, n in ((3, 5, 4, 2), (1, 2, 1, 1), (20, 33, 40, 7), (4, 6, 0, 0)):
        distinct = [random.permutation(s)[: min(k, s)] for _ in range(b)]
        j = np.array(distinct, np.int64).reshape(b, -1)
        j[:, ::2] -= s  # from the end
        arrays = {
            "x": numbers((b, s)),
            "j": j,
            "v": numbers(j.shape, 1),
            "i": random.permutation(b)[:n].reshape(-1, 1).astype(np.int64),
            "corner": np.tile(np.arange(b, dtype=np.int64)[:, None] - b, (1, 2)),
            "few": numbers((b, 2), 2),
            "diagonal": np.array(k - 2),
        }
        arrays["rows"] = numbers((len(arrays["i"]), s), 3)
        results = compiled.main(**arrays)
        for name, got, expected in zip(
            reference.output_names, results, reference.run(None, arrays), strict=True
        ):
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5, err_msg=name)


def test_an_index_is_checked_where_an_element_is_read_with_it() -> None:
    model = load_best(
        """module {} { func @main(%x: f32[n,k] "x", %i: i64[m] "i") -> (f32[m,k] "y") {
            %y = take(%x, %i) {axis=0, mode="check"} : f32[m,k] return(%y) } }"""
    )
    for rows, columns, index in ((3, 2, 3), (3, 2, -1), (0, 2, 0)):
        with pytest.raises(OutOfRange, match=f"index {index} is out of range"):
            model(np.zeros((rows, columns), np.float32), np.array([index]))
    for rows in (3, 0):
        assert model(np.zeros((rows, 0), np.float32), np.array([7])).shape == (1, 0)


@pytest.mark.parametrize(
    ("type", "ends"),
    [
        ("f32[m,k]", "return(%y)"),
        ("f32[k]", '%z = reduce(%y) {axes=[0], kind="add"} : f32[k] return(%z)'),
    ],
)
def test_an_index_of_the_only_row_is_checked(type: str, ends: str) -> None:
    model = load_best(
        f"""module {{}} {{ func @main(%x: f32[1,k] "x", %i: i64[m] "i") -> ({type} "y") {{
            %y = take(%x, %i) {{axis=0, mode="wrap_check"}} : f32[m,k] {ends} }} }}"""
    )
    x = numbers((1, 3))
    assert np.asarray(model(x, np.array([0, -1]))).shape[-1] == 3
    for index in (1, -2):
        with pytest.raises(OutOfRange, match=f"index {index} is out of range"):
            np.asarray(model(x, np.array([0, index])))
