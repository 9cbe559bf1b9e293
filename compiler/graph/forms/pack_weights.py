"""Gives contractions with a constant side their weights in panels of 16 columns.

`dot_general` becomes `dot_packed`, an ungrouped channels-last `convolution` becomes
`conv_packed` (or `dot_packed`, if its window is 1), a depthwise one becomes `depthwise`.
Packing is written as plain pad, reshape and transpose ops on the weight, which
`split_init` then bakes or moves to load time. The other side may have symbolic dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.moves import moved, moved_from
from ingot.compiler.graph.ops import (
    PANEL,
    PARTS_STEPS,
    Convolution,
    ConvPacked,
    Depthwise,
    DotGeneral,
    DotPacked,
    Take,
    lane_depth,
)
from ingot.compiler.graph.rewriter import defined_by, rewrite, tensor_ops, weights_of
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.attributes import Dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dim, product
from ingot.hal.spec import dtype

__all__ = [
    "IN_HALVES",
    "IN_PARTS",
    "PARTS",
    "Columns",
    "is_channels_last",
    "is_pointwise",
    "is_stored_narrow",
    "multiply_rows",
    "pack",
    "pack_convolution",
    "pack_weights",
    "products_in_words",
]

IN_HALVES = "products_in_halves"
"""Attribute of a module: the layers whose products are to be of bf16 or f16."""

PARTS = {"bf16x3": 2, "bf16x6": 3}
"""How many bf16 an f32 is the sum of, by a `precision`, which tells how many products of these make
one of f32."""

IN_PARTS = {name: f"products_in_{name}" for name in PARTS}
"""Attributes of a module, by such a precision: the layers whose products may be so."""

_PACKED = ("f32", "f64", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
"""Dtypes of operands that kernels read from panels."""

SPLIT_ROWS = 32
"""Rows from which on products of bf16 parts take less time than of f32."""

_LEAST_WIDTH = 64  # columns
_MOST_TURNED = 128
"""Products for each element of both sides that is turned: 256x64 by 64x3136 takes .64 ms as it is
and 1.18 from panels, 196x196 by 196x768 .35 and .51, 768x768 by 768x196 1.61 and 1.52."""


def pack_weights(module: Module) -> Module:
    """Pack the weights of every function; returns the module."""
    for function in module.functions.values():
        weights = weights_of(function)

        def rule(op: Op, builder: Builder, weights: set[Value] = weights) -> Sequence[Value] | None:
            if op.name == "dot_general":
                return _pack_dot(op, builder, weights)
            if op.name == "convolution" and op.operands[1] in weights:
                return pack_convolution(op, builder)
            return None

        rewrite(function.block, rule)
    return module


def pack(w: Value, builder: Builder) -> Value:
    """[k, n] to panels [ceil(n/16), ceil(k/s), 16, s], zero-padded."""
    type = tensor_type(w)
    k, n = (known_dim(dim) for dim in type.shape)
    depth = lane_depth(type.dtype)
    lines, panels = -(-k // depth), -(-n // PANEL)
    high = (lines * depth - k, panels * PANEL - n)
    if high != (0, 0):
        zero = builder.constant(0, type.dtype)
        w = builder.value("pad", w, zero, low=(0, 0), high=high)
    w = builder.value("reshape", w, shape=(lines, depth, panels, PANEL))
    return builder.value("transpose", w, permutation=(2, 0, 3, 1))


def is_split(rows: Dims) -> bool:
    """Whether so many rows may pay for splitting what is multiplied."""
    count = product(rows)
    return not isinstance(count, int) or count >= SPLIT_ROWS


def pack_parts(w: Value, count: int, builder: Builder) -> Value:
    """The bf16 whose sum is [k, n], the greatest first, each packed; whole steps of K."""
    if missing := -known_dim(tensor_type(w).shape[0]) % PARTS_STEPS:
        w = builder.value(
            "pad", w, builder.constant(0, tensor_type(w).dtype), low=(0, 0), high=(missing, 0)
        )
    parts = []
    for _ in range(count):
        part = builder.value("convert", w, dtype=dtype("bf16"))
        w = builder.value("sub", w, builder.value("convert", part, dtype=dtype("f32")))
        panels = pack(part, builder)
        parts.append(builder.reshape(panels, (1, *tensor_type(panels).shape)))
    return builder.value("concatenate", *parts, axis=0)


def _is_packable(op: Op) -> bool:
    a, b = (tensor_type(operand).dtype for operand in op.operands)
    return (a is b or _are_bytes(op)) and a.name in _PACKED


def products_in_words(module: Module) -> set[str]:
    """What the packed module multiplies in words: "i8", "parts", bf16 of which f32 are sums, and
    with such a `precision` "bf16" or "f16"."""
    packed = ("dot_packed", "conv_packed", "depthwise")
    ops = (op for function in module.functions.values() for op in tensor_ops(function.block))
    is_found = any(op.name == "dot_scaled" or (op.name in packed and _are_bytes(op)) for op in ops)
    found = {"i8"} if is_found else set()
    found |= {"parts"} if any(map(module.attributes.get, IN_PARTS.values())) else set()
    return found | (
        {str(module.attributes["precision"])} if module.attributes.get(IN_HALVES) else set()
    )


def _are_bytes(op: Op) -> bool:
    """Whether the op multiplies i8 and u8 in any combination, which kernels do in words of four."""
    types = [tensor_type(operand).dtype for operand in op.operands]
    return all(each.is_integer and each.bits == 8 for each in types)


def _are_halves(op: Op) -> bool:
    """Whether the op multiplies bf16 or f16, which kernels do in words of two."""
    return {tensor_type(each).dtype.name for each in op.operands} in ({"bf16"}, {"f16"})


def _in_whole_words(x: Value, axis: int, builder: Builder) -> Value:
    """Bytes or halves with zeros behind the last ones of the axis, so that it holds whole words."""
    shape = tensor_type(x).shape
    missing = -int(shape[axis]) % lane_depth(tensor_type(x).dtype)  # type: ignore[arg-type]
    if not missing:
        return x
    low, high = [0] * len(shape), [0] * len(shape)
    high[axis] = missing
    zero = builder.constant(0, tensor_type(x).dtype)
    return builder.value("pad", x, zero, low=tuple(low), high=tuple(high))


def _pack_dot(op: Op, builder: Builder, weights: set[Value]) -> Sequence[Value] | None:
    if op.operands[0] in weights and _stays(op):
        return None

    def product(rows: Value, w: Value, columns: Columns) -> Value:
        n, dot = columns.count_of(w), DotGeneral.of(op)
        w = _stored(w, builder)
        if _are_bytes(op):
            rows, w = _in_whole_words(rows, -1, builder), _in_whole_words(w, 0, builder)
        panels = columns.of_panels(pack(w, builder), builder)
        is_f32 = tensor_type(w).dtype.name == "f32"
        count = dot.bf16_parts if is_f32 and is_split(tensor_type(rows).shape[:-1]) else 0
        parts = (pack_parts(w, count, builder),) if count and columns.chosen is None else ()
        packed = DotPacked(n, dot.dtype, count)
        return builder.append("dot_packed", (rows, panels, *parts), (), packed).result

    return multiply_rows(op, builder, weights, product)


def _stays(op: Op) -> bool:
    """Whether a product of a weight on the left is best done as it is: its right side lies in rows,
    as the result does, and to turn both takes longer than what panels save."""
    left, right = (tensor_type(operand) for operand in op.operands)
    dot = DotGeneral.of(op)
    contract = (dot.lhs_contract, dot.rhs_contract)
    if left.rank != 2 or right.rank != 2 or contract != ((1,), (0,)):
        return False
    if not right.dtype.is_float or right.dtype.bits < 32:
        return False
    (m, k), n = left.shape, right.shape[1]
    is_wide = not isinstance(n, int) or n >= _LEAST_WIDTH
    return is_wide and known_dim(m) * known_dim(k) <= _MOST_TURNED * known_dim(m + k)


def is_stored_narrow(w: Value) -> bool:
    """Whether a weight is f32 that are converted from narrower floats."""
    return _narrow(w) is not None


def _narrow(w: Value) -> Value | None:
    """The narrower floats that a weight of f32 is made of by a conversion and moves, if it is."""
    op = defined_by(moved_from(w)[0], "convert")
    if op is None or tensor_type(w).dtype.name != "f32":
        return None
    source = op.operands[0]
    return source if tensor_type(source).dtype.name in ("f16", "bf16") else None


def _stored(w: Value, builder: Builder) -> Value:
    """The weight as the narrower floats that it is converted from, if it is: kernels convert them
    in registers."""
    source = _narrow(w)
    return w if source is None else moved(source, moved_from(w)[1], builder)


@dataclass(frozen=True)
class Columns:
    """Which columns of a weight a product is with: all, or the part `chosen` (rank 0, clamped) of
    `parts` equal ones, which are whole panels."""

    parts: int = 1
    chosen: Value | None = None

    def count_of(self, w: Value) -> int:
        """How many columns of w [k, n] they are."""
        return known_dim(tensor_type(w).shape[1]) // self.parts

    def of_panels(self, panels: Value, builder: Builder) -> Value:
        """The panels of these columns, of all on the first axis."""
        if self.chosen is None:
            return panels
        first, *rest = tensor_type(panels).shape
        shape = (self.parts, known_dim(first) // self.parts, *rest)
        panels = builder.value("reshape", panels, shape=shape)
        return builder.value("take", panels, self.chosen, axis=0, mode="clamp")

    def of_columns(self, w: Value, builder: Builder) -> Value:
        """These columns of w [k, n]."""
        if self.chosen is None:
            return w
        k, _ = tensor_type(w).shape
        w = builder.value("reshape", w, shape=(k, self.parts, self.count_of(w)))
        w = builder.value("transpose", w, permutation=(1, 0, 2))
        return builder.value("take", w, self.chosen, axis=0, mode="clamp")


def _chosen_part(w: Value, weights: set[Value]) -> tuple[Value, Value] | None:
    """The weight and the index that the value is a part of it at, along its first axis."""
    op = defined_by(w, "take")
    if op is None or Take.of(op) != Take(0, "clamp"):
        return None
    stack, index = op.operands
    return (stack, index) if stack in weights and not tensor_type(index).rank else None


def multiply_rows(
    op: Op,
    builder: Builder,
    weights: set[Value],
    multiply: Callable[[Value, Value, Columns], Value | None],
) -> Sequence[Value] | None:
    """A dot_general as `multiply` of rows [..., k] and columns of a weight [k, n], if one side is
    one, or a part of one that an index chooses, and that gives something. Either side may be the
    weight; the result's axes are put back in order."""
    a, b = op.operands
    dot = DotGeneral.of(op)
    if dot.lhs_batch or not _is_packable(op) or (a in weights and b in weights):
        return None
    a_contract, b_contract = dot.lhs_contract, dot.rhs_contract
    if a in weights or (b not in weights and _chosen_part(b, weights) is None):
        a, b, a_contract, b_contract = b, a, b_contract, a_contract
    part = None if b in weights else _chosen_part(b, weights)
    if part is None and b not in weights:
        return None
    a_type, b_type = tensor_type(a), tensor_type(b)
    a_free = [axis for axis in range(a_type.rank) if axis not in a_contract]
    b_free = [axis for axis in range(b_type.rank) if axis not in b_contract]
    # K runs over the contracted axes in the order in which the activation has them.
    order = sorted(range(len(a_contract)), key=lambda place: a_contract[place])
    k_axes = [b_contract[place] for place in order]
    k = product(b_type.shape[axis] for axis in k_axes)
    n = product(b_type.shape[axis] for axis in b_free)
    if k == 0 or n == 0:
        return None
    rows = builder.transpose(a, [*a_free, *sorted(a_contract)])
    m_shape = [a_type.shape[axis] for axis in a_free]
    rows = builder.reshape(rows, [*(m_shape or [1]), k])
    if part is None:
        w, columns = builder.transpose(b, [*k_axes, *b_free]), Columns()
    else:
        stack, index = part
        columns = Columns(known_dim(tensor_type(stack).shape[0]), index)
        if columns.parts == 0 or known_dim(n) % PANEL:
            return None
        order = [*(axis + 1 for axis in k_axes), 0, *(axis + 1 for axis in b_free)]
        w = builder.transpose(stack, order)
    made = multiply(rows, builder.reshape(w, [k, columns.parts * n]), columns)
    if made is None:
        return None
    n_shape = [b_type.shape[axis] for axis in b_free]
    result = builder.reshape(made, [*m_shape, *n_shape])
    if op.operands[0] is not b:
        return [result]
    # The weight was on the left: its axes come first.
    rank = len(m_shape) + len(n_shape)
    return [builder.transpose(result, [*range(len(m_shape), rank), *range(len(m_shape))])]


def pack_convolution(op: Op, builder: Builder) -> Sequence[Value] | None:
    """The packed form of a channels-last convolution without groups, or of a depthwise one."""
    x, w = op.operands
    count = tensor_type(x).rank - 2
    if not _is_packable(op) or not is_channels_last(op):
        return None
    convolution = Convolution.of(op)
    if any(step != 1 for step in convolution.lhs_dilation):
        return None
    *window, inputs, outputs = tensor_type(w).shape
    features = tensor_type(x).shape[-1]
    if convolution.groups != 1:
        if convolution.groups != features or inputs != 1 or outputs != features:
            return None
        w = builder.reshape(w, [*window, features])
        return [builder.append("depthwise", (x, w), (), depthwise_of(convolution)).result]
    if _are_bytes(op) or _are_halves(op):
        x, w = _in_whole_words(x, -1, builder), _in_whole_words(w, -2, builder)
        inputs = tensor_type(w).shape[-2]
    flat = builder.reshape(w, [product(window) * inputs, outputs])
    panels = pack(flat, builder)
    parts = convolution.bf16_parts if is_split(tensor_type(op.result).shape[:-1]) else 0
    operands = (x, panels, *([pack_parts(flat, parts, builder)] if parts else []))
    if is_pointwise(op):
        dot = DotPacked(known_dim(outputs), convolution.dtype, parts)
        return [builder.append("dot_packed", operands, (), dot).result]
    assert len(window) == count
    moves = vars(depthwise_of(convolution))
    packed = ConvPacked(window=tuple(window), n=known_dim(outputs), bf16_parts=parts, **moves)
    return [builder.append("conv_packed", operands, (), packed).result]


def depthwise_of(convolution: Convolution) -> Depthwise:
    """How the window of a convolution moves."""
    steps = convolution.strides, convolution.rhs_dilation
    return Depthwise(*steps, convolution.padding, convolution.dtype)


def is_channels_last(op: Op) -> bool:
    """Whether a convolution's layout is n...c,...io->n...c, such as nhwc,hwio->nhwc."""
    layout = Convolution.of(op).layout
    x = layout.partition(",")[0]
    return layout == f"{x},{x[1:-1]}io->{x}" and x[0] == "n" and x[-1] == "c"


def is_pointwise(op: Op) -> bool:
    """Whether the windows of a channels-last convolution are one pixel, each pixel's."""
    convolution = Convolution.of(op)
    window = tensor_type(op.operands[1]).shape[:-2]
    no_padding = all(pair == (0, 0) for pair in convolution.padding)
    return no_padding and all(dim == 1 for dim in (*window, *convolution.strides))
