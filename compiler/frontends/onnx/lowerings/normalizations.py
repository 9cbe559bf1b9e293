"""Normalisations and softmax, as plain reductions and element-wise ops.

The compiler finds the row pattern again in these, whoever wrote them. f16 and bf16 are computed
in f32 and rounded once, which is what `stash_type` = 1 asks for.
"""

from __future__ import annotations

from ingot.compiler.frontends.normalizing import (
    by_neighbours,
    by_statistics,
    center,
    inverse_deviation,
    mean,
    narrow,
    normalized,
    scale_and_shift,
    softmax,
    widen,
)
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("BatchNormalization")
def batch_normalization(node: Node) -> Value | tuple[Value | None, ...]:
    """Inference: one factor and one summand per channel, which fold into a convolution."""
    if node.integer("training_mode", 0):
        return _batch_normalization_in_training(node)
    x = widen(node, node.input(0))
    whole = not node.integer("spatial", 1)  # up to opset 8: a factor for each place of a channel
    channels = shape_of(x)[1:] if whole else (shape_of(x)[1],)
    scale, bias, mean, variance = (
        node.agree(widen(node, node.input(index)), channels) for index in range(1, 5)
    )
    epsilon = node.number("epsilon", 1e-5)
    result = by_statistics(node, x, scale, bias, mean, variance, epsilon)
    return narrow(node, result, node.input(0))


def _batch_normalization_in_training(node: Node) -> tuple[Value | None, ...]:
    """By the statistics of the batch; they move the running ones by 1 - momentum."""
    x = widen(node, node.input(0))
    axes = [axis for axis in range(type_of(x).rank) if axis != 1]
    count = dims.product(shape_of(x)[axis] for axis in axes)
    centered, middle = center(node, x, axes)
    variance = mean(node, node.op("mul", centered, centered), axes)
    inverse = node.op("rsqrt", node.op("add", variance, node.number("epsilon", 1e-5)))
    normal = node.op("mul", centered, node.broadcast_back(inverse, shape_of(x), axes))
    column = (1, *shape_of(node.input(1)), *(1 for _ in axes[1:]))
    result = scale_and_shift(node, normal, node.input(1), node.input(2), column)
    momentum = node.number("momentum", 0.9)
    unsupported(count == 0, "the batch is empty, so it has no mean")
    running = [
        _blend(node, node.input(index), each, momentum)
        for index, each in ((3, middle), (4, variance))
    ]
    return narrow(node, result, node.input(0)), *running


def _blend(node: Node, old: Value, new: Value, momentum: float) -> Value:
    """old * momentum + new * (1 - momentum), in the dtype of `old`."""
    wide = node.convert(old, type_of(new).dtype)
    kept = node.op("mul", wide, momentum)
    added = node.op("mul", new, 1 - momentum)
    return node.convert(node.op("add", kept, added), type_of(old).dtype)


@lowering("LayerNormalization")
def layer_normalization(node: Node) -> tuple[Value | None, ...]:
    x = widen(node, node.input(0))
    rank = type_of(x).rank
    axes = list(range(node.axis(-1, rank), rank))
    normal, mean, inverse = normalized(node, x, axes, node.number("epsilon", 1e-5))
    scale, bias = node.input(1), node.optional(2)
    for name, operand in (("mul", scale), ("add", bias)):
        if operand is not None:
            spread = node.broadcast_to(node.convert(operand, type_of(x).dtype), shape_of(x))
            normal = node.op(name, normal, spread)
    statistics = (
        node.keep_axes(value, shape_of(x), axes) if node.wants(output) else None
        for output, value in ((1, mean), (2, inverse))
    )
    return narrow(node, normal, node.input(0)), *statistics


@lowering("RMSNormalization", "SimplifiedLayerNormalization")
def root_mean_square_normalization(node: Node) -> tuple[Value | None, ...]:
    """The result has the dtype of the scale. onnxruntime has the op under an older name, which
    also gives the inverse deviation."""
    x = widen(node, node.input(0))
    rank = type_of(x).rank
    axes = list(range(node.axis(-1, rank), rank))
    inverse = inverse_deviation(node, x, axes, node.number("epsilon", 1e-5))
    normal = node.op("mul", x, node.broadcast_back(inverse, shape_of(x), axes))
    scale = node.broadcast_to(node.convert(node.input(1), type_of(x).dtype), shape_of(x))
    kept = node.keep_axes(inverse, shape_of(x), axes) if node.wants(1) else None
    return narrow(node, node.op("mul", normal, scale), node.input(1)), kept


@lowering("MeanVarianceNormalization")
def mean_variance_normalization(node: Node) -> Value:
    """(x - mean) / (deviation + 1e-9). The standard's own body is one of f32 alone."""
    x = widen(node, node.input(0))
    rank = type_of(x).rank
    given = node.integers("axes")
    listed = (0, 2, 3) if given is None else given or range(rank)
    axes = sorted({node.normalize_axis(axis, rank) for axis in listed})
    centered, _ = center(node, x, axes)
    deviation = node.op("sqrt", mean(node, node.op("mul", centered, centered), axes))
    shifted = node.op("add", deviation, 1e-9)
    spread = node.broadcast_back(shifted, shape_of(x), axes)
    return narrow(node, node.op("div", centered, spread), node.input(0))


@lowering("InstanceNormalization")
def instance_normalization(node: Node) -> Value:
    x = widen(node, node.input(0))
    axes = list(range(2, type_of(x).rank))
    normal, *_ = normalized(node, x, axes, node.number("epsilon", 1e-5))
    column = (1, *shape_of(node.input(1)), *(1 for _ in axes))
    result = scale_and_shift(node, normal, node.input(1), node.input(2), column)
    return narrow(node, result, node.input(0))


@lowering("GroupNormalization", since=18)
def group_normalization_per_group(node: Node) -> Value:
    return _group_normalization(node, per_channel=False)


@lowering("GroupNormalization", since=21)
def group_normalization(node: Node) -> Value:
    return _group_normalization(node, per_channel=True)


def _group_normalization(node: Node, *, per_channel: bool) -> Value:
    """Normalises the channels of each group together; scale per group before opset 21."""
    x = widen(node, node.input(0))
    groups = node.integer("num_groups", 1)
    batch, channels, *spatial = shape_of(x)
    split = node.reshape(x, (batch, groups, channels // groups, *spatial))
    axes = list(range(2, 3 + len(spatial)))
    normal, *_ = normalized(node, split, axes, node.number("epsilon", 1e-5))
    inner: Dim = channels // groups if per_channel else 1
    column = (1, groups, inner, *(1 for _ in spatial))
    result = scale_and_shift(node, normal, node.input(1), node.input(2), column)
    return narrow(node, node.reshape(result, shape_of(x)), node.input(0))


@lowering("LRN")
def local_response_normalization(node: Node) -> Value:
    """x / (bias + alpha / size * sum of squares of `size` neighbouring channels) ** beta."""
    x = widen(node, node.input(0))
    rank, size = type_of(x).rank, node.integer("size", 1)
    unsupported(
        rank < 2 or size < 1, f"size is {size} and the rank {rank}: expected 1 and 2 or more"
    )
    before = (size - 1) // 2
    alpha, beta = node.number("alpha", 1e-4) / size, node.number("beta", 0.75)
    reach = (before, size - 1 - before)
    result = by_neighbours(node, x, 1, reach, alpha, node.number("bias", 1.0), beta)
    return narrow(node, result, node.input(0))


@lowering("LpNormalization")
def lp_normalization(node: Node) -> Value:
    x = widen(node, node.input(0))
    axis = node.axis(-1, type_of(x).rank)
    power = node.integer("p", 2)
    unsupported(power not in (1, 2), f"p is {power}, expected 1 or 2")
    terms = node.op("abs", x) if power == 1 else node.op("mul", x, x)
    norm = node.reduce(terms, [axis], "add")
    norm = norm if power == 1 else node.op("sqrt", norm)
    quotient = node.op("div", x, node.broadcast_back(norm, shape_of(x), [axis]))
    zero = node.compare("eq", norm, 0)
    guard = node.broadcast_back(zero, shape_of(x), [axis])
    return narrow(node, node.op("select", guard, 0, quotient), node.input(0))


def _register_softmax(name: str, logarithm: bool) -> None:
    def of_one_axis(node: Node) -> Value:
        x = node.input(0)
        return softmax(node, x, [node.axis(-1, type_of(x).rank)], logarithm)

    def of_trailing_axes(node: Node) -> Value:
        x, rank = node.input(0), type_of(node.input(0)).rank
        return softmax(node, x, range(node.axis(1, rank), rank), logarithm)

    lowering(name, since=13)(of_one_axis)
    lowering(name)(of_trailing_axes)  # before opset 13 all axes from `axis` on were one


_register_softmax("Softmax", False)
_register_softmax("LogSoftmax", True)


@lowering("Hardmax", since=13)
def hardmax(node: Node) -> Value:
    return _first_greatest(node, node.input(0), node.axis(-1, type_of(node.input(0)).rank))


@lowering("Hardmax")
def hardmax_of_trailing_axes(node: Node) -> Value:
    x = node.input(0)
    shape = shape_of(x)
    axis = node.axis(1, len(shape))
    rows = node.reshape(x, (*shape[:axis], dims.product(shape[axis:])))
    return node.reshape(_first_greatest(node, rows, axis), shape)


def _first_greatest(node: Node, x: Value, axis: int) -> Value:
    """1 at the first greatest element along the axis, 0 elsewhere."""
    first = node.op("arg_max", x, axis=axis, dtype=dtype("i64"))
    places = node.op("iota", dtype=dtype("i64"), shape=shape_of(x), axis=axis)
    hot = node.compare("eq", node.broadcast_back(first, shape_of(x), [axis]), places)
    return node.convert(hot, type_of(x).dtype)
