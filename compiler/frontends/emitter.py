"""What lowerings of all front ends make ops with: NumPy's broadcasting, dims that have to agree,
constants and reductions, on top of the `Builder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from numbers import Number
from typing import Any, TypeVar

import numpy as np

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops import lookup
from ingot.compiler.ir import Literal, Value, dims, tensor_type
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__ = ["Emitter", "UnsupportedNode", "shape_of", "type_of", "unsupported"]


_Emitter = TypeVar("_Emitter", bound="Emitter")


class UnsupportedNode(Exception):
    """The op is known, but not in this form. The text says in which and what to do."""


def unsupported(condition: bool, message: str) -> None:
    """Raises UnsupportedNode with `message` if `condition` holds."""
    if condition:
        raise UnsupportedNode(message)


type_of = tensor_type


def shape_of(value: Value) -> tuple[Dim, ...]:
    return type_of(value).shape


class Emitter:
    """Makes ops for one node of a source program."""

    advice = "fix the model"

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    @property
    def builder(self) -> Builder:
        """What the node's ops are made with."""
        return self._builder

    def within(self: _Emitter, builder: Builder) -> _Emitter:
        """The same node as it makes ops in a region that the builder builds."""
        inner = copy(self)
        inner._builder = builder
        return inner

    def normalize_axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front. UnsupportedNode if it is out of range."""
        if not -rank <= axis < rank:
            expected = f"{-rank} to {rank - 1}" if rank else "a tensor of rank 1 or more"
            raise UnsupportedNode(
                f"axis {axis} is out of range for rank {rank}: expected {expected}"
            )
        return axis % rank

    def op(self, name: str, *operands: Value | float, **attributes: Any) -> Value:
        """Emits one graph op and returns its result; the dims of operands that need one shape
        agree from here on. A number is one in every element, like the operand beside it."""
        given = self.tensors_of(operands)
        if lookup(name).same and len({type_of(each).rank for each in given}) == 1:
            given = tuple(self.agree(each, shape_of(given[0])) for each in given)
        result = self._builder.op(name, *given, **attributes)
        assert isinstance(result, Value), f"graph op '{name}' has several results"
        return result

    def several(self, name: str, *operands: Value, **attributes: Any) -> tuple[Value, ...]:
        """Emits one graph op with several results."""
        result = self._builder.op(name, *operands, **attributes)
        return result if isinstance(result, tuple) else (result,)

    def constant(self, values: Any, dtype: DType | str) -> Value:
        """A constant tensor of `values`."""
        element = _dtype(dtype)
        return self._builder.constant(Literal(np.asarray(values).astype(element.numpy), element))

    def literal(self, literal: Literal) -> Value:
        return self._builder.constant(literal)

    def fill(self, number: float, like: Value) -> Value:
        """A tensor of the shape and dtype of `like` whose elements are all `number`."""
        return self._builder.full(number, type_of(like).dtype, shape_of(like))

    def tensors_of(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        """The operands of an op, numbers as tensors like the last of the others: what `select`
        chooses from comes behind its condition."""
        if all(type(each) is Value for each in operands):
            return tuple(operands)
        numbers = [isinstance(each, Number) for each in operands]
        if not any(numbers):
            return tuple(operands)
        pairs = list(zip(operands, numbers, strict=True))
        like = next(each for each, is_number in reversed(pairs) if not is_number)
        return tuple(self.fill(each, like) if is_number else each for each, is_number in pairs)

    def full(self, number: float, dtype: DType | str, shape: Sequence[Dim]) -> Value:
        return self._builder.full(number, _dtype(dtype), tuple(shape))

    def broadcast_to(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` spread to `shape` by NumPy's rules."""
        if shape_of(value) == tuple(shape):
            return value
        return self._builder.broadcast_to(value, tuple(shape))

    def broadcast(self, *values: Value) -> list[Value]:
        """All `values` spread to their common shape by NumPy's rules."""
        shape = self.common_shape(*(shape_of(value) for value in values))
        return [self.broadcast_to(value, shape) for value in values]

    def agree(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` with the dims `shape`, which its own must equal. Symbols of arguments become
        one; what cannot be made equal so, or in a body that may not run, the call checks."""
        if shape_of(value) == tuple(shape):
            return value
        for a, b in zip(shape_of(value), shape, strict=True):
            self.equate(a, b)
        return self.reshape(value, shape)

    def equate(self, a: Dim, b: Dim, kept: Dim = 0) -> None:
        """Two dims are one, as `agree` has it; symbols of `kept` stay if others can go."""
        if a != b and not self._are_one(a, b, kept):
            self._builder.append("assert", (), (), {"a": a, "b": b})

    def agree_on(self, value: Value, axis: int, dim: Dim) -> Value:
        """As `agree`, for one axis."""
        shape = list(shape_of(value))
        shape[axis] = dim
        return self.agree(value, shape)

    def _are_one(self, a: Dim, b: Dim, kept: Dim = 0) -> bool:
        """Whether two dims are equal, or made so; False if only the call can tell.
        UnsupportedNode: they differ."""
        low, high = dims.bounds(a - b)
        unsupported(
            low > 0 or high < 0, f"its operands: the dims {a} and {b} differ: {self.advice}"
        )
        return a == b

    def common_shape(self, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
        """The shape that all `shapes` broadcast to. UnsupportedNode if they do not."""
        rank = max((len(shape) for shape in shapes), default=0)
        common: list[Dim] = [1] * rank
        for shape in shapes:
            for axis, dim in enumerate(shape, rank - len(shape)):
                known = common[axis]
                fixed = isinstance(dim, int) and isinstance(known, int)
                if fixed and dim != known and 1 not in (dim, known):
                    texts = " and ".join(f"[{','.join(map(str, s))}]" for s in shapes)
                    raise UnsupportedNode(f"shapes {texts} do not broadcast: {self.advice}")
                common[axis] = dims.broadcast(known, dim)
        return tuple(common)

    def reshape(self, value: Value, shape: Sequence[Dim]) -> Value:
        if shape_of(value) == tuple(shape):
            return value
        return self.op("reshape", value, shape=tuple(shape))

    def reshaped(self, x: Value, shape: Sequence[Dim]) -> Value:
        """x in another shape, of as many elements; the call checks what is not proven."""
        if shape_of(x) != tuple(shape):
            self.equate(dims.product(shape_of(x)), dims.product(shape))
        return self.reshape(x, shape)

    def flat(self, x: Value) -> Value:
        """All elements along one axis."""
        return self.reshape(x, (dims.product(shape_of(x)),))

    def sliced(self, x: Value, axis: int, start: Dim, limit: Dim, step: int = 1) -> Value:
        """A range of one axis, which it must have."""
        shape, rank = shape_of(x), type_of(x).rank
        if (start, limit, step) == (0, shape[axis], 1):
            return x
        first: list[Dim] = [0] * rank
        last, strides = list(shape), [1] * rank
        first[axis], last[axis], strides[axis] = start, limit, step
        return self.op("slice", x, start=tuple(first), limit=tuple(last), stride=tuple(strides))

    def padded(
        self,
        x: Value,
        low: Sequence[Dim],
        high: Sequence[Dim],
        filling: Value | float = 0,
        interior: Sequence[int] = (),
    ) -> Value:
        """x with so many of a number in front of the elements of each axis, behind, and between."""
        if not isinstance(filling, Value):
            filling = self.full(filling, type_of(x).dtype, ())
        between = tuple(interior) or (0,) * len(low)
        return self.op("pad", x, filling, low=tuple(low), high=tuple(high), interior=between)

    def repeated(self, x: Value, axis: int, times: Dim) -> Value:
        """Each element of an axis so many times."""
        shape = shape_of(x)
        wide = (*shape[: axis + 1], times, *shape[axis + 1 :])
        kept = tuple(place for place in range(len(wide)) if place != axis + 1)
        spread = self.op("broadcast", x, shape=wide, dimensions=kept)
        return self.reshape(spread, (*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))

    def transpose(self, value: Value, permutation: Sequence[int]) -> Value:
        if list(permutation) == list(range(len(permutation))):
            return value
        return self.op("transpose", value, permutation=tuple(permutation))

    def convert(self, value: Value, target: DType | str) -> Value:
        """`value` as dtype `target`; itself if it has that dtype."""
        element = _dtype(target)
        return (
            value if type_of(value).dtype is element else self.op("convert", value, dtype=element)
        )

    def compare(self, direction: str, a: Value | float, b: Value | float) -> Value:
        return self.op("compare", a, b, direction=direction)

    def reduce(self, value: Value, axes: Sequence[int], kind: str, keep: bool = False) -> Value:
        """The reduction of `value` over `axes`, which stay as dims of 1 if `keep`."""
        axes = sorted(axes)
        if not axes:
            return value
        result = self.op("reduce", value, axes=tuple(axes), kind=kind)
        return self.keep_axes(result, shape_of(value), axes) if keep else result

    def broadcast_back(self, value: Value, shape: Sequence[Dim], axes: Sequence[int]) -> Value:
        """`value`, the result of reducing `shape` over `axes`, spread to `shape` again."""
        kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
        if not axes:
            return value
        return self.op("broadcast", value, shape=tuple(shape), dimensions=kept)

    def keep_axes(self, value: Value, shape: Sequence[Dim], axes: Sequence[int]) -> Value:
        """`value`, the result of reducing `shape` over `axes`, with those dims as 1."""
        kept = [1 if axis in axes else dim for axis, dim in enumerate(shape)]
        return self.reshape(value, kept)

    def gather_along(self, value: Value, indices: Value, axis: int, mode: str) -> Value:
        """Elements at `indices` along the axis, all other places being those of the indices."""
        rank = type_of(value).rank
        others = tuple(each for each in range(rank) if each != axis)
        return self.op(
            "gather",
            value,
            indices,
            offset_dims=(),
            collapsed_slice_dims=(axis,),
            operand_batching_dims=others,
            start_indices_batching_dims=others,
            start_index_map=(axis,),
            index_vector_dim=rank,
            slice_sizes=(1,) * rank,
            mode=mode,
        )

    def sizes(self, values: Sequence[Dim], element: DType | str = "i64") -> Value:
        """A rank-1 tensor of dims, as constant where they are integers."""
        if all(isinstance(value, int) for value in values):
            return self.constant(np.asarray(values, np.int64).reshape(len(values)), element)
        parts = [self.reshape(self.size(value, element), (1,)) for value in values]
        return parts[0] if len(parts) == 1 else self.op("concatenate", *parts, axis=0)

    def size(self, value: Dim, element: DType | str = "i64") -> Value:
        """A rank-0 tensor of one dim, of an integer or floating-point dtype."""
        if isinstance(value, int):
            return self.constant(value, element)
        if _dtype(element).is_integer:
            return self.op("dim", value=value, dtype=_dtype(element))
        return self.op("convert", self.size(value), dtype=_dtype(element))


def _dtype(name: DType | str) -> DType:
    return dtype(name) if isinstance(name, str) else name
