"""A StableHLO program as read from its artifact, before any meaning is given to it.

Plain records: functions, blocks, ops, values, types. Op names come without dialect and
version (`dot_general`, `version` 2), attributes by name as Python values: bool, int, float,
str (also for enumerations), tuples, dictionaries, types, and `Constant` for tensors. What
the ops mean is the business of the lowerings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any

import numpy as np

from ingot.compiler.ir.dataclass import dataclass

__all__ = [
    "Constant",
    "FunctionType",
    "NoneType",
    "OtherType",
    "QuantizedType",
    "SourceBlock",
    "SourceFunction",
    "SourceOp",
    "SourceProgram",
    "SourceType",
    "SourceValue",
    "TensorType",
    "TupleType",
]


@dataclass(frozen=True)
class QuantizedType:
    """An element type: integers `storage` from `low` to `high` that stand for numbers
    (integer - zero point) * scale of type `expressed`; one scale and zero point for all, or one
    per index of `axis`."""

    storage: str
    expressed: str
    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    low: int
    high: int
    axis: int | None = None

    def __str__(self) -> str:
        return f"quantized<{self.storage}:{self.expressed}>"


@dataclass(frozen=True)
class TensorType:
    """A ranked tensor. `None` is a dim that is known only at the call; `bounds` limit it.

    `element` is the name of an Ingot dtype, or the StableHLO name of one that Ingot lacks; of a
    tensor that is `quantized` that of its storage.
    """

    element: str
    shape: tuple[int | None, ...] = ()
    bounds: tuple[int | None, ...] = ()
    quantized: QuantizedType | None = None

    def __str__(self) -> str:
        element = self.quantized or self.element
        return f"{element}[{','.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class TupleType:
    elements: tuple[SourceType, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True)
class FunctionType:
    inputs: tuple[SourceType, ...]
    results: tuple[SourceType, ...]


@dataclass(frozen=True)
class NoneType:
    """The value of an optional type attribute that is not set."""


@dataclass(frozen=True)
class OtherType:
    """A type that only has a name here: a token, an element type, an unranked tensor."""

    name: str

    def __str__(self) -> str:
        return self.name


SourceType = TensorType | QuantizedType | TupleType | FunctionType | NoneType | OtherType


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor attribute. `array` shares the artifact's memory; a splat has zero strides.

    Elements that NumPy cannot hold without ml_dtypes are unsigned integers of their width.
    """

    array: np.ndarray[Any, Any]
    element: str
    is_splat: bool = False

    def integers(self) -> tuple[int, ...]:
        """The elements as Python integers, in order."""
        return tuple(int(value) for value in self.array.reshape(-1).tolist())


@dataclass(eq=False)
class SourceValue:
    type: SourceType
    producer: SourceOp | None = None  # None for an argument of a block
    location: str = ""

    @property
    def tensor(self) -> TensorType:
        """The type, which must be a tensor's. TypeError: it is not."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"expected a tensor, got {self.type}")
        return self.type


@dataclass(eq=False)
class SourceOp:
    """One op. `location` is its layer name in the model, "" if the exporter wrote none."""

    name: str
    version: int
    dialect: str
    location: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    operands: list[SourceValue] = field(default_factory=list)
    results: list[SourceValue] = field(default_factory=list)
    regions: list[list[SourceBlock]] = field(default_factory=list)
    undecoded: bool = False  # a newer version of the op, whose attributes cannot be read

    @property
    def full_name(self) -> str:
        return f"{self.dialect}.{self.name}" if self.dialect != "vhlo" else self.name


@dataclass(eq=False)
class SourceBlock:
    arguments: list[SourceValue] = field(default_factory=list)
    ops: list[SourceOp] = field(default_factory=list)

    def walk(self) -> Iterator[SourceOp]:
        """All ops, an op before the ops of its regions."""
        for op in self.ops:
            yield op
            for region in op.regions:
                for block in region:
                    yield from block.walk()

    def retyped(self, change: Callable[[SourceType], SourceType]) -> SourceBlock:
        """A copy of a block without regions whose values have other types."""
        values = {value: SourceValue(change(value.type)) for value in self.arguments}
        ops = []
        for op in self.ops:
            values.update((value, SourceValue(change(value.type))) for value in op.results)
            copy = replace(
                op,
                operands=[values.get(value, value) for value in op.operands],
                results=[values[value] for value in op.results],
            )
            for value in copy.results:
                value.producer = copy
            ops.append(copy)
        return SourceBlock([values[value] for value in self.arguments], ops)


@dataclass(eq=False)
class SourceFunction:
    name: str
    public: bool
    body: SourceBlock
    argument_attributes: list[dict[str, Any]]
    result_attributes: list[dict[str, Any]]
    result_types: list[SourceType]

    @property
    def arguments(self) -> list[SourceValue]:
        return self.body.arguments


@dataclass(eq=False)
class SourceProgram:
    """All functions by name, in order. `version` is that of StableHLO, such as "1.15.0"."""

    version: str
    name: str
    functions: dict[str, SourceFunction]
    attributes: dict[str, Any] = field(default_factory=dict)
