"""Random chains of shape ops give the same elements before and after every shape pass."""

from __future__ import annotations

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
from ingot.compiler.graph.folding.simplify import simplify
from ingot.compiler.graph.forms.choose_layout import choose_layout
from ingot.hal.spec import dtype
from tests.support.drawn import examples
from tests.support.programs import check_pass, constant, program

STEPS = (
    "transpose", "reshape", "broadcast", "slice", "concatenate", "pad", "reverse", "unary",
    "binary", "reduce", "arg_max", "window", "cumulative",
)  # fmt: skip


def draw_reshape(data: st.DataObject, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape of as many elements: dims split, merged, and dims of 1 put in."""
    factors: list[int] = []
    for dim in shape:
        factors += {4: [2, 2], 6: [2, 3], 8: [2, 4], 9: [3, 3], 12: [3, 4]}.get(dim, [dim])
    result: list[int] = []
    while factors:
        count = data.draw(st.integers(1, min(3, len(factors))))
        result.append(int(np.prod(factors[:count])))
        factors = factors[count:]
    if len(result) < 5 and data.draw(st.booleans()):
        result.insert(data.draw(st.integers(0, len(result))), 1)
    return tuple(result)


def step(b: Builder, x: Any, name: str, data: st.DataObject) -> Any:
    shape = x.type.shape
    rank = len(shape)
    axis = data.draw(st.integers(0, max(0, rank - 1)))
    match name:
        case "transpose":
            return b.op("transpose", x, permutation=tuple(data.draw(st.permutations(range(rank)))))
        case "reshape":
            return b.op("reshape", x, shape=draw_reshape(data, shape))
        case "broadcast" if rank < 5:
            places = sorted(data.draw(st.permutations(range(rank + 1)))[:rank])
            target = [2] * (rank + 1)
            for dim, place in zip(shape, places, strict=True):
                target[place] = dim
            return b.op("broadcast", x, shape=tuple(target), dimensions=tuple(places))
        case "slice":
            start = tuple(data.draw(st.integers(0, dim - 1)) for dim in shape)
            return b.op("slice", x, start=start, limit=shape)
        case "concatenate" if rank:
            return b.op("concatenate", x, b.op("neg", x), axis=axis)
        case "pad" if rank:
            low = tuple(data.draw(st.integers(0, 1)) for _ in shape)
            return b.op("pad", x, b.constant(3, "f32"), low=low, high=(0,) * rank)
        case "reverse" if rank:
            return b.op("reverse", x, axes=(axis,))
        case "unary":
            return b.op("neg", x)
        case "binary" if rank:
            line = constant(b, axis, shape[axis])
            return b.op("sub", b.op("broadcast", line, shape=shape, dimensions=(axis,)), x)
        case "reduce" if rank > 2:
            return b.op("reduce", x, axes=(axis,), kind="max")
        case "arg_max" if rank > 2:
            place = b.op("arg_max", x, axis=axis, dtype=dtype("i32"))
            return b.op("convert", place, dtype=dtype("f32"))
        case "window" if rank:
            window = tuple(2 if place == axis and shape[axis] > 1 else 1 for place in range(rank))
            return b.op("reduce_window", x, kind="max", window=window)
        case "cumulative" if rank:
            return b.op("cumulative", x, axis=axis, kind="max")
    return x


@examples(150)
@given(st.data())
def test_simplified_chains_are_the_same(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    names = data.draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=8))

    def build(b: Builder, x: Any) -> Any:
        for name in names:
            x = step(b, x, name, data)
        return x

    module = program(build, f"f32[{','.join(map(str, shape))}]")
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 7
    check_pass((simplify, eliminate_common_subexpressions, eliminate_dead_code), module, x)


@pytest.mark.slow
@examples(150)
@given(st.data())
def test_chains_behind_a_convolution_are_the_same_channels_last(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6))

    def build(b: Builder, x: Any) -> Any:
        weight = b.constant(np.arange(24, dtype=np.float32).reshape(6, 4, 1, 1) % 5)
        x = b.op("convolution", x, weight, layout="nchw,oihw->nchw")
        y = x
        for name in names:
            y = step(b, y, name, data)
        return (y, b.op("add", x, y)) if y.type == x.type else y

    x = (np.arange(96, dtype=np.float32).reshape(1, 4, 4, 6) % 11) - 5
    module = program(build, "f32[1,4,4,6]")
    check_pass((choose_layout, simplify, eliminate_dead_code), module, x)
