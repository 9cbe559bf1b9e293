"""Dims that ops need equal, each a symbol of its own in the source: gathers, scatters, products,
normalisation and linear algebra, interpreted and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jaxlib.mlir.dialects import stablehlo

import ingot
from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from tests.support.devices import load_best
from tests.support.stablehlo_cases import normal

Array = np.ndarray[Any, Any]
F, I32 = "tensor<?x?xf32>", "tensor<?x?xi32>"
BODY = """({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
  %s = stablehlo.BODY %p, %q : tensor<f32>
  "stablehlo.return"(%s) : (tensor<f32>) -> () })"""


def artifact(operands: str, op: str, results: str) -> Any:
    names = [f"%{letter}" for letter in "abcdef"]
    types = operands.split(", ")
    given = ", ".join(f"{name}: {type}" for name, type in zip(names, types, strict=False))
    count = results.count("tensor")
    bound = "%r" if count == 1 else f"%r:{count}"
    returned = ", ".join(f"%r#{place}" for place in range(count)) if count > 1 else "%r"
    text = f"""func.func @main({given}) -> ({results}) {{
      {bound} = {op} : ({operands}) -> {results if count == 1 else f"({results})"}
      return {returned} : {results}
    }}"""
    return stablehlo.serialize_portable_artifact_str(text, "1.9.0")


def scatter(kind: str) -> Any:
    numbers = (
        "#stablehlo.scatter<update_window_dims = [1], input_batching_dims = [0], "
        "scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], "
        "index_vector_dim = 1>"
    )
    op = f'"stablehlo.scatter"(%a, %b, %c) {BODY.replace("BODY", kind)} '
    op += f"{{scatter_dimension_numbers = {numbers}}}"
    return artifact(f"{F}, {I32}, {F}", op, F)


def scattered(x: Array, starts: Array, updates: Array, kind: str) -> Array:
    result = x.copy()
    for row, (start,) in enumerate(starts):
        if 0 <= start <= x.shape[1] - updates.shape[1]:
            part = result[row, start : start + updates.shape[1]]
            part[:] = part + updates[row] if kind == "add" else part - updates[row]
    return result


def test_batch_dims_of_scatters_and_gathers_are_one_symbol() -> None:
    x, starts, updates = (
        normal(4, 6),
        np.array([[1], [0], [4], [5]], np.int32),
        normal(4, 2, seed=3),
    )
    gather = artifact(
        f"{F}, {I32}",
        '"stablehlo.gather"(%a, %b) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], "
        "index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>, indices_are_sorted = false}",
        F,
    )
    model = load_best({"add": scatter("add"), "subtract": scatter("subtract"), "gather": gather})
    for kind in ("add", "subtract"):
        found = getattr(model, kind)(x, starts, updates).numpy()
        np.testing.assert_allclose(found, scattered(x, starts, updates, kind), rtol=1e-6)
    wanted = [
        row[min(start, 3) : min(start, 3) + 3] for row, (start,) in zip(x, starts, strict=True)
    ]
    np.testing.assert_array_equal(model.gather(x, starts).numpy(), np.stack(wanted))
    with pytest.raises(ingot.Error, match=r"3"):
        model.gather(x, starts[:3])


def test_products_take_dims_that_must_be_equal() -> None:
    x, w = normal(2, 5, 5, 4), normal(3, 3, 2, 6)
    four = "tensor<?x?x?x?xf32>"
    convolution = artifact(
        f"{four}, {four}",
        "stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = "
        "[1, 1]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}",
        four,
    )
    (found,) = interpret(import_stablehlo(convolution), "main", [x, w])
    columns = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    halves = [
        np.einsum(
            "bijcyx,yxco->bijo", columns[:, :, :, 2 * g : 2 * g + 2], w[..., 3 * g : 3 * g + 3]
        )
        for g in (0, 1)
    ]
    np.testing.assert_allclose(found, np.concatenate(halves, -1), rtol=1e-4, atol=1e-5)
    einsum = artifact(f"{F}, {F}", '"stablehlo.einsum"(%a, %b) {einsum_config = "ab,bc->ca"}', F)
    a, b = normal(2, 3), normal(3, 4)
    (found,) = interpret(import_stablehlo(einsum), "main", [a, b])
    np.testing.assert_allclose(found, (a @ b).T, rtol=1e-5)


def solve(left: bool, lower: bool, kind: str, unit: bool, element: str) -> Any:
    type = f"tensor<?x?x?x{element}>"
    left_, lower_, unit_ = (str(each).lower() for each in (left, lower, unit))
    op = (
        f'"stablehlo.triangular_solve"(%a, %b) {{left_side = {left_}, lower = {lower_}, '
        f"unit_diagonal = {unit_}, transpose_a = #stablehlo<transpose {kind}>}}"
    )
    return artifact(f"{type}, {type}", op, type)


@pytest.mark.parametrize("element", ["f32", "complex<f64>"])
def test_triangular_systems_of_any_size_and_kind(element: str) -> None:
    dtype = np.dtype("complex128" if element.startswith("complex") else "float32")

    def drawn(*shape: int, seed: int) -> Array:
        values = normal(*shape, dtype="float64", seed=seed)
        if dtype.kind == "c":
            values = values + 1j * normal(*shape, dtype="float64", seed=seed + 1)
        return np.asarray(values.astype(dtype))

    kinds = {
        "NO_TRANSPOSE": lambda a: a,
        "TRANSPOSE": lambda a: np.swapaxes(a, 1, 2),
        "ADJOINT": lambda a: np.conj(np.swapaxes(a, 1, 2)),
    }
    for place in range(24):
        left, lower, unit = bool(place & 1), bool(place & 2), bool(place & 4)
        kind = list(kinds)[place // 8]
        a = drawn(2, 4, 4, seed=place) / 4 + 3 * np.eye(4, dtype=dtype)
        b = drawn(2, *((4, 3) if left else (3, 4)), seed=50 + place)
        module = import_stablehlo(solve(left, lower, kind, unit, element))
        (found,) = interpret(module, "main", [a.astype(dtype), b])
        half = np.tril(a) if lower else np.triu(a)
        if unit:
            half = half * (1 - np.eye(4)) + np.eye(4)
        of = kinds[kind](half)
        product = of @ found if left else found @ of
        np.testing.assert_allclose(product, b, rtol=1e-3, atol=1e-4, err_msg=str(place))


def test_systems_and_factors_run_for_sizes_of_the_call() -> None:
    element = "complex<f32>"
    type = f"tensor<?x?x?x{element}>"
    factor = artifact(type, "stablehlo.cholesky %a, lower = false", type)
    model = load_best({"solve": solve(False, True, "ADJOINT", False, element), "factor": factor})
    for size in (1, 3, 6):
        x = normal(2, size, size) + 1j * normal(2, size, size, seed=1)
        a = (x @ np.conj(np.swapaxes(x, 1, 2)) + size * np.eye(size)).astype(np.complex64)
        upper = np.triu(model.factor(a).numpy())
        np.testing.assert_allclose(
            np.conj(np.swapaxes(upper, 1, 2)) @ upper, a, rtol=1e-4, atol=1e-4
        )
        b = normal(2, 2, size).astype(np.complex64)
        found = model.solve(a, b).numpy()
        adjoint = np.conj(np.swapaxes(np.tril(a), 1, 2))
        np.testing.assert_allclose(found @ adjoint, b, rtol=1e-3, atol=1e-3)
    with pytest.raises(ingot.Error):
        model.factor(np.zeros((1, 2, 3), np.complex64))


def test_the_gradient_of_a_normalisation_takes_dims_that_must_be_equal() -> None:
    x, features = "tensor<?x?xf32>", "tensor<?xf32>"
    gradient = artifact(
        f"{x}, {features}, {features}, {features}, {x}",
        '"stablehlo.batch_norm_grad"(%a, %b, %c, %d, %e) {epsilon = 0.5 : f32, '
        "feature_index = 1 : i64}",
        f"{x}, {features}, {features}",
    )
    module = import_stablehlo(gradient)
    a, scale, mean = normal(4, 3), normal(3, seed=1), normal(3, seed=2)
    variance, above = np.abs(normal(3, seed=3)), normal(4, 3, seed=4)
    found = interpret(module, "main", [a, scale, mean, variance, above])
    np.testing.assert_allclose(found[2], above.sum(0), rtol=1e-5)
    wanted = (above * (a - mean)).sum(0) / np.sqrt(variance + 0.5)
    np.testing.assert_allclose(found[1], wanted, rtol=1e-4)
