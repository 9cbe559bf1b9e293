"""Lowerings of linear algebra and of batch normalisation in training."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.complex_numbers import BINARY, Complex, Parts
from ingot.compiler.frontends.linear_algebra import cholesky, solve_triangular
from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, SourceProgram
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("cholesky")
def cholesky_factor(context: Context, op: SourceOp) -> Lowered:
    """The factor of each matrix; that of a complex one has the form of its real matrix."""
    lower = bool(op.attributes.get("lower"))
    parts = [_square(context, op, part) for part in context.flat([context.lowered(op, 0)])]
    if len(parts) == 1:
        return Lowered(cholesky(context.builder, parts[0], lower))
    shape = tensor_type(parts[0]).shape
    factor = cholesky(context.builder, _as_real(context.builder, parts), lower)
    split = context.builder.value("reshape", factor, shape=(*shape[:-1], 2, shape[-1], 2))
    rank = len(shape)
    real, imaginary = (_column(context.builder, split, rank - 1, place) for place in (0, 1))
    real, imaginary = (_column(context.builder, part, rank, 0) for part in (real, imaginary))
    return Lowered(parts=(real, imaginary))


def _square(context: Context, op: SourceOp, x: Value) -> Value:
    """Matrices as many columns wide as they have rows."""
    shape = tensor_type(x).shape
    return context.agree(op, x, (*shape[:-1], shape[-2]))


def _stacked(builder: Builder, values: Sequence[Value], axis: int) -> Value:
    """Values of one shape along a new axis."""
    shape = tensor_type(values[0]).shape
    wide = (*shape[:axis], 1, *shape[axis:])
    columns = [builder.value("reshape", each, shape=wide) for each in values]
    return builder.value("concatenate", *columns, axis=axis)


def _column(builder: Builder, x: Value, axis: int, place: int) -> Value:
    """What stands at `place` of an axis, without that axis."""
    shape = tensor_type(x).shape
    start = tuple(place if a == axis else 0 for a in range(len(shape)))
    limit = tuple(place + 1 if a == axis else dim for a, dim in enumerate(shape))
    column = builder.value("slice", x, start=start, limit=limit)
    return builder.value("reshape", column, shape=(*shape[:axis], *shape[axis + 1 :]))


def _diagonal(builder: Builder, shape: Sequence[Dim]) -> Value:
    """i1[..., n, n]: what stands on the diagonal."""
    rank = len(shape)
    row, column = (
        builder.value("iota", dtype=_I64, shape=tuple(shape), axis=axis)
        for axis in (rank - 2, rank - 1)
    )
    return builder.value("compare", row, column, direction="eq")


def _as_real(builder: Builder, parts: Sequence[Value]) -> Value:
    """[..., n, n] of complex numbers as [..., 2n, 2n], which multiplies as they do: each a + bi
    is [[a, -b], [b, a]]. Those of the diagonal are taken for real ones."""
    real, imaginary = parts
    type = tensor_type(real)
    zero = builder.full(0, type.dtype, type.shape)
    imaginary = builder.value("select", _diagonal(builder, type.shape), zero, imaginary)
    top = _stacked(builder, [real, builder.value("neg", imaginary)], type.rank)
    bottom = _stacked(builder, [imaginary, real], type.rank)
    both = _stacked(builder, [top, bottom], type.rank - 1)
    size = type.shape[-1] * 2
    return builder.value("reshape", both, shape=(*type.shape[:-2], size, size))


def _check_solve(op: SourceOp, program: SourceProgram) -> str | None:
    kind = op.attributes.get("transpose_a")
    return f"transpose_a {kind}" if kind == "TRANSPOSE_INVALID" else None


@lowering("triangular_solve", check=_check_solve)
def triangular_solve(context: Context, op: SourceOp) -> Lowered:
    builder, left = context.builder, bool(op.attributes["left_side"])
    unit, kind = bool(op.attributes["unit_diagonal"]), str(op.attributes["transpose_a"])
    a = [_square(context, op, part) for part in context.flat([context.lowered(op, 0)])]
    b = context.flat([context.lowered(op, 1)])
    shape, rows = tensor_type(b[0]).shape, tensor_type(a[0]).shape
    free = shape[-1] if left else shape[-2]
    shape = (*rows[:-1], free) if left else (*rows[:-2], free, rows[-1])
    b = [context.agree(op, part, shape) for part in b]
    transposed = kind in ("TRANSPOSE", "ADJOINT")
    is_complex = len(a) == 2
    if is_complex:
        if (kind == "TRANSPOSE") == left:  # the real matrix, transposed, stands for the adjoint one
            a[1] = builder.value("neg", a[1])
        if not unit:
            a, b = _with_unit_diagonal(
                Complex(builder), (a[0], a[1]), (b[0], b[1]), left, transposed
            )
        axis = len(shape) - (1 if left else 0)
        wide = list(shape)
        wide[axis - 1] = wide[axis - 1] * 2
        pairs = builder.value("reshape", _stacked(builder, b, axis), shape=tuple(wide))
        a, b = [_as_real(builder, a)], [pairs]
    x = solve_triangular(
        builder,
        *(*a, *b),
        left_side=left,
        lower=bool(op.attributes["lower"]),
        unit_diagonal=unit or is_complex,
        transposed=transposed,
    )
    if not is_complex:
        return Lowered(x)
    split = builder.value("reshape", x, shape=(*shape[:axis], 2, *shape[axis:]))
    return Lowered(parts=(_column(builder, split, axis, 0), _column(builder, split, axis, 1)))


def _with_unit_diagonal(
    c: Complex, a: Parts, b: Parts, left: bool, transposed: bool
) -> tuple[list[Value], list[Value]]:
    """The equations divided by what stands on the diagonal of a."""
    builder, type = c.builder, tensor_type(a[0])
    rank, by_rows = type.rank, left != transposed
    on_diagonal, zero = _diagonal(builder, type.shape), c.like(0, a[0])
    ends = [
        builder.value(
            "reduce", builder.value("select", on_diagonal, part, zero), axes=(rank - 1,), kind="add"
        )
        for part in a
    ]

    def divided(x: Parts, divisor: Sequence[Value], axis: int) -> list[Value]:
        kept = (*range(rank - 2), axis)
        shape = tensor_type(x[0]).shape
        real, imaginary = (
            builder.value("broadcast", part, shape=shape, dimensions=kept) for part in divisor
        )
        return list(BINARY["divide"](c, x, (real, imaginary)))

    of_b = ends if by_rows else [ends[0], builder.value("neg", ends[1])]
    matrix = divided(a, ends, rank - 2 if by_rows else rank - 1)
    return matrix, divided(b, of_b, rank - 2 if left else rank - 1)


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
