"""Branches, loops and state from source to result, against jax and the interpreter.

The programs are small and many: what is tested is where values live - registers, homes of
what a loop carries, variables - so every way to carry, swap, capture and return is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, counted_loop, while_loop
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Function, Module, TensorType, Value
from ingot.compiler.ir.dims import symbol
from ingot.compiler.vm.disassemble import disassemble
from ingot.compiler.vm.read_module import read_module
from ingot.hal.spec import dtype
from tests.support.compiled_programs import Program, build
from tests.support.devices import load_best, load_everywhere, targets
from tests.support.drawn import examples

Array = np.ndarray[Any, Any]
F32, I32, I64 = dtype("f32"), dtype("i32"), dtype("i64")
X = np.linspace(0.1, 0.9, 8, dtype=np.float32)
ROWS = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)

jax = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax


def int32(*numbers: int) -> list[tuple[Any, ...]]:
    return [(np.int32(number),) for number in numbers]


JAX: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "fori": (lambda x: lax.fori_loop(0, 10, lambda i, c: c * 1.1 + i, x), [(X,)]),
    "fori_with_a_limit_from_data": (
        lambda n, x: lax.fori_loop(0, n, lambda i, c: c * 1.1 + i, x),
        [(np.int32(n), X) for n in (5, 0, -3, 7)],
    ),
    "while_with_a_condition_on_the_device": (
        lambda x: lax.while_loop(lambda c: jnp.sum(c) < 100.0, lambda c: c * 1.5, x),
        [(X,), (X + 200,)],
    ),
    "swap": (
        lambda x, y: lax.fori_loop(0, 5, lambda i, c: (c[1], c[0]), (x, y)),
        [(X, X + 1)],
    ),
    "rotation": (
        lambda x, y, z: lax.fori_loop(0, 5, lambda i, c: (c[1], c[2], c[0] + c[1]), (x, y, z)),
        [(X, X + 1, X + 2)],
    ),
    "shift_register": (
        lambda x, y, z: lax.fori_loop(0, 4, lambda i, c: (c[1], c[2], c[2] * 2), (x, y, z)),
        [(X, X + 1, X + 2)],
    ),
    "nested_loops": (
        lambda x: lax.fori_loop(
            0, 3, lambda i, c: lax.fori_loop(0, i + 1, lambda j, d: d * 1.5 + j * i, c), x
        ),
        [(X,)],
    ),
    "nested_while_on_the_host": (
        lambda x: lax.while_loop(
            lambda c: c[0] < 20,
            lambda c: (
                lax.while_loop(lambda k: k % 5 != 4, lambda k: k + 1, c[0]) + 1,
                c[1] + 1,
            ),
            (jnp.int32(0), x),
        ),
        [(X,)],
    ),
    "scan": (lambda x: lax.scan(lambda c, a: (c + a, c * a), jnp.zeros(8), x), [(ROWS,)]),
    "recurrent_scan": (
        lambda x: lax.scan(
            lambda c, a: (jnp.tanh(c @ jnp.asarray(ROWS[:, :6]) + a), c), jnp.zeros(6), x
        ),
        [(ROWS[:, :6],)],
    ),
    "cond": (
        lambda p, x: lax.cond(p, lambda x: x * 2, lambda x: x - 1, x),
        [(np.bool_(True), X), (np.bool_(False), X)],
    ),
    "cond_with_several_results": (
        lambda x: lax.cond(jnp.sum(x) > 3, lambda x: (x * 2, x), lambda x: (x, x - 1), x),
        [(X,), (X - 1,)],
    ),
    "switch": (
        lambda i, x: lax.switch(
            i, [lambda x: x * 2, lambda x: x - 1, lambda x: x, lambda x: jnp.cos(x)], x
        ),
        [(np.int32(i), X) for i in range(-2, 6)],
    ),
    "a_float_in_a_register_that_kernels_need": (
        lambda x: lax.fori_loop(
            0, 10, lambda i, c: (c[0] * 0.9, c[1] + c[0] * x), (jnp.float32(1), x)
        ),
        [(X,)],
    ),
    "cond_in_a_loop": (
        lambda x: lax.fori_loop(
            0,
            10,
            lambda i, c: lax.cond(i % 2 == 0, lambda c: c + i, lambda c: c * 0.5, c),
            x,
        ),
        [(X,)],
    ),
    "update_of_rows": (
        lambda b, x: lax.fori_loop(
            0, 5, lambda i, c: lax.dynamic_update_slice(c, (x * i)[None], (i, 0)), b
        ),
        [(ROWS, X)],
    ),
    "collatz": (
        lambda n: lax.while_loop(
            lambda c: c[0] != 1,
            lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1),
            (n, jnp.int32(0)),
        ),
        int32(27, 1, 6),
    ),
    "a_carried_condition": (
        lambda x: lax.while_loop(
            lambda c: c[0],
            lambda c: (jnp.max(c[1]) < 5, c[1] + 0.3),
            (jnp.bool_(True), x),
        ),
        [(X,)],
    ),
    "newton_on_the_host": (
        lambda x: lax.while_loop(
            lambda v: jnp.abs(v * v - x) > 1e-3, lambda v: 0.5 * (v + x / v), jnp.float32(1)
        ),
        [(np.float32(2),)],
    ),
    "a_value_that_does_not_change": (
        lambda x, y: lax.fori_loop(0, 3, lambda i, c: (c[0] + c[1], c[1]), (x, y)),
        [(X, X + 1)],
    ),
    "a_loop_that_changes_nothing": (
        lambda x: lax.while_loop(lambda c: jnp.sum(c) < 1, lambda c: c * 1.0, x),
        [(X,)],
    ),
    "a_result_returned_twice": (
        lambda x: (lambda r: (r, r * 2, r))(lax.fori_loop(0, 3, lambda i, c: c + 1, x)),
        [(X,)],
    ),
    "one_value_carried_three_times": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: (c[0] + 1, c[0], c[0]), (x, x, x)),
        [(X,)],
    ),
    "a_loop_behind_a_loop": (
        lambda x: lax.fori_loop(
            0, 3, lambda i, c: c * 2, lax.fori_loop(0, 3, lambda i, c: c + 1, x)
        ),
        [(X,)],
    ),
}


@pytest.mark.parametrize("name", JAX)
def test_jax_programs(name: str) -> None:
    function, calls = JAX[name]
    models = load_everywhere(jax.export.export(jax.jit(function))(*calls[0]))
    for arguments in calls:
        wanted = jax.tree_util.tree_leaves(function(*arguments))
        for target, model in models.items():
            results = model(*map(np.asarray, arguments))
            got = results if isinstance(results, tuple) else (results,)
            for each, expected in zip(got, wanted, strict=True):
                np.testing.assert_allclose(
                    each.numpy(), np.asarray(expected), rtol=2e-5, atol=1e-6, err_msg=target
                )


def code_of(program: Program) -> str:
    return disassemble(read_module(bytes(program.module)))


def sum_of_rows(b: Builder, a: Value, n: Value) -> list[Value]:
    def condition(inner: Builder, values: Sequence[Value]) -> Value:
        return inner.value("compare", values[0], n, direction="lt")

    def body(inner: Builder, values: Sequence[Value]) -> list[Value]:
        row = inner.value("rem", values[0], inner.constant(np.int32(6)))
        element = inner.value("take", a, row, axis=0, mode="clamp")
        one = inner.constant(np.int32(1))
        return [inner.value("add", values[0], one), inner.value("add", values[1], element)]

    initial = [b.constant(np.int32(0)), b.full(0.0, F32, (8,))]
    return while_loop(b, initial, condition, body)[1:]


@pytest.mark.parametrize("steps", [0, 1, 2, 100])
def test_a_step_is_one_dispatch_without_a_copy(steps: int) -> None:
    program = Program(build(sum_of_rows, ("f32", (6, 8)), ("i32", ())))
    program.check(ROWS, np.array(steps, np.int32), tolerance=1e-5)
    assert program.dispatches == 2  # zeros, and the step
    assert "copy " not in code_of(program)


def test_a_loop_is_ended_by_the_limit_of_steps() -> None:
    program = Program(build(sum_of_rows, ("f32", (6, 8)), ("i32", ())))
    limit = np.array(2_000_000_000, np.int32)
    with pytest.raises(ingot.Error, match="limit of 1000 steps"):
        program.model.call(ROWS, limit, max_steps=1000)
    program.check(ROWS, np.array(3, np.int32), tolerance=1e-5)


ENDLESS: dict[str, Callable[[Builder, Value], list[Value]]] = {
    "a_loop_that_changes_nothing": lambda b, x: while_loop(
        b, [x], lambda inner, values: inner.constant(True, "i1"), lambda inner, values: values
    ),
    "a_loop_whose_result_nobody_reads": lambda b, x: (
        while_loop(
            b,
            [x],
            lambda inner, v: inner.value(
                "compare", total(inner, v[0]), total(inner, x), direction="ge"
            ),
            lambda inner, v: [inner.value("abs", v[0])],
        ),
        [x],
    )[1],
    "a_loop_of_registers": lambda b, x: (
        while_loop(
            b,
            [b.constant(np.int32(1))],
            lambda inner, v: inner.value(
                "compare", v[0], inner.constant(np.int32(0)), direction="ge"
            ),
            lambda inner, v: [inner.value("rem", v[0], inner.constant(np.int32(7)))],
        ),
        [x],
    )[1],
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_loop_without_effects_runs_into_the_limit(name: str) -> None:
    model = load_best(build(ENDLESS[name], ("f32", (8,))))
    with pytest.raises(ingot.Error, match="limit of 1000 steps"):
        model.call(X, max_steps=1000)
    with pytest.raises(ingot.Error, match="longer than its timeout"):
        model.call(X, timeout=0.05)


def test_a_loop_that_ends_and_that_nobody_reads_is_gone() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        counted_loop(b, b.constant(np.int32(9)), [x], lambda inner, i, v: [inner.op("add", *v, *v)])
        return [x]

    assert "branch" not in code_of(Program(build(make, ("f32", (8,)))))


def test_carried_values_may_have_symbolic_dims() -> None:
    def make(b: Builder, x: Value, n: Value) -> list[Value]:
        def body(inner: Builder, index: Value, values: Sequence[Value]) -> list[Value]:
            turned = inner.value("reverse", values[0], axes=(0,))
            return [inner.value("add", values[0], turned)]

        return counted_loop(b, n, [x], body)

    program = Program(build(make, ("f32", (symbol("s"), 3)), ("i64", ()), symbols={"s": (0, None)}))
    for s, n in ((0, 2), (1, 3), (5, 0), (17, 4)):
        x = np.arange(3 * s, dtype=np.float32).reshape(s, 3)
        program.check(x, np.array(n), tolerance=1e-5)


def test_a_branch_that_is_not_taken_is_not_checked() -> None:
    def make(b: Builder, x: Value, p: Value) -> list[Value]:
        head = {"start": (0,), "limit": (4,), "stride": (1,)}
        taken = [
            lambda inner: [inner.value("slice", x, **head)],
            lambda inner: [inner.full(1.0, F32, (4,))],
        ]
        return branches(b, "if", p, taken, iter(()))

    program = Program(build(make, ("f32", (symbol("s"),)), ("i1", ()), symbols={"s": (0, None)}))
    program.check(np.ones(5, np.float32), np.array(True))
    program.check(np.ones(2, np.float32), np.array(False))
    with pytest.raises(ingot.InvalidArgument, match="s is 2, expected at least 4"):
        program.call(np.ones(2, np.float32), np.array(True))


# State.


class Stateful:
    """A compiled module with variables beside the interpreter, call by call."""

    def __init__(
        self,
        make: Callable[..., list[Value]],
        variables: dict[str, tuple[TensorType, Any]],
    ) -> None:
        self.reference = self._module(make, variables)
        self.module = ingot.compile(self._module(make, variables), target=targets())
        self.models = load_everywhere(self.module)
        self.model = self.models["cpu"]
        self.state: dict[str, Array] = {}

    def _module(
        self, make: Callable[..., list[Value]], variables: dict[str, tuple[TensorType, Any]]
    ) -> Module:
        return build(make, ("f32", (8,)), variables=variables)

    def check(self, calls: int = 3) -> None:
        for call in range(calls):
            x = X * (call - 1)
            wanted = interpret(self.reference, "main", [x], state=self.state)
            for target, model in self.models.items():
                results = model(x)
                got = results if isinstance(results, tuple) else (results,)
                for each, expected in zip(got, wanted, strict=True):
                    np.testing.assert_allclose(each.numpy(), expected, rtol=1e-5, err_msg=target)

    def copies(self) -> int:
        code = disassemble(read_module(bytes(self.module)))
        return code.count("copy ") // len(self.models)


ROW = TensorType(F32, (8,))
CACHE = TensorType(F32, (16, 8))


def load(b: Builder, name: str, type: TensorType = ROW) -> Value:
    attributes = {"name": name, "dtype": type.dtype, "shape": type.shape}
    return b.append("variable.load", (), (), attributes).result


def store(b: Builder, name: str, value: Value) -> None:
    b.append("variable.store", (value,), (), {"name": name})


def put_row(b: Builder, cache: Value, row: Value, index: Value) -> Value:
    zero = b.constant(np.zeros((), index.type.dtype.numpy))  # type: ignore[union-attr]
    rows = b.value("reshape", row, shape=(1, 8))
    return b.value("dynamic_update_slice", cache, rows, index, zero)


def total(b: Builder, x: Value) -> Value:
    return b.value("reduce", x, axes=(0,), kind="add")


def accumulate(b: Builder, x: Value) -> list[Value]:
    y = b.value("add", load(b, "a"), x)
    store(b, "a", y)
    return [b.value("mul", y, x)]


def return_the_old(b: Builder, x: Value) -> list[Value]:
    a = load(b, "a")
    store(b, "a", b.value("add", a, x))
    return [a]


def exchange(b: Builder, x: Value) -> list[Value]:
    a, c = load(b, "a"), load(b, "c")
    store(b, "a", c)
    store(b, "c", a)
    return [b.value("add", a, x)]


def store_twice(b: Builder, x: Value) -> list[Value]:
    store(b, "a", x)
    y = load(b, "a")
    store(b, "a", b.value("mul", y, y))
    return [b.value("add", y, load(b, "a"))]


def keep_rows(b: Builder, x: Value) -> list[Value]:
    cache, n = load(b, "cache", CACHE), load(b, "n", TensorType(I32))
    cache = put_row(b, cache, x, n)
    store(b, "cache", cache)
    store(b, "n", b.value("add", n, b.constant(np.int32(1))))
    return [total(b, cache)]


def keep_rows_in_a_loop(b: Builder, x: Value) -> list[Value]:
    def body(inner: Builder, index: Value, values: Sequence[Value]) -> list[Value]:
        cache = put_row(inner, load(inner, "cache", CACHE), values[0], index)
        store(inner, "cache", cache)
        return [inner.value("add", values[0], total(inner, cache))]

    return counted_loop(b, b.constant(np.int32(5)), [x], body)


def carry_the_cache(b: Builder, x: Value) -> list[Value]:
    def body(inner: Builder, index: Value, values: Sequence[Value]) -> list[Value]:
        return [put_row(inner, values[0], x, index)]

    (cache,) = counted_loop(b, b.constant(np.int32(5)), [load(b, "cache", CACHE)], body)
    store(b, "cache", cache)
    return [total(b, cache)]


def store_in_a_branch(b: Builder, x: Value) -> list[Value]:
    positive = b.value("compare", total(b, x), b.constant(np.float32(0)), direction="gt")

    def yes(inner: Builder) -> list[Value]:
        y = inner.value("add", load(inner, "a"), x)
        store(inner, "a", y)
        return [y]

    taken = branches(b, "if", positive, [yes, lambda inner: [load(inner, "a")]], iter(()))
    return [b.value("add", taken[0], load(b, "a"))]


A = {"a": (ROW, np.float32(1))}
CACHED: dict[str, tuple[TensorType, Any]] = {
    "cache": (CACHE, np.arange(128, dtype=np.float32).reshape(16, 8)),
    "n": (TensorType(I32), np.int32(0)),
}
STATEFUL: dict[str, tuple[Any, dict[str, tuple[TensorType, Any]], int | None]] = {
    "accumulate": (accumulate, A, 0),
    "return_the_old": (return_the_old, A, 1),
    "exchange": (exchange, {**A, "c": (ROW, np.float32(2))}, None),
    "store_twice": (store_twice, A, None),
    "keep_rows": (keep_rows, CACHED, None),
    "keep_rows_in_a_loop": (keep_rows_in_a_loop, CACHED, None),
    "carry_the_cache": (carry_the_cache, CACHED, None),
    "store_in_a_branch": (store_in_a_branch, A, None),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_state_changes_as_in_the_interpreter(name: str) -> None:
    make, variables, copies = STATEFUL[name]
    program = Stateful(make, variables)
    program.check()
    if copies is not None:
        assert program.copies() == copies


# Drawn loops: values carried in all orders, computed from each other in registers or memory.

STEPS: list[Callable[[Builder, Value, Value], Value]] = [
    lambda b, x, y: x,
    lambda b, x, y: b.value("add", x, y),
    lambda b, x, y: b.value("mul", x, y),
    lambda b, x, y: b.value("max", x, y),
    lambda b, x, y: b.value("sub", y, x),
]
Step = tuple[int, int, int]


@examples(12, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_drawn_loops(steps: list[Step], branch: bool, scalar: bool) -> None:
    """Every carried value becomes a step of two others; rank 0 lives in registers."""
    shape = () if scalar else (3,)
    count = len(steps)

    def next_of(b: Builder, values: Sequence[Value]) -> list[Value]:
        return [
            STEPS[kind](b, values[first % count], values[second % count])
            for kind, first, second in steps
        ]

    def make(b: Builder, n: Value, *initial: Value) -> list[Value]:
        def body(inner: Builder, index: Value, values: Sequence[Value]) -> list[Value]:
            if not branch:
                return next_of(inner, values)
            two = inner.constant(np.int32(2))
            odd = inner.value("rem", index, two)
            builds = [lambda b: list(values), lambda b: next_of(b, values)]
            return branches(inner, "case", odd, builds, iter(()))

        return counted_loop(b, n, initial, body)

    program = Program(build(make, ("i32", ()), *[("i32", shape)] * count))
    for trips in (0, 1, 2, 5):
        initial = [np.full(shape, 3 * k - 4, np.int32) for k in range(count)]
        program.check(np.array(trips, np.int32), *initial)


def test_functions_without_control_flow_have_no_scalars() -> None:
    module = build(lambda b, x: [b.op("add", x, x)], ("f32", ()))
    function: Function = module.functions["main"]
    from ingot.compiler.dispatch.place_scalars import place_scalars

    assert place_scalars(module).functions["main"] is function
