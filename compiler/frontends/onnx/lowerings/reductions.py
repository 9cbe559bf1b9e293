"""Reductions over axes, arg max and arg min, cumulative sums.

Since opset 13 or 18 the axes are an input; before, an attribute.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.normalizing import log_sum_exp
from ingot.compiler.frontends.onnx.choices import axes_of
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype

__all__: list[str] = []


def _axes(node: Node, rank: int) -> list[int]:
    """The axes to reduce; all for none given, unless the model says that none means none."""
    if _is_whole(node, rank):
        return []
    axes = axes_of(node, 1, rank)
    if not axes:
        return [] if node.integer("noop_with_empty_axes", 0) else list(range(rank))
    return sorted(set(axes))


def _is_whole(node: Node, rank: int) -> bool:
    """Whether a scalar is reduced to itself, whatever axis is named: onnxruntime takes models of
    before opset 13 that name one."""
    return not rank and node.opset < 13


def _lower(node: Node, x: Value, kind: str) -> Value:
    axes = _axes(node, type_of(x).rank)
    return node.reduce(x, axes, kind, keep=bool(node.integer("keepdims", 1)))


def _register_plain(op_type: str, kind: str, boolean_kind: str | None = None) -> None:
    def lower(node: Node) -> Value:
        x = node.input(0)
        if boolean_kind is not None and type_of(x).dtype.is_boolean:
            return _lower(node, x, boolean_kind)
        return narrow(node, _lower(node, widen(node, x), kind), x)

    lowering(op_type)(lower)


_register_plain("ReduceSum", "add")
_register_plain("ReduceProd", "mul")
_register_plain("ReduceMax", "max", "or")
_register_plain("ReduceMin", "min", "and")


def _register_composed(
    op_type: str,
    before: Callable[[Node, Value], Value] | None,
    after: Callable[[Node, Value], Value] | None,
) -> None:
    """A sum between two element-wise functions."""

    def lower(node: Node) -> Value:
        x = widen(node, node.input(0))
        if before is not None:
            x = before(node, x)
        x = _lower(node, x, "add")
        if after is not None:
            x = after(node, x)
        return narrow(node, x, node.input(0))

    lowering(op_type)(lower)


def _square(node: Node, x: Value) -> Value:
    return node.op("mul", x, x)


def _absolute(node: Node, x: Value) -> Value:
    return node.op("abs", x)


def _of_integers(node: Node, name: str, x: Value) -> Value:
    """A function of floats; of integers, what it is rounded toward zero."""
    if type_of(x).dtype.is_float:
        return node.op(name, x)
    return node.convert(node.op(name, node.convert(x, "f64")), type_of(x).dtype)


def _root(node: Node, x: Value) -> Value:
    return _of_integers(node, "sqrt", x)


def _logarithm(node: Node, x: Value) -> Value:
    return _of_integers(node, "log", x)


_register_composed("ReduceL1", _absolute, None)
_register_composed("ReduceL2", _square, _root)
_register_composed("ReduceSumSquare", _square, None)
_register_composed("ReduceLogSum", None, _logarithm)


@lowering("ReduceMean")
def reduce_mean(node: Node) -> Value:
    x = widen(node, node.input(0))
    axes = _axes(node, type_of(x).rank)
    total = _lower(node, x, "add")
    count = dims.product(shape_of(x)[axis] for axis in axes)
    # of nothing the standard leaves it undefined; 0 is what onnxruntime says, and torch of its bags
    divisor = node.size(dims.maximum(count, 1), type_of(x).dtype)
    result = node.op("div", total, node.broadcast_to(divisor, shape_of(total)))
    return narrow(node, result, node.input(0))


@lowering("ReduceLogSumExp")
def reduce_log_sum_exp(node: Node) -> Value:
    x = widen(node, node.input(0))
    x = x if type_of(x).dtype.is_float else node.convert(x, "f64")
    axes = _axes(node, type_of(x).rank)
    result = log_sum_exp(node, x, axes, bool(node.integer("keepdims", 1)))
    return narrow(node, result, node.input(0))


@lowering("ArgMax")
def arg_max(node: Node) -> Value:
    return _arg(node, "arg_max")


@lowering("ArgMin")
def arg_min(node: Node) -> Value:
    return _arg(node, "arg_min")


def _arg(node: Node, name: str) -> Value:
    x = node.input(0)
    if _is_whole(node, type_of(x).rank):
        return node.full(0, "i64", ())
    axis = node.axis(0, type_of(x).rank)
    last = bool(node.integer("select_last_index", 0))
    result = node.op(name, x, axis=axis, dtype=dtype("i64"), last=last)
    return node.keep_axes(result, shape_of(x), [axis]) if node.integer("keepdims", 1) else result


@lowering("CumSum")
def cumulative_sum(node: Node) -> Value:
    return _cumulative(node, "add")


@lowering("CumProd")
def cumulative_product(node: Node) -> Value:
    return _cumulative(node, "mul")


def _cumulative(node: Node, kind: str) -> Value:
    x = node.input(0)
    (axis,) = axes_of(node, 1, type_of(x).rank, "axis") or (0,)
    return node.op(
        "cumulative",
        x,
        axis=axis,
        kind=kind,
        exclusive=bool(node.integer("exclusive", 0)),
        reverse=bool(node.integer("reverse", 0)),
    )
