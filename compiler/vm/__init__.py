"""The vm level: bytecode in IR form, register allocation, and the module file.

An op of this level is one instruction: its name is an opcode of `spec/op.def`, its
operands and results are registers, `immediates` holds the numbers, strings and branch
targets (block ordinals) in the order of the operand letters, and `counts` the length of
every list among them. One op more, `assign.i64(target, source)` and `assign.f64`, writes a
move into the register of a value that is there already: the next value of a loop, or the
result of a branch.
"""

from __future__ import annotations

__all__: list[str] = []
