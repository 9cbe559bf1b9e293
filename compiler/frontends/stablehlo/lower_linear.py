"""Lowerings of linear algebra and of batch normalisation in training."""

from __future__ import annotations

from ingot.compiler.frontends.linear_algebra import cholesky, solve_triangular
from ingot.compiler.frontends.stablehlo.lowering import Context, lowering
from ingot.compiler.frontends.stablehlo.program import SourceOp, SourceProgram
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("cholesky")
def cholesky_factor(context: Context, op: SourceOp) -> Value:
    return cholesky(context.builder, context.operand(op, 0), bool(op.attributes.get("lower")))


def _check_solve(op: SourceOp, program: SourceProgram) -> str | None:
    kind = op.attributes.get("transpose_a")
    return f"transpose_a {kind}" if kind == "TRANSPOSE_INVALID" else None


@lowering("triangular_solve", check=_check_solve)
def triangular_solve(context: Context, op: SourceOp) -> Value:
    a, b = context.operands(op)
    return solve_triangular(
        context.builder,
        a,
        b,
        left_side=bool(op.attributes["left_side"]),
        lower=bool(op.attributes["lower"]),
        unit_diagonal=bool(op.attributes["unit_diagonal"]),
        transposed=str(op.attributes["transpose_a"]) in ("TRANSPOSE", "ADJOINT"),
    )


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
        if isinstance(number, int):
            return self.builder.full(number, self.type.dtype, tensor_type(like).shape)
        whole = self.builder.value("dim", value=number, dtype=_I64)
        real = self.builder.value("convert", whole, dtype=self.type.dtype)
        return self.builder.broadcast_to(real, tensor_type(like).shape)

    def spread(self, x: Value) -> Value:
        return self.builder.value("broadcast", x, shape=self.type.shape, dimensions=(self.axis,))

    def deviation(self, variance: Value) -> Value:
        shift = self.builder.full(self.epsilon, self.type.dtype, tensor_type(variance).shape)
        return self.op("sqrt", self.op("add", variance, shift))


@lowering("batch_norm_training")
def batch_norm_training(context: Context, op: SourceOp) -> list[Value]:
    """[scale * (x - mean) / deviation + offset, mean, variance], by the statistics of x."""
    x, scale, offset = context.operands(op)
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
    x, scale, mean, variance, gradient = context.operands(op)
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
