"""Drawn shapes and dtypes: map, row and cumulative kernels give what the interpreter gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.kernels.lanes.cumulative import lower_cumulative
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.kernels.lanes.row import lower_row
from tests.support.drawn import examples
from tests.support.entries import check, entry
from tests.support.kernel_runner import device_variants, host_variants

SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=4)
DTYPES = st.sampled_from(["f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"])
VARIANTS = [host_variants()[0], *device_variants()]
FAST = examples(12)


def tensor(dtype: str, shape: list[int]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


@FAST
@given(st.data(), SIZES, DTYPES)
def test_moved_elements(data, shape, dtype) -> None:
    permutation = data.draw(st.permutations(range(len(shape))))
    low = [data.draw(st.integers(0, 2)) for _ in shape]

    def body(b, x, y):
        x = b.op("transpose", b.op("add", x, y), permutation=tuple(permutation))
        rank = len(shape)
        padded = b.op(
            "pad", x, b.full(1, dtype), low=tuple(low), high=(1,) * rank, interior=(0,) * rank
        )
        return b.op("reverse", padded, axes=(rank - 1,))

    function = entry([tensor(dtype, shape)] * 2, body)
    check(function, lower_map, variants=VARIANTS)


@FAST
@given(st.data(), SIZES, DTYPES, st.sampled_from(["add", "max", "min"]))
def test_reduced_elements(data, shape, dtype, kind) -> None:
    axes = data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))

    def body(b, x, y):
        return b.op("reduce", b.op("sub", x, y), axes=tuple(sorted(axes)), kind=kind)

    function = entry([tensor(dtype, shape)] * 2, body)
    check(function, lower_row, variants=VARIANTS)


SIDES = st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 50])
BOX = st.tuples(SIDES, SIDES, SIDES)
OF_ANY_SIZE = dict.fromkeys("abc", (1, None))


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize("dtype", ["f32", "u8"])
@examples(8)
@given(sizes=BOX)
def test_rows_of_any_size(axes, dtype, sizes) -> None:
    def body(b, x):
        greatest = b.op("reduce", x, axes=axes, kind="max")
        kept = tuple(axis for axis in range(3) if axis not in axes)
        shape = x.type.shape
        wide = b.op("broadcast", greatest, shape=shape, dimensions=kept)
        return b.op("reduce", b.op("sub", wide, x), axes=axes, kind="add")

    function = entry([f"{dtype}[a,b,c]"], body, OF_ANY_SIZE)
    check(function, lower_row, variants=host_variants(), **dict(zip("abc", sizes, strict=True)))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True)])
@examples(8)
@given(sizes=BOX)
def test_running_sums_of_any_size(axis, exclusive, reverse, sizes) -> None:
    def body(b, x):
        return b.op("cumulative", x, axis=axis, kind="add", exclusive=exclusive, reverse=reverse)

    function = entry(["f32[a,b,c]"], body, OF_ANY_SIZE)
    symbols = dict(zip("abc", sizes, strict=True))
    check(function, lower_cumulative, variants=host_variants(), **symbols)
