"""Caches of GroupQueryAttention that hold codes in place of numbers, or only the newest rows."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.lowerings.elementwise import widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import positions
from ingot.compiler.frontends.onnx.lowerings.microsoft.block_quantized import unpacked
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, known_dim, product

__all__ = ["Codes", "Window"]


class Codes:
    """Integers that times `scale`, of all or of each channel, are keys or values. Those of 4 bits
    are 8 more and lie in bytes, even elements low."""

    def __init__(self, node: Node, side: str, cache: Value, scale: Value | None) -> None:
        kind, self.bits = node.text(f"{side}_quant_type", "NONE"), 8
        is_packed = type_of(cache).dtype.name == "u8"
        if is_packed:
            self.bits = node.integer("kv_cache_bit_width", 8)
        fits = type_of(cache).dtype.name in ("i8", "u8") and (self.bits == 4) == is_packed
        unsupported(
            kind not in ("PER_TENSOR", "PER_CHANNEL") or scale is None or not fits,
            f"its {side}_quant_type is '{kind}' with a cache {cache.type}: caches are of floats, "
            "of i8, or of 4 bits in u8, and have a scale",
        )
        assert scale is not None
        self.node, self.scale = node, scale

    def _scales(self, like: Value) -> Value:
        _, heads, _, size = shape_of(like)
        count = product(shape_of(self.scale))
        shape = (1, 1, 1, 1) if count == 1 else (1, heads, 1, size)
        return self.node.broadcast_to(self.node.reshape(self.scale, shape), shape_of(like))

    def of(self, x: Value) -> Value:
        """The codes of x[batch, heads, rows, size]."""
        node, wide = self.node, widen(self.node, x)
        ratio = node.op("div", wide, self._scales(wide))
        least = -(2 ** (self.bits - 1))
        low, high = (node.fill(number, like=ratio) for number in (least, -least - 1))
        codes = node.op("clamp", low, node.op("round_even", ratio), high)
        if self.bits == 8:
            return node.convert(codes, "i8")
        *outer, size = shape_of(x)
        unsupported(known_dim(size) % 2 != 0, f"its heads of {size} codes end within a byte")
        codes = node.convert(node.op("sub", codes, low), "u8")
        pairs = node.reshape(codes, (*outer, known_dim(size) // 2, 2))
        first, second = (node.sliced(pairs, -1, at, at + 1) for at in (0, 1))
        second = node.op("shift_left", second, 4)
        return node.reshape(node.op("or", first, second), (*outer, known_dim(size) // 2))

    def numbers(self, codes: Value) -> Value:
        """What they stand for, f32."""
        node = self.node
        x = codes if self.bits == 8 else unpacked(node, codes, 4)
        x = node.convert(x, "f32")
        if self.bits == 4:
            x = node.op("sub", x, 8)
        return node.op("mul", x, self._scales(x))


class Window:
    """A cache whose first rows are the newest of a sequence: of T tokens as many as fit and, where
    they do not, T less a multiple of room - window + 1. `before` and `after`: how many tokens each
    sequence had and has, i32[batch]."""

    def __init__(self, node: Node, past: Value, before: Value, after: Value) -> None:
        self.node, self.before, self.after = node, before, after
        self.window, self.room = node.integer("local_window_size", -1), shape_of(past)[2]
        small = isinstance(self.room, int) and self.room < self.window
        no_window = small or self.window < 1 or not node.integer("causal", 1)
        unsupported(
            no_window or node.optional(10) is not None,
            f"its cache of {self.room} rows needs a causal window of so many at most, and no "
            f"attention_bias: local_window_size is {self.window}",
        )
        fits = {"kind": "le", "a": self.window, "b": self.room}
        node.builder.append("assert", (), (), fits)

    def _held(self, count: Value) -> Value:
        """How many of so many tokens the cache has."""
        node = self.node
        room = node.broadcast_to(node.size(self.room, "i32"), shape_of(count))
        step = node.op("sub", room, self.window - 1)
        over = node.op("sub", node.op("max", count, room), room)
        times = node.op("div", add(node, over, node.op("sub", step, 1)), step)
        return node.op("sub", count, node.op("mul", times, step))

    def _column(self, x: Value, shape: tuple[Dim, ...]) -> Value:
        return self.node.op("broadcast", x, shape=shape, dimensions=(0,))

    def extended(self, past: Value, new: Value) -> tuple[Value, Value]:
        """The rows that are read, those of the cache and the new ones, and the cache as it is
        behind."""
        node, (batch, heads, _, size) = self.node, shape_of(new)
        past = node.agree(past, (batch, heads, self.room, size))
        rows = node.op("concatenate", past, node.convert(new, type_of(past).dtype), axis=2)
        shape = (batch, self.room)
        place = node.op("sub", self.after, self._held(self.after))
        place = add(node, self._column(place, shape), positions(node, shape, 1))
        before = self._column(self.before, shape)
        back = node.op("sub", place, before)
        room = node.broadcast_to(node.size(self.room, "i32"), shape)
        held = self._column(self._held(self.before), shape)
        is_new = node.compare("ge", place, before)
        row = add(node, back, node.op("select", is_new, room, held))
        kept = node.op(
            "gather", rows, node.reshape(row, (*shape, 1)), offset_dims=(1, 3),
            collapsed_slice_dims=(2,), start_index_map=(2,), operand_batching_dims=(0,),
            start_indices_batching_dims=(0,), index_vector_dim=2, slice_sizes=(1, heads, 1, size),
            mode="clamp",
        )  # fmt: skip
        return rows, kept

    def seen(self, places: Value, keys: Dim) -> Value:
        """Which of the rows that are read each query sees, i1[batch, 1, queries, keys]."""
        node, (batch, length) = self.node, shape_of(places)
        shape = (batch, 1, length, keys)
        row, room = positions(node, shape, 3), node.broadcast_to(node.size(self.room, "i32"), shape)
        before, held = (self._column(x, shape) for x in (self.before, self._held(self.before)))
        is_new = node.compare("ge", row, room)
        key = add(node, node.op("sub", row, node.op("select", is_new, room, held)), before)
        place = node.op("broadcast", places, shape=shape, dimensions=(0, 2))
        first = node.op("sub", place, self.window)
        tests = (
            node.op("or", is_new, node.compare("lt", row, held)),
            node.compare("le", key, place),
            node.compare("gt", key, first),
        )
        return node.op("and", node.op("and", tests[0], tests[1]), tests[2])
