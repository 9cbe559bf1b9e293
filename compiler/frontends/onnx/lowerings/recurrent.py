"""RNN, GRU and LSTM: one loop per direction over the steps of a sequence.

What depends on the input only, x w + b for all steps at once, is computed in front of the
loop; a step contracts the state with its weights once and does the rest element by element.
A backward direction walks the steps from the last to the first. A batch entry that is
shorter than others keeps its state in the steps that it does not have, whose outputs are 0;
so a backward one starts at its own end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.frontends.activations import elu, leaky_relu, softplus, softsign
from ingot.compiler.frontends.onnx.lowerings.activations import sloped_sigmoid
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim

__all__ = [
    "LSTM",
    "Activation",
    "LstmCell",
    "Recurrence",
    "activations_of",
    "direction_of",
    "product",
]

LSTM = ("Sigmoid", "Tanh", "Tanh")
"""The activations of a cell that names none."""

Activation = Callable[[Node, Value], Value]
Step = Callable[[Node, Value, "Sequence[Value]"], "list[Value]"]
"""(gates of the input, state) to the next state, whose first value is the output."""

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


# Activations. `alpha` and `beta` are used up in the order of the functions that take them.


def _affine(node: Node, x: Value, alpha: float, beta: float) -> Value:
    return node.op("add", node.op("mul", x, alpha), beta)


def _scaled_tanh(node: Node, x: Value, alpha: float, beta: float) -> Value:
    return node.op("mul", node.op("tanh", node.op("mul", x, beta)), alpha)


def _thresholded_relu(node: Node, x: Value, alpha: float) -> Value:
    return node.op("select", node.compare("ge", x, alpha), x, 0)


_FUNCTIONS: dict[str, tuple[Callable[..., Value], tuple[float, ...]]] = {
    "relu": (lambda node, x: node.op("max", x, 0), ()),
    "tanh": (lambda node, x: node.op("tanh", x), ()),
    "sigmoid": (lambda node, x: node.op("logistic", x), ()),
    "softsign": (softsign, ()),
    "softplus": (softplus, ()),
    "leakyrelu": (leaky_relu, (0.01,)),
    "thresholdedrelu": (_thresholded_relu, (1.0,)),
    "elu": (elu, (1.0,)),
    "hardsigmoid": (sloped_sigmoid, (0.2, 0.5)),
    "scaledtanh": (_scaled_tanh, (1.0, 1.0)),
    "affine": (_affine, (1.0, 0.0)),
}
"""Each function, and the values of `alpha` and `beta` that it takes where none are given."""


def activations_of(node: Node, count: int, default: Sequence[str]) -> list[Activation]:
    """The functions of all directions in order, those of gates with their input clipped.

    The one behind the cell of an LSTM, its third, is no gate: engines do not clip it.
    """
    names = node.texts("activations") or [*default] * (count // len(default))
    unsupported(len(names) != count, f"it names {len(names)} activations, but needs {count}")
    alphas, betas = (
        iter(node.numbers("activation_alpha") or ()),
        iter(node.numbers("activation_beta") or ()),
    )
    bound = node.number("clip", 0.0)
    unsupported(bound < 0, f"its clip is {bound}, expected 0 or more")
    made: list[Activation] = []
    for place, name in enumerate(names):
        key = name.lower()
        if key not in _FUNCTIONS:
            known = ", ".join(sorted(_FUNCTIONS))
            raise UnsupportedNode(f"its activation '{name}' is not known; known are: {known}")
        function, defaults = _FUNCTIONS[key]
        given = [
            next(left, default) for left, default in zip((alphas, betas), defaults, strict=False)
        ]
        is_gate = len(default) < 3 or place % 3 != 2
        clipped = node.has("clip") and is_gate
        made.append(_activation(function, given, bound if clipped else None))
    return made


def _activation(
    function: Callable[..., Value], numbers: Sequence[float], bound: float | None
) -> Activation:
    def apply(node: Node, x: Value) -> Value:
        if bound is not None:
            x = node.op("clamp", -bound, x, bound)
        return function(node, x, *numbers)

    return apply


# What the three ops share.


@dataclass(frozen=True)
class _Sizes:
    steps: Dim
    batch: Dim
    hidden: Dim


def direction_of(node: Node, x: Value, number: int, axis: int = 0) -> Value:
    """What x holds for one direction, without that axis."""
    shape = shape_of(x)
    part = node.sliced(x, axis, number, number + 1)
    return node.reshape(part, (*shape[:axis], *shape[axis + 1 :]))


def product(node: Node, x: Value, w: Value) -> Value:
    """x[..., k] w[n, k]."""
    last = type_of(x).rank - 1
    return node.op("dot_general", x, w, lhs_contract=(last,), rhs_contract=(1,))


def _plus_row(node: Node, x: Value, row: Value) -> Value:
    return node.op("add", x, node.broadcast_to(row, shape_of(x)))


def _gates(node: Node, x: Value, count: int, hidden: Dim) -> list[Value]:
    """The parts of the last axis, `hidden` elements each."""
    last = type_of(x).rank - 1
    return [node.sliced(x, last, hidden * at, hidden * (at + 1)) for at in range(count)]


class Recurrence:
    """The operands of one node and the loop over its steps."""

    def __init__(self, node: Node, gate_count: int) -> None:
        self.node = node
        self.batch_first = node.integer("layout", 0) == 1
        direction = node.text("direction", "forward")
        if direction not in _DIRECTIONS:
            known = ", ".join(_DIRECTIONS)
            raise UnsupportedNode(f"its direction '{direction}' is none of {known}")
        self.backward = _DIRECTIONS[direction]
        x, w, r = (node.input(place) for place in range(3))
        self.x = node.transpose(x, (1, 0, 2)) if self.batch_first else x
        hidden = shape_of(r)[2]
        steps, batch, width = shape_of(self.x)
        self.sizes = _Sizes(steps, batch, hidden)
        wanted = (len(self.backward), hidden * gate_count)
        differ = any(
            isinstance(own, int) and isinstance(dim, int) and own != dim
            for each in (w, r)
            for own, dim in zip(shape_of(each), wanted, strict=False)
        )
        unsupported(
            differ, f"its weights {type_of(w)} and {type_of(r)} must start with {list(wanted)}"
        )
        self.w, self.r = node.agree(w, (*wanted, width)), node.agree(r, (*wanted, hidden))
        self.gate_count = gate_count
        lengths = node.optional(4)
        self.lengths = None if lengths is None else node.agree(lengths, (batch,))

    def bias(self, number: int) -> tuple[Value, Value]:
        """The biases of the input and of the state of a direction."""
        both = self.node.optional(3)
        count = self.sizes.hidden * self.gate_count
        if both is None:
            zero = self.node.full(0, type_of(self.x).dtype, (count,))
            return zero, zero
        both = self.node.agree(both, (len(self.backward), count * 2))
        row = direction_of(self.node, both, number)
        return self.node.sliced(row, 0, 0, count), self.node.sliced(row, 0, count, 2 * count)

    def initial(self, place: int, number: int) -> Value:
        """The first state of a direction, from input `place`: [batch, hidden]."""
        node, given = self.node, self.node.optional(place)
        shape = (self.sizes.batch, self.sizes.hidden)
        if given is None:
            return node.full(0, type_of(self.x).dtype, shape)
        axis = 1 if self.batch_first else 0
        given = node.agree(given, (*shape[:axis], len(self.backward), *shape[axis:]))
        return direction_of(node, given, number, axis)

    def run(
        self, number: int, gates: Value, state: Sequence[Value], step: Step
    ) -> tuple[Value | None, list[Value]]:
        """The outputs [steps, batch, hidden] of a direction, if wanted, and its last state.

        `gates` is what the input gives: [steps, batch, gates].
        """
        node, sizes = self.node, self.sizes
        dtype = type_of(self.x).dtype
        wanted = node.wants(0)
        outputs = node.full(0, dtype, (sizes.steps, sizes.batch, sizes.hidden))
        last = node.size(sizes.steps - 1)

        def body(builder: Builder, index: Value, carried: Sequence[Value]) -> Sequence[Value]:
            inner = node.within(builder)
            at = inner.op("sub", last, index) if self.backward[number] else index
            row = inner.op("take", gates, at, axis=0, mode="clamp")
            before = carried[: len(state)]
            following = step(inner, row, before)
            output = following[0]
            if self.lengths is not None:
                output = self.where_running(inner, at, output, inner.fill(0, like=output))
                following = [
                    self.where_running(inner, at, new, old)
                    for new, old in zip(following, before, strict=True)
                ]
            if not wanted:
                return following
            zero = inner.constant(0, "i64")
            output = inner.reshape(output, (1, *shape_of(output)))
            stacked = inner.op("dynamic_update_slice", carried[-1], output, at, zero, zero)
            return [*following, stacked]

        initial = [*state, outputs] if wanted else [*state]
        results = counted_loop(node.builder, node.size(sizes.steps), initial, body)
        return results[-1] if wanted else None, results[: len(state)]

    def where_running(self, inner: Node, at: Value, new: Value, old: Value) -> Value:
        """The rows [batch, n] of `new` for batch entries that have the step `at`, else of `old`."""
        assert self.lengths is not None
        lengths = self.node.convert(self.lengths, "i64")
        runs = inner.compare("lt", inner.broadcast_to(at, (self.sizes.batch,)), lengths)
        runs = inner.op("broadcast", runs, shape=shape_of(new), dimensions=(0,))
        return inner.op("select", runs, new, old)

    def results(
        self, outputs: Sequence[Value | None], states: Sequence[Sequence[Value]]
    ) -> tuple[Value | None, ...]:
        """The node's outputs from those of its directions."""
        stacked = [output for output in outputs if output is not None]
        y = self.stack(stacked, 1, (2, 0, 1, 3)) if stacked else None
        ends = [self.stack(each, 0, (1, 0, 2)) for each in zip(*states, strict=True)]
        return (y, *ends)

    def stack(self, values: Sequence[Value], axis: int, batch_first: Sequence[int]) -> Value:
        """One value per direction along a new axis."""
        node = self.node
        rows = []
        for value in values:
            shape = list(shape_of(value))
            shape.insert(axis, 1)
            rows.append(node.reshape(value, shape))
        whole = rows[0] if len(rows) == 1 else node.op("concatenate", *rows, axis=axis)
        return node.transpose(whole, batch_first) if self.batch_first else whole


# The ops.


def _recurrent(
    node: Node,
    kind: type[_RnnCell | _GruCell | LstmCell],
    gate_count: int,
    activations: tuple[str, ...],
    states: tuple[int, ...],
) -> tuple[Value | None, ...]:
    """A node of cells of this kind, one for each direction; `states` are the inputs that they
    begin with."""
    op, count = Recurrence(node, gate_count), len(activations)
    functions = activations_of(node, count * len(op.backward), activations)
    outputs, ends = [], []
    for number in range(len(op.backward)):
        cell = kind(node, op, number, functions[count * number : count * (number + 1)])
        initial = [op.initial(place, number) for place in states]
        output, end = op.run(number, cell.gates, initial, cell.step)
        outputs.append(output)
        ends.append(end)
    return op.results(outputs, ends)


@lowering("RNN", since=7)
def rnn(node: Node) -> tuple[Value | None, ...]:
    return _recurrent(node, _RnnCell, 1, ("Tanh",), (5,))


@lowering("GRU", since=7)
def gru(node: Node) -> tuple[Value | None, ...]:
    return _recurrent(node, _GruCell, 3, ("Sigmoid", "Tanh"), (5,))


@lowering("LSTM", since=7)
def lstm(node: Node) -> tuple[Value | None, ...]:
    return _recurrent(node, LstmCell, 4, LSTM, (5, 6))


class _RnnCell:
    """One direction of a plain recurrence."""

    def __init__(
        self, node: Node, op: Recurrence, number: int, functions: Sequence[Activation]
    ) -> None:
        (self.function,) = functions
        w, self.r = direction_of(node, op.w, number), direction_of(node, op.r, number)
        input_bias, state_bias = op.bias(number)
        bias = node.op("add", input_bias, state_bias)
        self.gates = _plus_row(node, product(node, op.x, w), bias)

    def step(self, inner: Node, row: Value, state: Sequence[Value]) -> list[Value]:
        return [self.function(inner, inner.op("add", row, product(inner, state[0], self.r)))]


class _GruCell:
    """One direction of a GRU: update, reset and hidden gate, in this order."""

    def __init__(
        self, node: Node, op: Recurrence, number: int, functions: Sequence[Activation]
    ) -> None:
        self.functions = functions
        self.hidden = op.sizes.hidden
        self.r = direction_of(node, op.r, number)
        self.reset_behind = node.integer("linear_before_reset", 0) != 0
        w = direction_of(node, op.w, number)
        input_bias, state_bias = op.bias(number)
        # The bias of the state adds to that of the input, except where the reset gate scales it.
        kept = self.hidden * (2 if self.reset_behind else 3)
        added = node.sliced(state_bias, 0, 0, kept)
        if self.reset_behind:
            rest = node.full(0, type_of(op.x).dtype, (self.hidden,))
            added = node.op("concatenate", added, rest, axis=0)
        self.hidden_bias = node.sliced(state_bias, 0, self.hidden * 2, self.hidden * 3)
        bias = node.op("add", input_bias, added)
        self.gates = _plus_row(node, product(node, op.x, w), bias)
        self.first_r = node.sliced(self.r, 0, 0, self.hidden * 2)
        self.last_r = node.sliced(self.r, 0, self.hidden * 2, self.hidden * 3)

    def step(self, inner: Node, row: Value, state: Sequence[Value]) -> list[Value]:
        (h,) = state
        f, g = self.functions
        hidden = self.hidden
        z_row, r_row, h_row = _gates(inner, row, 3, hidden)
        if self.reset_behind:
            z_state, r_state, h_state = _gates(inner, product(inner, h, self.r), 3, hidden)
            z, r = (
                f(inner, inner.op("add", z_row, z_state)),
                f(inner, inner.op("add", r_row, r_state)),
            )
            scaled = inner.op("mul", r, _plus_row(inner, h_state, self.hidden_bias))
        else:
            z_state, r_state = _gates(inner, product(inner, h, self.first_r), 2, hidden)
            z, r = (
                f(inner, inner.op("add", z_row, z_state)),
                f(inner, inner.op("add", r_row, r_state)),
            )
            scaled = product(inner, inner.op("mul", r, h), self.last_r)
        following = g(inner, inner.op("add", h_row, scaled))
        rest = inner.op("sub", 1, z)
        return [inner.op("add", inner.op("mul", rest, following), inner.op("mul", z, h))]


class LstmCell:
    """One direction of an LSTM: input, output, forget and cell gate, in this order."""

    def __init__(
        self, node: Node, op: Recurrence, number: int, functions: Sequence[Activation]
    ) -> None:
        self.functions = functions
        self.hidden = op.sizes.hidden
        self.r = direction_of(node, op.r, number)
        self.couples = node.integer("input_forget", 0) != 0
        input_bias, state_bias = op.bias(number)
        from_input = product(node, op.x, direction_of(node, op.w, number))
        self.gates = _plus_row(node, from_input, node.op("add", input_bias, state_bias))
        peepholes = node.optional(7)
        self.peepholes: list[Value] | None = None
        if peepholes is not None:
            peepholes = node.agree(peepholes, (len(op.backward), self.hidden * 3))
            self.peepholes = _gates(node, direction_of(node, peepholes, number), 3, self.hidden)

    def peep(self, inner: Node, gate: Value, place: int, c: Value) -> Value:
        """The gate with what it sees of the cell."""
        if self.peepholes is None:
            return gate
        weight = inner.broadcast_to(self.peepholes[place], shape_of(c))
        return inner.op("add", gate, inner.op("mul", weight, c))

    def step(self, inner: Node, row: Value, state: Sequence[Value]) -> list[Value]:
        h, c = state
        f, g, last = self.functions
        gates = inner.op("add", row, product(inner, h, self.r))
        i, o, forget, cell = _gates(inner, gates, 4, self.hidden)
        i = f(inner, self.peep(inner, i, 0, c))
        forget = inner.op("sub", 1, i) if self.couples else f(inner, self.peep(inner, forget, 2, c))
        kept, new = inner.op("mul", forget, c), inner.op("mul", i, g(inner, cell))
        c = inner.op("add", kept, new)
        o = f(inner, self.peep(inner, o, 1, c))
        return [inner.op("mul", o, last(inner, c)), c]
