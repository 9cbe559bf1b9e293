"""What a node of generation asks for: its inputs by name, its limits, and its tokens of their own
meaning."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.node import Node, shape_of
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = ["Request", "appended"]


class Request:
    """The inputs of `node` in the order of `names`; tokens and prompts are i32[batch, prompt]."""

    def __init__(self, node: Node, names: Sequence[str]) -> None:
        self.node = node
        self._names = names
        self.eos = node.integer("eos_token_id", -1)
        self.pad = node.integer("pad_token_id", 0)
        self.model_type = node.integer("model_type", 0)
        self.length: Dim = 0  # of all texts at the end

    def optional(self, name: str) -> Value | None:
        """The input of this name, None if it was left out or the op has none."""
        return self.node.optional(self._names.index(name)) if name in self._names else None

    def scalar(self, name: str, element: str) -> Value | None:
        """As `optional`, of one element: rank 0."""
        value = self.optional(name)
        return None if value is None else self.node.convert(self.node.reshape(value, ()), element)

    def size(self, name: str, default: Dim, low: Dim, high: Dim | None = None) -> Dim:
        """As `scalar`, as a dim from `low` to `high`, which the call checks."""
        value = self.scalar(name, "i64")
        if value is None:
            return default
        known = self.node.known_element(value)
        if known is None:
            return self.node.define_size(value, name, name, low, high)
        for a, b in ((low, known), (known, high)):
            if b is not None and dims.bounds(b - a)[0] < 0:
                self.node.builder.append("assert", (), (), {"kind": "le", "a": a, "b": b})
        return known

    def limit(self, prompt: Value) -> None:
        """All texts become max_length long, which is more than the prompt."""
        start = shape_of(prompt)[1]
        self.length = self.size("max_length", 4096, start + 1)

    def filled(self, node: Node, tokens: Value) -> Value:
        """[..., n] as [..., max_length], with padding tokens behind."""
        *outer, length = shape_of(tokens)
        none = (0,) * len(outer)
        return node.padded(tokens, (*none, 0), (*none, self.length - length), self.pad)


def appended(node: Node, tokens: Value, chosen: Value) -> Value:
    """Texts [rows, n] with one token more, [rows]."""
    column = node.reshape(chosen, (shape_of(tokens)[0], 1))
    return node.op("concatenate", tokens, column, axis=1)
