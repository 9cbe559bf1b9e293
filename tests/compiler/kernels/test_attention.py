"""Attention kernels against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.lanes.attention import lower_attention
from ingot.compiler.targets.cpu.flags import VARIANTS
from tests.support.kernel_runner import host_variants, run
from tests.support.products import draw, entry, error_of, f32

Array = np.ndarray[Any, Any]


def attend(q: Array, k: Array, v: Array, mask: Array | float, scale: float) -> Array:
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * scale + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("masked", ["none", "keys", "full"])
@pytest.mark.parametrize(("m", "n"), [(128, 128), (1, 5), (70, 300), (17, 600)])
def test_attention_of_plain_operands(variant: str, masked: str, m: int, n: int) -> None:
    mask_shape = {"none": (), "keys": (2, 1, 1, n), "full": (1, 1, m, n)}[masked]
    types = [f32(2, 3, m, 32), f32(2, 3, n, 32), f32(2, 3, n, 20)]
    types += [f32(*mask_shape)] if mask_shape else []
    function = entry(lambda b, *args: b.op("attention", *args, scale=0.2), *types)
    kernel = lower_attention(function, VARIANTS[variant].target)
    q, k, v = (draw(*t.shape, seed=i) for i, t in enumerate(types[:3]))  # type: ignore[arg-type]
    mask = draw(*mask_shape, seed=9) * 5
    if masked == "keys":
        mask[..., n // 2 :] = -np.inf
    operands = [q, k, v, *([mask] if mask_shape else [])]
    out = np.full((2, 3, m, 20), np.nan, np.float32)
    (got,) = run(kernel, operands, [out], variant)
    assert error_of(got, attend(q, k, v, mask if mask_shape else 0.0, 0.2)) < 2e-6


@pytest.mark.parametrize("variant", host_variants())
def test_attention_reads_and_writes_heads_as_transposed_views(variant: str) -> None:
    batch, length = symbol("b"), symbol("s")

    def build(b: Builder, q: Value, k: Value, v: Value, mask: Value) -> Value:
        q, k, v = (b.op("transpose", each, permutation=(0, 2, 1, 3)) for each in (q, k, v))
        y = b.op("attention", q, k, v, mask, scale=0.125)
        result: Value = b.op("transpose", y, permutation=(0, 2, 1, 3))
        return result

    heads = f32(batch, length, 4, 64)
    function = entry(build, heads, heads, heads, f32(batch, 1, 1, length))
    kernel = lower_attention(function, VARIANTS[variant].target)
    for b, s in ((1, 16), (2, 77), (3, 1)):
        q, k, v = (draw(b, s, 4, 64, seed=i) for i in range(3))
        mask = np.where(draw(b, 1, 1, s, seed=4) > 1, np.float32(-3e38), np.float32(0))
        mask[..., 0] = 0
        out = np.full((b, s, 4, 64), np.nan, np.float32)
        (got,) = run(kernel, [q, k, v, mask], [out], variant, b=b, s=s)
        turned = (each.transpose(0, 2, 1, 3) for each in (q, k, v))
        wanted = attend(*turned, mask, 0.125).transpose(0, 2, 1, 3)
        assert error_of(got, wanted) < 2e-6
