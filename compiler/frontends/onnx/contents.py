"""What is known at import about the elements of small tensors, as dims.

Exporters write shape arithmetic as tensor ops (Shape, Gather, Concat, Reshape). Lowerings turn
those into graph ops like any other; where a shape, an axis or a bound is needed, `Contents`
reads the value back through the graph ops that made it, as integers and symbolic expressions.
The ops then have no use left and dead code elimination takes them. This is no interpreter: it
knows the few ops that shape arithmetic uses and answers None for all else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from ingot.compiler.frontends.symbols import Restart, Symbols
from ingot.compiler.ir import ListType, Literal, Op, TensorType, Value, dims
from ingot.compiler.ir.dims import Dim, Expr
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["Contents"]

Elements = np.ndarray[Any, Any]  # dtype object: int, bool, float or Expr
MAXIMUM_COUNT = 4096  # larger tensors are data, not shapes


class _Unknown(Exception):
    """The elements cannot be known before the program runs."""


class Contents:
    """Elements of values by value, computed when asked and remembered.

    `symbols` are the dims of the arguments, `entry` the ops outside of all bodies.
    """

    def __init__(self, symbols: Symbols, entry: list[Op]) -> None:
        self.symbols = symbols
        self.entry = entry
        self._known: dict[Value, Elements | None] = {}
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}  # of names with a number at the end, by what is before
        self.remembered: dict[Hashable, Any] = {}  # what was made for a value and a use of it

    def reserve(self, names: Iterable[str]) -> None:
        """Symbols that must not be defined anew."""
        self._names.update(names)

    def learn_rank(self, list: Value, rank: int) -> None:
        """The elements of the list have this rank. Restart: it comes from a graph input that
        leaves it open."""
        assert isinstance(list.type, ListType)
        element = list.type.dtype.name
        while isinstance(list.owner, Op) and list.owner.name.startswith("list."):
            list = list.owner.operands[0]
        self.learn_open_rank(element, rank, list.name)

    def learn_open_rank(self, element: str, rank: int, name: str = "") -> None:
        """Elements of that dtype have this rank. Restart: the graph input of that name leaves it
        open, or, as inside of loops names are not known, only one input does."""
        ranks = self.symbols.ranks
        same = [each for each, known in ranks.items() if known == (element, None)]
        if name in same or len(same) == 1:
            ranks[name if name in same else same[0]] = (element, rank)
            raise Restart

    def fresh_symbol(self, hint: str) -> str:
        """A name for a symbol that an op defines, like `hint`."""
        base = re.sub(r"\W", "_", hint)
        if not re.match(r"[A-Za-z_]", base):
            base = f"_{base}"
        name = base
        while name in self._names:
            self._counts[base] = self._counts.get(base, 1) + 1
            name = f"{base}_{self._counts[base]}"
        self._names.add(name)
        return name

    def of(self, value: Value) -> Elements | None:
        """The elements as an array of the value's shape; None where they are not known."""
        waiting = [value]
        while waiting:  # no recursion: chains of shape arithmetic can be long
            last = waiting[-1]
            needed = [] if last in self._known else self._needed(last)
            if needed:
                waiting += needed
            else:
                waiting.pop()
                if last not in self._known:
                    self._known[last] = self._compute(last)
        return self._known[value]

    def _needed(self, value: Value) -> list[Value]:
        """The operands that must be known first."""
        if _rule_of(value) is None or not isinstance(value.owner, Op):
            return []
        return [operand for operand in value.owner.operands if operand not in self._known]

    def _compute(self, value: Value) -> Elements | None:
        if isinstance(value.type, TensorType) and value.type.shape == (0,):
            return np.empty(0, object)
        rule = _rule_of(value)
        if rule is None or not isinstance(value.owner, Op):
            return None
        operands = [self._known[operand] for operand in value.owner.operands]
        if any(operand is None for operand in operands):
            return None
        try:
            result = rule(value.owner, *operands)
        except (_Unknown, CompileError):  # or an expression larger than is followed
            return None
        assert isinstance(value.type, TensorType)
        return np.asarray(result, object).reshape(tuple(value.type.shape))


def _rule_of(value: Value) -> Callable[..., Elements] | None:
    """How the elements follow from the operands; None for large tensors and other ops."""
    if not isinstance(value.owner, Op) or not isinstance(value.type, TensorType):
        return None
    count = dims.product(value.type.shape)
    small = isinstance(count, int) and count <= MAXIMUM_COUNT
    return _RULES.get(value.owner.name) if small else None


def _elementwise(function: Callable[..., Any]) -> Callable[..., Elements]:
    def rule(op: Op, *operands: Elements) -> Elements:
        dtype = _dtype(op)
        result = np.empty(operands[0].shape, object)
        for index in np.ndindex(result.shape):
            element = function(*(operand[index] for operand in operands))
            result[index] = _round(element, dtype)
        return result

    return rule


def _dtype(op: Op) -> DType:
    type = op.result.type
    assert isinstance(type, TensorType)
    return type.dtype


def _round(element: Any, dtype: DType) -> Any:
    """The element as the dtype holds it. Unknown for sizes that would wrap; those of 32 bits are
    taken to be below 2^31."""
    if isinstance(element, Expr):
        wraps = dtype.kind == "u" and dims.bounds(element)[0] < 0
        if not dtype.is_integer or dtype.bits < 32 or wraps:
            raise _Unknown
        return element
    if dtype.is_boolean:
        return bool(element)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return float(dtype.numpy.type(element))
    low = -(2 ** (dtype.bits - 1)) if dtype.kind == "i" else 0
    if not low <= int(element) < low + 2**dtype.bits:
        raise _Unknown
    return int(element)


def _constant(op: Op) -> Elements:
    literal = op.attributes["value"]
    assert isinstance(literal, Literal)
    result = np.empty(literal.array.shape, object)
    for index in np.ndindex(result.shape):
        result[index] = literal.array[index].item()
    return result


def _dim(op: Op) -> Elements:
    result = np.empty((), object)
    result[()] = op.attributes["value"]
    return result


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        if isinstance(a, Expr) or isinstance(b, Expr) or b == 0:
            raise _Unknown
        return a / b
    if isinstance(b, int) and b > 0:  # toward zero: the floor above it and the ceiling below
        return dims.maximum(dims.floordiv(a, b), dims.minimum(dims.ceildiv(a, b), 0))
    if dims.bounds(a)[0] >= 0 and dims.bounds(b)[0] > 0:
        return dims.floordiv(a, b)
    if isinstance(a, Expr) or isinstance(b, Expr) or b == 0:
        raise _Unknown
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        raise _Unknown
    return a - b * _divide(a, b)


def _compare(op: Op, a: Elements, b: Elements) -> Elements:
    direction = op.attributes["direction"]
    result = np.empty(a.shape, object)
    for index in np.ndindex(a.shape):
        result[index] = _order(str(direction), a[index], b[index])
    return result


def _order(direction: str, a: Any, b: Any) -> bool:
    """a `direction` b, where the bounds of the symbols decide it."""
    if isinstance(a, float) or isinstance(b, float):
        low = high = a - b
    else:
        low, high = dims.bounds(a - b)
    outcomes = {
        "eq": (low == 0 == high, low > 0 or high < 0),
        "ne": (low > 0 or high < 0, low == 0 == high),
        "lt": (high < 0, low >= 0),
        "le": (high <= 0, low > 0),
        "gt": (low > 0, high <= 0),
        "ge": (low >= 0, high < 0),
    }
    holds, fails = outcomes[direction]
    if not holds and not fails:
        raise _Unknown
    return bool(holds)


def _convert(op: Op, operand: Elements) -> Elements:
    def convert(element: Any) -> Any:
        if isinstance(element, float) and dtype.is_boolean:
            return element != 0
        if isinstance(element, float) and not dtype.is_float:
            if not math.isfinite(element):
                raise _Unknown
            return int(element)
        return element

    dtype = _dtype(op)
    return _elementwise(convert)(op, operand)


def _numeric(function: Callable[..., float]) -> Callable[..., Elements]:
    """An element-wise function of numbers; symbols make it unknown."""

    def checked(*elements: Any) -> float:
        if any(isinstance(element, Expr) for element in elements):
            raise _Unknown
        try:
            return function(*elements)
        except (ValueError, OverflowError):
            raise _Unknown from None

    return _elementwise(checked)


def _select(op: Op, condition: Elements, a: Elements, b: Elements) -> Elements:
    return np.where(condition.astype(bool), a, b)


def _broadcast(op: Op, operand: Elements) -> Elements:
    shape = _integers(op, "shape")
    spread = [1] * len(shape)
    for axis, target in enumerate(_integers(op, "dimensions")):
        spread[target] = operand.shape[axis]
    return np.broadcast_to(operand.reshape(spread), shape)


def _integers(op: Op, name: str) -> tuple[int, ...]:
    values = op.attributes[name]
    assert isinstance(values, tuple)
    if not all(isinstance(value, int) for value in values):
        raise _Unknown
    return values  # type: ignore[return-value]


def _slice(op: Op, operand: Elements) -> Elements:
    ranges = zip(*(_integers(op, name) for name in ("start", "limit", "stride")), strict=True)
    return operand[tuple(slice(*bounds) for bounds in ranges)]


def _take(op: Op, operand: Elements, indices: Elements) -> Elements:
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    bound = operand.shape[axis]
    for index in indices.flat:
        if isinstance(index, Expr) or not -bound <= index < bound:
            raise _Unknown
    return np.take(operand, indices.astype(np.int64), axis)


def _reduce(op: Op, operand: Elements) -> Elements:
    kind, dtype = str(op.attributes["kind"]), _dtype(op)
    combine = _REDUCTIONS.get(kind)
    rounded = dtype.is_float and kind in ("add", "mul")  # in an order of its own
    if combine is None or rounded or not operand.size:
        raise _Unknown
    result = operand
    for axis in sorted(_integers(op, "axes"), reverse=True):
        slices = [result.take(index, axis) for index in range(result.shape[axis])]
        total = np.asarray(slices[0], object)
        for item in slices[1:]:
            other = np.asarray(item, object)
            merged = np.empty(total.shape, object)
            for index in np.ndindex(total.shape):
                merged[index] = _round(combine(total[index], other[index]), dtype)
            total = merged
        result = total
    return result


def _iota(op: Op) -> Elements:
    shape = _integers(op, "shape")
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    result = np.empty(shape, object)
    for index in np.ndindex(shape):
        result[index] = index[axis]
    return result


def _add(a: Dim, b: Dim) -> Dim:
    return a + b


def _multiply(a: Dim, b: Dim) -> Dim:
    return a * b


def _extreme(ordered: Callable[..., Any], of_dims: Callable[[Dim, Dim], Dim]) -> Callable[..., Any]:
    """max or min of numbers or sizes; of NaN and of zeros with different signs it is unknown."""

    def rule(a: Any, b: Any) -> Any:
        if not isinstance(a, float):
            return of_dims(a, b)
        if math.isnan(a + b) or a == 0 == b:
            raise _Unknown
        return ordered(a, b)

    return rule


def _not(a: bool | int) -> int:
    return not a if isinstance(a, bool) else ~a


_maximum, _minimum = _extreme(max, dims.maximum), _extreme(min, dims.minimum)

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "mul": _multiply,
    "max": _maximum,
    "min": _minimum,
}

_RULES: dict[str, Callable[..., Elements]] = {
    "constant": _constant,
    "dim": _dim,
    "iota": _iota,
    "add": _elementwise(_add),
    "sub": _elementwise(lambda a, b: a - b),
    "mul": _elementwise(_multiply),
    "div": _elementwise(_divide),
    "rem": _elementwise(_remainder),
    "neg": _elementwise(lambda a: -a),
    "max": _elementwise(_maximum),
    "min": _elementwise(_minimum),
    "floor": _numeric(np.floor),
    "ceil": _numeric(np.ceil),
    "sqrt": _numeric(math.sqrt),
    "not": _numeric(_not),
    "and": _numeric(lambda a, b: a & b),
    "or": _numeric(lambda a, b: a | b),
    "xor": _numeric(lambda a, b: a ^ b),
    "compare": _compare,
    "convert": _convert,
    "select": _select,
    "broadcast": _broadcast,
    "reshape": lambda op, operand: operand,
    "transpose": lambda op, operand: operand.transpose(_integers(op, "permutation")),
    "slice": _slice,
    "concatenate": lambda op, *operands: np.concatenate(operands, op.attributes["axis"]),
    "reverse": lambda op, operand: np.flip(operand, _integers(op, "axes")),
    "take": _take,
    "reduce": _reduce,
}
