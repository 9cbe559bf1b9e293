"""Categories and labels of `ai.onnx.ml`: numbers or strings that are looked up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.lookups import find_texts, first_of
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import CLASSIC, lowering
from ingot.compiler.frontends.strings import Strings, constant_strings, matches, take_strings
from ingot.compiler.ir import Literal, Value
from ingot.hal.spec import dtype

__all__ = ["best_labels", "class_count", "give_labels"]

_I64 = dtype("i64")


def class_count(node: Node, ints: str) -> int:
    """How many labels a classifier has; `ints` is the attribute of those that are numbers."""
    return max(len(node.integers(ints) or ()), len(node.texts("classlabels_strings") or ()))


def give_labels(node: Node, places: Value, ints: str) -> Value | Strings:
    """The labels, i64[n] or strings, at the places i64[n]."""
    texts = node.texts("classlabels_strings")
    if texts:
        return _texts_at(node, texts, places)
    labels = node.integers(ints)
    if not labels:
        return places
    return node.op("take", node.constant(labels, _I64), places, axis=0, mode="clamp")


def best_labels(node: Node, scores: Value, ints: str) -> Value | Strings:
    """The label of the greatest of each row's scores [n, classes]."""
    best = node.op("arg_max", scores, axis=1, dtype=_I64)
    return give_labels(node, best, ints)


def _texts_at(node: Node, texts: Sequence[str], places: Value) -> Strings:
    return take_strings(node, constant_strings(node, texts, (len(texts),)), places)


@lowering("LabelEncoder", domain=CLASSIC)
def old_label_encoder(node: Node) -> Value | Strings:
    """Of opset 1: strings to their places among the classes, or back."""
    classes = node.texts("classes_strings")
    unsupported(not classes, "its classes_strings are missing: fix the model")
    assert classes is not None
    return _between(node, classes, range(len(classes)), node.integer("default_int64", -1))


@lowering("CategoryMapper", domain=CLASSIC)
def category_mapper(node: Node) -> Value | Strings:
    """Strings to numbers, or back."""
    texts, numbers = node.texts("cats_strings"), node.integers("cats_int64s")
    unsupported(
        not texts or numbers is None or len(texts) != len(numbers),
        "its cats_strings and cats_int64s are not as many: fix the model",
    )
    assert texts is not None
    assert numbers is not None
    return _between(node, texts, numbers, node.integer("default_int64", -1))


def _between(
    node: Node, texts: Sequence[str], numbers: Sequence[int], default: int
) -> Value | Strings:
    known = Literal(np.array(numbers, np.int64), _I64)
    if node.strings(0) is not None:
        place, is_known = _place_among(node, texts)
        found = node.op("take", node.literal(known), place, axis=0, mode="clamp")
        return node.op("select", is_known, found, default)
    place, is_known = _place_among(node, known)
    return _texts_or(node, texts, place, is_known, node.text("default_string", "_Unused"))


def _texts_or(
    node: Node, texts: Sequence[str], place: Value, is_known: Value, default: str
) -> Strings:
    last = node.fill(len(texts), like=place)
    return _texts_at(node, [*texts, default], node.op("select", is_known, place, last))


def _place_among(node: Node, keys: Sequence[str] | Literal) -> tuple[Value, Value]:
    """Which key each element of input 0 is, and whether it is one."""
    strings = node.strings(0)
    if isinstance(keys, Literal):
        return first_of(node, _meets(node, node.input(0), keys))
    unsupported(strings is None, "its keys are strings, its input is not: fix the model")
    assert strings is not None
    return find_texts(node, strings, list(keys))


@lowering("LabelEncoder", domain=CLASSIC, since=2)
def label_encoder(node: Node) -> Value | Strings:
    """The value of each element among the keys, else the default."""
    keys, values = _listed(node, "keys"), _listed(node, "values")
    counts = [
        each.array.size if isinstance(each, Literal) else len(each) for each in (keys, values)
    ]
    unsupported(
        not counts[0] or counts[0] != counts[1],
        f"it has {counts[0]} keys and {counts[1]} values: fix the model",
    )
    place, is_known = _place_among(node, keys)
    if not isinstance(values, Literal):
        given = node.tensor_texts("default_tensor")
        default = node.text("default_string", "_Unused") if given is None else given[0][0]
        return _texts_or(node, values, place, is_known, default)
    found = node.op("take", node.literal(values), place, axis=0, mode="clamp")
    default_value = node.broadcast_to(_default(node, values), shape_of(place))
    return node.op("select", is_known, found, default_value)


@lowering("OneHotEncoder", domain=CLASSIC)
def one_hot_encoder(node: Node) -> Value:
    """f32[..., categories]: 1 at the category that an element is. Unless `zeros`, each is one."""
    categories, strings = node.integers("cats_int64s"), node.strings(0)
    if strings is not None:
        texts = node.texts("cats_strings")
        unsupported(not texts, "its cats_strings are missing: fix the model")
        hits = matches(node, strings, texts or [])
    else:
        unsupported(not categories, "its categories are strings, its input is not: fix the model")
        x = node.convert(node.input(0), _I64)
        hits = _meets(node, x, Literal(np.array(categories, np.int64), _I64))
    if not node.integer("zeros", 1):
        rank = type_of(hits).rank - 1
        known = node.reduce(node.reduce(hits, [rank], "or"), range(rank), "and")
        node.require(node.convert(known, _I64), 1, "whether each element is a category")
    return node.convert(hits, "f32")


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


def _listed(node: Node, side: str) -> Literal | list[str]:
    """The keys or the values."""
    texts, given = node.texts(f"{side}_strings"), node.tensor_texts(f"{side}_tensor")
    if texts is not None or given is not None:
        return texts if texts is not None else given[0]  # type: ignore[index]
    literal = node.tensor(f"{side}_tensor")
    floats, ints = node.numbers(f"{side}_floats"), node.integers(f"{side}_int64s")
    if literal is not None:
        return Literal(literal.array.reshape(-1), literal.dtype)
    if floats is not None:
        return Literal(np.array(floats, np.float32), dtype("f32"))
    return Literal(np.array(ints or (), np.int64), _I64)


def _default(node: Node, values: Literal) -> Value:
    given = node.tensor("default_tensor")
    if given is not None:
        return node.reshape(node.literal(given), ())
    if values.dtype.is_float:
        return node.constant(node.number("default_float", 0.0), values.dtype)
    return node.constant(node.integer("default_int64", -1), values.dtype)


@lowering("DictVectorizer", domain=CLASSIC)
def dict_vectorizer(node: Node) -> Value:
    """[1, keys] of a map, which callers pass as its row."""
    row = node.input(0)
    return node.reshape(row, (1, *shape_of(row)))


@lowering("CastMap", domain=CLASSIC)
def cast_map(node: Node) -> Value:
    """[1, n] of a map, which callers pass as its row."""
    kind = node.text("cast_to", "TO_FLOAT")
    unsupported(
        kind not in ("TO_FLOAT", "TO_INT64"),
        f"its cast_to is {kind}: use TO_FLOAT or TO_INT64",
    )
    form, count = node.text("map_form", "DENSE"), node.integer("max_map", 1)
    unsupported(
        form != "DENSE" and (form != "SPARSE" or count < 1),
        f"its map_form is {form} and its max_map {count}: fix the model",
    )
    row = node.convert(node.input(0), "f32" if kind == "TO_FLOAT" else "i64")
    return node.reshape(row, (1, *shape_of(row)))


@lowering("ZipMap", domain=CLASSIC)
def zip_map(node: Node) -> Value:
    """Rows of numbers; callers learn the keys of their columns, and make maps of them."""
    keys: Sequence[str | int] | None = node.texts("classlabels_strings")
    keys = keys or node.integers("classlabels_int64s") or ()
    x = node.input(0)
    x = x if type_of(x).rank == 2 else node.reshape(x, (1, *shape_of(x)))
    node.remembered["keys", node.proto.output[0]] = keys
    return node.agree_on(x, 1, len(keys))
