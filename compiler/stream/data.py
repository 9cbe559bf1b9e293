"""The data of a program: constants inside the module, parameters outside, variables' values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ingot.compiler.ir import Literal, Variable
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dims
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = [
    "ALIGNMENT",
    "Bytes",
    "Chunk",
    "ConstantPool",
    "Constants",
    "Parameter",
    "ProgramData",
    "StoredVariable",
]

ALIGNMENT = 64
"""Bytes: where tensors start in the constant section, the slab and the arena."""

_SHARED_LENGTH = 1 << 16  # constants up to this many bytes are stored once if equal

_PART = 1 << 18  # bytes of an array that are copied at a time, where they do not lie in order

Bytes = bytes | memoryview


@dataclass(frozen=True)
class Chunk:
    """Bytes at an offset of the constant section, or the elements of a literal, which are there
    when they are written only."""

    offset: int
    data: Bytes | Literal

    @property
    def length(self) -> int:
        return self.data.nbytes if isinstance(self.data, Literal) else len(self.data)

    def parts(self) -> Iterator[Bytes]:
        """The bytes, in order."""
        if not isinstance(self.data, Literal):
            yield self.data
            return
        for each in self.data.parts():
            yield from _parts(each)


@dataclass(frozen=True)
class Constants:
    """The constant section: chunks in order, zero bytes between them."""

    length: int = 0
    chunks: Sequence[Chunk] = ()

    @staticmethod
    def of(data: Bytes) -> Constants:
        """A section that is there as a whole."""
        return Constants(len(data), (Chunk(0, data),) if len(data) else ())


@dataclass(frozen=True)
class Parameter:
    """A weight that is read from a file when a program is created."""

    scope: str
    key: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StoredVariable:
    """State of a session: where its initial value lies. `length` is in bytes, 0 for zeros."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    offset: int
    length: int


class ConstantPool:
    """Collects constants; equal small ones and identical large ones share their bytes."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []  # keep the identities in `_offsets` alive
        self._length = 0
        self._offsets: dict[object, int] = {}

    def add(self, literal: Literal) -> tuple[int, int]:
        """The offset and length of the literal's bytes, one element after the other."""
        length = literal.nbytes
        data: Bytes | Literal = literal
        key: object = id(literal.stored)
        if length <= _SHARED_LENGTH:
            data = literal.array.reshape(-1).view(np.uint8).data
            key = hashlib.sha256(data).digest()
        if key not in self._offsets:
            offset = -(-self._length // ALIGNMENT) * ALIGNMENT
            self._chunks.append(Chunk(offset, data))
            self._offsets[key] = offset
            self._length = offset + length
        return self._offsets[key], length

    def add_variable(self, name: str, variable: Variable) -> StoredVariable:
        """The variable with its initial value among the constants, unless that is all zeros."""
        type = variable.type
        initial = variable.initial.array
        offset = length = 0
        if any(initial.tobytes()):
            whole = Literal(np.broadcast_to(initial, known_dims(type.shape)), type.dtype)
            offset, length = self.add(whole)
        return StoredVariable(name, type.dtype, type.shape, offset, length)

    def finish(self) -> Constants:
        """All constants so far."""
        return Constants(self._length, tuple(self._chunks))


@dataclass
class ProgramData:
    """What the code of all targets of a module reads, collected while it is converted: one
    copy of the weights, of the list of parameters, and of the state."""

    pool: ConstantPool = field(default_factory=ConstantPool)
    ordinals: dict[Parameter, int] = field(default_factory=dict)  # of external weights
    variables: dict[str, StoredVariable] = field(default_factory=dict)
    natives: dict[str, str] = field(default_factory=dict)  # signatures by name
    required: set[str] = field(default_factory=set)  # those that a call cannot do without

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """External weights, by ordinal."""
        return tuple(self.ordinals)

    def add_parameter(self, parameter: Parameter) -> int:
        """The ordinal of the parameter."""
        return self.ordinals.setdefault(parameter, len(self.ordinals))

    def add_native(self, name: str, signature: str, optional: bool) -> int:
        """The ordinal of the native function. CompileError: it has another signature elsewhere."""
        if self.natives.setdefault(name, signature) != signature:
            raise CompileError(
                f"native function '{name}' is called as {self.natives[name]} and as {signature}: "
                "give one of them another name"
            )
        if not optional:
            self.required.add(name)
        return list(self.natives).index(name)

    def add_variable(self, name: str, variable: Variable) -> None:
        """The state of every target under one name is the same state."""
        if name not in self.variables:
            self.variables[name] = self.pool.add_variable(name, variable)


def _parts(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    """The bytes of an array in the order of its elements, without a copy of all of them."""
    if array.flags.c_contiguous:
        yield array.reshape(-1).view("u1").data
    elif len(array) == 1:
        yield from _parts(array[0])
    else:
        rows = max(1, _PART * len(array) // array.nbytes)
        for start in range(0, len(array), rows):
            yield from _parts(np.ascontiguousarray(array[start : start + rows]))
