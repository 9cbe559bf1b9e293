"""Ops that jax rarely writes, from StableHLO text, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jaxlib.mlir.dialects import stablehlo

from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from tests.support.devices import load_best
from tests.support.stablehlo_cases import normal

X = normal(2, 3, 4)
SCALE, OFFSET, MEAN = (normal(4, seed=seed) for seed in (1, 2, 3))
VARIANCE = np.abs(normal(4, seed=4)) + np.float32(0.5)


def run(text: str, *arguments: Any, version: str = "1.9.0") -> list[Any]:
    artifact = stablehlo.serialize_portable_artifact_str(text, version)
    return interpret(import_stablehlo(artifact), "main", arguments)


def test_batch_norm_inference_normalises_along_the_feature_axis() -> None:
    text = """
    func.func @main(%x: tensor<2x3x4xf32>, %s: tensor<4xf32>, %o: tensor<4xf32>,
                    %m: tensor<4xf32>, %v: tensor<4xf32>) -> tensor<2x3x4xf32> {
      %0 = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v)
        {epsilon = 1.0e-3 : f32, feature_index = 2 : i64}
        : (tensor<2x3x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
        -> tensor<2x3x4xf32>
      return %0 : tensor<2x3x4xf32>
    }"""
    (found,) = run(text, X, SCALE, OFFSET, MEAN, VARIANCE)
    wanted = SCALE * (X - MEAN) / np.sqrt(VARIANCE + np.float32(1e-3)) + OFFSET
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


ONE_OPERAND = {
    "real_dynamic_slice": (
        """
        %s = stablehlo.constant dense<[0, 1, 0]> : tensor<3xi32>
        %l = stablehlo.constant dense<[2, 3, 4]> : tensor<3xi32>
        %t = stablehlo.constant dense<[1, 1, 2]> : tensor<3xi32>
        %r = stablehlo.real_dynamic_slice %x, %s, %l, %t : (tensor<2x3x4xf32>, tensor<3xi32>,
          tensor<3xi32>, tensor<3xi32>) -> tensor<2x2x2xf32>""",
        "2x2x2xf32",
        X[:, 1:3, ::2],
    ),
    "dynamic_pad": (
        """
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %l = stablehlo.constant dense<[1, 0, 0]> : tensor<3xi32>
        %h = stablehlo.constant dense<[0, 0, 2]> : tensor<3xi32>
        %i = stablehlo.constant dense<0> : tensor<3xi32>
        %r = stablehlo.dynamic_pad %x, %z, %l, %h, %i : (tensor<2x3x4xf32>, tensor<f32>,
          tensor<3xi32>, tensor<3xi32>, tensor<3xi32>) -> tensor<3x3x6xf32>""",
        "3x3x6xf32",
        np.pad(X, ((1, 0), (0, 0), (0, 2))),
    ),
    "broadcast": (
        """
        %r = stablehlo.broadcast %x, sizes = [5] : (tensor<2x3x4xf32>) -> tensor<5x2x3x4xf32>""",
        "5x2x3x4xf32",
        np.broadcast_to(X, (5, 2, 3, 4)),
    ),
    "select by one truth": (
        """
        %p = stablehlo.constant dense<true> : tensor<i1>
        %n = stablehlo.negate %x : tensor<2x3x4xf32>
        %r = stablehlo.select %p, %x, %n : tensor<i1>, tensor<2x3x4xf32>""",
        "2x3x4xf32",
        X,
    ),
    "clamp by scalars": (
        """
        %l = stablehlo.constant dense<-0.5> : tensor<f32>
        %h = stablehlo.constant dense<0.25> : tensor<f32>
        %r = stablehlo.clamp %l, %x, %h
          : (tensor<f32>, tensor<2x3x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>""",
        "2x3x4xf32",
        np.clip(X, -0.5, 0.25),
    ),
    "sharding": (
        """
        %r = stablehlo.custom_call @Sharding(%x) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>""",
        "2x3x4xf32",
        X,
    ),
    "sum of several operands": (
        """
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %r:2 = stablehlo.reduce(%x init: %z), (%x init: %z) across dimensions = [0, 1]
          : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<f32>, tensor<f32>)
          -> (tensor<4xf32>, tensor<4xf32>)
          reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<f32>, %d: tensor<f32>) {
            %m = stablehlo.maximum %a, %b : tensor<f32>
            %s = stablehlo.add %c, %d : tensor<f32>
            stablehlo.return %m, %s : tensor<f32>, tensor<f32>
          }""",
        "4xf32",
        np.maximum(X.max((0, 1)), 0),
    ),
}


@pytest.mark.parametrize("name", ONE_OPERAND)
def test_program_gives_what_numpy_gives(name: str) -> None:
    body, type, wanted = ONE_OPERAND[name]
    result = "%r#0" if "%r:2" in body else "%r"
    text = f"""
    func.func @main(%x: tensor<2x3x4xf32>) -> tensor<{type}> {{
      {body}
      return {result} : tensor<{type}>
    }}"""
    (found,) = run(text, X)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_all_public_functions_are_imported_and_private_ones_inlined() -> None:
    text = """
    module {
      func.func public @first(%x: tensor<2xf32>) -> tensor<2xf32> {
        %0 = call @twice(%x) : (tensor<2xf32>) -> tensor<2xf32>
        return %0 : tensor<2xf32>
      }
      func.func public @second(%x: tensor<2xf32>) -> tensor<2xf32> {
        return %x : tensor<2xf32>
      }
      func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
        %0 = stablehlo.add %x, %x : tensor<2xf32>
        return %0 : tensor<2xf32>
      }
    }"""
    module = import_stablehlo(stablehlo.serialize_portable_artifact_str(text, "1.9.0"))
    assert list(module.functions) == ["first", "second"]
    assert [op.name for op in module.functions["first"].block.ops] == ["add", "return"]


GROWS = """
  func.func public @main(%x: tensor<?x3xf32>, %n: tensor<i32>) -> (tensor<?x3xf32>, tensor<i32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<?x3xf32>
     cond {
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %b = stablehlo.concatenate %a, %x, dim = 0
        : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
      %c = stablehlo.add %b, %b : tensor<?x3xf32>
      stablehlo.return %j, %c : tensor<i32>, tensor<?x3xf32>
    }
    %rows = stablehlo.get_dimension_size %0#1, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
    return %0#1, %rows : tensor<?x3xf32>, tensor<i32>
  }
"""


def test_a_loop_may_change_the_dims_that_it_carries() -> None:
    artifact = stablehlo.serialize_portable_artifact_str(GROWS, "1.9.0")
    model = load_best(artifact)
    for rows, steps in ((2, 0), (1, 1), (3, 4), (0, 3)):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        wanted = x
        for _ in range(steps):
            wanted = 2 * np.concatenate([wanted, x])
        count = np.int32(len(wanted))
        for found in (model(x, np.int32(steps)), run(GROWS, x, np.array(steps, np.int32))):
            for got, expected in zip(found, (wanted, count), strict=True):
                np.testing.assert_array_equal(np.asarray(got), expected)
