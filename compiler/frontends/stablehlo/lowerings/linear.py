"""Lowerings of linear algebra and of batch normalisation in training."""

from __future__ import annotations

from ingot.compiler.frontends.matrices import Array, Scope, batched
from ingot.compiler.frontends.matrices.elimination import cholesky, solve_triangular
from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, SourceProgram
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("cholesky")
def cholesky_factor(context: Context, op: SourceOp) -> Lowered:
    """The factor of each matrix, of which one half is read."""
    scope = Scope(context.builder)
    parts = [_square(context, op, part) for part in context.flat([context.lowered(op, 0)])]
    x = batched(scope, parts)
    if op.attributes.get("lower"):
        factor, _ = cholesky(x)
    else:
        factor = cholesky(x.H)[0].H
    return _shaped(factor, parts[0])


def _square(context: Context, op: SourceOp, x: Value) -> Value:
    """Matrices as many columns wide as they have rows."""
    shape = tensor_type(x).shape
    return context.agree(op, x, (*shape[:-1], shape[-2]))


def _shaped(x: Array, like: Value) -> Lowered:
    """Matrices with the batches of `like`."""
    shaped = x.reshape(*tensor_type(like).shape[:-2], *x.shape[1:])
    if not shaped.is_complex:
        return Lowered(shaped.value)
    real, imaginary = shaped.parts
    return Lowered(parts=(real, imaginary))


def _check_solve(op: SourceOp, program: SourceProgram) -> str | None:
    kind = op.attributes.get("transpose_a")
    return f"transpose_a {kind}" if kind == "TRANSPOSE_INVALID" else None


@lowering("triangular_solve", check=_check_solve)
def triangular_solve(context: Context, op: SourceOp) -> Lowered:
    left, kind = bool(op.attributes["left_side"]), str(op.attributes["transpose_a"])
    a = [_square(context, op, part) for part in context.flat([context.lowered(op, 0)])]
    b = context.flat([context.lowered(op, 1)])
    shape, rows = tensor_type(b[0]).shape, tensor_type(a[0]).shape
    shape = (*rows[:-1], shape[-1]) if left else (*rows[:-2], shape[-2], rows[-1])
    b = [context.agree(op, part, shape) for part in b]
    scope = Scope(context.builder)
    x = solve_triangular(
        batched(scope, a),
        batched(scope, b),
        left=left,
        lower=bool(op.attributes["lower"]),
        unit=bool(op.attributes["unit_diagonal"]),
        transposed=kind != "NO_TRANSPOSE",
        conjugated=kind == "ADJOINT",
    )
    return _shaped(x, b[0])


class _Features:
    """Sums over all axes but the feature axis, and values per feature spread over x."""

    def __init__(self, context: Context, op: SourceOp, x: Value) -> None:
        self.builder, self.type = context.builder, tensor_type(x)
        self.axis = int(op.attributes["feature_index"])
        self.others = tuple(axis for axis in range(self.type.rank) if axis != self.axis)
        self.epsilon = float(op.attributes["epsilon"])

    def op(self, name: str, *operands: Value) -> Value:
        return self.builder.value(name, *operands)

    def total(self, x: Value) -> Value:
        return self.builder.value("reduce", x, axes=self.others, kind="add")

    def mean(self, x: Value) -> Value:
        total = self.total(x)
        return self.op("div", total, self.count(total))

    def count(self, like: Value) -> Value:
        """How many elements a feature has, in the type of `like`."""
        number = dims.product(self.type.shape[axis] for axis in self.others)
        return self.builder.number(number, self.type.dtype, tensor_type(like).shape)

    def spread(self, x: Value) -> Value:
        return self.builder.value("broadcast", x, shape=self.type.shape, dimensions=(self.axis,))

    def deviation(self, variance: Value) -> Value:
        shift = self.builder.full(self.epsilon, self.type.dtype, tensor_type(variance).shape)
        return self.op("sqrt", self.op("add", variance, shift))


def _agreed(context: Context, op: SourceOp) -> list[Value]:
    """The operands with the dims of the first one: all of them, or that of the features."""
    values = context.operands(op)
    shape = tensor_type(values[0]).shape
    features = (shape[op.attributes["feature_index"]],)
    return [
        context.agree(op, value, shape if tensor_type(value).rank == len(shape) != 1 else features)
        for value in values
    ]


@lowering("batch_norm_training")
def batch_norm_training(context: Context, op: SourceOp) -> list[Value]:
    """[scale * (x - mean) / deviation + offset, mean, variance], by the statistics of x."""
    x, scale, offset = _agreed(context, op)
    f = _Features(context, op, x)
    mean = f.mean(x)
    centered = f.op("sub", x, f.spread(mean))
    variance = f.mean(f.op("mul", centered, centered))
    normal = f.op("div", centered, f.spread(f.deviation(variance)))
    result = f.op("add", f.op("mul", normal, f.spread(scale)), f.spread(offset))
    return [result, mean, variance]


@lowering("batch_norm_grad")
def batch_norm_grad(context: Context, op: SourceOp) -> list[Value]:
    """The gradients of x, scale and offset from that of the result."""
    x, scale, mean, variance, gradient = _agreed(context, op)
    f = _Features(context, op, x)
    centered = f.op("sub", x, f.spread(mean))
    deviation = f.deviation(variance)
    of_offset = f.total(gradient)
    along = f.total(f.op("mul", gradient, centered))
    of_scale = f.op("div", along, deviation)
    # scale / deviation * (gradient - mean(gradient) - centered * along / (count * deviation^2))
    square = f.op("mul", f.op("mul", deviation, deviation), f.count(deviation))
    less = f.op("mul", centered, f.spread(f.op("div", along, square)))
    rest = f.op("sub", f.op("sub", gradient, f.spread(f.mean(gradient))), less)
    of_x = f.op("mul", f.spread(f.op("div", scale, deviation)), rest)
    return [of_x, of_scale, of_offset]
