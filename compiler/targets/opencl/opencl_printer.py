"""A kernel as OpenCL C 1.2: its function, memory, faults and barriers.

A workgroup of the loop IR is a work-group. Each binding is two arguments, a base pointer
and an element offset. Nothing is decided here that changes a result. What is computed in
registers is printed by `opencl_values.py`; the functions that are called stand in the
prelude.
"""

from __future__ import annotations

from hashlib import sha256
from math import prod
from typing import ClassVar

from ingot.compiler.ir import MemoryType, Op, Value, walk
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.check_barriers import check_barriers
from ingot.compiler.kernels.kernel import Kernel, OwnSchedule, checked_name
from ingot.compiler.kernels.loop import dtype_of, lanes_of
from ingot.compiler.kernels.table import Access, Axis, Fault, Offset, Ordinal
from ingot.compiler.targets.opencl.opencl_types import MEMORY_TYPES
from ingot.compiler.targets.opencl.opencl_values import ValuePrinter, scalar_type

__all__ = ["PrintedKernel", "aligned", "print_kernel"]

_LEAVES = {
    "loop.dim": "c{ordinal}",
    "loop.workload": "w{axis}",
    "loop.local_id": "get_local_id({axis})",
}


@dataclass(frozen=True)
class PrintedKernel:
    """The text of a kernel, without the functions that it calls."""

    text: str
    functions: tuple[str, ...]  # names for the prelude
    has_f64: bool
    own: str = ""  # what a user has written, which the text calls


def print_kernel(kernel: Kernel) -> PrintedKernel:
    """The kernel as OpenCL C, with the arguments that opencl_object.h lists. CompileError: it
    has a dtype or a number of lanes that OpenCL kernels cannot compute with, or a barrier
    that some work items may miss."""
    check_barriers(kernel.loops)
    return _Printer(kernel).print()


def _guard_size(text: str, local_size: tuple[int, int, int], local_length: int) -> str:
    """A kernel that devices with smaller groups must not see."""
    if prod(local_size) == 1 and local_length == 0:
        return text
    needed = f"INGOT_GROUP_SIZE >= {prod(local_size)} && INGOT_LOCAL_LENGTH >= {local_length}"
    return f"#if {needed}\n{text}#endif\n"


def is_packed(memory: Value) -> bool:
    """Whether a byte of the memory has several elements."""
    return isinstance(memory.type, MemoryType) and memory.type.is_packed


def aligned(length: int) -> int:
    """Bytes of local memory or scratch, as they are really set aside."""
    return -(-length // 64) * 64


class _Printer(ValuePrinter):
    statements: ClassVar[dict[str, str]] = {
        **ValuePrinter.statements,
        "loop.store": "_store",
        "loop.fault": "_fault",
        "loop.barrier": "_barrier",
        "loop.prefetch": "_prefetch",
    }
    expressions: ClassVar[dict[str, str]] = {
        **ValuePrinter.expressions,
        "loop.dim": "_leaf",
        "loop.workgroup": "_workgroup",
        "loop.workload": "_leaf",
        "loop.local_id": "_leaf",
        "loop.binding": "_binding",
        "loop.scratch": "_scratch",
        "loop.local": "_local",
        "loop.load": "_load",
        "loop.gather": "_gather",
        "loop.same": "_same",
    }

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.has_f64 = any(each.name == "f64" for each in kernel.bindings)
        self.ops = list(walk(kernel.loops))
        self.has_barrier = any(op.name == "loop.barrier" for op in self.ops)

    def print(self) -> PrintedKernel:
        """The function's text."""
        kernel = self.kernel
        self._block(kernel.loops.block)
        if kernel.own is not None:
            self.lines.append(self._own_call(kernel.own))
        size = ", ".join(map(str, kernel.local_size))
        attribute = f"__attribute__((reqd_work_group_size({size})))"
        arguments = ", ".join(self._arguments())
        head = f"__kernel {attribute}\nvoid {checked_name(kernel.name)}({arguments}) {{"
        if kernel.local_length:
            length = aligned(kernel.local_length)
            head += f"\n  __local uchar local_memory[{length}] __attribute__((aligned(64)));"
        text = "\n".join([head, *self.lines, "}", ""])
        text = _guard_size(text, kernel.local_size, aligned(kernel.local_length))
        own = _own_text(kernel.own) if kernel.own else ""
        return PrintedKernel(text, tuple(self.functions), self.has_f64, own)

    def _own_call(self, own: OwnSchedule) -> str:
        arguments = [f"b{place} + o{place}" for place in own.places]
        arguments += [
            f"{dim}L" if isinstance(dim, int) else f"c{self.kernel.constants.index(dim)}"
            for dim in own.symbols
        ]
        arguments += [self._position(axis) for axis in range(own.axes)]
        return f"  {_own_name(own)}({', '.join(arguments)});"

    def _arguments(self) -> list[str]:
        kernel = self.kernel
        shared = {place for pair in kernel.in_place for place in self._bindings_of(pair)}
        arguments = []
        for ordinal, element in enumerate(kernel.bindings):
            scalar_type(element)
            pointer = f"{self._global(ordinal)}{MEMORY_TYPES[element.name]} *"
            restrict = "" if ordinal in shared else "restrict "
            arguments += [f"{pointer}{restrict}b{ordinal}", f"index_t o{ordinal}"]
        arguments += [f"long c{ordinal}" for ordinal in range(len(kernel.constants))]
        arguments += [f"long w{axis}" for axis in range(3)]
        if kernel.scratch_length:
            arguments.append("__global uchar *scratch")
        return [*arguments, "__global int *fault", "int ticket"]

    def _bindings_of(self, pair: tuple[int, int]) -> tuple[int, int]:
        """The bindings of an operand and a result."""
        operand_count = len(self.kernel.bindings) - self.kernel.result_count
        return pair[0], operand_count + pair[1]

    def _global(self, ordinal: int) -> str:
        operand_count = len(self.kernel.bindings) - self.kernel.result_count
        return "__global const " if ordinal < operand_count else "__global "

    def _store(self, op: Op) -> None:
        memory, index, value = op.operands[:3]
        self._line(self._stored(op, self._name(memory), self._name(index), value) + ";")

    def _stored(self, op: Op, memory: str, index: str, value: Value) -> str:
        lanes, name = lanes_of(value), self._name(value)
        element = dtype_of(op.operands[0]).name
        if element == "bf16":
            name = self._call("narrow_bf16", lanes, name)
        elif element == "i1" and lanes > 1:
            name = f"convert_uchar{lanes}({self._mask(value, 8)} & (char)1)"
        if len(op.operands) > 3:
            put = "PUT_HALF_AT" if element == "f16" else "PUT_AT"
            self.functions[put] = None
            count = self._name(op.operands[3])
            return self._call("STORE_PARTIAL", lanes, put, memory, index, name, count)
        if self._is_global_vector(op.operands[0], lanes):
            return self._call(f"store_{element}", lanes, f"{memory} + {index}", name)
        if element == "f16":
            where = f"{index}, {memory}" if lanes == 1 else f"0, {memory} + {index}"
            return f"vstore_half{'' if lanes == 1 else lanes}_rte({name}, {where})"
        if Access.of(op).aligned:
            return f"{self._vector_at(op.operands[0], index, lanes)} = {name}"
        if lanes > 1:
            return f"vstore{lanes}({name}, 0, {memory} + {index})"
        return f"{memory}[{index}] = {name}"

    def _vector_at(self, memory: Value, index: str, lanes: int) -> str:
        """A vector that lies on a multiple of its length: one access, where vload and vstore
        promise the alignment of an element only."""
        pointer = self.pointers[memory].removesuffix(" *")
        return f"*({pointer}{lanes} *)({self._name(memory)} + {index})"

    def _is_global_vector(self, memory: Value, lanes: int) -> bool:
        """Whether one access may do for the vector: of global memory, at most 16 bytes."""
        length = dtype_of(memory).bytes * lanes
        return lanes > 1 and length <= 16 and "__global" in self.pointers[memory]

    def _prefetch(self, op: Op) -> None:
        """Nothing: what is read late other work items hide."""

    def _barrier(self, op: Op) -> None:
        """Global memory is fenced only where work items may read what others wrote there."""
        stored = {store.operands[0] for store in self.ops if store.name == "loop.store"}
        read = {each.operands[0] for each in self.ops if each.name in ("loop.load", "loop.gather")}
        fences = ["CLK_LOCAL_MEM_FENCE"]
        if any("__global" in self.pointers.get(memory, "") for memory in stored & read):
            fences.append("CLK_GLOBAL_MEM_FENCE")
        self._line(f"barrier({' | '.join(fences)});")

    def _fault(self, op: Op) -> None:
        condition, index, bound = op.operands
        lanes = lanes_of(condition)
        if lanes == 1:
            test, which = self._name(condition), self._name(index)
        else:
            mask = self._mask(condition, 64)
            test = f"any({self._name(condition)})"
            which = self._call("first_i64", lanes, mask, self._name(index))
        operand = Fault.of(op).operand
        noted = self._call(
            "note_fault", 1, "fault", "ticket", str(operand), which, self._name(bound)
        )
        self._line(f"if ({test}) {{")
        self._line(f"  {noted};")
        if not self.has_barrier:  # all work items must come to a barrier
            self._line("  return;")
        self._line("}")

    def _load(self, op: Op) -> str:
        memory, index = map(self._name, op.operands[:2])
        lanes = lanes_of(op.result)
        element = dtype_of(op.result).name
        packed = is_packed(op.operands[0])
        if packed and lanes == 1:
            text = f"{self._at(op.operands[0])}({memory}, {index})"
        elif len(op.operands) > 2 or packed:
            at = self._at(op.operands[0])
            type = self._vector("float" if element == "f16" else MEMORY_TYPES[element], lanes)
            count = self._name(op.operands[2]) if len(op.operands) > 2 else str(lanes)
            text = self._call("LOAD_PARTIAL", lanes, type, at, memory, index, count)
        elif self._is_global_vector(op.operands[0], lanes):
            text = self._call(f"load_{element}", lanes, f"{memory} + {index}")
        elif element == "f16":
            where = f"{index}, {memory}" if lanes == 1 else f"0, {memory} + {index}"
            text = f"vload_half{'' if lanes == 1 else lanes}({where})"
        elif Access.of(op).aligned:
            text = self._vector_at(op.operands[0], index, lanes)
        elif lanes > 1:
            text = f"vload{lanes}(0, {memory} + {index})"
        else:
            text = f"{memory}[{index}]"
        return self._loaded(op, text, lanes)

    def _loaded(self, op: Op, text: str, lanes: int) -> str:
        """What stands in memory, as it is in a register."""
        element = dtype_of(op.result)
        if element.name == "bf16":
            return self._call("widen_bf16", lanes, text)
        if element.is_boolean:
            if lanes > 1:
                self.mask_bits[op.result] = 8
            return f"{text} != {f'(uchar{lanes})(0)' if lanes > 1 else 0}"
        return text

    def _at(self, memory: Value) -> str:
        """The function that reads a single element."""
        stored = memory.typed(MemoryType).dtype.name
        name = "HALF_AT" if stored == "f16" else "ELEMENT_AT"
        if is_packed(memory):
            name = f"PACKED_{stored}_AT"
        self.functions[name] = None
        return name

    def _gather(self, op: Op) -> str:
        lanes = lanes_of(op.result)
        element = dtype_of(op.result).name
        type = self._vector("float" if element == "f16" else MEMORY_TYPES[element], lanes)
        memory, indices = map(self._name, op.operands)
        at = self._at(op.operands[0])
        text = self._call("GATHER", lanes, type, at, memory, indices)
        return self._loaded(op, text, lanes)

    def _binding(self, op: Op) -> str:
        ordinal = Ordinal.of(op).ordinal
        element = dtype_of(op.result)
        scalar_type(element)
        stored = "uchar" if is_packed(op.result) else MEMORY_TYPES[element.name]
        type = f"{self._global(ordinal)}{stored} *"
        self.pointers[op.result] = type
        text = f"b{ordinal} + o{ordinal}"
        same = MEMORY_TYPES[self.kernel.bindings[ordinal].name] == stored
        return text if same else f"({type})({text})"

    def _scratch(self, op: Op) -> str:
        self.pointers[op.result] = f"__global {MEMORY_TYPES[dtype_of(op.result).name]} *"
        group = "(get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0)"
        start = f"({group} + get_group_id(0)) * {aligned(self.kernel.scratch_length)}"
        return f"({self.pointers[op.result]})(scratch + {start} + {Offset.of(op).offset})"

    def _local(self, op: Op) -> str:
        self.pointers[op.result] = f"__local {MEMORY_TYPES[dtype_of(op.result).name]} *"
        return f"({self.pointers[op.result]})(local_memory + {Offset.of(op).offset})"

    def _workgroup(self, op: Op) -> str:
        """The position in the grid: one that is long along y or z runs as several launches."""
        return self._position(Axis.of(op).axis)

    def _position(self, axis: int) -> str:
        if axis == 0:
            return "get_group_id(0)"
        return f"get_group_id({axis}) + get_global_offset({axis}) / {self.kernel.local_size[axis]}"

    def _leaf(self, op: Op) -> str:
        return _LEAVES[op.name].format(**vars(op.attributes))

    def _same(self, op: Op) -> str:
        a, b = (f"(__global const void *){self._name(memory)}" for memory in op.operands)
        return f"{a} == {b}"


def _own_name(own: OwnSchedule) -> str:
    """The name of a user's function, which no other text has."""
    return f"{checked_name(own.entry)}_{sha256(own.source.encode()).hexdigest()[:24]}"


def _own_text(own: OwnSchedule) -> str:
    return f"#define {own.entry} {_own_name(own)}\n{own.source}\n#undef {own.entry}\n"
