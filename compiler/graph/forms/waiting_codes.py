"""Which codes lie in memory until a later product takes their numbers into its sums.

A residual of two products: the one that is computed first waits for the other. Its numbers would
lie in memory as floats; its codes take a fourth of that, and the later kernel makes the numbers.
"""

from __future__ import annotations

from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.ops import OPS
from ingot.compiler.ir import Block, Op, TensorType, Value, count_uses, defined_by

__all__ = ["waiting_codes", "widens_bytes"]


def waiting_codes(block: Block) -> set[Op]:
    """The ops that make floats of bytes which are scaled at most, by what is broadcast, and then
    added to what a contraction behind them makes. Nobody else reads the floats."""
    uses = count_uses(block)
    found: set[Op] = set()
    last: dict[Value, int] = {}  # the place of the last contraction in a value
    scaled: dict[Value, tuple[Op, int]] = {}  # of bytes: what made floats of them, and its place
    for place, op in enumerate(block.ops):
        if len(op.results) != 1:
            continue
        family = OPS[op.name].family if op.name in OPS else ""
        if family == "contraction":
            last[op.result] = place
        elif family == "elementwise":
            last[op.result] = max(last.get(each, -1) for each in op.operands)
        alone = [each for each in op.operands if each in scaled and uses[each] == 1]
        if widens_bytes(op):
            scaled[op.result] = op, place
        elif op.name in ("sub", "mul") and alone and defined_by(op.operands[1], "broadcast"):
            scaled[op.result] = scaled[op.operands[0]]
        elif op.name == "add":
            for each, other in zip(op.operands, reversed(op.operands), strict=True):
                if each in alone and last.get(other, -1) > scaled[each][1]:
                    found.add(scaled[each][0])
    return found


def widens_bytes(op: Op) -> bool:
    """Whether the op makes floats of bytes."""
    if op.name != "convert" or not isinstance(op.result.type, TensorType):  # a register of the VM
        return False
    old, new = tensor_type(op.operands[0]).dtype, tensor_type(op.result).dtype
    return old.is_integer and old.bits == 8 and new.is_float
