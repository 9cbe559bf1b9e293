"""Passes around contractions: scales fold, layouts turn, attention fuses, weights pack."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.folding.fold_constants import fold_constants
from ingot.compiler.graph.folding.fold_scales import fold_constant_scales, fold_scales
from ingot.compiler.graph.folding.simplify import simplify
from ingot.compiler.graph.forms.choose_layout import choose_layout
from ingot.compiler.graph.forms.fuse_attention import fuse_attention
from ingot.compiler.graph.forms.pack_weights import pack_weights
from ingot.compiler.graph.forms.split_init import split_init
from ingot.compiler.graph.ops import Constant
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import Later, Module, parse, to_text
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype
from tests.support.programs import Build, check_pass, constant, names, normal, program, run

B, S = symbol("b"), symbol("s")


def spread(b: Builder, value: Any, like: Any, axis: int) -> Any:
    return b.op("broadcast", value, shape=like.type.shape, dimensions=(axis,))


def batch_norm(b: Builder, x: Any, seed: int, axis: int = 1) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, written out."""
    count = x.type.shape[axis]
    mean, variance, scale, bias = (constant(b, seed + each, count) for each in range(4))
    variance = b.op("add", b.op("abs", variance), b.full(1e-3, "f32", (count,)))
    x = b.op("sub", x, spread(b, mean, x, axis))
    x = b.op("div", x, spread(b, b.op("sqrt", variance), x, axis))
    x = b.op("mul", x, spread(b, scale, x, axis))
    return b.op("add", x, spread(b, bias, x, axis))


def convolve(b: Builder, x: Any, seed: int, outputs: int, window: int, **attributes: Any) -> Any:
    inputs = x.type.shape[1] // attributes.get("groups", 1)
    w = constant(b, seed, outputs, inputs, window, window)
    room = ((window // 2,) * 2,) * 2
    return b.op("convolution", x, w, layout="nchw,oihw->nchw", padding=room, **attributes)


def relu(b: Builder, x: Any) -> Any:
    return b.op("max", x, b.full(0, "f32", x.type.shape))


# fold_scales


@pytest.mark.parametrize("place", ["after convolution", "after dot_general", "of a scalar"])
def test_batch_norm_folds_into_the_weights(place: str) -> None:
    def build(b: Builder, x: Any) -> Any:
        if place == "after convolution":
            return batch_norm(b, convolve(b, x, 0, 5, 3, strides=(2, 1)), 10)
        x = b.op("reshape", x, shape=(B, 4 * 6 * 6))
        x = b.op("dot_general", x, constant(b, 1, 7, 144), lhs_contract=(1,), rhs_contract=(1,))
        if place == "of a scalar":
            return b.op("mul", b.op("sub", x, b.full(3, "f32", (B, 7))), b.full(2, "f32", (B, 7)))
        return batch_norm(b, x, 10)

    module = program(build, "f32[b,4,6,6]")
    after = check_pass(
        (fold_constants, fold_scales, eliminate_dead_code), module, normal(0, 2, 4, 6, 6),
        tolerance=1e-6,
    )  # fmt: skip
    main = split_init(after)
    kinds = names(main)
    assert kinds["add"] == 1
    assert not {"mul", "div", "sub", "sqrt"} & set(kinds)


@pytest.mark.parametrize("outputs", [3, 40])  # of which the weights are scaled at once, and later
@pytest.mark.parametrize("place", ["convolution", "dot_general"])
def test_scales_that_are_constants_are_in_the_weights_first(place: str, outputs: int) -> None:
    def build(b: Builder, x: Any) -> Any:
        if place == "convolution":
            y = convolve(b, x, 0, outputs, 3)
        else:
            x = b.op("reshape", x, shape=(B, 2304))
            w = constant(b, 1, 2304, outputs)
            y = b.op("dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,))
        vectors = [spread(b, constant(b, seed, outputs), y, 1) for seed in range(2, 7)]
        column = constant(b, 4, 1, outputs, *[1] * (y.type.rank - 2))
        vectors[2] = b.op(
            "broadcast", column, shape=y.type.shape, dimensions=tuple(range(y.type.rank))
        )
        zeros = b.op("reshape", b.full(0, "f32", (outputs,)), shape=column.type.shape)
        zeros = b.op("broadcast", zeros, shape=y.type.shape, dimensions=tuple(range(y.type.rank)))
        y = b.op("add", y, zeros)
        y = b.op("sub", b.op("add", y, vectors[0]), vectors[1])
        y = b.op("div", b.op("mul", y, vectors[2]), vectors[3])
        return b.op("sub", vectors[4], b.op("mul", y, b.full(3, "f32", y.type.shape)))

    module = program(build, "f32[b,64,6,6]")
    after = check_pass(
        (fold_constant_scales, eliminate_dead_code), module, normal(0, 2, 64, 6, 6), tolerance=1e-5
    )
    kinds = {"constant": 2, place: 1, "broadcast": 1, "add": 1, "return": 1}
    assert names(after) - Counter(reshape=1) == kinds
    weight = next(op for op in after.functions["main"].block.ops if op.name == "constant")
    literal = Constant.of(weight).value
    assert isinstance(literal.stored, Later) == (literal.nbytes > 1 << 16)
    parts = np.concatenate([part.reshape(-1) for part in literal.parts()])
    np.testing.assert_array_equal(parts, literal.array.reshape(-1))


def test_a_value_with_other_readers_keeps_its_scale() -> None:
    def build(b: Builder, x: Any) -> Any:
        y = convolve(b, x, 0, 4, 1)
        return b.op("mul", y, b.full(2, "f32", y.type.shape)), y

    after = check_pass(
        (fold_scales, eliminate_dead_code), program(build, "f32[b,4,3,3]"), normal(0, 1, 4, 3, 3)
    )
    assert names(after)["convolution"] == 1
    assert names(after)["mul"] == 1


def test_narrow_floats_keep_their_scales() -> None:
    def build(b: Builder, x: Any) -> Any:
        w = b.op("convert", constant(b, 0, 4, 4), dtype=dtype("f16"))
        y = b.op("dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,))
        return b.op("mul", y, b.full(3, "f16", y.type.shape))

    x = normal(0, 2, 4).astype(np.float16)
    assert names(check_pass((fold_scales,), program(build, "f16[b,4]"), x))["mul"] == 1


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [("add", "add", "add"), ("add", "sub", "add"), ("sub", "add", "sub"), ("sub", "sub", "sub")],
)
def test_shifts_of_integers_become_one(first: str, second: str, left: str) -> None:
    most = np.iinfo(np.int32).max

    def build(b: Builder, x: Any) -> Any:
        w = b.constant(np.arange(20, dtype=np.int8).reshape(4, 5))
        y = b.op(
            "dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,), dtype=dtype("i32")
        )  # fmt: skip
        shifts = np.asarray([[1, 2, 3, most, -most], [5, -6, most, most, most]], np.int32)
        y = b.op(first, y, spread(b, b.constant(shifts[0]), y, 1))
        y = b.op(second, y, spread(b, b.constant(shifts[1]), y, 1))
        return b.op("sub", b.full(3, "i32", y.type.shape), y)

    x = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    after = check_pass((fold_scales, eliminate_dead_code), program(build, "i8[b,4]"), x)
    kinds = names(after)
    assert kinds["add"] + kinds["sub"] == 2  # one of them is the last
    assert kinds[left] >= 1


# choose_layout


def residual_network(b: Builder, x: Any) -> Any:
    """Strided, pointwise and depthwise convolutions, a residual, pooling, a classifier."""
    x = relu(b, batch_norm(b, convolve(b, x, 0, 8, 3, strides=(2, 2)), 1))
    x = b.op(
        "reduce_window", x, kind="max", window=(1, 1, 3, 3), strides=(1, 1, 2, 2),
        padding=((0, 0), (0, 0), (1, 1), (1, 1)),
    )  # fmt: skip
    y = relu(b, convolve(b, x, 20, 8, 3, groups=8))
    y = batch_norm(b, convolve(b, y, 30, 8, 1), 31)
    x = relu(b, b.op("add", x, y))
    gate = b.op("reshape", b.op("reduce", x, axes=(2, 3), kind="add"), shape=(B, 8, 1, 1))
    gate = b.op("logistic", convolve(b, gate, 40, 8, 1))
    x = b.op("mul", x, b.op("broadcast", gate, shape=x.type.shape, dimensions=(0, 1, 2, 3)))
    x = b.op("concatenate", x, relu(b, x), axis=1)
    x = b.op("pad", x, b.constant(0, "f32"), low=(0, 1, 0, 0), high=(0, 0, 1, 0))
    x = b.op("slice", x, start=(0, 1, 0, 0), limit=(*x.type.shape[:2], 4, 4))
    x = b.op("div", b.op("reduce", x, axes=(2, 3), kind="add"), b.full(16, "f32", (B, 16)))
    x = b.op("reshape", b.op("reshape", x, shape=(B, 16, 1, 1)), shape=(B, 16))
    return b.op("dot_general", x, constant(b, 50, 16, 10), lhs_contract=(1,), rhs_contract=(0,))


def test_a_network_runs_channels_last_with_one_transpose_at_its_input() -> None:
    module = program(residual_network, "f32[b,3,16,16]")
    x = normal(0, 2, 3, 16, 16)
    check_pass((choose_layout, simplify), module, x, tolerance=1e-6)
    after = check_pass((run_graph_passes,), module, x, tolerance=1e-5)
    main = after.functions["main"].block.ops
    assert [op.name for op in main].count("transpose") == 1
    (transpose,) = (op for op in main if op.name == "transpose")
    assert transpose.operands[0] is after.functions["main"].arguments[0]
    assert names(after)["convolution"] == 0
    assert names(after)["depthwise"] == 1


def test_images_that_are_resized_between_layers_stay_channels_last() -> None:
    """To twice their size by repeating, and by taking rows."""

    def build(b: Builder, x: Any) -> Any:
        x = convolve(b, x, 0, 8, 3)
        x = b.op("broadcast", x, shape=(B, 8, 4, 2, 4), dimensions=(0, 1, 2, 4))
        x = b.op("reshape", x, shape=(B, 8, 8, 4))
        x = b.op("take", x, b.constant(np.array([0, 0, 1, 3, 3])), axis=3, mode="check")
        return b.op("reduce", convolve(b, x, 1, 5, 3), axes=(2, 3), kind="max")

    module = program(build, "f32[b,3,4,4]")
    after = check_pass((run_graph_passes,), module, normal(0, 2, 3, 4, 4), tolerance=1e-5)
    main = after.functions["main"]
    moved = [op.operands[0] for op in main.block.ops if op.name == "transpose"]
    assert moved == [main.arguments[0]]


@pytest.mark.parametrize(
    ("channels", "row", "step", "moves"),
    [(16, 14, 1, 2), (16, 16, 2, 2), (15, 14, 1, 0), (16, 17, 1, 0), (16, 28, 2, 0)],
)
def test_windows_of_short_rows_go_to_channels_last(
    channels: int, row: int, step: int, moves: int
) -> None:
    def build(b: Builder, x: Any) -> Any:
        return b.op(
            "reduce_window", x, kind="max", window=(1, 1, 3, 3), strides=(1, 1, step, step),
            padding=((0, 0), (0, 0), (1, 1), (1, 1)),
        )  # fmt: skip

    module = program(build, f"f32[b,{channels},{row},{row}]")
    after = check_pass((choose_layout,), module, normal(0, 2, channels, row, row))
    assert names(after)["transpose"] == moves


def test_a_flatten_moves_the_rows_of_the_next_weight() -> None:
    def build(b: Builder, x: Any) -> Any:
        x = b.op("reshape", convolve(b, x, 0, 6, 3), shape=(B, 6 * 4 * 5))
        return b.op("dot_general", x, constant(b, 1, 7, 120), lhs_contract=(1,), rhs_contract=(1,))

    after = check_pass(
        (run_graph_passes,), program(build, "f32[b,1,4,5]"), normal(0, 2, 1, 4, 5), tolerance=1e-6
    )
    assert names(after)["transpose"] == 0


@pytest.mark.parametrize(
    "layout", ["nwc,wio->nwc", "ncw,oiw->ncw", "ncdhw,dhwio->ndhwc", "cwn,iow->cnw"]
)
def test_every_layout_and_rank_gives_the_same(layout: str) -> None:
    sizes = {"n": 2, "c": 3, "o": 5, "i": 3, "d": 3, "h": 4, "w": 6}
    x_letters, w_letters = layout.split("->")[0].split(",")
    x_shape = [sizes[letter] for letter in x_letters]
    w_shape = [sizes[letter] if letter in "oi" else 2 for letter in w_letters]

    def build(b: Builder, x: Any) -> Any:
        return relu(b, b.op("convolution", x, constant(b, 0, *w_shape), layout=layout))

    module = program(build, f"f32[{','.join(map(str, x_shape))}]")
    after = check_pass((run_graph_passes,), module, normal(1, *x_shape), tolerance=1e-6)
    assert names(after)["convolution"] == 0


# fuse_attention


def softmax(b: Builder, x: Any, guard: str) -> Any:
    shape = x.type.shape
    kept = (*shape[:-1], 1)
    axes = tuple(range(len(shape)))

    def rows(kind: str, value: Any) -> Any:
        return b.op("reduce", value, axes=(len(shape) - 1,), kind=kind)

    def back(value: Any) -> Any:
        return b.op("broadcast", b.op("reshape", value, shape=kept), shape=shape, dimensions=axes)

    if guard != "no maximum":
        greatest = rows("max", x)
        if guard == "finite maximum":
            zero = b.full(0, "f32", shape[:-1])
            greatest = b.op("select", b.op("is_finite", greatest), greatest, zero)
        if guard == "initial maximum":
            greatest = b.op("max", b.full(-np.inf, "f32", shape[:-1]), greatest)
        x = b.op("sub", x, back(greatest))
    e = b.op("exp", x)
    total = rows("add", e)
    if guard == "reciprocal":
        return b.op("mul", e, back(b.op("div", b.full(1, "f32", total.type.shape), total)))
    result = b.op("div", e, back(total))
    if guard == "nan rows":
        zeros = b.full(0, "f32", shape)
        return b.op("select", b.op("is_nan", result), zeros, result)
    if guard == "empty rows":
        none = b.op("compare", greatest, b.full(-np.inf, "f32", shape[:-1]), direction="eq")
        return b.op("select", back(none), b.full(0, "f32", shape), result)
    return result


def attention(scale: str, mask: str, guard: str, swapped: bool = False) -> Build:
    def scaled(b: Builder, x: Any, factor: float) -> Any:
        return b.op("mul", x, b.full(factor, "f32", x.type.shape))

    def build(b: Builder, q: Any, k: Any, v: Any, m: Any) -> Any:
        # q, k, v are [batch, sequence, heads, width]
        if scale == "q and k":
            q, k = scaled(b, q, 0.6), scaled(b, k, 0.5)
        scores = b.op(
            "dot_general", q, k, lhs_batch=(0, 2), rhs_batch=(0, 2),
            lhs_contract=(3,), rhs_contract=(3,),
        )  # fmt: skip
        shape = scores.type.shape
        if scale == "scores":
            scores = b.op("div", scores, b.full(3.5, "f32", shape))
        if mask == "windows":  # whose masks are those of a part of the batch, as in Swin
            split = (2, 2, *shape[1:])
            windows = b.op("broadcast", m, shape=split, dimensions=(1, 4))
            scores = b.op("add", b.op("reshape", scores, shape=split), windows)
            scores = b.op("reshape", scores, shape=shape)
        else:
            spread_mask = b.op("broadcast", m, shape=shape, dimensions=(0, 3))
        if mask == "add":
            scores = b.op("add", spread_mask, scores)
        elif mask == "select":
            seen = b.op("compare", spread_mask, b.full(0, "f32", shape), direction="eq")
            scores = b.op("select", seen, scores, b.full(-3.4e38, "f32", shape))
        p = softmax(b, scores, guard)
        if swapped:
            return b.op(
                "dot_general", v, p, lhs_batch=(0, 2), rhs_batch=(0, 1),
                lhs_contract=(1,), rhs_contract=(3,),
            )  # fmt: skip
        return b.op(
            "dot_general", p, v, lhs_batch=(0, 1), rhs_batch=(0, 2),
            lhs_contract=(3,), rhs_contract=(1,),
        )  # fmt: skip

    return build


ATTENTIONS = [
    (scale, mask, guard, swapped)
    for scale, mask, guard, swapped in (
        ("none", "none", "maximum", False),
        ("q and k", "add", "maximum", False),
        ("scores", "add", "initial maximum", False),
        ("scores", "select", "finite maximum", False),
        ("scores", "none", "no maximum", True),
        ("q and k", "select", "reciprocal", True),
        ("scores", "add", "nan rows", False),
    )
]


@pytest.mark.parametrize(("scale", "mask", "guard", "swapped"), ATTENTIONS)
def test_attention_is_found(scale: str, mask: str, guard: str, swapped: bool) -> None:
    types = [f"f32[b,{s},3,4]" for s in ("s", "t", "t")] + ["f32[b,t]"]
    module = program(attention(scale, mask, guard, swapped), *types)
    q, k, v = (normal(seed, 2, count, 3, 4) for seed, count in enumerate((5, 6, 6)))
    hidden = np.where(np.arange(12).reshape(2, 6) % 4 == 3, -1e30, 0).astype(np.float32)
    arrays = (q, k, v, hidden)
    after = check_pass(
        (simplify, fuse_attention, eliminate_dead_code), module, *arrays, tolerance=1e-6
    )
    kinds = names(after)
    assert kinds["attention"] == 1
    assert kinds["dot_general"] == 0
    assert kinds["exp"] == 0


def test_masks_of_parts_of_the_batch_are_those_of_attention() -> None:
    types = [f"f32[4,{s},3,4]" for s in ("s", "t", "t")] + ["f32[2,t]"]
    module = program(attention("scores", "windows", "maximum"), *types)
    q, k, v = (normal(seed, 4, count, 3, 4) for seed, count in enumerate((5, 6, 6)))
    steps = (simplify, fuse_attention, eliminate_dead_code)
    after = check_pass(steps, module, q, k, v, normal(3, 2, 6), tolerance=1e-6)
    assert names(after)["attention"] == 1
    assert names(after)["exp"] == 0


def test_rows_that_are_wholly_masked_stay_what_they_were() -> None:
    types = [f"f32[b,{s},3,4]" for s in ("s", "t", "t")] + ["f32[b,t]"]
    q, k, v = (normal(seed, 2, count, 3, 4) for seed, count in enumerate((5, 6, 6)))
    v[0, 2, 1, 1] = np.inf
    hidden = np.zeros((2, 6), np.float32)
    hidden[0] = -np.inf
    for guard in ("maximum", "nan rows", "empty rows"):
        module = program(attention("scores", "add", guard), *types)
        after = check_pass((simplify, fuse_attention), module, q, k, v, hidden, tolerance=1e-6)
        assert names(after)["attention"] == 1


def of_shared_heads(repeats: str) -> Build:
    """q f32[b,s,6,4], k and v f32[b,t,h,4] with each head h for 6 / h of q."""

    def repeated(b: Builder, x: Any) -> Any:
        batch, length, heads, size = x.type.shape
        if repeats == "one head":
            return b.op("broadcast", x, shape=(batch, length, 6, size), dimensions=(0, 1, 2, 3))
        place = 2 if repeats == "whole runs" else 3
        wide = (batch, length, 3, heads, size)
        if place == 3:
            wide = (batch, length, heads, 3, size)
        kept = tuple(axis for axis in range(5) if axis != place)
        spread = b.op("broadcast", x, shape=wide, dimensions=kept)
        if repeats == "in the batch":
            turned = b.op("transpose", spread, permutation=(0, 2, 3, 1, 4))
            return b.op("reshape", turned, shape=(batch * 6, length, size))
        return b.op("reshape", spread, shape=(batch, length, 6, size))

    def build(b: Builder, q: Any, k: Any, v: Any) -> Any:
        k = repeated(b, k)
        v = repeated(b, v) if repeats != "of keys alone" else v
        axes = [(0, 2), (3,), (1,)]
        if repeats == "in the batch":
            batch, length, heads, size = q.type.shape
            q = b.op("transpose", q, permutation=(0, 2, 1, 3))
            q = b.op("reshape", q, shape=(batch * heads, length, size))
            axes = [(0,), (2,), (1,)]
        batch, features, rows = axes
        scores = b.op("dot_general", q, k, lhs_batch=batch, rhs_batch=batch,
                      lhs_contract=features, rhs_contract=features)  # fmt: skip
        ends = tuple(range(len(batch)))
        return b.op("dot_general", softmax(b, scores, "maximum"), v, lhs_batch=ends,
                    rhs_batch=batch, lhs_contract=(len(batch) + 1,), rhs_contract=rows)  # fmt: skip

    return build


@pytest.mark.parametrize(
    ("repeats", "heads", "shape"),
    [
        ("interleaved", 2, "f32[b,2,t,4]"),
        ("in the batch", 2, "f32[2*b,t,4]"),
        ("one head", 1, "f32[b,1,t,4]"),
        ("whole runs", 2, "f32[b,6,t,4]"),
        ("of keys alone", 2, "f32[b,6,t,4]"),
    ],
)
def test_heads_that_several_of_q_share_are_not_repeated(
    repeats: str, heads: int, shape: str
) -> None:
    others = [heads, 6 if repeats == "of keys alone" else heads]
    types = ["f32[b,s,6,4]", *(f"f32[b,t,{count},4]" for count in others)]
    module = program(of_shared_heads(repeats), *types)
    arrays = [normal(seed, 2, 5, count, 4) for seed, count in enumerate((6, *others))]
    after = check_pass((fuse_attention, eliminate_dead_code), module, *arrays, tolerance=1e-6)
    (op,) = (each for each in after.functions["main"].block.ops if each.name == "attention")
    assert [str(each.type) for each in op.operands[1:]] == [shape, shape]


def test_what_is_no_softmax_is_no_attention() -> None:
    def build(b: Builder, q: Any, k: Any, v: Any) -> Any:
        scores = b.op("dot_general", q, k, lhs_contract=(1,), rhs_contract=(1,))
        e = b.op("exp", scores)
        total = b.op("reduce", e, axes=(0,), kind="add")  # over the wrong axis
        p = b.op("div", e, b.op("broadcast", total, shape=e.type.shape, dimensions=(1,)))
        return b.op("dot_general", p, v, lhs_contract=(1,), rhs_contract=(0,))

    module = program(build, "f32[5,4]", "f32[5,4]", "f32[5,4]")
    assert names(fuse_attention(module))["attention"] == 0


# pack_weights and split_init


@pytest.mark.parametrize("name", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("side", ["right", "left", "transposed", "several axes"])
def test_weights_are_packed_whatever_their_side(name: str, side: str) -> None:
    def build(b: Builder, x: Any) -> Any:
        def weight(*shape: int) -> Any:
            return b.op("convert", constant(b, 0, *shape), dtype=dtype(name))

        match side:
            case "right":
                return b.op("dot_general", x, weight(6, 19), lhs_contract=(2,), rhs_contract=(0,))
            case "left":
                return b.op("dot_general", weight(19, 6), x, lhs_contract=(1,), rhs_contract=(2,))
            case "transposed":
                return b.op("dot_general", x, weight(19, 3), lhs_contract=(1,), rhs_contract=(1,))
        return b.op("dot_general", x, weight(6, 2, 3, 2), lhs_contract=(1, 2), rhs_contract=(2, 0))

    module = program(build, f"{name}[b,3,6]")
    x = normal(1, 2, 3, 6).astype(dtype(name).numpy)
    after = check_pass((pack_weights,), module, x, tolerance=1e-2 if name != "f32" else 1e-6)
    assert names(after)["dot_packed"] == 1


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "packed"),
    [(60, 20, "n", 0), (60, 20, "70", 0), (60, 20, "40", 1), (300, 260, "n", 1)],
)
def test_a_weight_on_the_left_of_long_rows_stays(
    rows: int, depth: int, columns: str, packed: int
) -> None:
    def build(b: Builder, x: Any) -> Any:
        w = constant(b, 0, rows, depth)
        return b.op("dot_general", w, x, lhs_contract=(1,), rhs_contract=(0,))

    module = program(build, f"f32[{depth},{columns}]")
    x = normal(1, depth, int(columns) if columns != "n" else 75)
    after = check_pass((pack_weights,), module, x, tolerance=1e-5)
    assert names(after)["dot_packed"] == packed


@pytest.mark.parametrize("bake", [True, False])
def test_every_program_runs_baked_and_unbaked(bake: bool) -> None:
    module = program(residual_network, "f32[b,3,16,16]")
    x = normal(0, 2, 3, 16, 16)
    prepared = parse(to_text(module))
    for each in (fold_scales, choose_layout, pack_weights, eliminate_dead_code):
        each(prepared)
    after = check_pass((lambda m: split_init(m, bake),), prepared, x)
    assert ("init" in after.functions) is not bake
    np.testing.assert_allclose(run(after, x)[0], run(module, x)[0], rtol=0, atol=1e-3)
    weights = {"pad", "mul", "sqrt"} if bake else set()
    assert not weights & set(names(after)) - {"mul", "pad"}


def test_parameters_are_read_by_init() -> None:
    def build(b: Builder, x: Any) -> Any:
        w = b.op("parameter", scope="", key="w", dtype=dtype("f32"), shape=(20, 4))
        bias = b.op("parameter", scope="", key="b", dtype=dtype("f32"), shape=(20,))
        y = b.op("dot_general", x, w, lhs_contract=(1,), rhs_contract=(1,))
        return b.op("add", y, spread(b, bias, y, 1))

    module = program(build, "f32[n,4]")
    parameters = {"w": normal(0, 20, 4), "b": normal(1, 20)}
    after = check_pass(
        (run_graph_passes,), module, normal(2, 3, 4), parameters=parameters, tolerance=1e-6
    )
    assert names(after) == {"global": 2, "dot_packed": 1, "broadcast": 1, "add": 1, "return": 1}
    assert names(after, "init")["parameter"] == 2
    assert not after.functions["init"].exported


def test_what_grows_too_much_is_left_to_load_time() -> None:
    def build(b: Builder, x: Any) -> Any:
        w = constant(b, 0, 64, 300)
        table = b.op("broadcast", b.op("exp", w), shape=(4, 64, 300), dimensions=(1, 2))
        return b.op("add", x, b.op("neg", b.op("log", table)))

    after: Module = check_pass(
        (split_init,), program(build, "f32[4,64,300]"), normal(0, 4, 64, 300)
    )
    assert names(after)["global"] == 1
    assert names(after, "init")["neg"] == 1


@pytest.mark.parametrize("rows", [4, 100])
def test_codes_of_a_small_weight_stay_in_the_file(rows: int) -> None:
    def build(b: Builder, x: Any) -> Any:
        codes = b.constant(np.resize(np.arange(99, dtype=np.int8), (rows, 40)), "i8")
        scale = b.op("broadcast", constant(b, 0, 40), shape=(rows, 40), dimensions=(1,))
        return b.op("add", x, b.op("mul", b.op("convert", codes, dtype=dtype("f32")), scale))

    after = check_pass((split_init,), program(build, f"f32[{rows},40]"), normal(0, rows, 40))
    assert ("init" in after.functions) == (rows == 100)
