"""dot_coded: blocks with scales, for few and many rows, for lanes and for items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.ops import code_lines, code_steps
from ingot.compiler.ir import Function, parse_type
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.hal.spec import dtype
from tests.support import kernel_runner
from tests.support.drawn import examples
from tests.support.entries import assert_close, coded, entry, make, reference
from tests.support.kernel_runner import PLAIN, V3, VARIANTS, device_variants, host_variants
from tests.support.work_items import SMALL

FASTEST = (host_variants()[0], *device_variants())
CODINGS = ("i4", "u4", "i2", "u2", "i8", "u8", "i3", "u3", "i5", "u5", "i6", "u6", "t4", "t3", "f8")


def types(
    coding: str, k: int, n: int, group: int, rows: str, zeros: str, block: int = 0
) -> list[str]:
    panels = -(-n // 16)
    small = f"[{panels},{-(-k // group)},16]"
    codes = f"u8[{panels},{code_lines(int(coding[1:]), k)},16,4]"
    scales = [f"u8{small}", f"f16[{panels},{-(-k // block)},16]"] if block else [f"f32{small}"]
    return [f"f32[{rows},{k}]", codes, *scales, *([f"{zeros}{small}"] if zeros else [])]


def dot(
    coding: str, k: int, n: int, group: int, rows: str = "m", zeros: str = "", block: int = 0
) -> Function:
    def body(b: Any, *x: Any) -> Any:
        return b.op(
            "dot_coded", *x, n=n, **coded(coding), group=group, block=block, dtype=dtype("f32")
        )

    symbols = {"m": (1, None)} if rows == "m" else {}
    return entry(types(coding, k, n, group, rows, zeros, block), body, symbols)


def operands(function: Function, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    found = [make(each.type, rng, {"m": m}) for each in function.arguments]
    found[1] = rng.integers(0, 256, found[1].shape, np.uint8)
    return found


def check(function: Function, m: int, variants: tuple[str, ...], tolerance: float = 3e-6) -> None:
    arrays = operands(function, m)
    (wanted,) = reference(function, arrays)
    for variant in variants:
        kernel = lower_entry(function, VARIANTS[variant].target)
        (got,) = kernel_runner.run(kernel, arrays, [np.full_like(wanted, 77)], variant, m=m)
        assert_close(got, wanted, tolerance)


@pytest.mark.parametrize(
    ("coding", "zeros", "block"),
    [
        ("i4", "", 0), ("t4", "", 0), ("t3", "", 64), ("f8", "", 0),
        pytest.param("u2", "f16", 64, marks=pytest.mark.slow), ("i8", "i8", 0),
        ("u5", "", 64), pytest.param("i3", "u8", 0, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_any_number_of_rows_meets_codes_in_groups(coding: str, zeros: str, block: int) -> None:
    function = dot(coding, 83, 39, 32, zeros=zeros, block=block)
    for m in (1, 2, 5, 8, 9, 40):
        check(function, m, FASTEST)


@pytest.mark.parametrize("coding", ["i4", "u4", "i2", "u2", "i5", "u5", "i3", "u3"])
def test_codes_are_exact_at_every_place(coding: str) -> None:
    function, rng = dot(coding, 96, 48, 32, "2"), np.random.default_rng(4)
    arrays = operands(function, 2)
    arrays[0] = rng.integers(-3, 4, (2, 96)).astype(np.float32)
    arrays[2] = np.ones_like(arrays[2])
    (wanted,) = reference(function, arrays)
    for variant in host_variants():
        kernel = lower_entry(function, VARIANTS[variant].target)
        (got,) = kernel_runner.run(kernel, arrays, [np.full_like(wanted, 77)], variant)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("rows", ["1", "3"])
def test_few_rows_read_codes_as_they_lie(rows: str) -> None:
    function = dot("u4", 100, 130, 16, rows)
    kernel = lower_entry(function, V3)
    assert (kernel.scratch_length, kernel.schedule.depth_block) == (0, 0)
    check(function, int(rows), FASTEST)


def test_panels_that_do_not_fit_scratch_are_decoded_in_blocks_of_depth() -> None:
    function = dot("u4", 16000, 20, 32, zeros="u8")
    block = lower_entry(function, V3).schedule.depth_block
    assert 0 < block < 16000
    for m in (1, 9):
        check(function, m, FASTEST[:1], 1e-5)


@examples(12)
@given(
    st.sampled_from(CODINGS), st.integers(1, 90), st.integers(1, 40), st.integers(1, 3),
    st.sampled_from([1, 2, 9]), st.sampled_from(["", "u8", "i8", "f32"]),
    st.integers(0, 2), st.sampled_from([V3, PLAIN, SMALL]),
)  # fmt: skip
def test_drawn_codings_agree_with_the_graph(coding, k, n, lines, m, zeros, block, target) -> None:
    group = min(lines * code_steps(int(coding[1:])), k)
    function = dot(coding, k, n, group, str(m), zeros, block * group)
    arrays = operands(function, m)
    (wanted,) = reference(function, arrays)
    got = np.full_like(wanted, 77)
    assert run_kernel(lower_entry(function, target), [*arrays, got], {}) is None
    assert_close(got, wanted, 3e-6)


@pytest.mark.parametrize("rows", ["m", "40"])
def test_the_left_side_may_be_narrow_and_the_result_has_an_epilogue(rows: str) -> None:
    name, n = "f16", 48 if rows == "m" else 512
    shapes = types("u4", 96, n, 32, rows, "u8")

    def body(b: Any, x: Any, bias: Any, *rest: Any) -> Any:
        y = b.op("dot_coded", x, *rest, n=n, coding=dtype("u4"), group=32, dtype=dtype(name))
        return b.op("max", b.op("add", y, b.broadcast_to(bias, y.type.shape)), y)

    function = entry(
        [f"{name}[{rows},96]", f"{name}[{n}]", *shapes[1:]],
        body,
        {"m": (1, None)} if rows == "m" else {},
    )
    rng = np.random.default_rng(3)
    for m in (1, 33) if rows == "m" else (40,):
        arrays = [make(each.type, rng, {"m": m}) for each in function.arguments]
        arrays[2] = rng.integers(0, 256, arrays[2].shape, np.uint8)
        (wanted,) = reference(function, arrays)
        for variant in FASTEST:
            kernel = lower_entry(function, VARIANTS[variant].target)
            (got,) = kernel_runner.run(kernel, arrays, [np.full_like(wanted, 77)], variant, m=m)
            assert_close(got, wanted, 3e-6)


@pytest.mark.parametrize(
    ("group", "change", "message"),
    [
        (12, {}, "a group of 12 steps does not hold whole lines of 8"),
        (32, {1: "u8[2,9,16,4]"}, "codes is u8"),
        (32, {2: "f32[2,2,16]"}, "scales is f32"),
    ],
)
def test_parts_that_do_not_fit_are_named(group: int, change: dict[int, str], message: str) -> None:
    given_types = types("i4", 83, 32, group, "3", "")
    for place, each in change.items():
        given_types[place] = each
    assert all(map(parse_type, given_types))

    def body(b: Any, *x: Any) -> Any:
        return b.op("dot_coded", *x, n=32, coding=dtype("i4"), group=group, dtype=dtype("f32"))

    with pytest.raises(Exception, match=message):
        entry(given_types, body)
