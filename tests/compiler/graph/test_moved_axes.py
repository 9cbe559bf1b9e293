"""Reshapes and transposes without copies are those of NumPy."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.moved_axes import MovedAxes
from ingot.compiler.graph.weight_arrays import WeightArrays
from ingot.compiler.ir import Block, Function, Literal, Region
from ingot.hal.spec import dtype
from tests.support.drawn import examples


@st.composite
def _shapes(draw: Any, count: int) -> tuple[int, ...]:
    """Dims with so many elements."""
    dims: list[int] = []
    while count > 1 and len(dims) < 4:
        dims.append(draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0])))
        count //= dims[-1]
    return (*dims, count)


@examples(60)
@given(data=st.data())
def test_moves_give_the_elements_of_numpy(data: Any) -> None:
    count = data.draw(st.sampled_from((0, 1, 24, 60, 64)))
    wanted = np.arange(count).reshape(data.draw(_shapes(count)))
    moved = MovedAxes(wanted)
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            permutation = data.draw(st.permutations(range(wanted.ndim)))
            moved.transpose(permutation)
            wanted = wanted.transpose(permutation)
        else:
            shape = data.draw(_shapes(count))
            moved.reshape(shape)
            wanted = wanted.reshape(shape)
    assert moved.shape == wanted.shape
    np.testing.assert_array_equal(moved.array.reshape(-1), wanted.reshape(-1))


def test_weights_of_a_convolution_are_packed_without_a_copy_of_all() -> None:
    block = Block()
    build = Builder(block)
    codes = np.random.default_rng(0).integers(-128, 127, (256, 128, 3, 3), np.int8)
    x = build.constant(Literal(codes, dtype("i8")))
    x = build.value("transpose", x, permutation=(2, 3, 1, 0))
    x = build.value("reshape", x, shape=(288, 4, 16, 16))
    x = build.value("transpose", x, permutation=(2, 0, 3, 1))
    build.return_(x)
    later = WeightArrays(Function("main", Region([block]))).later(x)
    assert later is not None
    wanted = codes.transpose(2, 3, 1, 0).reshape(288, 4, 16, 16).transpose(2, 0, 3, 1)
    tracemalloc.start()
    (part,) = later.parts()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < codes.nbytes / 4
    np.testing.assert_array_equal(part.reshape(-1), wanted.reshape(-1))
    np.testing.assert_array_equal(later.make(), wanted)
