"""Attention kernels against the interpreter, and against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, Op, TensorType, Value
from ingot.compiler.ir.dims import Dim, evaluate, symbol
from ingot.compiler.kernels import interpreter
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.lanes import few_queries
from ingot.compiler.kernels.loop_attributes import Ordinal
from ingot.compiler.targets.cpu.variants import VARIANTS
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import on_every_target, on_targets
from tests.support.kernel_runner import host_variants, run
from tests.support.products import draw, error_of, f32
from tests.support.work_items import LARGE, SMALL

Array = np.ndarray[Any, Any]


def attend(q: Array, k: Array, v: Array, mask: Array | float, scale: float) -> Array:
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * scale + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def attention(
    m: Dim, n: Dim, d: int, e: int, mask: tuple[Dim, ...] | None, empty: bool = False
) -> Function:
    types = [f32(2, 3, m, d), f32(2, 3, n, d), f32(2, 3, n, e)]
    types += [f32(*mask)] if mask is not None else []
    return entry(types, lambda b, *args: b.op("attention", *args, scale=0.2, empty=empty))


@on_targets(
    "m, n, d, e, masked",
    cpu=[
        (m, n, 32, 20, masked)
        for m, n in ((128, 128), (1, 5), (70, 300), (17, 600))
        for masked in ("none", "keys", "full")
    ],
    opencl=[
        (128, 128, 32, 20, "none"),
        (70, 300, 32, 64, "full"),
        (70, 96, 30, 64, "keys"),
        (9, 40, 128, 128, "none"),  # fewer queries than a block has
        (20, 33, 24, 640, "full"),  # the widest results
        (1, 5, 32, 20, "none"),  # few queries
        (2, 600, 40, 64, "keys"),
        (3, 257, 10, 300, "full"),
    ],
)
def test_attention_of_plain_operands(target, m: int, n: int, d: int, e: int, masked: str) -> None:
    shapes = {"none": None, "keys": (2, 1, 1, n), "full": (1, 1, m, n)}
    shape = shapes[masked]
    operands = [draw(2, 3, m, d), draw(2, 3, n, d, seed=1), draw(2, 3, n, e, seed=2)]
    if shape is not None:
        mask = draw(*shape, seed=9) * 5
        if masked == "keys":
            mask[..., n // 2 :] = -np.inf
        operands.append(mask)
    target.check(attention(m, n, d, e, shape), operands, one=masked == "keys")


@pytest.mark.parametrize("m", [symbol("m"), 2])
@on_every_target
def test_lengths_are_known_at_the_call_and_later_keys_are_masked(target, m: Dim) -> None:
    n = symbol("n")
    function = attention(m, n, 16, 24, (m, n))
    for queries, keys in ((1, 1), (33, 70), (100, 100)):
        queries = m if isinstance(m, int) else queries
        operands = [draw(2, 3, queries, 16), draw(2, 3, keys, 16, seed=1)]
        operands.append(draw(2, 3, keys, 24, seed=2))
        late = np.arange(keys) > np.arange(queries)[:, None] + max(keys - queries, 0)
        operands.append(np.where(late, np.float32(-np.inf), np.float32(0)))
        target.check(function, operands, m=queries, n=keys)


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min])
@pytest.mark.parametrize("window", [1000, 40])
def test_keys_that_no_query_of_a_block_sees_change_nothing(hidden: float, window: int) -> None:
    m, n = symbol("m"), symbol("n")
    types = [f32(1, m, 24), f32(1, n, 24), f32(1, n, 24), f32(1, m, n)]
    function = entry(
        types, lambda b, *x: b.op("attention", *x, scale=0.3), {"m": (1, None), "n": (1, None)}
    )
    behind = np.arange(600) - np.arange(150, 300)[:, None]
    mask = np.where((behind <= 0) & (behind > -window), np.float32(0), np.float32(hidden))[None]
    operands = [draw(1, 150, 24), draw(1, 600, 24, seed=1), draw(1, 600, 24, seed=2), mask]
    kernel = lower_entry(function, VARIANTS[host_variants()[0]].target)
    (got,) = run(
        kernel, operands, [np.empty((1, 150, 24), np.float32)], host_variants()[0], m=150, n=600
    )
    assert error_of(got, attend(*operands, 0.3)) < 2e-6
    if hidden == -np.inf or window > 300:
        for each in operands[1:3]:
            each[:, 320:] = np.nan  # behind the last that is seen; not read, so no NaN comes out
        (again,) = run(
            kernel, operands, [np.empty((1, 150, 24), np.float32)], host_variants()[0], m=150, n=600
        )
        np.testing.assert_array_equal(again, got)


@pytest.mark.parametrize("m", [1, 40])
@on_every_target
def test_a_query_without_keys_gives_nan_as_a_plain_softmax_does_or_0(target, m: int) -> None:
    mask = np.zeros((m, 50), np.float32)
    mask[0] = -np.inf
    operands = [draw(2, 3, m, 8), draw(2, 3, 50, 8, seed=1), draw(2, 3, 50, 8, seed=2), mask]
    for empty in (False, True):
        target.check(attention(m, 50, 8, 8, (m, 50), empty), operands)


@pytest.mark.parametrize("s", [symbol("s"), 3])
@on_every_target
def test_heads_are_transposed_views(target, s: Dim) -> None:
    batch = symbol("b")

    def build(b: Builder, q: Value, k: Value, v: Value, mask: Value) -> Value:
        q, k, v = (b.op("transpose", each, permutation=(0, 2, 1, 3)) for each in (q, k, v))
        y = b.op("attention", q, k, v, mask, scale=0.125)
        result: Value = b.op("transpose", y, permutation=(0, 2, 1, 3))
        return result

    heads = f32(batch, s, 4, 64)
    function = entry([heads, heads, heads, f32(batch, 1, 1, s)], build)
    for b, length in ((1, 16), (2, 77), (3, 1)):
        length = s if isinstance(s, int) else length
        operands = [draw(b, length, 4, 64, seed=seed) for seed in range(3)]
        mask = np.where(draw(b, 1, 1, length, seed=4) > 1, np.float32(-3e38), np.float32(0))
        mask[..., 0] = 0
        target.check(function, [*operands, mask], b=b, s=length)


@pytest.mark.parametrize(
    ("m", "heads", "keys", "mask"),
    [
        (symbol("m"), 6, 2, "heads"),
        (symbol("m"), 18, 2, "rows"),  # more heads share keys than are few
        (1, 6, 2, "all"),
        (1, 18, 2, "keys"),
        (1, 40, 2, "heads"),  # more than meet keys at once
        (1, 37, 1, "heads"),  # in parts, of which the last is shorter
        (symbol("m"), 7, 1, "keys"),
        (2, 6, 2, "none"),
    ],
)
@on_every_target
def test_neighbours_of_queries_share_heads(
    target, m: Dim, heads: int, keys: int, mask: str
) -> None:
    batch, n = symbol("b"), symbol("n")
    types = [f32(2 * batch, heads, m, 16), f32(batch, keys, n, 16), f32(batch, keys, n, 24)]
    masks = {
        "heads": (1, heads, 1, n),
        "rows": (m, n),
        "all": (2 * batch, heads, m, n),
        "keys": (n,),
    }
    if mask in masks:
        types.append(f32(*masks[mask]))

    def build(b: Builder, *operands: Value) -> Value:
        y = b.op("attention", *operands, scale=0.25)
        result: Value = b.op("transpose", y, permutation=(0, 2, 1, 3))
        return result

    function = entry(types, build)
    for queries, length in ((1, 5), (33, 70)):
        sizes = {"b": 2, "m": m if isinstance(m, int) else queries, "n": length}
        shapes = [[evaluate(dim, sizes) for dim in type.shape] for type in types]
        operands = [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        target.check(function, operands, one=mask in ("keys", "all"), **sizes)


@pytest.mark.parametrize(("name", "m"), [("f16", 2), ("bf16", 20)])
@on_every_target
def test_half_operands_are_summed_in_f32(target, name: str, m: int) -> None:
    element = dtype(name)
    types = [TensorType(element, (4, size, 16)) for size in (m, 30, 30)]
    function = entry(types, lambda b, *args: b.op("attention", *args, scale=0.5))
    operands = [draw(4, size, 16, seed=size).astype(element.numpy) for size in (m, 30, 31)]
    target.check(function, [*operands[:2], operands[2][:, :30]])


def test_all_widths_that_are_fused_fit_local_memory() -> None:
    for target in (LARGE, SMALL):
        for width in (1, 8, 96, 160, 257, 640):
            for m in (1, 16, symbol("m")):
                kernel = lower_entry(attention(m, symbol("n"), width, width, None), target)
                assert kernel.local_length <= target.local_memory


NUMBERS = ((1, 1), (1, 7), (2, 8), (3, 300), (6, 1025), (1, 2100), (7, 40), (68, 20))
"""Queries and keys: few queries and many, blocks of keys that are full and that are not."""


@pytest.mark.parametrize("variant", host_variants())
def test_few_queries_read_keys_along_features(variant: str) -> None:
    m, n, d, e = symbol("m"), symbol("n"), 20, 76
    types = [f32(2, m, d), f32(2, n, d), f32(2, n, e), f32(2, m, n)]
    function = entry(types, lambda b, *args: b.op("attention", *args, scale=0.3))
    kernel = lower_entry(function, VARIANTS[variant].target)
    for queries, keys in NUMBERS:
        q, k, v = draw(2, queries, d, seed=1), draw(2, keys, d, seed=2), draw(2, keys, e, seed=3)
        mask = np.where(draw(2, queries, keys, seed=4) > 1, np.float32(-np.inf), np.float32(0.5))
        mask[..., -1] = 0
        out = np.full((2, queries, e), np.nan, np.float32)
        (got,) = run(kernel, [q, k, v, mask], [out], variant, m=queries, n=keys)
        assert error_of(got, attend(q, k, v, mask, 0.3)) < 2e-6


@pytest.mark.parametrize("operand", [1, 2])
def test_a_block_of_keys_meets_all_queries_before_the_next(
    monkeypatch: pytest.MonkeyPatch, operand: int
) -> None:
    """Which is asked for meanwhile, all of it."""
    monkeypatch.setattr(few_queries, "KEYS", 32)
    types = [f32(1, 1, m, 16) for m in (3, 80, 80)]
    function = entry(types, lambda b, *args: b.op("attention", *args, scale=0.3))
    kernel = lower_entry(function, VARIANTS["x86-64-v4"].target)
    places: dict[str, list[int]] = {"loop.load": [], "loop.prefetch": []}
    known = {name: interpreter._SPECIAL[name] for name in places}

    def note(run: Any, op: Op) -> None:
        memory, at = op.operands[:2]
        if memory.owner.name == "loop.binding" and Ordinal.of(memory.owner).ordinal == operand:
            places[op.name].append(int(np.max(run.values[at])) // 16)
        known[op.name](run, op)

    for name in places:
        monkeypatch.setitem(interpreter._SPECIAL, name, note)
    q, k, v = (draw(1, 1, m, 16, seed=m) for m in (3, 80, 80))
    out = np.zeros((1, 1, 3, 16), np.float32)
    assert run_kernel(kernel, [q, k, v, out], {}) is None
    assert error_of(out, attend(q, k, v, 0.0, 0.3)) < 2e-6
    read = [row // 32 for row in places["loop.load"]]
    assert (read, len(read)) == (sorted(read), 3 * 80)
    assert {*range(32, 80)} <= {*places["loop.prefetch"]}


@pytest.mark.parametrize("variant", host_variants())
def test_few_queries_read_keys_along_keys(variant: str) -> None:
    m, n = symbol("m"), symbol("n")

    def build(b: Builder, q: Value, k: Value, v: Value, mask: Value) -> Value:
        k, mask = (b.op("transpose", each, permutation=(0, 2, 1)) for each in (k, mask))
        y = b.op("attention", q, k, v, mask, scale=0.3)
        result: Value = b.op("transpose", y, permutation=(0, 2, 1))
        return result

    types = [f32(2, m, 24), f32(2, 24, n), f32(2, n, 20), f32(2, n, 1)]
    kernel = lower_entry(entry(types, build), VARIANTS[variant].target)
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
    function = entry(types, lambda b, *args: b.op("attention", *args, scale=1.0))
    kernel = lower_entry(function, VARIANTS[variant].target)
    q, k, v = draw(2, 1, 16, seed=1), draw(2, 1100, 16, seed=2), draw(2, 1100, 16, seed=3)
    mask = np.full((2, 1, 1100), -np.inf, np.float32)
    mask[1, 0, 1050:] = 0  # behind a block whose keys are all masked
    out = np.zeros((2, 1, 16), np.float32)
    (got,) = run(kernel, [q, k, v, mask], [out], variant)
    assert np.isnan(got[0]).all()
    wanted = attend(q[1], k[1], v[1], mask[1], 1.0)
    assert error_of(got[1], wanted) < 2e-6


@pytest.mark.parametrize("m", [1, 80])
@pytest.mark.parametrize("variant", host_variants())
def test_weights_that_would_be_subnormal_are_nothing(variant: str, m: int) -> None:
    types = [f32(1, m, 16), f32(1, 700, 16), f32(1, 700, 16), f32(1, 1, 700)]
    function = entry(types, lambda b, *args: b.op("attention", *args, scale=1.0))
    kernel = lower_entry(function, VARIANTS[variant].target)
    q, k, v = (np.zeros((1, length, 16), np.float32) for length in (m, 700, 700))
    for greatest in (0, 650):
        mask = np.full((1, 1, 700), -90, np.float32)
        mask[..., greatest] = 0
        v[:] = 1e6
        v[:, greatest] = 0
        (got,) = run(kernel, [q, k, v, mask], [np.ones((1, m, 16), np.float32)], variant)
        assert (got == 0).all()
        mask[mask == -90] = -80  # these count
        (got,) = run(kernel, [q, k, v, mask], [np.ones((1, m, 16), np.float32)], variant)
        assert error_of(got, attend(q, k, v, mask, 1.0)) < 2e-5
