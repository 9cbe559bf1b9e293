"""Collects what the program relies on but the types do not prove: relations of dims.

Where a symbolic dim may be 1 or must equal another, where a slice must lie inside its
operand, or a reshape must keep the count of elements, the relation becomes one entry of the
function's `checks` attribute: (kind, a, b, layer) with kind "le" (a <= b), "equal", or
"broadcast" (a is 1 or b). They are tested at the call as soon as their symbols are known,
before any work that uses them, so that no kernel leaves its buffers. What an op `assert`
says is collected too, and the op is gone. Checks of branches and
loops stand in an attribute of their op, one list per body, and are tested where the body
begins: in a branch that is not taken anything may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from ingot.compiler.dispatch.group import shape_of
from ingot.compiler.graph.ops import CONTROL
from ingot.compiler.ir import Attribute, Block, Function, Module, Op, TensorType
from ingot.compiler.ir.dims import Dim, product, prove_le

__all__ = ["collect_checks"]

Relation = tuple[str, Dim, Dim]
Row = tuple[str, Dim, Dim, str]


def collect_checks(module: Module) -> Module:
    """The module with the `checks` of every function."""
    result = Module(attributes=dict(module.attributes), variables=dict(module.variables))
    for function in module.functions.values():
        rows = _checks_of(function.block, function, set())
        attributes = dict(function.attributes)
        if rows:
            attributes["checks"] = cast(Attribute, rows)
        result.add(replace(function, attributes=attributes))
    return result


def _checks_of(block: Block, function: Function, known: set[Relation]) -> tuple[Row, ...]:
    """The checks of a block; those of the bodies in it are written into their ops."""
    checks: dict[Relation, str] = {}
    for op in block.ops:
        for relation in _relations(op):
            if relation not in known and not _is_proven(relation, function):
                checks.setdefault(relation, op.location)
        if op.name in CONTROL:
            inner = tuple(
                _checks_of(region.block, function, known | set(checks)) for region in op.regions
            )
            if any(inner):
                op.attributes["checks"] = cast(Attribute, inner)
    block.ops = [op for op in block.ops if op.name != "assert"]
    return tuple((*relation, layer) for relation, layer in checks.items())


def _relations(op: Op) -> Iterator[Relation]:
    match op.name:
        case "assert":
            relation = op.attributes["kind"], op.attributes["a"], op.attributes["b"]
            yield cast(Relation, relation)
        case "broadcast":
            dimensions = cast("tuple[int, ...]", op.attributes["dimensions"])
            result = shape_of(op.result)
            for dim, axis in zip(shape_of(op.operands[0]), dimensions, strict=True):
                if dim != 1:
                    yield "broadcast", dim, result[axis]
        case "slice":
            starts = cast("tuple[Dim, ...]", op.attributes["start"])
            limits = cast("tuple[Dim, ...]", op.attributes["limit"])
            for start, limit, dim in zip(starts, limits, shape_of(op.operands[0]), strict=True):
                yield "le", 0, start
                yield "le", start, limit
                yield "le", limit, dim
        case "pad":
            for dim in shape_of(op.result):
                yield "le", 0, dim
            interiors = cast("tuple[Dim, ...]", op.attributes["interior"])
            for dim, each in zip(shape_of(op.operands[0]), interiors, strict=True):
                if each != 0:  # the dim of the result counts the gaps, one less than elements
                    yield "le", 1, dim
        case "reshape":
            yield "equal", product(shape_of(op.operands[0])), product(shape_of(op.result))
        case _:
            for size, dim in _blocks(op):
                yield "le", size, dim


def _blocks(op: Op) -> Iterator[tuple[Dim, Dim]]:
    """How many elements an op takes at once of a dim, and the dim, where no index is checked."""
    if not op.operands or not isinstance(op.operands[0].type, TensorType):
        return
    attributes, shape = op.attributes, op.operands[0].type.shape
    match op.name:
        case "dynamic_slice":
            yield from zip(cast("tuple[Dim, ...]", attributes["sizes"]), shape, strict=True)
        case "dynamic_update_slice":
            yield from zip(shape_of(op.operands[1]), shape, strict=True)
        case "gather":
            for size, dim in zip(
                cast("tuple[Dim, ...]", attributes["slice_sizes"]), shape, strict=True
            ):
                if attributes["mode"] == "clamp" or size != 1:
                    yield size, dim
        case "take" if attributes["mode"] == "clamp":
            yield 1, shape[cast(int, attributes["axis"])]
        case "scatter":
            removed = (
                *cast("tuple[int, ...]", attributes["inserted_window_dims"]),
                *cast("tuple[int, ...]", attributes["input_batching_dims"]),
            )
            kept = [dim for axis, dim in enumerate(shape) if axis not in removed]
            windows = cast("tuple[int, ...]", attributes["update_window_dims"])
            yield from zip((shape_of(op.operands[2])[each] for each in windows), kept, strict=True)
        case "top_k":
            k, axis = cast(Dim, attributes["k"]), cast(int, attributes["axis"])
            yield 0, k
            yield k, shape[axis]


def _is_proven(relation: Relation, function: Function) -> bool:
    kind, a, b = relation
    if a == b:
        return True
    return kind == "le" and prove_le(a, b, function.symbols)
