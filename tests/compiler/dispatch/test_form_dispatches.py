"""Dispatch regions: what is fused with what, and that regions mean what the graph meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.dispatch.form_dispatches import form_dispatches
from ingot.compiler.dispatch.ops import Call
from ingot.compiler.dispatch.outline import outline
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Block, Function, Module, Op, Region, TensorType, Value, clone_op
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support import programs
from tests.support.drawn import examples

F32 = dtype("f32")
B = symbol("b")


def program(
    build: Callable[..., list[Value]], *shapes: tuple[Dim, ...], symbols: tuple[str, ...] = ("b",)
) -> Module:
    """A module whose `main` takes f32 tensors of `shapes` and returns what `build` returns."""
    types = [TensorType(F32, shape) for shape in shapes]
    return programs.program(build, *types, symbols=dict.fromkeys(symbols, (1, None)))


def regions(module: Module) -> list[list[str]]:
    """The names of the ops in every region of `main`, without constants and broadcasts."""
    return [
        [
            op.name
            for op in region.regions[0].block.ops
            if op.name not in ("constant", "broadcast", "yield")
        ]
        for region in form_dispatches(module).functions["main"].block.ops
        if region.name == "dispatch.region"
    ]


def inlined(module: Module) -> Module:
    """The module with the ops of all regions back in `main`."""
    result = Module()
    for function in module.functions.values():
        block = Block(argument.type for argument in function.arguments)
        values = dict(zip(function.arguments, block.arguments, strict=True))
        for op in function.block.ops:
            if op.name == "dispatch.region":
                inner = op.regions[0].block
                operands = [values[operand] for operand in op.operands]
                values.update(zip(inner.arguments, operands, strict=True))
                for each in inner.ops[:-1]:
                    block.append(clone_op(each, values))
                yielded = [values[value] for value in inner.terminator.operands]
                values.update(zip(op.results, yielded, strict=True))
            else:
                block.append(clone_op(op, values))
        result.add(replace(function, body=Region([block])))
    return result


def dense(b: Builder, x: Value, w: Value, bias: Value) -> Value:
    rank = len(x.type.shape)  # type: ignore[union-attr]
    y = b.op(
        "dot_general",
        *(x, w),
        lhs_batch=(),
        rhs_batch=(),
        lhs_contract=(rank - 1,),
        rhs_contract=(0,),
        dtype=F32,
    )
    return b.op("add", y, b.broadcast_to(bias, y.type.shape))  # type: ignore[no-any-return]


def layer_norm(b: Builder, x: Value) -> Value:
    rows, columns = x.type.shape  # type: ignore[union-attr]
    count = b.full(float(columns), F32, (rows,))
    mean = b.op("div", b.op("reduce", x, axes=(1,), kind="add"), count)
    d = b.op("sub", x, b.op("broadcast", mean, shape=(rows, columns), dimensions=(0,)))
    variance = b.op("div", b.op("reduce", b.op("mul", d, d), axes=(1,), kind="add"), count)
    scale = b.op("rsqrt", b.op("add", variance, b.full(1e-5, F32, (rows,))))
    return b.op(  # type: ignore[no-any-return]
        "mul", d, b.op("broadcast", scale, shape=(rows, columns), dimensions=(0,))
    )


def test_a_chain_is_one_region() -> None:
    module = program(lambda b, x: [b.op("neg", b.op("abs", b.op("exp", x)))], (B, 4))
    assert regions(module) == [["exp", "abs", "neg"]]


def test_results_of_one_shape_share_a_region() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        y = b.op("exp", x)
        return [y, b.op("neg", y), b.op("abs", y)]

    assert regions(program(build, (B, 4))) == [["exp", "neg", "abs"]]


def test_a_region_has_no_more_results_than_bindings() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        made = [x]
        for _ in range(70):
            made.append(b.op("exp", made[-1]))
        return made[1:]

    found = form_dispatches(program(build, (B, 4))).functions["main"].block.ops[:-1]
    assert [len(op.operands) + len(op.results) for op in found] == [63, 9]


def test_slices_of_memory_are_read_where_they_are_joined() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        parts = [
            b.op("slice", x, start=(0, at), limit=(B, at + 1), stride=(1, 1)) for at in range(20)
        ]
        return [b.op("concatenate", *parts, axis=1)]

    assert regions(program(build, (B, 20))) == [["slice"] * 20 + ["concatenate"]]


def test_bias_activation_and_residual_join_the_contraction() -> None:
    def build(b: Builder, x: Value, w: Value, bias: Value) -> list[Value]:
        y = dense(b, x, w, bias)
        y = b.op("mul", y, b.op("logistic", y))
        return [b.op("add", x, y)]

    found = regions(program(build, (B, 8), (8, 8), (8,)))
    assert found == [["dot_general", "add", "logistic", "mul", "add"]]


def test_layer_norm_is_one_row_region_behind_its_residual_add() -> None:
    def build(b: Builder, x: Value, w: Value, bias: Value) -> list[Value]:
        return [layer_norm(b, b.op("add", x, dense(b, x, w, bias)))]

    found = regions(program(build, (B, 8), (8, 8), (8,)))
    assert len(found) == 2
    assert found[0] == ["dot_general", "add", "add"]
    assert found[1].count("reduce") == 2


def test_reductions_of_what_a_row_region_reads_are_in_it() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        high, low = (b.value("reduce", x, axes=(1,), kind=kind) for kind in ("max", "min"))
        squares = b.value("reduce", b.value("mul", x, x), axes=(1,), kind="add")
        columns = b.value("reduce", x, axes=(0,), kind="max")
        return [high, b.value("exp", low), squares, columns]

    found = regions(program(build, (B, 64)))
    assert found == [["reduce", "reduce", "exp", "mul", "reduce"], ["reduce"]]


def test_squares_of_a_product_that_others_read_do_not_lie_in_memory() -> None:
    def build(b: Builder, x: Value, w: Value, bias: Value) -> list[Value]:
        y = dense(b, x, w, bias)
        return [y, b.value("reduce", b.value("mul", y, y), axes=(1,), kind="add")]

    found = regions(program(build, (B, 8), (8, 8), (8,)))
    assert found == [["dot_general", "add"], ["mul", "reduce"]]


def test_squares_of_a_product_that_nobody_else_reads_are_what_lies_in_memory() -> None:
    def build(b: Builder, x: Value, w: Value, bias: Value) -> list[Value]:
        y = dense(b, x, w, bias)
        return [b.value("reduce", b.value("mul", y, y), axes=(1,), kind="add")]

    found = regions(program(build, (B, 8), (8, 8), (8,)))
    assert found == [["dot_general", "add", "mul"], ["reduce"]]


def test_a_residual_add_without_contraction_joins_the_row_region() -> None:
    module = program(lambda b, x, y: [layer_norm(b, b.op("add", x, y))], (B, 8), (B, 8))
    assert len(regions(module)) == 1


def test_a_reshape_of_memory_is_never_in_a_region() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        return [b.op("reshape", b.op("exp", x), shape=(B * 4,)), b.op("reshape", x, shape=(4, B))]

    formed = form_dispatches(program(build, (B, 4)))
    assert [op.name for op in formed.functions["main"].block.ops] == [
        "dispatch.region",
        "reshape",
        "reshape",
        "return",
    ]


def test_what_a_broadcast_repeats_is_not_computed_anew() -> None:
    def build(b: Builder, x: Value, y: Value) -> list[Value]:
        wide = b.op("broadcast", b.op("exp", x), shape=(B, 64), dimensions=(1,))
        return [b.op("add", wide, y)]

    assert regions(program(build, (64,), (B, 64))) == [["exp"], ["add"]]


@pytest.mark.parametrize(
    ("channels", "count", "turned"), [(8, 12, 2), (3, 12, 0), (8, 11, 0), (8, B, 2)]
)
def test_rows_that_many_read_lie_in_memory_as_rows(channels: int, count: Dim, turned: int) -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        at = b.op("iota", dtype=dtype("i64"), shape=(count,), axis=0)
        rows = b.op("reshape", b.op("transpose", x, permutation=(1, 2, 0)), shape=(12, channels))
        taken = b.op("take", rows, at, axis=0, mode="clamp")
        return [b.op("transpose", b.op("add", taken, taken), permutation=(1, 0))]

    found = regions(program(build, (channels, 3, 4)))
    assert found.count(["transpose"]) == turned


@pytest.mark.parametrize(
    ("axis", "expected"), [(1, [["take", "reduce"]]), (2, [["take"], ["reduce"]])]
)
def test_bags_of_rows_are_summed_where_they_lie(axis: int, expected: list[list[str]]) -> None:
    def build(b: Builder, table: Value) -> list[Value]:
        at = b.constant(np.arange(20).reshape(5, 4) % 3, "i64")
        return [b.op("reduce", b.op("take", table, at, axis=0, mode="clamp"), axes=(axis,),
                     kind="add")]  # fmt: skip

    assert regions(program(build, (3, 8))) == expected


def test_two_branches_that_wait_for_each_other_do_not_become_one_region() -> None:
    """y needs both exp(x) and a product of it: the product must run in between."""

    def build(b: Builder, x: Value, w: Value, bias: Value) -> list[Value]:
        e = b.op("exp", x)
        return [b.op("sub", e, b.op("exp", dense(b, dense(b, e, w, bias), w, bias)))]

    module = program(build, (B, 8), (8, 8), (8,))
    assert len(regions(module)) == 3
    x, w, bias = (np.random.default_rng(0).random(s, np.float32) for s in ((3, 8), (8, 8), (8,)))
    expected = interpret(module, "main", [x, w, bias])
    got = interpret(inlined(form_dispatches(module)), "main", [x, w, bias])
    np.testing.assert_array_equal(got[0], expected[0])


def test_equal_layers_share_their_kernels() -> None:
    def build(b: Builder, x: Value, w: Value, bias: Value) -> list[Value]:
        for layer in range(4):
            with b.at(f"layer{layer}"):
                x = layer_norm(b, b.op("exp", dense(b, x, w, bias)))
        return [x]

    module = outline(form_dispatches(program(build, (B, 8), (8, 8), (8,))))
    calls = [op for op in module.functions["main"].block.ops if op.name == "dispatch.call"]
    assert len(calls) == 8
    assert len(module.functions) == 3
    assert [call.location for call in calls[::2]] == [f"layer{i}" for i in range(4)]


def test_entries_name_symbols_by_their_order_and_calls_pass_their_values() -> None:
    rows, columns = symbol("rows"), symbol("columns")
    module = program(
        lambda b, x, y: [b.op("exp", x), b.op("exp", y)],
        (rows, columns),
        (columns, rows),
        symbols=("rows", "columns"),
    )
    outlined = outline(form_dispatches(module))
    calls = [op for op in outlined.functions["main"].block.ops if op.name == "dispatch.call"]
    assert {Call.of(call).entry for call in calls} == {"main_dispatch_0_exp"}
    dims = {Call.of(call).dims for call in calls}
    assert dims == {(rows, columns), (columns, rows)}


UNARY = ["neg", "abs", "exp", "tanh"]
BINARY = ["add", "sub", "mul", "max"]
KINDS = ["unary", "binary", "binary", "transpose", "dense", "norm", "slice", "reshape", "take"]


@examples(60)
@given(st.data())
def test_regions_mean_what_the_graph_means(data: st.DataObject) -> None:
    def build(b: Builder, x: Value, w: Value) -> list[Value]:
        values = [x]

        def pick() -> Value:
            return values[data.draw(st.integers(max(len(values) - 4, 0), len(values) - 1))]

        for _ in range(data.draw(st.integers(1, 14))):
            kind = data.draw(st.sampled_from(KINDS))
            if kind == "unary":
                y = b.op(data.draw(st.sampled_from(UNARY)), pick())
            elif kind == "binary":
                y = b.op(data.draw(st.sampled_from(BINARY)), pick(), pick())
            elif kind == "transpose":
                y = b.op("transpose", pick(), permutation=(1, 0))
            elif kind == "dense":
                y = dense(b, pick(), w, b.op("slice", w, start=(0, 0), limit=(1, 4), stride=(1, 1)))
            elif kind == "norm":
                y = layer_norm(b, pick())
            elif kind == "slice":
                top = b.op("slice", pick(), start=(0, 0), limit=(2, 4), stride=(1, 1))
                y = b.op("concatenate", top, top, axis=0)
            elif kind == "reshape":
                flat = b.op("reshape", pick(), shape=(16,))
                y = b.op("reshape", b.op("neg", flat), shape=(4, 4))
            else:
                y = b.op("take", pick(), b.constant([3, 1, 0, 2], "i32"), axis=0, mode="clamp")
            values.append(y)
        return [values[-1], pick()]

    module = program(build, (4, 4), (4, 4), symbols=())
    formed = form_dispatches(module)
    arrays = [np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)] * 2
    with np.errstate(all="ignore"):
        expected = interpret(module, "main", arrays)
        got = interpret(inlined(formed), "main", arrays)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    outside = {op.name for op in formed.functions["main"].block.ops}
    assert outside <= {"dispatch.region", "constant", "reshape", "return"}


def test_forming_takes_time_in_proportion_to_the_ops() -> None:
    """One value that everybody reads, and a long chain: neither is searched per op."""
    import time

    def build(b: Builder, x: Value) -> list[Value]:
        y = x
        for step in range(5000):
            y = b.op("add", b.op("exp", y) if step % 7 == 0 else y, x)
        return [y]

    module = program(build, (B, 4))
    start = time.process_time()
    outline(form_dispatches(module))
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize("name", ["scatter", "sort"])
def test_ops_of_no_kind_stay_alone(name: str) -> None:
    block = Block([TensorType(F32, (4,))])
    op = block.append(Op(name, block.arguments, [TensorType(F32, (4,))]))
    block.append(Op("return", [op.result]))
    module = Module()
    module.add(Function("main", Region([block]), ["x"], ["y"]))
    assert regions(module) == [[name]]


def test_no_kernel_reads_more_than_it_can_bind() -> None:
    def build(b: Builder, *xs: Value) -> list[Value]:
        total = xs[0]
        for x in xs[1:]:
            total = b.op("add", total, b.op("exp", x))
        return [total]

    module = program(build, *[(B, 4)] * 100)
    for op in form_dispatches(module).functions["main"].block.ops:
        assert len(op.operands) + len(op.results) <= 64
    with pytest.raises(CompileError, match="needs 71 buffers"):
        form_dispatches(program(lambda b, *xs: [b.op("concatenate", *xs, axis=0)], *[(B, 4)] * 70))
