"""A TFLite model as its file says it: subgraphs of operators over tensors, buffers, signatures."""

from __future__ import annotations

import math
from dataclasses import field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from ingot.compiler.frontends.tflite.flatbuffer import Flatbuffer, Table
from ingot.compiler.frontends.tflite.schema import DTYPES, OPS, OPTIONS, OPTIONS_2, TEXT
from ingot.compiler.frontends.tflite.sparse import dense
from ingot.compiler.ir import Literal, TensorType
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dims
from ingot.compiler.ir.literals import literal_from_bytes, literal_from_numbers
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = ["Model", "Operator", "Quantization", "Signature", "Subgraph", "Tensor", "require_small"]

_VERSION = 3  # of the schema
_CUSTOM = OPS.index("CUSTOM")
_MOST_MADE = 1 << 30  # bytes of what the file does not hold: zeros of variables, sparse constants
_QUANTIZED = ("i8", "u8", "i16", "i4", "u4", "i2", "i32", "i64")


@dataclass(frozen=True)
class Quantization:
    """Integers that stand for (integer - zero) * scale, one pair of numbers or one per index of
    the axis."""

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int


@dataclass
class Tensor:
    """`shape` has None for a dim that the file leaves open. A constant has `data`."""

    name: str
    code: int  # of the element type
    shape: tuple[int | None, ...]
    quantization: Quantization | None
    is_variable: bool
    buffer: int  # the number of its data
    data: memoryview | None
    sparsity: Table | None

    @property
    def dtype(self) -> DType:
        """CompileError: it has no counterpart."""
        if self.code not in DTYPES:
            kind = {TEXT: "strings", 13: "a resource", 14: "a variant"}.get(self.code, "unknown")
            raise CompileError(
                f"tensor '{self.name}' is {kind} (element type {self.code} of TFLite), "
                "which is not supported"
            )
        return dtype(DTYPES[self.code])

    @property
    def is_complex(self) -> bool:
        return DTYPES.get(self.code) in ("c64", "c128")

    @property
    def is_text(self) -> bool:
        return self.code == TEXT

    @property
    def type(self) -> TensorType:
        """With open dims as 1, as the file's own shapes have them."""
        return TensorType(self.dtype, tuple(1 if dim is None else dim for dim in self.shape))

    def filled(self) -> Literal:
        """All elements what stands for 0. CompileError: they are too many to stand in a module."""
        type, q = self.type, self.quantization
        try:
            require_small(type)
            array = np.full(known_dims(type.shape), q.zeros[0] if q else 0, type.dtype.numpy)
            return Literal(array, type.dtype)
        except (ArithmeticError, ValueError) as error:
            raise CompileError(f"the variable '{self.name}' is damaged: {error}") from None

    def type_text(self) -> str:
        name = DTYPES.get(self.code, "string" if self.is_text else "unknown")
        return f"{name}[{','.join('?' if dim is None else str(dim) for dim in self.shape)}]"

    def read(self) -> Literal:
        """The elements of a constant. CompileError: their bytes are not as many as it has."""
        assert self.data is not None
        element = self.dtype
        shape = tuple(dim or 0 for dim in self.shape)
        count = math.prod(shape)
        try:
            if self.sparsity is not None:
                require_small(TensorType(element, shape))
                return Literal(dense(self.sparsity, self.data, shape, element), element)
            if element.bits < 8 and element.is_integer:
                return _unpacked(self.data, count, shape, element)
            if element.is_boolean:
                return Literal(np.frombuffer(self.data, np.uint8).reshape(shape) != 0, element)
            return literal_from_bytes(self.data, shape, element)
        except (LookupError, MemoryError, ValueError) as error:
            raise CompileError(f"tensor '{self.name}' is damaged: {error}") from None

    def read_texts(self) -> list[str]:
        """The elements of a constant of strings, in order: after their count and where each one
        begins and the last ends. CompileError: they are not as many as it has, or no UTF-8."""
        assert self.data is not None
        try:
            (count,) = np.frombuffer(self.data[:4], "<i4").tolist()
            ends = np.frombuffer(self.data[4 : 8 + 4 * count], "<i4").tolist()
            if count != math.prod(dim or 0 for dim in self.shape) or len(ends) != count + 1:
                raise ValueError(f"it has {count} strings")
            if sorted(ends) != ends or not 0 <= ends[0] <= ends[-1] <= len(self.data):
                raise ValueError("its strings lie outside of it")
            return [bytes(self.data[first:end]).decode() for first, end in pairwise(ends)]
        except ValueError as error:
            raise CompileError(f"tensor '{self.name}' is damaged: {error}") from None


def require_small(type: TensorType) -> None:
    """ValueError: it is too large for what the file itself does not hold."""
    length = math.prod(known_dims(type.shape)) * type.dtype.numpy.itemsize
    if length > _MOST_MADE:
        raise ValueError(f"{type} has {length} bytes, expected at most {_MOST_MADE}")


def _unpacked(data: memoryview, count: int, shape: tuple[int, ...], element: DType) -> Literal:
    """Numbers of less than 8 bits, the first one in the low bits."""
    steps = 8 // element.bits
    if len(data) != -(-count // steps):
        raise ValueError(f"expected {-(-count // steps)} bytes, got {len(data)}")
    packed = np.frombuffer(data, np.uint8)
    columns = [(packed >> (element.bits * step)) & (2**element.bits - 1) for step in range(steps)]
    codes = np.stack(columns, axis=1).reshape(-1)[:count].astype(np.int16)
    if element.kind == "i":
        codes = np.where(codes >= 2 ** (element.bits - 1), codes - 2**element.bits, codes)
    return literal_from_numbers(codes, shape, element)  # type: ignore[arg-type]


@dataclass
class Operator:
    """`inputs` and `outputs` are places of tensors, -1 for one that is left out. The `name` of a
    custom op says that it is one."""

    name: str
    inputs: list[int]
    outputs: list[int]
    options: Any
    custom: bytes = b""  # the options of a custom op

    @property
    def is_custom(self) -> bool:
        return self.name.startswith("CUSTOM '")

    @property
    def custom_name(self) -> str:
        return self.name[len("CUSTOM '") : -1]


@dataclass
class Subgraph:
    name: str
    tensors: list[Tensor]
    inputs: list[int]
    outputs: list[int]
    operators: list[Operator]


@dataclass
class Signature:
    """A function: names of arguments and results, and the tensors that they are."""

    name: str
    subgraph: int
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)


class Model:
    """CompileError: the file is damaged, or of another version. `what` it is in messages."""

    def __init__(self, data: memoryview, what: str) -> None:
        self.what = what
        self._buffer = Flatbuffer(data, what)
        root = self._buffer.root()
        version = root.number(0, "I")
        if version != _VERSION:
            raise CompileError(
                f"{self.what} has version {version} of the schema of TFLite, expected {_VERSION}: "
                "convert the model again"
            )
        self.description = root.text(3)
        self._buffers = root.tables(4)
        self._ops = [self._op_name(each) for each in root.tables(1)]
        self.subgraphs = [self._subgraph(each) for each in root.tables(2)]
        if not self.subgraphs:
            raise CompileError(f"{self.what} has no subgraph: convert the model again")
        self.signatures = [self._signature(each) for each in root.tables(7)]
        self._literals: dict[tuple[int, str], Literal] = {}

    def literal(self, tensor: Tensor) -> Literal:
        """What a constant is; tensors that share a buffer share their elements."""
        key = tensor.buffer, tensor.type_text()
        if key not in self._literals:
            self._literals[key] = tensor.read()
        return self._literals[key]

    def _op_name(self, code: Table) -> str:
        """Small numbers stand in a field of their own, too, which older files have alone."""
        number = max(code.number(3, "i"), code.number(0, "b"))
        if number == _CUSTOM:
            return f"CUSTOM '{code.text(1)[:80]}'"
        return OPS[number] if 0 <= number < len(OPS) else f"op number {number}"

    def _subgraph(self, table: Table) -> Subgraph:
        tensors = [self._tensor(each) for each in table.tables(0)]
        operators = [self._operator(each) for each in table.tables(3)]
        inputs, outputs = (table.listed(each, "i") for each in (1, 2))
        places = [*inputs, *outputs]
        places += [place for each in operators for place in (*each.inputs, *each.outputs)]
        wrong = [place for place in places if not -1 <= place < len(tensors)]
        wrong += [-1] if -1 in (*inputs, *outputs) else []  # which operators alone leave out
        if wrong:
            raise self._buffer.damaged(f"tensor {wrong[0]} of {len(tensors)} is not there")
        if len(set(inputs)) < len(inputs):
            raise self._buffer.damaged("a subgraph takes a tensor twice")
        return Subgraph(table.text(4), tensors, inputs, outputs, operators)

    def _tensor(self, table: Table) -> Tensor:
        shape: list[int | None] = table.listed(0, "i")
        signature = table.listed(7, "i")
        if len(signature) == len(shape):
            shape = [None if dim == -1 else dim for dim in signature]
        name, code = table.text(3), table.number(1, "b")
        if any(dim is not None and dim < 0 for dim in shape):
            raise self._buffer.damaged(f"tensor '{name}' has the shape {shape}")
        quantization, element = None, DTYPES.get(code)
        if element in _QUANTIZED:
            quantization = _quantization(table.table(4), shape, name, dtype(element))
        return Tensor(
            name,
            code,
            tuple(shape),
            quantization,
            bool(table.number(5, "?")),
            table.number(2, "I"),
            self._data(table.number(2, "I"), math.prod(dim or 0 for dim in shape)),
            table.table(6),
        )

    def _data(self, place: int, count: int) -> memoryview | None:
        """The bytes of a constant; None if it has none and so is a value."""
        if not place:
            return None
        if place >= len(self._buffers):
            raise self._buffer.damaged(f"buffer {place} of {len(self._buffers)} is not there")
        table = self._buffers[place]
        data = table.numbers(0, "B").data
        offset, size = table.number(1, "Q"), table.number(2, "Q")
        if offset > 1 and size:  # behind the flatbuffer, in files of more than 2 GB
            data = self._buffer.span(offset, size)
        return data if len(data) or not count else None

    def _operator(self, table: Table) -> Operator:
        code = table.number(0, "I")
        if code >= len(self._ops):
            raise self._buffer.damaged(f"operator {code} of {len(self._ops)} is not there")
        options = _options(table.table(4), OPTIONS.get(table.number(3, "B"), ""))
        if table.number(11, "B"):
            options = _options(table.table(12), OPTIONS_2.get(table.number(11, "B"), ""))
        inputs, outputs = (table.listed(each, "i") for each in (1, 2))
        custom = bytes(table.listed(5, "B"))
        return Operator(self._ops[code], inputs, outputs, options, custom)

    def _signature(self, table: Table) -> Signature:
        place = table.number(4, "I")
        if place >= len(self.subgraphs):
            raise self._buffer.damaged(f"subgraph {place} of {len(self.subgraphs)} is not there")
        signature = Signature(table.text(2), place)
        for field_number, found in ((0, signature.inputs), (1, signature.outputs)):
            for each in table.tables(field_number):
                tensor = each.number(1, "I")
                if tensor >= len(self.subgraphs[place].tensors):
                    raise self._buffer.damaged(f"tensor {tensor} of a signature is not there")
                found[each.text(0)] = tensor
        return signature


def _quantization(
    table: Table | None, shape: list[int | None], name: str, element: DType
) -> Quantization | None:
    if table is None:
        return None
    scales, zeros = table.listed(2, "f"), table.listed(3, "q")
    if not scales:
        return None
    zeros = zeros or [0]
    axis = table.number(6, "i")
    if len(zeros) == 1:
        zeros = zeros * len(scales)
    fits = len(scales) == 1 or (0 <= axis < len(shape) and len(scales) == shape[axis])
    if not fits or len(zeros) != len(scales):
        raise CompileError(
            f"tensor '{name}' of shape {shape} has {len(scales)} scales and {len(zeros)} zero "
            f"points for axis {axis}: expected one, or one per index"
        )
    # TFLite's converter gives a channel of zeros the scale 0.
    may_be_zero = len(scales) > 1 or element.bits > 16
    wrong = [
        each
        for each in scales
        if each < 0 or not math.isfinite(each) or (each == 0 and not may_be_zero)
    ]
    if wrong:
        raise CompileError(
            f"tensor '{name}' has a scale of {wrong[0]}, expected finite positive numbers"
        )
    least, greatest = element.limits
    outside = [zero for zero in zeros if not least <= zero <= greatest]
    if outside:
        raise CompileError(
            f"tensor '{name}' has a zero point of {outside[0]}, which {element.name} does not hold"
        )
    if table.number(4, "B") > 1:
        raise CompileError(f"tensor '{name}' has scales per block, which are not supported")
    return Quantization(tuple(scales), tuple(zeros), axis)


def _options(table: Table | None, fields: str) -> Any:
    """The fields of an op's options as attributes."""
    found: dict[str, Any] = {}
    for number, text in enumerate(fields.split() if table is not None else ()):
        name, _, format = text.partition(":")
        if name == "-" or table is None:
            continue
        format, _, default = format.partition("=")
        if format == "s":
            found[name] = table.text(number)
        elif format.endswith("*"):
            found[name] = table.listed(number, format[0])
        else:
            found[name] = table.number(number, format, int(default or 0))
    return SimpleNamespace(**found)
