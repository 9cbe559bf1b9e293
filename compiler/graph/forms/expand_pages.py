"""Attention over pages as attention over what a gather of the pages gives, for targets whose
kernels do not read pages in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import AttentionPaged
from ingot.compiler.graph.rewriter import rewrite
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["expand_pages"]

F32, I1, I64 = dtype("f32"), dtype("i1"), dtype("i64")


def expand_pages(module: Module) -> Module:
    """Expand `attention_paged` in every function; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _expand)
    return module


def _expand(op: Op, builder: Builder) -> Sequence[Value] | None:
    if not isinstance(op.attributes, AttentionPaged):
        return None
    q, k, v, table, ends = op.operands
    b, pages = builder, op.attributes
    count, _, length, _ = tensor_type(k).shape
    ends = _clamped(ends, tensor_type(table).shape[1] * length, b)
    table = _clamped(table, count - 1, b)
    k, v = (_gathered(each, table, b) for each in (k, v))
    kind = {"lhs_batch": (0, 1), "rhs_batch": (0, 1), "lhs_contract": (3,)}
    scores = b.value("dot_general", b.value("convert", q, dtype=F32), k, **kind, rhs_contract=(3,))
    shape = tensor_type(scores).shape
    scores = _times(scores, pages.scale, b)
    if pages.cap:
        scores = _times(b.value("tanh", _times(scores, 1 / pages.cap, b)), pages.cap, b)
    own = b.value("broadcast", ends, shape=shape, dimensions=(0, 2))
    keys = b.value("iota", dtype=I64, shape=shape, axis=3)
    seen = b.value("compare", keys, own, direction="lt")
    if pages.window:
        first = b.value("sub", own, b.full(pages.window, I64, shape))
        seen = b.value("and", seen, b.value("compare", keys, first, direction="ge"))
    scores = b.value("select", seen, scores, b.full(-np.inf, F32, shape))
    most = b.value("reduce", scores, axes=(3,), kind="max")
    small = tensor_type(most).shape
    none = b.value("compare", most, b.full(-np.inf, F32, small), direction="eq")
    most = b.value("select", none, b.full(0.0, F32, small), most)
    rows = b.value("broadcast", most, shape=shape, dimensions=(0, 1, 2))
    weights = b.value("exp", b.value("sub", scores, rows))
    sums = b.value("reduce", weights, axes=(3,), kind="add")
    sums = b.value("select", none, b.full(1.0, F32, small), sums)
    weights = b.value("div", weights, b.value("broadcast", sums, shape=shape, dimensions=(0, 1, 2)))
    y = b.value("dot_general", weights, v, **kind, rhs_contract=(2,))
    return [b.value("convert", y, dtype=tensor_type(op.result).dtype)]


def _clamped(numbers: Value, last: Dim, b: Builder) -> Value:
    """In 0 to `last`, i64."""
    numbers = b.value("convert", numbers, dtype=I64)
    shape = tensor_type(numbers).shape
    numbers = b.value("max", numbers, b.full(0, I64, shape))
    return b.value("min", numbers, b.number(last, I64, shape))


def _gathered(x: Value, table: Value, b: Builder) -> Value:
    """[b, h, t * p, d] of x[pages, h, p, d]."""
    x = b.value("take", x, table, axis=0)
    x = b.value("transpose", x, permutation=(0, 2, 1, 3, 4))
    batch, heads, count, length, features = tensor_type(x).shape
    x = b.value("convert", x, dtype=F32)
    return b.value("reshape", x, shape=(batch, heads, count * length, features))


def _times(x: Value, factor: float, b: Builder) -> Value:
    return b.value("mul", x, b.full(factor, F32, tensor_type(x).shape))
