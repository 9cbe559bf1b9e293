"""Sizes that a program computes through small tensors, as dims.

Exporters write shape arithmetic as ops on tensors (Shape, Gather, Concat, Reshape). Front ends
turn those into graph ops like any other; where a shape, an axis or a bound is needed, `Amounts`
reads the value back through the graph ops that made it, as integers and symbolic expressions.
The ops then have no use left and dead code elimination takes them. What depends on data becomes
a fresh symbol, which an op `size` defines when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ingot.compiler.frontends.elements import RULES, Claim, Elements, UnknownElement
from ingot.compiler.frontends.symbols import Symbols, Truth
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops.sizing import GREATEST_SIZE
from ingot.compiler.ir import Op, TensorType, Value, derived, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["MOST_SIZES", "Amounts"]

_GREATEST_COUNT = 4096  # larger tensors are data, not shapes
MOST_SIZES = 64  # elements of a value that are read as dims, one by one


class Amounts:
    """Elements of values by value, computed when asked and remembered."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self._known: dict[Value, Elements | None] = {}
        # By a value and the body that reads it: what is made in one is not defined in another.
        self._parts: dict[tuple[Value, int], list[Dim | Value]] = {}
        self._sizes: dict[tuple[Value, int], Dim] = {}
        self._bodies: dict[int, list[Op]] = {}  # kept, so that no other one gets their number

    def of(self, value: Value) -> Elements | None:
        """The elements as an array of the value's shape; None where they are not known."""
        elements = self._follow(value)
        if elements is None or any(isinstance(each, Claim) for each in elements.flat):
            return None
        return elements

    def truth(self, value: Value) -> Truth | None:
        """What the only element of an i1 says about dims; None where it depends on data."""
        elements = self._follow(value)
        if elements is None or elements.size != 1:
            return None
        element = elements.item()
        return element.atoms if isinstance(element, Claim) else bool(element)

    def truth_value(self, builder: Builder, truth: Truth) -> Value:
        """An i1 of rank 0: what is known of a truth value over dims, else what the call finds."""
        known = self.symbols.decide(truth)
        if isinstance(truth, bool) or known is not None:
            return builder.constant(np.bool_(known))
        result = builder.constant(np.bool_(True))
        for atom in truth:
            number = builder.number(atom.difference, "i64")
            zero = builder.constant(np.int64(0))
            holds = builder.value("compare", number, zero, direction=atom.direction)
            result = builder.value("and", result, holds)
        return result

    def dims(self, value: Value) -> list[Dim] | None:
        """The elements of integers, in order; None where they are not known."""
        if not isinstance(value.type, TensorType) or value.type.dtype.is_float:
            return None
        known = self.of(value)
        return None if known is None else [*known.reshape(-1)]

    def parts(self, builder: Builder, value: Value, what: str = "it") -> list[Dim | Value]:
        """The elements of a value of rank 0 or 1: dims where they are known, else values of rank
        0 and the same dtype. CompileError: there are too many, or nobody knows how many."""
        known = self.of(value)
        if known is not None:
            return list(known.reshape(-1))
        key = self._key(builder, value)
        if key not in self._parts:
            self._parts[key] = self._unknown_parts(builder, value, what)
        return [
            self._sizes.get(self._key(builder, part), part) if isinstance(part, Value) else part
            for part in self._parts[key]
        ]

    def _key(self, builder: Builder, value: Value) -> tuple[Value, int]:
        self._bodies[id(builder.ops)] = builder.ops
        return value, id(builder.ops)

    def _unknown_parts(self, builder: Builder, value: Value, what: str) -> list[Dim | Value]:
        type, owner = tensor_type(value), value.owner
        count = dims.product(type.shape)
        if not isinstance(count, int):  # as many as it may be; the call checks that
            most = dims.bounds(count, self.symbols.bounds)[1]
            if most <= MOST_SIZES:
                builder.append("assert", (), (), {"a": count, "b": int(most)})
                value, count = builder.value("reshape", value, shape=(int(most),)), int(most)
        if not isinstance(count, int) or count > MOST_SIZES:
            raise CompileError(
                f"{what} reads sizes from {type}: their count must be known, at most {MOST_SIZES}"
            )
        if isinstance(owner, Op):
            if owner.name == "concatenate" and type.rank == 1:
                return [part for each in owner.operands for part in self.parts(builder, each, what)]
            if owner.name == "reshape" or (owner.name == "broadcast" and count == 1):
                return self.parts(builder, owner.operands[0], what)
        if not type.shape:
            return [value]
        value = value if type.rank == 1 else builder.value("reshape", value, shape=(count,))
        places = [builder.constant(np.int64(place)) for place in range(count)]
        return [builder.value("take", value, place, axis=0, mode="clamp") for place in places]

    def define_size(
        self,
        builder: Builder,
        part: Dim | Value,
        name: Callable[[], str],
        what: str,
        low: Dim = 0,
        high: Dim | None = None,
    ) -> Dim:
        """One of `parts` as a dim. A value becomes the symbol `name`; that low <= part <= high is
        checked when the program runs, with `what` in the message."""
        if not isinstance(part, Value):
            return part
        key = self._key(builder, part)
        if key not in self._sizes:
            symbol = name()
            known = self.symbols.resolve(dims.symbol(symbol))
            limits = {"low": low} if high is None else {"low": low, "high": high}
            if known != dims.symbol(symbol):
                limits = {"low": known, "high": known}
            elif isinstance(high, int):
                self.symbols.limit(known, 0, high)
            whole = part
            if not tensor_type(part).dtype.is_integer:
                whole = builder.value("convert", part, dtype=dtype("i64"))
            attributes = {"symbols": (symbol,), "what": what, **limits}
            builder.append("size", (whole,), (), attributes)
            self._sizes[key] = known
            self.learn(builder, part, [known])
        return self._sizes[key]

    def learn(self, builder: Builder, value: Value, sizes: Sequence[Dim]) -> None:
        """What follows from a value that was read where it is made is known, too."""
        if isinstance(value.owner, Op) and value.owner in builder.ops:
            elements = np.empty(len(sizes), object)
            elements[:] = sizes
            self._known[value] = elements.reshape(tuple(tensor_type(value).shape))

    def define_amount(
        self, builder: Builder, part: Dim | Value, name: Callable[[str], str], what: str
    ) -> Dim:
        """As `define_size`, of a number that may be negative. No symbol is: one is what is above
        zero, another what is below."""
        if not isinstance(part, Value):
            return part
        # no less than what is refused below, so that its negative is no overflow
        part = builder.value("convert", part, dtype=dtype("i64"))
        part = builder.value("max", part, builder.constant(np.int64(-GREATEST_SIZE - 1)))
        zero = builder.constant(np.int64(0))
        above, below = (
            self.define_size(builder, builder.value("max", each, zero), partial(name, side), what)
            for each, side in ((part, "more"), (builder.value("neg", part), "less"))
        )
        return above - below

    def _follow(self, value: Value) -> Elements | None:
        return derived(value, self._known, _needed, self._compute)

    def _compute(self, value: Value) -> Elements | None:
        if isinstance(value.type, TensorType) and value.type.shape == (0,):
            return np.empty(0, object)
        if not _has_rule(value) or not isinstance(value.owner, Op):
            return None
        operands = [self._known[operand] for operand in value.owner.operands]
        if any(operand is None for operand in operands):
            return None
        try:
            result = RULES[value.owner.name](self.symbols, value.owner, *operands)
        except (UnknownElement, CompileError):  # or an expression larger than is followed
            return None
        return np.asarray(result, object).reshape(tuple(tensor_type(value).shape))


def _needed(value: Value) -> Sequence[Value]:
    """The operands that must be known first."""
    return value.op.operands if _has_rule(value) else ()


def _has_rule(value: Value) -> bool:
    """Whether the elements follow from operands; not those of large tensors."""
    if not isinstance(value.owner, Op) or not isinstance(value.type, TensorType):
        return False
    if not all(isinstance(dim, int) for dim in value.type.shape):
        return False
    count = dims.product(value.type.shape)
    return value.owner.name in RULES and isinstance(count, int) and count <= _GREATEST_COUNT
