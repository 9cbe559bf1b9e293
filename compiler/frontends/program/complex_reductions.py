"""Products and variances of complex numbers."""

from __future__ import annotations

import math
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.matrices import Array, Scope, batched, product_of
from ingot.compiler.frontends.program.complex import of_parts, parts_of
from ingot.compiler.frontends.program.manipulation import axes_of
from ingot.compiler.frontends.program.tensor import COMPLEX, FUNCTIONS, Tensor, current, given

__all__: list[str] = []


def _of_dtype(x: Any, dtype: Any) -> Any:
    return x if dtype is None else FUNCTIONS["astype"](x, dtype)


def _joined(x: Array) -> Tensor:
    real, imaginary = x.parts
    return of_parts((real, imaginary))


def _prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    x = _of_dtype(x, dtype)
    axes, shape = axes_of(axis, x.ndim), x.shape
    kept = [each for each in range(x.ndim) if each not in axes]
    rows = FUNCTIONS["permute_dims"](x, (*kept, *axes))
    before = tuple(shape[each] for each in kept)
    rows = FUNCTIONS["reshape"](rows, (*before, math.prod(shape[each] for each in axes)))
    found = _joined(product_of(batched(Scope(current().builder), rows.parts, rank=1)))
    product = FUNCTIONS["reshape"](found, before)
    return FUNCTIONS["expand_dims"](product, axis=axes) if keepdims else product


def _cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    x = _of_dtype(x, dtype)
    if axis is None and x.ndim != 1:
        raise UnsupportedNode(f"x is {x}, so the axis must be given")
    place = axes_of(axis, x.ndim)[0]
    if include_initial:
        widths = [(int(each == place), 0) for each in range(x.ndim)]
        x = FUNCTIONS["pad"](x, widths, constant_values=1)
    array = Array(Scope(current().builder), FUNCTIONS["moveaxis"](x, place, 0).parts)

    def step(index: Array, made: Array, before: Array) -> list[Array]:
        number = before * array.at(index, 0)
        return [made.put(0, index, number.unsqueeze(0)), number]

    first = array.scope.full(1, array.dtype, array.shape[1:]).as_complex()
    made, _ = array.scope.loop(array.shape[0], [array, first], step)
    return FUNCTIONS["moveaxis"](_joined(made), 0, place)


def _var(x: Any, /, **named: Any) -> Any:
    """The mean of |x - mean|^2, which is that of the real and that of the imaginary parts."""
    real, imaginary = (FUNCTIONS["var"](given(part), **named) for part in parts_of(x))
    return real + imaginary


def _std(x: Any, /, **named: Any) -> Any:
    return FUNCTIONS["sqrt"](_var(x, **named))


COMPLEX["cumulative_prod"] = _cumulative_prod
COMPLEX["prod"] = _prod
COMPLEX["std"] = _std
COMPLEX["var"] = _var
