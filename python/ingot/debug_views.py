"""What the debugger shows of a call that has stopped: registers, and tensors in buffers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ingot.compiler.vm.contents import Entry, FunctionContents, ModuleContents
from ingot.compiler.vm.disassemble import function_code, kernel_operands
from ingot.hal.decode import decode, storage_dtype
from ingot.hal.errors import InvalidArgument, OutOfRange
from ingot.hal.spec import DTYPES, DType
from ingot.runtime.debugging import Stop

__all__ = ["Place", "Views", "parse_place"]

_HEAD = 8  # elements that are shown
_GREATEST = 1 << 30  # bytes that are looked at
_PLACE = re.compile(
    r"(?:(?P<kind>[ifb])(?P<number>\d{1,5})|r(?P<reference>\d{1,5})"
    r"(?:\+(?P<offset>i?\d{1,18}))?(?::(?P<length>i?\d{1,18}))?)"
    r"(?:\s+(?P<dtype>\w+)(?:\[(?P<dims>[\d,\s]*)\])?)?",
    re.ASCII,
)
_BINDING = re.compile(r"r(\d+)\+i(\d+):i(\d+)")
_TYPE = re.compile(r"(\w+)\[([^\]\[]*)\]")
_USE = "print i0, f0, b0 (binding 0 of a dispatch), r0, or r0+i1:i2 f32[2,3]"


@dataclass(frozen=True)
class Place:
    """What is to be shown: a register, a binding, or bytes of a buffer."""

    text: str
    kind: str  # i, f, b, or r
    number: int
    offset: str = ""  # a register or a number
    length: str = ""
    dtype: DType | None = None
    dims: tuple[int, ...] | None = None


def parse_place(text: str) -> Place:
    """The place that a user names. InvalidArgument: it is none."""
    match = _PLACE.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(f"{text!r} is nothing to print; {_USE}")
    name, dims = match["dtype"], match["dims"]
    if name is not None and name not in DTYPES:
        raise InvalidArgument(f"unknown dtype {name!r}; the dtypes are: {', '.join(DTYPES)}")
    return Place(
        text.strip(),
        match["kind"] or "r",
        int(match["number"] or match["reference"]),
        match["offset"] or "",
        match["length"] or "",
        DTYPES[name] if name else None,
        None if dims is None else tuple(int(each) for each in dims.split(",") if each.strip()),
    )


class Views:
    """The places of one function. `shapes` are those of the arguments."""

    def __init__(
        self,
        contents: ModuleContents,
        function: FunctionContents,
        shapes: Sequence[tuple[int, ...]],
        constants: Mapping[str, Sequence[str]],
    ) -> None:
        self.contents = contents
        self.function = function
        self.shapes = shapes
        self.constants = constants  # per kernel, as the debug section has them
        self.code = function_code(contents, function)
        entries = [entry for each in contents.executables for entry in each.entries]
        operands = kernel_operands(contents, function.target)
        self.entries: Mapping[str, Entry] = dict(zip(operands, entries, strict=True))

    def check(self, place: Place) -> None:
        """InvalidArgument: the function has no such register."""
        counts = {"i": self.function.i64_count, "f": self.function.f64_count}
        counts["r"] = self.function.ref_count
        used = [f"{place.kind}{place.number}", place.offset, place.length]
        for name in (each for each in used if each[:1] in counts):
            if int(name[1:]) >= counts[name[0]]:
                raise InvalidArgument(
                    f"{self.function.name} has no register {name}; it has {counts['i']} of i, "
                    f"{counts['f']} of f and {counts['r']} of r, from 0 on"
                )

    def text(self, stop: Stop, place: Place, dispatch: str | None) -> str:
        """The line that shows `place`; `dispatch` is the instruction that b0, b1, ... are of.
        InvalidArgument, OutOfRange: there is nothing to show."""
        if place.kind == "b":
            return f"{place.text} = {self._binding(stop, place, dispatch)}"
        self.check(place)
        if place.kind != "r":
            return f"{place.text} = {stop.number(place.kind, place.number)!r}"
        total = stop.length(place.number)
        if total is None:
            return f"{place.text}: nothing has been written to r{place.number} yet"
        what, dtype, dims = self._origin(stop, place.number)
        offset = self._number(stop, place.offset, 0)
        length = self._number(stop, place.length, total - offset)
        if place.dtype is not None:
            dtype, dims = place.dtype, place.dims
            if dims is not None and not place.length:
                length = prod(dims) * dtype.bytes
        elif place.offset or place.length:
            dims = None
        head = f"{place.text} = {what}, {total} bytes"
        if dtype is None:
            return f"{head}; add a dtype to see what is in it, as in {place.text} f32"
        return f"{head}: {tensor_text(stop.read(place.number, offset, length), dtype, dims)}"

    def bindings(self, stop: Stop, dispatch: str) -> list[str]:
        """A line for every binding of a dispatch."""
        count = len(_BINDING.findall(dispatch))
        return [f"b{k} = {self._binding(stop, Place('', 'b', k), dispatch)}" for k in range(count)]

    def entry(self, dispatch: str) -> Entry | None:
        """The kernel of a dispatch."""
        return self.entries.get(dispatch.partition(" ")[2].partition(",")[0])

    def _binding(self, stop: Stop, place: Place, dispatch: str | None) -> str:
        if dispatch is None:
            raise InvalidArgument("bindings can be printed at a dispatch, and right behind it")
        found = _BINDING.findall(dispatch)
        if place.number >= len(found):
            raise InvalidArgument(f"the dispatch has {len(found)} bindings, from b0 on")
        reference, offset, length = map(int, found[place.number])
        data = stop.read(reference, int(stop.number("i", offset)), int(stop.number("i", length)))
        where = f"r{reference}+i{offset}:i{length}"
        dtype, dims = place.dtype, place.dims
        if dtype is None:
            dtype, dims = self._kernel_type(stop, place.number, dispatch, len(found))
        if dtype is None:
            why = "the module was stripped: add a dtype, as in b0 f32"
            return f"{where}, {len(data)} bytes; {why}"
        return f"{where} {tensor_text(data, dtype, dims)}"

    def _kernel_type(
        self, stop: Stop, number: int, dispatch: str, count: int
    ) -> tuple[DType | None, tuple[int, ...] | None]:
        """The type of a binding, as the kernel's graph says it."""
        entry = self.entry(dispatch)
        head = entry.region.partition(" {\n")[0].partition(" symbols ")[0] if entry else ""
        types = _TYPE.findall(head.partition(" attributes ")[0])
        if len(types) != count or entry is None or types[number][0] not in DTYPES:
            return None, None
        name, dims = types[number]
        listed = re.search(r"\[([^\]]*)\], bindings", dispatch)
        registers = [int(each[1:]) for each in listed[1].split(", ") if each] if listed else []
        symbols = self.constants.get(entry.name, [])
        if not symbols and len(registers) == 1:  # the graph then has one symbol at most
            symbols = sorted(set(re.findall(r"[A-Za-z_]\w*", ",".join(d for _, d in types))))[:1]
        sizes = {
            symbol: int(stop.number("i", register))
            for symbol, register in zip(symbols, registers, strict=False)
        }
        texts = [each.strip() for each in dims.split(",") if each.strip()]
        known = [int(each) if each.isdecimal() else sizes.get(each) for each in texts]
        shape = tuple(each for each in known if each is not None)
        return DTYPES[name], shape if len(shape) == len(texts) else None

    def _origin(
        self, stop: Stop, register: int
    ) -> tuple[str, DType | None, tuple[int, ...] | None]:
        """What the last instruction above that writes the register says of its buffer."""
        writes = re.compile(rf"r{register}(?:, i\d+)? = (\S+) ?(.*)")
        above = (self.code[word] for word in sorted(self.code, reverse=True) if word < stop.word)
        found = next(filter(None, map(writes.fullmatch, above)), None)
        if found is None:
            return "a buffer", None, None
        numbers = [int(each) for each in re.findall(r"(?<![\w.])\d+", found[2])]
        if found[1] == "argument.buffer":
            value = self.function.arguments[numbers[0]]
            return f"argument '{value.name}'", value.dtype, self.shapes[numbers[0]]
        if found[1] == "result.buffer":
            value = self.function.results[numbers[0]]
            dims = [int(stop.number("i", int(each))) for each in re.findall(r"i(\d+)", found[2])]
            return f"result '{value.name}'", value.dtype, tuple(dims)
        if found[1].startswith("variable."):
            variable = self.contents.variables[numbers[0]]
            shape = tuple(dim for dim in variable.shape if isinstance(dim, int))
            is_open = len(shape) < len(variable.shape)
            return f"variable '{variable.name}'", variable.dtype, None if is_open else shape
        return found[1], None, None

    def _number(self, stop: Stop, text: str, default: int) -> int:
        if not text:
            return default
        return int(stop.number("i", int(text[1:]))) if text.startswith("i") else int(text)


def tensor_text(data: bytes, dtype: DType, dims: tuple[int, ...] | None) -> str:
    """`f32[2,3] [0, 1, ...], min 0, max 5, 0 NaN`. Without dims, or where they do not fit, it is
    one row. OutOfRange: it is more than a debugger looks at."""
    if len(data) > _GREATEST:
        raise OutOfRange(f"{len(data)} bytes are more than are looked at: give a shorter length")
    count = len(data) // dtype.bytes
    stored = np.frombuffer(data[: count * dtype.bytes], storage_dtype(dtype))
    values: Any = decode(stored, dtype)
    shape = dims if dims is not None and prod(dims) == count else (count,)
    shown = ", ".join(_element(each) for each in values[:_HEAD])
    line = f"{dtype}[{','.join(map(str, shape))}] [{shown}{', ...' if count > _HEAD else ''}]"
    if count == 0 or dtype.is_complex:
        return line
    if dtype.is_float:
        nans = int(np.isnan(values).sum())
        if nans == count:
            return f"{line}, all NaN"
        least, most = np.nanmin(values), np.nanmax(values)
        return f"{line}, min {_element(least)}, max {_element(most)}, {nans} NaN"
    return f"{line}, min {_element(values.min())}, max {_element(values.max())}"


def _element(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
