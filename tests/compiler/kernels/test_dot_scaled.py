"""dot_scaled: codes times codes, for few and many rows, in registers and from scratch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.ops import code_lines, code_steps
from ingot.compiler.ir import Function, walk
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.level import verify_kernel
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.compiler.kernels.table import Prefetch
from ingot.hal.spec import dtype
from tests.support import kernel_runner
from tests.support.drawn import examples
from tests.support.entries import assert_close, coded, entry, make, reference
from tests.support.kernel_runner import PLAIN, V3, VARIANTS, dot4_variants

CODINGS = ("i4", "u4", "i2", "u2", "i8", "u8", "i3", "u3", "i5", "u5", "i6", "u6", "t4")
"""Signs and bits of codes; those that no dtype has lie in two planes."""


def dot(
    coding: str, k: int, n: int, group: int, rows: str = "m", zeros: str = "", block: int = 0,
    minima: tuple[int, ...] = (),
) -> Function:  # fmt: skip
    bits, panels, groups = int(coding[1:]), -(-n // 16), k // group
    types = [
        f"i8[{rows},{k}]",
        f"u8[{panels},{code_lines(bits, k)},16,4]",
        f"{'i8' if block else 'f16'}[{panels},{groups},16]",
        f"f32[{rows},{groups}]",
        f"f32[{rows},{groups}]",
        *([f"f16[{panels},{-(-k // block)},16]"] if block else []),
        *([f"{zeros}[{panels},{groups},16]"] if zeros else []),
    ]
    if minima:
        types.append(f"u8[{panels},{code_lines(minima[0], groups)},16,4]")
        types.append(f"f16[{panels},{-(-groups // minima[1])},16]")

    def body(b: Any, *x: Any) -> Any:
        y = b.op(
            "dot_scaled", *x, n=n, **coded(coding), group=group, block=block, minima=minima,
            dtype=dtype("f32"),
        )  # fmt: skip
        return b.op("add", y, y)

    return entry(types, body, {"m": (1, None)} if rows == "m" else {})


def operands(function: Function, m: int, k: int, group: int) -> list[Any]:
    rng = np.random.default_rng(3)
    codes, scales = (each.type for each in function.arguments[1:3])
    a = rng.integers(-127, 128, (m, k)).astype(np.int8)
    a[0, 0] = -128
    found = [
        a,
        rng.integers(0, 256, codes.shape, np.uint8),
        make(scales, rng, {}),
        rng.standard_normal((m, k // group)).astype(np.float32),
        a.reshape(m, k // group, group).sum(-1, dtype=np.float32),
    ]
    return [*found, *(make(each.type, rng, {}) for each in function.arguments[5:])]


def check(function: Function, m: int, k: int, group: int, variants: tuple[str, ...]) -> None:
    arrays = operands(function, m, k, group)
    (wanted,) = reference(function, arrays)
    for variant in variants:
        kernel = lower_entry(function, VARIANTS[variant].target)
        (got,) = kernel_runner.run(kernel, arrays, [np.full_like(wanted, 77)], variant, m=m)
        assert_close(got, wanted, 3e-6)


@pytest.mark.parametrize(
    ("coding", "zeros", "block", "minima"),
    [
        ("i4", "", 0, ()),
        ("t4", "", 0, ()),
        ("u8", "u8", 0, (8, 3)),
        pytest.param("u5", "", 96, (4, 3), marks=pytest.mark.slow),
        pytest.param("i6", "", 64, (), marks=pytest.mark.slow),
    ],
)
def test_any_number_of_rows_on_every_variant(
    coding: str, zeros: str, block: int, minima: tuple[int, ...]
) -> None:
    function = dot(coding, 96, 39, 32, zeros=zeros, block=block, minima=minima)
    for m in (1, 2, 3, 40):
        check(function, m, 96, 32, dot4_variants())


@pytest.mark.parametrize(
    ("coding", "group", "zeros", "minima"),
    [("i4", 16, "", ()), ("u5", 32, "", (8, 3)), ("t4", 32, "u8", ()), ("u8", 96, "", ())],
)
def test_many_rows_are_multiplied_in_tiles(
    coding: str, group: int, zeros: str, minima: tuple[int, ...]
) -> None:
    """The last tile begins early. Without minima the bits are those of products in words. Five
    panels are those of five workgroups, three of one."""
    function = dot(coding, 96, 70 if zeros else 33, group, zeros=zeros, minima=minima)
    kernel = lower_entry(function, VARIANTS["x86-64-v4-amx"].target)
    assert any(op.name == "loop.multiply_tile" for op in walk(kernel.loops))
    verify_kernel(kernel)
    for m in (2, 16, 18, 50):
        arrays = operands(function, m, 96, group)
        (wanted,) = reference(function, arrays)
        if m == 18:
            got = np.full_like(wanted, 77)
            assert run_kernel(kernel, [*arrays, got], {"m": m}) is None
            assert_close(got, wanted, 3e-6)
        for variant in kernel_runner.tile_variants():
            (got,) = kernel_runner.run(kernel, arrays, [np.full_like(wanted, 77)], variant, m=m)
            assert_close(got, wanted, 3e-6)
            if minima:
                continue
            words = "x86-64-v4-vnni"
            other = lower_entry(function, VARIANTS[words].target)
            (same,) = kernel_runner.run(other, arrays, [np.full_like(wanted, 77)], words, m=m)
            np.testing.assert_array_equal(got, same)


def test_few_rows_read_codes_as_they_lie() -> None:
    function = dot("u4", 64, 128, 16, "1", "f32")
    kernel = lower_entry(function, V3)
    assert (kernel.scratch_length, kernel.schedule.is_unpacked) == (0, False)
    kernel = lower_entry(function, VARIANTS["x86-64-v4-vnni"].target)
    asked = [op for op in walk(kernel.loops) if op.name == "loop.prefetch"]
    assert [Prefetch.of(op).soon for op in asked] == [True] * 4, "twice for each of two panels"
    check(function, 1, 64, 16, dot4_variants()[:1])


def test_panels_that_do_not_fit_scratch_are_read_as_they_lie() -> None:
    function = dot("i2", 70016, 16, 32)
    assert not lower_entry(function, V3).schedule.is_unpacked
    check(function, 3, 70016, 32, dot4_variants()[:1])
    tiled = VARIANTS["x86-64-v4-amx"].target  # the sums of tiles lie in scratch, too
    for k in (57920, 57856):
        kernel = lower_entry(dot("i2", k, 16, 32), tiled)
        assert (kernel.scratch_length <= MOST_SCRATCH, kernel.schedule.is_unpacked) == (
            True, k < 57900,
        )  # fmt: skip


@examples(12)
@given(
    st.sampled_from(CODINGS), st.integers(1, 5), st.integers(1, 40), st.integers(1, 3),
    st.sampled_from([1, 2, 9]), st.sampled_from(["", "u8", "i8", "f32"]),
    st.integers(0, 2), st.sampled_from([0, 2, 4, 8]), st.sampled_from([V3, PLAIN]),
)  # fmt: skip
def test_drawn_codings_agree_with_the_graph(
    coding, groups, n, lines, m, zeros, block, minima, target
) -> None:
    group = lines * code_steps(int(coding[1:])) if groups > 1 else 4 * lines
    k = groups * group
    small = (minima, 4 if minima == 8 and groups == 5 else groups) if minima else ()
    function = dot(coding, k, n, group, str(m), zeros, block * group, small)
    arrays = operands(function, m, k, group)
    (wanted,) = reference(function, arrays)
    got = np.full_like(wanted, 77)
    assert run_kernel(lower_entry(function, target), [*arrays, got], {}) is None
    assert_close(got, wanted, 3e-6)


@pytest.mark.parametrize(
    ("k", "group", "place", "change", "message"),
    [
        (96, 36, 0, "i8[3,96]", "a group of 36 steps is no multiple of 4 that divides 96"),
        (96, 32, 0, "u8[3,96]", "expected codes of i8"),
        (96, 32, 3, "f32[3,2]", r"a_scales is f32\[3,2\]"),
        (96, 32, 4, "i32[3,3]", "operand 4 must be of a dtype of class 'float'"),
        (96, 32, 2, "i8[2,3,16]", r"scales is i8\[2,3,16\], expected floats"),
        (96, 32, 5, "u8[2,2,16,4]", r"minima is u8.*, expected u8\[2, 1, 16, 4\]"),
        (96, 32, 6, "f16[2,3,16]", r"the scales of minima are f16.*, expected floats\[2, 1, 16\]"),
        (128, 32, 0, "i8[3,128]", "a group of 3 minima does not hold whole lines of 4"),
    ],
)
def test_parts_that_do_not_fit_are_named(k, group, place, change, message) -> None:
    types = [f"i8[3,{k}]", "u8[2,12,16,4]", "f16[2,3,16]", *[f"f32[3,{k // group}]"] * 2]
    types += ["u8[2,1,16,4]", "f16[2,1,16]"]
    types[place] = change

    def body(b: Any, *x: Any) -> Any:
        return b.op(
            "dot_scaled", *x, n=32, coding=dtype("i4"), group=group, minima=(8, 3),
            dtype=dtype("f32"),
        )  # fmt: skip

    with pytest.raises(Exception, match=message):
        entry(types, body)
