"""Winograd kernels by work-groups, and their fallback, against the graph interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.forms.winograd import weight_matrix
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.hal.spec import dtype
from tests.support.products import draw, entry, f32
from tests.support.work_items import LARGE, SMALL, check, needs_device

pytestmark = needs_device

Array = np.ndarray[Any, Any]


def transformed(w: Array) -> Array:
    """[3, 3, c, n] as [36, n / 16, c, 16]."""
    c, n = w.shape[2:]
    matrix = weight_matrix()
    u = np.einsum("ik,jl,klcn->ijcn", matrix, matrix, w.astype(np.float64)).astype(np.float32)
    return np.ascontiguousarray(u.reshape(36, c, n // 16, 16).transpose(0, 2, 1, 3))


@pytest.mark.parametrize(
    ("shape", "n", "padding", "dynamic"),
    [
        ((1, 16, 16, 32), 64, ((1, 1), (1, 1)), False),
        ((3, 7, 7, 20), 32, ((1, 1), (1, 1)), True),  # tiles of several images in a group
        ((1, 9, 14, 33), 16, ((0, 2), (1, 0)), False),
    ],
)
def test_a_group_convolves_by_winograd(shape: Any, n: int, padding: Any, dynamic: bool) -> None:
    batch: Dim = symbol("b") if dynamic else shape[0]

    def build(b: Builder, x: Value, u: Value, bias: Value) -> Value:
        y = b.value("conv_winograd", x, u, padding=padding, n=n)
        zero = b.full(0.0, dtype("f32"), y.type.shape)  # type: ignore[union-attr]
        y = b.value("add", y, b.broadcast_to(bias, y.type.shape))  # type: ignore[union-attr]
        return b.value("max", y, zero)

    types = f32(batch, *shape[1:]), f32(36, n // 16, shape[-1], 16), f32(n)
    function = entry(build, *types)
    for count in (shape[0], 2) if dynamic else (shape[0],):
        operands = [draw(count, *shape[1:]), transformed(draw(3, 3, shape[-1], n, seed=1))]
        check(function, lower_entry, [*operands, draw(n, seed=2)], b=count)


def test_local_memory_suffices() -> None:
    types = f32(1, 56, 56, 64), f32(36, 4, 64, 16)
    function = entry(
        lambda b, x, u: b.value("conv_winograd", x, u, padding=((1, 1), (1, 1)), n=64), *types
    )
    for target in (LARGE, SMALL):
        kernel = lower_entry(function, target)
        assert kernel.local_length <= target.local_memory
        assert kernel.local_size[0] * kernel.local_size[1] <= 256
