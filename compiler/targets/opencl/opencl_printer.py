"""Loop IR as OpenCL C 1.2: the second printer of the same kernels.

One work item runs one workgroup of the loop IR, so any kernel of the CPU classes is valid
OpenCL; schedules that share a group among work items are another matter. Each binding is
two arguments, a base pointer and an element offset. dtypes that need conversions of our
own (f16, bf16, f8, sub-byte) are refused with a CompileError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ingot.compiler.dispatch.kernel import Kernel, TargetInfo
from ingot.compiler.dispatch.loop import dtype_of, lanes_of
from ingot.compiler.ir import Block, MemoryType, Op, Value, VectorType, walk
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["TARGET", "print_kernel"]

TARGET = TargetInfo("opencl", "1.2", vector_length=16, register_count=16, fma=True)

_TYPES = {
    "i1": "uchar",
    "i8": "char",
    "u8": "uchar",
    "i16": "short",
    "u16": "ushort",
    "i32": "int",
    "u32": "uint",
    "i64": "long",
    "u64": "ulong",
    "f32": "float",
    "f64": "double",
}
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_INDEX_OPERATORS = {**_OPERATORS, "div": "/", "rem": "%"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FUNCTIONS = {
    **{name: name for name in ("exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt")},
    **{name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{name: name for name in ("tanh", "asinh", "acosh", "atanh", "erf", "floor", "ceil")},
    **{name: name for name in ("trunc", "pow", "atan2")},
    "abs": "fabs",
    "round_even": "rint",
    "round_away": "round",
}
_SWIZZLE = "0123456789abcdef"


def print_kernel(kernel: Kernel) -> str:
    """The kernel as OpenCL C. Arguments: per binding a pointer and an element offset, the
    constants, the workload, scratch and its length per workgroup in bytes, the fault record
    (four longs: code, operand, index, bound; code 0 before). CompileError: an op or dtype
    that this printer does not know."""
    return _Printer(kernel).print()


@dataclass
class _Printer:
    kernel: Kernel
    lines: list[str] = field(default_factory=list)
    names: dict[Value, str] = field(default_factory=dict)
    bits: dict[Value, int] = field(default_factory=dict)  # lane width of vectors of i1
    depth: int = 1

    def print(self) -> str:
        self._block(self.kernel.loops.block)
        arguments = [
            argument
            for ordinal, type in self._bindings().items()
            for argument in (f"__global {type} *b{ordinal}", f"long o{ordinal}")
        ]
        arguments += [f"long c{ordinal}" for ordinal in range(len(self.kernel.constants))]
        arguments += [f"long w{axis}" for axis in range(3)]
        arguments += ["__global uchar *scratch", "long scratch_length", "__global long *fault"]
        body = "\n".join(self.lines)
        return f"__kernel void {self.kernel.name}({', '.join(arguments)}) {{\n{body}\n}}\n"

    def _bindings(self) -> dict[int, str]:
        types = {ordinal: _type(dtype) for ordinal, dtype in enumerate(self.kernel.bindings)}
        for op in walk(self.kernel.loops):
            if op.name == "loop.binding":
                types[int(str(op.attributes["ordinal"]))] = _type(dtype_of(op.result))
        return types

    # Structure.

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if op.name in ("yield", "return"):
                continue
            statement = _STATEMENTS.get(op.name)
            if statement is not None:
                statement(self, op)
            else:
                text = self._expression(op)
                self._line(f"{self._declare(op.result)} = {text};")

    def _declare(self, value: Value) -> str:
        name = self.names.setdefault(value, f"v{len(self.names)}")
        return f"{self._register(value)} {name}"

    def _register(self, value: Value) -> str:
        element = dtype_of(value)
        if isinstance(value.type, MemoryType):
            return f"__global {_type(element)} *"
        if isinstance(value.type, VectorType):
            if element.is_boolean:
                scalar = "long" if self.bits.setdefault(value, 32) == 64 else "int"
                return f"{scalar}{value.type.lanes}"
            return f"{_type(element)}{value.type.lanes}"
        return "int" if element.is_boolean else _type(element)

    def _mask(self, value: Value, bits: int) -> str:
        if self.bits[value] == bits:
            return self.names[value]
        scalar = "long" if bits == 64 else "int"
        return f"convert_{scalar}{lanes_of(value)}({self.names[value]})"

    def _like(self, value: Value, target: Value) -> str:
        return self._mask(value, self.bits[target]) if target in self.bits else self.names[value]

    def _for(self, op: Op) -> None:
        lower, upper, step = (self.names[value] for value in op.operands[:3])
        body = op.regions[0].block
        index, carried = body.arguments[0], body.arguments[1:]
        for argument, initial, result in zip(carried, op.operands[3:], op.results, strict=True):
            self._line(f"{self._declare(argument)} = {self._like(initial, argument)};")
            self.names[result] = self.names[argument]
            if argument in self.bits:
                self.bits[result] = self.bits[argument]
        declared = self._declare(index)
        name = self.names[index]
        self._line(f"for ({declared} = {lower}; {name} < {upper}; {name} += {step}) {{")
        self.depth += 1
        self._block(body)
        following = body.terminator.operands
        fresh = [f"n{len(self.lines)}_{place}" for place in range(len(carried))]
        for name, target, value in zip(fresh, carried, following, strict=True):
            self._line(f"{self._register(target)} {name} = {self._like(value, target)};")
        for name, target in zip(fresh, carried, strict=True):
            self._line(f"{self.names[target]} = {name};")
        self.depth -= 1
        self._line("}")

    def _if(self, op: Op) -> None:
        for result in op.results:
            self._line(f"{self._declare(result)};")
        self._line(f"if ({self.names[op.operands[0]]}) {{")
        for place, region in enumerate(op.regions):
            if place == 1:
                self._line("} else {")
            self.depth += 1
            self._block(region.block)
            for result, value in zip(op.results, region.block.terminator.operands, strict=True):
                self._line(f"{self.names[result]} = {self._like(value, result)};")
            self.depth -= 1
        self._line("}")

    def _store(self, op: Op) -> None:
        memory, index, value = (self.names[operand] for operand in op.operands[:3])
        lanes = lanes_of(op.operands[2])
        element = dtype_of(op.operands[0])
        if lanes == 1:
            self._line(f"{memory}[{index}] = {value};")
            return
        if element.is_boolean:
            value = f"convert_uchar{lanes}({value} & 1)"
        if len(op.operands) == 3:
            self._line(f"vstore{lanes}({value}, 0, {memory} + {index});")
            return
        count = self.names[op.operands[3]]
        for lane in range(lanes):
            part = f"({value}).s{_SWIZZLE[lane]}"
            self._line(f"if ({lane} < {count}) {memory}[{index} + {lane}] = {part};")

    def _fault(self, op: Op) -> None:
        condition, index, bound = op.operands
        test, which = self.names[condition], self.names[index]
        if lanes_of(condition) > 1:
            test = f"any({self.names[condition]})"
            mask = self._mask(condition, 64)
            lanes = lanes_of(condition)
            chosen = f"{which}.s0"
            for lane in reversed(range(lanes)):
                swizzle = _SWIZZLE[lane]
                chosen = f"({mask}.s{swizzle} ? {which}.s{swizzle} : {chosen})"
            which = chosen
        self._line(f"if ({test}) {{")
        self._line("  if (atomic_cmpxchg((volatile __global int *)fault, 0, 1) == 0) {")
        self._line(f"    fault[1] = {op.attributes['operand']};")
        self._line(f"    fault[2] = {which};")
        self._line(f"    fault[3] = {self.names[bound]};")
        self._line("  }")
        self._line("  return;")
        self._line("}")

    def _nothing(self, op: Op) -> None:
        """A prefetch has no meaning here."""

    # Expressions.

    def _expression(self, op: Op) -> str:
        printer = _EXPRESSIONS.get(op.name)
        if printer is not None:
            return printer(self, op)
        names = [self.names[value] for value in op.operands]
        plain = op.name.removeprefix("loop.")
        if op.name.startswith("loop."):
            if plain in _INDEX_OPERATORS:
                return f"{names[0]} {_INDEX_OPERATORS[plain]} {names[1]}"
            if plain == "same":
                return f"({names[0]} == {names[1]})"
            if plain in ("min", "max"):
                return f"{plain}({names[0]}, {names[1]})"
            raise CompileError(f"OpenCL kernels have no {op.name} yet")
        return self._elementwise(op, names)

    def _elementwise(self, op: Op, names: list[str]) -> str:
        element = dtype_of(op.operands[0])
        if element.is_boolean:
            return self._boolean(op, names)
        if op.name in _OPERATORS:
            return f"{names[0]} {_OPERATORS[op.name]} {names[1]}"
        if op.name == "neg":
            return f"-{names[0]}"
        if op.name in ("max", "min") and element.is_integer:
            return f"{op.name}({names[0]}, {names[1]})"
        if element.is_float:
            return self._float(op, names)
        raise CompileError(f"OpenCL kernels have no '{op.name}' of {element.name} yet")

    def _float(self, op: Op, names: list[str]) -> str:
        a, b = names[0], names[-1]
        if op.name == "div":
            return f"{a} / {b}"
        if op.name in ("max", "min"):  # NaN wins
            operator = ">" if op.name == "max" else "<"
            test = f"({a} {operator} {b}) | ({a} != {a})"
            if lanes_of(op.result) == 1:
                return f"({test}) ? {a} : {b}"
            return f"select({b}, {a}, {test})"
        if op.name == "logistic":
            one = f"({self._register(op.result)})(1)"
            return f"{one} / ({one} + exp(-{a}))"
        if op.name in ("is_nan", "is_inf", "is_finite"):
            self.bits[op.result] = dtype_of(op.operands[0]).bits
            return f"{op.name.replace('_', '')}({a})"
        if op.name not in _FUNCTIONS:
            raise CompileError(f"OpenCL kernels have no '{op.name}' yet")
        return f"{_FUNCTIONS[op.name]}({', '.join(names)})"

    def _boolean(self, op: Op, names: list[str]) -> str:
        operator = {"and": "&", "mul": "&", "min": "&", "or": "|", "add": "|", "max": "|"}
        vector = lanes_of(op.result) > 1
        if vector:
            width = max(self.bits[value] for value in op.operands)
            self.bits[op.result] = width
            names = [self._mask(value, width) for value in op.operands]
        if op.name == "not":
            return f"~{names[0]}" if vector else f"!{names[0]}"
        symbol = operator.get(op.name, "^")
        return f"{names[0]} {symbol} {names[1]}"

    def _compare(self, op: Op) -> str:
        a, b = op.operands
        operator = _COMPARISONS[str(op.attributes["direction"])]
        if lanes_of(a) > 1:
            bits = dtype_of(a).bits
            if bits not in (32, 64):
                raise CompileError(f"OpenCL kernels do not compare {dtype_of(a).name} yet")
            self.bits[op.result] = bits
        return f"{self.names[a]} {operator} {self.names[b]}"

    def _select(self, op: Op) -> str:
        predicate, a, _ = op.operands
        names = [self.names[value] for value in op.operands]
        if lanes_of(predicate) == 1:
            return f"{names[0]} ? {names[1]} : {names[2]}"
        element = dtype_of(a)
        if element.is_boolean or element.bits not in (32, 64):
            raise CompileError(f"OpenCL kernels do not select {element.name} yet")
        return f"select({names[2]}, {names[1]}, {self._mask(predicate, element.bits)})"

    def _convert(self, op: Op) -> str:
        source = op.operands[0]
        old, new, lanes = dtype_of(source), dtype_of(op.result), lanes_of(source)
        name = self.names[source]
        if new.is_boolean:
            self.bits[op.result] = old.bits
            return f"{name} != 0"
        suffix = str(lanes) if lanes > 1 else ""
        if old.is_boolean and lanes > 1:
            name = f"({name} & 1)"
        saturate = "_sat" if old.is_float and new.is_integer else ""
        rounding = "_rtz" if saturate else ""
        return f"convert_{_type(new)}{suffix}{saturate}{rounding}({name})"

    def _load(self, op: Op) -> str:
        memory, index = (self.names[value] for value in op.operands[:2])
        lanes = lanes_of(op.result)
        if lanes == 1:
            return f"{memory}[{index}]"
        if len(op.operands) == 2:
            text = f"vload{lanes}(0, {memory} + {index})"
        else:
            count = self.names[op.operands[2]]
            parts = [f"{i} < {count} ? {memory}[{index} + {i}] : 0" for i in range(lanes)]
            text = f"({_type(dtype_of(op.result))}{lanes})({', '.join(parts)})"
        if dtype_of(op.result).is_boolean:
            self.bits[op.result] = 32
            return f"convert_int{lanes}({text}) != 0"
        return text

    def _gather(self, op: Op) -> str:
        memory, indices = (self.names[value] for value in op.operands)
        lanes = lanes_of(op.result)
        parts = ", ".join(f"{memory}[{indices}.s{_SWIZZLE[i]}]" for i in range(lanes))
        return f"({_type(dtype_of(op.result))}{lanes})({parts})"

    def _constant(self, op: Op) -> str:
        value = op.attributes["value"]
        assert isinstance(value, (bool, int, float))
        element = dtype_of(op.result)
        if element.is_boolean and lanes_of(op.result) > 1:
            self.bits[op.result] = 32
            return f"(int{lanes_of(op.result)})({-int(value)})"
        return f"({self._register(op.result)})({_literal(value, element)})"

    def _broadcast(self, op: Op) -> str:
        name = self.names[op.operands[0]]
        if dtype_of(op.result).is_boolean:
            self.bits[op.result] = 32
            return f"(int{lanes_of(op.result)})(-{name})"
        return f"({self._register(op.result)})({name})"

    def _lanes(self, op: Op) -> str:
        lanes = lanes_of(op.result)
        return f"(long{lanes})({', '.join(map(str, range(lanes)))})"

    def _extract(self, op: Op) -> str:
        return f"{self.names[op.operands[0]]}.s{_SWIZZLE[int(str(op.attributes['lane']))]}"

    def _shuffle(self, op: Op) -> str:
        names = [self.names[value] for value in op.operands]
        count = lanes_of(op.operands[0])
        chosen = [int(str(lane)) for lane in op.attributes["lanes"]]  # type: ignore[union-attr]
        parts = [f"{names[lane // count]}.s{_SWIZZLE[lane % count]}" for lane in chosen]
        return f"({self._register(op.result)})({', '.join(parts)})"

    def _reduce(self, op: Op) -> str:
        vector = op.operands[0]
        kind = str(op.attributes["kind"])
        parts = [f"{self.names[vector]}.s{_SWIZZLE[i]}" for i in range(lanes_of(vector))]
        while len(parts) > 1:
            half = len(parts) // 2
            pairs = zip(parts[:half], parts[half:], strict=True)
            parts = [self._combine(kind, a, b, dtype_of(vector)) for a, b in pairs]
        return parts[0]

    def _combine(self, kind: str, a: str, b: str, element: DType) -> str:
        if kind in _OPERATORS:
            return f"({a} {_OPERATORS[kind]} {b})"
        if element.is_float:
            operator = ">" if kind == "max" else "<"
            return f"(({a} {operator} {b}) || ({a} != {a}) ? {a} : {b})"
        return f"{kind}({a}, {b})"

    def _fma(self, op: Op) -> str:
        return f"fma({', '.join(self.names[value] for value in op.operands)})"

    def _scratch(self, op: Op) -> str:
        group = "(get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0)"
        start = f"({group} + get_global_id(0)) * scratch_length + {op.attributes['offset']}"
        return f"(__global {_type(dtype_of(op.result))} *)(scratch + {start})"


def _type(element: DType) -> str:
    if element.name not in _TYPES:
        known = ", ".join(sorted(_TYPES))
        raise CompileError(f"OpenCL kernels cannot compute with {element.name}; they have {known}")
    return _TYPES[element.name]


def _literal(value: bool | int | float, element: DType) -> str:
    if element.is_float:
        suffix = "f" if element.name == "f32" else ""
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "-INFINITY" if value < 0 else "INFINITY"
        return f"{float(value).hex()}{suffix}"
    if element.bits == 64 and value == -(2**63):
        return "LONG_MIN"
    return f"{int(value)}{'u' if element.kind == 'u' else ''}{'l' if element.bits == 64 else ''}"


def _text(pattern: str) -> Callable[[_Printer, Op], str]:
    return lambda printer, op: pattern.format(**op.attributes)


_STATEMENTS: dict[str, Callable[[_Printer, Op], None]] = {
    "loop.for": _Printer._for,
    "loop.if": _Printer._if,
    "loop.store": _Printer._store,
    "loop.fault": _Printer._fault,
    "loop.prefetch": _Printer._nothing,
}
_EXPRESSIONS: dict[str, Callable[[_Printer, Op], str]] = {
    "loop.constant": _Printer._constant,
    "loop.dim": _text("c{ordinal}"),
    "loop.binding": _text("b{ordinal} + o{ordinal}"),
    "loop.scratch": _Printer._scratch,
    "loop.workgroup": _text("get_global_id({axis})"),
    "loop.workload": _text("w{axis}"),
    "loop.lanes": _Printer._lanes,
    "loop.load": _Printer._load,
    "loop.gather": _Printer._gather,
    "loop.broadcast": _Printer._broadcast,
    "loop.extract": _Printer._extract,
    "loop.reduce": _Printer._reduce,
    "loop.shuffle": _Printer._shuffle,
    "loop.any": lambda printer, op: f"any({printer.names[op.operands[0]]})",
    "loop.fma": _Printer._fma,
    "compare": _Printer._compare,
    "select": _Printer._select,
    "convert": _Printer._convert,
}
