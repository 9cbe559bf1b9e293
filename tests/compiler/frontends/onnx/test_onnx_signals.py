"""Transforms, frames, mel weights and blocks of images whose sizes only the call knows, compiled,
against NumPy and the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from ingot.hal.errors import InvalidArgument
from tests.support.devices import load_best
from tests.support.onnx_models import build_model, make_value
from tests.support.results import arrays_of

Node = helper.make_node
Array = np.ndarray[Any, Any]
INT32, INT64 = 6, 7


def compiled(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
) -> tuple[Any, ReferenceEvaluator]:
    proto = build_model(nodes, inputs, outputs, opset=20)
    return load_best(proto), ReferenceEvaluator(proto)


def drawn(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def as_complex(x: Array) -> Array:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0] + 0j


@cache
def transforms() -> Any:
    nodes = [
        Node("DFT", ["x", "length", "axis"], ["all"], name="all"),
        Node("DFT", ["real", ""], ["half"], onesided=1),
        Node("DFT", ["half", "points"], ["again"], inverse=1, onesided=1),
    ]
    inputs = [make_value("x", ["m", "n", "c"]), make_value("real", ["k", "s", 1])]
    inputs += [make_value(name, [], INT64) for name in ("length", "axis", "points")]
    return compiled(nodes, inputs, ["all", "half", "again"])[0]


@pytest.mark.parametrize(("m", "n", "length", "axis"), [(3, 5, 5, 1), (6, 4, 9, 0), (7, 8, 2, -3)])
@pytest.mark.parametrize("parts", [1, 2])
def test_lengths_and_axes_of_transforms_come_from_data(
    m: int, n: int, length: int, axis: int, parts: int
) -> None:
    x, real = drawn(m, n, parts), drawn(2, n, 1)
    sizes = {"length": np.array(length), "axis": np.array(axis), "points": np.array(n)}
    forward, half, again = arrays_of(transforms().main(x=x, real=real, **sizes))
    wanted = np.fft.fft(as_complex(x), length, axis % 3)
    np.testing.assert_allclose(as_complex(forward), wanted, atol=2e-6)
    np.testing.assert_allclose(as_complex(half), np.fft.rfft(real[..., 0], axis=1), atol=2e-6)
    np.testing.assert_allclose(again, real, atol=2e-6)


@pytest.mark.parametrize(
    ("parts", "length", "message"),
    [(1, 0, "layer 'all': the length of a transform is 0, expected 1"), (3, 4, "c")],
)
def test_what_has_no_transform_is_refused_at_the_call(
    parts: int, length: int, message: str
) -> None:
    sizes = {"length": np.array(length), "axis": np.array(1), "points": np.array(2)}
    with pytest.raises(InvalidArgument, match=message):
        transforms().main(x=drawn(2, 3, parts), real=drawn(1, 2, 1), **sizes)


def test_steps_and_lengths_of_frames_come_from_data() -> None:
    nodes = [
        Node("STFT", ["x", "step", "", "length"], ["plain"]),
        Node("STFT", ["x", "step", "window"], ["windowed"]),
    ]
    inputs = [make_value("x", ["b", "n", 1]), make_value("window", ["w"])]
    inputs += [make_value(name, [], INT64) for name in ("step", "length")]
    model, reference = compiled(nodes, inputs, ["plain", "windowed"])
    for step, length in ((8, 16), (3, 7), (20, 20)):
        given = {"x": drawn(2, 40, 1), "window": drawn(length + 1)}
        given |= {"step": np.array(step), "length": np.array(length)}
        for found, wanted in zip(
            arrays_of(model.main(**given)), reference.run(None, given), strict=True
        ):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_mel_weights_of_numbers_from_data() -> None:
    names = ["bins", "length", "rate", "low", "high"]
    inputs = [make_value(name, [], INT32) for name in names[:3]]
    inputs += [make_value(name, []) for name in names[3:]]
    model, reference = compiled([Node("MelWeightMatrix", names, ["y"], name="mel")], inputs, ["y"])
    for numbers in (
        (8, 16, 8192, 0.0, 4096.0),
        (20, 400, 16000, 20.0, 7600.0),
        (1, 2, 10, 0.0, 1.0),
    ):
        given = {
            name: np.array(number, np.int32 if place < 3 else np.float32)
            for place, (name, number) in enumerate(zip(names, numbers, strict=True))
        }
        (found,) = arrays_of(model.main(**given))
        (wanted,) = reference.run(None, given)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    given["high"] = np.array(20.0, np.float32)
    with pytest.raises(
        InvalidArgument, match="layer 'mel': the greatest bin, that of upper_edge_hertz, is"
    ):
        model.main(**given)


@cache
def blocks() -> tuple[Any, ReferenceEvaluator]:
    options = {"strides": [1, 2], "dilations": [2, 1], "pads": [1, 0, 0, 1]}
    inputs = [make_value("x", ["b", "c", "n"])]
    inputs += [make_value(name, [2], INT64) for name in ("image", "block")]
    return compiled([Node("Col2Im", ["x", "image", "block"], ["y"], **options)], inputs, ["y"])


@pytest.mark.parametrize(
    ("image", "block", "places"),
    [((5, 6), (2, 3), 4 * 3), ((4, 3), (1, 2), 5 * 2), ((6, 5), (3, 1), 9)],
)
def test_sizes_of_images_and_blocks_come_from_data(
    image: tuple[int, int], block: tuple[int, int], places: int
) -> None:
    model, reference = blocks()
    x = drawn(2, 3 * block[0] * block[1], places)
    given = {"x": x, "image": np.array(image), "block": np.array(block)}
    (found,), (wanted,) = arrays_of(model.main(**given)), reference.run(None, given)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


def test_blocks_that_do_not_fit_are_refused_at_the_call() -> None:
    given = {"x": drawn(2, 6, 12), "image": np.array([5, 6]), "block": np.array([2, 4])}
    with pytest.raises(InvalidArgument):
        blocks()[0].main(**given)


def test_the_shape_of_what_is_unpooled_comes_from_data() -> None:
    inputs = [make_value("x", ["a", 1, "h", "w"])]
    inputs += [make_value("i", ["a", 1, "h", "w"], INT64), make_value("shape", [4], INT64)]
    node = Node("MaxUnpool", ["x", "i", "shape"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    model, _ = compiled([node], inputs, ["y"])
    x, indices = drawn(1, 1, 2, 2), np.array([0, 3, 9, 14]).reshape(1, 1, 2, 2)
    (found,) = arrays_of(model.main(x=x, i=indices, shape=np.array([1, 1, 5, 5])))
    wanted = np.zeros(16, np.float32)
    wanted[indices.reshape(-1)] = x.reshape(-1)
    np.testing.assert_array_equal(
        found, np.pad(wanted.reshape(1, 1, 4, 4), [(0, 0), (0, 0), (0, 1), (0, 1)])
    )
