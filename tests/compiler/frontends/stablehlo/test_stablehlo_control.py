"""Loops, branches and scans of jax give what jax gives, before and after the graph passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import Module, parse, to_text, verify, walk
from tests.support.drawn import examples
from tests.support.stablehlo_cases import Array, check, export, normal, spec


def check_both(function: Callable[..., Any], *inputs: tuple[Any, ...]) -> Module:
    """Compare the imported module and the one that the passes made of it with jax."""
    module = check(function, *inputs[0], inputs=inputs)
    printed = to_text(module)
    assert to_text(parse(printed)) == printed
    run_graph_passes(module)
    verify(module, GRAPH)
    for each in inputs:
        results = interpret(module, "main", [np.asarray(x) for x in each])
        for found, wanted in zip(
            results, jax.tree_util.tree_leaves(jax.jit(function)(*each)), strict=True
        ):
            np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-5, atol=1e-5)
    return module


def scan_cell(xs: Array, h: Array, w: Array, u: Array) -> Any:
    def step(carry: Any, x: Any) -> Any:
        following = jnp.tanh(x @ w + carry @ u)
        return following, following * 2

    return lax.scan(step, h, xs)


SCAN = (normal(5, 2, 3), normal(2, 4), normal(3, 4, seed=1), normal(4, 4, seed=2))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_gives_what_jax_gives(reverse: bool) -> None:
    def model(xs: Any, h: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            following = jnp.tanh(x @ SCAN[2] + carry @ SCAN[3])
            return following, following.sum()

        return lax.scan(step, h, xs, reverse=reverse)

    check_both(model, SCAN[:2])
    check_both(scan_cell, SCAN)


def test_a_bound_of_a_loop_may_depend_on_data() -> None:
    def model(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, a: a * 2 + i, x)

    x = normal(3)
    check_both(model, *((x, np.int32(n)) for n in (-1, 0, 1, 6)))


def test_a_loop_that_runs_until_a_value_converges() -> None:
    def model(x: Any) -> Any:
        def more(state: Any) -> Any:
            before, now, count = state
            return (jnp.abs(before - now).max() > 1e-4) & (count < 50)

        def step(state: Any) -> Any:
            _, now, count = state
            return now, 0.5 * (now + x / now), count + 1

        return lax.while_loop(more, step, (jnp.zeros_like(x), jnp.ones_like(x), 0))

    check_both(model, (np.abs(normal(4)) + 1,))


def test_branches_and_switches_take_the_right_one() -> None:
    def model(x: Any, n: Any) -> Any:
        y = lax.cond(n > 1, lambda a: a + 1, lambda a: a * x.sum(), x)
        return lax.switch(n, [jnp.sin, jnp.cos, lambda a: a * 2 + n], y)

    x = normal(3)
    check_both(model, *((x, np.int32(n)) for n in (-1, 0, 1, 2, 5)))


def test_control_flow_nests() -> None:
    def model(x: Any, limit: Any) -> Any:
        def row(i: Any, total: Any) -> Any:
            def column(state: Any) -> Any:
                j, inner = state
                moved = lax.cond(j % 2 == 0, lambda a: a + x[i], lambda a: a - inner.mean(), inner)
                return j + 1, moved

            _, inner = lax.while_loop(lambda s: s[0] < limit + i, column, (0, total))
            return inner

        return lax.fori_loop(0, 3, row, jnp.zeros(4))

    x = normal(3, 4)
    check_both(model, *((x, np.int32(n)) for n in (0, 1, 3)))


def test_a_loop_carries_symbolic_dims() -> None:
    def model(x: Any, w: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            return jnp.tanh(state @ w) + x

        return lax.fori_loop(0, 4, step, x)

    b, w = jax.export.symbolic_shape("b"), normal(4, 4)
    module = check(
        model,
        specs=(spec(b[0], 4), spec(4, 4)),
        inputs=[(normal(n, 4), w) for n in (1, 3)],
    )
    (loop,) = (op for op in walk(module) if op.name == "while")
    assert str(loop.results[-1].type) == "f32[b,4]"


def test_a_value_that_never_changes_is_not_carried() -> None:
    module = import_stablehlo(export(scan_cell, *SCAN))
    (loop,) = (op for op in walk(module) if op.name == "while")
    assert len(loop.operands) == 3  # index, state, outputs; not xs, w and u


@examples(6)
@given(st.data())
def test_drawn_programs_of_loops_and_branches(data: st.DataObject) -> None:
    """A random nest of loops and branches over one vector and a counter."""

    def draw(depth: int) -> Callable[[Any, Any], Any]:
        kinds = ["leaf"] if depth == 0 else ["cond", "fori", "scan", "leaf"]
        kind = data.draw(st.sampled_from(kinds))
        if kind == "leaf":
            factor = data.draw(st.sampled_from([0.5, -0.25]))
            return lambda x, n: jnp.sin(x) * factor + n
        first, second = draw(depth - 1), draw(depth - 1)
        bound = data.draw(st.integers(0, 3))
        if kind == "cond":
            return lambda x, n: lax.cond(n > bound, lambda: first(x, n), lambda: second(x, n))
        if kind == "fori":
            return lambda x, n: lax.fori_loop(0, bound, lambda i, a: first(a, n + i), second(x, n))
        return lambda x, n: lax.scan(
            lambda a, y: (first(a, n) + y.mean(), a.sum()), x, jnp.stack([second(x, n)] * 2)
        )[0]

    program = draw(2)
    x = normal(3)
    check_both(program, *((x, np.float32(n)) for n in (0, 2)))
