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


NUMBERS = ((1, 1), (1, 7), (2, 8), (3, 300), (4, 1025), (1, 2100), (5, 40), (68, 20))
"""Queries and keys: few queries and many, blocks of keys that are full and that are not."""


@pytest.mark.parametrize("variant", host_variants())
def test_few_queries_read_keys_along_features(variant: str) -> None:
    m, n, d, e = symbol("m"), symbol("n"), 20, 76
    types = [f32(2, m, d), f32(2, n, d), f32(2, n, e), f32(2, m, n)]
    function = entry(lambda b, *args: b.op("attention", *args, scale=0.3), *types)
    kernel = lower_attention(function, VARIANTS[variant].target)
    for queries, keys in NUMBERS:
        q, k, v = draw(2, queries, d, seed=1), draw(2, keys, d, seed=2), draw(2, keys, e, seed=3)
        mask = np.where(draw(2, queries, keys, seed=4) > 1, np.float32(-np.inf), np.float32(0.5))
        mask[..., -1] = 0
        out = np.full((2, queries, e), np.nan, np.float32)
        (got,) = run(kernel, [q, k, v, mask], [out], variant, m=queries, n=keys)
        assert error_of(got, attend(q, k, v, mask, 0.3)) < 2e-6


@pytest.mark.parametrize("variant", host_variants())
def test_few_queries_read_keys_along_keys(variant: str) -> None:
    m, n = symbol("m"), symbol("n")

    def build(b: Builder, q: Value, k: Value, v: Value, mask: Value) -> Value:
        k, mask = (b.op("transpose", each, permutation=(0, 2, 1)) for each in (k, mask))
        y = b.op("attention", q, k, v, mask, scale=0.3)
        result: Value = b.op("transpose", y, permutation=(0, 2, 1))
        return result

    types = [f32(2, m, 24), f32(2, 24, n), f32(2, n, 20), f32(2, n, 1)]
    kernel = lower_attention(entry(build, *types), VARIANTS[variant].target)
    for queries, keys in NUMBERS:
        q, k, v = draw(2, queries, 24, seed=1), draw(2, 24, keys, seed=2), draw(2, keys, 20, seed=3)
        mask = draw(2, keys, 1, seed=4)
        out = np.full((2, 20, queries), np.nan, np.float32)
        (got,) = run(kernel, [q, k, v, mask], [out], variant, m=queries, n=keys)
        wanted = attend(q, k.swapaxes(1, 2), v, mask.swapaxes(1, 2), 0.3)
        assert error_of(got, wanted.swapaxes(1, 2)) < 2e-6


@pytest.mark.parametrize("variant", host_variants())
def test_one_query_whose_keys_are_all_masked_is_nan_and_others_are_not(variant: str) -> None:
    types = [f32(2, 1, 16), f32(2, 1100, 16), f32(2, 1100, 16), f32(2, 1, 1100)]
    function = entry(lambda b, *args: b.op("attention", *args, scale=1.0), *types)
    kernel = lower_attention(function, VARIANTS[variant].target)
    q, k, v = draw(2, 1, 16, seed=1), draw(2, 1100, 16, seed=2), draw(2, 1100, 16, seed=3)
    mask = np.full((2, 1, 1100), -np.inf, np.float32)
    mask[1, 0, 1050:] = 0  # behind a block whose keys are all masked
    out = np.zeros((2, 1, 16), np.float32)
    (got,) = run(kernel, [q, k, v, mask], [out], variant)
    assert np.isnan(got[0]).all()
    wanted = attend(q[1], k[1], v[1], mask[1], 1.0)
    assert error_of(got[1], wanted) < 2e-6
