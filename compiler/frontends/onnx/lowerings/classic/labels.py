"""Categories and labels of `ai.onnx.ml`: numbers are looked up; strings are no results."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import CLASSIC, lowering
from ingot.compiler.ir import Literal, Value
from ingot.hal.spec import dtype

__all__ = ["class_count", "give_labels"]

_I64 = dtype("i64")


def class_count(node: Node, ints: str) -> int:
    """How many labels a classifier has; `ints` is the attribute of those that are numbers."""
    return max(len(node.integers(ints) or ()), len(node.texts("classlabels_strings") or ()))


def give_labels(node: Node, places: Value, ints: str) -> Value | None:
    """The labels, i64[n], at the places i64[n]; None, with a note, where they are strings."""
    if node.texts("classlabels_strings"):
        scores = f", such as its scores '{node.proto.output[1]}'" if node.wants(1) else ""
        node.leave_out(
            0,
            f"its labels are strings, which are not supported: take numbers{scores}, with outputs=",
        )
        return None
    labels = node.integers(ints)
    if not labels:
        return places
    return node.op("take", node.constant(labels, _I64), places, axis=0, mode="clamp")


@lowering("LabelEncoder", domain=CLASSIC, since=2)
def label_encoder(node: Node) -> tuple[Value | None, ...]:
    """The value of each element among the keys, else the default."""
    x = node.input(0)
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if keys is not None and values is None:
        _leave_out_strings(node)
        return (None,)
    unsupported(keys is None, "its keys are strings, which are not supported")
    assert keys is not None
    assert values is not None
    count = keys.array.size
    unsupported(
        not count or count != values.array.size,
        f"it has {count} keys and {values.array.size} values: fix the model",
    )
    hits = _meets(node, x, keys)
    last = type_of(x).rank
    places = node.op("arg_max", node.convert(hits, "i32"), axis=last, dtype=_I64, last=False)
    found = node.op("take", node.literal(values), places, axis=0, mode="clamp")
    default = node.broadcast_to(_default(node, values), shape_of(x))
    return (node.op("select", node.reduce(hits, [last], "or"), found, default),)


@lowering("CategoryMapper", domain=CLASSIC)
def category_mapper(node: Node) -> tuple[None]:
    _leave_out_strings(node)
    return (None,)


@lowering("OneHotEncoder", domain=CLASSIC)
def one_hot_encoder(node: Node) -> Value:
    """f32[..., categories]: 1 at the category that an element is. Unless `zeros`, each is one."""
    categories = node.integers("cats_int64s")
    unsupported(not categories, "its categories are strings, which are not supported")
    x = node.convert(node.input(0), _I64)
    hits = _meets(node, x, Literal(np.array(categories, np.int64), _I64))
    if not node.integer("zeros", 1):
        rank = type_of(x).rank
        known = node.reduce(node.reduce(hits, [rank], "or"), range(rank), "and")
        node.require(node.convert(known, _I64), 1, "whether each element is a category")
    return node.convert(hits, "f32")


def _leave_out_strings(node: Node) -> None:
    read = node.proto.input[0]
    node.leave_out(
        0, f"its results are strings, which are not supported: take '{read}' with outputs="
    )


def _meets(node: Node, x: Value, keys: Literal) -> Value:
    """i1[..., keys]: which key an element is. A key that is NaN is every NaN; of equal keys the
    first counts."""
    rank = type_of(x).rank
    shape = (*shape_of(x), keys.array.size)
    _, firsts = np.unique(keys.array, return_index=True)
    first = np.zeros(keys.array.size, np.bool_)
    first[firsts] = True
    wide = node.op("broadcast", x, shape=shape, dimensions=tuple(range(rank)))
    table = node.convert(
        node.literal(Literal(keys.array.reshape(-1), keys.dtype)), type_of(x).dtype
    )
    hits = node.compare("eq", wide, node.broadcast_to(table, shape))
    if keys.dtype.is_float and np.isnan(keys.array).any():
        is_nan = node.broadcast_to(node.constant(np.isnan(keys.array).reshape(-1), "i1"), shape)
        hits = node.op("or", hits, node.op("and", is_nan, node.op("is_nan", wide)))
    if first.all():
        return hits
    return node.op("and", hits, node.broadcast_to(node.constant(first, "i1"), shape))


def _listed(node: Node, side: str) -> Literal | None:
    """The keys or the values; None where they are strings."""
    literal = node.tensor(f"{side}_tensor")
    floats, ints = node.numbers(f"{side}_floats"), node.integers(f"{side}_int64s")
    if literal is not None:
        return Literal(literal.array.reshape(-1), literal.dtype)
    if floats is not None:
        return Literal(np.array(floats, np.float32), dtype("f32"))
    return None if ints is None else Literal(np.array(ints, np.int64), _I64)


def _default(node: Node, values: Literal) -> Value:
    given = node.tensor("default_tensor")
    if given is not None:
        return node.reshape(node.literal(given), ())
    if values.dtype.is_float:
        return node.constant(node.number("default_float", 0.0), values.dtype)
    return node.constant(node.integer("default_int64", -1), values.dtype)
