"""A model without the bytes of its large tensors is otherwise what protobuf reads, whatever the
bytes are."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from ingot.compiler.frontends.kept_file import KeptBytes
from ingot.compiler.frontends.onnx import cut
from tests.support.drawn import examples

_OTHERS = (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 15, 20, 22, 25, 1000, (1 << 29) - 1)


def _number(number: int, padding: int = 0) -> bytes:
    """A number of the wire, with so many bytes that it does not need."""
    groups = [number & 127]
    while number := number >> 7:
        groups.append(number & 127)
    groups += [0] * padding
    return bytes([*(each | 128 for each in groups[:-1]), groups[-1]])


def _message(random: Random, descriptor: Any, depth: int = 0) -> bytes:
    """Fields of the message and of others, right and wrong."""
    own = [
        each.number
        for each in descriptor.fields
        if each.name == "raw_data" or (each.message_type is not None and _leads(each.message_type))
    ]
    fields = b""
    for _ in range(random.randint(depth < 5, 3)):
        number = random.choice(_OTHERS if not own or random.random() < 0.15 else own)
        kind = 2 if random.random() < 0.97 else random.choice([0, 1, 5, 3, 4, 6, 7])
        fields += _number(number << 3 | kind, random.random() < 0.05)
        if kind == 0:
            fields += _number(random.getrandbits(random.choice([7, 64])))
        elif kind in (1, 5):
            fields += random.randbytes(8 if kind == 1 else 4)
        elif kind == 2:
            field = descriptor.fields_by_number.get(number)
            inner = None if field is None else field.message_type
            if inner is None or depth > 8:
                content = random.randbytes(random.randint(0, 12))
            else:
                content = _message(random, inner, depth + 1)
            wrong = random.choice([-1, 1, 1 << 31]) if random.random() < 0.01 else 0
            padding = random.choice([1, 4]) if random.random() < 0.05 else 0
            fields += _number(max(0, len(content) + wrong), padding) + content
    return fields


def _leads(descriptor: Any) -> bool:
    """Whether a message holds tensors."""
    return descriptor.name in (
        *("GraphProto", "NodeProto", "AttributeProto", "TensorProto", "SparseTensorProto"),
        *("FunctionProto", "TrainingInfoProto"),
    )


def _drawn(seed: int) -> bytes:
    random = Random(seed)
    data = bytearray(_message(random, onnx.ModelProto.DESCRIPTOR))
    if data and random.random() < 0.3:
        for _ in range(random.randint(0, 2)):
            data[random.randrange(len(data))] = random.getrandbits(8)
        del data[len(data) - random.randint(0, 2) :]
    return bytes(data)


def _messages(message: Any) -> Iterator[Any]:
    """The message and all in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            repeated = not hasattr(value, "ListFields")
            for each in value if repeated else [value]:
                yield from _messages(each)


def _whole(data: bytes) -> tuple[bytes | None, int]:
    """What is read of the bytes, written again after the tokens have become what they stand for,
    and how many there were; None if it is no message."""
    source = cut.Cut(KeptBytes(data))
    try:
        model = source.parse(BytesIO(data))
    except DecodeError:
        return None, 0
    count = 0
    for message in _messages(model):
        if isinstance(message, onnx.TensorProto):
            place = source.place(message.raw_data)
            if place is not None:
                message.raw_data = place.file.read(place.offset, place.length).tobytes()
                count += 1
    return model.SerializeToString(deterministic=True), count


def _expected(data: bytes) -> bytes | None:
    try:
        return onnx.ModelProto.FromString(data).SerializeToString(deterministic=True)
    except DecodeError:
        return None


@pytest.mark.parametrize("window", [11, 1 << 16])
def test_any_bytes_are_read_as_protobuf_reads_them(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut, "_LARGE", 0)
    monkeypatch.setattr(cut, "_WINDOW", window)
    counts = []

    @examples(1000)
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        data = _drawn(seed)
        found, count = _whole(data)
        expected = _expected(data)
        assert found == expected
        counts.append((count, expected is None))

    check()
    cuts = sum(count > 0 for count, _ in counts)
    assert min(cuts, sum(is_none for _, is_none in counts)) > 50


def test_the_last_of_a_tensor_in_two_parts_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "_LARGE", 0)
    first, second = (onnx.TensorProto(raw_data=bytes([n] * 40), name=str(n)) for n in (1, 2))
    parts = [onnx.AttributeProto(t=each).SerializeToString() for each in (first, second)]
    attribute = b"".join(parts)  # protobuf merges them
    node = b"\x2a" + _number(len(attribute)) + attribute
    graph = b"\x0a" + _number(len(node)) + node
    data = b"\x3a" + _number(len(graph)) + graph
    assert _whole(data) == (_expected(data), 1)
    tensor = onnx.ModelProto.FromString(data).graph.node[0].attribute[0].t
    assert tensor.raw_data == bytes([2] * 40)


def test_only_large_tensors_are_cut_out_wherever_they_are() -> None:
    large, small = np.ones(20000, np.float32), np.ones(3, np.float32)
    tensors = [numpy_helper.from_array(each, "w") for each in (large, small)]
    body = helper.make_graph([], "body", [], [], tensors)
    nodes = [
        helper.make_node("Constant", [], ["c"], value=tensors[0]),
        helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body),
    ]
    graph = helper.make_graph(nodes, "g", [], [], tensors)
    function = helper.make_function("d", "f", [], ["c"], nodes[:1], [])
    model = helper.make_model(graph, functions=[function])
    data = model.SerializeToString()
    assert _whole(data) == (_expected(data), 5)
    source = cut.Cut(KeptBytes(data))
    assert len(source.parse(BytesIO(data)).SerializeToString()) < 2000


def test_bytes_of_a_tensor_are_not_taken_for_a_token() -> None:
    source = cut.Cut(KeptBytes(bytes(100)))
    assert source.place(bytes(32)) is None
    assert source.place(b"") is None
