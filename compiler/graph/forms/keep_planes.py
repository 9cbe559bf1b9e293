"""Leaves channels first the convolutions around which both transposes would stay.

`choose_layout` puts transposes around each convolution, most of which meet others and go. Where one
is left in front of a convolution and another behind what is done with its results, element by
element, `conv_planar` takes the image as it lies: with AVX-512 on one thread 64 depthwise
features of 112 x 112 pixels take .45 of the time, 80 to 384 of 3000 by threes .75.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Broadcast, ConvPacked, ConvPlanar, Depthwise, Transpose, lookup
from ingot.compiler.graph.rewriter import defined_by, rewrite, splat_of
from ingot.compiler.ir import Module, Op, Value, count_uses
from ingot.compiler.ir.dims import Dim, known_dims, product

__all__ = ["keep_planes"]

_CONVOLUTIONS = ("conv_packed", "depthwise")

_VECTOR = 16  # elements, of the variant with the most
_MOVE = 25
"""Products that take as long as to move an element by a transpose."""

_PICK = 50
"""Products that take as long as to read an element alone, as windows with steps beyond two do."""

_TILE_ROWS = 8
"""Rows of results of one depthwise feature that are made together, at most."""

_MOST_ROWS = (1 << 20) - 4096
"""Bytes of the rows under a narrow block of results, which must fit scratch."""


def keep_planes(module: Module) -> Module:
    """Rewrite every function; returns the module."""
    for function in module.functions.values():
        uses = count_uses(function)
        rewrite(function.block, _Planes(uses).rule)
    return module


class _Planes:
    def __init__(self, uses: dict[Value, int]) -> None:
        self.uses = uses

    def rule(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """The transpose that brings what follows a convolution to channels first, without it."""
        if op.name != "transpose" or not _is_first(op):
            return None
        kept = self._kept(op.operands[0])
        if kept is None:
            return None
        made: dict[Value, Value] = {}
        for value in reversed(kept):
            if value not in made:
                made[value] = _planar(value, made, builder)
        return [made[op.operands[0]]]

    def _kept(self, x: Value) -> list[Value] | None:
        """What a value needs back to its one convolution, each in front of its operands, if all is
        made channels first as easily."""
        kept: list[Value] = []
        rest, convolutions = [x], 0
        while rest:
            kept.append(value := rest.pop())
            if _is_leaf(value):
                continue
            op = value.owner
            if not isinstance(op, Op) or op.regions or self.uses.get(value) != 1:
                return None
            if op.name in _CONVOLUTIONS:
                is_split = len(op.operands) > 2  # it is read in parts of f32
                if is_split or not _pays(op):
                    return None
                convolutions += 1
            elif lookup(op.name).family == "elementwise":
                rest += op.operands
            else:
                return None
        return kept if convolutions == 1 else None


def _is_leaf(x: Value) -> bool:
    return _source(x) is not None or splat_of(x) is not None or bool(defined_by(x, "broadcast"))


def _planar(x: Value, made: dict[Value, Value], builder: Builder) -> Value:
    """The value channels first; `made`: what it needs so."""
    if (source := _source(x)) is not None:
        return source
    op, rank = x.owner, tensor_type(x).rank
    order = (0, rank - 1, *range(1, rank - 1))
    if (broadcast := defined_by(x, "broadcast")) is not None:
        dimensions = tuple(order.index(axis) for axis in Broadcast.of(broadcast).dimensions)
        return builder.value(
            "broadcast", broadcast.operands[0], shape=_first_shape(x), dimensions=dimensions
        )
    if not isinstance(op, Op) or op.name == "constant":
        return builder.transpose(x, order)
    if op.name in _CONVOLUTIONS:
        image = _source(op.operands[0])
        if image is None:  # one feature
            image = builder.reshape(op.operands[0], _first_shape(op.operands[0]))
        return builder.append("conv_planar", (image, op.operands[1]), (), _moves(op)).result
    return builder.like(op, *(made[operand] for operand in op.operands))


def _is_first(op: Op) -> bool:
    """Whether a transpose brings channels last to channels first."""
    rank = len(Transpose.of(op).permutation)
    return rank in (3, 4) and Transpose.of(op).permutation == (0, rank - 1, *range(1, rank - 1))


def _first_shape(x: Value) -> list[Dim]:
    """The shape of a value that lies channels last as it is channels first."""
    first, *spatial, features = tensor_type(x).shape
    return [first, features, *spatial]


def _source(x: Value) -> Value | None:
    """What lies channels first, if the value is that, transposed to channels last."""
    op = defined_by(x, "transpose")
    if op is None or Transpose.of(op).permutation != (0, *range(2, tensor_type(x).rank), 1):
        return None
    return op.operands[0]


def _moves(op: Op) -> ConvPlanar:
    """The same window for channels first."""
    if isinstance(op.attributes, ConvPacked):
        moves = {name: each for name, each in vars(op.attributes).items() if name != "bf16_parts"}
        return ConvPlanar(**moves)
    *window, features = known_dims(tensor_type(op.operands[1]).shape)
    return ConvPlanar(window=tuple(window), n=features, **vars(Depthwise.of(op)))


def _pays(op: Op) -> bool:
    """Whether to read the image as it lies takes less than both transposes: rows that end between
    vectors, and windows with wide steps, cost something."""
    x, w, result = map(tensor_type, (*op.operands, op.result))
    is_there = _source(op.operands[0]) is not None or x.shape[-1] == 1
    if not is_there or x.dtype.name not in ("f32", "f64"):
        return False
    if not x.dtype is w.dtype is result.dtype or (op.name == "depthwise" and w.rank == x.rank):
        return False
    sizes: list[Dim] = [
        *x.shape[1:],
        *result.shape[1:],
        *(d for p in _moves(op).padding for d in p),
    ]
    if any(not isinstance(dim, int) for dim in sizes):
        return False
    moves, (*_, width) = _moves(op), known_dims(result.shape[1:-1])
    window, features = known_dims(moves.window), 1 if op.name == "depthwise" else x.shape[-1]
    read, made = known_dims((product(x.shape[1:]), product(result.shape[1:])))
    if made == 0 or not _fits(moves, features, x.dtype.bytes):
        return False
    wasted = -(-width // _VECTOR) * _VECTOR / width - 1
    cost = wasted * made * known_dims((product(window) * features,))[0]
    if known_dims(moves.strides)[-1] > 2:
        cost += _PICK * read
    return cost <= _MOVE * (read + made)


def _fits(moves: ConvPlanar, features: Dim, bytes: int) -> bool:
    """Whether scratch holds the rows under the narrowest block of results."""
    window, strides, dilation = map(known_dims, (moves.window, moves.strides, moves.rhs_dilation))
    rows = 1
    if len(window) == 2:
        together = _TILE_ROWS if features == 1 else 1
        rows = (together - 1) * strides[0] + (window[0] - 1) * dilation[0] + 1
    columns = (strides[-1] + 1) * 8 * _VECTOR + (window[-1] - 1) * dilation[-1]
    return known_dims((rows * columns * features * bytes,))[0] <= _MOST_ROWS
