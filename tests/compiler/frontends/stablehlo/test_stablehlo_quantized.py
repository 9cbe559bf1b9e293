"""Ops on quantised tensors, against NumPy by the words of the specification."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxlib.mlir.dialects import stablehlo

from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.frontends.stablehlo.reading.attributes import read_type
from ingot.compiler.frontends.stablehlo.reading.cursor import Cursor
from ingot.compiler.frontends.stablehlo.reading.program import OtherType, QuantizedType
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import verify
from ingot.hal.errors import DataLoss

Array = np.ndarray[Any, Any]
TEXTS = {
    "Q": "i8:f32, 0.1:-30",
    "R": "u8<1:200>:f32, 0.05:3",
    "C": "i8<-127:127>:f32:1, {0.02:1, 0.03, 0.04:-2}",
    "W": "i8<-127:127>:f32:1, {0.02, 0.03, 0.04}",
}
TYPES = {
    "Q": QuantizedType("i8", "f32", (0.1,), (-30,), -128, 127),
    "R": QuantizedType("u8", "f32", (0.05,), (3,), 1, 200),
    "C": QuantizedType("i8", "f32", (0.02, 0.03, 0.04), (1, 0, -2), -127, 127, 1),
    "W": QuantizedType("i8", "f32", (0.02, 0.03, 0.04), (0, 0, 0), -127, 127, 1),
}


def program(body: str) -> Callable[..., list[Array]]:
    """A function of the body of a program, in which Q, R, C and W are the types above."""
    text = re.sub(r"([x<])([QRCW])>", lambda at: f"{at[1]}!quant.uniform<{TEXTS[at[2]]}>>", body)
    module = import_stablehlo(stablehlo.serialize_portable_artifact_str(text, "1.9.0"))
    verify(module, GRAPH)
    return lambda *arguments: interpret(module, "main", list(arguments))


def spread(numbers: tuple[Any, ...], type: QuantizedType) -> Array:
    """Scales or zero points of a matrix."""
    return np.array(numbers, np.float32)[None] if type.axis == 1 else np.float32(numbers[0])


def numbers(x: Array, type: QuantizedType) -> Array:
    return (x.astype(np.float32) - spread(type.zeros, type)) * spread(type.scales, type)


def codes(x: Array, type: QuantizedType) -> Array:
    moved = x.astype(np.float32) / spread(type.scales, type) + spread(type.zeros, type)
    return np.rint(np.clip(moved, type.low, type.high)).astype(
        {"i8": np.int8, "u8": np.uint8}[type.storage]
    )


def same(got: Array, wanted: Array) -> None:
    """Integers are equal but for numbers between two of them."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)
    else:
        assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1


def drawn(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_quantise_and_dequantise_per_tensor_and_per_axis() -> None:
    run = program(
        """func.func @main(%a: tensor<4x3xf32>) -> (tensor<4x3xQ>, tensor<4x3xf32>, tensor<4x3xC>,
             tensor<4x3xf32>, tensor<4x3xR>) {
          %q = stablehlo.uniform_quantize %a : (tensor<4x3xf32>) -> tensor<4x3xQ>
          %d = stablehlo.uniform_dequantize %q : (tensor<4x3xQ>) -> tensor<4x3xf32>
          %c = stablehlo.uniform_quantize %a : (tensor<4x3xf32>) -> tensor<4x3xC>
          %e = stablehlo.uniform_dequantize %c : (tensor<4x3xC>) -> tensor<4x3xf32>
          %r = stablehlo.uniform_quantize %q : (tensor<4x3xQ>) -> tensor<4x3xR>
          return %q, %d, %c, %e, %r : tensor<4x3xQ>, tensor<4x3xf32>, tensor<4x3xC>,
            tensor<4x3xf32>, tensor<4x3xR>
        }"""
    )
    x = 8 * drawn(4, 3)
    q, c = codes(x, TYPES["Q"]), codes(x, TYPES["C"])
    wanted = [q, numbers(q, TYPES["Q"]), c, numbers(c, TYPES["C"])]
    wanted.append(codes(numbers(q, TYPES["Q"]), TYPES["R"]))
    for got, expected in zip(run(x), wanted, strict=True):
        same(got, expected)


def test_arithmetic_moves_and_reductions() -> None:
    run = program(
        """func.func @main(%a: tensor<4x3xQ>, %b: tensor<4x3xQ>) -> (tensor<4x3xQ>, tensor<4x3xR>,
             tensor<3x4xQ>, tensor<4x3xi1>, tensor<4xR>, tensor<2x3xQ>) {
          %add = stablehlo.add %a, %b : tensor<4x3xQ>
          %tanh = stablehlo.tanh %a : tensor<4x3xQ>
          %r = stablehlo.uniform_quantize %tanh : (tensor<4x3xQ>) -> tensor<4x3xR>
          %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xQ>) -> tensor<3x4xQ>
          %less = stablehlo.compare LT, %a, %b : (tensor<4x3xQ>, tensor<4x3xQ>) -> tensor<4x3xi1>
          %first = stablehlo.constant() {value = dense<3> : tensor<i8>} : () -> tensor<R>
          %sum = stablehlo.reduce(%r init: %first) applies stablehlo.add across dimensions = [1]
            : (tensor<4x3xR>, tensor<R>) -> tensor<4xR>
          %part = stablehlo.slice %a [1:3, 0:3] : (tensor<4x3xQ>) -> tensor<2x3xQ>
          return %add, %r, %t, %less, %sum, %part : tensor<4x3xQ>, tensor<4x3xR>, tensor<3x4xQ>,
            tensor<4x3xi1>, tensor<4xR>, tensor<2x3xQ>
        }"""
    )
    a, b = (np.random.default_rng(s).integers(-128, 128, (4, 3)).astype(np.int8) for s in (1, 2))
    x, y = numbers(a, TYPES["Q"]), numbers(b, TYPES["Q"])
    tanh = numbers(codes(np.tanh(x), TYPES["Q"]), TYPES["Q"])
    again = codes(tanh, TYPES["R"])
    wanted = [codes(x + y, TYPES["Q"]), again, a.T, x < y]
    wanted += [codes(numbers(again, TYPES["R"]).sum(1), TYPES["R"]), a[1:3]]
    for got, expected in zip(run(a, b), wanted, strict=True):
        same(got, expected)


def test_products_of_quantised_tensors_and_of_one_with_numbers() -> None:
    run = program(
        """func.func @main(%a: tensor<4x5xQ>, %w: tensor<5x3xW>, %x: tensor<4x5xf32>)
             -> (tensor<4x3xQ>, tensor<4x3xf32>) {
          %p = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
            : (tensor<4x5xQ>, tensor<5x3xW>) -> tensor<4x3xQ>
          %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<4x5xf32>, tensor<5x3xW>) -> tensor<4x3xf32>
          return %p, %h : tensor<4x3xQ>, tensor<4x3xf32>
        }"""
    )
    rng = np.random.default_rng(3)
    a, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((4, 5), (5, 3)))
    weight, x = numbers(w, TYPES["W"]), drawn(4, 5)
    found = run(a, w, x)
    same(found[0], codes(numbers(a, TYPES["Q"]) @ weight, TYPES["Q"]))
    same(found[1], x @ weight)


class Tables:
    """A type table of two entries."""

    def type(self, cursor: Cursor) -> Any:
        return OtherType(("i8", "f32")[cursor.unsigned()])


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_scales_that_are_none_are_told(scale: float) -> None:
    bits = int(np.float64(scale).view(np.uint64))
    zigzag = ((bits << 1) ^ -(bits >> 63)) & (1 << 64) - 1
    data = bytes([24 << 1 | 1, 3, 1, 3, 0]) + zigzag.to_bytes(8, "little")
    data += b"".join(bytes([each << 1 | 1]) for each in (0, 15, 14))
    with pytest.raises(DataLoss, match="a quantised type has scales"):
        read_type("vhlo", Cursor(memoryview(data), "types"), Tables())  # type: ignore[arg-type]
