"""The op table: what a graph op takes, what it gives, and where its meaning is written.

One `OpRow` per op. The families (`elementwise.py`, `shape.py`, ...) fill the table, with the
class of the op's attributes beside it; the meaning as NumPy code stands in `graph/references/`
under the op's own name. This file has the row and `infer_types`; it knows no op by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from ingot.compiler.ir import (
    ListType,
    PassedType,
    ReferenceType,
    Region,
    ScalarType,
    TensorType,
    Type,
    VectorType,
)
from ingot.compiler.ir.attributes import NO_ATTRIBUTES, Attributes, RuleError, declare
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = [
    "OPS",
    "OpRow",
    "RuleError",
    "infer_types",
    "lookup",
    "register",
    "require",
]


def require(condition: bool, message: str) -> None:
    """Raise RuleError(message) unless `condition` holds."""
    if not condition:
        raise RuleError(message)


Ruled = TensorType | ListType | PassedType
"""What the ops of the graph level compute."""


@dataclass(frozen=True)
class OpRow:
    """One op.

    `operands` are names with a class of dtype, such as "x: float"; a last one with "*" takes
    any number, one with "?" may be left out. `rule` maps operand types to the type of the result,
    or a tuple of types; it raises RuleError. For an op with attributes it is their class, whose
    method `result` does so. `ulp` is the greatest error against the exact result, in units of the
    last place of the result's dtype.
    """

    name: str
    family: str
    operands: tuple[str, ...]
    rule: Callable[..., Ruled | tuple[Ruled, ...]] | type[Attributes]
    doc: str = ""  # else that of the class
    ulp: float = 0
    same: bool = False  # operands have equal types, and element-wise ops a result of their shape
    region_count: int | None = 0  # None: one or more
    terminator: bool = False
    rule_reads_regions: bool = False  # the rule takes `regions=` too
    effect: str = ""  # "read" or "write" of state; "" is pure

    @cached_property
    def attributes(self) -> type[Attributes]:
        """The class of the op's attributes."""
        return self.rule if isinstance(self.rule, type) else Attributes

    @cached_property
    def text(self) -> str:
        """What the op does, in a sentence."""
        return self.doc or " ".join((self.attributes.__doc__ or "").split())

    @cached_property
    def result(self) -> Callable[..., Ruled | tuple[Ruled, ...]]:
        """The rule as a function of the attributes, operand types, and regions if it reads them."""
        rule: Any = self.rule
        if self.attributes is Attributes:
            return lambda _, *types: rule(*types)
        of_class: Callable[..., Ruled | tuple[Ruled, ...]] = rule.result
        return of_class

    @cached_property
    def least_operands(self) -> int:
        """How many operands must be given."""
        return sum(1 for each in self.operands if not each.startswith("*") and "?" not in each)

    @cached_property
    def greatest_operands(self) -> int | None:
        """How many operands may be given; None: any number."""
        variadic = any(each.startswith("*") for each in self.operands)
        return None if variadic else len(self.operands)

    @cached_property
    def dtype_classes(self) -> tuple[str, ...]:
        """The class of dtype of each operand: any, float, number, integer, i1, logical."""
        return tuple(each.partition(":")[2].strip(" ?") or "any" for each in self.operands)

    @cached_property
    def reference(self) -> Callable[..., Any]:
        """The NumPy function that defines the op: arrays and attributes to array or tuple."""
        from ingot.compiler.graph.references import reference_of

        return reference_of(self.name)


OPS: dict[str, OpRow] = {}


def register(row: OpRow) -> OpRow:
    """Add `row` to the table. Raises ValueError if the op has a row already."""
    if row.name in OPS:
        raise ValueError(f"the op table has a row '{row.name}' already")
    OPS[row.name] = row
    declare(row.attributes, row.name)
    return row


def lookup(name: str) -> OpRow:
    """The row of an op. Raises CompileError if the graph level has no such op."""
    row = OPS.get(name)
    if row is None:
        raise CompileError(f"the graph level has no op '{name}'; docs/ops.md lists its ops")
    return row


_CLASSES: dict[str, Callable[[DType], bool]] = {
    "any": lambda dtype: True,
    "float": lambda dtype: dtype.is_float or dtype.is_complex,
    "real": lambda dtype: dtype.is_float,
    "number": lambda dtype: not dtype.is_boolean,
    "signed": lambda dtype: dtype.kind in "ifc",
    "integer": lambda dtype: dtype.is_integer,
    "logical": lambda dtype: dtype.is_integer or dtype.is_boolean,
    "ordered": lambda dtype: not dtype.is_complex,
    "ordered number": lambda dtype: not (dtype.is_complex or dtype.is_boolean),
    "i1": lambda dtype: dtype.is_boolean,
}


_TAKE_REFERENCES = frozenset({"native_call", "if", "case", "while", "yield", "return"})


def _check_operands(row: OpRow, types: Sequence[TensorType]) -> None:
    least, greatest = row.least_operands, row.greatest_operands
    if len(types) < least or (greatest is not None and len(types) > greatest):
        wanted = ", ".join(row.operands)
        raise RuleError(f"takes the operands ({wanted}), got {len(types)}")
    for place, each in enumerate(types):
        if isinstance(each, ReferenceType) and row.name not in _TAKE_REFERENCES:
            raise RuleError(
                f"operand {place} is {each}, which only native functions look into: it can be "
                "passed to them, given by branches and loops, and returned"
            )
        wanted = row.dtype_classes[min(place, len(row.operands) - 1)]
        if not _CLASSES[wanted](each.dtype):
            raise RuleError(f"operand {place} must be of a dtype of class '{wanted}', not {each}")
    if row.same:
        for place, each in enumerate(types):
            if each != types[0]:
                raise RuleError(
                    f"operand {place} is {each}, but operand 0 is {types[0]}: they must be equal"
                )


_LONG_KEYS = frozenset({"constant", "native_call", "kernel_call"})
"""Ops whose attributes take longer to compare than their rule takes."""

_MOST_KNOWN = 1 << 14
_known: dict[object, tuple[Type, ...]] = {}
"""Results of rules: layers of a model have the same ops on the same types, in many passes."""


def infer_types(
    name: str,
    operands: Sequence[Type],
    attributes: Attributes = NO_ATTRIBUTES,
    regions: Sequence[Region] = (),
) -> tuple[Type, ...]:
    """The result types of an op. RuleError: operands or attributes break its rule.

    Element-wise ops also work on scalars and vectors; a rank-0 tensor among scalars
    counts as a scalar.
    """
    if regions or name in _LONG_KEYS:
        return _inferred(name, operands, attributes, regions)
    key = (name, attributes, *operands)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = _inferred(name, operands, attributes, regions)
    return found


def _inferred(
    name: str, operands: Sequence[Type], attributes: Attributes, regions: Sequence[Region]
) -> tuple[Type, ...]:
    row = lookup(name)
    if row.region_count is None:
        require(len(regions) >= 1, "takes one region or more, got none")
    elif len(regions) != row.region_count:
        raise RuleError(f"takes {row.region_count} regions, got {len(regions)}")
    takes_lists = row.family in ("lists", "control")
    possible = (TensorType, ListType, PassedType) if takes_lists else TensorType
    if all(isinstance(each, possible) for each in operands):
        types: Sequence[TensorType] = operands  # type: ignore[assignment]
        _check_operands(row, types)
        extra = {"regions": regions} if row.rule_reads_regions else {}
        result = row.result(attributes, *types, **extra)
        results = result if isinstance(result, tuple) else (result,)
        for each in results:
            if isinstance(each, TensorType):
                _check_result(each)
        return results
    if row.terminator:
        return ()
    if row.family != "elementwise":
        raise RuleError("takes tensors only")
    types = [_as_tensor(each) for each in operands]
    _check_operands(row, types)
    result = row.result(attributes, *types)
    (tensor,) = result if isinstance(result, tuple) else (result,)
    assert isinstance(tensor, TensorType)
    if any(isinstance(each, VectorType) for each in operands):
        (lanes,) = tensor.shape
        return (VectorType(tensor.dtype, known_dim(lanes)),)
    return (ScalarType(tensor.dtype),)


_GREATEST_LENGTH = 2**63 - 1


def _check_result(type: TensorType) -> None:
    """The dims that are known can be those of a tensor in memory."""
    length = type.dtype.bytes
    for dim in type.shape:
        if isinstance(dim, int):
            if dim < 0:
                raise RuleError(f"its result would be {type}, with a negative dim")
            length *= dim or 1
    if length > _GREATEST_LENGTH:
        raise RuleError(f"its result {type} has more bytes than an address can count")


def _as_tensor(type: Type) -> TensorType:
    if isinstance(type, TensorType):
        return type
    if isinstance(type, ScalarType):
        return TensorType(type.dtype, ())
    if isinstance(type, VectorType):
        return TensorType(type.dtype, (type.lanes,))
    raise RuleError(f"takes no operand of type {type}")


def dims_text(shape: Sequence[Dim]) -> str:
    """A shape as a message quotes it: [b, 4]."""
    return "[" + ", ".join(map(str, shape)) + "]"
