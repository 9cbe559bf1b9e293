"""Random numbers of ONNX: distributions, seeds, and a stream that goes on from call to call."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from tests.support.devices import load_best, opencl_device
from tests.support.onnx_models import build_model, make_value
from tests.support.results import arrays_of
from tests.support.streams import distance, fractions, gaussian

Node = helper.make_node
Array = np.ndarray[Any, Any]
FLOATS = {"f2": TensorProto.FLOAT16, "f4": TensorProto.FLOAT, "f8": TensorProto.DOUBLE}
SEED = int(np.float32(4.5).view(np.uint32))


def drawing_model() -> onnx.ModelProto:
    """One node of each kind, some by dtype; `x` gives shapes, `p` chances, `l` logits."""
    nodes = [
        Node("RandomUniform", [], ["u"], shape=[50, 400], low=-1.0, high=3.0, seed=4.5),
        Node("RandomNormal", [], ["n"], shape=[20000], mean=2.0, scale=3.0),
        *(Node("RandomUniformLike", ["x"], [f"u{each}"], dtype=FLOATS[each]) for each in FLOATS),
        *(Node("RandomNormalLike", ["x"], [f"n{each}"], dtype=FLOATS[each]) for each in FLOATS),
        Node("Bernoulli", ["p"], ["b"], dtype=TensorProto.INT32),
        Node("Multinomial", ["l"], ["m"], sample_size=20000, dtype=TensorProto.INT64),
    ]
    inputs = [make_value("x", ["r", "c"]), make_value("p", ["k"]), make_value("l", ["b", "s"])]
    outputs = ["u", "n", *(f"{kind}{each}" for kind in "un" for each in FLOATS), "b", "m"]
    return build_model(nodes, inputs, outputs)


def test_numbers_are_distributed_as_asked_and_new_in_each_call() -> None:
    module = import_onnx(drawing_model())
    model = load_best(module)
    x, p = np.zeros((100, 150), np.float32), np.full(20_000, 0.3, np.float32)
    chances = np.array([[0.0, 0.1, 0.6, 0.0, 0.3, 0.0], [1, 0, 0, 0, 0, 0]], np.float32)
    with np.errstate(divide="ignore"):
        arguments = x, p, np.log(chances) + 7
    first, second = (arrays_of(model(*arguments)) for _ in range(2))
    uniform, normal, *likes, hits, classes = first
    np.testing.assert_array_equal(uniform.ravel(), fractions(0, SEED, 20_000) * 4 - 1)
    assert uniform.shape == (50, 400)
    assert distance(uniform, lambda x: (x + 1) / 4) < 1.6
    assert distance(normal, lambda x: gaussian((x - 2) / 3)) < 1.6
    for like, name in zip(likes, [*FLOATS, *FLOATS], strict=True):
        assert (like.shape, like.dtype) == (x.shape, np.dtype(name))
    for like in likes[:3]:
        assert 0 <= like.min() <= like.max() < 1
        assert distance(like, lambda x: x) < 1.8
    for like in likes[3:]:
        assert distance(like, gaussian) < 1.8
    np.testing.assert_array_equal(hits, fractions(8, 0, 20_000) < 0.3)
    assert (classes.shape, classes.dtype) == ((2, 20_000), np.int64)
    assert not classes[1].any()
    counts = np.bincount(classes[0], minlength=6) - 20_000 * chances[0]
    assert not counts[chances[0] == 0].any()
    assert (np.abs(counts) < 4 * np.sqrt(20_000 * chances[0]) + 1).all()
    for one, other in zip([*first[:-1], classes[0]], [*second[:-1], second[-1][0]], strict=True):
        assert not np.array_equal(one, other)
    for one, other in zip(interpret(module, "main", list(arguments)), first, strict=True):
        close = np.float16 if other.dtype == np.float16 else np.float32
        tolerance = 4 * float(np.finfo(close).eps)
        np.testing.assert_allclose(one, other, tolerance, tolerance)


def looping_model() -> onnx.ModelProto:
    """Noise in every step of a loop, in a branch, and behind them."""
    flag, two = TensorProto.BOOL, [2]
    body = helper.make_graph(
        [
            Node("Identity", ["go"], ["goes"]),
            Node("Identity", ["before"], ["after"]),
            Node("RandomUniformLike", ["x"], ["noise"]),
        ],
        "body",
        [make_value("i", [], TensorProto.INT64), make_value("go", [], flag), make_value("before")],
        [make_value("goes", [], flag), make_value("after", two), make_value("noise", two)],
    )
    drawn = helper.make_graph(
        [Node("RandomUniformLike", ["x"], ["one"])], "drawn", [], [make_value("one", two)]
    )
    kept = helper.make_graph(
        [Node("Identity", ["x"], ["two"])], "kept", [], [make_value("two", two)]
    )
    nodes = [
        Node("Loop", ["steps", "", "x"], ["last", "noises"], body=body),
        Node("If", ["p"], ["chosen"], then_branch=drawn, else_branch=kept),
        Node("Gather", ["x", "place"], ["picked"]),
        Node("RandomUniformLike", ["x"], ["behind"]),
    ]
    inputs = [make_value("x", two), make_value("p", [], flag)]
    inputs += [make_value(name, [], TensorProto.INT64) for name in ("steps", "place")]
    return build_model(nodes, inputs, ["noises", "chosen", "picked", "behind"])


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_the_stream_goes_on_through_loops_and_branches_and_is_state(target: str) -> None:
    uri = "cpu" if target == "cpu" else opencl_device()
    if uri is None:
        pytest.skip("no OpenCL device")
    model = ingot.load(ingot.compile(looping_model(), target=target), device=str(uri))
    x, zero = np.ones(2, np.float32), np.int64(0)

    def at(position: int) -> Array:
        return fractions(position, 0, 2)

    noises, chosen, _, behind = arrays_of(model(x, np.True_, np.int64(3), zero))
    np.testing.assert_array_equal(noises, [at(0), at(1), at(2)])
    np.testing.assert_array_equal(chosen, at(3))
    np.testing.assert_array_equal(behind, at(4))
    noises, chosen, _, behind = arrays_of(model(x, np.False_, zero, zero))
    assert noises.shape == (0, 2)
    np.testing.assert_array_equal(chosen, x)
    np.testing.assert_array_equal(behind, at(5))
    with pytest.raises(ingot.OutOfRange, match="index 7"):
        model(x, np.False_, zero, np.int64(7))
    np.testing.assert_array_equal(model(x, np.False_, zero, zero)[3].numpy(), at(6))
    np.testing.assert_array_equal(
        model.fork(state=False)(x, np.False_, zero, zero)[3].numpy(), at(0)
    )
    model.load_state({"random.position": np.int64(2**62 + 9)})
    np.testing.assert_array_equal(model(x, np.False_, zero, zero)[3].numpy(), at(2**62 + 9))
    model.reset()
    np.testing.assert_array_equal(model(x, np.False_, zero, zero)[3].numpy(), at(0))


def test_dropout_in_training_scales_what_it_keeps() -> None:
    node = Node("Dropout", ["x", "ratio", "training"], ["y", "mask"], seed=3)
    inputs = [make_value("x", ["r", "c"]), make_value("ratio", [])]
    inputs.append(make_value("training", [], TensorProto.BOOL))
    model = load_best(build_model([node], inputs, ["y", "mask"]))
    x = np.random.default_rng(0).standard_normal((120, 90)).astype(np.float32)
    x[0, 0] = np.inf
    for position, ratio in enumerate(np.float32([0.25, 0.0, 1.0])):
        y, mask = arrays_of(model(x, ratio, np.True_))
        kept = fractions(position, 3, x.size).reshape(x.shape) >= ratio
        np.testing.assert_array_equal(mask, kept)
        scaled = x * np.float32(1 / (1 - ratio)) if ratio < 1 else x
        np.testing.assert_allclose(y, np.where(kept, scaled, 0), 1e-6)
    y, mask = arrays_of(model(x, np.float32(0.25), np.False_))
    np.testing.assert_array_equal(y, x)
    assert mask.all()


@pytest.mark.parametrize("opset", [1, 6, 7, 10, 12, 13, 22])
def test_dropout_without_training_is_its_input(opset: int) -> None:
    inputs = ["x"] if opset < 12 else ["x", "", "training"]
    node = Node("Dropout", inputs, ["y", "mask"], **({"ratio": 0.5} if opset < 12 else {}))
    constants = {"training": np.bool_(False)}
    model = build_model([node], [make_value("x", [2])], ["y", "mask"], constants, opset=opset)
    module = import_onnx(model)
    assert not module.variables
    y, mask = interpret(module, "main", [np.full(2, 3, np.float32)])
    np.testing.assert_array_equal(y, [3, 3])
    np.testing.assert_array_equal(mask, [1, 1])
    assert mask.dtype == (np.float32 if opset < 10 else np.bool_)


def test_dropout_of_old_opsets_trains_where_it_says_so() -> None:
    node = Node("Dropout", ["x"], ["y"], ratio=0.25, is_test=0)
    module = import_onnx(build_model([node], [make_value("x", [4000])], ["y"], opset=6))
    (y,) = interpret(module, "main", [np.ones(4000, np.float32)])
    kept = fractions(0, 0, 4000) >= np.float32(0.25)
    np.testing.assert_allclose(y, kept / np.float32(0.75), 1e-6)


def test_dropout_of_half_precision_in_training_takes_a_ratio_of_one_half() -> None:
    half = [make_value("x", [4000], TensorProto.FLOAT16)]
    node = Node("Dropout", ["x", "", "training"], ["y"])
    module = import_onnx(build_model([node], half, ["y"], {"training": True}))
    (y,) = interpret(module, "main", [np.ones(4000, np.float16)])
    np.testing.assert_array_equal(y, 2 * (fractions(0, 0, 4000) >= 0.5).astype(np.float16))


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (Node("RandomUniform", [], ["y"], shape=[2], dtype=TensorProto.INT32), "it draws i32"),
        (Node("RandomNormal", [], ["y"], shape=[2], dtype=TensorProto.STRING), "dtype STRING"),
        (Node("RandomNormal", [], ["y"], shape=[-2]), "has a negative dim"),
        (Node("Multinomial", ["x"], ["y"], sample_size=0), "its sample_size is 0"),
        (Node("Multinomial", ["v"], ["y"]), "has not the rank 2"),
    ],
)
def test_what_cannot_be_drawn_is_refused(node: onnx.NodeProto, problem: str) -> None:
    inputs = [make_value("x", [2, 3]), make_value("v", [3])]
    with pytest.raises(ingot.CompileError, match=problem):
        import_onnx(build_model([node], inputs, ["y"]))


@pytest.mark.parametrize(("low", "high"), [(-3e38, 3e38), (-1e38, 3e38), (1.0, 1.0000001)])
def test_any_two_ends_of_a_uniform_distribution_are_kept(low: float, high: float) -> None:
    node = Node("RandomUniform", [], ["y"], shape=[4000], low=low, high=high)
    (drawn,) = interpret(import_onnx(build_model([node], [], ["y"])), "main", [], state={})
    first, last = np.float32(low), np.float32(high)
    assert (drawn >= first).all()
    assert (drawn < last).all()
    if high > 2:
        assert distance(drawn, lambda x: (x / 2 - low / 2) / (high / 2 - low / 2)) < 1.6
