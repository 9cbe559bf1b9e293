"""Contraction kernels against float64 NumPy, for every variant this machine runs."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import TensorType, Value, walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.lanes.contraction import lower_contraction
from ingot.hal.spec import dtype
from tests.support.kernel_runner import VARIANTS, host_variants, run
from tests.support.products import draw, entry, error_of, f32, pack


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 8, 16), (128, 384, 384), (17, 33, 70), (5, 7, 3), (50, 64, 40), (0, 4, 8), (4, 0, 8)],
)
def test_dot_packed_multiplies_by_a_packed_weight(variant: str, m: int, k: int, n: int) -> None:
    panels = -(-n // 16)
    function = entry(
        lambda b, x, w: b.op("dot_packed", x, w, n=n), f32(m, k), f32(panels, k, 16, 1)
    )
    kernel = lower_contraction(function, VARIANTS[variant].target)
    a, w = draw(m, k), draw(k, n, seed=1)
    (got,) = run(kernel, [a, pack(w)], [np.full((m, n), np.nan, np.float32)], variant)
    assert error_of(got, a.astype(np.float64) @ w.astype(np.float64)) < 2e-6


ROWS = (0, 1, 2, 3, 5, 6, 7, 8, 11, 13, 100)
"""Every rest behind the tiles of any variant."""


@pytest.mark.parametrize("variant", host_variants())
def test_dot_packed_takes_rows_known_at_the_call_and_runs_its_epilogue(variant: str) -> None:
    rows = symbol("m")

    def build(b: Builder, x: Value, w: Value, bias: Value, residual: Value) -> Value:
        y = b.op("add", b.op("dot_packed", x, w, n=70), b.broadcast_to(bias, (2, rows, 70)))
        y = b.op("max", y, b.full(0.0, dtype("f32"), (2, rows, 70)))
        result: Value = b.op("add", y, residual)
        return result

    types = (f32(2, rows, 20), f32(5, 20, 16, 1), f32(70), f32(2, rows, 70))
    kernel = lower_contraction(entry(build, *types), VARIANTS[variant].target)
    assert kernel.in_place == ((3, 0),)
    w, bias = draw(20, 70), draw(70)
    for m in ROWS:
        a, residual = draw(2, m, 20), draw(2, m, 70, seed=5)
        out = np.full((2, m, 70), np.nan, np.float32)
        (got,) = run(kernel, [a, pack(w), bias, residual], [out], variant, m=m)
        wanted = np.maximum(a.astype(np.float64) @ w + bias, 0) + residual
        assert error_of(got, wanted) < 2e-6


@pytest.mark.parametrize(("k", "n", "name"), [(40, 24, "f16"), (3000, 17, "f32"), (9, 100, "i8")])
def test_products_take_rows_known_at_the_call(k: int, n: int, name: str) -> None:
    """Converted, with depth in blocks, and of integers; batches follow each other in memory."""
    variant, rows, element = host_variants()[0], symbol("m"), dtype(name)
    result = dtype("i32") if element.is_integer else element
    function = entry(
        lambda b, x, y: b.op(
            "dot_general", x, y, lhs_batch=(0,), rhs_batch=(0,), lhs_contract=(2,),
            rhs_contract=(1,), dtype=result,
        ),
        TensorType(element, (2, rows, k)),
        TensorType(element, (2, k, n)),
    )  # fmt: skip
    kernel = lower_contraction(function, VARIANTS[variant].target)
    w = (draw(2, k, n, seed=1) * 9).astype(element.numpy)
    for m in ROWS:
        a = (draw(2, m, k) * 9).astype(element.numpy)
        (got,) = run(kernel, [a, w], [np.full((2, m, n), 7, result.numpy)], variant, m=m)
        bound = {"f16": 1e-3, "f32": 3e-6}.get(name, 0)
        wanted = a.astype(np.float64) @ w.astype(np.float64)
        assert error_of(got.astype(np.float64), wanted) <= bound


def test_only_the_last_columns_are_stored_in_part() -> None:
    """Stores of parts of vectors take more time than the products of a short depth."""
    for n, parts in ((24, 0), (64, 0), (20, 1), (7, 1)):
        types = f32(32, 24), f32(-(-n // 16), 24, 16, 1)
        function = entry(lambda b, x, w, n=n: b.op("dot_packed", x, w, n=n), *types)
        kernel = lower_contraction(function, VARIANTS["x86-64-v3"].target)
        stores = [op for op in walk(kernel.loops) if op.name == "loop.store"]
        partial = [op for op in stores if len(op.operands) > 3]
        per_row = {op.operands[3] for op in partial}
        assert len(per_row) == parts
        assert len(partial) < len(stores) or n == 7


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), [(9, 20, 33), (130, 70, 64), (1, 1, 1), (3, 5000, 17)])
def test_dot_general_packs_its_right_side(
    variant: str, transposed: bool, m: int, k: int, n: int
) -> None:
    right = (3, n, k) if transposed else (3, k, n)
    function = entry(
        lambda b, x, y: b.op(
            "dot_general",
            x,
            y,
            lhs_batch=(0,),
            rhs_batch=(0,),
            lhs_contract=(2,),
            rhs_contract=(2 if transposed else 1,),
        ),
        f32(3, m, k),
        f32(*right),
    )
    kernel = lower_contraction(function, VARIANTS[variant].target)
    a, w = draw(3, m, k), draw(*right, seed=1)
    (got,) = run(kernel, [a, w], [np.full((3, m, n), np.nan, np.float32)], variant)
    wanted = a.astype(np.float64) @ (w.transpose(0, 2, 1) if transposed else w)
    assert error_of(got, wanted) < 3e-6


@pytest.mark.parametrize("name", ["f16", "bf16", "f64", "i8", "i32", "i64", "u8"])
def test_dot_general_multiplies_every_dtype(name: str) -> None:
    element = dtype(name)
    type = TensorType(element, (6, 10)), TensorType(element, (10, 18))
    result = {"i8": "i32", "u8": "i32"}.get(name, name)
    function = entry(
        lambda b, x, y: b.op(
            "dot_general",
            x,
            y,
            lhs_batch=(),
            rhs_batch=(),
            lhs_contract=(1,),
            rhs_contract=(0,),
            dtype=dtype(result),
        ),
        *type,
    )
    variant = host_variants()[0]
    kernel = lower_contraction(function, VARIANTS[variant].target)
    a, w = (draw(*t.shape, seed=2) * 20 for t in type)  # type: ignore[arg-type]
    if name == "u8":
        a, w = abs(a), abs(w)
    a, w = a.astype(element.numpy), w.astype(element.numpy)
    (got,) = run(kernel, [a, w], [np.zeros((6, 18), dtype(result).numpy)], variant)
    wanted = a.astype(np.float64) @ w.astype(np.float64)
    bound = {"f16": 1e-3, "bf16": 8e-3}.get(name, 1e-12)
    assert error_of(got.astype(np.float64), wanted) <= bound


def narrow(shape: tuple[int, ...], name: str, seed: int) -> np.ndarray:
    """Numbers of a dtype, whole and small for integers."""
    numbers = draw(*shape, seed=seed)
    if name in ("i8", "u8"):
        numbers = np.trunc(numbers * 20)
    return (abs(numbers) if name == "u8" else numbers).astype(dtype(name).numpy)


PANELS = [
    (name, variant, k)
    for name in ("f16", "bf16", "f64", "i8", "u8", "i16")
    for variant in dict.fromkeys((host_variants()[0], "x86-64"))
    for k in (77, 16005)
    if name in ("f16", "i8") or (k == 77 and variant == host_variants()[0])
]
"""The depths: one that no vector divides, and one that scratch holds in two parts."""


@pytest.mark.parametrize(("name", "variant", "k"), PANELS)
def test_dot_packed_reads_panels_of_every_dtype(name: str, variant: str, k: int) -> None:
    element, n = dtype(name), 266 if k < 100 else 18
    result = dtype({"i8": "i32", "u8": "i32", "i16": "i32"}.get(name, name))
    w = narrow((k, n), name, 3)
    packed = pack(w)
    for dim, rows in ((symbol("m"), (1, 6, 40)), (1, (1,)), (3, (3,))):
        types = TensorType(element, (dim, k)), TensorType(element, packed.shape)
        function = entry(lambda b, x, y: b.op("dot_packed", x, y, n=n, dtype=result), *types)
        kernel = lower_contraction(function, VARIANTS[variant].target)
        for m in rows:
            a = narrow((m, k), name, 2)
            symbols = {} if isinstance(dim, int) else {"m": m}
            out = np.zeros((m, n), result.numpy)
            (got,) = run(kernel, [a, packed], [out], variant, **symbols)
            wanted = a.astype(np.float64) @ w.astype(np.float64)
            bound = {"f16": 1e-3, "bf16": 8e-3}.get(name, 1e-12)
            assert error_of(got.astype(np.float64), wanted) <= bound
