"""The table of loop ops: what each takes and gives, what it does beside, what it means.

The builder (`loop.py`), the verifier (`level.py`), the interpreter and `docs/loops.md` go by
it. Element-wise ops have their rows in the op table of the graph level; here they take
scalars and vectors. What registers hold is computed by `references.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from ingot.compiler.graph.ops import OPS, Compare, infer_types
from ingot.compiler.graph.ops.table import require
from ingot.compiler.ir import IndexType, MemoryType, Op, ScalarType, Type, Value, VectorType
from ingot.compiler.ir.attributes import Attributes, declare
from ingot.compiler.kernels.loop_attributes import (
    Access,
    Axis,
    Constant,
    Dot4,
    Fault,
    Fma,
    For,
    Lane,
    Offset,
    Ordinal,
    Poll,
    Reduce,
    Shuffle,
)
from ingot.compiler.kernels.references import REFERENCES
from ingot.hal.spec import DType, dtype

__all__ = [
    "ARITHMETIC",
    "INDEX_CHOICES",
    "LOOP_OPS",
    "Access",
    "Axis",
    "Compare",
    "Constant",
    "Dot4",
    "Fault",
    "Fma",
    "For",
    "Lane",
    "LoopRow",
    "Offset",
    "Ordinal",
    "Poll",
    "Reduce",
    "Shuffle",
    "elementwise_types",
    "has_effect",
    "is_elementwise",
]

_I1, _I64 = ScalarType(dtype("i1")), ScalarType(dtype("i64"))
_INDEX = IndexType()

ARITHMETIC = tuple(f"loop.{name}" for name in ("add", "sub", "mul", "div", "rem", "min", "max"))
"""What is made of indices alone."""

INDEX_CHOICES = frozenset({"select", "min", "max"})
"""Element-wise ops that give an index where they choose among indices."""


@dataclass(frozen=True)
class LoopRow:
    """One op.

    `operands` are names with a kind, such as "memory: memory"; "?" may be left out, "*" is any
    number of them. `rule` gives the types of the results, or raises RuleError. `effect` is what
    the op does beside its results: "reads", "writes", "faults", "waits", "polls", "ends" (a block).
    """

    name: str
    family: str
    operands: tuple[str, ...]
    rule: Callable[[Op], tuple[Type, ...]]
    doc: str
    results: str = ""  # how the page writes them
    attributes: type[Attributes] = Attributes
    region_count: int = 0
    effect: str = ""

    @cached_property
    def kinds(self) -> tuple[tuple[str, bool, bool], ...]:
        """Of each operand its kind, whether it may be left out, whether there may be more."""
        rows = []
        for each in self.operands:
            name, _, kind = each.partition(": ")
            rows.append((kind, name.startswith(("?", "*")), name.startswith("*")))
        return tuple(rows)

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The NumPy function of an op that computes in registers; None for all others."""
        return REFERENCES.get(self.name)


LOOP_OPS: dict[str, LoopRow] = {}


def is_elementwise(name: str) -> bool:
    """Whether the op works on single elements, and has its row at the graph level."""
    return name in OPS and OPS[name].family == "elementwise"


def has_effect(name: str) -> bool:
    """Whether the op does something that others see, beside its results."""
    return name in LOOP_OPS and LOOP_OPS[name].effect not in ("", "reads")


def elementwise_types(op: Op) -> tuple[Type, ...]:
    """The types of the results of an element-wise op. An index stands where an i64 scalar may."""
    types = [_I64 if value.type == _INDEX else value.type for value in op.operands]
    wanted = infer_types(op.name, types, op.attributes)
    chosen = op.operands[1:] if op.name == "select" else op.operands
    if op.name in INDEX_CHOICES and wanted == (_I64,):
        return _index_or_data(op, chosen)
    return wanted


def _index_or_data(op: Op, operands: list[Value]) -> tuple[Type, ...]:
    """An index, or an i64 scalar: all 64 bits of what is made of the operands. The builder says
    which, for an i64 among them may be an index that somebody else takes as data."""
    given = op.results[0].type if op.results else None
    if all(value.type == _I64 for value in operands):
        return (_INDEX,) if given == _INDEX else (_I64,)
    return (_I64,) if given == _I64 else (_INDEX,)


# Rules.


def _type(value: Value) -> Any:
    return value.type


def _declared(op: Op, *possible: type) -> Any:
    """The type that a leaf declares."""
    require(len(op.results) == 1, f"has one result, got {len(op.results)}")
    given = op.results[0].type
    names = " or ".join(each.__name__.removesuffix("Type").lower() for each in possible)
    require(isinstance(given, possible), f"gives {names}, not {given}")
    return given


def _constant(op: Op) -> tuple[Type, ...]:
    given = _declared(op, ScalarType, VectorType, IndexType)
    value, element = Constant.of(op).value, _I64.dtype if given == _INDEX else given.dtype
    wanted = {"f": float, "b": bool}.get("f" if element.is_float else element.kind, int)
    require(type(value) is wanted, f"the value {value!r} is no {element.name}")
    if wanted is int:
        low = -(1 << (element.bits - 1)) if element.kind == "i" else 0
        high = (1 << (element.bits - (element.kind == "i"))) - 1
        if given == _INDEX:
            low, high = -(2**31), 2**31 - 1
        require(low <= value <= high, f"the value {value} is none of {given}")
    return (given,)


def _memory(op: Op) -> tuple[Type, ...]:
    given = _declared(op, MemoryType)
    stored = given.dtype
    kernels_have = given.is_packed or stored.is_boolean or stored.bits >= 8
    require(kernels_have, f"kernels have no {given}: bytes of codes are u8")
    only_read = "elements that lie packed are read, not stored: only a binding has them"
    require(op.name == "loop.binding" or not given.is_packed, only_read)
    return (given,)


def _count(op: Op) -> tuple[Type, ...]:
    _require_axis(op)
    given = _declared(op, IndexType, ScalarType)
    return (_I64 if given == _I64 else _INDEX,)


def _require_axis(op: Op) -> None:
    if isinstance(op.attributes, Axis):
        axis = op.attributes.axis
        require(0 <= axis < 3, f"axis {axis} is not 0, 1 or 2")


def _small_count(op: Op) -> tuple[Type, ...]:
    _require_axis(op)
    return (_INDEX,)


def _counting(op: Op) -> tuple[Type, ...]:
    given = _declared(op, VectorType)
    return (VectorType(_I64.dtype, given.lanes),)


def _arithmetic(op: Op) -> tuple[Type, ...]:
    return _index_or_data(op, op.operands)


def _for(op: Op) -> tuple[Type, ...]:
    block = op.regions[0].block
    types = tuple(value.type for value in op.operands[3:])
    step = op.operands[2].owner
    if isinstance(step, Op) and step.name == "loop.constant":
        require(Constant.of(step).value > 0, "its step is not above 0")
    require(bool(block.arguments), "its body takes the index and what is carried")
    counts = (_INDEX, _I64)
    require(block.arguments[0].type in counts, "its body takes an index first")
    carried = tuple(value.type for value in block.arguments[1:])
    require(
        _fit(types, carried),
        f"its body takes {_list(carried)}, but it starts with {_list(types)}",
    )
    _require_yield(op, carried)
    return carried


def _if(op: Op) -> tuple[Type, ...]:
    types = tuple(value.type for value in op.results)
    for region in op.regions:
        require(not region.block.arguments, "a branch takes no arguments")
    _require_yield(op, types)
    return types


def _require_yield(op: Op, types: tuple[Type, ...]) -> None:
    for each in types:
        require(not isinstance(each, MemoryType), "memory is not carried")
    for region in op.regions:
        block = region.block
        require(bool(block.ops) and block.terminator.name == "yield", "its region ends in a yield")
        given = tuple(value.type for value in block.terminator.operands)
        require(_fit(given, types), f"its region yields {_list(given)}, expected {_list(types)}")


def _fit(given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
    """Whether the types are equal, but for an index where an i64 scalar is wanted."""
    return len(given) == len(wanted) and all(
        a == b or (a == _INDEX and b == _I64) for a, b in zip(given, wanted, strict=True)
    )


def _nothing(op: Op) -> tuple[Type, ...]:
    return ()


def _element(memory: Value) -> DType:
    return cast(MemoryType, memory.type).element


def _load(op: Op) -> tuple[Type, ...]:
    given = _declared(op, ScalarType, VectorType)
    lanes = given.lanes if isinstance(given, VectorType) else 1
    _require_vector(op, lanes, len(op.operands) > 2)
    element = _element(op.operands[0])
    return (VectorType(element, lanes) if lanes > 1 else ScalarType(element),)


def _store(op: Op) -> tuple[Type, ...]:
    value = _type(op.operands[2])
    memory = cast(MemoryType, op.operands[0].type)
    element = memory.element
    require(not memory.is_packed, f"stores into {memory}, whose elements share bytes")
    if value == _INDEX:
        value = _I64
    require(value.dtype is element, f"stores {value} into {op.operands[0].type}")
    _require_vector(op, getattr(value, "lanes", 1), len(op.operands) > 3)
    return ()


def _require_vector(op: Op, lanes: int, has_count: bool) -> None:
    require(lanes > 1 or not has_count, "a scalar has no count of lanes")
    if Access.of(op).aligned:
        require(lanes > 1 and not has_count, "only whole vectors are aligned")
        owner = op.operands[0].owner
        own = isinstance(owner, Op) and owner.name in ("loop.local", "loop.scratch")
        require(own, "only memory of the kernel's own is aligned")


def _gather(op: Op) -> tuple[Type, ...]:
    return (VectorType(_element(op.operands[0]), _type(op.operands[1]).lanes),)


def _same(op: Op) -> tuple[Type, ...]:
    return (_I1,)


def _fault(op: Op) -> tuple[Type, ...]:
    lanes = [getattr(value.type, "lanes", 1) for value in op.operands[:2]]
    require(lanes[0] == lanes[1], f"has a condition of {lanes[0]} lanes, an index of {lanes[1]}")
    return ()


def _broadcast(op: Op) -> tuple[Type, ...]:
    given, scalar = _declared(op, VectorType), _type(op.operands[0])
    return (VectorType(_I64.dtype if scalar == _INDEX else scalar.dtype, given.lanes),)


def _require_lane(op: Op, count: int, *lanes: int) -> None:
    for lane in lanes:
        require(0 <= lane < count, f"names lane {lane} of {count}")


def _extract(op: Op) -> tuple[Type, ...]:
    vector = _type(op.operands[0])
    _require_lane(op, vector.lanes, Lane.of(op).lane)
    return (ScalarType(vector.dtype),)


def _insert(op: Op) -> tuple[Type, ...]:
    vector, scalar = map(_type, op.operands)
    _require_lane(op, vector.lanes, Lane.of(op).lane)
    element = _I64.dtype if scalar == _INDEX else scalar.dtype
    require(element is vector.dtype, f"inserts {scalar} into {vector}")
    return (vector,)


def _shuffle(op: Op) -> tuple[Type, ...]:
    a, b = map(_type, op.operands)
    require(a == b, f"takes two equal vectors, not {a} and {b}")
    lanes = Shuffle.of(op).lanes
    require(len(lanes) > 1, "gives two lanes or more")
    _require_lane(op, 2 * a.lanes, *lanes)
    return (VectorType(a.dtype, len(lanes)),)


def _reduce(op: Op) -> tuple[Type, ...]:
    vector, kind = _type(op.operands[0]), Reduce.of(op).kind
    element = vector.dtype
    bits = kind in ("and", "or", "xor")
    require(not (bits and element.is_float), f"{kind} of {vector} has no meaning")
    return (ScalarType(element),)


def _any(op: Op) -> tuple[Type, ...]:
    element = _type(op.operands[0]).dtype
    require(element.is_boolean, f"takes lanes of i1, not of {element}")
    return (_I1,)


def _fma(op: Op) -> tuple[Type, ...]:
    a, b, c = map(_type, op.operands)
    require(a == b == c, f"takes three equal types, not {a}, {b} and {c}")
    require(a != _INDEX and not a.dtype.is_boolean, f"takes numbers, not {a}")
    return (a,)


def _dot4(op: Op) -> tuple[Type, ...]:
    a, b, c = map(_type, op.operands)
    require(a == b == c, f"takes three equal types, not {a}, {b} and {c}")
    require(a != _INDEX and a.dtype.name == "i32", f"takes words of i32, not {a}")
    for side in (Dot4.of(op).left, Dot4.of(op).right):
        require(side.is_integer and side.bits == 8, f"multiplies bytes, i8 or u8, not {side.name}")
    return (c,)


def _part(op: Op) -> tuple[Type, ...]:
    value, *others = map(_type, op.operands)
    require(
        all(other == value for other in others), f"takes equal types, not {_list((value, *others))}"
    )
    is_float = value != _INDEX and value.dtype.name in ("f32", "f64")
    require(is_float, f"takes numbers of f32 or f64, not {value}")
    return (value,)


def _list(types: tuple[Type, ...]) -> str:
    return f"({', '.join(map(str, types))})"


# Rows.


def _row(
    signature: str,
    results: str,
    rule: Callable[[Op], tuple[Type, ...]],
    doc: str,
    effect: str = "",
    region_count: int = 0,
    attributes: type[Attributes] = Attributes,
) -> None:
    name, _, inner = signature.rstrip(")").partition("(")
    operands = tuple(inner.split(", ")) if inner else ()
    row = LoopRow(name, _FAMILY[-1], operands, rule, doc, results, attributes, region_count, effect)
    LOOP_OPS[name] = row
    declare(attributes, name)


_FAMILY: list[str] = []


def _leaves() -> None:
    _FAMILY.append("Leaves")
    _row(
        "loop.constant()",
        "scalar, vector or index",
        _constant,
        "A number, in all lanes.",
        attributes=Constant,
    )
    _row("loop.dim()", "index", _count, "Constant `ordinal` of the dispatch.", attributes=Ordinal)
    _row(
        "loop.workload()",
        "index",
        _count,
        "The dispatch's workload along an axis; 0 is x.",
        attributes=Axis,
    )
    _row(
        "loop.workgroup()",
        "index",
        _small_count,
        "The workgroup's position in the grid.",
        attributes=Axis,
    )
    _row(
        "loop.local_id()",
        "index",
        _small_count,
        "The work item's position in its group.",
        attributes=Axis,
    )
    _row("loop.lanes()", "i64 vector", _counting, "0, 1, 2, ...")
    _row(
        "loop.binding()",
        "memory",
        _memory,
        "Operand, result or workspace `ordinal` of the dispatch, of any dtype. Elements of i4, "
        "u4, i2 and u2 lie packed, the first in the low bits of a byte: they are read as i8 and "
        "u8, and not stored.",
        attributes=Ordinal,
    )
    _row(
        "loop.scratch()",
        "memory",
        _memory,
        "Memory of the workgroup from byte `offset` on, a multiple of 64; of any content at first.",
        attributes=Offset,
    )
    _row("loop.local()", "memory", _memory,
         "Fast memory that the work items of a group share, from byte `offset` on, a multiple of "
         "64; of any content at first.", attributes=Offset)  # fmt: skip


def _indices() -> None:
    _FAMILY.append("Index arithmetic")
    docs = (
        "a + b.",
        "a - b.",
        "a * b.",
        "a / b of a >= 0 and b > 0.",
        "What a / b leaves, of a >= 0 and b > 0.",
        "The smaller one.",
        "The larger one.",
    )
    for name, doc in zip(ARITHMETIC, docs, strict=True):
        _row(f"{name}(a: index, b: index)", "index", _arithmetic, f"{doc} No overflow.")


def _control() -> None:
    _FAMILY.append("Control")
    _row(
        "loop.for(lower: index, upper: index, step: index, *initial: value)",
        "as initial",
        _for,
        "For lower, lower + step, ... below upper: the body takes the index and what is carried, "
        "and yields what is carried on. A hint to unroll changes nothing. `poll`: behind every so "
        "many steps, but the last ones, stands a `loop.poll`; 0 for none.",
        region_count=1,
        attributes=For,
    )
    _row(
        "loop.if(condition: i1)",
        "what the branches yield",
        _if,
        "The first region where the condition is true, else the second.",
        region_count=2,
    )
    _row("yield(*values: value)", "", _nothing, "Ends a region with its values.", "ends")
    _row(
        "return(*values: value)",
        "",
        _nothing,
        "Ends the kernel, or a function with its value.",
        "ends",
    )
    _row(
        "loop.fault(condition: mask, index: indices, bound: index)",
        "",
        _fault,
        "Where a lane of the condition is true: notes that this index of an operand lies outside "
        "of the bound, and ends the work item, or in a kernel with a barrier goes on.",
        "faults",
        attributes=Fault,
    )
    _row("loop.poll()", "", _nothing,
         "Notes that about so many ops were done since the last one; where that is a lot, asks "
         "whether the call is to end, which then ends the kernel. For one work item only.",
         "polls", attributes=Poll)  # fmt: skip
    _row("loop.barrier()", "", _nothing,
         "Waits for all work items of the group: what they stored before it, in any memory, all "
         "of them read after it. All items of a group reach it or none.", "waits")  # fmt: skip


def _memory_ops() -> None:
    _FAMILY.append("Memory")
    count = "?count: index"
    aligned = "`aligned`: the vector lies on a multiple of its length."
    _row(
        f"loop.load(memory: memory, index: index, {count})",
        "scalar or vector",
        _load,
        "The element at the index, or adjacent ones from there; lanes from the count on are not "
        f"touched, and 0. {aligned}",
        "reads",
        attributes=Access,
    )
    _row(
        f"loop.store(memory: memory, index: index, value: value, {count})",
        "",
        _store,
        f"Writes a scalar, or the lanes below the count, from the index on. {aligned}",
        "writes",
        attributes=Access,
    )
    _row(
        "loop.gather(memory: memory, indices: i64 vector)",
        "vector",
        _gather,
        "The elements at the indices.",
        "reads",
    )
    _row("loop.same(a: memory, b: memory)", "i1", _same,
         "Whether both start at the same address: a result that lies in an operand.")  # fmt: skip


def _lane_ops() -> None:
    _FAMILY.append("Lanes")
    _row("loop.broadcast(scalar: scalar)", "vector", _broadcast, "Equal lanes.")
    _row("loop.extract(vector: vector)", "scalar", _extract, "One lane.", attributes=Lane)
    _row(
        "loop.insert(vector: vector, scalar: scalar)",
        "vector",
        _insert,
        "The vector with one lane replaced.",
        attributes=Lane,
    )
    _row(
        "loop.shuffle(a: vector, b: vector)",
        "vector",
        _shuffle,
        "Lane i is lane lanes[i] of a followed by b.",
        attributes=Shuffle,
    )
    _row(
        "loop.reduce(vector: vector)",
        "scalar",
        _reduce,
        "All lanes combined: the lower half with the upper one, until one is left.",
        attributes=Reduce,
    )
    _row("loop.any(vector: vector)", "i1", _any, "Whether a lane is true.")
    _row(
        "loop.fma(a: value, b: value, c: value)",
        "as c",
        _fma,
        "a * b + c, rounded once where the target can. `exact`: where it cannot, the bits that "
        "rounding the product would lose count all the same.",
        attributes=Fma,
    )
    _row(
        "loop.dot4(a: value, b: value, c: value)",
        "as c",
        _dot4,
        "c + the products of the four bytes of each 32-bit word of a with those of b, modulo 2^32. "
        "`left` and `right`: i8 or u8, what the bytes are.",
        attributes=Dot4,
    )


def _parts() -> None:
    _FAMILY.append("Parts of math functions")
    _row(
        "loop.scale(value: value, power: value)",
        "as value",
        _part,
        "value * 2^power: a normal value, a whole power; rounded once.",
    )
    _row(
        "loop.angle(x: value)",
        "as x",
        _part,
        "What is left of x, if it is not small, beside the nearest multiple of pi / 2.",
    )
    _row(
        "loop.quadrant(x: value)",
        "as x",
        _part,
        "Which multiple that is, modulo 4.",
    )


for _register in (_leaves, _indices, _control, _memory_ops, _lane_ops, _parts):
    _register()
