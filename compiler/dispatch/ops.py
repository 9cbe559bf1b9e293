"""The ops that the dispatch level adds to those of the graph, and what each says.

    dispatch.region(operands)           a region that becomes one kernel
    dispatch.call(operands)             an entry: the function that was made of a region
    view(x)                             rows of x from byte `offset` on, where they lie
    update(x, u)                        x with u written at byte `offset`
    scalar.read(x), scalar.write(s)     between memory and a register of the VM
    scalar.symbol(s)                    makes a register a symbol
    slot.clear, slot.copy, slot.swap    lists, which lie in slots: see `place_lists.py`
    slot.set(x), slot.extend(x), slot.insert(x), slot.erase, slot.length
    slot.get, slot.argument(argument), slot.result
    native.call(operands)               a function of the application; what it decides is in slots

`if`, `case` and `while` also have the checks of their bodies.
"""

from __future__ import annotations

from dataclasses import field

from ingot.compiler.graph.ops import CONTROL, Control
from ingot.compiler.ir import Function, Module
from ingot.compiler.ir.attributes import LEFT_OUT, Attributes, Dims, Names, Record, declare
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.ir.renamed_dims import FunctionAttributes

__all__ = [
    "DISPATCH_OPS",
    "SLOT_OPS",
    "Alternative",
    "Call",
    "Check",
    "CheckedControl",
    "CheckedFunction",
    "Entry",
    "Guard",
    "Native",
    "Rows",
    "Slot",
    "SlotAt",
    "SlotCopy",
    "SlotGet",
    "SlotResult",
    "SlotSwap",
    "SlotSymbols",
    "SymbolOfScalar",
    "entries_of",
]


@dataclass(frozen=True)
class Guard(Record):
    """Holds where the dim has this value."""

    dim: Dim
    value: int


@dataclass(frozen=True)
class Alternative(Record):
    """An entry that may be called instead where every guard holds.

    `dims` are the values of its symbols, as those of the call are.
    """

    entry: str
    dims: Dims
    guards: tuple[Guard, ...]


@dataclass(frozen=True)
class Call(Attributes):
    """Of `dispatch.call`: `dims` are the values of the entry's symbols; the alternatives are in
    the order in which they are tried."""

    entry: str
    dims: Dims
    alternatives: tuple[Alternative, ...] = field(default=(), metadata=LEFT_OUT)


@dataclass(frozen=True)
class Rows(Attributes):
    """Of `view` and `update`."""

    offset: Dim


@dataclass(frozen=True)
class SymbolOfScalar(Attributes):
    """Of `scalar.symbol`, which defines its one symbol."""

    symbols: Names


@dataclass(frozen=True)
class Check(Record):
    """A relation of dims that a source layer relies on."""

    kind: str
    a: Dim
    b: Dim
    layer: str = field(default="", metadata=LEFT_OUT)


@dataclass(frozen=True)
class CheckedFunction(FunctionAttributes):
    """Of functions that call entries: what to check as soon as its symbols are known."""

    checks: tuple[Check, ...] = field(default=(), metadata=LEFT_OUT)


@dataclass(frozen=True)
class Entry(Attributes):
    """Of functions that were made of regions, with the layer of the first one."""

    entry: bool = True
    layer: str = ""


def entries_of(module: Module) -> list[Function]:
    """The functions that become kernels."""
    return [each for each in module.functions.values() if isinstance(each.attributes, Entry)]


@dataclass(frozen=True)
class CheckedControl(Control):
    """Of `if`, `case` and `while`: what to check where each body begins."""

    checks: tuple[tuple[Check, ...], ...] = field(default=(), metadata=LEFT_OUT)


@dataclass(frozen=True)
class Slot(Attributes):
    """Of `slot.clear`, `slot.set` and `slot.extend`."""

    slot: int


@dataclass(frozen=True)
class SlotCopy(Slot):
    """Of `slot.copy`."""

    source: int


@dataclass(frozen=True)
class SlotSwap(Slot):
    """Of `slot.swap`."""

    other: int


@dataclass(frozen=True)
class SlotAt(Slot):
    """Of `slot.insert` and `slot.erase`."""

    index: Dim


@dataclass(frozen=True)
class SlotGet(SlotAt):
    """Of `slot.get`: the element, where it lies."""

    symbols: Names


@dataclass(frozen=True)
class SlotSymbols(Slot):
    """Of `slot.length` and `slot.argument`."""

    symbols: Names


@dataclass(frozen=True)
class SlotResult(Slot):
    """Of `slot.result`."""

    given: Dim


@dataclass(frozen=True)
class Native(Attributes):
    """Of `native.call`. `dims` are those of all operands and then of all results that the signature
    names: -1-k is dim k that the function decides. Results with such dims are the only element
    of `slot` and of those behind it; `slots` of them."""

    name: str
    signature: str
    details: str
    dims: Dims
    slot: int
    slots: int
    optional: bool = False


SLOT_OPS: dict[str, type[Slot]] = {
    "slot.clear": Slot,
    "slot.copy": SlotCopy,
    "slot.swap": SlotSwap,
    "slot.set": Slot,
    "slot.extend": Slot,
    "slot.insert": SlotAt,
    "slot.erase": SlotAt,
    "slot.length": SlotSymbols,
    "slot.get": SlotGet,
    "slot.argument": SlotSymbols,
    "slot.result": SlotResult,
}
DISPATCH_OPS: dict[str, type[Attributes]] = {
    "dispatch.region": Attributes,
    "dispatch.call": Call,
    "view": Rows,
    "update": Rows,
    "scalar.read": Attributes,
    "scalar.write": Attributes,
    "scalar.symbol": SymbolOfScalar,
    "native.call": Native,
    **SLOT_OPS,
    **dict.fromkeys(CONTROL, CheckedControl),
}

declare(CheckedFunction, "func")
declare(Entry, "func")
for _name, _attributes in DISPATCH_OPS.items():
    declare(_attributes, _name)
