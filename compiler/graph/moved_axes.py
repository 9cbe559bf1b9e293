"""Reshapes and transposes of an array one after the other, without a copy.

An axis can be taken apart in a view, but not put together with another that does not lie beside
it. So axes are only taken apart here: a dim of the result is a row of axes, and its elements have
the order of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ingot.compiler.graph.references.numbers import Array

__all__ = ["MovedAxes"]


class MovedAxes:
    """An array of which other axes are seen."""

    def __init__(self, array: Array) -> None:
        self._set(array, [[size] for size in array.shape])

    def _set(self, array: Array, dims: list[list[int]]) -> None:
        """`dims`: of each dim the sizes of its axes."""
        self.dims = dims
        self.array = array.reshape([size for each in dims for size in each])

    def transpose(self, permutation: Sequence[int]) -> None:
        """Dim i becomes what `permutation[i]` was."""
        first = np.cumsum([0, *map(len, self.dims)])
        axes = [range(first[place], first[place + 1]) for place in permutation]
        array = self.array.transpose([axis for each in axes for axis in each])
        self._set(array, [self.dims[place] for place in permutation])

    def reshape(self, shape: Sequence[int]) -> None:
        """See other dims, of as many elements; where an axis has no part of the length that a dim
        needs, in a copy."""
        dims = _split([size for each in self.dims for size in each], shape)
        if dims is None:
            self._set(np.ascontiguousarray(self.array), [[size] for size in shape])
        else:
            self._set(self.array, dims)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(prod, self.dims))


def _split(axes: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """The axes of each dim of a shape: those that there are, or parts of them; None: none fit."""
    rest = [size for size in axes[::-1] if size != 1]
    if 0 in rest:
        return None
    dims: list[list[int]] = []
    for size in shape:
        dim: list[int] = []
        while size != 1:
            axis = rest.pop()
            if axis > size:
                if axis % size:
                    return None
                rest.append(axis // size)
                axis = size
            if size % axis:
                return None
            dim.append(axis)
            size //= axis
        dims.append(dim)
    return dims
