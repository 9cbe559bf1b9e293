"""The scalar code of a region, lowered for all elements of tensors at once.

The regions of map, reduce, reduce_window, scatter and select_and_scatter compute one element
from others. Lifted, each of their ops works on whole tensors: a reduction over n rows is a
loop of n steps, each of which combines a row with what came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingot.compiler.frontends.stablehlo.bodies import body_of
from ingot.compiler.frontends.stablehlo.called import followed_function, is_known_call
from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered
from ingot.compiler.frontends.stablehlo.lowerings.elementwise import SCALAR_OPS
from ingot.compiler.frontends.stablehlo.reading.program import (
    SourceBlock,
    SourceOp,
    SourceProgram,
    SourceType,
    SourceValue,
    TensorType,
)
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DTYPES, DType, dtype

__all__ = ["cast", "check_body", "element_of", "elements_of", "lift", "paired", "scalar_problem"]

_PLAIN = frozenset({*SCALAR_OPS, "constant", "optimization_barrier", "return"})
_SHAPES = frozenset({"broadcast_in_dim", "reshape"})  # of one element


def scalar_problem(block: SourceBlock | None, program: SourceProgram, depth: int = 0) -> str | None:
    """Why the code of a region cannot be lowered element by element; None if it can."""
    if block is None or not block.ops:
        return "a region that is not one block"
    for op in block.ops:
        called = program.functions.get(followed_function(op) or "")
        if called is not None and depth < 100:
            problem = scalar_problem(called.body, program, depth + 1)
            if problem:
                return problem
        elif not (op.full_name in _PLAIN or is_known_call(op) or _is_shape_of_one(op)):
            return f"a region with '{op.full_name}': only element-wise ops can stand in it"
    types = [value.type for op in block.ops for value in op.results]
    if any(not isinstance(each, TensorType) or each.element not in DTYPES for each in types):
        return "a region with values that are no numbers"
    return None


def check_body(op: SourceOp, program: SourceProgram) -> str | None:
    """The same of the region of an op, as the check of its lowering."""
    return scalar_problem(body_of(op), program)


def _is_shape_of_one(op: SourceOp) -> bool:
    type = op.results[0].type if op.results else None
    return op.full_name in _SHAPES and isinstance(type, TensorType) and not type.shape


def lift(
    context: Context,
    builder: Builder,
    block: SourceBlock,
    arguments: Sequence[Value],
    shape: Sequence[Dim],
) -> list[Value]:
    """What the region gives for arguments of `shape`, each of that shape too. A complex number
    is two of them, its real and its imaginary part."""
    given = dict(zip(block.arguments, paired(block.arguments, arguments), strict=True))
    inner = replace(
        context,
        builder=builder,
        values={**context.values, **given},
        lifted=tuple(shape),
    )
    results = inner.flat(context.lower_ops(inner, block))
    return [builder.broadcast_to(each, tuple(shape)) for each in results]


def paired(declared: Sequence[SourceValue], values: Sequence[Value]) -> list[Lowered]:
    """The flat `values` as what the source declares: two are one complex number."""
    rest = iter(values)
    return [
        Lowered(parts=(next(rest), next(rest)))
        if element_of(each.type).is_complex
        else Lowered(next(rest))
        for each in declared
    ]


def elements_of(declared: Sequence[SourceValue]) -> list[DType]:
    """The dtypes of values, two for a complex number."""
    found: list[DType] = []
    for each in declared:
        element = element_of(each.type)
        part = dtype(f"f{element.bits // 2}") if element.is_complex else element
        found += [part, part] if element.is_complex else [part]
    return found


def element_of(type: SourceType) -> DType:
    """The dtype of a tensor type."""
    assert isinstance(type, TensorType)
    return dtype(type.element)


def cast(builder: Builder, x: Value, wanted: DType) -> Value:
    """x in the dtype in which a region takes it."""
    if tensor_type(x).dtype is wanted:
        return x
    return builder.value("convert", x, dtype=wanted)
