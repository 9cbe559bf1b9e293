"""Sequences and optionals.

As long as all lengths are known, the ops on sequences only move values about, and nothing is
left of them; else they become ops on lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import onnx

from ingot.compiler.frontends.amounts import MOST_SIZES
from ingot.compiler.frontends.onnx.join_elements import (
    element_at,
    join_elements,
    length_of,
    require_rank,
)
from ingot.compiler.frontends.onnx.loops import Loop, Step
from ingot.compiler.frontends.onnx.lowerings.string_sequences import items_of
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import STRINGS, lowering
from ingot.compiler.frontends.onnx.structures import (
    Items,
    Maybe,
    StringItems,
    Structure,
    as_list,
    list_of_types,
)
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.frontends.strings import Strings, from_ends, move, pack, tensor_shape
from ingot.compiler.graph.rewriter import splat_of
from ingot.compiler.ir import ListType, TensorType, Value
from ingot.compiler.ir.dims import Dim, ceildiv, symbol
from ingot.compiler.ir.dims import minimum as least
from ingot.hal.spec import dtype

__all__: list[str] = []

_GREATEST_COUNT = 1024  # parts of a tensor that are cut one by one, not in a loop


def _sequence(node: Node, index: int = 0) -> Items | Value:
    """An input that must be a sequence: its elements, or a list."""
    structure = _content(node, node.given(index))
    is_list = isinstance(structure, Value) and isinstance(structure.type, ListType)
    if isinstance(structure, Items):
        return structure
    unsupported(not is_list, f"input {index} is no sequence: fix the model")
    assert isinstance(structure, Value)
    return structure


def _content(node: Node, given: Structure) -> Structure:
    """What an optional holds, which the call checks; anything else is what it is."""
    if not isinstance(given, Maybe):
        return given
    if given.content is None or given.present is False:
        raise UnsupportedNode("the optional has no element: fix the model")
    if isinstance(given.present, Value):
        flag = node.convert(given.present, "i64")
        name = next(node.fresh_symbols("present"))
        what = "the optional has no element: its count"
        attributes = {"symbols": (name,), "low": 1, "high": 1, "what": what}
        node.builder.append("size", (flag,), (), attributes)
    return _unboxed(node, given.content) if given.boxed else given.content


def _unboxed(node: Node, box: Structure) -> Value | Strings:
    """The one element."""
    if isinstance(box, StringItems):
        return from_ends(node, *(_unboxed(node, part) for part in (box.ends, box.data)))  # type: ignore[arg-type]
    if isinstance(box, Items):
        return box.elements[0]
    assert isinstance(box, Value)
    return element_at(node, box, 0)


def _list(sequence: Items | Value, node: Node, *more: Value) -> Value:
    """The sequence as a list that can take elements like `more`."""
    if isinstance(sequence, Items):
        types = [type_of(each) for each in (*sequence.elements, *more)]
        return as_list(sequence, list_of_types(types, sequence.dtype), node.builder)
    type = sequence.typed(ListType)
    if not more:
        return sequence
    shape = list(type.shape)
    for each in map(type_of, more):
        if type.any_rank or each.rank != type.rank:
            node.learn_rank(sequence, each.rank)
        fits = each.dtype is type.dtype and each.rank == type.rank
        unsupported(not fits, f"{each} is no element of {type}: dtype and rank must be equal")
        for axis, dim in enumerate(each.shape):
            if dim != shape[axis]:
                shape[axis] = None
    return as_list(sequence, ListType(type.dtype, tuple(shape)), node.builder)


def _learn_declared(node: Node, list: Value, added: int = 0) -> None:
    """The rank that the model notes of what the node makes of elements, which has `added` axes
    more than they, tells theirs if a graph input leaves it open."""
    rank, type = node.declared_rank(), list.typed(ListType)
    if rank is not None and (type.any_rank or type.rank == 0 != rank - added):
        node.learn_rank(list, max(rank - added, 0))


def _length(sequence: Items | Value, node: Node) -> Dim:
    return len(sequence.elements) if isinstance(sequence, Items) else length_of(node, sequence)


def _known_position(node: Node, index: Value | None, length: int, limit: int) -> int | None:
    """The position if it is known at import: below `limit`, from the front; the last without
    an `index`. UnsupportedNode: it is out of range."""
    if index is None:
        return limit - 1
    known = node.known(index)
    if known is None:
        return None
    position = known.reshape(-1)[0]
    if not isinstance(position, int):
        return None
    unsupported(
        not -length <= position < limit,
        f"position {position} in a sequence of {length} elements: fix the model",
    )
    return position + length if position < 0 else position


def _position(node: Node, index: Value | None, length: Dim, limit: Dim) -> Dim:
    """The position as a dim, which is checked when the model runs."""
    if index is None:
        return limit - 1
    given = node.convert(node.reshape(index, ()), "i64")
    zero, size = node.constant(0, "i64"), node.size(length)
    wrapped = node.op("add", given, size)
    front = node.op("select", node.compare("lt", given, zero), wrapped, given)
    name = next(node.fresh_symbols("position"))
    bounds = {"low": 0, "high": limit - 1, "what": "the position in the sequence"}
    attributes = {"symbols": (name,), **bounds, "status": "OutOfRange"}
    node.builder.append("size", (front,), (), attributes)
    return symbol(name)


@lowering("SequenceEmpty")
def sequence_empty(node: Node) -> Structure:
    if node.integer("dtype", 0) == onnx.TensorProto.STRING:
        return StringItems(Items((), dtype("i64")), Items((), dtype("u8")))
    element = dtype_of(node.integer("dtype", onnx.TensorProto.FLOAT))
    if element is None:
        raise UnsupportedNode("its elements are no numbers: use a numeric dtype")
    return Items((), element)


@lowering("SequenceConstruct")
def sequence_construct(node: Node) -> Structure:
    elements = tuple(node.present())
    return Items(elements, type_of(elements[0]).dtype)


@lowering("SequenceInsert")
def sequence_insert(node: Node) -> Structure:
    sequence, x, index = _sequence(node), node.input(1), node.optional(2)
    if isinstance(sequence, Items):
        unsupported(
            type_of(x).dtype is not sequence.dtype,
            f"{type_of(x)} is put into a sequence of {sequence.dtype.name}: fix the model",
        )
        length = len(sequence.elements)
        place = _known_position(node, index, length, length + 1)
        if place is not None:
            elements = (*sequence.elements[:place], x, *sequence.elements[place:])
            return Items(elements, sequence.dtype)
    size = _length(sequence, node)
    list = _list(sequence, node, x)
    return node.op("list.insert", list, x, index=_position(node, index, size, size + 1))


@lowering("SequenceErase")
def sequence_erase(node: Node) -> Structure:
    sequence, index = _sequence(node), node.optional(1)
    if isinstance(sequence, Items):
        length = len(sequence.elements)
        unsupported(length == 0, "the sequence is empty: fix the model")
        place = _known_position(node, index, length, length)
        if place is not None:
            elements = (*sequence.elements[:place], *sequence.elements[place + 1 :])
            return Items(elements, sequence.dtype)
    size = _length(sequence, node)
    return node.op("list.erase", _list(sequence, node), index=_position(node, index, size, size))


@lowering("SequenceAt")
def sequence_at(node: Node) -> Structure:
    sequence, index = _sequence(node), node.input(1)
    if isinstance(sequence, Items):
        length = len(sequence.elements)
        place = _known_position(node, index, length, length)
        if place is not None:
            return sequence.elements[place]
    size, list = _length(sequence, node), _list(sequence, node)
    _learn_declared(node, list)
    return element_at(node, list, _position(node, index, size, size))


@lowering("SequenceLength")
def sequence_length(node: Node) -> Value:
    return node.size(_length(_sequence(node), node))


@lowering("ConcatFromSequence")
def concat_from_sequence(node: Node) -> Value:
    sequence, new_axis = _sequence(node), bool(node.integer("new_axis", 0))
    if not isinstance(sequence, Items):
        _learn_declared(node, sequence, int(new_axis))
        require_rank(sequence)
        axis = node.axis(0, sequence.typed(ListType).rank + new_axis)
        return join_elements(node, sequence, axis, new_axis)
    unsupported(not sequence.elements, "the sequence is empty: there is nothing to join")
    axis = node.axis(0, type_of(sequence.elements[0]).rank + new_axis)
    elements = list(sequence.elements)
    if new_axis:
        shapes = [list(shape_of(each)) for each in elements]
        elements = [
            node.reshape(each, [*shape[:axis], 1, *shape[axis:]])
            for each, shape in zip(elements, shapes, strict=True)
        ]
    return elements[0] if len(elements) == 1 else node.op("concatenate", *elements, axis=axis)


# Splitting.


@lowering("SplitToSequence")
@lowering("SplitToSequence", domain=STRINGS)
def split_to_sequence(node: Node) -> Structure:
    x = node.strings(0) or node.input(0)
    shape = tensor_shape(x)
    axis = node.axis(0, len(shape))
    dim, split = shape[axis], node.optional(1)
    squeeze = split is None and not node.integer("keepdims", 1)
    if split is None:
        return _chunks(node, x, axis, 1, squeeze)
    if type_of(split).rank == 0:
        chunk = node.parts(1)[0]
        return _chunks(node, x, axis, node.define_size(chunk, "chunk", "the split", 1), False)
    count = shape_of(split)[0]
    if node.known(split) is None and not (isinstance(count, int) and count <= MOST_SIZES):
        return _pieces(node, x, axis, split)
    start: Dim = 0
    elements: list[Value | Strings] = []
    for size in node.define_dims(1, "the split"):
        elements.append(_cut(node, x, axis, start, start + size))
        start = start + size
    if start != dim:
        node.builder.append("assert", (), (), {"kind": "equal", "a": start, "b": dim})
    return _parts(node, x, elements)


def _pieces(node: Node, x: Value | Strings, axis: int, split: Value) -> Structure:
    """Parts along the axis of as many lengths as only the call knows."""
    dim, split = tensor_shape(x)[axis], node.convert(split, "i64")
    ends, each = node.op("cumulative", split, axis=0, kind="add"), splat_of(split)
    node.require(node.reduce(split, [0], "add"), dim, "the sum of the split")

    def piece_at(inner: Node, at: Dim, index: Value) -> Value | Strings:
        if each is not None:
            return _cut(inner, x, axis, at * int(each), (at + 1) * int(each))
        size, end = (inner.op("take", row, index, axis=0, mode="clamp") for row in (split, ends))
        length = inner.define_size(size, "length", "the split", 0, dim)
        start = inner.define_size(inner.op("sub", end, size), "start", "a part of the split")
        inner.builder.append("assert", (), (), {"kind": "le", "a": start + length, "b": dim})
        return _cut(inner, x, axis, start, start + length)

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Structure]) -> Step:
        at = inner.define_size(index, "part", "the part")
        (sequence,) = carried
        return Step(None, [_inserted(inner, sequence, piece_at(inner, at, index), at)], [])

    empty, count = _parts(node, x, []), node.size(shape_of(split)[0])
    (result,), _ = Loop(node, count, None, [empty], take_step).run()
    return result


def _parts(node: Node, x: Value | Strings, elements: Sequence[Value | Strings]) -> Structure:
    """The sequence of elements that are parts of x."""
    if isinstance(x, Strings):
        return items_of(node, [each for each in elements if isinstance(each, Strings)])
    return Items(tuple(each for each in elements if isinstance(each, Value)), type_of(x).dtype)


def _cut(node: Node, x: Value | Strings, axis: int, start: Dim, limit: Dim) -> Value | Strings:
    limits = list(tensor_shape(x))
    starts: list[Dim] = [0] * len(limits)
    starts[axis], limits[axis] = start, limit
    ones = (1,) * len(starts)
    return move(x, partial(node.op, "slice", start=starts, limit=limits, stride=ones))


def _chunks(node: Node, x: Value | Strings, axis: int, chunk: Dim, squeeze: bool) -> Structure:
    """Parts of `chunk` along the axis, of which the last may be shorter."""
    dim = tensor_shape(x)[axis]

    def part(inner: Node, start: Dim) -> Value | Strings:
        cut = _cut(inner, x, axis, start, least(start + chunk, dim))
        if not squeeze:
            return cut
        shape = tensor_shape(cut)
        return move(cut, partial(inner.reshape, shape=[*shape[:axis], *shape[axis + 1 :]]))

    if isinstance(dim, int) and isinstance(chunk, int) and dim <= _GREATEST_COUNT * chunk:
        return _parts(node, x, [part(node, start) for start in range(0, dim, chunk)])

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Structure]) -> Step:
        at = inner.define_size(index, "part", "the part")
        (sequence,) = carried
        return Step(None, [_inserted(inner, sequence, part(inner, at * chunk), at)], [])

    empty = _parts(node, x, [])
    (result,), _ = Loop(node, node.size(ceildiv(dim, chunk)), None, [empty], take_step).run()
    return result


def _inserted(node: Node, sequence: Structure, x: Value | Strings, place: Dim) -> Structure:
    """A list with x in front of element `place`."""
    if isinstance(sequence, StringItems) and isinstance(x, Strings):
        both = zip((sequence.ends, sequence.data), pack(node, x, node.count), strict=True)
        ends, data = (_inserted(node, part, each, place) for part, each in both)
        return StringItems(ends, data)  # type: ignore[arg-type]
    assert isinstance(sequence, (Items, Value))
    assert isinstance(x, Value)
    return node.op("list.insert", _list(sequence, node, x), x, index=place)


# Maps.


@lowering("SequenceMap")
def sequence_map(node: Node) -> tuple[Structure, ...]:
    """The body of every element; further inputs are sequences of the same length, or tensors
    that all elements see."""
    graph = node.graph("body")
    first, *others = (node.given(index) for index in range(len(node.inputs)))
    if not isinstance(first, StringItems):
        first = _sequence(node)
    empty = [_empty(each) for each in graph.output]
    for given, inner in zip((first, *others), graph.input, strict=False):
        tensor = inner.type.tensor_type
        given = given.ends if isinstance(given, StringItems) else given
        if not isinstance(given, Value) or not isinstance(given.type, ListType):
            continue
        if given.type.any_rank and tensor.HasField("shape"):
            node.learn_rank(given, len(tensor.shape.dim))
    has_texts = any(isinstance(each, StringItems) for each in (*others, *empty))
    if isinstance(first, Items) and not has_texts:
        rows = [[each, *_at(others, place)] for place, each in enumerate(first.elements)]
        made = [_made(node.bodies.lower(graph, row, node.builder), empty) for row in rows]
        return tuple(
            Items(tuple(row[place] for row in made), each.dtype)  # type: ignore[misc, union-attr]
            for place, each in enumerate(empty)
        )
    lists = [_listed(node, each) for each in (first, *others)]

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Structure]) -> Step:
        at = inner.define_size(index, "element", "the position")
        row = [_element(inner, each, at) for each in lists]
        made = _made(node.bodies.lower(graph, row, inner.builder), empty)
        pairs = zip(carried, made, strict=True)
        return Step(None, [_inserted(inner, *pair, at) for pair in pairs], [])

    count = _length(first.ends if isinstance(first, StringItems) else first, node)
    results, _ = Loop(node, node.size(count), None, empty, take_step).run()
    return tuple(results)


def _listed(node: Node, given: Structure) -> Structure:
    """Sequences as lists; what all elements see as it is."""
    if isinstance(given, StringItems):
        return StringItems(_list(given.ends, node), _list(given.data, node))
    return _list(given, node) if _is_sequence(given) else given  # type: ignore[arg-type]


def _element(node: Node, given: Structure, at: Dim) -> Structure:
    """Element `at` of lists; what all elements see as it is."""
    if isinstance(given, StringItems):
        parts = (_element(node, part, at) for part in (given.ends, given.data))
        return from_ends(node, *parts)  # type: ignore[arg-type]
    if isinstance(given, Value) and isinstance(given.type, ListType):
        return element_at(node, given, at)
    return given


def _is_sequence(structure: Structure) -> bool:
    return isinstance(structure, Items) or (
        isinstance(structure, Value) and isinstance(structure.type, ListType)
    )


def _at(others: Sequence[Structure], place: int) -> list[Structure]:
    """Element `place` of those that are sequences; the others as they are."""
    row: list[Structure] = []
    for each in others:
        if isinstance(each, Items):
            unsupported(
                place >= len(each.elements), "its sequences differ in length: fix the model"
            )
            row.append(each.elements[place])
        else:
            unsupported(_is_sequence(each), "it maps sequences of known and of unknown length")
            row.append(each)
    return row


def _made(structures: Sequence[Structure], sequences: Sequence[Structure]) -> list[Value | Strings]:
    """What a body gives, which goes into these sequences."""
    made: list[Value | Strings] = []
    for each, sequence in zip(structures, sequences, strict=True):
        texts, of_texts = isinstance(each, Strings), isinstance(sequence, StringItems)
        tensor = isinstance(each, Value) and isinstance(each.type, TensorType)
        unsupported(
            texts != of_texts or not (texts or tensor),
            "its body gives what is no tensor, or of another type than it declares: fix the model",
        )
        made.append(each)  # type: ignore[arg-type]
    return made


def _empty(value: onnx.ValueInfoProto) -> Structure:
    """The sequence of none of what a body gives."""
    kind = value.type.tensor_type.elem_type
    if kind == onnx.TensorProto.STRING:
        return StringItems(Items((), dtype("i64")), Items((), dtype("u8")))
    element = dtype_of(kind)
    if element is None:
        raise UnsupportedNode(f"its body gives '{value.name}' of no numeric dtype: fix the model")
    return Items((), element)


# Optionals.


@lowering("Optional")
def optional(node: Node) -> Structure:
    content = node.structure(0)
    if isinstance(content, Strings):
        return Maybe(True, items_of(node, [content]), boxed=True)
    return Maybe(content is not None, content)


@lowering("OptionalHasElement")
def optional_has_element(node: Node) -> Value:
    given = node.structure(0)
    if isinstance(given, Maybe):
        if isinstance(given.present, Value):
            return given.present
        return node.constant(given.present, "i1")
    return node.constant(given is not None, "i1")


@lowering("OptionalGetElement")
def optional_get_element(node: Node) -> Structure:
    given = node.given(0)
    if isinstance(given, Maybe) and given.boxed:
        content = given.content
        box = content.ends if isinstance(content, StringItems) else content
        if isinstance(box, Value):
            _learn_declared(node, box)
    return _content(node, given)
