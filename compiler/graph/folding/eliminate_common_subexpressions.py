"""Replaces an op by an earlier one with the same name, operands and attributes.

An op in a region may be replaced by one outside, never the other way round. Ops with
regions and ops on state stay.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from typing import Any

from ingot.compiler.graph.effects import has_effect
from ingot.compiler.ir import Block, Later, Literal, Module, Op, Value
from ingot.compiler.ir.attributes import Record

__all__ = ["attribute_key", "eliminate_common_subexpressions"]

_COMPARED = 4096
"""Constants up to this many bytes compare by content, larger ones by where they lie."""


def eliminate_common_subexpressions(module: Module) -> Module:
    """Keep the first of equal ops in every function; returns the module."""
    for function in module.functions.values():
        _eliminate(function.block, {}, {})
    return module


def _eliminate(block: Block, seen: MutableMapping[Any, Op], replaced: dict[Value, Value]) -> None:
    kept: list[Op] = []
    for op in block.ops:
        if not replaced.keys().isdisjoint(op.operands):
            op.operands = [replaced.get(operand, operand) for operand in op.operands]
        for region in op.regions:
            for inner in region.blocks:
                _eliminate(inner, ChainMap({}, seen), replaced)
        first = op
        if op.results and not op.regions and not has_effect(op):
            first = seen.setdefault(_key_of(op), op)
        if first is op:
            kept.append(op)
            continue
        for old, new in zip(op.results, first.results, strict=True):
            replaced[old] = new
            if old.name and not new.name:
                new.name = old.name
        op.results.clear()
    block.ops = kept


def _key_of(op: Op) -> Any:
    types = tuple(result.type for result in op.results)
    return op.name, tuple(op.operands), attribute_key(op.attributes), types


def attribute_key(attribute: Any) -> Any:
    """A hashable that is equal for attributes that mean the same, bit for bit."""
    if isinstance(attribute, Record):
        key = getattr(attribute, "_key", None)
        if key is None:
            key = type(attribute), *map(attribute_key, vars(attribute).values())
            object.__setattr__(attribute, "_key", key)
        return key
    if isinstance(attribute, tuple):
        if all(type(item) is int for item in attribute):  # shapes and axes
            return attribute
        return tuple(attribute_key(item) for item in attribute)
    if isinstance(attribute, float):
        return attribute.hex()
    if isinstance(attribute, Literal):
        stored = attribute.stored
        if isinstance(stored, Later):
            return attribute.dtype, stored
        if stored.nbytes <= _COMPARED:
            return attribute.dtype, stored.shape, stored.tobytes()
        return attribute.dtype, stored.shape, stored.ctypes.data
    return type(attribute), attribute
