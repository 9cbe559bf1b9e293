"""A kernel's contract as C: the function that tells whether the numbers of a dispatch fit."""

from __future__ import annotations

from ingot.compiler.ir import Op, walk
from ingot.compiler.kernels.contract_steps import Number, contract_steps
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import dtype_of, lanes_of
from ingot.compiler.kernels.loop_attributes import Ordinal

__all__ = ["print_misfit"]

_MISFITS = {"le": "{0} > {1}", "equal": "{0} != {1}", "fits": "({0} != 1) & ({0} != {1})"}
_PLACES = {
    "length": "dispatch->lengths[{}]",
    "constant": "dispatch->constants[{}]",
    "workload": "dispatch->workload[{}]",
    "step": "n{}",
}


def print_misfit(kernel: Kernel, name: str) -> str:
    """The C function `name` of the kernel's contract."""
    lines = []
    for ordinal, step in enumerate(contract_steps(kernel)):
        a, b = _operand(step.a), _operand(step.b)
        if step.is_test:
            lines.append(f"bad |= {_MISFITS[step.function].format(a, b)};")
        else:
            lines.append(f"const int64_t n{ordinal} = size_{step.function}({a}, {b}, &bad);")
    lengths = _alignments(kernel)
    for width in (2, 4, 8):
        addresses = [
            f"(uintptr_t)dispatch->bindings[{ordinal}]"
            for ordinal, length in enumerate(lengths)
            if min(length, 8) == width
        ]
        if addresses:
            lines.append(f"bad |= (({' | '.join(addresses)}) & {width - 1}) != 0;")
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"uint32_t INGOT_KERNEL_CALL {name}(const ingot_kernel_dispatch_t *dispatch) {{\n"
        f"  uint32_t bad = 0;\n  (void)dispatch;\n{body}\n  return bad;\n}}"
    )


def _alignments(kernel: Kernel) -> list[int]:
    """What each binding must begin at a multiple of, in bytes. Bytes that are read as words may lie
    anywhere, but for vectors of them: `kernel.h` aligns i32 as a byte."""
    lengths = [dtype.bytes for dtype in kernel.bindings]
    for op in walk(kernel.loops):
        memory = op.operands[0].owner if op.operands else None
        if not isinstance(memory, Op) or memory.name != "loop.binding":
            continue
        element = dtype_of(memory.result)
        if element.name != "i32" or any(
            lanes_of(each) > 1 for each in (*op.operands[1:], *op.results)
        ):
            ordinal = Ordinal.of(memory).ordinal
            lengths[ordinal] = max(lengths[ordinal], element.bytes)
    return lengths


def _operand(number: Number) -> str:
    if number.kind != "literal":
        return _PLACES[number.kind].format(number.value)
    return f"{number.value}ll" if number.value > -(1 << 63) else "INT64_MIN"
