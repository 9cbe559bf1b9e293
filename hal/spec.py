"""What Python and C both know: dtypes, status codes, opcodes and the module layout.

The tables are read from the C headers, so each fact has one place. Nothing here needs
the compiled extension or a device; of those that do, the compiler imports `hal.lz4` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from ingot.hal import header
from ingot.hal.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "DTYPES",
    "OPCODES",
    "STATUSES",
    "DType",
    "Layout",
    "Opcode",
    "Status",
    "dtype",
    "dtype_of_code",
    "layout",
    "opcode",
    "opcode_of_code",
    "status",
]

_ML_DTYPES = {
    "i2": "int2",
    "i4": "int4",
    "u2": "uint2",
    "u4": "uint4",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e3m4": "float8_e3m4",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fn": "float4_e2m1fn",
}
_FRACTIONS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_TOLERANCES = {"f16": 1e-2, "bf16": 5e-2, "f32": 1e-4, "c64": 1e-4, "f64": 1e-9, "c128": 1e-9}
_NUMPY_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


@dataclass(frozen=True, eq=False, repr=False)
class DType:
    """An element type. There is one object per type: compare with `is` or `==`."""

    code: int
    enum: str
    name: str
    bits: int  # width of one element when packed: constants and API only, if below 8
    bytes: int  # width of one element in memory while a program runs
    kind: str  # b boolean, i signed, u unsigned, f float, c complex
    dlpack: int  # DLDataTypeCode

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return dtype, (self.name,)

    @property
    def is_boolean(self) -> bool:
        return self.kind == "b"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned; a boolean is none."""
        return self.kind in "iu"

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_half(self) -> bool:
        """A float of 16 bits, which ops compute in f32."""
        return self.is_float and self.bits == 16

    @property
    def fraction(self) -> int:
        """Stored bits of the fraction of a float of 16 bits or more; 0 of all others."""
        return _FRACTIONS.get(self.name, 0)

    @property
    def bias(self) -> int:
        """Of the exponent of such a float: the greatest one, and 1 minus the least one."""
        return (1 << (self.bits - self.fraction - 2)) - 1 if self.fraction else 0

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest number of an integer or boolean."""
        least = -(1 << (self.bits - 1)) if self.kind == "i" else 0
        return least, least + (1 << self.bits) - 1

    @property
    def tolerance(self) -> float:
        """By which results of two right programs may differ, relative to their size."""
        return _TOLERANCES.get(self.name, 0.3 if self.is_float else 0.0)

    @property
    def is_numpy(self) -> bool:
        """NumPy has it without ml_dtypes."""
        return self.name not in _ML_DTYPES

    @cached_property
    def numpy_name(self) -> str:
        """The name of the NumPy dtype, which may be one of ml_dtypes."""
        if not self.is_numpy:
            return _ML_DTYPES[self.name]
        return "bool" if self.is_boolean else f"{_NUMPY_KINDS[self.kind]}{self.bits}"

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of one element in memory. Unsupported: ml_dtypes is missing."""
        import numpy as np

        if self.is_numpy:
            return np.dtype(self.numpy_name)
        try:
            import ml_dtypes
        except ImportError as error:
            raise Unsupported(
                f"NumPy has no {self.name}: install ml_dtypes, or convert with "
                f'.astype("f32") ({error})'
            ) from None
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.numpy_name))
        return found

    @staticmethod
    def from_numpy(numpy_dtype: Any) -> DType:
        """The element type of a NumPy dtype of either byte order. InvalidArgument: none."""
        import numpy as np

        given = np.dtype(numpy_dtype)
        found = _DTYPE_OF_NUMPY.get(given)
        if found is None:
            found = _DTYPE_OF_NUMPY_NAME.get(given.name)
            if found is None:
                raise InvalidArgument(
                    f"NumPy dtype {given.name} has no counterpart; convert with .astype to one of: "
                    + ", ".join(_DTYPE_OF_NUMPY_NAME)
                )
            _DTYPE_OF_NUMPY[given] = found  # NumPy takes long to name them
        return found


@dataclass(frozen=True)
class Status:
    """A class of failure; `name` is the exception class."""

    code: int
    enum: str
    name: str


@dataclass(frozen=True, eq=False)
class Opcode:
    """One instruction of the VM. `operands` is explained in spec/op.def."""

    code: int
    enum: str
    name: str
    operands: str
    meaning: str

    @cached_property
    def operand_kinds(self) -> tuple[str, ...]:
        """The operands one by one: "ni*f*" is ("n", "i*", "f*")."""
        return tuple(re.findall(r"[A-Za-z]\*?", self.operands))


def _rows(name: str) -> list[tuple[Any, ...]]:
    return cast("list[tuple[Any, ...]]", header.table(name))


DTYPES: Mapping[str, DType] = MappingProxyType({row[2]: DType(*row) for row in _rows("dtype")})
STATUSES: Mapping[str, Status] = MappingProxyType({row[2]: Status(*row) for row in _rows("status")})
OPCODES: Mapping[str, Opcode] = MappingProxyType({row[2]: Opcode(*row) for row in _rows("op")})
_DTYPE_OF_CODE = {each.code: each for each in DTYPES.values()}
_DTYPE_OF_NUMPY_NAME = {each.numpy_name: each for each in DTYPES.values()}
_DTYPE_OF_NUMPY: dict[Any, DType] = {}  # those that were asked for
_OPCODE_OF_CODE = {each.code: each for each in OPCODES.values()}


def dtype(name: str | DType) -> DType:
    """The element type called `name`, such as "f32". InvalidArgument: there is none."""
    if isinstance(name, DType):
        return name
    if name not in DTYPES:
        raise InvalidArgument(f"unknown dtype {name!r}; the dtypes are: {', '.join(DTYPES)}")
    return DTYPES[name]


def dtype_of_code(code: int) -> DType:
    """The element type with this code of a module file. InvalidArgument: there is none."""
    if code not in _DTYPE_OF_CODE:
        raise InvalidArgument(f"unknown dtype code {code:#x}")
    return _DTYPE_OF_CODE[code]


def status(name: str) -> Status:
    """The status called `name`, such as "InvalidArgument"."""
    return STATUSES[name]


def opcode(name: str) -> Opcode:
    """The instruction called `name`, such as "add.i64"."""
    return OPCODES[name]


def opcode_of_code(code: int) -> Opcode | None:
    """The instruction with this opcode word, or None."""
    return _OPCODE_OF_CODE.get(code)


@dataclass(frozen=True)
class Layout:
    """The structs and constants of module_layout.h, kernel_abi.h and opencl_object.h."""

    ffi: Any  # a cffi.FFI that knows the structs
    constants: Mapping[str, Any]  # name -> int, or bytes for INGOT_MODULE_MAGIC

    def size(self, struct: str) -> int:
        """Bytes of one struct, such as "ingot_layout_header_t"."""
        return int(self.ffi.sizeof(struct))

    def pack(self, struct: str, rows: Iterable[Mapping[str, Any]]) -> bytes:
        """The bytes of an array of structs, one per row; fields left out are zero."""
        rows = list(rows)
        return bytes(self.ffi.buffer(self.ffi.new(f"{struct}[]", rows))) if rows else b""

    def unpack(self, struct: str, data: bytes | memoryview) -> list[dict[str, Any]]:
        """The rows of an array of structs; `pack` undone. Trailing bytes are ignored."""
        names = [name for name, _ in self.ffi.typeof(struct).fields]
        count = len(data) // self.size(struct)
        rows = self.ffi.from_buffer(f"{struct}[]", data)[0:count] if count else []
        return [{name: self._value(getattr(row, name)) for name in names} for row in rows]

    def _value(self, value: Any) -> Any:
        return list(value) if isinstance(value, self.ffi.CData) else value


@lru_cache(maxsize=1)
def layout() -> Layout:
    """The module layout, the kernel ABI and the OpenCL object; made once, in a few ms."""
    import cffi

    names = ("module_layout.h", "kernel_abi.h", "opencl_object.h")
    texts = [header.read(name) for name in names]
    ffi = cffi.FFI()
    constants: dict[str, Any] = {}
    for text in texts:
        ffi.cdef(header.declarations(text))
        constants |= header.constants(text)
    return Layout(ffi, MappingProxyType(constants))
