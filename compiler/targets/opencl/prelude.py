"""The OpenCL C functions that printed kernels call: only those that are called, once each.

The .cl files beside this one hold them as text, separated by blank lines. A function of
`N(name)` is written once for any number of lanes: N(add_T) of T = i32 and 4 lanes is
`add_i32x4`. `S(name)` is scalar code; its vectors go lane by lane. In the text

    F32 F64 I8 ... U64     that type, with the lanes of the function
    T I U F                the type in the name: T any integer, F a float; I and U are the
                           integers of its width, with and without sign
    SIGNED UNSIGNED        in a name: as T, for such types only
    BITS                   the width of T

What differs more than that between numbers of lanes (reductions, partial loads) is made
here. Functions of the math library (`compiler/kernels/math`) are printed from their loop IR. This
file knows nothing of kernels.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from ingot.compiler.kernels.math.functions import math_function
from ingot.compiler.targets.opencl.opencl_types import (
    MEMORY_TYPES,
    SWIZZLE,
    TYPES,
    vector_type,
)
from ingot.compiler.targets.opencl.opencl_values import ValuePrinter
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype, layout

__all__ = ["Prelude", "guard_f64"]

_FILES = ("integers.cl", "floats.cl")
_DEFINES = re.compile(r"^(?:\w+ )*(?:([NS])\((\w+)\)|(\w+)(?:\[\])? ?[(=])|^#define (\w+)", re.M)
_NAME = re.compile(r"^(.*?)(?:x(2|4|8|16))?$")
_TYPE_TOKEN = re.compile(r"\b(convert_|as_)?([FIU])(8|16|32|64)(_rte)?\b")
_GENERIC_TOKEN = re.compile(r"\b(convert_|as_)?([TIUF])\b")
_CALL = re.compile(r"\bN\((\w+)\)")
_REDUCTION = re.compile(r"reduce_(add|mul|max|min|and|or|xor)_")
_ACCESS = re.compile(r"(load|store)_(?!partial)")
_SIGNATURE = re.compile(r"^(\w+) S\(\w+\)\(([^)]*)\)", re.M)
_WORD = re.compile(r"\b[A-Za-z]\w+\b")
_KINDS = {"F": "float", "I": "i", "U": "u"}
_OPERATORS = {"and": "&", "or": "|", "xor": "^"}


def guard_f64(text: str) -> str:
    """Text that devices without f64 must not see."""
    return f"#ifdef INGOT_OPENCL_FP64\n{text}#endif\n"


@lru_cache(maxsize=1)
def _library() -> dict[str, tuple[bool, str]]:
    """Per name: whether it is scalar code, and its text."""
    found: dict[str, tuple[bool, str]] = {}
    for file in _FILES:
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        for paragraph in text.split("\n\n"):
            match = _DEFINES.search(paragraph)
            if match is not None:
                name = match[2] or match[3] or match[4]
                found[name] = (match[1] == "S", paragraph.strip() + "\n")
    return found


class Prelude:
    """Collects the functions that kernels need; `text()` defines each before its use."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def need(self, name: str) -> str:
        """The name again, which stands in the text from now on. CompileError: it is unknown."""
        if name not in self._texts:
            text, others = _define(name)
            for other in others:
                self.need(other)
            self._texts[name] = text
        return name

    def text(self) -> str:
        """All definitions."""
        return "\n".join(
            guard_f64(text) if "double" in text else text for text in self._texts.values()
        )


def _define(name: str) -> tuple[str, list[str]]:
    """The definition of a function, and the names that it uses."""
    match = _NAME.match(name)
    assert match is not None
    base, lanes = match[1], int(match[2] or 1)
    if _REDUCTION.match(base):
        return _reduction(name, base, lanes)
    if _ACCESS.match(base):
        return _access(name, base, lanes), []
    maker = _MAKERS.get(base)
    if maker is not None:
        return maker(lanes), []
    stem, _, type = base.rpartition("_")
    if type in ("f32", "f64"):
        for op in (stem, f"loop.{stem}"):
            function = math_function(op, dtype(type), lanes)
            if function is not None:
                return ValuePrinter().function(function)
    key, element = _find(base)
    scalar, text = _library()[key]
    if scalar and lanes > 1:
        return _by_lane(text, base, element, lanes), [base]
    needed: list[str] = []

    def call(found: re.Match[str]) -> str:
        called = _renamed(found[1], element) + (f"x{lanes}" if lanes > 1 else "")
        if called != name:
            needed.append(called)
        return called

    text = _CALL.sub(call, re.sub(r"\bS\(", "N(", text))
    words = set(_WORD.findall(text)) & _library().keys()
    needed += sorted(word for word in words if word != key and word != base)
    return _typed(text, element, lanes), needed


def _find(base: str) -> tuple[str, DType | None]:
    """The key of a function in the library, and the type that it is generic over."""
    if base in _library():
        return base, None
    stem, _, type = base.rpartition("_")
    element = dtype(type)
    kinds = {"f": ["F"], "i": ["T", "SIGNED"], "u": ["T", "UNSIGNED"]}
    for kind in kinds[element.kind]:
        if f"{stem}_{kind}" in _library():
            return f"{stem}_{kind}", element
    raise CompileError(f"OpenCL kernels have no function '{base}': please report it")


def _renamed(name: str, element: DType | None) -> str:
    stem, _, last = name.rpartition("_")
    if element is not None and last in ("T", "F", "SIGNED", "UNSIGNED"):
        return f"{stem}_{element.name}"
    return name


def _typed(text: str, element: DType | None, lanes: int) -> str:
    """The text with OpenCL C types."""

    def explicit(found: re.Match[str]) -> str:
        prefix, kind, bits, suffix = found.groups(default="")
        scalar = "half" if (kind, bits) == ("F", "16") else TYPES[f"{kind.lower()}{bits}"]
        return f"{prefix}{vector_type(scalar, lanes)}{suffix}"

    def generic(found: re.Match[str]) -> str:
        assert element is not None
        prefix, kind = found.groups(default="")
        name = f"{kind.lower()}{element.bits}" if kind in "IU" else element.name
        return prefix + vector_type(TYPES[name], lanes)

    text = _TYPE_TOKEN.sub(explicit, text)
    if element is not None:
        text = re.sub(r"\bBITS\b", str(element.bits), _GENERIC_TOKEN.sub(generic, text))
    code = layout().constants["INGOT_FAULT_INDEX_OUT_OF_RANGE"]
    return text.replace("FAULT_CODE", str(code))


def _by_lane(text: str, base: str, element: DType | None, lanes: int) -> str:
    """A function of vectors that calls scalar code for each lane."""
    match = _SIGNATURE.search(text)
    assert match is not None
    result = _typed(match[1], element, 1)
    parameters = [each.strip().split(" ") for each in match[2].split(",")]
    declared = ", ".join(
        f"{vector_type(_typed(type, element, 1), lanes)} {name}" for type, name in parameters
    )
    calls = ", ".join(
        f"{base}({', '.join(f'{name}.s{SWIZZLE[lane]}' for _, name in parameters)})"
        for lane in range(lanes)
    )
    vector = vector_type(result, lanes)
    return f"{vector} {base}x{lanes}({declared}) {{\n  return ({vector})({calls});\n}}\n"


def _reduction(name: str, base: str, lanes: int) -> tuple[str, list[str]]:
    """All lanes combined as a tree: lane i with lane i + half."""
    _, kind, type = base.split("_")
    element = dtype(type)
    needed: list[str] = []
    lines, value, half = [], "v", lanes // 2
    while half:
        a, b = f"{value}.lo", f"{value}.hi"
        if kind in _OPERATORS:
            text = f"{a} {_OPERATORS[kind]} {b}"
        elif element.is_float and kind in ("add", "mul"):
            text = f"{a} {'+' if kind == 'add' else '*'} {b}"
        else:
            needed.append(f"{kind}_{type}" + (f"x{half}" if half > 1 else ""))
            text = f"{needed[-1]}({a}, {b})"
        value = f"v{half}"
        declared = f"{vector_type(TYPES[type], half)} {value} = "
        lines.append(f"  {declared if half > 1 else 'return '}{text};\n")
        half //= 2
    scalar = TYPES[type]
    return f"{scalar} {name}({scalar}{lanes} v) {{\n{''.join(lines)}}}\n", needed


def _access(name: str, base: str, lanes: int) -> str:
    """A vector of global memory: one access where it lies on a multiple of its length, and
    else what vload and vstore make of the alignment of an element."""
    kind, type = base.split("_")
    is_half = type == "f16"
    scalar = "half" if is_half else MEMORY_TYPES[type]
    length = dtype(type).bytes * lanes
    is_aligned = f"((uint)(size_t)at & {length - 1}u) == 0"
    value = vector_type("float" if is_half else scalar, lanes)
    if kind == "load":
        there = f"*(__global const {value} *)at"
        one, many = (
            (f"vloada_half{lanes}(0, at)", f"vload_half{lanes}(0, at)")
            if is_half
            else (
                there,
                f"vload{lanes}(0, at)",
            )
        )
        head = f"{value} {name}(__global const {scalar} *at)"
        return f"{head} {{\n  return {is_aligned} ? {one} : {many};\n}}\n"
    there = f"*(__global {value} *)at = value"
    one, many = (
        (f"vstorea_half{lanes}_rte(value, 0, at)", f"vstore_half{lanes}_rte(value, 0, at)")
        if is_half
        else (there, f"vstore{lanes}(value, 0, at)")
    )
    head = f"void {name}(__global {scalar} *at, {value} value)"
    return f"{head} {{\n  if ({is_aligned}) {{\n    {one};\n  }} else {{\n    {many};\n  }}\n}}\n"


def _partial_load(lanes: int) -> str:
    """Lanes from `count` on are not touched, and zero."""
    parts = ", ".join(f"{i} < (count) ? at(memory, (index) + {i}) : 0" for i in range(lanes))
    arguments = "type, at, memory, index, count"
    return f"#define LOAD_PARTIALx{lanes}({arguments}) \\\n  (type)({parts})\n"


def _partial_store(lanes: int) -> str:
    parts = " \\\n".join(
        f"    if ({i} < (count)) put(memory, (index) + {i}, (value).s{SWIZZLE[i]});"
        for i in range(lanes)
    )
    return (
        f"#define STORE_PARTIALx{lanes}(put, memory, index, value, count) \\\n"
        f"  do {{ \\\n{parts} \\\n  }} while (0)\n"
    )


def _gather(lanes: int) -> str:
    parts = ", ".join(f"at(memory, (indices).s{SWIZZLE[i]})" for i in range(lanes))
    return f"#define GATHERx{lanes}(type, at, memory, indices) (type)({parts})\n"


def _first(lanes: int) -> str:
    """The value of the first lane that is set."""
    text = "values.s" + SWIZZLE[lanes - 1]
    for lane in reversed(range(lanes - 1)):
        text = f"mask.s{SWIZZLE[lane]} != 0 ? values.s{SWIZZLE[lane]} : {text}"
    head = f"long first_i64x{lanes}(long{lanes} mask, long{lanes} values)"
    return f"{head} {{\n  return {text};\n}}\n"


_MAKERS = {
    "LOAD_PARTIAL": _partial_load,
    "STORE_PARTIAL": _partial_store,
    "GATHER": _gather,
    "first_i64": _first,
}
