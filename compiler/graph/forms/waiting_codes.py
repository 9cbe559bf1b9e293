"""Which codes and halves lie in memory until a later product takes their numbers into its sums.

A residual of two products: the one that is computed first waits for the other. Its numbers would
lie in memory as f32; its codes take a fourth of that, what is rounded to bf16 or f16 a half, and
the later kernel makes the numbers.
"""

from __future__ import annotations

from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.ops import OPS
from ingot.compiler.ir import Block, Op, TensorType, Value, count_uses, defined_by
from ingot.hal.spec import DType

__all__ = ["contractions_in", "waiting_codes", "widens_bytes"]


def contractions_in(block: Block) -> dict[Value, int]:
    """Per value that element-wise ops make of contractions the place of the last of these."""
    last: dict[Value, int] = {}
    for place, op in enumerate(block.ops):
        if len(op.results) != 1 or op.name not in OPS:
            continue
        if OPS[op.name].family == "contraction":
            last[op.result] = place
        elif OPS[op.name].family == "elementwise":
            places = [last[each] for each in op.operands if each in last]
            if places:
                last[op.result] = max(places)
    return last


def waiting_codes(block: Block) -> set[Op]:
    """The ops that make floats of bytes or halves which are scaled at most, by what is broadcast,
    and then added to what a contraction behind them makes. Nobody else reads the floats."""
    uses, last = count_uses(block), contractions_in(block)
    places = {result: place for place, op in enumerate(block.ops) for result in op.results}
    found: set[Op] = set()
    scaled: dict[Value, tuple[Op, int]] = {}  # what made floats, and where what they are of is made
    for op in block.ops:
        if len(op.results) != 1:
            continue
        alone = [each for each in op.operands if each in scaled and uses[each] == 1]
        if _widens(op):
            scaled[op.result] = op, places.get(op.operands[0], -1)
        elif op.name in ("sub", "mul") and alone and defined_by(op.operands[1], "broadcast"):
            scaled[op.result] = scaled[op.operands[0]]
        elif op.name == "add":
            for each, other in zip(op.operands, reversed(op.operands), strict=True):
                if each in alone and last.get(other, -1) > scaled[each][1]:
                    found.add(scaled[each][0])
    return found


def widens_bytes(op: Op) -> bool:
    """Whether the op makes floats of bytes."""
    old = _widened(op)
    return old is not None and old.is_integer and old.bits == 8


def _widens(op: Op) -> bool:
    old = _widened(op)
    return widens_bytes(op) or (old is not None and old.name in ("bf16", "f16"))


def _widened(op: Op) -> DType | None:
    """Of what the op makes floats."""
    if op.name != "convert" or not isinstance(op.result.type, TensorType):  # a register of the VM
        return None
    return tensor_type(op.operands[0]).dtype if tensor_type(op.result).dtype.is_float else None
