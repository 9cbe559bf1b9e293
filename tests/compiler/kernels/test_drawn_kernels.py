"""Drawn shapes and dtypes: map and row kernels give what the interpreter gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
