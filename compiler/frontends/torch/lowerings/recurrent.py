"""LSTM, GRU and plain recurrent layers: a loop over the steps for each layer and direction.

What depends on the input only is computed for all steps in front of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.torch.lowering import TRAINING, Context, lowering
from ingot.compiler.frontends.torch.lowerings.contractions import linear
from ingot.compiler.frontends.torch.lowerings.control import over_rows
from ingot.compiler.frontends.torch.lowerings.shapes import concatenate
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import TensorType, Value

__all__: list[str] = []

Cell = Callable[[Context, Value, Value, Sequence[Value]], list[Value]]
"""(what the gates have of the input, and of the state, the state) to the next state, whose first
value is the output."""


def _gates(c: Context, x: Value, count: int) -> list[Value]:
    size, axis = shape_of(x)[-1] // count, type_of(x).rank - 1
    return [c.sliced(x, axis, place * size, (place + 1) * size) for place in range(count)]


def _lstm_cell(c: Context, x: Value, h: Value, state: Sequence[Value]) -> list[Value]:
    taken, kept, new, shown = _gates(c, c.op("add", x, h), 4)
    added = c.op("mul", c.op("logistic", taken), c.op("tanh", new))
    cell = c.op("add", c.op("mul", c.op("logistic", kept), state[1]), added)
    return [c.op("mul", c.op("logistic", shown), c.op("tanh", cell)), cell]


def _gru_cell(c: Context, x: Value, h: Value, state: Sequence[Value]) -> list[Value]:
    ours, theirs = _gates(c, x, 3), _gates(c, h, 3)
    reset, kept = (c.op("logistic", c.op("add", ours[at], theirs[at])) for at in (0, 1))
    new = c.op("tanh", c.op("add", ours[2], c.op("mul", reset, theirs[2])))
    return [c.op("add", c.op("mul", c.op("sub", state[0], new), kept), new)]


def _tanh_cell(c: Context, x: Value, h: Value, state: Sequence[Value]) -> list[Value]:
    return [c.op("tanh", c.op("add", x, h))]


def _relu_cell(c: Context, x: Value, h: Value, state: Sequence[Value]) -> list[Value]:
    both = c.op("add", x, h)
    return [c.op("max", both, 0)]


def _register(name: str, cell: Cell) -> None:
    @lowering(f"aten.{name}.input")
    def recurrent(
        c: Context, x: Value, states: Value | Sequence[Value], weights: Sequence[Value],
        has_biases: bool, layers: int, dropout: float, train: bool, both: bool, batch_first: bool,
    ) -> list[Value]:  # fmt: skip
        if train and dropout and layers > 1:
            raise UnsupportedNode(TRAINING)
        states = [states] if isinstance(states, Value) else states
        return _layers(c, cell, x, states, weights, has_biases, layers, both, batch_first)


_register("gru", _gru_cell)
_register("lstm", _lstm_cell)
_register("rnn_relu", _relu_cell)
_register("rnn_tanh", _tanh_cell)


def _layers(
    c: Context, cell: Cell, x: Value, states: Sequence[Value], weights: Sequence[Value],
    has_biases: bool, layers: int, both: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """The outputs of the last layer, and the last states of all."""
    x = c.transpose(x, (1, 0, 2)) if batch_first else x
    directions = 2 if both else 1
    count = len(weights) // (layers * directions)
    ends: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        outputs = []
        for is_backward in range(directions):
            at = layer * directions + is_backward
            begin = [
                c.reshape(c.sliced(each, 0, at, at + 1), shape_of(each)[1:]) for each in states
            ]
            own = weights[at * count : (at + 1) * count]
            output, last = _run(c, cell, x, begin, own, has_biases, bool(is_backward))
            outputs.append(output)
            for place, each in zip(ends, last, strict=True):
                place.append(c.reshape(each, (1, *shape_of(each))))
        x = concatenate(c, outputs, 2)
    x = c.transpose(x, (1, 0, 2)) if batch_first else x
    return [x, *(concatenate(c, each) for each in ends)]


def _run(
    c: Context, cell: Cell, x: Value, begin: Sequence[Value], weights: Sequence[Value],
    has_biases: bool, is_backward: bool,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """The outputs [steps, batch, hidden] of one direction, and its last state; behind weights and
    biases may stand the weight of a projection."""
    of_input, of_state, *others = weights
    bias, state_bias = others[:2] if has_biases else (None, None)
    projection = others[2 if has_biases else 0 :]
    gates = linear(c, x, of_input, bias)
    gates = c.op("reverse", gates, axes=(0,)) if is_backward else gates
    steps, batch = shape_of(x)[:2]
    state = [c.agreed(each, (batch, shape_of(each)[1])) for each in begin]

    def step(builder: Builder, _: Value, values: Sequence[Value], row: list[Value]) -> list[Value]:
        inner = c.within(builder)
        following = cell(inner, row[0], linear(inner, values[0], of_state, state_bias), values)
        if projection:
            following[0] = linear(inner, following[0], projection[0])
        return [*following, following[0]]

    made = TensorType(type_of(x).dtype, (steps, *shape_of(state[0])))
    *last, output = over_rows(c, state, [gates], [made.shape], [made], step)
    return c.op("reverse", output, axes=(0,)) if is_backward else output, last
