"""Builds graph ops: infers result types by the op table and says clearly what does not fit.

Importers and passes make every op through a `Builder`. It appends to one block and knows
nothing of source formats. Broadcasting is never implicit; `broadcast_to` makes it an op.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ingot.compiler.graph.ops import Constant, RuleError, infer_types, lookup
from ingot.compiler.ir import Block, Literal, Op, Region, TensorType, Value, tensor_type
from ingot.compiler.ir import dims as ir_dims
from ingot.compiler.ir.attributes import NO_ATTRIBUTES, Attributes
from ingot.compiler.ir.dims import Dim
from ingot.compiler.ir.literals import literal_from_numbers
from ingot.hal.errors import CompileError, Unsupported
from ingot.hal.spec import DType
from ingot.hal.spec import dtype as dtype_named

__all__ = ["Builder", "SharingBuilder", "tensor_type"]


class Builder:
    """Appends ops to `block` (or to a list of ops), each at the current location."""

    def __init__(self, block: Block | list[Op], location: str = "") -> None:
        self.ops = block.ops if isinstance(block, Block) else block
        self.location = location

    @contextmanager
    def at(self, location: str) -> Iterator[None]:
        """Ops built inside carry `location`, the name of their source layer."""
        before, self.location = self.location, location
        try:
            yield
        finally:
            self.location = before

    def op(self, name: str, *operands: Value, regions: Any = (), **attributes: Any) -> Any:
        """Append an op; return its Value, or a tuple of them unless it has exactly one.

        `regions` is a sequence of Region. Raises CompileError that names op, location and
        operand types.
        """
        results = self.append(name, operands, regions, attributes).results
        return results[0] if len(results) == 1 else tuple(results)

    def value(self, name: str, *operands: Value, **attributes: Any) -> Value:
        """As `op`, for an op without regions that has one result."""
        return self.append(name, operands, (), attributes).result

    def append(
        self,
        name: str,
        operands: Sequence[Value],
        regions: Sequence[Region] = (),
        attributes: Attributes | Mapping[str, Any] = NO_ATTRIBUTES,
    ) -> Op:
        """As `op`, but returns the Op; the attributes are those of the op, or its keywords."""
        row = lookup(name)
        types = [operand.type for operand in operands]
        try:
            if not isinstance(attributes, row.attributes):
                given = vars(attributes) if isinstance(attributes, Attributes) else attributes
                attributes = row.attributes.read(given, types)
            results = infer_types(name, types, attributes, regions)
        except RuleError as error:
            place = f" at '{self.location}'" if self.location else ""
            listed = ", ".join(map(str, types))
            raise CompileError(f"op '{name}'{place} on ({listed}): {error}") from None
        op = Op(name, operands, results, attributes, regions, self.location)
        self.ops.append(op)
        return op

    def like(self, op: Op, *operands: Value, attributes: Attributes | None = None) -> Value:
        """The op, which has one result and no regions, on these operands."""
        return self.append(op.name, operands, (), attributes or op.attributes).result

    def constant(self, value: Any, dtype: str | DType | None = None) -> Value:
        """A constant from a Literal, or from anything NumPy makes an array of."""
        if not isinstance(value, Literal):
            value = _literal(value, None if dtype is None else dtype_named(dtype))
        type = TensorType(value.dtype, value.shape)  # all that the op's rule would say
        op = Op("constant", (), (type,), Constant(value), (), self.location)
        self.ops.append(op)
        return op.results[0]

    def full(self, value: Any, dtype: str | DType, shape: Sequence[Dim] = ()) -> Value:
        """`value` in every element: a rank-0 constant and, unless `shape` is (), a broadcast."""
        if not shape:
            return self.constant(value, dtype)
        scalar = self.full(value, dtype)
        return self.value("broadcast", scalar, shape=tuple(shape), dimensions=())

    def number(self, value: Dim, dtype: str | DType, shape: Sequence[Dim] = ()) -> Value:
        """A number or a dim in every element."""
        if isinstance(value, int):
            return self.full(value, dtype, shape)
        element = dtype_named(dtype)
        whole = element if element.is_integer else dtype_named("i64")
        scalar = self.value("dim", value=value, dtype=whole)
        if whole != element:
            scalar = self.value("convert", scalar, dtype=element)
        return self.broadcast_to(scalar, shape)

    def broadcast_to(self, x: Value, shape: Sequence[Dim]) -> Value:
        """x broadcast to `shape` by NumPy's rules: axes align at the end. x itself if equal."""
        type = tensor_type(x)
        if type.shape == tuple(shape):
            return x
        first = len(shape) - type.rank
        if first < 0:
            raise CompileError(
                f"{type} has more dims than the shape {tuple(shape)} to broadcast to"
            )
        dimensions = tuple(range(first, len(shape)))
        return self.value("broadcast", x, shape=tuple(shape), dimensions=dimensions)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """x in another shape, of as many elements. x itself if it has that shape."""
        if tensor_type(x).shape == tuple(shape):
            return x
        return self.value("reshape", x, shape=tuple(shape))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """x with its axes in this order. x itself if they are."""
        if list(permutation) == list(range(len(permutation))):
            return x
        return self.value("transpose", x, permutation=tuple(permutation))

    def broadcast_together(self, *values: Value) -> list[Value]:
        """The values broadcast to their common shape by NumPy's rules."""
        shape: tuple[Dim, ...] = ()
        for value in values:
            shape = broadcast_shapes(shape, tensor_type(value).shape)
        return [self.broadcast_to(value, shape) for value in values]

    def return_(self, *values: Value) -> Op:
        """End the function with these results."""
        return self.append("return", values)

    def yield_(self, *values: Value) -> Op:
        """End the region with these results."""
        return self.append("yield", values)


class SharingBuilder(Builder):
    """Makes the same number once, and so one op less for each pass: for a block to which ops are
    only added."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._numbers: dict[Any, Value] = {}

    def full(self, value: Any, dtype: str | DType, shape: Sequence[Dim] = ()) -> Value:
        if type(value) not in (bool, int, float):
            return super().full(value, dtype, shape)
        key = repr(value), dtype, tuple(shape)  # 0.0 is not -0.0
        if key not in self._numbers:
            self._numbers[key] = super().full(value, dtype, shape)
        return self._numbers[key]


def _literal(value: Any, dtype: DType | None) -> Literal:
    """What NumPy makes an array of, as a literal; numbers also of a dtype that NumPy lacks."""
    if dtype is None:
        array = np.asarray(value)
        return Literal(array, DType.from_numpy(array.dtype))
    try:
        with np.errstate(over="ignore"):  # a number that is too large is infinite
            return Literal(np.asarray(value, dtype.numpy), dtype)
    except Unsupported:
        array = np.asarray(value)
        return literal_from_numbers(array.reshape(-1).tolist(), array.shape, dtype)


def broadcast_shapes(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape that two shapes broadcast to by NumPy's rules. CompileError: they do not."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for x, y in zip(a, b, strict=True):
        if isinstance(x, int) and isinstance(y, int) and x != y and 1 not in (x, y):
            raise CompileError(f"the shapes {list(a)} and {list(b)} do not broadcast: {x}, {y}")
    return tuple(ir_dims.broadcast(x, y) for x, y in zip(a, b, strict=True))
