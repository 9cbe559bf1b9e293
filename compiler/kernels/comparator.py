"""The comparator of a sort as loop IR, with what depends on one element only set apart.

Source programs compare f(a) with f(b), where f brings NaN and zeros into order. Such an f
is a key: it is computed once per element and moves with it, instead of twice per
comparison. A comparator may have several keys, and use operands directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ingot.compiler.graph.ops import Compare, Constant, lookup
from ingot.compiler.ir import Block, Op, ScalarType, TensorType, Value, defined_by
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.trace import number_of
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["Comparator"]

_Signature = tuple[object, ...]


class Comparator:
    """A region of scalar code that gets two elements, as a0, b0, a1, b1, ... per operand.

    `operands` are the places of operands that it compares directly; `keys` the dtypes of its
    keys. CompileError: an op that is not element-wise.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._sides: dict[Value, frozenset[int]] = {
            argument: frozenset({place % 2}) for place, argument in enumerate(block.arguments)
        }
        for op in block.ops[:-1]:
            _check(op)
            sides = [self._sides[operand] for operand in op.operands]
            self._sides[op.result] = frozenset().union(*sides)
        self._places = {value: place // 2 for place, value in enumerate(block.arguments)}
        self._signatures: dict[Value, _Signature] = {}
        self._keys: dict[_Signature, Value] = {}
        self.operands: list[int] = []
        for value in self._frontier():
            if value in self._places:
                if self._places[value] not in self.operands:
                    self.operands.append(self._places[value])
            else:
                self._keys.setdefault(self._signature(value), value)

    @property
    def keys(self) -> list[DType]:
        """The dtype of each key."""
        return [_dtype_of(value) for value in self._keys.values()]

    @property
    def read(self) -> set[int]:
        """The places of the operands that keys are computed from."""
        waiting, found = list(self._keys.values()), set()
        while waiting:
            value = waiting.pop()
            if value in self._places:
                found.add(self._places[value])
            elif isinstance(value.owner, Op):
                waiting += value.owner.operands
        return found

    def order(self, moved: Sequence[int]) -> tuple[int, bool] | None:
        """Of a comparator that says no more than that one number is less than the other, with NaN
        behind all others or anywhere: the number of the column among those of `moved` and the
        keys, and whether the greatest stand first. None of others."""
        less = self._less(self._result)
        if less is None:
            return None
        place = self._places.get(less)
        keys = [*self._keys]
        if place is None:
            column = len(moved) + keys.index(self._signature(less))
        else:
            column = moved.index(place)
        return column, self._sides[less] == {1}

    def _less(self, value: Value) -> Value | None:
        """The one of two equal functions of both elements that is the less where `value` holds."""
        op = value.owner
        if not isinstance(op, Op):
            return None
        if op.name == "compare" and (direction := Compare.of(op).direction) in ("lt", "gt"):
            less, great = op.operands if direction == "lt" else reversed(op.operands)
            return less if self._are_twins(less, great) else None
        if op.name == "or":
            for number, nan in (op.operands, op.operands[::-1]):
                found = self._less(number)
                if found is not None and self._is_before_nan(found, nan):
                    return found
        return None

    def _are_twins(self, a: Value, b: Value) -> bool:
        """Whether two values are the same function of different elements."""
        sides = sorted(self._sides[a]) + sorted(self._sides[b])
        return sorted(sides) == [0, 1] and self._signature(a) == self._signature(b)

    def _is_before_nan(self, less: Value, value: Value) -> bool:
        """Whether `value` says that `less` is a number and the other one NaN."""
        op = value.owner
        if not isinstance(op, Op) or op.name != "and":
            return False
        for inverse, is_nan in (op.operands, op.operands[::-1]):
            no_nan = defined_by(inverse, "not")
            first = defined_by(no_nan.operands[0], "is_nan") if no_nan else None
            second = defined_by(is_nan, "is_nan")
            if first and second:
                number, other = first.operands[0], second.operands[0]
                same = self._sides[number] == self._sides[less]
                if same and self._are_twins(number, other):
                    return self._signature(number) == self._signature(less)
        return False

    def key_values(self, b: LoopBuilder, element: Mapping[int, Value]) -> list[Value]:
        """The keys of an element, which is given as a value per operand."""
        known: dict[Value, Value] = {
            argument: element[place] for argument, place in self._places.items() if place in element
        }
        return [self._evaluate(b, value, known) for value in self._keys.values()]

    def before(
        self,
        b: LoopBuilder,
        elements: Sequence[Mapping[int, Value]],
        keys: Sequence[Sequence[Value]],
    ) -> Value:
        """i1: whether the first of two elements must stand before the second."""
        known: dict[Value, Value] = {}
        columns = [dict(zip(self._keys, each, strict=True)) for each in keys]
        for value in self._frontier():
            (side,) = self._sides[value]
            place = self._places.get(value)
            known[value] = (
                columns[side][self._signature(value)] if place is None else elements[side][place]
            )
        return self._evaluate(b, self._result, known)

    @property
    def _result(self) -> Value:
        return self._block.terminator.operands[0]

    def _frontier(self) -> Iterator[Value]:
        """Values of one element where they meet the other one, or become the result."""
        if len(self._sides[self._result]) == 1:
            yield self._result
        for op in self._block.ops[:-1]:
            if len(self._sides[op.result]) == 2:
                yield from (value for value in op.operands if len(self._sides[value]) == 1)

    def _signature(self, value: Value) -> _Signature:
        """What computes a value, whichever of the two elements it is made from."""
        if value not in self._signatures:
            owner = value.owner
            if isinstance(owner, Op):
                operands = tuple(self._signature(operand) for operand in owner.operands)
                found: _Signature = (owner.name, owner.attributes, operands)
            else:
                found = ("argument", self._places[value])
            self._signatures[value] = found
        return self._signatures[value]

    def _evaluate(self, b: LoopBuilder, value: Value, known: dict[Value, Value]) -> Value:
        """The code of a value; `known` has what it starts from, and learns the rest."""
        wanted: set[Value] = set()
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if each not in known and each not in wanted and isinstance(each.owner, Op):
                wanted.add(each)
                waiting += each.owner.operands
        for op in self._block.ops[:-1]:
            if op.result in wanted:
                known[op.result] = _emit(b, op, [known[operand] for operand in op.operands])
        return known[value]


def _check(op: Op) -> None:
    if op.name != "constant" and lookup(op.name).family != "elementwise":
        raise CompileError(f"{op.location or 'sort'}: a comparator cannot contain '{op.name}'")


def _emit(b: LoopBuilder, op: Op, operands: Sequence[Value]) -> Value:
    if op.name != "constant":
        return b.op(op.name, *operands, attributes=op.attributes)
    literal = Constant.of(op).value
    return b.constant(number_of(literal), literal.dtype)


def _dtype_of(value: Value) -> DType:
    assert isinstance(value.type, (ScalarType, TensorType))
    return value.type.dtype
