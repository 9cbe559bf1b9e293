"""Structural rules: each pair merges or vanishes, with static and with symbolic dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.folding.eliminate_common_subexpressions import (
    eliminate_common_subexpressions,
)
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.folding.fold_constants import fold_constants
from ingot.compiler.graph.folding.simplify import holds_exactly, simplify
from ingot.compiler.graph.forms.reshapes import reshape_groups
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import DTYPES, dtype
from tests.support.drawn import examples
from tests.support.programs import Build, check_pass, names, normal, program

N = symbol("n")
PASSES = (
    fold_constants,
    simplify,
    fold_constants,
    eliminate_common_subexpressions,
    eliminate_dead_code,
)


def op(name: str, **attributes: Any) -> Callable[[Builder, Any], Any]:
    return lambda b, x: b.op(name, x, **attributes)


def chain(*steps: Callable[[Builder, Any], Any]) -> Build:
    def build(b: Builder, x: Any) -> Any:
        for step in steps:
            x = step(b, x)
        return x

    return build


CASES: dict[str, tuple[Build, dict[str, int]]] = {
    "reinterpret and back": (
        chain(op("reinterpret", dtype=dtype("u8")), op("reinterpret", dtype=dtype("f32"))),
        {},
    ),
    "transpose of transpose": (
        chain(op("transpose", permutation=(1, 2, 0)), op("transpose", permutation=(2, 0, 1))),
        {},
    ),
    "transpose of dims of 1": (
        chain(op("reshape", shape=(N, 1, 12)), op("transpose", permutation=(1, 0, 2))),
        {"reshape": 1},
    ),
    "transpose of a reshape that merges": (
        chain(
            op("reshape", shape=(3 * N, 4)),
            op("transpose", permutation=(1, 0)),
            op("reshape", shape=(4, N, 3)),
            op("transpose", permutation=(1, 2, 0)),
        ),
        {},
    ),
    "heads split, moved twice and merged": (
        chain(
            op("reshape", shape=(N, 3, 2, 2)),
            op("transpose", permutation=(0, 2, 1, 3)),
            op("reshape", shape=(2 * N, 3, 2)),
            op("transpose", permutation=(0, 2, 1)),
            op("reshape", shape=(N, 2, 2, 3)),
            op("transpose", permutation=(0, 3, 1, 2)),
            op("reshape", shape=(N, 3, 4)),
        ),
        {},
    ),
    "slice of transpose": (
        chain(
            op("transpose", permutation=(2, 0, 1)),
            op("slice", start=(1, 0, 0), limit=(3, N, 3)),
            op("transpose", permutation=(1, 2, 0)),
        ),
        {"slice": 1},
    ),
    "reshape of reshape": (
        chain(op("reshape", shape=(N * 12,)), op("reshape", shape=(N, 3, 4))),
        {},
    ),
    "broadcast of broadcast": (
        chain(
            op("broadcast", shape=(2, N, 3, 4), dimensions=(1, 2, 3)),
            op("broadcast", shape=(5, 2, N, 3, 4), dimensions=(1, 2, 3, 4)),
        ),
        {"broadcast": 1},
    ),
    "broadcast that repeats nothing": (
        chain(
            op("broadcast", shape=(1, N, 3, 4), dimensions=(1, 2, 3)),
            op("reshape", shape=(N, 3, 4)),
        ),
        {},
    ),
    "broadcast of a reshape that adds ones": (
        chain(
            op("reduce", axes=(1,), kind="max"),
            op("reshape", shape=(N, 1, 4)),
            op("broadcast", shape=(N, 3, 4), dimensions=(0, 1, 2)),
        ),
        {"reduce": 1, "broadcast": 1},
    ),
    "slice of everything": (op("slice", start=(0, 0, 0), limit=(N, 3, 4)), {}),
    "slice of slice": (
        chain(
            op("slice", start=(0, 1, 0), limit=(N, 3, 4)),
            op("slice", start=(0, 0, 1), limit=(N, 2, 4), stride=(1, 1, 2)),
        ),
        {"slice": 1},
    ),
    "slice of concatenate": (
        lambda b, x: b.op(
            "slice",
            b.op("concatenate", b.op("neg", x), x, x, axis=1),
            start=(0, 3, 0),
            limit=(N, 9, 4),
        ),
        {"concatenate": 1},
    ),
    "concatenate of one": (lambda b, x: b.op("concatenate", x, axis=0), {}),
    "pad of nothing": (
        lambda b, x: b.op("pad", x, b.constant(0, "f32"), low=(0, 0, 0), high=(0, 0, 0)),
        {},
    ),
    "reduce over ones": (
        chain(op("reshape", shape=(N, 1, 12)), op("reduce", axes=(1,), kind="max")),
        {"reshape": 1},
    ),
    "widen and narrow": (
        chain(op("convert", dtype=dtype("f64")), op("convert", dtype=dtype("f32"))),
        {},
    ),
    "select of a constant": (
        lambda b, x: b.op("select", b.full(True, "i1", (N, 3, 4)), x, b.op("neg", x)),
        {},
    ),
    "element-wise on reshapes": (
        chain(
            op("reduce", axes=(2,), kind="max"),
            op("reshape", shape=(N, 3, 1)),
            lambda b, x: b.op("add", x, b.full(2, "f32", (N, 3, 1))),
            op("exp"),
            op("broadcast", shape=(N, 3, 4), dimensions=(0, 1, 2)),
        ),
        {"reduce": 1, "constant": 1, "broadcast": 2, "add": 1, "exp": 1},
    ),
    "take of known places": (
        lambda b, x: b.op("take", x, b.constant(np.array([-1])), axis=1, mode="wrap_check"),
        {"slice": 1},
    ),
    "a gather of rows is a take": (
        lambda b, x: b.op(
            "gather", x, b.constant(np.array([[[2], [0]], [[7], [1]]])), offset_dims=(0, 3),
            collapsed_slice_dims=(1,), start_index_map=(1,), index_vector_dim=2,
            slice_sizes=(N, 1, 4),
        ),
        {"constant": 1, "take": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rule(case: str) -> None:
    build, wanted = CASES[case]
    module = program(build, "f32[n,3,4]")
    for count in (1, 2):
        after = check_pass(PASSES, module, normal(0, count, 3, 4))
        assert names(after) == {**wanted, "return": 1}


def test_a_boolean_that_went_through_a_number_is_itself() -> None:
    def build(b: Builder, p: Any) -> Any:
        number = b.op("convert", p, dtype=dtype("f32"))
        return b.op("compare", number, b.full(0, "f32", (N,)), direction="ne")

    after = check_pass(PASSES, program(build, "i1[n]"), np.array([True, False]))
    assert names(after) == {"return": 1}


def test_booleans_are_clamped_by_bits() -> None:
    def build(b: Builder, x: Any) -> Any:
        limits = [b.full(limit, "i1", (N,)) for limit in (True, False)]
        return [b.op("clamp", low, x, high) for low in limits for high in limits]

    after = check_pass(PASSES, program(build, "i1[n]"), np.array([True, False]))
    assert "clamp" not in names(after)


@pytest.mark.parametrize(
    ("target", "low", "high", "left"),
    [("i8", -128, 127, 0), ("i8", -1e9, 127.5, 0), ("u8", 0, 255, 0), ("u16", 0, 2**16, 0),
     ("i8", -127, 127, 1), ("i8", -128, 126, 1), ("u8", 1, 255, 1), ("u16", 0, 255, 1)],
)  # fmt: skip
def test_a_conversion_that_saturates_needs_no_clamp(target, low, high, left) -> None:
    def build(b: Builder, x: Any) -> Any:
        limits = [b.full(limit, "f32", (N,)) for limit in (low, high)]
        return b.op("convert", b.op("clamp", limits[0], x, limits[1]), dtype=dtype(target))

    ends = np.array([-np.inf, -128.5, -127.9, -0.0, 0.9, 126.5, 255.5, 65536, np.inf, np.nan])
    after = check_pass(PASSES, program(build, "f32[n]"), ends.astype(np.float32))
    assert names(after)["clamp"] == left


def test_equal_ops_are_shared_but_zeros_of_either_sign_are_not() -> None:
    def build(b: Builder, x: Any) -> Any:
        plus, minus = (b.op("div", x, b.full(zero, "f32", (2,))) for zero in (0.0, -0.0))
        return b.op("sub", b.op("add", plus, minus), b.op("div", x, b.full(0.0, "f32", (2,))))

    x = np.array([1, -2], np.float32)
    module = program(build, "f32[2]")
    after = check_pass((eliminate_common_subexpressions, eliminate_dead_code), module, x)
    assert names(after)["div"] == 2
    assert names(after)["constant"] == 2


def test_constants_fold_but_faults_stay() -> None:
    def build(b: Builder, x: Any) -> Any:
        known = b.op("sqrt", b.constant(np.array([4.0, 9.0], np.float32)))
        bad = b.op("take", known, b.constant(np.array([5])), axis=0, mode="check")
        return b.op("add", x, known), bad

    after = eliminate_dead_code(fold_constants(program(build, "f32[2]")))
    assert names(after) == {"constant": 2, "add": 1, "take": 1, "return": 1}


def test_element_wise_ops_on_scalars_fold_at_symbolic_shapes() -> None:
    def build(b: Builder, x: Any) -> Any:
        half = b.op("div", b.full(1, "f32", (N,)), b.full(2, "f32", (N,)))
        return b.op("add", x, half)

    after = check_pass(PASSES, program(build, "f32[n]"), normal(0, 5))
    assert names(after) == {"constant": 1, "broadcast": 1, "add": 1, "return": 1}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([2, 1, 0, *range(1, 8), 6, 5], {"slice": 3, "reverse": 2, "concatenate": 1}),
        ([0, 0, *range(8), 7, 7], {"constant": 1, "take": 1}),
        ([5, 0, 1, 3, 7], {"constant": 1, "take": 1}),
        ([*range(8), *range(8)], {"concatenate": 1}),
        ([1, 3, 5, 7], {"slice": 1}),
        ([7, 4, 1], {"slice": 1, "reverse": 1}),
        ([0, 3, 6, 7, 6, 5, 4, 3], {"slice": 2, "reverse": 1, "concatenate": 1}),
        ([0, 1, 2, 3, 0, 2, 4, 6], {"slice": 2, "concatenate": 1}),
        ([0, 7, 6, 5, 4, 3, 2, 1], {"slice": 2, "reverse": 1, "concatenate": 1}),
        ([0, 2, 7, 1], {"constant": 1, "take": 1}),
        (sorted([*range(8)] * 3), {"broadcast": 1, "reshape": 1}),
        ([3, 3, 4, 4, 5, 5], {"slice": 1, "broadcast": 1, "reshape": 1}),
        ([3, 3, 4, 4, 5, 5, 5], {"constant": 1, "take": 1}),
    ],
)
def test_a_take_of_few_runs_of_places_is_slices_or_a_broadcast(
    places: list[int], expected: dict[str, int]
) -> None:
    def build(b: Builder, x: Any) -> Any:
        return b.op("take", x, b.constant(np.array(places)), axis=1, mode="check")

    after = check_pass(PASSES, program(build, "f32[n,8]"), normal(0, 3, 8))
    assert names(after) == {**expected, "return": 1}


def test_dead_code_goes() -> None:
    def build(b: Builder, x: Any) -> Any:
        b.op("exp", b.op("neg", x))
        return x

    assert names(eliminate_dead_code(program(build, "f32[2]"))) == {"return": 1}


@pytest.mark.parametrize("source", ["i1", "i8", "u8", "i32", "f16", "bf16", "f32", "i64"])
def test_exact_conversions_lose_nothing(source: str) -> None:
    from ingot.compiler.graph.references.numbers import convert

    element = dtype(source)
    raw = np.random.default_rng(0).integers(0, 256, (500, element.bytes), np.uint8)
    if element.is_boolean:
        raw &= 1
    x = np.frombuffer(raw.tobytes(), element.numpy)
    if element.is_float:
        with np.errstate(invalid="ignore"):
            x = x[np.isfinite(x.astype(np.float64))]
    for target in DTYPES.values():
        if not target.is_complex and holds_exactly(element, target):
            back = convert(convert(x, target), element)
            assert back.tobytes() == x.tobytes(), target


@pytest.mark.parametrize("source", [name for name in DTYPES if name[0] != "c"])
def test_conversions_of_conversions_are_what_they_were(source: str) -> None:
    element = dtype(source)
    middles = [each for each in DTYPES.values() if holds_exactly(element, each)]
    raw = np.random.default_rng(0).integers(0, 256, (64, element.bytes), np.uint8)
    x = np.frombuffer((raw & 1 if element.is_boolean else raw).tobytes(), np.uint8)
    targets = [each for each in DTYPES.values() if not each.is_complex]

    def build(b: Builder, x: Any) -> Any:
        return [
            b.op("convert", b.op("convert", x, dtype=middle), dtype=target)
            for middle in middles
            for target in targets
        ]

    module = program(build, TensorType(element, (64,)))
    given = x.view(element.numpy)
    with np.errstate(all="ignore"):
        before, after = (interpret(each, "main", [given]) for each in (module, simplify(module)))
    for one, other in zip(before, after, strict=True):
        assert one.dtype == other.dtype
        wide = np.int64 if one.dtype.kind == "i" else np.uint64 if one.dtype.kind == "u" else float
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(one.astype(wide), other.astype(wide))


@examples(60)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=0, max_size=4), st.data())
def test_groups_of_a_reshape_have_equal_products(old: list[int], data: st.DataObject) -> None:
    factors = [f for dim in old for f in {1: [1], 4: [2, 2], 6: [2, 3]}.get(dim, [dim])]
    new: list[int] = []
    while factors:
        count = data.draw(st.integers(1, len(factors)))
        new.append(int(np.prod(factors[:count])))
        factors = factors[count:]
    groups = reshape_groups(old, new)
    assert groups is not None
    assert [axis for first, _ in groups for axis in first] == list(range(len(old)))
    assert [axis for _, second in groups for axis in second] == list(range(len(new)))
    for first, second in groups:
        left = int(np.prod([old[axis] for axis in first]))
        assert left == int(np.prod([new[axis] for axis in second]))
