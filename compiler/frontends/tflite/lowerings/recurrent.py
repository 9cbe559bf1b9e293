"""LSTM, RNN and SVDF. Their state is in variables of the model, which each call goes on with.

What depends on the input only is computed for all steps in front of the loop. Quantised ones
compute with numbers, and round their state to its codes in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import normalized
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.frontends.tflite.lowerings.activations import activate
from ingot.compiler.frontends.tflite.quantized import dequantize, quantize
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dims

__all__: list[str] = []

_GATES = "ifco"  # input, forget, cell, output
_EPSILON = 1e-8

Step = Callable[[Context, Value, Sequence[Value]], list[Value]]
"""(what the input gives, state) to the next state, whose first value is the output."""


def _number(c: Context, given: Sequence[Any], place: int) -> Value | None:
    """Input `place` as numbers; None if it was left out."""
    value = given[place] if 0 <= place < len(given) else None
    return None if value is None else c.number(place, value)


def _rounded(c: Context, x: Value, place: int) -> Value:
    """x as the codes of input `place` have it."""
    tensor = c.inputs[place]
    if tensor is None or tensor.quantization is None:
        return x
    codes = quantize(c, x, tensor.quantization, tensor.dtype)
    return dequantize(c, codes, tensor.quantization)


def _store(c: Context, place: int, x: Value) -> None:
    tensor = c.inputs[place]
    if tensor is not None and tensor.quantization is not None:
        x = quantize(c, x, tensor.quantization, tensor.dtype)
    c.assign(place, x)


def _steps(
    c: Context, x: Value, state: Sequence[Value], step: Step, backward: bool
) -> tuple[Value, list[Value]]:
    """All outputs [time, batch, n], and the last state."""
    time, batch, _ = shape_of(x)
    count = shape_of(state[0])[1]
    out = c.full(0, type_of(x).dtype, (time, batch, count))
    steps = c.size(time)

    def body(inner: Builder, index: Value, carried: Sequence[Value]) -> list[Value]:
        at = c.within(inner)
        place = index
        if backward:
            last = at.op("sub", steps, at.size(1))
            place = at.op("sub", last, index)
        zero = at.size(0)
        row = at.op("dynamic_slice", x, place, zero, zero, sizes=(1, *shape_of(x)[1:]))
        state = step(at, at.reshape(row, shape_of(x)[1:]), carried[1:])
        output = at.reshape(state[0], (1, batch, count))
        return [at.op("dynamic_update_slice", carried[0], output, place, zero, zero), *state]

    out, *state = counted_loop(c.builder, steps, [out, *state], body)
    return out, list(state)


def _product(c: Context, x: Value, w: Value) -> Value:
    """[..., k] by [n, k]."""
    return c.dot(x, w, (type_of(x).rank - 1, 1))


def _added(c: Context, x: Value, y: Value | None) -> Value:
    return x if y is None else c.op("add", *c.broadcast(x, y))


@dataclass(frozen=True)
class _Places:
    """Where the inputs of one LSTM stand: the first of each kind, in the order of gates."""

    weights: int
    recurrent: int
    peepholes: int  # of the input, forget and output gate
    biases: int
    projection: int
    output: int
    cell: int
    norms: int = -1
    auxiliary: int = -1


class _Lstm:
    def __init__(self, c: Context, given: Sequence[Any], places: _Places) -> None:
        self.places = places
        self.given = given
        self.has_input = given[places.weights] is not None
        self.gates = [at for at in range(4) if at or self.has_input]
        self.recurrent = [self._needed(c, places.recurrent + at) for at in self.gates]
        self.peepholes = dict(
            zip("ifo", (_number(c, given, places.peepholes + at) for at in range(3)), strict=True)
        )
        self.biases = [self._needed(c, places.biases + at) for at in self.gates]
        self.norms: list[Value | None] = [None] * len(self.gates)
        if places.norms >= 0:
            self.norms = [_number(c, given, places.norms + at) for at in self.gates]
        self.projection = _number(c, given, places.projection)
        self.projection_bias = _number(c, given, places.projection + 1)

    def _needed(self, c: Context, place: int) -> Value:
        value = _number(c, self.given, place)
        if value is None:
            raise UnsupportedNode(f"input {place} is missing: convert the model again")
        return value

    def run(self, c: Context, x: Value, auxiliary: Value | None, backward: bool) -> Value:
        """The outputs of x [time, batch, n]; stores the state."""
        places = self.places
        weights = [self._needed(c, places.weights + at) for at in self.gates]
        parts = _product(c, x, c.op("concatenate", *weights, axis=0))
        if auxiliary is not None and _number(c, self.given, places.auxiliary + 1) is not None:
            more = [self._needed(c, places.auxiliary + at) for at in self.gates]
            parts = c.op("add", parts, _product(c, auxiliary, c.op("concatenate", *more, axis=0)))
        state = [self._needed(c, each) for each in (places.output, places.cell)]
        out, state = _steps(c, parts, state, self._step, backward)
        for place, value in zip((places.output, places.cell), state, strict=True):
            _store(c, place, value)
        return out

    def _step(self, c: Context, parts: Value, state: Sequence[Value]) -> list[Value]:
        options = c.options
        output, cell = state
        size = shape_of(cell)[1]
        own = _product(c, output, c.op("concatenate", *self.recurrent, axis=0))
        sums = c.op("add", parts, own)
        found = {
            _GATES[gate]: c.sliced(sums, 1, at * size, (at + 1) * size)
            for at, gate in enumerate(self.gates)
        }
        forget = c.op("logistic", self._gate(c, "f", found, cell))
        if self.has_input:
            taken = c.op("logistic", self._gate(c, "i", found, cell))
        else:
            taken = c.op("sub", 1, forget)
        new = activate(c, self._gate(c, "c", found, None), options.activation)
        cell = c.op("add", c.op("mul", forget, cell), c.op("mul", taken, new))
        cell = _rounded(c, _clipped(c, cell, options.cell_clip), self.places.cell)
        shown = c.op("logistic", self._gate(c, "o", found, cell))
        output = c.op("mul", shown, activate(c, cell, options.activation))
        if self.projection is not None:
            output = _added(c, _product(c, output, self.projection), self.projection_bias)
            output = _clipped(c, output, options.proj_clip)
        return [_rounded(c, output, self.places.output), cell]

    def _gate(self, c: Context, name: str, found: dict[str, Value], cell: Value | None) -> Value:
        """What a gate is a function of."""
        place = self.gates.index(_GATES.index(name))
        x, peephole, norm = found[name], self.peepholes.get(name), self.norms[place]
        if cell is not None and peephole is not None:
            x = c.op("add", x, c.op("mul", *c.broadcast(cell, peephole)))
        if norm is not None:
            x, *_ = normalized(c, x, [1], _EPSILON)
            x = c.op("mul", *c.broadcast(x, norm))
        return _added(c, x, self.biases[place])


def _clipped(c: Context, x: Value, limit: float) -> Value:
    if limit <= 0:
        return x
    return c.op("clamp", -limit, x, limit)


def _by_time(c: Context, x: Value, time_major: bool) -> Value:
    """[time, batch, n], or back."""
    return x if time_major else c.transpose(x, (1, 0, 2))


def _quantized(c: Context, results: Sequence[Value]) -> list[Value]:
    made = []
    for x, tensor in zip(results, c.outputs, strict=False):
        q = tensor.quantization
        made.append(x if q is None else quantize(c, x, q, tensor.dtype))
    return made


@lowering("UNIDIRECTIONAL_SEQUENCE_LSTM", raw=True)
def sequence_lstm(c: Context, *given: Any) -> list[Value]:
    if c.options.diagonal_recurrent_tensors:
        raise UnsupportedNode("its recurrent weights are diagonal: convert the model without that")
    lstm = _Lstm(c, given, _Places(1, 5, 9, 12, 16, 18, 19, 20 if len(given) > 20 else -1))
    x = _by_time(c, c.number(0, given[0]), c.options.time_major)
    return _quantized(c, [_by_time(c, lstm.run(c, x, None, False), c.options.time_major)])


@lowering("LSTM", raw=True)
def lstm_cell(c: Context, *given: Any) -> list[Value]:
    if c.options.kernel_type:
        return _basic_cell(c, *given)
    lstm = _Lstm(c, given, _Places(1, 5, 9, 12, 16, 18, 19, 20 if len(given) > 20 else -1))
    x = c.number(0, given[0])
    out = lstm.run(c, c.reshape(x, (1, *shape_of(x))), None, False)
    return _quantized(c, [c.reshape(out, shape_of(out)[1:])])


def _basic_cell(
    c: Context, x: Value, output: Value, w: Value, bias: Value, cell: Value
) -> list[Value]:
    """All gates in one matrix [4n, inputs + n], in the order input, cell, forget, output."""
    x, output, w, bias, cell = (
        c.number(place, each) for place, each in enumerate((x, output, w, bias, cell))
    )
    joined = c.op("concatenate", x, output, axis=1)
    sums = _added(c, _product(c, joined, w), bias)
    size = shape_of(cell)[1]
    taken, new, forget, shown = (c.sliced(sums, 1, at * size, (at + 1) * size) for at in range(4))
    kept = c.op("mul", c.op("logistic", forget), cell)
    cell = c.op("add", kept, c.op("mul", c.op("logistic", taken), c.op("tanh", new)))
    output = c.op("mul", c.op("logistic", shown), c.op("tanh", cell))
    return _quantized(c, [output, cell, joined, sums])


@lowering("BIDIRECTIONAL_SEQUENCE_LSTM", raw=True)
def bidirectional_lstm(c: Context, *given: Any) -> list[Value]:
    time_major = c.options.time_major
    x = _by_time(c, c.number(0, given[0]), time_major)
    auxiliary = _number(c, given, 39)
    if auxiliary is not None:
        auxiliary = _by_time(c, auxiliary, time_major)
    forward = _Lstm(c, given, _Places(1, 5, 9, 12, 16, 35, 36, auxiliary=40))
    backward = _Lstm(c, given, _Places(18, 22, 26, 29, 33, 37, 38, auxiliary=44))
    stacked = auxiliary is not None and _number(c, given, 41) is None
    other = auxiliary if stacked and auxiliary is not None else x
    outputs = [
        _by_time(c, forward.run(c, x, auxiliary, False), time_major),
        _by_time(c, backward.run(c, other, auxiliary, True), time_major),
    ]
    return _quantized(c, _merged(c, outputs))


def _merged(c: Context, outputs: list[Value]) -> list[Value]:
    return [c.op("concatenate", *outputs, axis=2)] if c.options.merge_outputs else outputs


def _rnn(
    c: Context, given: Sequence[Any], x: Value, first: int, backward: bool, extra: Value | None
) -> Value:
    """Outputs of x [time, batch, n]; weights, bias and state stand from `first` on."""
    w, recurrent, bias, state = (_number(c, given, first + at) for at in range(4))
    assert w is not None
    assert recurrent is not None
    assert state is not None
    parts = _added(c, _product(c, x, w), bias)
    parts = parts if extra is None else c.op("add", parts, extra)
    kept = recurrent

    def step(at: Context, part: Value, before: Sequence[Value]) -> list[Value]:
        total = at.op("add", part, _product(at, before[0], kept))
        return [_rounded(at, activate(at, total, at.options.activation), first + 3)]

    out, (last,) = _steps(c, parts, [state], step, backward)
    _store(c, first + 3, last)
    return out


@lowering("RNN", raw=True)
def rnn_cell(c: Context, *given: Any) -> list[Value]:
    x = c.number(0, given[0])
    out = _rnn(c, given, c.reshape(x, (1, *shape_of(x))), 1, False, None)
    return _quantized(c, [c.reshape(out, shape_of(out)[1:])])


@lowering("UNIDIRECTIONAL_SEQUENCE_RNN", raw=True)
def sequence_rnn(c: Context, *given: Any) -> list[Value]:
    x = _by_time(c, c.number(0, given[0]), c.options.time_major)
    out = _rnn(c, given, x, 1, False, None)
    return _quantized(c, [_by_time(c, out, c.options.time_major)])


@lowering("BIDIRECTIONAL_SEQUENCE_RNN", raw=True)
def bidirectional_rnn(c: Context, *given: Any) -> list[Value]:
    time_major = c.options.time_major
    x = _by_time(c, c.number(0, given[0]), time_major)
    auxiliary = _number(c, given, 9)
    if auxiliary is not None:
        auxiliary = _by_time(c, auxiliary, time_major)
    weights = [_number(c, given, place) for place in (10, 11)]
    stacked = auxiliary is not None and weights[0] is None
    inputs = [x, auxiliary if stacked and auxiliary is not None else x]
    outputs = []
    for place, each in enumerate(inputs):
        w, extra = weights[place], None
        if auxiliary is not None and w is not None:
            extra = _product(c, auxiliary, w)
        out = _rnn(c, given, each, 1 + 4 * place, bool(place), extra)
        outputs.append(_by_time(c, out, time_major))
    return _quantized(c, _merged(c, outputs))


@lowering("SVDF", raw=True)
def svdf(c: Context, *given: Any) -> list[Value]:
    """Filters of features and of the last steps of each feature, which the state holds."""
    x, features, times, bias, state = (_number(c, given, place) for place in range(5))
    assert x is not None
    assert features is not None
    assert times is not None
    assert state is not None
    batch, (filters, memory) = shape_of(x)[0], known_dims(shape_of(times))
    before = c.reshape(state, (batch, filters, memory))
    now = c.reshape(_product(c, x, features), (batch, filters, 1))
    kept = c.op("concatenate", c.sliced(before, 2, 1, memory), now, axis=2)
    kept = _rounded(c, kept, 4)
    _store(c, 4, c.reshape(kept, shape_of(state)))
    sums = c.reduce(c.op("mul", *c.broadcast(kept, times)), [2], "add")
    rank = c.options.rank
    total = c.reduce(c.reshaped(sums, (batch, filters // rank, rank)), [2], "add")
    total = activate(c, _added(c, total, bias), c.options.activation)
    return _quantized(c, [total])
