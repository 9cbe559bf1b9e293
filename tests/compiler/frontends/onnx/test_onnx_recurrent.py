"""RNN, GRU and LSTM in every form give what onnxruntime gives, before and after the passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.helper import make_node

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import Module, verify, walk
from ingot.hal.errors import CompileError
from tests.support.drawn import examples
from tests.support.onnx_models import build_model, in_session, make_value

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
ACTIVATIONS = (
    "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "LeakyRelu", "Elu", "HardSigmoid",
    "ScaledTanh", "Affine", "ThresholdedRelu",
)  # fmt: skip


def recurrent_model(
    op_type: str,
    steps: Any,
    batch: Any,
    sizes: tuple[int, int] = (3, 2),
    bias: bool = True,
    lengths: bool = False,
    initial: bool = False,
    peepholes: bool = False,
    outputs: int = 3,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of one node, and its weights as initializers of random numbers."""
    features, hidden = sizes
    random = np.random.default_rng(3)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    count = GATES[op_type] * hidden

    def weight(*shape: int) -> Any:
        return random.uniform(-1, 1, (directions, *shape)).astype(np.float32)

    weights = {"w": weight(count, features), "r": weight(count, hidden)}
    names = ["x", "w", "r", "", "", "", "", ""]
    values = [make_value("x", (steps, batch, features))]
    if bias:
        weights["b"], names[3] = weight(2 * count), "b"
    if lengths:
        names[4] = "lengths"
        values.append(make_value("lengths", (batch,), TensorProto.INT32))
    if initial:
        names[5] = "h"
        values.append(make_value("h", (directions, batch, hidden)))
        if op_type == "LSTM":
            names[6] = "c"
            values.append(make_value("c", (directions, batch, hidden)))
    if peepholes:
        weights["p"], names[7] = weight(3 * hidden), "p"
    if op_type != "LSTM":
        names, outputs = names[:6], min(outputs, 2)
    node = make_node(op_type, names, ["y", "yh", "yc"][:outputs], hidden_size=hidden, **attributes)
    model = build_model([node], values, ["y", "yh", "yc"][:outputs], weights, opset=14)
    model.ir_version = 8
    return model, weights


def inputs_of(model: onnx.ModelProto, steps: int, batch: int, lengths: Any = None) -> Any:
    random = np.random.default_rng(4)
    arrays: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name == "lengths":
            arrays["lengths"] = np.asarray(lengths, np.int32)
            continue
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        shape = (steps, batch, dims[2]) if value.name == "x" else (dims[0], batch, dims[2])
        arrays[value.name] = random.uniform(-1, 1, shape).astype(np.float32)
    return arrays


def check(model: onnx.ModelProto, arrays: dict[str, Any]) -> Module:
    """The module after the passes; before and after it gives what onnxruntime gives."""
    expected = in_session(model, arrays)
    module = import_onnx(model)
    for each in (None, run_graph_passes):
        if each is not None:
            each(module)
        verify(module, GRAPH)
        results = interpret(module, "main", list(arrays.values()))
        for result, wanted in zip(results, expected, strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    return module


@examples(25)
@given(st.data())
def test_drawn_recurrent_nodes(data: st.DataObject) -> None:
    op_type = data.draw(st.sampled_from(sorted(GATES)))
    steps, batch = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    direction = data.draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    attributes: dict[str, Any] = {"direction": direction}
    if op_type == "GRU":
        attributes["linear_before_reset"] = data.draw(st.integers(0, 1))
    if op_type == "LSTM":
        attributes["input_forget"] = data.draw(st.integers(0, 1))
    if data.draw(st.booleans()):
        attributes["clip"] = 0.4
    has_lengths = data.draw(st.booleans())
    model, _ = recurrent_model(
        op_type,
        steps,
        batch,
        bias=data.draw(st.booleans()),
        lengths=has_lengths,
        initial=data.draw(st.booleans()),
        peepholes=op_type == "LSTM" and data.draw(st.booleans()),
        **attributes,
    )
    lengths = data.draw(st.lists(st.integers(1, steps), min_size=batch, max_size=batch))
    check(model, inputs_of(model, steps, batch, lengths if has_lengths else None))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str) -> None:
    model, _ = recurrent_model(
        "RNN", 3, 2, activations=[activation], activation_alpha=[0.3], activation_beta=[0.7]
    )
    check(model, inputs_of(model, 3, 2))


def test_each_activation_takes_the_next_alpha() -> None:
    model, _ = recurrent_model(
        "LSTM", 3, 2, activations=["HardSigmoid", "Tanh", "LeakyRelu"],
        activation_alpha=[0.3, 0.1], activation_beta=[0.4],
    )  # fmt: skip
    check(model, inputs_of(model, 3, 2))


@pytest.mark.parametrize("op_type", sorted(GATES))
def test_one_module_runs_sequences_of_every_length(op_type: str) -> None:
    model, _ = recurrent_model(op_type, "steps", "batch", direction="bidirectional")
    module = import_onnx(model)
    run_graph_passes(module)
    for steps, batch in ((1, 1), (5, 2)):
        arrays = inputs_of(model, steps, batch)
        results = interpret(module, "main", list(arrays.values()))
        for result, wanted in zip(results, in_session(model, arrays), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_an_lstm_step_has_one_contraction_and_packed_weights() -> None:
    model, _ = recurrent_model("LSTM", 5, 1, sizes=(40, 48))
    module = check(model, inputs_of(model, 5, 1))
    (loop,) = (op for op in walk(module) if op.name == "while")
    body = [op.name for op in loop.regions[1].block.ops]
    assert body.count("dot_packed") == 1
    assert not {"dot_general", "transpose", "pad", "concatenate"} & set(body)


def test_an_output_that_is_not_wanted_is_not_made() -> None:
    model, _ = recurrent_model("LSTM", 5, 1)
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    module = check(model, inputs_of(model, 5, 1))
    assert not any(op.name == "dynamic_update_slice" for op in walk(module))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"activations": ["Gauss"]}, "activation 'Gauss' is not known"),
        ({"activations": ["Tanh", "Tanh"]}, "names 2 activations, but needs 1"),
        ({"direction": "sideways"}, "direction 'sideways'"),
    ],
)
def test_a_wrong_node_is_refused(attributes: dict[str, Any], message: str) -> None:
    model, _ = recurrent_model("RNN", 3, 2, **attributes)
    with pytest.raises(CompileError, match=message):
        import_onnx(model)


@pytest.mark.parametrize("op_type", GATES)
def test_weights_of_symbolic_sizes_agree(op_type: str) -> None:
    model, weights = recurrent_model(
        op_type, "s", "b", initial=True, lengths=True, peepholes=op_type == "LSTM"
    )
    arrays = {**inputs_of(model, 4, 3, [4, 1, 3]), **weights}
    (wanted, *_) = in_session(model, inputs_of(model, 4, 3, [4, 1, 3]))
    del model.graph.initializer[:]
    for name, array in weights.items():
        shape = [f"{name}{axis}" for axis in range(array.ndim)]
        model.graph.input.append(make_value(name, shape))
    module = import_onnx(model)
    given = [arrays[value.name] for value in model.graph.input]
    np.testing.assert_allclose(interpret(module, "main", given)[0], wanted, rtol=1e-5, atol=1e-6)
