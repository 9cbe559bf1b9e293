"""Dynamic StableHLO ops whose sizes come from tensors, compiled, against NumPy and jax."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxlib.mlir.dialects import stablehlo

import ingot
from ingot.hal.errors import InvalidArgument
from tests.support.devices import load_best
from tests.support.drawn import examples

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def load(text: str) -> ingot.Model:
    return load_best(stablehlo.serialize_portable_artifact_str(text, "1.9.0"))


def sizes(*values: int, dtype: Any = np.int64) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


@pytest.fixture(scope="module")
def reshaped() -> ingot.Model:
    return load("""
    func.func public @main(%a: tensor<?x6xf32>, %n: tensor<2xi32>) -> tensor<?x?xf32> {
      %0 = stablehlo.dynamic_reshape %a, %n : (tensor<?x6xf32>, tensor<2xi32>) -> tensor<?x?xf32>
      %1 = stablehlo.add %0, %0 : tensor<?x?xf32>
      return %1 : tensor<?x?xf32>
    }""")


@pytest.mark.parametrize("shape", [(4, 6), (24, 1), (2, 12)])
def test_a_reshape_takes_its_shape_from_a_tensor(
    reshaped: ingot.Model, shape: tuple[int, int]
) -> None:
    found = np.asarray(reshaped.main(X, sizes(*shape, dtype=np.int32)))
    np.testing.assert_array_equal(found, 2 * X.reshape(shape))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 5), r"6[*]arg0_0 is 24, expected size_1[*]size_2 = 20"),
        ((-4, 6), "element 0 of operand 1 of 'dynamic_reshape' is -4, expected 0 to"),
    ],
)
def test_a_reshape_to_another_count_is_refused(
    reshaped: ingot.Model, shape: tuple[int, int], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        reshaped.main(X, sizes(*shape, dtype=np.int32))


def test_a_slice_between_places_from_tensors() -> None:
    model = load("""
    func.func public @main(%a: tensor<?x6xf32>, %s: tensor<2xi32>, %l: tensor<2xi32>,
                           %t: tensor<2xi32>) -> tensor<?x?xf32> {
      %0 = stablehlo.real_dynamic_slice %a, %s, %l, %t : (tensor<?x6xf32>, tensor<2xi32>,
        tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
      return %0 : tensor<?x?xf32>
    }""")

    def slice_(*bounds: tuple[int, int]) -> np.ndarray[Any, Any]:
        return np.asarray(model.main(X, *(sizes(*each, dtype=np.int32) for each in bounds)))

    @given(*[st.integers(0, 4)] * 2, *[st.integers(0, 6)] * 2, *[st.integers(1, 3)] * 2)
    @examples(30)
    def run(a: int, b: int, c: int, d: int, step: int, stride: int) -> None:
        (a, b), (c, d) = sorted((a, b)), sorted((c, d))
        np.testing.assert_array_equal(
            slice_((a, c), (b, d), (step, stride)), X[a:b:step, c:d:stride]
        )

    run()
    for bounds, message in (
        (((0, 0), (5, 6), (1, 1)), "size_3 is 5, expected at most arg0_0 = 4"),
        (((3, 2), (2, 2), (1, 1)), "size_1 is 3, expected at most size_3 = 2"),
        (((0, 0), (4, 6), (0, 1)), "element 0 of operand 3 .* is 0, expected 1 to"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            slice_(*bounds)


def test_broadcasts_pads_and_iotas_of_sizes_from_tensors() -> None:
    model = load("""
    func.func public @main(%a: tensor<1x6xf32>, %n: tensor<3xi64>, %z: tensor<f32>,
                           %p: tensor<3xi64>, %q: tensor<3xi64>)
        -> (tensor<?x?x6xf32>, tensor<?x?x?xf32>, tensor<?x?x?xi32>) {
      %0 = stablehlo.dynamic_broadcast_in_dim %a, %n, dims=[1,2]
        : (tensor<1x6xf32>, tensor<3xi64>) -> tensor<?x?x6xf32>
      %i = stablehlo.constant dense<[1,0,2]> : tensor<3xi64>
      %1 = stablehlo.dynamic_pad %0, %z, %p, %q, %i : (tensor<?x?x6xf32>, tensor<f32>,
        tensor<3xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<?x?x?xf32>
      %2 = stablehlo.dynamic_iota %n, dim=1 : (tensor<3xi64>) -> tensor<?x?x?xi32>
      return %0, %1, %2 : tensor<?x?x6xf32>, tensor<?x?x?xf32>, tensor<?x?x?xi32>
    }""")
    for shape, low, high in (
        ((2, 3, 6), (1, 0, 2), (0, 1, 0)),
        ((1, 1, 6), (0, 0, 0), (0, 0, 0)),
        ((3, 0, 6), (0, 0, 1), (2, 0, 0)),
    ):
        wide, padded, counted = model.main(
            X[:1], sizes(*shape), np.float32(7), sizes(*low), sizes(*high)
        )
        wanted = np.broadcast_to(X[:1], shape)
        np.testing.assert_array_equal(np.asarray(wide), wanted)
        pads = list(zip(low, high, (1, 0, 2), strict=True))
        np.testing.assert_array_equal(np.asarray(padded), jax.lax.pad(wanted, np.float32(7), pads))
        steps = np.arange(shape[1])[:, None]
        np.testing.assert_array_equal(np.asarray(counted), np.broadcast_to(steps, shape))
    with pytest.raises(InvalidArgument, match="is 5, expected 6 to 6"):
        model.main(X[:1], sizes(2, 3, 5), np.float32(0), sizes(0, 0, 0), sizes(0, 0, 0))


def test_sizes_that_are_known_stay_so_beside_those_from_data() -> None:
    model = load("""
    func.func public @main(%a: tensor<?x1xf32>, %k: tensor<1xi32>) -> tensor<?x?xf32> {
      %d = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x1xf32>) -> tensor<i32>
      %r = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
      %n = stablehlo.concatenate %r, %k, dim = 0
        : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %0 = stablehlo.dynamic_broadcast_in_dim %a, %n, dims=[0,1]
        : (tensor<?x1xf32>, tensor<2xi32>) -> tensor<?x?xf32>
      return %0 : tensor<?x?xf32>
    }""")
    assert model.signature.results[0].shape == ("arg0_0", "size_1")
    for count in (0, 1, 5):
        found = np.asarray(model.main(X[:, :1], sizes(count, dtype=np.int32)))
        np.testing.assert_array_equal(found, np.broadcast_to(X[:, :1], (4, count)))


def test_amounts_of_padding_come_from_tensors_and_may_cut() -> None:
    model = load("""
    func.func public @main(%a: tensor<?x6xf32>, %z: tensor<f32>, %p: tensor<2xi64>,
                           %q: tensor<2xi64>, %i: tensor<2xi64>) -> tensor<?x?xf32> {
      %0 = stablehlo.dynamic_pad %a, %z, %p, %q, %i : (tensor<?x6xf32>, tensor<f32>,
        tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
      return %0 : tensor<?x?xf32>
    }""")

    @given(*[st.integers(-1, 2)] * 4, *[st.integers(0, 3)] * 2)
    @examples(30)
    def run(a: int, b: int, c: int, d: int, i: int, j: int) -> None:
        found = model.main(X, np.float32(7), sizes(a, b), sizes(c, d), sizes(i, j))
        wanted = jax.lax.pad(X, np.float32(7), [(a, c, i), (b, d, j)])
        np.testing.assert_array_equal(np.asarray(found), wanted)

    run()
    with pytest.raises(InvalidArgument, match=r"element 1 of operand 4 .* is -1, expected 0 to"):
        model.main(X, np.float32(7), sizes(0, 0), sizes(0, 0), sizes(0, -1))
    for amount in (-3, -(2**63)):
        with pytest.raises(InvalidArgument, match="expected"):
            model.main(X, np.float32(7), sizes(amount, 0), sizes(amount, 0), sizes(0, 0))
