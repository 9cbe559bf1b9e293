"""Weights of few bits in blocks: products with them, and look-ups in them.

Their bytes stay as the model has them, behind an `unpack`; `fuse_scales` makes products read
them packed, and a look-up takes its rows out of the bytes.
"""

from __future__ import annotations

from ingot.compiler.frontends.indexed import from_front
from ingot.compiler.frontends.onnx.lowerings.contractions import matmul
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.quantization import check_scales
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim, product
from ingot.hal.spec import dtype

__all__ = ["times_blocks", "unpacked", "weight_of_blocks"]

_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_FP4 = (0.0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)


def unpacked(node: Node, packed: Value, bits: int) -> Value:
    """The numbers of so many bits that lie along the last axis of bytes."""
    unsupported(bits not in (2, 4, 8), f"its bits are {bits}: 2, 4 and 8 are supported")
    if bits == 8:
        return packed
    *outer, count = shape_of(packed)
    shape = (*outer, count * (8 // bits))
    flat = node.flat(packed)
    return node.op("unpack", flat, dtype=dtype(f"u{bits}"), shape=shape)


def weight_of_blocks(
    node: Node, codes: Value, scales: Value, zeros: Value | None, bits: int, spread: int
) -> Value:
    """(codes - zeros) * scales in f32, of numbers [..., k] whose last axis has a scale and
    perhaps a zero point, packed or a float, for each run of `spread`."""
    axis = type_of(codes).rank - 1
    blocks = shape_of(scales)[axis]
    wide = node.convert(codes, "f32")
    if zeros is None:
        points = node.fill(1 << (bits - 1), like=wide)
    else:
        if not type_of(zeros).dtype.is_float:
            zeros = node.sliced(unpacked(node, zeros, bits), -1, 0, blocks)
        points = node.repeated(node.convert(zeros, "f32"), axis, spread)
    factors = node.repeated(node.convert(scales, "f32"), axis, spread)
    return node.op("mul", node.op("sub", wide, points), factors)


@lowering("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(node: Node) -> Value:
    return times_blocks(node)


def times_blocks(node: Node) -> Value:
    """x [..., k] times a weight [n, k] of few bits; the last block of a row may be cut short."""
    unsupported(
        bool(node.integer("weight_prepacked", 0)),
        "its weight is packed for another device: export it with weight_prepacked = 0",
    )
    x, packed, scales, zeros = node.input(0), node.input(1), node.input(2), node.optional(3)
    k, n, block = (node.integer(name, 0) for name in ("K", "N", "block_size"))
    bits = node.integer("bits", 4)
    unsupported(bits not in (2, 4, 8), f"its bits are {bits}: 2, 4 and 8 are supported")
    blocks = -(-k // max(block, 1))
    size = n * blocks * block * bits // 8
    unsupported(
        block < 1 or product(shape_of(packed)) != size,
        f"its weight is {packed.type}, but N = {n}, K = {k}, block_size = {block} and bits = "
        f"{bits} make {size} bytes: fix the model",
    )
    check_scales(scales)
    scales = _by_rows(node, scales, n, blocks)
    if zeros is not None:
        is_float = type_of(zeros).dtype.is_float
        zeros = _by_rows(node, zeros, n, blocks if is_float else -(-blocks * bits // 8))
    codes = unpacked(node, node.reshape(packed, (n, blocks * block * bits // 8)), bits)
    groups = node.optional(4)
    if groups is not None:
        weight = _of_groups(node, codes, scales, zeros, bits, node.sliced(groups, -1, 0, k))
    else:
        weight = weight_of_blocks(node, codes, scales, zeros, bits, block)
        x = _longer(node, x, blocks * block)
    weight = node.transpose(narrow(node, weight, x), (1, 0))
    return add(node, matmul(node, x, weight, type_of(x).dtype), node.optional(5))


def _by_rows(node: Node, value: Value, rows: int, columns: int) -> Value:
    """Exporters leave scales and zero points flat."""
    unsupported(
        product(shape_of(value)) != rows * columns,
        f"a scale or zero point is {value.type}, expected [{rows}, {columns}]: fix the model",
    )
    return node.reshape(value, (rows, columns))


def _longer(node: Node, x: Value, length: int) -> Value:
    """x with zeros behind its last axis."""
    shape = node.agree_on(x, type_of(x).rank - 1, node.integer("K", 0))
    missing = length - node.integer("K", 0)
    if not missing:
        return shape
    edge = (0,) * (type_of(x).rank - 1)
    return node.padded(shape, (*edge, 0), (*edge, missing))


def _of_groups(
    node: Node, codes: Value, scales: Value, zeros: Value | None, bits: int, groups: Value
) -> Value:
    """The weight whose column i has the scale and zero point of group `groups[i]`."""

    def column(value: Value) -> Value:
        return node.op("take", value, groups, axis=1, mode="check")

    if zeros is not None and not type_of(zeros).dtype.is_float:
        zeros = node.sliced(unpacked(node, zeros, bits), -1, 0, shape_of(scales)[1])
    if zeros is not None:
        zeros = node.convert(column(zeros), "f32")
    codes = node.sliced(codes, -1, 0, shape_of(groups)[0])
    return weight_of_blocks(node, codes, column(scales), zeros, bits, 1)


@lowering("MatMulFpQ4", domain=MICROSOFT)
def matmul_fp_q4(node: Node) -> Value:
    """x [..., k] times a weight [k, n] whose columns are blocks of bytes: a scale in f32, a zero
    point where the type is 1, and codes of which each 16 bytes hold 32, the later half high."""
    x, packed = node.input(0), node.input(1)
    kind, sizes = node.integer("blk_quant_type", 1), node.known(node.input(2))
    unsupported(kind not in (0, 1), f"its blk_quant_type is {kind}: 0 and 1 are taken")
    unsupported(sizes is None or sizes.shape != (2,), "the shape of its weight is not known")
    assert sizes is not None
    k, n = (int(each) for each in sizes)
    unsupported(min(k, n) < 1, f"its weight is {k} by {n}: fix the model")
    head, blocks = 4 + kind, -(-k // 32)
    packed = node.agree(packed, (n * blocks * (head + 16),))
    packed = node.reshape(packed, (n, blocks, head + 16))
    scales = node.reshape(node.sliced(packed, -1, 0, 4), (n, blocks, 1, 4))
    scales = node.reshape(node.op("reinterpret", scales, dtype=dtype("f32")), (n, blocks))
    zeros = node.convert(node.reshape(node.sliced(packed, -1, 4, 5), (n, blocks)), "f32")
    halves = node.sliced(packed, -1, head, head + 16)
    four, low = node.fill(4, like=halves), node.fill(15, like=halves)
    pair = (node.op("and", halves, low), node.op("shift_right_logical", halves, four))
    codes = node.reshape(node.op("concatenate", *pair, axis=2), (n, blocks * 32))
    weight = weight_of_blocks(node, codes, scales, zeros if kind else None, 4, 32)
    weight = node.transpose(node.sliced(weight, -1, 0, k), (1, 0))
    return matmul(node, x, weight, type_of(x).dtype)


@lowering("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(node: Node) -> Value:
    """x times a weight of numbers out of a table of 16, times the greatest of their block. The
    first number lies in the high half of a byte."""
    x, packed, scales = (node.input(place) for place in range(3))
    check_scales(scales)
    k, n, block = (node.integer(name, 0) for name in ("K", "N", "block_size"))
    table = _NF4 if node.integer("quant_type", 1) else (*_FP4, *(-each for each in _FP4))
    four, low = node.fill(4, like=packed), node.fill(15, like=packed)
    halves = [node.op("shift_right_logical", packed, four), node.op("and", packed, low)]
    pairs = [node.reshape(each, (*shape_of(packed), 1)) for each in halves]
    codes = node.op("concatenate", *pairs, axis=len(shape_of(packed)))
    codes = node.sliced(node.flat(codes), -1, 0, n * k)
    numbers = node.op("take", node.constant(table, "f32"), codes, axis=0, mode="clamp")
    factors = node.repeated(node.convert(scales, "f32"), 0, block)
    weight = node.op("mul", numbers, node.sliced(factors, -1, 0, n * k))
    weight = narrow(node, node.reshape(weight, (n, k)), x)
    if node.integer("transB", 1):
        weight = node.transpose(weight, (1, 0))
    return matmul(node, x, weight, type_of(x).dtype)


@lowering("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(node: Node) -> Value:
    """Slices of a tensor of few bits in blocks, as numbers; zeros for an index out of range."""
    data, indices, scales, zeros = node.input(0), node.input(1), node.input(2), node.optional(3)
    check_scales(scales)
    rank, element = type_of(data).rank, type_of(data).dtype
    gathered = node.normalize_axis(node.integer("gather_axis", 0), rank)
    axis = node.normalize_axis(node.integer("quantize_axis", 1), rank)
    bits = node.integer("bits", 4) if element.name == "u8" else element.bits
    middle = 0
    if element.name == "u8":
        middle = 1 << (bits - 1)
        data = unpacked(node, data, bits)
        if zeros is not None:
            zeros = node.sliced(unpacked(node, zeros, bits), -1, 0, shape_of(scales)[-1])
    block = node.integer("block_size", 128) or known_dim(shape_of(data)[axis])
    count = shape_of(data)[gathered]
    number, is_there = _index_of(node, indices, count)
    split = gathered == axis

    def look_up(x: Value) -> Value:
        if shape_of(x)[gathered] == 1 and count != 1:
            x = node.broadcast_to(x, (*shape_of(x)[:gathered], count, *shape_of(x)[gathered + 1 :]))
        return node.op("take", x, number, axis=gathered, mode="clamp")

    def spread(x: Value) -> Value:
        return _cut(node, node.repeated(x, place, block), shape_of(codes), place)

    codes = data if split else look_up(data)
    place = axis + type_of(indices).rank - 1 if axis > gathered else axis
    scales = scales if split else look_up(scales)
    wide = node.convert(codes, "f32")
    if zeros is not None:
        points = spread(zeros if split else look_up(zeros))
        wide = node.op("sub", wide, node.convert(points, "f32"))
    elif middle:
        wide = node.op("sub", wide, middle)
    result = node.op("mul", wide, node.convert(spread(scales), "f32"))
    result = look_up(result) if split else result
    shape = shape_of(result)
    there = node.op(
        "broadcast", is_there, shape=shape,
        dimensions=tuple(range(gathered, gathered + type_of(indices).rank)),
    )  # fmt: skip
    result = node.op("select", there, result, 0)
    return narrow(node, result, node.input(2))


def _index_of(node: Node, indices: Value, count: Dim) -> tuple[Value, Value]:
    """The index counted from the front, and whether there is such an element."""
    size = node.size(count, type_of(indices).dtype)
    return from_front(node, indices, node.broadcast_to(size, shape_of(indices)))


def _cut(node: Node, x: Value, like: tuple[Dim, ...], axis: int) -> Value:
    """What was spread in blocks, as long as the numbers themselves, and as wide."""
    if shape_of(x)[axis] != like[axis]:
        x = node.sliced(x, axis, 0, like[axis])
    return node.broadcast_to(x, like)
