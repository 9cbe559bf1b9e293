"""Strings and hash tables. What only moves elements moves where each begins and its length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.lookups import find_rows, find_texts, first_of
from ingot.compiler.frontends.strings import (
    Strings,
    are_equal,
    constant_strings,
    move_strings,
    take_strings,
)
from ingot.compiler.frontends.tflite.lowering import (
    LOWERINGS,
    OF_STRINGS,
    Context,
    HashTable,
    lowering,
)
from ingot.compiler.frontends.tflite.lowerings import (  # noqa: F401 - they fill the table
    control,
    indexing,
    selections,
    shapes,
)
from ingot.compiler.ir import Value

__all__ = ["MOVES"]

MOVES = (
    *("BROADCAST_TO", "CONCATENATION", "DYNAMIC_UPDATE_SLICE", "EXPAND_DIMS", "FILL", "GATHER"),
    *("GATHER_ND", "PACK", "RESHAPE", "REVERSE_V2", "SELECT", "SELECT_V2", "SLICE", "SPLIT"),
    *("SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
)
"""Ops that only move elements, and are told where alone by numbers."""


def _moved(name: str) -> Callable[..., list[Strings]]:
    function = LOWERINGS[name].function
    return lambda c, *given: move_strings(c, given, lambda inner: function(c, *inner))


for _name in MOVES:
    lowering(_name, into=OF_STRINGS)(_moved(_name))


@lowering("SHAPE", "RANK", into=OF_STRINGS)
def shape(c: Context, x: Strings) -> Any:
    return LOWERINGS[c.operator.name].function(c, x.lengths)


@lowering("EQUAL", "NOT_EQUAL", into=OF_STRINGS)
def equal(c: Context, a: Strings, b: Strings) -> Value:
    same = are_equal(c, a, b, lambda x, what: c.size_of(c.parts(x)[0], what))
    return same if c.operator.name == "EQUAL" else c.op("not", same)


@lowering("HASHTABLE", raw=True)
def hash_table(c: Context) -> HashTable:
    return c.walker.tables.setdefault(c.options.table_id, HashTable())


@lowering("HASHTABLE_IMPORT", raw=True)
def import_table(c: Context, table: HashTable, *_: Any) -> list[Any]:
    """LiteRT fills a table once, too."""
    keys, values = c.inputs[1:]
    if not keys or not values or keys.data is None or values.data is None:
        raise UnsupportedNode("what a table is filled with must be constants of the model")
    if table.keys is None:
        table.keys, table.values = keys, values
    return []


@lowering("HASHTABLE_SIZE", raw=True)
def table_size(c: Context, table: HashTable) -> Value:
    """How many different keys there are."""
    keys, count = table.keys, _count(table)
    assert keys is not None
    if count:
        count = len({*(keys.read_texts() if keys.is_text else keys.read().array.flat)})
    return c.constant([count], "i64")


@lowering("HASHTABLE_FIND", raw=True)
def find(c: Context, table: HashTable, x: Value | Strings, default: Value | Strings) -> Any:
    """What the table has for each element, by the first of equal keys, else the default."""
    count = _count(table)
    keys, values = table.keys, table.values
    assert keys is not None
    assert values is not None
    if not count:
        shape = shape_of(x.starts if isinstance(x, Strings) else x)

        def wide(parts: Sequence[Value]) -> Value:
            return c.broadcast_to(c.reshape(parts[0], ()), shape)

        return move_strings(c, [default], wide) if isinstance(default, Strings) else wide([default])
    if isinstance(x, Strings):
        place, is_known = find_texts(c, x, keys.read_texts())
    else:
        place, is_known = find_rows(c, [x], [keys.read().array.reshape(-1)])
    if not isinstance(default, Strings):
        numbers = c.reshape(c.literal(values.read()), (count,))
        found = c.op("take", numbers, place, axis=0, mode="clamp")
        otherwise = c.broadcast_to(c.reshape(default, ()), shape_of(found))
        return c.op("select", is_known, found, otherwise)
    texts = take_strings(c, constant_strings(c, values.read_texts(), (count,)), place)
    select = LOWERINGS["SELECT_V2"].function
    scalar = move_strings(c, [default], lambda parts: c.reshape(parts[0], ()))
    return move_strings(c, [is_known, texts, *scalar], lambda parts: select(c, *parts))


def _count(table: HashTable) -> int:
    if not isinstance(table, HashTable) or table.keys is None:
        raise UnsupportedNode("the table is read before anything fills it")
    return math.prod(dim or 0 for dim in table.keys.shape)


def _equal_to_each(c: Context, x: Value, keys: Value) -> Value:
    """i1[..., keys]: which key an element is."""
    shape = (*shape_of(x), *shape_of(keys))
    wide = c.op("broadcast", x, shape=shape, dimensions=tuple(range(type_of(x).rank)))
    return c.compare("eq", wide, c.broadcast_to(keys, shape))


@lowering("HASHTABLE_LOOKUP", raw=True)
def lookup(c: Context, x: Value, keys: Value, values: Value | Strings) -> list[Any]:
    """The rows [n, ...] of the values [m, ...] whose keys i32[m] the elements i32[n] are, zeros or
    empty strings for what is no key; and u8[n], which ones are."""
    place, is_known = first_of(c, _equal_to_each(c, x, keys))
    if isinstance(values, Strings):
        rows = take_strings(c, values, place)
        none = c.fill(0, like=rows.lengths)
        found: Any = Strings(rows.starts, c.op("select", is_known, rows.lengths, none), rows.data)
    else:
        found = c.op("take", values, place, axis=0, mode="clamp")
        shape = shape_of(found)
        wide = c.op("broadcast", is_known, shape=shape, dimensions=(0,))
        found = c.op("select", wide, found, 0)
    return [found, c.convert(is_known, "u8")]


_EITHER = (
    *("CALL", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_LOOKUP", "IF", "STABLEHLO_CASE"),
    *("STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "WHILE"),
)
OF_STRINGS |= {name: LOWERINGS[name] for name in _EITHER}
