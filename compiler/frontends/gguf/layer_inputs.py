"""What a token brings for each layer beside its embedding: rows of a second table, and a product of
the embedding itself."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.gguf.configuration import Configuration
from ingot.compiler.frontends.gguf.feed_forward import active
from ingot.compiler.frontends.gguf.pieces import part, times
from ingot.compiler.frontends.gguf.weights import Weights
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value

__all__ = ["LayerInputs"]

Norm = Callable[[Value, str], Value]


class LayerInputs:
    """Those of ids i32[count] with embeddings x[count, width]. `norm` is that of the network."""

    def __init__(
        self, c: Configuration, weights: Weights, norm: Norm, ids: Value, x: Value
    ) -> None:
        self.c, self.weights, self.b, self.norm = c, weights, weights.builder, norm
        (count, _), length = tensor_type(x).shape, c.layer_input
        b, all = self.b, c.layers * length
        rows = times(weights.rows_of("per_layer_token_embd.weight", ids, all), length**0.5, b)
        own = times(weights.linear(x, "per_layer_model_proj", all), c.width**-0.5, b)
        own = b.value("reshape", own, shape=(count, c.layers, length))
        own = norm(own, "per_layer_proj_norm")
        rows = b.value("reshape", rows, shape=(count, c.layers, length))
        self.all = times(b.value("add", own, rows), 0.5**0.5, b)  # [count, layers, length]

    def made(self, x: Value, layer: int) -> Value:
        """What a layer adds, [count, width]: its input, gated by x[count, width]."""
        c, b, name, (count, _) = self.c, self.b, f"blk.{layer}", tensor_type(x).shape
        gate = self.weights.linear(x, f"{name}.inp_gate", c.layer_input)
        own = part(self.all, 1, layer, layer + 1, b)
        own = b.value("reshape", own, shape=(count, c.layer_input))
        y = b.value("mul", active(gate, c.architecture.activation, b), own)
        return self.norm(self.weights.linear(y, f"{name}.proj", c.width), f"{name}.post_norm")
