"""Ops with regions of any scalar code, compiled, against jax and against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tests.support.devices import load_best
from tests.support.stablehlo_cases import (
    artifact,
    assert_gives,
    check,
    export,
    integers,
    normal,
    run_compiled,
)

X = normal(5, 6)
WHOLE = integers(5, 6, low=-4, high=4)


def compiled(function: Callable[..., Any], *arguments: Any, tolerance: float = 1e-5) -> None:
    """Compare `function` with jax: interpreted, and compiled and run."""
    module = check(function, *arguments, tolerance=tolerance)
    assert_gives(run_compiled(module, *arguments), function, *arguments, tolerance=tolerance)


def scaled_sum(a: Any, b: Any) -> Any:
    return a * 0.5 + jnp.where(b > 0, b, -b)


def best_pair(a: Any, b: Any) -> Any:
    """The greater absolute value, with what came along with it."""
    takes = jnp.abs(a[0]) >= jnp.abs(b[0])
    return jnp.where(takes, a[0], b[0]), jnp.where(takes, a[1], b[1])


def test_running_combinations_by_any_region_see_no_padding() -> None:
    """Of which this region makes NaN."""
    x = (normal(3, 4) + 1j * normal(3, 4, seed=1)).astype(np.complex64)
    check(lambda x: (lax.cumlogsumexp(x), lax.cumlogsumexp(x, axis=1, reverse=True)), x)


def test_reductions_by_any_region() -> None:
    def model(x: Any, i: Any) -> Any:
        least = np.float32(1)
        several = lax.reduce((x, i), (np.float32(0), np.int32(-1)), best_pair, (1,))
        whole = lax.reduce((x, i), (np.float32(0), np.int32(-1)), best_pair, (1, 0))
        empty = lax.reduce(x[:, :0], least, scaled_sum, (1,))
        return (
            *several,
            *whole,
            lax.reduce(x, least, scaled_sum, (0,)),
            lax.reduce(x, least, scaled_sum, (0, 1)),
            empty,
        )

    compiled(model, X, WHOLE)


def test_reductions_by_any_region_of_symbolic_length() -> None:
    def model(x: Any) -> Any:
        return lax.reduce(x, np.float32(1), scaled_sum, (0,))

    b = jax.export.symbolic_shape("b, 6")
    exported = export(model, jax.ShapeDtypeStruct(b, "float32"))
    program = load_best(exported)
    for rows in (1, 2, 5):
        wanted = np.ones(6, np.float32)
        for row in X[:rows]:
            wanted = wanted * np.float32(0.5) + np.abs(row)
        np.testing.assert_allclose(program(X[:rows]).numpy(), wanted, rtol=1e-6)


def test_windows_by_any_region_and_with_any_init_value() -> None:
    def model(x: Any, i: Any) -> Any:
        def windows(x: Any, start: Any, body: Any, **more: Any) -> Any:
            return lax.reduce_window(x, start, body, (2, 3), (2, 1), ((1, 0), (0, 2)), **more)

        dilated = {"base_dilation": (2, 1), "window_dilation": (1, 2)}
        return (
            windows(x, np.float32(0.5), scaled_sum),
            windows(x, np.float32(0.5), scaled_sum, **dilated),
            windows(x, np.float32(2), lax.add),
            windows(x, np.float32(0), lax.add, **dilated),
            windows(i, np.int32(3), lax.mul, **dilated),
            windows(i, np.int32(-99), lax.max, base_dilation=(2, 2)),
        )

    # XLA leaves padding out, the standard combines it: its own interpreter is the judge.
    exported = export(model, X, WHOLE)
    with mlir.make_ir_context():
        module = ir.Module.parse(exported.mlir_module())
        arguments = [ir.DenseElementsAttr.get(x) for x in (X, WHOLE)]
        judged = stablehlo.eval_module(module, arguments)
        wanted = [np.array(ir.DenseElementsAttr(each)) for each in judged]
    found = load_best(exported)(X, WHOLE)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5)


def test_pooling_gradients_scatter_to_what_was_selected() -> None:
    def pool(x: Any) -> Any:
        largest = lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (2, 2), ((1, 0), (0, 1)))
        return jnp.sum(largest * jnp.arange(largest.size).reshape(largest.shape))

    compiled(jax.grad(pool), X)
    compiled(lambda x: jax.grad(lambda x: jnp.sum(pool(x[:, ::-1]) ** 2))(x), X, tolerance=1e-4)


def test_select_and_scatter_by_any_regions() -> None:
    text = """
    func.func @main(%x: tensor<4x4xi32>, %s: tensor<3x3xi32>) -> tensor<4x4xi32> {
      %z = stablehlo.constant dense<1> : tensor<i32>
      %r = "stablehlo.select_and_scatter"(%x, %s, %z) ({
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %p = stablehlo.compare LE, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
      }, {
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %d = stablehlo.add %a, %a : tensor<i32>
          %p = stablehlo.add %d, %b : tensor<i32>
          stablehlo.return %p : tensor<i32>
      }) {window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>,
          padding = dense<[[1, 1], [1, 1]]> : tensor<2x2xi64>}
        : (tensor<4x4xi32>, tensor<3x3xi32>, tensor<i32>) -> tensor<4x4xi32>
      return %r : tensor<4x4xi32>
    }"""
    x, s = integers(4, 4), integers(3, 3)
    wanted = np.ones((4, 4), np.int32)
    for i, j in np.ndindex(3, 3):
        rows = [row for row in (2 * i - 1, 2 * i) if 0 <= row < 4]
        columns = [column for column in (2 * j - 1, 2 * j) if 0 <= column < 4]
        place = min(((a, b) for a in rows for b in columns), key=lambda place: x[place])
        wanted[place] = 2 * wanted[place] + s[i, j]
    np.testing.assert_array_equal(run_compiled(artifact(text), x, s)[0], wanted)


def scatter_text(batching: bool) -> str:
    """A scatter of two operands at once; later updates see what earlier ones made."""
    numbers = (
        "update_window_dims = [1], inserted_window_dims = [], input_batching_dims = [0], "
        "scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], "
        "index_vector_dim = 1"
        if batching
        else "update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 0"
    )
    indices = "4x1" if batching else "2x4"
    return f"""
    func.func @main(%x: tensor<4x6xf32>, %y: tensor<4x6xi32>, %i: tensor<{indices}xi32>,
        %u: tensor<4x2xf32>, %v: tensor<4x2xi32>) -> (tensor<4x6xf32>, tensor<4x6xi32>) {{
      %h = stablehlo.constant dense<0.5> : tensor<f32>
      %r:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) ({{
        ^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
          %0 = stablehlo.multiply %a, %h : tensor<f32>
          %1 = stablehlo.add %0, %c : tensor<f32>
          %2 = stablehlo.compare GT, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %3 = stablehlo.select %2, %b, %d : tensor<i1>, tensor<i32>
          stablehlo.return %1, %3 : tensor<f32>, tensor<i32>
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}
        : (tensor<4x6xf32>, tensor<4x6xi32>, tensor<{indices}xi32>, tensor<4x2xf32>,
           tensor<4x2xi32>) -> (tensor<4x6xf32>, tensor<4x6xi32>)
      return %r#0, %r#1 : tensor<4x6xf32>, tensor<4x6xi32>
    }}"""


@pytest.mark.parametrize("batching", [False, True])
def test_scatter_of_several_operands_by_any_region(batching: bool) -> None:
    x, y, u, v = normal(4, 6), integers(4, 6), normal(4, 2, seed=5), integers(4, 2, low=10, high=20)
    starts = [(0, 1), (3, 4), (0, 2), (3, 5)]  # the last window does not fit
    if batching:
        starts = [(0, 4), (1, 0), (2, -1), (3, 5)]
    indices = np.array([[s[1]] for s in starts] if batching else np.transpose(starts), np.int32)
    found = run_compiled(artifact(scatter_text(batching)), x, y, indices, u, v)
    a, b = x.copy(), y.copy()
    for place, (row, column) in enumerate(starts):
        if not 0 <= column <= 4:
            continue
        for k in range(2):
            old, new = a[row, column + k], u[place, k]
            a[row, column + k] = old * np.float32(0.5) + new
            b[row, column + k] = b[row, column + k] if old > new else v[place, k]
    np.testing.assert_allclose(found[0], a, rtol=1e-6)
    np.testing.assert_array_equal(found[1], b)


def test_scatters_that_apply_a_function() -> None:
    def model(x: Any, i: Any) -> Any:
        at = x.at[i]
        return at.apply(jnp.sin), at.divide(2.0), at.power(2.0), at.multiply(3.0), at.min(0.5)

    compiled(model, X, np.array([0, 3, 3, 7, -1], np.int32), tolerance=1e-4)


def test_map_and_sorts_by_values_that_only_the_call_knows() -> None:
    text = """
    func.func @main(%x: tensor<8xf32>, %y: tensor<8xi32>, %c: tensor<f32>)
        -> (tensor<8xf32>, tensor<8xi32>, tensor<8xf32>) {
      %r:2 = "stablehlo.sort"(%x, %y) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>, %p: tensor<i32>, %q: tensor<i32>):
          %0 = stablehlo.subtract %a, %c : tensor<f32>
          %1 = stablehlo.subtract %b, %c : tensor<f32>
          %2 = stablehlo.abs %0 : tensor<f32>
          %3 = stablehlo.abs %1 : tensor<f32>
          %4 = stablehlo.exponential %2 : tensor<f32>
          %5 = stablehlo.exponential %3 : tensor<f32>
          %6 = stablehlo.compare LT, %4, %5 : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %6 : tensor<i1>
      }) {dimension = 0 : i64, is_stable = true}
        : (tensor<8xf32>, tensor<8xi32>) -> (tensor<8xf32>, tensor<8xi32>)
      %m = "stablehlo.map"(%x, %x) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %0 = stablehlo.multiply %a, %b : tensor<f32>
          %1 = stablehlo.add %0, %c : tensor<f32>
          stablehlo.return %1 : tensor<f32>
      }) {dimensions = array<i64: 0>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      return %r#0, %r#1, %m : tensor<8xf32>, tensor<8xi32>, tensor<8xf32>
    }"""
    x, y = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.int32)
    near, places, mapped = run_compiled(artifact(text), x, y, np.float32(4.25))
    order = np.argsort(np.abs(x - 4.25), kind="stable")
    np.testing.assert_array_equal(near, x[order])
    np.testing.assert_array_equal(places, y[order])
    np.testing.assert_allclose(mapped, x * x + 4.25)
