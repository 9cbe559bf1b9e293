"""Map kernels: element-wise DAGs and index maps, against the interpreter of graph IR."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.ir.printer import to_text
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.hal.spec import dtype
from tests.support.entries import check, entry
from tests.support.kernel_runner import V4, IndexFault, host_variants, run

F32 = dtype("f32")
B = symbol("b")


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"])
def test_arithmetic_of_every_dtype(name: str) -> None:
    def body(b, x, y):
        return b.op("max", b.op("sub", b.op("mul", x, y), y), b.op("neg", x))

    check(entry([f"{name}[5,7]", f"{name}[5,7]"], body), lower_map)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 33])
def test_symbolic_count(n: int) -> None:
    function = entry(["f32[b]", "f32[b]"], lambda b, x, y: b.op("add", x, y), {"b": (0, None)})
    check(function, lower_map, b=n)


def test_bias_is_broadcast_and_rows_are_not_merged() -> None:
    def body(b, x, y):
        wide = b.op("broadcast", y, shape=(B, 20), dimensions=(1,))
        return b.op("max", b.op("add", x, wide), b.full(0.0, F32, (B, 20)))

    function = entry(["f32[b,20]", "f32[20]"], body, {"b": (1, 64)})
    check(function, lower_map, b=3)
    kernel = lower_map(function, V4)
    assert kernel.schedule.extents == (B, 20)
    assert kernel.in_place == ((0, 0),)


def test_equal_maps_merge_to_one_axis() -> None:
    function = entry(["f32[4,5,6]"] * 2, lambda b, x, y: b.op("add", x, y))
    assert lower_map(function, V4).schedule.extents == (120,)


def test_head_split_needs_no_division() -> None:
    def body(b, x):
        return b.op("transpose", b.op("reshape", x, shape=(9, 3, 32)), permutation=(1, 0, 2))

    function = entry(["f32[9,96]"], body)
    check(function, lower_map)

    def back(b, x):
        x = b.op("transpose", b.op("neg", x), permutation=(1, 0, 2))
        return b.op("reshape", x, shape=(9, 96))

    function = entry(["f32[3,9,32]"], back)
    check(function, lower_map)
    assert "loop.div" not in {op.name for op in all_ops(lower_map(function, V4))}


def all_ops(kernel):
    from ingot.compiler.ir import walk

    return list(walk(kernel.loops))


@pytest.mark.parametrize("shape", [(40, 50), (3, 70), (70, 3), (2, 17, 19)])
def test_transposes(shape: tuple[int, ...]) -> None:
    permutation = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    text = ",".join(map(str, shape))
    check(
        entry([f"f32[{text}]"], lambda b, x: b.op("transpose", x, permutation=permutation)),
        lower_map,
    )


def test_slice_reverse_and_strides() -> None:
    def body(b, x):
        x = b.op("slice", x, start=(1, 3), limit=(9, 40), stride=(2, 3))
        return b.op("reverse", x, axes=(1,))

    check(entry(["f32[10,50]"], body), lower_map)


@pytest.mark.parametrize(
    ("low", "high", "interior"), [((1, 2), (2, 3), (0, 0)), ((0, -1), (1, 5), (1, 2))]
)
def test_padding(low, high, interior) -> None:
    def body(b, x):
        return b.op("pad", x, b.constant(np.float32(9)), low=low, high=high, interior=interior)

    check(entry(["f32[5,18]"], body), lower_map)


def test_concatenation_inside_and_outside() -> None:
    def body(b, x, y):
        inner = b.op("concatenate", x, b.op("neg", y), axis=1)
        return b.op("concatenate", inner, b.op("exp2", inner), axis=0)

    check(entry(["f32[3,16]", "f32[3,32]"], body), lower_map, tolerance=1e-6)
    check(entry(["f32[3,5]", "f32[3,9]"], body), lower_map, tolerance=1e-6)


def test_iota_dim_and_convert() -> None:
    def body(b, x):
        count = b.op("iota", dtype=dtype("i64"), shape=(B, 6), axis=0)
        n = b.op("broadcast", b.op("dim", value=B, dtype=dtype("i64")), shape=(B, 6), dimensions=())
        return b.op("add", x, b.op("convert", b.op("sub", n, count), dtype=F32))

    check(entry(["f32[b,6]"], body, {"b": (1, None)}), lower_map, b=5)


@pytest.mark.parametrize("mode", ["clamp", "check", "wrap_check"])
def test_embedding_rows(mode: str) -> None:
    function = entry(
        ["f32[10,24]", "i32[2,3]"], lambda b, x, i: b.op("take", x, i, axis=0, mode=mode)
    )
    rng = np.random.default_rng(1)
    table = rng.standard_normal((10, 24)).astype(np.float32)
    low = -10 if mode == "wrap_check" else 0
    indices = rng.integers(low, 10, (2, 3)).astype(np.int32)
    check(function, lower_map, [table, indices])
    if mode != "clamp":
        indices[1, 1] = 10
        for variant in host_variants():
            kernel = lower_map(function, V4)
            with pytest.raises(IndexFault, match=r"\(1, 10, 10\)"):
                run(kernel, [table, indices], [np.zeros((2, 3, 24), np.float32)], variant)


def test_take_along_the_lanes() -> None:
    function = entry(
        ["f32[4,10]", "i64[37]"], lambda b, x, i: b.op("take", x, i, axis=1, mode="check")
    )
    rng = np.random.default_rng(1)
    table = rng.standard_normal((4, 10)).astype(np.float32)
    indices = rng.integers(0, 10, 37)
    check(function, lower_map, [table, indices])
    indices[36] = -1
    with pytest.raises(IndexFault, match=r"\(1, -1, 10\)"):
        run(lower_map(function, V4), [table, indices], [np.zeros((4, 37), np.float32)])


def test_masks_of_mixed_width() -> None:
    def body(b, x, y, p):
        both = b.op("and", b.op("compare", x, b.op("neg", x), direction="gt"), p)
        other = b.op("compare", y, b.op("neg", y), direction="lt")
        mixed = b.op("xor", both, b.op("not", other))
        return [b.op("select", mixed, y, b.op("neg", y)), b.op("select", mixed, y, y)]

    check(entry(["f32[37]", "i64[37]", "i1[37]"], body), lower_map)


def test_i1_results_and_two_results() -> None:
    def body(b, x, y):
        less = b.op("compare", x, y, direction="lt")
        return [less, b.op("or", less, b.op("is_nan", x))]

    check(entry(["f32[41]", "f32[41]"], body), lower_map)


def test_rank_zero_and_zero_size() -> None:
    check(entry(["f32[]"], lambda b, x: b.op("add", x, x)), lower_map)
    check(entry(["f32[0,4]"], lambda b, x: b.op("add", x, x)), lower_map)


def test_a_dim_that_may_be_one_at_the_call() -> None:
    from ingot.compiler.ir.dims import broadcast

    wide = broadcast(symbol("a"), symbol("c"))

    def body(b, x, y):
        left = b.op("broadcast", x, shape=(wide,), dimensions=(0,))
        return b.op("add", left, b.op("broadcast", y, shape=(wide,), dimensions=(0,)))

    function = entry(["f32[a]", "f32[c]"], body, {"a": (1, None), "c": (1, None)})
    for sizes in ({"a": 1, "c": 20}, {"a": 20, "c": 1}, {"a": 20, "c": 20}):
        check(function, lower_map, **sizes)


@pytest.mark.parametrize("name", ["f32", "u8", "bf16", "f64"])
@pytest.mark.parametrize("shape", [(64, 64), (37, 70), (2, 130, 33), (3, 5, 16)])
def test_squares_of_a_transposed_operand_are_turned_in_registers(shape, name: str) -> None:
    swapped = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)

    def body(b, x, y):
        return b.op("add", b.op("transpose", x, permutation=swapped), y)

    result = tuple(shape[axis] for axis in swapped)
    types = [f"{name}[{','.join(map(str, each))}]" for each in (shape, result)]
    function = entry(types, body)
    check(function, lower_map)
    assert lower_map(function, V4).schedule.turned == 1


def test_transposes_of_symbolic_sides() -> None:
    function = entry(
        ["f32[m,n]"],
        lambda b, x: b.op("transpose", x, permutation=(1, 0)),
        {"m": (0, None), "n": (0, None)},
    )
    for m, n in ((0, 3), (1, 1), (15, 16), (16, 15), (70, 130)):
        check(function, lower_map, m=m, n=n)


def test_a_dim_under_another_name_is_walked_without_a_division() -> None:
    """A reshape to dims that an assertion makes equal to the operand's."""

    def body(b, x, y):
        renamed = b.op("reshape", b.op("exp", x), shape=(symbol("b"), symbol("m"), 4))
        return b.op("add", renamed, y)

    shapes = ["f32[b,n,4]", "f32[b,m,4]"]
    function = entry(shapes, body, {"b": (0, None), "n": (0, None), "m": (0, None)})
    assert "loop.rem" not in to_text(lower_map(function, V4).loops)
    for b, n in ((2, 3), (0, 5), (3, 1)):
        check(function, lower_map, b=b, n=n, m=n)


@pytest.mark.parametrize("name", ["i1", "u8", "f64"])
def test_rows_become_columns_of_every_width(name: str) -> None:
    function = entry([f"{name}[37,45]"], lambda b, x: b.op("transpose", x, permutation=(1, 0)))
    check(function, lower_map)
