"""The rules of loop ops: the types of the results that an op has, or RuleError."""

from __future__ import annotations

from typing import Any

from ingot.compiler.graph.ops.table import require
from ingot.compiler.ir import (
    IndexType,
    MemoryType,
    Op,
    ScalarType,
    Type,
    Value,
    VectorType,
    defined_by,
)
from ingot.compiler.kernels.loop_attributes import (
    Access,
    Axis,
    Code,
    Constant,
    Dot4,
    DotParts,
    DotTiles,
    Lane,
    MultiplyTile,
    Reduce,
    Shuffle,
    Table4,
    Tile,
    Tiles,
)
from ingot.hal.spec import DType, dtype

_I1, _I64 = ScalarType(dtype("i1")), ScalarType(dtype("i64"))
_INDEX = IndexType()


def index_or_data(op: Op, operands: list[Value]) -> tuple[Type, ...]:
    """An index, or an i64 scalar: all 64 bits of what is made of the operands. The builder says
    which, for an i64 among them may be an index that somebody else takes as data."""
    given = op.results[0].type if op.results else None
    if all(value.type == _I64 for value in operands):
        return (_INDEX,) if given == _INDEX else (_I64,)
    return (_I64,) if given == _I64 else (_INDEX,)


def _type(value: Value) -> Any:
    return value.type


def _declared(op: Op, *possible: type) -> Any:
    """The type that a leaf declares."""
    require(len(op.results) == 1, f"has one result, got {len(op.results)}")
    given = op.results[0].type
    names = " or ".join(each.__name__.removesuffix("Type").lower() for each in possible)
    require(isinstance(given, possible), f"gives {names}, not {given}")
    return given


def constant(op: Op) -> tuple[Type, ...]:
    given = _declared(op, ScalarType, VectorType, IndexType)
    value, element = Constant.of(op).value, _I64.dtype if given == _INDEX else given.dtype
    wanted = {"f": float, "b": bool}.get("f" if element.is_float else element.kind, int)
    require(type(value) is wanted, f"the value {value!r} is no {element.name}")
    if wanted is int:
        low, high = (dtype("i32") if given == _INDEX else element).limits
        require(low <= value <= high, f"the value {value} is none of {given}")
    return (given,)


def memory(op: Op) -> tuple[Type, ...]:
    given = _declared(op, MemoryType)
    stored = given.dtype
    kernels_have = given.is_packed or stored.is_boolean or stored.bits >= 8
    require(kernels_have, f"kernels have no {given}: bytes of codes are u8")
    only_read = "elements that lie packed are read, not stored: only a binding has them"
    require(op.name == "loop.binding" or not given.is_packed, only_read)
    return (given,)


def count(op: Op) -> tuple[Type, ...]:
    _require_axis(op)
    given = _declared(op, IndexType, ScalarType)
    return (_I64 if given == _I64 else _INDEX,)


def _require_axis(op: Op) -> None:
    if isinstance(op.attributes, Axis):
        axis = op.attributes.axis
        require(0 <= axis < 3, f"axis {axis} is not 0, 1 or 2")


def small_count(op: Op) -> tuple[Type, ...]:
    _require_axis(op)
    return (_INDEX,)


def counting(op: Op) -> tuple[Type, ...]:
    given = _declared(op, VectorType)
    return (VectorType(_I64.dtype, given.lanes),)


def arithmetic(op: Op) -> tuple[Type, ...]:
    return index_or_data(op, op.operands)


def for_loop(op: Op) -> tuple[Type, ...]:
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


def branch(op: Op) -> tuple[Type, ...]:
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


def nothing(op: Op) -> tuple[Type, ...]:
    return ()


def _element(memory: Value) -> DType:
    return memory.typed(MemoryType).element


def load(op: Op) -> tuple[Type, ...]:
    given = _declared(op, ScalarType, VectorType)
    lanes = given.lanes if isinstance(given, VectorType) else 1
    _require_vector(op, lanes, len(op.operands) > 2)
    element = _element(op.operands[0])
    return (VectorType(element, lanes) if lanes > 1 else ScalarType(element),)


def store(op: Op) -> tuple[Type, ...]:
    value = _type(op.operands[2])
    memory = op.operands[0].typed(MemoryType)
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
        own = defined_by(op.operands[0], "loop.local", "loop.scratch")
        require(own is not None, "only memory of the kernel's own is aligned")


def gather(op: Op) -> tuple[Type, ...]:
    element, places = _element(op.operands[0]), _type(op.operands[1])
    fits = places.dtype.name == "i64" or element.name == "u8"
    require(fits, f"takes {element} at places of u8, expected u8")
    return (VectorType(element, places.lanes),)


def same(op: Op) -> tuple[Type, ...]:
    return (_I1,)


def fault(op: Op) -> tuple[Type, ...]:
    lanes = [getattr(value.type, "lanes", 1) for value in op.operands[:2]]
    require(lanes[0] == lanes[1], f"has a condition of {lanes[0]} lanes, an index of {lanes[1]}")
    return ()


def broadcast(op: Op) -> tuple[Type, ...]:
    given, scalar = _declared(op, VectorType), _type(op.operands[0])
    return (VectorType(_I64.dtype if scalar == _INDEX else scalar.dtype, given.lanes),)


def _require_lane(op: Op, count: int, *lanes: int) -> None:
    for lane in lanes:
        require(0 <= lane < count, f"names lane {lane} of {count}")


def extract(op: Op) -> tuple[Type, ...]:
    vector = _type(op.operands[0])
    _require_lane(op, vector.lanes, Lane.of(op).lane)
    return (ScalarType(vector.dtype),)


def insert(op: Op) -> tuple[Type, ...]:
    vector, scalar = map(_type, op.operands)
    _require_lane(op, vector.lanes, Lane.of(op).lane)
    element = _I64.dtype if scalar == _INDEX else scalar.dtype
    require(element is vector.dtype, f"inserts {scalar} into {vector}")
    return (vector,)


def shuffle(op: Op) -> tuple[Type, ...]:
    a, b = map(_type, op.operands)
    require(a == b, f"takes two equal vectors, not {a} and {b}")
    lanes = Shuffle.of(op).lanes
    require(len(lanes) > 1, "gives two lanes or more")
    _require_lane(op, 2 * a.lanes, *lanes)
    return (VectorType(a.dtype, len(lanes)),)


def pick(op: Op) -> tuple[Type, ...]:
    vector, places = map(_type, op.operands)
    element = vector.dtype
    bits = 8 if element.is_boolean else 32 if element.is_half else element.bits
    fitting = VectorType(dtype(f"i{bits}"), vector.lanes)
    require(places == fitting, f"takes places of {fitting}, not {places}")
    return (vector,)


def reduce(op: Op) -> tuple[Type, ...]:
    vector, kind = _type(op.operands[0]), Reduce.of(op).kind
    element = vector.dtype
    bits = kind in ("and", "or", "xor")
    require(not (bits and element.is_float), f"{kind} of {vector} has no meaning")
    return (ScalarType(element),)


def any_lane(op: Op) -> tuple[Type, ...]:
    element = _type(op.operands[0]).dtype
    require(element.is_boolean, f"takes lanes of i1, not of {element}")
    return (_I1,)


def fma(op: Op) -> tuple[Type, ...]:
    a, b, c = map(_type, op.operands)
    require(a == b == c, f"takes three equal types, not {a}, {b} and {c}")
    require(a != _INDEX and not a.dtype.is_boolean, f"takes numbers, not {a}")
    return (a,)


def dot4(op: Op) -> tuple[Type, ...]:
    a, b, c = map(_type, op.operands)
    require(a == b == c, f"takes three equal types, not {a}, {b} and {c}")
    require(a != _INDEX and a.dtype.name == "i32", f"takes words of i32, not {a}")
    _require_bytes(Dot4.of(op).left, Dot4.of(op).right)
    return (c,)


def _require_bytes(*sides: DType) -> None:
    for side in sides:
        require(side.is_integer and side.bits == 8, f"multiplies bytes, i8 or u8, not {side.name}")


def dot2(op: Op) -> tuple[Type, ...]:
    a, b, c = map(_type, op.operands)
    words, sums = _words_and_sums(a)
    require(a == b == words, f"takes words of i32, not {a} and {b}")
    require(c == sums, f"adds to as many f32, not to {c}")
    return (c,)


TILE = 16
"""Rows of a tile, and words of a row, at most."""


def shape_tiles(op: Op) -> tuple[Type, ...]:
    words = Tiles.of(op).words
    require(1 <= words <= TILE, f"takes 1 to {TILE} words at a time, not {words}")
    return ()


def dot_tiles(op: Op) -> tuple[Type, ...]:
    dot = DotTiles.of(op)
    left, right, sums = (op.operands[place] for place in (0, 5, 9))
    for side in (left, right):
        require(_element(side).name == "i32", f"takes words of i32, not {side.type}")
    is_bytes = all(each.is_integer and each.bits == 8 for each in (dot.left, dot.right))
    is_halves = dot.left is dot.right and dot.left.name == "bf16"
    pair = f"{dot.left.name} and {dot.right.name}"
    require(is_bytes or is_halves, f"multiplies bytes, i8 or u8, or bf16, not {pair}")
    wanted = "i32" if is_bytes else "f32"
    fits = dot.panels in (1, 2) and dot.lines in (1, 2)
    require(fits, f"takes one or two lines and panels, not {dot.lines} and {dot.panels}")
    require(dot.width >= dot.panels, f"stores {dot.panels} panels in rows of {dot.width}")
    _require_sums(sums, wanted)
    return ()


def dot_parts(op: Op) -> tuple[Type, ...]:
    dot = DotParts.of(op)
    left, right, sums = (op.operands[place] for place in (0, 5, 9))
    for side in (left, right):
        require(_element(side).name == "i32", f"takes words of i32, not {side.type}")
    require(dot.parts in (2, 3), f"takes numbers of two or three parts, not {dot.parts}")
    require(dot.panels in (1, 2), f"takes one or two panels, not {dot.panels}")
    require(dot.width >= dot.panels, f"stores {dot.panels} panels in rows of {dot.width}")
    _require_sums(sums, "f32")
    return ()


def multiply_tile(op: Op) -> tuple[Type, ...]:
    given = MultiplyTile.of(op)
    for side in (op.operands[0], op.operands[3]):
        require(_element(side).name == "i32", f"takes words of i32, not {side.type}")
    _require_bytes(given.left, given.right)
    require(given.left.name == "i8", f"has signed bytes on the left, not {given.left.name}")
    _require_tile(given.tile)
    return ()


def store_tile(op: Op) -> tuple[Type, ...]:
    (sums,) = op.operands
    _require_sums(sums, "i32")
    _require_tile(Tile.of(op).tile)
    return ()


def _require_sums(sums: Value, wanted: str) -> None:
    require(_element(sums).name == wanted, f"stores sums of {wanted}, not {sums.type}")
    own = defined_by(sums, "loop.scratch") is not None
    require(own, "sums are in memory of the kernel's own")


def _require_tile(number: int) -> None:
    require(number in (0, 1), f"has sums in tile 0 or 1, not {number}")


def _words_and_sums(type: ScalarType | VectorType) -> list[Type]:
    """i32 and f32 with as many lanes as the type."""
    lanes = type.lanes if isinstance(type, VectorType) else None
    elements = (dtype("i32"), dtype("f32"))
    return [VectorType(each, lanes) if lanes else ScalarType(each) for each in elements]


def fma2(op: Op) -> tuple[Type, ...]:
    a, b, c = map(_type, op.operands)
    require(a == b == c, f"takes three equal types, not {a}, {b} and {c}")
    require(a != _INDEX and a.dtype.name == "i32", f"takes words of i32, not {a}")
    return (c,)


def sum2(op: Op) -> tuple[Type, ...]:
    given, c = map(_type, op.operands)
    words, sums = _words_and_sums(given)
    require(given == words, f"takes words of i32, not {given}")
    require(c == sums, f"adds to as many f32, not to {c}")
    return (c,)


def code(op: Op) -> tuple[Type, ...]:
    given, where = _type(op.operands[0]), Code.of(op)
    words, numbers = _words_and_sums(given)
    require(given == words, f"takes words of i32, not {given}")
    fits = where.bits > 0 and 0 <= where.place <= 32 - where.bits
    require(fits and where.bits <= 8, f"has {where.bits} bits from {where.place} on of 32")
    return (numbers,)


def table4(op: Op) -> tuple[Type, ...]:
    words, table = _type(op.operands[0]), Table4.of(op).table
    require(words != _INDEX and words.dtype.name == "i32", f"takes words of i32, not {words}")
    fits = len(table) == 16 and all(0 <= each < 256 for each in table)
    require(fits, f"has a table of 16 bytes, not {table}")
    return (words,)


def part(op: Op) -> tuple[Type, ...]:
    value, *others = map(_type, op.operands)
    require(
        all(other == value for other in others), f"takes equal types, not {_list((value, *others))}"
    )
    is_float = value != _INDEX and value.dtype.name in ("f32", "f64")
    require(is_float, f"takes numbers of f32 or f64, not {value}")
    return (value,)


def _list(types: tuple[Type, ...]) -> str:
    return f"({', '.join(map(str, types))})"
