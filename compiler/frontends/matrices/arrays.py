"""Batches of real or complex matrices to write algorithms with: operators as in NumPy, and loops
whose bodies are Python functions.

Kernels compute with real numbers only, so an array is one tensor, or two: its real and its
imaginary part. Axis 0 is the batch. Ops go to the builder that the scope has at the moment, which
is that of the body while a loop is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Union

import numpy as np

from ingot.compiler.frontends.complex_numbers import BINARY, UNARY, Complex, absolute
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop, while_loop
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__ = ["I64", "Array", "Scope"]

I64 = dtype("i64")


Number = Union["Array", float, dims.Expr]


@dataclass(frozen=True, eq=False)
class Array:
    """A tensor of real numbers, truths or indices, or the two parts of a complex one."""

    scope: Scope
    parts: tuple[Value, ...]

    @property
    def value(self) -> Value:
        """The tensor of an array that is not complex."""
        (value,) = self.parts
        return value

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tensor_type(self.parts[0]).shape

    @property
    def dtype(self) -> DType:
        """That of the parts."""
        return tensor_type(self.parts[0]).dtype

    @property
    def epsilon(self) -> float:
        """The distance of 1 to the next number."""
        return float(np.finfo(self.dtype.numpy).eps)

    @property
    def is_complex(self) -> bool:
        return len(self.parts) == 2

    def each(self, name: str, *others: Value, **attributes: Any) -> Array:
        """A graph op on each part."""
        builder = self.scope.builder
        return Array(
            self.scope,
            tuple(builder.value(name, part, *others, **attributes) for part in self.parts),
        )

    def _paired(self, other: Number) -> tuple[Array, Array]:
        """Both with one shape and count of parts."""
        if not isinstance(other, Array):
            other = self.scope.full(other, self.dtype)
        shape = self.scope.common_shape(self.shape, other.shape)
        a, b = self.broadcast_to(shape), other.broadcast_to(shape)
        return (a.as_complex(), b.as_complex()) if a.is_complex or b.is_complex else (a, b)

    def _binary(self, name: str, other: Number) -> Array:
        a, b = self._paired(other)
        builder = self.scope.builder
        pairs = zip(a.parts, b.parts, strict=True)
        return Array(self.scope, tuple(builder.value(name, *pair) for pair in pairs))

    def __add__(self, other: Number) -> Array:
        return self._binary("add", other)

    def __sub__(self, other: Number) -> Array:
        return self._binary("sub", other)

    def __rsub__(self, other: float | Dim) -> Array:
        return -self + other

    def __mul__(self, other: Number) -> Array:
        if isinstance(other, Array) and self.is_complex and other.is_complex:
            return self._by_parts("multiply", other)
        if isinstance(other, Array) and other.is_complex:
            return other * self
        if not self.is_complex:
            return self._binary("mul", other)
        return self.scope.joined(*(part._binary("mul", other) for part in self.split()))

    def __truediv__(self, other: Number) -> Array:
        if isinstance(other, Array) and other.is_complex:
            return self._by_parts("divide", other)
        if not self.is_complex:
            return self._binary("div", other)
        return self.scope.joined(*(part._binary("div", other) for part in self.split()))

    def __rtruediv__(self, other: float | Dim) -> Array:
        return self.scope.full(other, self.dtype) / self

    def _by_parts(self, name: str, other: Array) -> Array:
        a, b = self._paired(other)
        (ar, ai), (br, bi) = a.parts, b.parts
        return Array(self.scope, BINARY[name](Complex(self.scope.builder), (ar, ai), (br, bi)))

    def __neg__(self) -> Array:
        return self.each("neg")

    def __matmul__(self, other: Array) -> Array:
        """[b, m, k] @ [b, k, n], of complex numbers one product of their parts side by side."""
        scope, left, right = self.scope, self, other
        if self.is_complex and other.is_complex:
            real, imaginary = other.split()
            rows = [[real, imaginary], [-imaginary, real]]
            left = scope.concatenate(self.split(), 2)
            right = scope.concatenate([scope.concatenate(row, 2) for row in rows], 1)
        elif self.is_complex:
            left = scope.concatenate(self.split(), 1)
        elif other.is_complex:
            right = scope.concatenate(other.split(), 2)
        numbers = {"lhs_batch": (0,), "rhs_batch": (0,), "lhs_contract": (2,), "rhs_contract": (1,)}
        made = left.each("dot_general", right.value, **numbers, exact=True)
        if not (self.is_complex or other.is_complex):
            return made
        axis = 2 if other.is_complex else 1
        size = other.shape[2] if other.is_complex else self.shape[1]
        return scope.joined(made.cut(axis, 0, size), made.cut(axis, size, size * 2))

    def compare(self, direction: str, other: Number) -> Array:
        a, b = self._paired(other)
        value = self.scope.builder.value("compare", a.value, b.value, direction=direction)
        return Array(self.scope, (value,))

    def __lt__(self, other: Number) -> Array:
        return self.compare("lt", other)

    def __le__(self, other: Number) -> Array:
        return self.compare("le", other)

    def __gt__(self, other: Number) -> Array:
        return self.compare("gt", other)

    def __ge__(self, other: Number) -> Array:
        return self.compare("ge", other)

    def equals(self, other: Number) -> Array:
        return self.compare("eq", other)

    def __and__(self, other: Array) -> Array:
        return self._binary("and", other)

    def __or__(self, other: Array) -> Array:
        return self._binary("or", other)

    def __invert__(self) -> Array:
        return self.each("not")

    def split(self) -> tuple[Array, ...]:
        """The parts as real arrays."""
        return tuple(Array(self.scope, (part,)) for part in self.parts)

    @property
    def real(self) -> Array:
        return self.split()[0]

    @property
    def imaginary(self) -> Array:
        return self.split()[1] if self.is_complex else self.scope.like(0, self)

    def as_complex(self) -> Array:
        return self if self.is_complex else self.scope.joined(self, self.scope.like(0, self))

    def conj(self) -> Array:
        return self.scope.joined(self.real, -self.imaginary) if self.is_complex else self

    def abs(self) -> Array:
        """|x|, without a square of the greater part."""
        if not self.is_complex:
            return self.each("abs")
        real, imaginary = self.parts
        return Array(self.scope, (absolute(Complex(self.scope.builder), (real, imaginary)),))

    def size(self) -> Array:
        """The sum of the absolute values of the parts, by which LAPACK picks pivots."""
        first, *rest = (part.each("abs") for part in self.split())
        return first + rest[0] if rest else first

    def square(self) -> Array:
        """|x|^2."""
        first, *rest = (part * part for part in self.split())
        return first + rest[0] if rest else first

    def is_finite(self) -> Array:
        first, *rest = (part.each("is_finite") for part in self.split())
        return first & rest[0] if rest else first

    def sqrt(self) -> Array:
        if not self.is_complex:
            return self.each("sqrt")
        real, imaginary = self.parts
        return Array(self.scope, UNARY["sqrt"](Complex(self.scope.builder), (real, imaginary)))

    def reduce(self, kind: str, axis: int) -> Array:
        return self.each("reduce", axes=(axis,), kind=kind)

    def sum(self, axis: int) -> Array:
        return self.reduce("add", axis)

    def max(self, axis: int) -> Array:
        return self.reduce("max", axis)

    def greater_of(self, other: Number) -> Array:
        return self._binary("max", other)

    def arg_max(self, axis: int) -> Array:
        return self.each("arg_max", axis=axis, dtype=I64)

    def convert(self, wanted: DType) -> Array:
        return self if self.dtype is wanted else self.each("convert", dtype=wanted)

    def broadcast_to(self, shape: Sequence[Dim]) -> Array:
        builder = self.scope.builder
        return Array(
            self.scope, tuple(builder.broadcast_to(part, tuple(shape)) for part in self.parts)
        )

    def reshape(self, *shape: Dim) -> Array:
        return self if shape == self.shape else self.each("reshape", shape=shape)

    def unsqueeze(self, axis: int) -> Array:
        """With a dim of 1 at `axis`."""
        return self.reshape(*self.shape[:axis], 1, *self.shape[axis:])

    @property
    def T(self) -> Array:  # noqa: N802 - as in NumPy
        """[b, m, n] -> [b, n, m]."""
        return self.each("transpose", permutation=(0, 2, 1))

    @property
    def H(self) -> Array:  # noqa: N802
        """The adjoint matrices."""
        return self.T.conj()

    def reverse(self, *axes: int) -> Array:
        return self.each("reverse", axes=axes)

    def at(self, index: Array, axis: int) -> Array:
        """What stands at `index` of an axis, without that axis."""
        return self.each("take", index.value, axis=axis, mode="clamp")

    def take(self, indices: Array, axis: int) -> Array:
        """Elements of one axis at i64[k], the same for all batches."""
        return self.each("take", indices.value, axis=axis, mode="clamp")

    def rows(self, order: Array) -> Array:
        """Row `order[b, i]` of [b, m, n], or element of [b, m], as row i of each batch."""
        if len(self.shape) == 2:
            return self.unsqueeze(2).rows(order).reshape(*order.shape)
        return self.each(
            "gather",
            order.value,
            offset_dims=(2,),
            collapsed_slice_dims=(1,),
            operand_batching_dims=(0,),
            start_indices_batching_dims=(0,),
            start_index_map=(1,),
            index_vector_dim=2,
            slice_sizes=(1, 1, self.shape[2]),
        )

    def window(self, axis: int, start: Array, size: Dim) -> Array:
        """`size` elements of an axis from an index of rank 0 that depends on data."""
        zero = self.scope.index(0).value
        starts = [start.value if a == axis else zero for a in range(len(self.shape))]
        sizes = tuple(size if a == axis else dim for a, dim in enumerate(self.shape))
        return self.each("dynamic_slice", *starts, sizes=sizes)

    def put(self, axis: int, start: Array, block: Array) -> Array:
        """The array with `block` at an index of rank 0 along an axis."""
        zero = self.scope.index(0).value
        starts = [start.value if a == axis else zero for a in range(len(self.shape))]
        builder = self.scope.builder
        pairs = zip(self.parts, block.parts, strict=True)
        return Array(
            self.scope,
            tuple(builder.value("dynamic_update_slice", *pair, *starts) for pair in pairs),
        )

    def cut(self, axis: int, start: Dim, limit: Dim) -> Array:
        """Elements from `start` to `limit` of an axis."""
        if start == 0 and limit == self.shape[axis]:
            return self
        first = tuple(start if a == axis else 0 for a in range(len(self.shape)))
        last = tuple(limit if a == axis else dim for a, dim in enumerate(self.shape))
        return self.each("slice", start=first, limit=last)

    def padded(self, *sizes: Dim) -> Array:
        """[b, m, n, ...] with zeros behind, so that the axes after the first have these sizes."""
        if self.shape[1:] == sizes:
            return self
        zero = self.scope.full(0, self.dtype).value
        rest = (size - dim for size, dim in zip(sizes, self.shape[1:], strict=True))
        none = (0,) * len(self.shape)
        return self.each("pad", zero, low=none, high=(0, *rest))

    def diagonal(self, down: int = 0, right: int = 0) -> Array:
        """[b, n, n] -> [b, n]; [b, n - 1] if it starts a row further `down`, or a column further
        `right`."""
        batch, size, _ = self.shape
        count = self.scope.count((size - down - right,), 0)
        flat = self.reshape(batch, size * size)
        return flat.take(count * (size + 1) + (down * size + right), 1)


class Scope:
    """Where arrays make their ops."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def real(self, value: Value) -> Array:
        return Array(self, (value,))

    def joined(self, real: Array, imaginary: Array) -> Array:
        return Array(self, (real.value, imaginary.value))

    def full(self, number: float | Dim, dtype: DType, shape: Sequence[Dim] = ()) -> Array:
        if isinstance(number, dims.Expr):
            return self.real(self.builder.number(number, dtype, tuple(shape)))
        return self.real(self.builder.full(number, dtype, tuple(shape)))

    def like(self, number: float, x: Array) -> Array:
        """`number` in the shape and dtype of the parts of x."""
        return self.full(number, x.dtype, x.shape)

    def zeros(self, x: Array, shape: Sequence[Dim] | None = None) -> Array:
        """Zeros with as many parts as x."""
        zero = self.full(0, x.dtype, x.shape if shape is None else shape)
        return Array(self, zero.parts * len(x.parts))

    def index(self, number: Dim) -> Array:
        """An index of rank 0."""
        return self.full(number, I64)

    def count(self, shape: Sequence[Dim], axis: int) -> Array:
        """The index along an axis at every element."""
        return self.real(self.builder.value("iota", dtype=I64, shape=tuple(shape), axis=axis))

    def identity(self, batch: Dim, rows: Dim, like: Array, columns: Dim | None = None) -> Array:
        """[b, rows, columns] with ones on the diagonal, with the parts of `like`."""
        shape = (batch, rows, rows if columns is None else columns)
        on = self.count(shape, 1).equals(self.count(shape, 2)).convert(like.dtype)
        return on.as_complex() if like.is_complex else on

    @staticmethod
    def common_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
        rank = max(len(a), len(b))
        a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
        return tuple(dims.broadcast(x, y) for x, y in zip(a, b, strict=True))

    def where(self, predicate: Array, a: Number, b: Number) -> Array:
        """a where the predicate holds, else b; all three are broadcast."""
        known = a if isinstance(a, Array) else b
        assert isinstance(known, Array)
        a, b = (x if isinstance(x, Array) else self.full(x, known.dtype) for x in (a, b))
        a, b = a._paired(b)
        shape = self.common_shape(predicate.shape, a.shape)
        test, a, b = (x.broadcast_to(shape) for x in (predicate, a, b))
        pairs = zip(a.parts, b.parts, strict=True)
        return Array(self, tuple(self.builder.value("select", test.value, *pair) for pair in pairs))

    def concatenate(self, arrays: Sequence[Array], axis: int) -> Array:
        columns = zip(*(each.parts for each in arrays), strict=True)
        return Array(
            self, tuple(self.builder.value("concatenate", *each, axis=axis) for each in columns)
        )

    @contextmanager
    def _inside(self, builder: Builder) -> Iterator[None]:
        before, self.builder = self.builder, builder
        try:
            yield
        finally:
            self.builder = before

    def _arrays(self, values: Sequence[Value], like: Sequence[Array]) -> list[Array]:
        rest = iter(values)
        return [Array(self, tuple(next(rest) for _ in each.parts)) for each in like]

    def loop(
        self,
        count: Dim | Array,
        initial: Sequence[Array],
        body: Callable[..., Sequence[Array]],
    ) -> list[Array]:
        """`body(index, *carried)` for 0, 1, ... below `count`."""
        if isinstance(count, int) and count <= 0:
            return list(initial)

        def step(inner: Builder, index: Value, values: Sequence[Value]) -> Sequence[Value]:
            with self._inside(inner):
                results = body(self.real(index), *self._arrays(values, initial))
            return [part for each in results for part in each.parts]

        total = count if isinstance(count, Array) else self.index(count)
        flat = [part for each in initial for part in each.parts]
        return self._arrays(counted_loop(self.builder, total.value, flat, step), initial)

    def repeat(
        self,
        initial: Sequence[Array],
        condition: Callable[..., Array],
        body: Callable[..., Sequence[Array]],
    ) -> list[Array]:
        """`body(*carried)` while `condition(*carried)`, an i1 of rank 0, holds."""

        def test(inner: Builder, values: Sequence[Value]) -> Value:
            with self._inside(inner):
                return condition(*self._arrays(values, initial)).value

        def step(inner: Builder, values: Sequence[Value]) -> Sequence[Value]:
            with self._inside(inner):
                results = body(*self._arrays(values, initial))
            return [part for each in results for part in each.parts]

        flat = [part for each in initial for part in each.parts]
        return self._arrays(while_loop(self.builder, flat, test, step), initial)
