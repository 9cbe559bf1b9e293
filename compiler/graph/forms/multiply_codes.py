"""Makes contractions of quantised tensors contractions of their codes, in integers.

`(a - za) * sa` times a weight `(b - zb) * sb` is `sa * sb` times a sum of integers: of `a * b`,
less `za` times the sums of b, which are known when the program is created, less `zb` times
those of a, which most weights do not need. Of two activations both sums are made by the call, and
ops on codes go before the transposes that split heads, which then need not be done. Kernels
multiply u8 with i8 (`loop.dot4`), so the activation's codes become u8 and the weight's i8, each
with its zero point moved along. An activation of 16 bits is 256 times its high bytes and its low
ones, whose sums are made apart and added as floats. Rescaling, and all that follows, are
element-wise ops, which dispatches take in behind the contraction.

Tables whose rows are looked up stay codes, too, and rows are dequantised. A contraction that stays
as it is although its weight is quantised is told in the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.dequantised import (
    BYTES,
    PAIRS,
    Dequantised,
    Refused,
    as_signed,
    as_unsigned,
    dtype_of_codes,
    extent,
    halves,
    is_dequantised,
    is_plain,
    read_rows,
    read_tensor,
    read_weight,
)
from ingot.compiler.graph.forms.moves import moved_last
from ingot.compiler.graph.forms.pack_weights import is_channels_last
from ingot.compiler.graph.forms.spread_inputs import as_channels_last, divide_phases, has_phases
from ingot.compiler.graph.ops import Convolution, DotGeneral, Transpose, parse_layout
from ingot.compiler.graph.rewriter import defined_by, rewrite, tensor_ops, weights_of
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.attributes import Ints
from ingot.compiler.ir.dims import Bounds, Dim, bounds, product
from ingot.hal.spec import DType, dtype

__all__ = ["IN_INTEGERS", "LEFT_IN_FLOAT", "multiply_codes"]

LEFT_IN_FLOAT, IN_INTEGERS = "left_in_float", "in_integers"

_I8, _U8, _I32, _F32 = dtype("i8"), dtype("u8"), dtype("i32"), dtype("f32")


def multiply_codes(module: Module) -> Module:
    """Multiply codes in every function; returns the module, whose attribute LEFT_IN_FLOAT has layer
    and reason of each contraction that stays as it was, and IN_INTEGERS the layers of others."""
    left: dict[tuple[str, str], None] = {}
    done: dict[str, None] = {}
    for function in module.functions.values():
        weights, symbols = weights_of(function), function.symbols

        def rule(
            op: Op, builder: Builder, weights: set[Value] = weights, symbols: Bounds = symbols
        ) -> Sequence[Value] | None:
            try:
                if op.name == "take":
                    return _take(op, weights, builder)
                if op.name in ("dot_general", "convolution"):
                    return _multiply(op, weights, symbols, builder)
            except Refused as refused:
                if op.name != "take":
                    left[op.location, str(refused)] = None
            return None

        rewrite(function.block, rule)
        done.update((op.location, None) for op in tensor_ops(function.block) if _is_of_bytes(op))
    if done:
        module.attributes[IN_INTEGERS] = tuple(done)
    if left:
        module.attributes[LEFT_IN_FLOAT] = tuple(left)
    return module


def _is_of_bytes(op: Op) -> bool:
    if op.name not in ("dot_general", "convolution"):
        return False
    return {tensor_type(each).dtype for each in op.operands} <= {_I8, _U8}


def _multiply(
    op: Op, weights: set[Value], symbols: Bounds, builder: Builder
) -> Sequence[Value] | None:
    sides = [place for place, each in enumerate(op.operands) if each in weights]
    result = tensor_type(op.result).dtype
    if not (result is _I32 or result.is_float):
        return None
    if not sides and all(map(is_dequantised, op.operands)):
        return _multiply_activations(op, symbols, builder)
    if len(sides) != 1 or not is_dequantised(op.operands[sides[0]]):
        if result.is_float:
            _refuse_codes(op, sides)
        return None
    x, w = op.operands[1 - sides[0]], op.operands[sides[0]]
    if tensor_type(x).dtype is _U8 and tensor_type(w).dtype is _I8:
        return None  # kernels take it as it is
    kinds = PAIRS if _takes_pairs(op) and is_dequantised(x, PAIRS) else BYTES
    if not is_dequantised(x, kinds):
        if result is _I32:
            return None
        found = dtype_of_codes(x)
        raise Refused(
            "its input is " + (f"quantised to {found.name}" if found else "not quantised")
        )
    form = _Product(op, sides[0]) if op.name == "dot_general" else _Convolution(op, sides[0])
    rows = form.read(x, kinds, builder)
    parts = (rows,) if kinds is BYTES else halves(rows, builder)
    weight = read_weight(w, form.summed, builder)
    if result is not _I32:
        form.check_sums(max(map(extent, parts)) * extent(weight))
    weight = as_signed(weight, builder)
    totals = [form.total(as_unsigned(each, builder), weight, builder) for each in parts]
    scale = None if result is _I32 else form.scale(rows.scale, weight.scale, builder)
    return [_scaled(totals, scale, result, builder)]


def _takes_pairs(op: Op) -> bool:
    """Whether two products of bytes are less than one of floats. Sums of one channel are not."""
    if op.name == "dot_general":
        return tensor_type(op.result).dtype.is_float
    axes, convolution = parse_layout(Convolution.of(op).layout), Convolution.of(op)
    is_depthwise = tensor_type(op.operands[1]).shape[axes.weight_input] == 1
    return convolution.dtype.is_float and not (is_depthwise and convolution.groups > 1)


def _refuse_codes(op: Op, sides: Sequence[int]) -> None:
    """Refused: operands are codes, though not as `read_tensor` and `read_weight` take them."""
    found = [dtype_of_codes(each) for each in op.operands]
    if len(sides) == 1 and is_dequantised(op.operands[1 - sides[0]]) and not found[sides[0]]:
        raise Refused("its weight is not quantised")
    if all(found):
        raise Refused(f"it multiplies {' and '.join(each.name for each in found if each)}")


def _multiply_activations(op: Op, symbols: Bounds, builder: Builder) -> Sequence[Value] | None:
    """A product of two tensors that only the call knows, as in attention."""
    result, types = tensor_type(op.result), [tensor_type(each).dtype for each in op.operands]
    if op.name != "dot_general" or types == [_U8, _I8]:
        if result.dtype.is_float:
            raise Refused("its weight is known only at the call")
        return None  # kernels take it as it is
    a, b = (read_tensor(each, builder) for each in op.operands)
    assert a is not None
    assert b is not None
    dot = DotGeneral.of(op)
    count = product(tensor_type(op.operands[0]).shape[axis] for axis in dot.lhs_contract)
    if result.dtype is not _I32:
        _check_sums(count, extent(a) * extent(b), symbols)
    a, b = as_unsigned(a, builder), as_signed(b, builder)
    lhs, rhs = ((dot.batch(side), dot.contract(side)) for side in ("lhs", "rhs"))
    a_codes, (lhs_batch, lhs_contract) = _in_place(a.codes, lhs, b.zero is not None, builder)
    b_codes, (rhs_batch, rhs_contract) = _in_place(b.codes, rhs, a.zero is not None, builder)
    dot = DotGeneral(
        lhs_batch=lhs_batch, rhs_batch=rhs_batch,
        lhs_contract=lhs_contract, rhs_contract=rhs_contract, dtype=_I32,
    )  # fmt: skip
    a, b = replace(a, codes=a_codes), replace(b, codes=b_codes)
    # Before the product, so that they are at hand where its sums are stored.
    sums = list(_sums_for_zeros(a, b, dot, result.shape, builder))
    total = builder.like(op, a_codes, b_codes, attributes=dot)
    for each in sums:
        total = builder.value("sub", total, each)
    scale = None if result.dtype is _I32 else _times(a.scale, b.scale, builder)
    if scale is not None:
        scale = builder.broadcast_to(scale, result.shape)
    return [_scaled([total], scale, result.dtype, builder)]


def _sums_for_zeros(
    a: Dequantised, b: Dequantised, dot: DotGeneral, shape: Sequence[Dim], builder: Builder
) -> Iterator[Value]:
    """What is too much in the product of codes, in its shape: the zero point of either side times
    the sums of the other one, of which codes of a are taken less their zero point."""
    batch, split = len(dot.lhs_batch), tensor_type(a.codes).rank - len(dot.lhs_contract)
    for x, axes, zero, free in (
        (b, dot.rhs_contract, a.zero, range(split, len(shape))),
        (a, dot.lhs_contract, b.zero, range(batch, split)),
    ):
        if zero is None:
            continue
        sums = _sums_along(x.codes, axes, builder)
        own = tensor_type(sums).shape
        if x is a and a.zero is not None:
            count = product(tensor_type(a.codes).shape[axis] for axis in axes)
            zeros = builder.value("mul", a.zero, builder.number(count, _I32))
            sums = builder.value("sub", sums, builder.broadcast_to(zeros, own))
        times = builder.value("mul", sums, builder.broadcast_to(zero, own))
        yield builder.value(
            "broadcast", times, shape=tuple(shape), dimensions=(*range(batch), *free)
        )


def _in_place(
    x: Value, axes: tuple[Ints, Ints], is_summed: bool, builder: Builder
) -> tuple[Value, tuple[Ints, Ints]]:
    """An operand before it is transposed, and where its batch and contracted axes are there: heads
    need not be moved. Where sums of it are needed, these axes are its first and its last ones."""
    x, (batch, summed) = moved_last(x, builder), axes
    while (op := defined_by(x, "transpose")) is not None:
        order = Transpose.of(op).permutation
        free = [order[axis] for axis in range(len(order)) if axis not in (*batch, *summed)]
        if free != sorted(free):
            break
        x = op.operands[0]
        batch, summed = (tuple(order[axis] for axis in each) for each in (batch, summed))
    rank = tensor_type(x).rank
    free = [axis for axis in range(rank) if axis not in (*batch, *summed)]
    order = (*batch, *free, *summed)
    if not is_summed or order == tuple(range(rank)):
        return x, (batch, summed)
    x = builder.value("transpose", x, permutation=order)
    return x, (tuple(range(len(batch))), tuple(range(rank - len(summed), rank)))


def _sums_along(codes: Value, axes: Sequence[int], builder: Builder) -> Value:
    wide = builder.value("convert", codes, dtype=_I32)
    return builder.value("reduce", wide, axes=tuple(axes), kind="add")


def _scaled(totals: Sequence[Value], scale: Value | None, result: DType, builder: Builder) -> Value:
    """A sum of integers, or those of high and low bytes, times a scale, in the result's dtype."""
    if result is _I32:
        return totals[0]
    value, *low = (builder.value("convert", each, dtype=_F32) for each in totals)
    for each in low:
        high = builder.value("mul", value, builder.full(256, _F32, tensor_type(value).shape))
        value = builder.value("add", high, each)
    if scale is not None:
        value = builder.value("mul", value, scale)
    return value if result is _F32 else builder.value("convert", value, dtype=result)


def _check_sums(count: Dim, greatest: int, symbols: Bounds | None = None) -> None:
    """Refused: sums of so many products up to `greatest` may not fit 32 bits."""
    if not bounds(count, symbols)[1] * greatest < 1 << 31:
        raise Refused(f"sums of {count} products of bytes may not fit 32 bits")


def _take(op: Op, weights: set[Value], builder: Builder) -> Sequence[Value] | None:
    """Rows of a quantised table are taken as codes, and dequantised then: by the same ops."""
    table, type = op.operands[0], tensor_type(op.result)
    parts = read_tensor(table, builder) if table in weights and type.dtype is _F32 else None
    if parts is None or parts.scale is None or not is_plain(table):
        return None
    value = builder.value("convert", builder.like(op, parts.codes, op.operands[1]), dtype=_F32)
    if parts.zero is not None:
        zero = builder.value("convert", parts.zero, dtype=_F32)
        value = builder.value("sub", value, builder.broadcast_to(zero, type.shape))
    return [builder.value("mul", value, builder.broadcast_to(parts.scale, type.shape))]


def _times(a: Value | None, b: Value | None, builder: Builder) -> Value | None:
    """The product of scales, of which the first is one number."""
    if a is None or b is None:
        return b if a is None else a
    return builder.value("mul", builder.broadcast_to(a, tensor_type(b).shape), b)


class _Form:
    """What both kinds of contraction share: where the weight's numbers stand in the result."""

    def __init__(self, op: Op, side: int, columns: Sequence[int], summed: Sequence[int]) -> None:
        self.op, self.side = op, side
        self.attributes: Any = replace(op.attributes, dtype=_I32)  # type: ignore[call-arg]
        self.columns = tuple(columns)  # axes of the result for the free ones of the weight
        self.rows: Ints = ()  # those for the free ones of the other side
        self.summed = tuple(summed)  # axes of the weight
        self.shape = tensor_type(op.result).shape

    def check_sums(self, greatest: int) -> None:
        """Refused: sums of products up to `greatest` may not fit 32 bits."""
        shape = tensor_type(self.op.operands[self.side]).shape
        _check_sums(product(shape[axis] for axis in self.summed), greatest)

    def product(self, x: Value, w: Value, builder: Builder) -> Value:
        """The contraction of these codes."""
        operands = (x, w) if self.side else (w, x)
        return builder.like(self.op, *operands, attributes=self.attributes)

    def total(self, x: Dequantised, w: Dequantised, builder: Builder) -> Value:
        """The sum of the products of numbers, that is of codes less zero points."""
        total = self.product(x.codes, w.codes, builder)
        if x.zero is not None:
            times = self.of_both(x.zero, self._sums(w, builder), builder)
            total = builder.value("sub", total, times)
        if w.zero is not None:
            sums = self.sums_of_rows(x.codes, w.codes, builder)
            times = builder.value("mul", self.wide(w.zero, builder), sums)
            total = builder.value("sub", total, times)
        return total

    def _sums(self, w: Dequantised, builder: Builder) -> Value:
        """Per column the weight's codes less its zero point, summed."""
        sums = _sums_along(w.codes, self.summed, builder)
        if w.zero is None:
            return sums
        shape = tensor_type(sums).shape
        length = product(tensor_type(w.codes).shape[axis] for axis in self.summed)
        zeros = builder.broadcast_to(w.zero, shape)
        zeros = builder.value("mul", zeros, builder.full(length, _I32, shape))
        return builder.value("sub", sums, zeros)

    def read(self, x: Value, kinds: frozenset[DType], builder: Builder) -> Dequantised:
        """The other side, which is dequantised, of codes of these dtypes."""
        raise NotImplementedError

    def sums_of_rows(self, x: Value, w: Value, builder: Builder) -> Value:
        """The sums of codes of x that the result's elements are made of, in its shape."""
        raise NotImplementedError

    def scale(self, x: Value | None, w: Value | None, builder: Builder) -> Value | None:
        """The product of the scales of both sides, in the result's shape; None for 1."""
        if x is not None and w is not None:
            return self.of_both(x, w, builder)
        if x is not None:
            return self.wide_rows(x, builder)
        return None if w is None else self.wide(w, builder)

    def of_both(self, x: Value, w: Value, builder: Builder) -> Value:
        """The product of a number of the other side, or of each of its rows, and of columns, in
        the result's shape."""
        if not tensor_type(x).rank:
            times = builder.value("mul", builder.broadcast_to(x, tensor_type(w).shape), w)
            return self.wide(times, builder)
        return builder.value("mul", self.wide_rows(x, builder), self.wide(w, builder))

    def wide_rows(self, x: Value, builder: Builder) -> Value:
        """Numbers of rows of the other side, or one, in the result's shape."""
        dimensions = self.rows if tensor_type(x).rank else ()
        return builder.value("broadcast", x, shape=self.shape, dimensions=dimensions)

    def wide(self, x: Value, builder: Builder) -> Value:
        """Numbers of columns, or one, in the result's shape."""
        dimensions = self.columns if tensor_type(x).rank else ()
        return builder.value("broadcast", x, shape=self.shape, dimensions=dimensions)


class _Product(_Form):
    """dot_general of a weight and rows, either on the left."""

    def __init__(self, op: Op, side: int) -> None:
        dot = DotGeneral.of(op)
        if dot.lhs_batch:
            raise Refused("its weight has batch dims")
        w, x = (tensor_type(op.operands[each]) for each in (side, 1 - side))
        contract = dot.rhs_contract if side else dot.lhs_contract
        self.rows_contract = dot.lhs_contract if side else dot.rhs_contract
        free, rows = w.rank - len(contract), x.rank - len(contract)
        first = rows if side else 0
        super().__init__(op, side, range(first, first + free), contract)
        first = 0 if side else free
        self.rows = tuple(range(first, first + rows))

    def read(self, x: Value, kinds: frozenset[DType], builder: Builder) -> Dequantised:
        rows = read_rows(x, self.rows_contract, builder, kinds)
        assert rows is not None
        return rows

    def sums_of_rows(self, x: Value, w: Value, builder: Builder) -> Value:
        sums = _sums_along(x, self.rows_contract, builder)
        return self.wide_rows(sums, builder)


class _Convolution(_Form):
    """A convolution, perhaps in groups."""

    def __init__(self, op: Op, side: int) -> None:
        if side != 1:
            raise Refused("its weight is on the left")
        self.axes = parse_layout(Convolution.of(op).layout)
        rank = tensor_type(op.operands[1]).rank
        summed = [axis for axis in range(rank) if axis != self.axes.weight_output]
        super().__init__(op, side, (self.axes.result_feature,), summed)

    def read(self, x: Value, kinds: frozenset[DType], builder: Builder) -> Dequantised:
        rows = read_tensor(x, builder, kinds)
        assert rows is not None
        return rows

    def total(self, x: Dequantised, w: Dequantised, builder: Builder) -> Value:
        """With the zero point of x, where there is one, as its padding."""
        padding, dilation = self.attributes.padding, self.attributes.lhs_dilation
        spread = next((axis for axis, step in enumerate(dilation) if step != 1), None)
        if x.zero is not None and spread is not None:
            return self._spread_total(x, w, spread, builder)
        if x.zero is None or all(pair == (0, 0) for pair in padding):
            return super().total(x, w, builder)
        low: list[Dim] = [0] * tensor_type(x.codes).rank
        high = list(low)
        for axis, (before, after) in zip(self.axes.spatial, padding, strict=True):
            low[axis], high[axis] = before, after
        zero = builder.value("convert", x.zero, dtype=_U8)
        codes = builder.value("pad", x.codes, zero, low=tuple(low), high=tuple(high))
        inner = copy(self)
        inner.attributes = replace(self.attributes, padding=((0, 0),) * len(padding))
        return inner.total(replace(x, codes=codes), w, builder)

    def _spread_total(self, x: Dequantised, w: Dequantised, axis: int, builder: Builder) -> Value:
        """By phases, each of which has a padding and sums of the weight of its own."""

        def convolve(codes: Value, weight: Value, changed: Convolution) -> Value:
            op = builder.append("convolution", (codes, weight), (), changed)
            form = _Convolution(op, 1)
            return form.total(replace(x, codes=codes), replace(w, codes=weight), builder)

        op = builder.append("convolution", (x.codes, w.codes), (), self.attributes)
        if not is_channels_last(op):
            return as_channels_last(op, builder, convolve)
        if w.zero is not None or not has_phases(op, axis):
            raise Refused("its input is spread out, and has a zero point")
        return divide_phases(op, builder, axis, convolve)

    def sums_of_rows(self, x: Value, w: Value, builder: Builder) -> Value:
        """By a convolution with ones."""
        shape = list(tensor_type(w).shape)
        if self.attributes.groups == 1:
            shape[self.axes.weight_output] = 1
        sums = self.product(x, builder.full(1, _I8, shape), builder)
        return builder.broadcast_to(sums, self.shape)
