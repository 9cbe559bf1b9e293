"""The values of a kernel as OpenCL C: arithmetic, comparisons, conversions, lanes.

As in C, a register of f16 or bf16 is an f32 that is rounded after each op, and a vector of
i1 is a mask as wide as the lanes that were compared; a scalar of i1 is an int of 0 or 1.
Indices are `index_t`, which the driver chooses. The functions that are called stand in the
prelude. Memory, work items and the kernel around the values are `opencl_printer.py`.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ingot.compiler.ir import Function, IndexType, MemoryType, Op, Value, defined_by
from ingot.compiler.kernels.loop import dtype_of, lanes_of
from ingot.compiler.kernels.math.functions import MATH_FUNCTIONS
from ingot.compiler.kernels.table import (
    Clamp,
    Code,
    Compare,
    Constant,
    Dot4,
    Fma,
    For,
    Lane,
    Reduce,
    Shuffle,
    Table4,
)
from ingot.compiler.targets.c_structure import CStructure, register_bits
from ingot.compiler.targets.opencl.opencl_types import LANES, SWIZZLE, TYPES, vector_type
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["ValuePrinter", "scalar_type"]

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOAT_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}
_INDEX_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}
_EXACT = {"neg", "abs", "sign", "max", "min", "floor", "ceil", "trunc", "round_even"} | {
    "round_away"
}
_PREDICATES = {"is_nan", "is_inf", "is_finite"}
_MASK_OPS = {"and": "&", "or": "|", "xor": "^", "max": "|", "min": "&", "mul": "&", "add": "|"}
_SIGNED = {8: "char", 16: "short", 32: "int", 64: "long"}


def scalar_type(element: DType) -> str:
    """The type of a scalar in a register."""
    if element.name not in TYPES:
        raise CompileError(
            f"OpenCL kernels cannot compute with {element.name}; convert to one of: "
            + ", ".join(sorted(TYPES))
        )
    return TYPES[element.name]


class ValuePrinter(CStructure):
    """Prints ops on registers; `functions` are the names that the prelude must define."""

    statements: ClassVar[dict[str, str]] = {
        "loop.for": "_for",
        "loop.if": "_if",
        "loop.insert": "_insert",
    }
    expressions: ClassVar[dict[str, str]] = {
        "loop.constant": "_constant",
        "loop.lanes": "_lanes",
        "loop.broadcast": "_broadcast",
        "loop.extract": "_extract",
        "loop.shuffle": "_shuffle",
        "loop.pick": "_pick",
        "loop.reduce": "_reduce",
        "loop.any": "_any",
        "loop.fma": "_fma",
        "loop.dot4": "_dot4",
        "loop.code": "_code",
        "loop.table4": "_table4",
        "compare": "_compare",
        "select": "_select",
        "clamp": "_clamp",
        "convert": "_convert",
        "bitcast": "_bitcast",
    }

    def __init__(self) -> None:
        super().__init__()
        self.functions: dict[str, None] = {}
        self.pointers: dict[Value, str] = {}  # types of memory
        self.known: dict[Value, float] = {}  # constants of floats
        self.has_f64 = False

    def function(self, function: Function) -> tuple[str, list[str]]:
        """The text of a function, and the names of those that it calls."""
        head, body = self._function(function)
        return f"{head} {{\n{body}\n}}\n", list(self.functions)

    def _call(self, name: str, lanes: int, *arguments: str) -> str:
        """A call of a function of the prelude."""
        if lanes > 1:
            name = f"{name}x{lanes}"
        self.functions[name] = None
        return f"{name}({', '.join(arguments)})"

    def _vector(self, scalar: str, lanes: int) -> str:
        if lanes > 1 and lanes not in LANES:
            raise CompileError(
                f"OpenCL kernels have vectors of {LANES} lanes, not of {lanes}: please report it"
            )
        self.has_f64 |= scalar == "double"
        return vector_type(scalar, lanes)

    def _type(self, value: Value) -> str:
        if isinstance(value.type, MemoryType):
            return self.pointers[value]
        lanes = lanes_of(value)
        element = dtype_of(value)
        if lanes > 1 and element.is_boolean:
            return self._vector(_SIGNED[self.mask_bits.setdefault(value, 32)], lanes)
        if isinstance(value.type, IndexType):
            return "index_t"
        return self._vector(scalar_type(element), lanes)

    def _define(self, value: Value, expression: str) -> None:
        if lanes_of(value) == 1 and defined_by(value, "loop.constant"):
            self.names[value] = expression
        else:
            super()._define(value, expression)

    def _is_wide(self, value: Value) -> bool:
        """Whether the text of an integer has 64 bits: that of a small constant has not."""
        if constant := defined_by(value, "loop.constant"):
            return abs(int(Constant.of(constant).value)) >= 2**31
        return not isinstance(value.type, IndexType)

    def _mask(self, value: Value, bits: int) -> str:
        """A vector of i1 with lanes of `bits`."""
        if self.mask_bits[value] == bits:
            return self._name(value)
        return f"convert_{_SIGNED[bits]}{lanes_of(value)}({self._name(value)})"

    def _same_width(self, op: Op, values: list[Value]) -> list[str]:
        """Masks as wide as the widest of them; the result of `op` is one, too."""
        bits = max(self.mask_bits[value] for value in values)
        self.mask_bits[op.result] = bits
        return [self._mask(value, bits) for value in values]

    def _loop_hint(self, op: Op) -> str | None:
        if not For.of(op).unroll:
            return None
        is_known = all(defined_by(bound, "loop.constant") for bound in op.operands[:3])
        return "#pragma unroll" if is_known else "#pragma unroll 16"

    def _expression(self, op: Op) -> str:
        name = op.name.removeprefix("loop.")
        if op.name.startswith("loop."):
            names = [self._name(value) for value in op.operands]
            if name in _INDEX_OPERATORS:
                if self._is_wide(op.result) and not any(map(self._is_wide, op.operands)):
                    names[0] = f"(long){names[0]}"
                return f"{names[0]} {_INDEX_OPERATORS[name]} {names[1]}"
            if name in ("div", "rem"):
                return self._index_division(op, names)
            if name in ("min", "max"):
                a, b = names
                return f"{a} {'<' if name == 'min' else '>'} {b} ? {a} : {b}"
        method = self.expressions.get(op.name)
        if method is not None:
            text: str = getattr(self, method)(op)
            return text
        if op.name.startswith("loop.") and op.name not in MATH_FUNCTIONS:
            raise CompileError(f"the OpenCL printer has no {op.name}: please report it")
        return self._elementwise(op)

    def _index_division(self, op: Op, names: list[str]) -> str:
        """a / b or a % b of indices >= 0, unsigned: that is quicker."""
        a, b = names
        owner = op.operands[1].owner
        known = owner.attributes if isinstance(owner, Op) else None
        value = known.value if isinstance(known, Constant) else None
        if isinstance(value, int) and value > 0 and value & (value - 1) == 0:
            power = value.bit_length() - 1
            return f"{a} >> {power}" if op.name == "loop.div" else f"{a} & {value - 1}"
        is_wide = any(map(self._is_wide, op.operands))
        unsigned = "ulong" if is_wide else "unsigned INGOT_INDEX"
        operator = "/" if op.name == "loop.div" else "%"
        return f"({unsigned}){a} {operator} ({unsigned}){b}"

    def _elementwise(self, op: Op) -> str:
        element = dtype_of(op.operands[0])
        lanes = lanes_of(op.result)
        names = [self._name(value) for value in op.operands]
        if element.is_boolean:
            return self._boolean(op, names, lanes)
        if op.name in _PREDICATES and lanes > 1:
            self.mask_bits[op.result] = register_bits(element)
        if not element.is_float:
            return self._call(f"{op.name}_{element.name}", lanes, *names)
        return self._rounded(self._float(op, names, lanes), op.name, element, lanes)

    def _rounded(self, text: str, name: str, element: DType, lanes: int) -> str:
        if element.is_half and name not in _EXACT | _PREDICATES:
            return self._call(f"round_{element.name}", lanes, text)
        return text

    def _float(self, op: Op, names: list[str], lanes: int) -> str:
        if op.name in _FLOAT_OPERATORS:
            return f"{names[0]} {_FLOAT_OPERATORS[op.name]} {names[1]}"
        name = op.name.removeprefix("loop.")
        if name in ("max", "min"):
            for place in (0, 1):
                if not math.isnan(self.known.get(op.operands[place], math.nan)):
                    name = f"{name}_constant"
                    names = [names[place], names[1 - place]]
                    break
        return self._call(f"{name}_{_float_name(op.operands[0])}", lanes, *names)

    def _boolean(self, op: Op, names: list[str], lanes: int) -> str:
        if lanes > 1:
            names = self._same_width(op, op.operands)
        if op.name == "not":
            return f"~{names[0]}" if lanes > 1 else f"!{names[0]}"
        return f"{names[0]} {_MASK_OPS[op.name]} {names[1]}"

    def _compare(self, op: Op) -> str:
        a, b = op.operands
        operator = _COMPARISONS[Compare.of(op).direction]
        names = [self._name(a), self._name(b)]
        if lanes_of(a) > 1:
            if dtype_of(a).is_boolean:  # lanes of 0 and -1: compared unsigned
                names = self._same_width(op, op.operands)
                unsigned = f"as_u{_SIGNED[self.mask_bits[op.result]]}{lanes_of(a)}"
                names = [f"{unsigned}({name})" for name in names]
            else:
                self.mask_bits[op.result] = register_bits(dtype_of(a))
        return f"{names[0]} {operator} {names[1]}"

    def _select(self, op: Op) -> str:
        predicate, a, b = op.operands
        if lanes_of(predicate) == 1:
            test, names = self._name(predicate), [self._name(a), self._name(b)]
        elif dtype_of(a).is_boolean:
            test, *names = self._same_width(op, op.operands)
        else:
            test = self._mask(predicate, register_bits(dtype_of(a)))
            names = [self._name(a), self._name(b)]
        return f"{test} ? {names[0]} : {names[1]}"

    def _clamp(self, op: Op) -> str:
        """min(max(x, low), high)"""
        low, x, high = op.operands
        lanes = lanes_of(x)
        element = dtype_of(x)
        scalar = _float_name(x) if element.is_float else element.name

        are_numbers = Clamp.of(op).numbers and element.is_float

        def call(name: str, value: str, bound: Value) -> str:
            if are_numbers or not math.isnan(self.known.get(bound, math.nan)):
                return self._call(f"{name}_constant_{scalar}", lanes, self._name(bound), value)
            return self._call(f"{name}_{scalar}", lanes, value, self._name(bound))

        return call("min", call("max", self._name(x), low), high)

    def _convert(self, op: Op) -> str:
        source = op.operands[0]
        lanes = lanes_of(source)
        old, new = dtype_of(source), dtype_of(op.result)
        name = self._name(source)
        if old == new:
            if source in self.mask_bits:
                self.mask_bits[op.result] = self.mask_bits[source]
            return name
        if new.is_boolean:
            if lanes > 1:
                self.mask_bits[op.result] = register_bits(old)
            zero = f"({self._vector(scalar_type(old), lanes)})(0)"
            return f"{name} != {zero if lanes > 1 else 0}"
        target = self._vector(scalar_type(new), lanes)
        if old.is_boolean and lanes > 1:
            bits = register_bits(new)
            name = f"({self._mask(source, bits)} & ({_SIGNED[bits]})1)"
        if old.is_float and new.is_integer:
            number = self._call(f"number_{_float_name(source)}", lanes, name)
            return f"convert_{target}_sat_rtz({number})"
        if scalar_type(old) == scalar_type(new):
            text = name
        elif lanes == 1:
            text = f"({target}){name}"
        else:
            text = f"convert_{target}({name})"
        return self._rounded(text, "convert", new, lanes)

    def _bitcast(self, op: Op) -> str:
        source = op.operands[0]
        lanes = lanes_of(source)
        old, new = dtype_of(source), dtype_of(op.result)
        text = self._name(source)
        if old == new:
            return text
        if old.is_half:
            text = self._call(f"narrow_{old.name}", lanes, text)
        elif lanes == 1:
            text = f"({scalar_type(old)}){text}"
        if new.is_half:
            bits = f"as_{self._vector('ushort', lanes)}({text})"
            return self._call(f"widen_{new.name}", lanes, bits)
        return f"as_{self._vector(scalar_type(new), lanes)}({text})"

    def _constant(self, op: Op) -> str:
        value = Constant.of(op).value
        element = dtype_of(op.result)
        lanes = lanes_of(op.result)
        if element.is_float:
            self.known[op.result] = value
        if lanes == 1:
            return _literal(value, element)
        if element.is_boolean:
            self.mask_bits[op.result] = 32
            return f"(int{lanes})({-int(value)})"
        return f"({self._vector(scalar_type(element), lanes)})({_literal(value, element)})"

    def _broadcast(self, op: Op) -> str:
        source = op.operands[0]
        name = self._name(source)
        if source in self.known:
            self.known[op.result] = self.known[source]
        if dtype_of(source).is_boolean:
            self.mask_bits[op.result] = 32
            name = f"-{name}"
        return f"({self._type(op.result)})({name})"

    def _insert(self, op: Op) -> None:
        vector, scalar = op.operands
        name = self._name(scalar)
        text = self._name(vector)
        if dtype_of(vector).is_boolean:
            self.mask_bits[op.result] = self.mask_bits[vector]
            name = f"-{name}"
        self._line(f"{self._type(op.result)} {self._new_name(op.result)} = {text};")
        lane = SWIZZLE[Lane.of(op).lane]
        self._line(f"{self._name(op.result)}.s{lane} = {name};")

    def _extract(self, op: Op) -> str:
        lane = f"{self._name(op.operands[0])}.s{SWIZZLE[Lane.of(op).lane]}"
        return f"({lane} & 1)" if dtype_of(op.result).is_boolean else lane

    def _shuffle(self, op: Op) -> str:
        if dtype_of(op.result).is_boolean:
            names = self._same_width(op, op.operands)
        else:
            names = [self._name(value) for value in op.operands]
        chosen = Shuffle.of(op).lanes
        count = lanes_of(op.operands[0])
        sides = {lane // count for lane in chosen}
        if len(sides) == 1:
            swizzle = "".join(SWIZZLE[lane % count] for lane in chosen)
            return f"{names[sides.pop()]}.s{swizzle}"
        parts = [f"{names[lane // count]}.s{SWIZZLE[lane % count]}" for lane in chosen]
        return f"({self._type(op.result)})({', '.join(parts)})"

    def _pick(self, op: Op) -> str:
        vector, places = op.operands
        name = self._name(vector)
        if dtype_of(vector).is_boolean:
            self.mask_bits[op.result] = 8
            name = self._mask(vector, 8)
        unsigned = f"as_u{_SIGNED[dtype_of(places).bits]}{lanes_of(places)}"
        return f"shuffle({name}, {unsigned}({self._name(places)}))"

    def _reduce(self, op: Op) -> str:
        vector = op.operands[0]
        element = dtype_of(vector)
        kind = Reduce.of(op).kind
        lanes = lanes_of(vector)
        if element.is_boolean:
            name = {"max": "or", "min": "and", "mul": "and", "add": "or"}.get(kind, kind)
            return f"({self._call(f'reduce_{name}_i32', lanes, self._mask(vector, 32))} & 1)"
        scalar = _float_name(vector) if element.is_float else element.name
        text = self._call(f"reduce_{kind}_{scalar}", lanes, self._name(vector))
        return self._rounded(text, kind, element, 1)

    def _fma(self, op: Op) -> str:
        lanes = lanes_of(op.result)
        names = map(self._name, op.operands)
        exact = "_exact" * Fma.of(op).exact
        text = self._call(f"fma{exact}_{_float_name(op.result)}", lanes, *names)
        return self._rounded(text, "fma", dtype_of(op.result), lanes)

    def _dot4(self, op: Op) -> str:
        dot = Dot4.of(op)
        names = map(self._name, op.operands)
        return self._call(f"dot4_{dot.left.name}_{dot.right.name}", lanes_of(op.result), *names)

    def _code(self, op: Op) -> str:
        (word,), code, lanes = map(self._name, op.operands), Code.of(op), lanes_of(op.result)
        floats, unsigned = self._vector("float", lanes), self._vector("uint", lanes)
        kept = self._vector("int", lanes) if code.is_signed else unsigned
        high = f"as_{unsigned}({word}) << {32 - code.bits - code.place}"
        return f"convert_{floats}(as_{kept}({high}) >> {32 - code.bits})"

    def _table4(self, op: Op) -> str:
        (words,), table = map(self._name, op.operands), bytes(Table4.of(op).table)
        low, high = (hex(int.from_bytes(table[at : at + 8], "little")) for at in (0, 8))
        return self._call("table4_i32", lanes_of(op.result), words, f"{low}ul", f"{high}ul")

    def _lanes(self, op: Op) -> str:
        lanes = lanes_of(op.result)
        return f"({self._vector('long', lanes)})({', '.join(map(str, range(lanes)))})"

    def _any(self, op: Op) -> str:
        return f"any({self._name(op.operands[0])})"


def _float_name(value: Value) -> str:
    """The float type of the register."""
    return "f64" if dtype_of(value).name == "f64" else "f32"


def _literal(value: bool | int | float, element: DType) -> str:
    if element.is_boolean:
        return str(int(value))
    if element.is_float:
        cast = "(double)" if element.name == "f64" else ""
        if math.isnan(value):
            return f"{cast}NAN"
        if math.isinf(value):
            return f"{'(-' if value < 0 else ''}{cast}INFINITY{')' if value < 0 else ''}"
        text = f"{float(value).hex()}{'' if cast else 'f'}"
    elif value == -(2**63):
        return "LONG_MIN"
    elif value == -(2**31):
        return "INT_MIN"
    else:
        text = f"{value}{'u' if element.kind == 'u' else ''}"
        text += "l" if element.bits == 64 and abs(value) >= 2**31 else ""
    return f"({text})" if text.startswith("-") else text
