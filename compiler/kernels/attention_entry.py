"""An entry around one attention op, as schedules see it: operands and result as views.

Operands and result may be transposed views: heads are never moved in memory. The grid is
blocks of queries by batch items on every target. This file chooses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ingot.compiler.dispatch.view import View, view_of
from ingot.compiler.graph.forms.fuse_attention import is_fusable
from ingot.compiler.graph.ops import Attention, AttentionPaged, Transpose
from ingot.compiler.ir import Function, Op, Value, defined_by, tensor_type
from ingot.compiler.ir.dims import Dim, floordiv, known_dim, known_dims, product, row_major_strides
from ingot.compiler.kernels.attention_pages import Pages
from ingot.compiler.kernels.contraction_entry import kernel_of, root_of
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import Index, LoopBuilder, lanes_of
from ingot.hal.spec import DType, dtype

__all__ = ["AttentionEntry", "weight_of"]

F32 = dtype("f32")
_LEAST = -87.0
"""Of a score less the greatest: e to its power is no subnormal number."""
_Body = Callable[[Index, Index, list[Value]], list[Value]]


class AttentionEntry:
    """q f32[..., m, d], k f32[..., n, d], v f32[..., n, e], whose batch dims may be those of fewer
    heads, perhaps a mask that broadcasts into [..., m, n]; or keys and values in `pages`.
    ValueError: there is no kernel for these types."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.root = root_of(function)
        q, v = tensor_type(self.root.operands[0]), tensor_type(self.root.operands[2])
        if not is_fusable(q, v):
            raise ValueError(f"attention of {q} and {v}: write it as products and a softmax")
        self.b = LoopBuilder()
        self.q, self.k, self.v = (view_of(function, value) for value in self.root.operands[:3])
        self.pages = Pages(self) if self.root.name == "attention_paged" else None
        self.mask = None if self.pages else self._find_mask()
        self.out = self._find_result()
        self.d, self.e = known_dims((self.q.shape[-1], self.v.shape[-1]))

    def _find_mask(self) -> View | None:
        if len(self.root.operands) < 4:
            return None
        return view_of(self.function, self.root.operands[3])

    def _find_result(self) -> View:
        """Strides of the root's dims in the result, which may be its transpose."""
        chain: list[Op] = []
        value = self.function.block.terminator.operands[0]
        while value is not self.root.result:
            op = defined_by(value, "transpose", "reshape")
            if op is None:
                raise ValueError(f"attention entry @{self.function.name} ends with {value}")
            chain.append(op)
            value = op.operands[0]
        transposes = [op for op in chain if op.name == "transpose"]
        if not transposes:
            return View(0, 0, tensor_type(value).shape, row_major_strides(tensor_type(value).shape))
        if len(transposes) > 1 or chain[-1] is not transposes[0]:
            raise ValueError(f"attention entry @{self.function.name} rearranges its result twice")
        last = transposes[0]
        order = Transpose.of(last).permutation
        outer = row_major_strides(tensor_type(last.result).shape)
        strides: list[Dim] = [0] * len(order)
        for place, axis in enumerate(order):
            strides[axis] = outer[place]
        return View(0, 0, tensor_type(value).shape, tuple(strides))

    def base(self, view: View) -> Index:
        """Element offset of this workgroup's batch item."""
        b = self.b
        batch = self.q.shape[:-2]
        offset = b.dim(view.offset)
        strides = view.strides[:-2]
        missing = len(batch) - len(strides)
        for axis in range(missing, len(batch)):
            size = view.shape[axis - missing]
            if size == 1 and batch[axis] != 1:
                continue
            index = b.div(b.workgroup(1), b.dim(product(batch[axis + 1 :])))
            if axis:
                index = b.rem(index, b.dim(batch[axis]))
            if size != batch[axis]:  # neighbours share one
                index = b.div(index, b.dim(floordiv(batch[axis], size)))
            offset = b.add(offset, b.mul(index, b.dim(strides[axis - missing])))
        return offset

    def rows(self, view: View, key: Index) -> Index:
        """Element offset of the row of key number `key` in the keys or values, behind which lie
        those of the keys up to the end of its page."""
        if self.pages:
            return self.pages.rows(view, key)
        return self.b.add(self.base(view), self.b.mul(key, self.b.dim(view.strides[-2])))

    def blocks(
        self, first: Index, end: Index, length: int, carried: Sequence[Value], body: _Body
    ) -> list[Value]:
        """`body(key, count, carried)` over the keys from `first` on up to `end` in blocks of
        `length` at most, none of which is in two pages."""
        b = self.b

        def walk(first: Index, end: Index, carried: Sequence[Value]) -> list[Value]:
            with b.for_(first, end, length, carried) as loop:
                count = b.min(b.sub(end, loop.index), length)
                loop.yield_(*body(loop.index, count, loop.carried))
            return loop.results

        if not self.pages or self.pages.is_one:
            return walk(first, end, carried)
        page = known_dim(self.pages.length)
        with b.for_(b.div(first, page), b.div(b.add(end, page - 1), page), 1, carried) as loop:
            key = b.mul(loop.index, page)
            low, high = b.max(key, first), b.min(b.add(key, page), end)
            if page <= length:
                loop.yield_(*body(low, b.sub(high, low), loop.carried))
            else:
                loop.yield_(*walk(low, high, loop.carried))
        return loop.results

    def seen(self, first: Index, count: Index) -> tuple[Index, Index]:
        """The keys that some of queries [first, first + count) see: from the first on up to the
        second."""
        if self.pages:
            return self.pages.seen(first, count)
        return 0, self.b.dim(self.k.shape[-2])

    def capped(self, score: Value) -> Value:
        """cap * tanh(score / cap), where there is a cap."""
        cap = self.pages.cap if self.pages else 0.0
        if not cap:
            return score
        lanes, b = lanes_of(score), self.b
        share = b.op("tanh", b.op("mul", score, b.constant(1 / cap, F32, lanes)))
        return b.op("mul", share, b.constant(cap, F32, lanes))

    def start(self, sink: Value | None, lanes: int = 1) -> tuple[Value, Value]:
        """The greatest score, and the sum of weights, in front of the first key."""
        b = self.b
        lowest, zero = b.constant(-math.inf, F32, lanes), b.constant(0.0, F32, lanes)
        if sink is None:
            return lowest, zero
        sink = b.broadcast(sink, lanes) if lanes_of(sink) != lanes else sink
        is_none = b.op("compare", sink, lowest, direction="eq")
        return sink, b.op("select", is_none, zero, b.constant(1.0, F32, lanes))

    def share(self, sum: Value, total: Value) -> Value:
        """What weights of this total make of a sum; 0 where there are no keys."""
        b, lanes = self.b, lanes_of(total)
        attributes = self.root.attributes
        if self.pages or (isinstance(attributes, Attention) and attributes.empty):
            none = b.op("compare", total, b.constant(0.0, F32, lanes), direction="eq")
            total = b.op("select", none, b.constant(1.0, F32, lanes), total)
        return b.op("div", sum, total)

    def binding(self, view: View, operand: int) -> Value:
        """The memory of a view that is operand number `operand` of the op."""
        type = tensor_type(self.root.operands[operand])
        return self.b.binding(view.argument, type.dtype)

    def load(self, view: View, operand: int, at: Index) -> Value:
        """The element at `at` of an operand, as f32."""
        return self.b.convert(self.b.load(self.binding(view, operand), at), F32)

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        attributes = self.root.attributes
        assert isinstance(attributes, (Attention, AttentionPaged))
        return float(attributes.scale)

    def result(self) -> tuple[Value, DType]:
        """The memory of the result, and what it holds."""
        type = tensor_type(self.function.block.terminator.operands[0])
        return self.b.binding(len(self.function.arguments), type.dtype), type.dtype

    def kernel(
        self,
        tile: tuple[int, int, int],
        schedule: object,
        scratch_length: int = 0,
        local_size: tuple[int, int, int] = (1, 1, 1),
        local_length: int = 0,
    ) -> Kernel:
        """The finished kernel."""
        m = self.q.shape[-2]
        n = self.pages.keys if self.pages else self.k.shape[-2]
        batch = product(self.q.shape[:-2])
        return kernel_of(
            self.function, self.b, None, set(), (m, batch, 1), tile,
            batch * m * n * 2 * (self.d + self.e), schedule,
            scratch_length, local_size, local_length,
        )  # fmt: skip


def weight_of(b: LoopBuilder, score: Value, shift: Value) -> Value:
    """e^(score - shift), of scores up to `shift`; 0 where it would be subnormal. Beside the 1 of
    the greatest that is lost, and some processors take 300 cycles for what meets such a number."""
    value = b.op("sub", score, shift)
    least = b.constant(_LEAST, F32, lanes_of(value))
    is_lost = b.op("compare", value, least, direction="lt")
    lowest = b.constant(-math.inf, F32, lanes_of(value))
    return b.part("loop.exp_nonpositive", b.op("select", is_lost, lowest, value))
