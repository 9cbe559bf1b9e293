"""Relations of dims that ops rely on and types need not prove.

Where a symbolic dim may be 1 or must equal another, where a slice must lie inside its
operand, or a reshape must keep the count of elements. A relation is (kind, a, b) with kind
"le" (a <= b), "equal", or "broadcast" (a is 1 or b). `dispatch/collect_checks.py` lets the
call test them; a pass that moves an op moves what it relies on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ingot.compiler.graph.native_signature import parse_signature
from ingot.compiler.graph.ops import (
    Assert,
    Broadcast,
    DynamicSlice,
    Gather,
    KernelCall,
    NativeCall,
    Pad,
    Scatter,
    Slice,
    Take,
    TopK,
)
from ingot.compiler.ir import Op, TensorType, Value, tensor_type
from ingot.compiler.ir.dims import Bounds, Call, Dim, product, prove_le

__all__ = ["Relation", "RelationKind", "is_proven", "may_fail", "relations_of"]

RelationKind = Literal["equal", "le", "broadcast"]
Relation = tuple[RelationKind, Dim, Dim]


def relations_of(op: Op) -> Iterator[Relation]:
    """What must hold where the op is computed."""
    match op.name:
        case "assert":
            yield Assert.of(op).kind, Assert.of(op).a, Assert.of(op).b
        case "broadcast":
            dimensions = Broadcast.of(op).dimensions
            result = _shape(op.result)
            for dim, axis in zip(_shape(op.operands[0]), dimensions, strict=True):
                if dim != 1:
                    yield "broadcast", dim, result[axis]
        case "slice":
            starts = Slice.of(op).start
            limits = Slice.of(op).limit
            for start, limit, dim in zip(starts, limits, _shape(op.operands[0]), strict=True):
                yield "le", 0, start
                yield "le", start, limit
                yield "le", limit, dim
        case "pad":
            for dim in _shape(op.result):
                yield "le", 0, dim
            interiors = Pad.of(op).interior
            for dim, each in zip(_shape(op.operands[0]), interiors, strict=True):
                if each != 0:  # the dim of the result counts the gaps, one less than elements
                    yield "le", 1, dim
        case "reshape":
            yield "equal", product(_shape(op.operands[0])), product(_shape(op.result))
        case "native_call" | "kernel_call":
            types = parse_signature(_signature(op))
            for dim, expected in types.relations([tensor_type(each) for each in op.operands]):
                yield "equal", dim, expected
        case _:
            for size, dim in _blocks(op):
                yield "le", size, dim


def _signature(op: Op) -> str:
    native = op.name == "native_call"
    return NativeCall.of(op).signature if native else KernelCall.of(op).signature


def _blocks(op: Op) -> Iterator[tuple[Dim, Dim]]:
    """How many elements an op takes at once of a dim, and the dim, where no index is checked."""
    if not op.operands or not isinstance(op.operands[0].type, TensorType):
        return
    shape = op.operands[0].type.shape
    if op.name == "dynamic_update_slice":
        yield from zip(_shape(op.operands[1]), shape, strict=True)
    match op.attributes:
        case DynamicSlice(sizes=sizes):
            yield from zip(sizes, shape, strict=True)
        case Gather(slice_sizes=sizes, mode=mode, operand_batching_dims=batch):
            for axis, (size, dim) in enumerate(zip(sizes, shape, strict=True)):
                if axis not in batch and (mode == "clamp" or size != 1):
                    yield size, dim
        case Take(axis=axis, mode="clamp"):
            yield 1, shape[axis]
        case Scatter(update_window_dims=windows) as scatter:
            removed = (*scatter.inserted_window_dims, *scatter.input_batching_dims)
            kept = [dim for axis, dim in enumerate(shape) if axis not in removed]
            yield from zip((_shape(op.operands[2])[each] for each in windows), kept, strict=True)
        case TopK(k=k, axis=axis):
            yield 0, k
            yield k, shape[axis]


def is_proven(relation: Relation, known: Bounds) -> bool:
    """Whether a relation holds for all sizes that symbols of these bounds can have."""
    kind, a, b = relation
    if a == b:
        return True
    return kind == "le" and prove_le(a, b, known)


def may_fail(dim: Dim) -> bool:
    """Whether the dim must be computed where it stands: a division by a symbol that may be 0,
    or a broadcast of dims that may not fit."""
    if isinstance(dim, int):
        return False
    calls = (atom for monomial, _ in dim.terms for atom, _ in monomial if isinstance(atom, Call))
    return any(
        call.function == "broadcast"
        or (call.function in ("floordiv", "mod") and not isinstance(call.operands[1], int))
        or any(map(may_fail, call.operands))
        for call in calls
    )


def _shape(value: Value) -> tuple[Dim, ...]:
    return tensor_type(value).shape
