"""Sequences of strings: the ops of numbers on where strings end, and on their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.onnx.join_elements import element_at, join_elements, length_of
from ingot.compiler.frontends.onnx.loops import Loop, Step
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, unsupported
from ingot.compiler.frontends.onnx.registry import STRING_ITEMS, STRINGS, find_lowering, lowering
from ingot.compiler.frontends.onnx.structures import Items, StringItems, Structure, as_list
from ingot.compiler.frontends.strings import Strings, from_ends, move_strings, pack
from ingot.compiler.ir import ListType, Value
from ingot.hal.spec import dtype

__all__ = ["items_of"]

_I64, _U8 = dtype("i64"), dtype("u8")


def _lower(node: Node, *inputs: Structure) -> Any:
    """The value or Items that the op of numbers makes of other inputs, and of those of the node
    behind them."""
    of_numbers = find_lowering("", node.proto.op_type, node.opset)
    assert of_numbers is not None
    inner = node.revised(node.opset)
    inner.inputs[: len(inputs)] = inputs
    return of_numbers(inner)


def items_of(node: Node, elements: Sequence[Strings]) -> StringItems:
    """The sequence of these strings."""
    pairs = [pack(node, each, node.count) for each in elements]
    ends, data = (tuple(pair[part] for pair in pairs) for part in (0, 1))
    return StringItems(Items(ends, _I64), Items(data, _U8))


def _sequence(node: Node) -> StringItems:
    given = node.structure(0)
    if not isinstance(given, StringItems):
        raise UnsupportedNode("input 0 is no sequence of strings: fix the model")
    return given


@lowering("SequenceConstruct", domain=STRINGS)
def construct(node: Node) -> StringItems:
    elements = [each for each in node.inputs if isinstance(each, Strings)]
    if len(elements) < len(node.inputs):
        raise UnsupportedNode("it takes strings and numbers: fix the model")
    return items_of(node, elements)


@lowering("SequenceInsert", domain=STRING_ITEMS)
def insert(node: Node) -> StringItems:
    sequence, x = _sequence(node), node.strings(1)
    if x is None:
        raise UnsupportedNode("numbers are put into a sequence of strings: fix the model")
    ends, data = pack(node, x, node.count)
    return StringItems(_lower(node, sequence.ends, ends), _lower(node, sequence.data, data))


@lowering("SequenceErase", domain=STRING_ITEMS)
def erase(node: Node) -> StringItems:
    sequence = _sequence(node)
    return StringItems(_lower(node, sequence.ends), _lower(node, sequence.data))


@lowering("SequenceAt", domain=STRING_ITEMS)
def at(node: Node) -> Strings:
    sequence = _sequence(node)
    return from_ends(node, _lower(node, sequence.ends), _lower(node, sequence.data))


@lowering("SequenceLength", domain=STRING_ITEMS)
def length(node: Node) -> Value:
    count: Value = _lower(node, _sequence(node).ends)
    return count


@lowering("ConcatFromSequence", domain=STRING_ITEMS)
def concat(node: Node) -> Strings:
    sequence = _sequence(node)
    if isinstance(sequence.ends, Items) and isinstance(sequence.data, Items):
        pairs = zip(sequence.ends.elements, sequence.data.elements, strict=True)
        elements = [from_ends(node, *pair) for pair in pairs]
        unsupported(not elements, "the sequence is empty: there is nothing to join")
        return move_strings(node, elements, lambda given: _lower(node, Items(tuple(given), _I64)))[
            0
        ]
    ends, data = sequence.ends, sequence.data
    assert isinstance(ends, Value)
    assert isinstance(data, Value)
    return _joined(node, ends, data)


def _joined(node: Node, ends: Value, data: Value) -> Strings:
    """All elements of lists, one behind another."""

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Structure]) -> Step:
        place = inner.define_size(index, "element", "the position")
        offset, *lists = (each for each in carried if isinstance(each, Value))
        own = element_at(inner, data, place)
        texts = from_ends(inner, element_at(inner, ends, place), own)
        starts = inner.op("add", texts.starts, inner.broadcast_to(offset, shape_of(texts.starts)))
        rows = zip(lists, (starts, texts.lengths), strict=True)
        lists = [inner.op("list.insert", list, row, index=place) for list, row in rows]
        return Step(None, [inner.op("add", offset, inner.size(shape_of(own)[0])), *lists], [])

    empty = as_list(Items((), _I64), ends.typed(ListType), node.builder)
    count = node.size(length_of(node, ends))
    (_, *lists), _ = Loop(node, count, None, [node.size(0), empty, empty], take_step).run()
    starts, lengths = (_lower(node, each) for each in lists)
    lengths = node.agree(lengths, shape_of(starts))
    return Strings(starts, lengths, join_elements(node, data, 0, False))
