"""Reads a pickle of torch.save as data: of its names none is looked up, and nothing is called.

Such a pickle is a program for a stack machine. The opcodes that torch writes are followed; a name
stays a name, and of calls only those that tell where a tensor lies are understood. Other calls of
torch and torchao, such as those of options, give an object of which nothing is read; a call of
anything else is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["PickledTensor", "Wrapper", "read_pickle"]

_OF_STORAGES = {
    "ByteStorage": "uint8", "CharStorage": "int8", "ShortStorage": "int16", "IntStorage": "int32",
    "LongStorage": "int64", "HalfStorage": "float16", "FloatStorage": "float32",
    "DoubleStorage": "float64", "BoolStorage": "bool", "BFloat16Storage": "bfloat16",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_INERT = ("torch.", "torchao.")
_LONGEST = 1 << 16  # bytes of a pickle: it has no elements
_MOST_DIMS = 64
_MARK = object()


class _Name(NamedTuple):
    """Of a function or a class."""

    text: str


class _Storage(NamedTuple):
    """A member of the archive, and the name that torch has for the dtype of its elements."""

    key: str
    dtype: str


class PickledTensor(NamedTuple):
    """Strides and offset are in elements of the member `key` of the archive."""

    key: str
    dtype: str
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class Wrapper:
    """A tensor that is kept as its attributes, among which are others."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}


class _Object(NamedTuple):
    """What a call that is not of interest would make."""

    call: str


def read_pickle(data: bytes) -> PickledTensor | Wrapper:
    """The tensor that is the pickle's one object. ValueError: it is none, damaged, or calls what
    no tensor needs."""
    if len(data) > _LONGEST:
        raise ValueError(f"it has {len(data)} bytes, expected at most {_LONGEST}")
    machine = _Machine(data)
    try:
        while (opcode := machine.take(1)) != _STOP:
            if opcode not in _STEPS:
                raise ValueError(f"it has the opcode {opcode!r}, which torch.save does not write")
            _STEPS[opcode](machine)
        found = machine.stack[-1]
    except (LookupError, TypeError, AttributeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"it is damaged ({type(error).__name__})") from None
    if isinstance(found, _Object):
        raise ValueError(f"{found.call} makes it, which is not supported")
    if not isinstance(found, (PickledTensor, Wrapper)):
        raise ValueError("it is no tensor")
    return found


class _Machine:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise IndexError
        self._at += count
        return found

    def number(self, format: str) -> Any:
        (found,) = struct.unpack(format, self.take(struct.calcsize(format)))
        return found

    def text(self, format: str) -> str:
        """One of which the length stands before it."""
        return self.take(self.number(format)).decode()

    def line(self) -> str:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise IndexError
        return self.take(end + 1 - self._at)[:-1].decode()

    def to_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found


# ---- calls


def _tensor(element: Any, storage: Any, offset: Any, sizes: Any, strides: Any) -> PickledTensor:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor of it has no memory")
    if len(sizes) != len(strides) or len(sizes) > _MOST_DIMS:
        raise ValueError(f"a tensor of it has {len(sizes)} sizes and {len(strides)} strides")
    if any(type(each) is not int for each in (offset, *sizes, *strides)):
        raise ValueError("a tensor of it has sizes that are no numbers")
    name = storage.dtype if element is None else element.text.removeprefix("torch.")
    return PickledTensor(storage.key, name, offset, tuple(sizes), tuple(strides))


def _with_state(made: Any, state: Any) -> Any:
    """`state`: attributes, or these and those of slots."""
    if isinstance(made, Wrapper):
        for each in state if type(state) is tuple else (state,):
            made.attributes.update(each or {})
    return made


def _empty() -> dict[str, Any]:
    """It has no arguments: items follow."""
    return {}


_CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _empty,
    "torch._utils._rebuild_tensor_v2": lambda *given: _tensor(None, *given[:4]),
    "torch._utils._rebuild_tensor_v3": lambda *given: _tensor(given[6], *given[:4]),
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, _, __, state: _with_state(
        data, state
    ),
    "torch._utils._rebuild_wrapper_subclass": lambda *_: Wrapper(),
    "torch._tensor._rebuild_from_type_v2": lambda function, _, given, state: _with_state(
        _call(function, given), state
    ),
}


def _call(name: Any, given: Any) -> Any:
    if not isinstance(name, _Name) or type(given) is not tuple:
        raise ValueError("it calls what is no name")
    if name.text in _CALLS:
        return _CALLS[name.text](*given)
    if not name.text.startswith(_INERT):
        raise ValueError(f"it calls {name.text[:80]!r}, which no tensor needs")
    return _Object(name.text)


# ---- opcodes

_Step = Callable[[_Machine], None]


def _pushes(make: Callable[[_Machine], Any]) -> _Step:
    return lambda machine: machine.stack.append(make(machine))


def _pushes_tuple(count: int) -> _Step:
    def step(machine: _Machine) -> None:
        found = [machine.stack.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(found)))

    return step


def _extend(machine: _Machine, values: Sequence[Any]) -> None:
    into = machine.stack[-1]
    if type(into) is not list:
        raise ValueError("it appends to what is no list")
    into.extend(values)


def _set_items(machine: _Machine, items: Sequence[Any]) -> None:
    into, keys = machine.stack[-1], items[::2]
    if type(into) is not dict or len(items) % 2 or any(type(key) is not str for key in keys):
        raise ValueError("it has items of what is no dict, or keys that are no text")
    into.update(zip(keys, items[1::2], strict=True))


def _stacked_name(machine: _Machine) -> _Name:
    name, module = machine.stack.pop(), machine.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise ValueError("it has a name that is no text")
    return _Name(f"{module}.{name}")


def _storage(machine: _Machine) -> _Storage:
    kind, name, key, *_ = machine.stack.pop()
    if kind != "storage" or type(key) is not str or not isinstance(name, _Name):
        raise ValueError("it reads what is no memory of a tensor")
    return _Storage(key, _OF_STORAGES.get(name.text.rpartition(".")[2], ""))


def _reduced(machine: _Machine) -> Any:
    given, name = machine.stack.pop(), machine.stack.pop()
    return _call(name, given)


def _built(machine: _Machine) -> Any:
    state, made = machine.stack.pop(), machine.stack.pop()
    return _with_state(made, state)


def _keep(machine: _Machine, place: int) -> None:
    machine.memo[place] = machine.stack[-1]


_STOP = b"."
_STEPS: dict[bytes, _Step] = {
    b"\x80": lambda machine: machine.number("<B"),  # the protocol
    b"\x95": lambda machine: machine.number("<Q"),  # a frame
    b"J": _pushes(lambda machine: machine.number("<i")),
    b"K": _pushes(lambda machine: machine.number("<B")),
    b"M": _pushes(lambda machine: machine.number("<H")),
    b"G": _pushes(lambda machine: machine.number(">d")),
    b"\x8a": _pushes(
        lambda machine: int.from_bytes(machine.take(machine.number("<B")), "little", signed=True)
    ),
    b"X": _pushes(lambda machine: machine.text("<I")),
    b"\x8c": _pushes(lambda machine: machine.text("<B")),
    b"N": _pushes(lambda _: None),
    b"\x88": _pushes(lambda _: True),
    b"\x89": _pushes(lambda _: False),
    b"(": _pushes(lambda _: _MARK),
    b")": _pushes(lambda _: ()),
    b"]": _pushes(lambda _: []),
    b"}": _pushes(lambda _: {}),
    b"\x85": _pushes_tuple(1),
    b"\x86": _pushes_tuple(2),
    b"\x87": _pushes_tuple(3),
    b"t": _pushes(lambda machine: tuple(machine.to_mark())),
    b"a": lambda machine: _extend(machine, [machine.stack.pop()]),
    b"e": lambda machine: _extend(machine, machine.to_mark()),
    b"s": lambda machine: _set_items(machine, [machine.stack.pop(), machine.stack.pop()][::-1]),
    b"u": lambda machine: _set_items(machine, machine.to_mark()),
    b"q": lambda machine: _keep(machine, machine.number("<B")),
    b"r": lambda machine: _keep(machine, machine.number("<I")),
    b"\x94": lambda machine: _keep(machine, len(machine.memo)),
    b"h": _pushes(lambda machine: machine.memo[machine.number("<B")]),
    b"j": _pushes(lambda machine: machine.memo[machine.number("<I")]),
    b"c": _pushes(lambda machine: _Name(f"{machine.line()}.{machine.line()}")),
    b"\x93": _pushes(_stacked_name),
    b"R": _pushes(_reduced),
    b"\x81": _pushes(_reduced),  # of a class
    b"b": _pushes(_built),
    b"Q": _pushes(_storage),
}
"""What each opcode does to the stack and the memo."""
