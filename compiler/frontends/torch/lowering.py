"""The table of lowerings, and what one of them works with.

A lowering is a function that makes the graph ops of one op of torch. It takes the arguments of
the op's schema, in order; those that a program leaves out have the schema's defaults:

    @lowering("aten.relu.default")
    def relu(c: Context, x: Value) -> Value:
        return c.op("max", x, 0)

Tensors come as values; integers, also symbolic ones, as dims; the other arguments as Python has
them. It returns a value, a dim or a list for several results. `add_` and its like, which write
into their first argument, need none: they are made of `add`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode, type_of
from ingot.compiler.frontends.symbols import Truth
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import TensorType, Value, dims
from ingot.compiler.ir.dims import Dim, Expr
from ingot.hal.spec import DType, dtype

__all__ = [
    "ALIASES",
    "COMPOSED",
    "CONVERSIONS",
    "LOWERINGS",
    "PARTS",
    "REFUSED",
    "TRAINING",
    "VIEWS",
    "Context",
    "Graph",
    "Layout",
    "Number",
    "Scalar",
    "Wrapped",
    "functional_op",
    "lowering",
    "per_axis",
    "refuse",
]

Number = int | float | Expr
Scalar = Value | int | float | Expr | Truth
Layout = tuple[list[Dim], Dim]
"""The strides of a tensor and the offset of its first element, both in elements."""
Lowering = Callable[..., Any]
_Function = TypeVar("_Function", bound=Lowering)

LOWERINGS: dict[str, Lowering] = {}
ALIASES: dict[str, str] = {}
"""Ops that are another one, and take the same arguments."""
COMPOSED: set[str] = set()
"""Ops whose lowering is for programs that torch did not decompose."""
REFUSED: dict[str, str] = {}
"""Ops that are known, and why they are not taken."""
TRAINING = "it is in training mode: call model.eval() before the model is exported or compiled"
CONVERSIONS = ("aten.to.", "aten.type_as.")
"""Ops whose result is the first argument itself where it has the dtype already."""
PARTS = frozenset(
    f"higher_order.{name}"
    for name in ("wrap_with_set_grad_enabled", "wrap_with_autocast", "tag_activation_checkpoint",
                 "wrap")
)  # fmt: skip
"""Ops that run a graph as a part of the program, which are seen through."""
_TURNED = (
    "aten.t",
    "aten.swapaxes",
    "aten.swapdims",
    "aten.squeeze",
    "aten.unsqueeze",
    "aten.as_strided",
)
VIEWS: dict[str, bool] = {}
"""Ops whose result shares the memory of the first argument; False where it only may do so."""


def lowering(*names: str, view: bool | None = None) -> Callable[[_Function], _Function]:
    """Register the decorated function for these ops, such as "aten.add.Tensor"."""

    def register(function: _Function) -> _Function:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"op '{name}' has a lowering already")
            LOWERINGS[name] = function
            if view is not None:
                VIEWS[name] = view
        return function

    return register


def functional_op(name: str) -> str:
    """The op that makes what one such as `aten.add_.Tensor` writes; "" if it is none of these, or
    changes the axes of its argument, which others that share its elements do not see."""
    if name == "prims.copy_to.default":
        return "aten.copy.default"
    match = re.fullmatch(r"(aten\.\w*[a-z0-9])_(\.\w+)", name)
    return "".join(match.groups()) if match and match[1] not in _TURNED else ""


def refuse(reason: str, *names: str) -> None:
    """Note why these ops are not taken, and what to do."""
    REFUSED.update(dict.fromkeys(names, reason))


class Wrapped:
    """A tensor that is kept as others, such as codes and scales, of which `part` gives one by its
    name."""

    def __init__(self, part: Callable[[str], Any]) -> None:
        self.part = part


class Graph:
    """A graph among the arguments of a node; `lower` makes its ops with a builder."""

    def __init__(self, lower: Callable[[Builder, Sequence[Any]], list[Any]]) -> None:
        self.lower = lower


class Context(Emitter):
    """One node as its lowering sees it. `declared` are the types that the program notes of its
    results; None for one that is no tensor. `layout` tells how an argument lay in memory."""

    def __init__(
        self,
        builder: Builder,
        amounts: Amounts,
        declared: Sequence[TensorType | None],
        fresh: Callable[[str], str],
        bounds: Callable[[str], tuple[int | None, int | None]],
        hint: str,
        layout: Callable[[int], Layout],
    ) -> None:
        super().__init__(builder)
        self.layout = layout
        self.amounts = amounts
        self.declared = declared
        self.fresh = fresh
        self.bounds = bounds
        self.hint = hint

    def declaring(self, *declared: TensorType | None) -> Context:
        """The same node with other types of its results."""
        inner = copy(self)
        inner.declared = declared
        return inner

    @property
    def dtype(self) -> DType:
        """Of the first result."""
        return self._first.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Of the first result."""
        return self._first.shape

    @property
    def _first(self) -> TensorType:
        if not self.declared or self.declared[0] is None:
            raise UnsupportedNode("its result has no type: export the model again")
        return self.declared[0]

    def _are_one(self, a: Dim, b: Dim, kept: Dim = 0) -> bool:
        low, high = dims.bounds(a - b, self.amounts.symbols.bounds)
        if low > 0 or high < 0:
            raise UnsupportedNode(f"the dims {a} and {b} differ: export the model again")
        return low == high == 0

    def fresh_names(self) -> Iterator[str]:
        while True:
            yield self.fresh(self.hint)

    def fill(self, number: float, like: Value) -> Value:
        return super().fill(_fitting(number, type_of(like).dtype), like)

    def scalar(self, x: Scalar, element: DType | str) -> Value:
        """A number or a tensor as a value of that dtype; a number has rank 0."""
        if isinstance(x, Value):
            return self.convert(x, element)
        if isinstance(x, Expr):
            return self.size(x, element)
        if isinstance(x, tuple):
            return self.convert(self.truth(x), element)
        kind = dtype(element) if isinstance(element, str) else element
        return self.builder.full(_fitting(x, kind), kind)

    def truth(self, condition: Value | Truth) -> Value:
        """What is known of sizes, or a tensor of one element, as an i1 of rank 0."""
        if isinstance(condition, Value):
            return self.reshape(self.convert(condition, "i1"), ())
        return self.amounts.truth_value(self.builder, condition)

    def filled(self, x: Scalar, element: DType | str, shape: Sequence[Dim]) -> Value:
        """As `scalar`, in every element."""
        return self.broadcast_to(self.scalar(x, element), shape)

    def axis(self, axis: int, x: Value | int) -> int:
        """An axis of x, or of a rank, counted from the front; a scalar has one, as in torch."""
        rank = x if isinstance(x, int) else type_of(x).rank
        return self.normalize_axis(axis, max(rank, 1))

    def axes(self, axes: int | Sequence[int] | None, x: Value) -> list[int]:
        """As `axis`, of several; all of them for none. A tensor of rank 0 has none to reduce."""
        if isinstance(axes, int):
            axes = [axes]
        if not axes or not type_of(x).rank:
            return list(range(type_of(x).rank))
        return sorted({self.axis(each, x) for each in axes})

    def agreed(self, x: Value, shape: Sequence[Dim]) -> Value:
        """x with dims that its own must equal, as `agree`, but of its rank only if that fits."""
        if type_of(x).rank != len(shape):
            raise UnsupportedNode(
                f"the result is {x.type}, but the program declares rank {len(shape)}"
            )
        return self.agree(x, shape)


def per_axis(given: Any, count: int) -> list[Any]:
    """One number for each spatial axis; torch lets one stand for all."""
    values = list(given) if isinstance(given, (list, tuple)) else [given]
    return values * count if len(values) == 1 else values


def _fitting(number: float, element: DType) -> float:
    """A number as torch makes one of this dtype: an integer keeps its lowest bits."""
    if element.is_boolean:
        return bool(number)
    if not element.is_integer:
        return number
    low = element.limits[0]
    return (int(number) - low) % (1 << element.bits) + low
