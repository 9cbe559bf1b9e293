"""The ops that the stream level adds, what each says, and what the plan adds to others.

    stream.constant           bytes of the constant section
    stream.parameter          an external weight (`init` only)
    stream.global             result number `index` of `init`
    stream.alias(x)           the same bytes under another shape or dtype
    stream.dispatch(operands) a kernel, with the operands and results as its bindings
    stream.native(operands)   a function of the application
    stream.copy(x)            the bytes of x in another place
    stream.size(x)            as the graph op `size`: reads a number back

Ops that write memory have the places of their results, once these are planned.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from ingot.compiler.dispatch.ops import CheckedControl, CheckedFunction, Guard, Rows
from ingot.compiler.graph.ops import CONTROL, Size
from ingot.compiler.ir.attributes import LEFT_OUT, Attributes, Dims, Record, declare
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim

__all__ = [
    "STREAM_OPS",
    "Alternative",
    "Dispatch",
    "GlobalBytes",
    "InSlab",
    "KernelCall",
    "Named",
    "ParameterOrdinal",
    "Place",
    "Placed",
    "PlannedControl",
    "PlannedFunction",
    "PlannedNative",
    "PlannedRows",
    "SharedBytes",
    "Start",
    "VariableOrdinal",
]


@dataclass(frozen=True)
class InSlab(Record):
    """Bytes of the slab, or in `init` of the arena, from an offset on. What needs sizes from data
    lies in a later scope."""

    kind: Literal["slab", "arena"]
    offset: Dim
    scope: int = field(default=0, metadata=LEFT_OUT)


@dataclass(frozen=True)
class Named(Record):
    """The memory of a result or variable, or where the carried value of this number lies in this
    step."""

    kind: Literal["result", "variable", "carried"]
    ordinal: int


Place = InSlab | Named
"""Where a value lies."""


@dataclass(frozen=True)
class PlannedFunction(CheckedFunction):
    """The length of the slab; where it has scopes, its length up to each."""

    slab_length: Dim = 0
    slab_scopes: Dims = field(default=(), metadata=LEFT_OUT)


declare(PlannedFunction, "func")


@dataclass(frozen=True)
class Placed(Attributes):
    """Of ops that write memory; the place of a scalar is none."""

    places: tuple[Place | None, ...] = field(default=(), metadata=LEFT_OUT)


@dataclass(frozen=True)
class SharedBytes(Attributes):
    """Of `stream.constant`."""

    offset: int
    length: int


@dataclass(frozen=True)
class ParameterOrdinal(Attributes):
    """Of `stream.parameter`."""

    ordinal: int


@dataclass(frozen=True)
class GlobalBytes(Attributes):
    """Of `stream.global`: `offset` is its place in the arena of an init function, which `arena`
    counts."""

    index: int
    offset: Dim = field(default=0, metadata=LEFT_OUT)
    arena: int = field(default=0, metadata=LEFT_OUT)


@dataclass(frozen=True)
class KernelCall(Record):
    """A kernel, and the numbers that its caller passes."""

    kernel: int
    workload: tuple[Dim, Dim, Dim]
    flops: Dim
    bytes: Dim
    constants: Dims


@dataclass(frozen=True)
class Alternative(Record):
    """A kernel for the same bindings, which is called instead where all guards hold."""

    guards: tuple[Guard, ...]
    call: KernelCall


@dataclass(frozen=True)
class Dispatch(Placed):
    """Of `stream.dispatch`. `operations` are the ops of the entry, for traces. `in_place` are
    pairs (operand, result) that may share memory: then `untouched` of the bytes are not touched."""

    call: KernelCall = field(kw_only=True)
    entry: str = ""
    operations: str = ""
    in_place: tuple[tuple[int, int], ...] = ()
    untouched: Dim = 0
    alternatives: tuple[Alternative, ...] = field(default=(), metadata=LEFT_OUT)


@dataclass(frozen=True)
class PlannedNative(Placed):
    """Of `stream.native`: its name, its ordinal in the module, and what `native.call` says."""

    name: str = field(kw_only=True)
    native: int = field(kw_only=True)
    details: str = ""
    dims: Dims = ()
    slot: int = 0
    slots: int = 0


@dataclass(frozen=True)
class PlannedRows(Placed, Rows):
    """Of `update`."""


@dataclass(frozen=True)
class VariableOrdinal(Attributes):
    """Of `variable.load` and `variable.store`; `grows`: there must be room for what is loaded."""

    name: str
    variable: int
    grows: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True)
class Start(Record):
    """Where the carried value of this number lies at first."""

    number: int
    place: InSlab


@dataclass(frozen=True)
class PlannedControl(Placed, CheckedControl):
    """Of `if`, `case` and `while`. By carried value: where it starts, if it is one that changes
    its place, and whose place it has next."""

    starts: tuple[Start | None, ...] = field(default=(), metadata=LEFT_OUT)
    sources: tuple[int | None, ...] = field(default=(), metadata=LEFT_OUT)


STREAM_OPS: dict[str, type[Attributes]] = {
    "stream.constant": SharedBytes,
    "stream.parameter": ParameterOrdinal,
    "stream.global": GlobalBytes,
    "stream.alias": Attributes,
    "stream.dispatch": Dispatch,
    "stream.copy": Placed,
    "stream.native": PlannedNative,
    "stream.size": Size,
    "scalar.write": Placed,
    "update": PlannedRows,
    "variable.load": VariableOrdinal,
    "variable.store": VariableOrdinal,
    **dict.fromkeys(CONTROL, PlannedControl),
}

for _name, _attributes in STREAM_OPS.items():
    declare(_attributes, _name)
