"""Matrix products against the interpreter, whose sums are in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, Op, TensorType, Value, walk
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.kernels import interpreter
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.items.choose_tile import choose_tile
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.hal.spec import dtype
from tests.support.devices import load_best
from tests.support.entries import entry
from tests.support.every_target import CPU, OPENCL, on_every_target, on_targets
from tests.support.kernel_runner import V4, VARIANTS, host_variants, run
from tests.support.products import draw, error_of, f32, pack
from tests.support.work_items import LARGE, SMALL, needs_device


def packed(m: Dim, k: int, n: int, name: str = "f32", result: str = "") -> Function:
    element = dtype(name)
    steps = max(1, 4 // element.bytes)
    types = (
        TensorType(element, (m, k)),
        TensorType(element, (-(-n // 16), -(-k // steps), 16, steps)),
    )
    return entry(types, lambda b, x, w: b.op("dot_packed", x, w, n=n, dtype=dtype(result or name)))


def general(left: TensorType, right: TensorType, transposed: bool, result: str) -> Function:
    return entry(
        (left, right),
        lambda b, x, y: b.op(
            "dot_general",
            x,
            y,
            lhs_batch=(0,),
            rhs_batch=(0,),
            lhs_contract=(2,),
            rhs_contract=(2 if transposed else 1,),
            dtype=dtype(result),
        ),
    )


@on_targets(
    "m, k, n",
    cpu=[(1, 8, 16), (128, 384, 384), (17, 33, 70), (5, 7, 3), (50, 64, 40), (0, 4, 8), (4, 0, 8)],
    opencl=[
        (128, 384, 384),  # whole tiles
        (17, 33, 70),  # tails on all sides
        (300, 20, 7),  # one panel, not full
        (0, 4, 8),
        (12, 0, 8),
        (1, 520, 40),  # few rows
        (7, 33, 70),
        (3, 0, 8),
    ],
)
def test_dot_packed_multiplies_by_a_packed_weight(target, m: int, k: int, n: int) -> None:
    target.check(packed(m, k, n), [draw(m, k), pack(draw(k, n, seed=1))])


@needs_device
def test_large_tiles_reach_over_the_last_rows_and_columns() -> None:
    """128 x 128 and what is near: chosen where the product is large."""
    m, k, n = 2100, 20, 1300
    function = packed(m, k, n)
    tile = OPENCL.lower(function).schedule.tile
    assert (tile.rows, tile.columns) == (128, 128)
    OPENCL.check(function, [draw(m, k), pack(draw(k, n, seed=1))])


ROWS = (0, 1, 2, 3, 5, 6, 7, 8, 11, 13, 100)
"""Every rest behind the tiles of any variant."""


@on_every_target
def test_dot_packed_takes_rows_known_at_the_call_and_runs_its_epilogue(target) -> None:
    rows = symbol("m")

    def build(b: Builder, x: Value, w: Value, bias: Value, residual: Value) -> Value:
        y = b.op("add", b.op("dot_packed", x, w, n=70), b.broadcast_to(bias, (2, rows, 70)))
        y = b.op("max", y, b.full(0.0, dtype("f32"), (2, rows, 70)))
        result: Value = b.op("add", y, residual)
        return result

    function = entry(["f32[2,m,20]", "f32[5,20,16,1]", "f32[70]", "f32[2,m,70]"], build)
    assert (3, 0) in target.lower(function).in_place
    for m in ROWS:
        operands = [draw(2, m, 20), pack(draw(20, 70)), draw(70), draw(2, m, 70, seed=5)]
        target.check(function, operands, m=m)


@pytest.mark.parametrize("rows", [symbol("m"), 13])
def test_a_long_epilogue_is_printed_once_for_all_rows_of_a_tile(rows: Dim) -> None:
    """Sums wait in scratch behind what the schedule has, also of columns that are no whole vectors;
    a result takes the memory of an operand."""

    def build(b: Builder, x: Value, w: Value, bias: Value, factor: Value, residual: Value) -> Value:
        y = b.op("add", b.op("dot_packed", x, w, n=70), b.broadcast_to(bias, (rows, 70)))
        y = b.op("mul", b.op("logistic", y), b.broadcast_to(factor, (rows, 70)))
        result: Value = b.op("sub", residual, b.op("tanh", y))
        return result

    types = [f"f32[{rows},20]", "f32[5,20,16,1]", "f32[70]", "f32[]", f"f32[{rows},70]"]
    function = entry(types, build)
    kernel = CPU.lower(function)
    tile = kernel.schedule.tile
    functions = [op for op in walk(kernel.loops) if op.name == "tanh"]
    assert len(functions) < 2 * tile.rows * tile.vectors
    for m in (rows,) if isinstance(rows, int) else ROWS:
        operands = [draw(m, 20), pack(draw(20, 70)), draw(70), draw(), draw(m, 70, seed=5)]
        CPU.check(function, operands, **({} if isinstance(rows, int) else {"m": m}))


@pytest.mark.parametrize(("k", "n", "name"), [(40, 24, "f16"), (3000, 17, "f32"), (9, 100, "i8")])
def test_products_take_rows_known_at_the_call(k: int, n: int, name: str) -> None:
    """Converted, with depth in blocks, and of integers; batches follow each other in memory."""
    element = dtype(name)
    types = TensorType(element, (2, symbol("m"), k)), TensorType(element, (2, k, n))
    function = general(*types, False, "i32" if name == "i8" else name)
    w = (draw(2, k, n, seed=1) * 9).astype(element.numpy)
    for m in ROWS:
        CPU.check(function, [(draw(2, m, k) * 9).astype(element.numpy), w], m=m)


def test_only_the_last_columns_are_stored_in_part() -> None:
    """Stores of parts of vectors take more time than the products of a short depth."""
    for n, parts in ((24, 0), (64, 0), (20, 1), (7, 1)):
        kernel = lower_entry(packed(32, 24, n), VARIANTS["x86-64-v3"].target)
        stores = [op for op in walk(kernel.loops) if op.name == "loop.store"]
        partial = [op for op in stores if len(op.operands) > 3]
        per_row = {op.operands[3] for op in partial}
        assert len(per_row) == parts
        assert len(partial) < len(stores) or n == 7


@pytest.mark.parametrize(("name", "is_shared"), [("f32", True), ("f64", False)])
def test_rows_share_a_weight_only_where_it_stays_near(name: str, is_shared: bool) -> None:
    """Threads that share rows all read the weight: 768 KiB of f32 stay in L2, twice that do not."""
    kernel = lower_entry(packed(64, 6144, 32, name), VARIANTS["x86-64-v4"].target)
    assert (kernel.schedule.block_rows < 64) == is_shared


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_long_weights_are_asked_for_ahead_by_rows_of_one_tile(name: str) -> None:
    """1 to 14 rows with 32 registers wait for memory; more, or a weight in L2, do not."""
    k, n = 264, 2090  # 131 panels, the last not full
    w = draw(k, n, seed=1).astype(dtype(name).numpy)
    for rows in (1, 14):
        x = draw(rows, k, seed=2).astype(w.dtype)
        for variant in host_variants():
            kernel = lower_entry(packed(rows, k, n, name), VARIANTS[variant].target)
            (result,) = run(kernel, [x, pack(w)], [np.zeros((rows, n), w.dtype)], variant)
            assert error_of(result, x.astype(np.float64) @ w) < 1e-6
    target = VARIANTS["x86-64-v4"].target
    for rows, columns, panels in ((1, n, 2), (14, n, 2), (15, n, 4), (1, 1980, 4)):
        kernel = lower_entry(packed(rows, k, columns), target)
        asks = [op for op in walk(kernel.loops) if op.name == "loop.prefetch"]
        assert kernel.schedule.tile.panels == panels
        assert bool(asks) == (panels == 2 or rows > 14)


@on_every_target
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(9, 20, 33), (130, 70, 64), (1, 1, 1), (3, 5000, 17), (2, 64, 128)]
)
def test_dot_general_packs_its_right_side(target, transposed: bool, m: int, k: int, n: int) -> None:
    right = (3, n, k) if transposed else (3, k, n)
    function = general(f32(3, m, k), f32(*right), transposed, "f32")
    target.check(function, [draw(3, m, k), draw(*right, seed=1)])


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
        function = entry(types, lambda b, x, y: b.op("dot_packed", x, y, n=n, dtype=result))
        kernel = lower_entry(function, VARIANTS[variant].target)
        for m in rows:
            a = narrow((m, k), name, 2)
            symbols = {} if isinstance(dim, int) else {"m": m}
            out = np.zeros((m, n), result.numpy)
            (got,) = run(kernel, [a, packed], [out], variant, **symbols)
            wanted = a.astype(np.float64) @ w.astype(np.float64)
            bound = {"f16": 1e-3, "bf16": 8e-3}.get(name, 1e-12)
            assert error_of(got.astype(np.float64), wanted) <= bound


@on_every_target
def test_all_sizes_may_be_known_only_at_the_call(target) -> None:
    b, m, k, n = (symbol(name) for name in "bmkn")
    function = general(f32(b, m, k), f32(b, n, k), True, "f32")
    for sizes in ((2, 5, 3, 4), (1, 70, 33, 65), (3, 1, 0, 2), (0, 4, 4, 4)):
        values = dict(zip("bmkn", sizes, strict=True))
        left = draw(values["b"], values["m"], values["k"])
        right = draw(values["b"], values["n"], values["k"], seed=1)
        target.check(function, [left, right], **values)


@pytest.mark.parametrize(
    ("name", "rows"),
    [*((name, 21) for name in ("f16", "bf16", "f64", "i8", "u8", "i32", "i64")), ("i8", 2)],
)
@on_every_target
def test_products_of_every_dtype(target, name: str, rows: int) -> None:
    element = dtype(name)
    result = {"i8": "i32", "u8": "i32"}.get(name, name)
    integer = element.is_integer
    a, w = (np.abs(draw(*shape, seed=2)) * 20 for shape in ((rows, 21), (21, 18)))
    if name not in ("u8",):
        a, w = a - 10, w - 10
    left, right = (np.trunc(each) if integer else each / 8 for each in (a, w))
    operands: list[Any] = [left.astype(element.numpy), right.astype(element.numpy)]
    types = [TensorType(element, (1, *each.shape)) for each in operands]
    function = general(types[0], types[1], False, result)
    target.check(function, [each[None] for each in operands])
    if target is OPENCL and name not in ("i32", "i64"):
        function = packed(rows, 21, 18, name, result)
        target.check(function, [operands[0], pack(operands[1])])


@on_every_target
def test_numbers_beyond_the_depth_never_meet_the_sums(target) -> None:
    """NaN and infinity behind a row or a column of the operands stay there."""
    k = symbol("k")
    function = general(f32(2, 20, k), f32(2, k, 20), False, "f32")
    left, right = draw(2, 20, 9), draw(2, 9, 20, seed=1)
    left[1, 0, 0] = np.inf
    right[1, 0, 0] = np.nan
    target.check(function, [left, right], k=9)


@pytest.mark.parametrize("info", [LARGE, SMALL], ids=["large", "small"])
def test_tiles_fit_local_memory_and_fill_the_device(info: TargetInfo) -> None:
    f32_dtype, f64 = dtype("f32"), dtype("f64")
    sizes = (1, 16, 64, 500, 4096)
    for element in (f32_dtype, f64):
        for m in sizes:
            for n in sizes:
                tile = choose_tile(info, element, m, n, 1, {})
                assert tile.down * tile.across <= info.group_size
                assert tile.local_length(element) <= info.local_memory
    whole = choose_tile(info, f32_dtype, 4096, 4096, 1, {})
    small = choose_tile(info, f32_dtype, 64, 64, 1, {})
    assert whole.rows * whole.columns > small.rows * small.columns


@pytest.mark.parametrize("rows", [128, 40, 16, symbol("m")])
def test_each_tile_of_rows_asks_for_a_part_of_the_next_panels(
    monkeypatch: pytest.MonkeyPatch, rows: Dim
) -> None:
    m, k, n = rows if isinstance(rows, int) else 128, 16, 96
    kernel = lower_entry(packed(rows, k, n), VARIANTS["x86-64-v4"].target)
    asked: list[int] = []

    def note(run: Any, op: Op) -> None:
        asked.extend(np.broadcast_to(run.values[op.operands[1]], run.active.shape)[run.active])

    monkeypatch.setitem(interpreter._SPECIAL, "loop.prefetch", note)
    operands = [draw(m, k), pack(draw(k, n)), np.zeros((m, n), np.float32)]
    assert run_kernel(kernel, operands, {} if isinstance(rows, int) else {"m": m}) is None
    following = range(3 * k, 6 * k)  # lines of the panels behind the first three
    lines = [int(each) // 16 for each in asked if int(each) // 16 < 6 * k]
    assert set(following) <= set(lines)
    assert len(lines) < (1.7 if isinstance(rows, int) else 3) * len(following)
    quarter = lines[: len(lines) // 4]
    assert max(quarter) < 4.1 * k, "the first turns ask for no more than their part"


def test_a_result_is_not_written_over_what_a_later_result_reads_first() -> None:
    """Of an epilogue with two results, all in memory of the call."""

    def program(a: Any, b: Any) -> Any:
        before, product = b @ a, a @ b
        return product @ a, (product + before) @ b

    spec = ingot.spec("f32[4,4]")
    a, b = draw(4, 4), draw(4, 4, seed=1)
    first, second = load_best(ingot.trace(program, spec, spec))(a, b)
    np.testing.assert_allclose(first, a @ b @ a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second, (a @ b + b @ a) @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "depth"), [(7, 8192), (1, 16005)])
def test_rows_repeated_for_narrow_panels_fit_scratch(rows: int, depth: int) -> None:
    types = [f"f32[{rows},{depth}]", f"f16[2,{-(-depth // 2)},16,2]"]
    function = entry(types, lambda b, x, w: b.op("dot_packed", x, w, n=32, dtype=dtype("f32")))
    assert lower_entry(function, V4).scratch_length <= MOST_SCRATCH
