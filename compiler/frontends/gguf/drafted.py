"""Which of drafted tokens stay: those that the model would choose itself."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.gguf.sampling import Options, choose
from ingot.compiler.frontends.gguf.seen import seen
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import while_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import dtype

__all__ = ["Drafted"]


@dataclass(frozen=True)
class Drafted:
    """Tokens ids i32[s] with the logits behind each, f32[s, vocabulary], of which `count` from
    number `start` on, both i64[], are drafted for a text of `length` tokens, i64[], whose next one
    has the logits `following`; `first`: where each token first stands in it, with the drafted."""

    ids: Value
    logits: Value
    start: Value
    count: Value
    length: Value
    following: Value
    first: Value

    def kept(self, b: Builder, options: Options) -> tuple[Value, Value, Value]:
        """How many of them stay, i64[], the token that the model chooses behind these, i32[], and
        the logits that it chooses by."""
        shape = tensor_type(self.following).shape

        def step(inner: Builder, values: Sequence[Value]) -> Sequence[Value]:
            kept, _, _, logits = values
            place = inner.value("add", self.length, kept)
            id = choose(inner, logits, seen(inner, self.first, place), options, place)
            number = inner.value("add", self.start, kept)
            drafted = inner.value("dynamic_slice", self.ids, number, sizes=(1,))
            drafted = inner.value("reshape", drafted, shape=())
            more = inner.value("compare", kept, self.count, direction="lt")
            same = inner.value("and", more, inner.value("compare", id, drafted, direction="eq"))
            zero = inner.constant(0, "i64")
            row = inner.value("dynamic_slice", self.logits, number, zero, sizes=(1, *shape))
            row = inner.value("reshape", row, shape=shape)
            logits = inner.value("select", inner.broadcast_to(same, shape), row, logits)
            kept = inner.value("add", kept, inner.value("convert", same, dtype=dtype("i64")))
            return [kept, same, id, logits]

        start = [b.constant(0, "i64"), b.constant(True, "i1"), b.constant(0, "i32"), self.following]
        kept, _, id, logits = while_loop(b, start, lambda inner, values: values[1], step)
        return kept, id, logits
