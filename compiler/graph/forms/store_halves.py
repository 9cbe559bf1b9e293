"""Sums that wait in memory as bf16 or f16, with such a `precision`, where they would be f32.

What a later product's sum is added to (a residual, the shortcut of a block) lies in memory until
then. If nothing else reads its f32, it is stored rounded: once, where it also is the factor of a
product, and in half the bytes else. The greatest of windows is taken of rounded numbers where only
rounded ones of it are read; that is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.eliminate_common_subexpressions import (
    eliminate_common_subexpressions,
)
from ingot.compiler.graph.forms.pack_weights import IN_HALVES
from ingot.compiler.graph.forms.round_rows import precision_of
from ingot.compiler.graph.forms.waiting_codes import contractions_in
from ingot.compiler.graph.ops import ReduceWindow
from ingot.compiler.graph.rewriter import rewrite
from ingot.compiler.ir import Block, Module, Op, TensorType, Value, uses_of, walk
from ingot.hal.spec import DType, dtype

__all__ = ["store_halves"]

_F32 = dtype("f32")


def store_halves(module: Module) -> Module:
    """Round what waits in every function; returns the module."""
    if not module.attributes.get(IN_HALVES):
        return module
    half = dtype(precision_of(module))
    for function in module.functions.values():
        regions = (region for op in walk(function) for region in op.regions)
        for block in (function.block, *(region.block for region in regions)):
            _round_waiting(block, half)
        _round_before_windows(function.block, half)
    eliminate_common_subexpressions(module)  # one rounded value for sums and products
    return module


def _round_waiting(block: Block, half: DType) -> None:
    waiting = _waiting(block, half)
    ops: list[Op] = []
    builder, rounded = Builder(ops), dict[Value, Value]()
    for op in block.ops:
        if op.name == "add":
            op.operands = [rounded.get(each, each) for each in op.operands]
        ops.append(op)
        builder.location = op.location
        for each in waiting.intersection(op.results):
            narrow = builder.value("convert", each, dtype=half)
            rounded[each] = builder.value("convert", narrow, dtype=_F32)
    block.ops = ops


def _waiting(block: Block, half: DType) -> set[Value]:
    """The f32 that are factors, or sums of products of halves, and else read only where a sum of a
    later one is added to them."""
    uses, found = uses_of(block), set[Value]()
    last = {
        value: place
        for value, place in contractions_in(block).items()
        if all(tensor_type(each).dtype is half for each in block.ops[place].operands)
    }
    for place, op in enumerate(block.ops):
        for x in op.results:
            readers = [reader for reader, _ in uses.get(x, ()) if not _rounds(reader, half)]
            if len(readers) != 1 or readers[0].name != "add" or not _is_f32(x):
                continue
            others = [each for each in readers[0].operands if each is not x]
            is_factor = len(uses[x]) > 1
            if (is_factor or x in last) and any(last.get(each, -1) > place for each in others):
                found.add(x)
    return found


def _rounds(op: Op, half: DType) -> bool:
    return op.name == "convert" and tensor_type(op.result).dtype is half


def _is_f32(x: Value) -> bool:
    return isinstance(x.type, TensorType) and x.type.dtype is _F32


def _round_before_windows(block: Block, half: DType) -> None:
    uses = uses_of(block)

    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        if not _rounds(op, half):
            return None
        window = op.operands[0].owner
        if not isinstance(window, Op) or not isinstance(window.attributes, ReduceWindow):
            return None
        readers = uses.get(window.result, ())
        if window.attributes.kind != "max" or not all(_rounds(each, half) for each, _ in readers):
            return None
        narrow = builder.value("convert", window.operands[0], dtype=half)
        return [builder.like(window, narrow)]

    rewrite(block, rule)
