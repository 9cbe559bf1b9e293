"""Several versions of a token's numbers that go through all layers (AltUp, of Gemma 3n): a layer
predicts all of them by mixing them, computes the first one, and corrects the others by how far its
prediction was off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.layer_inputs import LayerInputs
from ingot.compiler.frontends.gguf.pieces import over_rows, part, times
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["Streams"]

F32 = dtype("f32")
_LEAST = 1e-5  # of the mean square of a version
Norm = Callable[[Value, str], Value]
Versions = Sequence[Value]


class Streams:
    """Versions [count, width] each. `norm` is that of the network."""

    def __init__(self, c: Configuration, weights: Weights, norm: Norm) -> None:
        self.c, self.weights, self.b, self.norm = c, weights, weights.builder, norm

    def of(self, x: Value) -> Versions:
        """x itself, and products of it that are as long."""
        others = self._products([x] * (self.c.streams - 1), "altup_proj")
        return [x, *(self._as_long(each, x) for each in others)]

    def joined(self, versions: Versions) -> Value:
        """The mean of the first version and products of the others, which are made as long."""
        first, *others = versions
        total = first
        for each in self._products(others, "altup_unembd_proj"):
            total = self.b.value("add", total, self._as_long(each, first))
        return times(total, 1 / self.c.streams, self.b)

    def predicted(self, versions: Versions, layer: int) -> Versions:
        """All versions, and what a layer expects to be added to them."""
        n = self.c.streams
        mixed = self._shares(versions[0], layer)
        factors = self.weights.linear(mixed, f"blk.{layer}.altup_predict_coef", n * n)
        made = []
        for i, x in enumerate(versions):
            for j, other in enumerate(versions):
                x = self.b.value("add", x, self._times_column(other, factors, i * n + j))
            made.append(x)
        return made

    def corrected(
        self, predicted: Versions, made: Value, layer: int, inputs: LayerInputs
    ) -> Versions:
        """The predicted versions with what the first one, which became `made`, was off."""
        b, name, shape = self.b, f"blk.{layer}", tensor_type(made).shape
        off = b.value("sub", made, predicted[0])
        mixed = self._shares(made, layer)
        factors = self.weights.linear(mixed, f"{name}.altup_correct_coef", self.c.streams)
        factors = b.value("add", factors, b.full(1.0, F32, tensor_type(factors).shape))
        first, *others = [
            b.value("add", each, self._times_column(off, factors, place))
            for place, each in enumerate(predicted)
        ]
        scale = self.weights.vector(f"{name}.altup_correct_scale.weight", self.c.width)
        added = inputs.made(b.value("mul", first, b.broadcast_to(scale, shape)), layer)
        return [first, *(b.value("add", each, added) for each in others)]

    def _shares(self, x: Value, layer: int) -> Value:
        """By which the versions are mixed, [count, versions]."""
        name = f"blk.{layer}.altup_router"
        x = times(self.norm(x, f"{name}_norm"), 1 / self.c.width, self.b)
        return self.b.value("tanh", self.weights.linear(x, name, self.c.streams))

    def _times_column(self, x: Value, factors: Value, column: int) -> Value:
        (count, _), b = tensor_type(factors).shape, self.b
        own = b.value("reshape", part(factors, 1, column, column + 1, b), shape=(count,))
        return over_rows("mul", x, own, b)

    def _products(self, versions: Versions, name: str) -> Versions:
        """Of each version that of a weight of its own; files have these in one tensor or each."""
        b, width, count = self.b, self.c.width, len(versions)
        if f"{name}.0.weight" in self.weights:
            numbered = enumerate(versions)
            return [self.weights.linear(x, f"{name}.{i}", width) for i, x in numbered]
        stack = self.weights.stack(name, (count, width, width))
        made = []
        for place, x in enumerate(versions):
            own = b.value("reshape", part(stack, 0, place, place + 1, b), shape=(width, width))
            made.append(b.value("dot_general", x, own, lhs_contract=(1,), rhs_contract=(1,)))
        return made

    def _as_long(self, x: Value, other: Value) -> Value:
        """x with the mean squares of the other's rows."""
        b = self.b
        own, wanted = (self._square(each) for each in (x, other))
        own = b.value("max", own, b.full(_LEAST, F32, tensor_type(own).shape))
        factor = b.value("mul", b.value("sqrt", wanted), b.value("rsqrt", own))
        return over_rows("mul", x, factor, b)

    def _square(self, x: Value) -> Value:
        """The mean of each row's squares."""
        total = self.b.value("reduce", self.b.value("mul", x, x), axes=(1,), kind="add")
        return times(total, 1 / self.c.width, self.b)
