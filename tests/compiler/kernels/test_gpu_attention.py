"""Attention by work-groups, and its fallback, against the graph interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.hal.spec import dtype
from tests.support.products import draw, entry, f32
from tests.support.work_items import LARGE, SMALL, check, needs_device

pytestmark = needs_device


def attention(m: Dim, n: Dim, d: int, e: int, mask: tuple[Dim, ...] | None) -> Function:
    types = [f32(2, 3, m, d), f32(2, 3, n, d), f32(2, 3, n, e)]
    types += [f32(*mask)] if mask is not None else []
    return entry(lambda b, *args: b.op("attention", *args, scale=0.2), *types)


@pytest.mark.parametrize(
    ("m", "n", "d", "e", "masked"),
    [
        (128, 128, 32, 20, "none"),
        (70, 300, 32, 64, "full"),
        (70, 96, 30, 64, "keys"),
        (9, 40, 128, 128, "none"),  # fewer queries than a block has
        (20, 33, 24, 512, "full"),  # the widest results
        (1, 5, 32, 20, "none"),  # few queries
        (2, 600, 40, 64, "keys"),
        (3, 257, 10, 300, "full"),
    ],
)
def test_attention_of_plain_operands(m: int, n: int, d: int, e: int, masked: str) -> None:
    shapes = {"none": None, "keys": (2, 1, 1, n), "full": (1, 1, m, n)}
    shape = shapes[masked]
    operands = [draw(2, 3, m, d), draw(2, 3, n, d, seed=1), draw(2, 3, n, e, seed=2)]
    if shape is not None:
        mask = draw(*shape, seed=9) * 5
        if masked == "keys":
            mask[..., n // 2 :] = -np.inf
        operands.append(mask)
    check(attention(m, n, d, e, shape), lower_entry, operands)


@pytest.mark.parametrize("m", [symbol("m"), 2])
def test_lengths_are_known_at_the_call_and_later_keys_are_masked(m: Dim) -> None:
    n = symbol("n")
    function = attention(m, n, 16, 24, (m, n))
    for queries, keys in ((1, 1), (33, 70), (100, 100)):
        queries = m if isinstance(m, int) else queries
        operands = [draw(2, 3, queries, 16), draw(2, 3, keys, 16, seed=1)]
        operands.append(draw(2, 3, keys, 24, seed=2))
        late = np.arange(keys) > np.arange(queries)[:, None] + max(keys - queries, 0)
        operands.append(np.where(late, np.float32(-np.inf), np.float32(0)))
        check(function, lower_entry, operands, m=queries, n=keys)


@pytest.mark.parametrize("m", [1, 40])
def test_a_query_without_keys_gives_nan_as_a_plain_softmax_does(m: int) -> None:
    mask = np.zeros((m, 50), np.float32)
    mask[0] = -np.inf
    operands = [draw(2, 3, m, 8), draw(2, 3, 50, 8, seed=1), draw(2, 3, 50, 8, seed=2), mask]
    check(attention(m, 50, 8, 8, (m, 50)), lower_entry, operands)


@pytest.mark.parametrize("s", [symbol("s"), 3])
def test_heads_are_transposed_views(s: Dim) -> None:
    batch = symbol("b")

    def build(b: Builder, q: Value, k: Value, v: Value, mask: Value) -> Value:
        q, k, v = (b.op("transpose", each, permutation=(0, 2, 1, 3)) for each in (q, k, v))
        y = b.op("attention", q, k, v, mask, scale=0.125)
        result: Value = b.op("transpose", y, permutation=(0, 2, 1, 3))
        return result

    heads = f32(batch, s, 4, 64)
    function = entry(build, heads, heads, heads, f32(batch, 1, 1, s))
    for b, length in ((1, 16), (2, 77), (3, 1)):
        length = s if isinstance(s, int) else length
        operands = [draw(b, length, 4, 64, seed=seed) for seed in range(3)]
        mask = np.where(draw(b, 1, 1, length, seed=4) > 1, np.float32(-3e38), np.float32(0))
        mask[..., 0] = 0
        check(function, lower_entry, [*operands, mask], b=b, s=length)


@pytest.mark.parametrize(("name", "m"), [("f16", 2), ("bf16", 20)])
def test_half_operands_are_summed_in_f32(name: str, m: int) -> None:
    element = dtype(name)
    types = [TensorType(element, (4, size, 16)) for size in (m, 30, 30)]
    function = entry(lambda b, *args: b.op("attention", *args, scale=0.5), *types)
    operands = [draw(4, size, 16, seed=size).astype(element.numpy) for size in (m, 30, 31)]
    check(function, lower_entry, [*operands[:2], operands[2][:, :30]])


def test_all_widths_that_are_fused_fit_local_memory() -> None:
    for target in (LARGE, SMALL):
        for width in (1, 8, 96, 160, 257, 512):
            for m in (1, 16, symbol("m")):
                kernel = lower_entry(attention(m, symbol("n"), width, width, None), target)
                assert kernel.local_length <= target.local_memory
