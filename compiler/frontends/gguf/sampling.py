"""Choosing the next token inside of a module: the most likely one, or one by chance.

By chance: logits of tokens that were there before are made smaller by `repetition_penalty`, all
are divided by `temperature`, and of the tokens only the `top_k` most likely ones stay (0: all), of
these the most likely ones that make up `top_p` of the probability, and of these those at least
`min_p` times as likely as the first. Tokens of one probability stay or go together. What `seed`
and the place in the text give is the same on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from ingot.compiler.frontends.random_numbers import halves, threefry
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import branches, counted_loop
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import dtype

__all__ = ["OPTION_TYPES", "Options", "choose"]

F32, I32, I64 = dtype("f32"), dtype("i32"), dtype("i64")

_HALVINGS = 32
"""How often the range in which a bound lies is halved: to 2^-32 of the greatest probability."""


@dataclass(frozen=True)
class Options:
    """Arguments of rank 0."""

    temperature: Value  # f32; 0: the most likely token
    top_k: Value  # i32
    top_p: Value  # f32
    min_p: Value  # f32
    repetition_penalty: Value  # f32
    seed: Value  # i64


OPTION_TYPES = {
    each.name: TensorType({"top_k": I32, "seed": I64}.get(each.name, F32))
    for each in fields(Options)
}
"""Their types, in order."""


def choose(builder: Builder, logits: Value, seen: Value, options: Options, place: Value) -> Value:
    """The next token, i32[]. logits: f32[vocabulary]; seen: i1[vocabulary], the tokens that are
    penalized; place: i64[], where the token will stand."""
    return _Choice(builder, options).token(logits, seen, place)


class _Choice:
    def __init__(self, builder: Builder, options: Options) -> None:
        self.b, self.options = builder, options

    def token(self, logits: Value, seen: Value, place: Value) -> Value:
        b, shape = self.b, tensor_type(logits).shape
        penalty = b.broadcast_to(self.options.repetition_penalty, shape)
        is_positive = self._compare(logits, b.full(0.0, F32, shape), "gt")
        less = b.value(
            "select",
            is_positive,
            b.value("div", logits, penalty),
            b.value("mul", logits, penalty),
        )
        logits = b.value("select", seen, less, logits)
        drawn = self._compare(self.options.temperature, b.constant(0.0, "f32"), "gt")
        builds = [
            lambda inner: [_Choice(inner, self.options).drawn(logits, place)],
            lambda inner: [inner.value("arg_max", logits, axis=0, dtype=I32)],
        ]
        return branches(b, "if", drawn, builds, iter(()))[0]

    def drawn(self, logits: Value, place: Value) -> Value:
        """A token by chance."""
        b, shape = self.b, tensor_type(logits).shape
        (count,) = shape
        best = b.broadcast_to(self._reduced(logits, "max"), shape)
        heat = b.broadcast_to(self.options.temperature, shape)
        weights = b.value("exp", b.value("div", b.value("sub", logits, best), heat))
        weights = self._most_likely(weights)
        weights = self._nucleus(weights)
        weights = self._kept(weights, self.options.min_p)
        sums = b.value("cumulative", weights, axis=0, kind="add")
        total = b.value("slice", sums, start=(count - 1,), limit=(count,))
        total = b.value("reshape", total, shape=())
        share = b.broadcast_to(b.value("mul", self._uniform(place), total), shape)
        before = b.value("convert", self._compare(sums, share, "le"), dtype=I32)
        last = b.number(count - 1, I32)
        return b.value("min", self._reduced(before, "add"), last)

    def _most_likely(self, weights: Value) -> Value:
        """The weights of the `top_k` greatest ones, zeros for the others."""
        b, wanted = self.b, self.options.top_k
        is_on = self._compare(wanted, b.constant(0, "i32"), "gt")

        def is_enough(inner: _Choice, bound: Value) -> Value:
            kept = inner._compare(weights, bound, "ge")
            count = inner._reduced(inner.b.value("convert", kept, dtype=I32), "add")
            return inner._compare(count, wanted, "ge")

        return self._kept(weights, self._bound(is_on, is_enough))

    def _nucleus(self, weights: Value) -> Value:
        """The greatest weights that make up `top_p` of their sum, zeros for the others."""
        b, share = self.b, self.options.top_p
        is_on = self._compare(share, b.constant(1.0, "f32"), "lt")
        wanted = b.value("mul", share, self._reduced(weights, "add"))

        def is_enough(inner: _Choice, bound: Value) -> Value:
            return inner._compare(inner._reduced(inner._kept(weights, bound), "add"), wanted, "ge")

        return self._kept(weights, self._bound(is_on, is_enough))

    def _bound(self, is_on: Value, is_enough: Callable[[_Choice, Value], Value]) -> Value:
        """The greatest number in 0 ... 1 that is enough as a lower bound; 0 where it is not on."""
        b = self.b
        steps = b.value("select", is_on, b.constant(_HALVINGS, "i64"), b.constant(0, "i64"))

        def halve(inner: Builder, _: Value, carried: Sequence[Value]) -> Sequence[Value]:
            low, high = carried
            middle = inner.value("add", low, high)
            middle = inner.value("mul", middle, inner.constant(0.5, "f32"))
            choice = _Choice(inner, self.options)
            enough = is_enough(choice, middle)
            return [
                inner.value("select", enough, middle, low),
                inner.value("select", enough, high, middle),
            ]

        start = [b.constant(0.0, "f32"), b.constant(1.0, "f32")]
        return counted_loop(b, steps, start, halve)[0]

    def _kept(self, weights: Value, bound: Value) -> Value:
        """The weights, zeros for those below the bound."""
        shape = tensor_type(weights).shape
        return self.b.value(
            "select", self._compare(weights, bound, "ge"), weights, self.b.full(0.0, F32, shape)
        )

    def _compare(self, x: Value, y: Value, direction: str) -> Value:
        y = self.b.broadcast_to(y, tensor_type(x).shape)
        return self.b.value("compare", x, y, direction=direction)

    def _reduced(self, x: Value, kind: str) -> Value:
        return self.b.value("reduce", x, axes=(0,), kind=kind)

    def _uniform(self, place: Value) -> Value:
        """A multiple of 2^-23 in [0, 1), by the seed and the place."""
        b, u64 = self.b, dtype("u64")
        key, counter = (
            halves(b, b.value("bitcast", each, dtype=u64)) for each in (self.options.seed, place)
        )
        word, _ = threefry(b, key, counter)
        word = b.value("shift_right_logical", word, b.constant(9, "u32"))
        return b.value("mul", b.value("convert", word, dtype=F32), b.constant(2.0**-23, "f32"))
