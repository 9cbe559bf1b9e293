"""The table of math functions: what an op such as `exp` is, in terms of plainer ops.

A function takes and gives elements of f32 or f64, scalars or vectors of any number of lanes.
Its body is loop IR without memory; ops in it may have functions of their own. Printers print
one where a kernel needs it and call it by the op; the interpreter runs it. f16 and bf16 go
through the one of f32, and are rounded once.
"""

from __future__ import annotations

from functools import cache

from ingot.compiler.graph.ops import OPS
from ingot.compiler.ir import Block, Function
from ingot.compiler.kernels.loop import LoopBuilder, element_type
from ingot.compiler.kernels.math import exponential, powers, trigonometric
from ingot.compiler.kernels.math.number import Functions, Number
from ingot.compiler.kernels.table import LOOP_OPS
from ingot.hal.spec import DType, dtype

__all__ = ["MATH_FUNCTIONS", "math_function"]

_FUNCTIONS: Functions = {
    **exponential.FUNCTIONS,
    **powers.FUNCTIONS,
    **trigonometric.FUNCTIONS,
}

MATH_FUNCTIONS = frozenset(_FUNCTIONS)
"""The ops that have a function."""


def math_function(name: str, element: DType, lanes: int) -> Function | None:
    """The function that serves an op of these elements, named like `exp_f32x8`; None: it has none,
    a target computes it by itself. Equal arguments give the same one: nobody changes it."""
    if name not in _FUNCTIONS or not element.is_float:
        return None
    return _build(name, dtype("f32") if element.bits < 32 else element, lanes)


@cache
def _build(name: str, element: DType, lanes: int) -> Function:
    row = LOOP_OPS[name] if name in LOOP_OPS else OPS[name]
    type = element_type(element, lanes)
    block = Block([type] * len(row.operands))
    b = LoopBuilder(block)
    result = _FUNCTIONS[name](*(Number(b, argument) for argument in block.arguments))
    suffix = f"x{lanes}" if lanes > 1 else ""
    return b.finish(f"{name.removeprefix('loop.')}_{element.name}{suffix}", result.value)
