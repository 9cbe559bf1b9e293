"""What a module file holds, as Python records: what the writer takes and the reader gives.

This file says nothing of bytes and offsets; that is `write_module.py` and `read_module.py`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.stream.data import Bytes, Constants, Parameter
from ingot.hal.spec import DType

__all__ = [
    "Code",
    "Entry",
    "Executable",
    "FunctionContents",
    "Location",
    "ModuleContents",
    "NativeContents",
    "ValueContents",
    "VariableContents",
    "Variant",
]


@dataclass(frozen=True)
class Location:
    """From word `word` of the code on: the source layer and its operations."""

    word: int
    layer: str
    op: str


@dataclass(frozen=True)
class Code:
    """Bytecode of one function: u16 words as little-endian bytes, and where it came from."""

    words: bytes
    locations: tuple[Location, ...] = ()


@dataclass(frozen=True)
class ValueContents:
    """An argument or result of an exported function: a tensor, or what `kind` says, as in
    `PassedType`; then None stands for a dim in which elements may differ. A "reference" is a handle
    of the type that `reference` names."""

    name: str
    dtype: DType
    shape: tuple[Dim | None, ...]
    doc: str = ""
    kind: str = "tensor"
    any_rank: bool = False
    reference: str = ""


@dataclass(frozen=True)
class VariableContents:
    """State of a session: its shape, of which the first dim may be open, and where in the constants
    the initial value lies.

    `length` is the tensor's in bytes; one element's, which is repeated; or 0 for zeros.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    offset: int = 0
    length: int = 0
    doc: str = ""


@dataclass(frozen=True)
class FunctionContents:
    """A function: its signature and its code."""

    name: str
    target: str
    code: Code
    i64_count: int
    f64_count: int
    ref_count: int
    arguments: tuple[ValueContents, ...] = ()
    results: tuple[ValueContents, ...] = ()
    exported: bool = False
    init: bool = False
    doc: str = ""


@dataclass(frozen=True)
class NativeContents:
    """A function of the application. `decided`: bit r is set where it decides dims of result r.
    One that is `optional` may be missing."""

    name: str
    signature: str
    arguments: tuple[ValueContents, ...]
    results: tuple[ValueContents, ...]
    decided: int
    optional: bool = False


@dataclass(frozen=True)
class Entry:
    """A kernel as the VM sees it. `written`: bit b is set where binding b is written."""

    name: str
    layer: str
    binding_count: int
    constant_count: int
    written: int
    region: str = ""


@dataclass(frozen=True)
class Variant:
    """The native code of an executable for one kind of machine."""

    name: str
    format: str
    features: int
    object: Bytes


@dataclass(frozen=True)
class Executable:
    """Kernels of one target; `variants` best first."""

    name: str
    target: str
    entries: tuple[Entry, ...]
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class ModuleContents:
    """Everything in a module file. `strings` holds the texts that the code refers to."""

    functions: tuple[FunctionContents, ...]
    strings: bytes
    constants: Constants = field(default_factory=Constants)
    parameters: tuple[Parameter, ...] = ()
    executables: tuple[Executable, ...] = ()
    global_count: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    variables: tuple[VariableContents, ...] = ()
    debug: bytes = b""  # compressed, for tools: `compiler/debug_info.py`
    natives: tuple[NativeContents, ...] = ()
    versions: tuple[tuple[str, int], ...] = ()  # its own by "", the least of modules it calls
