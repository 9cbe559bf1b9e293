"""Loop IR as C: one function per kernel, in the dialect of kernel.h and its kind.

A register of f16 or bf16 is an f32 that is rounded after each op; a vector of i1 is a mask
as wide as the lanes that were compared. Nothing is decided here that changes a result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import ClassVar

from ingot.compiler.ir import Function, MemoryType, Op, Value, VectorType, defined_by, uses_of
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import dtype_of, lanes_of
from ingot.compiler.kernels.math.functions import MATH_FUNCTIONS, math_function
from ingot.compiler.kernels.place_polls import PART
from ingot.compiler.kernels.table import (
    Axis,
    Clamp,
    Code,
    Compare,
    Constant,
    Dot4,
    Fault,
    Fma,
    For,
    Lane,
    Offset,
    Poll,
    Prefetch,
    Reduce,
    Shuffle,
    Table4,
)
from ingot.compiler.targets.c_structure import CStructure, register_bits
from ingot.compiler.targets.cpu.c_file import PrintedKernel, print_source, prototype
from ingot.compiler.targets.cpu.c_text import (
    access,
    converted,
    literal,
    scalar_name,
    shift,
    stored,
    wrapped,
)
from ingot.compiler.targets.cpu.headers import with_needed
from ingot.compiler.targets.cpu.tiles_text import TILE_OPS, tile_call
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["PrintedKernel", "print_kernel", "print_source", "prototype"]

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOAT_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_VECTOR_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_INDEX_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%"}
_ROUNDINGS = {"floor", "ceil", "trunc", "round_even", "round_away"}
_EXACT = {"neg", "abs", "sign", "max", "min"} | _ROUNDINGS
_INSTRUCTIONS = {"scale_f32x16", "exp_floor_f32x16"}
"""Functions for which some machine has an instruction, or that depend on one:
kernel_arithmetic.h."""
_RARE = ("angle", "quadrant")
"""Functions that are seldom called, and too large to stand wherever they are. What other functions
choose by a branch is as rare."""
_PREDICATES = {"is_nan", "is_inf", "is_finite"}
_MASK_OPS = {"and": "&", "or": "|", "xor": "^", "max": "|", "min": "&", "mul": "&", "add": "|"}


def print_kernel(kernel: Kernel) -> PrintedKernel:
    """The C function of one kernel."""
    return _Printer(kernel.loops).kernel(kernel)


@cache
def _print_function(function: Function) -> PrintedKernel:
    return _Printer(function).function(function)


class _Printer(CStructure):
    statements: ClassVar[dict[str, str]] = {
        "loop.for": "_for",
        "loop.if": "_if",
        "loop.store": "_store",
        "loop.fault": "_fault",
        "loop.poll": "_poll",
        "loop.prefetch": "_prefetch",
        **{f"loop.{name}": "_tiles" for name in TILE_OPS},
    }

    def __init__(self, printed: Function) -> None:
        super().__init__()
        uses = uses_of(printed).items()
        self.stored = {value for value, by in uses if all(op.name == "loop.store" for op, _ in by)}
        self.converted = {value for value, by in uses if all(op.name == "convert" for op, _ in by)}
        self.constants: dict[Value, float] = {}
        self.headers: dict[int, int] = {}
        self.parts: set[str] = set()
        self.functions: dict[str, str] = {}
        self.is_function = False

    def _define(self, value: Value, expression: str) -> None:
        """Vectors of one integer stand where they are used: shifts take the plain number; whole
        floats do that are only converted, which rounds, too. In a function all constants do, which
        gives gcc the order in which it makes the best code."""
        is_constant = defined_by(value, "loop.constant") is not None
        is_vector = lanes_of(value) > 1 and dtype_of(value).is_integer
        is_rounded = lanes_of(value) > 1 and defined_by(value, "round_even") is not None
        if (is_rounded and value in self.converted) or (
            is_constant and (self.is_function or is_vector)
        ):
            self.names[value] = expression
        else:
            super()._define(value, expression)

    def kernel(self, kernel: Kernel) -> PrintedKernel:
        self._block(kernel.loops.block)
        unused = "  (void)dispatch, (void)x, (void)y, (void)z, (void)scratch, (void)fault;"
        if any("INGOT_POLL" in line for line in self.lines):
            self.lines.insert(0, "  i64 fuel = INGOT_POLL_FUEL;")
        body = "\n".join(self.lines)
        signature = prototype(kernel.name)
        text = f"{signature};\n{signature} {{\n{unused}\n{body}\n  return 0;\n}}\n"
        return self._printed(text, body)

    def _condition(self, value: Value) -> str:
        text = super()._condition(value)
        return f"__builtin_expect({text}, 0)" if self.is_function else text

    def function(self, function: Function) -> PrintedKernel:
        self.is_function = True
        head, body = self._function(function)
        kind = "INGOT_RARE" if function.name.startswith(_RARE) else "INGOT_INLINE"
        text = f"{kind} {head} {{\n{body}\n}}\n"
        if function.name in _INSTRUCTIONS:
            text = f"#ifndef INGOT_HAVE_{function.name}\n{text}#endif\n"
        return self._printed(text, body)

    def _printed(self, text: str, body: str) -> PrintedKernel:
        for function in re.findall(r"\w+(?=\()", body):
            self.parts.update(function.split("_"))
        return PrintedKernel(text, self.headers, with_needed(self.parts), self.functions)

    def _call(self, name: str, element: DType, lanes: int, *arguments: str) -> str:
        """A call of a function of the math library. A scalar is one lane of four: many functions
        choose among several results, which scalars do by branches."""
        called = math_function(name, element, max(lanes, 4))
        assert called is not None
        printed = _print_function(called)
        self.functions |= printed.functions | {called.name: printed.text}
        self.parts |= printed.parts
        for each, count in printed.headers.items():
            self._include(each, count)
        if lanes > 1:
            return f"{called.name}({', '.join(arguments)})"
        scalar = scalar_name(element)
        vectors = (f"broadcast_{scalar}x4({argument})" for argument in arguments)
        return f"{called.name}({', '.join(vectors)})[0]"

    def _include(self, lanes: int, count: int = 2) -> None:
        """The first headers with this number of lanes."""
        self.headers[lanes] = max(count, self.headers.get(lanes, 0))

    def _type(self, value: Value) -> str:
        if isinstance(value.type, MemoryType):
            scalar_name(value.type.element)
            return f"{stored(value)}_memory *"
        if isinstance(value.type, VectorType):
            self._include(value.type.lanes)
            if value.type.dtype.is_boolean:
                return f"i{self.mask_bits.setdefault(value, 32)}x{value.type.lanes}"
            return f"{scalar_name(value.type.dtype)}x{value.type.lanes}"
        return scalar_name(dtype_of(value))

    def _mask(self, value: Value, bits: int) -> str:
        """A vector of i1 with lanes of `bits`."""
        if self.mask_bits[value] == bits:
            return self._name(value)
        return wrapped(self._name(value), self.mask_bits[value], f"i{bits}", lanes_of(value))

    def _loop_hint(self, op: Op) -> str | None:
        if For.of(op).unroll:
            return "#pragma GCC unroll 16"
        return "#pragma GCC unroll 1" if op.results else None

    def _for(self, op: Op) -> None:
        """A loop that polls is two: the inner one is what it would be, and is done in parts."""
        if not For.of(op).poll:
            super()._for(op)
            return
        index = op.regions[0].block.arguments[0]
        lower, upper, step = map(self._name, op.operands[:3])
        self._declare_carried(op)
        name = self._new_name(index)
        part = f"index_min({upper}, {{}} + {For.of(op).poll} * {step})"
        self._line(f"i64 {name} = {lower}, {name}_end = {part.format(lower)};")
        self._line(f"if ({name} < {upper}) for (;;) {{")
        self.depth += 1
        self._line("INGOT_KEEP_APART();")
        self._loop(op, "do {", f"}} while (({name} += {step}) < {name}_end);")
        self._line(f"if (__builtin_expect({name}_end >= {upper}, 1)) break;")
        self._line(f"INGOT_POLL({PART});")
        self._line(f"{name} = {name}_end;")
        self._line(f"{name}_end = {part.format(name)};")
        self.depth -= 1
        self._line("}")

    def _poll(self, op: Op) -> None:
        self._line(f"INGOT_POLL({Poll.of(op).work});")

    def _prefetch(self, op: Op) -> None:
        memory, index = (self._name(value) for value in op.operands)
        address = f"(uintptr_t){memory} + (uintptr_t){index} * sizeof *{memory}"
        self._line(f"__builtin_prefetch((const void *)({address}), 0, {2 + Prefetch.of(op).soon});")

    def _tiles(self, op: Op) -> None:
        call, parts = tile_call(op, [*map(self._name, op.operands)])
        self.parts |= parts
        self._line(f"{call};")

    def _store(self, op: Op) -> None:
        memory, index, value = op.operands[:3]
        lanes = lanes_of(value)
        operands = [self._name(memory), self._name(index)]
        element = dtype_of(memory).name
        is_mask = lanes > 1 and dtype_of(value).is_boolean
        operands.append(self._mask(value, 8) if is_mask else self._name(value))
        operands += [self._name(count) for count in op.operands[3:]]
        self._line(f"{access('store', element, lanes, len(operands) > 3)}({', '.join(operands)});")

    def _fault(self, op: Op) -> None:
        condition, index, bound = op.operands
        operand = Fault.of(op).operand
        lanes = lanes_of(condition)
        if lanes == 1:
            test, which = self._name(condition), self._name(index)
        else:
            mask = self._mask(condition, 64)
            test = f"reduce_any_i64x{lanes}({mask})"
            which = f"first_i64x{lanes}({mask}, {self._name(index)})"
        self._line(f"if (__builtin_expect({test} != 0, 0)) {{")
        self._line("  fault->code = INGOT_FAULT_INDEX_OUT_OF_RANGE;")
        self._line(f"  fault->operand = {operand};")
        self._line(f"  fault->index = {which};")
        self._line(f"  fault->bound = {self._name(bound)};")
        self._line("  return INGOT_FAULT_INDEX_OUT_OF_RANGE;")
        self._line("}")

    # Expressions.

    def _expression(self, op: Op) -> str:
        name = op.name.removeprefix("loop.")
        if op.name.startswith("loop."):
            if name in _INDEX_OPERATORS:
                a, b = map(self._name, op.operands)
                return f"{a} {_INDEX_OPERATORS[name]} {b}"
            if name in ("min", "max"):
                return f"index_{name}({', '.join(map(self._name, op.operands))})"
            if op.name in MATH_FUNCTIONS:
                return self._elementwise(op)
            printer: Callable[[_Printer, Op], str] | None = _EXPRESSIONS.get(name)
            if printer is None:
                raise CompileError(f"the C printer has no {op.name}")
            return printer(self, op)
        return _EXPRESSIONS.get(name, _Printer._elementwise)(self, op)

    def _suffix(self, lanes: int) -> str:
        if lanes > 1:
            self._include(lanes)
        return f"x{lanes}" if lanes > 1 else ""

    def _elementwise(self, op: Op) -> str:
        element = dtype_of(op.operands[0])
        lanes = lanes_of(op.result)
        names = [self._name(value) for value in op.operands]
        if math_function(op.name, element, lanes) is not None:
            return self._rounded(op, self._call(op.name, element, lanes, *names))
        if op.name in _VECTOR_OPERATORS and element.is_integer and lanes > 1:
            bits = f"u{element.bits}x{lanes}"
            text = f"({bits}){names[0]} {_VECTOR_OPERATORS[op.name]} ({bits}){names[1]}"
            return text if element.kind == "u" else f"({element.name}x{lanes})({text})"
        count = shift(op)
        if count is not None:
            kind = "i" if op.name == "shift_right_arithmetic" else "u"
            operator = "<<" if op.name == "shift_left" else ">>"
            value = f"({kind}{element.bits}x{lanes}){names[0]}"
            return f"({element.name}x{lanes})({value} {operator} {count})"
        if element.is_boolean:
            return self._boolean(op, names, lanes)
        if op.name in _PREDICATES and lanes > 1:
            self.mask_bits[op.result] = register_bits(element)
        if not element.is_float:
            return f"{op.name}_{element.name}{self._suffix(lanes)}({', '.join(names)})"
        return self._rounded(op, self._float(op, names, lanes))

    def _rounded(self, op: Op, text: str, name: str = "") -> str:
        """What the op makes, as registers hold it. A store rounds, too."""
        element = dtype_of(op.result)
        is_exact = (name or op.name) in _EXACT or op.result in self.stored
        if element.is_half and not is_exact:
            return f"round_{element.name}{self._suffix(lanes_of(op.result))}({text})"
        return text

    def _float(self, op: Op, names: list[str], lanes: int) -> str:
        if op.name in _FLOAT_OPERATORS:
            return f"{names[0]} {_FLOAT_OPERATORS[op.name]} {names[1]}"
        name = op.name
        scalar = scalar_name(dtype_of(op.operands[0]))
        if name in ("max", "min") and lanes > 1:
            for place in (0, 1):
                if self.constants.get(op.operands[place], math.nan) not in (math.nan, 0.0):
                    known = self.constants[op.operands[place]]
                    if not math.isnan(known):
                        name = f"{name}_constant"
                        names = [names[place], names[1 - place]]
                        break
        elif name in _ROUNDINGS:
            self._include(max(lanes, 4), 3)  # a scalar is one lane of four
            self.parts |= {f"{scalar}x{max(lanes, 4)}"}
        return f"{name}_{scalar}{self._suffix(lanes)}({', '.join(names)})"

    def _boolean(self, op: Op, names: list[str], lanes: int) -> str:
        if lanes == 1:
            name = {"max": "or", "min": "and", "mul": "and", "add": "or"}.get(op.name, op.name)
            return f"{name}_i1({', '.join(names)})"
        bits = max(self.mask_bits[value] for value in op.operands)
        self.mask_bits[op.result] = bits
        masks = [self._mask(value, bits) for value in op.operands]
        return f"~{masks[0]}" if op.name == "not" else f"{masks[0]} {_MASK_OPS[op.name]} {masks[1]}"

    def _compare(self, op: Op) -> str:
        a, b = op.operands
        operator = _COMPARISONS[Compare.of(op).direction]
        if lanes_of(a) == 1:
            return f"{self._name(a)} {operator} {self._name(b)}"
        if dtype_of(a).is_boolean:  # lanes of 0 and -1: compared unsigned
            bits = max(self.mask_bits[a], self.mask_bits[b])
            self.mask_bits[op.result] = bits
            type, mask = f"u{bits}x{lanes_of(a)}", f"i{bits}x{lanes_of(a)}"
            left, right = self._mask(a, bits), self._mask(b, bits)
            return f"({mask})(({type}){left} {operator} ({type}){right})"
        element = dtype_of(a)
        self.mask_bits[op.result] = register_bits(element)
        if element.bits == 64:  # often more than a register holds
            name = f"{Compare.of(op).direction}_{element.name}x{lanes_of(a)}"
            return f"{name}({self._name(a)}, {self._name(b)})"
        return f"{self._name(a)} {operator} {self._name(b)}"

    def _select(self, op: Op) -> str:
        predicate, a, b = op.operands
        if lanes_of(predicate) == 1:
            return f"{self._name(predicate)} ? {self._name(a)} : {self._name(b)}"
        lanes = lanes_of(a)
        element = dtype_of(a)
        if element.is_boolean:
            bits = max(self.mask_bits[value] for value in op.operands)
            self.mask_bits[op.result] = bits
            names = [self._mask(value, bits) for value in op.operands]
            return f"select_i{bits}x{lanes}({', '.join(names)})"
        mask = self._mask(predicate, register_bits(element))
        scalar = scalar_name(element)
        return f"select_{scalar}x{lanes}({mask}, {self._name(a)}, {self._name(b)})"

    def _clamp(self, op: Op) -> str:
        """min(max(x, low), high)"""
        low, x, high = op.operands
        lanes = lanes_of(x)
        scalar = scalar_name(dtype_of(x))

        def call(name: str, value: str, bound: Value) -> str:
            suffix, known = self._suffix(lanes), self.constants.get(bound, math.nan)
            is_number = Clamp.of(op).numbers or (known != 0 and not math.isnan(known))
            if lanes > 1 and is_number and dtype_of(x).is_float:
                return f"{name}_constant_{scalar}{suffix}({self._name(bound)}, {value})"
            return f"{name}_{scalar}{suffix}({value}, {self._name(bound)})"

        return call("min", call("max", self._name(x), low), high)

    def _convert(self, op: Op) -> str:
        source = op.operands[0]
        lanes, name = lanes_of(source), self._name(source)
        old, new = dtype_of(source), dtype_of(op.result)
        if old == new:
            if lanes > 1 and old.is_boolean:
                self.mask_bits[op.result] = self.mask_bits[source]
            return name
        if new.is_boolean:
            if lanes > 1:
                self.mask_bits[op.result] = register_bits(old)
            return f"{name} != 0"
        target = scalar_name(new)
        if old.is_boolean:
            if lanes == 1:
                return f"({target}){name}"
            bits = register_bits(new)
            one = f"broadcast_{target}x{lanes}(1)"
            return f"({target}x{lanes})({self._mask(source, bits)} & (i{bits}x{lanes}){one})"
        from_name = scalar_name(old)
        if old.is_float and new.is_integer:
            rounded = defined_by(source, "round_even")
            if rounded and lanes > 1 and from_name == "f32" and new.bits == 8:
                return f"convert_even_f32_{target}x{lanes}({self._name(rounded.operands[0])})"
            return f"convert_{from_name}_{target}{self._suffix(lanes)}({name})"
        if lanes > 1:
            self._include(lanes)
            text = converted(name, from_name, target, lanes)
        else:
            text = name if from_name == target else f"({target}){name}"
        return self._rounded(op, text)

    def _bitcast(self, op: Op) -> str:
        source = op.operands[0]
        lanes = lanes_of(source)
        old, new = dtype_of(source), dtype_of(op.result)
        halves = {"f16", "bf16"} & {old.name, new.name}
        if lanes > 1 and not halves:
            return f"({scalar_name(new)}x{lanes}){self._name(source)}"
        if old == new:
            return self._name(source)
        if not halves:
            return f"bitcast_{old.name}_{new.name}({self._name(source)})"
        text = self._name(source)
        suffix = self._suffix(lanes)
        if old.name in halves:
            bits = f"narrow_{old.name}{suffix}" if lanes > 1 else f"store_bits_{old.name}"
            text = f"{bits}({text})"
        text = f"(u16{suffix}){text}"
        if new.name in halves:
            bits = f"widen_{new.name}{suffix}" if lanes > 1 else f"load_bits_{new.name}"
            return f"{bits}({text})"
        return f"({new.name}{suffix}){text}"

    def _load(self, op: Op) -> str:
        element = dtype_of(op.result)
        lanes = lanes_of(op.result)
        if lanes > 1 and element.is_boolean:
            self.mask_bits[op.result] = 8
        self._suffix(lanes)
        operands = list(map(self._name, op.operands))
        kind = stored(op.operands[0])
        return f"{access('load', kind, lanes, len(operands) > 2)}({', '.join(operands)})"

    def _gather(self, op: Op) -> str:
        element = dtype_of(op.result)
        if element.is_boolean:
            self.mask_bits[op.result] = 8
        names = ", ".join(map(self._name, op.operands))
        suffix = self._suffix(lanes_of(op.result))
        if dtype_of(op.operands[1]).name == "u8":
            self.parts.add(f"lookup{suffix}")
            return f"lookup_u8{suffix}({names})"
        return f"gather_{stored(op.operands[0])}{suffix}({names})"

    def _constant(self, op: Op) -> str:
        value = Constant.of(op).value
        element = dtype_of(op.result)
        lanes = lanes_of(op.result)
        if element.is_float:
            self.constants[op.result] = value
        text = literal(value, element)
        if lanes == 1:
            return text
        if element.is_boolean:
            self.mask_bits[op.result] = 32
            return f"broadcast_i32x{lanes}({-int(value)})"
        if element.is_integer:
            return f"(({element.name}{self._suffix(lanes)}){{0}} + {text})"
        return f"broadcast_{scalar_name(element)}{self._suffix(lanes)}({text})"

    def _broadcast(self, op: Op) -> str:
        source = op.operands[0]
        element = dtype_of(source)
        suffix = self._suffix(lanes_of(op.result))
        if source in self.constants:
            self.constants[op.result] = self.constants[source]
        if element.is_boolean:
            self.mask_bits[op.result] = 32
            return f"broadcast_i32{suffix}(-(i32){self._name(source)})"
        return f"broadcast_{scalar_name(element)}{suffix}({self._name(source)})"

    def _extract(self, op: Op) -> str:
        lane = f"{self._name(op.operands[0])}[{Lane.of(op).lane}]"
        return f"(i1)({lane} & 1)" if dtype_of(op.result).is_boolean else lane

    def _insert(self, op: Op) -> str:
        vector, scalar = op.operands
        suffix = self._suffix(lanes_of(vector))
        lane = Lane.of(op).lane
        if dtype_of(vector).is_boolean:
            self.mask_bits[op.result] = 32
            mask = self._mask(vector, 32)
            return f"insert_i32{suffix}({mask}, -(i32){self._name(scalar)}, {lane})"
        element = scalar_name(dtype_of(vector))
        return f"insert_{element}{suffix}({self._name(vector)}, {self._name(scalar)}, {lane})"

    def _shuffle(self, op: Op) -> str:
        a, b = map(self._name, op.operands)
        if dtype_of(op.result).is_boolean:
            bits = self.mask_bits[op.operands[0]]
            self.mask_bits[op.result] = bits
            a, b = (self._mask(operand, bits) for operand in op.operands)
        lanes = ", ".join(map(str, Shuffle.of(op).lanes))
        return f"__builtin_shufflevector({a}, {b}, {lanes})"

    def _pick(self, op: Op) -> str:
        vector, places = op.operands
        element, lanes = dtype_of(vector), lanes_of(vector)
        name, text = scalar_name(element), self._name(vector)
        if element.is_boolean:
            self.mask_bits[op.result] = 8
            name, text = "i8", self._mask(vector, 8)
        return f"pick_{name}x{lanes}({text}, {self._name(places)})"

    def _reduce(self, op: Op) -> str:
        vector = op.operands[0]
        element = dtype_of(vector)
        kind = Reduce.of(op).kind
        lanes = lanes_of(vector)
        if element.is_boolean:
            name = {"max": "or", "min": "and", "mul": "and", "add": "or"}.get(kind, kind)
            return f"(i1)(reduce_{name}_i32x{lanes}({self._mask(vector, 32)}) & 1)"
        text = f"reduce_{kind}_{scalar_name(element)}{self._suffix(lanes)}({self._name(vector)})"
        return self._rounded(op, text, kind)

    def _any(self, op: Op) -> str:
        vector = op.operands[0]
        mask = f"i{self.mask_bits[vector]}x{lanes_of(vector)}"
        return f"reduce_any_{mask}({self._name(vector)})"

    def _fma(self, op: Op) -> str:
        element = dtype_of(op.result)
        lanes = lanes_of(op.result)
        names = ", ".join(map(self._name, op.operands))
        exact = "_exact" * Fma.of(op).exact
        text = f"fma{exact}_{scalar_name(element)}{self._suffix(lanes)}({names})"
        return self._rounded(op, text)

    def _dot_words(self, op: Op) -> str:
        dot, names = op.attributes, ", ".join(map(self._name, op.operands))
        name = f"dot4_{dot.left.name}_{dot.right.name}" if isinstance(dot, Dot4) else "dot2"
        return f"{name}{self._suffix(lanes_of(op.result))}({names})"

    def _half2(self, op: Op) -> str:
        self.parts.add("half2")
        names, suffix = ", ".join(map(self._name, op.operands)), self._suffix(lanes_of(op.result))
        return f"{op.name.removeprefix('loop.')}{suffix}({names})"

    def _code(self, op: Op) -> str:
        (words,), code, lanes = map(self._name, op.operands), Code.of(op), lanes_of(op.result)
        how = f"{code.place}, {code.bits}, {int(code.is_signed)}"
        return f"code_f32{self._suffix(lanes)}({words}, {how})"

    def _table4(self, op: Op) -> str:
        (words,), table = map(self._name, op.operands), bytes(Table4.of(op).table)
        low, high = (hex(int.from_bytes(table[at : at + 8], "little")) for at in (0, 8))
        suffix = self._suffix(lanes_of(op.result))
        return f"table4_i32{suffix}({words}, {low}u, {high}u)"

    def _same(self, op: Op) -> str:
        a, b = (f"(const void *){self._name(memory)}" for memory in op.operands)
        return f"(i1)({a} == {b})"


def _leaf(text: str) -> Callable[[_Printer, Op], str]:
    return lambda printer, op: text.format(**vars(op.attributes))


_EXPRESSIONS: dict[str, Callable[[_Printer, Op], str]] = {
    "constant": _Printer._constant,
    "dim": _leaf("dispatch->constants[{ordinal}]"),
    "binding": _leaf("dispatch->bindings[{ordinal}]"),
    "scratch": lambda printer, op: f"(void *)((char *)scratch + {Offset.of(op).offset})",
    "workgroup": lambda printer, op: "xyz"[Axis.of(op).axis],
    "workload": _leaf("dispatch->workload[{axis}]"),
    "lanes": lambda printer, op: f"lanes_i64{printer._suffix(lanes_of(op.result))}()",
    "load": _Printer._load,
    "gather": _Printer._gather,
    "broadcast": _Printer._broadcast,
    "extract": _Printer._extract,
    "insert": _Printer._insert,
    "shuffle": _Printer._shuffle,
    "pick": _Printer._pick,
    "reduce": _Printer._reduce,
    "any": _Printer._any,
    "fma": _Printer._fma,
    "dot2": _Printer._dot_words,
    "dot4": _Printer._dot_words,
    "fma2": _Printer._half2,
    "sum2": _Printer._half2,
    "same": _Printer._same,
    "code": _Printer._code,
    "table4": _Printer._table4,
    "compare": _Printer._compare,
    "select": _Printer._select,
    "convert": _Printer._convert,
    "bitcast": _Printer._bitcast,
    "clamp": _Printer._clamp,
}
