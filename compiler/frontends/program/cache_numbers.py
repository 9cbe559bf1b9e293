"""Numbers of a cache that calls check, and rows that they put into its variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.program.creation import astype
from ingot.compiler.frontends.program.elementwise import where
from ingot.compiler.frontends.program.manipulation import broadcast_to, reshape
from ingot.compiler.frontends.program.reductions import max as greatest_of_some
from ingot.compiler.frontends.program.tensor import Tensor, as_size, current, given, value_of
from ingot.compiler.ir.dims import Dim, symbol

__all__ = ["at_most", "greatest", "limit", "of_each", "put", "put_at", "shown", "within"]


def shown(shape: Any) -> str:
    return f"[{', '.join(map(str, shape))}]"


def limit(number: Tensor, most: Dim, what: str) -> Dim:
    """A number of 0 to `most` as a dim. Another one ends the call."""
    trace = current()
    name = trace.fresh("size")
    limits: Mapping[str, Any] = {"low": 0, "high": most, "what": what, "status": "OutOfRange"}
    number = reshape(astype(number, "i64"), ())
    trace.builder.append("size", (value_of(number),), (), {"symbols": (name,), **limits})
    return symbol(name)


def greatest(x: Tensor) -> Tensor:
    """The greatest of the numbers and 0, which is also that of none."""
    found = greatest_of_some(x)
    return where(found > 0, found, 0)


def within(x: Tensor, most: Dim, what: str) -> Tensor:
    """x, whose elements are checked: 0 to `most`."""
    high, low = greatest(x), -greatest(-x)
    return at_most(x, as_size(limit(where(low < 0, low, high), most, what)))


def of_each(x: Any, slots: Tensor, name: str) -> Tensor:
    """One number for each of these, i64[rows]."""
    x = given(value_of(x))
    if x.shape not in ((), slots.shape):
        raise UnsupportedNode(f"{name} is {x}, expected the shape {shown(slots.shape)}")
    return broadcast_to(astype(x, "i64"), slots.shape)


def at_most(x: Tensor, most: Any) -> Tensor:
    """x, which is no more than that: so that the check behind it is not dropped."""
    return where(x < most, x, most)


def put(x: Tensor, rows: Tensor, values: Tensor, kind: str = "set") -> Tensor:
    """x with values in rows, or combined with them; rows that there are not are left out."""
    return put_at(x, (rows,), values, (0,), kind)


def put_at(
    x: Tensor,
    places: tuple[Tensor, ...],
    values: Tensor,
    axes: tuple[int, ...] = (0, 1),
    kind: str = "set",
) -> Tensor:
    """The same at places along some axes."""
    builder = current().builder
    columns = [value_of(reshape(astype(each, "i64"), (-1, 1))) for each in places]
    at = builder.value("concatenate", *columns, axis=1) if len(columns) > 1 else columns[0]
    rest = tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes)
    values = astype(reshape(values, (-1, *rest)), x.dtype)
    return given(
        builder.value(
            "scatter", value_of(x), at, value_of(values),
            update_window_dims=tuple(range(1, len(rest) + 1)), inserted_window_dims=axes,
            scatter_dims_to_operand_dims=axes, index_vector_dim=1, kind=kind,
        )
    )  # fmt: skip
