"""Winograd kernels against the direct convolution in float64, and their error gate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import VARIANTS, all_variants, host_variants, run
from products import draw, entry, error_of, f32

from ingot.compiler.dispatch.winograd import lower_winograd
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.choose_winograd import choose_winograd
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.winograd import weight_matrix
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value, walk
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype

Array = np.ndarray[Any, Any]


def transformed(w: Array) -> Array:
    """[3, 3, c, n] as [36, n / 16, c, 16]."""
    c, n = w.shape[2:]
    matrix = weight_matrix()
    u = np.einsum("ik,jl,klcn->ijcn", matrix, matrix, w.astype(np.float64)).astype(np.float32)
    return np.ascontiguousarray(u.reshape(36, c, n // 16, 16).transpose(0, 2, 1, 3))


def direct(x: Array, w: Array, padding: Any) -> Array:
    wide = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
    height, width = wide.shape[1] - 2, wide.shape[2] - 2
    parts = [
        wide[:, i : i + height, j : j + width] @ w[i, j].astype(np.float64)
        for i in range(3)
        for j in range(3)
    ]
    return np.asarray(sum(parts))


CASES = [
    ((1, 16, 16, 32), 64, ((1, 1), (1, 1))),
    ((2, 7, 7, 48), 80, ((1, 1), (1, 1))),
    ((1, 9, 14, 32), 32, ((0, 2), (1, 0))),
    ((1, 56, 56, 64), 64, ((1, 1), (1, 1))),
]


@pytest.mark.parametrize("variant", all_variants())
@pytest.mark.parametrize(("shape", "n", "padding"), CASES, ids=str)
def test_conv_winograd_convolves(variant: str, shape: Any, n: int, padding: Any) -> None:
    def build(b: Builder, x: Value, u: Value, bias: Value) -> Value:
        y = b.value("conv_winograd", x, u, padding=padding, n=n)
        zero = b.full(0.0, dtype("f32"), y.type.shape)  # type: ignore[union-attr]
        y = b.value("add", y, b.broadcast_to(bias, y.type.shape))  # type: ignore[union-attr]
        return b.value("max", y, zero)

    batch = symbol("b")
    types = f32(batch, *shape[1:]), f32(36, n // 16, shape[-1], 16), f32(n)
    kernel = lower_winograd(entry(build, *types), VARIANTS[variant].target)
    x, w, bias = draw(*shape), draw(3, 3, shape[-1], n, seed=1), draw(n, seed=2)
    wanted = np.maximum(direct(x, w, padding) + bias, 0)
    out = np.full(wanted.shape, np.nan, np.float32)
    (got,) = run(kernel, [x, transformed(w), bias], [out], variant, b=shape[0])
    assert error_of(got, wanted) < 2e-6


def test_the_error_stays_near_that_of_the_direct_sum() -> None:
    """max |d| / rms at 512 features: the direct sum in f32 has about 8e-6."""
    x, w = draw(1, 8, 8, 512), draw(3, 3, 512, 32, seed=1)
    types = f32(*x.shape), f32(36, 2, 512, 16)
    build = entry(
        lambda b, x, u: b.op("conv_winograd", x, u, padding=((1, 1), (1, 1)), n=32), *types
    )
    variant = host_variants()[0]
    kernel = lower_winograd(build, VARIANTS[variant].target)
    out = np.full((1, 8, 8, 32), np.nan, np.float32)
    (got,) = run(kernel, [x, transformed(w)], [out], variant)
    wanted = direct(x, w, ((1, 1), (1, 1)))
    assert np.abs(got - wanted).max() / np.sqrt((wanted**2).mean()) < 3e-5


def test_the_pass_takes_what_pays_and_keeps_the_result() -> None:
    block = Block([TensorType(dtype("f32"), (1, 12, 12, 32))])
    builder = Builder(block)
    attributes: dict[str, Any] = {
        "strides": (1, 1),
        "padding": ((1, 1), (1, 1)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1),
        "groups": 1,
        "layout": "nhwc,hwio->nhwc",
        "dtype": dtype("f32"),
    }
    w = builder.constant(draw(3, 3, 32, 32, seed=1) / 16)
    y = builder.value("convolution", block.arguments[0], w, **attributes)
    small = builder.constant(draw(3, 3, 32, 8, seed=2) / 16)
    builder.return_(builder.value("convolution", y, small, **attributes))
    module = Module()
    module.add(Function("main", Region([block]), ["x"], ["y"]))
    x = draw(1, 12, 12, 32)
    (wanted,) = interpret(module, "main", [x])
    names = [op.name for op in walk(choose_winograd(module))]
    assert names.count("conv_winograd") == 1
    assert names.count("convolution") == 1  # eight features: the transforms would not pay
    moved = [op.result.type.shape for op in walk(module) if op.name == "transpose"]  # type: ignore[union-attr]
    assert moved == [(9, 2, 32, 16)]  # the weights, not what is four times as large at a load
    (got,) = interpret(module, "main", [x])
    assert error_of(got, wanted) < 2e-6
