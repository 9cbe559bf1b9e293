"""Recurrent layers of TFLite against LiteRT: their state goes on from call to call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from tests.support.devices import load_best
from tests.support.tflite_models import (
    Array,
    Graph,
    Model,
    check,
    one_op,
    run_interpreted,
    run_litert,
)

RNG = np.random.default_rng(2)
BATCH, TIME, INPUTS, UNITS = 2, 3, 4, 5


def _floats(*shape: int) -> Array:
    return RNG.uniform(-0.8, 0.8, shape).astype(np.float32)


def _gates(g: Graph, units: int, depth: int, coupled: bool) -> list[int]:
    """One matrix per gate; coupled ones have no input gate of their own."""
    return [-1 if coupled and not at else g.constant(_floats(units, depth)) for at in range(4)]


def _lstm(
    name: str = "UNIDIRECTIONAL_SEQUENCE_LSTM",
    coupled: bool = False,
    peepholes: bool = False,
    projected: int = 0,
    normalized: bool = False,
    **options: Any,
) -> bytes:
    model = Model()
    g = model.main
    depth = projected or UNITS
    is_cell = name == "LSTM"
    shape = (BATCH, INPUTS) if is_cell else (BATCH, TIME, INPUTS)
    if options.get("timeMajor"):
        shape = (TIME, BATCH, INPUTS)
    x = g.tensor("float32", shape)
    inputs = [x, *_gates(g, UNITS, INPUTS, coupled), *_gates(g, UNITS, depth, coupled)]
    for at in range(3):
        wanted = peepholes and not (coupled and at == 0)
        inputs.append(g.constant(_floats(UNITS)) if wanted else -1)
    inputs += [-1 if coupled and not at else g.constant(_floats(UNITS)) for at in range(4)]
    inputs += (
        [g.constant(_floats(depth, UNITS)), g.constant(_floats(depth))] if projected else [-1, -1]
    )
    inputs += [
        g.tensor("float32", (BATCH, n), variable=True, name=f"state{n}") for n in (depth, UNITS)
    ]
    if normalized:
        inputs += [-1 if coupled and not at else g.constant(_floats(UNITS)) for at in range(4)]
    out = g.tensor("float32", (*shape[:-1], depth))
    kind = "LSTMOptions" if is_cell else "UnidirectionalSequenceLSTMOptions"
    g.op(name, inputs, [out], kind, fusedActivationFunction=4, **options)
    g.ends([x], [out])
    return bytes(model)


def _calls(data_shape: tuple[int, ...]) -> list[list[Array]]:
    return [[_floats(*data_shape)] for _ in range(2)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"coupled": True, "timeMajor": True},
        {"peepholes": True, "cellClip": 0.2},
        {"projected": 3, "projClip": 0.1},
        {"normalized": True, "peepholes": True},
    ],
    ids=str,
)
def test_a_sequence_lstm_goes_on_with_its_state(options: dict[str, Any]) -> None:
    shape = (TIME, BATCH, INPUTS) if options.get("timeMajor") else (BATCH, TIME, INPUTS)
    check(_lstm(**options), *_calls(shape))


def test_one_step_of_an_lstm() -> None:
    check(_lstm("LSTM"), *_calls((BATCH, INPUTS)))


def test_an_lstm_compiled_keeps_and_loses_its_state() -> None:
    data, calls = _lstm(), _calls((BATCH, TIME, INPUTS))
    model = load_best(data)
    for call, (wanted,) in zip(calls, run_litert(data, *calls), strict=True):
        np.testing.assert_allclose(model(*call), wanted, rtol=1e-5, atol=1e-5)
    assert {each.name for each in model.variables} == {"state5", "state5.14"}
    model.reset()
    ((wanted,),) = run_litert(data, calls[1])
    np.testing.assert_allclose(model(*calls[1]), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("merged", [False, True])
def test_an_lstm_of_both_directions(merged: bool) -> None:
    model = Model()
    g = model.main
    lead = (TIME, BATCH) if merged else (BATCH, TIME)  # LiteRT merges right in this order only
    x = g.tensor("float32", (*lead, INPUTS))
    inputs = [x]
    for _ in range(2):
        inputs += _gates(g, UNITS, INPUTS, False) + _gates(g, UNITS, UNITS, False) + [-1] * 3
        inputs += [g.constant(_floats(UNITS)) for _ in range(4)] + [-1, -1]
    inputs += [g.tensor("float32", (BATCH, UNITS), variable=True, name=f"s{n}") for n in range(4)]
    inputs += [-1] * 9
    widths = [2 * UNITS] if merged else [UNITS] * 2
    outputs = [g.tensor("float32", (*lead, n)) for n in widths]
    g.op(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        inputs,
        outputs,
        "BidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4,
        mergeOutputs=merged,
        timeMajor=merged,
    )
    g.ends([x], outputs)
    check(bytes(model), *_calls((*lead, INPUTS)))


def test_an_lstm_with_all_gates_in_one_matrix() -> None:
    model = Model()
    g = model.main
    x, h, c = (g.tensor("float32", (BATCH, n)) for n in (INPUTS, UNITS, UNITS))
    w, b = g.constant(_floats(4 * UNITS, INPUTS + UNITS)), g.constant(_floats(4 * UNITS))
    outputs = [g.tensor("float32", (BATCH, n)) for n in (UNITS, UNITS, INPUTS + UNITS, 4 * UNITS)]
    g.op("LSTM", [x, h, w, b, c], outputs, "LSTMOptions", kernelType=1, fusedActivationFunction=4)
    g.ends([x, h, c], outputs[:2])
    check(bytes(model), [_floats(BATCH, INPUTS), _floats(BATCH, UNITS), _floats(BATCH, UNITS)])


def _rnn(name: str, kind: str, shape: tuple[int, ...], **options: Any) -> bytes:
    model = Model()
    g = model.main
    x = g.tensor("float32", shape)
    inputs, outputs = [x], []
    for at in range(2 if name.startswith("BI") else 1):
        inputs += [g.constant(_floats(UNITS, INPUTS)), g.constant(_floats(UNITS, UNITS))]
        inputs.append(g.constant(_floats(UNITS)))
        inputs.append(g.tensor("float32", (BATCH, UNITS), variable=True, name=f"h{at}"))
        outputs.append(g.tensor("float32", (*shape[:-1], UNITS)))
    if name.startswith("BI"):
        inputs += [-1, -1, -1]
    g.op(name, inputs, outputs, kind, fusedActivationFunction=4, **options)
    g.ends([x], outputs)
    return bytes(model)


def test_plain_recurrent_layers() -> None:
    check(_rnn("RNN", "RNNOptions", (BATCH, INPUTS)), *_calls((BATCH, INPUTS)))
    shape = (BATCH, TIME, INPUTS)
    check(_rnn("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions", shape), *_calls(shape))
    data = _rnn("BIDIRECTIONAL_SEQUENCE_RNN", "BidirectionalSequenceRNNOptions", shape)
    check(data, *_calls(shape))


def test_filters_over_time() -> None:
    model, memory = Model(), 4
    g = model.main
    x = g.tensor("float32", (BATCH, INPUTS))
    weights = [g.constant(_floats(6, n)) for n in (INPUTS, memory)]
    state = g.tensor("float32", (BATCH, 6 * memory), variable=True, name="state")
    out = g.tensor("float32", (BATCH, 3))
    bias = g.constant(_floats(3))
    g.op(
        "SVDF", [x, *weights, bias, state], [out], "SVDFOptions", rank=2, fusedActivationFunction=1
    )
    g.ends([x], [out])
    check(bytes(model), *_calls((BATCH, INPUTS)), *_calls((BATCH, INPUTS)))


def test_spectra() -> None:
    x, lengths = _floats(2, 5, 9), np.array([4, 8], np.int32)
    data, _ = one_op("RFFT2D", [x, lengths], [("complex64", (2, 4, 5))], "", (1,))
    check(data, [x], tolerance=1e-4)


def test_random_numbers_are_drawn_anew_and_again() -> None:
    for name in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
        shape = np.array([40], np.int32)
        data, _ = one_op(
            name, [shape], [("float32", (40,))], "RandomOptions", (0,), seed=3, seed2=4
        )
        (first,), (second,) = run_interpreted(data, [], [])
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(run_interpreted(data, [])[0][0], first)
    logits = np.log(np.array([[0.0001, 0.0001, 1.0]], np.float32))
    draws = np.array(20, np.int32)
    data, _ = one_op(
        "MULTINOMIAL", [logits, draws], [("int64", (1, 20))], "RandomOptions", (0, 1), seed=3
    )
    assert run_interpreted(data, [])[0][0].tolist() == [[2] * 20]
