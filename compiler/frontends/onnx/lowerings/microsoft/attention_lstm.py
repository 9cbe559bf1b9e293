"""AttnLSTM: an LSTM whose cell also reads what its last output attended to in a memory.

The scores of a step are those of Bahdanau: V tanh(memory MW + h QW), of the rows that the batch
entry's memory has. What is attended to, or AW of (h, it), is read beside the next step's input.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.recurrent import (
    LSTM,
    Activation,
    LstmCell,
    Recurrence,
    activations_of,
    direction_of,
    product,
)
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("AttnLSTM", domain=MICROSOFT)
def attention_lstm(node: Node) -> tuple[Value | None, ...]:
    w, width = node.input(1), shape_of(node.input(0))[2]
    op = Recurrence(node.with_input(1, node.sliced(w, 2, 0, width)), 4)
    functions = activations_of(node, 3 * len(op.backward), LSTM)
    outputs, ends = [], []
    for number in range(len(op.backward)):
        cell = _AttentionCell(node, op, number, functions[3 * number : 3 * number + 3])
        state = [op.initial(5, number), op.initial(6, number), cell.nothing]
        output, end = op.run(number, cell.gates, state, cell.step)
        outputs.append(output)
        ends.append(end[:2])
    return op.results(outputs, ends)


class _AttentionCell(LstmCell):
    """One direction."""

    def __init__(
        self, node: Node, op: Recurrence, number: int, functions: Sequence[Activation]
    ) -> None:
        super().__init__(node, op, number, functions)
        batch, width = op.sizes.batch, shape_of(op.x)[2]
        w = node.input(1)
        self.read_weight = direction_of(node, node.sliced(w, 2, width, shape_of(w)[2]), number)
        self.query_weight, memory_weight, self.vector = (
            direction_of(node, node.input(place), number) for place in (8, 9, 10)
        )
        self.memory = node.agree_on(node.input(11), 0, batch)
        layer = node.optional(13)
        self.layer = None if layer is None else direction_of(node, layer, number)
        self.bound = self._bound(node)
        self.keys = _matrix_product(node, self.memory, memory_weight)
        kept = shape_of(self.memory if self.layer is None else self.layer)[-1]
        self.nothing = node.full(0, type_of(op.x).dtype, (batch, kept))

    def _bound(self, node: Node) -> Value | None:
        """What a score [batch, rows] is at most: nothing in rows that a memory lacks."""
        lengths, shape = node.optional(12), shape_of(self.memory)[:2]
        if lengths is None:
            return None
        lengths = node.op("broadcast", node.agree(lengths, shape[:1]), shape=shape, dimensions=(0,))
        rows = node.op("iota", dtype=type_of(lengths).dtype, shape=shape, axis=1)
        has = node.compare("lt", rows, lengths)
        infinite = node.full(float("inf"), type_of(self.memory).dtype, shape)
        return node.op("select", has, infinite, node.op("neg", infinite))

    def step(self, inner: Node, row: Value, state: Sequence[Value]) -> list[Value]:
        h, c, read = state
        row = inner.op("add", row, product(inner, read, self.read_weight))
        h, c = super().step(inner, row, (h, c))
        query = _matrix_product(inner, h, self.query_weight)
        query = inner.op("broadcast", query, shape=shape_of(self.keys), dimensions=(0, 2))
        features = inner.op("tanh", inner.op("add", self.keys, query))
        scores = _matrix_product(inner, features, self.vector)
        if self.bound is not None:
            scores = inner.op("min", scores, self.bound)
        shares = lower_as(inner, "Softmax", [scores], {"axis": 1})
        read = inner.op(
            "dot_general", shares, self.memory,
            lhs_batch=(0,), rhs_batch=(0,), lhs_contract=(1,), rhs_contract=(1,),
        )  # fmt: skip
        if self.layer is not None:
            joined = inner.op("concatenate", h, read, axis=1)
            read = _matrix_product(inner, joined, self.layer)
        return [h, c, read]


def _matrix_product(node: Node, x: Value, w: Value) -> Value:
    """x[..., k] w[k, n], or w[k]."""
    last = type_of(x).rank - 1
    return node.op("dot_general", x, w, lhs_contract=(last,), rhs_contract=(0,))
