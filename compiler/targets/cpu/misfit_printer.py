"""A kernel's contract as C: the function that tells whether the numbers of a dispatch fit."""

from __future__ import annotations

from functools import reduce

from ingot.compiler.ir.dims import Dim, Symbol, symbol
from ingot.compiler.ir.polynomials import Atom
from ingot.compiler.kernels.kernel import Kernel
from ingot.hal.errors import CompileError

__all__ = ["print_misfit"]

_COMPARISONS = {"le": "{0} > {1}", "equal": "{0} != {1}", "broadcast": "({0} != 1) & ({0} != {1})"}


def print_misfit(kernel: Kernel, name: str) -> str:
    """The C function `name` of the kernel's contract."""
    printer = _Printer(kernel)
    for kind, a, b in kernel.contract:
        left, right = printer.value(a), printer.value(b)
        printer.lines.append(f"bad |= {_COMPARISONS[kind].format(left, right)};")
    for width in (2, 4, 8):
        addresses = [
            f"(uintptr_t)dispatch->bindings[{ordinal}]"
            for ordinal, dtype in enumerate(kernel.bindings)
            if min(dtype.bytes, 8) == width
        ]
        if addresses:
            printer.lines.append(f"bad |= (({' | '.join(addresses)}) & {width - 1}) != 0;")
    body = "\n".join(f"  {line}" for line in printer.lines)
    return (
        f"static uint32_t INGOT_KERNEL_CALL {name}(const ingot_kernel_dispatch_t *dispatch) {{\n"
        f"  uint32_t bad = 0;\n  (void)dispatch;\n{body}\n  return bad;\n}}"
    )


class _Printer:
    """Statements that compute dims, each once."""

    def __init__(self, kernel: Kernel) -> None:
        self.ordinals = {dim: ordinal for ordinal, dim in enumerate(kernel.constants)}
        self.lines: list[str] = []
        self.names: dict[str, str] = {}

    def value(self, dim: Dim) -> str:
        """The C expression of a dim, computed by the lines so far."""
        if isinstance(dim, int):
            if not -(1 << 63) <= dim < 1 << 63:
                raise CompileError(
                    f"a size of the program is checked with the number {dim}, which has more "
                    "than 63 bits: give its pads, strides, dilations and dims smaller values"
                )
            return f"{dim}ll" if dim > -(1 << 63) else "INT64_MIN"
        total = ""
        for monomial, coefficient in dim.terms:
            factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
            if coefficient != 1 or not factors:
                factors.append(self.value(coefficient))
            term = factors[0]
            for factor in factors[1:]:
                term = self._call("mul", term, factor)
            total = self._call("add", total, term) if total else term
        return total

    def _atom(self, atom: Atom) -> str:
        if not isinstance(atom, Symbol):
            values = map(self.value, atom.operands)
            return reduce(lambda a, b: self._call(atom.function, a, b), values)
        kind, _, ordinal = atom.name.partition(".")
        if kind == "workload":
            return f"dispatch->workload[{ordinal}]"
        if kind == "length":
            return f"dispatch->lengths[{ordinal}]"
        return f"dispatch->constants[{ordinal or self.ordinals[symbol(atom.name)]}]"

    def _call(self, function: str, a: str, b: str) -> str:
        text = f"size_{function}({a}, {b}, &bad)"
        if text not in self.names:
            self.names[text] = f"n{len(self.names)}"
            self.lines.append(f"const int64_t {self.names[text]} = {text};")
        return self.names[text]
