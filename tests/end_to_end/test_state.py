"""State compiled: what calls leave in a model, against the interpreter and onnxruntime."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_sources
from ingot.compiler.state import apply_state
from tests.support.devices import best_variant, load_best, on_every_device, targets
from tests.support.drawn import examples

HEADS, WIDTH = 2, 8
TYPES = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64}
STATE: dict[str, Any] = {"capacity": 24, "dims": {"batch": 1}}


def value(name: str, dtype: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TYPES[dtype], list(shape))


def decoder(layers: int = 2) -> onnx.ModelProto:
    """Attention layers with past and present, as transformers are exported to ONNX."""
    random = np.random.default_rng(0)
    wide = HEADS * WIDTH
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    inputs = [value("x", "f32", "batch", "s", wide)]
    outputs = [value("y", "f32", "batch", "s", wide)]

    def weight(name: str, array: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(kind: str, *operands: str, **attributes: Any) -> str:
        name = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, operands, [name], name, **attributes))
        return name

    heads = weight("heads", np.array([0, 0, HEADS, WIDTH]))
    joined = weight("joined", np.array([0, 0, wide]))
    scale = weight("scale", np.float32(WIDTH**-0.5))
    x = "x"
    for layer in range(layers):
        parts = []
        for part in ("q", "k", "v"):
            matrix = random.normal(0, wide**-0.5, (wide, wide)).astype(np.float32)
            product = node("MatMul", x, weight(f"{part}{layer}", matrix))
            split = node("Reshape", product, heads)
            parts.append(node("Transpose", split, perm=[0, 2, 1, 3]))
        for place, side in ((1, "key"), (2, "value")):
            past, present = f"past_key_values.{layer}.{side}", f"present.{layer}.{side}"
            inputs.append(value(past, "f32", "batch", HEADS, "past", WIDTH))
            outputs.append(value(present, "f32", "batch", HEADS, "past + s", WIDTH))
            nodes.append(helper.make_node("Concat", [past, parts[place]], [present], axis=2))
            parts[place] = present
        q, k, v = parts
        scores = node("Mul", node("MatMul", q, node("Transpose", k, perm=[0, 1, 3, 2])), scale)
        mixed = node("MatMul", node("Softmax", scores, axis=-1), v)
        together = node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = node("Add", x, together)
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


@pytest.fixture(scope="module")
def compiled() -> ingot.Module:
    return ingot.compile(decoder(), state=ingot.state.past_present(**STATE), target=targets())


@on_every_device
def test_an_onnx_decoder_keeps_its_past_as_state(compiled: ingot.Module, device: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(decoder().SerializeToString())
    names = [each.name for each in session.get_inputs()][1:]
    past = {name: np.zeros((1, HEADS, 0, WIDTH), np.float32) for name in names}
    model = ingot.load(compiled, device=device)
    assert str(model.signature) == "main(x: f32[1,s,16]) -> (y: f32[1,s,16])"
    random = np.random.default_rng(1)
    for count in (5, 1, 1, 7, 1):
        x = random.standard_normal((1, count, 16)).astype(np.float32)
        expected, *presents = session.run(None, {"x": x, **past})
        past = dict(zip(names, presents, strict=True))
        np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-4)
        length = presents[0].shape[2]
        assert int(model.state()["past"]) == length
        for name, present in past.items():
            kept = np.asarray(model.state()[name])[:, :, :length]
            np.testing.assert_allclose(kept, present, rtol=1e-4, atol=1e-4)


@on_every_device
@examples(25, suppress_health_check=list(HealthCheck))
@given(counts=st.lists(st.integers(1, 9), max_size=8), other=st.lists(st.integers(1, 9)))
def test_any_sequence_of_calls_keeps_what_one_call_keeps(
    compiled: ingot.Module, device: str, counts: list[int], other: list[int]
) -> None:
    """The keys of the first layer do not depend on what came before."""
    model = ingot.load(compiled, device=device)
    fork = model.fork()
    x = np.random.default_rng(len(counts)).standard_normal((1, 24, 16)).astype(np.float32)
    length = 0
    for place, count in enumerate(counts):
        if place < len(other):
            with suppress(ingot.OutOfRange):
                fork(x[:, : other[place]])  # what another session does, does not show
        if length + count > 24:
            with pytest.raises(ingot.OutOfRange):
                model(x[:, :count])
            continue
        model(x[:, length : length + count])
        length += count
        kept = np.asarray(model.state()["past_key_values.0.key"])
        single = ingot.load(compiled, device=device)
        single(x[:, :length])
        wanted = np.asarray(single.state()["past_key_values.0.key"])
        np.testing.assert_allclose(kept, wanted, rtol=1e-5, atol=1e-6)
    assert int(model.state()["past"]) == length


@on_every_device
def test_a_fork_goes_on_as_the_model_would(compiled: ingot.Module, device: str) -> None:
    """Both change the caches that they share, in turns."""
    model = ingot.load(compiled, device=device)
    x = np.random.default_rng(3).standard_normal((3, 1, 8, 16)).astype(np.float32)
    model(x[0])
    fork = model.fork()
    for place in range(8):
        for each, rows in ((model, x[1]), (fork, x[2])):
            each(rows[:, place : place + 1])
    for each, rows in ((model, x[1]), (fork, x[2])):
        single = ingot.load(compiled, device=device)
        single(x[0])
        for place in range(8):
            single(rows[:, place : place + 1])
        for name, wanted in single.state().items():
            np.testing.assert_allclose(each.state()[name], wanted, rtol=1e-4, atol=1e-5)


@on_every_device
def test_a_full_cache_refuses_and_stays_usable(compiled: ingot.Module, device: str) -> None:
    model = ingot.load(compiled, device=device)
    x = np.ones((1, 20, 16), np.float32)
    model(x)
    before = {name: np.asarray(each).copy() for name, each in model.state().items()}
    with pytest.raises(ingot.OutOfRange, match=r"capacity 24\) before the call is 20, expected"):
        model(x[:, :5])
    with pytest.raises(ingot.InvalidArgument, match=r"'s'\) is 25, expected at most 24"):
        model(np.ones((1, 25, 16), np.float32))
    for name, each in model.state().items():
        np.testing.assert_array_equal(each, before[name])
    model(x[:, :4])
    assert int(model.state()["past"]) == 24


def test_the_same_source_twice_stores_its_weights_once(compiled: ingot.Module) -> None:
    state = ingot.state.past_present(**STATE)
    two = ingot.compile(
        {"prefill": decoder(), "decode": decoder()}, state=state, variants=[best_variant()]
    )
    model = ingot.load(two)
    x = np.random.default_rng(2).standard_normal((1, 6, 16)).astype(np.float32)
    single = ingot.load(compiled)
    np.testing.assert_array_equal(model.prefill(x), single(x))
    np.testing.assert_array_equal(model.decode(x[:, :1]), single(x[:, :1]))
    one = ingot.compile(decoder(), state=state, variants=[best_variant()])
    more = len(bytes(two)) - len(bytes(one))
    assert more < 6 * 16 * 16 * 4 + 8000  # the second function's code, and no weights


def test_initial_values_and_plain_variables_follow_the_interpreter() -> None:
    text = """module {producer="a test"} {
  func @main(%a: f32[4] "a", %n: i64[] "n", %x: f32[4] "x")
      -> (f32[4] "a1", i64[] "n1", f32[4] "y") {
    %b = add(%a, %x) : f32[4]
    %m = add(%n, %n) : i64[]
    %y = mul(%a, %b) : f32[4]
    return(%b, %m, %y)
  }
}
"""
    start = {"a": np.arange(4, dtype=np.float32), "n": np.int64(3)}
    state = ingot.state.named({"a1": "a", "n1": "n"}, initial=start)
    model = load_best(text, state=state)
    reference = apply_state(read_sources({"main": text}), state)
    values: dict[str, Any] = {}
    for number in range(3):
        x = np.full(4, number + 1, np.float32)
        (expected,) = interpret(reference, "main", [x], state=values)
        np.testing.assert_array_equal(model(x), expected)
        for name, array in values.items():
            np.testing.assert_array_equal(model.state()[name], array)


def test_appending_takes_no_longer_where_the_capacity_is_large() -> None:
    text = """module {producer="a test"} {
  func @main(%k: f32[p,64] "past.k", %x: f32[1,64] "x") -> (f32[p+1,64] "present.k")
      symbols {p in [0, none]} {
    %all = concatenate(%k, %x) {axis=0} : f32[p+1,64]
    return(%all)
  }
}
"""
    state = ingot.state.past_present(capacity=1 << 18)  # 64 MB
    model = load_best(text, state=state)
    x = np.ones((1, 64), np.float32)
    model(x)
    times = []
    for _ in range(5):
        with model.trace() as events:
            model(x)
        assert sum(event.length for event in events) < 1000  # one row, and the length
        times.append(sum(event.end - event.begin for event in events))
    assert min(times) < 2_000_000  # ns; a copy of the cache takes ten times as long


@pytest.fixture(scope="module")
def growing() -> ingot.Module:
    state = ingot.state.past_present(dims={"batch": 1})
    return ingot.compile(decoder(1), state=state, target=targets())


@on_every_device
def test_a_cache_without_a_capacity_gets_room_when_it_needs_it(
    growing: ingot.Module, device: str, tmp_path: Path
) -> None:
    model = ingot.load(growing, device=device)
    assert np.shape(model.state()["past_key_values.0.key"]) == (0, 1, HEADS, WIDTH)
    draw = np.random.default_rng(0)
    steps = [draw.standard_normal((1, n, HEADS * WIDTH)) for n in (5, 1, 60, 1, 1, 60, 1)]
    steps = [each.astype(np.float32) for each in steps]
    source = apply_state(
        read_sources({"main": decoder(1)}), ingot.state.past_present(dims={"batch": 1})
    )
    state: dict[str, Any] = {}
    expected = [interpret(source, "main", [x], state=state)[0] for x in steps]
    model.save_state(tmp_path / "empty.state")
    for place, (x, y) in enumerate(zip(steps, expected, strict=True)):
        np.testing.assert_allclose(model(x), y, rtol=1e-4, atol=1e-5)
        if place == 2:
            fork = model.fork()
            model.save_state(tmp_path / "some.state")
            kept = {name: np.array(each) for name, each in model.state().items()}
    assert len(kept["past_key_values.0.key"]) == 66
    for saved in (None, kept, tmp_path / "some.state"):
        if saved is not None:
            fork.load_state(saved)
        for x, y in zip(steps[3:5], expected[3:5], strict=True):
            np.testing.assert_allclose(fork(x), y, rtol=1e-4, atol=1e-5)
    fork.load_state(tmp_path / "empty.state")
    np.testing.assert_allclose(fork(steps[0]), expected[0], rtol=1e-4, atol=1e-5)
    fork.reset()
    np.testing.assert_allclose(fork(steps[0]), expected[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ingot.InvalidArgument, match=r"shape is \(3, 1, 2, 4\), but must be"):
        fork.load_state({**kept, "past_key_values.0.key": np.zeros((3, 1, HEADS, 4), np.float32)})
